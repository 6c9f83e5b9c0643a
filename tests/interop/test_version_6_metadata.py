"""Metadata tables of version 6, maintained in turns with Hudi 0.15, and with the newest Hudi."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import bucketlake as bl
from bucketlake.actions.metadata_compaction import compact_metadata
from bucketlake.metadata.metadata_table import load_metadata_table
from bucketlake.services.check.findings import FindingKind
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage
from bucketlake.timeline import heartbeat
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.instant import Action
from bucketlake.timeline.table_properties import read_table_config, table_at
from tests.bounds import set_bounds
from tests.choices import combinations
from tests.interop.at_once import write_at_once
from tests.interop.peer.client import HudiPeer, PeerError
from tests.interop.shared_table import (
    BUCKETLAKE,
    FAILING_CHECK,
    HUDI,
    WITH_METADATA,
    WITHOUT_METADATA,
    SharedTable,
    Writer,
    rows,
)
from tests.interop.table_kind import TableKind
from tests.interop.test_locks import BATCHES, LOCK, SHARING
from tests.interop.test_merge_on_read import compact
from tests.interop.test_old_archive import ARCHIVING, CLEANING
from tests.interop.test_savepoints import call, newest, save
from tests.interop.test_version_6 import DYING, WRITERS, other_than
from tests.metadata_truth import (
    RECORD_INDEX,
    listed_files,
    live_files,
    require_true_index,
    stored_files,
)

# A release that is asked for by name is a fixture that no signature shows.
pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("hudi_0_15")]

PLAIN = TableKind(version=6, metadata_table=True)
MERGED = replace(PLAIN, merge_on_read=True)
KINDS = {
    "copy-on-write": PLAIN,
    "merge-on-read": MERGED,
    "record index": replace(PLAIN, partitioned_index=False),
}
OFTEN = {"hoodie.metadata.compact.max.delta.commits": "3"}
STATISTICS = {"hoodie.metadata.index.column.stats.enable": "true"}
SKIPPING = {**WITH_METADATA, **STATISTICS, "hoodie.enable.data.skipping": "true"}
RELEASES = ("hudi_0_15", "hudi")
TURNS = combinations([*KINDS], [*Writer], [*RELEASES])


def require_true(storage: Storage) -> None:
    """Compare the metadata table with storage.

    Hudi 0.15 keeps statistics of files that it cleaned, and lists log files of a write that it
    rolled back with a size of 1.
    """
    listed, stored = listed_files(storage), stored_files(storage)
    assert listed.keys() <= stored.keys()
    wrong = {path: size for path, size in listed.items() if size not in (1, stored[path])}
    assert not wrong
    live = [live_files(storage, lists_storage=by_storage) for by_storage in (True, False)]
    assert live[0] == live[1]
    if RECORD_INDEX in read_table_config(storage).metadata_partitions:
        require_true_index(storage)


class Turns:
    """A table with a metadata table, and what is compared after each turn."""

    def __init__(self, hudi: HudiPeer, path: Path, kind: TableKind) -> None:
        self.table = SharedTable(hudi, path, kind)
        self.table.options |= OFTEN | STATISTICS
        hudi.sql("SET hoodie.metadata.enable=true")

    def check(self, *, with_hudi_rs: bool = True) -> None:
        """Compare all readers with the model, and the metadata table with storage."""
        table = self.table
        require_true(open_storage(str(table.path)))
        table.assert_read_by_all(SKIPPING, WITHOUT_METADATA, with_hudi_rs=with_hudi_rs)
        wanted = sorted(row["id"] for row in table.model.rows.values() if row["v"] < 9)
        found = table.hudi.read(table.path, SKIPPING, where="v < 9")
        assert sorted(found["id"].to_pylist()) == wanted
        assert sorted(table.ours.to_arrow(where="v < 9")["id"].to_pylist()) == wanted

    def begin(self, first: Writer) -> None:
        """Make the table; Hudi begins with the first rows."""
        if first is BUCKETLAKE:
            self.table.begin()
            self.table.ours.rebuild_metadata_table(["files", "column_stats"])

    def compact(self) -> str | None:
        """Have bucketlake compact the metadata table."""
        here = table_at(open_storage(str(self.table.path)))
        return compact_metadata(here, delta_commits=1)

    @property
    def compactions(self) -> list[str]:
        here = table_at(open_storage(str(self.table.path)))
        known = load_metadata_table(here, load_timeline(here)).timeline
        assert not known.pending()
        assert {"files", "column_stats"} <= {*here.config.metadata_partitions}
        return [i.requested_at for i in known.completed() if i.action is Action.COMMIT]


@pytest.mark.parametrize(
    ("kind", "first", "release"), TURNS, ids=[f"{k}, {f.value} first, {r}" for k, f, r in TURNS]
)
def test_a_metadata_table_is_maintained_in_turns(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, first: Writer, release: str
) -> None:
    turns = Turns(request.getfixturevalue(release), tmp_path / "turns", KINDS[kind])
    table, second = turns.table, other_than(first)
    turns.begin(first)
    table.upsert(first, rows(range(40), 1))
    table.upsert(second, rows(range(20, 60), 2))
    turns.check()
    assert turns.compact() is not None
    table.upsert(first, rows(range(0, 60, 3), 3))
    table.delete(second, rows(range(8), 9))
    turns.check()
    for n in range(3):  # Hudi compacts.
        table.upsert(second if n % 2 else first, rows(range(n, 60, 4), 4 + n))
    table.upsert(HUDI, rows(range(5, 20), 8))
    turns.check()
    compacted = turns.compactions
    assert len(compacted) >= 2
    table.upsert(BUCKETLAKE, rows(range(5, 30), 9))
    if table.kind.merge_on_read:
        compact(table, second)
        turns.check()
    table.upsert(HUDI, rows(range(10, 30), 10), CLEANING | ARCHIVING)
    turns.check()
    if table.kind.partitioned_index is None:
        table.overwrite(first, rows(range(0, 30, 2), 11, ("eu",)))
        table.overwrite(second, rows(range(1, 30, 2), 11, ("us",)))
    table.ours.clean(retain_commits=1)
    turns.check()
    table.ours.archive(keep_min=2, keep_max=3)
    assert turns.compact() is not None
    table.upsert(second, rows(range(4), 12))
    table.upsert(first, rows(range(2, 6), 13))
    turns.check()
    assert table.ours.config().version == 6
    assert {"files", "column_stats"} <= {*table.ours.config().metadata_partitions}
    assert not table.ours.doctor(check_keys=True, min_age_seconds=0)


@pytest.fixture
def table(hudi_0_15: HudiPeer, tmp_path: Path) -> Turns:
    """A table that both wrote log files to."""
    turns = Turns(hudi_0_15, tmp_path / "saved", MERGED)
    turns.begin(BUCKETLAKE)
    turns.table.upsert(BUCKETLAKE, rows(range(40), 1))
    turns.table.upsert(HUDI, rows(range(20, 60), 2))
    turns.table.upsert(BUCKETLAKE, rows(range(10, 50), 3))
    return turns


def go_on(turns: Turns, first: Writer) -> None:
    """Both write, everyone reads, and nothing stays pending."""
    table = turns.table
    table.upsert(first, rows(range(10, 50, 3), 17))
    table.upsert(other_than(first), rows(range(10, 50, 4), 18))
    turns.check()
    turns.compact()
    turns.check()
    found = table.ours.doctor(check_keys=True, min_age_seconds=0)
    late = (FindingKind.LEFTOVER_MARKERS, FindingKind.LEFTOVER_HEARTBEAT)
    assert not [one for one in found if one.kind not in late]


def test_we_roll_back_a_write_of_hudi_that_failed(table: Turns) -> None:
    with pytest.raises(PeerError):
        table.table.hudi_runs("upsert", rows(range(10, 70), 5), FAILING_CHECK)
    table.table.upsert(BUCKETLAKE, rows(range(3), 6))
    go_on(table, HUDI)


def test_hudi_rolls_back_a_write_of_ours_that_died(table: Turns, tmp_path: Path) -> None:
    """Its log files of the metadata table name an instant that is completed nowhere."""
    batch = tmp_path / "batch.parquet"
    pq.write_table(MERGED.rows(rows(range(10, 70), 9)), batch)
    subprocess.run([sys.executable, "-c", DYING, table.table.path, "upsert", batch], check=True)
    table.table.upsert(HUDI, rows(range(3), 6))
    table.table.upsert(BUCKETLAKE, rows(range(2, 5), 7))
    go_on(table, BUCKETLAKE)


@WRITERS
def test_a_delta_commit_is_rolled_back_by_the_other(table: Turns, writer: Writer) -> None:
    table.table.write(writer, rows(range(30, 70), 9))
    if writer is HUDI:
        table.table.ours.rollback(newest(table.table))
    else:
        call(table.table, "rollback_to_instant", f"instant_time => '{newest(table.table)}'")
    go_on(table, other_than(writer))


@WRITERS
def test_a_savepoint_outlives_compactions_and_cleans_and_is_restored(
    table: Turns, writer: Writer
) -> None:
    """A restore by Hudi 0.15 deletes the metadata table, or fails (see spec/version-6.md)."""
    shared, other = table.table, other_than(writer)
    held = dict(shared.model.rows)
    then = save(writer, shared)
    for n in range(3):
        shared.upsert(HUDI if n % 2 else BUCKETLAKE, rows(range(0, 60, 2), 4 + n))
        compact(shared, BUCKETLAKE if n % 2 else HUDI)
    if other is BUCKETLAKE:
        shared.ours.clean(retain_commits=1)
    else:
        options = ",".join(f"{key}={value}" for key, value in (WITH_METADATA | STATISTICS).items())
        call(shared, "run_clean", f"retain_commits => 1, options => '{options}'")
    table.check()
    shared.ours.restore(then)
    shared.model.rows = held
    shared.ours.delete_savepoint(then)
    go_on(table, writer)


@pytest.mark.parametrize("kind", ["copy-on-write", "merge-on-read"])
def test_both_write_at_once_under_one_lock(
    hudi_0_15: HudiPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Both compact and clean the metadata table meanwhile."""
    sharing = SHARING | {"hoodie.client.heartbeat.interval_in_ms": "2000"}
    set_bounds(monkeypatch, heartbeat, HUDI_EXPIRES_AFTER_MS=20_000)  # See test_version_6_logs.py.
    turns = Turns(hudi_0_15, tmp_path / "at_once", KINDS[kind])
    table = turns.table
    turns.begin(BUCKETLAKE)
    table.upsert(HUDI, rows(range(30), 0))
    ours = bl.open_table(str(table.path), index=KINDS[kind].index, lock=LOCK)

    def write_ours(batch: list[dict[str, object]]) -> None:
        ours.upsert(KINDS[kind].rows(batch))
        here = table_at(open_storage(str(table.path)), LOCK)
        compact_metadata(here, delta_commits=2)

    left, _ = write_at_once(BATCHES, lambda batch: table.write(HUDI, batch, sharing), write_ours)
    for batch in left:
        table.model.upsert(batch)
    turns.check()
    table.upsert(HUDI, rows(range(20, 40), 9), sharing)
    turns.check()


@pytest.mark.parametrize("kind", ["copy-on-write", "merge-on-read"])
def test_an_upgraded_and_a_downgraded_table_have_it_anew(
    hudi: HudiPeer, tmp_path: Path, kind: str
) -> None:
    turns = Turns(hudi, tmp_path / "shared", KINDS[kind])
    table = turns.table
    turns.begin(BUCKETLAKE)
    table.upsert(BUCKETLAKE, rows(range(40), 1))
    table.upsert(HUDI, rows(range(20, 60), 2))
    assert "files" in table.ours.upgrade().built
    require_true(open_storage(str(table.path)))
    assert "files" in table.ours.downgrade(to=6).built
    turns.check()
    table.upsert(HUDI, rows(range(20, 60, 3), 3))
    table.upsert(BUCKETLAKE, rows(range(20, 60, 4), 4))
    turns.check()
