"""Schemas as a person types them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bucketlake.cli.schema_text import parse_schema
from bucketlake.errors import ConfigError


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


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("id", "write name:type"),
        (":int", "write name:type"),
        ("id:int,", "write name:type"),
        ("id:text", "types are boolean"),
        ("id:int,id:string", "'id' is named twice"),
        ("price:decimal(39,2)", "1 to 38 digits"),
        ("price:decimal(4,5)", "1 to 38 digits"),
    ],
)
def test_a_schema_that_cannot_be_read_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        parse_schema(text)
