"""Base files: written, read, and found corrupt."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from bucketlake.errors import FormatError, InputError, NullElementWarning, ObjectNotFoundError
from bucketlake.format import object_file, parquet_layout
from bucketlake.format.base_file import (
    KEY_MAX,
    KEY_MIN,
    NAN_COLUMNS,
    TEXT_DICTIONARY,
    BaseFileReader,
    encode_base_file,
)
from bucketlake.model.cast import cast_table
from bucketlake.model.column_type import TIMESTAMP, TIMESTAMP_NTZ, list_type
from bucketlake.model.file_name import InstantTime
from bucketlake.model.schema import META_NAMES, with_meta
from bucketlake.storage.local import LocalStorage
from bucketlake.storage.memory import MemoryStorage
from tests.bounds import set_bounds
from tests.meta_columns import meta_columns

SCHEMA = pa.schema({"id": pa.string(), "n": pa.int64()})
INSTANT = InstantTime("20260101000000000")


def rows(count: int, first_row: int = 0) -> pa.Table:
    keys = pa.array([f"k{row:06d}" for row in range(first_row, first_row + count)], pa.string())
    meta = meta_columns(INSTANT, 0, keys, "p", "f.parquet", first_row=first_row)
    numbers = pa.array(range(first_row, first_row + count), pa.int64())
    return pa.table({**meta, "id": keys, "n": numbers})


def with_data(**columns: pa.Array) -> tuple[pa.Table, pa.Schema]:
    count = len(next(iter(columns.values())))
    table = pa.table({**{name: rows(count)[name] for name in META_NAMES}, **columns})
    return table, pa.schema({name: column.type for name, column in columns.items()})


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage("base-files")


def put(storage: MemoryStorage, content: bytes | memoryview) -> BaseFileReader:
    storage.put("p/f.parquet", content)
    return BaseFileReader(storage, "p/f.parquet")


def test_file_gives_back_rows_schema_and_footer(storage: MemoryStorage) -> None:
    told = {"bucketlake.write.stats": '{"inserted": 3}'}
    content = encode_base_file([rows(2), rows(1, 2)], SCHEMA, footer=lambda: told).data
    with put(storage, content) as reader:
        assert reader.schema.equals(SCHEMA)
        assert (reader.row_count, reader.size_bytes) == (3, len(content))
        assert reader.read().to_pylist() == rows(3).to_pylist()
        assert reader.key_values["bucketlake.write.stats"] == '{"inserted": 3}'
        assert (reader.key_values[KEY_MIN], reader.key_values[KEY_MAX]) == ("k000000", "k000002")


def test_file_without_rows_has_its_columns(storage: MemoryStorage) -> None:
    with put(storage, encode_base_file([], SCHEMA).data) as reader:
        assert reader.read().schema.equals(with_meta(SCHEMA))
        assert reader.row_count == 0
        assert KEY_MIN not in reader.key_values


def test_footer_is_asked_for_when_all_rows_were_taken() -> None:
    taken = []

    def tables() -> Iterator[pa.Table]:
        for part in (rows(2), rows(3, 2)):
            yield part
            taken.append(part.num_rows)

    content = encode_base_file(tables(), SCHEMA, footer=lambda: {"rows": str(sum(taken))}).data
    metadata = pq.read_metadata(pa.BufferReader(content)).metadata
    assert metadata[b"rows"] == b"5"
    assert metadata[b"org.apache.spark.version"] == b"3.5.0"
    assert b"parquet.avro.schema" not in metadata
    assert b"ARROW:schema" not in metadata


def test_row_groups_do_not_depend_on_how_rows_come(monkeypatch: pytest.MonkeyPatch) -> None:
    set_bounds(monkeypatch, parquet_layout, ROW_GROUP_ROWS_MAX=5_000)
    whole = encode_base_file([rows(12_000)], SCHEMA).data
    for step in (1_000, 4_097, 7_001):
        parts = [rows(min(step, 12_000 - at), at) for at in range(0, 12_000, step)]
        assert bytes(encode_base_file(parts, SCHEMA).data) == bytes(whole)
    metadata = pq.read_metadata(pa.BufferReader(whole))
    groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert groups == [5_000, 5_000, 2_000]


@pytest.mark.parametrize("count", [1_500, 6_000])
def test_row_groups_of_long_texts_are_bounded_in_bytes_however_they_come(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, parquet_layout, LARGE_ROWS_BYTES_MAX=2**20)
    texts, schema = (
        pa.array([f"{at:05}" * 400 for at in range(count)]),
        pa.schema({"x": pa.string()}),
    )
    given = rows(count).select([*META_NAMES]).append_column("x", texts)
    whole = encode_base_file([given], schema).data
    parts = [given.slice(at, 700) for at in range(0, count, 700)]
    assert bytes(encode_base_file(parts, schema).data) == bytes(whole)
    metadata = pq.read_metadata(pa.BufferReader(whole))
    sizes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
    assert max(sizes) <= 2**20
    assert count // 520 <= len(sizes) <= count // 450


def test_chunks_are_bounded_and_in_order(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, parquet_layout, ROW_GROUP_ROWS_MAX=5_000)
    with put(storage, encode_base_file([rows(12_000)], SCHEMA).data) as reader:
        chunks = list(reader.iter_chunks(["n"], rows_max=3_000))
    assert [chunk.num_rows for chunk in chunks] == [3_000, 2_000, 3_000, 2_000, 2_000]
    assert pa.concat_tables(chunks)["n"].to_pylist() == list(range(12_000))


def test_columns_come_in_the_order_asked_and_missing_ones_as_nulls(storage: MemoryStorage) -> None:
    with put(storage, encode_base_file([rows(2)], SCHEMA).data) as reader:
        read = reader.read(["new", "n", META_NAMES[2]])
        assert read.column_names == ["new", "n", META_NAMES[2]]
        assert read["new"].type == pa.null()
        alone = reader.read(["new"])
    target = pa.schema({"new": list_type(pa.string())})
    assert cast_table(alone, target).to_pylist() == [{"new": None}] * 2


def test_files_columns_are_as_nullable_as_the_tables() -> None:
    schema = pa.schema([pa.field("id", pa.string(), False), ("n", pa.int64())])
    parquet = pq.ParquetFile(pa.BufferReader(encode_base_file([rows(2)], schema).data))
    assert [field.nullable for field in parquet.schema_arrow] == [True] * 5 + [False, True]
    missing = rows(2).set_column(5, "id", pa.nulls(2, pa.string()))
    with pytest.raises(InputError, match="column id: the table requires a value"):
        encode_base_file([missing], schema)


def test_required_field_of_a_null_struct_is_written(storage: MemoryStorage) -> None:
    struct = pa.struct([pa.field("x", pa.int32(), False), pa.field("y", pa.string(), False)])
    data, schema = with_data(s=pa.array([{"x": 1, "y": "a"}, None], struct))
    with put(storage, encode_base_file([data], schema).data) as reader:
        assert reader.read(["s"])["s"].to_pylist() == [{"x": 1, "y": "a"}, None]


def test_types_are_stored_as_spark_reads_them() -> None:
    data, schema = with_data(
        at=pa.array([0], TIMESTAMP),
        local=pa.array([0], TIMESTAMP_NTZ),
        price=pa.array([None], pa.decimal128(10, 2)),
        tags=pa.array([["a"]], list_type(pa.string())),
    )
    text = str(pq.ParquetFile(pa.BufferReader(encode_base_file([data], schema).data)).schema)
    assert "int64 field_id=-1 at (Timestamp(isAdjustedToUTC=true, timeUnit=microseconds" in text
    assert "int64 field_id=-1 local (Timestamp(isAdjustedToUTC=false, timeUnit=microsec" in text
    assert "fixed_len_byte_array(5) field_id=-1 price (Decimal(precision=10, scale=2))" in text
    assert "repeated group field_id=-1 list {\n      optional binary field_id=-1 element" in text


def test_first_and_last_dates_and_times_survive(storage: MemoryStorage) -> None:
    days = [dt.date.min, dt.date(1582, 10, 10), dt.date.max]
    times = [dt.datetime.min, dt.datetime(1582, 10, 10, 1, 2, 3, 4), dt.datetime.max]
    data, schema = with_data(
        day=pa.array(days), local=pa.array(times, TIMESTAMP_NTZ), at=pa.array(times, TIMESTAMP)
    )
    with put(storage, encode_base_file([data], schema).data) as reader:
        read = reader.read(schema.names)
    assert read.equals(data.select(schema.names))


def test_null_element_is_stored_and_warned_of_once_per_column(storage: MemoryStorage) -> None:
    data, schema = with_data(tags=pa.array([["a", None], [None]], list_type(pa.string())))
    with pytest.warns(NullElementWarning, match="column tags") as caught:
        content = encode_base_file([data, data], schema).data
    assert len(caught) == 1
    with put(storage, content) as reader:
        assert reader.read(["tags"])["tags"].to_pylist() == [["a", None], [None]] * 2


@pytest.mark.parametrize("codec", ["gzip", "snappy", "none"])
def test_other_codecs_are_read(storage: MemoryStorage, codec: str) -> None:
    with put(storage, foreign(rows(3), compression=codec)) as reader:
        assert reader.read().to_pylist() == rows(3).to_pylist()


def foreign(table: pa.Table, **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(memoryview(sink.getvalue()))


def test_int96_timestamps_of_spark_are_instants_at_any_depth(storage: MemoryStorage) -> None:
    at = dt.datetime(2020, 1, 2, 3, 4, 5, 6)
    times = pa.array([at], pa.timestamp("ns"))
    table = pa.table(
        {
            "before": [1],
            "at": times,
            "deep": pa.array([{"a": [at]}], pa.struct({"a": pa.list_(pa.timestamp("ns"))})),
            "map": pa.array([[("k", at)]], pa.map_(pa.string(), pa.timestamp("ns"))),
            "after": ["x"],
        }
    )
    content = foreign(table, use_deprecated_int96_timestamps=True)
    with put(storage, content) as reader:
        assert reader.schema.field("at").type == TIMESTAMP
        assert reader.schema.field("deep").type.equals(pa.struct({"a": list_type(TIMESTAMP)}))
        assert reader.schema.field("map").type.item_type == TIMESTAMP
        read = reader.read()
    micros = int((at - dt.datetime(1970, 1, 1)) / dt.timedelta(microseconds=1))
    assert read["at"].cast(pa.int64()).to_pylist() == [micros]
    assert read["deep"].to_pylist()[0]["a"][0].replace(tzinfo=None) == at


def test_types_of_other_arrow_writers_become_stored_types(storage: MemoryStorage) -> None:
    table = pa.table(
        {
            "small": pa.array([1], pa.int8()),
            "text": pa.array(["a"], pa.large_string()),
            "word": pa.array(["a"]).dictionary_encode(),
            "at": pa.array([1_000], pa.timestamp("ns", "UTC")),
        }
    )
    with put(storage, foreign(table)) as reader:
        expected = {"small": pa.int32(), "text": pa.string(), "word": pa.string(), "at": TIMESTAMP}
        assert reader.schema.equals(pa.schema(expected))
        assert reader.read().schema.equals(reader.schema)


@pytest.mark.parametrize(
    "content",
    [b"", b"PAR1", b"no parquet at all", b"PAR1" + b"\0" * 60 + b"PAR1"],
    ids=["empty", "mark", "text", "zeros"],
)
def test_bytes_that_are_no_parquet_are_refused_by_name(
    storage: MemoryStorage, content: bytes
) -> None:
    with pytest.raises(FormatError, match=r"p/f\.parquet"):
        put(storage, content)


def test_corrupt_page_is_refused_by_name_when_it_is_read(storage: MemoryStorage) -> None:
    content = bytearray(encode_base_file([rows(50_000)], SCHEMA).data)
    middle = slice(1_000, len(content) // 2)
    content[middle] = b"\xff" * len(content[middle])
    with put(storage, bytes(content)) as reader, pytest.raises(FormatError, match=r"p/f\.parquet"):
        reader.read()


def test_truncated_file_is_refused_on_disk_and_in_memory(
    storage: MemoryStorage, tmp_path: Path
) -> None:
    content = bytes(encode_base_file([rows(1_000)], SCHEMA).data)[:-20]
    with pytest.raises(FormatError, match=r"p/f\.parquet"):
        put(storage, content)
    (tmp_path / "f.parquet").write_bytes(content)
    with pytest.raises(FormatError, match=r"f\.parquet"):
        BaseFileReader(LocalStorage(str(tmp_path)), "f.parquet")


def test_missing_file_is_not_found(storage: MemoryStorage, tmp_path: Path) -> None:
    for place in (storage, LocalStorage(str(tmp_path))):
        with pytest.raises(ObjectNotFoundError):
            BaseFileReader(place, "p/absent.parquet")


class CountingStorage(MemoryStorage):
    """A remote storage that counts the bytes it hands out."""

    read_bytes = 0

    def read(self, path: str) -> bytes:
        raise AssertionError(f"{path} was read whole")

    def read_range(self, path: str, start: int, length: int) -> bytes:
        self.read_bytes += length
        return super().read_range(path, start, length)


def test_large_remote_file_is_read_by_the_ranges_of_its_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_bounds(monkeypatch, object_file, WHOLE_BYTES_MAX=100)
    storage = CountingStorage("ranges")
    content = encode_base_file([rows(50_000)], SCHEMA).data
    storage.put("f.parquet", content)
    with BaseFileReader(storage, "f.parquet") as reader:
        assert reader.read(["n"])["n"].to_pylist() == list(range(50_000))
    footer_bytes = 2**16
    assert storage.read_bytes < footer_bytes + len(content) / 3


def test_local_file_is_mapped(tmp_path: Path) -> None:
    (tmp_path / "f.parquet").write_bytes(encode_base_file([rows(10)], SCHEMA).data)
    with BaseFileReader(LocalStorage(str(tmp_path)), "f.parquet") as reader:
        assert isinstance(reader._source, pa.MemoryMappedFile)
        assert reader.read().num_rows == 10


def test_writing_rows_without_null_elements_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encode_base_file([rows(3)], SCHEMA)


def test_columns_with_a_nan_have_no_statistics_in_the_footer() -> None:
    """Statistics leave NaN out, and Spark would skip rows: NaN is greater than every number."""
    numbers = [1.0, 2.0] * (parquet_layout.SAMPLE_ROWS + 10)
    with_nan = [*numbers[:-1], float("nan")]
    place = [{"lat": value, "n": 1} for value in with_nan]
    data, schema = with_data(
        plain=pa.array(numbers), dirty=pa.array(with_nan), place=pa.array(place)
    )
    content = encode_base_file([data[:5000], data[5000:]], schema, footer=lambda: {"k": "v"}).data
    with BaseFileReader.of_bytes(content, "f") as reader:
        found = reader.read(["plain", "dirty"])
        assert found["plain"].to_pylist() == numbers
        assert str(found["dirty"].to_pylist()) == str(with_nan)
        assert reader.key_values[NAN_COLUMNS] == '["dirty", "place.lat"]'
        assert reader.key_values["k"] == "v"
        columns = [reader.footer.row_group(0).column(i) for i in range(reader.footer.num_columns)]
    bounded = {c.path_in_schema for c in columns if c.statistics and c.statistics.has_min_max}
    assert {"plain", "place.n"} <= bounded
    assert not {"dirty", "place.lat"} & bounded
    assert bytes(content) == bytes(encode_base_file([data], schema, footer=lambda: {"k": "v"}).data)


def texts(states: list[str | None]) -> tuple[pa.Table, pa.Schema]:
    notes = pa.array([f"note {row:040d}" for row in range(len(states))])
    return with_data(state=pa.array(states, pa.string()), note=notes)


def read_texts(storage: MemoryStorage, content: memoryview) -> pa.Table:
    storage.put("p/f.parquet", content)
    with BaseFileReader(storage, "p/f.parquet", dictionaries=["state", "note"]) as reader:
        return reader.read()


def test_texts_stay_a_dictionary_if_the_file_has_a_small_one(storage: MemoryStorage) -> None:
    table, schema = texts(["open", None, "paid", "open"] * 2_000)
    found = read_texts(storage, encode_base_file([table], schema).data)
    assert found.schema.field("state").type == TEXT_DICTIONARY
    assert found.schema.field("note").type == pa.string()
    assert found.to_pylist() == table.to_pylist()


def test_file_of_dictionaries_is_that_of_their_values(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, parquet_layout, ROW_GROUP_ROWS_MAX=5_000)
    table, schema = texts(["open", None, "paid", "sent"] * 3_000)
    plain = encode_base_file([table], schema).data
    held = read_texts(storage, plain)
    assert held.schema.field("state").type == TEXT_DICTIONARY
    again = encode_base_file(
        [held.slice(0, 4_096), held.slice(4_096, 100), held.slice(4_196)], schema
    )
    assert bytes(again.data) == bytes(plain)
    texts_after = encode_base_file([held.slice(0, 10_000), table.slice(10_000)], schema)
    assert read_texts(storage, texts_after.data).to_pylist() == table.to_pylist()


def test_value_that_no_row_has_any_more_leaves_the_file(storage: MemoryStorage) -> None:
    table, schema = texts(["paid", "open", None, "sent"] * 2_000)
    held = read_texts(storage, encode_base_file([table], schema).data)
    rest = held.filter(pc.not_equal(held["state"].cast(pa.string()), "open").fill_null(True))
    content = encode_base_file([rest], schema).data
    found = read_texts(storage, content)
    assert found.to_pylist() == rest.to_pylist()
    assert found["state"].chunk(0).dictionary.to_pylist() == ["paid", "sent"]
    column = pq.read_metadata(pa.BufferReader(content)).row_group(0).column(5)
    assert (column.path_in_schema, column.statistics.min) == ("state", "paid")


def test_bytes_do_not_depend_on_the_order_of_a_dictionary(storage: MemoryStorage) -> None:
    table, schema = texts(["paid", "open", None, "sent"] * 2_000)
    held = read_texts(storage, encode_base_file([table], schema).data)
    values = pa.array(["sent", "lost", "open", "paid"])
    indices = pa.array([3, 2, None, 0] * 2_000, pa.int32())
    at = held.schema.get_field_index("state")
    other = held.set_column(
        at, held.schema.field(at), pa.DictionaryArray.from_arrays(indices, values)
    )
    assert other.to_pylist() == held.to_pylist()
    assert bytes(encode_base_file([other], schema).data) == bytes(
        encode_base_file([held], schema).data
    )
