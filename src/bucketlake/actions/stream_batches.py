"""Batches of streams: each batch is committed once, also if it is written again.

A restarted stream repeats its last batch, and two drivers of one stream may run at once. So the
metadata of every bucketlake commit names the last committed batch of each query, including its own
batch, with the instant that committed it. A commit copies these entries from the commit before it.
If the commit of a batch was rolled back, the batch before it is the last. Hudi's commits have no
such entries and are skipped. If the active timeline has no entry, the archive is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bucketlake.errors import CommitConflictError, FormatError, InputError
from bucketlake.model.file_name import InstantTime
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.archive_reader import (
    archived_commit,
    archived_completion_times,
    read_archive,
)
from bucketlake.timeline.open_table import OpenTable

BATCHES = "bucketlake.batches"
"""Key of the extra metadata: a JSON object with batch id and instant by query name."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of a stream.

    Attributes
    ----------
    query_name : str
        Name of the stream; the same after a restart.
    batch_id : int
        Number of the batch; each batch has a greater number than the batch before.
    """

    query_name: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class _Last:
    """The last committed batch of a query, and its instant; None if the instant is archived.

    An archived commit is never rolled back, so nobody has to look it up again.
    """

    batch_id: int
    instant: InstantTime | None


def is_committed(table: OpenTable, timeline: Timeline, batch: Batch) -> bool:
    """Return whether a batch is the last committed batch of its query.

    Raises
    ------
    InputError
        If a later batch was committed already.
    """
    last = _committed(table, timeline).get(batch.query_name)
    if last is not None and batch.batch_id < last.batch_id:
        raise InputError(
            f"batch {batch.batch_id} of query {batch.query_name!r} into {table.storage.root}",
            f"batch {last.batch_id} was committed already: the checkpoint was reset, or belongs to "
            "another query",
            "give a new query its own name, or continue from the checkpoint of this query",
        )
    return last is not None and batch.batch_id == last.batch_id


def carried_on(
    table: OpenTable, timeline: Timeline, instant: InstantTime, batch: Batch | None
) -> dict[str, str]:
    """Return the entries about batches for the metadata of a commit.

    Raises
    ------
    CommitConflictError
        If another writer committed the batch meanwhile.
    """
    last = _committed(table, timeline)
    if batch is not None:
        found = last.get(batch.query_name)
        if found is not None and batch.batch_id <= found.batch_id:
            raise CommitConflictError(
                instant,
                f"batch {found.batch_id} of query {batch.query_name!r} was committed meanwhile",
            )
        last[batch.query_name] = _Last(batch.batch_id, instant)
    return {BATCHES: json.dumps({name: _to_json(kept) for name, kept in sorted(last.items())})}


def _committed(table: OpenTable, timeline: Timeline) -> dict[str, _Last]:
    """Return the last batch of each query that was committed and not rolled back."""
    found: dict[str, _Last] = {}
    undone: set[str] = set()
    has_entries = False

    def is_complete(entries: Mapping[str, _Last]) -> bool:
        for name, last in entries.items():
            if name not in found or found[name].batch_id < last.batch_id:
                kept = _kept(table, timeline, last)
                if kept is None:
                    undone.add(name)
                else:
                    found[name] = kept
        return undone <= found.keys()

    for entries, is_ordered in _active(table, timeline):
        has_entries = True
        if is_complete(entries) and is_ordered:
            return found  # A commit has the entries of all commits that completed before it.
    if not has_entries or not undone <= found.keys():
        for entries in _archived(table):
            if is_complete(entries):
                break
    return found


def _kept(table: OpenTable, timeline: Timeline, last: _Last) -> _Last | None:
    """Return the entry to copy; None if neither timeline nor archive has the commit."""
    at = last.instant
    if at is None or timeline.find_completed(at) is not None:
        return last
    if archived_completion_times(table, since=at, until=at):
        return _Last(last.batch_id, None)
    return None


def _active(table: OpenTable, timeline: Timeline) -> Iterator[tuple[Mapping[str, _Last], bool]]:
    """Yield the entries of active commits, newest commit first, and whether they are complete.

    A commit of a layout without completion times, also before a change of version, may lack entries
    of commits that began before it.
    """
    by_completion = sorted(
        timeline.completed_commits(),
        key=lambda commit: timeline.completion_time(commit.requested_at) or "",
        reverse=True,
    )
    for instant in by_completion:
        text = timeline.read_commit(table.storage, instant).extra.get(BATCHES)
        if text is not None:
            is_ordered = instant.completed_at != instant.requested_at
            yield _parsed(text, f"commit {instant.requested_at}"), is_ordered


def _archived(table: OpenTable) -> Iterator[Mapping[str, _Last]]:
    """Yield the entries of archived commits, newest commit first."""
    archived = read_archive(table)
    for entry in sorted(archived, key=lambda entry: entry.completed_at, reverse=True):
        commit = archived_commit(entry)
        if commit is not None and BATCHES in commit.extra:
            yield _parsed(commit.extra[BATCHES], f"archived commit {entry.requested_at}")


def _to_json(last: _Last) -> dict[str, object]:
    return {"batch": last.batch_id} | ({"instant": last.instant} if last.instant else {})


def _parsed(text: str, where: str) -> dict[str, _Last]:
    try:
        return {
            str(name): _Last(int(batch["batch"]), batch.get("instant"))
            for name, batch in json.loads(text).items()
        }
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise FormatError(where, f"batch ids by query name in {BATCHES}", text[:80]) from error
