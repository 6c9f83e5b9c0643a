"""Rewriting a slice of the metadata table as one base file: the work of a compaction.

Only the blocks of the old base file that hold changed keys are decoded. The others are copied as
they are stored, so the cost follows the changes more than the size of an index. A file of an older
release, whose records have another schema, is rewritten whole. Memory holds the
new file, the entries of some blocks and, if the storage is not local, the old file.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import BucketLakeError, FormatError, StorageError
from bucketlake.flow.stage import Engine
from bucketlake.format.hfile.reader import Entries, HFileReader, IndexEntry, may_differ_in_java
from bucketlake.format.hfile.writer import HFileWriter, is_ascending
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.format.metadata_record.record_schema import record_schema_json
from bucketlake.merge.incoming import key_order
from bucketlake.metadata.entry_reader import (
    LogChanges,
    SliceEntries,
    open_whole_base_file,
    read_log_changes,
)
from bucketlake.metadata.file_listing import merge_file_entries
from bucketlake.metadata.log_files import EntryEncoder, base_file_name
from bucketlake.metadata.metadata_table import MetadataTable
from bucketlake.metadata.statistics.merged import merge_statistics
from bucketlake.model.file_name import InstantTime, file_path
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.write_stat import NO_PREVIOUS_COMMIT, WriteStat
from bucketlake.timeline.data_file import put_data_files
from bucketlake.timeline.markers import Marker, MarkerType

EntryMerge = Callable[[SliceEntries], Entries]
"""Returns one entry for each key, in any order; the given entries are in order of age."""

_MERGES: dict[MetadataPartition, EntryMerge] = {
    MetadataPartition.FILES: merge_file_entries,
    MetadataPartition.COLUMN_STATS: merge_statistics,
    MetadataPartition.PARTITION_STATS: merge_statistics,
    MetadataPartition.RECORD_INDEX: SliceEntries.newest,
}
_BASE_LAYER = -1  # Below the layers of log files.


def merge_of(partition: MetadataPartition) -> EntryMerge:
    """Return what newer entries of a key mean for older ones (Hudi's format, "merge rules")."""
    return _MERGES[partition]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A new base file.

    Attributes
    ----------
    data : bytes
        The file.
    entry_count : int
        Number of its entries.
    """

    data: bytes
    entry_count: int


def rewrite_slice(table: MetadataTable, held: FileSlice, encoder: EntryEncoder) -> Rewritten | None:
    """Merge the files of a slice.

    Parameters
    ----------
    table : MetadataTable
        The table of the slice.
    held : FileSlice
        The slice.
    encoder : EntryEncoder
        Of the instant that rewrites the slice.

    Returns
    -------
    Rewritten or None
        None if the log files change nothing.

    Raises
    ------
    CommitConflictError, FormatError, UnsupportedFeatureError
        If a file was deleted, is damaged or cannot be read.
    InputError
        If the new file would have 2 GiB or more.
    """
    partition = MetadataPartition(held.partition_path)
    changes = _Changes.of(read_log_changes(table, held), partition)
    if not len(changes.keys):
        return None
    base = None if held.base_file is None else open_whole_base_file(table, held.base_file)
    keeps_blocks = base is not None and base.is_gzip and not base.converts
    if base is not None and keeps_blocks and encoder.has_value_types:
        rewritten = _changed_blocks(base, changes, encoder.created_at_ms)
        if rewritten is not None:
            return rewritten
    entries = Entries.joined([]) if base is None else base.read()
    whole = changes.applied(entries, 0, len(changes.keys))
    return Rewritten(encoder.base_file(partition, whole.keys, whole.values), len(whole.keys))


@dataclass(frozen=True, slots=True, eq=False)
class _Changes:
    """Changes of the log files, sorted by key.

    Attributes
    ----------
    keys : pyarrow.BinaryArray
        The changed keys, ascending.
    is_removed : ndarray of bool
        Whether the entry of a key in the base file is removed.
    entries : SliceEntries
        Entries of the log files, by key, and within a key by age.
    starts : ndarray of int64
        The first entry of each key, and the number of entries.
    merge : callable or None
        Merges entries; None if the last entry of a key replaces all others.
    """

    keys: pa.BinaryArray
    is_removed: npt.NDArray[np.bool_]
    entries: SliceEntries
    starts: npt.NDArray[np.int64]
    merge: EntryMerge | None

    @classmethod
    def of(cls, changes: LogChanges, partition: MetadataPartition) -> _Changes:
        entries, removed_count = changes.entries, len(changes.removed)
        all_keys = pa.concat_arrays([changes.removed, entries.keys])  # A removal sorts first.
        order = key_order(_as_text(all_keys, entries.where))
        keys = all_keys.take(pa.array(order))
        first = np.flatnonzero(~_equals_last(keys))
        is_entry = order >= removed_count
        return cls(
            keys.take(pa.array(first)),
            order[first] < removed_count,
            entries.take(order[is_entry] - removed_count),
            np.concatenate([[0], np.cumsum(is_entry)])[np.append(first, len(order))],
            None if partition is MetadataPartition.RECORD_INDEX else merge_of(partition),
        )

    def applied(self, base: Entries, first: int, end: int) -> Entries:
        """Return entries of the base file with the changes of some keys, in order of the keys."""
        keys, base_count = self.keys[first:end], len(base.keys)
        all_keys = pa.concat_arrays([base.keys, keys])
        order = key_order(_as_text(all_keys, self.entries.where))
        ordered = all_keys.take(pa.array(order))
        # A changed key comes right after its entry in the base file.
        is_kept = np.append(~_equals_last(ordered)[1:], True)
        if self.merge is None:
            starts, ends = self.starts[first:end], self.starts[first + 1 : end + 1]
            has_entry = starts < ends
            changed = self.entries.values.take(pa.array(ends[has_entry] - 1))
        else:
            at = np.flatnonzero(~is_kept)
            is_older = ~self.is_removed[first + order[at + 1] - base_count]
            merged = self.merge(self._layers(base, order[at[is_older]], first, end))
            places = pc.index_in(keys, value_set=merged.keys)
            has_entry = places.is_valid().to_numpy(zero_copy_only=False)
            changed = merged.values.take(places.drop_null())
        is_value = np.concatenate([np.ones(base_count, np.bool_), has_entry])
        is_kept &= is_value[order]
        rows = (np.cumsum(is_value) - 1)[order[is_kept]]
        values = pa.concat_arrays([base.values, changed])
        return Entries(ordered.filter(pa.array(is_kept)), values.take(pa.array(rows)))

    def _layers(
        self, base: Entries, older: npt.NDArray[np.int64], first: int, end: int
    ) -> SliceEntries:
        """Return some entries of the base file and the entries of some keys, in order of age."""
        rows = np.arange(self.starts[first], self.starts[end])
        new = self.entries.take(rows[np.argsort(self.entries.layers[rows], kind="stable")])
        return SliceEntries(
            pa.concat_arrays([base.keys.take(pa.array(older)), new.keys]),
            pa.concat_arrays([base.values.take(pa.array(older)), new.values]),
            np.concatenate([np.full(len(older), _BASE_LAYER, np.int32), new.layers]),
            new.where,
        )


def _equals_last(keys: pa.BinaryArray) -> npt.NDArray[np.bool_]:
    """Return which keys equal the key before them."""
    repeated = pc.equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    return np.insert(repeated, 0, False)[: len(keys)]


def _changed_blocks(base: HFileReader, changes: _Changes, created_at_ms: int) -> Rewritten | None:
    """Decode and change the blocks with changed keys, and copy the others.

    Return None if the keys of the base file are perhaps not in the order of their bytes.
    """
    blocks, keys = base.data_blocks(), changes.keys.to_pylist()
    first_keys = [block.first_key for block in blocks]
    if may_differ_in_java([*keys, *first_keys]) or not blocks:
        return None
    writer = HFileWriter(record_schema_json(), created_at_ms=created_at_ms)
    # The changed keys of a block are those from its first key to the first key of the next block.
    cuts = [0, *(bisect_left(keys, key) for key in first_keys[1:]), len(keys)]
    is_changed = np.diff(cuts) > 0
    decoded_count = added_count = 0
    last_stored: IndexEntry | None = None  # If the last data is a block that was copied.
    for begin, end in _runs(is_changed):
        run = blocks[begin:end]
        if not is_changed[begin]:
            for block, stored in zip(run, base.stored_blocks(run), strict=True):
                writer.add_stored(stored, block.first_key)
            last_stored = run[-1]
            continue
        at = cuts[begin]
        for entries, is_last in _and_whether_last(base.entries_of(run)):
            if not is_ascending(entries.keys):
                return None
            last_key = entries.keys[-1].as_py()
            until = cuts[end] if is_last else bisect_right(keys, last_key, at, cuts[end])
            changed = changes.applied(entries, at, until)
            writer.add(changed.keys, changed.values)
            decoded_count += len(entries.keys)
            added_count += len(changed.keys)
            at = until
            if len(changed.keys):
                last_stored = None
    stored_count = base.entry_count - decoded_count
    last_key = None
    if last_stored is not None:
        *_, last = base.entries_of([last_stored])
        last_key = last.keys[-1].as_py()
    data = writer.finish(stored_count=stored_count, last_key=last_key)
    return Rewritten(data, stored_count + added_count)


def _and_whether_last(parts: Iterable[Entries]) -> Iterator[tuple[Entries, bool]]:
    before = None
    for part in parts:
        if before is not None:
            yield before, False
        before = part
    if before is not None:
        yield before, True


def _runs(flags: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the start and end of each run of equal flags."""
    cuts = np.flatnonzero(np.diff(flags)) + 1
    return list(pairwise([0, *cuts.tolist(), len(flags)]))


def _as_text(keys: pa.BinaryArray, where: str) -> pa.StringArray:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise FormatError(where, "keys in UTF-8", str(error)) from error


# ---- The work of a compaction of the metadata table, slice by slice: in this process or in tasks -
#
# The driver plans the slices (``actions/metadata_compaction.py``), and publishes the compaction
# after all are rewritten. Each slice becomes one base file, whose name and bytes follow from the
# plan, so a task may run twice.

HERE_BYTES_MAX = 64 * 2**20
"""Up to this size of their files, slices are rewritten in the driver, in a few seconds.

50 MB, an index of 4 million keys, took 3.2 processor seconds in the driver and 5.3 in tasks.
"""


@dataclass(frozen=True, slots=True)
class SliceRewriter:
    """The values that all tasks of one compaction share; picklable.

    Attributes
    ----------
    table : MetadataTable
        The metadata table, as it was planned.
    instant : InstantTime
        Instant of the compaction.
    pending_path : str
        Path of a file of the metadata table that exists while the compaction may be completed.
    """

    table: MetadataTable
    instant: InstantTime
    pending_path: str

    def rewrite(self, held: FileSlice) -> Iterator[tuple[WriteStat, bytes]]:
        """Yield a new base file, which is not written yet, unless the log files change nothing.

        Raises
        ------
        CommitConflictError, FormatError, UnsupportedFeatureError, InputError
            As ``rewrite_slice``.
        """
        base, partition = held.base_file, held.partition_path
        made = rewrite_slice(self.table, held, EntryEncoder.of(self.table.config, self.instant))
        if made is None:
            return
        name = base_file_name(held.file_id, self.instant).to_file_name()
        stat = WriteStat(
            file_id=held.file_id,
            path=file_path(partition, name),
            partition_path=partition,
            previous_commit=NO_PREVIOUS_COMMIT if base is None else base.name.instant,
            previous_base_file=None if base is None else base.name.to_file_name(),
            record_count=made.entry_count,
            update_count=made.entry_count,
            file_size_bytes=len(made.data),
        )
        yield stat, made.data

    def write(self, held: FileSlice) -> Iterator[WriteStat]:
        """Write the new base file of a slice, in this process."""
        for stat, data in self.rewrite(held):
            self.table.storage.put(stat.path, data)
            yield stat

    def write_in_task(self, held: FileSlice) -> Iterator[WriteStat]:
        """Write the base file of a slice, with its marker, in a task that may run twice or late."""
        storage, pending = self.table.storage, (self.instant, self.pending_path)
        for stat, data in self.rewrite(held):
            marker = Marker(stat.partition_path, stat.path.rpartition("/")[2], MarkerType.CREATE)
            is_new = put_data_files(storage, *pending, [(marker, data)], place=storage)
            # Another deflate library makes another size.
            stored = None if is_new else storage.stat(stat.path)
            yield stat if stored is None else replace(stat, file_size_bytes=stored.size_bytes)


def rewrite_slices(
    rewriter: SliceRewriter, slices: Sequence[FileSlice], engine: Engine
) -> list[WriteStat]:
    """Write the new base files of slices, in this process or in tasks.

    Raises
    ------
    CommitConflictError, FormatError, UnsupportedFeatureError, InputError
        As ``rewrite_slice``.
    StorageError
        If the engine failed.
    """
    sizes = [held.size_bytes for held in slices]
    if engine.in_memory or sum(sizes) <= HERE_BYTES_MAX:
        return [stat for held in slices for stat in rewriter.write(held)]
    try:
        stats: list[WriteStat] = engine.start(rewriter.write_in_task, slices, sizes).results()
    except BucketLakeError:
        raise
    except Exception as error:  # The commit before the compaction is complete, and must not fail.
        folder, doing = rewriter.table.storage.folder, "compact in tasks"
        raise StorageError(folder, doing, str(error)) from error
    return stats
