"""Recorded bucket numbers: what a partition got beats what its rule now says (RFC-89, draft)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions.commit import CommitPlan, CommitView, begin_write, commit_write
from bucketlake.errors import (
    BucketLakeError,
    CommitConflictError,
    FormatError,
    UnsupportedFeatureError,
)
from bucketlake.index.hashing_config import INITIAL_INSTANT, HashingConfig, config_path
from bucketlake.index.recorded_counts import RECORD_FOLDER, record_counts, record_path
from bucketlake.model.file_name import InstantTime
from bucketlake.model.table_type import Operation
from bucketlake.read.snapshot import load_snapshot
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.instant import InstantClock
from bucketlake.timeline.locks import NO_LOCK
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.timeline.outcome import claim_rollback
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource
from bucketlake.write.target import open_target
from tests.inside import storage_of
from tests.meanwhile import meanwhile

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
INDEX = bl.PartitionBucket({"a": 3}, default=2)


@pytest.fixture
def table(new_path: Callable[[], str]) -> bl.Table:
    """A table with 30 rows in each of the partitions a (3 buckets) and b (2)."""
    made = bl.create_table(
        new_path(), schema=SCHEMA, record_key=["id"], partition_by=["day"], index=INDEX
    )
    made.upsert(rows("ab"))
    return made


def rows(days: str, numbers: range = range(30)) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": f"k{n}", "day": day, "v": n} for day in days for n in numbers], SCHEMA
    )


def counts(table: bl.Table) -> dict[str, int]:
    return {path: one.count for path, one in table.recorded_counts().items()}


def versions(table: bl.Table) -> list[str]:
    return sorted(o.path for o in storage_of(table).list(RECORD_FOLDER))


def change_rules_in_place(table: bl.Table, expressions: str, default: int) -> None:
    """Do what nobody should: another rule under an instant that has one."""
    config = HashingConfig(expressions, default, "regex", INITIAL_INSTANT)
    storage_of(table).put(config_path(INITIAL_INSTANT), config.to_json())


def test_what_a_writer_saves_after_it_was_rolled_back_does_not_count(table: bl.Table) -> None:
    """It slept; its instant is older than the timeline, as that of an archived commit is."""
    storage, late = storage_of(table), InstantTime("20200101000000000")
    [own] = versions(table)
    storage.delete(own)
    storage.put(config_path(late), HashingConfig("a,9", 9, "regex", late).to_json())
    record = {"version": 1, "partitions": {"a": [9, late]}}
    storage.put(record_path(late), json.dumps(record).encode())
    assert counts(table) == {"a": 9}
    assert table.rule_versions()[-1].instant == late
    assert claim_rollback(storage, late).is_rollback
    assert counts(table) == {}
    assert [one.instant for one in table.rule_versions()] == [INITIAL_INSTANT]
    assert bl.open_table(table.path).index == INDEX


def commit_count(table: bl.Table, counts: dict[str, int]) -> InstantTime:
    """Commit partitions with these counts, as a writer does that runs at the same time."""
    storage, config = storage_of(table), table.config()
    timeline, clock = (
        load_timeline(opened_table(storage, config)),
        InstantClock(config.timeline_timezone),
    )
    schema = load_snapshot(opened_table(storage, config)).schema_text or ""
    with begin_write(
        OpenTable(storage, config, clock, NO_LOCK), timeline, Operation.UPSERT
    ) as write:

        def save(view: CommitView) -> None:
            record_counts(storage, view.timeline, write.instant, counts)

        commit_write(write, CommitPlan(saves=(save,), extra={"schema": schema}))
    return write.instant


def assert_each_key_once(table: bl.Table, days: str) -> None:
    found = table.to_arrow()
    assert sorted(zip(found["day"].to_pylist(), found["id"].to_pylist(), strict=True)) == sorted(
        (day, f"k{n}") for day in days for n in range(30)
    )
    for day in days:
        for n in range(0, 30, 4):
            assert len(table.locate(f"k{n}", day)) == 1
            assert table.to_arrow(where=f"id = 'k{n}' AND day = '{day}'").num_rows == 1


def test_a_version_is_written_where_a_partition_is_new_and_lists_all(table: bl.Table) -> None:
    first = table.timeline()[-1].requested_at
    assert counts(table) == {"a": 3, "b": 2}
    assert {one.instant for one in table.recorded_counts().values()} == {first}
    table.upsert(rows("ab"))
    assert versions(table) == [record_path(first)]
    later = table.upsert(rows("bc")).instant
    assert later is not None
    assert versions(table) == [record_path(first), record_path(later)]
    assert counts(table) == {"a": 3, "b": 2, "c": 2}
    assert table.recorded_counts()["b"].instant == first


def test_ten_versions_are_kept(table: bl.Table) -> None:
    for day in "cdefghijklm":
        table.upsert(rows(day, range(1)))
    assert len(versions(table)) == 10
    assert len(counts(table)) == 13


def test_the_record_beats_rules_that_changed_without_a_rescale(table: bl.Table) -> None:
    change_rules_in_place(table, "a,7;c,5", 9)
    assert_each_key_once(table, "ab")
    assert table.upsert(rows("abc")).updated == 60
    assert_each_key_once(table, "abc")
    assert counts(table) == {"a": 3, "b": 2, "c": 5}
    report = table.rescale({"a": 7, "c": 5}, default=9, dry_run=True)
    assert {p.partition_path: (p.old_count, p.new_count) for p in report.partitions} == {
        "a": (3, 7),
        "b": (2, 9),
    }
    table.rescale({"a": 7, "c": 5}, default=9, dry_run=False)
    assert counts(table) == {"a": 7, "b": 9, "c": 5}
    assert_each_key_once(table, "abc")


def test_a_rescale_that_the_record_has_not_heard_of_outweighs_it(table: bl.Table) -> None:
    """As one of Hudi's."""
    instant = table.rescale({"a": 7}, dry_run=False).instant
    assert instant is not None
    storage_of(table).delete(record_path(instant))
    assert counts(table) == {"a": 3, "b": 2}
    assert_each_key_once(table, "ab")
    assert table.upsert(rows("ab")).updated == 60
    assert counts(table) == {"a": 7, "b": 2}


def test_the_record_of_a_write_that_failed_or_was_rolled_back_goes(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = versions(table)
    rolled_back = table.upsert(rows("cd")).instant
    assert rolled_back is not None
    table.rollback(rolled_back)
    assert versions(table) == before
    pending = InstantTime(f"{int(rolled_back) + 100_000}")
    storage_of(table).put(record_path(pending), b'{"version": 1, "partitions": {"a": [1, "1"]}}')
    assert counts(table) == {"a": 3, "b": 2}


def test_writers_that_count_a_new_partition_differently_find_each_other(
    monkeypatch: pytest.MonkeyPatch, new_path: Callable[[], str]
) -> None:
    """Two releases of one function of the user's: the same name, other counts."""

    def release(buckets: int) -> Callable[[Any], Any]:
        def by_function(_: Any) -> Any:
            return lambda path: buckets if path == "c" else 2

        return by_function

    old = bl.PartitionBucket({"c": 1}, 2, rule=release(4))
    new = bl.PartitionBucket({"c": 1}, 2, rule=release(6))
    table = bl.create_table(
        new_path(), schema=SCHEMA, record_key=["id"],
        partition_by=["day"], index=old,
    )  # fmt: skip
    table.upsert(rows("ab"))
    other: list[InstantTime] = []
    meanwhile(monkeypatch, lambda: other.append(commit_count(table, {"c": 4})))
    late = bl.open_table(table.path, index=new)
    target = open_target(opened_table(storage_of(table), table.config()), new)
    with pytest.raises(CommitConflictError, match=r"6 buckets in .*'c', which has 4") as e:
        write_records(target, Operation.UPSERT, ArrowSource(rows("c")))
    assert other[0] in str(e.value)
    assert e.value.instant != other[0]
    assert late.upsert(rows("abc")).updated == 60
    assert counts(table) == {"a": 2, "b": 2, "c": 4}
    assert max(b.bucket_id or 0 for b in table.buckets() if b.partition_path == "c") == 3


def test_a_read_of_an_earlier_time_goes_by_the_record_of_then(table: bl.Table) -> None:
    before = table.timeline()[-1].requested_at
    change_rules_in_place(table, "a,7", 9)
    table.rescale({"a": 5}, default=4, dry_run=False)
    for n in range(0, 30, 3):
        where = f"id = 'k{n}'"
        assert table.to_arrow(where=where, as_of=before).num_rows == 2
        assert table.to_arrow(where=where).num_rows == 2


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", FormatError),
        (b"[]", FormatError),
        (b'{"version": 2, "partitions": {}}', UnsupportedFeatureError),
        (b'{"version": 1}', FormatError),
        (b"\xff", FormatError),
    ],
)
def test_a_broken_record_is_named(
    table: bl.Table, content: bytes, error: type[BucketLakeError]
) -> None:
    [path] = versions(table)
    storage_of(table).put(path, content)
    with pytest.raises(error, match="partition_counts"):
        table.upsert(rows("a"))


def test_a_table_with_one_count_for_all_keeps_no_record(new_path: Callable[[], str]) -> None:
    table = bl.create_table(
        new_path(), schema=SCHEMA, record_key=["id"], partition_by=["day"],
        index=bl.SimpleBucket(2),
    )  # fmt: skip
    table.upsert(rows("ab"))
    assert versions(table) == []
    assert json.loads(storage_of(table).read(".hoodie/.bucket_index/ext/index.json"))


def test_the_count_of_a_rescale_that_was_rolled_back_stays_forgotten_once_it_is_old(
    table: bl.Table,
) -> None:
    """The record of a later commit repeats it, and what is older than the timeline is committed."""
    table.upsert(rows("ab"))
    rescaled = table.rescale(add={"^a": 7}, dry_run=False).instant
    assert rescaled is not None
    table.upsert(rows("c"))
    assert counts(table) == {"a": 7, "b": 2, "c": 2}
    table.archive(keep_min=2, keep_max=3)
    assert table.timeline()[0].requested_at == rescaled  # The oldest one, and it goes.
    table.rollback(rescaled)
    assert counts(table) == {"b": 2, "c": 2}
    opened = bl.open_table(table.path)
    assert opened.index == INDEX
    assert opened.upsert(rows("abc")).updated == 90
    assert not opened.doctor(check_keys=True)
