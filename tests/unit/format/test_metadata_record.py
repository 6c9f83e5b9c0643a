"""Records of the metadata table: round trips, what is refused, and damaged values."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.config.paths_of_table import is_inner
from bucketlake.errors import FormatError, InputError, UnsupportedFeatureError
from bucketlake.format.metadata_record.bounds import (
    StoredType,
    ValueType,
    has_bounds,
    unwrap_bounds,
    wrap_bounds,
)
from bucketlake.format.metadata_record.file_ids import MetadataFileId, MetadataPartition
from bucketlake.format.metadata_record.record_schema import (
    FILE_MAP,
    ColumnStats,
    IndexedLocation,
    RecordKind,
    WrappedValues,
    commit_schema_json,
    decode_column_stats,
    decode_file_maps,
    decode_locations,
    encode_column_stats,
    encode_file_maps,
    encode_locations,
    record_schema,
    record_schema_json,
    resolver,
)
from bucketlake.hashing.xx_hash import xx_hash_64
from bucketlake.model.column_type import TIMESTAMP, TIMESTAMP_NTZ
from bucketlake.model.file_name import FileId
from tests.unit.format.older_records import as_written_before, older_schema

PATH = "files/f.hfile"
FILE_ID = FileId("00000003-27f7-4628-9878-d51db8cd0617-0")


def file_maps(*maps: dict[str, tuple[int, bool]]) -> pa.MapArray:
    rows = [
        [(name, {"size_bytes": size, "is_deleted": gone}) for name, (size, gone) in files.items()]
        for files in maps
    ]
    return pa.array(rows, FILE_MAP)


def stats_of(data_type: pa.DataType, minima: list[Any], maxima: list[Any]) -> ColumnStats:
    count = len(minima)
    stored = StoredType.of_column(data_type)
    value_type = {"ordinal": int(stored.value_type), "info": stored.info}
    kind = pa.struct([pa.field("ordinal", pa.int32(), nullable=False), ("info", pa.string())])
    numbers = [pa.array(range(count), pa.int64())] * 4
    flags = [pa.array([False] * count)] * 2
    return ColumnStats(
        pa.array([f"f{row}" for row in range(count)]),
        pa.array(["c"] * count),
        wrap_bounds(pa.array(minima, data_type)),
        wrap_bounds(pa.array(maxima, data_type)),
        *numbers,
        *flags,
        pa.array([value_type] * count, kind),
    )


# Files.


@given(
    st.lists(
        st.dictionaries(
            st.text(max_size=5), st.tuples(st.integers(0, 2**62), st.booleans()), max_size=4
        ),
        max_size=4,
    )
)
def test_file_maps_come_back(maps: list[dict[str, tuple[int, bool]]]) -> None:
    written = encode_file_maps(RecordKind.FILES, file_maps(*maps))
    kinds, found = decode_file_maps(written, PATH)
    assert kinds.tolist() == [RecordKind.FILES] * len(maps)
    assert found.equals(file_maps(*maps))


def test_empty_list_of_partitions_has_the_bytes_of_hudi() -> None:
    # 02-metadata-table, the walk through a real file.
    (value,) = encode_file_maps(RecordKind.PARTITION_LIST, file_maps({}))
    assert value.as_py().hex() == "00" * 6 + "02" + "0200" + "00" * 4


def test_record_of_another_kind_is_refused() -> None:
    files = encode_file_maps(RecordKind.FILES, file_maps({"a": (1, False)}))
    locations = encode_locations([IndexedLocation("p", FILE_ID, 1)])
    with pytest.raises(FormatError, match=r"files/f\.hfile.*RECORD_INDEX, in entry 0"):
        decode_locations(files, PATH)
    with pytest.raises(FormatError, match="PARTITION_LIST or FILES"):
        decode_file_maps(locations, PATH)


# Locations.

FILE_IDS = st.one_of(
    st.uuids().map(str),
    st.builds("{}-{}".format, st.uuids(), st.integers(0, 2**33)),
    st.builds("{}-{}".format, st.uuids(), st.sampled_from(["00", "-1", "x", ""])),
    st.uuids().map(lambda value: str(value).upper() + "-0"),
    st.text(min_size=1, max_size=10).filter(lambda name: is_inner(name) and "/" not in name),
)
PATHS = st.text(max_size=5).filter(lambda path: not path or is_inner(path))


@given(st.lists(st.tuples(PATHS, FILE_IDS, st.integers(0, 2**50)), max_size=5))
def test_locations_come_back_whatever_the_file_id(facts: list[tuple[str, str, int]]) -> None:
    locations = [IndexedLocation(path, FileId(name), ms) for path, name, ms in facts]
    found = decode_locations(encode_locations(locations), PATH)
    assert [found.locations[index] for index in found.indices.to_pylist()] == locations


def test_each_distinct_value_is_decoded_once() -> None:
    values = encode_locations([IndexedLocation("p", FILE_ID, 1), IndexedLocation("q", FILE_ID, 1)])
    indices = pa.array([1, 0, 1, 1], pa.int32())
    for column in (values.take(indices), pa.DictionaryArray.from_arrays(indices, values)):
        found = decode_locations(column, PATH)
        paths = [found.locations[index].partition_path for index in found.indices.to_pylist()]
        assert paths == ["q", "p", "q", "q"]
        assert len(found.locations) == 2


# Statistics.

BOUNDS: list[tuple[pa.DataType, Any, Any]] = [
    (pa.bool_(), False, True),
    (pa.int32(), -(2**31), 2**31 - 1),
    (pa.int64(), -(2**63), 2**63 - 1),
    (pa.float32(), -1.5, 2.5),
    (pa.float64(), -1e300, float("inf")),
    (pa.string(), "", "ключ"),
    (pa.binary(), b"", b"\xff"),
    (pa.date32(), date(1, 1, 1), date(9999, 12, 31)),
    (TIMESTAMP, datetime(1950, 1, 1, tzinfo=UTC), datetime(2050, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
    (TIMESTAMP_NTZ, datetime(1950, 1, 1), datetime(2050, 1, 1)),
    (pa.decimal128(38, 4), Decimal("-1.0000"), Decimal("9" * 34)),
    (pa.decimal128(5, 0), Decimal(-128), Decimal(128)),
]


@pytest.mark.parametrize(("data_type", "low", "high"), BOUNDS, ids=[str(b[0]) for b in BOUNDS])
def test_bounds_of_each_type_come_back(data_type: pa.DataType, low: Any, high: Any) -> None:
    stats = stats_of(data_type, [low, None], [high, None])
    kinds, found = decode_column_stats(encode_column_stats(RecordKind.COLUMN_STATS, stats), PATH)
    assert kinds.tolist() == [RecordKind.COLUMN_STATS] * 2
    types = found.value_types
    lows = unwrap_bounds(found.minima, types, data_type, PATH, is_minimum=True)
    highs = unwrap_bounds(found.maxima, types, data_type, PATH, is_minimum=False)
    assert lows.equals(pa.array([low, None], data_type))
    assert highs.equals(pa.array([high, None], data_type))
    assert found.value_counts.to_pylist() == [0, 1]
    assert found.names.to_pylist() == ["f0", "f1"]


def test_statistics_of_columns_of_several_types_come_back() -> None:
    parts = [stats_of(*(kind, [low], [high])) for kind, low, high in BOUNDS]
    written = [encode_column_stats(RecordKind.PARTITION_STATS, stats) for stats in parts]
    kinds, found = decode_column_stats(pa.concat_arrays(written), PATH)
    assert set(kinds.tolist()) == {RecordKind.PARTITION_STATS}
    again = encode_column_stats(RecordKind.PARTITION_STATS, found)
    assert again.equals(pa.concat_arrays(written))


def test_bounds_of_a_widened_column_are_read_as_its_type_of_today() -> None:
    stats = stats_of(pa.int32(), [1], [5])
    types = stats.value_types
    for wider in (pa.int64(), pa.float64()):
        found = unwrap_bounds(stats.minima, types, wider, PATH, is_minimum=True)
        assert found.equals(pa.array([1], wider))


@pytest.mark.parametrize(
    ("stored", "today"),
    [(pa.int64(), pa.int32()), (pa.string(), pa.int32()), (pa.date32(), pa.int32()),
     (TIMESTAMP, pa.int64()), (pa.int64(), TIMESTAMP)],
)  # fmt: skip
def test_bounds_of_another_type_are_unknown(stored: pa.DataType, today: pa.DataType) -> None:
    low = next(low for kind, low, _ in BOUNDS if kind == stored)
    stats = stats_of(stored, [low], [low])
    found = unwrap_bounds(stats.minima, stats.value_types, today, PATH, is_minimum=True)
    assert found.equals(pa.nulls(1, today))


@pytest.mark.parametrize(
    ("ordinal", "value", "low", "high"),
    [(ValueType.TIMESTAMP_MILLIS, -1, -1000, -1000), (ValueType.TIMESTAMP_NANOS, -1, -1, 0),
     (ValueType.LOCAL_TIMESTAMP_NANOS, 1001, 1, 2)],
)  # fmt: skip
def test_bounds_of_other_units_include_the_exact_time(
    ordinal: ValueType, value: int, low: int, high: int
) -> None:
    kind = pa.struct([("ordinal", pa.int32()), ("info", pa.string())])
    types = pa.array([{"ordinal": int(ordinal), "info": None}], kind)
    wrapped = WrappedValues(1, {3: (np.zeros(1, np.int64), pa.array([value], pa.int64()))})
    found = [
        unwrap_bounds(wrapped, types, TIMESTAMP, PATH, is_minimum=is_minimum).cast(pa.int64())
        for is_minimum in (True, False)
    ]
    assert [bounds.to_pylist() for bounds in found] == [[low], [high]]


def test_column_without_an_order_has_no_bounds() -> None:
    assert not has_bounds(pa.list_(pa.int32()))
    with pytest.raises(InputError, match="has no bounds"):
        StoredType.of_column(pa.list_(pa.int32()))


# All records.


def test_commit_metadata_have_the_schema_without_meta_fields() -> None:
    names = [field["name"] for field in json.loads(commit_schema_json())["fields"]]
    assert names[:2] == ["key", "type"]
    assert record_schema_json().count('"_hoodie_') == 5


def test_records_in_the_schema_of_today_are_taken_as_they_are() -> None:
    assert resolver(record_schema_json(), PATH) is None
    with_documentation = record_schema() | {"doc": "a record"}
    assert resolver(json.dumps(with_documentation), PATH) is None


def test_records_of_an_older_schema_have_defaults_for_what_it_lacks() -> None:
    older = older_schema()
    resolve = resolver(json.dumps(older), PATH)
    assert resolve is not None
    stats = stats_of(pa.int64(), [None, 1, 2, 1], [2, None, 3, 2])
    nothing = pa.nulls(4, stats.value_types.type)
    for values in (
        encode_file_maps(RecordKind.FILES, file_maps({"a": (1, False)}, {}, {"a": (1, False)})),
        encode_locations([IndexedLocation("p", FILE_ID, 1), IndexedLocation("q", FILE_ID, 2)]),
        encode_column_stats(RecordKind.COLUMN_STATS, replace(stats, value_types=nothing)),
    ):
        before = as_written_before(values, older)
        assert before != values
        assert resolve(before).equals(values)
    assert len(resolve(pa.array([], pa.binary()))) == 0


def test_records_of_an_older_schema_that_are_damaged_name_the_file() -> None:
    older = older_schema()
    resolve = resolver(json.dumps(older), PATH)
    assert resolve is not None
    (value,) = as_written_before(encode_locations([IndexedLocation("p", FILE_ID, 1)]), older)
    for damaged in (value.as_py()[:-3], value.as_py() + b"x", b"\xff" * 9):
        with pytest.raises(FormatError, match=r"files/f\.hfile"):
            resolve(pa.array([damaged], pa.binary()))


def test_schema_of_a_newer_hudi_is_refused_with_its_fields() -> None:
    newer = record_schema()
    newer["fields"].append({"name": "news", "type": ["null", "string"], "default": None})
    with pytest.raises(UnsupportedFeatureError, match=r"Record\.news.*newer bucketlake"):
        resolver(json.dumps(newer), PATH)


@pytest.mark.parametrize("text", ["{", '"string"', '{"type": "record"}', "[]", '{"name": "x"}'])
def test_text_that_is_no_schema_of_records_names_the_file(text: str) -> None:
    with pytest.raises(FormatError, match=r"files/f\.hfile"):
        resolver(text, PATH)


VALUES: list[tuple[pa.BinaryArray, Callable[[pa.BinaryArray, str], object]]] = [
    (encode_file_maps(RecordKind.FILES, file_maps({"a": (1, False)}, {})), decode_file_maps),
    (encode_locations([IndexedLocation("p", FILE_ID, 1)]), decode_locations),
    (
        encode_column_stats(
            RecordKind.COLUMN_STATS, stats_of(pa.decimal128(9, 2), [None, 1], [2, None])
        ),
        decode_column_stats,
    ),
]


@given(
    which=st.sampled_from(VALUES),
    patches=st.lists(st.tuples(st.integers(0, 200), st.binary(max_size=3)), max_size=3),
    cut=st.integers(0, 30),
)
def test_damaged_value_gives_a_record_or_an_error_that_names_the_file(
    which: tuple[pa.BinaryArray, Callable[[pa.BinaryArray, str], object]],
    patches: list[tuple[int, bytes]],
    cut: int,
) -> None:
    values, decode = which
    damaged = [bytearray(value) for value in values.to_pylist()]
    for at, data in patches:
        place = at % len(damaged[0])
        damaged[0][place : place + len(data)] = data
    damaged[0] = damaged[0][: max(len(damaged[0]) - cut, 0)]
    path = PATH
    try:
        decode(pa.array([bytes(value) for value in damaged], pa.binary()), PATH)
    except FormatError as error:
        path = error.path
    assert path == PATH


# Names.


@given(
    st.none() | st.text(st.characters(exclude_characters=".", codec="utf-8"), max_size=12),
    st.integers(0, 20_000),
)
def test_file_ids_come_back(data_partition: str | None, shard: int) -> None:
    facts = MetadataFileId(MetadataPartition.RECORD_INDEX, shard, data_partition)
    file_id = facts.to_file_id()
    assert MetadataFileId.from_file_id(file_id) == facts
    assert file_id.count("-") == (3 if data_partition is None else 4)


@pytest.mark.parametrize(
    "text", ["files-0000-1", "col-stats-eu-0000-0", "bloom-filters-0000-0", "files-00-0", FILE_ID]
)
def test_other_ids_are_of_no_partition(text: str) -> None:
    assert MetadataFileId.from_file_id(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0xEF46DB3751D8E999),
        ("a", 0xD24EC4F1A98C6E5B),
        ("abc", 0x44BC2CF5AD770999),
        ("Nobody inspects the spammish repetition", 18144624926692707313),
    ],
)
def test_xxh64_has_its_published_values(text: str, expected: int) -> None:
    assert xx_hash_64(text.encode()) == expected
