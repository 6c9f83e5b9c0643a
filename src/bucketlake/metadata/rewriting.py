"""Rewriting a slice of the metadata table as one base file: the work of a compaction.

Only the blocks of the old base file that hold changed keys are decoded. The others are copied as
they are stored, so the cost follows the changes more than the size of an index. Memory holds the
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
from bucketlake.format.metadata_record.schema import record_schema_json
from bucketlake.merge.records import key_order
from bucketlake.metadata.merging import Merge, merge_of
from bucketlake.metadata.slice_reader import (
    LogChanges,
    SliceEntries,
    open_whole_base_file,
    read_log_changes,
)
from bucketlake.metadata.table import MetadataSlice, MetadataTable

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


def rewrite_slice(
    table: MetadataTable, partition: MetadataPartition, held: MetadataSlice, *, created_at_ms: int
) -> Rewritten | None:
    """Merge the files of a slice.

    Parameters
    ----------
    table : MetadataTable
        The table of the slice.
    partition : MetadataPartition
        Partition of the slice.
    held : MetadataSlice
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
    changes = _Changes.of(read_log_changes(table, held), merge_of(partition))
    if not changes.keys:
        return None
    base = None if held.base is None else open_whole_base_file(table, held.base)
    if base is not None and base.is_gzip and not may_differ_in_java(changes.keys):
        writer = _changed_blocks(base, changes, created_at_ms)
        if writer is not None:
            return writer
    return _changed_whole(base, changes, created_at_ms)


@dataclass(frozen=True, slots=True, eq=False)
class _Changes:
    """Changes of the log files, sorted by key.

    Attributes
    ----------
    keys : list of bytes
        The changed keys, ascending.
    is_removed : ndarray of bool
        Whether the entry of a key in the base file is removed.
    entries : SliceEntries
        Entries of the log files, by key, and within a key by age.
    starts : ndarray of int64
        The first entry of each key, and the number of entries.
    merge : callable
        Merges entries.
    """

    keys: list[bytes]
    is_removed: npt.NDArray[np.bool_]
    entries: SliceEntries
    starts: npt.NDArray[np.int64]
    merge: Merge

    @classmethod
    def of(cls, changes: LogChanges, merge: Merge) -> _Changes:
        entries = changes.entries
        distinct = pc.unique(pa.concat_arrays([entries.keys, changes.removed]))
        distinct = distinct.take(pa.array(key_order(_as_text(distinct, entries.where))))
        of_entry = pc.index_in(entries.keys, value_set=distinct).to_numpy()
        order = np.argsort(of_entry, kind="stable")
        rows = pa.array(order)
        return cls(
            distinct.to_pylist(),
            pc.is_in(distinct, value_set=changes.removed).to_numpy(zero_copy_only=False),
            SliceEntries(
                entries.keys.take(rows),
                entries.values.take(rows),
                entries.layers[order],
                entries.where,
            ),
            np.searchsorted(of_entry[order], np.arange(len(distinct) + 1)),
            merge,
        )

    def applied(self, base: Entries, first: int, end: int) -> Entries:
        """Return entries of the base file with the changes of some keys, in order of the keys."""
        rows = np.arange(self.starts[first], self.starts[end])
        rows = rows[np.argsort(self.entries.layers[rows], kind="stable")]
        keys, values = (
            column.take(pa.array(rows)) for column in (self.entries.keys, self.entries.values)
        )
        changed = pa.array(self.keys[first:end], pa.binary())
        places = pc.index_in(base.keys, value_set=changed)
        is_changed = places.is_valid().to_numpy(zero_copy_only=False)
        is_older = is_changed.copy()
        is_older[is_changed] = ~self.is_removed[first + places.drop_null().to_numpy()]
        older, kept = pa.array(is_older), pa.array(~is_changed)
        base_layers = np.full(np.count_nonzero(is_older), _BASE_LAYER, np.int32)
        merged = self.merge(
            SliceEntries(
                pa.concat_arrays([base.keys.filter(older), keys]),
                pa.concat_arrays([base.values.filter(older), values]),
                np.concatenate([base_layers, self.entries.layers[rows]]),
                self.entries.where,
            )
        )
        whole = Entries(
            pa.concat_arrays([base.keys.filter(kept), merged.keys]),
            pa.concat_arrays([base.values.filter(kept), merged.values]),
        )
        return _in_order(whole, self.entries.where)


def _changed_blocks(base: HFileReader, changes: _Changes, created_at_ms: int) -> Rewritten | None:
    """Decode and change the blocks with changed keys, and copy the others.

    Return None if the keys of the base file are not in the order of their bytes.
    """
    blocks = base.data_blocks()
    first_keys = [block.first_key for block in blocks]
    if may_differ_in_java(first_keys) or not blocks:
        return None
    writer = HFileWriter(record_schema_json(), created_at_ms=created_at_ms)
    # The changed keys of a block are those from its first key to the first key of the next block.
    cuts = [0, *(bisect_left(changes.keys, key) for key in first_keys[1:]), len(changes.keys)]
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
            until = cuts[end] if is_last else bisect_right(changes.keys, last_key, at, cuts[end])
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


def _changed_whole(base: HFileReader | None, changes: _Changes, created_at_ms: int) -> Rewritten:
    """Decode all entries of the base file, change and sort them."""
    entries = _NOTHING
    if base is not None:
        whole = base.read()
        entries = Entries(whole.keys.combine_chunks(), whole.values.combine_chunks())
    changed = changes.applied(entries, 0, len(changes.keys))
    writer = HFileWriter(record_schema_json(), created_at_ms=created_at_ms)
    writer.add(changed.keys, changed.values)
    return Rewritten(writer.finish(), len(changed.keys))


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


def _in_order(entries: Entries, where: str) -> Entries:
    order = pa.array(key_order(_as_text(entries.keys, where)))
    return Entries(entries.keys.take(order), entries.values.take(order))


def _as_text(keys: pa.BinaryArray, where: str) -> pa.StringArray:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise FormatError(where, "keys in UTF-8", str(error)) from error
