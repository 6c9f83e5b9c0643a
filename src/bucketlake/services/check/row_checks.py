"""Checks that read rows: all files can be decoded, and each key is once in its bucket.

The checks hold the keys of one partition, or a part of one file, in memory; all keys, if keys are
unique in the whole table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import FormatError, InputError, ObjectNotFoundError
from bucketlake.format.base_file import BaseFileReader
from bucketlake.index.layout import Layout
from bucketlake.model.cast import cast_table
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.grouping import grouped
from bucketlake.model.keys import key_columns, keys_or_null
from bucketlake.model.schema import RECORD_KEY
from bucketlake.read.slice_reader import SliceReader
from bucketlake.services.check.examination import Examination
from bucketlake.services.check.findings import Finding, FindingKind
from bucketlake.services.check.metadata_checks import IndexEntries


def check_files(table: Examination) -> Iterator[Finding]:
    """Read all rows of the live slices; find files that are corrupt or do not fit the schema."""
    if not table.slices:
        return
    reader = SliceReader.of_snapshot(table.snapshot)
    for file_slice in table.slices:
        try:
            _require_fit(table, reader, file_slice)
            for _ in reader.read(file_slice, reader.schema.names):
                pass
        except FormatError as error:
            yield Finding(
                FindingKind.FILE_CORRUPT, error.problem, file_slice.partition_path, (error.path,)
            )
        except InputError as error:
            yield Finding(
                FindingKind.SCHEMA_UNFIT,
                f"rows do not fit the table's schema: {error}",
                file_slice.partition_path,
                file_slice.paths,
            )
        except ObjectNotFoundError:  # Found by another check, or cleaned meanwhile.
            continue


def _require_fit(table: Examination, reader: SliceReader, file_slice: FileSlice) -> None:
    """Raise InputError if the columns of a base file cannot be cast to the table's schema."""
    if file_slice.base_file is None:
        return
    with BaseFileReader(table.storage, file_slice.base_file.path) as base:
        known = frozenset(reader.schema.names)
        held = pa.schema([field for field in base.schema if field.name in known])
        wanted = pa.schema([reader.schema.field(name) for name in held.names])
        try:
            cast_table(held.empty_table(), wanted, where=f"base file {file_slice.base_file.path}")
        except pa.ArrowException as error:
            raise InputError(f"base file {file_slice.base_file.path}", str(error), "") from error


def check_keys(table: Examination) -> Iterator[Finding]:
    """Read all keys; find wrong buckets, duplicates, ambiguous keys, wrong entries of the index."""
    entries = IndexEntries.of(table)
    everywhere: list[tuple[FileSlice, pa.ChunkedArray]] = []
    is_global = table.index is not None and table.index.has_global_keys
    partitions = grouped((held.partition_path, held) for held in table.slices)
    for partition, slices in sorted(partitions.items()):
        try:
            reader = SliceReader.of_snapshot(table.snapshot)
            keys = [_keys(reader, file_slice) for file_slice in slices]
        except (FormatError, ObjectNotFoundError):
            continue  # The other checks find the cause.
        if table.index is not None and partition not in table.broken_rings:
            for file_slice, held in zip(slices, keys, strict=True):
                yield from _in_wrong_slot(table.index.layout(), file_slice, reader, held)
        for file_slice in slices:
            yield from _unlike_columns(table.config, reader, file_slice)
        if is_global:
            everywhere += zip(slices, keys, strict=True)
        else:
            yield from _twice([*zip(slices, keys, strict=True)])
        yield from _ambiguous(partition, table.config.key_spec.record_key_fields, keys)
        if entries is not None:
            yield from entries.compared(partition, slices, keys)
    yield from _twice(everywhere)
    if entries is not None:
        for partition in sorted(entries.partitions - partitions.keys()):
            yield from entries.compared(partition, [], [])


def _keys(reader: SliceReader, file_slice: FileSlice) -> pa.ChunkedArray:
    chunks = reader.read(file_slice, [RECORD_KEY])
    arrays = [array for chunk in chunks for array in chunk[RECORD_KEY].cast(pa.string()).chunks]
    return pa.chunked_array(arrays, pa.string())


def _in_wrong_slot(
    layout: Layout, file_slice: FileSlice, reader: SliceReader, keys: pa.ChunkedArray
) -> Iterator[Finding]:
    virtual = reader.virtual_keys
    # No property tells which spelling of a key the writer hashed, so one of them must fit.
    spellings = [keys] if virtual is None else virtual.spellings(keys)
    partition, group = file_slice.partition_path, file_slice.file_id
    found = [layout.strayed_keys(spelled, partition, group) for spelled in spellings]
    strayed = found[0]
    if strayed is not None and all(found):
        why = "; upserts and lookups do not find them"
        if strayed.rule is not None:
            why = (
                f": in this table a key {strayed.rule.text}, but others put them where they belong"
                f" if a key {strayed.rule.other.text}; let only writers of one rule write"
            )
        yield Finding(
            FindingKind.KEYS_IN_WRONG_BUCKET,
            f"{strayed.count} of {len(keys)} keys in {strayed.held_in} belong elsewhere under "
            f"{layout.setting_of(file_slice.partition_path)}, such as {strayed.key!r}, "
            f"which belongs to {strayed.belongs_to}{why}",
            file_slice.partition_path,
            file_slice.paths,
        )


def _unlike_columns(
    config: TableConfig, reader: SliceReader, file_slice: FileSlice
) -> Iterator[Finding]:
    """Find records whose key columns give another key than the stored one, or none."""
    columns = key_columns_of(config, reader.schema)
    if columns is None:
        return
    count, example = 0, ""
    for chunk in reader.read(file_slice, [RECORD_KEY, *columns]):
        stored = chunk[RECORD_KEY].filter(unlike_columns(config, chunk))
        example = example or (stored[0].as_py() if len(stored) else "")
        count += len(stored)
    if count:
        yield Finding(
            FindingKind.KEYS_UNLIKE_COLUMNS,
            f"{count} records have another key than their key columns ({', '.join(columns)}) give, "
            f"such as {example!r}: a MERGE of Hudi that sets some columns inserts rows without the "
            "others",
            file_slice.partition_path,
            file_slice.paths,
        )


def key_columns_of(config: TableConfig, schema: pa.Schema) -> list[str] | None:
    """Return the columns that give the stored keys; None if the keys cannot be made from them."""
    if not config.populate_meta_fields or config.foreign_key_generator is not None:
        return None
    names = key_columns(config.key_spec, schema)
    return names if names and set(names) <= set(schema.names) else None


def unlike_columns(config: TableConfig, rows: pa.Table) -> pa.ChunkedArray:
    """Return which rows have another record key than their key columns give."""
    made, stored = keys_or_null(rows, config.key_spec), rows[RECORD_KEY]
    is_like = pc.equal(made, stored).fill_null(False)
    if config.may_have_bare_keys and len(config.key_spec.record_key_fields) == 1:
        named = pc.binary_join_element_wise(config.key_spec.record_key_fields[0], stored, ":")
        is_like = pc.or_(is_like, pc.equal(made, named).fill_null(False))
    return pc.invert(is_like)


def _twice(held: Sequence[tuple[FileSlice, pa.ChunkedArray]]) -> Iterator[Finding]:
    """Find keys that occur more than once among all of some slices, by partition."""
    together = pa.chunked_array([a for _, keys in held for a in keys.chunks], pa.string())
    counted = pc.value_counts(together)
    several = counted.filter(pc.greater(counted.field("counts"), 1)).field("values")
    if not len(several):
        return
    found: dict[str, list[pa.ChunkedArray]] = defaultdict(list)
    files: dict[str, list[str]] = defaultdict(list)
    for file_slice, keys in held:
        own = keys.filter(pc.is_in(keys, several))
        if len(own):
            found[file_slice.partition_path].append(own)
            files[file_slice.partition_path] += file_slice.paths
    for partition, parts in found.items():
        distinct = pa.chunked_array([a for part in parts for a in part.chunks]).unique()
        yield Finding(
            FindingKind.KEYS_TWICE,
            f"{len(distinct)} keys occur more than once, such as {distinct[0].as_py()!r}",
            partition,
            tuple(files[partition]),
        )


def _ambiguous(
    partition: str, fields: Sequence[str], keys: list[pa.ChunkedArray]
) -> Iterator[Finding]:
    """Find keys of several columns whose text can be split into other values, too."""
    together = pa.chunked_array([array for held in keys for array in held.chunks], pa.string())
    several = pa.repeat(False, len(together))
    for name in fields[1:]:
        split = pc.greater(pc.count_substring(together, f",{name}:"), 1)
        several = pc.or_(several, split.combine_chunks())
    found = together.filter(several)
    if len(found):
        yield Finding(
            FindingKind.KEYS_AMBIGUOUS,
            f"{len(found)} keys can have been made of other values, such as {found[0].as_py()!r}; "
            "records of different values may have replaced each other",
            partition,
        )
