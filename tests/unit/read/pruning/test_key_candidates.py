"""Pruning by hash fields."""

from collections.abc import Sequence

import pyarrow as pa
import pytest

from bucketlake.config.table_config import TableConfig
from bucketlake.config.table_version import NEWEST_VERSION
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.read.pruning.key_candidates import KEYS_MAX, find_hash_keys
from bucketlake.where.parser import parse_where

SCHEMA = pa.schema(
    {
        "_hoodie_record_key": pa.string(),
        "id": pa.string(),
        "n": pa.int32(),
        "day": pa.date32(),
        "flag": pa.bool_(),
        "amount": pa.decimal128(10, 2),
        "ratio": pa.float64(),
        "at": pa.timestamp("us", "UTC"),
        "other": pa.string(),
    }
)


def spec(*fields: str, generator: KeyGenerator = KeyGenerator.SIMPLE) -> KeySpec:
    return KeySpec(fields, (), generator)


def table(key_spec: KeySpec, initial_version: int | None = None) -> TableConfig:
    """Return the properties of a table whose keys may be bare, unless a version says otherwise."""
    kinds = TableType.COPY_ON_WRITE, key_spec, MergeMode.COMMIT_TIME
    return TableConfig("t", *kinds, initial_version=initial_version)


def keys_of(where: str, key_spec: KeySpec, hash_fields: Sequence[str] = ()) -> list[str] | None:
    found = find_hash_keys(parse_where(where, SCHEMA), table(key_spec), hash_fields, SCHEMA).keys
    return None if found is None else sorted(found)


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        ("id = 'a'", ["a"]),
        ("id <=> 'a'", ["a"]),
        ("'a' = ID", ["a"]),
        ("id IN ('a', 'b', NULL)", ["a", "b"]),
        ("id = 'a' OR id = 'b'", ["a", "b"]),
        ("id = 'a' AND other = 'b'", ["a"]),
        ("id IN ('a', 'b') AND id IN ('b', 'c')", ["b"]),
        ("id = 'a' AND length(other) > 3", ["a"]),
        ("id = 'a' OR (id IN ('b', 'c') AND id = 'c')", ["a", "c"]),
        ("id = 'a' OR (id = 'b' AND id = 'c')", ["a"]),
        ("NOT (id <> 'a')", ["a"]),
        ("NOT (id <> 'a' OR n = 1)", ["a"]),
        ("NOT NOT id = 'a'", ["a"]),
        ("id = 'a' OR false", ["a"]),
        ("id = 'a' AND true", ["a"]),
        # Contradictions: nothing can match.
        ("id = 'a' AND id = 'b'", []),
        ("id = NULL", []),
        ("id IN (NULL)", []),
        ("id > NULL", []),
        ("false", []),
        ("NULL", []),
        ("other = 'a' AND other = 'b'", []),
        ("NOT true", []),
    ],
)
def test_condition_on_the_key_leaves_its_keys(where: str, keys: list[str]) -> None:
    assert keys_of(where, spec("id")) == keys


@pytest.mark.parametrize(
    "where",
    [
        "other = 'a'",
        "id > 'a'",
        "id <> 'a'",
        "NOT id = 'a'",
        "id NOT IN ('a')",
        "id LIKE 'a'",
        "id = 'a' OR other = 'b'",
        "id = 'a' OR length(id) = 1",
        "id = 5",
        "id IN ('a', 5)",
        "upper(id) = 'A'",
        "id IS NOT NULL",
        "true",
        # No writer makes these keys, but nothing is staked on that.
        "id = ''",
        "id IS NULL",
    ],
)
def test_condition_that_leaves_any_key_prunes_nothing(where: str) -> None:
    found = find_hash_keys(parse_where(where, SCHEMA), table(spec("id")), (), SCHEMA)
    assert found.keys is None
    assert found.reason


@pytest.mark.parametrize(
    ("where", "field", "keys"),
    [
        ("n = 5", "n", ["5"]),
        ("n = '5'", "n", ["5"]),
        ("n = 5.0", "n", ["5"]),
        ("n = -0", "n", ["0"]),
        ("n = '05'", "n", None),
        ("n = 5.5", "n", None),
        ("n = 5000000000", "n", None),
        ("day = '2024-01-31'", "day", ["2024-01-31"]),
        ("day = DATE '2024-01-31'", "day", ["2024-01-31"]),
        ("day = '2024-1-31'", "day", None),
        ("flag", "flag", ["true"]),
        ("NOT flag", "flag", None),
        ("flag = false", "flag", ["false"]),
        # Their keys have several spellings.
        ("amount = 5.00", "amount", None),
        ("ratio = 0", "ratio", None),
        ("at = TIMESTAMP '2024-01-01 00:00:00Z'", "at", None),
    ],
)
def test_literal_is_spelled_as_a_writer_spells_it_or_prunes_nothing(
    where: str, field: str, keys: list[str] | None
) -> None:
    assert keys_of(where, spec(field)) == keys


@pytest.mark.parametrize(
    ("where", "hash_fields", "keys"),
    [
        ("id = 'a' AND n = 5", (), ["id:a,n:5"]),
        ("id IN ('a', 'b') AND n IN (1, 2)", (), ["id:a,n:1", "id:a,n:2", "id:b,n:1", "id:b,n:2"]),
        ("id = 'a' AND n IS NULL", (), ["id:a,n:__null__"]),
        ("id = '' AND n = 5", (), ["id:__empty__,n:5"]),
        ("id = 'a'", (), None),
        # Two equalities on one field are none on the other.
        ("id = 'a' AND id = 'a'", (), None),
        ("(id = 'a' AND n = 1) OR (id = 'b' AND n = 2)", (), ["id:a,n:1", "id:a,n:2", "id:b,n:1",
                                                            "id:b,n:2"]),
        ("id = 'a'", ("id",), ["id:a,n:__null__"]),
        ("id = 'a' AND n = 5", ("id",), ["id:a,n:__null__"]),
        ("n = 5", ("id",), None),
        ("id IS NULL AND n IS NULL", (), None),
    ],
)  # fmt: skip
def test_composite_key_needs_a_value_for_each_hash_field(
    where: str, hash_fields: tuple[str, ...], keys: list[str] | None
) -> None:
    assert keys_of(where, spec("id", "n"), hash_fields) == keys


def test_other_key_field_of_text_might_spell_a_hash_field_and_must_be_known() -> None:
    two_texts = spec("id", "other")
    assert keys_of("id = 'a'", two_texts, ("id",)) is None
    assert keys_of("id = 'a' AND other = ',id:b'", two_texts, ("id",)) == ["id:a,other:,id:b"]
    found = find_hash_keys(
        parse_where("id = 'a'", SCHEMA), table(two_texts), ("id",), SCHEMA, ("other",)
    )
    assert found.keys == ("id:a,other:__null__",)


def test_key_of_one_field_under_complex_is_looked_for_in_the_spellings_of_hudi() -> None:
    complex_spec = spec("id", generator=KeyGenerator.COMPLEX)
    assert keys_of("id = 'a'", complex_spec) == ["a", "id:a"]
    predicate = parse_where("id = 'a'", SCHEMA)
    found = find_hash_keys(predicate, table(complex_spec, NEWEST_VERSION), (), SCHEMA)
    assert found.keys == ("id:a",)


def test_condition_on_the_stored_key_prunes_by_it() -> None:
    assert keys_of("_hoodie_record_key IN ('id:a,n:1')", spec("id", "n")) == ["id:a,n:1"]


def test_too_many_keys_prune_nothing() -> None:
    many = ", ".join(f"'{i}'" for i in range(KEYS_MAX))
    assert len(keys_of(f"id IN ({many})", spec("id")) or ()) == KEYS_MAX
    assert keys_of(f"id IN ({many}, 'x')", spec("id")) is None
    assert keys_of(f"id IN ({many}) AND n IN (1, 2)", spec("id", "n")) is None
    assert keys_of(f"_hoodie_record_key IN ({many}, 'x')", spec("id")) is None


def test_key_field_inside_a_column_prunes_nothing() -> None:
    assert keys_of("id = 'a'", spec("id", "geo.lat")) is None


@pytest.mark.parametrize(
    ("where", "field", "reason"),
    [
        ("n = 1", "id", "no = or IN on id"),
        ("id = 5", "id", "'id = 5' is left to Spark: an integer compared with a column of type"),
        ("at > TIMESTAMP '2024-01-01 00:00:00Z'", "at", "several spellings"),
    ],
)
def test_reason_says_why_any_key_may_match(where: str, field: str, reason: str) -> None:
    found = find_hash_keys(parse_where(where, SCHEMA), table(spec(field)), (), SCHEMA)
    assert reason in str(found.reason)
