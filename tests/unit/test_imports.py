"""What importing bucketlake asks for."""

from __future__ import annotations

import pickle
import subprocess
import sys

import bucketlake as bl


def test_bucketlake_and_its_command_line_import_without_pyspark() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None\n"  # None makes every import of it fail.
        "import bucketlake, bucketlake.save, bucketlake.table, bucketlake.cli.main"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_pickle_of_a_table_names_the_module_that_earlier_ones_name() -> None:
    """Jobs keep tables and the functions of their streams in pickles."""
    table = bl.Table("memory://somewhere")
    for pickled in (pickle.dumps(table, 0), pickle.dumps(table.upsert_batch("orders"), 0)):
        assert b"cbucketlake.table\nTable\n" in pickled
