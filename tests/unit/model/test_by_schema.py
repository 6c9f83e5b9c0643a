"""Results that are kept for equal schemas."""

from __future__ import annotations

import pyarrow as pa

from bucketlake.model.by_schema import by_schema

_ID = pa.schema({"id": pa.string()})


def test_asks_once_for_equal_schemas_and_values() -> None:
    asked = []

    @by_schema
    def named(schema: pa.Schema, ending: str) -> str:
        asked.append((schema, ending))
        return schema.names[0] + ending

    for _ in range(2):
        assert named(_ID, "!") == "id!"
        assert named(pa.schema([pa.field("id", pa.string())]), "!") == "id!"
        assert named(_ID, "?") == "id?"
    assert len(asked) == 2


def test_tells_schemas_apart_by_metadata_and_nullability() -> None:
    @by_schema
    def itself(schema: pa.Schema) -> pa.Schema:
        return schema

    others = [
        _ID.with_metadata({"a": "b"}),
        pa.schema([pa.field("id", pa.string(), nullable=False)]),
        pa.schema([pa.field("id", pa.string(), metadata={"a": "b"})]),
    ]
    for schema in [_ID, *others] * 2:
        assert itself(schema) is schema


def test_keeps_the_newest_results_alone() -> None:
    asked = []

    @by_schema
    def name(schema: pa.Schema) -> str:
        asked.append(schema)
        return str(schema.names[0])

    many = [pa.schema({f"c{number}": pa.string()}) for number in range(20)]
    for schema in [*many, many[-1], many[0]]:
        name(schema)
    assert len(asked) == 21
