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
    MOR_TABLES_FOLDER,
    MORE_TABLES_FOLDER,
    TABLES_FOLDER,
    objects_of_table,
    table_names,
)
from tests.storages import memory_of

TABLES = [
    name
    for folder in (TABLES_FOLDER, MORE_TABLES_FOLDER, MOR_TABLES_FOLDER)
    for name in table_names(folder)
    if any(".log." in path for path in objects_of_table(name))
]


LONG, DECIMAL = pa.int64(), pa.decimal128(30, 15)
ORDERED_DELETES = {
    "mor_delete_marker": (LONG,),
    "mor_not_read": (LONG,),
    "mor_deleted_by_flag": (LONG,),
    "mor_v6_deleted_by_flag": (LONG,),
    "mor_ordered_by_boolean": (pa.bool_(),),
    "mor_ordered_by_int": (pa.int32(),),
    "mor_ordered_by_int_zero": (pa.int32(),),
    "mor_ordered_by_float": (pa.float32(),),
    "mor_ordered_by_double": (pa.float64(),),
    "mor_ordered_by_string": (pa.string(),),
    "mor_ordered_by_decimal": (DECIMAL,),
    # Both kinds of timestamp count as longs, of microseconds.
    "mor_ordered_by_timestamp": (LONG,),
    "mor_ordered_by_timestamp_ntz": (LONG,),
    "mor_two_ordering_fields": (LONG, pa.int32()),
    "mor_ordered_by_size_and_time": (pa.float64(), LONG),
    "mor_ordered_by_decimal_and_text": (DECIMAL, pa.string()),
    "mor_wider_ordering": (LONG,),
    "mor_amazon_changes": (LONG,),  # Told, although the commit time decides.
}


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


def test_all_kinds_of_blocks_that_hudi_writes_are_there() -> None:
    kinds = Counter(block.kind for name in TABLES for block in blocks_of(name))
    assert kinds == {
        BlockKind.AVRO_DATA: 625,
        BlockKind.DELETE: 289,
        BlockKind.HFILE_DATA: 299,
        BlockKind.PARQUET_DATA: 9,
        BlockKind.CDC_DATA: 4,
        BlockKind.COMMAND: 2,
    }


def assert_is_written_so(name: str, block: LogBlock, written: bytes) -> None:
    """Compare bytes with those of Hudi, which puts headers in an order of each JVM's own."""
    whole = bytes_of(name, block)
    if list(block.headers) == sorted(block.headers):
        assert written == whole
        return
    (again,) = read_log_blocks(memory_of({block.path: written}), block.path)
    assert (again.kind, again.headers) == (block.kind, block.headers)
    assert again.content == block.content
    assert len(written) == len(whole)


def test_frame_of_every_block_is_written_as_hudi_wrote_it(name: str) -> None:
    for block in blocks_of(name):
        written = encode_block(block.kind, block.headers, block.content)
        assert_is_written_so(name, block, written)


def test_block_is_of_the_instant_in_the_name_of_its_file(name: str) -> None:
    others = set()
    for block in blocks_of(name):
        file_name = LogFileName.from_file_name(block.path.rpartition("/")[2])
        assert file_name is not None
        assert file_name.instant <= block.instant
        if file_name.instant != block.instant:
            others.add(file_name.instant)
    if "_v6" in name:
        return  # There a log file has the instant of its base file.
    # Copies that were written while a resize was pending have its instant in their names.
    resizes = {
        path.rpartition("/")[2].partition(".")[0]
        for path in objects_of_table(name)
        if path.endswith(".clustering.requested")
    }
    assert others <= resizes
    assert bool(others) == ("_resize" in name)


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
            expected = pa.Table.from_pylist(rows_of(block), schema=decoded.schema)
            # Not with equals(), to which NaN is not itself.
            assert repr(decoded.to_pylist()) == repr(expected.to_pylist())


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
        (mine,) = read_log_blocks(memory_of({block.path: again}), block.path)
        assert mine.content == block.content
        assert (mine.checksum is None) == (schema is None), "Hudi's blocks have none"
        mine.require_whole()
        if set(mine.headers) == set(block.headers):  # Others are of readers' and compactions' use.
            assert_is_written_so(name, block, encode_block(mine.kind, mine.headers, mine.content))


def test_deletes_by_key_have_no_ordering_value(name: str) -> None:
    if name in ORDERED_DELETES:
        return
    for block in blocks_of(name):
        if block.kind == BlockKind.DELETE:
            deletes = decode_delete_block(block)
            assert deletes.orderings == ()
            assert all(deletes.is_commit_time.to_pylist())


@pytest.mark.parametrize(("name", "types"), ORDERED_DELETES.items(), ids=list(ORDERED_DELETES))
def test_deletes_by_flag_have_ordering_values_of_the_type_that_hudi_compares(
    name: str, types: tuple[pa.DataType, ...]
) -> None:
    found = [decode_delete_block(b) for b in blocks_of(name) if b.kind == BlockKind.DELETE]
    told = [deletes.orderings for deletes in found if deletes.orderings]
    assert told
    assert {tuple(one.type for one in orderings) for orderings in told} == {types}
