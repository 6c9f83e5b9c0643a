"""Schemas and containers of others: followed and unpacked within bounds, or refused."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from bucketlake.errors import FormatError
from bucketlake.format.avro.bounded_schema import TYPES_MAX, parse_avro_schema
from bucketlake.format.avro.timeline_records import avro_schema, decode_record
from bucketlake.format.avro.tree import avro_tree
from tests.hostile.attacks import container, doubling, packed, record

NODE = record(("next", ["null", "Node"]), name="Node")


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (NODE, "inside itself"),
        (record(("a", record(("b", {"type": "map", "values": "t.A"}), name="B")), name="t.A"),
         "inside itself"),
        (record(("n", {"type": "array", "items": "null"})), "take no bytes"),
        (record(("n", {"type": "array", "items": record(name="E")})), "take no bytes"),
        (record(("n", {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}})),
         "take no bytes"),
        (doubling(20), f"more than {TYPES_MAX}"),
        (doubling(10_000), "brackets"),
        ({"type": ["null", 5]}, "no Avro type"),
    ],
)  # fmt: skip
def test_schema_beyond_the_bounds_is_refused(schema: Any, problem: str) -> None:
    text = json.dumps(schema) if problem != "brackets" else '{"type":' * 10_000
    with pytest.raises(ValueError, match=problem):
        parse_avro_schema(text)


def test_table_schema_whose_records_double_is_refused() -> None:
    assert avro_tree(json.dumps(doubling(8)), "s")[0].names == ["v"]
    with pytest.raises(FormatError, match="more than 20000 types"):
        avro_tree(json.dumps(doubling(20)), "s")


@pytest.mark.parametrize("name", ["HoodieCommitMetadata", "HoodieArchivedMetaEntry"])
def test_schemas_of_hudi_are_far_below_the_bounds(name: str) -> None:
    assert parse_avro_schema(json.dumps(avro_schema(name))) == avro_schema(name)


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_container_is_read_whatever_its_codec(codec: str) -> None:
    data = io.BytesIO()
    schema = fastavro.parse_schema(avro_schema("HoodieInstantInfo"))
    held = {"commitTime": "1", "action": "commit"}
    fastavro.writer(data, schema, [held], codec=codec)
    assert decode_record(data.getvalue(), "f", "HoodieInstantInfo") == held


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz"])
def test_block_that_unpacks_to_much_more_is_refused(codec: str) -> None:
    with pytest.raises(FormatError, match="unpacks to more than 16777216 bytes"):
        decode_record(packed(codec), "f", "HoodieCommitMetadata")


def test_container_with_another_number_of_records_is_refused() -> None:
    for count in (0, 2, 1 << 40):
        data = container(avro_schema("HoodieInstantInfo"), b"", count=count)
        with pytest.raises(FormatError, match="instead of one record"):
            decode_record(data, "f", "HoodieInstantInfo")
