"""The entries that a write brings into the record-level index, by shard.

A write enters the keys that it inserted into file groups, and removes keys that are gone. An update
in the same file group changes no entry (Hudi's table format, "record index"). The writer decides
which keys are new and which are gone; ``write/record_index/index_log.py`` writes the entries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.format.metadata_record.record_index import IndexedLocation, encode_locations
from bucketlake.merge.incoming import key_order
from bucketlake.metadata.record_index.shards import IndexShards, Shard, rows_by_number
from bucketlake.metadata.slices.log_files import GroupEntries
from bucketlake.model.file_name import FileId

_NO_KEYS = pa.nulls(0, pa.string())


@dataclass(frozen=True, slots=True, eq=False)
class NewKeys:
    """Keys that a write inserted into one file group.

    Attributes
    ----------
    keys : pa.StringArray
        Record keys.
    partition_path : str
        Data partition.
    file_id : FileId
        The file group.
    """

    keys: pa.Array
    partition_path: str
    file_id: FileId


@dataclass(frozen=True, slots=True, eq=False)
class GoneKeys:
    """Keys of a data partition whose records a write deleted."""

    keys: pa.Array
    partition_path: str


def index_entries(
    new: Iterable[NewKeys], gone: Iterable[GoneKeys], shards: IndexShards, instant_ms: int
) -> dict[Shard, GroupEntries]:
    """Return the entries and removals of each shard that some keys touch.

    The entries depend only on the keys, not on their order.

    Parameters
    ----------
    new : iterable of NewKeys
        The inserted keys. In a partitioned index, a key may be new once in each data partition; in
        a global index, once.
    gone : iterable of GoneKeys
        The deleted keys. A key that is new in the same shard is not removed: in a global index it
        moved to another data partition.
    shards : IndexShards
        The shards, including those of new data partitions.
    instant_ms : int
        The instant of the write in milliseconds since 1970-01-01 UTC, in the time zone of the
        timeline.

    Returns
    -------
    dict
        In order of the shards' file groups.

    Raises
    ------
    InputError
        If a partitioned index cannot name the shards of a data partition.
    """
    numbers: dict[IndexedLocation, int] = {}
    puts: dict[Shard, list[tuple[pa.Array, int]]] = defaultdict(list)
    for group in new:
        assert not len(group.keys) or shards.count(group.partition_path), "its shards are known"
        location = IndexedLocation(group.partition_path, group.file_id, instant_ms)
        number = numbers.setdefault(location, len(numbers))
        for shard, keys in _by_shard(group.keys, group.partition_path, shards):
            puts[shard].append((keys, number))
    removals: dict[Shard, list[pa.Array]] = defaultdict(list)
    for removed in gone:
        for shard, keys in _by_shard(removed.keys, removed.partition_path, shards):
            removals[shard].append(keys)
    values = encode_locations(list(numbers))
    touched = sorted({*puts, *removals}, key=lambda shard: shard.file_id)
    found = {
        shard: _entries(puts.get(shard, []), removals.get(shard, []), values) for shard in touched
    }
    return {shard: entries for shard, entries in found.items() if len(entries)}


def _entries(
    puts: list[tuple[pa.Array, int]], removals: list[pa.Array], values: pa.BinaryArray
) -> GroupEntries:
    keys = pa.concat_arrays([_NO_KEYS, *(part for part, _ in puts)])
    numbers = np.repeat([number for _, number in puts], [len(part) for part, _ in puts])
    order = key_order(keys)
    keys = keys.take(pa.array(order))
    indices = pa.array(numbers[order], pa.int32())
    gone = pc.unique(pa.concat_arrays([_NO_KEYS, *removals]))
    gone = gone.filter(pc.invert(pc.is_in(gone, value_set=keys)))
    gone = gone.take(pa.array(key_order(gone)))
    return GroupEntries(keys, pa.DictionaryArray.from_arrays(indices, values), gone)


def _by_shard(
    keys: pa.Array, data_partition: str, shards: IndexShards
) -> Iterator[tuple[Shard, pa.Array]]:
    """Split keys by shard; a data partition without shards has no entries to remove."""
    count = shards.count(data_partition)
    if len(keys) == 0 or count == 0:
        return
    if count == 1:
        yield shards.shard(0, data_partition), keys
        return
    for number, rows in rows_by_number(shards.numbers_of(keys, data_partition)):
        yield shards.shard(number, data_partition), keys.take(pa.array(rows))
