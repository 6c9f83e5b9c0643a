"""Record keys and partition paths that real Hudi made, of every column type and generator."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake.config.entries import ConfigEntries
from bucketlake.config.key_entries import key_spec_of
from bucketlake.errors import BucketLakeError, ConfigError, InputError
from bucketlake.model.keys import KeyGenerator, KeySpec, record_keys
from bucketlake.model.partition_path import partition_paths
from bucketlake.read.pruning.by_partition import partitions_that_may_match
from bucketlake.where.parser import parse_where

FOLDER = Path(__file__).parent / "keys"
HIVE = "hoodie.datasource.write.hive_style_partitioning"
ENCODE = "hoodie.datasource.write.partitionpath.urlencode"

# Doubles and floats whose text depends on the version of Java, refused one and all.
UNSURE_NUMBERS = {
    "float": (
        "16777216 3.4028235e38 1e-45 1.1754944e-38 1e10 2e23 8.41e21 33554432 1.23456789e12"
    ).split(),
    "double": (
        "1e21 1e22 1.7976931348623157e308 4.9e-324 123456789012345680 2e23 1e23 8.41e21 5e-324"
        " 2.2250738585072014e-308 2.2e-322 9007199254740993 1.0e16 4.8726570057e288"
    ).split(),
}


def _cases(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["cases"]


ARROW_TYPES = {
    str(data_type): data_type
    for data_type in (
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.bool_(), pa.float32(), pa.float64(),
        pa.decimal128(10, 2), pa.decimal128(10, 0), pa.decimal128(38, 18), pa.decimal128(20, 3),
        pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.string(), pa.binary(),
    )
}  # fmt: skip


def _column(type_name: str, values: list[Any]) -> pa.Array:
    """Build a column from the golden files' notation, see ``make_keys.py``."""
    data_type = ARROW_TYPES[type_name]
    if pa.types.is_floating(data_type):
        return pa.array([None if v is None else float(v) for v in values], data_type)
    if pa.types.is_binary(data_type):
        return pa.array([None if v is None else bytes.fromhex(v) for v in values], data_type)
    if pa.types.is_date32(data_type):
        return pa.array(values, pa.int32()).cast(data_type)
    if pa.types.is_timestamp(data_type):
        return pa.array(values, pa.int64()).cast(data_type)
    if pa.types.is_decimal(data_type):
        return pa.array(values, pa.string()).cast(data_type)
    if pa.types.is_boolean(data_type):
        return pa.array([None if v is None else bool(v) for v in values], data_type)
    return pa.array(values, data_type)


def _is_spelled(kind: str, value: Any) -> bool:
    """Whether bucketlake spells a value of a golden column, and does not refuse it."""
    if kind == "date_ancient":
        return -719162 <= value <= 2932896  # The years 1 to 9999.
    return value not in UNSURE_NUMBERS.get(kind, ())


@pytest.mark.parametrize("kind", sorted(_cases("column_types")))
def test_single_keys_and_partitions_of_a_column_type_are_spelled_as_hudi_does(kind: str) -> None:
    case = _cases("column_types")[kind]
    golden = case["simple"]["upsert"]
    if kind == "binary":  # Hudi refuses the column for its empty value; the next test has the rest.
        assert "cannot be null or empty" in golden["refused"]
        return
    rows = [
        (value, *answer)
        for value, answer in zip(case["values"], golden, strict=True)
        if _is_spelled(kind, value)
    ]
    assert rows
    values, keys, paths = map(list, zip(*rows, strict=True))
    column = _column(case["arrow"], values)
    table = pa.table({"k": column, "p": column})
    spec = KeySpec(("k",), ("p",), KeyGenerator.SIMPLE)
    assert record_keys(table, spec).to_pylist() == keys
    assert partition_paths(table, spec).to_pylist() == paths


@pytest.mark.parametrize("kind", sorted(_cases("column_types")))
def test_composite_keys_of_a_column_type_are_spelled_as_hudi_does(kind: str) -> None:
    case = _cases("column_types")[kind]
    rows = [
        (value, *answer)
        for value, answer in zip([*case["values"], None], case["complex"]["upsert"], strict=True)
        if value is None or _is_spelled(kind, value)
    ]
    values, keys, paths = map(list, zip(*rows, strict=True))
    column = _column(case["arrow"], values)
    table = pa.table({"k": column, "s": ["x"] * len(values), "p": column})
    spec = KeySpec(("k", "s"), ("p", "s"), KeyGenerator.COMPLEX, hive_style=True, url_encode=True)
    assert record_keys(table, spec).to_pylist() == keys
    assert partition_paths(table, spec).to_pylist() == paths


@pytest.mark.parametrize(
    ("kind", "value"),
    [(kind, value) for kind, values in UNSURE_NUMBERS.items() for value in values],
)
def test_numbers_whose_text_depends_on_the_version_of_java_are_refused(
    kind: str, value: str
) -> None:
    table = pa.table({"k": _column(kind, [value])})
    with pytest.raises(InputError, match="versions of Java write it differently"):
        record_keys(table, KeySpec(("k",), (), KeyGenerator.NON_PARTITION))


def _spec(keys: str, partitions: str, generator: str, options: dict[str, str]) -> KeySpec:
    entries = {
        "hoodie.table.recordkey.fields": keys,
        "hoodie.table.partition.fields": partitions,
        **({"hoodie.table.keygenerator.class": f"x.{generator}"} if generator else {}),
        **options,
    }
    return key_spec_of(ConfigEntries(entries))


GENERATORS = {
    case["name"]: case for case in _cases("generators") if not case["name"].startswith("slash")
}


@pytest.mark.parametrize("name", GENERATORS)
def test_keys_and_paths_of_a_generator_are_those_of_hudi(name: str) -> None:
    case = GENERATORS[name]
    table = pa.table(
        {
            field: pa.array(values, None if isinstance(values[0], dict) else pa.string())
            for field, values in case["columns"].items()
        }
    )
    spec = _spec(case["keys"], case["partitions"], case["generator"], case["options"])
    golden = case["upsert"]
    if isinstance(golden, dict):
        assert "null or empty" in golden["refused"]
        with pytest.raises(InputError, match="null or empty key"):
            record_keys(table, spec)
        return
    assert record_keys(table, spec).to_pylist() == [key for key, _ in golden]
    assert partition_paths(table, spec).to_pylist() == [path for _, path in golden]


# What Hudi loses, misplaces, or cannot address: its own rows are gone or nowhere.
REFUSED_PLAIN = {
    "a:b", "a/b:c", "a/b", "a//b", "/a", "a/", "a/../b", "..", ".", "a/./b", ".hoodie",
}  # fmt: skip
REFUSED_ENCODED = {"..", ".", ".hoodie"}


@pytest.mark.parametrize("case", _cases("paths"), ids=lambda case: repr(case["value"]))
@pytest.mark.parametrize("encoded", [False, True], ids=["plain", "encoded"])
def test_a_partition_value_becomes_the_path_of_hudi_and_comes_back(
    case: dict[str, Any], encoded: bool
) -> None:
    value, golden = case["value"], case["encoded" if encoded else "plain"]
    spec = KeySpec(("k",), ("p",), KeyGenerator.SIMPLE, url_encode=encoded)
    table = pa.table({"k": ["a"], "p": [value]})
    if value in (REFUSED_ENCODED if encoded else REFUSED_PLAIN):
        with pytest.raises(InputError, match=re.escape(repr(value))):
            partition_paths(table, spec)
        return
    (_, path), snapshot = golden
    assert partition_paths(table, spec).to_pylist() == [path]
    if encoded or ("%" not in value and "=" not in value):  # Spark decodes what none encoded.
        (read,) = snapshot
        if read is None:
            assert _may_match("p IS NULL", path, spec)
            return
        quoted = read.replace("\\", "\\\\").replace("'", "\\'")
        assert _may_match(f"p = '{quoted}'", path, spec)
        assert not _may_match(f"p <> '{quoted}'", path, spec)


def _may_match(where: str, path: str, spec: KeySpec) -> bool:
    """Whether a partition can have a matching row, going by the values that its path spells."""
    schema = pa.schema({"k": pa.string(), "p": pa.string()})
    (kept,) = partitions_that_may_match(parse_where(where, schema), [path], spec, schema).tolist()
    return bool(kept)


def test_refused_partition_values_are_those_that_hudi_does_not_give_back() -> None:
    """A raw slash aside, which Hudi's partition columns survive only in a table's one field."""
    for case in _cases("paths"):
        for name, refused in (("plain", REFUSED_PLAIN), ("encoded", REFUSED_ENCODED)):
            golden = case[name]
            is_lost = isinstance(golden, dict) or "<missing>" in golden[0] or golden[1] == []
            if is_lost:
                assert case["value"] in refused, case


TIMESTAMPS = _cases("timestamps")
NOT_SERVED = re.compile(r"(?:[aEGCz]+|Z+|MMM+)_")  # As whole output patterns.


def _refusal(case: dict[str, Any]) -> type[BucketLakeError] | None:
    """Say which error bucketlake answers with, by design, where Hudi has an answer or none."""
    options = {name.rpartition("timebased.")[2]: value for name, value in case["options"].items()}
    kind, pattern = options["timestamp.type"], options["output.dateformat"]
    is_text, data_type = case["arrow"] == "string", case["arrow"]
    unit = {"EPOCHMICROSECONDS": "MICROSECONDS"}.get(
        kind, options.get("timestamp.scalar.time.unit")
    )
    if NOT_SERVED.fullmatch(pattern):
        return ConfigError  # Text of a language, or of a zone.
    if "timestamp[" in data_type and unit != "MICROSECONDS":
        return ConfigError  # Hudi takes microseconds for another unit: the year 55840.
    if "date" in data_type and unit != "DAYS":
        return ConfigError  # Likewise: all days of today's fall on 1970-01-01.
    if options.get("timezone") in ("UTC+8", "+08:00", "Nowhere/Land"):
        return ConfigError  # Hudi takes a zone that it does not know for UTC.
    if is_text and ("input.dateformat" not in options or "yy" in _years(options)):
        return ConfigError  # No pattern; a year of two digits, whose century follows the clock.
    if any(_has_long_year(path) for path in _answers(case)):
        return InputError
    if isinstance(case["upsert"], dict):
        return InputError
    if "a/b" in case["s"] and "s" in case["partitions"] and ENCODE not in options:
        return InputError  # A slash in the other partition field.
    return None


def _years(options: dict[str, str]) -> list[str]:
    return re.findall("y+", options.get("input.dateformat", ""))


def _answers(case: dict[str, Any]) -> list[str]:
    return case["upsert"] if isinstance(case["upsert"], list) else []


def _has_long_year(path: str) -> bool:
    return re.match(r"-|[0-9]{5}/|1000001", path) is not None


@pytest.mark.parametrize("number", range(len(TIMESTAMPS)))
def test_times_become_the_partitions_of_hudi(number: int) -> None:
    case = TIMESTAMPS[number]
    table = pa.table({"p": _column(case["arrow"], case["values"]), "s": case["s"]})
    spec = _spec("k", case["partitions"], case["generator"], case["options"])
    refusal = _refusal(case)
    if refusal is not None:
        with pytest.raises(refusal):
            partition_paths(table, spec)
        return
    assert partition_paths(table, spec).to_pylist() == case["upsert"]


def test_most_timestamp_cases_have_an_answer_and_not_a_refusal() -> None:
    assert sum(_refusal(case) is None for case in TIMESTAMPS) >= 80
