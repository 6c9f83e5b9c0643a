"""Avro schemas of tables: what Hudi writes, and what other producers leave in Hudi tables."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from bucketlake.errors import FormatError, InputError, UnsupportedFeatureError
from bucketlake.format.avro.table_schema import avro_from_arrow, decimal_size_bytes, record_name
from bucketlake.format.avro.tree import arrow_from_avro
from bucketlake.model.column_type import COMMENT, TIMESTAMP, TIMESTAMP_NTZ, list_type, map_of


def read(field_type: Any) -> pa.Field:
    """Read the schema of one column."""
    record = {"type": "record", "name": "r", "fields": [{"name": "c", "type": field_type}]}
    return arrow_from_avro(json.dumps(record), where="commit 1").field("c")


def nested(structs: int) -> pa.DataType:
    """Return a type of structs inside each other."""
    held = pa.int64()
    for _ in range(structs):
        held = pa.struct({"a": held})
    return held


def test_a_schema_is_printed_if_and_only_if_it_is_not_too_deep_to_be_read() -> None:
    deepest = pa.schema({"id": pa.string(), "deep": nested(49)})
    assert arrow_from_avro(avro_from_arrow(deepest, "t")) == deepest
    asked = r"schema of t, column deep: .*expected at most 200 brackets .*, found 204; "
    with pytest.raises(InputError, match=asked):
        avro_from_arrow(pa.schema({"id": pa.string(), "deep": nested(50)}), "t")


def test_schema_is_printed_as_hudi_prints_it() -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.string(), False),
            pa.field("d", pa.decimal128(10, 2), metadata={COMMENT: b'a "b"'}),
            pa.field("s", list_type(pa.struct({"x": pa.date32()}), nullable=False)),
        ]
    )
    assert avro_from_arrow(schema, "a-b") == (
        '{"type":"record","name":"a__b_record","namespace":"hoodie.a__b","fields":['
        '{"name":"id","type":"string"},'
        '{"name":"d","type":["null",{"type":"fixed","name":"fixed",'
        '"namespace":"hoodie.a__b.a__b_record.d","size":5,"logicalType":"decimal","precision":10,'
        '"scale":2}],"doc":"a \\"b\\"","default":null},'
        '{"name":"s","type":["null",{"type":"array","items":{"type":"record","name":"s",'
        '"namespace":"hoodie.a__b.a__b_record","fields":[{"name":"x","type":["null",'
        '{"type":"int","logicalType":"date"}],"default":null}]}}],"default":null}]}'
    )


def test_printed_schema_is_valid_avro() -> None:
    point = pa.struct({"x": pa.decimal128(9, 1), "y": list_type(pa.decimal128(12, 1))})
    schema = pa.schema({"a": point, "b": list_type(point), "c": map_of(map_of(point))})
    fastavro.parse_schema(json.loads(avro_from_arrow(schema, "1-ä")))


@pytest.mark.parametrize(
    ("table", "record"),
    [
        ("orders", "orders_record"),
        ("1a", "__a_record"),
        ("日本", "_____record"),
        ("_a1", "_a1_record"),
    ],
)
def test_record_name_is_sanitised(table: str, record: str) -> None:
    assert record_name(table) == record


@pytest.mark.parametrize(
    ("precision", "size_bytes"),
    [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (9, 4), (10, 5), (18, 8), (19, 9), (25, 11), (38, 16)],
)
def test_decimal_takes_the_fewest_bytes(precision: int, size_bytes: int) -> None:
    assert decimal_size_bytes(precision) == size_bytes


@pytest.mark.parametrize(
    ("avro", "expected"),
    [
        ("int", pa.int32()),
        ({"type": "string", "avro.java.string": "String"}, pa.string()),
        ({"type": "string", "logicalType": "uuid"}, pa.string()),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5}, pa.decimal128(5, 0)),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, pa.string()),
        ({"type": "fixed", "name": "f", "size": 4}, pa.binary()),
        ({"type": "long", "logicalType": "timestamp-millis"}, TIMESTAMP),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, TIMESTAMP_NTZ),
        ({"type": "long", "logicalType": "unheard-of"}, pa.int64()),
        ({"type": {"type": "array", "items": "int"}}, list_type(pa.int32(), nullable=False)),
        ({"type": "map", "values": ["int", "null"]}, map_of(pa.int32())),
    ],
)
def test_spellings_of_other_producers_are_read(avro: Any, expected: pa.DataType) -> None:
    assert read(avro).type.equals(expected)


@pytest.mark.parametrize("union", [["null", "int"], ["int", "null"]])
def test_union_with_null_in_either_order_is_nullable(union: list[str]) -> None:
    assert read(union).equals(pa.field("c", pa.int32()))
    assert read(["int"]).equals(pa.field("c", pa.int32(), False))


def test_named_type_is_read_where_it_is_used_again() -> None:
    fields = [
        {
            "name": "a",
            "type": {"type": "record", "name": "p", "fields": [{"name": "x", "type": "int"}]},
        },
        {"name": "b", "type": ["null", "n.p"]},
        {"name": "c", "type": {"type": "array", "items": "p"}},
        {
            "name": "d",
            "type": {
                "type": "fixed",
                "name": "other.f",
                "size": 2,
                "logicalType": "decimal",
                "precision": 3,
            },
        },
        {"name": "e", "type": "other.f"},
    ]
    text = json.dumps({"type": "record", "name": "r", "namespace": "n", "fields": fields})
    schema = arrow_from_avro(text)
    point = pa.struct([pa.field("x", pa.int32(), False)])
    assert schema.field("b").type.equals(point)
    assert schema.field("c").type.equals(list_type(point, nullable=False))
    assert schema.field("e").type.equals(pa.decimal128(3, 0))


def test_comment_is_kept() -> None:
    text = (
        '{"type":"record","name":"t_record","namespace":"hoodie.t","fields":'
        '[{"name":"a","type":["null","int"],"doc":"ä","default":null}]}'
    )
    assert arrow_from_avro(text).field("a").metadata == {COMMENT: "ä".encode()}
    assert avro_from_arrow(arrow_from_avro(text), "t") == text


@pytest.mark.parametrize(
    ("avro", "path", "feature"),
    [
        ({"type": "int", "logicalType": "time-millis"}, "c", "time-millis"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "c", "timestamp-nanos"),
        ({"type": "fixed", "name": "d", "size": 12, "logicalType": "duration"}, "c", "duration"),
        (["null", "int", "string"], "c", "a union of 2 types"),
        (["null"], "c", "a union of 0 types"),
        ({"type": "array", "items": ["int", "string"]}, "c[]", "a union of 2 types"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 1},
            "c",
            "decimal(39,1)",
        ),
        (
            {"type": "record", "name": "n", "fields": [{"name": "next", "type": ["null", "n"]}]},
            "c.next",
            "record n inside itself",
        ),
    ],
)
def test_type_that_spark_cannot_hold_is_refused_with_its_path(
    avro: Any, path: str, feature: str
) -> None:
    with pytest.raises(UnsupportedFeatureError) as caught:
        read(avro)
    assert caught.value.where == f"commit 1, column {path}"
    assert feature in caught.value.feature


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '"int"',
        "[]",
        '{"type":"array","items":"int"}',
        '{"type":"record","name":"r"}',
        '{"type":"record","fields":[]}',
        '{"type":"record","name":"r","fields":[{"name":"a"}]}',
        '{"type":"record","name":"r","fields":[{"name":"a","type":"unheard"}]}',
        '{"type":"record","name":"r","fields":[{"name":"a","type":7}]}',
        '{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"map"}}]}',
        '{"type":"record","name":"r","fields":[{"name":"a","type":{"logicalType":"decimal",'
        '"type":"bytes","precision":2,"scale":3}}]}',
    ],
)
def test_malformed_schema_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(FormatError, match="commit 1"):
        arrow_from_avro(text, where="commit 1")
