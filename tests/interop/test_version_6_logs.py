"""Merge-on-read tables of version 6 beside Hudi 0.15: log files, compactions, failed writes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import bucketlake as bl
from bucketlake.format.log_block import BlockKind, read_log_blocks
from bucketlake.storage.local import LocalStorage
from bucketlake.timeline import heartbeat
from bucketlake.timeline.instant import Action, State
from tests.bounds import set_bounds
from tests.interop.at_once import write_at_once
from tests.interop.model import in_order, rows_of
from tests.interop.peer.client import HudiPeer, PeerError, read_with_hudi_rs
from tests.interop.shared_table import BUCKETLAKE, FAILING_CHECK, HUDI, SharedTable, Writer, rows
from tests.interop.test_cleaning import data_files, hudi_cleans
from tests.interop.test_locks import BATCHES, LOCK, SHARING
from tests.interop.test_merge_on_read import compact, log_files
from tests.interop.test_old_archive import ARCHIVING, CLEANING
from tests.interop.test_savepoints import call, newest, restore, save
from tests.interop.test_version_6 import (
    DYING,
    KIND,
    WRITERS,
    go_on,
    instants_of,
    other_than,
    pending_of,
)

pytestmark = pytest.mark.interop

MERGED = replace(KIND, merge_on_read=True)


@pytest.fixture
def session(hudi_0_15: HudiPeer) -> HudiPeer:
    """The peer, without metadata tables."""
    hudi_0_15.sql("SET hoodie.metadata.enable=false")
    return hudi_0_15


@pytest.fixture
def table(session: HudiPeer, tmp_path: Path) -> SharedTable:
    """A table that both wrote log files to."""
    table = SharedTable(session, tmp_path / "saved", MERGED)
    table.begin()
    table.upsert(BUCKETLAKE, rows(range(40), 1))
    table.upsert(HUDI, rows(range(20, 60), 2))
    table.upsert(BUCKETLAKE, rows(range(10, 50), 3))
    return table


def dies_writing(table: SharedTable, folder: Path) -> str:
    """Have a process of bucketlake die before it commits; return the instant."""
    batch = folder / "batch.parquet"
    pq.write_table(MERGED.rows(rows(range(10, 70), 9)), batch)
    subprocess.run([sys.executable, "-c", DYING, table.path, "upsert", batch], check=True)
    return pending_of(table)


@pytest.mark.every_case
@WRITERS
def test_a_compaction_is_planned_by_one_and_executed_by_the_other(
    table: SharedTable, writer: Writer
) -> None:
    other = other_than(writer)
    compact(table, writer, "schedule")
    planned = pending_of(table)
    table.upsert(other, rows(range(0, 60, 3), 4))
    table.upsert(writer, rows(range(0, 60, 4), 5))
    table.delete(other, rows(range(5), 6))
    table.assert_read_by_all(with_hudi_rs=False)
    compact(table, other, "run")
    assert planned in instants_of(table, Action.COMMIT)
    table.assert_read_by_all()
    go_on(table, writer)


@pytest.mark.every_case
def test_hudi_cancels_the_blocks_of_a_write_of_ours_that_died(
    table: SharedTable, tmp_path: Path
) -> None:
    """Hudi 0.15 reads no block after one with a later time than the newest commit.

    Its rollback is later than the write that began it. So it sees the rows of this write once
    there is another commit.
    """
    dead = dies_writing(table, tmp_path)
    table.upsert(HUDI, rows(range(3), 6))
    storage = LocalStorage(str(table.path))
    logs = [path for path in data_files(table.path) if ".log." in path]
    blocks = [block for path in logs for block in read_log_blocks(storage, path)]
    assert dead in {block.instant for block in blocks}
    assert BlockKind.COMMAND in {block.kind for block in blocks}
    table.upsert(BUCKETLAKE, rows(range(2, 5), 7))
    table.assert_read_by_all()
    compact(table, BUCKETLAKE)
    go_on(table, BUCKETLAKE)


@pytest.mark.every_case
def test_we_roll_back_a_write_of_hudi_that_failed(table: SharedTable) -> None:
    files = data_files(table.path)
    with pytest.raises(PeerError):
        table.hudi_runs("upsert", rows(range(10, 70), 5), FAILING_CHECK)
    assert files < data_files(table.path)
    table.upsert(BUCKETLAKE, rows(range(3), 6))
    table.assert_read_by_all()
    go_on(table, HUDI)


@WRITERS
def test_a_delta_commit_is_rolled_back_by_the_other(table: SharedTable, writer: Writer) -> None:
    table.write(writer, rows(range(30, 70), 9))
    if writer is HUDI:
        table.ours.rollback(newest(table))
    else:
        call(table, "rollback_to_instant", f"instant_time => '{newest(table)}'")
    table.assert_read_by_all()
    go_on(table, other_than(writer))


@WRITERS
def test_a_savepoint_outlives_compactions_and_cleans_and_is_restored(
    table: SharedTable, writer: Writer
) -> None:
    other = other_than(writer)
    held = dict(table.model.rows)
    then = save(writer, table)
    for n in range(3):
        table.upsert(HUDI if n % 2 else BUCKETLAKE, rows(range(0, 60, 2), 4 + n))
        compact(table, BUCKETLAKE if n % 2 else HUDI)
    if other is BUCKETLAKE:
        table.ours.clean(retain_commits=1)
    else:
        hudi_cleans(table.hudi, table.path)
    assert instants_of(table, Action.CLEAN)
    table.assert_read_by_all()
    saved = in_order(held.values(), MERGED.schema)
    assert rows_of(table.ours.to_arrow(as_of=then), MERGED.schema) == saved
    assert rows_of(read_with_hudi_rs(table.path, then), MERGED.schema) == saved
    restore(other, table, then)
    table.model.rows = held
    table.assert_read_by_all()
    table.ours.delete_savepoint(then)
    go_on(table, writer)


def test_changes_are_those_that_hudi_finds(table: SharedTable) -> None:
    since = newest(table)
    table.upsert(BUCKETLAKE, rows(range(5), 4))
    table.upsert(HUDI, rows(range(3, 8), 5))
    until = newest(table)
    table.upsert(BUCKETLAKE, rows(range(6, 20), 6))
    expected = rows_of(table.hudi.incremental(table.path, since, until), MERGED.schema)
    assert rows_of(table.ours.to_arrow(since=since, until=until), MERGED.schema) == expected
    compact(table, HUDI)
    assert rows_of(table.ours.to_arrow(since=since), MERGED.schema) == in_order(
        [row for row in table.model.rows.values() if row["ts"] > 3], MERGED.schema
    )


@WRITERS
def test_both_archive_a_table_with_log_files(table: SharedTable, writer: Writer) -> None:
    for n in range(4):
        table.upsert(other_than(writer), rows(range(n, 60, 5), 4 + n))
        if n == 1:
            compact(table, writer)
    assert log_files(table)
    if writer is BUCKETLAKE:
        table.ours.clean(retain_commits=1)
        assert table.ours.archive(keep_min=2, keep_max=3).instants
    else:
        table.upsert(HUDI, rows(range(3), 9), CLEANING | ARCHIVING)
    table.assert_read_by_all()
    table.upsert(other_than(writer), rows(range(10, 50, 3), 10))
    table.upsert(writer, rows(range(10, 50, 4), 11))
    table.assert_read_by_all()


@pytest.mark.every_case
def test_both_write_at_once_under_one_lock(
    session: HudiPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction of bucketlake runs beside them, too."""
    # Hudi leaves the heartbeat of a write that was refused; it lasts two minutes by default.
    sharing = SHARING | {"hoodie.client.heartbeat.interval_in_ms": "2000"}
    set_bounds(monkeypatch, heartbeat, HUDI_EXPIRES_AFTER_MS=20_000)
    table = SharedTable(session, tmp_path / "at_once", MERGED)
    table.begin()
    table.upsert(HUDI, rows(range(30), 0))
    ours = bl.open_table(str(table.path), index=MERGED.index, lock=LOCK)
    left, refused = write_at_once(
        BATCHES,
        lambda batch: table.write(HUDI, batch, sharing),
        lambda batch: (ours.upsert(MERGED.rows(batch)), ours.compact(min_log_files=4)),
    )
    for batch in left:
        table.model.upsert(batch)
    table.assert_read_by_all()
    table.upsert(HUDI, rows(range(20, 40), 9), sharing)
    table.assert_read_by_all()
    assert all(i.state is State.COMPLETED for i in table.ours.timeline()), refused
