"""Hudi's table services over commits of bucketlake's: clean, archive, roll back, restore."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bucketlake.actions.commit import commit_write
from bucketlake.errors import CommitConflictError
from bucketlake.storage.location import open_storage
from bucketlake.write.pack import ArrowSource, PackedRecords
from tests.interop.model import Row, commits_of
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
from tests.metadata_truth import listed_files, stored_files

pytestmark = pytest.mark.interop

CLEANING = {
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "1",
    "hoodie.archive.automatic": "true",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
}


@pytest.fixture
def table(hudi: HudiPeer, tmp_path: Path) -> SharedTable:
    """A table that bucketlake begins."""
    shared = SharedTable(hudi, tmp_path / "shared")
    shared.begin()
    return shared


def test_commits_of_ours_are_cleaned_and_archived(table: SharedTable) -> None:
    table.upsert(BUCKETLAKE, rows(range(24), 1, ("eu", "us", "asia")))
    table.overwrite(BUCKETLAKE, rows(range(1, 9), 0, ("us",)))
    table.delete(BUCKETLAKE, rows(range(3), 0))
    table.delete_partitions(BUCKETLAKE, ["asia"])
    table.upsert(BUCKETLAKE, rows(range(5, 12), 3))
    began = instants_of(table)
    replaced = list((table.path / "asia").glob("*.parquet"))
    assert replaced
    for n in range(4):
        table.upsert(HUDI, rows(range(n, 2 * n + 5), 10 + n), CLEANING)
        table.assert_read_by_all()
        table.upsert(BUCKETLAKE, rows(range(n, 2 * n + 5, 2), 10 + n))
        table.assert_read_by_all()
    assert not began & instants_of(table)
    assert not any(file.exists() for file in replaced)


def instants_of(table: SharedTable) -> set[str]:
    return {instant.requested_at for instant in table.ours.timeline()}


def files_of(table: SharedTable, instant: str) -> list[Path]:
    """Return everything that bears an instant, but for markers and what tells what became of it."""
    found = [path for path in table.path.rglob(f"*{instant}*") if path.suffix != ".crc"]
    found = [path for path in found if ".temp" not in path.parts]
    return [path for path in found if "rollback" not in path.name and path.suffix != ".json"]


class Killed(BaseException):
    """The end of a driver, which no handler sees."""


@dataclass
class Driver:
    """A driver of ours that dies at a step, and what it had in hand."""

    monkeypatch: pytest.MonkeyPatch
    step: str
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def die(self, table: SharedTable, batch: list[Row]) -> str:
        """Begin an upsert and die; return its instant."""
        before = instants_of(table)
        with self.monkeypatch.context() as patch:
            patch.setattr(f"bucketlake.{self.step}", self._stop)
            patch.setattr("bucketlake.write.transaction.settle", lambda *_: None)
            with pytest.raises(Killed):
                table.ours.upsert(table.kind.rows(batch))
        (instant,) = instants_of(table) - before
        return instant

    def _stop(self, *arguments: Any, **options: Any) -> None:
        self.arguments, self.options = arguments, options
        raise Killed


@pytest.mark.parametrize(
    "step",
    [
        "write.stages.plan_write",
        "write.transaction.commit_write",
        "actions.transact.claim_commit",
        "actions.transact.finish",
    ],
)
def test_pending_commit_of_ours_is_rolled_back_by_hudi(
    table: SharedTable, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    table.upsert(BUCKETLAKE, rows(range(24), 1))
    instant = Driver(monkeypatch, step).die(table, rows(range(10, 40), 5, ("eu", "us", "asia")))
    table.assert_read_by_all()
    written = [path for path in files_of(table, instant) if path.suffix == ".parquet"]
    assert bool(written) is (step != "write.stages.plan_write")

    table.upsert(HUDI, rows(range(20, 30), 3))
    assert files_of(table, instant) == []
    table.assert_read_by_all()
    table.upsert(BUCKETLAKE, rows(range(25, 35), 4, ("eu", "us", "asia")))
    table.assert_read_by_all()
    assert files_of(table, instant) == []


def test_driver_of_ours_that_hudi_rolled_back_cannot_commit(
    table: SharedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do its tasks publish anything any more."""
    table.upsert(BUCKETLAKE, rows(range(24), 1))
    driver = Driver(monkeypatch, "write.transaction.commit_write")
    with monkeypatch.context() as patch:
        calls = []
        write = PackedRecords.write

        def noted(self: ArrowSource, *arguments: Any) -> Any:
            calls.append((self, *arguments))
            return write(self, *arguments)

        patch.setattr(PackedRecords, "write", noted)
        instant = driver.die(table, rows(range(10, 40), 5, ("eu", "us", "asia")))
    table.upsert(HUDI, rows(range(20, 30), 3))

    ((source, *arguments),) = calls
    with pytest.raises(CommitConflictError, match="ended while a task still wrote"):
        write(source, *arguments)
    assert files_of(table, instant) == []
    with pytest.raises(CommitConflictError):
        commit_write(*driver.arguments, **driver.options)
    table.assert_read_by_all()

    table.upsert(BUCKETLAKE, rows(range(25, 35), 4))
    assert files_of(table, instant) == []
    table.assert_read_by_all()


@pytest.mark.parametrize("first", [BUCKETLAKE, HUDI], ids=lambda writer: f"by {writer.value}")
def test_pending_rollback_of_hudi_is_finished_by_the_next_write(
    table: SharedTable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, first: Writer
) -> None:
    table.upsert(BUCKETLAKE, rows(range(24), 1))
    instant = Driver(monkeypatch, "write.transaction.commit_write").die(
        table, rows(range(10, 40), 5)
    )
    shutil.copytree(table.path, tmp_path / "before")
    table.write(HUDI, rows(range(1), 1))
    timeline = table.path / ".hoodie" / "timeline"
    (plan,) = timeline.glob("*.rollback.requested")
    in_the_middle = {plan.name: plan.read_bytes(), plan.with_suffix(".inflight").name: b""}
    shutil.rmtree(table.path)
    shutil.copytree(tmp_path / "before", table.path)
    for name, content in in_the_middle.items():
        (timeline / name).write_bytes(content)

    table.upsert(first, rows(range(20, 30), 3))
    assert files_of(table, instant) == []
    table.assert_read_by_all()
    table.upsert(BUCKETLAKE if first is HUDI else HUDI, rows(range(25, 35), 4))
    table.assert_read_by_all()


def test_pending_commit_of_hudi_is_rolled_back_by_us(table: SharedTable) -> None:
    table.upsert(BUCKETLAKE, rows(range(24), 1))
    before = instants_of(table)
    with pytest.raises(PeerError, match="HoodieValidationException"):
        table.hudi_runs("upsert", rows(range(10, 40), 5, ("eu", "us", "asia")), FAILING_CHECK)
    (instant,) = instants_of(table) - before
    assert [path for path in files_of(table, instant) if path.suffix == ".parquet"]
    table.assert_read_by_all()

    table.upsert(BUCKETLAKE, rows(range(20, 30), 3))
    assert files_of(table, instant) == []
    table.assert_read_by_all()
    table.upsert(HUDI, rows(range(25, 35), 4, ("eu", "us", "asia")))
    table.assert_read_by_all()


def test_completed_commit_of_ours_is_rolled_back_by_hudi(table: SharedTable) -> None:
    table.upsert(BUCKETLAKE, rows(range(24), 1))
    held = dict(table.model.rows)
    table.upsert(BUCKETLAKE, rows(range(20, 40), 2, ("us", "asia")))
    instant = commits_of(table.ours)[-1].requested_at
    table.hudi.sql(f"CREATE TABLE rolled_back USING hudi LOCATION '{table.path}'")
    call = f"CALL rollback_to_instant(table => 'rolled_back', instant_time => '{instant}')"
    assert table.hudi.sql(call) == [{"rollback_result": True}]
    table.model.rows = held
    assert files_of(table, instant) == []
    table.assert_read_by_all()
    go_on_with_metadata_table(table)
    # Hudi built the metadata table before the rollback, and left the deleted files in its list.
    table.ours.rebuild_metadata_table()
    assert_files_are_listed(table)
    table.assert_read_by_all(WITH_METADATA)


def test_table_restored_by_hudi_goes_on(table: SharedTable) -> None:
    table.upsert(BUCKETLAKE, rows(range(24), 1))
    table.upsert(HUDI, rows(range(20, 30), 2))
    table.upsert(BUCKETLAKE, rows(range(22, 32), 3))
    savepoint = commits_of(table.ours)[-1].requested_at
    call = f"path => '{table.path}'"
    table.hudi.sql(f"CALL create_savepoint({call}, commit_time => '{savepoint}')")
    held = dict(table.model.rows)
    table.upsert(BUCKETLAKE, rows(range(5, 25), 4, ("eu", "us", "asia")))
    table.delete(BUCKETLAKE, rows(range(25, 28), 0))
    table.overwrite(BUCKETLAKE, rows(range(3), 0, ("us",)))
    table.upsert(HUDI, rows(range(5), 5))
    table.assert_read_by_all()

    table.hudi.sql(f"CALL rollback_to_savepoint({call}, instant_time => '{savepoint}')")
    table.model.rows = held
    assert commits_of(table.ours)[-1].requested_at == savepoint
    table.assert_read_by_all(WITH_METADATA, WITHOUT_METADATA)
    go_on_with_metadata_table(table)
    assert_files_are_listed(table)


def go_on_with_metadata_table(table: SharedTable) -> None:
    """Both upsert; the procedures of Hudi build a metadata table."""
    partitions = table.ours.config().metadata_partitions
    assert partitions
    for ts, writer in enumerate((BUCKETLAKE, HUDI, BUCKETLAKE), 10):
        batch = rows(range(3 * ts, 3 * ts + 12), ts, ("eu", "us", "asia"))
        table.upsert(writer, batch, WITH_METADATA)
        table.assert_read_by_all(WITH_METADATA, WITHOUT_METADATA)
    assert set(table.ours.config().metadata_partitions) >= set(partitions)


def assert_files_are_listed(table: SharedTable) -> None:
    """Compare the metadata table with storage."""
    storage = open_storage(str(table.path))
    assert listed_files(storage) == stored_files(storage)
