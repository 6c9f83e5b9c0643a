"""The rules of advice about the index: its kind, and its count, rules or capacity.

The arithmetic is that of ``docs/how-to/choose-a-bucket-count.md``: as many buckets as a full
partition has files of the target size. A new table gets the cheapest kind whose sizes are known; a
table is changed only where its files are wrong, and by the cheapest call that its kind has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bucketlake.config.table_version import PARTITION_RULES_VERSION, PARTITIONED_INDEX_VERSION
from bucketlake.index.dynamic import DynamicBucket
from bucketlake.index.partition import PartitionBucket
from bucketlake.index.setting import ResizedKind, TableIndex
from bucketlake.index.simple import SimpleBucket
from bucketlake.services.advice import steps
from bucketlake.services.advice.advice import Advice, change, keep
from bucketlake.services.advice.steps import index_in_python, rules_of
from bucketlake.services.advice.workload import (
    TARGET_FILE_SIZE_DEFAULT,
    Conditions,
    PartitionFacts,
    Workload,
    counted,
    size_text,
)
from bucketlake.services.resize.service import ResizeLimits

SKEW_MIN = 4.0
"""Partitions differ from here on; below, one count gives files of half to twice the target."""

LARGE = 2.0
"""A file of so many targets is too large: two buckets in its place would both be full."""

SMALL_PART = 0.1
"""A file of less than this part of the target is small: opening it costs more than reading it."""

SMALL_FILES_MIN = 8
"""So many files more than are needed are worth a rewrite."""

COUNT_MAX = 128
"""Most buckets of a fixed count: a partition of 10 GB has about as many."""

RULES_MAX = 20
"""Most rules that name one partition each; more are no rules any more."""

HOT_SHARE = 0.1
"""A value with this share of the rows makes one bucket much larger than the others."""

APPENDS_MIN = 0.95
"""From this share of new keys among the changed rows on, a table is appended to."""

RESTING_MIN = 3
"""So many partitions that no longer grow tell how large a partition becomes."""

COMMITS_MIN = 3
"""After fewer commits, small partitions may just not be full yet."""

ADVISED_ASSIGNERS = 16
"""Assigners of partitions that have more files than a fixed count serves."""

COUNT_UNKNOWN = 4
"""Buckets to begin with where a count is needed and no size is known."""

_SUBJECT = "index"
_LATER = {
    True: "a rescale changes it later, and they follow its rules",
    False: "another count needs a new table",
}
_Fixed = SimpleBucket | PartitionBucket


@dataclass(frozen=True, slots=True)
class IndexChoice:
    """The index of a new table, why, and the bytes of a file of its median partition."""

    index: TableIndex
    reason: str
    file_bytes: int | None


def advise_index(work: Workload, given: Conditions) -> Advice:
    """Advise the index of a new table, or what to change of the index of a table."""
    if given.is_new:
        chosen = index_of_new_table(work, given)
        step = steps.create_step(given, chosen.index)
        told = index_in_python(chosen.index)
        return change(_SUBJECT, None, told, chosen.reason, step, chosen.file_bytes)
    index = given.index
    if index is None:
        reason = "the table stores no bucket setting; open_table(path, index=...) names it"
        return keep(_SUBJECT, "not known", reason)
    if not work.partitions:
        reason = (
            "the table has no rows yet; a sample of its data tells more: bl.advise(sample, ...) "
            "(bucketlake advise --sample FILE --key NAME)"
        )
        return _keep(index, reason)
    if index.resized is not None:
        return _ring(work, given, index.resized)
    if index.counted is not None:
        return _fixed(work, given, index.counted)
    return _located(work, given, index)


# ---- a new table --------------------------------------------------------------------------------


def index_of_new_table(work: Workload, given: Conditions) -> IndexChoice:
    """Return the index of a table that is to be made."""
    fields, hot = _hash_fields(work, given)
    chosen = _of_sizes(work, given, fields) if work.is_full else _without_sizes(given, fields)
    return replace(chosen, reason=f"{hot}{chosen.reason}")


def _hash_fields(work: Workload, given: Conditions) -> tuple[tuple[str, ...] | None, str]:
    """Return the hash fields of a new table, and why they are not those that were asked for."""
    hot = work.hot_value
    if given.hash_fields is None or hot is None or hot.share < HOT_SHARE:
        return given.hash_fields, ""
    hot_bytes = hot.share * work.largest_bytes
    if work.is_full and hot_bytes <= LARGE * given.target_bytes:
        return given.hash_fields, ""
    told = f" ({size_text(hot_bytes)} of the largest partition)" if work.is_full else ""
    return None, (
        f"{hot.text} has {hot.share:.0%} of the rows{told}, which one bucket would hold, so all "
        "key fields are hashed; "
    )


def _without_sizes(given: Conditions, fields: tuple[str, ...] | None) -> IndexChoice:
    rescales = given.version >= PARTITION_RULES_VERSION
    unknown = "the size of full partitions is not known: give rows= (--rows)"
    if given.hudi_writers:
        return IndexChoice(
            SimpleBucket(COUNT_UNKNOWN, fields),
            f"{unknown}, and Hudi's writers need a bucket count; {_LATER[rescales]}",
            None,
        )
    if not _may_be_dynamic(given, fields):
        return IndexChoice(
            SimpleBucket(COUNT_UNKNOWN, fields, given.target_bytes),
            f"{unknown}; a bucket opens a further file when its file is full",
            given.target_bytes,
        )
    index = DynamicBucket(max_file_size=_size_of(given))
    return IndexChoice(
        index, f"{unknown}; buckets are opened as the data grows", given.target_bytes
    )


def _of_sizes(work: Workload, given: Conditions, fields: tuple[str, ...] | None) -> IndexChoice:
    target, largest, middle = given.target_bytes, work.largest_bytes, work.median_bytes
    count, usual = _count(largest, target), _count(middle, target)
    sizes, alike = f"the partition will have {size_text(largest)}", ""
    if len(work.partitions) > 1:
        sizes = (
            f"the largest of {counted(len(work.partitions), 'partition')} will have "
            f"{size_text(largest)}, the median {size_text(middle)}"
        )
        alike = ", so they are alike"
    each = f"one bucket for each {size_text(target)}"
    may_be_dynamic = _may_be_dynamic(given, fields)
    if count == 1:
        return IndexChoice(SimpleBucket(1, fields), f"{sizes}: one file is enough", middle)
    if count > COUNT_MAX and may_be_dynamic:
        return IndexChoice(
            DynamicBucket(max_file_size=_size_of(given), assigners=ADVISED_ASSIGNERS),
            f"{sizes}: {count:,} files of {size_text(target)} are more than a fixed count serves",
            target,
        )
    count, usual = min(count, COUNT_MAX), min(usual, COUNT_MAX)
    if largest <= SKEW_MIN * middle or count < LARGE * usual:
        index = SimpleBucket(count, fields)
        return IndexChoice(index, f"{sizes}{alike}: {each}", middle // count)
    wanted = {p.path: min(_count(p.size_bytes, target), COUNT_MAX) for p in work.partitions}
    larger = {path: n for path, n in wanted.items() if n >= LARGE * usual}
    if given.version >= PARTITION_RULES_VERSION and len(larger) <= RULES_MAX:
        rules = dict(sorted(rules_of(larger).items(), key=lambda rule: (-rule[1], rule[0])))
        return IndexChoice(
            PartitionBucket(rules, usual, hash_fields=fields),
            f"{sizes}, so they differ: {each}, by rules for {counted(len(larger), 'partition')}",
            middle // usual,
        )
    if may_be_dynamic:
        reason = f"{sizes}, and {len(larger):,} are larger than usual: each opens what it needs"
        return IndexChoice(DynamicBucket(max_file_size=_size_of(given)), reason, target)
    if given.hudi_writers:
        reason = f"{sizes}: {each} of the largest partition, because all have one count"
        return IndexChoice(SimpleBucket(count, fields), reason, middle // count)
    reason = f"{sizes}: {each} of the median, and a full bucket opens a further file"
    return IndexChoice(SimpleBucket(usual, fields, target), reason, min(middle // usual, target))


# ---- a table with computed buckets --------------------------------------------------------------


def _fixed(work: Workload, given: Conditions, index: _Fixed) -> Advice:
    """Advise about buckets whose count is fixed: first what hurts most."""
    for rule in (_hot_bucket, _growth, _counts):
        found = rule(work, given, index)
        if found is not None:
            return found
    mean = _mean_bytes(work)
    reason = (
        f"{size_text(mean)} on average in {counted(work.file_groups, 'file group')}, and no "
        f"partition needs another count for files of {size_text(given.target_bytes)}"
    )
    return _keep(index, reason, mean)


def _keep(index: TableIndex, reason: str, file_bytes: int | None = None) -> Advice:
    return keep(_SUBJECT, index_in_python(index), reason, file_bytes)


def _other(
    given: Conditions, index: TableIndex, better: TableIndex, reason: str, step: steps.Step
) -> Advice:
    now, then = index_in_python(index), index_in_python(better)
    return change(_SUBJECT, now, then, reason, step, given.target_bytes)


def _dynamic(given: Conditions, index: _Fixed, reason: str) -> Advice:
    """Put a table under dynamic buckets."""
    dynamic = DynamicBucket(max_file_size=_size_of(given))
    return _other(given, index, dynamic, reason, steps.convert_step(given, dynamic))


def _hot_bucket(work: Workload, given: Conditions, index: _Fixed) -> Advice | None:
    """One bucket is much larger than the others, because a value of its hash fields is hot."""
    if index.max_file_size is not None:
        return None
    hot = [
        own
        for own in work.partitions
        if own.largest_bytes > LARGE * given.target_bytes
        and own.largest_bytes >= SKEW_MIN * own.size_bytes / index.count_of(own.path)
    ]
    if not hot:
        return None
    worst = max(hot, key=lambda own: own.largest_bytes)
    times = worst.largest_bytes * index.count_of(worst.path) / worst.size_bytes
    of = f" of partition {worst.path}" if worst.path else ""
    reason = (
        f"a bucket{of} has {size_text(worst.largest_bytes)}, {times:.1f} times the mean of "
        f"{counted(index.count_of(worst.path), 'bucket')}: a key field has a hot value"
    )
    if given.hudi_writers:
        reason += "; only a new table with other hash fields divides it, as Hudi's writers know"
        return _keep(index, reason)
    return _in_groups(given, index, f"{reason}; with a size, the rows to come go into other files")


def _growth(work: Workload, given: Conditions, index: _Fixed) -> Advice | None:
    """Partitions grow, and their buckets are nearly full: no count will be right for long."""
    most = LARGE * _usual_bytes(work)
    full = [
        own
        for own in work.partitions
        if own.grows and own.size_bytes > most and own.largest_bytes >= given.target_bytes / 2
    ]
    if not full or index.max_file_size is not None:
        return None
    worst = max(full, key=lambda own: own.largest_bytes)
    reason = (
        f"{counted(len(full), 'partition')} grew by 10 % or more in the last "
        f"{counted((work.commits + 1) // 2, 'commit')}, and the largest file group has "
        f"{size_text(worst.largest_bytes)} already"
    )
    if given.hudi_writers:
        if given.version < PARTITION_RULES_VERSION:
            reason += f"; Hudi's writers know no other count in table version {given.version}"
            return _keep(index, reason)
        wanted = {own.path: min(2 * _needed(own, index, given), COUNT_MAX) for own in full}
        if any(count <= index.count_of(path) for path, count in wanted.items()):
            return _keep(index, f"{reason}; more than {COUNT_MAX} buckets are slow")
        reason += "; twice the buckets leave room, and Hudi's writers follow the rules"
        return _rescaled(work, given, index, wanted, reason)
    if (work.inserts or 0.0) >= APPENDS_MIN:
        reason += f"; {work.inserts:.0%} of the changed rows are new, so full files can stay"
        return _in_groups(given, index, reason)
    if not _may_be_dynamic(given, index.hash_fields):
        return _in_groups(given, index, f"{reason}; with a size, full files can stay")
    reason += "; dynamic buckets are opened as the data grows, and no file is rewritten for it"
    return _dynamic(given, index, reason)


def _counts(work: Workload, given: Conditions, index: _Fixed) -> Advice | None:
    """Partitions have too many or too few buckets for their size."""
    target = given.target_bytes
    large = [own for own in work.partitions if _is_large(own, index, target)]
    small = [own for own in work.partitions if _is_small(own, index, target)]
    if large:
        worst = max(large, key=lambda own: own.size_bytes)
        mean = worst.size_bytes / index.count_of(worst.path)
        reason = (
            f"files of {counted(len(large), 'partition')} have more than "
            f"{size_text(LARGE * target)}: "
            f"{size_text(worst.size_bytes)} in {counted(index.count_of(worst.path), 'bucket')} "
            f"makes {size_text(mean)} in each"
        )
        if given.version < PARTITION_RULES_VERSION or index.max_file_size is not None:
            if given.hudi_writers:
                reason += "; Hudi's writers know nothing that changes it: write a new table"
                return _keep(index, reason)
            return _in_groups(given, index, f"{reason}; with a size, the rows to come go elsewhere")
        wanted = {own.path: _needed(own, index, given) for own in large}
        return _rescaled(work, given, index, wanted, reason)
    spare = sum(own.file_groups - _count(own.size_bytes, target) for own in small)
    if spare < SMALL_FILES_MIN:
        return None
    mean = sum(own.size_bytes for own in small) // sum(own.file_groups for own in small)
    reason = (
        f"files of {counted(len(small), 'partition')} have {size_text(mean)} on average, and "
        f"{spare:,} of them are more than are needed"
    )
    if work.commits < COMMITS_MIN:
        reason += f", but the table has had only {counted(work.commits, 'commit')}: it may grow"
        return _keep(index, reason)
    if given.version < PARTITION_RULES_VERSION:
        return _keep(index, f"{reason}, but table version {given.version} has no rescale")
    wanted = {own.path: _count(own.size_bytes, target) for own in small}
    return _rescaled(work, given, index, wanted, reason)


def _needed(own: PartitionFacts, index: _Fixed, given: Conditions) -> int:
    """Return the buckets of a partition for files of the target size; never fewer than it has."""
    count = min(_count(own.size_bytes, given.target_bytes), COUNT_MAX)
    return max(count, index.count_of(own.path))


def _usual_bytes(work: Workload) -> int:
    """Return the bytes to which partitions grow; 0 if too few of them have stopped.

    A partition of today that grows up to about them is just not full.
    """
    resting = [own.size_bytes for own in work.partitions if not own.grows]
    return max(resting) if len(resting) >= RESTING_MIN else 0


def _is_large(own: PartitionFacts, index: _Fixed, target: int) -> bool:
    count = index.count_of(own.path)
    if index.max_file_size is not None:  # Stored rows stay in files that are too large.
        return index.max_file_size > LARGE * target and own.largest_bytes > LARGE * target
    return count < COUNT_MAX and own.size_bytes > LARGE * target * count


def _is_small(own: PartitionFacts, index: _Fixed, target: int) -> bool:
    needed = _count(own.size_bytes, target)
    has_more = own.file_groups > needed and index.count_of(own.path) > needed
    mean = own.size_bytes / max(own.file_groups, 1)
    return has_more and mean < SMALL_PART * target and not own.grows


def _in_groups(given: Conditions, index: _Fixed, reason: str) -> Advice:
    """Let a bucket have several file groups; no data is rewritten."""
    grouped = index.with_max_file_size(given.target_bytes)
    return _other(given, index, grouped, reason, steps.open_further_groups(given))


def _rescaled(
    work: Workload, given: Conditions, index: _Fixed, wanted: Mapping[str, int], reason: str
) -> Advice:
    """Give partitions other counts: by a rule for each if they are few, else by one for all."""
    if index.own_rule is not None:
        reason += f"; give these partitions other counts by rules of kind {index.own_rule}"
        return _keep(index, reason)
    size_bytes = sum(own.size_bytes for own in work.partitions if own.path in wanted)
    counts = sorted(wanted.values())
    if len(wanted) == len(work.partitions) and counts[-1] <= SKEW_MIN * counts[0]:
        count = counts[-1]
        step = steps.rescale_step(given, {".*": count}, count)
        told = f"{counted(count, 'bucket')} in each partition"
        wanted = dict.fromkeys(wanted, count)
    elif len(wanted) <= RULES_MAX:
        step = steps.rescale_step(given, rules_of(wanted))
        told = ", ".join(f"{counted(n, 'bucket')} in {path}" for path, n in sorted(wanted.items()))
    else:
        reason += f"; {len(wanted):,} partitions are too many for a rule each"
        if _may_be_dynamic(given, index.hash_fields):
            return _dynamic(given, index, reason)
        return _keep(index, f"{reason}: write rules that match several")
    files = sum(wanted.values())
    reason += f"; a rescale rewrites {size_text(size_bytes)}"
    return change(_SUBJECT, index_in_python(index), told, reason, step, size_bytes // files)


# ---- other kinds --------------------------------------------------------------------------------


def _ring(work: Workload, given: Conditions, index: ResizedKind) -> Advice:
    """Advise a resize if it would split or merge something."""
    limits = ResizeLimits(max_file_size=given.target_bytes)
    splits = [
        own
        for own in work.partitions
        if own.largest_bytes > limits.split_bytes and own.file_groups < index.count_max
    ]
    merges = [
        own
        for own in work.partitions
        if own.file_groups > index.count_min
        and own.size_bytes <= own.file_groups * limits.merge_bytes / 2
    ]
    mean = _mean_bytes(work)
    if splits:
        worst = max(splits, key=lambda own: own.largest_bytes)
        reason = (
            f"buckets of {counted(len(splits), 'partition')} have more than "
            f"{size_text(limits.split_bytes)}, the largest has {size_text(worst.largest_bytes)}: a "
            "resize splits them, and rewrites no other"
        )
    elif merges:
        reason = (
            f"buckets of {counted(len(merges), 'partition')} have less than "
            f"{size_text(limits.merge_bytes)}: a resize merges neighbours"
        )
    else:
        reason = f"its buckets have {size_text(mean)} on average, and none is to be split"
        return _keep(index, reason, mean)
    step = steps.resize_step(given)
    return change(_SUBJECT, index_in_python(index), "a resize", reason, step, given.target_bytes)


def _located(work: Workload, given: Conditions, index: TableIndex) -> Advice:
    """Advise about kinds that open files as they need them; only their capacity can be wrong."""
    mean = _mean_bytes(work)
    dynamic = index.growing
    if (
        dynamic is not None
        and dynamic.max_records is not None
        and work.bytes_per_row is not None
        and not given.hudi_writers
    ):
        capacity = dynamic.max_records * work.bytes_per_row
        wanted = max(int(given.target_bytes / work.bytes_per_row), 1)
        if not SMALL_PART * given.target_bytes <= capacity <= LARGE * given.target_bytes:
            better = replace(dynamic, max_records=wanted)
            reason = (
                f"a full bucket of {dynamic.max_records:,} rows of {work.bytes_per_row:.0f} bytes "
                f"has {size_text(capacity)}; each write may have other limits, for the rows to come"
            )
            return _other(given, index, better, reason, steps.write_with(given, better))
    reason = (
        f"{size_text(mean)} on average in {counted(work.file_groups, 'file group')}; the next is "
        "opened when they are full, and no count can be wrong"
    )
    assigners = 1 if dynamic is None else dynamic.assigners or 1
    if assigners > 1 and _are_small(work, given):
        reason += (
            f"; its {assigners} assigners make small files of small partitions, and stay: "
            "a new table with DynamicBucket() or SimpleBucket(1) has fewer"
        )
    return _keep(index, reason, mean)


def _are_small(work: Workload, given: Conditions) -> bool:
    spare = work.file_groups - sum(
        _count(own.size_bytes, given.target_bytes) for own in work.partitions
    )
    return spare >= SMALL_FILES_MIN and _mean_bytes(work) < SMALL_PART * given.target_bytes


def _may_be_dynamic(given: Conditions, hash_fields: Sequence[str] | None) -> bool:
    """Return whether dynamic buckets are possible, and lose nothing that was asked for."""
    is_known = given.version >= PARTITIONED_INDEX_VERSION and not given.hudi_writers
    return is_known and hash_fields is None


def _count(size_bytes: int, target_bytes: int) -> int:
    """Return the number of files of the target size, at least one."""
    return max(1, -(-size_bytes // target_bytes))


def _mean_bytes(work: Workload) -> int:
    return work.size_bytes // max(work.file_groups, 1)


def _size_of(given: Conditions) -> int | None:
    """Return the size of a dynamic bucket; None for the usual one."""
    return None if given.target_bytes == TARGET_FILE_SIZE_DEFAULT else given.target_bytes
