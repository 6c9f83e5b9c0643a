"""Statistics that real Hudi wrote of its files, and those that bucketlake computes of them."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from bucketlake.format.metadata_record.bounds import has_bounds
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.format.metadata_record.record_schema import (
    ColumnStats,
    WrappedValues,
    decode_column_stats,
)
from bucketlake.metadata.statistics.of_file import column_stats_of, statistics_of_file
from bucketlake.model.cast import cast_table
from bucketlake.model.schema import with_meta
from bucketlake.read.pruning.by_statistics import slices_by_statistics
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import load_snapshot
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config
from bucketlake.where.arrow_filter import truth_of
from bucketlake.where.predicate import Comparison, IsNull, Not, Operator, Predicate
from tests.choices import DEEP
from tests.golden.objects import objects_of_table
from tests.golden.test_metadata_records import TABLES, values_of
from tests.pinned import snapshot_as_of
from tests.storages import memory_of

Facts = dict[tuple[str, str], tuple[Any, ...]]  # By file name and column.

WITH_STATISTICS = [name for name in TABLES if any(values_of(name, MetadataPartition.COLUMN_STATS))]


def values_in(wrapped: WrappedValues) -> list[Any]:
    found = [None] * wrapped.count
    for rows, values in wrapped.parts.values():
        for row, value in zip(rows.tolist(), values.to_pylist(), strict=True):
            found[row] = value
    return found


def facts_of(stats: ColumnStats) -> Facts:
    columns = [
        values_in(stats.minima),
        values_in(stats.maxima),
        stats.value_counts.to_pylist(),
        stats.null_counts.to_pylist(),
        stats.stored_bytes.to_pylist(),
        stats.uncompressed_bytes.to_pylist(),
        stats.value_types.to_pylist(),
    ]
    keys = zip(stats.names.to_pylist(), stats.columns.to_pylist(), strict=True)
    return dict(zip(keys, zip(*columns, strict=True), strict=True))


@pytest.mark.parametrize("table", WITH_STATISTICS)
def test_statistics_of_files_are_those_of_hudi(table: str) -> None:
    """Known differences: columns of nulls, the order of bytes, and index version V1.

    Hudi has zeros as bounds of columns of nulls in base files. It compares bytes as signed numbers
    in log files, and as unsigned numbers in base files. Version V1 has no value types, and wrappers
    of dates, decimals and times.
    """
    theirs: Facts = {}
    for values in values_of(table, MetadataPartition.COLUMN_STATS):
        theirs |= facts_of(decode_column_stats(values, table)[1])
    objects = objects_of_table(table)
    storage = memory_of({path: bytes(content) for path, content in objects.items()})
    config = read_table_config(storage)
    schema = with_meta(load_snapshot(opened_table(storage, config)).schema)
    columns = pa.schema([schema.field(name) for name in sorted({name for _, name in theirs})])
    files = {name for name, _ in theirs}
    mine: Facts = {}
    for path in objects:
        if path.rpartition("/")[2] in files and not path.startswith(".hoodie"):
            name = path.rpartition("/")[2]
            found = statistics_of_file(storage, path, columns)
            mine |= facts_of(column_stats_of([(name, found)]))
    assert mine
    for (name, column), (low, high, rows, nulls, *others) in mine.items():
        written = theirs[name, column]
        assert written[2:4] == (rows, nulls), (name, column)
        if config.version == 6:
            assert written[4:6] == tuple(others[:2])
            assert written[6] is None
            continue
        assert written[4:] == tuple(others), (name, column)
        is_binary = columns.field(column).type == pa.binary()
        if rows > nulls and not (is_binary and name.startswith(".")):
            assert written[:2] == (low, high), (name, column)


def predicates_on(rows: pa.Table) -> list[Predicate]:
    """Return conditions on each column with values of its rows."""
    found: list[Predicate] = []
    for field in rows.schema:
        if not has_bounds(field.type) or pa.types.is_binary(field.type):
            continue
        values = rows[field.name].unique().drop_null().sort()
        low, middle, high = (values[at].as_py() for at in (0, len(values) // 3, -1))
        facts = (Operator.EQUAL, low), (Operator.LESS, middle), (Operator.GREATER_OR_EQUAL, high)
        found += [Comparison(field.name, operator, value) for operator, value in facts]
        found += [IsNull(field.name), Not(IsNull(field.name))]
    return found


def sample(found: list[Predicate], name: str) -> list[Predicate]:
    """Return twelve conditions, the same in each run; in a deep run all."""
    return found if DEEP else random.Random(name).sample(found, min(12, len(found)))


@pytest.mark.parametrize("table", WITH_STATISTICS)
def test_reads_pruned_by_hudis_statistics_return_all_rows(table: str) -> None:
    objects = objects_of_table(table)
    storage = memory_of({path: bytes(content) for path, content in objects.items()})
    config = read_table_config(storage)
    commits = load_snapshot(opened_table(storage, config)).timeline.completed_commits()
    skipped = 0
    for as_of in (None, commits[-2].requested_at):
        snapshot = snapshot_as_of(opened_table(storage, config), as_of)
        slices = snapshot.all_slices()
        schema = pa.schema([field.with_nullable(True) for field in with_meta(snapshot.schema)])
        reader = SliceReader.of_snapshot(snapshot)
        rows = []
        for file_slice in slices:
            chunks = [cast_table(c, schema) for c in reader.read(file_slice, schema.names)]
            rows.append(pa.concat_tables([schema.empty_table(), *chunks]))
        for predicate in sample(predicates_on(pa.concat_tables(rows)), table):
            kept, _ = slices_by_statistics(snapshot, predicate, slices, is_newest=as_of is None)
            skipped += len(slices) - len(kept)
            for file_slice, held in zip(slices, rows, strict=True):
                assert file_slice in kept or held.filter(truth_of(predicate, held)).num_rows == 0
    assert skipped > 20
