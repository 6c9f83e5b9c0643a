"""Checks that read rows: do all files decode, are keys in their buckets, and there once.

Memory holds the keys of one partition, or a part of one file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import FormatError, InputError, ObjectNotFoundError
from bucketlake.format.base_file import BaseFileReader
from bucketlake.index.layout import Layout
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.schema import RECORD_KEY, cast_table
from bucketlake.read.slice_reader import SliceReader
from bucketlake.services.examination import Examination
from bucketlake.services.findings import Finding, FindingKind


def check_files(table: Examination) -> Iterator[Finding]:
    """Read the live slices whole; find files that do not decode, or do not fit the schema."""
    if not table.slices:
        return
    reader = SliceReader.of_snapshot(table.snapshot)
    for one in table.slices:
        try:
            _require_fit(table, reader, one)
            for _ in reader.read(one, reader.schema.names):
                pass
        except FormatError as error:
            yield Finding(
                FindingKind.FILE_CORRUPT, error.problem, one.partition_path, (error.path,)
            )
        except InputError as error:
            yield Finding(
                FindingKind.SCHEMA_UNFIT,
                f"rows do not fit the table's schema: {error}",
                one.partition_path,
                one.paths,
            )
        except ObjectNotFoundError:  # Another check's finding, or cleaned meanwhile.
            continue


def _require_fit(table: Examination, reader: SliceReader, one: FileSlice) -> None:
    """Refuse a base file whose columns the table's schema does not take."""
    if one.base_file is None:
        return
    with BaseFileReader(table.storage, one.base_file.path) as base:
        held = pa.schema([field for field in base.schema if field.name in reader.schema.names])
        wanted = pa.schema([reader.schema.field(name) for name in held.names])
        try:
            cast_table(held.empty_table(), wanted, where=f"base file {one.base_file.path}")
        except pa.ArrowException as error:
            raise InputError(f"base file {one.base_file.path}", str(error), "") from error


def check_keys(table: Examination) -> Iterator[Finding]:
    """Read all keys; find those that lie in another bucket than theirs, or twice."""
    partitions: dict[str, list[FileSlice]] = defaultdict(list)
    for one in table.slices:
        partitions[one.partition_path].append(one)
    for partition, slices in sorted(partitions.items()):
        try:
            keys = [_keys(SliceReader.of_snapshot(table.snapshot), one) for one in slices]
        except (FormatError, ObjectNotFoundError):
            continue  # What the other checks find comes first.
        if table.index is not None:
            for one, held in zip(slices, keys, strict=True):
                yield from _in_wrong_slot(table.index.layout(), one, held)
        yield from _twice(partition, slices, keys)


def _keys(reader: SliceReader, one: FileSlice) -> pa.ChunkedArray:
    chunks = [chunk[RECORD_KEY].cast(pa.string()) for chunk in reader.read(one, [RECORD_KEY])]
    arrays = [array for chunk in chunks for array in chunk.chunks]
    return pa.chunked_array(arrays, pa.string())


def _in_wrong_slot(layout: Layout, one: FileSlice, keys: pa.ChunkedArray) -> Iterator[Finding]:
    strayed = layout.strayed_keys(keys, one.partition_path, one.file_id)
    if strayed is not None:
        yield Finding(
            FindingKind.KEYS_IN_WRONG_BUCKET,
            f"{strayed.count} of {len(keys)} keys in {strayed.held_in} belong elsewhere under "
            f"{layout.setting_of(one.partition_path)}, such as {strayed.key!r} in "
            f"{strayed.belongs_to}; upserts and lookups do not find them",
            one.partition_path,
            one.paths,
        )


def _twice(
    partition: str, slices: list[FileSlice], keys: list[pa.ChunkedArray]
) -> Iterator[Finding]:
    together = pa.chunked_array([array for held in keys for array in held.chunks], pa.string())
    counted = pc.value_counts(together)
    several = counted.filter(pc.greater(counted.field("counts"), 1)).field("values")
    if len(several):
        holding = [
            path
            for one, held in zip(slices, keys, strict=True)
            if pc.any(pc.is_in(held, several)).as_py()
            for path in one.paths
        ]
        yield Finding(
            FindingKind.KEYS_TWICE,
            f"{len(several)} keys are there more than once, such as {several[0].as_py()!r}",
            partition,
            tuple(holding),
        )
