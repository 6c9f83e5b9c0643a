"""Several writers, a reader and services on one table at once, in one deterministic world.

Storage fails, answers are lost, processes die, stand still for longer than their heartbeat or the
lease of their lock lasts, clocks are askew, tasks run again late. In the end the completed commits
of the timeline, one after the other in order of completion, must give exactly the rows of the
table; every deed that was told to be done is among them unless it was undone by another, none that
was told to have failed is; every batch of a stream is committed once, in its order; every read has
shown the rows of one moment between its begin and its end; and whoever went on from range to range
of time has seen every row. Some crowds also archive, clean, make savepoints and restore: no commit
leaves both timelines, and each savepoint that is left shows its rows. In the end the doctor finds
nothing wrong, and a repair takes nothing away.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

import bucketlake as bl
from bucketlake.errors import (
    BucketLakeError,
    CommitOutcomeUnknownError,
    IndexStateError,
    InputError,
    LockError,
    ObjectNotFoundError,
    TimelineError,
)
from bucketlake.index.simple import assign_buckets, bucket_id_of_file_id
from bucketlake.model.file_name import InstantTime
from bucketlake.model.retention import CleanPolicy, Retention
from bucketlake.model.schema import FILE_NAME
from bucketlake.model.table_type import Operation
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.read import arrow_reader, plan
from bucketlake.services import cleaning
from bucketlake.services.archival import ArchivalLimits, archive
from bucketlake.services.cleaning import clean
from bucketlake.services.compaction import CompactionLimits, compact
from bucketlake.services.doctor import MIN_AGE_SECONDS, diagnose
from bucketlake.services.findings import Severity
from bucketlake.services.repair import repair
from bucketlake.services.restore import restore
from bucketlake.services.rollback import roll_back
from bucketlake.services.savepoints import delete_savepoint, make_savepoint
from bucketlake.storage.faulty import Effect, Fault, FaultyStorage, Moment, SimulatedCrash
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline import clock, heartbeat, locks
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.archived import archived_commit, read_archive
from bucketlake.timeline.clock import IssuedTimes
from bucketlake.timeline.instant import Action
from bucketlake.timeline.locks import NO_LOCK, FileSystemLock, StorageLock, TableLock
from bucketlake.timeline.table_properties import read_table_config
from bucketlake.write import arrow_source, commit, early_conflict
from bucketlake.write.arrow_source import ArrowSource
from bucketlake.write.batches import Batch
from bucketlake.write.conflict import retried
from bucketlake.write.ingest import Target, delete_partitions, open_target, write_records
from bucketlake.write.plan import WritePlan
from bucketlake.write.source import WriteTask
from tests.simulation.stage import IDLE_THREADS, Actor, InTurn, Stage, StagedStorage
from tests.simulation.world import (
    PARTITIONS,
    SCHEMA,
    Rows,
    one_by_one,
    require_tidy,
    rescale,
    upserted,
)

STREAM = "orders"
START_MS = 1_750_000_000_000
SKEW_MS = 2_000
LOCKS: tuple[TableLock, ...] = (
    NO_LOCK,
    FileSystemLock(expire_minutes=1, timeout_seconds=600),
    StorageLock(validity_seconds=60, renew_seconds=6, timeout_seconds=600),
)

# Whether a crowd archives, cleans, and makes savepoints and restores them.
_SERVICES = (
    (False, False, False),
    (True, True, False),
    (False, True, True),
    (True, False, True),
    (True, True, True),
)


@dataclass
class Deed:
    """Something that an actor did: what it means for the rows, and what the actor was told."""

    name: str
    after: Callable[[Rows], Rows]
    instants: set[str] = field(default_factory=set)  # That it put on the timeline, with actions.
    told: str = "unknown"  # Or done, or failed.
    instant: str | None = None  # Of the commit, where it was told.
    undoes: set[str] | None = field(default_factory=set)  # Instants, or None where it is unknown.
    batch: int = -1  # Of the stream.


@dataclass
class Commit:
    """A commit of either timeline."""

    instant: str
    action: str
    completed_at: str
    compacted: bool

    @property
    def name(self) -> str:
        """Instant and action: two may draw one time, of which one has to draw again."""
        return f"{self.instant}.{self.action}"


@dataclass
class Sight:
    """What a reader saw, and how many commits there were before and after."""

    rows: Rows
    before: int
    after: int


@dataclass
class Follower:
    """A reader that goes from range to range of completion times.

    Attributes
    ----------
    rows : Rows
        What it has seen, the last of each key.
    reached : str or None
        Until when.
    ranges : list of (str, Rows)
        The end of each range, and what it showed.
    """

    rows: Rows = field(default_factory=dict)
    reached: str | None = None
    ranges: list[tuple[str, Rows]] = field(default_factory=list)


def _same(state: Rows) -> Rows:
    return state


class _PerProcess(dict[Any, Any]):
    """What each process knows for itself."""

    def __init__(self, process: Callable[[], dict[str, Any]]) -> None:
        super().__init__()
        self._process = process

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__((self._process()["process"], key), value)

    def __delitem__(self, key: Any) -> None:
        super().__delitem__((self._process()["process"], key))

    def __contains__(self, key: object) -> bool:
        return super().__contains__((self._process()["process"], key))

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get((self._process()["process"], key), default)


class LateSource(ArrowSource):
    """An Arrow source in one thread that leaves its tasks behind, to be run again."""

    def __init__(self, rows: pa.Table, crowd: Crowd) -> None:
        super().__init__(rows, threads=1)
        self._crowd = crowd

    def write_groups(self, plan: WritePlan, task: WriteTask) -> Any:
        self._crowd.late_tasks.append((plan, task, self._rows))
        return super().write_groups(plan, task)


class Crowd:
    """One run of several actors on one table."""

    def __init__(self, seed: int, *, writers: int = 3) -> None:
        self.seed = seed
        self.random = random.Random(f"crowd {seed}")
        self.stage = Stage(self.random, START_MS)
        self.merges_on_read = seed % 2 == 1
        self.rolls_back = seed % 3 == 0
        self.archives, self.cleans, self.restores = _SERVICES[seed % len(_SERVICES)]
        self.undoes = self.rolls_back or self.restores
        self.lock = LOCKS[seed // 2 % len(LOCKS)]
        self.by_event_time = not self.merges_on_read and seed % 4 == 0
        self.name = f"crowd-{seed}-{id(self)}"
        self.memory = MemoryStorage(self.name, lambda: self.stage.now_ms)
        bl.create_table(
            self.memory.root,
            schema=SCHEMA,
            record_key=["id"],
            partition_by=["p"],
            ordering="ts" if self.by_event_time else None,
            index=bl.SimpleBucket(2),
            table_type="merge_on_read" if self.merges_on_read else "copy_on_write",
        )
        self.names = [f"writer {n}" for n in range(writers)]
        self.skews = {n: self.random.randrange(-SKEW_MS, SKEW_MS) for n in [*self.names, "reader"]}
        self.lives = dict.fromkeys(self.skews, 0)
        self.issued: dict[str, IssuedTimes] = {}
        self.deeds: list[Deed] = []
        self.sights: list[Sight] = []
        self.follower = Follower()
        self.known: dict[tuple[str, str], Commit] = {}  # Commits that were looked at.
        self.batches: list[list[dict[str, Any]]] = []  # Of one stream.
        self.delivered = -1  # The last batch that somebody was told to be done.
        self.late_tasks: list[tuple[WritePlan, WriteTask, pa.Table]] = []
        self.log: list[str] = []

    def run(self) -> None:
        """Play, then check what is left."""
        try:
            with self._installed():
                actors = [Actor(name, partial(self._write, name)) for name in self.names]
                self.stage.play([*actors, Actor("reader", self._read)])
                self.stage.jumps = False
                self.stage.now_ms += 10 * heartbeat.EXPIRES_AFTER_MS
                self.stage.play([Actor("writer 0", self._write_the_last)])
                self._check()
                if self.random.random() < 0.05:  # It is slow: it reads all files.
                    self.stage.now_ms += 2 * MIN_AGE_SECONDS * 1000
                    self.stage.play([Actor("doctor", self._repair)])
        finally:
            forget(self.name)

    # What actors do.

    def _write(self, name: str) -> None:
        for _ in range(4 if self.restores else 3):
            choices = [self._upsert, self._batch, self._delete, self._overwrite]
            weights = [4, 3, 2, 1]
            choices, weights = [*choices, self._drop, self._rescale], [*weights, 1, 2]
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
            choices, weights = [*choices, self._late_task], [*weights, 1]
            self.random.choices(choices, weights)[0](name)

    def _write_the_last(self) -> None:
        self._upsert("writer 0", fails=False)
        assert self.deeds[-1].told == "done", self.story("the last write did not succeed")

    def _read(self) -> None:
        for _ in range(4):
            before = self._completed()
            since = until = None
            follows = before and self.random.random() < 0.5
            if follows:
                since, until = self.follower.reached, before[-1].completed_at
            storage = StagedStorage(self.memory, self.stage)
            try:
                with mock.patch("bucketlake.table.open_storage", return_value=storage):
                    found = bl.Table(self.memory.root).to_arrow(since=since, until=until)
            except BucketLakeError as error:
                # Files of a commit that was read are gone with its rollback, or by a clean.
                if not (self.undoes or self.cleans):
                    raise AssertionError(self.story(f"a read failed: {error!r}")) from error
                continue
            rows = self._distinct(found.to_pylist())
            if until is None:
                self.sights.append(Sight(rows, len(before), len(self._completed())))
            else:
                self.follower.reached = until
                self.follower.rows.update(rows)
                self.follower.ranges.append((until, rows))
            self.stage.sleep(self.random.random())

    def _upsert(self, name: str, *, fails: bool = True) -> None:
        rows = self._rows()
        batch = pa.Table.from_pylist(rows, SCHEMA)
        deed = Deed("upsert", partial(upserted, rows=rows, by_event_time=self.by_event_time))
        self._perform(
            name, deed, partial(self._written, Operation.UPSERT, batch, None), fails=fails
        )

    def _batch(self, name: str) -> None:
        """Deliver the next batch of the stream, or the last one again, as two drivers may."""
        number = self.delivered + (self.delivered < 0 or self.random.random() < 0.7)
        if number == len(self.batches):
            self.batches.append(self._rows())
        rows = self.batches[number]
        deed = Deed(
            f"batch {number}",
            partial(upserted, rows=rows, by_event_time=self.by_event_time),
            batch=number,
        )
        source = pa.Table.from_pylist(rows, SCHEMA)
        self._perform(name, deed, partial(self._written, Operation.UPSERT, source, number))
        if deed.told == "done":
            self.delivered = max(self.delivered, number)

    def _delete(self, name: str) -> None:
        rows = self._rows()
        keys = {(r["p"], r["id"]) for r in rows}
        deed = Deed("delete", lambda state: {k: v for k, v in state.items() if k not in keys})
        batch = pa.Table.from_pylist(rows, SCHEMA)
        self._perform(name, deed, partial(self._written, Operation.DELETE, batch, None))

    def _overwrite(self, name: str) -> None:
        rows = self._rows()
        touched = {r["p"] for r in rows}

        def after(state: Rows) -> Rows:
            kept = {k: v for k, v in state.items() if k[0] not in touched}
            return upserted(kept, rows, by_event_time=self.by_event_time)

        batch = pa.Table.from_pylist(rows, SCHEMA)
        deed = Deed("overwrite", after)
        self._perform(name, deed, partial(self._written, Operation.INSERT_OVERWRITE, batch, None))

    def _drop(self, name: str) -> None:
        partition = self.random.choice(PARTITIONS)
        deed = Deed("drop", lambda state: {k: v for k, v in state.items() if k[0] != partition})
        self._perform(name, deed, lambda target: delete_partitions(target(), [partition]))

    def _rescale(self, name: str) -> None:
        rules = {p: self.random.randrange(1, 5) for p in PARTITIONS}
        default = self.random.randrange(1, 4)
        self._perform(
            name,
            Deed("rescale", _same),
            lambda target: rescale(target(), rules, default, None),
        )

    def _compact(self, name: str) -> None:
        schedule_only = self.random.random() < 0.3

        def run(target: Callable[[], Target]) -> None:
            at = target()
            compact(
                at.storage, at.config, CompactionLimits(), one_by_one,
                schedule_only=schedule_only, lock=self.lock, now_ms=at.clock.now_ms,
            )  # fmt: skip

        self._perform(name, Deed("compact", _same), run)

    def _roll_back(self, name: str) -> None:
        """Roll back a commit of any writer's."""
        commits = load_timeline(self.memory, read_table_config(self.memory)).completed_commits()
        if not commits:
            return
        undone = self.random.choice(commits).requested_at

        def run(target: Callable[[], Target]) -> None:
            at = target()
            roll_back(at.storage, at.config, None, undone, lock=self.lock, now_ms=at.clock.now_ms)

        deed = Deed(f"roll back {undone}", _same, undoes={undone})
        self._perform(name, deed, run)

    def _archive(self, name: str) -> None:
        keep_min = self.random.choice([1, 1, 2])
        limits = ArchivalLimits(keep_min, keep_min + 1)

        def run(target: Callable[[], Target]) -> None:
            at = target()
            archive(at.storage, at.config, limits, lock=self.lock, now_ms=at.clock.now_ms)

        self._perform(name, Deed("archive", _same), run)

    def _clean(self, name: str) -> None:
        policy = self.random.choice([CleanPolicy.COMMITS, CleanPolicy.VERSIONS])
        retention = Retention(policy, self.random.choice([1, 1, 2]))

        def run(target: Callable[[], Target]) -> None:
            at = target()
            clean(
                at.storage, at.config, retention,
                lock=self.lock, now_ms=at.clock.now_ms, threads=1,
            )  # fmt: skip

        self._perform(name, Deed("clean", _same), run)

    def _save(self, name: str) -> None:
        """Make a savepoint, or delete one."""
        saved = [*self._savepoints()]
        deletes = saved and self.random.random() < 0.4
        chosen = self.random.choice(saved) if deletes else None

        def run(target: Callable[[], Target]) -> None:
            at = target()
            run = delete_savepoint if chosen else make_savepoint
            run(at.storage, at.config, chosen, lock=self.lock, now_ms=at.clock.now_ms)

        self._perform(name, Deed(f"delete savepoint {chosen}" if chosen else "save", _same), run)

    def _restore(self, name: str) -> None:
        saved = [*self._savepoints()]
        if not saved:
            self._save(name)
            return
        deed = Deed(f"restore {saved[-1]}", _same, undoes=None)

        def run(target: Callable[[], Target]) -> None:
            at = target()
            done = restore(at.storage, at.config, saved[-1], lock=self.lock, now_ms=at.clock.now_ms)
            deed.undoes = {one.instant for one in done.commits}

        self._perform(name, deed, run)

    def _late_task(self, name: str) -> None:
        """Run the tasks of an earlier write once more."""
        if not self.late_tasks:
            return
        plan, task, rows = self.random.choice(self.late_tasks)
        held = task.writer
        writer = replace(held, storage=StagedStorage(self.memory, self.stage))
        late = WriteTask(task.tagger, writer, task.deletes_by_key, task.delete_marker)
        self.log.append(f"{name}: tasks of {held.instant} once more")
        try:
            ArrowSource(rows, threads=1).write_groups(plan, late)
        except BucketLakeError as error:
            self.log.append(f"{name}:   {error!r}")

    def _repair(self) -> None:
        """Look the table over, and take away what was left behind."""
        storage, index, before = self.memory, bl.SimpleBucket(2), self._found()
        now_ms = lambda: self.stage.now_ms  # noqa: E731
        found = diagnose(storage, index, keys=True, files=True, now_ms=now_ms)
        wrong = [one for one in found if one.severity is Severity.ERROR]
        assert not wrong, self.story(f"the doctor finds {wrong}")
        done = repair(
            storage, index, keys=True, files=True, dry_run=False, lock=self.lock, now_ms=now_ms
        )
        assert done.quarantine is None, self.story(f"a repair moves files: {done}")
        assert self._found() == before, self.story(f"a repair changes rows: {done}")
        left = diagnose(storage, index, keys=True, files=True, now_ms=now_ms)
        assert not left, self.story(f"a repair leaves {left}")

    def _written(
        self, operation: Operation, rows: pa.Table, batch: int | None, target: Callable[[], Target]
    ) -> object:
        source = LateSource(rows, self)
        of_stream = None if batch is None else Batch(STREAM, batch)
        return retried(lambda: write_records(target(), operation, source, batch=of_stream))

    def _perform(
        self,
        name: str,
        deed: Deed,
        run: Callable[[Callable[[], Target]], object],
        *,
        fails: bool = True,
    ) -> None:
        self.lives[name] += 1
        faulty = FaultyStorage(self.memory, self._faults() if fails else [], reads_count=False)
        storage = StagedStorage(faulty, self.stage)
        now_ms = lambda: self.stage.now_ms + self.skews[name]  # noqa: E731

        def target() -> Target:
            return open_target(
                storage, read_table_config(storage), bl.SimpleBucket(2), now_ms, lock=self.lock
            )

        self.deeds.append(deed)
        self.log.append(f"{name}: {deed.name}")
        try:
            result = run(target)
        except (SimulatedCrash, CommitOutcomeUnknownError) as error:
            self.log.append(f"{name}:   {error!r}")
        except BucketLakeError as error:
            self.log.append(f"{name}:   {error!r}")
            deed.told = "failed"
            expected = (
                isinstance(error, TimelineError | LockError)
                or (
                    (self.undoes or self.cleans)
                    and isinstance(error, ObjectNotFoundError | IndexStateError)
                )
                # A later batch was committed meanwhile, so this one was, too.
                or (isinstance(error, InputError) and -1 < deed.batch <= self.delivered)
            )
            if not (faulty.faults or expected or deed.name == "drop"):
                raise AssertionError(self.story(repr(error))) from error
        else:
            deed.told, deed.instant = "done", getattr(result, "instant", None)
            self.log.append(f"{name}:   {deed.instant}")
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

    def _rows(self) -> list[dict[str, Any]]:
        return [
            {
                "id": f"k{self.random.randrange(8)}",
                "p": self.random.choice(PARTITIONS),
                "v": self.random.randrange(10_000),
                "ts": self.random.randrange(5),
            }
            for _ in range(self.random.randrange(1, 4))
        ]

    # What must hold.

    def _check(self) -> None:
        by_name = {name: deed for deed in self.deeds for name in deed.instants}
        commits = self._completed()
        completed = {one.instant for one in commits}
        names = {one.name for one in commits}
        undone = self._undone()
        for deed in self.deeds:
            if deed.told == "done" and deed.instant is not None:
                is_there = deed.instant in completed
                assert is_there or undone(deed.instant), self.story(f"{deed} is lost")
            if deed.told == "failed" and not deed.name.startswith(("compact", "roll back")):
                assert not deed.instants & names, self.story(f"{deed} was told to have failed")
        states: list[Rows] = [{}]
        for one in commits:
            after = _same  # Whoever completes a compaction need not have planned it.
            if not one.compacted:
                assert one.name in by_name, self.story(f"nobody made {one}")
                after = by_name[one.name].after
            states.append(after(states[-1]))
            self.log.append(f"{one.instant} to {one.completed_at}: {states[-1]}")
        found = self._found()
        assert found == states[-1], self.story(f"read {found}, expected {states[-1]}")
        if not self.undoes:
            for sight in self.sights:
                seen = states[sight.before : sight.after + 1]
                assert sight.rows in seen, self.story(f"a read showed {sight}, not one of {seen}")
            self._check_ranges(commits, states)
        self._check_batches([by_name[one.name] for one in commits if not one.compacted])
        self._check_savepoints([one for one in commits if not one.compacted], by_name)
        require_tidy(self.memory, self.story)

    def _check_ranges(self, commits: list[Commit], states: list[Rows]) -> None:
        for until, rows in self.follower.ranges:
            then = states[sum(one.completed_at <= until for one in commits)]
            assert rows.items() <= then.items(), self.story(f"until {until}: {rows}, not of {then}")
        last = bl.Table(self.memory.root).to_arrow(since=self.follower.reached).to_pylist()
        seen = self.follower.rows | self._distinct(last)
        missed = states[-1].items() - seen.items()
        assert not missed, self.story(f"whoever went on from range to range missed {missed}")

    def _check_batches(self, committed: list[Deed]) -> None:
        found = [deed.batch for deed in committed if deed.batch >= 0]
        assert found == sorted(set(found)), self.story(f"batches were committed as {found}")
        told = {deed.batch for deed in self.deeds if deed.told == "done"} - {-1}
        assert self.undoes or told <= {*found}, self.story(f"batches {told} are done, not {found}")

    def _check_savepoints(self, commits: list[Commit], by_name: dict[str, Deed]) -> None:
        for saved, made_at in self._savepoints().items():
            then: Rows = {}
            for one in commits:
                if one.instant <= saved:
                    then = by_name[one.name].after(then)
            try:
                found = bl.Table(self.memory.root).to_arrow(as_of=saved).to_pylist()
            except TimelineError as error:
                # A commit that was requested before the savepoint's may be completed after it was
                # made. It is of that time, but the savepoint does not hold its files.
                late = [
                    one for one in commits if one.instant < saved and one.completed_at > made_at
                ]
                assert late, self.story(f"savepoint {saved} is not held: {error}")  # noqa: PT017
            else:
                seen = self._distinct(found)
                assert seen == then, self.story(f"savepoint {saved} shows {seen}, it held {then}")

    def _found(self) -> Rows:
        """Read the table; each row lies in the bucket that the index gives it."""
        table = bl.open_table(self.memory.root)
        assert table.index is not None
        rows = table.to_arrow(columns=[*SCHEMA.names, FILE_NAME])
        counts = [table.index.count_of(partition) for partition in rows["p"].to_pylist()]
        buckets = assign_buckets(rows["id"].to_pylist(), np.array(counts, np.int32))
        held = [bucket_id_of_file_id(name) for name in rows[FILE_NAME].to_pylist()]
        assert buckets.tolist() == held, self.story(f"rows in {held} belong into {buckets}")
        return self._distinct(rows.to_pylist())

    def _undone(self) -> Callable[[str], bool]:
        """Tell of a commit that was told to be done whether it may have been undone since."""
        undoing = [deed.undoes for deed in self.deeds if deed.told != "failed"]
        known = set().union(*[one for one in undoing if one is not None])
        return lambda instant: instant in known or None in undoing

    def _completed(self) -> list[Commit]:
        """Return the commits of both timelines in order of completion."""
        config = read_table_config(self.memory)
        timeline = load_timeline(self.memory, config)
        found: dict[str, Commit] = {}
        for one in timeline.completed_commits():
            made = partial(timeline.read_commit, self.memory, one)
            action = one.action.completes_as.value
            known = self._commit(one.requested_at, action, one.completed_at or "", made)
            found[one.requested_at] = known
        for entry in read_archive(self.memory, config):
            if Action(entry.action).writes_data:
                kept = partial(archived_commit, entry)
                known = self._commit(entry.requested_at, entry.action, entry.completed_at, kept)
                found[entry.requested_at] = known
        return sorted(found.values(), key=lambda one: one.completed_at)

    def _commit(
        self,
        instant: str,
        action: str,
        completed_at: str,
        metadata: Callable[[], CommitMetadata | None],
    ) -> Commit:
        place = (instant, completed_at)
        if place not in self.known:
            read = metadata()
            assert read is not None, place
            self.known[place] = Commit(instant, action, completed_at, read.compacted)
        return self.known[place]

    def _savepoints(self) -> dict[InstantTime, str]:
        """Return when the savepoints were made, by the instants of their commits."""
        timeline = load_timeline(self.memory, read_table_config(self.memory))
        completed = [one for one in timeline.completed() if one.action is Action.SAVEPOINT]
        return {one.requested_at: one.completed_at or "" for one in completed}

    def _distinct(self, found: list[dict[str, Any]]) -> Rows:
        rows = {(r["p"], r["id"]): (r["v"], r["ts"]) for r in found}
        assert len(rows) == len(found), self.story("a row is there twice")
        return rows

    def story(self, finding: str) -> str:
        """Tell what happened, and how to see it again."""
        lines = "\n".join([*self.log, "", *self.stage.trace[-150:]])
        replay = f"pytest tests/simulation -k crowd --seed {self.seed}"
        return f"{finding}\n{lines}\nreplay: {replay}"

    # Each actor is a process of its own, and all go by the stage's clock.

    @contextmanager
    def _installed(self) -> Iterator[None]:
        with ExitStack() as stack:
            set_ = lambda *args: stack.enter_context(mock.patch.object(*args))  # noqa: E731
            for module in (commit, early_conflict, locks):
                set_(module, "time", self.stage)
            for module in (arrow_source, arrow_reader, plan, cleaning):
                set_(module, "ThreadPoolExecutor", InTurn)
            for module in (heartbeat, locks):
                set_(module, "threading", IDLE_THREADS)
            set_(locks, "system_now_ms", lambda: self.stage.now_ms)
            set_(heartbeat, "_this_process", self._process)
            set_(heartbeat, "_beating", _PerProcess(self._process))
            set_(clock, "issued_times", self._issued_times)
            yield

    def _process(self) -> dict[str, Any]:
        actor = self.stage.actor
        name = "nobody" if actor is None else actor.name
        return {"process": f"{name} {self.lives.get(name)}", "machine": "elsewhere", "pid": 1}

    def _issued_times(self, *_: object) -> IssuedTimes:
        process = self._process()["process"]
        return self.issued.setdefault(process, IssuedTimes())
