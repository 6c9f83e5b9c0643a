"""What a commit says of its records' origin: batches of streams, and positions of sources.

A restarted stream repeats its last batch, and two drivers of one stream may run at once. So the
metadata of every bucketlake commit names the last committed batch of each query and the position of
each source, including its own, with the instant that committed it. A commit copies these entries
from the commit before it. If the commit of a batch was rolled back, the batch before it is the
last, and so for positions. Hudi's commits have no such entries and are skipped. If the active
timeline has no entry, the archive is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from bucketlake.actions.tombstone_list import (
    BATCHES,
    CarriedEntry,
    active_entries,
    archived_entries,
)
from bucketlake.errors import CommitConflictError, InputError
from bucketlake.model.file_name import InstantTime
from bucketlake.model.position import Origin, Position
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.archive_reader import archived_completion_times
from bucketlake.timeline.open_table import OpenTable

POSITIONS = "bucketlake.positions"
"""Key of the extra metadata, if there are any: a JSON object with end and instant by source."""

_END = {BATCHES: "batch", POSITIONS: "last"}  # Where an entry says how far its stream is.


@dataclass(frozen=True, slots=True)
class _Last:
    """How far a query or source is, and the instant that committed it; None if it is archived.

    An archived commit is never rolled back, so nobody has to look it up again. The end is the id
    of a batch, or the position of each partition; a source may keep a text with it.
    """

    end: Any
    instant: InstantTime | None
    state: str | None = None

    def replaces(self, other: _Last) -> bool:
        """Return whether it is later. The positions of a source follow the order of instants."""
        if isinstance(self.end, int) and isinstance(other.end, int):
            return self.end > other.end
        return (self.instant or "") > (other.instant or "")


def was_committed(table: OpenTable, timeline: Timeline, origin: Origin) -> bool:
    """Return whether records of an origin were committed: the last batch, or up to the position.

    Raises
    ------
    InputError
        If a later batch was committed already, or the source does not go on at its position.
    """
    batch, position = origin.batch, origin.position
    if batch is not None:
        last = _committed(table, timeline, BATCHES).get(batch.query_name)
        done = -1 if last is None else last.end
        if batch.batch_id < done:
            raise InputError(
                f"batch {batch.batch_id} of query {batch.query_name!r} into {table.storage.root}",
                f"batch {done} was committed already: the checkpoint was reset, or belongs to "
                "another query",
                "give a new query its own name, or continue from the checkpoint of this query",
            )
        if batch.batch_id == done:
            return True
    if position is None:
        return False
    stored = _end_of(_committed(table, timeline, POSITIONS), position.source)
    return position.is_seen(stored, f"write to {table.storage.root}")


def commits_of_query(table: OpenTable, timeline: Timeline, query_name: str) -> dict[str, int]:
    """Return the numbers of the batches of a query by the active instants that wrote them."""
    entries = (_parsed(entry) for entry in active_entries(table, timeline, BATCHES))
    last = (entry[query_name] for entry in entries if query_name in entry)
    return {held.instant: held.end for held in last if held.instant is not None}


def position_at(table: OpenTable, timeline: Timeline, source: str) -> Position | None:
    """Return the position of a source by a timeline; None if no write has stored one."""
    last = _committed(table, timeline, POSITIONS).get(source)
    return Position(source, last.end, state=last.state) if last and last.end else None


def ends_of_sources(table: OpenTable, timeline: Timeline) -> dict[str, Mapping[str, int]]:
    """Return the position of each source that has one, by a timeline."""
    return {name: last.end for name, last in _committed(table, timeline, POSITIONS).items()}


def position_states(table: OpenTable, timeline: Timeline) -> frozenset[str]:
    """Return the texts that sources keep with their positions, of all commits of a timeline."""
    entries = [*active_entries(table, timeline, POSITIONS)]
    entries += [] if entries else [*archived_entries(table, POSITIONS)][:1]
    return frozenset(
        last.state for entry in entries for last in _parsed(entry).values() if last.state
    )


def carried_on(
    table: OpenTable, timeline: Timeline, instant: InstantTime, origin: Origin, pinned: Timeline
) -> dict[str, str]:
    """Return the entries about batches and positions for the metadata of a commit.

    Raises
    ------
    CommitConflictError
        If another writer committed the batch, or moved the position, since the table was pinned.
    """
    batches = _committed(table, timeline, BATCHES)
    positions = _committed(table, timeline, POSITIONS)
    batch, position = origin.batch, origin.position
    if batch is not None:
        found = batches.get(batch.query_name)
        if found is not None and not _Last(batch.batch_id, instant).replaces(found):
            raise CommitConflictError(
                instant,
                f"batch {found.end} of query {batch.query_name!r} was committed meanwhile",
            )
        batches[batch.query_name] = _Last(batch.batch_id, instant)
    if position is not None:
        before = _end_of(_committed(table, pinned, POSITIONS), position.source)
        if _end_of(positions, position.source) != before:
            raise CommitConflictError(instant, f"source {position.source!r} was read on meanwhile")
        positions[position.source] = _Last(position.after(before), instant, position.state)
    entries = {BATCHES: batches, **({POSITIONS: positions} if positions else {})}
    return {
        key: json.dumps({name: _to_json(key, last) for name, last in sorted(held.items())})
        for key, held in entries.items()
    }


def _end_of(positions: Mapping[str, _Last], source: str) -> Mapping[str, int]:
    last = positions.get(source)
    return {} if last is None else last.end


def _committed(table: OpenTable, timeline: Timeline, key: str) -> dict[str, _Last]:
    """Return how far each query or source is by commits that were not rolled back."""
    found: dict[str, _Last] = {}
    undone: set[str] = set()
    has_entries = False

    def is_complete(entries: Mapping[str, _Last]) -> bool:
        for name, last in entries.items():
            if name not in found or last.replaces(found[name]):
                kept = _kept(table, timeline, last)
                if kept is None:
                    undone.add(name)
                else:
                    found[name] = kept
        return undone <= found.keys()

    for entry in active_entries(table, timeline, key):
        has_entries = True
        if is_complete(_parsed(entry)) and entry.is_complete:
            return found
    if not has_entries or not undone <= found.keys():
        for entry in archived_entries(table, key, timeline.until):
            if is_complete(_parsed(entry)):
                break
    return found


def _kept(table: OpenTable, timeline: Timeline, last: _Last) -> _Last | None:
    """Return the entry to copy; None if neither timeline nor archive has the commit."""
    at = last.instant
    if at is None or timeline.find_completed(at) is not None:
        return last
    if archived_completion_times(table, since=at, until=at):
        return replace(last, instant=None)
    return None


def _to_json(key: str, last: _Last) -> dict[str, object]:
    facts = {_END[key]: last.end, "instant": last.instant, "state": last.state}
    return {name: value for name, value in facts.items() if value is not None}


def _parsed(entry: CarriedEntry) -> dict[str, _Last]:
    def end_of(found: Any) -> int | dict[str, int]:
        if entry.key == BATCHES:
            return int(found)
        return {str(name): int(number) for name, number in found.items()}

    return entry.parsed(
        "batch ids by query name" if entry.key == BATCHES else "positions by source",
        lambda found: {
            str(name): _Last(end_of(last[_END[entry.key]]), last.get("instant"), last.get("state"))
            for name, last in found.items()
        },
    )
