"""Tables of version 6 beside Hudi 0.15: services of both, and what one began and the other ends."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bucketlake.errors import TimelineError
from bucketlake.services.check.findings import FindingKind
from bucketlake.timeline.instant import Action, State
from tests.interop.model import in_order, rows_of
from tests.interop.peer.client import HudiPeer, PeerError, read_with_hudi_rs
from tests.interop.shared_table import (
    BUCKETLAKE,
    FAILING_CHECK,
    HUDI,
    SharedTable,
    Writer,
    rows,
)
from tests.interop.table_kind import TableKind
from tests.interop.test_cleaning import data_files, hudi_cleans
from tests.interop.test_savepoints import call, newest, restore, save

pytestmark = pytest.mark.interop

KIND = TableKind(version=6)
DYING = """
import os, sys
import pyarrow.parquet as pq
import bucketlake as bl
from bucketlake.actions import transact

transact.claim_commit = lambda *_: os._exit(0)
path, operation, batch = sys.argv[1:]
getattr(bl.open_table(path), operation)(pq.read_table(batch))
raise SystemExit(1)
"""
WRITERS = pytest.mark.parametrize("writer", list(Writer), ids=lambda w: f"by {w.value}")


@pytest.fixture
def session(hudi_0_15: HudiPeer) -> HudiPeer:
    """The peer, without metadata tables."""
    hudi_0_15.sql("SET hoodie.metadata.enable=false")
    return hudi_0_15


@pytest.fixture
def table(session: HudiPeer, tmp_path: Path) -> SharedTable:
    """A table that both wrote to."""
    table = SharedTable(session, tmp_path / "saved", KIND)
    table.begin()
    table.upsert(BUCKETLAKE, rows(range(40), 1))
    table.upsert(HUDI, rows(range(20, 60), 2))
    return table


def other_than(writer: Writer) -> Writer:
    return HUDI if writer is BUCKETLAKE else BUCKETLAKE


def pending_of(table: SharedTable) -> str:
    """Return the only pending instant."""
    [pending] = [i for i in table.ours.timeline() if i.state is not State.COMPLETED]
    return pending.requested_at


def go_on(table: SharedTable, first: Writer) -> None:
    """Both write, everyone reads, and nothing stays pending."""
    table.upsert(first, rows(range(10, 50, 3), 7))
    table.upsert(other_than(first), rows(range(10, 50, 4), 8))
    table.assert_read_by_all()
    assert all(i.state is State.COMPLETED for i in table.ours.timeline())
    found = table.ours.doctor(check_keys=True, min_age_seconds=0)
    # These stay for some minutes after a rollback.
    late = (FindingKind.LEFTOVER_MARKERS, FindingKind.LEFTOVER_HEARTBEAT)
    assert not [one for one in found if one.kind not in late]


def instants_of(table: SharedTable, action: Action) -> list[str]:
    return [i.requested_at for i in table.ours.timeline() if i.action is action]


@WRITERS
def test_a_savepoint_outlives_the_clean_of_the_other_and_is_restored(
    table: SharedTable, writer: Writer
) -> None:
    other = other_than(writer)
    held = dict(table.model.rows)
    then = save(writer, table)
    for n in range(3):
        table.upsert(HUDI if n % 2 else BUCKETLAKE, rows(range(0, 60, 2), 3 + n))
    if other is BUCKETLAKE:
        table.ours.clean(retain_commits=1)
    else:
        hudi_cleans(table.hudi, table.path)
    assert len(instants_of(table, Action.CLEAN)) == 1
    saved = in_order(held.values(), KIND.schema)
    assert rows_of(table.ours.to_arrow(as_of=then), KIND.schema) == saved
    assert rows_of(read_with_hudi_rs(table.path, then), KIND.schema) == saved
    restore(other, table, then)
    table.model.rows = held
    table.assert_read_by_all()
    table.ours.delete_savepoint(then)
    go_on(table, writer)


@WRITERS
def test_a_commit_is_rolled_back_by_the_other(table: SharedTable, writer: Writer) -> None:
    table.write(writer, rows(range(30, 70), 9))
    if writer is HUDI:
        table.ours.rollback(newest(table))
    else:
        call(table, "rollback_to_instant", f"instant_time => '{newest(table)}'")
    table.assert_read_by_all()
    go_on(table, other_than(writer))


@WRITERS
def test_a_clean_that_died_is_ended_by_the_other(
    table: SharedTable, tmp_path: Path, writer: Writer
) -> None:
    for n in range(3):
        table.upsert(other_than(writer), rows(range(0, 60, 2), 3 + n))
    before = tmp_path / "before"
    shutil.copytree(table.path, before)
    if writer is BUCKETLAKE:
        table.ours.clean(retain_commits=1)
    else:
        hudi_cleans(table.hudi, table.path)
    after, [instant] = data_files(table.path), instants_of(table, Action.CLEAN)
    for state in ("requested", "inflight"):
        shutil.copy(table.path / f".hoodie/{instant}.clean.{state}", before / ".hoodie")
    shutil.rmtree(table.path)
    before.rename(table.path)
    assert after < data_files(table.path)
    if writer is HUDI:
        assert instant in table.ours.clean(retain_commits=100).instants
    else:
        hudi_cleans(table.hudi, table.path, "retain_commits => 100")
    assert data_files(table.path) == after
    go_on(table, writer)


@pytest.mark.every_case
def test_we_roll_back_an_upsert_of_hudi_that_failed(table: SharedTable) -> None:
    files = data_files(table.path)
    with pytest.raises(PeerError):
        table.hudi_runs("upsert", rows(range(10, 70), 5), FAILING_CHECK)
    pending = pending_of(table)
    assert files < data_files(table.path)
    table.upsert(BUCKETLAKE, rows(range(3), 6))
    assert not [path for path in data_files(table.path) if pending in path]
    go_on(table, HUDI)


@pytest.mark.every_case
def test_we_roll_back_a_delete_of_partitions_in_which_hudi_died(table: SharedTable) -> None:
    """In this layout it is named as a clustering."""
    chosen = {"hoodie.datasource.write.partitions.to.delete": "us"}
    table.hudi_runs("delete_partition", [], chosen)
    (table.path / f".hoodie/{newest(table)}.replacecommit").unlink()
    assert pending_of(table)
    table.upsert(BUCKETLAKE, rows(range(3), 6))
    go_on(table, HUDI)


@pytest.mark.every_case
@pytest.mark.parametrize("operation", ["upsert", "insert_overwrite"])
def test_hudi_rolls_back_a_write_of_ours_that_died(
    table: SharedTable, tmp_path: Path, operation: str
) -> None:
    files, batch = data_files(table.path), tmp_path / "batch.parquet"
    pq.write_table(KIND.rows(rows(range(10, 70), 5)), batch)
    subprocess.run([sys.executable, "-c", DYING, table.path, operation, batch], check=True)
    pending = pending_of(table)
    assert files < data_files(table.path)
    table.upsert(HUDI, rows(range(3), 6))
    assert not [path for path in data_files(table.path) if pending in path]
    go_on(table, BUCKETLAKE)


def test_changes_are_those_that_hudi_finds(table: SharedTable) -> None:
    since = newest(table)
    table.upsert(BUCKETLAKE, rows(range(5), 3))
    table.upsert(HUDI, rows(range(3, 8), 4))
    until = newest(table)
    table.upsert(BUCKETLAKE, rows(range(6, 20), 5))
    expected = rows_of(table.hudi.incremental(table.path, since, until), KIND.schema)
    assert rows_of(table.ours.to_arrow(since=since, until=until), KIND.schema) == expected
    assert [row["id"] for row in expected] == [f"k{n}" for n in range(8)]


def test_time_travel_is_refused_after_a_clean_of_either(table: SharedTable) -> None:
    first = table.ours.timeline()[0].requested_at
    at_first = rows_of(table.ours.to_arrow(as_of=first), KIND.schema)
    assert at_first == in_order(rows(range(40), 1), KIND.schema)
    assert rows_of(read_with_hudi_rs(table.path, first), KIND.schema) == at_first
    table.upsert(HUDI, rows(range(60), 3))
    hudi_cleans(table.hudi, table.path)
    with pytest.raises(TimelineError, match="ask for a later time"):
        table.ours.to_arrow(as_of=first)
