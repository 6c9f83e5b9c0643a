"""Schemas as a person types them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bucketlake.errors import ConfigError
from bucketlake.model.schema_text import parse_schema


def test_a_schema_is_read_in_order_with_sql_types() -> None:
    assert parse_schema("id:string, price:decimal(10, 2),n:long,at:Timestamp,d:date") == pa.schema(
        [
            ("id", pa.string()),
            ("price", pa.decimal128(10, 2)),
            ("n", pa.int64()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("d", pa.date32()),
        ]
    )


def test_a_schema_may_be_written_as_ddl_with_nested_types() -> None:
    text = """
        id STRING NOT NULL COMMENT 'the key, of course', tags array<string>, end int,
        `a:b` map<string, struct<x: int, `y z`:array<decimal>>>, two words:numeric(4,2), t short
    """
    inner = pa.struct([("x", pa.int32()), ("y z", pa.list_(pa.decimal128(10, 0)))])
    assert parse_schema(text) == pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            ("tags", pa.list_(pa.string())),
            ("end", pa.int32()),
            ("a:b", pa.map_(pa.string(), inner)),
            ("two words", pa.decimal128(4, 2)),
            ("t", pa.int16()),
        ]
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "write name type"),
        ("id", "'id' has no type"),
        (":int", "write name type"),
        ("id:int,", "write name type"),
        ("id:text", "types are boolean"),
        ("id:strnig", "did you mean 'string'"),
        ("id varchar(20)", "write string"),
        ("id:int,id:string", "'id' is named twice"),
        ("s struct<a:int,a:int>", "'a' is named twice"),
        ("price:decimal(39,2)", "1 to 38 digits"),
        ("price:decimal(4,5)", "1 to 38 digits"),
        ("id string n int", "'n int' is not expected"),
        ("m map<string>", "',' is missing before '>'"),
        ("a array<int", "'>' is missing"),
        ("a " + "array<" * 100_000 + "int", "more than 50 deep"),
        ("a " + "struct<a:" * 100_000 + "int", "more than 50 deep"),
    ],
)
def test_a_schema_that_cannot_be_read_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_schema(text)
