"""What PySpark 3.5 imports: it has no data sources in Python."""

from __future__ import annotations

import subprocess
import sys


def test_modules_that_pyspark_35_uses_need_no_data_source() -> None:
    modules = ("read", "reports", "frame_source", "workers", "merge")
    code = "import sys; sys.modules['pyspark.sql.datasource'] = None\n"
    code += "import " + ", ".join(f"bucketlake.spark.{module}" for module in modules)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
