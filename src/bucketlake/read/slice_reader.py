"""Reads a file slice: merges its base file with its log files, chunk by chunk.

Snapshot reads and compactions use the same function. Memory holds the merged log records and one
chunk of the base file. If the log files are too large for memory, the slice is read in several
passes, each for a share of the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import UnsupportedFeatureError
from bucketlake.format.base_file import TEXT_DICTIONARY, BaseFileReader
from bucketlake.format.log_block import BlockKind, LogBlock
from bucketlake.format.log_data import decode_data_block
from bucketlake.format.log_deletes import decode_delete_block
from bucketlake.hashing.index_key import hash_index_keys
from bucketlake.merge.combining import Gaps
from bucketlake.merge.incoming import (
    ORDERING,
    BoolArray,
    IncomingRecords,
    IntArray,
    commit_time_deletes,
    comparable,
    delete_flags,
    marker_field,
)
from bucketlake.merge.log_records import (
    deleted_keys,
    merged_entries,
    merged_slice,
    merged_versions,
    row_versions,
)
from bucketlake.merge.row_changes import RowChanges
from bucketlake.model.cast import cast_table
from bucketlake.model.field_path import column_of, field_at, fields_at, roots_of
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.schema import COMMIT_TIME, IS_DELETED, OPERATION_COLUMN, RECORD_KEY, with_meta
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.read.clean_guard import telling_what_is_gone
from bucketlake.read.snapshot import DroppedColumns, Snapshot
from bucketlake.slices.file_system_view import counted_blocks
from bucketlake.slices.stored_keys import RowOrigin, VirtualKeys
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline

LOG_BYTES_PER_PASS = 256 * 2**20

_CHUNK_ROWS = 131_072
_NO_COLUMNS = pa.table({})
_DELETING_OPERATIONS = ("D", "-U")


@dataclass(frozen=True, slots=True)
class SliceReader:
    """Reads slices of one table; a small picklable value.

    Attributes
    ----------
    storage : Storage
        The table's storage.
    timeline : Timeline
        The pinned timeline of the table.
    schema : pa.Schema
        All columns of a record, with the meta columns; a read uses the requested columns and those
        that merging needs.
    ordering_fields : tuple of str
        Ordering fields; empty under commit-time ordering.
    delete_marker : (field, value) or None
        The table's custom delete marker.
    virtual_keys : VirtualKeys or None
        How meta values are made in a table without meta columns; None for other tables.
    gaps : Gaps or None
        Values that count as not given, in a table with a partial update mode.
    dropped : DroppedColumns or None
        The partition columns that files lack; None for other tables.
    """

    storage: Storage
    timeline: Timeline
    schema: pa.Schema
    ordering_fields: tuple[str, ...]
    delete_marker: tuple[str, str] | None = None
    virtual_keys: VirtualKeys | None = None
    gaps: Gaps | None = None
    dropped: DroppedColumns | None = None

    @classmethod
    def of_snapshot(cls, snapshot: Snapshot) -> SliceReader:
        """Return a reader of a pinned table, with its merge rule.

        Raises
        ------
        UnsupportedFeatureError
            If an ordering field of a merge-on-read table is not a column.
        """
        config = snapshot.config
        compares = config.merge_mode is MergeMode.EVENT_TIME
        marker = config.custom_marker
        ordering = config.ordering_fields if compares else ()
        schema = with_meta(snapshot.readable_schema)
        absent = [path for path in ordering if field_at(schema, path) is None]
        if absent and config.table_type is TableType.MERGE_ON_READ:
            feature = f"ordering field {absent[0]!r}, which the table's schema lacks,"
            raise UnsupportedFeatureError(feature, snapshot.storage.root, "read it with Hudi")
        if marker is not None and config.table_type is TableType.MERGE_ON_READ:
            marker_field(schema, marker[0])  # Raises an error for a type without this rule.
        rules = snapshot.virtual_keys, Gaps.of_table(config), DroppedColumns.of_config(config)
        return cls(snapshot.storage, snapshot.timeline, schema, tuple(ordering), marker, *rules)

    def read(self, file_slice: FileSlice, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the rows of a slice.

        Parameters
        ----------
        file_slice : FileSlice
            The slice.
        columns : sequence of str
            Names of the columns to return; they may be meta columns, but no paths.

        Yields
        ------
        pa.Table
            Rows in the order of the base file, then new rows; in several passes if the log files
            are large.
        """
        with telling_what_is_gone(self.storage):
            if not file_slice.log_files:
                schema = pa.schema([self.schema.field(c) for c in columns])
                yield from self._stored(file_slice, schema)
                return
            for chunk in self._merged(file_slice, self._needed(columns)):
                yield chunk.select(list(columns))

    def keys(self, file_slice: FileSlice) -> Iterator[tuple[pa.Array, bool]]:
        """Yield the record keys of a slice, and whether log files delete them.

        A key that log files delete comes after the keys of rows, also if a later row has it again.
        If the log files are large, each pass yields its share of the keys.
        """
        if not file_slice.log_files:
            for chunk in self.read(file_slice, [RECORD_KEY]):
                yield chunk[RECORD_KEY].combine_chunks(), False
            return
        with telling_what_is_gone(self.storage):
            for share in _passes(file_slice):
                yield from self._keys_of(file_slice, share)

    def _keys_of(self, file_slice: FileSlice, share: KeyShare) -> Iterator[tuple[pa.Array, bool]]:
        needed = self._needed([])
        blocks = self._log_entries(file_slice, needed, share)
        for chunk in self._merged_rows(blocks, file_slice, needed, share):
            yield chunk[RECORD_KEY].combine_chunks(), False
        for deleted in deleted_keys(blocks):
            yield deleted, True

    def _merged(self, file_slice: FileSlice, needed: pa.Schema) -> Iterator[pa.Table]:
        for share in _passes(file_slice):
            # No name for the log entries, so that those of a pass are freed before the next pass.
            yield from self._merged_rows(
                self._log_entries(file_slice, needed, share), file_slice, needed, share
            )

    def _log_entries(
        self, file_slice: FileSlice, needed: pa.Schema, share: KeyShare
    ) -> list[IncomingRecords]:
        blocks = counted_blocks(self.storage, file_slice, self.timeline)
        found = (share.entries_of(self._entries(block, needed, file_slice)) for block in blocks)
        return [entries for entries in found if len(entries.keys)]

    def _merged_rows(
        self,
        blocks: list[IncomingRecords],
        file_slice: FileSlice,
        needed: pa.Schema,
        share: KeyShare,
    ) -> Iterator[pa.Table]:
        fields, gaps = self.ordering_fields, self.gaps
        records = merged_entries(blocks, needed, compares=bool(fields), gaps=gaps)
        yield from merged_slice(
            records, share.rows_of(self._stored(file_slice, needed)), fields, gaps
        )

    def _needed(self, columns: Sequence[str]) -> pa.Schema:
        marker = () if self.delete_marker is None else (self.delete_marker[0],)
        roots = roots_of((*self.ordering_fields, *marker), self.schema.names)
        wanted = {*columns, RECORD_KEY, *roots, IS_DELETED}
        # A row merged from partial updates may lack values that the schema requires.
        return pa.schema([f.with_nullable(True) for f in self.schema if f.name in wanted])

    def _stored(self, file_slice: FileSlice, needed: pa.Schema) -> Iterator[pa.Table]:
        if file_slice.base_file is not None:
            yield from self.base_rows(file_slice.base_file, needed)

    def base_rows(
        self, base: DataFile, needed: pa.Schema, rows: IntArray | None = None
    ) -> Iterator[pa.Table]:
        """Yield the rows of a base file, or those with some ascending numbers, in chunks."""
        virtual, dropped = self.virtual_keys, self.dropped
        stored = needed if virtual is None else virtual.stored(needed)
        stored = stored if dropped is None else dropped.stored(stored)
        with BaseFileReader(self.storage, base.path, base.size_bytes) as reader:
            for chunk in reader.iter_chunks(stored.names, rows_max=_CHUNK_ROWS, rows=rows):
                held = cast_table(chunk, stored)
                if virtual is not None:
                    held = virtual.completed(held, needed, RowOrigin.of_base_file(base))
                if dropped is not None:
                    held = dropped.completed(held, needed, base.partition_path)
                yield held

    def commit_times(self, base: DataFile) -> tuple[pa.DictionaryArray, pa.Schema] | None:
        """Return the commit of each row of a base file, and the columns of the file.

        None if the file does not have a commit for each row.
        """
        if self.virtual_keys is not None:
            return None
        with BaseFileReader(
            self.storage, base.path, base.size_bytes, dictionaries=[COMMIT_TIME]
        ) as reader:
            chunks = reader.iter_chunks([COMMIT_TIME], rows_max=_CHUNK_ROWS)
            held = [pc.cast(rows[COMMIT_TIME], TEXT_DICTIONARY) for rows in chunks]
            columns = reader.schema
        times = pa.chunked_array([c for part in held for c in part.chunks], TEXT_DICTIONARY)
        whole = times.unify_dictionaries().combine_chunks()
        return None if whole.null_count else (whole, columns)

    def versions(
        self,
        file_slice: FileSlice,
        columns: Sequence[str],
        step_of: Callable[[LogBlock], int],
        share: KeyShare,
    ) -> tuple[pa.Table, RowChanges, IntArray] | None:
        """Return the versions of the rows of a slice that its log blocks made, step by step.

        Parameters
        ----------
        file_slice : FileSlice
            The slice after the last step.
        columns : sequence of str
            Names of the columns to return.
        step_of : callable
            Returns the step of a log block; 0 for blocks before the steps.
        share : KeyShare
            The keys to look at.

        Returns
        -------
        tuple or None
            As :func:`~bucketlake.merge.log_records.row_versions`; None if an earlier step has a
            later block, or the base file a key twice.
        """
        needed, fields, gaps = self._needed(columns), self.ordering_fields, self.gaps
        with telling_what_is_gone(self.storage):
            blocks = counted_blocks(self.storage, file_slice, self.timeline)
            steps = [step_of(block) for block in blocks]
            if steps != sorted(steps):
                return None
            read = [share.entries_of(self._entries(block, needed, file_slice)) for block in blocks]
            new = [entries.keys for entries, step in zip(read, steps, strict=True) if step]
            keys = pa.chunked_array(new, pa.string()).unique()
            stored = self._stored_with(keys, file_slice, needed)
        if len(stored[RECORD_KEY].unique()) < len(stored):
            return None
        read = [
            entries if step else entries.take(np.flatnonzero(_among(entries.keys, keys)))
            for entries, step in zip(read, steps, strict=True)
        ]
        records, at = merged_versions(read, steps, needed, compares=bool(fields), gaps=gaps)
        rows, changes, at = row_versions(records, at, stored, fields, gaps)
        return rows.select(list(columns)), changes, at

    def _stored_with(self, keys: pa.Array, file_slice: FileSlice, needed: pa.Schema) -> pa.Table:
        """Return the rows of a base file with some keys; the keys are read first."""
        empty, base = needed.empty_table(), file_slice.base_file
        if base is None:
            return empty
        only_key = pa.schema([needed.field(RECORD_KEY)])
        flags = [_among(rows[RECORD_KEY], keys) for rows in self.base_rows(base, only_key)]
        found = np.flatnonzero(np.concatenate([np.zeros(0, np.bool_), *flags]))
        return pa.concat_tables([empty, *self.base_rows(base, needed, found)]).combine_chunks()

    def _entries(
        self, block: LogBlock, needed: pa.Schema, file_slice: FileSlice
    ) -> IncomingRecords:
        if block.kind is BlockKind.DELETE:
            return self._deletes(block)
        virtual = self.virtual_keys
        stored = needed if virtual is None else virtual.stored(needed)
        read = decode_data_block(block, [*stored.names, OPERATION_COLUMN])
        unset = {}
        if block.is_partial:
            _require_stored_keys(block, virtual)
            lacking = [name for name in needed.names if pa.types.is_null(read[name].type)]
            unset = {name: np.ones(len(read), np.bool_) for name in lacking}
        rows = cast_table(read.drop_columns([OPERATION_COLUMN]), stored, where=block.path)
        if virtual is not None:
            rows = virtual.completed(rows, needed, RowOrigin.of_block(block, file_slice))
        deleted = delete_flags(rows, self.delete_marker) | _deleting(read[OPERATION_COLUMN])
        keys = rows[RECORD_KEY].combine_chunks()
        columns = [column_of(rows, field, ORDERING) for field in self.ordering_fields]
        ordering = tuple(comparable(column) for column in columns)
        is_reset = commit_time_deletes(deleted, rows, self.ordering_fields)
        return IncomingRecords(keys, rows, ordering, deleted, is_reset, unset=unset)

    def _deletes(self, block: LogBlock) -> IncomingRecords:
        found = decode_delete_block(block)
        keys, count = found.record_keys, len(found.record_keys)
        if self.virtual_keys is not None:
            keys = self.virtual_keys.canonical(keys)
        deleted = np.ones(count, np.bool_)
        is_reset = found.is_commit_time.to_numpy(zero_copy_only=False).copy()
        if not self.ordering_fields:
            return IncomingRecords(keys, _NO_COLUMNS, (), deleted, deleted)
        names = list(self.ordering_fields)
        stored = list(found.orderings) or [pa.nulls(count)] * len(names)
        if len(stored) != len(names):
            raise block.malformed(f"{len(names)} ordering values per delete", f"{len(stored)}")
        # Cast as for rows, so that values compare equal if their column was widened.
        wanted = pa.schema([f.with_nullable(True) for f in fields_at(self.schema, names)])
        values = cast_table(pa.table(stored, names), wanted, where=block.path)
        ordering = tuple(comparable(column) for column in values.columns)
        return IncomingRecords(keys, _NO_COLUMNS, ordering, deleted, is_reset)


@contextmanager
def opened_base(storage: Storage, base: DataFile) -> Iterator[BaseFileReader]:
    """Open a base file; if it is gone, the error tells why."""
    with (
        telling_what_is_gone(storage),
        BaseFileReader(storage, base.path, base.size_bytes) as reader,
    ):
        yield reader


def _require_stored_keys(block: LogBlock, virtual: VirtualKeys | None) -> None:
    """Raise an error for rows of some columns that may lack the columns of the key."""
    if virtual is not None:
        feature = "a partial update in a table without meta columns"
        raise UnsupportedFeatureError(feature, block.path, "read it with Hudi")


def _deleting(operations: pa.ChunkedArray) -> BoolArray:
    if pa.types.is_null(operations.type):
        return np.zeros(len(operations), np.bool_)
    return np.asarray(pc.is_in(operations, pa.array(_DELETING_OPERATIONS)).to_numpy())


def _among(keys: pa.Array | pa.ChunkedArray, wanted: pa.Array) -> BoolArray:
    return np.asarray(pc.is_in(keys, value_set=wanted).to_numpy(zero_copy_only=False))


def _passes(file_slice: FileSlice) -> Iterator[KeyShare]:
    """Yield the shares of keys of the passes over a slice with log files."""
    return iter(shares_of(file_slice.log_bytes, LOG_BYTES_PER_PASS))


# ---- Shares of the keys of file slices, so that memory holds the rows of one share at a time -----

_MIX = np.uint32(0x9E3779B1)  # Mix: keys of a bucket have equal hashes modulo the bucket count.


@dataclass(frozen=True, slots=True)
class KeyShare:
    """One of several shares of the keys, by their hash."""

    number: int = 0
    count: int = 1

    def entries_of(self, entries: IncomingRecords) -> IncomingRecords:
        """Return the log entries whose keys belong to the share."""
        return entries if self.count == 1 else entries.take(np.flatnonzero(self.has(entries.keys)))

    def rows_of(self, chunks: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Return the rows whose keys belong to the share."""
        if self.count == 1:
            return chunks
        return (
            chunk.filter(pa.array(self.has(chunk[RECORD_KEY].combine_chunks()))) for chunk in chunks
        )

    def has(self, keys: pa.Array) -> BoolArray:
        """Return which keys belong to the share."""
        if self.count == 1:
            return np.ones(len(keys), np.bool_)
        hashes = hash_index_keys(keys).view(np.uint32) * _MIX
        return np.asarray((hashes >> np.uint32(16)) % np.uint32(self.count) == self.number)


ALL_KEYS = KeyShare()


def shares_of(size_bytes: int, bytes_per_share: int) -> list[KeyShare]:
    """Return as many shares as a size needs, at least one."""
    count = max(1, -(-size_bytes // bytes_per_share))
    return [KeyShare(number, count) for number in range(count)]
