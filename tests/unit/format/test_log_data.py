"""Data blocks: decoded and encoded as columns, and refused where they are damaged."""

from __future__ import annotations

import datetime as dt
import io
import json
import struct
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketlake.errors import FormatError, InputError, UnsupportedFeatureError
from bucketlake.format import log_data
from bucketlake.format.avro.table_schema import avro_from_arrow
from bucketlake.format.log_block import BlockKind, HeaderKey
from bucketlake.format.log_data import (
    decode_data_block,
    encode_avro_block,
    encode_parquet_block,
)
from bucketlake.model.cast import cast_table
from bucketlake.model.column_type import TIMESTAMP, TIMESTAMP_NTZ, list_type, map_of
from bucketlake.model.schema import META_FIELDS, META_NAMES
from tests.bounds import set_bounds
from tests.unit.format.hfiles import encode_hfile
from tests.unit.format.log_rows import (
    INSTANT,
    PATH,
    avro_content,
    block_of,
    only_block,
    partial,
    rows_of,
)

POINT = pa.struct([pa.field("x", pa.int32(), False), pa.field("y", pa.float64())])
EVERY_TYPE = pa.schema(
    [
        *META_FIELDS,
        pa.field("id", pa.string(), False),
        ("flag", pa.bool_()),
        ("small", pa.int32()),
        ("big", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("raw", pa.binary()),
        ("price", pa.decimal128(10, 2)),
        ("wide", pa.decimal128(38, 4)),
        ("day", pa.date32()),
        ("at", TIMESTAMP),
        ("local", TIMESTAMP_NTZ),
        ("tags", list_type(pa.string())),
        ("sizes", list_type(pa.float64(), nullable=False)),
        ("attributes", map_of(pa.int64())),
        ("point", POINT),
        ("track", list_type(pa.struct({"p": POINT, "notes": map_of(list_type(pa.int32()))}))),
    ]
)
AT = dt.datetime(1582, 10, 10, 1, 2, 3, 4)
ROWS: list[dict[str, Any]] = [
    {
        **dict.fromkeys(META_NAMES, "m"),
        "id": "k1",
        "flag": True,
        "small": -(2**31),
        "big": 2**63 - 1,
        "single": -0.5,
        "double": 1e300,
        "raw": b"\0\xff",
        "price": Decimal("-12345678.90"),
        "wide": Decimal("9" * 34 + ".9999"),
        "day": dt.date(1, 1, 1),
        "at": AT.replace(tzinfo=dt.UTC),
        "local": dt.datetime.max,
        "tags": ["a", None, ""],
        "sizes": [0.5, -0.5],
        "attributes": [("a", 1), ("", None)],
        "point": {"x": 1, "y": None},
        "track": [{"p": {"x": 7, "y": 0.0}, "notes": [("n", [1, None, 3]), ("m", None)]}, None],
    },
    {**dict.fromkeys(EVERY_TYPE.names), "id": "k2"},
    {
        **dict.fromkeys(EVERY_TYPE.names),
        "id": "ключ 😀",
        "big": -(2**63),
        "tags": [],
        "sizes": [],
        "attributes": [],
        "track": [{"p": None, "notes": None}],
    },
]
TABLE = pa.Table.from_pylist(ROWS, schema=EVERY_TYPE)
SCHEMA = avro_from_arrow(EVERY_TYPE, "every")


def test_every_type_comes_back_from_an_avro_block() -> None:
    block = only_block(encode_avro_block(TABLE, SCHEMA, instant=INSTANT))
    assert (block.kind, block.instant, block.is_partial) == (BlockKind.AVRO_DATA, INSTANT, False)
    decoded = decode_data_block(block)
    decoded.validate(full=True)
    assert decoded.schema.equals(EVERY_TYPE)
    assert decoded.equals(TABLE)


def test_avro_content_is_that_of_a_row_writer() -> None:
    block = only_block(encode_avro_block(TABLE, SCHEMA, instant=INSTANT))
    assert bytes(block.content) == avro_content(SCHEMA, rows_of(TABLE))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_content_of_each_version_is_decoded(version: int) -> None:
    content = avro_content(SCHEMA, rows_of(TABLE), version)
    assert decode_data_block(block_of(content, SCHEMA)).equals(TABLE)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5])
def test_chunks_of_records_leave_no_trace(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    table = pa.concat_tables([TABLE] * 2).slice(0, count)
    whole = encode_avro_block(table, SCHEMA, instant=INSTANT)
    set_bounds(monkeypatch, log_data, _CHUNK_RECORDS=2)
    assert encode_avro_block(table, SCHEMA, instant=INSTANT) == whole
    assert decode_data_block(only_block(whole)).equals(table)
    set_bounds(monkeypatch, log_data, _CHUNK_BYTES=1)
    assert encode_avro_block(table, SCHEMA, instant=INSTANT) == whole
    assert decode_data_block(only_block(whole)).equals(table)


def test_table_is_cast_to_the_schema_and_may_be_cut_and_sliced() -> None:
    narrow = pa.table({"big": pa.array([7, 8, 9], pa.int16()), "id": ["a", "b", "c"]})
    cut = pa.concat_tables([narrow.slice(1, 1), narrow.slice(2)])
    decoded = decode_data_block(only_block(encode_avro_block(cut, SCHEMA, instant=INSTANT)))
    assert decoded.select(["id", "big", "day"]).to_pylist() == [
        {"id": "b", "big": 8, "day": None},
        {"id": "c", "big": 9, "day": None},
    ]


def test_wanted_columns_come_in_the_order_asked_and_missing_ones_as_nulls() -> None:
    names = ["new", "track", "_hoodie_record_key", "big"]
    data = TABLE.slice(1)  # No array in it has a null element.
    for block in (
        encode_avro_block(data, SCHEMA, instant=INSTANT),
        encode_parquet_block(data, SCHEMA, instant=INSTANT).block,
    ):
        decoded = decode_data_block(only_block(block), names)
        assert decoded.column_names == names
        assert decoded["new"].type == pa.null()
        assert decoded.select(names[1:]).equals(data.select(names[1:]))


def test_parquet_block_is_a_parquet_file_that_any_reader_opens() -> None:
    data = TABLE.select([*META_NAMES, "id", "price", "at", "point"])
    schema = avro_from_arrow(data.schema, "every")
    block = only_block(partial(encode_parquet_block(data, schema, instant=INSTANT).block))
    assert (block.kind, block.is_partial) == (BlockKind.PARQUET_DATA, True)
    assert block.headers[HeaderKey.SCHEMA] == schema
    file = pq.ParquetFile(pa.BufferReader(block.content))
    assert file.metadata.row_group(0).column(0).compression == "SNAPPY"
    assert cast_table(file.read(), data.schema).equals(data)
    assert decode_data_block(block).equals(data)


def test_partial_block_tells_so_and_has_its_own_columns() -> None:
    data = TABLE.select([*META_NAMES, "big"])
    schema = avro_from_arrow(data.schema, "every")
    block = only_block(partial(encode_avro_block(data, schema, instant=INSTANT)))
    assert block.is_partial
    assert decode_data_block(block).schema.equals(data.schema)


INNER = {"type": "record", "name": "inner", "fields": [{"name": "x", "type": "int"}]}
OTHERS_TYPES: dict[str, Any] = {
    "e": {"type": "enum", "name": "kind", "symbols": ["A", "B"]},
    "again": ["kind", "null"],
    "f": {"type": "fixed", "name": "four", "size": 4},
    "millis": {"type": "long", "logicalType": "timestamp-millis"},
    "local": ["null", {"type": "long", "logicalType": "local-timestamp-millis"}],
    "d": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 1},
    "alone": ["int"],
    "u": {"type": "string", "logicalType": "uuid"},
    "s": INNER,
    "t": {"type": "array", "items": "inner"},
}
OTHERS_SPELLINGS = {
    "type": "record",
    "name": "r",
    "fields": [{"name": name, "type": kind} for name, kind in OTHERS_TYPES.items()],
}
OTHERS_ROWS = [
    {
        "e": "B",
        "again": None,
        "f": b"1234",
        "millis": dt.datetime(2020, 1, 2, 3, 4, 5, 6000, dt.UTC),
        "local": dt.datetime(1960, 1, 2, 3, 4, 5, 6000),
        "d": Decimal(number).scaleb(-1),
        "alone": -1,
        "u": "x",
        "s": {"x": 5},
        "t": [{"x": 1}, {"x": 2}],
    }
    for number in (0, 127, 128, -127, -129, 2**63, 10**20 - 1)
]


def test_spellings_of_other_producers_are_decoded_and_encoded() -> None:
    schema = json.dumps(OTHERS_SPELLINGS)
    content = avro_content(schema, OTHERS_ROWS)
    decoded = decode_data_block(block_of(content, schema))
    assert decoded.to_pylist() == OTHERS_ROWS
    again = only_block(encode_avro_block(decoded, schema, instant=INSTANT))
    assert bytes(again.content) == content


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "0200"),
        (-1, "02ff"),
        (-128, "0280"),
        (128, "040080"),
        (-(2**15), "048000"),
    ],
)
def test_decimal_of_bytes_takes_as_few_as_java_does(number: int, encoded: str) -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 20}
    data = pa.table({"c": pa.array([Decimal(number)], pa.decimal128(20, 0))})
    block = only_block(encode_avro_block(data, json.dumps(record(schema)), instant=INSTANT))
    assert bytes(block.content[12:]) == bytes.fromhex(encoded)
    assert decode_data_block(block).to_pylist() == data.to_pylist()


def test_arrays_in_several_blocks_with_sizes_are_decoded() -> None:
    schema = record({"type": "array", "items": "int"})
    body = bytes.fromhex("04 02 0401 02 0600".replace(" ", ""))
    content = struct.pack(">iii", 3, 1, len(body)) + body
    assert decode_data_block(block_of(content, schema))["c"].to_pylist() == [[1, 2, 3]]


def record(field_type: Any) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": "c", "type": field_type}]}


def test_value_that_the_schema_cannot_hold_is_refused() -> None:
    def encode(value: pa.Array, field_type: Any) -> None:
        schema = json.dumps(record(field_type))
        encode_avro_block(pa.table({"c": value}), schema, instant=INSTANT)

    decimals = {"type": "fixed", "name": "f", "size": 2, "logicalType": "decimal", "precision": 9}
    with pytest.raises(InputError, match="2 bytes"):
        encode(pa.array([Decimal(32768)], pa.decimal128(9, 0)), decimals)
    with pytest.raises(InputError, match="microseconds"):
        encode(pa.array([1], TIMESTAMP), {"type": "long", "logicalType": "timestamp-millis"})
    with pytest.raises(InputError, match="'C' is not among"):
        encode(pa.array(["A", "C"]), {"type": "enum", "name": "e", "symbols": ["A", "B"]})
    with pytest.raises(InputError, match="4 bytes"):
        encode(pa.array([b"123"]), {"type": "fixed", "name": "f", "size": 4})
    with pytest.raises(InputError, match="column c"):
        encode(pa.array([None], pa.int32()), "int")
    with pytest.raises(InputError, match="no such column"):
        encode_parquet_block(pa.table({"x": [1]}), json.dumps(record("int")), instant=INSTANT)


def one_record(body: bytes, field_type: Any) -> pa.Table:
    content = struct.pack(">iii", 3, 1, len(body)) + body
    return decode_data_block(block_of(content, record(field_type)))


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 2}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
LARGE = {"name": "l", "type": "fixed", "size": 2**31 - 1}


@pytest.mark.parametrize(
    ("body", "field_type", "expected"),
    [
        ("", "int", "1 bytes"),
        ("80", "long", "within its record"),
        ("ff" * 10, "long", "64 bits"),
        ("ff" * 9 + "02", "long", "64 bits"),
        ("8080808010", "int", "32 bits"),
        ("0200", "int", "end of a record"),
        ("02", "boolean", "boolean"),
        ("000000", "float", "4 bytes"),
        ("00" * 7, "double", "8 bytes"),
        ("0461", "string", "within its record"),
        ("01", "string", "within its record"),
        ("feffffffffffffffff01", "bytes", "within its record"),
        ("02ff", "string", "UTF-8"),
        ("04", ["null", "int"], "2 branches"),
        ("01", ["null", "int"], "2 branches"),
        ("04", {"type": "enum", "name": "e", "symbols": ["A", "B"]}, "2 symbols"),
        ("00", DECIMAL, "decimal of 1 to 16"),
        ("22" + "00" * 17, DECIMAL, "decimal of 1 to 16"),
        ("0403e8", DECIMAL, "decimal128"),
        ("feffffffffffffffff01", MILLIS, "microseconds"),
        ("00" * 20, LARGE, "2147483647 bytes"),
        ("02", {"type": "array", "items": "int"}, "items"),
        ("0202", {"type": "array", "items": "int"}, "items"),
        ("fcffffff0f00", {"type": "array", "items": "int"}, "items"),
        ("fcffffff0f00", {"type": "array", "items": "double"}, "items"),
        ("fbffffffffffffffff0100", {"type": "array", "items": "int"}, "items"),
        ("0201", {"type": "array", "items": "string"}, "items"),
        ("020800", {"type": "array", "items": ["null", "int"]}, "items"),
        ("020461", {"type": "map", "values": "int"}, "items"),
        ("0280", {"type": "array", "items": {"type": "array", "items": LARGE}}, "items"),
    ],
)
def test_record_that_is_not_of_the_schema_is_refused_at_its_byte(
    body: str, field_type: Any, expected: str
) -> None:
    with pytest.raises(FormatError, match=expected) as caught:
        one_record(bytes.fromhex(body), field_type)
    assert caught.value.path == PATH
    assert caught.value.offset_bytes is not None


def test_offset_of_an_error_is_that_of_the_value_in_the_file() -> None:
    content = bytearray(avro_content(SCHEMA, rows_of(TABLE)))
    at = content.index("ключ".encode())
    content[at - 1] = 0x7F
    block = block_of(bytes(content), SCHEMA)
    with pytest.raises(FormatError) as caught:
        decode_data_block(block)
    assert caught.value.offset_bytes == block.content_offset_bytes + at - 1


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "content version"),
        ("000000", "content version"),
        ("00000000", "content version 1 to 3"),
        ("0000000400000000", "content version 1 to 3"),
        ("00000003", "count of records"),
        ("00000003ffffffff", "count of records"),
        ("000000037fffffff", "count of records"),
        ("0000000300000001", "1 records to the end"),
        ("000000030000000000", "0 records to the end"),
        ("0000000300000001ffffffff", "1 records to the end"),
        ("00000003000000020000000102", "2 records to the end"),
        ("000000010000", "records to the end"),
        ("000000010000000202", "records to the end"),
    ],
)
def test_content_that_is_no_list_of_records_is_refused(content: str, expected: str) -> None:
    with pytest.raises(FormatError, match=expected):
        decode_data_block(block_of(bytes.fromhex(content), record("int")))


def test_content_cut_off_at_any_byte_is_refused() -> None:
    content = avro_content(SCHEMA, rows_of(TABLE))
    for length in range(len(content)):
        with pytest.raises(FormatError, match=PATH):
            decode_data_block(block_of(content[:length], SCHEMA))


def test_parquet_content_cut_off_or_of_another_schema_is_refused() -> None:
    schema = json.dumps(record("int"))
    data = pa.table({"c": pa.array([1], pa.int32())})
    content = bytes(only_block(encode_parquet_block(data, schema, instant=INSTANT).block).content)
    for length in range(0, len(content), 7):
        with pytest.raises(FormatError) as caught:
            decode_data_block(block_of(content[:length], schema, kind=BlockKind.PARQUET_DATA))
        assert caught.value.offset_bytes is not None
    for other in (record({"type": "array", "items": "int"}), record(INNER)):
        with pytest.raises(FormatError, match="of the block's schema"):
            decode_data_block(block_of(content, other, kind=BlockKind.PARQUET_DATA))


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "[" * 100_000,
        '{"type":"record","name":"r","fields":[]}',
        '{"type":"record","name":"r","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
        '{"type":"record","name":"r","fields":[{"name":"\\ud800","type":"int"}]}',
        record({"type": "enum", "name": "e", "symbols": ["\ud800"]}),
        record({"type": "enum", "name": "e", "symbols": 7}),
        record({"type": "fixed", "name": "f", "size": 0}),
        record({"type": "fixed", "name": "f"}),
        record({"type": "string", "logicalType": "decimal", "precision": 3}),
        record({"type": "record", "name": "s", "fields": []}),
        record({"type": "int", "logicalType": []}) | {"name": None},
    ],
    ids=range(12),
)
def test_schema_that_is_none_is_refused_with_its_place(schema: Any) -> None:
    with pytest.raises(FormatError, match=PATH):
        decode_data_block(block_of(struct.pack(">ii", 3, 0), schema))


def test_block_without_a_schema_or_with_a_type_unheard_of_is_refused() -> None:
    with pytest.raises(FormatError, match="header SCHEMA"):
        decode_data_block(block_of(struct.pack(">ii", 3, 0)))
    with pytest.raises(UnsupportedFeatureError, match=f"{PATH} at byte 0, column c"):
        decode_data_block(block_of(struct.pack(">ii", 3, 0), record(["int", "string"])))


@pytest.mark.parametrize("compressed", [False, True])
def test_records_of_an_hfile_block_are_the_values_of_its_keys(compressed: bool) -> None:
    schema = json.dumps(record("string") | {"fields": [*KEY_AND_VALUE]})
    values = [encode_one(schema, {"key": "", "n": row}) for row in range(5)]
    cells = [(b"k%d" % row, value) for row, value in enumerate(values)]
    content = encode_hfile([cells[:2], cells[2:]], compressed=compressed)
    block = block_of(content, schema, kind=BlockKind.HFILE_DATA)
    expected = [{"key": f"k{row}", "n": row} for row in range(5)]
    assert decode_data_block(block).to_pylist() == expected
    assert decode_data_block(block, ["n"]).to_pylist() == [{"n": row} for row in range(5)]
    empty = block_of(encode_hfile([]), schema, kind=BlockKind.HFILE_DATA)
    assert decode_data_block(empty).num_rows == 0
    for cell in ((b"k", b"\xff"), (b"\xff", values[0])):
        broken = block_of(encode_hfile([[cell]]), schema, kind=BlockKind.HFILE_DATA)
        with pytest.raises(FormatError, match=PATH):
            decode_data_block(broken)


KEY_AND_VALUE = ({"name": "key", "type": "string"}, {"name": "n", "type": "long"})


def encode_one(schema: str, row: dict[str, Any]) -> bytes:
    return avro_content(schema, [row])[12:]


def test_fastavro_reads_our_records() -> None:
    block = only_block(encode_avro_block(TABLE, SCHEMA, instant=INSTANT))
    source = io.BytesIO(block.content)
    assert struct.unpack(">ii", source.read(8)) == (3, 3)
    schema = fastavro.parse_schema(json.loads(SCHEMA))
    rows = []
    for _ in range(3):
        source.read(4)
        rows.append(fastavro.schemaless_reader(source, schema))
    assert rows == rows_of(TABLE)
    assert source.read() == b""
