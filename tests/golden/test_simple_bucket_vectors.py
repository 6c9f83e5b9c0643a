"""Results that the classes of real Hudi gave: keys taken apart, hashed, put into buckets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.hashing.index_key import SplitFields, hash_index_keys
from bucketlake.index.bucket_hash import (
    BUCKET_COUNT_MAX,
    assign_buckets,
    bucket_of_file_id,
    file_id_prefix,
)
from tests.hash_oracle import bucket_of, index_key, java_list_hash, split_index_key
from tests.table_index import of_table

FOLDER = Path(__file__).parent / "vectors"


def _load(name: str, part: str) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads((FOLDER / name).read_text(encoding="utf-8"))[part]
    return loaded


VECTORS = _load("simple_bucket.json", "vectors")
HASH_FIELDS = sorted({tuple(vector["hashFields"]) for vector in VECTORS})


def test_there_are_646_vectors_with_many_kinds_of_keys() -> None:
    assert len(VECTORS) == 646
    assert sum("," in v["recordKey"] and ":" in v["recordKey"] for v in VECTORS) > 100


def test_each_vector_alone_gives_the_bucket_of_hudi() -> None:
    found = [
        int(assign_buckets([v["recordKey"]], v["numBuckets"], v["hashFields"])[0]) for v in VECTORS
    ]
    assert found == [v["bucketId"] for v in VECTORS]


@pytest.mark.parametrize("hash_fields", HASH_FIELDS, ids=",".join)
def test_all_vectors_of_some_hash_fields_together_give_the_hashes_of_hudi(
    hash_fields: tuple[str, ...],
) -> None:
    vectors = [v for v in VECTORS if tuple(v["hashFields"]) == hash_fields]
    keys = pa.array([v["recordKey"] for v in vectors], pa.string())
    expected = [java_list_hash(v["hashKeys"]) for v in vectors]
    assert hash_index_keys(keys, hash_fields).tolist() == expected


def test_the_oracle_takes_keys_apart_as_hudi_does() -> None:
    found = [index_key(v["recordKey"], v["hashFields"]) for v in VECTORS]
    assert found == [v["hashKeys"] for v in VECTORS]
    assert [bucket_of(v["recordKey"], v["numBuckets"], v["hashFields"]) for v in VECTORS] == [
        v["bucketId"] for v in VECTORS
    ]


@pytest.mark.parametrize("rule", ["split", "whole"])
def test_each_release_of_hudi_hashes_the_same_values_of_a_key(rule: str) -> None:
    vectors = [v for v in _load("split_keys.json", "vectors") if v[rule] is not None]
    assert len(vectors) >= 472
    for fields in {tuple(v["hashFields"]) for v in vectors}:
        own = [v for v in vectors if tuple(v["hashFields"]) == fields]
        names = SplitFields(fields) if rule == "split" else fields
        keys = pa.array([v["recordKey"] for v in own])
        assert hash_index_keys(keys, names).tolist() == [v[rule]["hash"] for v in own]
        take = split_index_key if rule == "split" else index_key
        assert [take(v["recordKey"], fields) for v in own] == [v[rule]["values"] for v in own]


@pytest.mark.parametrize("kind", [bl.SimpleBucket(16), bl.PartitionBucket({"a": 8}, default=16)])
@pytest.mark.parametrize("key_fields", [("id",), ("f1", "f2")])
def test_without_hash_fields_keys_are_hashed_by_the_names_of_all_key_fields(
    kind: bl.SimpleBucket | bl.PartitionBucket, key_fields: tuple[str, ...]
) -> None:
    vectors = [
        v
        for v in _load("split_keys.json", "vectors")
        if tuple(v["hashFields"]) == key_fields and v["whole"] is not None
    ]
    assert len(vectors) >= 60
    layout = of_table(kind, *key_fields).layout()
    keys = pa.array([v["recordKey"] for v in vectors])
    slots = layout.slots_of_keys(keys, [""], np.zeros(len(keys), np.int32))
    assert slots.tolist() == [(v["whole"]["hash"] & 0x7FFFFFFF) % 16 for v in vectors]


def test_file_ids_spell_their_bucket_as_hudi_does() -> None:
    cases = _load("file_ids.json", "fileIdFormats")
    servable = [case for case in cases if case["bucketId"] < BUCKET_COUNT_MAX]
    assert len(servable) >= len(cases) - 2  # Ids of nine digits, which Hudi cannot read back.
    for case in servable:
        bucket_id = case["bucketId"]
        assert file_id_prefix(bucket_id, UUID(int=0)) == case["fixedPrefix"]
        assert file_id_prefix(bucket_id, case["examplePrefix"]) == case["examplePrefix"]
        assert bucket_of_file_id(case["nbccFileId"]) == bucket_id


def test_buckets_are_read_from_file_ids_as_hudi_does() -> None:
    cases = _load("file_ids.json", "parse")
    assert [bucket_of_file_id(case["fileId"]) for case in cases] == [
        case["bucketId"] for case in cases
    ]
