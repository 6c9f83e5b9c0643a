"""Delete blocks: their bytes, their ordering values, and damage to them."""

from __future__ import annotations

import datetime as dt
import io
import struct
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from bucketlake.errors import FormatError, InputError, UnsupportedFeatureError
from bucketlake.format.log_block import BlockKind, HeaderKey
from bucketlake.format.log_deletes import Deletes, decode_delete_block, encode_delete_block
from bucketlake.model.column_type import TIMESTAMP, TIMESTAMP_NTZ
from tests.meta_columns import constant_column
from tests.unit.format.log_rows import INSTANT, PATH, block_of, only_block

WRAPPED: dict[str, Any] = {
    "BooleanWrapper": "boolean",
    "IntWrapper": "int",
    "LongWrapper": "long",
    "FloatWrapper": "float",
    "DoubleWrapper": "double",
    "BytesWrapper": "bytes",
    "StringWrapper": "string",
    "DateWrapper": "int",
    "DecimalWrapper": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15},
    "TimeMicrosWrapper": "long",
    "TimestampMicrosWrapper": "long",
}


def wrapper(name: str, kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "value", "type": kind}]}


def text(name: str) -> dict[str, Any]:
    return {"name": name, "type": ["null", "string"]}


ELEMENTS = ["null", *WRAPPED, wrapper("LocalDateWrapper", "int")]
ARRAY = {
    "type": "record",
    "name": "ArrayWrapper",
    "fields": [{"name": "wrappedValues", "type": ["null", {"type": "array", "items": ELEMENTS}]}],
}
ORDERING = ["null", *(wrapper(name, kind) for name, kind in WRAPPED.items()), ARRAY]
DELETE = {
    "type": "record",
    "name": "HoodieDeleteRecord",
    "fields": [
        text("recordKey"),
        text("partitionPath"),
        {"name": "orderingVal", "type": ORDERING},
    ],
}
SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieDeleteRecordList",
        "fields": [{"name": "deleteRecordList", "type": {"type": "array", "items": DELETE}}],
    }
)


def content_of(*deletes: tuple[str | None, str | None, Any]) -> bytes:
    """Write deletes with a row writer: key, path, and an ordering value in its wrapper."""
    names = ("recordKey", "partitionPath", "orderingVal")
    buffer = io.BytesIO()
    rows = [dict(zip(names, delete, strict=True)) for delete in deletes]
    fastavro.schemaless_writer(buffer, SCHEMA, {"deleteRecordList": rows})
    return struct.pack(">ii", 3, len(buffer.getvalue())) + buffer.getvalue()


def wrapped(name: str, value: Any) -> tuple[str, Any]:
    return (name, {"value": value})


def several(*values: Any) -> tuple[str, Any]:
    return ("ArrayWrapper", {"wrappedValues": list(values)})


def decode(content: bytes) -> Deletes:
    return decode_delete_block(block_of(content, kind=BlockKind.DELETE))


def deletes_of(*orderings: pa.Array, is_commit_time: list[bool] | None = None) -> Deletes:
    count = len(orderings[0])
    keys = pa.array([f"k{row}" for row in range(count)])
    flags = pa.array(is_commit_time or [False] * count)
    return Deletes(keys, pa.array(["p"] * count), flags, orderings)


def encode(deletes: Deletes) -> bytes:
    return bytes(only_block(encode_delete_block(deletes, instant=INSTANT)).content)


def test_delete_of_the_walk_through_is_read_and_written_so() -> None:
    content = bytes.fromhex("00000003 0000000c 02 02046b32 02047030 060a 00")
    deletes = decode(content)
    assert deletes.record_keys.to_pylist() == ["k2"]
    assert deletes.partition_paths.to_pylist() == ["p0"]
    assert deletes.is_commit_time.to_pylist() == [False]
    assert [one.to_pylist() for one in deletes.orderings] == [[5]]
    assert deletes.orderings[0].type == pa.int64()
    assert encode(deletes) == content


def test_tombstone_of_a_metadata_table_is_a_commit_time_delete() -> None:
    content = bytes.fromhex(
        "00000003 0000001b 02 02 0e 6b303030303030 02 18 7265636f72645f696e646578 04 00 00"
    )
    deletes = decode(content)
    assert deletes.partition_paths.to_pylist() == ["record_index"]
    assert (deletes.is_commit_time.to_pylist(), deletes.orderings) == ([True], ())
    assert encode(deletes) == content


def test_block_that_opens_a_file_group_has_80_bytes() -> None:
    empty = Deletes(*(pa.array([], kind) for kind in (pa.string(), pa.string(), pa.bool_())), ())
    written = encode_delete_block(empty, instant=INSTANT)
    assert len(written) == 80
    assert only_block(written).headers == {HeaderKey.INSTANT_TIME: INSTANT}
    assert bytes(only_block(written).content) == bytes.fromhex("00000003 00000001 00")
    assert len(decode_delete_block(only_block(written)).record_keys) == 0


def test_schema_of_the_table_is_told_where_it_is_given() -> None:
    written = encode_delete_block(deletes_of(pa.array([1])), instant=INSTANT, schema_json="{}")
    assert only_block(written).headers[HeaderKey.SCHEMA] == "{}"


VALUES: list[tuple[str, Any, pa.Array]] = [
    ("BooleanWrapper", True, pa.array([True])),
    ("IntWrapper", -7, pa.array([-7], pa.int32())),
    ("LongWrapper", 2**62, pa.array([2**62])),
    ("FloatWrapper", 0.5, pa.array([0.5], pa.float32())),
    ("DoubleWrapper", -0.1, pa.array([-0.1])),
    ("BytesWrapper", b"\xff", pa.array([b"\xff"])),
    ("StringWrapper", "ä", pa.array(["ä"])),
    ("DateWrapper", -1, pa.array([dt.date(1969, 12, 31)])),
    ("DecimalWrapper", Decimal("1.5"), pa.array([Decimal("1.5")], pa.decimal128(30, 15))),
    ("TimeMicrosWrapper", 1, pa.array([1], pa.time64("us"))),
    ("TimestampMicrosWrapper", 10**15, pa.array([10**15], TIMESTAMP)),
]


@pytest.mark.parametrize(("name", "value", "column"), VALUES, ids=[v[0] for v in VALUES])
def test_each_wrapper_has_its_arrow_type(name: str, value: Any, column: pa.Array) -> None:
    content = content_of(("k0", "p", wrapped(name, value)))
    deletes = decode(content)
    assert deletes.orderings[0].equals(column)
    is_time = name in ("DateWrapper", "TimestampMicrosWrapper")  # Read, and written as numbers.
    assert is_time or encode(deletes) == content
    pair = several(wrapped(name, value), wrapped("LongWrapper", 3))
    content = content_of(("k0", "p", pair), ("k1", None, wrapped("IntWrapper", 0)))
    both = decode(content)
    assert both.orderings[0].to_pylist() == [*column.to_pylist(), None]
    assert both.orderings[1].to_pylist() == [3, None]
    assert both.is_commit_time.to_pylist() == [False, True]
    assert is_time or encode(both) == content


@pytest.mark.parametrize("kind", [TIMESTAMP, TIMESTAMP_NTZ], ids=str)
def test_timestamp_is_written_as_a_long_as_hudi_does(kind: pa.DataType) -> None:
    moments = pa.array([-1, 10**15], kind)
    content = content_of(
        ("k0", "p", wrapped("LongWrapper", -1)), ("k1", "p", wrapped("LongWrapper", 10**15))
    )
    assert encode(deletes_of(moments)) == content
    assert decode(content).orderings[0].cast(kind).equals(moments)


def test_date_is_written_as_an_int_since_hudi_fails_to_read_it_in_its_own_wrapper() -> None:
    days = pa.array([-1, 20_000], pa.int32()).cast(pa.date32())
    content = content_of(
        ("k0", "p", wrapped("IntWrapper", -1)), ("k1", "p", wrapped("IntWrapper", 20_000))
    )
    assert encode(deletes_of(days)) == content
    assert decode(content).orderings[0].cast(pa.date32()).equals(days)


def test_several_ordering_values_have_the_bytes_that_hudi_writes() -> None:
    deletes = deletes_of(pa.array([15]), pa.array([3], pa.int32()))
    content = encode(deletes)
    assert bytes.fromhex("1802 04 061e 0406 00") in content
    assert [one.to_pylist() for one in decode(content).orderings] == [[15], [3]]


def test_commit_time_deletes_among_others_have_no_value() -> None:
    content = content_of(
        ("a", "p", wrapped("LongWrapper", 0)),
        ("b", None, wrapped("IntWrapper", 0)),
        ("c", "p", None),
        ("d", "", wrapped("LongWrapper", -5)),
    )
    deletes = decode(content)
    assert deletes.is_commit_time.to_pylist() == [False, True, True, False]
    assert deletes.orderings[0].to_pylist() == [0, None, None, -5]
    assert deletes.partition_paths.to_pylist() == ["p", None, "p", ""]
    again = decode(encode(deletes))
    assert again.orderings[0].equals(deletes.orderings[0])
    assert again.is_commit_time.equals(deletes.is_commit_time)


def test_int_0_is_a_commit_time_delete_also_of_an_int_field() -> None:
    content = content_of(("a", "p", wrapped("IntWrapper", 0)), ("b", "p", wrapped("IntWrapper", 4)))
    deletes = decode(content)
    assert deletes.is_commit_time.to_pylist() == [True, False]
    assert deletes.orderings[0].to_pylist() == [None, 4]


def test_null_of_one_of_several_fields_is_null_but_in_a_field_of_type_int() -> None:
    long, integer = wrapped("LongWrapper", 5), wrapped("IntWrapper", 6)
    zero = wrapped("IntWrapper", 0)
    content = content_of(
        ("a", "p", several(long, integer, zero, wrapped("LocalDateWrapper", 1))),
        ("b", "p", several(zero, zero, None, None)),
        ("c", "p", several(None, None, zero, zero)),
    )
    deletes = decode(content)
    assert deletes.is_commit_time.to_pylist() == [False] * 3
    assert [one.to_pylist() for one in deletes.orderings] == [
        [5, None, None],
        [6, 0, 0],
        [0, 0, 0],
        [dt.date(1970, 1, 2), None, None],
    ]


def test_value_without_a_wrapper_is_refused_and_null_is_written_as_none() -> None:
    with pytest.raises(InputError, match=r"array<int>"):
        encode(deletes_of(pa.array([[1]], pa.list_(pa.int32()))))
    with pytest.raises(InputError, match="ordering value"):
        encode(deletes_of(pa.array([Decimal(10**20)], pa.decimal128(21, 0))))
    decimals = decode(encode(deletes_of(pa.array([Decimal("2.50")], pa.decimal128(5, 2)))))
    assert decimals.orderings[0].to_pylist() == [Decimal("2.5")]
    nulls = decode(encode(deletes_of(pa.array([1, None]))))
    assert nulls.is_commit_time.to_pylist() == [False, True]


def test_constant_paths_and_slices_are_taken() -> None:
    columns = (pa.array(["x", "a", "b"]).slice(1), constant_column("p", 2))
    flags, values = pa.array([False] * 3).slice(1), pa.array([7, 8, 9]).slice(1)
    deletes = decode(encode(Deletes(*columns, flags, (values,))))
    assert deletes.record_keys.to_pylist() == ["a", "b"]
    assert deletes.partition_paths.to_pylist() == ["p", "p"]
    assert deletes.orderings[0].to_pylist() == [8, 9]


LONG, TEXT = wrapped("LongWrapper", 1), wrapped("StringWrapper", "1")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (content_of(("a", "p", LONG), ("b", "p", TEXT)), "of one type, found int64 and string"),
        (content_of(("a", "p", several(LONG)), ("b", "p", LONG)), "several ordering values"),
        (content_of(("a", "p", several(LONG, TEXT)), ("b", "p", several(LONG))), "2 ordering"),
        (content_of(("a", "p", several(LONG)), ("b", "p", several(TEXT))), "of one type"),
        (content_of((None, "p", LONG)), "record key"),
        (content_of(("a", "p", several())), "items"),
        (bytes(7), "content version and a size"),
        (struct.pack(">ii", 0, 1) + b"\0", "content version 3"),
        (struct.pack(">ii", 4, 1) + b"\0", "content version 3"),
        (struct.pack(">ii", 3, 2) + b"\0", "a size of 1"),
        (struct.pack(">ii", 3, 2) + b"\0\0", "end of the deletes"),
        (struct.pack(">ii", 3, 0), "items"),
        (struct.pack(">iib", 3, 6, 2) + bytes.fromhex("02ff7f0000"), "items"),
        (struct.pack(">iib", 3, 5, 2) + bytes.fromhex("00001a00"), "items"),
        (struct.pack(">iib", 3, 5, 2) + bytes.fromhex("00000100"), "items"),
        (struct.pack(">iib", 3, 9, 2) + bytes.fromhex("020261001802190000")[:8], "items"),
    ],
)
def test_damaged_content_is_refused_at_its_byte(content: bytes, expected: str) -> None:
    with pytest.raises(FormatError, match=expected) as caught:
        decode(content)
    assert caught.value.path == PATH
    assert caught.value.offset_bytes is not None


@pytest.mark.parametrize("version", [1, 2])
def test_content_of_java_objects_is_refused_by_its_version(version: int) -> None:
    with pytest.raises(UnsupportedFeatureError, match=f"version {version} of delete blocks"):
        decode(struct.pack(">ii", version, 4) + bytes(4))


def test_content_cut_off_at_any_byte_is_refused() -> None:
    content = content_of(*[("key", "path", several(LONG, TEXT, None))] * 3)
    for length in range(len(content)):
        avro = max(length - 8, 0)
        for size in (content[4:8], struct.pack(">i", avro)):
            cut = content[:4] + size + content[8:length] if length > 8 else content[:length]
            with pytest.raises(FormatError):
                decode(cut)
