"""Metadata tables that real Hudi wrote: HFiles, log blocks and records, read and written again."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Iterator
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bucketlake.errors import InputError
from bucketlake.format.base_file import BaseFileReader
from bucketlake.format.hfile.reader import HFileReader
from bucketlake.format.hfile.writer import BLOCK_BYTES, encode_hfile
from bucketlake.format.log_block import BlockKind, HeaderKey, read_log_blocks
from bucketlake.format.log_data import encode_hfile_block, open_hfile_block
from bucketlake.format.log_deletes import (
    Deletes,
    decode_delete_block,
    encode_birth_block,
    encode_delete_block,
)
from bucketlake.format.metadata_record.bounds import (
    StoredType,
    ValueType,
    unwrap_bounds,
    wrap_bounds,
)
from bucketlake.format.metadata_record.file_ids import MetadataFileId, MetadataPartition
from bucketlake.format.metadata_record.record_schema import (
    IndexedLocation,
    RecordKind,
    WrappedValues,
    column_stats_keys,
    decode_column_stats,
    decode_file_maps,
    decode_locations,
    encode_column_stats,
    encode_file_maps,
    encode_locations,
    partition_stats_key,
    record_frame,
    record_schema_json,
    resolver,
)
from bucketlake.hashing.key_filter import shards_of_keys
from bucketlake.model.file_name import FileId, InstantTime
from tests.golden.objects import (
    MOR_TABLES_FOLDER,
    MORE_TABLES_FOLDER,
    TABLES_FOLDER,
    _bare,
    objects_of_table,
    table_names,
)
from tests.golden.test_log_files import blocks_of
from tests.storages import memory_of

METADATA = ".hoodie/metadata/"
VECTORS = Path(__file__).parent / "vectors"
SHARDS = json.loads((VECTORS / "rli_shard_hash.json").read_text())
TABLES = [
    name
    for folder in (TABLES_FOLDER, MORE_TABLES_FOLDER, MOR_TABLES_FOLDER)
    for name in table_names(folder)
    if any(path.startswith(METADATA) for path in objects_of_table(name))
]


@pytest.fixture(params=TABLES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def content_of(reader: HFileReader) -> memoryview:
    return reader._ranges.read(0, reader._ranges.size_bytes)


@cache
def hfiles_of(name: str) -> list[tuple[MetadataPartition, HFileReader]]:
    """Return the HFiles of a table's metadata table, base files and log blocks."""
    found = []
    for path, content in objects_of_table(name).items():
        if path.startswith(METADATA) and path.endswith(".hfile"):
            partition = MetadataPartition(path.split("/")[2])
            found.append((partition, HFileReader.of_bytes(content, path)))
    for block in blocks_of(name):
        if block.path.startswith(METADATA) and block.kind == BlockKind.HFILE_DATA:
            found.append((MetadataPartition(block.path.split("/")[2]), open_hfile_block(block)))
    return found


def values_of(name: str, *partitions: MetadataPartition) -> Iterator[pa.BinaryArray]:
    for partition, reader in hfiles_of(name):
        if partition in partitions:
            yield reader.read().values


def without_meta(value: bytes) -> bytes:
    """Take the file name off a value, which compactions put into its meta fields."""
    if value[4] == 0:
        return value
    assert value[:5] == b"\0\0\0\0\x02"
    return bytes(5) + value[6 + value[5] // 2 :]


def payloads_of(content: memoryview) -> list[bytes]:
    """Return the payloads of all data blocks, uncompressed."""
    found, at = [], 0
    while content[at : at + 8] == b"DATABLK*":
        stored, _ = struct.unpack_from(">ii", content, at + 8)
        (end,) = struct.unpack_from(">i", content, at + 29)
        found.append(zlib.decompress(content[at + 33 : at + end], 31))
        at += 33 + stored
    return found


def test_hfiles_are_written_with_the_cells_and_facts_of_hudi(name: str) -> None:
    for _, reader in hfiles_of(name):
        hfile = reader.read()
        (created_at_ms,) = struct.unpack(">q", reader.info["hfile.CREATE_TIME_TS"])
        keys, values = hfile.keys, hfile.values
        schema_json = reader.info["schema"].decode()
        again = encode_hfile(keys, values, schema_json, created_at_ms=created_at_ms)
        mine = HFileReader.of_bytes(again, "mine")
        assert mine.read().keys.equals(hfile.keys)
        assert mine.read().values.equals(hfile.values)
        blooms = {"bloomFilterTypeCode", "minRecordKey", "maxRecordKey"}
        assert mine.info == {k: v for k, v in reader.info.items() if k not in blooms}
        theirs = payloads_of(content_of(reader))
        if all(len(payload) <= BLOCK_BYTES for payload in theirs):
            assert payloads_of(memoryview(again)) == theirs
            facts = reader._trailer, mine._trailer
            for fact in ("entry_count", "cell_bytes", "root_count", "last_block_offset", "codec"):
                assert len({getattr(trailer, fact) for trailer in facts}) == 1, fact


def test_lookups_find_every_key_of_hudis_files(name: str) -> None:
    for _, reader in hfiles_of(name):
        hfile = reader.read()
        keys = hfile.keys
        assert reader.lookup(keys).keys.equals(keys)
        for row in range(0, len(keys), 7):
            found = reader.lookup(keys[row : row + 1])
            assert found.values.to_pylist() == [hfile.values[row].as_py()]


def test_schema_of_records_is_that_of_hudi(name: str) -> None:
    for _, reader in hfiles_of(name):
        schema_json = reader.info["schema"].decode()
        assert resolver(schema_json, name) is None
        assert json.loads(record_schema_json()) == _bare(json.loads(schema_json))


def test_file_maps_are_those_of_a_row_reader_and_are_written_to_their_bytes(name: str) -> None:
    schema = fastavro.parse_schema(json.loads(record_schema_json()))
    for values in values_of(name, MetadataPartition.FILES):
        kinds, maps = decode_file_maps(values, name)
        for value, kind, entries in zip(
            values.to_pylist(), kinds.tolist(), maps.to_pylist(), strict=True
        ):
            record: Any = fastavro.schemaless_reader(io.BytesIO(value), schema)
            assert record["type"] == kind
            assert record["filesystemMetadata"] == {
                path: {"size": entry["size_bytes"], "isDeleted": entry["is_deleted"]}
                for path, entry in entries
            }
        for row, value in enumerate(values.to_pylist()):
            (again,) = encode_file_maps(RecordKind(int(kinds[row])), maps[row : row + 1])
            assert again.as_py() == without_meta(value)


def test_locations_are_written_to_their_bytes(name: str) -> None:
    for values in values_of(name, MetadataPartition.RECORD_INDEX):
        found = decode_locations(values, name)
        assert all(location.instant_ms > 1_700_000_000_000 for location in found.locations)
        again = encode_locations(found.locations).take(found.indices)
        assert again.to_pylist() == [without_meta(value) for value in values.to_pylist()]


@pytest.mark.parametrize("table", [t for t in TABLES if "rli" in t or "record_index" in t])
def test_locations_are_file_groups_of_the_table(table: str) -> None:
    count = 0
    files = list(objects_of_table(table))
    for values in values_of(table, MetadataPartition.RECORD_INDEX):
        for location in decode_locations(values, table).locations:
            count += 1
            assert any(
                path.startswith(f"{location.partition_path}/{location.file_id}_") for path in files
            )
    assert count > 0


def test_ids_of_file_groups_say_partition_and_shard(name: str) -> None:
    for path in objects_of_table(name):
        folder, _, file_name = path.removeprefix(METADATA).rpartition("/")
        if path.startswith(METADATA) and (".hfile" in file_name or ".log." in file_name):
            file_id = file_name.removeprefix(".").partition("_")[0]
            parsed = MetadataFileId.from_file_id(file_id)
            assert parsed is not None
            assert parsed.partition == folder
            assert parsed.to_file_id() == file_id
            if folder == "record_index":
                data_folder = f"{parsed.data_partition}/"
                assert any(path.startswith(data_folder) for path in objects_of_table(name))


def test_blocks_of_the_metadata_table_are_written_as_hudi_wrote_them(name: str) -> None:
    for block in blocks_of(name):
        if not block.path.startswith(METADATA):
            continue
        partition = block.path.split("/")[2]
        if block.kind == BlockKind.DELETE and len(block.headers) == 1:
            file = objects_of_table(name)[block.path]
            if len(file) == 80:
                assert encode_birth_block(block.instant) == file
        elif block.kind == BlockKind.DELETE:
            keys = decode_delete_block(block).record_keys
            deletes = Deletes.of_keys(keys, partition)
            written = encode_delete_block(deletes, instant=block.instant)
            (again,) = read_log_blocks(memory_of({"f": written}), "f")
            assert again.content == block.content
        else:
            hfile = open_hfile_block(block).read()
            schema_json = block.headers[HeaderKey.SCHEMA]
            written = encode_hfile_block(
                hfile.keys, hfile.values, schema_json, instant=block.instant, created_at_ms=0
            )
            (again,) = read_log_blocks(memory_of({"f": written}), "f")
            assert (again.kind, again.headers) == (block.kind, block.headers)
            assert open_hfile_block(again).read().values.equals(hfile.values)


def test_tombstone_is_that_of_hudi() -> None:
    deletes = Deletes.of_keys(pa.array(["k000000"]), "record_index")
    written = encode_delete_block(deletes, instant=InstantTime("20261120232235803"))
    content = "000000030000001b02020e6b3030303030300218" + b"record_index".hex() + "040000"
    assert bytes.fromhex(content) in written


# Vectors: results of Hudi's classes.


def test_shards_are_those_of_hudi() -> None:
    vectors = SHARDS["shard_hash"]["vectors"]
    keys = pa.array([vector["key"] for vector in vectors])
    assert len(vectors) == 50
    for count in vectors[0]["shard_by_file_group_count"]:
        expected = [vector["shard_by_file_group_count"][count] for vector in vectors]
        assert shards_of_keys(keys, int(count)).tolist() == expected
    for vector in json.loads((VECTORS / "rli_shard.json").read_text())["vectors"]:
        shards = shards_of_keys(pa.array([vector["recordKey"]]), vector["numFileGroups"])
        assert shards.tolist() == [vector["index"]]


@pytest.mark.parametrize("vector", SHARDS["partitioned_record_index_file_ids"], ids=str)
def test_file_ids_of_a_partitioned_index_are_those_of_hudi(vector: dict[str, Any]) -> None:
    facts = MetadataFileId(
        MetadataPartition.RECORD_INDEX, vector["file_group_index"], vector["data_partition"]
    )
    assert MetadataFileId.from_file_id(vector["file_id"]) == facts
    if "." in vector["data_partition"]:
        with pytest.raises(InputError, match=r"'a\.b\+c' has a dot"):
            facts.to_file_id()
    else:
        assert facts.to_file_id() == vector["file_id"]


def test_hashes_in_keys_are_those_of_hudi() -> None:
    vectors = SHARDS["index_id_hashes"]
    hashes = {(vector["kind"], vector["input"]): vector["base64"].encode() for vector in vectors}
    of_id, of_root = hashes["column", "id"], hashes["partition", "."]
    for vector in vectors:
        text, expected = vector["input"], vector["base64"].encode()
        if vector["kind"] == "column":
            assert partition_stats_key(text, "") == expected + of_root
        elif vector["kind"] == "partition":
            path = "" if text == "." else text
            assert partition_stats_key("id", path) == of_id + expected
        else:
            (key,) = column_stats_keys("id", "p0", [text]).to_pylist()
            assert key == partition_stats_key("id", "p0") + expected


def test_file_ids_in_locations_are_encoded_as_hudi_does() -> None:
    (value,) = SHARDS["record_index_value_bytes"]
    location = IndexedLocation(value["partition"], FileId(value["file_id"]), 1795216978661)
    assert encode_locations([location])[0].as_py().hex() == value["avro_hex"]
    start, _ = record_frame(RecordKind.RECORD_INDEX)
    schema = fastavro.parse_schema(json.loads(record_schema_json()))
    for vector in SHARDS["record_index_file_id_encoding"]:
        is_lower = vector["file_id"] == vector["file_id"].lower()
        if not is_lower or (vector["encoding"] == 1 and vector["file_id"] != "notauuid-0"):
            continue  # Upper case would come back as lower case, so we store text there.
        located = IndexedLocation("p", FileId(vector["file_id"]), 1)
        written = encode_locations([located])[0].as_py()
        assert written.startswith(start)
        record: Any = fastavro.schemaless_reader(io.BytesIO(written), schema)
        info = record["recordIndexMetadata"]
        names = ("fileIdHighBits", "fileIdLowBits", "fileIndex", "fileId")
        assert [info[key] for key in names] == [vector[key] for key in names]
        assert info["fileIdEncoding"] == vector["encoding"]
        assert decode_locations(pa.array([written], pa.binary()), "f").locations == (located,)


# Statistics.

STATS = (MetadataPartition.COLUMN_STATS, MetadataPartition.PARTITION_STATS)


def test_statistics_are_those_of_a_row_reader_and_are_written_to_their_bytes(name: str) -> None:
    schema = fastavro.parse_schema(json.loads(record_schema_json()))
    for values in values_of(name, *STATS):
        kinds, stats = decode_column_stats(values, name)
        rows = [fastavro.schemaless_reader(io.BytesIO(v), schema) for v in values.to_pylist()]
        found = [row["ColumnStatsMetadata"] for row in rows]
        assert stats.names.to_pylist() == [row["fileName"] for row in found]
        assert stats.null_counts.to_pylist() == [row["nullCount"] for row in found]
        assert stats.is_tight_bound.to_pylist() == [row["isTightBound"] for row in found]
        (kind,) = set(kinds.tolist()) or {RecordKind.COLUMN_STATS}
        again = encode_column_stats(RecordKind(kind), stats)
        assert again.to_pylist() == [without_meta(value) for value in values.to_pylist()]


def test_keys_of_statistics_are_those_of_hudi(name: str) -> None:
    folders = {path.rpartition("/")[2]: path.rpartition("/")[0] for path in objects_of_table(name)}
    for partition, reader in hfiles_of(name):
        if partition not in STATS:
            continue
        hfile = reader.read()
        _, stats = decode_column_stats(hfile.values, name)
        columns = zip(hfile.keys, stats.columns, stats.names, strict=True)
        for key, column, text in (tuple(item.as_py() for item in row) for row in columns):
            if partition is MetadataPartition.PARTITION_STATS:
                path = "" if text == "." else text
                assert key == partition_stats_key(column, path)
            elif text in folders:
                (expected,) = column_stats_keys(column, folders[text], [text]).to_pylist()
                assert key == expected


@pytest.mark.parametrize("table", ["cow_simple", "mor_simple", "mor_compacted", "mor_v6"])
def test_bounds_and_counts_are_those_of_the_base_files(table: str) -> None:
    checked = 0
    for values in values_of(table, MetadataPartition.COLUMN_STATS):
        _, stats = decode_column_stats(values, table)
        for path, content in objects_of_table(table).items():
            is_here = pc.equal(stats.names, path.rpartition("/")[2])
            if not path.endswith(".parquet") or not pc.any(is_here).as_py():
                continue
            with BaseFileReader.of_bytes(content, path) as base_file:
                data = base_file.read()
            for row in np.flatnonzero(is_here.to_numpy(zero_copy_only=False)).tolist():
                column = data[stats.columns[row].as_py()]
                types = stats.value_types
                lowest, highest = (
                    unwrap_bounds(w, types, column.type, table, is_minimum=low)[row].as_py()
                    for w, low in ((stats.minima, True), (stats.maxima, False))
                )
                if types[row].as_py() is None and pa.types.is_timestamp(column.type):
                    assert lowest is None  # Version V1 does not store the unit.
                    continue
                if column.null_count < len(column):
                    expected = pc.min_max(column).as_py()
                    assert (lowest, highest) == (expected["min"], expected["max"])
                else:  # Then Hudi may write zeros.
                    assert (lowest or 0, highest or 0) in ((0, 0), (date(1970, 1, 1),) * 2)
                assert stats.value_counts[row].as_py() == len(column)
                assert stats.null_counts[row].as_py() == column.null_count
                stored = types[row].as_py()
                if stored is not None:
                    of_column = StoredType.of_column(column.type)
                    assert StoredType(ValueType(stored["ordinal"]), stored["info"]) == of_column
                    wrapped = wrap_bounds(pa.array([lowest], column.type))
                    mine = encode_bound(wrapped)
                    assert mine == encode_bound(_row_of(stats.minima, row))
                checked += 1
    assert checked > 20


def _row_of(wrapped: WrappedValues, row: int) -> WrappedValues:
    found = {
        branch: (np.zeros(1, np.int64), values.filter(pa.array(rows == row)))
        for branch, (rows, values) in wrapped.parts.items()
        if (rows == row).any()
    }
    return WrappedValues(1, found)


def encode_bound(wrapped: WrappedValues) -> dict[int, list[Any]]:
    return {branch: values.to_pylist() for branch, (_, values) in wrapped.parts.items()}
