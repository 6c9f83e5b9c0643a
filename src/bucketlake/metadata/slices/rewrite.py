"""Rewriting a slice of the metadata table as one base file: the work of a compaction.

Only the blocks of the old base file that hold changed keys are decoded. The others are copied as
they are stored, so the cost follows the changes more than the size of an index. A file of an older
release, whose records have another schema, is rewritten whole. Memory holds the
new file, the entries of some blocks and, if the storage is not local, the old file.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import FormatError
from bucketlake.format.hfile.block_index import IndexEntry, may_differ_in_java
from bucketlake.format.hfile.reader import Entries, HFileReader
from bucketlake.format.hfile.writer import HFileWriter
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.format.metadata_record.record_schema import (
    record_schema_json,
    without_value_type_field,
)
from bucketlake.merge.incoming import key_order
from bucketlake.metadata.metadata_table import MetadataTable
from bucketlake.metadata.slices.entry_reader import (
    LogChanges,
    SliceEntries,
    open_whole_base_file,
    read_log_changes,
)
from bucketlake.metadata.slices.newest_entries import Merge, merge_of, replaces
from bucketlake.model.file_slice import FileSlice

_BASE_LAYER = -1  # Below the layers of log files.
_NOTHING = Entries(pa.nulls(0, pa.binary()), pa.nulls(0, pa.binary()))


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


def rewrite_slice(table: MetadataTable, held: FileSlice, *, created_at_ms: int) -> Rewritten | None:
    """Merge the files of a slice.

    Parameters
    ----------
    table : MetadataTable
        The table of the slice.
    held : FileSlice
        The slice.
    created_at_ms : int
        Time for the new file, in milliseconds since 1970-01-01 UTC.

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
    if not table.config.rules.has_value_types:
        whole = _changed_whole(base, changes)
        values = without_value_type_field(partition, whole.values)
        schema_json = record_schema_json(has_value_types=False)
        return _written(Entries(whole.keys, values), schema_json, created_at_ms)
    if base is not None and base.is_gzip and not base.converts:
        writer = _changed_blocks(base, changes, created_at_ms)
        if writer is not None:
            return writer
    return _written(_changed_whole(base, changes), record_schema_json(), created_at_ms)


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
    merge: Merge | None

    @classmethod
    def of(cls, changes: LogChanges, partition: MetadataPartition) -> _Changes:
        entries, removed_count = changes.entries, len(changes.removed)
        all_keys = pa.concat_arrays([changes.removed, entries.keys])  # A removal sorts first.
        order = key_order(_as_text(all_keys, entries.where))
        keys = all_keys.take(pa.array(order))
        first = np.flatnonzero(~_equals_last(keys))
        is_entry = order >= removed_count
        rows = order[is_entry] - removed_count
        return cls(
            keys.take(pa.array(first)),
            order[first] < removed_count,
            SliceEntries(
                entries.keys.take(pa.array(rows)),
                entries.values.take(pa.array(rows)),
                entries.layers[rows],
                entries.where,
            ),
            np.concatenate([[0], np.cumsum(is_entry)])[np.append(first, len(order))],
            None if replaces(partition) else merge_of(partition),
        )

    def applied(self, base: Entries, first: int, end: int) -> Entries:
        """Return entries of the base file with the changes of some keys, in order of the keys."""
        keys = self.keys[first:end]
        if self.merge is None:
            return self._replaced(base, keys, first, end)
        rows = np.arange(self.starts[first], self.starts[end])
        rows = rows[np.argsort(self.entries.layers[rows], kind="stable")]
        changed = self._entries(rows)
        places = pc.index_in(base.keys, value_set=keys)
        is_changed = places.is_valid().to_numpy(zero_copy_only=False)
        is_older = is_changed.copy()
        is_older[is_changed] = ~self.is_removed[first + places.drop_null().to_numpy()]
        older, kept = pa.array(is_older), pa.array(~is_changed)
        base_layers = np.full(np.count_nonzero(is_older), _BASE_LAYER, np.int32)
        merged = self.merge(
            SliceEntries(
                pa.concat_arrays([base.keys.filter(older), changed.keys]),
                pa.concat_arrays([base.values.filter(older), changed.values]),
                np.concatenate([base_layers, self.entries.layers[rows]]),
                self.entries.where,
            )
        )
        whole = Entries(
            pa.concat_arrays([base.keys.filter(kept), merged.keys]),
            pa.concat_arrays([base.values.filter(kept), merged.values]),
        )
        order = pa.array(key_order(_as_text(whole.keys, self.entries.where)))
        return Entries(whole.keys.take(order), whole.values.take(order))

    def _replaced(self, base: Entries, keys: pa.BinaryArray, first: int, end: int) -> Entries:
        """Apply changes where the last entry of a key replaces all others."""
        starts, ends = self.starts[first:end], self.starts[first + 1 : end + 1]
        has_entry = starts < ends
        changed = self._entries(ends[has_entry] - 1)
        all_keys = pa.concat_arrays([base.keys, keys])
        order = key_order(_as_text(all_keys, self.entries.where))
        ordered = all_keys.take(pa.array(order))
        # A changed key comes right after its entry in the base file.
        is_kept = np.append(~_equals_last(ordered)[1:], True)
        is_value = np.concatenate([np.ones(len(base.keys), np.bool_), has_entry])
        is_kept &= is_value[order]
        rows = (np.cumsum(is_value) - 1)[order[is_kept]]
        values = pa.concat_arrays([base.values, changed.values])
        return Entries(ordered.filter(pa.array(is_kept)), values.take(pa.array(rows)))

    def _entries(self, rows: npt.NDArray[np.int64]) -> Entries:
        at = pa.array(rows)
        return Entries(self.entries.keys.take(at), self.entries.values.take(at))


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
            if not _is_ascending(entries.keys):
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
    last_key = None if last_stored is None else _last_key_in(base, last_stored)
    data = writer.finish(stored_count=stored_count, last_key=last_key)
    return Rewritten(data, stored_count + added_count)


def _changed_whole(base: HFileReader | None, changes: _Changes) -> Entries:
    """Decode all entries of the base file, change and sort them."""
    entries = _NOTHING
    if base is not None:
        whole = base.read()
        entries = Entries(whole.keys.combine_chunks(), whole.values.combine_chunks())
    return changes.applied(entries, 0, len(changes.keys))


def _written(entries: Entries, schema_json: str, created_at_ms: int) -> Rewritten:
    writer = HFileWriter(schema_json, created_at_ms=created_at_ms)
    writer.add(entries.keys, entries.values)
    return Rewritten(writer.finish(), len(entries.keys))


def _and_whether_last(parts: Iterable[Entries]) -> Iterator[tuple[Entries, bool]]:
    before = None
    for part in parts:
        if before is not None:
            yield before, False
        before = part
    if before is not None:
        yield before, True


def _last_key_in(base: HFileReader, block: IndexEntry) -> bytes:
    *_, last = base.entries_of([block])
    key: bytes = last.keys[-1].as_py()
    return key


def _runs(flags: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the start and end of each run of equal flags."""
    cuts = np.flatnonzero(np.diff(flags)) + 1
    return list(pairwise([0, *cuts.tolist(), len(flags)]))


def _is_ascending(keys: pa.BinaryArray) -> bool:
    return len(keys) < 2 or bool(pc.all(pc.less(keys[:-1], keys[1:])).as_py())


def _as_text(keys: pa.BinaryArray, where: str) -> pa.StringArray:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise FormatError(where, "keys in UTF-8", str(error)) from error
