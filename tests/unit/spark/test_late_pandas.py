"""pandas stays out of a process until something imports it, and pyarrow knows it from then on."""

from __future__ import annotations

import subprocess
import sys

POSTPONED = """
import sys
import pyarrow as pa
from bucketlake.spark.workers import postpone_pandas
postpone_pandas()
pa.array([1.5]); pa.scalar(1); pa.table({"n": [1]}); pa.RecordBatch.from_pylist([{"n": 1}])
assert "pandas" not in sys.modules
"""
NULLS_AS_PANDAS_MEANS_THEM = "assert pa.array(pd.Series([1.5, float('nan')])).null_count == 1"


def run(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


IN_A_FORK = """
import os
child = os.fork()
if not child:
    {imported}
    {check}
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0, {imported!r}
"""


def test_a_series_is_understood_however_pandas_was_imported() -> None:
    """And arrays of Python's values are made without pandas."""
    ways = (
        "import pandas as pd",
        "from pandas import Series; import pandas as pd",
        "import pandas.api.types; import pandas as pd",
        "pa.table({'n': [1]}).to_pandas(); import pandas as pd",
    )
    forks = (IN_A_FORK.format(imported=way, check=NULLS_AS_PANDAS_MEANS_THEM) for way in ways)
    run(f"{POSTPONED}\npostpone_pandas()\n{''.join(forks)}")


def test_a_pandas_that_is_there_already_stays() -> None:
    run(
        "import pandas as pd, pyarrow as pa\n"
        "from bucketlake.spark.workers import postpone_pandas\n"
        f"postpone_pandas()\n{NULLS_AS_PANDAS_MEANS_THEM}"
    )


def test_another_thread_finds_pandas_while_this_one_looks_away() -> None:
    run(
        "import sys, threading\n"
        "from bucketlake.spark import workers\n"
        "finder = workers._Finder()\n"
        "sys.meta_path.insert(0, finder)\n"
        "finder.hides_from = threading.get_ident()\n"
        "thread = threading.Thread(target=lambda: __import__('pandas'))\n"
        "thread.start(); thread.join()\n"
        "assert 'pandas' in sys.modules"
    )


def test_where_pandas_is_not_installed_nothing_changes() -> None:
    run(
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'pandas': raise ModuleNotFoundError('not installed', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n" + POSTPONED + "try:\n"
        "    import pandas\n"
        "except ModuleNotFoundError as error:\n"
        "    assert 'not installed' in str(error)\n"
        "else:\n"
        "    raise AssertionError"
    )
