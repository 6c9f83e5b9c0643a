"""Every interleaving of a few processes on one small table, up to a number of switches.

A crowd (``crowd.py``) draws interleavings at random; this module tries all of them. Three processes
run the real code over storage in memory. A process runs until it ends, sleeps or is *switched*:
before one of its storage operations another process goes on. A plan lists the switches of a run.
The exploration runs the plan without switches, then each plan with one more switch at each step
that the run passed, and so on. In other plans one process dies after one of its changes of storage.

Two runs that come to the same state (the same objects in storage, and each process has got the same
answers from storage) go on in the same way, so only the first is continued. After each run the
checks of ``record.py`` compare the table with the commits in order of completion.

The clock stands still except while all processes sleep, so that writers also draw equal times.
"""

from __future__ import annotations

import itertools
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest import mock

import pyarrow as pa

import bucketlake as bl
from bucketlake.actions.metadata_compaction import compact_metadata
from bucketlake.config.table_version import NEWEST_VERSION
from bucketlake.errors import (
    BucketLakeError,
    CommitOutcomeUnknownError,
    IndexStateError,
    ObjectNotFoundError,
    TimelineError,
)
from bucketlake.index.setting import TableIndex
from bucketlake.model.retention import ArchivalLimits, CleanPolicy, Retention
from bucketlake.model.table_type import Operation
from bucketlake.services.archival import archive
from bucketlake.services.cleaning import clean
from bucketlake.services.compaction import CompactionLimits, compact
from bucketlake.services.metadata.rebuild import build_metadata_table
from bucketlake.services.undo.rollback_commits import roll_back
from bucketlake.services.undo.savepoints import make_savepoint, restore
from bucketlake.storage.base import Buffer, StoredObject
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline import heartbeat
from bucketlake.timeline.instant import Action
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config, table_at
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource
from bucketlake.write.target import Target, open_target
from tests.faulty_storage import Fault, FaultyStorage, Moment, SimulatedCrash
from tests.metadata_truth import require_true_metadata
from tests.simulation.indexes import LARGE_ROWS
from tests.simulation.processes import Processes
from tests.simulation.record import Deed, Record, same
from tests.simulation.stage import Actor, Stage, StagedStorage
from tests.simulation.world import ONE_BY_ONE, SCHEMA, upserted

START_MS = 1_750_000_000_000
_NUMBERS = itertools.count()  # Of all explorations: a path has one clock in a process.

Run = Callable[[Target, Deed], object]
"""An action on an opened table; it notes in its deed which commits it undoes."""


@dataclass(frozen=True, slots=True)
class Switch:
    """From this step of a run on, a process goes on that was not at work before."""

    step: int
    process: str


@dataclass(frozen=True, slots=True)
class Plan:
    """One run.

    Attributes
    ----------
    switches : tuple of Switch
        In the order of their steps.
    free : int
        Number of switches at which the process before had ended or slept.
    dies : tuple of str and int, or None
        A process, and the number of its changes of storage after which it dies.
    """

    switches: tuple[Switch, ...] = ()
    free: int = 0
    dies: tuple[str, int] | None = None

    @property
    def cost(self) -> int:
        """Number of switches that interrupted a process."""
        return len(self.switches) - self.free


@dataclass(frozen=True, slots=True)
class Choice:
    """What could go on at one step of a run.

    Attributes
    ----------
    step : int
    state : int
        Number of the state before the step.
    process : str
        The process that goes on if nothing is planned.
    others : tuple of str
        Processes that could go on instead of the one that did.
    is_free : bool
        Whether the process before had ended or sleeps.
    is_change : bool
        Whether the process before is about to change an object.
    """

    step: int
    state: int
    process: str
    others: tuple[str, ...]
    is_free: bool
    is_change: bool


_CHANGES = ("put", "delete", "duplicate")


class PlannedStage(Stage):
    """A stage on which a plan decides who acts."""

    def __init__(self, plan: Plan, state: Callable[[], int]) -> None:
        super().__init__(random.Random(0), START_MS)
        self.jumps = False
        self.choices: list[Choice] = []
        self.is_planned = True
        self._switches = {switch.step: switch.process for switch in plan.switches}
        self._state = state
        self._last: Actor | None = None
        self._is_change = False

    def pause(self, doing: str) -> None:
        actor = self.actor
        if actor is not None:
            self._is_change = doing.startswith(_CHANGES)
            self._yield(actor)
            self.trace.append(f"{actor.name}: {doing}")

    def _next(self) -> Actor:
        ready = [one for one in self._waiting if one.asleep_until_ms <= self.now_ms]
        if not ready:
            first = min(self._waiting, key=lambda one: one.asleep_until_ms)
            self.now_ms = first.asleep_until_ms
            ready = [first]
        chosen = self._last if self._last in ready else ready[0]
        assert chosen is not None
        if self.is_planned:
            step = len(self.choices)
            wanted = self._switches.get(step)
            others = tuple(one.name for one in ready if one is not chosen)
            state = hash((self._state(), self.now_ms))
            is_free = chosen is not self._last
            self.choices.append(Choice(step, state, chosen.name, others, is_free, self._is_change))
            chosen = next((one for one in ready if one.name == wanted), chosen)
        self._last = chosen
        return chosen


class ObservedStorage(StagedStorage):
    """A staged storage that remembers what its process has learned from it, as a number."""

    def __init__(self, inner: FaultyStorage, stage: Stage) -> None:
        super().__init__(inner, stage)
        self.learned = 0

    def _learn(self, *answer: object) -> None:
        self.learned = hash((self.learned, *answer))

    def read(self, path: str) -> bytes:
        found = self._told(super().read, path)
        self._learn("read", path, found)
        return found

    def stat(self, path: str) -> StoredObject | None:
        found = super().stat(path)
        self._learn("stat", path, found)
        return found

    def list(self, folder: str, *, recursive: bool = True) -> Iterator[StoredObject]:
        found = [*super().list(folder, recursive=recursive)]
        self._learn("list", folder, *found)
        return iter(found)

    def list_named(self, folder: str, prefixes: tuple[str, ...]) -> Iterator[StoredObject]:
        found = [*super().list_named(folder, prefixes)]
        self._learn("list", folder, *found)
        return iter(found)

    def list_briefly(self, folder: str) -> dict[str, int | None]:
        found = super().list_briefly(folder)
        self._learn("list", folder, *found.items())
        return found

    def list_folders(self, folder: str) -> list[str]:  # type: ignore[override]
        found = [*super().list_folders(folder)]
        self._learn("folders", folder, *found)
        return found

    def put(self, path: str, data: Buffer) -> None:
        super().put(path, data)
        self._learn("put", path)

    def put_if_absent(self, path: str, data: Buffer) -> None:
        self._told(super().put_if_absent, path, data)
        self._learn("put if absent", path)

    def delete(self, path: str) -> None:
        super().delete(path)
        self._learn("delete", path)

    def delete_folder(self, folder: str) -> None:
        super().delete_folder(folder)
        self._learn("delete folder", folder)

    def _told(self, run: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return run(*arguments)
        except BucketLakeError as error:
            self._learn(type(error).__name__, arguments[0])
            raise


_ONE_BUCKET = bl.SimpleBucket(1)


@dataclass(frozen=True)
class Scenario:
    """A table, and a service that runs beside two writers of one key.

    Attributes
    ----------
    name : str
        Name of the service.
    service : callable
    beside : callable or None
        A service that runs in place of the second writer.
    table_type : str
    has_metadata_table : bool
    has_savepoint : bool
    undoes : bool
        Whether the service undoes commits.
    version : int
        Version of the table.
    index : TableIndex
        Index of the table.
    partition : str
        The partition to which both writers write; there are rows in "a" before.
    own_rows : tuple of int
        Rows that each of the two writers adds to the one that both write.
    """

    name: str
    service: Run
    beside: Run | None = None
    table_type: str = "copy_on_write"
    has_metadata_table: bool = False
    has_savepoint: bool = False
    undoes: bool = False
    version: int = NEWEST_VERSION
    index: TableIndex = _ONE_BUCKET
    partition: str = "a"
    own_rows: tuple[int, int] = (1, 1)


def _compact(at: Target, _: Deed) -> object:
    return compact(at.table, CompactionLimits(), ONE_BY_ONE)


def _clean(at: Target, _: Deed) -> object:
    return clean(
        at.table,
        Retention(CleanPolicy.COMMITS, 1),
    )


def _archive(at: Target, _: Deed) -> object:
    return archive(at.table, ArchivalLimits(1, 2))


def _build(at: Target, _: Deed) -> object:
    return build_metadata_table(table_at(at.storage, now_ms=at.table.clock.now_ms))


def _compact_metadata(at: Target, _: Deed) -> object:
    return compact_metadata(at.table, delta_commits=1)


def _roll_back(at: Target, deed: Deed) -> object:
    newest = at.snapshot.timeline.completed_commits()[-1].requested_at
    deed.undoes = {newest}
    return roll_back(at.table, None, newest)


def _restore(at: Target, deed: Deed) -> object:
    deed.undoes = None
    saved = next(i for i in at.snapshot.timeline.completed() if i.action is Action.SAVEPOINT)
    return restore(at.table, saved.requested_at)


MOR = "merge_on_read"
METADATA_6 = "compaction of a metadata table of version 6"
VERSIONS = (6, 8, NEWEST_VERSION)
TWO_COMPACTIONS = tuple(
    Scenario(f"two compactions of version {version}", _compact, _compact, MOR, version=version)
    for version in VERSIONS
)
TWO_SERVICES = (
    *TWO_COMPACTIONS,
    *(
        Scenario(
            f"two compactions of a metadata table of version {version}",
            _compact_metadata,
            _compact_metadata,
            has_metadata_table=True,
            version=version,
        )
        for version in VERSIONS
    ),
    Scenario("compaction and clean of version 6", _compact, _clean, MOR, version=6),
    Scenario(
        "compaction and rollback of version 6", _compact, _roll_back, MOR, undoes=True, version=6
    ),
    Scenario(
        "compaction and restore of version 6",
        _compact,
        _restore,
        MOR,
        has_savepoint=True,
        undoes=True,
        version=6,
    ),
    Scenario("two cleans of version 6", _clean, _clean, version=6),
    Scenario("two archivals of version 6", _archive, _archive, version=6),
)
SCENARIOS = (
    Scenario("compaction", _compact, table_type=MOR),
    Scenario("compaction of version 6", _compact, table_type=MOR, version=6),
    Scenario("clean", _clean),
    Scenario("metadata build", _build),
    Scenario("rollback", _roll_back, undoes=True),
    Scenario("rollback of version 6", _roll_back, table_type=MOR, undoes=True, version=6),
    Scenario("rollback with metadata table", _roll_back, has_metadata_table=True, undoes=True),
    Scenario(METADATA_6, _compact_metadata, has_metadata_table=True, version=6),
    Scenario("restore", _restore, has_savepoint=True, undoes=True),
    Scenario(  # One writer opens one shard of the index, and the other one four.
        "clean beside a new partition",
        _clean,
        has_metadata_table=True,
        index=bl.DynamicBucket(),
        partition="b",
        own_rows=(0, LARGE_ROWS),
    ),
)


@dataclass
class Explored:
    """What an exploration did."""

    runs: int = 0
    states: int = 0


class Exploration:
    """All runs of one scenario up to a number of switches."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        second = "writer 2" if scenario.beside is None else "the other service"
        self.processes = ("writer 1", second, scenario.name)
        self.found = Explored()
        self._first, self._deeds = self._prepared()

    def explore(
        self, switches: int, *, before_reads: bool = True, interrupts: str | None = None
    ) -> Explored:
        """Run all plans with at most so many switches.

        Parameters
        ----------
        switches : int
            Switches that interrupt a process. At its end or sleep each other process is tried.
        before_reads : bool
            Whether processes are also interrupted before they read, not only before changes.
        interrupts : str, optional
            The only process that is interrupted; by default all are.
        """
        return self._explore([Plan()], switches, before_reads, interrupts)

    def explore_deaths(self, switches: int, *, every: int = 1) -> Explored:
        """Do the same for plans in which a process dies: after each ``every``-th change of each."""
        return self._explore([*self._deaths()][::every], switches)

    def _explore(
        self,
        plans: Sequence[Plan],
        switches: int,
        before_reads: bool = True,
        interrupts: str | None = None,
    ) -> Explored:
        pending = [*plans]
        reached: dict[object, int] = {}  # Number of further switches that were tried from a state.
        states: set[int] = set()
        while pending:
            plan = pending.pop()
            first = plan.switches[-1].step + 1 if plan.switches else 0
            for choice in self.run(plan)[first:]:
                states.add(choice.state)
                if not (choice.is_free or choice.is_change or before_reads):
                    continue
                if not choice.is_free and interrupts not in (None, choice.process):
                    continue
                for other in choice.others:
                    switch = Switch(choice.step, other)
                    free = plan.free + choice.is_free
                    following = Plan((*plan.switches, switch), free, plan.dies)
                    left = switches - following.cost
                    place = (choice.state, other, plan.dies)
                    if left >= 0 and reached.get(place, -1) < left:
                        reached[place] = left
                        pending.append(following)
        self.found.states += len(states)
        return self.found

    def run(self, plan: Plan) -> list[Choice]:
        """Run a plan and check the table; return what could have gone on at each step."""
        play = _Play(self.scenario, plan, f"interleaving-{next(_NUMBERS)}", self.processes)
        self.found.runs += 1
        try:
            return play.run(self._first, self._deeds)
        finally:
            forget(play.name)

    def _deaths(self) -> Iterator[Plan]:
        """Yield a plan for each change of storage of each process, after which it dies."""
        play = _Play(self.scenario, Plan(), f"interleaving-{next(_NUMBERS)}", self.processes)
        play.run(self._first, self._deeds)
        forget(play.name)
        for process in self.processes:
            for number in range(1, play.faulty[process].operations + 1):
                yield Plan(dies=(process, number))

    def _prepared(self) -> tuple[Objects, list[Deed]]:
        """Make the table: a key that was written twice."""
        scenario = self.scenario
        # Made at another path: it has the time of day, and a clock never goes back.
        empty = MemoryStorage(f"interleaving-{next(_NUMBERS)}")
        bl.create_table(
            empty.root,
            schema=SCHEMA,
            record_key=["id"],
            partition_by=["p"],
            index=scenario.index,
            table_type=scenario.table_type,
            metadata_table=scenario.has_metadata_table,
            version=scenario.version,
        )
        name = f"interleaving-{next(_NUMBERS)}"
        play = _Play(scenario, Plan(), name, self.processes)
        play.memory._shelf.objects.update(empty._shelf.objects)
        forget(empty.root.removeprefix("memory://"))
        play.alone("first", _writes(1))
        if scenario.has_savepoint:
            config = read_table_config(play.memory)
            make_savepoint(opened_table(play.memory, config, now_ms=lambda: play.stage.now_ms))
        play.alone("second", _writes(2))
        deeds = play.record.deeds
        objects = dict(play.memory._shelf.objects)
        forget(name)
        return objects, deeds


Objects = dict[str, tuple[bytes, int]]


def _writes(number: int, partition: str = "a", own: int = 1) -> tuple[Deed, Run]:
    """Return an upsert of one key, and of some that no other upsert writes."""
    keys = ["shared", *(f"own {number}.{n}" for n in range(own))]
    rows = [{"id": key, "p": partition, "v": number, "ts": 0} for key in keys]
    batch = pa.Table.from_pylist(rows, SCHEMA)

    def run(at: Target, _: Deed) -> object:
        return write_records(at, Operation.UPSERT, ArrowSource(batch, threads=1))

    return Deed(f"upsert {number}", partial(upserted, rows=rows, by_event_time=False)), run


class _Play:
    """One run of a plan."""

    def __init__(self, scenario: Scenario, plan: Plan, name: str, processes: Sequence[str]) -> None:
        self.scenario, self.plan, self.name = scenario, plan, name
        self.stage = PlannedStage(plan, self._state)
        self.memory = MemoryStorage(name, lambda: self.stage.now_ms)
        self.record = Record(self.memory, scenario.undoes, self._story)
        self.faulty: dict[str, FaultyStorage] = {}
        self.storages: dict[str, ObservedStorage] = {}
        self._processes = Processes(self.stage, renew=False)
        self._names = processes
        self._drawn: Counter[str] = Counter()

    def run(self, objects: Objects, deeds: Sequence[Deed]) -> list[Choice]:
        self.memory._shelf.objects.update(objects)
        self.record.deeds += [replace(deed) for deed in deeds]
        scenario, to = self.scenario, self.scenario.partition
        actions = [_writes(3, to, scenario.own_rows[0]), self._second()]
        actions.append((Deed(scenario.name, same), scenario.service))
        for name in self._names:
            self._storage(name)
        actors = [
            Actor(name, partial(self._act, name, *action))
            for name, action in zip(self._names, actions, strict=True)
        ]
        with self._installed():
            self.stage.play(actors)
            choices = self.stage.choices
            self.stage.is_planned = False
            self.stage.now_ms += 10 * heartbeat.EXPIRES_AFTER_MS
        self.alone("the last writer", _writes(5, to))
        assert self.record.deeds[-1].told == "done", self._story("the last write did not succeed")
        self.record.check()
        require_true_metadata(self.memory, self._story)
        return choices

    def _second(self) -> tuple[Deed, Run]:
        """Return what the second process does."""
        scenario, beside = self.scenario, self.scenario.beside
        if beside is None:
            return _writes(4, scenario.partition, scenario.own_rows[1])
        return Deed(f"{scenario.name}, the other", same), beside

    def alone(self, name: str, action: tuple[Deed, Run]) -> None:
        """Let one process act alone."""
        self.stage.is_planned = False
        self._storage(name)
        with self._installed():
            self.stage.play([Actor(name, partial(self._act, name, *action))])

    def _storage(self, name: str) -> None:
        dies = self.plan.dies
        faults = [Fault(dies[1], Moment.AFTER)] if dies is not None and dies[0] == name else []
        self.faulty[name] = FaultyStorage(self.memory, faults, reads_count=False)
        self.storages[name] = ObservedStorage(self.faulty[name], self.stage)

    @contextmanager
    def _installed(self) -> Iterator[None]:
        with self._processes.installed(), mock.patch("uuid.uuid4", self._drawn_id):
            yield

    def _act(self, name: str, deed: Deed, run: Run) -> None:
        storage = self.storages[name]
        self.record.deeds.append(deed)
        self.record.log.append(f"{name}: {deed.name}")
        try:
            at = open_target(
                table_at(storage, now_ms=lambda: self.stage.now_ms),
                None,
            )
            result = run(at, deed)
        except (SimulatedCrash, CommitOutcomeUnknownError) as error:
            self.record.log.append(f"{name}:   {error!r}")
        except BucketLakeError as error:
            deed.told = "failed"
            self.record.log.append(f"{name}:   {error!r}")
            if not isinstance(error, TimelineError | ObjectNotFoundError | IndexStateError):
                raise AssertionError(self._story(repr(error))) from error
        else:
            deed.told, deed.instant = "done", getattr(result, "instant", None)
            self.record.log.append(f"{name}:   done {deed.instant}")
        deed.instants = {
            path.rpartition("/")[2].removesuffix(".requested")
            for path in storage.created
            if path.endswith(".requested")
        }

    def _state(self) -> int:
        objects = frozenset(self.memory._shelf.objects.items())
        return hash((objects, *(storage.learned for storage in self.storages.values())))

    def _drawn_id(self) -> uuid.UUID:
        actor = self.stage.actor
        name = "nobody" if actor is None else actor.process
        self._drawn[name] += 1
        return uuid.uuid5(uuid.NAMESPACE_OID, f"{name} {self._drawn[name]}")

    def _story(self, finding: str) -> str:
        lines = "\n".join([*self.record.log, "", *self.stage.trace])
        return f"{finding}\n{self.scenario.name}: {self.plan}\n{lines}"
