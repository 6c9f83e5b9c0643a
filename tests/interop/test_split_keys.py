"""Keys that have colons and commas: Hudi 0.15 splits them, Hudi 1 only those that have both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake.config.table_version import NEWEST_VERSION
from bucketlake.errors import IndexStateError
from bucketlake.services.check.findings import FindingKind
from tests.choices import combinations
from tests.interop.model import Row
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import BUCKETLAKE, HUDI, SharedTable, Writer
from tests.interop.table_kind import TableKind

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([("id", pa.string()), ("g", pa.string()), ("ts", pa.int64())])
# Hudi 1 never answers for a key of one field such as "a,b:c:d".
VALUES = [
    "k395c:d",
    "2024-01-01 10:00:00",
    ":",
    "a:",
    ":a",
    "id:x",
    "x,y",
    "a,b:c",
    "a:b,",
    "k",
    "x,g:1",
    ",zz:q",
]
ONE = TableKind(schema=SCHEMA, record_key=("id",), partition_by=(), version=6)
TWO = TableKind(schema=SCHEMA, record_key=("id", "g"), partition_by=(), version=6)
KINDS = {
    "one field": ONE,
    "two fields": TWO,
    "a hash field": TableKind(
        schema=SCHEMA, record_key=("id", "g"), partition_by=(), version=6, hash_fields=("g",)
    ),
    "a ring": TableKind(schema=SCHEMA, record_key=("id",), partition_by=(), version=6, ring=True),
}


def batch(values: list[str], ts: int) -> list[Row]:
    return [{"id": value, "g": f"{value}!", "ts": ts} for value in values]


def take_turns(table: SharedTable, first: Writer) -> None:
    """Both write the same keys and keys of their own, and each reads the rows of the other."""
    second = HUDI if first is BUCKETLAKE else BUCKETLAKE
    if first is BUCKETLAKE:
        table.begin()
    table.upsert(first, batch(VALUES, 1))
    table.upsert(second, batch([*VALUES[::2], "new:second"], 2))
    table.upsert(first, batch([*VALUES, "new:first"], 3))
    table.upsert(second, batch(VALUES[1::2], 4))
    assert table.ours.count() == len(VALUES) + 2
    table.assert_read_by_all()
    for value in VALUES:
        assert table.ours.to_arrow(where=f"id = '{value}' AND g = '{value}!'").num_rows == 1
    found = table.ours.doctor(check_keys=True, min_age_seconds=0)
    assert {finding.kind for finding in found} <= {FindingKind.KEYS_AMBIGUOUS}


@pytest.mark.parametrize(
    ("name", "merge_on_read", "first"),
    combinations([*KINDS], [False, True], [BUCKETLAKE, HUDI]),
)
def test_hudi_0_15_and_bucketlake_store_keys_with_colons_once(
    hudi_0_15: HudiPeer, tmp_path: Path, name: str, *, merge_on_read: bool, first: Writer
) -> None:
    hudi_0_15.sql("SET hoodie.metadata.enable=false")
    kind = KINDS[name]
    if merge_on_read:
        kind = replace(kind, merge_on_read=True)
    take_turns(SharedTable(hudi_0_15, tmp_path / "split", kind), first)


NEWER = {
    "one field": replace(ONE, version=NEWEST_VERSION),
    "two fields": replace(TWO, version=NEWEST_VERSION),
    "rules": replace(TWO, version=NEWEST_VERSION, rules=(("p", 3),)),
    "a ring": replace(ONE, version=NEWEST_VERSION, ring=True, merge_on_read=True),
}


@pytest.mark.parametrize(
    ("name", "first"), [*zip(NEWER, [BUCKETLAKE, HUDI, BUCKETLAKE, HUDI], strict=True)]
)
def test_hudi_1_and_bucketlake_store_keys_with_colons_and_commas_once(
    hudi: HudiPeer, tmp_path: Path, name: str, first: Writer
) -> None:
    take_turns(SharedTable(hudi, tmp_path / "newer", NEWER[name]), first)


@pytest.mark.every_case
def test_a_table_that_hudi_1_began_in_version_6_hashes_keys_whole(
    hudi: HudiPeer, hudi_0_15: HudiPeer, tmp_path: Path
) -> None:
    table = SharedTable(hudi, tmp_path / "whole", ONE)
    take_turns(table, HUDI)
    table.hudi = hudi_0_15
    hudi_0_15.write(table.path, ONE.rows(batch(["late:one"], 5)), ONE.write_options(table.path))
    with pytest.raises(IndexStateError, match=r"'late:one'.*Hudi 0\.14 and 0\.15"):
        table.ours.upsert(ONE.rows(batch(["late:one"], 6)))
