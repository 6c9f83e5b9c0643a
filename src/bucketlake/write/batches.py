"""Batches of streams, each committed once however often it is handed in.

A stream that restarts repeats its last batch, and two drivers of one stream may run at once. So
every commit of bucketlake's says which batch of each query was committed last, itself included,
and carries that on from the commit before. Commits of Hudi's in between say nothing and are passed
over; where the active timeline tells nothing the archive does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import CommitConflictError, FormatError, InputError
from bucketlake.format.commit_metadata import decode_commit_metadata
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.archived import read_archive

BATCHES = "bucketlake.batches"
"""Key of the extra metadata: a JSON object of batch ids by query name."""


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


def is_committed(storage: Storage, config: TableConfig, timeline: Timeline, batch: Batch) -> bool:
    """Tell whether a batch is the last one that was committed of its query.

    Raises
    ------
    InputError
        If a later batch was committed already.
    """
    last = _committed(storage, config, timeline).get(batch.query_name)
    if last is not None and batch.batch_id < last:
        raise InputError(
            f"batch {batch.batch_id} of query {batch.query_name!r} into {storage.root}",
            f"batch {last} was committed already: the checkpoint was reset, or is another query's",
            "give a new query its own name, or go on from the checkpoint of this one",
        )
    return batch.batch_id == last


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
        if found is not None and batch.batch_id <= found:
            raise CommitConflictError(
                instant, f"batch {found} of query {batch.query_name!r} was committed meanwhile"
            )
        last = {**last, batch.query_name: batch.batch_id}
    return {BATCHES: json.dumps(last, sort_keys=True)}


def _committed(storage: Storage, config: TableConfig, timeline: Timeline) -> Mapping[str, int]:
    """Return the batch that was committed last, by query."""
    commits = timeline.completed_commits()
    by_completion = sorted(
        commits, key=lambda one: timeline.completion_time(one.requested_at) or "", reverse=True
    )
    for one in by_completion:
        text = timeline.read_commit(storage, one).extra.get(BATCHES)
        if text is not None:
            return _parsed(text, f"commit {one.requested_at}")
    archived = read_archive(storage, config)
    for entry in sorted(archived, key=lambda entry: entry.completed_at, reverse=True):
        if entry.action.endswith("commit") and entry.metadata:
            where = f"archived commit {entry.requested_at}"
            text = decode_commit_metadata(entry.metadata, where).extra.get(BATCHES)
            if text is not None:
                return _parsed(text, where)
    return {}


def _parsed(text: str, where: str) -> dict[str, int]:
    try:
        return {str(name): int(batch_id) for name, batch_id in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(where, f"batch ids by query name in {BATCHES}", text[:80]) from error
