"""Commits of one side rolled back by the other, and rollbacks that one began and the other ends."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bucketlake.actions.rollback import rollback_plan
from bucketlake.format.rollback_metadata import encode_rollback_plan
from bucketlake.index.hashing_config import config_path
from bucketlake.read.snapshot import load_snapshot
from bucketlake.storage.local import LocalStorage
from bucketlake.timeline.instant import State
from bucketlake.timeline.open_table import opened_table
from tests.interop.layouts import BY_RULES
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import BUCKETLAKE, HUDI, SharedTable, Writer, rows
from tests.interop.test_rescale import NAME, assert_in_their_buckets, rescale

pytestmark = pytest.mark.interop

WRITERS = pytest.mark.parametrize("writer", list(Writer), ids=lambda w: f"of {w.value}")


def begun(hudi: HudiPeer, path: Path) -> SharedTable:
    table = SharedTable(hudi, path, BY_RULES.kind)
    table.begin()
    table.upsert(BUCKETLAKE, rows(range(40), 1))
    return table


def newest(table: SharedTable) -> str:
    return max(i.requested_at for i in table.ours.timeline() if i.action.writes_data)


def hudi_rolls_back_rescale(table: SharedTable, instant: str) -> None:
    table.hudi.sql("SET hoodie.metadata.enable=false")
    table.hudi.sql(f"CREATE TABLE IF NOT EXISTS {NAME} USING hudi LOCATION '{table.path}'")
    [said] = table.hudi.sql(
        f"CALL partition_bucket_index_manager(table => '{NAME}', rollback => '{instant}', "
        "options => 'hoodie.metadata.enable=false')"
    )
    assert said["result"] == "SUCCESS", said


def take_turns(table: SharedTable, first: Writer) -> None:
    """Each upserts and deletes once, and everyone reads what then is there."""
    for n, turn in enumerate((first, HUDI if first is BUCKETLAKE else BUCKETLAKE)):
        table.upsert(turn, rows(range(20 + 10 * n, 50 + 10 * n), 3 + n))
        table.delete(turn, rows(range(n, n + 2), 0))
        table.assert_read_by_all()
        assert_in_their_buckets(table)


@WRITERS
def test_we_roll_back_rescales(hudi: HudiPeer, tmp_path: Path, writer: Writer) -> None:
    """Both of two; then Hudi is the first to write."""
    table = begun(hudi, tmp_path / NAME)
    index, groups = table.ours.index, table.file_groups()
    rescale(writer, table, {"eu": 2, "us": 7}, 3)
    first = newest(table)
    rescale(BUCKETLAKE, table, {"eu": 4}, 2)
    table.assert_read_by_all()
    report = table.ours.rollback(first, cascade=True)
    assert len(report.commits) == 2
    assert table.ours.index == index
    assert table.file_groups() == groups
    table.assert_read_by_all()
    take_turns(table, HUDI)


def test_hudi_rolls_back_our_rescale(hudi: HudiPeer, tmp_path: Path) -> None:
    table = begun(hudi, tmp_path / NAME)
    index, groups = table.ours.index, table.file_groups()
    rescale(BUCKETLAKE, table, {"eu": 2, "us": 7}, 3)
    hudi_rolls_back_rescale(table, newest(table))
    assert table.ours.index == index
    assert table.file_groups() == groups
    table.assert_read_by_all()
    take_turns(table, BUCKETLAKE)


@WRITERS
def test_we_roll_back_an_upsert_and_hudi_goes_on(
    hudi: HudiPeer, tmp_path: Path, writer: Writer
) -> None:
    table = begun(hudi, tmp_path / NAME)
    table.write(writer, rows(range(30, 60), 9))
    table.ours.rollback(newest(table))
    table.assert_read_by_all()
    take_turns(table, HUDI)


def test_hudi_ends_a_rollback_that_we_began(hudi: HudiPeer, tmp_path: Path) -> None:
    """Our plan is on the timeline and nothing is undone yet; Hudi's next write does it."""
    table = begun(hudi, tmp_path / NAME)
    table.write(BUCKETLAKE, rows(range(30, 60), 9))
    storage, config = LocalStorage(str(table.path)), table.ours.config()
    snapshot = load_snapshot(opened_table(storage, config))
    newest_commit = snapshot.timeline.completed_commits()[-1]
    plan = rollback_plan(storage, snapshot.timeline, newest_commit)
    at = f"{int(max(i.completed_at or '' for i in table.ours.timeline())) + 1}"
    content = encode_rollback_plan(plan, str(table.path))
    storage.put(f"{config.timeline_folder}/{at}.rollback.requested", content)
    storage.put(f"{config.timeline_folder}/{at}.rollback.inflight", b"")
    take_turns(table, HUDI)
    assert all(i.state is State.COMPLETED for i in table.ours.timeline())


def test_we_end_a_rollback_of_a_rescale_that_hudi_began(hudi: HudiPeer, tmp_path: Path) -> None:
    table = begun(hudi, tmp_path / NAME)
    rescale(HUDI, table, {"eu": 2, "us": 7}, 3)
    rescaled = newest(table)
    held = tmp_path / "held"
    shutil.copytree(table.path, held)
    hudi_rolls_back_rescale(table, rescaled)
    began = sorted(Path(table.path, ".hoodie/timeline").glob("[0-9]*.rollback.*"))
    assert [p.name.rpartition(".")[2] for p in began] == ["inflight", "requested"]
    for path in began:
        shutil.copy(path, held / ".hoodie/timeline")
    shutil.rmtree(table.path)
    held.rename(table.path)
    assert (table.path / config_path(rescaled)).exists()  # Hudi died after its first steps.
    take_turns(table, BUCKETLAKE)
    assert not (table.path / config_path(rescaled)).exists()
    assert all(i.state is State.COMPLETED for i in table.ours.timeline())
