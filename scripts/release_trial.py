"""Uses an installed bucketlake as a new user does: the tutorial, and the command line.

usage: python scripts/release_trial.py ENVIRONMENT, with the Python of that environment
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # For tests/guides.py; the package is in src/.

import bucketlake as bl  # noqa: E402
from tests.guides import blocks, run_blocks  # noqa: E402

PAGE = "docs/tutorial.md"


def main() -> int:
    environment = Path(sys.argv[1]).resolve()
    assert Path(bl.__file__).is_relative_to(environment), bl.__file__
    found = blocks(ROOT / PAGE, "python", "bash")
    if os.environ.get("BUCKETLAKE_PART") == "arrow":  # The steps before Spark is started.
        first = next(place for place, (_, code) in enumerate(found) if "SparkSession" in code)
        found = found[:first]
    assert found
    os.environ["PATH"] = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run_blocks(found, PAGE, {"__name__": "__main__"})
        told = subprocess.run(
            ["bucketlake", "show", "orders"], check=True, capture_output=True, text=True
        )
        os.chdir("/")
    assert "orders" in told.stdout, told.stdout
    return 0


if __name__ == "__main__":
    sys.exit(main())
