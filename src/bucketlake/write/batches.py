"""Batches of streams, each committed once however often it is handed in.

A stream that restarts repeats its last batch, and two drivers of one stream may run at once. So
every commit of bucketlake's says which batch of each query was committed last, itself included,
and carries that on from the commit before, with the instant that committed it: where that one was
rolled back, the batch before it is the last. Commits of Hudi's in between say nothing and are
passed over; where the active timeline tells nothing the archive does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import CommitConflictError, FormatError, InputError
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.archive_reader import (
    archived_commit,
    archived_completion_times,
    read_archive,
)

BATCHES = "bucketlake.batches"
"""Key of the extra metadata: a JSON object, by query name, of batch id and instant."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of a stream.

    Attributes
    ----------
    query_name : str
        The stream; the same after a restart.
    batch_id : int
        Its number, which grows from batch to batch.
    """

    query_name: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class _Last:
    """The batch of a query that was committed last, and by which instant; None if it is archived.

    What is archived is never undone, and nobody has to look for it again.
    """

    batch_id: int
    instant: InstantTime | None


def is_committed(storage: Storage, config: TableConfig, timeline: Timeline, batch: Batch) -> bool:
    """Tell whether a batch is the last one that was committed of its query.

    Raises
    ------
    InputError
        If a later batch was committed already.
    """
    last = _committed(storage, config, timeline).get(batch.query_name)
    if last is not None and batch.batch_id < last.batch_id:
        raise InputError(
            f"batch {batch.batch_id} of query {batch.query_name!r} into {storage.root}",
            f"batch {last.batch_id} was committed already: the checkpoint was reset, or is another "
            "query's",
            "give a new query its own name, or go on from the checkpoint of this one",
        )
    return last is not None and batch.batch_id == last.batch_id


def carried_on(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline,
    instant: InstantTime,
    batch: Batch | None,
) -> dict[str, str]:
    """Return what the commit of an instant says of batches.

    Raises
    ------
    CommitConflictError
        If its own batch was committed since by another writer.
    """
    last = _committed(storage, config, timeline)
    if batch is not None:
        found = last.get(batch.query_name)
        if found is not None and batch.batch_id <= found.batch_id:
            raise CommitConflictError(
                instant,
                f"batch {found.batch_id} of query {batch.query_name!r} was committed meanwhile",
            )
        last[batch.query_name] = _Last(batch.batch_id, instant)
    return {BATCHES: json.dumps({name: _to_json(one) for name, one in sorted(last.items())})}


def _committed(storage: Storage, config: TableConfig, timeline: Timeline) -> dict[str, _Last]:
    """Return the batch that was committed last and not undone, by query."""
    found: dict[str, _Last] = {}
    undone: set[str] = set()
    for said in _said(storage, config, timeline):
        for name, last in said.items():
            if name not in found:
                kept = _kept(storage, config, timeline, last)
                if kept is None:
                    undone.add(name)
                else:
                    found[name] = kept
        if undone <= found.keys():
            break  # A commit knows all that those before it knew.
    return found


def _kept(storage: Storage, config: TableConfig, timeline: Timeline, last: _Last) -> _Last | None:
    """Return a batch as it is carried on; None where its commit is in neither timeline."""
    at = last.instant
    if at is None or timeline.find_completed(at) is not None:
        return last
    if archived_completion_times(storage, config, since=at, until=at):
        return _Last(last.batch_id, None)
    return None


def _said(
    storage: Storage, config: TableConfig, timeline: Timeline
) -> Iterator[Mapping[str, _Last]]:
    """Yield what commits of both timelines say of batches, the last one first."""
    by_completion = sorted(
        timeline.completed_commits(),
        key=lambda one: timeline.completion_time(one.requested_at) or "",
        reverse=True,
    )
    for one in by_completion:
        text = timeline.read_commit(storage, one).extra.get(BATCHES)
        if text is not None:
            yield _parsed(text, f"commit {one.requested_at}")
    archived = read_archive(storage, config)
    for entry in sorted(archived, key=lambda entry: entry.completed_at, reverse=True):
        commit = archived_commit(entry)
        if commit is not None and BATCHES in commit.extra:
            yield _parsed(commit.extra[BATCHES], f"archived commit {entry.requested_at}")


def _to_json(last: _Last) -> dict[str, object]:
    return {"batch": last.batch_id} | ({"instant": last.instant} if last.instant else {})


def _parsed(text: str, where: str) -> dict[str, _Last]:
    try:
        return {
            str(name): _Last(int(one["batch"]), one.get("instant"))
            for name, one in json.loads(text).items()
        }
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise FormatError(where, f"batch ids by query name in {BATCHES}", text[:80]) from error
