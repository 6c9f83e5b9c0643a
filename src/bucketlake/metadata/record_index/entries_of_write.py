"""The entries that a write brings into a shard of the record-level index.

A write enters the keys that it inserted into file groups, and removes keys that are gone. An update
in the same file group changes no entry (Hudi's table format, "record index"). The writer decides
which keys are new and which are gone; ``write/record_index/index_log.py`` writes the entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.format.metadata_record.record_index import IndexedLocation, encode_locations
from bucketlake.merge.incoming import key_order
from bucketlake.metadata.slices.log_files import GroupEntries
from bucketlake.model.file_name import FileId
from bucketlake.model.number_order import is_everything

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
    keys = pa.concat_arrays([_NO_KEYS, *(group.keys for group in new)])
    numbers = np.repeat(np.arange(len(new), dtype=np.int32), [len(group.keys) for group in new])
    order = key_order(keys)
    if not is_everything(order, len(keys)):  # Those of one group may be in order already.
        keys, numbers = keys.take(pa.array(order)), numbers[order]
    values = encode_locations(
        [IndexedLocation(group.partition_path, group.file_id, instant_ms) for group in new]
    )
    removed = pc.unique(pa.concat_arrays([_NO_KEYS, *gone]))
    if len(removed):
        removed = removed.filter(pc.invert(pc.is_in(removed, value_set=keys)))
        removed = removed.take(pa.array(key_order(removed)))
    return GroupEntries(keys, pa.DictionaryArray.from_arrays(pa.array(numbers), values), removed)
