"""Pruning: the file slices that a ``where`` leaves to read, and what was left out and why.

Partitions go by :mod:`.partition_pruning`, buckets by :mod:`.hash_pruning` and the index. Pruning
never drops a row that the condition keeps: what is not certain is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from bucketlake.index.kinds import BucketIndex
from bucketlake.index.simple import bucket_id_of_file_id, buckets_for_literals
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.keys import KeySpec
from bucketlake.model.schema import with_meta
from bucketlake.read.changes import Changes
from bucketlake.read.pruning.buckets import HashKeys, find_hash_keys, matching_hash_keys
from bucketlake.read.pruning.partitions import (
    partition_may_match,
    partitions_that_may_match,
    readable_fields,
)
from bucketlake.read.snapshot import Snapshot
from bucketlake.where.predicate import COLUMN_TESTS, Predicate, leaves

__all__ = [
    "PruningReport",
    "matching_hash_keys",
    "partition_may_match",
    "partitions_that_may_match",
    "prune",
    "prune_slices",
]

_BARE_KEYS_ENDED = 9  # Table version.


@dataclass(frozen=True, slots=True)
class PruningReport:
    """What a read looks at.

    Attributes
    ----------
    partitions_total, partitions_kept : int
        Partitions that hold file groups, and those of them that are read.
    file_groups_total, file_groups_kept : int
        File groups, and those that are read.
    bucket_ids : tuple of int or None
        Buckets that are read, of one partition or another, ascending; None where all are.
    partition_reason, bucket_reason : str or None
        Why no partition, and why no bucket, was left out; None where some were.
    """

    partitions_total: int
    partitions_kept: int
    file_groups_total: int
    file_groups_kept: int
    bucket_ids: tuple[int, ...] | None
    partition_reason: str | None
    bucket_reason: str | None


def prune_slices(
    snapshot: Snapshot,
    index: BucketIndex | None,
    where: str | None,
    *,
    time_zone: str | None = None,
    usual_settings: bool = True,
    changes: Changes | None = None,
) -> tuple[list[FileSlice], PruningReport]:
    """Return the live slices of a table that can hold rows which a condition keeps.

    Parameters
    ----------
    snapshot : Snapshot
        The pinned table.
    index : BucketIndex or None
        The table's index, its bucket count beyond doubt; None prunes no buckets.
    where : str or None
        SQL condition; None keeps all slices.
    time_zone : str or None
        Time zone of timestamps in ``where`` that name none; see ``parse_where``.
    usual_settings : bool
        Whether the reader's session has ``SPARK_SETTINGS``; a condition that means something else
        to it prunes nothing.
    changes : Changes, optional
        Commits whose rows alone are wanted; only their partitions are looked at.

    Returns
    -------
    list of FileSlice
        In the order of the snapshot.
    PruningReport
        What was left out.
    """
    if changes is None:
        slices = snapshot.all_slices()
    else:
        slices = changes.among(snapshot.partition_slices(sorted(changes.file_groups)))
    if where is None or not usual_settings:
        why = "there is no condition" if where is None else "the session has settings of its own"
        paths = {one.partition_path for one in slices}
        return slices, PruningReport(
            len(paths), len(paths), len(slices), len(slices), None, why, why
        )
    from bucketlake.where.parser import parse_where  # Its SQL parser is slow to import.

    schema = snapshot.schema
    predicate = parse_where(where, with_meta(schema), time_zone=time_zone)
    config = snapshot.config
    return prune(
        predicate,
        slices,
        config.key_spec,
        index,
        with_meta(schema),
        bare_keys=(config.initial_version or 0) < _BARE_KEYS_ENDED,
        paths_follow_keys=config.paths_follow_keys,
        foreign_key_generator=config.foreign_key_generator,
    )


def prune(
    predicate: Predicate,
    slices: Sequence[FileSlice],
    key_spec: KeySpec,
    index: BucketIndex | None,
    schema: pa.Schema,
    *,
    bare_keys: bool = True,
    paths_follow_keys: bool = True,
    foreign_key_generator: str | None = None,
) -> tuple[list[FileSlice], PruningReport]:
    """Do as :func:`prune_slices` with a predicate, on slices at hand.

    ``bare_keys`` is that of :func:`matching_hash_keys`; ``paths_follow_keys`` and
    ``foreign_key_generator`` are those of ``TableConfig``, and say what of ``key_spec`` is a guess.
    """
    paths = sorted({one.partition_path for one in slices})
    partitions = {*paths}
    if paths_follow_keys:
        may_match = partitions_that_may_match(predicate, paths, key_spec, schema)
        partitions = {path for path, kept in zip(paths, may_match, strict=True) if kept}
    in_partitions = [one for one in slices if one.partition_path in partitions]
    # A partition field's values stand in the paths.
    commas = any("," in one.partition_path for one in in_partitions)
    plain = paths_follow_keys and not commas
    found = find_hash_keys(
        predicate,
        key_spec,
        () if index is None else tuple(index.hash_fields or ()),
        schema,
        plain_fields=readable_fields(key_spec, schema) if plain else (),
        bare_keys=bare_keys,
        foreign_key_generator=foreign_key_generator,
    )
    buckets, bucket_reason = _buckets(in_partitions, index, found)
    kept = in_partitions
    if buckets is not None:
        readable = {path: {*held, None} for path, held in buckets.items()}
        kept = [one for one in in_partitions if _bucket_of(one) in readable[one.partition_path]]
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


def _buckets(
    slices: Sequence[FileSlice], index: BucketIndex | None, found: HashKeys
) -> tuple[dict[str, frozenset[int]] | None, str | None]:
    """Return the buckets to read in each partition, or None and why all are."""
    if index is None:
        return None, "the table's bucket setting is not known; open it with index="
    counts = {one.partition_path: index.count_of(one.partition_path) for one in slices}
    for one in slices:
        bucket, count = _bucket_of(one), counts[one.partition_path]
        if bucket is not None and bucket >= count:
            return None, f"there is a bucket {bucket}, where {count} buckets are set"
    if found.keys is None:
        return None, found.reason
    keys, fields = found.keys, tuple(index.hash_fields or ())
    of_count = {count: buckets_for_literals(keys, count, fields) for count in {*counts.values()}}
    if counts and all(len(buckets) == count for count, buckets in of_count.items()):
        return None, f"{len(keys)} keys fall into all buckets"
    return {path: of_count[count] for path, count in counts.items()}, None


def _bucket_of(one: FileSlice) -> int | None:
    """Return the bucket of a slice; None where its file group belongs to none, and is read."""
    prefix = one.file_id[:8]
    return bucket_id_of_file_id(one.file_id) if prefix.isascii() and prefix.isdecimal() else None


def _why_all(
    predicate: Predicate, key_spec: KeySpec, schema: pa.Schema, paths_follow_keys: bool
) -> str:
    fields = readable_fields(key_spec, schema)
    if not paths_follow_keys:
        return "the table's properties do not tell how its partition paths are made"
    if not key_spec.partition_fields:
        return "the table has no partitions"
    if not fields:
        return f"paths do not spell the values of {', '.join(key_spec.partition_fields)} plainly"
    tested = {leaf.column for leaf in leaves(predicate) if isinstance(leaf, COLUMN_TESTS)}
    if not tested & {*fields}:
        return f"no condition on {', '.join(fields)}"
    return "every partition may hold matching rows"
