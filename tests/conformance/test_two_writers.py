"""Two writers at once: they conflict only if they write to the same bucket."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bucketlake.errors import CommitConflictError
from bucketlake.model.table_type import Operation
from bucketlake.timeline.instant import State
from bucketlake.timeline.table_properties import table_at
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource
from bucketlake.write.target import open_target
from tests.conformance.cases import Checked, Row, arrow, rows
from tests.inside import storage_of
from tests.meanwhile import meanwhile


def upsert_once(table: Checked, batch: list[Row]) -> None:
    """Upsert without a retry after a conflict."""
    storage = storage_of(table.table)
    target = open_target(table_at(storage), None)
    write_records(target, Operation.UPSERT, ArrowSource(arrow(batch)))


def of_one_bucket_and_another(table: Checked) -> tuple[list[Row], list[Row]]:
    """Return the rows of a bucket, and the rows of the other buckets of its partition."""
    held = [row | {"at": 5} for (day, _), row in sorted(table.rows.items()) if day == "a"]
    first = table.locate(held[0])
    own = [row for row in held if table.locate(row) == first]
    return own, [row for row in held if row not in own]


def test_the_second_writer_of_a_key_is_rejected_and_the_first_ones_rows_stay(
    table: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(monkeypatch, lambda: table.upsert(rows([0], 7)))
    with pytest.raises(CommitConflictError):
        upsert_once(table, rows([0], 8))
    table.check()
    assert all(i.state is State.COMPLETED for i in table.table.timeline())
    table.check_next_write_finds_all()


def test_the_second_writer_of_a_new_key_is_rejected_and_the_key_is_there_once(
    table: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(monkeypatch, lambda: table.upsert(rows([60], 7)))
    with pytest.raises(CommitConflictError):
        upsert_once(table, rows([60], 8))
    table.check()


def test_the_second_writer_of_a_new_partition_is_rejected(
    table: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(monkeypatch, lambda: table.upsert(rows([70], 7, days="c")))
    with pytest.raises(CommitConflictError):
        upsert_once(table, rows([70], 8, days="c"))
    table.check()


def test_a_conflict_is_retried_on_the_table_as_it_then_is(
    table: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(monkeypatch, lambda: table.upsert(rows(range(10, 14), 7)))
    result = table.upsert(rows(range(10, 16), 8))
    assert result.written == 6
    if not table.case.merges_on_read:
        assert result.inserted == 2
    table.check()


def test_writers_of_different_buckets_of_a_partition_both_commit(
    table: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, others = of_one_bucket_and_another(table)
    if not others:
        pytest.skip("the partition has one bucket")
    meanwhile(monkeypatch, lambda: table.upsert(own))
    upsert_once(table, others)
    table.expect_upserted(others)
    table.check()


@pytest.mark.in_turns("second", ["upsert", "delete", "overwrite", "drop"])
def test_writers_of_different_partitions_both_commit(
    table: Checked, monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    if table.case.kind.keys_are_global:
        pytest.skip("writers that add keys to one shard conflict, also in different partitions")
    writes: dict[str, Callable[[], object]] = {
        "upsert": lambda: table.upsert(rows(range(1, 20, 2), 8)),
        "delete": lambda: table.delete(rows([1, 3])),
        "overwrite": lambda: table.overwrite(rows([1, 31], 8)),
        "drop": lambda: table.drop("b"),
    }
    meanwhile(monkeypatch, writes[second])
    upsert_once(table, rows(range(0, 20, 2), 7))
    table.expect_upserted(rows(range(0, 20, 2), 7))
    table.check()


@pytest.mark.in_turns("first", ["delete", "overwrite", "drop"])
def test_a_writer_whose_partition_changed_meanwhile_is_rejected(
    table: Checked, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    writes: dict[str, Callable[[], object]] = {
        "delete": lambda: table.delete(rows([0, 2])),
        "overwrite": lambda: table.overwrite(rows([0, 30], 8)),
        "drop": lambda: table.drop("a"),
    }
    meanwhile(monkeypatch, writes[first])
    with pytest.raises(CommitConflictError):
        upsert_once(table, rows([0, 2], 9))
    table.check()


@pytest.mark.merge_on_read
def test_a_writer_and_a_compaction_at_once_both_commit(
    table: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(monkeypatch, lambda: table.table.compact())
    table.upsert(rows(range(14), 6))
    table.check()
    table.table.compact()
    table.check()


def test_a_write_planned_on_a_commit_that_was_rolled_back_is_rejected(
    table: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dict(table.rows)
    undone = table.upsert(rows(range(30, 40), 7)).instant
    assert undone is not None
    meanwhile(monkeypatch, lambda: table.table.rollback(undone))
    with pytest.raises(CommitConflictError):
        upsert_once(table, rows(range(30, 40), 8))
    table.rows = before
    table.check()
