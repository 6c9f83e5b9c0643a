"""A library that has no memory left: the error says what to lower."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import bucketlake as bl
from bucketlake.cli.main import main
from bucketlake.errors import FormatError, OutOfMemoryError
from bucketlake.format import base_file
from tests.spies import breaks

ROWS = pa.table({"id": ["a", "b"], "v": [1, 2]})


FULL = pa.lib.ArrowMemoryError("malloc of size 8388608 failed")


@pytest.fixture
def table(tmp_path: Path) -> bl.Table:
    made = bl.create_table(
        str(tmp_path / "t"), schema=ROWS.schema, record_key="id", index=bl.SimpleBucket(1)
    )
    made.upsert(ROWS)
    return made


def test_a_write_without_memory_says_what_to_lower(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        breaks(patch, base_file.pq, "ParquetWriter", FULL)
        with pytest.raises(MemoryError, match=r"malloc of size 8388608.*max_file_size") as caught:
            table.upsert(ROWS)
    assert isinstance(caught.value, OutOfMemoryError)
    assert caught.value.table == table.path
    assert str(pickle.loads(pickle.dumps(caught.value))) in str(caught.value)
    assert table.to_arrow().num_rows == 2


def test_a_file_that_is_read_without_memory_is_not_called_damaged(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch, base_file.BaseFileReader, "iter_chunks", FULL)
    with pytest.raises(OutOfMemoryError, match="columns and rows of a read"):
        table.to_arrow()
    done = CliRunner().invoke(main, ["read", table.path])
    assert done.exit_code == 1
    assert "out of memory" in done.output


def test_lack_of_memory_behind_an_error_of_a_format_is_told(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = FormatError("f", "a file", str(FULL))
    damaged.__cause__ = FULL
    breaks(monkeypatch, base_file.BaseFileReader, "iter_chunks", damaged)
    with pytest.raises(OutOfMemoryError, match="malloc"):
        table.to_arrow()
