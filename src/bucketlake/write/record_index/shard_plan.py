"""The plan of a write shard by shard (``by_shard.py``), and what its tasks did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bucketlake.index.conflict_keys import ChangedShards
from bucketlake.index.groups_for_new_keys import bucket_of_group, owner_of_group
from bucketlake.index.layout import Slot
from bucketlake.metadata.record_index.shards import IndexShards, Shard
from bucketlake.model.file_name import FileId
from bucketlake.write.record_index.by_shard import ShardFound, ShardWrite
from bucketlake.write.record_index.group_plan import Removal
from bucketlake.write.record_index.index_upkeep import key_of, write_stats_of
from bucketlake.write.record_index.index_writer import ShardPlan, ShardResult
from bucketlake.write.record_index.lookups import StoredShards
from bucketlake.write.tag import SlotCounts
from bucketlake.write.transaction import Lookups, Written
from bucketlake.write.write_plan import SlotResult, WritePlan


def counts_of_shards(counts: SlotCounts, shards: IndexShards) -> dict[Slot, int]:
    """Return the records of each shard, from those of each tag.

    A tag is the shard that a record would have in a large partition. A small partition has fewer
    shards; their number divides that of the tags, so all records with one tag are of one shard.
    """
    joined = Counter[Slot]()
    for (path, tag), count in counts.items():
        joined[path, tag % shards.count(path)] += count
    return dict(joined)


def plan_shard_writes(
    plan: WritePlan,
    changed: Sequence[ShardPlan],
    *,
    shards: IndexShards,
    stored: StoredShards,
    removal: Removal,
    gone: Mapping[str, Sequence[FileId]],
) -> list[ShardWrite | ShardPlan]:
    """Return what tasks do: shards with records, and those whose entries alone change.

    Parameters
    ----------
    plan : WritePlan
        The slots, each of which is a shard.
    changed : sequence of ShardPlan
        How the entries of shards change.
    shards : IndexShards
        The shards of the index, with those that the write opens.
    stored : mapping
        The slices of stored shards.
    removal : Removal
        Partitions whose entries go.
    gone : mapping of str to sequence of FileId
        Groups of each partition that are no longer live.
    """
    numbers = {shard.shard: shard for shard in changed}
    works: list[ShardWrite | ShardPlan] = []
    for slot in plan.slots:
        path, number = slot.key
        count = shards.count(path)
        shard = replace(numbers.pop(Shard(number, path)), task=slot.task)
        held = None if removal.has(path) else stored.get(path)
        ids = [*gone.get(path, ()), *plan.replaced.get(path, ())]
        own = [file_id for file_id in ids if owner_of_group(file_id, count) == number]
        used = max(own, key=lambda file_id: bucket_of_group(file_id) or 0, default=None)
        looked_up = held[number] if held else None
        last = () if used is None else (used,)
        works.append(ShardWrite(slot, count, shard, looked_up, last))
    left = [shard for shard in numbers.values() if shard.opens or shard.stored is not None]
    return works + [replace(shard, task=n % plan.task_count) for n, shard in enumerate(left)]


def result_of_shards(
    plan: WritePlan, works: Sequence[ShardWrite | ShardPlan], results: Sequence[Any]
) -> Written:
    """Return what the tasks of shards did."""
    found = [result for result in results if isinstance(result, ShardFound)]
    shards = [work.shard if isinstance(work, ShardWrite) else work for work in works]
    written = [result for result in results if isinstance(result, ShardResult)]
    answered = sorted(result.number for result in written)
    assert answered == sorted(shard.number for shard in shards), "each shard has one result"
    assert len(found) == len(plan.slots), "each slot has one result"
    slots = (plan.slots[each.number] for each in found)
    keys = [key_of(Shard(slot.slot, slot.partition_path)) for slot in slots]
    pairs = [*zip(keys, found, strict=True)]
    removed = {key_of(each.shard) for each in shards if each.stored is not None or each.opens}
    return Written(
        plan,
        [result for result in results if isinstance(result, SlotResult)],
        index_files=write_stats_of(written),
        changed=ChangedShards(
            frozenset(key for key, each in pairs if each.new),
            frozenset(removed | {key for key, each in pairs if each.gone}),
        ),
        looked_at=frozenset(key for key, each in pairs if each.unknown),
        lookups=Lookups(
            inserted=sum(each.new for each in found),
            looked_up=sum(each.looked_up for each in found),
            from_cache=sum(each.from_cache for each in found),
        ),
    )
