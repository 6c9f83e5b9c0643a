"""Reads entries of the metadata table: all of a slice, or those of some keys.

A slice is a stack of layers: the base file, then the blocks of the log files. A delete block
removes entries of the layers below it. What remains may hold a key several times; the kind of the
partition decides what newer entries mean for older entries. A lookup reads only the needed blocks
of base files. Log files are read whole, since they are small until the next compaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import (
    CommitConflictError,
    FormatError,
    ObjectNotFoundError,
    UnsupportedFeatureError,
)
from bucketlake.format.hfile.reader import Entries, HFileReader
from bucketlake.format.log_block import BlockKind, HeaderKey, LogBlock, read_log_blocks
from bucketlake.format.log_data import open_hfile_block
from bucketlake.format.log_deletes import decode_delete_block
from bucketlake.format.log_order import blocks_to_merge
from bucketlake.format.metadata_record.record_schema import resolver
from bucketlake.hashing.key_filter import shards_of_keys
from bucketlake.merge.incoming import key_order
from bucketlake.metadata.metadata_table import MetadataTable
from bucketlake.metadata.record_index.shards import rows_by_number
from bucketlake.model.file_name import BaseFileName
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.storage.base import at_once

LayerNumbers: TypeAlias = npt.NDArray[np.int32]

_NO_BYTES = pa.nulls(0, pa.binary())


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """Which entries a read returns; without keys, all.

    Parameters
    ----------
    keys : pyarrow.BinaryArray, optional
        Keys, ascending by bytes.
    """

    keys: pa.BinaryArray | None = None

    @classmethod
    def of_keys(cls, keys: pa.Array) -> Self:
        """Return the wish for the entries of text keys, in any order."""
        return cls(keys.take(pa.array(key_order(keys))).cast(pa.binary()))

    def of_hfile(self, reader: HFileReader) -> Entries:
        """Return the wanted entries of an HFile."""
        if self.keys is not None:
            return reader.lookup(self.keys)
        return reader.read()

    def among(self, keys: pa.BinaryArray) -> pa.BinaryArray:
        """Return the wanted keys among some keys."""
        if self.keys is not None:
            return keys.filter(pc.is_in(keys, value_set=self.keys))
        return keys


EVERYTHING = Wanted()


@dataclass(frozen=True, slots=True, eq=False)
class SliceEntries:
    """Entries of a slice that no later delete block removed, oldest first.

    Parameters
    ----------
    keys, values : pyarrow.BinaryArray
        The entries; a key occurs once in each layer that has it.
    layers : ndarray of int32, shape (n_entries,)
        The layer of each entry, ascending. Layers count from 0, the base file or first log block.
    where : str
        The file group, for messages.
    """

    keys: pa.BinaryArray
    values: pa.BinaryArray
    layers: LayerNumbers
    where: str

    def take(self, rows: npt.NDArray[np.int64]) -> SliceEntries:
        """Return some entries."""
        at = pa.array(rows)
        return SliceEntries(self.keys.take(at), self.values.take(at), self.layers[rows], self.where)

    def newest(self) -> Entries:
        """Return the newest entry of each key, where newer entries replace older entries."""
        if len(self.layers) == 0 or self.layers[0] == self.layers[-1]:
            return Entries(self.keys, self.values)
        codes = _codes(self.keys)
        last = np.empty(int(codes.max()) + 1, np.int64)
        last[codes] = np.arange(len(codes))  # The last assignment of a code wins.
        rows = pa.array(last)
        return Entries(self.keys.take(rows), self.values.take(rows))


@dataclass(frozen=True, slots=True, eq=False)
class LogChanges:
    """What the log files of a slice change in its base file.

    Parameters
    ----------
    entries : SliceEntries
        Entries of the log files.
    removed : pyarrow.BinaryArray
        Keys whose entries in the base file are removed, each once. The log files may have newer
        entries of these keys.
    reaches_back : bool
        Whether a block changes the meaning of blocks in earlier log files: a rollback, or a log
        compaction. Then the changes of some log files cannot be applied after those of earlier
        log files.
    """

    entries: SliceEntries
    removed: pa.BinaryArray
    reaches_back: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """Wanted entries of a base file or block; deleted keys have no values."""

    block: LogBlock | None
    keys: pa.BinaryArray
    values: pa.BinaryArray | None


def read_slices(
    table: MetadataTable, asked: Iterable[tuple[FileSlice, Wanted]]
) -> list[SliceEntries]:
    """Read slices, all their files at once as far as the storage allows.

    Parameters
    ----------
    table : MetadataTable
        The table of the slices.
    asked : iterable of (FileSlice, Wanted)
        Slices, and which of their entries are wanted.

    Returns
    -------
    list of SliceEntries
        In the order of the slices.

    Raises
    ------
    CommitConflictError
        If a file was deleted after the slices were listed.
    FormatError
        If a file is damaged; the error names file and byte.
    UnsupportedFeatureError
        If records have fields of a newer release, or a log block another kind.
    """
    wishes = list(asked)
    files = [(found, wanted) for held, wanted in wishes for found in held.files]
    layers = iter(at_once(table.storage, lambda pair: _read_file(table, *pair), files))
    stacks = [[layer for _ in held.files for layer in next(layers)] for held, _ in wishes]
    return [
        _surviving(_ordered(stack), _where(table, held))
        for stack, (held, _) in zip(stacks, wishes, strict=True)
    ]


def read_log_changes(table: MetadataTable, held: FileSlice) -> LogChanges:
    """Read the log files of a slice; same errors as :func:`read_slices`."""
    files = at_once(table.storage, lambda file: _read_file(table, file, EVERYTHING), held.log_files)
    found = [layer for file in files for layer in file]
    layers = _ordered(found)
    removed = _joined([layer.keys for layer in layers if layer.values is None])
    reaches_back = any(layer.block is not None and _reaches_back(layer.block) for layer in found)
    return LogChanges(_surviving(layers, _where(table, held)), pc.unique(removed), reaches_back)


def read_all(table: MetadataTable, partition: str) -> list[SliceEntries]:
    """Read all entries of a partition, by shard; see :func:`read_slices`."""
    return read_slices(table, ((held, EVERYTHING) for held in table.slices(partition)))


def read_keys(table: MetadataTable, partition: str, keys: pa.Array) -> list[SliceEntries]:
    """Look up keys.

    Parameters
    ----------
    table : MetadataTable
    partition : str
        The partition of the metadata table; not a partitioned record-level index.
    keys : pyarrow.Array of string
        Keys, in any order.

    Returns
    -------
    list of SliceEntries
        For each shard that has some of the keys.
    """
    return read_slices(table, wanted_of_shards(table.shards(partition).get(None, []), keys))


def wanted_of_shards(shards: Sequence[FileSlice], keys: pa.Array) -> list[tuple[FileSlice, Wanted]]:
    """Return the shards that can have entries of text keys, each with its keys."""
    if not shards or len(keys) == 0:
        return []
    if len(shards) == 1:
        return [(shards[0], Wanted.of_keys(keys))]
    by_shard = rows_by_number(shards_of_keys(keys, len(shards)))
    return [(shards[n], Wanted.of_keys(keys.take(pa.array(rows)))) for n, rows in by_shard]


def _read_file(table: MetadataTable, file: DataFile, wanted: Wanted) -> list[_Layer]:
    path = table.path_of(file)
    try:
        if isinstance(file.name, BaseFileName):
            entries = wanted.of_hfile(_open_base(table, path, file.size_bytes))
            return [_Layer(None, entries.keys, entries.values)]
        blocks = read_log_blocks(table.storage.outer, path, file.size_bytes)
        return list(_layers_of(table, blocks, wanted))
    except ObjectNotFoundError as error:
        raise _deleted(file, path) from error


def open_whole_base_file(table: MetadataTable, file: DataFile) -> HFileReader:
    """Open a base file to read most of it: with one request, unless it is local and is mapped.

    The errors are those of :func:`read_slices`.
    """
    path, storage = table.path_of(file), table.storage.outer
    try:
        if storage.local_path(path) is not None:
            return _open_base(table, path, file.size_bytes)
        return _in_known_schema(HFileReader.of_bytes(storage.read(path), path), path)
    except ObjectNotFoundError as error:
        raise _deleted(file, path) from error


def _open_base(table: MetadataTable, path: str, size_bytes: int) -> HFileReader:
    return _in_known_schema(HFileReader.open(table.storage.outer, path, size_bytes), path)


def _in_known_schema(
    reader: HFileReader, path: str, schema: bytes | str | None = None
) -> HFileReader:
    """Return a reader whose values have the schema of today, whatever the writer's schema is."""
    text = reader.info.get("schema", b"") if schema is None else schema
    try:
        convert = resolver(text if isinstance(text, str) else text.decode(), path)
    except UnicodeDecodeError as error:
        raise FormatError(path, "an Avro schema in UTF-8", str(error)) from error
    return reader if convert is None else reader.converting(convert)


def _deleted(file: DataFile, path: str) -> CommitConflictError:
    return CommitConflictError(
        file.name.instant,
        f"its file {path} of the metadata table was deleted since the table was pinned (by a "
        "clean or a rollback); read or write again",
    )


def _layers_of(
    table: MetadataTable, blocks: Iterator[LogBlock], wanted: Wanted
) -> Iterator[_Layer]:
    for block in blocks:
        # The content is not kept: only the headers are needed to order the blocks.
        bare = replace(block, content=memoryview(b""))
        if block.kind is BlockKind.COMMAND:
            yield _Layer(bare, _NO_BYTES, None)
        elif not table.counts(block.instant):
            continue
        elif block.kind is BlockKind.HFILE_DATA:
            schema = block.headers.get(HeaderKey.SCHEMA, "")
            reader = _in_known_schema(open_hfile_block(block), block.path, schema)
            entries = wanted.of_hfile(reader)
            yield _Layer(bare, entries.keys, entries.values)
        elif block.kind is BlockKind.DELETE:
            keys = decode_delete_block(block).record_keys.cast(pa.binary())
            yield _Layer(bare, wanted.among(keys), None)
        else:
            where = f"{block.path} at byte {block.offset_bytes}"
            feature = f"a log block of kind {block.kind.name} in the metadata table"
            raise UnsupportedFeatureError(feature, where, "read it with Hudi")


def _ordered(layers: Sequence[_Layer]) -> list[_Layer]:
    """Return the base file, and then the log blocks that are merged, in their order."""
    bases = [layer for layer in layers if layer.block is None]
    by_block = {id(layer.block): layer for layer in layers if layer.block is not None}
    blocks = [layer.block for layer in layers if layer.block is not None]
    return bases + [by_block[id(block)] for block in blocks_to_merge(blocks)]


def _reaches_back(block: LogBlock) -> bool:
    is_command = block.kind is BlockKind.COMMAND
    return is_command or HeaderKey.COMPACTED_BLOCK_TIMES in block.headers


def _where(table: MetadataTable, held: FileSlice) -> str:
    partition = held.files[0].partition_path
    return f"{table.storage.folder}/{partition}/{held.file_id}"


def _surviving(layers: Sequence[_Layer], where: str) -> SliceEntries:
    numbers = [n for n, layer in enumerate(layers) if layer.values is not None]
    keys = _joined([layers[n].keys for n in numbers])
    values = _joined([layers[n].values for n in numbers])
    counts = [len(layers[n].keys) for n in numbers]
    entries = SliceEntries(keys, values, np.repeat(np.array(numbers, np.int32), counts), where)
    deletes = [(n, layer.keys) for n, layer in enumerate(layers) if layer.values is None]
    deleted = _joined([gone for _, gone in deletes])
    if len(deleted) == 0:
        return entries
    codes = _codes(_joined([keys, deleted]))
    last = np.full(int(codes.max()) + 1, -1, np.int32)
    at = np.repeat(np.array([n for n, _ in deletes], np.int32), [len(gone) for _, gone in deletes])
    last[codes[len(keys) :]] = at  # Ascending, and the last assignment of a code wins.
    survives = entries.layers > last[codes[: len(keys)]]
    mask = pa.array(survives)
    return SliceEntries(keys.filter(mask), values.filter(mask), entries.layers[survives], where)


def _joined(arrays: Sequence[pa.BinaryArray]) -> pa.BinaryArray:
    """Concatenate arrays; a large array beside empty ones is not copied."""
    filled = [array for array in arrays if len(array)]
    return filled[0] if len(filled) == 1 else pa.concat_arrays(filled or [_NO_BYTES])


def _codes(keys: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """Return equal numbers for equal keys."""
    codes: npt.NDArray[np.int32] = keys.dictionary_encode().indices.to_numpy()
    return codes
