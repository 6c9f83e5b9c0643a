"""What newer entries of a key mean for older entries: one entry for each key, as compactions need.

The rule depends on the partition (Hudi's table format, "merge rules"). A location of a key replaces
the older one, statistics are united unless the newer bounds are tight, and files are added to a map
or removed from it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from bucketlake.format.hfile.reader import Entries
from bucketlake.format.metadata_record.column_stats import (
    decode_column_stats,
    encode_column_stats,
)
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.format.metadata_record.file_records import FILE_MAP, FILES_KINDS, encode_file_maps
from bucketlake.format.metadata_record.record_schema import RecordKind
from bucketlake.metadata.file_listing import FileRecords
from bucketlake.metadata.slices.entry_reader import SliceEntries
from bucketlake.metadata.statistics.merged import merge_layers

Merge = Callable[[SliceEntries], Entries]
"""Returns one entry for each key, in any order; the given entries are in order of age."""


def merge_of(partition: MetadataPartition) -> Merge:
    """Return the rule of a partition."""
    return _MERGES[partition]


def replaces(partition: MetadataPartition) -> bool:
    """Return whether the newest entry of a key counts alone."""
    return _MERGES[partition] is _newest


def _newest(entries: SliceEntries) -> Entries:
    return entries.newest()


def _united(entries: SliceEntries) -> Entries:
    """Merge statistics; a key with one entry keeps its value as it is stored."""
    keyed = entries.keys.dictionary_encode()
    codes = keyed.indices.to_numpy()
    is_alone = np.bincount(codes, minlength=len(keyed.dictionary))[codes] == 1
    alone, several = pa.array(np.flatnonzero(is_alone)), pa.array(np.flatnonzero(~is_alone))
    keys, values = [entries.keys.take(alone)], [entries.values.take(alone)]
    if len(several):
        kinds, stats = decode_column_stats(entries.values.take(several), entries.where)
        (kind,) = set(kinds.tolist())  # A partition of the metadata table has one kind.
        found, merged = merge_layers(codes[~is_alone].astype(np.int64), stats, entries.where)
        keys.append(keyed.dictionary.take(pa.array(found)))
        values.append(encode_column_stats(RecordKind(kind), merged))
    return Entries(pa.concat_arrays(keys), pa.concat_arrays(values))


def _live_files(entries: SliceEntries) -> Entries:
    """Merge maps of files; a removal of a file that is not there says nothing."""
    records = FileRecords.of(entries)
    keys, values = [], []
    for kind in FILES_KINDS:
        names, changes = records.of_kind(kind)
        live = changes.live()
        counts = np.bincount(live.places, minlength=len(names))
        ends = np.concatenate([[0], np.cumsum(counts)])
        infos = pa.StructArray.from_arrays(
            [pa.array(live.sizes_bytes), pa.array(live.is_removed)], fields=[*FILE_MAP.item_type]
        )
        offsets = pa.array(ends, pa.int32())
        maps = pa.MapArray.from_arrays(offsets, live.names, infos, type=FILE_MAP)
        keys.append(pa.array(names, pa.string()).cast(pa.binary()))
        values.append(encode_file_maps(kind, maps))
    return Entries(pa.concat_arrays(keys), pa.concat_arrays(values))


_MERGES: dict[MetadataPartition, Merge] = {
    MetadataPartition.FILES: _live_files,
    MetadataPartition.COLUMN_STATS: _united,
    MetadataPartition.PARTITION_STATS: _united,
    MetadataPartition.RECORD_INDEX: _newest,
}
