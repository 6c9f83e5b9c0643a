"""A crowd: several writers, a reader and services use one table at once, deterministically.

Storage fails, answers are lost, processes die or pause for longer than their heartbeat or their
lock's lease is valid, clocks differ, and tasks run again late. Some crowds also archive, clean,
make savepoints and restore; some convert the table to dynamic buckets, or put it into the newest
version; some compact and clean the metadata table at any time; some add and widen columns; some
renew heartbeats and locks. Some write deletes with ordering values, which the table remembers, and
no others. In some merge-on-read tables all keys are there from the begin, so that upserts append
blindly (``write/stages.py``), with ties of their ordering values. The seed also picks the index
kind, and whether a table with hash buckets has a record-level index, too. ``record.py`` checks the
end of a run. The doctor must then find no errors, and a repair must remove no data.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import pyarrow as pa

import bucketlake as bl
from bucketlake.actions.conflict import retried
from bucketlake.actions.metadata_compaction import clean_metadata, compact_metadata
from bucketlake.config.table_version import NEWEST_VERSION, table_version
from bucketlake.errors import (
    BucketLakeError,
    CommitOutcomeUnknownError,
    ConfigError,
    IndexStateError,
    InputError,
    LockError,
    MetadataTableError,
    ObjectNotFoundError,
    TimelineError,
)
from bucketlake.model.position import UNKNOWN_ORIGIN, Batch, Origin
from bucketlake.model.retention import ArchivalLimits, CleanPolicy, Retention
from bucketlake.model.row_merge import SchemaMerge
from bucketlake.model.schema import IS_DELETED
from bucketlake.model.table_type import Operation
from bucketlake.services.archival import archive
from bucketlake.services.check.doctor import MIN_AGE_SECONDS, diagnose
from bucketlake.services.check.findings import Severity
from bucketlake.services.check.repair import repair
from bucketlake.services.cleaning import clean
from bucketlake.services.compaction import CompactionLimits, compact
from bucketlake.services.resize.service import ResizeLimits
from bucketlake.services.undo.rollback_commits import roll_back
from bucketlake.services.undo.savepoints import delete_savepoint, make_savepoint, restore
from bucketlake.services.version_change import change_version
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline import heartbeat
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.locks import NO_LOCK, FileSystemLock, StorageLock, TableLock
from bucketlake.timeline.table_properties import table_at
from bucketlake.write.arrow_merge import ArrowMerge
from bucketlake.write.ingest import delete_partitions, write_records
from bucketlake.write.merge_statement import Clause, Match, MergeStatement
from bucketlake.write.merge_statement import Effect as MergeEffect
from bucketlake.write.merge_write import write_merge
from bucketlake.write.pack import PackedRecords
from bucketlake.write.tag import Tagger
from bucketlake.write.target import Target, open_target
from tests.conformance.kinds import kind_of_seed
from tests.faulty_storage import Effect, Fault, FaultyStorage, Moment, SimulatedCrash
from tests.indexed_tables import ROWS_OF_LARGE
from tests.simulation.indexes import (
    LARGE_ROWS,
    build_index,
    convert,
    index_in_force,
    is_dynamic,
    lacks_index,
)
from tests.simulation.late_tasks import LateTasks, RememberingSource
from tests.simulation.processes import Processes
from tests.simulation.record import Deed, Record, Sight, same
from tests.simulation.resizes import (
    drawn_limits,
    has_rings,
    require_committed_blocks,
    resize_one_by_one,
)
from tests.simulation.stage import Actor, Stage, StagedStorage
from tests.simulation.world import (
    ONE_BY_ONE,
    PARTITIONS,
    SCHEMA,
    Rows,
    remembering,
    rescale,
    upserted,
)

STREAM = "orders"
START_MS = 1_900_000_000_000
"""The clocks begin in 2030. A table is created at the time of day, and its metadata table has that
time: clocks behind it would not tell the times of any write."""
SKEWS_MS = (2_000, 2_000, 20_000)  # Largest difference of a clock, in both directions.
LOCKS: tuple[TableLock, ...] = (
    NO_LOCK,
    FileSystemLock(expire_minutes=1, timeout_seconds=600),
    StorageLock(validity_seconds=60, renew_seconds=6, timeout_seconds=600),
)

MERGE = MergeStatement(
    "t.id = s.id AND t.p = s.p",
    "t",
    "s",
    (
        Clause(Match.MATCHED, MergeEffect.DELETE, "s.ts = 0"),
        Clause(Match.MATCHED, MergeEffect.UPDATE, None, {"v": "t.v + s.v"}),
        Clause(
            Match.NOT_MATCHED,
            MergeEffect.INSERT,
            None,
            {n: f"s.{n}" for n in ("id", "p", "v", "ts")},
        ),
    ),
)

MERGE_BY_PARTITION = MergeStatement(
    "t.p = s.p AND t.ts = s.ts",
    "t",
    "s",
    (Clause(Match.MATCHED, MergeEffect.UPDATE, None, {"v": "t.v + s.v"}),),
)

_KEYS = 8  # In a partition.
_GROWS = SchemaMerge(add_columns=True, widen_types=True)
_NARROW = SCHEMA.set(SCHEMA.get_field_index("v"), pa.field("v", pa.int32()))

# Whether a crowd archives, cleans, and uses savepoints.
_SERVICES = (
    (False, False, False),
    (True, True, False),
    (False, True, True),
    (True, False, True),
    (True, True, True),
)


class LateSource(RememberingSource):
    """An Arrow source in one thread that keeps its tasks, and may be slow."""

    def __init__(self, rows: pa.Table, crowd: Crowd) -> None:
        super().__init__(rows, crowd.late_tasks)
        self._crowd = crowd

    def pack(self, tagger: Tagger) -> PackedRecords:
        if self._crowd.random.random() < 0.2:  # As if the batch were large.
            self._crowd.stage.sleep(self._crowd.random.random() * 4)
        return super().pack(tagger)


class Crowd:
    """One run of several actors on one table."""

    def __init__(self, seed: int, kind_name: str | None = None, *, writers: int = 3) -> None:
        self.seed = seed
        self.kind, table_type = kind_of_seed(seed, kind_name)
        self.random = random.Random(f"crowd {seed}")
        self.stage = Stage(self.random, START_MS)
        self.merges_on_read = table_type == "merge_on_read"
        self.rolls_back = seed % 3 == 0
        self.archives, self.cleans, self.restores = _SERVICES[seed % len(_SERVICES)]
        self.undoes = self.rolls_back or self.restores
        self.waits = not table_version(self.kind.version).layout.has_completion_times
        self.lock = LOCKS[seed // 2 % len(LOCKS)]
        self.evolves = self.random.random() < 0.3
        self.remembers = random.Random(f"deletes of crowd {seed}").random() < 0.2
        self.by_event_time = self.remembers or seed // 2 % 2 == 0  # Half of each table type.
        # As in Hudi, a late row after a delete by key is merged with a base row that may be left.
        self.deletes = not (self.by_event_time and self.merges_on_read)
        self.fills = self.merges_on_read and random.Random(f"rows of crowd {seed}").random() < 0.5
        drawn = random.Random(f"indexes of crowd {seed}")
        self.converts = self.kind.is_converted and drawn.random() < 0.4
        may_keep_index = not self.kind.needs_metadata_table
        self.keeps_index = may_keep_index and drawn.random() < 0.3
        others = random.Random(f"metadata and version of crowd {seed}")
        self.compacts_metadata = others.random() < 0.3
        self.upgrades = self.kind.version < NEWEST_VERSION and others.random() < 0.4
        self.cuts = random.Random(f"batches of crowd {seed}")
        self.name = f"crowd-{seed}-{id(self)}"
        self.memory = MemoryStorage(self.name, lambda: self.stage.now_ms)
        bl.create_table(
            self.memory.root,
            schema=_NARROW,
            record_key=self.kind.record_key("p"),
            partition_by=["p"],
            ordering="ts" if self.by_event_time else None,
            index=self.kind.index,
            version=self.kind.version,
            table_type=table_type,
            metadata_table=self.random.random() < 0.4 or self.kind.needs_metadata_table,
        )
        self.names = [f"writer {n}" for n in range(writers)]
        skew = self.random.choice(SKEWS_MS)
        self.skews = {n: self.random.randrange(-skew, skew) for n in [*self.names, "reader"]}
        self.batches: list[tuple[list[dict[str, Any]], pa.Table]] = []  # Batches of one stream.
        self.delivered = -1  # The last batch whose write succeeded.
        self.record = Record(self.memory, self.undoes, self.story)
        self.processes = Processes(self.stage, renew=self.random.random() < 0.5)
        self.late_tasks: list[LateTasks] = []

    def run(self) -> None:
        """Run all actors, then check the table."""
        try:
            with self.processes.installed(), mock.patch(ROWS_OF_LARGE, LARGE_ROWS):
                if self.keeps_index:
                    self.stage.play([Actor("writer 0", self._build_index)])
                if self.fills:
                    self.stage.play([Actor("writer 0", self._fill)])
                if has_rings(self.kind.index) and self.random.random() < 0.8:
                    self.stage.play([Actor("writer 0", self._prepare)])
                actors = [Actor(name, partial(self._write, name)) for name in self.names]
                self.stage.play([*actors, Actor("reader", self._read)])
                self.stage.jumps = False
                self.stage.now_ms += 10 * heartbeat.EXPIRES_AFTER_MS
                self.stage.play([Actor("writer 0", self._write_the_last)])
                self.record.check()
                if self.random.random() < 0.05:  # Rarely, because it reads all files.
                    self.stage.now_ms += 2 * MIN_AGE_SECONDS * 1000
                    self.stage.play([Actor("doctor", self._repair)])
        finally:
            forget(self.name)

    # Actions of actors.

    def _build_index(self) -> None:
        build_index(table_at(self.memory, self.lock, lambda: self.stage.now_ms))

    def _fill(self) -> None:
        """Write all keys, so that all upserts after it append to file groups that are there."""
        rows = [self._row(n, partition) for n in range(_KEYS) for partition in PARTITIONS]
        self._upsert_rows("writer 0", rows, pa.Table.from_pylist(rows, _NARROW), fails=False)

    def _prepare(self) -> None:
        """Write rows, and mostly plan a resize, so that most writers meet one."""
        self._upsert("writer 0", fails=False, rows_max=10)
        if self.random.random() < 0.8:
            limits = replace(drawn_limits(self.random, self.kind.index), max_file_size=1)
            self._resize("writer 0", limits, schedule_only=True, fails=False)

    def _write(self, name: str) -> None:
        for _ in range(4 if self.restores else 3):
            choices, weights = [self._upsert, self._batch], [4, 3]
            if not self.remembers:  # No other delete has an ordering value.
                choices = [*choices, self._delete, self._overwrite, self._drop]
                choices = [*choices, self._merge, self._merge_by_partition]
                fills, deletes = not self.fills, self.deletes
                weights = [*weights, 2 * deletes, fills, fills, deletes, 1]
            if is_dynamic(index_in_force(self.memory)):
                pass  # Its buckets are not rescaled.
            elif has_rings(self.kind.index):
                choices, weights = [*choices, self._draw_resize], [*weights, 5]
            elif self.kind.is_rescaled:
                choices, weights = [*choices, self._rescale], [*weights, 2]
            if self.merges_on_read:
                choices, weights = [*choices, self._compact], [*weights, 4]
            if self.rolls_back:
                choices, weights = [*choices, self._roll_back], [*weights, 2]
            if self.archives:
                choices, weights = [*choices, self._archive], [*weights, 3]
            if self.cleans:
                choices, weights = [*choices, self._clean], [*weights, 3]
            if self.restores:
                choices, weights = [*choices, self._save, self._restore], [*weights, 2, 4]
            if self.converts:
                choices, weights = [*choices, self._convert], [*weights, 3]
            if self.upgrades:
                choices, weights = [*choices, self._upgrade], [*weights, 2]
            if self.compacts_metadata:
                choices, weights = [*choices, self._serve_metadata], [*weights, 4]
            choices, weights = [*choices, self._late_task], [*weights, 1]
            self.random.choices(choices, weights)[0](name)

    def _write_the_last(self) -> None:
        # The first try may complete a commit of a dead writer that adds a column, which it lacks.
        for _ in range(2):
            self._upsert("writer 0", fails=False)
            if self.record.deeds[-1].told == "done":
                return
        raise AssertionError(self.story("the last write did not succeed"))

    def _read(self) -> None:
        for _ in range(4):
            self._look_by_names()
            before = self.record.completed()
            since = until = None
            follows = before and self.random.random() < 0.5
            if follows:
                since, until = self.record.follower.reached, before[-1].completed_at
            storage = StagedStorage(self.memory, self.stage)
            try:
                with mock.patch("bucketlake.read.handle.open_storage", return_value=storage):
                    found = bl.Table(self.memory.root).to_arrow(since=since, until=until)
            except BucketLakeError as error:
                # A rollback or a clean may have deleted files that the read needs. In layout 1,
                # a pending write may still complete inside a range.
                if not (self.undoes or self.cleans or self.waits):
                    raise AssertionError(self.story(f"a read failed: {error!r}")) from error
                continue
            rows = self.record.distinct(found.to_pylist())
            if until is None:
                self.record.sights.append(Sight(rows, len(before), len(self.record.completed())))
            else:
                self.record.follower.reached = until
                self.record.follower.rows.update(rows)
                self.record.follower.ranges.append((until, rows))
            self.stage.sleep(self.random.random())

    def _look_by_names(self) -> None:
        if has_rings(self.kind.index):
            require_committed_blocks(self.memory, self.story)

    def _upsert(self, name: str, *, fails: bool = True, rows_max: int = 3) -> None:
        self._upsert_rows(name, *self._rows(rows_max), fails=fails)

    def _upsert_rows(
        self, name: str, rows: list[dict[str, Any]], batch: pa.Table, *, fails: bool
    ) -> None:
        self._perform(
            name,
            Deed("upsert", self._after(rows)),
            partial(self._written, Operation.UPSERT, batch, None),
            fails=fails,
        )

    def _after(self, rows: list[dict[str, Any]]) -> Callable[[Rows], Rows]:
        """Return the effect of an upsert."""
        if self.remembers:
            return partial(remembering, rows=rows)
        return partial(upserted, rows=rows, by_event_time=self.by_event_time)

    def _batch(self, name: str) -> None:
        """Write the next batch of the stream, or the last batch again, as two drivers may do.

        They may have cut the stream otherwise, so that their batches have other rows.
        """
        number = self.delivered + (self.delivered < 0 or self.random.random() < 0.7)
        is_new = number == len(self.batches)
        if is_new:
            self.batches.append(self._rows())
        is_cut_again = not is_new and number > self.delivered and self.cuts.random() < 0.5
        rows, source = self._rows() if is_cut_again else self.batches[number]
        deed = Deed(f"batch {number}", self._after(rows), batch=number)
        self._perform(name, deed, partial(self._written, Operation.UPSERT, source, number))
        if deed.told == "done":
            self.delivered = max(self.delivered, number)

    def _delete(self, name: str) -> None:
        rows, batch = self._rows()
        keys = {(r["p"], r["id"]) for r in rows}
        deed = Deed("delete", lambda state: {k: v for k, v in state.items() if k not in keys})
        self._perform(name, deed, partial(self._written, Operation.DELETE, batch, None))

    def _merge(self, name: str) -> None:
        """Add to the values of stored rows, delete some, and insert rows that are not stored."""
        drawn = (self._row() for _ in range(self.random.randrange(1, 4)))
        rows = {(row["p"], row["id"]): row for row in drawn}
        given = pa.Table.from_pylist([*rows.values()], _NARROW)

        def after(state: Rows) -> Rows:
            left = dict(state)
            for key, row in rows.items():
                if key not in state:
                    left[key] = row["v"], row["ts"], None
                elif row["ts"] == 0:
                    del left[key]
                else:
                    value, ts, x = state[key]
                    left[key] = value + row["v"], ts, x
            return left

        def run(target: Callable[[], Target]) -> object:
            return self._with_index(target, lambda: write_merge(target(), ArrowMerge(given), MERGE))

        self._perform(name, Deed("merge", after), run)

    def _merge_by_partition(self, name: str) -> None:
        """Add to the values of all rows of a partition that have some ordering value."""
        row = self._row()
        given = pa.Table.from_pylist([row], _NARROW)

        def after(state: Rows) -> Rows:
            return {
                key: (v + row["v"] * (key[0] == row["p"] and ts == row["ts"]), ts, x)
                for key, (v, ts, x) in state.items()
            }

        def run(target: Callable[[], Target]) -> object:
            return self._with_index(
                target, lambda: write_merge(target(), ArrowMerge(given), MERGE_BY_PARTITION)
            )

        self._perform(name, Deed("merge by partition", after), run)

    def _overwrite(self, name: str) -> None:
        rows, batch = self._rows()
        touched = {r["p"] for r in rows}

        def after(state: Rows) -> Rows:
            kept = {k: v for k, v in state.items() if k[0] not in touched}
            return upserted(kept, rows, by_event_time=self.by_event_time)

        deed = Deed("overwrite", after)
        self._perform(name, deed, partial(self._written, Operation.INSERT_OVERWRITE, batch, None))

    def _drop(self, name: str) -> None:
        partition = self.random.choice(PARTITIONS)
        deed = Deed("drop", lambda state: {k: v for k, v in state.items() if k[0] != partition})
        self._perform(name, deed, lambda target: delete_partitions(target(), [partition]))

    def _rescale(self, name: str) -> None:
        rules = {p: self.random.randrange(1, 5) for p in PARTITIONS}
        default = self.random.randrange(1, 4)

        def run(target: Callable[[], Target]) -> object:
            at = target()
            if is_dynamic(at.index):  # Another writer converted the table.
                return None
            return rescale(at, rules, default, None)

        self._perform(name, Deed("rescale", same), run)

    def _convert(self, name: str) -> None:
        """Convert the table to dynamic buckets."""
        self._perform(name, Deed("convert", same), lambda target: convert(target(), lock=self.lock))

    def _upgrade(self, name: str) -> None:
        """Put the table into the newest version."""

        def run(target: Callable[[], Target]) -> object:
            at = target()
            return change_version(
                table_at(at.storage, self.lock, at.table.clock.now_ms),
                NEWEST_VERSION,
                given=self.kind.index,
                engine=ONE_BY_ONE,
            )

        self._perform(name, Deed("upgrade", same), run)

    def _serve_metadata(self, name: str) -> None:
        """Compact the metadata table, if there is one, after any number of commits; clean it."""
        delta_commits, cleans = self.random.randrange(1, 4), self.random.random() < 0.5

        def run(target: Callable[[], Target]) -> None:
            table = target().table
            compact_metadata(table, delta_commits=delta_commits, engine=ONE_BY_ONE)
            if cleans:
                clean_metadata(table)

        self._perform(name, Deed("compact metadata", same), run)

    def _draw_resize(self, name: str) -> None:
        limits = drawn_limits(self.random, self.kind.index)
        self._resize(name, limits, schedule_only=self.random.random() < 0.4)

    def _resize(
        self, name: str, limits: ResizeLimits, *, schedule_only: bool, fails: bool = True
    ) -> None:
        def run(target: Callable[[], Target]) -> None:
            at = target()
            if is_dynamic(at.index):  # Another writer converted the table.
                return
            resize_one_by_one(at, limits, schedule_only=schedule_only)

        self._perform(name, Deed("resize", same), run, fails=fails)

    def _compact(self, name: str) -> None:
        schedule_only = self.random.random() < 0.3

        def run(target: Callable[[], Target]) -> None:
            at = target()
            compact(
                at.table,
                CompactionLimits(),
                ONE_BY_ONE,
                schedule_only=schedule_only,
            )

        self._perform(name, Deed("compact", same), run)

    def _roll_back(self, name: str) -> None:
        """Roll back a commit of any writer."""
        commits = load_timeline(table_at(self.memory)).completed_commits()
        if not commits:
            return
        undone = self.random.choice(commits).requested_at

        def run(target: Callable[[], Target]) -> None:
            at = target()
            roll_back(
                at.table,
                None,
                undone,
            )

        deed = Deed(f"roll back {undone}", same, undoes={undone})
        self._perform(name, deed, run)

    def _archive(self, name: str) -> None:
        keep_min = self.random.choice([1, 1, 2])
        limits = ArchivalLimits(keep_min, keep_min + 1)

        def run(target: Callable[[], Target]) -> None:
            at = target()
            archive(at.table, limits)

        self._perform(name, Deed("archive", same), run)

    def _clean(self, name: str) -> None:
        policy = self.random.choice([CleanPolicy.COMMITS, CleanPolicy.VERSIONS])
        retention = Retention(policy, self.random.choice([1, 1, 2]))

        def run(target: Callable[[], Target]) -> None:
            at = target()
            clean(
                at.table,
                retention,
            )

        self._perform(name, Deed("clean", same), run)

    def _save(self, name: str) -> None:
        """Make a savepoint, or delete one."""
        saved = [*self.record.savepoints()]
        deletes = saved and self.random.random() < 0.4
        chosen = self.random.choice(saved) if deletes else None

        def run(target: Callable[[], Target]) -> None:
            at = target()
            run = delete_savepoint if chosen else make_savepoint
            run(at.table, chosen)

        self._perform(name, Deed(f"delete savepoint {chosen}" if chosen else "save", same), run)

    def _restore(self, name: str) -> None:
        saved = [*self.record.savepoints()]
        if not saved:
            self._save(name)
            return
        deed = Deed(f"restore {saved[-1]}", same, undoes=None)

        def run(target: Callable[[], Target]) -> None:
            at = target()
            done = restore(
                at.table,
                saved[-1],
            )
            deed.undoes = {one.instant for one in done.commits}

        self._perform(name, deed, run)

    def _late_task(self, name: str) -> None:
        """Run the tasks of an earlier write again."""
        if not self.late_tasks:
            return
        late = self.random.choice(self.late_tasks)
        self.record.log.append(f"{name}: tasks of {late.instant} once more")
        try:
            late.run(StagedStorage(self.memory, self.stage))
        except BucketLakeError as error:
            self.record.log.append(f"{name}:   {error!r}")

    def _repair(self) -> None:
        """Run the doctor, and remove leftovers with a repair."""
        storage, index, before = self.memory, self.kind.index, self.record.found()
        now_ms = lambda: self.stage.now_ms  # noqa: E731
        found = diagnose(storage, index, keys=True, files=True, now_ms=now_ms)
        wrong = [one for one in found if one.severity is Severity.ERROR]
        assert not wrong, self.story(f"the doctor finds {wrong}")
        done = repair(
            storage, index, keys=True, files=True, dry_run=False, lock=self.lock, now_ms=now_ms
        )
        assert done.quarantine is None, self.story(f"a repair moves files: {done}")
        assert self.record.found() == before, self.story(f"a repair changes rows: {done}")
        left = diagnose(storage, index, keys=True, files=True, now_ms=now_ms)
        assert not left, self.story(f"a repair leaves {left}")

    def _written(
        self, operation: Operation, rows: pa.Table, batch: int | None, target: Callable[[], Target]
    ) -> object:
        source = LateSource(rows, self)
        origin = UNKNOWN_ORIGIN if batch is None else Origin(Batch(STREAM, batch))

        def write() -> object:
            return write_records(target(), operation, source, origin=origin, merge=_GROWS)

        return self._with_index(target, write)

    def _with_index(self, target: Callable[[], Target], write: Callable[[], object]) -> object:
        """Run a write, after a conflict again; build the record-level index if it is lacking."""
        for _ in range(3):
            try:
                return retried(write)
            except IndexStateError as error:
                if "record-level index" not in str(error):
                    raise
            # An undo took the index off, because it could not take back its entries; or another
            # writer converts the table, and builds the index or died meanwhile.
            if lacks_index(self.memory):
                build_index(table_at(target().storage, self.lock, lambda: self.stage.now_ms))
        return retried(write)

    def _perform(
        self,
        name: str,
        deed: Deed,
        run: Callable[[Callable[[], Target]], object],
        *,
        fails: bool = True,
    ) -> None:
        self.processes.begin(name)
        faulty = FaultyStorage(self.memory, self._faults() if fails else [], reads_count=False)
        storage = StagedStorage(faulty, self.stage)
        now_ms = lambda: self.stage.now_ms + self.skews[name]  # noqa: E731

        def target() -> Target:
            return open_target(
                table_at(storage, lock=self.lock, now_ms=now_ms),
                self.kind.index,
            )

        self.record.deeds.append(deed)
        self.record.log.append(f"{name}: {deed.name}")
        try:
            result = run(target)
        except (SimulatedCrash, CommitOutcomeUnknownError) as error:
            self.record.log.append(f"{name}:   {error!r}")
        except BucketLakeError as error:
            self.record.log.append(f"{name}:   {error!r}")
            deed.told = "failed"
            expected = (
                isinstance(error, TimelineError | LockError)
                or (
                    (self.undoes or self.cleans)
                    and isinstance(error, ObjectNotFoundError | IndexStateError)
                )
                # A later batch was committed meanwhile, so this batch was committed, too.
                or (isinstance(error, InputError) and -1 < deed.batch <= self.delivered)
                # Another writer added the column meanwhile.
                or (isinstance(error, InputError) and self.evolves and "column x" in str(error))
                # It has none, or another writer builds it anew.
                or (deed.name == "compact metadata" and isinstance(error, MetadataTableError))
                or (deed.name == "convert" and "without a pending resize" in str(error))
                # Another writer converted the table meanwhile.
                or (deed.name == "resize" and isinstance(error, ConfigError) and self.converts)
            )
            if not (faulty.faults or expected or deed.name == "drop"):
                raise AssertionError(self.story(repr(error))) from error
        else:
            deed.told, deed.instant = "done", getattr(result, "instant", None)
            deed.is_empty = deed.instant is None and not getattr(result, "skipped", False)
            self.record.log.append(f"{name}:   {deed.instant}")
        self._look_by_names()
        deed.instants = {
            path.rpartition("/")[2].removesuffix(".requested")
            for path in storage.created
            if path.endswith(".requested")
        }

    def _faults(self) -> list[Fault]:
        if self.random.random() < 0.6:
            return []
        effect = self.random.choice([Effect.DIE, Effect.DIE, Effect.ERROR, Effect.ECHO])
        return [Fault(self.random.randrange(1, 30), self.random.choice(list(Moment)), effect)]

    def _rows(self, rows_max: int = 3) -> tuple[list[dict[str, Any]], pa.Table]:
        """Draw rows, sometimes with a wider type or a new column."""
        rows = [self._row() for _ in range(self.random.randrange(1, rows_max + 1))]
        schema = _NARROW
        if self.remembers:  # A batch has each key once, so that the model is plain.
            rows = [*{(row["p"], row["id"]): row for row in rows}.values()]
            schema = schema.append(pa.field(IS_DELETED, pa.bool_()))
            for row in rows:
                row[IS_DELETED] = self.random.random() < 0.4
        if self.evolves and self.random.random() < 0.2:
            schema = schema.set(schema.get_field_index("v"), SCHEMA.field("v"))
            for row in rows:
                row["v"] += 2**40
        if self.evolves and (self._has_new_column() or self.random.random() < 0.2):
            schema = schema.append(pa.field("x", pa.int64()))
            for row in rows:
                row["x"] = self.random.choice([None, 1, 2])
        return rows, pa.Table.from_pylist(rows, schema)

    def _row(self, number: int | None = None, partition: str | None = None) -> dict[str, Any]:
        number = self.random.randrange(_KEYS) if number is None else number
        partition = partition or self.random.choice(PARTITIONS)
        return {
            "id": self.kind.id_in(partition, number),
            "p": partition,
            "v": self.random.randrange(10_000),
            "ts": self.random.randrange(5),
        }

    def _has_new_column(self) -> bool:
        return "x" in bl.Table(self.memory.root).schema().names

    def story(self, finding: str) -> str:
        """Return a finding with the log of the run and the command for a replay."""
        lines = "\n".join([*self.record.log, "", *self.stage.trace[-150:]])
        replay = f"pytest tests/simulation -k crowd --seed {self.seed} --kind {self.kind.name}"
        return f"{finding}\n{lines}\nreplay: {replay}"
