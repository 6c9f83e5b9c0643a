"""A deterministic world of one table: writes, crashes, late tasks, and a model of the rows.

The seed determines everything: the index kind, whether the table is converted to dynamic buckets,
the batches, the storage operation that fails and how, and the late task. The model is a dictionary
of rows. After a failed write the model has both possible states, and every read must show one of
them. Some error classes exclude a state.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import bucketlake as bl
from bucketlake.errors import (
    BucketLakeError,
    CommitOutcomeUnknownError,
    IndexStateError,
    TimelineError,
)
from bucketlake.flow.threads import Threads
from bucketlake.index.hashing_config import CONFIGS_FOLDER, INITIAL_INSTANT
from bucketlake.index.recorded_counts import RECORD_FOLDER
from bucketlake.index.rescaled import rescaled_index
from bucketlake.model.file_name import BaseFileName, InstantTime, LogFileName
from bucketlake.model.result import WriteResult
from bucketlake.model.retention import ArchivalLimits, CleanPolicy, Retention
from bucketlake.model.schema import IS_DELETED
from bucketlake.model.table_type import Operation
from bucketlake.read.arrow_reader import read_arrow
from bucketlake.read.clean_guard import read_clean
from bucketlake.read.read_plan import plan_slices
from bucketlake.services.archival import archive
from bucketlake.services.cleaning import clean
from bucketlake.services.compaction import CompactionLimits, compact
from bucketlake.services.metadata.rebuild import build_metadata_table, drop_metadata_table
from bucketlake.services.rebucket.kind_conversion import ConversionReport
from bucketlake.services.rebucket.rescale import RescaleReport, plan_rescale, run_rescale
from bucketlake.services.resize.service import ResizeReport
from bucketlake.services.undo.rollback_commits import roll_back
from bucketlake.services.undo.savepoints import delete_savepoint, make_savepoint, restore
from bucketlake.storage.base import Storage
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_reader import (
    archived_completion_times,
    newest_manifest,
    read_archive,
)
from bucketlake.timeline.instant import WRITES, Action, Instant, State
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.outcome import read_outcome
from bucketlake.timeline.table_properties import read_table_config, table_at
from bucketlake.write.ingest import delete_partitions, write_records
from bucketlake.write.pack import ArrowSource
from bucketlake.write.target import Target, open_target
from tests.conformance.kinds import kind_of_seed
from tests.faulty_storage import Effect, Fault, FaultyStorage, Moment, SimulatedCrash
from tests.metadata_truth import require_true_metadata
from tests.simulation.indexes import (
    build_index,
    convert,
    index_in_force,
    is_dynamic,
    lacks_index,
)
from tests.simulation.late_tasks import LateTasks, RememberingSource
from tests.simulation.resizes import (
    drawn_limits,
    has_rings,
    require_committed_blocks,
    require_settled_copies,
    require_settled_rings,
    resize_one_by_one,
)

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
PARTITIONS = ["a", "b\nc"]  # One name has a line break, to find text that is split into lines.

REMEMBERED = " is deleted"
"""After the id of a row in a state: its delete is remembered."""

ONE_BY_ONE = Threads(1)
"""The engine of services: one thread, so that their tasks run in order."""

Rows = dict[tuple[str, str], tuple[int, int, int | None]]
"""Rows of the table: value, ordering value and ``x``, if any, by partition and key."""


def by_key(found: list[dict[str, Any]]) -> Rows:
    """Return the rows of a read, by partition and key."""
    return {(r["p"], r["id"]): (r["v"], r["ts"], r.get("x")) for r in found}


def rescale(
    target: Target, rules: dict[str, int], default: int, world: World | None
) -> RescaleReport:
    """Rescale a table in this process."""
    index = rescaled_index(target.index, rules, None, default, None)
    change = plan_rescale(target.snapshot, target.index, index)

    def rows_of(partitions: Sequence[str]) -> ArrowSource:
        slices = target.snapshot.partition_slices(partitions)
        plan = plan_slices(target.snapshot, slices)
        rows = read_arrow(target.storage, plan)
        return (
            ArrowSource(rows, threads=1)
            if world is None
            else RememberingSource(rows, world.late_tasks)
        )

    return run_rescale(target, change, rows_of, ONE_BY_ONE)


@dataclass
class World:
    """One run; ``step`` does a random operation and compares the table with the model."""

    seed: int
    fault_rate: float = 0.6
    archival_rate: float = 0.0  # How often an archival follows a step.
    kind_name: str | None = None  # By default the seed picks a kind.
    late_tasks: list[LateTasks] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.kind, table_type = kind_of_seed(self.seed, self.kind_name)
        self.merges_on_read = table_type == "merge_on_read"
        self.name = f"world-{self.seed}-{id(self)}"
        self.storage = MemoryStorage(self.name)
        self.now_ms = 1_900_000_000_000  # In 2030, after the creation of the metadata table.
        drawn = random.Random(f"indexes of {self.seed}")
        self.converts = self.kind.is_converted and drawn.random() < 0.5
        may_keep_index = not self.kind.needs_metadata_table
        self.keeps_index = may_keep_index and drawn.random() < 0.3
        bl.create_table(
            f"memory://{self.name}",
            schema=SCHEMA,
            record_key=self.kind.record_key("p"),
            partition_by=["p"],
            # Under event-time ordering, a late row after a delete in a merge-on-read table would be
            # merged with the base row again, as in Hudi. The model has no base rows.
            ordering=None if self.merges_on_read else "ts",
            index=self.kind.index,
            version=self.kind.version,
            table_type=table_type,
            metadata_table=self.seed % 2 == 1 or self.kind.needs_metadata_table,
        )
        if self.keeps_index:
            build_index(table_at(self.storage, now_ms=lambda: self.now_ms))
        self.states: list[Rows] = [{}]
        self.commits: set[tuple[str, str | None]] = set()  # Active and archived.
        self.before: dict[str, Rows] = {}  # Rows before a commit, by its instant, if certain.
        self.after: dict[str, Rows] = {}  # Rows after a commit.
        self.saved: dict[InstantTime, Rows] = {}  # Rows of savepoints.
        self.faulty = FaultyStorage(self.storage)
        self.log: list[str] = []

    def close(self) -> None:
        """Forget the table."""
        forget(self.name)

    def step(self) -> None:
        """Do a random operation."""
        self.now_ms += self.random.choice([1, 7, 1000, -500])  # Clocks also go back.
        action = self.random.choices(
            [
                self.upsert,
                self.delete,
                self.overwrite,
                self.drop_partition,
                self.rescale,
                self.roll_back,
                self.late_task,
                self.compact,
                self.archive,
                self.clean,
                self.save,
                self.restore,
                self.turn_metadata_table,
                self.convert,
            ],
            [6, 2, 1, 1, 6 if self.has_rings else 2, 2, 2, 3, 4, 2, 2, 2, 1, 2 * self.converts],
        )[0]
        self.log.append(action.__name__)
        action()
        self.check()
        if self.random.random() < self.archival_rate:
            self.log.append("archive")
            self.archive()
            self.check()
        self.check_the_past()

    @property
    def has_rings(self) -> bool:
        """Whether the table has hash rings now; a conversion may not have taken effect yet."""
        return has_rings(self.kind.index) and not self.is_dynamic

    @property
    def is_dynamic(self) -> bool:
        """Whether the table is under dynamic buckets as of its completed commits."""
        return is_dynamic(index_in_force(self.storage))

    # Writes.

    def upsert(self) -> None:
        rows = self._rows()
        self._write(
            Operation.UPSERT,
            rows,
            lambda state: upserted(state, rows, by_event_time=not self.merges_on_read),
        )

    def delete(self) -> None:
        rows = self._rows()
        keys = {(r["p"], r["id"]) for r in rows}
        self._write(
            Operation.DELETE, rows, lambda state: {k: v for k, v in state.items() if k not in keys}
        )

    def overwrite(self) -> None:
        rows = self._rows()
        touched = {r["p"] for r in rows}

        def after(state: Rows) -> Rows:
            kept = {k: v for k, v in state.items() if k[0] not in touched}
            return self._upserted(kept, rows)

        self._write(Operation.INSERT_OVERWRITE, rows, after)

    def drop_partition(self) -> None:
        partition = self.random.choice(PARTITIONS)
        self._attempt(
            lambda target: delete_partitions(target, [partition]),
            lambda state: {k: v for k, v in state.items() if k[0] != partition},
            may_be_refused=True,
        )

    def rescale(self) -> None:
        """Give partitions other bucket counts, or resize buckets of rings; no row changes."""
        if self.has_rings:
            self.resize()
            return
        if not self.kind.is_rescaled or self.is_dynamic:
            self.upsert()
            return
        rules = {p: self.random.randrange(1, 5) for p in PARTITIONS if self.random.random() < 0.7}
        default = self.random.randrange(1, 4)

        def run(target: Target) -> RescaleReport | None:
            if is_dynamic(target.index):  # A conversion that had died was completed.
                return None
            return rescale(target, rules or {"none": 1}, default, self)

        self._attempt(run, lambda state: state)

    def resize(self) -> None:
        """Split and merge buckets, or only plan to; no row changes."""
        limits = drawn_limits(self.random, self.kind.index)
        schedule_only = self.random.random() < 0.5
        self.log.append(f"  {limits}, schedule_only={schedule_only}")

        def run(target: Target) -> ResizeReport | None:
            if is_dynamic(target.index):  # A conversion that had died was completed.
                return None
            return resize_one_by_one(target, limits, schedule_only=schedule_only)

        self._attempt(run, lambda state: state, steps=150)
        if schedule_only:
            self.upsert()

    def compact(self) -> None:
        """Compact, or only plan a compaction; no row changes."""
        if not self.merges_on_read:
            return
        schedule_only = self.random.random() < 0.4
        limits = CompactionLimits(min_log_files=self.random.choice([1, 2]))

        def run(target: Target) -> None:
            compact(
                target.table,
                limits,
                ONE_BY_ONE,
                schedule_only=schedule_only,
            )

        self._attempt(run, lambda state: state)

    def archive(self) -> None:
        """Move old instants out of the active timeline; no row changes."""
        keep_min = self.random.choice([1, 1, 2])
        limits = ArchivalLimits(keep_min, keep_min + 1)
        self._attempt(
            lambda target: archive(target.table, limits),
            lambda state: state,
        )

    def turn_metadata_table(self) -> None:
        """Turn the metadata table on or off, or build it again; no row changes."""
        if self.kind.needs_metadata_table or self.is_dynamic:
            return  # Writes need the index: they are refused while a build that died has left none.
        turn = self.random.choice([build_metadata_table, build_index, drop_metadata_table])
        if turn is build_index and not self.keeps_index:
            turn = build_metadata_table
        self.log.append(f"  {turn.__name__}")

        def run(target: Target) -> None:
            if not is_dynamic(target.index):  # A conversion that had died may be completed now.
                turn(table_at(target.storage, now_ms=lambda: self.now_ms))

        self._attempt(run, lambda state: state)

    def convert(self) -> None:
        """Convert the table to dynamic buckets; no row changes."""
        timeline = load_timeline(table_at(self.storage))
        # The next write needs the index, if the conversion dies before a second build of it.
        self._attempt(
            convert, lambda state: state, may_be_refused=bool(timeline.pending_clusterings())
        )

    def roll_back(self) -> None:
        """Roll the newest commit back."""
        config = read_table_config(self.storage)
        timeline = load_timeline(opened_table(self.storage, config))
        commits = timeline.completed_commits()
        if not commits:
            return
        newest = commits[-1].requested_at
        resizes = timeline.read_commit(self.storage, commits[-1]).resizes
        if not resizes and newest not in self.before:
            return
        before = self.before.get(newest, {})
        # An archival that died leaves commits in both timelines.
        archived = archived_completion_times(
            opened_table(self.storage, config), since=commits[0].requested_at, until=newest
        )
        self._attempt(
            lambda target: roll_back(
                target.table,
                None,
                newest,
            ),
            lambda state: state if resizes else before,
            # A pending instant may become the newest commit; the last commit after an archival
            # stays; a savepoint may keep the commit; a clean may have deleted earlier files; a
            # resize that was planned before the commit may have completed after it.
            may_be_refused=bool(timeline.pending())
            or commits[-1] != max(commits, key=lambda one: one.completed_at or "")
            or {one.requested_at for one in commits[:-1]} <= archived.keys()
            or bool(self._upkeep(timeline)),
        )

    def clean(self) -> None:
        """Delete old versions; no row changes, and time travel can still read retained times."""
        policy = self.random.choice([*CleanPolicy, CleanPolicy.COMMITS])
        retention = Retention(policy, self.random.choice([1, 2, 3]))

        def run(target: Target) -> None:
            clean(target.table, retention)

        self._attempt(run, lambda state: state)

    def save(self) -> None:
        """Make a savepoint of the newest commit, or delete one."""
        if self.saved and self.random.random() < 0.3:
            then = self.random.choice([*self.saved])
            self._attempt(
                lambda t: delete_savepoint(t.table, then),
                lambda state: state,
                may_be_refused=True,  # It may be deleted already.
            )
            if then not in self._savepoints():
                del self.saved[then]
            return
        made: list[InstantTime] = []

        def run(target: Target) -> None:
            then = make_savepoint(target.table)
            made.append(then)

        self._attempt(run, lambda state: state, may_be_refused=True)  # There may be no commit.
        if made:
            self.states = [self._read()]
            self.saved[made[0]] = self.states[0]

    def restore(self) -> None:
        """Restore the newest known savepoint, and continue the restore until it is complete."""
        if not self.saved:
            return
        then = max(self.saved)
        refused = len(self._savepoints()) > 1  # An unknown savepoint may be later.
        saved, states = self.saved[then], self.states
        self._attempt(
            lambda t: restore(t.table, then),
            lambda _: saved,
            may_be_refused=refused,
        )
        carried_on = 0
        while self._pending(Action.RESTORE):
            carried_on += 1
            self._attempt(lambda _: None, lambda state: state)
        if carried_on and self._read() not in states:
            self.states = [saved]  # It was half done before, and is complete now.

    def late_task(self) -> None:
        """Run the tasks of an earlier write again; they may crash."""
        if not self.late_tasks:
            return
        late = self.random.choice(self.late_tasks)
        faulty = self._plan_faults()
        try:
            late.run(faulty)
        except (BucketLakeError, SimulatedCrash) as error:
            self.log.append(f"  late task: {error!r}")

    def _write(
        self, operation: Operation, rows: list[dict[str, object]], after: Callable[[Rows], Rows]
    ) -> None:
        table = pa.Table.from_pylist(rows, SCHEMA)
        self._attempt(
            lambda target: write_records(
                target, operation, RememberingSource(table, self.late_tasks)
            ),
            after,
        )

    def _attempt(
        self,
        run: Callable[[Target], object],
        after: Callable[[Rows], Rows],
        *,
        may_be_refused: bool = False,
        steps: int = 70,
    ) -> None:
        faulty = self._plan_faults(steps)
        written = [after(state) for state in self.states]
        try:
            config = read_table_config(faulty)
            target = open_target(
                opened_table(faulty, config, now_ms=lambda: self.now_ms), self.kind.index
            )
            result = run(target)
        except (SimulatedCrash, CommitOutcomeUnknownError) as error:
            self.log.append(f"  {error!r}")
            self.states = _distinct([*self.states, *written])
        except BucketLakeError as error:
            # Any other error promises that nothing was written.
            self.log.append(f"  {error!r}")
            if isinstance(error, IndexStateError) and lacks_index(self.storage):
                build_index(table_at(self.storage, now_ms=lambda: self.now_ms))
                self.log.append("  the index was built; again")
                self._attempt(run, after, may_be_refused=may_be_refused, steps=steps)
                return
            assert faulty.faults or may_be_refused, error  # noqa: PT017
        else:
            reports = WriteResult | RescaleReport | ConversionReport
            if isinstance(result, reports) and len(self.states) == 1:
                self.before[str(result.instant)] = self.states[0]
                self.after[str(result.instant)] = written[0]
            if isinstance(result, ResizeReport) and result.scheduled and len(self.states) == 1:
                self.after[str(result.scheduled)] = self.states[0]
            self.states = _distinct(written)
            self.check_nothing_is_left_over()

    def _plan_faults(self, steps: int = 70) -> FaultyStorage:
        faults = []
        if self.random.random() < self.fault_rate:
            effect = self.random.choice([Effect.DIE, Effect.DIE, Effect.ERROR, Effect.ECHO])
            moment = self.random.choice(list(Moment))
            faults = [Fault(self.random.randrange(1, steps), moment, effect)]
        self.faulty = FaultyStorage(self.storage, faults)
        return self.faulty

    def _rows(self) -> list[dict[str, object]]:
        return [self._row() for _ in range(self.random.randrange(1, 6))]

    def _row(self) -> dict[str, object]:
        number, partition = self.random.randrange(6), self.random.choice(PARTITIONS)
        return {
            "id": self.kind.id_in(partition, number),
            "p": partition,
            "v": self.random.randrange(1000),
            "ts": self.random.randrange(5),
        }

    def _pending(self, action: Action) -> list[Instant]:
        timeline = load_timeline(table_at(self.storage))
        return [one for one in timeline.pending() if one.action is action]

    def _ranges_wait(self) -> bool:
        timeline = load_timeline(table_at(self.storage))
        is_pending = any(one.action in WRITES for one in timeline.pending())
        return is_pending and not timeline.layout.has_completion_times

    def _savepoints(self) -> list[InstantTime]:
        timeline = load_timeline(table_at(self.storage))
        return [one.requested_at for one in timeline.instants if one.action is Action.SAVEPOINT]

    def _upkeep(self, timeline: Timeline) -> list[Instant]:
        actions = {Action.SAVEPOINT, Action.CLEAN}
        return [one for one in timeline.instants if one.action in actions]

    def _read(self, as_of: str | None = None) -> Rows:
        got = bl.open_table(f"memory://{self.name}").to_arrow(as_of=as_of).to_pylist()
        seen = by_key(got)
        assert len(seen) == len(got), self.story("a row is there twice")
        return seen

    # What must hold.

    def check(self) -> None:
        """Read the table and check that it shows a possible state, and no row twice."""
        seen = self._read()
        assert seen in self.states, self.story(f"read {seen}, possible are {self.states}")
        table = bl.open_table(f"memory://{self.name}")
        columns = self.kind.record_key("p")
        for partition, key in seen:
            values = {"id": key, "p": partition}
            found = table.locate({name: values[name] for name in columns}, partition)
            assert len(found) == 1, self.story(f"{key} of {partition} is not in its bucket")
        everything = table.to_arrow(since="0" * 17).to_pylist()
        changed = by_key(everything)
        # Without completion times, a range ends before a write that died and was not rolled back.
        if not self._ranges_wait():
            problem = "what changed since the beginning is not what there is"
            assert changed == seen, self.story(problem)
        self.check_no_commit_is_lost()
        if has_rings(self.kind.index):
            require_committed_blocks(self.storage, self.story)

    def check_no_commit_is_lost(self) -> None:
        """Check that every commit is active or archived, unless it was rolled back."""
        commits = self._commits()
        for instant, _ in self.commits - commits:
            outcome = read_outcome(self.storage, InstantTime(instant))
            is_undone = outcome is not None and outcome.is_rollback
            assert is_undone, self.story(f"the commit {instant} is gone")
        self.commits = commits
        config = read_table_config(self.storage)
        manifest = newest_manifest(self.storage, config.history_folder)
        for file in manifest.files:
            path = f"{config.history_folder}/{file.name}"
            assert self.storage.stat(path) is not None, self.story(f"{path} is gone")

    def archived_actions(self) -> set[str]:
        """Return the actions of the archived instants."""
        return {one.action for one in read_archive(table_at(self.storage))}

    def _commits(self) -> set[tuple[str, str | None]]:
        config = read_table_config(self.storage)
        active = load_timeline(opened_table(self.storage, config)).completed_commits()
        archived = read_archive(opened_table(self.storage, config))
        return {(one.requested_at, one.completed_at) for one in active} | {
            (one.requested_at, one.completed_at) for one in archived if "commit" in one.action
        }

    def check_the_past(self) -> None:
        """Read as of some commits: check the rows, or that a clean has deleted the files."""
        timeline = load_timeline(table_at(self.storage))
        known = [one.requested_at for one in timeline.completed_commits()]
        known = [one for one in known if one in self.after]
        for then in self.random.sample(known, min(2, len(known))):
            try:
                seen = self._read(as_of=then)
            except TimelineError as error:
                story = self.story(f"as of {then}: {error}")
                assert not self._is_retained(timeline, then), story
            else:
                assert seen == self.after[then], self.story(f"as of {then} it shows {seen}")

    def _is_retained(self, timeline: Timeline, then: InstantTime) -> bool:
        if any(one.requested_at == then and one.completed_at for one in self._upkeep(timeline)):
            return True  # A savepoint keeps it.
        cleans = [one for one in timeline.instants if one.action is Action.CLEAN]
        earliest = [read_clean(self.storage, timeline, one).earliest for one in cleans]
        return all(one is not None and one <= then for one in earliest)

    def check_nothing_is_left_over(self) -> None:
        """Check that, after a successful write, every data file is of a completed commit."""
        require_tidy(self.storage, self.story)

    def _upserted(self, state: Rows, rows: list[dict[str, Any]]) -> Rows:
        return upserted(state, rows, by_event_time=not self.merges_on_read)

    def story(self, finding: str) -> str:
        """Return a finding with the log of the run and the command for a replay."""
        lines = "\n".join(self.log)
        replay = f"replay: pytest tests/simulation --seed {self.seed} --kind {self.kind.name}"
        return f"{finding}\n{lines}\n{self.faulty.replay()}\n{replay}"


def upserted(state: Rows, rows: list[dict[str, Any]], *, by_event_time: bool) -> Rows:
    """Return the rows after an upsert: the greater ordering value wins, else the later row."""
    after = dict(state)
    best: Rows = {}
    for row in rows:
        key, value = (row["p"], row["id"]), (row["v"], row["ts"], row.get("x"))
        if key not in best or not by_event_time or value[1] >= best[key][1]:
            best[key] = value
    for key, value in best.items():
        if key not in after or not by_event_time or value[1] >= after[key][1]:
            after[key] = value
    return after


def remembering(state: Rows, rows: list[dict[str, Any]]) -> Rows:
    """Return the rows, and the remembered deletes, after an upsert of rows and deletes.

    Its keys are distinct. A delete is the row of the key with :data:`REMEMBERED`; its second value
    is the ordering value.
    """
    after = dict(state)
    for row in rows:
        key, ts = (row["p"], row["id"]), row["ts"]
        mark = (row["p"], row["id"] + REMEMBERED)
        stored, dead = after.get(key), after.get(mark)
        if row.get(IS_DELETED):
            if dead is None or dead[1] <= ts:
                after[mark] = (0, ts, None)
                if stored is not None and stored[1] <= ts:
                    del after[key]
        elif (dead is None or dead[1] < ts) and (stored is None or stored[1] <= ts):
            after[key] = row["v"], ts, row.get("x")
    return after


def stored_in(state: Rows) -> Rows:
    """Return a state without the remembered deletes."""
    return {key: row for key, row in state.items() if not key[1].endswith(REMEMBERED)}


def require_tidy(storage: Storage, story: Callable[[str], str]) -> None:
    """Check that data files are of completed commits, and only services are in progress.

    The metadata table must say what the table holds.
    """
    config = read_table_config(storage)
    require_true_metadata(storage, story)
    timeline = load_timeline(opened_table(storage, config))
    completed = {i.requested_at for i in timeline.completed()}
    completed.update(i.requested_at for i in read_archive(opened_table(storage, config)))
    services = (*timeline.pending_compactions(), *timeline.pending_clusterings())
    planned = {i.requested_at for i in services}
    require_settled_copies(storage, completed, story)
    require_settled_rings(storage, completed | planned, story)
    for instant in _instants_of_files(storage):
        assert instant in completed | planned, story(f"a file of {instant} is left over")
    # A put that took effect twice may leave a requested instant, but no inflight instant.
    pending = [
        i
        for i in timeline.pending()
        if i.requested_at not in planned and i.action not in {Action.SAVEPOINT, Action.CLEAN}
    ]
    inflight = [i for i in pending if i.state is State.INFLIGHT]
    assert not inflight, story(f"{inflight} is left over")
    for folder in (CONFIGS_FOLDER, RECORD_FOLDER):
        for stored in storage.list(folder):
            version = stored.path.rpartition("/")[2].partition(".")[0]
            assert version in completed | {INITIAL_INSTANT}, story(f"{stored.path} is left over")
    assert all(i.completed_at for i in timeline.completed()), story("completed at no time")
    times = [i.completed_at for i in timeline.completed_commits()]
    assert len(set(times)) == len(times), story("two commits were completed at one time")


def _instants_of_files(storage: Storage) -> Iterator[str]:
    for partition in PARTITIONS:
        for stored in storage.list(partition):
            file_name = stored.path.rpartition("/")[2]
            name = BaseFileName.from_file_name(file_name) or LogFileName.from_file_name(file_name)
            if name is not None:
                yield name.instant
            if isinstance(name, LogFileName) and name.writer is not None:
                yield name.writer


def _distinct(states: list[Rows]) -> list[Rows]:
    found: list[Rows] = []
    for state in states:
        if state not in found:
            found.append(state)
    return found
