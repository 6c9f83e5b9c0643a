"""What a handle shows in a REPL and a notebook: facts without a look into a data file, no error."""

from __future__ import annotations

import threading
from html import unescape
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.format.base_file import BaseFileReader
from bucketlake.read import overview
from bucketlake.read.handle import Handle
from tests.spies import forbid

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("n", pa.int64())])
_NUMBERS = count()


def rows(numbers: range) -> pa.Table:
    made = [{"id": f"k{n}", "day": "ab"[n % 2], "n": n} for n in numbers]
    return pa.Table.from_pylist(made, SCHEMA)


def make(**given: Any) -> bl.Table:
    return bl.create_table(
        f"memory://overview-{next(_NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        partition_by="day",
        index=bl.SimpleBucket(2),
        **given,
    )


@pytest.mark.parametrize("metadata_table", [True, False])
def test_a_handle_shows_kind_rows_size_and_last_commit(metadata_table: bool) -> None:
    table = make(metadata_table=metadata_table)
    assert repr(table).startswith(
        f"Table(path={table.path!r}): copy-on-write, SimpleBucket(count=2"
    )
    assert repr(table).endswith(", 0 rows, 0 B in 0 file groups, no commit")
    table.upsert(rows(range(9)))
    result = table.delete(rows(range(2)))
    assert ", 7 rows, " in repr(table)
    assert repr(table).endswith(f"in 2 file groups, last commit {result.instant} (DELETE)")
    html = table._repr_html_()
    assert "<tr><th>rows</th><td>7</td></tr>" in html
    assert "<tr><th>partition_by</th><td>day</td></tr>" in html


def test_no_data_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make()
    table.upsert(rows(range(9)))

    forbid(monkeypatch, BaseFileReader, "__init__")
    assert ", 9 rows, " in repr(table)


def test_rows_of_a_table_with_log_files_are_about_right() -> None:
    table = make(table_type="merge_on_read")
    table.upsert(rows(range(9)))
    table.upsert(rows(range(4)))
    assert "merge-on-read" in repr(table)
    assert ", about 9 rows, " in repr(table)
    assert "<tr><th>rows_exact</th><td>false</td></tr>" in table._repr_html_()


def test_rows_of_archived_commits_are_left_out() -> None:
    table = make()
    table.upsert(rows(range(9)))
    for _ in range(4):
        table.upsert(rows(range(2)).slice(0, 1))
    table.archive(keep_min=1, keep_max=2)
    assert "rows" not in repr(table)
    assert "table.count() counts them" in table._repr_html_()


def test_a_handle_without_a_table_shows_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    table = bl.Table("memory://overview-nowhere")
    assert repr(table) == unescape(table._repr_html_()) == "Table(path='memory://overview-nowhere')"
    broken = make()
    forbid(monkeypatch, Handle, "snapshot")
    assert repr(broken) == f"Table(path={broken.path!r})"


def test_a_store_that_does_not_answer_does_not_block_a_prompt() -> None:
    never = threading.Event()  # Were the prompt to wait for it, this test would never end.
    assert overview.within_seconds(lambda: str(never.wait()), 0.05) is None
    never.set()
