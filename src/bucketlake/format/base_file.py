"""Base files: the Parquet files of a table, written and read as Arrow columns.

A file holds the five meta columns and the table's columns, with the nullability of the table's
schema. Files are written with microseconds; timestamps, decimals and lists of other
writers can be read too (docs/spec/types.md). :mod:`bucketlake.format.parquet_layout` chooses the
encodings. The caller chooses the rows, and casts an older file to the table's schema.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bucketlake.errors import FormatError, InputError, StorageError, UnsupportedFeatureError
from bucketlake.format.key_range import key_range
from bucketlake.format.object_file import open_object
from bucketlake.format.parquet_checksums import (
    CHECKSUMS,
    CheckedFooter,
    blank_checksums,
    fill_checksums,
)
from bucketlake.format.parquet_layout import (
    ROW_GROUP_ROWS_MAX,
    SAMPLE_ROWS,
    choose_layout,
    fitting_rows,
    holds_floating,
    paths_with_nan,
    row_group_rows,
)
from bucketlake.hashing.key_filter import key_hashes, make_key_filter
from bucketlake.merge.incoming import IntArray
from bucketlake.model.arrays import (
    columns_with_null_elements,
    is_everything,
    may_hold_arrays,
    warn_of_null_elements,
)
from bucketlake.model.by_schema import by_schema
from bucketlake.model.cast import cast_table
from bucketlake.model.column_type import TIMESTAMP, stored_fields
from bucketlake.model.schema import (
    COMMIT_TIME,
    FILE_NAME,
    PARTITION_PATH,
    RECORD_KEY,
    with_meta,
    without_meta,
)
from bucketlake.model.shredded import whole_variants
from bucketlake.model.variant import VARIANT, is_shredded
from bucketlake.model.vector import bytes_type, footer_of_vectors, is_vector, with_vectors
from bucketlake.storage.base import Buffer, Storage

KEY_MIN = "hoodie_min_record_key"
KEY_MAX = "hoodie_max_record_key"
KEY_FILTER = "bucketlake.key_filter"

NAN_COLUMNS = "bucketlake.nan_columns"
"""Footer key: the floating columns with a NaN, as JSON; they have no statistics in the footer."""

CALENDAR = {"org.apache.spark.version": "3.5.0"}
"""Tells Spark that dates before 1582 are in the proleptic Gregorian calendar, as Arrow's are."""

TEXT_DICTIONARY = pa.dictionary(pa.int32(), pa.string())
"""Type of texts that stay a dictionary from one file to the next."""

_DICTIONARY_BYTES_MAX = 8 << 20  # Of a chunk; further values are written plain.
_SMALL_DICTIONARY_BYTES = 16 << 10  # Compressed.
_DICTIONARY_COLUMNS = frozenset({COMMIT_TIME, PARTITION_PATH, FILE_NAME})


def encode_base_file(
    tables: Iterable[pa.Table],
    schema: pa.Schema,
    *,
    footer: Callable[[], Mapping[str, str]] = dict,
    key_filter: bool = False,
) -> EncodedBaseFile:
    """Encode rows as a base file.

    Parameters
    ----------
    tables : iterable of pyarrow.Table
        Rows in the order of the file, meta columns first. The bytes do not depend on how the rows
        are split into tables. Texts that come as dictionaries are not looked up again.
    schema : pyarrow.Schema
        The table's columns, without meta columns.
    footer : callable
        Returns further key-values for the footer; called after all tables were read.
    key_filter : bool
        Whether the footer gets a bloom filter of the record keys, of a byte a key
        (``hashing/key_filter.py``).

    Returns
    -------
    EncodedBaseFile
        The file; equal rows in columns of equal types always give equal bytes.

    Raises
    ------
    InputError
        If a column has a value that its type cannot hold; the error names the column.

    Warns
    -----
    NullElementWarning
        If a column has a null element in an array; the warning names the column.

    Notes
    -----
    Memory holds one row group and the bytes written so far. Hudi also writes a bloom filter into
    each footer. It is left out, because it takes 431 kB per file and only Hudi's BLOOM index uses
    it, not the bucket index.
    """
    encoder = BaseFileEncoder(schema, key_filter=key_filter)
    for table in tables:
        encoder.write(table)
    return encoder.finish(footer)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedBaseFile:
    """A base file in memory.

    Attributes
    ----------
    data : memoryview
        The bytes.
    footer : pyarrow.parquet.FileMetaData
        The footer, without the further key-values; so it need not be parsed.
    schema : pyarrow.Schema
        Columns of the file without meta columns.
    """

    data: memoryview
    footer: pq.FileMetaData
    schema: pa.Schema


_FEW_ROWS = 1024


class BaseFileEncoder:
    """Encodes one base file from tables that come one after another.

    It splits rows into row groups, depending only on the rows, and writes them to memory. Its
    parameters are those of :func:`encode_base_file`.

    Attributes
    ----------
    row_count : int
        Rows so far.
    """

    def __init__(self, schema: pa.Schema, *, key_filter: bool = False) -> None:
        self.row_count = 0
        self._schema = schema
        self._columns = _file_columns(schema)
        self._footers: list[pq.FileMetaData] = []  # The writer adds the footer.
        self._sink = pa.BufferOutputStream()
        self._parquet: pq.ParquetWriter | None = None
        self._waiting = self._columns.none
        self._group_count = 0
        self._group_rows: int | None = None  # Rows of the next row group; None: not known yet.
        self._keys: list[str] = []
        self._hashes: list[npt.NDArray[np.uint32]] | None = [] if key_filter else None
        self._nan_paths: set[str] = set()  # Leaves with a NaN so far.
        self._bounded_paths: set[str] = set()  # Floating leaves with statistics.
        self._unbounded_paths: frozenset[str] = frozenset()  # Leaves that must have none.
        self._null_elements: dict[str, None] = {}

    def write(self, table: pa.Table) -> None:
        """Add rows; write the row groups that are full."""
        is_waiting = self._waiting.num_rows > 0  # An empty chunk more would cost a copy.
        if self._parquet is None and not is_waiting and table.schema != self._columns.schema:
            schema = with_dictionaries(self._columns.schema, table.schema)
            if schema is not self._columns.schema:
                self._columns = _FileColumns.of(schema)
        cast = cast_table(table, self._columns.schema)
        self.row_count += cast.num_rows
        if self._columns.arrays:
            found = columns_with_null_elements(cast.select(self._columns.arrays))
            self._null_elements.update(dict.fromkeys(found))
        self._waiting = pa.concat_tables([self._waiting, cast]) if is_waiting else cast
        while self._waiting.num_rows >= SAMPLE_ROWS:
            if self._waiting.num_rows < self._rows_of_group():
                return
            self._write_group()

    def finish(self, footer: Callable[[], Mapping[str, str]] = dict) -> EncodedBaseFile:
        """Write the remaining rows and the footer; return the file."""
        while self._waiting.num_rows or self._parquet is None:
            self._write_group()
        if self._nan_paths & self._bounded_paths:
            return self._encode_again().finish(footer)
        checksums = {CHECKSUMS: blank_checksums(self._columns.schema, self._group_count)}
        values = {**CALENDAR, **self._key_values(), **footer_of_vectors(self._schema)}
        values |= {**footer(), **checksums}
        self._parquet.add_key_value_metadata(values)
        self._parquet.close()
        warn_of_null_elements(self._null_elements, "base file")
        (written,) = self._footers
        data = memoryview(self._sink.getvalue()).cast("B")
        fill_checksums(data, written)
        return EncodedBaseFile(data, written, self._schema)

    def _encode_again(self) -> BaseFileEncoder:
        """Encode the rows again, without statistics of columns that have a NaN.

        Statistics leave NaN out, but in Spark NaN is greater than every number: its readers would
        skip row groups with matching rows. Whether a column has a NaN is known only at its end.
        """
        assert self._parquet is not None
        self._parquet.close()
        again = BaseFileEncoder(self._schema, key_filter=self._hashes is not None)
        again._unbounded_paths = frozenset(self._nan_paths)
        with pq.ParquetFile(pa.BufferReader(self._sink.getvalue())) as written:
            for group in range(written.num_row_groups):
                again.write(written.read_row_group(group))
        return again

    def _rows_of_group(self) -> int:
        if self._waiting.num_rows <= _FEW_ROWS:  # ``fitting_rows`` bounds their bytes.
            return _FEW_ROWS
        if self._group_rows is None:
            self._group_rows = row_group_rows(self._waiting.slice(0, SAMPLE_ROWS))
        return self._group_rows

    def _write_group(self) -> None:
        # One chunk per column, because the ends of chunks would change the pages.
        rows, group = self._rows_of_group(), self._waiting
        group = (group.slice(0, rows) if group.num_rows > rows else group).combine_chunks()
        if (rows := fitting_rows(group)) < group.num_rows:
            group = group.slice(0, rows)
        is_last = group.num_rows == self._waiting.num_rows
        self._waiting = self._columns.none if is_last else self._waiting.slice(rows)
        group = _in_order_of_appearance(group, self._columns.coded)
        self._group_rows = None
        if self._parquet is None:
            self._parquet = self._open(group)
        if group.num_rows:
            self._parquet.write_table(group, row_group_size=group.num_rows)
            self._group_count += 1
            keys = group[RECORD_KEY].chunk(0)
            self._keys += key_range(keys) or ()
            if self._hashes is not None:
                self._hashes.append(key_hashes(keys))
            if self._columns.floating:
                self._nan_paths.update(paths_with_nan(group.select(self._columns.floating)))

    def _open(self, group: pa.Table) -> pq.ParquetWriter:
        layout = choose_layout(group, self._unbounded_paths)
        self._bounded_paths = {*layout.floating} & {*layout.statistics}
        return pq.ParquetWriter(
            self._sink,
            self._columns.schema,
            version="2.6",
            compression=layout.compression,
            compression_level=layout.compression_level,
            use_dictionary=list(layout.dictionary),
            dictionary_pagesize_limit=_DICTIONARY_BYTES_MAX,
            column_encoding=layout.encodings,
            write_statistics=list(layout.statistics),
            write_batch_size=layout.write_batch_size,
            write_page_checksum=True,  # For other readers; this one has the chunks' checksums.
            store_schema=False,
            metadata_collector=self._footers,
        )

    def _key_values(self) -> dict[str, str]:
        values = {}
        if self._columns.floating:
            values[NAN_COLUMNS] = json.dumps(sorted(self._nan_paths))
        if not self._keys:
            return values
        is_one = len(self._keys) == 2  # A row group has told the range.
        found = self._keys if is_one else key_range(pa.array(self._keys, pa.string()))
        values |= dict(zip((KEY_MIN, KEY_MAX), found or (), strict=True))
        if self._hashes is not None:
            made = make_key_filter(np.concatenate(self._hashes))
            values[KEY_FILTER] = base64.b64encode(made).decode()
        return values


def with_dictionaries(schema: pa.Schema, given: pa.Schema) -> pa.Schema:
    """Return a schema of rows with the dictionaries that some rows have for its texts."""
    for name, data_type in zip(given.names, given.types, strict=True):
        at = schema.get_field_index(name) if data_type == TEXT_DICTIONARY else -1
        if at >= 0 and schema.field(at).type == pa.string():
            schema = schema.set(at, schema.field(at).with_type(TEXT_DICTIONARY))
    return schema


def _in_order_of_appearance(rows: pa.Table, columns: Iterable[str]) -> pa.Table:
    """Return rows whose dictionaries have the values that occur, in the order of the rows.

    So the bytes do not depend on the order in which incoming records arrived, and a value that no
    row has any more leaves the file.
    """
    for name in columns if len(rows) else ():
        held = rows[name].chunk(0)
        found = held.indices.unique().drop_null()
        if not is_everything(found.to_numpy(), len(held.dictionary)):
            places = np.zeros(max(len(held.dictionary), 1), np.int32)
            places[found] = np.arange(len(found))
            indices = pa.array(places).take(held.indices)
            ordered = pa.DictionaryArray.from_arrays(indices, held.dictionary.take(found))
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, rows.schema.field(at), ordered)
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class _FileColumns:
    """The columns of a file, and what is known of them before the rows.

    Attributes
    ----------
    schema : pa.Schema
        The columns.
    none : pa.Table
        No rows.
    floating, arrays, coded : list of str
        Columns that hold floating values or arrays, and those of the table with a dictionary.
    """

    schema: pa.Schema
    none: pa.Table
    floating: list[str]
    arrays: list[str]
    coded: list[str]

    @classmethod
    def of(cls, schema: pa.Schema) -> Self:
        floating = [field.name for field in schema if holds_floating(field.type)]
        arrays = [field.name for field in schema if may_hold_arrays(field.type)]
        coded = {field.name for field in schema if field.type == TEXT_DICTIONARY}
        none = schema.empty_table()
        return cls(schema, none, floating, arrays, sorted(coded - _DICTIONARY_COLUMNS))


@by_schema
def _file_columns(schema: pa.Schema) -> _FileColumns:
    # Required columns stay required. If a column is nullable only in the file, Hudi rewrites each
    # record that it reads, and fails if two decimals in arrays or maps differ in size.
    fields = [
        field.with_type(TEXT_DICTIONARY if field.name in _DICTIONARY_COLUMNS else file_type)
        for field in with_meta(schema)
        for file_type in [bytes_type(field.type) if is_vector(field.type) else field.type]
    ]
    return _FileColumns.of(pa.schema([field.remove_metadata() for field in fields]))


_UNSHREDDED = (
    "have its writer store variants whole (hoodie.parquet.variant.write.shredding.enabled=false), "
    "and write its rows again"
)


class BaseFileReader:
    """An open base file; a context manager.

    Parameters
    ----------
    storage : Storage
        Storage of the file. Local files are mapped, small remote files are read whole, others by
        ranges.
    path : str
        Path of the file, relative to the table.
    dictionaries : collection of str
        Columns of texts that are read as dictionaries if the file has a small one: copying
        texts of a large dictionary is cheaper than combining two large dictionaries.

    Raises
    ------
    ObjectNotFoundError
        If there is no such file.
    FormatError
        If the file is no Parquet file; raised here or when it is read.

    Attributes
    ----------
    size_bytes, row_count : int
        Size and number of rows of the file.
    key_values : mapping of str to str
        Key-values of the footer.
    schema : pyarrow.Schema
        Columns of the file without meta columns, in stored types and all nullable. INT96 values
        are timestamps with a time zone, as in Spark; two-level lists are lists. A column of
        another type is missing; a read that asks for it raises InputError.
    footer : pyarrow.parquet.FileMetaData
        The footer, with the statistics of the columns.
    """

    def __init__(
        self,
        storage: Storage,
        path: str,
        size_bytes: int | None = None,
        *,
        dictionaries: Collection[str] = (),
    ) -> None:
        self._open(open_object(storage, path, size_bytes), path, dictionaries)

    @classmethod
    def of_bytes(cls, content: Buffer, path: str) -> Self:
        """Open a Parquet file that is a part of another file; ``path`` is for messages."""
        reader = cls.__new__(cls)
        reader._open(pa.BufferReader(content), path)
        return reader

    def _open(self, source: pa.NativeFile, path: str, dictionaries: Collection[str] = ()) -> None:
        self._path, self._source = path, source
        try:
            self._footer = CheckedFooter(source)
            # A chunk that is fetched by ranges would have to be fetched twice.
            self._checks_chunks = self._footer.has_checksums and not isinstance(
                source, pa.PythonFile
            )
            self._in_dictionary = {*_small_dictionaries(self._footer.metadata, dictionaries)}
            self._file = pq.ParquetFile(
                self._source,
                metadata=self._footer.metadata,
                read_dictionary=self._in_dictionary,
                page_checksum_verification=not self._checks_chunks,
                coerce_int96_timestamp_unit="us",
                pre_buffer=not isinstance(self._source, pa.MemoryMappedFile),
            )
            told = self._footer.metadata.metadata or {}
            self.key_values: Mapping[str, str] = {
                key.decode(errors="replace"): value.decode(errors="replace")
                for key, value in told.items()
            }
            fields = [*with_vectors([*with_int96_zones(self._file)], self.key_values)]
        except Exception as error:  # For broken bytes, Arrow may raise any exception.
            raise self._unreadable(error) from error
        self._refused: dict[str, InputError | UnsupportedFeatureError] = {}
        self._shredded: set[str] = set()
        stored = []
        for field in fields:
            if is_shredded(field.type):
                where = f"base file {path}, column {field.name}"
                try:
                    whole_variants(pa.array([], field.type))
                except pa.ArrowNotImplementedError as error:
                    refused = UnsupportedFeatureError(str(error), where, _UNSHREDDED)
                    self._refused[field.name] = refused
                    continue
                self._shredded.add(field.name)
                field = field.with_type(VARIANT)
            try:
                stored += stored_fields([field], "", f"base file {path}")
            except InputError as error:  # The other columns can be read.
                self._refused[field.name] = error
        self._stored = pa.schema(stored)
        self.size_bytes: int = self._source.size()
        self.row_count: int = self._file.metadata.num_rows
        self.schema = without_meta(self._stored)
        self.footer: pq.FileMetaData = self._file.metadata

    @property
    def key_range(self) -> tuple[str, str] | None:
        """Smallest and largest record key; None if the footer does not tell them."""
        values = self.key_values
        return (values[KEY_MIN], values[KEY_MAX]) if KEY_MIN in values else None

    @property
    def key_filter(self) -> bytes | None:
        """A bloom filter of the record keys (``hashing/key_filter.py``); None if there is none.

        Raises FormatError if the footer has another text in its place.
        """
        try:
            return base64.b64decode(self.key_values.get(KEY_FILTER, ""), validate=True) or None
        except binascii.Error as error:
            wanted = f"base64 text in {KEY_FILTER}"
            raise FormatError(self._path, wanted, str(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()
        self._source.close()

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of the file; see :meth:`iter_chunks`."""
        chunks = list(self.iter_chunks(columns, rows_max=ROW_GROUP_ROWS_MAX))
        return pa.concat_tables(chunks) if chunks else self._selected(columns).empty_table()

    def iter_chunks(
        self,
        columns: Sequence[str] | None = None,
        *,
        rows_max: int,
        rows: IntArray | None = None,
    ) -> Iterator[pa.Table]:
        """Yield the rows of the file in order, in bounded memory.

        Parameters
        ----------
        columns : sequence of str, optional
            Columns, including meta columns, in the wanted order. Columns that the file lacks have
            Arrow's null type; ``cast_table`` fills them. None: all columns, meta columns first.
        rows_max : int
            Rows of a chunk; a chunk also ends with its row group.
        rows : ndarray of int64, optional
            Ascending numbers of the wanted rows; row groups without one are not read. None: all.

        Yields
        ------
        pyarrow.Table
            Columns in stored types.
        """
        selected = self._selected(columns)
        known = frozenset(self._stored.names)
        held = [name for name in selected.names if name in known]
        first = 0
        for group in range(self._file.num_row_groups):
            first, begin = first + self.footer.row_group(group).num_rows, first
            wanted = None if rows is None else _between(rows, begin, first)
            if wanted is not None and len(wanted) == 0:
                continue
            self._check_chunks(group, held)
            batches = self._file.iter_batches(
                rows_max, row_groups=[group], columns=held, use_threads=False
            )
            # No name here keeps a batch while its rows are used.
            chunks = map(partial(self._cast, selected), iter(partial(self._next, batches), None))
            yield from chunks if wanted is None else _chosen_rows(chunks, wanted)

    def _cast(self, selected: pa.Schema, batch: pa.RecordBatch) -> pa.Table:
        rows = pa.Table.from_batches([batch])
        for name in self._shredded.intersection(rows.column_names):
            try:
                whole = whole_variants(batch.column(name))
            except pa.ArrowInvalid as error:
                wanted = f"a column {name} of shredded variants"
                raise FormatError(self._path, wanted, str(error)) from error
            rows = rows.set_column(rows.schema.get_field_index(name), name, whole)
        return cast_table(rows, selected, where=f"base file {self._path}")

    def _selected(self, columns: Sequence[str] | None) -> pa.Schema:
        names = [*self._stored.names, *self._refused] if columns is None else columns
        for name in names:
            if name in self._refused:
                raise self._refused[name]
        held = set(self._stored.names)
        fields = [self._stored.field(n) if n in held else pa.field(n, pa.null()) for n in names]
        return pa.schema(
            [f.with_type(TEXT_DICTIONARY) if f.name in self._in_dictionary else f for f in fields]
        )

    def _check_chunks(self, group: int, columns: Sequence[str]) -> None:
        if self._checks_chunks:
            try:
                self._footer.check_chunks(group, columns)
            except ValueError as error:
                raise self._unreadable(error) from error

    def _next(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        try:
            return next(batches, None)
        except StorageError:
            raise
        except Exception as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> FormatError:
        return FormatError(self._path, "a Parquet base file", str(error))


def _between(rows: IntArray, begin: int, end: int) -> IntArray:
    """Return the rows of a range, counted from its begin."""
    low, high = np.searchsorted(rows, (begin, end))
    return rows[low:high] - begin


def _chosen_rows(chunks: Iterator[pa.Table], rows: IntArray) -> Iterator[pa.Table]:
    begin = 0
    for chunk in chunks:
        wanted = _between(rows, begin, begin + chunk.num_rows)
        begin += chunk.num_rows
        if len(wanted):
            yield chunk.take(pa.array(wanted))


def _small_dictionaries(footer: pq.FileMetaData, names: Collection[str]) -> Iterator[str]:
    """Yield those of some columns that are texts with a small dictionary in every row group."""
    groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
    for leaf in range(footer.num_columns):
        column = footer.schema.column(leaf)
        if column.path in names and column.logical_type.type == "STRING":
            held = (group.column(leaf) for group in groups)
            if all(0 < _dictionary_bytes(chunk) <= _SMALL_DICTIONARY_BYTES for chunk in held):
                yield column.path


def _dictionary_bytes(chunk: pq.ColumnChunkMetaData) -> int:
    if not chunk.has_dictionary_page:
        return 0
    return int(chunk.data_page_offset - chunk.dictionary_page_offset)


def with_int96_zones(file: pq.ParquetFile) -> pa.Schema:
    """Return a file's schema with INT96 columns as timestamps with a time zone, as in Spark."""
    leaves = (file.schema.column(i).physical_type == "INT96" for i in range(len(file.schema.names)))
    fields = [field.with_type(_zoned(field.type, leaves)) for field in file.schema_arrow]
    return pa.schema(fields)


def _zoned(data_type: pa.DataType, is_int96: Iterator[bool]) -> pa.DataType:
    """Rebuild a type with one flag for each of its leaves, in order."""
    if data_type.num_fields == 0:
        return TIMESTAMP if next(is_int96) else data_type
    fields = [data_type.field(i) for i in range(data_type.num_fields)]
    if pa.types.is_map(data_type):
        entry = _zoned(fields[0].type, is_int96)
        return pa.map_(entry.field(0), entry.field(1))
    inner = [field.with_type(_zoned(field.type, is_int96)) for field in fields]
    return pa.list_(inner[0]) if pa.types.is_list(data_type) else pa.struct(inner)
