"""Tables of older versions: written in turns with the releases of Hudi that know them, upgraded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import bucketlake as bl
from tests.choices import combinations, some
from tests.interop import test_statistics as statistics
from tests.interop.layouts import Layout, with_columns
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import BUCKETLAKE, HUDI, SharedTable, Writer, rows
from tests.interop.table_kind import TableKind
from tests.interop.test_merge_on_read import compact
from tests.interop.test_turns import take_turns

pytestmark = pytest.mark.interop

SIMPLE = TableKind(version=8)
KINDS = {
    "simple": SIMPLE,
    "merge-on-read": replace(SIMPLE, merge_on_read=True),
    "metadata": replace(SIMPLE, metadata_table=True),
    "merge-on-read, metadata": replace(SIMPLE, merge_on_read=True, metadata_table=True),
    "ring": replace(SIMPLE, merge_on_read=True, ring=True),
    "record index": replace(SIMPLE, partitioned_index=False, metadata_table=True),
    "commit time": replace(SIMPLE, ordering=None, merge_on_read=True, metadata_table=True),
}
TURNS = combinations([*KINDS], [*Writer])


def names(turns: list[tuple[str, Writer]]) -> list[str]:
    return [f"{kind}, {first.value} first" for kind, first in turns]


def layout_of(kind: str) -> Layout:
    return Layout(kind, KINDS[kind], lambda n: {"region": ("eu", "us")[n % 2]})


@pytest.mark.parametrize(("kind", "first"), TURNS, ids=names(TURNS))
def test_hudi_1_0_and_bucketlake_write_in_turns(
    hudi_1_0: HudiPeer, tmp_path: Path, kind: str, first: Writer
) -> None:
    """Deleted keys stay deleted: Hudi 1.0.2 cannot read log files in which one comes again."""
    table = SharedTable(hudi_1_0, tmp_path / "turns", KINDS[kind])
    second = HUDI if first is BUCKETLAKE else BUCKETLAKE
    if first is BUCKETLAKE:
        table.begin()
    table.upsert(first, rows(range(40), 1))
    table.upsert(second, rows(range(20, 60), 2))
    table.upsert(first, rows(range(0, 60, 3), 1))  # Half of them are late.
    table.assert_read_by_all()
    table.delete(first, rows(range(8), 0))
    table.delete(second, rows(range(50, 58), 0))
    table.upsert(second, rows(range(8, 50, 2), 3))
    table.upsert(first, rows(range(58, 80, 5), 4))
    table.assert_read_by_all()
    if KINDS[kind].merge_on_read:
        table.ours.compact()
    table.upsert(second, rows(range(10, 90, 4), 5))
    table.overwrite(first, rows(range(0, 30, 2), 6, ("eu",)))
    table.upsert(second, rows(range(0, 50, 7), 7))
    table.assert_read_by_all()
    assert table.ours.config().version == 8
    assert not table.ours.doctor(check_keys=True, min_age_seconds=0)


@pytest.mark.parametrize(("kind", "first"), some(TURNS, 4), ids=names(some(TURNS, 4)))
def test_newest_hudi_and_bucketlake_take_turns_on_version_8(
    hudi: HudiPeer, tmp_path: Path, kind: str, first: Writer
) -> None:
    """The metadata table then has records of two schemas, which hudi-rs does not read."""
    take_turns(hudi, tmp_path / "turns", layout_of(kind), first, steps=3, with_hudi_rs=False)
    assert bl.open_table(str(tmp_path / "turns")).config().version == 8


@pytest.mark.parametrize(
    ("kind", "version", "first"),
    [
        ("simple", 8, HUDI),
        ("merge-on-read, metadata", 8, BUCKETLAKE),
        ("merge-on-read, metadata", 9, HUDI),
        ("simple", 9, BUCKETLAKE),
    ],
)
def test_hudi_1_1_and_bucketlake_take_turns(
    hudi_1_1: HudiPeer, tmp_path: Path, kind: str, version: int, first: Writer
) -> None:
    layout = replace(layout_of(kind), kind=replace(KINDS[kind], version=version))
    take_turns(hudi_1_1, tmp_path / "turns", layout, first, steps=3, with_hudi_rs=False)
    assert bl.open_table(str(tmp_path / "turns")).config().version == version


@pytest.mark.parametrize("kind", [*KINDS])
def test_upgraded_and_downgraded_tables_are_written_on_by_both(
    hudi: HudiPeer, hudi_1_0: HudiPeer, tmp_path: Path, kind: str
) -> None:
    old = SharedTable(hudi_1_0, tmp_path / "shared", KINDS[kind])
    old.upsert(HUDI, rows(range(40), 1))
    old.upsert(BUCKETLAKE, rows(range(20, 60), 2))
    report = old.ours.upgrade()
    assert (report.version_before, report.version) == (8, 9)
    new = SharedTable(hudi, old.path, replace(KINDS[kind], version=9))
    new.model = old.model
    new.assert_read_by_all()
    new.upsert(HUDI, rows(range(10, 70, 3), 3))
    new.upsert(BUCKETLAKE, rows(range(0, 70, 7), 4))
    new.delete(HUDI, rows(range(5), 5))
    new.assert_read_by_all()
    assert new.ours.downgrade(to=8).version == 8
    old.assert_read_by_all()
    old.upsert(HUDI, rows(range(5, 80, 4), 6))
    old.upsert(BUCKETLAKE, rows(range(6, 80, 6), 7))
    old.delete(HUDI, rows(range(5, 9), 8))
    old.assert_read_by_all()
    assert not old.ours.doctor(check_keys=True, min_age_seconds=0)


@pytest.mark.parametrize("merge_on_read", [False, True])
def test_hudi_1_0_skips_files_by_our_statistics(
    hudi_1_0: HudiPeer, tmp_path: Path, merge_on_read: bool
) -> None:
    kind = TableKind(
        schema=statistics.SCHEMA, merge_on_read=merge_on_read, metadata_table=True, version=8
    )
    table = SharedTable(hudi_1_0, tmp_path / "shared", kind)
    table.begin()
    table.upsert(BUCKETLAKE, statistics.batch(0, 10, 1))
    table.upsert(BUCKETLAKE, statistics.batch(5, 12, 2))
    statistics.assert_filtered_alike(table, hudi_1_0, nan_by_hudi=True)
    assert table.ours.explain("n > 200").statistics_skipped > 0
    table.upsert(HUDI, statistics.batch(3, 6, 3))
    table.upsert(BUCKETLAKE, statistics.batch(8, 14, 4))
    statistics.assert_filtered_alike(table, hudi_1_0, nan_by_hudi=True)


def test_keys_of_one_field_are_spelled_as_hudi_1_0_spells_them(
    hudi_1_0: HudiPeer, tmp_path: Path
) -> None:
    """With two partition columns its generator leaves the name of the key field out."""
    kind = TableKind(
        schema=with_columns(("kind", pa.string())), partition_by=("region", "kind"), version=8
    )
    layout = Layout("two", kind, lambda n: {"region": ("eu", "us")[n % 2], "kind": "web"})
    for first in (BUCKETLAKE, HUDI):
        take_turns(hudi_1_0, tmp_path / first.value, layout, first, steps=3)  # Copy-on-write.


OLD = TableKind(version=6)
OLD_KINDS = {
    "simple": OLD,
    "hive style": replace(OLD, hive_style=True, url_encode=True),
    "two keys": replace(OLD, record_key=("id", "region")),
    "merge-on-read": replace(OLD, merge_on_read=True),
    "merge-on-read, commit time": replace(OLD, merge_on_read=True, ordering=None),
    "merge-on-read, ring": replace(OLD, merge_on_read=True, ring=True),
}
OLD_TURNS = combinations([*OLD_KINDS], [*Writer])


def old_table(hudi: HudiPeer, path: Path, kind: str, first: Writer) -> SharedTable:
    """Return a table of version 6, made by the first writer."""
    table = SharedTable(hudi, path, OLD_KINDS[kind])
    if first is BUCKETLAKE:
        table.begin()
    table.upsert(first, rows(range(40), 2))
    return table


@pytest.mark.parametrize(("kind", "first"), OLD_TURNS, ids=names(OLD_TURNS))
def test_hudi_0_15_and_bucketlake_write_in_turns(
    hudi_0_15: HudiPeer, tmp_path: Path, kind: str, first: Writer
) -> None:
    write_in_turns(old_table(hudi_0_15, tmp_path / "turns", kind, first), first)


@pytest.mark.parametrize(("kind", "first"), some(OLD_TURNS, 4), ids=names(some(OLD_TURNS, 4)))
def test_newest_hudi_and_bucketlake_write_in_turns_on_version_6(
    hudi: HudiPeer, tmp_path: Path, kind: str, first: Writer
) -> None:
    write_in_turns(old_table(hudi, tmp_path / "turns", kind, first), first)


def write_in_turns(table: SharedTable, first: Writer) -> None:
    second = HUDI if first is BUCKETLAKE else BUCKETLAKE
    table.upsert(second, rows(range(20, 60), 3))
    table.upsert(first, rows(range(0, 60, 3), 1))  # They are late, if an ordering field tells.
    table.assert_read_by_all()
    table.delete(first, rows(range(8), 0))
    table.delete(second, rows(range(50, 58), 0))
    table.upsert(second, rows(range(0, 60, 2), 4))
    table.assert_read_by_all()
    if table.kind.merge_on_read:
        compact(table, first, "schedule")
        table.upsert(second, rows(range(0, 60, 4), 5))
        table.upsert(first, rows(range(0, 60, 5), 5))
        table.assert_read_by_all(with_hudi_rs=False)
        compact(table, second, "run")
        table.upsert(first, rows(range(0, 60, 6), 6))
        table.assert_read_by_all()
    # File groups of an overwrite by Hudi 0.15 are on no hash ring.
    by_first, by_second = (BUCKETLAKE, BUCKETLAKE) if table.kind.ring else (first, second)
    table.overwrite(by_first, rows(range(0, 30, 2), 5, ("eu",)))
    table.overwrite(by_second, rows(range(1, 30, 2), 5, ("us",)))
    table.upsert(first, rows(range(0, 50, 7), 6))
    table.upsert(second, rows(range(0, 50, 5), 7))
    table.assert_read_by_all()
    # Partitions have other names in Hive style; those that Hudi deletes keep their hash rings.
    if not table.kind.hive_style and not table.kind.ring:
        table.delete_partitions(first, ["us"])
        table.upsert(second, rows(range(20), 8))
        table.delete_partitions(second, ["eu"])
        table.assert_read_by_all()
    assert table.ours.config().version == 6
    assert not table.ours.doctor(check_keys=True, min_age_seconds=0)
