"""Statistics of files: no value is outside of its bounds, and tasks agree with a later reading."""

from __future__ import annotations

import math
import pickle
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.format.avro.table_schema import avro_from_arrow, with_meta_fields
from bucketlake.format.base_file import BaseFileReader, encode_base_file
from bucketlake.format.log_data import encode_avro_block, encode_parquet_block
from bucketlake.format.log_deletes import Deletes, encode_delete_block
from bucketlake.format.metadata_record.bounds import ValueType, unwrap_bounds
from bucketlake.format.metadata_record.record_schema import ColumnStats
from bucketlake.metadata.statistics.of_file import (
    TEXT_BYTES_MAX,
    base_file_statistics,
    column_stats_of,
    parquet_block_statistics,
    rows_statistics,
    short_statistics_of_written,
    statistics_of_content,
)
from bucketlake.model.column_type import TIMESTAMP, TIMESTAMP_NTZ
from bucketlake.model.file_name import InstantTime
from bucketlake.model.schema import META_NAMES, with_meta
from bucketlake.model.table_type import LogFormat

INSTANT = InstantTime("20240101000000000")
BASE = "p0/00000000-0000-0000-0000-000000000000-0_1-0-1_20240101000000000.parquet"
LOG = "p0/.00000000-0000-0000-0000-000000000000-0_20240101000000000.log.1_1-0-1"
NAN = math.nan

SCHEMA = pa.schema(
    {
        "flag": pa.bool_(),
        "i": pa.int32(),
        "l": pa.int64(),
        "f": pa.float32(),
        "d": pa.float64(),
        "text": pa.string(),
        "blob": pa.binary(),
        "day": pa.date32(),
        "at": TIMESTAMP,
        "local": TIMESTAMP_NTZ,
        "amount": pa.decimal128(20, 4),
    }
)
COLUMNS = with_meta(SCHEMA)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "i": st.integers(-(2**31), 2**31 - 1),
    "l": st.integers(-(2**63), 2**63 - 1),
    "f": st.floats(width=32),
    "d": st.floats(),
    "text": st.text(max_size=4) | st.text("zü𝒳", min_size=800, max_size=1100),
    "blob": st.binary(max_size=4) | st.just(b"\xff" * 2000),
    "day": st.dates(date(1, 1, 1), date(9999, 12, 31)),
    "at": st.integers(-(2**62), 2**62),
    "local": st.integers(-(2**62), 2**62),
    "amount": st.decimals(-(10**15), 10**15, places=4),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}), max_size=6
)


def table_of(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> pa.Table:
    count = len(rows)
    meta = {name: pa.array([f"{name}{row % 3}" for row in range(count)]) for name in META_NAMES}
    columns = {f.name: pa.array([row[f.name] for row in rows], f.type) for f in schema}
    return pa.table(meta | columns, schema=with_meta(schema))


def stats_of_content(content: Any, columns: pa.Schema = COLUMNS, path: str = BASE) -> ColumnStats:
    return column_stats_of([(path, statistics_of_content(content, columns, path))])


def bounds_of(stats: ColumnStats, name: str, data_type: pa.DataType) -> tuple[Any, Any]:
    row = stats.columns.to_pylist().index(name)
    low, high = (
        unwrap_bounds(held, stats.value_types, data_type, "f", is_minimum=low)[row]
        for held, low in ((stats.minima, True), (stats.maxima, False))
    )
    if pa.types.is_timestamp(data_type):
        return low.cast(pa.int64()).as_py(), high.cast(pa.int64()).as_py()
    return low.as_py(), high.as_py()


def rank(value: Any) -> Any:
    """Return the sort key of a value: NaN is the greatest number, and stored as infinity."""
    return math.inf if value != value else value


def require_bounds(stats: ColumnStats, rows: list[dict[str, Any]]) -> None:
    for field in SCHEMA:
        values = [row[field.name] for row in rows]
        held = sorted((value for value in values if value is not None), key=rank)
        row = stats.columns.to_pylist().index(field.name)
        assert stats.value_counts[row].as_py() == len(values)
        assert stats.null_counts[row].as_py() == len(values) - len(held)
        low, high = bounds_of(stats, field.name, field.type)
        if not held:
            assert (low, high) == (None, None)
        elif any(isinstance(value, str | bytes) and len(value) > 200 for value in held):
            assert low <= held[0]
            assert held[-1] <= high
        else:
            assert [rank(low), rank(high)] == [rank(held[0]), rank(held[-1])], field.name


@given(rows=ROWS, cut=st.integers(0, 6))
def test_bounds_of_a_base_file_are_those_of_its_rows(rows: list[dict[str, Any]], cut: int) -> None:
    table = table_of(rows)
    written = encode_base_file([table[:cut], table[cut:]], SCHEMA)
    require_bounds(stats_of_content(written.data), rows)
    found = statistics_of_content(written.data, COLUMNS, BASE)
    assert repr(short_statistics_of_written(written, COLUMNS, BASE)) == repr(found.cut())


@given(rows=ROWS.filter(bool), log_format=st.sampled_from(LogFormat))
def test_bounds_of_a_log_file_are_those_of_its_rows(
    rows: list[dict[str, Any]], log_format: LogFormat
) -> None:
    table = table_of(rows)
    schema_json = with_meta_fields(avro_from_arrow(SCHEMA, "t"))
    if log_format is LogFormat.AVRO:
        written = encode_avro_block(table, schema_json, instant=INSTANT)
    else:
        encoded = encode_parquet_block(table, schema_json, instant=INSTANT)
        written = encoded.block
        sent = parquet_block_statistics(encoded.content, COLUMNS, LOG)
        assert repr(sent) == repr(statistics_of_content(written, COLUMNS, LOG))
    stats = stats_of_content(written, path=LOG)
    require_bounds(stats, rows)
    assert set(stats.stored_bytes.to_pylist()) == {0}
    found = statistics_of_content(written, COLUMNS, LOG)
    assert repr(found) == repr(rows_statistics(table, COLUMNS))


@given(rows=ROWS)
def test_statistics_are_sent_with_short_bounds(rows: list[dict[str, Any]]) -> None:
    content = encode_base_file([table_of(rows)], SCHEMA).data
    found = statistics_of_content(content, COLUMNS, BASE)
    again = pickle.loads(pickle.dumps(found.cut()))
    assert repr(again) == repr(found.cut())
    stats = column_stats_of([("a.parquet", again), ("b.parquet", found)])
    count = len(COLUMNS)
    assert stats.names.to_pylist() == ["a.parquet"] * count + ["b.parquet"] * count
    for part in np.split(np.arange(2 * count), 2):
        require_bounds(stats.take(part), rows)


@given(rows=ROWS, with_statistics=st.booleans())
def test_bounds_of_several_row_groups_are_those_of_their_rows(
    rows: list[dict[str, Any]], with_statistics: bool
) -> None:
    sink = pa.BufferOutputStream()
    table = table_of(rows)
    pq.write_table(table, sink, row_group_size=1, write_statistics=with_statistics)
    require_bounds(stats_of_content(sink.getvalue()), rows)


def test_decimals_with_other_order_of_bytes_are_in_the_bounds_of_several_row_groups() -> None:
    sink = pa.BufferOutputStream()
    data = [
        {**dict.fromkeys(SCHEMA.names), "amount": Decimal(text)}
        for text in ("-1.0000", "1.0000", "300.0000", "5.0000")
    ]
    pq.write_table(table_of(data), sink, row_group_size=1)
    require_bounds(stats_of_content(sink.getvalue()), data)


def test_rows_of_several_row_groups_are_in_the_bounds() -> None:
    sink = pa.BufferOutputStream()
    data = [{**dict.fromkeys(SCHEMA.names), "i": n, "d": float(n)} for n in (5, 3, 9, 4)]
    data[2]["d"] = NAN
    pq.write_table(table_of(data), sink, row_group_size=1)
    stats = stats_of_content(sink.getvalue())
    require_bounds(stats, data)
    row = stats.columns.to_pylist().index("i")
    assert stats.uncompressed_bytes[row].as_py() > 4 * 20


FOREIGN: list[tuple[pa.Array, dict[str, Any], tuple[Any, Any]]] = [
    (pa.array([3, -5], pa.int8()), {}, (-5, 3)),
    (pa.array([2**32 - 1, 1], pa.uint32()), {}, (1, 2**32 - 1)),
    (pa.array([1, -2], pa.timestamp("ms")), {}, (-2000, 1000)),
    (pa.array([1000, -2000], pa.timestamp("ns", "UTC")), {"version": "2.6"}, (-2, 1)),
    (pa.array([1, -2], TIMESTAMP), {"use_deprecated_int96_timestamps": True}, (-2, 1)),
    (
        pa.array([Decimal("1.5"), Decimal("-0.5")], pa.decimal128(9, 2)),
        {"store_decimal_as_integer": True},
        (Decimal("-0.50"), Decimal("1.50")),
    ),
    (pa.array([b"ab", b"cd"], pa.binary(2)), {}, (b"ab", b"cd")),
    (pa.array(["b", "a"]), {"write_statistics": False}, ("a", "b")),
]


@pytest.mark.parametrize(("values", "options", "expected"), FOREIGN, ids=lambda v: str(v)[:20])
def test_bounds_of_files_of_other_writers_are_those_of_their_rows(
    values: pa.Array, options: dict[str, Any], expected: tuple[Any, Any]
) -> None:
    table = pa.table({"c": values})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, store_schema=False, **options)
    with BaseFileReader.of_bytes(sink.getvalue(), BASE) as reader:
        data_type = reader.schema.field("c").type
        stats = column_stats_of([(BASE, base_file_statistics(reader, reader.schema))])
    assert bounds_of(stats, "c", data_type) == expected


def test_nan_that_no_footer_names_is_found_in_the_data() -> None:
    rows = [{**dict.fromkeys(SCHEMA.names), "d": value} for value in (1.0, NAN)]
    sink = pa.BufferOutputStream()
    pq.write_table(table_of(rows), sink)
    assert str(bounds_of(stats_of_content(sink.getvalue()), "d", pa.float64())) == "(1.0, inf)"
    content = encode_base_file([table_of(rows)], SCHEMA).data
    assert str(bounds_of(stats_of_content(content), "d", pa.float64())) == "(1.0, inf)"


def test_long_texts_are_cut_outwards() -> None:
    long = "z" * (TEXT_BYTES_MAX + 5)
    last = chr(0x10FFFF) * TEXT_BYTES_MAX
    texts = [long, "y" * 2000, "ü" * 600, "\ud7ff" * 1000]
    for text in texts:
        rows = [{**dict.fromkeys(SCHEMA.names), "text": text, "blob": text.encode()}]
        stats = stats_of_content(encode_base_file([table_of(rows)], SCHEMA).data)
        for name, value in (("text", text), ("blob", text.encode())):
            low, high = bounds_of(stats, name, SCHEMA.field(name).type)
            assert low < value < high
            assert len(low) <= TEXT_BYTES_MAX
            assert len(high) <= TEXT_BYTES_MAX
    rows = [{**dict.fromkeys(SCHEMA.names), "text": last}]  # No shorter text is greater.
    stats = stats_of_content(encode_base_file([table_of(rows)], SCHEMA).data)
    assert bounds_of(stats, "text", pa.string())[1] == last


def test_column_that_a_file_lacks_has_only_nulls() -> None:
    rows = [{**dict.fromkeys(SCHEMA.names), "i": 1}] * 3
    content = encode_base_file([table_of(rows)], SCHEMA).data
    columns = pa.schema([("added", pa.int64()), ("i", pa.int32()), ("tags", pa.list_(pa.int32()))])
    stats = stats_of_content(content, columns)
    assert stats.columns.to_pylist() == ["added", "i"]
    assert stats.null_counts.to_pylist() == [3, 0]
    assert stats.value_types.field("ordinal").to_pylist() == [ValueType.LONG, ValueType.INT]


def test_meta_columns_that_a_file_lacks_have_no_statistics() -> None:
    schema = pa.schema({"i": pa.int32()})
    rows = pa.table({"i": pa.array([1], pa.int32())})
    assert set(rows_statistics(rows, with_meta(schema)).columns) == {"i"}
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    assert stats_of_content(sink.getvalue(), with_meta(schema)).columns.to_pylist() == ["i"]


def test_nested_columns_have_no_statistics() -> None:
    schema = pa.schema([("tags", pa.list_(pa.field("element", pa.int32()))), ("i", pa.int32())])
    table = table_of([{"tags": [1], "i": 2}], schema)
    stats = stats_of_content(encode_base_file([table], schema).data, schema)
    assert stats.columns.to_pylist() == ["i"]


def test_log_file_of_deletes_has_no_rows_and_no_types() -> None:
    keys = pa.array(["k"])
    deletes = Deletes(keys, pa.array(["p0"]), pa.array([True]), ())
    written = encode_delete_block(deletes, instant=INSTANT)
    stats = stats_of_content(written, path=LOG)
    assert len(stats) == len(COLUMNS)
    assert set(stats.value_counts.to_pylist()) == {0}
    assert set(stats.value_types.field("ordinal").to_pylist()) == {ValueType.NULL}
    assert (stats.minima.parts, stats.maxima.parts) == ({}, {})


def test_blocks_of_one_log_file_are_united() -> None:
    # Before table version 8, several commits wrote blocks to one log file.
    schema_json = with_meta_fields(avro_from_arrow(SCHEMA, "t"))
    rows = [{**dict.fromkeys(SCHEMA.names), "i": n} for n in (5, 3)]
    written = b"".join(
        encode_avro_block(table_of([row]), schema_json, instant=INSTANT) for row in rows
    )
    stats = stats_of_content(written, path=LOG)
    require_bounds(stats, rows)


def test_blocks_of_several_types_are_read_in_the_type_of_today() -> None:
    blocks = []
    for data_type in (pa.int32(), pa.int64()):
        schema = pa.schema({"i": data_type})
        schema_json = with_meta_fields(avro_from_arrow(schema, "t"))
        table = table_of([{"i": 1}, {"i": 7}], schema)
        blocks.append(encode_avro_block(table, schema_json, instant=INSTANT))
    stats = stats_of_content(b"".join(blocks), pa.schema({"i": pa.float64()}), LOG)
    assert bounds_of(stats, "i", pa.float64()) == (1.0, 7.0)
    assert stats.value_types.field("ordinal").to_pylist() == [ValueType.DOUBLE]


def test_times_far_from_today_have_bounds() -> None:
    rows = [{**dict.fromkeys(SCHEMA.names), "local": datetime(1, 1, 1)}]
    stats = stats_of_content(encode_base_file([table_of(rows)], SCHEMA).data)
    low, high = bounds_of(stats, "local", TIMESTAMP_NTZ)
    assert low == high < -(6 * 10**16)
