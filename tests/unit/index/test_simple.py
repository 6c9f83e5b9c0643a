"""The simple bucket index: buckets of keys, buckets of file ids, its options."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from bucketlake.errors import ConfigError
from bucketlake.index.bucket_hash import (
    BUCKET_COUNT_MAX,
    assign_buckets,
    bucket_of_file_id,
    bucket_text,
    file_id_prefix,
    new_file_id,
)
from bucketlake.index.simple import SimpleBucket
from tests.table_index import of_table


@pytest.mark.parametrize(
    ("record_key", "bucket_count", "bucket_id"),
    [
        ("k1", 4, 1),
        ("", 4, 3),
        ("日本語", 8, 6),
        ("f1:a,f2:b", 8, 2),
        ("f1:__null__,f2:b", 8, 3),
        ("f1:__empty__,f2:b", 8, 3),
        ("😀", 16, 2),
        ("trip-42", 256, 69),
        ("ключ", 256, 217),
    ],
)
def test_simple_bucket_matches_java_list_hash(
    record_key: str, bucket_count: int, bucket_id: int
) -> None:
    assert assign_buckets([record_key], bucket_count, ["f1", "f2"]).tolist() == [bucket_id]


def test_a_negative_hash_loses_its_sign_bit_before_the_modulo() -> None:
    keys = pa.array([f"key-{i}" for i in range(1000)])
    buckets = assign_buckets(keys, 7)
    assert (buckets.min(), buckets.max()) == (0, 6)


def test_literals_lead_to_the_buckets_of_each_partition() -> None:
    layout = of_table(SimpleBucket(4)).layout()
    assert layout.slots_of_literals(["p", "q"], ["k1", "k1", ""]) == {"p": {1, 3}, "q": {1, 3}}
    assert layout.slots_of_literals(["p"], []) == {"p": frozenset()}
    by_f2 = of_table(SimpleBucket(8, ["f2"]), "f1", "f2").layout()
    wanted = assign_buckets(["f1:a,f2:b"], 8, ["f2"]).tolist()
    assert by_f2.slots_of_literals(["p"], ["f1:a,f2:b"]) == {"p": {*wanted}}


@pytest.mark.parametrize(
    ("file_id", "bucket_id"),
    [("00000042-ca8d-4a92-850d-ced6e95dfe29-0", 42), ("99999998-x", 99_999_998), ("00000000", 0)],
)
def test_a_file_id_names_its_bucket_in_eight_digits(file_id: str, bucket_id: int) -> None:
    assert bucket_of_file_id(file_id) == bucket_id


@pytest.mark.parametrize(
    "file_id", ["873f4e8c-1dfb-4f0c-9d8e-0", "", "0000004", "٠٠٠٠٠٠٠٤-x", "+0000042-x", " 0000042"]
)
def test_a_file_id_of_another_index_names_no_bucket(file_id: str) -> None:
    assert bucket_of_file_id(file_id) is None


def test_a_new_file_id_is_a_uuid_of_version_4_with_the_bucket_in_front() -> None:
    file_id = new_file_id("20240101120000000", "region=eu", 3)
    assert bucket_of_file_id(file_id) == 3
    assert file_id.endswith("-0")
    unique = UUID(file_id.removesuffix("-0"))
    assert (unique.version, unique.variant) == (4, "specified in RFC 4122")


def test_new_file_ids_follow_from_instant_partition_and_bucket_alone() -> None:
    wheres = [
        ("20240101120000000", "a", 1),
        ("20240101120000001", "a", 1),
        ("20240101120000000", "b", 1),
        ("20240101120000000", "", 1),
        ("20240101120000000", "a", 2),
        ("20240101120000000", "a/1", 2),
    ]
    file_ids = [new_file_id(*where) for where in wheres]
    assert len(set(file_ids)) == len(wheres)
    assert len({file_id[8:] for file_id in file_ids}) == len(wheres)
    assert file_ids == [new_file_id(*where) for where in wheres]


def test_a_prefix_takes_the_rest_of_any_uuid() -> None:
    assert file_id_prefix(0, UUID(int=0)) == "00000000-0000-0000-0000-000000000000"
    assert bucket_text(99_999_998) == "99999998"


def test_the_noun_is_a_frozen_value_that_survives_pickling() -> None:
    index = SimpleBucket(4, ["b", "a"])
    assert index == SimpleBucket(4, ("b", "a")) == pickle.loads(pickle.dumps(index))
    assert hash(index) == hash(SimpleBucket(4, ("b", "a")))
    assert SimpleBucket(4, "id").hash_fields == ("id",)
    assert SimpleBucket(4, []) == SimpleBucket(4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        index.count = 5  # type: ignore[misc]


@pytest.mark.parametrize("count", [0, -1, BUCKET_COUNT_MAX + 1, "4", 4.0, True, None])
def test_a_count_that_is_no_bucket_count_is_refused(count: Any) -> None:
    with pytest.raises(ConfigError, match="give an integer from 1 to 99999999") as caught:
        SimpleBucket(count)
    assert caught.value.value is count


def test_the_greatest_count_is_taken() -> None:
    assert SimpleBucket(BUCKET_COUNT_MAX).count == 99_999_999


@pytest.mark.parametrize("hash_fields", [[""], ["a", "a"], ["a,b"]])
def test_hash_fields_that_options_cannot_spell_are_refused(hash_fields: list[str]) -> None:
    with pytest.raises(ConfigError, match="name each field once"):
        SimpleBucket(4, hash_fields)


def test_hash_fields_must_be_record_key_fields() -> None:
    SimpleBucket(4).check_hash_fields(["id"])
    SimpleBucket(4, ["b"]).check_hash_fields(["a", "b"])
    with pytest.raises(
        ConfigError, match=r"'c' is not a field of the record key, which is 'a', 'b'"
    ):
        SimpleBucket(4, ["b", "c"]).check_hash_fields(["a", "b"])


@pytest.mark.parametrize("index", [SimpleBucket(4), SimpleBucket(256, ["device", "day"])])
def test_options_render_and_parse_to_the_same_index(index: SimpleBucket) -> None:
    assert SimpleBucket.from_options(index.to_options()) == index


def test_options_are_those_of_hudi() -> None:
    assert SimpleBucket(8, ["a", "b"]).to_options() == {
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "SIMPLE",
        "hoodie.bucket.index.num.buckets": "8",
        "hoodie.bucket.index.hash.field": "a,b",
        # For a session that uses SQL: otherwise INSERT INTO writes a stored key again.
        "hoodie.spark.sql.insert.into.operation": "upsert",
        "hoodie.spark.sql.merge.into.partial.updates": "false",
    }


def test_options_of_a_hudi_job_need_no_engine_and_may_hold_others() -> None:
    options = {
        "hoodie.index.type": "bucket",
        "hoodie.bucket.index.num.buckets": "3",
        "hoodie.table.name": "t",
    }
    assert SimpleBucket.from_options(options) == SimpleBucket(3)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"hoodie.index.type": "BLOOM"}, "hoodie.index.type"),
        ({"hoodie.index.bucket.engine": "CONSISTENT_HASHING"}, "hoodie.index.bucket.engine"),
        ({"hoodie.bucket.index.num.buckets": ""}, "hoodie.bucket.index.num.buckets"),
        ({"hoodie.bucket.index.num.buckets": "-3"}, "hoodie.bucket.index.num.buckets"),
        ({"hoodie.bucket.index.num.buckets": "many"}, "hoodie.bucket.index.num.buckets"),
        ({"hoodie.bucket.index.num.buckets": "0"}, "bucket count"),
    ],
)
def test_options_of_another_index_are_refused_by_their_key(
    change: dict[str, str], key: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        SimpleBucket.from_options(SimpleBucket(4).to_options() | change)
    assert caught.value.key == key


def test_options_without_an_index_type_or_count_are_refused() -> None:
    with pytest.raises(ConfigError, match="a simple bucket index needs BUCKET"):
        SimpleBucket.from_options({"hoodie.bucket.index.num.buckets": "4"})
    with pytest.raises(ConfigError, match="give the number of buckets"):
        SimpleBucket.from_options({"hoodie.index.type": "BUCKET"})
