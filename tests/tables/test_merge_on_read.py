"""Merge-on-read tables: appends, merged reads, and compactions among writers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions import progress
from bucketlake.actions.rollback import take_back
from bucketlake.config.paths_of_table import OUTCOME_FOLDER
from bucketlake.config.recorded_entries import RECORDED
from bucketlake.config.table_keys import ORDERING_FIELDS
from bucketlake.errors import (
    CommitConflictError,
    ConfigError,
    FormatError,
    TimelineError,
    UnsupportedFeatureError,
)
from bucketlake.format.base_file import BaseFileReader
from bucketlake.format.log_block import BlockKind, read_log_blocks
from bucketlake.model.file_name import InstantTime
from bucketlake.model.table_type import Operation
from bucketlake.read import slice_reader
from bucketlake.read.read_plan import plan_read
from bucketlake.read.request import ReadRequest
from bucketlake.services import compaction
from bucketlake.storage.base import Buffer
from bucketlake.table import handle_of
from bucketlake.timeline import transitions
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.instant import Action, InstantClock, State
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.outcome import claim_rollback
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource
from bucketlake.write.target import open_target
from tests.between import InterruptedSource
from tests.bounds import set_bounds
from tests.faulty_storage import FaultyStorage, SimulatedCrash
from tests.inside import let_commits_forget, storage_of, values_of
from tests.meanwhile import PUTS, dying, meanwhile
from tests.spies import spy
from tests.storages import set_properties
from tests.waiting import wait_until

FLAG = "_hoodie_is_deleted"
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("day", pa.string()),
        ("v", pa.int64()),
        ("ts", pa.int64()),
        (FLAG, pa.bool_()),
    ]
)


@pytest.fixture
def table(new_path: Callable[[], str]) -> bl.Table:
    """A table with rows k0 to k9 of time 10, in base files."""
    made = bl.create_table(
        new_path(), schema=SCHEMA, record_key=["id"], partition_by=["day"], ordering="ts",
        index=bl.SimpleBucket(2), table_type="merge_on_read",
    )  # fmt: skip
    made.upsert(rows(range(10), 1, 10))
    return made


def rows(numbers: range, v: int, ts: int, *, deleted: bool = False) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": f"k{n}", "day": "ab"[n % 2], "v": v, "ts": ts, FLAG: deleted} for n in numbers],
        SCHEMA,
    )


def logs_of(table: bl.Table) -> list[str]:
    found = [o.path for o in storage_of(table).list("") if ".log." in o.path]
    return [path for path in found if not path.startswith(".hoodie/")]


def commit_times(table: bl.Table) -> dict[str, str]:
    found = table.to_arrow(columns=["id", "_hoodie_commit_time"]).to_pydict()
    return dict(zip(*found.values(), strict=True))


def keys(numbers: range, v: int) -> dict[str, int]:
    return {f"k{n}": v for n in numbers}


def test_updates_go_to_log_files_and_leave_base_files_alone(table: bl.Table) -> None:
    before = {b.path for b in table.buckets()}
    result = table.upsert(rows(range(5, 15), 2, 11))
    after = {b.path for b in table.buckets()}
    assert before < after  # A bucket that is new begins with a base file, as with Hudi.
    assert len(logs_of(table)) == len(before)
    # Nothing stored is read, so nobody knows which of those in log files are new.
    assert result.written == 10
    assert values_of(table) == {**keys(range(5), 1), **keys(range(5, 15), 2)}
    assert [i.action for i in table.timeline()] == [Action.DELTA_COMMIT] * 2


def test_the_greater_ordering_value_wins_whenever_it_comes(table: bl.Table) -> None:
    table.upsert(rows(range(4), 2, 9))
    assert values_of(table) == keys(range(10), 1)
    table.upsert(rows(range(4), 3, 12))
    table.upsert(rows(range(4), 4, 11))
    assert values_of(table) == {**keys(range(4), 3), **keys(range(4, 10), 1)}


def test_deletes_by_flag_keep_their_ordering_value(table: bl.Table) -> None:
    table.upsert(rows(range(2), 0, 9, deleted=True))
    table.upsert(rows(range(2, 4), 0, 11, deleted=True))
    assert values_of(table) == {**keys(range(2), 1), **keys(range(4, 10), 1)}
    table.upsert(rows(range(2, 4), 5, 10))  # Older than the deletes.
    assert values_of(table) == {**keys(range(2), 1), **keys(range(4, 10), 1)}
    table.upsert(rows(range(2, 4), 5, 11))  # At equal values the delete wins.
    assert values_of(table) == {**keys(range(2), 1), **keys(range(4, 10), 1)}
    table.upsert(rows(range(2, 4), 6, 12))
    assert values_of(table) == {
        **keys(range(2), 1),
        **keys(range(2, 4), 6),
        **keys(range(4, 10), 1),
    }


MOMENT = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("kinds", "deletes", "is_gone"),
    [
        ([pa.int32()], [None], True),
        ([pa.int32()], [0], True),
        ([pa.int32()], [4], False),
        ([pa.int64()], [None], True),
        ([pa.int64()], [0], False),
        ([pa.float64()], [None], True),
        ([pa.float64()], [0.0], False),
        ([pa.string()], [None], True),
        ([pa.string()], [""], False),
        ([MOMENT], [None], True),
        ([MOMENT], [0], False),
        ([pa.date32()], [None], True),
        ([pa.date32()], [0], True),
        ([pa.date32()], [4], False),
        ([pa.int32(), pa.string()], [None, None], True),
        ([pa.int32(), pa.string()], [0, None], False),
        ([pa.int32(), pa.int64()], [None, 9], False),
    ],
    ids=repr,
)
@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_deletes_by_flag_without_ordering_value_win_in_tables_of_either_type(
    new_path: Callable[[], str],
    kinds: list[pa.DataType],
    deletes: list[Any],
    is_gone: bool,
    table_type: str,
) -> None:
    """An int's 0, and a date's, is spelled as none in log files."""
    names = [f"o{i}" for i in range(len(kinds))]
    fields = [("id", pa.string()), *zip(names, kinds, strict=True), (FLAG, pa.bool_())]
    made = bl.create_table(
        new_path(), schema=pa.schema(fields), record_key=["id"], ordering=names,
        index=bl.SimpleBucket(1), table_type=table_type,
    )  # fmt: skip
    stored = ["5" if kind == pa.string() else 5 for kind in kinds]
    for told, flag in ((stored, False), (deletes, True)):
        ordering = [pa.array([one], kind) for one, kind in zip(told, kinds, strict=True)]
        made.upsert(pa.table([["a"], *ordering, [flag]], ["id", *names, FLAG]))
        expected = 1 - int(flag and is_gone)
        assert made.to_arrow().num_rows == expected
    if table_type == "merge_on_read":
        made.compact()
        assert made.to_arrow().num_rows == expected


@pytest.mark.parametrize(
    ("narrow", "value", "wide"),
    [
        (pa.float32(), 0.7, pa.float64()),
        (pa.int32(), 2**31 - 1, pa.float64()),
    ],
)
def test_deletes_by_flag_stay_where_their_ordering_column_was_widened(
    new_path: Callable[[], str], narrow: pa.DataType, value: float, wide: pa.DataType
) -> None:
    made = bl.create_table(
        new_path(), schema=pa.schema({"id": pa.string(), "ts": narrow, FLAG: pa.bool_()}),
        record_key=["id"], ordering="ts", index=bl.SimpleBucket(1), table_type="merge_on_read",
    )  # fmt: skip
    old = pa.array([value], narrow)
    for key, times, flag in (
        ("a", old, False),
        ("a", old, True),
        ("b", old.cast(wide, safe=False), False),
    ):
        made.upsert(pa.table({"id": [key], "ts": times, FLAG: [flag]}), merge_schema="widen_types")
    assert made.schema().field("ts").type == wide
    assert made.to_arrow()["id"].to_pylist() == ["b"]


def test_deletes_by_key_win_over_what_was_written_before(table: bl.Table) -> None:
    table.upsert(rows(range(3), 2, 99))
    table.delete(rows(range(3), 0, 0).select(["id", "day"]))
    assert values_of(table) == keys(range(3, 10), 1)
    assert table.locate("k1") == []
    table.upsert(rows(range(3), 7, 10))
    assert values_of(table) == {**keys(range(3), 7), **keys(range(3, 10), 1)}


def test_conditions_columns_and_time_travel_see_merged_rows(table: bl.Table) -> None:
    before = table.timeline()[-1].requested_at
    table.upsert(rows(range(5, 12), 2, 11))
    assert values_of(table, where="v = 2") == keys(range(5, 12), 2)
    assert values_of(table, where="id = 'k6'") == {"k6": 2}
    assert table.to_arrow(columns=["v"]).column_names == ["v"]
    assert sum(table.to_arrow(columns=["v"])["v"].to_pylist()) == 5 + 2 * 7
    assert values_of(table, as_of=before) == keys(range(10), 1)
    [location] = table.locate("k6")
    assert location.path in logs_of(table)
    [location] = table.locate("k1")
    assert location.path.endswith(".parquet")


def test_logs_that_are_too_large_at_once_are_merged_in_several_passes(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.upsert(rows(range(5, 40), 2, 11))
    table.delete(rows(range(30, 33), 0, 0).select(["id", "day"]))
    expected = values_of(table)
    of_slice = slice_reader._passes
    passes = spy(
        monkeypatch, slice_reader, "_passes", lambda file_slice: len([*of_slice(file_slice)])
    )
    set_bounds(monkeypatch, slice_reader, LOG_BYTES_PER_PASS=700)
    assert values_of(table) == expected
    assert min(passes) > 1
    assert max(passes) > 2


def test_log_files_are_written_in_avro_by_option(table: bl.Table) -> None:
    storage = storage_of(table)
    table.upsert(rows(range(10), 2, 11))
    [kinds] = {tuple(b.kind for b in read_log_blocks(storage, p)) for p in logs_of(table)}
    assert kinds == (BlockKind.PARQUET_DATA,)
    before = set(logs_of(table))
    bl.open_table(table.path, log_format="avro").upsert(rows(range(5), 3, 12))
    new = set(logs_of(table)) - before
    assert {b.kind for p in new for b in read_log_blocks(storage, p)} == {BlockKind.AVRO_DATA}
    assert values_of(table) == {**keys(range(5), 3), **keys(range(5, 10), 2)}
    with pytest.raises(ConfigError, match="log_format"):
        bl.open_table(table.path, log_format="orc")


@pytest.mark.parametrize("field", ["m.ts", "gone"])
def test_a_table_that_is_ordered_by_what_is_no_column_is_refused(
    table: bl.Table, field: str
) -> None:
    table.upsert(rows(range(5), 2, 11))
    # As in a table that Hudi wrote; a commit of bucketlake records its ordering fields.
    let_commits_forget(table, RECORDED)
    set_properties(storage_of(table), {ORDERING_FIELDS: field})
    before = table.timeline()
    for read in (bl.Table.to_arrow, lambda one: one.locate("k1"), bl.Table.compact):
        with pytest.raises(UnsupportedFeatureError, match=f"ordering field '{field}'"):
            read(bl.open_table(table.path))
    assert table.timeline() == before  # No plan either.


def test_a_read_optimized_read_is_as_old_as_the_last_compaction(table: bl.Table) -> None:
    table.upsert(rows(range(5), 2, 11))
    assert values_of(table, read_optimized=True) == keys(range(10), 1)
    table.compact()
    table.delete(rows(range(3), 0, 0).select(["id", "day"]))
    assert values_of(table, read_optimized=True) == {**keys(range(5), 2), **keys(range(5, 10), 1)}
    assert values_of(table) == {**keys(range(3, 5), 2), **keys(range(5, 10), 1)}


def test_a_damaged_log_file_is_an_error_and_not_a_gap(table: bl.Table) -> None:
    table.upsert(rows(range(10), 2, 11))
    path = logs_of(table)[0]
    storage = storage_of(table)
    storage.put(path, storage.read(path)[:-9])
    with pytest.raises(FormatError, match="log"):
        table.to_arrow()
    with pytest.raises(FormatError, match="log"):
        table.compact()


def test_a_compaction_turns_logs_into_base_files_and_changes_no_row(table: bl.Table) -> None:
    table.upsert(rows(range(5, 15), 2, 11))
    table.delete(rows(range(2), 0, 0).select(["id", "day"]))
    expected = values_of(table)
    committed = commit_times(table)
    report = table.compact(dry_run=True)
    assert (report.instants, report.scheduled) == ((), None)
    assert sum(one.log_files for one in report.slices) == len(logs_of(table))
    assert table.compact().slices == report.slices
    assert values_of(table) == expected
    assert commit_times(table) == committed
    assert all(b.log_files == 0 for b in table.buckets())
    assert table.compact().slices == ()
    table.upsert(rows(range(3), 9, 12))
    assert values_of(table) == {**expected, **keys(range(3), 9)}


def test_limits_choose_what_is_compacted(table: bl.Table) -> None:
    table.upsert(rows(range(0, 10, 2), 2, 11))  # Partition a alone.
    table.upsert(rows(range(10), 3, 12))
    assert {one.log_files for one in table.compact(dry_run=True).slices} == {1, 2}
    assert all(one.log_files == 2 for one in table.compact(dry_run=True, min_log_files=2).slices)
    largest = table.compact(dry_run=True, max_bytes=1).slices
    assert len(largest) == 1
    every = [one.log_size_bytes for one in table.compact(dry_run=True).slices]
    assert every == sorted(every, reverse=True)
    assert largest[0].log_size_bytes == every[0]
    assert table.compact(dry_run=True, min_log_bytes=every[0] + 1).slices == ()
    assert table.compact(dry_run=True, after_delta_commits=4).slices == ()
    assert table.compact(dry_run=True, after_delta_commits=3).slices
    assert table.compact(dry_run=True, after_seconds=3600).slices == ()


@pytest.mark.parametrize(
    "limits",
    [{"min_log_files": 0}, {"max_bytes": 0}, {"min_log_bytes": -1}, {"after_delta_commits": "x"}],
)
def test_limits_that_are_none_are_refused(table: bl.Table, limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(limits))):
        table.compact(**limits)


def test_writers_go_on_while_a_compaction_is_planned(table: bl.Table) -> None:
    table.upsert(rows(range(5), 2, 11))
    planned = table.compact(schedule_only=True).scheduled
    table.upsert(rows(range(3, 12), 3, 12))
    expected = {**keys(range(3), 2), **keys(range(3, 12), 3)}
    assert values_of(table) == expected
    assert table.compact(schedule_only=True).scheduled is None, "a group is planned for twice"
    assert planned in table.compact().instants
    assert values_of(table) == expected
    assert all(i.state is State.COMPLETED for i in table.timeline())


NARROW = pa.schema([("id", pa.string()), ("v", pa.int32())])


def narrow(*names: str) -> pa.Table:
    return pa.table({"id": names, "v": [1] * len(names)}, NARROW)


@pytest.fixture
def narrow_table(new_path: Callable[[], str]) -> bl.Table:
    """A table with a column of int32, and a log file to compact in its only bucket."""
    made = bl.create_table(
        new_path(), schema=NARROW, record_key=["id"], index=bl.SimpleBucket(1),
        table_type="merge_on_read",
    )  # fmt: skip
    made.upsert(narrow("a"))
    made.upsert(narrow("a", "b"))
    return made


def widen(table: bl.Table) -> None:
    batch = pa.table({"id": ["c"], "v": pa.array([2**40]), "more": ["x"]})
    table.upsert(batch, merge_schema=["add_columns", "widen_types"])


def require_true_schemas(table: bl.Table) -> None:
    """Require that files are read with the schemas that they have, newest or not."""
    for commit in table.timeline():
        pinned = handle_of(table).pin(ReadRequest(as_of=commit.requested_at, read_optimized=True))
        for schema, files in plan_read(pinned, None).files:
            for file in files:
                with BaseFileReader(pinned.snapshot.storage, file.path) as reader:
                    footer = reader.schema
                assert {f.name: footer.field(f.name).type for f in schema} == {
                    f.name: f.type for f in schema
                }


def test_a_compaction_that_is_repeated_after_a_column_was_widened_tells_what_its_files_hold(
    narrow_table: bl.Table,
) -> None:
    with dying(PUTS, OUTCOME_FOLDER):
        narrow_table.compact()
    widen(narrow_table)
    done = narrow_table.compact().instants
    assert len(done) == 2
    require_true_schemas(narrow_table)
    assert values_of(narrow_table) == {"a": 1, "b": 1, "c": 2**40}
    types = [narrow_table.to_arrow(as_of=one).schema.field("v").type for one in done]
    assert types == [pa.int32(), pa.int64()]


def test_a_compaction_makes_files_of_the_schema_that_the_table_had_at_its_plan(
    narrow_table: bl.Table,
) -> None:
    planned = narrow_table.compact(schedule_only=True).scheduled
    widen(narrow_table)
    assert planned in narrow_table.compact(min_log_files=9).instants
    [bucket] = narrow_table.buckets()
    with BaseFileReader(storage_of(narrow_table), bucket.path) as reader:
        assert reader.schema.field("v").type == pa.int32()
        assert "more" not in reader.schema.names
    require_true_schemas(narrow_table)
    assert narrow_table.schema().field("v").type == pa.int64()
    assert values_of(narrow_table) == {"a": 1, "b": 1, "c": 2**40}
    narrow_table.compact()
    require_true_schemas(narrow_table)
    assert values_of(narrow_table) == {"a": 1, "b": 1, "c": 2**40}


def test_long_work_says_how_far_it_is(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bucketlake")
    set_bounds(monkeypatch, progress, PROGRESS_SECONDS=0.01)

    def until(said: str) -> None:
        wait_until(lambda: said in caplog.text, lambda: caplog.text)

    source = InterruptedSource(rows(range(5), 2, 11), written=lambda: until(": 2 of 2 file"))
    target = open_target(opened_table(storage_of(table), table.config()), None)
    instant = write_records(target, Operation.UPSERT, source).instant
    assert f"upsert {instant}: 2 of 2 file groups" in caplog.messages
    meanwhile(monkeypatch, lambda: until("compaction "), PUTS, ".parquet")
    [instant] = table.compact().instants
    said = [m for m in caplog.messages if m.startswith(f"compaction {instant}: ")]
    assert any(" of 2 file groups" in text for text in said)


@pytest.mark.parametrize("schedule_only", [True, False], ids=["planned", "done"])
def test_a_write_that_began_before_a_compaction_and_ends_after_it_is_not_lost(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch, schedule_only: bool
) -> None:
    """Its log file is older than the new slice, and belongs to it since it completed later."""
    table.upsert(rows(range(5), 2, 11))
    meanwhile(monkeypatch, lambda: table.compact(schedule_only=schedule_only))
    target = open_target(opened_table(storage_of(table), table.config()), None)
    write_records(target, Operation.UPSERT, ArrowSource(rows(range(3, 12), 3, 12)))
    expected = {**keys(range(3), 2), **keys(range(3, 12), 3)}
    assert values_of(table) == expected
    table.compact()
    assert values_of(table) == expected
    assert {b.log_files for b in table.buckets()} == {0}


def test_a_plan_whose_time_a_dying_writer_drew_too_is_made_anew_with_its_commit(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn of that time was the plan's; the next one is the commit's, which is decided."""
    storage, config = storage_of(table), table.config()
    table.upsert(rows(range(5), 2, 11))

    class Dying(FaultyStorage):
        def put_if_absent(self, path: str, data: Buffer) -> None:
            if path.endswith(".deltacommit"):
                raise SimulatedCrash(path)
            super().put_if_absent(path, data)

    class At(InstantClock):
        def next_instant(self, timeline: Timeline, after: InstantTime | None = None) -> InstantTime:
            return times.pop() if times else super().next_instant(timeline, after)

    times: list[InstantTime] = []

    def create_requested(*arguments: Any) -> Timeline:
        monkeypatch.undo()
        times.append(arguments[1])
        target = open_target(opened_table(Dying(storage), config), None)
        opened = replace(target.table, clock=At(config.timeline_timezone))
        target = replace(target, snapshot=replace(target.snapshot, table=opened))
        with pytest.raises(SimulatedCrash):
            write_records(
                target, Operation.UPSERT, ArrowSource(rows(range(3, 12), 3, 12), threads=1)
            )
        return transitions.create_requested(*arguments)

    monkeypatch.setattr(compaction, "create_requested", create_requested)
    table.compact()
    assert values_of(table) == {**keys(range(3), 2), **keys(range(3, 12), 3)}


def test_two_writers_of_one_bucket_are_in_conflict(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(monkeypatch, lambda: table.upsert(rows(range(5), 2, 11)))
    target = open_target(opened_table(storage_of(table), table.config()), None)
    with pytest.raises(CommitConflictError, match="changed bucket"):
        write_records(target, Operation.UPSERT, ArrowSource(rows(range(3, 12), 3, 12)))
    assert values_of(table) == {**keys(range(5), 2), **keys(range(5, 10), 1)}


def test_a_delta_commit_is_rolled_back_with_its_log_files(table: bl.Table) -> None:
    expected = values_of(table)
    instant = table.upsert(rows(range(5, 15), 2, 11)).instant
    assert instant is not None
    table.rollback(instant)
    assert values_of(table) == expected
    assert logs_of(table) == []


def test_a_compaction_is_rolled_back_with_its_plan(table: bl.Table) -> None:
    table.upsert(rows(range(5, 15), 2, 11))
    expected, logs = values_of(table), logs_of(table)
    [compacted] = table.compact().instants
    assert {b.log_files for b in table.buckets()} == {0}
    table.rollback(compacted)
    assert values_of(table) == expected
    assert sum(b.log_files for b in table.buckets()) == len(logs)
    assert all(i.state is State.COMPLETED for i in table.timeline())
    table.upsert(rows(range(15), 3, 12))
    table.compact()
    assert values_of(table) == keys(range(15), 3)


def test_a_commit_that_a_planned_compaction_reads_is_not_rolled_back(table: bl.Table) -> None:
    instant = table.upsert(rows(range(5, 15), 2, 11)).instant
    assert instant is not None
    planned = table.compact(schedule_only=True).scheduled
    with pytest.raises(TimelineError, match=f"pending compaction {planned}"):
        table.rollback(instant)
    table.compact()
    assert values_of(table) == {**keys(range(5), 1), **keys(range(5, 15), 2)}


def test_a_compaction_that_was_begun_after_its_plan_was_taken_back_is_in_nobodys_way(
    table: bl.Table,
) -> None:
    """Whoever read the plan before slept, began it, and died."""
    table.upsert(rows(range(5), 2, 11))
    planned = table.compact(schedule_only=True).scheduled
    assert planned is not None
    storage, config = storage_of(table), table.config()
    assert claim_rollback(storage, planned).is_rollback
    take_back(opened_table(storage, config), planned, Action.COMPACTION)
    storage.put(f".hoodie/timeline/{planned}.compaction.inflight", b"")
    table.upsert(rows(range(5, 7), 3, 12))
    assert all(one.state is State.COMPLETED for one in table.timeline())
    table.compact()
    assert values_of(table) == {
        **keys(range(5), 2),
        **keys(range(5, 7), 3),
        **keys(range(7, 10), 1),
    }


def test_a_plan_whose_files_are_gone_is_an_error_that_names_them(table: bl.Table) -> None:
    table.upsert(rows(range(5, 15), 2, 11))
    planned = table.compact(schedule_only=True).scheduled
    lost = logs_of(table)[0]
    storage_of(table).delete(lost)
    with pytest.raises(TimelineError, match=f"{planned}: plans to read {lost}, which is missing"):
        table.compact()


def test_a_rescale_reads_merged_rows(table: bl.Table) -> None:
    table.upsert(rows(range(5, 15), 2, 11))
    expected = values_of(table)
    table.rescale({"a": 5}, dry_run=False)
    assert values_of(table) == expected
    assert sum(b.log_files for b in table.buckets() if b.partition_path == "a") == 0
    assert table.upsert(rows(range(15), 8, 20)).written == 15
    assert values_of(table) == keys(range(15), 8)


def test_options_of_a_hudi_job_make_such_a_table_and_compact_it_inline(
    new_path: Callable[[], str],
) -> None:
    options = {
        "hoodie.table.name": "saved",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "2",
        "hoodie.compact.inline.max.delta.commits": "3",
        "hoodie.logfile.data.block.format": "avro",
    }
    path = new_path()
    logs = []
    for number in range(1, 8):
        bl.save(rows(range(6), number, number), path, options=options)
        logs.append(max(b.log_files for b in bl.open_table(path).buckets()))
    assert logs == [0, 1, 0, 1, 2, 0, 1]
    assert values_of(bl.open_table(path)) == keys(range(6), 7)
    with pytest.raises(ConfigError, match=r"write\.table\.type"):
        bl.save(
            rows(range(6), 1, 1), path,
            options=options | {"hoodie.datasource.write.table.type": "COPY_ON_WRITE"},
        )  # fmt: skip
