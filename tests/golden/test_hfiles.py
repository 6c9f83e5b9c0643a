"""HFiles of the metadata tables that real Hudi wrote: base files, and log blocks."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import fastavro
import pytest

from bucketlake.format.hfile.reader import HFileReader
from bucketlake.format.log_block import BlockKind, HeaderKey
from tests.golden.objects import TABLES_FOLDER, objects_of_table, table_names
from tests.golden.test_log_files import blocks_of

TABLES = table_names(TABLES_FOLDER)


def hfiles_of(name: str) -> Iterator[HFileReader]:
    for path, content in objects_of_table(name).items():
        if path.endswith(".hfile"):
            yield HFileReader.of_bytes(content, path)
    for block in blocks_of(name):
        if block.kind == BlockKind.HFILE_DATA:
            at = block.content_offset_bytes
            hfile = HFileReader.of_bytes(block.content, block.path, offset_bytes=at)
            assert hfile.info["schema"].decode() == block.headers[HeaderKey.SCHEMA]
            yield hfile


@pytest.mark.parametrize("name", TABLES)
def test_keys_are_sorted_and_values_are_records_of_the_files_schema(name: str) -> None:
    hfiles = list(hfiles_of(name))
    assert hfiles
    for hfile in hfiles:
        entries = hfile.read()
        keys = entries.keys.to_pylist()
        assert keys == sorted(keys)
        last = hfile.info["hfile.LASTKEY"]
        assert last[2:] == (keys[-1] if keys else b"")
        schema = fastavro.parse_schema(json.loads(hfile.info["schema"]))
        for value in entries.values.to_pylist():
            source = io.BytesIO(value)
            record = fastavro.schemaless_reader(source, schema)
            assert record["key"] == ""  # The key stands in the cell alone.
            assert source.read() == b""


def test_base_file_of_the_partition_files_names_all_partitions() -> None:
    keys = [
        key
        for path, content in objects_of_table("cow_simple").items()
        if path.endswith(".hfile") and "/files/" in path
        for key in HFileReader.of_bytes(content, path).read().keys.to_pylist()
    ]
    assert b"__all_partitions__" in keys
