"""Which commits build on others, and must be rolled back with them.

A commit builds on an earlier commit if it wrote, overwrote or looked at the same buckets, counted
buckets with its rules (RFC-89), or cast rows to its schema.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from bucketlake.index.conflict_keys import ChangedShards, looked_at_keys, written_keys
from bucketlake.index.setting import TableIndex, resolve_index, without_records
from bucketlake.index.state import setting_instants
from bucketlake.model.file_name import InstantTime, log_instant
from bucketlake.model.table_type import Operation
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.read.snapshot import Snapshot
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.instant import Instant


def with_dependents(snapshot: Snapshot, index: TableIndex | None, found: Instant) -> list[Instant]:
    """Return a commit and all commits that build on it; each follows the commits it builds on."""
    storage, timeline = snapshot.storage, snapshot.timeline
    rules = setting_instants(storage, timeline)
    undone = {found: timeline.read_commit(storage, found)}
    left = [commit for commit in timeline.completed_commits() if commit != found]
    added = True
    while added:  # A commit that began first and completed last may build on later ones.
        added = False
        for later in [*left]:
            before = {i: held for i, held in undone.items() if _is_later(timeline, later, i)}
            if not before:
                continue
            commit, metadata = timeline.read_commit(storage, later), before.values()
            ruling = [i for i, held in before.items() if not _is_served_by(commit, i, held)]
            if (
                any(_builds_on(later, commit, i, earlier) for i, earlier in before.items())
                or _counted_otherwise(snapshot, index, rules, later, commit, ruling)
                # A resize names all that it replaces, and leaves other buckets on the ring.
                or (not commit.resizes and _recounts(snapshot, index, rules, later, metadata))
                or (commit.compacted and _is_cast(snapshot, later, before))
            ):
                undone[later] = commit
                left.remove(later)
                added = True
    return [*undone]


def _is_later(timeline: Timeline, later: Instant, earlier: Instant) -> bool:
    """Return whether a commit was requested or completed after another commit."""
    completed, limit = (timeline.completion_time(i.requested_at) or "" for i in (later, earlier))
    return later.requested_at > earlier.requested_at or completed > limit


def _builds_on(
    later_instant: Instant,
    later: CommitMetadata,
    earlier_instant: Instant,
    earlier: CommitMetadata,
) -> bool:
    """Return whether a commit touched, overwrote or looked at buckets of an earlier commit."""
    if _is_served_by(later, earlier_instant, earlier):
        return False  # Its records are in the file groups of before, too.
    if _is_served_by(earlier, later_instant, later):
        return False  # The resize did not read its records, which have files of their own.
    if later.file_groups & earlier.file_groups:
        return True
    if later.operation == Operation.INSERT_OVERWRITE_TABLE.value:
        return True  # It also overwrote partitions that had no files then.
    looked = looked_at_keys(later, later_instant.requested_at)
    added = ChangedShards.of_commit(later, later_instant.requested_at)
    removed = ChangedShards.of_commit(earlier, earlier_instant.requested_at)
    if added is not None and removed is not None and (looked | added.added) & removed.removed:
        return True  # It found no entry of a key whose entry comes back, or a shard that goes.
    if later.resizes or earlier.resizes:
        # A resize leaves the other buckets of its partitions alone.
        return not looked.isdisjoint(written_keys(earlier))
    partitions = set(later.partitions)
    overwritten = {*later.replaced_file_ids, *earlier.replaced_file_ids}
    if later.operation == Operation.INSERT_OVERWRITE.value:
        # A commit that found no file and wrote no row only names these keys.
        partitions.update(path for path, _ in looked)
        overwritten |= partitions
    if overwritten & partitions & earlier.partitions:
        return True
    return not looked.isdisjoint(written_keys(earlier))


def _is_served_by(commit: CommitMetadata, instant: Instant, resize: CommitMetadata) -> bool:
    """Return whether another commit is a resize for which a commit made copies of its log files.

    In timeline layout 1, log files of later commits have the instant of the resize, too. But only
    copies repeat log files of the groups that it replaced.
    """
    if not resize.resizes:
        return False
    replaced = {(path, str(held)) for path, ids in resize.replaced_file_ids.items() for held in ids}
    is_named = any(log_instant(stat.path) == instant.requested_at for stat in commit.stats)
    return is_named and not replaced.isdisjoint(commit.file_groups)


def _counted_otherwise(
    snapshot: Snapshot,
    index: TableIndex | None,
    rules: set[InstantTime],
    later: Instant,
    commit: CommitMetadata,
    undone: Collection[Instant],
) -> bool:
    """Return whether a commit changed rules that will be undone, or counted buckets with them."""
    instants = {instant.requested_at for instant in undone}
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
    """Return whether a commit changed bucket counts of partitions with rows of undone commits.

    If the undone commits had removed all rows, the change found no row to move. Rows that come back
    are in buckets of the earlier count.
    """
    if later.requested_at not in rules:
        return False
    partitions = {path for commit in undone for path in commit.partitions}
    return _count_differs(snapshot, index, rules, later, {later.requested_at}, partitions)


def _is_cast(snapshot: Snapshot, compaction: Instant, undone: Collection[Instant]) -> bool:
    """Return whether a compaction cast rows to a schema that will be undone."""
    then = snapshot.timeline.as_of(compaction.requested_at)
    without = then.without({instant.requested_at for instant in undone})
    return then.latest_schema(snapshot.storage) != without.latest_schema(snapshot.storage)


def _count_differs(
    snapshot: Snapshot,
    index: TableIndex | None,
    rules: set[InstantTime],
    then: Instant,
    without: set[InstantTime],
    partitions: Iterable[str],
) -> bool:
    """Return whether partitions would have other bucket counts at a commit without some instants.

    Rescales that completed after the commit are ignored: they may restore earlier counts, and a
    commit uses the rules that are valid when it completes. Only the rules are compared, because
    Hudi does not know recorded counts and must find the rows too.
    """
    completed_at = {instant: snapshot.timeline.completion_time(instant) or "" for instant in rules}
    until = snapshot.timeline.completion_time(then.requested_at) or ""
    newer = {instant for instant in rules if completed_at[instant] > until}
    actual, reduced = (
        resolve_index(snapshot.storage, snapshot.timeline.without(instants), index)
        for instants in (newer, newer | without)
    )
    if actual is None or reduced is None:
        return True
    layouts = [without_records(held).layout() for held in (actual, reduced)]
    return any(len({held.setting_of(path) for held in layouts}) > 1 for path in partitions)
