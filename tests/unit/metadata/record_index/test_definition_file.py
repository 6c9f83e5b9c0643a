"""The file that describes the indexes of a table."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bucketlake.config import table_keys as keys
from bucketlake.errors import FormatError
from bucketlake.format.index_definitions import (
    IndexDefinition,
    decode_index_definitions,
    encode_index_definitions,
)
from bucketlake.metadata.record_index.definition_file import (
    columns_with_statistics,
    read_index_definitions,
    update_index_definitions,
)
from bucketlake.timeline.open_table import opened_table
from tests.golden.objects import objects_of_table
from tests.storages import memory_of, objects_of
from tests.written_metadata import CONFIG

PATH = ".hoodie/.index_defs/index.json"
STATS = IndexDefinition.of_column_stats(("id", "v"), "V2")
INDEX = IndexDefinition.of_record_index(is_partitioned=True)


@pytest.mark.parametrize("name", ["cow_simple", "cow_rli_partitioned"])
def test_definitions_of_hudi_are_read_and_written_without_a_change(name: str) -> None:
    data = objects_of_table(name)[PATH]
    again = encode_index_definitions(decode_index_definitions(data, PATH))
    held = json.loads(again)
    assert held.pop("checksum")
    assert held == json.loads(data)


def test_our_definitions_are_those_of_hudi() -> None:
    found = decode_index_definitions(objects_of_table("cow_rli_partitioned")[PATH], PATH)
    assert found["record_index"] == INDEX
    columns = found["column_stats"].source_fields
    assert found["column_stats"] == IndexDefinition.of_column_stats(columns, "V2")


def test_definitions_of_others_are_kept_with_all_their_fields() -> None:
    theirs = {
        "indexName": "secondary_index_v",
        "indexType": "secondary_index",
        "indexFunction": "identity",
        "sourceFields": ["v"],
        "indexOptions": {"a": "b"},
        "version": "V2",
        "comment": {"of": ["another", "release"]},
    }
    content = {"indexDefinitions": {"secondary_index_v": theirs}}
    storage = memory_of({PATH: json.dumps(content).encode()})
    update_index_definitions(opened_table(storage, CONFIG), add=[STATS, INDEX])
    held = json.loads(storage.read(PATH))["indexDefinitions"]
    assert held["secondary_index_v"] == theirs
    assert list(held) == ["secondary_index_v", "column_stats", "record_index"]


def test_update_without_a_change_writes_nothing() -> None:
    storage = memory_of()
    update_index_definitions(opened_table(storage, CONFIG), add=[])
    assert not objects_of(storage)
    assert read_index_definitions(opened_table(storage, CONFIG)) == {}
    assert columns_with_statistics(opened_table(storage, CONFIG)) == ()


def test_definition_is_replaced() -> None:
    storage = memory_of()
    update_index_definitions(opened_table(storage, CONFIG), add=[STATS])
    wider = IndexDefinition.of_column_stats(("id", "v", "w"), "V2")
    update_index_definitions(opened_table(storage, CONFIG), add=[wider])
    assert read_index_definitions(opened_table(storage, CONFIG)) == {"column_stats": wider}
    assert columns_with_statistics(opened_table(storage, CONFIG)) == ("id", "v", "w")


def test_path_of_the_properties_is_used_and_may_not_lead_outside() -> None:
    def named(path: str) -> dict[str, str]:
        return {keys.INDEX_DEFINITIONS_PATH: path}

    storage = memory_of()
    config = replace(CONFIG, extra=named(".hoodie/elsewhere.json"))
    update_index_definitions(opened_table(storage, config), add=[INDEX])
    assert [*objects_of(storage)] == [".hoodie/elsewhere.json"]
    with pytest.raises(FormatError, match=r"hoodie\.table\.index\.defs\.path"):
        read_index_definitions(opened_table(storage, replace(CONFIG, extra=named("../index.json"))))


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"indexDefinitions": {"a": 1}}', b"\xff"])
def test_broken_file_raises_an_error_with_its_path(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"index\.json"):
        read_index_definitions(opened_table(memory_of({PATH: data}), CONFIG))
