"""Daft reads copy-on-write tables of version 6, the newest that it knows."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bucketlake as bl
from tests.in_ci import skip_or_fail
from tests.interop.model import rows_of
from tests.interop.peer.client import PEER_PYTHON
from tests.interop.shared_table import rows
from tests.interop.table_kind import EVENT

READ = """
import sys
import daft
import pyarrow.parquet as pq

path, into = sys.argv[1:]
pq.write_table(daft.read_hudi(path).to_arrow(), into)
"""


def read_with_daft(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Let Daft read a table into a file of a folder; it wants another PyArrow than bucketlake."""
    if not PEER_PYTHON.exists():
        skip_or_fail("Daft", "there is no .venv-spark35: run scripts/setup spark35")
    command = [str(PEER_PYTHON), "-c", READ, str(path), str(folder / "read.parquet")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def make(path: Path, index: bl.SimpleBucket | bl.ConsistentBucket, **options: object) -> bl.Table:
    """Create a table of version 6 with updates, inserts and deletes."""
    table = bl.create_table(
        str(path),
        schema=EVENT,
        record_key=["id"],
        partition_by=["region"],
        ordering="ts",
        index=index,
        version=6,
        **options,  # type: ignore[arg-type]
    )
    for first, last, ts in ((0, 30, 1), (20, 45, 2)):
        table.upsert(pa.Table.from_pylist(rows(range(first, last), ts), EVENT))
    table.delete(pa.Table.from_pylist(rows(range(5), 3), EVENT))
    return table


@pytest.mark.interop
@pytest.mark.parametrize("has_metadata", [True, False], ids=["metadata", "no metadata"])
@pytest.mark.parametrize("index", [bl.SimpleBucket(3), bl.ConsistentBucket(2)], ids=repr)
def test_daft_reads_what_bucketlake_reads(
    tmp_path: Path, index: bl.SimpleBucket | bl.ConsistentBucket, has_metadata: bool
) -> None:
    table = make(tmp_path / "events", index, metadata_table=has_metadata)
    done = read_with_daft(tmp_path / "events", tmp_path)
    assert done.returncode == 0, done.stderr
    found = pq.ParquetFile(tmp_path / "read.parquet").read()
    assert rows_of(found, EVENT) == rows_of(table.to_arrow(), EVENT)
    assert found.num_rows == 40


@pytest.mark.interop
def test_daft_refuses_merge_on_read_tables(tmp_path: Path) -> None:
    """If this fails, Daft has learned it: see docs/how-to/who-reads-what.md."""
    make(tmp_path / "events", bl.SimpleBucket(3), table_type="merge_on_read")
    done = read_with_daft(tmp_path / "events", tmp_path)
    assert done.returncode != 0
    assert "copy_on_write" in done.stderr.lower()
