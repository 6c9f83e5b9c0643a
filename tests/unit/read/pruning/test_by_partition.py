"""Pruning by partition."""

import time

import numpy as np
import pyarrow as pa
import pytest

from bucketlake.model.keys import KeyGenerator, KeySpec, TimestampPartition
from bucketlake.model.partition_path import DEFAULT_PARTITION
from bucketlake.read.pruning.by_partition import (
    partitions_that_may_match,
    readable_fields,
)
from bucketlake.where.parser import parse_where

SCHEMA = pa.schema(
    {
        "p": pa.string(),
        "n": pa.int32(),
        "day": pa.date32(),
        "flag": pa.bool_(),
        "amount": pa.decimal128(10, 2),
        "at": pa.timestamp("us", "UTC"),
        "v": pa.int64(),
    }
)


def spec(*fields: str, generator: KeyGenerator = KeyGenerator.SIMPLE, **more: object) -> KeySpec:
    return KeySpec(("v",), fields, generator, **more)  # type: ignore[arg-type]


def kept(where: str, paths: list[str], key_spec: KeySpec) -> list[str]:
    predicate = parse_where(where, SCHEMA)
    mask = partitions_that_may_match(predicate, paths, key_spec, SCHEMA)
    alone = [partitions_that_may_match(predicate, [p], key_spec, SCHEMA).item() for p in paths]
    assert mask.tolist() == alone, "each partition has the same answer alone"
    return [path for path, stays in zip(paths, mask, strict=True) if stays]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("p = 'a'", ["a"]),
        ("p <> 'a'", ["b", "c"]),
        ("p IN ('a', 'c')", ["a", "c"]),
        ("p NOT IN ('a', 'c')", ["b"]),
        ("p >= 'b'", ["b", "c"]),
        ("p LIKE 'a%'", ["a"]),
        ("NOT (p = 'a' OR p = 'b')", ["c"]),
        ("p = 'a' AND v = 5", ["a"]),
        ("p = 'a' OR v = 5", ["a", "b", "c"]),
        ("NOT (p = 'a' AND v = 5)", ["a", "b", "c"]),
        ("NOT (p = 'a' OR v = 5)", ["b", "c"]),
        ("p = 'a' AND upper(p) = 'B'", ["a"]),
        ("upper(p) = 'B'", ["a", "b", "c"]),
        ("p = 5", ["a", "b", "c"]),
        ("p IS NULL", []),
        ("p IS NOT NULL", ["a", "b", "c"]),
        ("p = NULL", []),
        ("NOT (p = NULL)", []),
        ("v = 5", ["a", "b", "c"]),
        ("false", []),
        ("NULL", []),
        ("true", ["a", "b", "c"]),
        ("p = 'z'", []),
    ],
)
def test_partitions_stay_where_a_row_may_match(where: str, expected: list[str]) -> None:
    assert kept(where, ["a", "b", "c"], spec("p")) == expected


@pytest.mark.parametrize(
    ("where", "field", "paths", "expected"),
    [
        ("n >= 10", "n", ["9", "10", "-11"], ["10"]),
        ("n = '9'", "n", ["9", "10"], ["9"]),
        ("n < 9.5", "n", ["9", "10"], ["9"]),
        ("day > '2024-01-31'", "day", ["2024-01-31", "2024-02-01"], ["2024-02-01"]),
        ("flag", "flag", ["true", "false"], ["true"]),
        # Texts that are no spelling of a value stay.
        ("n = 5", "n", ["05", "5", "x", "6"], ["05", "5", "x"]),
        ("n = 5", "n", ["99999999999", "6"], ["99999999999"]),
        ("day = '2024-01-01'", "day", ["19723", "2024-01-02"], ["19723"]),
        ("day = '2024-01-01'", "day", ["2024-02-30", "2024-01-02"], ["2024-02-30"]),
        ("flag = false", "flag", ["TRUE", "true"], ["TRUE"]),
        # These have no one spelling.
        ("amount = 1.5", "amount", ["2.50"], ["2.50"]),
        ("at = TIMESTAMP '2024-01-01 00:00:00Z'", "at", ["0"], ["0"]),
    ],
)
def test_text_of_a_path_is_read_in_the_type_of_its_column(
    where: str, field: str, paths: list[str], expected: list[str]
) -> None:
    assert kept(where, paths, spec(field)) == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [("n IS NULL", True), ("n = 5", False), ("n <=> NULL", True), ("NOT (n = 5)", False)],
)
def test_default_partition_of_numbers_holds_null(where: str, expected: bool) -> None:
    assert kept(where, [DEFAULT_PARTITION], spec("n")) == [DEFAULT_PARTITION] * expected


@pytest.mark.parametrize("where", ["p IS NULL", "p = ''", f"p = '{DEFAULT_PARTITION}'", "p = 'a'"])
def test_default_partition_of_text_always_stays(where: str) -> None:
    assert kept(where, [DEFAULT_PARTITION], spec("p")) == [DEFAULT_PARTITION]


def test_several_fields_are_told_apart() -> None:
    paths = ["a/1", "a/2", "b/1", f"{DEFAULT_PARTITION}/1"]
    two = spec("p", "n", generator=KeyGenerator.COMPLEX)
    assert kept("p = 'a' AND n = 1", paths, two) == ["a/1", f"{DEFAULT_PARTITION}/1"]
    assert kept("n > 1", paths, two) == ["a/2"]
    assert kept("p = 'b' OR n = 2", paths, two) == ["a/2", "b/1", f"{DEFAULT_PARTITION}/1"]


def test_hive_style_and_encoding_are_undone() -> None:
    encoded = spec("p", "n", hive_style=True, url_encode=True, generator=KeyGenerator.COMPLEX)
    paths = ["p=a%2Fb/n=1", "p=50%25/n=1", "p=é/n=2", "p=n=1/n=2", "q=x/n=1", "p=x/n=%31"]
    assert kept("p = 'a/b'", paths, encoded) == ["p=a%2Fb/n=1", "q=x/n=1"]
    assert kept("p = '50%'", paths, encoded) == ["p=50%25/n=1", "q=x/n=1"]
    assert kept("p = 'é' AND n = 2", paths, encoded) == ["p=é/n=2"]
    assert kept("p = 'x' AND n = 1", paths, encoded) == ["q=x/n=1", "p=x/n=%31"]


def test_path_with_another_number_of_parts_stays() -> None:
    paths = ["a/b", "a", "", "2024/01/01"]
    assert kept("p = 'z'", paths, spec("p")) == ["a/b", "", "2024/01/01"]


def test_formatted_times_do_not_prune() -> None:
    times = TimestampPartition("DATE_STRING", "yyyy-MM-dd")
    by_time = spec("p", generator=KeyGenerator.TIMESTAMP, timestamp=times)
    assert kept("p = '2024-01-01'", ["2024-01-02"], by_time) == ["2024-01-02"]
    custom = spec(
        "p",
        "n",
        generator=KeyGenerator.CUSTOM,
        timestamp=times,
        partition_field_kinds=("TIMESTAMP", "SIMPLE"),
    )
    assert readable_fields(custom, SCHEMA) == ("n",)
    assert kept("p = '2024-01-01' AND n = 1", ["2024-01-02/1", "2024-01-02/2"], custom) == [
        "2024-01-02/1"
    ]


def test_table_without_partitions_stays_whole() -> None:
    bare = spec(generator=KeyGenerator.NON_PARTITION)
    assert kept("v = 5", [""], bare) == [""]
    assert kept("false", [""], bare) == []
    assert partitions_that_may_match(parse_where("v = 5", SCHEMA), [], bare, SCHEMA).shape == (0,)


def test_partition_field_that_the_schema_lacks_does_not_prune() -> None:
    assert readable_fields(spec("geo.lat"), SCHEMA) == ()


def test_hundred_thousand_partitions_are_pruned_in_well_under_a_second() -> None:
    days = np.datetime_as_string(np.datetime64("1900-01-01") + np.arange(50_000))
    paths = [f"p={letter}/day={day}" for letter in "ab" for day in days]
    two = spec("p", "day", hive_style=True, url_encode=True, generator=KeyGenerator.COMPLEX)
    predicate = parse_where("p = 'b' AND day BETWEEN '2000-01-01' AND '2000-12-31'", SCHEMA)
    partitions_that_may_match(predicate, paths[:10], two, SCHEMA)
    started = time.process_time()
    mask = partitions_that_may_match(predicate, paths, two, SCHEMA)
    assert time.process_time() - started < 2, "it is vectorised; the bound allows a busy machine"
    assert int(mask.sum()) == 366
