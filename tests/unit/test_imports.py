"""What importing bucketlake asks for."""

from __future__ import annotations

import subprocess
import sys


def test_bucketlake_and_its_command_line_import_without_pyspark() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None\n"  # None makes every import of it fail.
        "import bucketlake, bucketlake.save, bucketlake.table, bucketlake.cli.main"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
