"""Results that the classes of real Hudi gave for consistent hashing, and rings that it stored."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketlake.errors import InputError
from bucketlake.format.hashing_metadata import (
    decode_child_nodes,
    decode_hashing_metadata,
    encode_child_nodes,
    encode_hashing_metadata,
)
from bucketlake.hashing.ring import Ring, initial_ring
from bucketlake.hashing.xx_hash import hash_ring_keys
from tests.golden.objects import objects_of_table
from tests.ring_oracle import joined_index_key, ring_hash

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "vectors" / "consistent_hashing.json").read_text(encoding="utf-8")
)
LOOKUPS: list[dict[str, Any]] = VECTORS["lookups"]
HASH_FIELDS = sorted({tuple(lookup["hashFields"]) for lookup in LOOKUPS})
TABLES = {"mor_consistent": 3, "mor_consistent_split": 12, "mor_consistent_hashing": 2}
"""Tables with consistent hashing, and how many versions of rings each has."""


def a_ring(values: list[int]) -> Ring:
    return Ring.of({value: f"old-{value}" for value in values})


def rings_of(table: str) -> dict[str, bytes]:
    objects = objects_of_table(table).items()
    return {path: data for path, data in objects if path.endswith(".hashing_meta")}


def test_there_are_vectors_of_every_kind() -> None:
    counts = {kind: len(cases) for kind, cases in VECTORS.items() if kind != "source"}
    assert counts == {
        "defaultLayouts": 24,
        "lookups": 160,
        "customRings": 1,
        "splits": 37,
        "merges": 4,
        "illegalMerges": 2,
    }


@pytest.mark.parametrize("layout", VECTORS["defaultLayouts"])
def test_a_partition_begins_with_the_ring_of_hudi(layout: dict[str, Any]) -> None:
    ring = initial_ring(layout["partition"], layout["numBuckets"])
    found = list(zip(ring.values.tolist(), ring.prefixes, strict=True))
    assert found == [(node["value"], node["fileIdPrefix"]) for node in layout["nodes"]]


@pytest.mark.parametrize("hash_fields", HASH_FIELDS, ids=",".join)
def test_all_keys_of_some_hash_fields_together_have_the_hashes_of_hudi(
    hash_fields: tuple[str, ...],
) -> None:
    lookups = [lookup for lookup in LOOKUPS if tuple(lookup["hashFields"]) == hash_fields]
    keys = pa.array([lookup["recordKey"] for lookup in lookups], pa.string())
    expected = [lookup["hashValue"] for lookup in lookups]
    assert hash_ring_keys(keys, hash_fields).tolist() == expected


def test_each_key_alone_is_on_the_node_of_hudi() -> None:
    for lookup in LOOKUPS:
        ring = initial_ring(lookup["partition"], lookup["numBuckets"])
        hashes = hash_ring_keys(pa.array([lookup["recordKey"]]), lookup["hashFields"])
        (position,) = ring.locate(hashes)
        assert hashes.tolist() == [lookup["hashValue"]], lookup
        assert ring.values[position] == lookup["nodeValue"], lookup
        assert ring.prefixes[position] == lookup["fileIdPrefix"], lookup


def test_the_oracle_joins_and_hashes_keys_as_hudi_does() -> None:
    found = [
        (
            joined_index_key(v["recordKey"], v["hashFields"]),
            ring_hash(v["recordKey"], v["hashFields"]),
        )
        for v in LOOKUPS
    ]
    assert found == [(v["hashInput"], v["hashValue"]) for v in LOOKUPS]


def test_a_ring_of_any_values_holds_keys_where_hudi_does() -> None:
    for case in VECTORS["customRings"]:
        ring = a_ring(case["nodes"])
        keys = pa.array([lookup["recordKey"] for lookup in case["lookups"]])
        found = ring.values[ring.locate(hash_ring_keys(keys))].tolist()
        assert found == [lookup["nodeValue"] for lookup in case["lookups"]]
        assert max(lookup["hashValue"] for lookup in case["lookups"]) > case["nodes"][-1]


@pytest.mark.parametrize("case", VECTORS["splits"])
def test_a_node_splits_where_hudi_splits_it(case: dict[str, Any]) -> None:
    ring = a_ring(case["nodes"])
    middle = ring.middle(case["split"])
    if case["children"] is None:
        assert middle is None
        assert ring.even_points(case["split"], 2) is None
        return
    assert middle is not None
    assert ring.even_points(case["split"], 2) == [middle]
    children = ring.split(case["split"], [middle], ["new-1", "new-2"])
    assert [child.value for child in children] == case["children"]


@pytest.mark.parametrize("case", VECTORS["merges"])
def test_nodes_merge_as_hudi_merges_them(case: dict[str, Any]) -> None:
    children = a_ring(case["nodes"]).merge(case["merge"], "new")
    found = [{"value": child.value, "tag": child.tag.value} for child in children]
    assert found == case["children"]


@pytest.mark.parametrize("case", VECTORS["illegalMerges"])
def test_a_merge_that_hudi_refuses_is_refused(case: dict[str, Any]) -> None:
    ring = a_ring(VECTORS["merges"][0]["nodes"])
    with pytest.raises(InputError, match="neighbours"):
        ring.merge(case["merge"], "new")


@pytest.mark.parametrize("table", TABLES)
def test_rings_that_hudi_stored_decode_and_encode_to_the_same_bytes_and_a_checksum(
    table: str,
) -> None:
    stored = rings_of(table)
    assert len(stored) == TABLES[table]
    for path, data in stored.items():
        metadata = decode_hashing_metadata(data, path)
        again = encode_hashing_metadata(metadata).decode()
        assert re.sub(r',\n  "checksum" : "[0-9a-f]{8}"', "", again) == data.decode()
        folder, _, name = path.rpartition("/")
        assert name == f"{metadata.instant}.hashing_meta"
        assert folder.endswith(f"/{metadata.partition_path}")


@pytest.mark.parametrize("table", TABLES)
def test_rings_that_hudi_began_with_are_made_anew(table: str) -> None:
    for path, data in rings_of(table).items():
        metadata = decode_hashing_metadata(data, path)
        if metadata.sequence_number == 0:
            ring = initial_ring(metadata.partition_path, metadata.initial_count)
            assert ring == metadata.ring


def test_plans_of_hudi_turn_each_ring_into_the_next() -> None:
    plans: dict[tuple[str, int], list[str]] = {}
    for path, data in sorted(objects_of_table("mor_consistent_split").items()):
        if path.endswith(".clustering.requested"):
            plan: Any = next(iter(fastavro.reader(io.BytesIO(data))))
            for group in plan["clusteringPlan"]["inputGroups"]:
                facts = group["extraMetadata"]
                key = (
                    facts["clustering.group.partition"],
                    int(facts["clustering.group.sequence.no"]),
                )
                plans.setdefault(key, []).append(facts["clustering.group.child.node"])
    rings = {}
    for path, data in rings_of("mor_consistent_split").items():
        metadata = decode_hashing_metadata(data, path)
        rings[metadata.partition_path, metadata.sequence_number] = metadata.ring
    assert len(plans) == 9
    for (partition, sequence_number), texts in plans.items():
        groups = [decode_child_nodes(text, partition) for text in texts]
        assert [encode_child_nodes(children) for children in groups] == texts
        children = [child for group in groups for child in group]
        before = rings[partition, sequence_number]
        assert before.with_children(children) == rings[partition, sequence_number + 1]


def test_rows_that_hudi_wrote_lie_in_the_file_group_of_their_node() -> None:
    files = objects_of_table("mor_consistent_split")
    newest = max(path for path in rings_of("mor_consistent_split") if "/eu/" in path)
    ring = decode_hashing_metadata(files[newest], newest).ring
    checked = 0
    for path, data in files.items():
        prefix = path.removeprefix("eu/")[:36]
        if path.startswith("eu/") and path.endswith(".parquet") and prefix in ring.prefixes:
            keys = pq.read_table(pa.BufferReader(data))["_hoodie_record_key"]
            positions = ring.locate(hash_ring_keys(keys))
            assert np.unique(positions).tolist() == [ring.prefixes.index(prefix)]
            checked += len(keys)
    assert checked > 20
