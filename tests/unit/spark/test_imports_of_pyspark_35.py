"""What PySpark 3.5 imports: it has no data sources in Python."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["read", "reports", "frame_source", "workers", "merge"])
def test_a_module_that_pyspark_35_uses_needs_no_data_source(module: str) -> None:
    code = (
        "import sys; sys.modules['pyspark.sql.datasource'] = None\n"
        f"import bucketlake.spark.{module}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
