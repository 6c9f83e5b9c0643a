"""A flipped bit in a data file is an error that names the file, or changes no row."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bucketlake as bl
from bucketlake.errors import BucketLakeError, FormatError
from bucketlake.format.base_file import BaseFileReader, encode_base_file
from bucketlake.format.parquet_checksums import CHECKSUMS
from bucketlake.model.schema import META_NAMES, with_meta
from tests.choices import DEEP, some

SCHEMA = pa.schema(
    [("id", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("s", pa.string())]
)
FLIPS = 250 if DEEP else 60


def rows(start: int, end: int, version: int) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "id": f"k{i}",
                "n": version * i,
                "x": i / 7,
                "s": f"text {version} {i}" if i % 3 else None,
            }
            for i in range(start, end)
        ],
        SCHEMA,
    )


def state(path: Path) -> pa.Table:
    return bl.open_table(str(path)).to_arrow(columns=SCHEMA.names).sort_by("id")


def flips(files: list[Path], seed: int) -> Iterator[Path]:
    """Flip one bit of a file, many times; the file is whole again afterwards."""
    drawn = random.Random(seed)
    files = [file for file in files if file.stat().st_size]
    for _ in range(FLIPS):
        file = drawn.choice(files)
        held = file.read_bytes()
        damaged = bytearray(held)
        damaged[drawn.randrange(len(held))] ^= 1 << drawn.randrange(8)
        file.write_bytes(damaged)
        yield file
        file.write_bytes(held)


def read_all_flips(path: Path, files: list[Path], seed: int) -> Counter[str]:
    expected = state(path)
    outcomes: Counter[str] = Counter()
    for file in flips(files, seed):
        try:
            found = state(path)
        except BucketLakeError as error:
            outcomes["error" if file.name in str(error) else f"unnamed: {error}"] += 1
        else:
            assert found.equals(expected), f"other rows: {file.name}"
            outcomes["same rows"] += 1
    assert state(path).equals(expected)
    assert not {*outcomes} - {"error", "same rows"}
    return outcomes


@pytest.mark.parametrize(
    ("table_type", "log_format"),
    [("copy_on_write", "parquet"), ("merge_on_read", "parquet"), ("merge_on_read", "avro")],
)
def test_flips_in_data_files_are_errors_or_change_nothing(
    tmp_path: Path, table_type: str, log_format: str
) -> None:
    path = tmp_path / "table"
    table = bl.create_table(
        str(path), schema=SCHEMA, record_key="id", ordering="n", table_type=table_type,
        index=bl.SimpleBucket(2), metadata_table=False,
    )  # fmt: skip
    table = bl.open_table(str(path), log_format=log_format)
    table.upsert(rows(0, 40, 1))
    if table_type == "merge_on_read":
        table.compact()
    table.upsert(rows(10, 30, 2))
    table.delete(rows(0, 3, 1))
    live = [p for p in path.rglob("*") if p.is_file() and ".hoodie" not in p.parts]
    files = [p for p in live if p.suffix == ".parquet" or ".log." in p.name]
    if table_type == "merge_on_read":
        assert any(".log." in p.name for p in files)
    outcomes = read_all_flips(path, files, seed=1)
    assert outcomes["error"] > FLIPS / 8


def test_flips_in_files_of_the_index_are_errors_or_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "table"
    table = bl.create_table(str(path), schema=SCHEMA, record_key="id", ordering="n")
    table.upsert(rows(0, 40, 1))
    table.upsert(rows(10, 45, 2))
    files = [p for p in (path / ".hoodie" / "metadata").rglob("*") if p.suffix == ".hfile"]
    logs = [p for p in (path / ".hoodie" / "metadata").rglob(".*.log.*") if ".crc" not in p.name]
    assert files
    assert logs
    read_all_flips(path, [*files, *logs], seed=2)


@pytest.fixture(scope="module")
def content() -> bytes:
    meta = {name: [f"{name} {i}" for i in range(300)] for name in META_NAMES}
    whole = pa.table({**meta, **{n: rows(0, 300, 1)[n] for n in SCHEMA.names}})
    return bytes(encode_base_file([whole.cast(with_meta(SCHEMA))], SCHEMA, key_filter=True).data)


def test_each_byte_of_a_base_file_is_covered(content: bytes) -> None:
    expected = BaseFileReader.of_bytes(content, "f").read()
    drawn = random.Random(3)
    for place in some(range(len(content)), len(content) // 3):
        damaged = bytearray(content)
        damaged[place] ^= 1 << drawn.randrange(8)
        try:
            found = BaseFileReader.of_bytes(bytes(damaged), "f").read()
        except FormatError:
            pass
        else:
            assert found.equals(expected), place


def test_one_column_is_read_if_another_one_is_damaged(content: bytes) -> None:
    expected = BaseFileReader.of_bytes(content, "f").read(["id"])
    reader = BaseFileReader.of_bytes(content, "f")
    column = next(
        chunk
        for chunk in map(reader.footer.row_group(0).column, range(reader.footer.num_columns))
        if chunk.path_in_schema == "x"
    )
    damaged = bytearray(content)
    damaged[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    found = BaseFileReader.of_bytes(bytes(damaged), "f")
    assert found.read(["id"]).equals(expected)
    with pytest.raises(FormatError, match="column x of row group 0"):
        found.read(["x"])


def test_files_of_other_writers_have_no_checksums_and_are_read(content: bytes) -> None:
    source = pa.BufferReader(content)
    plain = pa.BufferOutputStream()
    pq.write_table(pq.read_table(source), plain, store_schema=False)
    reader = BaseFileReader.of_bytes(memoryview(plain.getvalue()), "f")
    assert CHECKSUMS not in reader.key_values
    assert reader.read(["id"]).num_rows == 300


def test_a_large_footer_is_read_whole() -> None:
    fields = [(f"column_{i}", pa.string()) for i in range(1500)]
    schema = pa.schema([("id", pa.string()), *fields])
    meta = {name: ["m"] for name in META_NAMES}
    whole = pa.table({**meta, **{name: ["v"] for name in schema.names}}).cast(with_meta(schema))
    data = bytes(encode_base_file([whole], schema).data)
    assert int.from_bytes(data[-8:-4], "little") > 64 * 1024
    assert BaseFileReader.of_bytes(data, "f").read(["column_7"]).num_rows == 1
