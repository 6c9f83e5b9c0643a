"""Which commits build on others, and must be rolled back with them.

A commit builds on an earlier commit if it wrote, overwrote or looked at the same buckets, counted
buckets with its rules (RFC-89), or cast rows to its schema.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from bucketlake.index.conflict_keys import looked_at_keys, written_keys
from bucketlake.index.settings import TableIndex, resolve_index, without_records
from bucketlake.index.state import setting_instants
from bucketlake.model.file_name import InstantTime
from bucketlake.model.table_type import Operation
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.read.snapshot import Snapshot
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.instant import Instant


def with_dependents(snapshot: Snapshot, index: TableIndex | None, found: Instant) -> list[Instant]:
    """Return a commit and all commits that build on it; each follows the commits it builds on."""
    storage, timeline = snapshot.storage, snapshot.timeline
    rules = setting_instants(storage, timeline)
    gone = {found: timeline.read_commit(storage, found)}
    left = [one for one in timeline.completed_commits() if one != found]
    added = True
    while added:  # A commit that began first and completed last may build on later ones.
        added = False
        for later in [*left]:
            before = {one: held for one, held in gone.items() if _is_later(timeline, later, one)}
            if not before:
                continue
            commit, undone = timeline.read_commit(storage, later), before.values()
            if (
                any(_builds_on(commit, one, later.requested_at) for one in undone)
                or _counted_otherwise(snapshot, index, rules, later, commit, before)
                or _recounts(snapshot, index, rules, later, undone)
                or (commit.compacted and _is_cast(snapshot, later, before))
            ):
                gone[later] = commit
                left.remove(later)
                added = True
    return [*gone]


def _is_later(timeline: Timeline, one: Instant, other: Instant) -> bool:
    """Return whether a commit was requested or completed after another commit."""
    completed, limit = (timeline.completion_time(i.requested_at) or "" for i in (one, other))
    return one.requested_at > other.requested_at or completed > limit


def _builds_on(later: CommitMetadata, earlier: CommitMetadata, where: str) -> bool:
    """Tell whether a commit touched, overwrote or looked at what an earlier one touched.

    ``where`` names the later one.
    """
    if later.file_groups & earlier.file_groups:
        return True
    if later.operation == Operation.INSERT_OVERWRITE_TABLE.value:
        return True  # It also overwrote partitions that had no files then.
    looked = looked_at_keys(later, where)
    partitions = set(later.partitions)
    overwritten = {*later.replaced_file_ids, *earlier.replaced_file_ids}
    if later.operation == Operation.INSERT_OVERWRITE.value:
        # Of one that found no file, and wrote no row, it is all there is.
        partitions.update(path for path, _ in looked)
        overwritten |= partitions
    if overwritten & partitions & earlier.partitions:
        return True
    return not looked.isdisjoint(written_keys(earlier))


def _counted_otherwise(
    snapshot: Snapshot,
    index: TableIndex | None,
    rules: set[InstantTime],
    later: Instant,
    commit: CommitMetadata,
    gone: Collection[Instant],
) -> bool:
    """Return whether a commit changed rules that will be undone, or counted buckets with them."""
    instants = {one.requested_at for one in gone}
    if not instants.intersection(rules):
        return False
    if later.requested_at in rules:
        return True
    looked = {path for path, _ in looked_at_keys(commit, later.requested_at)}
    return _count_differs(snapshot, index, rules, later, instants, commit.partitions | looked)


def _recounts(
    snapshot: Snapshot,
    index: TableIndex | None,
    rules: set[InstantTime],
    later: Instant,
    undone: Collection[CommitMetadata],
) -> bool:
    """Tell whether a commit changed the bucket counts of partitions that others are to go from.

    If they took all rows, it did not find any to move, and those that come back lie where the count
    of before put them.
    """
    if later.requested_at not in rules:
        return False
    partitions = {path for commit in undone for path in commit.partitions}
    return _count_differs(snapshot, index, rules, later, {later.requested_at}, partitions)


def _is_cast(snapshot: Snapshot, compaction: Instant, gone: Collection[Instant]) -> bool:
    """Return whether a compaction cast rows to a schema that will be undone."""
    then = snapshot.timeline.as_of(compaction.requested_at)
    told = then.latest_schema(snapshot.storage)
    return told != then.without({one.requested_at for one in gone}).latest_schema(snapshot.storage)


def _count_differs(
    snapshot: Snapshot,
    index: TableIndex | None,
    rules: set[InstantTime],
    then: Instant,
    without: set[InstantTime],
    partitions: Iterable[str],
) -> bool:
    """Tell whether partitions would have had other bucket counts at a commit without some others.

    Later rescales may give back the counts of before, and are left out: those that completed later,
    for a commit goes by the rules that it finds in the end. By the rules alone: Hudi, which knows
    no recorded counts, must find the rows, too.
    """
    completed_at = {one: snapshot.timeline.completion_time(one) or "" for one in rules}
    until = snapshot.timeline.completion_time(then.requested_at) or ""
    newer = {one for one in rules if completed_at[one] > until}
    one, other = (
        resolve_index(snapshot.storage, snapshot.timeline.without(instants), index)
        for instants in (newer, newer | without)
    )
    if one is None or other is None:
        return True
    layouts = [without_records(held).layout() for held in (one, other)]
    return any(len({held.setting_of(path) for held in layouts}) > 1 for path in partitions)
