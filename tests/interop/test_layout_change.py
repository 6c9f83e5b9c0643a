"""Tables whose timeline moved: after our downgrade Hudi 0.15 goes on, after our upgrade Hudi 1."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bucketlake.services.check.findings import FindingKind
from bucketlake.storage.local import LocalStorage
from bucketlake.timeline.archive_reader import read_archive
from bucketlake.timeline.instant import Action, State
from bucketlake.timeline.table_properties import table_at
from tests.choices import combinations, some
from tests.interop.model import in_order, rows_of
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import BUCKETLAKE, HUDI, SharedTable, Writer, rows
from tests.interop.table_kind import TableKind
from tests.interop.test_old_archive import ARCHIVING
from tests.interop.test_savepoints import restore

pytestmark = pytest.mark.interop

CLEANING = ARCHIVING | {"hoodie.clean.automatic": "true"}
COMPACTING = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
KINDS = {
    "simple": TableKind(),
    "hive style": TableKind(hive_style=True, url_encode=True),
    "two keys": TableKind(record_key=("id", "region")),
    "metadata": TableKind(metadata_table=True),
}


def of_version(kind: TableKind, version: int) -> TableKind:
    """Return a kind of table in a version; version 6 has no metadata table here."""
    has_metadata_table = kind.metadata_table and version > 6
    return replace(kind, version=version, metadata_table=has_metadata_table)


def live(table: SharedTable, first: Writer) -> None:
    """Write, delete, overwrite, clean and archive."""
    second = HUDI if first is BUCKETLAKE else BUCKETLAKE
    table.upsert(first, rows(range(40), 1))
    table.upsert(second, rows(range(20, 60), 2))
    table.overwrite(first, rows(range(0, 30, 2), 3, ("eu",)))
    table.delete(second, rows(range(8), 4))
    for step in range(4):
        table.upsert(HUDI, rows(range(step, 60, 3), 5 + step), CLEANING)
    assert archived(table)
    table.upsert(second, rows(range(55, 70), 9))


def archived(table: SharedTable) -> list[str]:
    found = read_archive(table_at(LocalStorage(str(table.path))))
    return [entry.requested_at for entry in found]


def active(table: SharedTable) -> list[str]:
    timeline = table.ours.timeline()
    assert all(instant.state is State.COMPLETED for instant in timeline)
    return [instant.requested_at for instant in timeline]


def handed_over(table: SharedTable, peer: HudiPeer, version: int) -> SharedTable:
    """Change the version, and return the table for the release that goes on."""
    before = archived(table), active(table)
    change = table.ours.upgrade if version > table.kind.version else table.ours.downgrade
    assert change(to=version).version == version
    assert (archived(table), active(table)) == before
    other = SharedTable(peer, table.path, of_version(table.kind, version))
    other.model = table.model
    other.assert_read_by_all()
    return other


def go_on(table: SharedTable, step: int) -> None:
    """Both write on, Hudi archives what moved, and nobody finds anything."""
    count = len(archived(table))
    for n in range(3):
        table.upsert(HUDI, rows(range(n, 70, 4), step + n), CLEANING)
        table.upsert(BUCKETLAKE, rows(range(n, 80, 5), step + n))
    table.delete(HUDI, rows(range(30, 34), step + 4))
    table.overwrite(BUCKETLAKE, rows(range(1, 30, 2), step + 5, ("us",)))
    table.overwrite(HUDI, rows(range(2, 30, 2), step + 5, ("eu",)))
    table.upsert(HUDI, rows(range(3, 70, 4), step + 6), CLEANING)
    table.upsert(BUCKETLAKE, rows(range(4, 70, 4), step + 7))
    table.assert_read_by_all()
    assert len(archived(table)) > count
    found = table.ours.doctor(check_keys=True, min_age_seconds=0)
    # Hudi archives our commits, and does not know their outcomes.
    assert not [one for one in found if one.kind is not FindingKind.LEFTOVER_OUTCOME]


WAYS = combinations([*KINDS], [8, 9])
WAY_NAMES = [f"{kind}, version {version}" for kind, version in WAYS]


@pytest.mark.parametrize(
    ("kind", "version"), some(WAYS, 6), ids=[WAY_NAMES[WAYS.index(w)] for w in some(WAYS, 6)]
)
def test_a_table_of_hudi_1_is_downgraded_and_continued_by_hudi_0_15_and_upgraded_again(
    hudi: HudiPeer,
    hudi_1_0: HudiPeer,
    hudi_0_15: HudiPeer,
    tmp_path: Path,
    kind: str,
    version: int,
) -> None:
    peer = hudi_1_0 if version == 8 else hudi
    new = SharedTable(peer, tmp_path / "shared", of_version(KINDS[kind], version))
    live(new, HUDI)
    old = handed_over(new, hudi_0_15, 6)
    old.kind = replace(old.kind, metadata_table=False)
    go_on(old, 20)
    again = SharedTable(peer, new.path, new.kind)
    again.model = old.model
    before = archived(old), active(old)
    old.ours.upgrade(to=version)
    assert (archived(again), active(again)) == before
    again.assert_read_by_all()
    go_on(again, 40)


@pytest.mark.parametrize("first", [*Writer], ids=lambda writer: f"{writer.value} first")
@pytest.mark.parametrize("version", [8, 9])
def test_a_table_of_hudi_0_15_is_upgraded_and_continued_by_hudi_1(
    hudi: HudiPeer,
    hudi_1_0: HudiPeer,
    hudi_0_15: HudiPeer,
    tmp_path: Path,
    version: int,
    first: Writer,
) -> None:
    old = SharedTable(hudi_0_15, tmp_path / "shared", of_version(KINDS["simple"], 6))
    if first is BUCKETLAKE:
        old.begin()
    live(old, first)
    new = handed_over(old, hudi_1_0 if version == 8 else hudi, version)
    go_on(new, 20)
    old = handed_over(new, hudi_0_15, 6)
    go_on(old, 40)


@pytest.mark.parametrize("to", [6, 9])
def test_ranges_and_savepoints_are_those_of_hudi_afterwards(
    hudi: HudiPeer, hudi_0_15: HudiPeer, tmp_path: Path, to: int
) -> None:
    """A savepoint of before is restored by Hudi, and ranges of both readers agree."""
    peer = hudi if to == 9 else hudi_0_15
    peer.sql("SET hoodie.metadata.enable=false")
    table = SharedTable(
        hudi_0_15 if to == 9 else hudi, tmp_path / "saved", TableKind(version=15 - to)
    )
    table.upsert(HUDI, rows(range(20), 1))
    table.upsert(BUCKETLAKE, rows(range(10, 30), 2))
    saved, held = table.ours.savepoint(), dict(table.model.rows)
    table.upsert(HUDI, rows(range(5, 15), 3))
    table.upsert(BUCKETLAKE, rows(range(25, 40), 4))
    after = handed_over(table, peer, to)
    commits = [i for i in after.ours.timeline() if i.action is not Action.SAVEPOINT]
    since, until = commits[1].completed_at, commits[3].completed_at
    assert since is not None
    assert until is not None
    expected = rows_of(after.hudi.incremental(after.path, since, until), after.kind.schema)
    assert rows_of(after.ours.to_arrow(since=since, until=until), after.kind.schema) == expected
    assert {row["ts"] for row in expected} == {3, 4}

    restore(HUDI, after, saved)
    after.model.rows = held
    assert rows_of(after.ours.to_arrow(), after.kind.schema) == in_order(
        held.values(), after.kind.schema
    )
    after.upsert(HUDI, rows(range(3), 9))
    after.upsert(BUCKETLAKE, rows(range(2, 6), 10))
    after.assert_read_by_all()


MERGED = TableKind(merge_on_read=True)


@pytest.mark.every_case
@pytest.mark.parametrize("version", [8, 9])
def test_log_files_of_hudi_0_15_are_read_and_written_on_after_an_upgrade(
    hudi: HudiPeer, hudi_1_0: HudiPeer, hudi_0_15: HudiPeer, tmp_path: Path, version: int
) -> None:
    """They stay in their slices."""
    old = SharedTable(hudi_0_15, tmp_path / "shared", of_version(MERGED, 6))
    for ts, numbers in enumerate((range(40), range(20, 60), range(0, 60, 3)), 1):
        old.upsert(HUDI, rows(numbers, ts))
    old.upsert(HUDI, rows(range(5, 20), 4), COMPACTING)
    old.upsert(HUDI, rows(range(0, 30, 4), 5))
    if version == 9:  # Hudi 1.0.2 cannot read deletes in log files of others, nor all of its own.
        old.delete(HUDI, rows(range(4), 6))
    old.assert_read_by_all()
    assert old.ours.upgrade(to=version).compacted == 0
    peer = hudi_1_0 if version == 8 else hudi
    new = SharedTable(peer, old.path, of_version(MERGED, version), with_hudi_rs=False)
    new.model = old.model
    new.assert_read_by_all()
    for n in range(2):
        new.upsert(HUDI, rows(range(n, 70, 4), 10 + n))
        new.upsert(BUCKETLAKE, rows(range(n, 80, 5), 10 + n))
    new.assert_read_by_all()
    assert new.ours.compact().instants
    new.upsert(HUDI, rows(range(3, 70, 4), 20))
    new.upsert(HUDI, rows(range(4, 70, 4), 21), COMPACTING)
    new.upsert(BUCKETLAKE, rows(range(5, 70, 4), 22))
    new.assert_read_by_all()
    assert not new.ours.doctor(check_keys=True, min_age_seconds=0)


@pytest.mark.every_case
def test_a_merge_on_read_table_of_hudi_1_is_compacted_and_continued_by_hudi_0_15(
    hudi: HudiPeer, hudi_0_15: HudiPeer, tmp_path: Path
) -> None:
    new = SharedTable(hudi, tmp_path / "shared", MERGED)
    for n in range(3):
        new.upsert(HUDI, rows(range(n, 60, 2), 2 * n))
        new.upsert(BUCKETLAKE, rows(range(n, 60, 3), 2 * n + 1))
    assert new.ours.downgrade(to=6).compacted > 0
    old = SharedTable(hudi_0_15, new.path, of_version(MERGED, 6))
    old.model = new.model
    old.assert_read_by_all()
    for n in range(3):
        old.upsert(HUDI, rows(range(n, 70, 4), 10 + n), COMPACTING if n == 1 else {})
        old.assert_read_by_all()
    assert old.ours.upgrade().version == 9
    new.assert_read_by_all()
    new.upsert(HUDI, rows(range(3, 70, 4), 20))
    new.upsert(BUCKETLAKE, rows(range(4, 70, 4), 21))
    new.assert_read_by_all()
