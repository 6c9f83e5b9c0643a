"""Entries of the partition ``files``: the list of data partitions, and the files of each of them.

An entry does not replace an older entry with its key: its map adds files to the older map, or
removes files from it (Hudi's table format, "merge rules").
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bucketlake.format.metadata_record.entry_keys import ALL_PARTITIONS, partition_key
from bucketlake.format.metadata_record.file_records import FILE_MAP, encode_file_maps
from bucketlake.format.metadata_record.record_schema import RecordKind
from bucketlake.metadata.slices.log_files import GroupEntries

FileSizes = Mapping[str, Mapping[str, int]]
"""Sizes of files by name, by data partition."""

FileNames = Mapping[str, Collection[str]]
"""Names of files by data partition."""


@dataclass(frozen=True, slots=True)
class _FileMap:
    """The map of one entry: sizes of files that are added, and names of files that are removed."""

    added: Mapping[str, int]
    removed: Collection[str] = ()


def entries_of_files(
    added: FileSizes, removed: FileNames, listed: Iterable[str] | None, emptied: Collection[str]
) -> GroupEntries:
    """Return the entries that an action brings.

    Parameters
    ----------
    added : mapping
        Files that the action wrote.
    removed : mapping
        Files that the action deleted.
    listed : iterable of str or None
        Data partitions for the list of partitions; None leaves the list as it is.
    emptied : collection of str
        Data partitions that have no files any more: they leave the list, and their entries are
        removed.
    """
    gone = set(emptied)
    maps: dict[str, _FileMap] = {}
    for partition in sorted({*added, *removed} - gone):
        changes = added.get(partition, {}), removed.get(partition, ())
        maps[partition_key(partition)] = _FileMap(*changes)
    keys = list(maps)
    values = [_encode(RecordKind.FILES, list(maps.values()))]
    if listed is not None or gone:
        named = {partition_key(path): 0 for path in sorted({*(listed or ())} - gone)}
        keys.append(ALL_PARTITIONS)
        of_list = _FileMap(named, sorted(partition_key(path) for path in gone))
        values.append(_encode(RecordKind.PARTITION_LIST, [of_list]))
    return GroupEntries.of(
        pa.array(keys, pa.string()),
        pa.concat_arrays(values),
        pa.array(sorted(partition_key(path) for path in gone), pa.string()),
    )


def entries_of_table(files: FileSizes) -> GroupEntries:
    """Return all entries for the files of a table."""
    return entries_of_files(files, {}, files, ())


def _encode(kind: RecordKind, maps: Collection[_FileMap]) -> pa.BinaryArray:
    names: list[str] = []
    sizes: list[int] = []
    removed_counts = []
    ends = [0]
    for held in maps:
        names += [*held.added, *held.removed]
        sizes += [*held.added.values(), *(0 for _ in held.removed)]
        removed_counts.append((len(held.added), len(held.removed)))
        ends.append(len(names))
    counts = np.array(removed_counts, np.int64).reshape(-1)
    is_removed = np.repeat(np.tile([False, True], len(maps)), counts)
    infos = pa.StructArray.from_arrays(
        [pa.array(sizes, pa.int64()), pa.array(is_removed, pa.bool_())],
        fields=[*FILE_MAP.item_type],
    )
    offsets = pa.array(ends, pa.int32())
    found = pa.MapArray.from_arrays(offsets, pa.array(names, pa.string()), infos, type=FILE_MAP)
    return encode_file_maps(kind, found)
