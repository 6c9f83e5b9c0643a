"""What contenders without a Spark session share."""

from __future__ import annotations

import gc
import platform
from typing import Any

import numpy as np
import pyarrow as pa


class EngineFree:
    """Facts of this process, and nothing left to run between steps."""

    settings: dict[str, str]

    def settle(self) -> None:
        gc.collect()

    def facts(self) -> dict[str, Any]:
        versions = {
            "python": platform.python_version(),
            "pyarrow": pa.__version__,
            "numpy": np.__version__,
        }
        return {"versions": versions, "settings": self.settings}
