"""Pruning: the file slices to read for a ``where``, and a report of what was skipped and why.

``by_partition.py`` prunes partitions; ``key_candidates.py`` and the index prune buckets;
``by_record_index.py`` prunes file groups by the record-level index, and ``by_statistics.py`` by
statistics of columns, if the table has them. Pruning never skips a matching row: a slice that may
hold one is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from bucketlake.config.table_config import TableConfig
from bucketlake.index.kinds import IndexKind
from bucketlake.index.layout import Layout, Slot
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.keys import KeySpec
from bucketlake.model.result import Shown
from bucketlake.read.incremental import Changes
from bucketlake.read.pruning.by_partition import (
    partitions_that_may_match,
    pinned_partitions,
    readable_fields,
)
from bucketlake.read.pruning.by_record_index import PARTITIONS_MAX, groups_of_records
from bucketlake.read.pruning.by_statistics import slices_by_statistics
from bucketlake.read.pruning.key_candidates import HashKeys, find_hash_keys
from bucketlake.read.snapshot import Snapshot
from bucketlake.slices.stored_keys import StoredKeyReader
from bucketlake.where.predicate import Predicate, tested_columns


@dataclass(frozen=True, slots=True)
class PruningReport(Shown):
    """Which partitions, file groups and buckets a read uses.

    Attributes
    ----------
    partitions_total, partitions_kept : int
        Number of partitions with file groups, and how many of them are read.
    file_groups_total, file_groups_kept : int
        Number of file groups, and how many of them are read.
    bucket_ids : tuple of int or None
        Buckets that are read in at least one partition, ascending; None if all are read. A bucket
        of a hash ring is the position of its node on the ring of its partition.
    partition_reason, bucket_reason : str or None
        Why no partition, and why no bucket, was skipped; None if some were skipped.
    record_index_reason : str or None
        Why the record-level index skipped none of the file groups that partitions and buckets
        left; None if it skipped some.
    statistics_skipped : int
        Number of file groups that statistics of columns skipped, of those that were left.
    statistics_reason : str or None
        Why statistics of columns skipped none of the file groups that were left; None if they
        skipped some.
    """

    partitions_total: int
    partitions_kept: int
    file_groups_total: int
    file_groups_kept: int
    bucket_ids: tuple[int, ...] | None
    partition_reason: str | None
    bucket_reason: str | None
    record_index_reason: str | None = None
    statistics_skipped: int = 0
    statistics_reason: str | None = None


def prune_slices(
    snapshot: Snapshot,
    index: IndexKind | None,
    predicate: Predicate | None,
    *,
    usual_settings: bool = True,
    changes: Changes | None = None,
    counts_all: bool = False,
) -> tuple[list[FileSlice], PruningReport]:
    """Return the live slices of a table that can hold rows that match a condition.

    Parameters
    ----------
    snapshot : Snapshot
        The pinned table.
    index : IndexKind or None
        The table's index, with its true bucket count; None prunes no buckets.
    predicate : Predicate or None
        The condition; None keeps all slices.
    usual_settings : bool
        Whether the reader's session has ``SPARK_SETTINGS``. With other settings a condition may
        have another meaning, so there is no predicate; the report gives this reason.
    changes : Changes, optional
        Commits whose rows are read; only their partitions are listed.
    counts_all : bool
        Whether the report counts all partitions and file groups of the table. Otherwise, if the
        condition names the partitions, only these are listed and counted.

    Returns
    -------
    list of FileSlice
        In the order of the snapshot.
    PruningReport
        What is read, and why nothing was skipped.
    """
    config = snapshot.config
    pinned = None
    if predicate is not None and config.paths_follow_keys and not counts_all:
        pinned = pinned_partitions(predicate, config.key_spec, snapshot.readable_schema)
    if changes is not None:
        slices = changes.among(snapshot.partition_slices(sorted(changes.file_groups)))
    elif pinned is not None:
        slices = snapshot.marked_slices(pinned)
    else:
        slices = snapshot.all_slices()
    if predicate is None:
        why = "there is no condition" if usual_settings else "the session changes SQL settings"
        paths = {file_slice.partition_path for file_slice in slices}
        return slices, PruningReport(
            len(paths), len(paths), len(slices), len(slices), None, why, why, why, 0, why
        )
    schema, stored = snapshot.readable_schema, snapshot.stored_keys
    kept, report = prune(predicate, slices, config, index, schema, stored)
    unused: str | None = "the record-level index does not tell when a record changed"
    if changes is None:
        found = find_hash_keys(predicate, config, (), snapshot.readable_schema)
        kept, unused = _by_record_index(snapshot, index, slices, kept, found)
    before = len(kept)
    is_newest = changes is None and snapshot.timeline.until is None
    kept, why_none = slices_by_statistics(snapshot, predicate, kept, is_newest=is_newest)
    return kept, replace(
        report,
        file_groups_kept=len(kept),
        record_index_reason=unused,
        statistics_skipped=before - len(kept),
        statistics_reason=why_none,
    )


def prune(
    predicate: Predicate,
    slices: Sequence[FileSlice],
    config: TableConfig,
    index: IndexKind | None,
    schema: pa.Schema,
    stored: StoredKeyReader | None = None,
) -> tuple[list[FileSlice], PruningReport]:
    """Do the same as :func:`prune_slices` with a predicate, for given slices.

    Without ``stored``, no file group of a slot is pruned.
    """
    key_spec, paths_follow_keys = config.key_spec, config.paths_follow_keys
    layout = None if index is None else index.layout()
    paths = sorted({file_slice.partition_path for file_slice in slices})
    partitions = {*paths}
    if paths_follow_keys:
        may_match = partitions_that_may_match(predicate, paths, key_spec, schema)
        partitions = {path for path, kept in zip(paths, may_match, strict=True) if kept}
    in_partitions = [file_slice for file_slice in slices if file_slice.partition_path in partitions]
    # The partition paths contain the values of the partition fields.
    commas = any("," in file_slice.partition_path for file_slice in in_partitions)
    plain = paths_follow_keys and not commas
    hash_fields = () if layout is None else layout.hash_fields
    plain_fields = readable_fields(key_spec, schema) if plain else ()
    found = find_hash_keys(predicate, config, hash_fields, schema, plain_fields)
    buckets, bucket_reason = _buckets(in_partitions, layout, found)
    kept = in_partitions
    if buckets is not None and layout is not None and found.keys is not None:
        # The hash fields of a key suffice to find its slot; a file group needs the whole key.
        whole = stored if found.are_whole else None
        kept = slices_of_keys(layout, in_partitions, found.keys, whole)
    partition_reason = None
    if len(partitions) == len(paths):
        partition_reason = _why_all(predicate, key_spec, schema, paths_follow_keys)
    return kept, PruningReport(
        partitions_total=len(paths),
        partitions_kept=len(partitions),
        file_groups_total=len(slices),
        file_groups_kept=len(kept),
        bucket_ids=None if buckets is None else tuple(sorted(set().union(*buckets.values()))),
        partition_reason=partition_reason,
        bucket_reason=bucket_reason,
    )


def _by_record_index(
    snapshot: Snapshot,
    index: IndexKind | None,
    live: Sequence[FileSlice],
    kept: list[FileSlice],
    found: HashKeys,
) -> tuple[list[FileSlice], str | None]:
    """Return the slices that the record-level index keeps, and why it skips none."""
    if len(kept) < 2:
        return kept, "few file groups are left"
    if found.keys is None:
        return kept, found.reason
    partitions = {file_slice.partition_path for file_slice in kept}
    if len(partitions) > PARTITIONS_MAX:
        return kept, f"keys are looked up in at most {PARTITIONS_MAX} partitions"
    groups, reason = groups_of_records(snapshot, index, found.keys, sorted(partitions))
    if groups is None:
        return kept, reason
    of_kept = [file_slice for file_slice in live if file_slice.partition_path in partitions]
    chosen = groups.slices(of_kept, kept)
    every = "every file group that is left may hold a key"
    return chosen, every if len(chosen) == len(kept) else None


def _buckets(
    slices: Sequence[FileSlice], layout: Layout | None, found: HashKeys
) -> tuple[dict[str, frozenset[int]] | None, str | None]:
    """Return the buckets to read in each partition, or None and why all are read."""
    if layout is None:
        return None, "the table's bucket setting is not known; open it with index="
    paths = {file_slice.partition_path for file_slice in slices}
    counts = {path: layout.slot_count(path) for path in paths}
    for file_slice in slices:
        slot = layout.slot_of_group(file_slice.partition_path, file_slice.file_id)
        count = counts[file_slice.partition_path]
        if slot is not None and slot >= count:
            return None, f"there is a {layout.slot_text(slot)}, but the bucket count is {count}"
    if found.keys is None:
        return None, found.reason
    wanted = layout.slots_of_literals(counts, found.keys)
    # If a bucket has several file groups, keys may still exclude some of them.
    all_slots = counts and all(len(wanted[path]) == count for path, count in counts.items())
    if all_slots and not layout.looks_up:
        return None, f"{len(found.keys)} keys fall into all {layout.slots_text}"
    return wanted, None


def _why_all(
    predicate: Predicate, key_spec: KeySpec, schema: pa.Schema, paths_follow_keys: bool
) -> str:
    fields = readable_fields(key_spec, schema)
    if not paths_follow_keys:
        return "the table's properties do not say how its partition paths are made"
    if not key_spec.partition_fields:
        return "the table has no partitions"
    if not fields:
        return f"values of {', '.join(key_spec.partition_fields)} cannot be read from paths"
    if not {*tested_columns(predicate)} & {*fields}:
        return f"no condition on {', '.join(fields)}"
    return "every partition may hold matching rows"


# ---- Pruning by keys: the file slices that may hold one of the record keys -----------------------
#
# A layout returns the slot of each key, and the file groups of the slot that may hold the key
# (RFC-29, "Query Pruning"). If a slice may hold a key, it is kept.


def slices_of_keys(
    layout: Layout, slices: Sequence[FileSlice], keys: Sequence[str], stored: StoredKeyReader | None
) -> list[FileSlice]:
    """Return the slices that may hold one of the keys: by slot, then by file group.

    File groups without a slot are kept. Without ``stored``, all file groups of a slot are kept.
    """
    wanted = layout.slots_of_literals({file_slice.partition_path for file_slice in slices}, keys)
    kept: list[FileSlice] = []
    of_slot: dict[Slot, list[FileSlice]] = defaultdict(list)
    for file_slice in slices:
        partition = file_slice.partition_path
        slot = layout.slot_of_group(partition, file_slice.file_id)
        if slot is None:
            kept.append(file_slice)
        elif slot in wanted[partition]:
            of_slot[partition, slot].append(file_slice)
    for held in of_slot.values():
        kept += held if stored is None else layout.groups_of_keys(held, keys, stored)
    chosen = {file_slice.group for file_slice in kept}
    return [file_slice for file_slice in slices if file_slice.group in chosen]
