"""Tasks that run again or too late, and storage that fails at each step of an upsert."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import BucketLakeError, CommitOutcomeUnknownError
from bucketlake.flow.stage import Flow, GroupName, Stage, TaskPlan
from bucketlake.flow.threads import HERE, ThreadFlow
from bucketlake.index.layout import SlotPlan
from bucketlake.model.table_type import Operation
from bucketlake.storage.base import Storage
from bucketlake.storage.memory import forget
from bucketlake.timeline.instant import State
from bucketlake.timeline.table_properties import table_at
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource, PackedRecords
from bucketlake.write.record_index.by_shard import ShardStage
from bucketlake.write.record_index.locate import LocateStage
from bucketlake.write.slot_stage import TaskResult, WriteTask
from bucketlake.write.tag import Tagger
from bucketlake.write.target import open_target
from bucketlake.write.write_plan import WritePlan
from tests.choices import some
from tests.conformance.cases import (
    SCHEMA,
    Case,
    Checked,
    Row,
    Rows,
    arrow,
    filled_storage,
    objects,
    rows,
    rows_of,
)
from tests.faulty_storage import Effect, Fault, FaultyStorage, Moment, SimulatedCrash
from tests.inside import storage_of

_NUMBERS = count()


def data_files(table: bl.Table) -> dict[str, bytes]:
    """Return the data files and the files of the index, without timeline and markers."""
    own = (".hoodie/timeline", ".hoodie/.temp", ".hoodie/.heartbeat", ".hoodie/.bucket_index/ext")
    return {path: data for path, data in objects(table).items() if not path.startswith(own)}


class AttemptedAgain(ArrowSource):
    """An Arrow source whose tasks run three times, each time with the rows in another layout.

    The files of the first attempt are deleted before the second attempt. The files of the second
    attempt exist when the third attempt runs.
    """

    def __init__(self, table: bl.Table, batch: list[Row], schema: pa.Schema = SCHEMA) -> None:
        super().__init__(arrow(batch, schema), threads=1)
        self._table, self._batch, self._schema = table, batch, schema
        self.attempts: list[dict[str, bytes]] = []
        self.late: Callable[[], object] = lambda: None

    def pack(self, tagger: Tagger) -> PackedRecords:
        packed = [ArrowSource(own, threads=1).pack(tagger) for own in self._arrivals()]
        first = packed[0]
        assert all(one.counts == first.counts for one in packed)
        return PackedAgain(first.flow, first.schema, first.engine, self, packed)

    def _arrivals(self) -> Iterator[pa.Table]:
        """Yield the same rows in other orders and other chunks."""
        batch, schema = self._batch, self._schema
        yield arrow(batch, schema)
        without = dict.fromkeys(batch[0]) | {"id": "another", "day": "a"}
        yield arrow([without, *batch], schema)[1:]  # With validity bitmaps and without nulls.
        starts = range(0, len(batch), 5)
        yield pa.concat_tables([arrow(batch[at : at + 5][::-1], schema) for at in starts])

    def in_attempts(self, writes: list[Callable[[], Any]]) -> Any:
        """Run the tasks of a write for each attempt; return the results of the last."""
        before = data_files(self._table)
        results = []
        for write in writes:
            results.append(write())
            files = data_files(self._table)
            self.attempts.append({path: files[path] for path in files.keys() - before.keys()})
            if len(self.attempts) == 1:
                for path in self.attempts[0]:
                    storage_of(self._table).delete(path)
        assert results[0] == results[1] == results[2]
        self.late = writes[0]
        return results[2]


@dataclass(frozen=True)
class PackedAgain(PackedRecords):
    """The same records in several layouts; each of them is written by one attempt."""

    source: AttemptedAgain
    attempts: list[PackedRecords]

    def write(self, plan: WritePlan, task: WriteTask) -> list[TaskResult]:
        writes = [partial(one.write, plan, task) for one in self.attempts]
        return self.source.in_attempts(writes)

    def write_by_shard(
        self, stage: ShardStage, plans: Sequence[TaskPlan], task_count: int
    ) -> list[Any]:
        writes = [partial(one.write_by_shard, stage, plans, task_count) for one in self.attempts]
        return self.source.in_attempts(writes)

    def locate(self, lookups: Sequence[SlotPlan], stage: LocateStage) -> Flow:
        located = [one.locate(lookups, stage) for one in self.attempts]
        first, second, third = (flow.results() for flow in located)
        assert first == second == third
        return LocatedAgain(self.source, located)


class LocatedAgain:
    """The located records of three attempts of the first stage; each is written by one attempt."""

    def __init__(self, source: AttemptedAgain, located: list[Flow]) -> None:
        self._source, self._located = source, located
        self.results = located[0].results

    def then(
        self,
        stage: Stage,
        plans: Sequence[TaskPlan],
        task_count: int,
        tasks: Mapping[GroupName, int] | None = None,
    ) -> Flow:
        writes = [
            lambda flow=flow: flow.then(stage, plans, task_count, tasks).results()
            for flow in self._located
        ]
        return ThreadFlow(HERE, self._source.in_attempts(writes))

    def kept(self) -> Flow:
        return self

    def close(self) -> None:
        """Keep the records for the late attempt."""


def write_in_attempts(table: Checked, batch: list[Row]) -> AttemptedAgain:
    """Upsert rows with distinct keys by tasks that run three times."""
    source = AttemptedAgain(table.table, batch)
    storage = storage_of(table.table)
    target = open_target(table_at(storage), None)
    write_records(target, Operation.UPSERT, source)
    table.expect_upserted(batch)
    return source


def test_attempts_of_a_task_make_the_same_files_with_the_same_bytes(table: Checked) -> None:
    batch = [*rows(range(4, 18), 2), *rows(range(40, 340), days="c")]
    source = write_in_attempts(table, batch)
    first, second, third = source.attempts
    assert first
    assert first == second == third
    table.check()


def test_an_attempt_after_the_commit_publishes_nothing_and_after_a_clean_does_no_harm(
    table: Checked,
) -> None:
    source = write_in_attempts(table, rows(range(4, 18), 2))
    files = data_files(table.table)
    _tolerate(source.late)
    assert data_files(table.table) == files
    table.upsert(rows(range(4, 18), 3))
    if table.case.merges_on_read:
        table.table.compact()
    table.table.clean(retain_versions=1)
    _tolerate(source.late)
    table.check()
    table.check_next_write_finds_all()


def test_an_attempt_after_the_rollback_publishes_nothing(table: Checked) -> None:
    before = dict(table.rows)
    source = write_in_attempts(table, rows(range(4, 18), 2))
    table.table.rollback(table.table.timeline()[-1].requested_at)
    table.rows = before
    files = data_files(table.table)
    _tolerate(source.late)
    assert data_files(table.table) == files
    table.check_next_write_finds_all()


def test_attempts_of_a_task_write_the_same_entries_of_a_record_level_index(
    table: Checked,
) -> None:
    if isinstance(table.case.index, bl.RecordIndex):
        pytest.skip("the files of its index are compared above")
    table.table.rebuild_metadata_table(["record_index"])
    source = write_in_attempts(table, [*rows(range(4, 18), 2), *rows(range(40, 140), days="c")])
    first, second, third = source.attempts
    assert [path for path in first if "/record_index/" in path and ".marker." not in path]
    assert first == second == third
    _tolerate(source.late)
    table.check()
    table.check_entries()
    table.table.rollback(table.table.timeline()[-1].requested_at)
    _tolerate(source.late)
    table.check_entries()


def _tolerate(attempt: Callable[[], object]) -> None:
    """Run a late attempt; it may raise an error, because nobody uses its result."""
    with suppress(BucketLakeError):
        attempt()


# ---- Storage that fails or dies -----------------------------------------------------------------


def upsert(storage: Storage, batch: list[Row]) -> None:
    target = open_target(table_at(storage), None)
    write_records(target, Operation.UPSERT, ArrowSource(arrow(batch), threads=1))


def faults(operations: int) -> Iterator[Fault]:
    """Yield the crashes that leave different states, and some errors before and after an effect."""
    yield Fault(1)
    for number in range(1, operations + 1):
        yield Fault(number, Moment.AFTER)
        if number % 3 == 0:
            moment = Moment.AFTER if number % 2 else Moment.BEFORE
            yield Fault(number, moment, Effect.ERROR if number % 4 else Effect.ECHO)


def test_death_at_every_step_leaves_the_table_before_or_after_and_writable(
    case: Case, new_path: Callable[[], str]
) -> None:
    """A storage error leaves one of the same two states; the error class may say which."""
    small = case.make(new_path())
    small.upsert(rows(range(3), days="a"))
    held, before = objects(small.table), dict(small.rows)
    batch, later = rows(range(1, 5), 1, days="a"), rows(range(2, 6), 2, days="a")
    small.expect_upserted(batch)
    after = dict(small.rows)
    counting = FaultyStorage(_copy(held), reads_count=False)
    upsert(counting, batch)
    assert counting.operations >= 9
    seen = set()
    for fault in some([*faults(counting.operations)], 16):
        inner = _copy(held)
        storage = FaultyStorage(inner, [fault], reads_count=False)
        allowed = [before, after]
        try:
            upsert(storage, batch)
        except (SimulatedCrash, CommitOutcomeUnknownError):
            pass
        except BucketLakeError:
            allowed = [before]  # Any other error promises that nothing was written.
        else:
            allowed = [after]
        table = bl.open_table(inner.root)
        found = _rows_by_key(table)
        assert found in allowed, storage.replay()
        seen.add(found == after)
        table.upsert(arrow(later))  # It may finish a commit that was decided.
        written = [Checked(case, table, rows=dict(state)) for state in allowed]
        for one in written:
            one.expect_upserted(later)
        assert _rows_by_key(table) in [one.rows for one in written], storage.replay()
        assert all(i.state is State.COMPLETED for i in table.timeline()), storage.replay()
        forget(inner.root.removeprefix("memory://"))
    assert seen == {False, True}


def _rows_by_key(table: bl.Table) -> Rows:
    return {(row["day"], row["id"]): row for row in rows_of(table.to_arrow())}


def _copy(held: dict[str, bytes]) -> Storage:
    return filled_storage(f"attempts-{next(_NUMBERS)}", held)
