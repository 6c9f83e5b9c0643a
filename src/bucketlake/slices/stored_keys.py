"""Reads the keys of stored file groups.

A layout uses this reader if a slot has several file groups (``Layout.choose``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import FormatError, InputError
from bucketlake.format.base_file import BaseFileReader
from bucketlake.format.log_block import BlockKind, LogBlock
from bucketlake.format.log_data import decode_data_block
from bucketlake.format.log_deletes import decode_delete_block
from bucketlake.model.arrays import one_array
from bucketlake.model.cast import cast_table
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.keys import KeySpec, key_columns, record_keys
from bucketlake.model.schema import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    FILE_NAME,
    META_NAMES,
    PARTITION_PATH,
    RECORD_KEY,
)
from bucketlake.slices.file_system_view import counted_blocks
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline

_ROWS_AT_ONCE = 131_072


@dataclass(frozen=True, slots=True)
class StoredKeyReader:
    """Reads the keys of file groups of one table; a small picklable value.

    Attributes
    ----------
    storage : Storage
        The table's storage.
    timeline : Timeline or None
        Tells which log blocks are committed; None if the layout does not look up keys.
    virtual_keys : VirtualKeys or None
        How keys are made in a table without meta columns; None for other tables.
    """

    storage: Storage
    timeline: Timeline | None
    virtual_keys: VirtualKeys | None = None

    @contextmanager
    def open_base(
        self, file_slice: FileSlice
    ) -> Iterator[tuple[BaseFileReader | None, Iterator[pa.Array]]]:
        """Open the slice's base file, if it has one; give it, and an iterator of its keys.

        Entering reads the footer only; the keys are read while they are iterated, until the exit.
        """
        base = file_slice.base_file
        if base is None:
            yield None, iter(())
            return
        with BaseFileReader(self.storage, base.path, base.size_bytes) as reader:
            yield reader, self._keys(reader, base.path)

    def log_keys(self, file_slice: FileSlice) -> Iterator[pa.Array]:
        """Yield the keys in the log files, including those of deletes."""
        assert self.timeline is not None, "only layouts that look keys up read logs"
        for block in counted_blocks(self.storage, file_slice, self.timeline):
            if block.kind is BlockKind.DELETE:
                keys = decode_delete_block(block).record_keys
                yield keys if self.virtual_keys is None else self.virtual_keys.canonical(keys)
            else:
                yield self._keys_of(decode_data_block(block, self._columns), block.path)

    def _keys(self, reader: BaseFileReader, path: str) -> Iterator[pa.Array]:
        for chunk in reader.iter_chunks(self._columns, rows_max=_ROWS_AT_ONCE):
            yield self._keys_of(chunk, path)

    @property
    def _columns(self) -> list[str]:
        return [RECORD_KEY] if self.virtual_keys is None else self.virtual_keys.columns.names

    def _keys_of(self, rows: pa.Table, path: str) -> pa.Array:
        if self.virtual_keys is None:
            return rows[RECORD_KEY].combine_chunks()
        return self.virtual_keys.keys_of(rows, path)


# ---- The meta values of rows in a table without meta columns
# (``hoodie.populate.meta.fields=false``) ----
#
# Hudi calls the keys of such a table virtual. Its files may have the meta columns all the same:
# Hudi leaves them null or empty, and a file name may be the name of an older file. So they are
# never read. The record key is made from the key columns, as the writer made it. The partition path
# is that of the file. The commit is known for the rows of a log block, not for those of a base
# file. Only bucketlake itself uses these values; a query of such a table has no meta columns, as in
# Hudi.


@dataclass(frozen=True, slots=True)
class RowOrigin:
    """The place of stored rows.

    Attributes
    ----------
    path : str
        The file, for messages.
    partition_path : str
        Partition of the file.
    file_name : str
        Name of the base file, or the file id for rows of a log file, as in the meta column.
    instant : InstantTime or None
        The commit that wrote all the rows; None for a base file, whose rows several commits wrote.
    """

    path: str
    partition_path: str
    file_name: str
    instant: InstantTime | None

    @classmethod
    def of_base_file(cls, file: DataFile) -> Self:
        """Return the place of a base file's rows."""
        return cls(file.path, file.partition_path, file.name.to_file_name(), None)

    @classmethod
    def of_block(cls, block: LogBlock, file_slice: FileSlice) -> Self:
        """Return the place of the rows of a block in one of a slice's log files."""
        return cls(block.path, file_slice.partition_path, file_slice.file_id, block.instant)


@dataclass(frozen=True, slots=True)
class VirtualKeys:
    """How the meta values of rows are made; a small picklable value.

    Attributes
    ----------
    spec : KeySpec
        How the table makes record keys.
    columns : pa.Schema
        The columns of the record key, in the table's types.
    may_be_bare : bool
        Whether deletes may spell the key ``v`` instead of ``f:v``, see
        ``TableConfig.may_have_bare_keys``.
    """

    spec: KeySpec
    columns: pa.Schema
    may_be_bare: bool

    @classmethod
    def of_table(cls, config: TableConfig, schema: pa.Schema) -> Self:
        """Return how keys are made from columns of a table."""
        spec = config.key_spec
        held = frozenset(schema.names)
        columns = [schema.field(n) for n in key_columns(spec, schema) if n in held]
        is_single = len(spec.record_key_fields) == 1 and spec.has_composite_keys
        return cls(
            spec,
            # A row that lacks a key column is a row without a key, which has an error of its own.
            pa.schema([field.with_nullable(True) for field in columns]),
            config.may_have_bare_keys and is_single,
        )

    def stored(self, wanted: pa.Schema) -> pa.Schema:
        """Return the columns to read from a file, to make the wanted columns."""
        read = [field for field in wanted if field.name not in META_NAMES]
        names = frozenset(wanted.names)
        if RECORD_KEY in names:
            read += [field for field in self.columns if field.name not in names]
        return pa.schema(read)

    def completed(self, rows: pa.Table, wanted: pa.Schema, origin: RowOrigin) -> pa.Table:
        """Return the wanted columns of rows; the meta columns among them are made.

        Parameters
        ----------
        rows : pa.Table
            Rows with the columns of :meth:`stored`.
        wanted : pa.Schema
            Columns to return, in their order.
        origin : RowOrigin
            Where the rows were read.

        Raises
        ------
        FormatError
            If a row has no record key.
        """
        columns = [
            self._made(field.name, rows, origin) if field.name in META_NAMES else rows[field.name]
            for field in wanted
        ]
        return pa.Table.from_arrays(columns, schema=wanted)

    def keys_of(self, rows: pa.Table, path: str) -> pa.Array:
        """Return the record keys of stored rows, which have at least the key columns.

        Raises
        ------
        FormatError
            If a row has no record key, or a key column has a value that no key can have.
        """
        held = cast_table(rows.select(self.columns.names), self.columns, where=path)
        try:
            keys = record_keys(held, self.spec)
        except InputError as error:
            raise FormatError(
                path, "rows with a record key", f"{error.where}: {error.problem}"
            ) from error
        return one_array(keys)

    def canonical(self, keys: pa.Array) -> pa.Array:
        """Return keys that a writer stored, spelled as :meth:`keys_of` spells them."""
        if not self.may_be_bare:
            return keys
        prefix = f"{self.spec.record_key_fields[0]}:"
        with_name = pc.binary_join_element_wise(prefix, keys, "")
        return pc.if_else(pc.starts_with(keys, prefix), keys, with_name)

    def spellings(self, keys: pa.Array | pa.ChunkedArray) -> list[pa.Array | pa.ChunkedArray]:
        """Return keys in each spelling that the table's writer may have hashed.

        Parameters
        ----------
        keys : Array or ChunkedArray of string
            Keys as :meth:`keys_of` spells them.
        """
        if not self.may_be_bare:
            return [keys]
        start = len(f"{self.spec.record_key_fields[0]}:")
        return [keys, pc.utf8_slice_codeunits(keys, start)]

    def _made(self, name: str, rows: pa.Table, origin: RowOrigin) -> pa.Array:
        if name == RECORD_KEY:
            return self.keys_of(rows, origin.path)
        told = {
            COMMIT_TIME: origin.instant,
            COMMIT_SEQNO: None,
            PARTITION_PATH: origin.partition_path,
            FILE_NAME: origin.file_name,
        }
        return pa.repeat(pa.scalar(told[name], pa.string()), rows.num_rows)
