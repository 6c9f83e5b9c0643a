"""Results print as small tables, as text and in notebooks; their ``repr`` shows all values."""

from __future__ import annotations

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.config.table_version import LAYOUT_2
from bucketlake.model.result import WriteResult
from bucketlake.table import handle_of

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string())])


@pytest.fixture
def table(new_path) -> bl.Table:  # type: ignore[no-untyped-def]
    made = bl.create_table(
        new_path(), schema=SCHEMA, record_key="id", partition_by="day", index=bl.SimpleBucket(2)
    )
    made.upsert(pa.table({"id": ["a", "b", "c"], "day": ["<x>", "<x>", "y"]}, schema=SCHEMA))
    made.delete(pa.table({"id": ["c"], "day": ["y"]}))
    return made


def test_result_prints_one_line_for_each_fact() -> None:
    result = WriteResult(None, inserted=3)
    lines = [line.split() for line in str(result).splitlines()]
    assert ["instant", "-"] in lines
    assert ["inserted", "3"] in lines
    assert "inserted=3" in repr(result)


def test_timeline_shows_the_operation_and_the_rows_of_each_commit(table: bl.Table) -> None:
    head, _, *lines = str(table.timeline()).splitlines()
    assert head.split()[:6] == [
        "requested_at",
        "action",
        "state",
        "completed_at",
        "operation",
        "written",
    ]
    found = [line.split() for line in lines]
    assert [(row[1], row[2], *row[4:7]) for row in found] == [
        ("commit", "completed", "UPSERT", "3", "0"),
        ("commit", "completed", "DELETE", "0", "1"),
    ]


def test_timeline_lists_a_commit_whose_file_is_damaged(table: bl.Table) -> None:
    storage = handle_of(table).storage
    last = table.timeline()[-1]
    path = f".hoodie/timeline/{last.to_file_name(LAYOUT_2)}"
    storage.delete(path)
    storage.put_if_absent(path, b"no commit")
    entry = table.timeline()[-1]
    assert (entry.requested_at, entry.operation) == (last.requested_at, None)


def test_parts_of_a_report_are_a_table(table: bl.Table) -> None:
    report = table.rescale({"y": 4}, dry_run=True)
    text = str(report)
    assert "old_count  new_count" in text
    assert "PartitionBucket" in text


def test_lists_show_only_columns_with_values(table: bl.Table) -> None:
    buckets = table.buckets()
    assert "hash_range" not in str(buckets)
    assert buckets == list(buckets)
    assert str(table.locate("nothing")) == "[]"


def test_notebooks_get_escaped_html(table: bl.Table) -> None:
    html = table.buckets()._repr_html_()  # type: ignore[attr-defined]
    assert "<td>&lt;x&gt;</td>" in html
    assert html.count("<tr>") == 1 + len(table.buckets())
    assert "<th>old_count</th>" in table.rescale({"y": 4}, dry_run=True)._repr_html_()
