"""Records the actions and reads of a crowd, and checks them at the end.

The checks are:

- The completed commits, applied in order of completion, give exactly the rows of the table.
- Every write that succeeded is among these commits, unless another actor undid it; no write that
  failed is among them.
- Every batch of a stream is committed once, and in order.
- Every read returned the rows of one moment between its begin and its end.
- An incremental reader has seen every row.
- Each remaining savepoint shows its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import bucketlake as bl
from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.errors import TimelineError
from bucketlake.model.file_name import InstantTime
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.services.check.doctor import diagnose
from bucketlake.services.check.findings import FindingKind
from bucketlake.storage.base import Buffer
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.archive_reader import archived_commit, read_archive
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config, table_at
from tests.simulation.world import Rows, by_key, require_tidy, stored_in

MISPLACED = {
    FindingKind.BUCKET_TWICE,
    FindingKind.BUCKET_UNKNOWN,
    FindingKind.KEYS_IN_WRONG_BUCKET,
    FindingKind.KEYS_TWICE,
}
"""Findings for a key that the index does not find, or that is stored twice."""


@dataclass
class Deed:
    """An action of an actor: its effect on the rows, and the result that the actor got."""

    name: str
    after: Callable[[Rows], Rows]
    instants: set[str] = field(default_factory=set)  # Its instants, with actions.
    told: str = "unknown"  # Or done, or failed.
    instant: str | None = None  # Instant of the commit, if the result has it.
    undoes: set[str] | None = field(default_factory=set)  # Instants; None if it is unknown.
    batch: int = -1  # Number in the stream.
    is_empty: bool = False  # Whether it changed no row, so that there is no commit.


@dataclass
class Commit:
    """A commit of the active or archived timeline."""

    instant: str
    action: str
    completed_at: str
    moves_rows: bool  # A compaction or a resize, which another actor may have planned.

    @property
    def name(self) -> str:
        """Instant and action: two actions may draw the same time, then one of them draws again."""
        return f"{self.instant}.{self.action}"


@dataclass
class Sight:
    """The rows of a read, and the number of commits before and after the read."""

    rows: Rows
    before: int
    after: int


@dataclass
class Follower:
    """An incremental reader: it reads one range of completion times after the other.

    Attributes
    ----------
    rows : Rows
        All rows that it read, the last one of each key.
    reached : str or None
        End of the last range.
    ranges : list of (str, Rows)
        The end of each range, and its rows.
    """

    rows: Rows = field(default_factory=dict)
    reached: str | None = None
    ranges: list[tuple[str, Rows]] = field(default_factory=list)


def same(state: Rows) -> Rows:
    """Return the rows unchanged: the effect of a table service."""
    return state


class Record:
    """The record of one crowd.

    Parameters
    ----------
    memory : MemoryStorage
        The table.
    undoes : bool
        Whether commits are rolled back or restored over.
    story : callable
        Takes a finding and returns it with the log of the run.
    """

    def __init__(self, memory: MemoryStorage, undoes: bool, story: Callable[[str], str]) -> None:
        self.memory = memory
        self.undoes = undoes
        self.story = story
        self.deeds: list[Deed] = []
        self.sights: list[Sight] = []
        self.follower = Follower()
        self.log: list[str] = []
        self._known: dict[tuple[str, str], Commit] = {}  # Commits that were read before.
        self._published: list[str] = []  # Instants in the order in which they were completed.
        self._put_if_absent = memory.put_if_absent
        memory.put_if_absent = self._noted  # type: ignore[method-assign]

    def check(self) -> None:
        by_name = {name: deed for deed in self.deeds for name in deed.instants}
        commits = self.completed()
        completed = {one.instant for one in commits}
        names = {one.name for one in commits}
        undone = self._undone()
        for deed in self.deeds:
            if deed.told == "done" and deed.instant is not None:
                is_there = deed.instant in completed
                assert is_there or undone(deed.instant), self.story(f"{deed} is lost")
            # A conversion whose commit stands raises an error if others took its index off since.
            # Another actor may execute the plan of a resize.
            may_stand = deed.name.startswith(("compact", "roll back", "convert", "resize"))
            if deed.told == "failed" and not may_stand:
                assert not deed.instants & names, self.story(f"{deed} was told to have failed")
        states: list[Rows] = [{}]
        for one in commits:
            after = same
            if not one.moves_rows:
                assert one.name in by_name, self.story(f"nobody made {one}")
                after = by_name[one.name].after
            states.append(after(states[-1]))
            self.log.append(f"{one.instant} to {one.completed_at}: {states[-1]}")
        if not self.undoes:
            for deed in self.deeds:
                if deed.is_empty:  # At some time it had nothing to change.
                    had = any(deed.after(state) == state for state in states)
                    assert had, self.story(f"{deed.name} changed no row, and should have")
        states = [stored_in(state) for state in states]
        found = self.found()
        assert found == states[-1], self.story(f"read {found}, expected {states[-1]}")
        if not self.undoes:
            for sight in self.sights:
                seen = states[sight.before : sight.after + 1]
                assert sight.rows in seen, self.story(f"a read showed {sight}, not one of {seen}")
            self._check_ranges(commits, states)
        self._check_batches([by_name[one.name] for one in commits if not one.moves_rows])
        self._check_savepoints(commits, by_name)
        require_tidy(self.memory, self.story)

    def _check_ranges(self, commits: list[Commit], states: list[Rows]) -> None:
        is_ordered = read_table_config(self.memory).layout.has_completion_times
        for until, rows in self.follower.ranges if is_ordered else ():
            then = states[sum(one.completed_at <= until for one in commits)]
            assert rows.items() <= then.items(), self.story(f"until {until}: {rows}, not of {then}")
        last = bl.Table(self.memory.root).to_arrow(since=self.follower.reached).to_pylist()
        seen = self.follower.rows | self.distinct(last)
        missed = states[-1].items() - seen.items()
        assert not missed, self.story(f"whoever went on from range to range missed {missed}")

    def _check_batches(self, committed: list[Deed]) -> None:
        found = [deed.batch for deed in committed if deed.batch >= 0]
        assert found == sorted(set(found)), self.story(f"batches were committed as {found}")
        done = (deed for deed in self.deeds if deed.told == "done" and not deed.is_empty)
        told = {deed.batch for deed in done} - {-1}
        assert self.undoes or told <= {*found}, self.story(f"batches {told} are done, not {found}")

    def _check_savepoints(self, commits: list[Commit], by_name: dict[str, Deed]) -> None:
        for saved, made_at in self.savepoints().items():
            then: Rows = {}
            for one in commits:
                if one.instant <= saved and not one.moves_rows:
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
                seen, then = self.distinct(found), stored_in(then)
                assert seen == then, self.story(f"savepoint {saved} shows {seen}, it held {then}")

    def found(self) -> Rows:
        """Read the table; each key lies where the index looks for it, and there once."""
        misplaced = [one for one in diagnose(self.memory, None, keys=True) if one.kind in MISPLACED]
        assert not misplaced, self.story(f"the doctor finds {misplaced}")
        return self.distinct(bl.Table(self.memory.root).to_arrow().to_pylist())

    def _noted(self, path: str, data: Buffer) -> None:
        """Put a file; note the instant of a completed one, whose name may not tell the order."""
        self._put_if_absent(path, data)
        instant = Instant.from_file_name(path.rpartition("/")[2])
        is_completed = instant is not None and instant.state is State.COMPLETED
        is_completed &= not path.startswith(METADATA_TABLE_FOLDER)
        # A savepoint has the time of a commit.
        if is_completed and instant.requested_at not in self._published:
            self._published.append(instant.requested_at)

    def _undone(self) -> Callable[[str], bool]:
        """Tell of a commit that was told to be done whether it may have been undone since."""
        undoing = [deed.undoes for deed in self.deeds if deed.told != "failed"]
        known = set().union(*[one for one in undoing if one is not None])
        return lambda instant: instant in known or None in undoing

    def completed(self) -> list[Commit]:
        """Return the commits of both timelines in order of completion."""
        config = read_table_config(self.memory)
        timeline = load_timeline(opened_table(self.memory, config))
        found: dict[str, Commit] = {}
        for one in timeline.completed_commits():
            made = partial(timeline.read_commit, self.memory, one)
            action = one.action.completes_as.value
            known = self._commit(one.requested_at, action, one.completed_at or "", made)
            found[one.requested_at] = known
        for entry in read_archive(opened_table(self.memory, config)):
            if Action(entry.action).writes_data:
                kept = partial(archived_commit, entry)
                known = self._commit(entry.requested_at, entry.action, entry.completed_at, kept)
                found[entry.requested_at] = known
        if config.layout.has_completion_times:
            return sorted(found.values(), key=lambda one: one.completed_at)
        places = {instant: place for place, instant in enumerate(self._published)}
        # Those of before the run come first.
        return sorted(
            found.values(), key=lambda one: (places.get(InstantTime(one.instant), -1), one.instant)
        )

    def _commit(
        self,
        instant: str,
        action: str,
        completed_at: str,
        metadata: Callable[[], CommitMetadata | None],
    ) -> Commit:
        place = (instant, completed_at)
        if place not in self._known:
            read = metadata()
            assert read is not None, place
            self._known[place] = Commit(
                instant, action, completed_at, read.compacted or read.resizes
            )
        return self._known[place]

    def savepoints(self) -> dict[InstantTime, str]:
        """Return when the savepoints were made, by the instants of their commits."""
        timeline = load_timeline(table_at(self.memory))
        completed = [one for one in timeline.completed() if one.action is Action.SAVEPOINT]
        return {one.requested_at: one.completed_at or "" for one in completed}

    def distinct(self, found: list[dict[str, Any]]) -> Rows:
        rows = by_key(found)
        assert len(rows) == len(found), self.story("a row is there twice")
        return rows
