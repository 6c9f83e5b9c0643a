"""Log files of tables that real Hudi wrote: every block is read, and written again to its bytes."""

from __future__ import annotations

import io
import json
import struct
from collections import Counter
from functools import cache
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from bucketlake.format.log_block import (
    BlockKind,
    HeaderKey,
    LogBlock,
    encode_block,
    read_log_blocks,
)
from bucketlake.format.log_data import decode_data_block, encode_avro_block
from bucketlake.format.log_deletes import decode_delete_block, encode_delete_block
from bucketlake.model.file_name import LogFileName
from tests.golden.objects import (
    MORE_TABLES_FOLDER,
    TABLES_FOLDER,
    objects_of_table,
    table_names,
)
from tests.storages import memory_of

TABLES = [
    name
    for name in (*table_names(TABLES_FOLDER), *table_names(MORE_TABLES_FOLDER))
    if any(".log." in path for path in objects_of_table(name))
]


@cache
def blocks_of(name: str) -> list[LogBlock]:
    """Return the blocks of all log files of a table and of its metadata table."""
    storage = memory_of(objects_of_table(name))
    paths = [
        path
        for path in objects_of_table(name)
        if LogFileName.from_file_name(path.rpartition("/")[2]) is not None
    ]
    return [block for path in sorted(paths) for block in read_log_blocks(storage, path)]


def bytes_of(name: str, block: LogBlock) -> bytes:
    """Return the bytes of a block in its file."""
    whole = objects_of_table(name)[block.path]
    (size,) = struct.unpack_from(">q", whole, block.offset_bytes + 6)
    return whole[block.offset_bytes : block.offset_bytes + 14 + size]


@pytest.fixture(params=TABLES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_all_kinds_of_blocks_that_hudi_writes_by_default_are_there() -> None:
    kinds = Counter(block.kind for name in TABLES for block in blocks_of(name))
    assert kinds == {
        BlockKind.AVRO_DATA: 166,
        BlockKind.DELETE: 102,
        BlockKind.HFILE_DATA: 289,
        BlockKind.CDC_DATA: 2,
    }


def test_frame_of_every_block_is_written_as_hudi_wrote_it(name: str) -> None:
    for block in blocks_of(name):
        assert encode_block(block.kind, block.headers, block.content) == bytes_of(name, block)


def test_block_is_of_the_instant_in_the_name_of_its_file(name: str) -> None:
    for block in blocks_of(name):
        file_name = LogFileName.from_file_name(block.path.rpartition("/")[2])
        assert file_name is not None
        assert file_name.instant <= block.instant  # In version 6 it is that of the base file.
        assert name.endswith("_v6") or file_name.instant == block.instant


def rows_of(block: LogBlock) -> list[dict[str, Any]]:
    """Read the records of an Avro block one by one."""
    source = io.BytesIO(block.content)
    schema = fastavro.parse_schema(json.loads(block.headers[HeaderKey.SCHEMA]))
    _, count = struct.unpack(">ii", source.read(8))
    rows = []
    for _ in range(count):
        source.read(4)
        rows.append(fastavro.schemaless_reader(source, schema))
    return rows


def test_records_are_those_of_a_row_reader(name: str) -> None:
    for block in blocks_of(name):
        if block.kind in (BlockKind.AVRO_DATA, BlockKind.CDC_DATA):
            decoded = decode_data_block(block)
            decoded.validate(full=True)
            assert decoded.num_rows > 0
            assert decoded.equals(pa.Table.from_pylist(rows_of(block), schema=decoded.schema))


def test_records_and_deletes_are_written_as_hudi_wrote_them(name: str) -> None:
    for block in blocks_of(name):
        schema = block.headers.get(HeaderKey.SCHEMA)
        if block.kind == BlockKind.AVRO_DATA:
            assert schema is not None
            data = decode_data_block(block)
            again = encode_avro_block(data, schema, instant=block.instant)
        elif block.kind == BlockKind.DELETE:
            deletes = decode_delete_block(block)
            again = encode_delete_block(deletes, instant=block.instant, schema_json=schema)
        else:
            continue
        assert again == bytes_of(name, block)


def test_deletes_by_key_have_no_ordering_value(name: str) -> None:
    for block in blocks_of(name):
        if block.kind == BlockKind.DELETE:
            deletes = decode_delete_block(block)
            assert deletes.orderings == ()
            assert all(deletes.is_commit_time.to_pylist())
