"""The entries that a write brings into a shard of the record-level index.

A write enters the keys that it inserted into file groups, and removes keys that are gone. An update
in the same file group changes no entry (Hudi's table format, "record index"). The writer decides
which keys are new and which are gone; ``write/record_index/index_writer.py`` writes the entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.format.metadata_record.record_schema import IndexedLocation, encode_locations
from bucketlake.merge.incoming import key_order
from bucketlake.metadata.log_files import GroupEntries
from bucketlake.model.arrays import number_order
from bucketlake.model.file_name import FileId, Group
from bucketlake.model.write_stat import WriteStat

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
    is_sorted : bool
        Whether the keys are known to be in order.
    """

    keys: pa.Array
    partition_path: str
    file_id: FileId
    is_sorted: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Noted:
    """What a file that a write made for a shard has, for a cache of the index.

    Attributes
    ----------
    file : WriteStat
        The file.
    keys : pa.StringArray
        Keys of its entries, each once.
    codes : ndarray of int32, shape (n_keys,)
        For each, the position of its file group in ``groups``.
    groups : sequence of (str, FileId)
        File groups.
    removed : pa.StringArray
        Keys whose entries it removes.
    """

    file: WriteStat
    keys: pa.Array
    codes: npt.NDArray[np.int32]
    groups: Sequence[Group]
    removed: pa.Array = field(default_factory=lambda: _NO_KEYS)

    @property
    def file_name(self) -> str:
        """The name of the file."""
        return self.file.path.rpartition("/")[2]


def entries_of_shard(
    new: Sequence[NewKeys], gone: Sequence[pa.Array], instant_ms: int
) -> GroupEntries:
    """Return the entries and removals of a shard.

    They depend only on the keys, not on their order.

    Parameters
    ----------
    new : sequence of NewKeys
        The inserted keys of the shard, each once.
    gone : sequence of pa.StringArray
        Deleted keys of the shard. A key that is new is not removed: in a global index it moved to
        another data partition.
    instant_ms : int
        The instant of the write in milliseconds since 1970-01-01 UTC, in the time zone of the
        timeline.
    """
    entries, _ = entries_of_shards([new], instant_ms)
    keys = entries.keys
    removed = _NO_KEYS
    if any(map(len, gone)):
        removed = pc.unique(pa.concat_arrays([_NO_KEYS, *gone]))
        removed = removed.filter(pc.invert(pc.is_in(removed, value_set=keys)))
        removed = removed.take(pa.array(key_order(removed)))
    return replace(entries, removed=removed)


def entries_of_shards(
    new: Sequence[Sequence[NewKeys]], instant_ms: int
) -> tuple[GroupEntries, list[int]]:
    """Return the entries of several shards, which are made together, and where each begins.

    The entries have a value for each file group, in the order of ``new``. The last bound is the
    number of entries.
    """
    groups = [group for shard in new for group in shard]
    keys = (
        groups[0].keys
        if len(groups) == 1
        else pa.concat_arrays([_NO_KEYS, *(g.keys for g in groups)])
    )
    counts = [len(group.keys) for group in groups]
    numbers = np.repeat(np.arange(len(groups), dtype=np.int32), counts)
    of_groups = np.cumsum([0, *counts])
    bounds = of_groups[np.cumsum([0, *map(len, new)])]
    if not all(len(shard) == 1 and shard[0].is_sorted for shard in new):
        order = key_order(keys)
        if len(new) > 1:
            shards = np.repeat(np.arange(len(new)), np.diff(bounds))
            order = order[number_order(shards[order])]
        keys, numbers = keys.take(pa.array(order)), numbers[order]
    values = encode_locations(
        [IndexedLocation(group.partition_path, group.file_id, instant_ms) for group in groups]
    )
    coded = pa.DictionaryArray.from_arrays(pa.array(numbers), values)
    return GroupEntries(keys, coded), bounds.tolist()
