"""Archives of table version 6, written on in turns: log files of Hudi 0.15 and 1.2 and ours."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.format.archive_file import archive_log_number
from bucketlake.storage.local import LocalStorage
from bucketlake.timeline.archive_reader import archived_commit, read_archive
from bucketlake.timeline.table_properties import table_at
from tests.interop.peer.client import HUDI_VERSION, HudiPeer

pytestmark = pytest.mark.interop

OPTIONS = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "region",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.metadata.enable": "false",
    "hoodie.compact.inline": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
}
AS_VERSION_6 = {"hoodie.write.table.version": "6", "hoodie.write.auto.upgrade": "false"}
RETAINED = {"hoodie.clean.commits.retained": "1", "hoodie.cleaner.commits.retained": "1"}
CLEANING = RETAINED | {"hoodie.clean.automatic": "true"}
ARCHIVING = RETAINED | {
    "hoodie.archive.automatic": "true",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.compact.inline.max.delta.commits": "1",  # Hudi keeps what triggers a compaction.
}
TYPES = pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])


class OldTable:
    """A table of version 6, its rows by key, and its commits in order."""

    def __init__(self, path: Path, table_type: str) -> None:
        self.path = path
        self.options = OPTIONS | {
            "hoodie.table.name": path.name,
            "hoodie.datasource.write.table.type": table_type,
        }
        self.rows: dict[str, int] = {}
        self.commits: list[str] = []

    @property
    def ours(self) -> bl.Table:
        return bl.open_table(str(self.path))

    def write(
        self, peer: HudiPeer, ts: int, options: dict[str, str], operation: str = "upsert"
    ) -> None:
        """Have Hudi write some rows, all of them with the same value."""
        numbers = range(2 * ts, 2 * ts + 6)
        if operation == "insert_overwrite":  # Of both partitions.
            self.rows.clear()
        self.rows |= {f"k{n}": ts for n in numbers}
        rows = [{"id": f"k{n}", "region": ("eu", "us")[n % 2], "ts": ts} for n in numbers]
        given = self.options | {"hoodie.datasource.write.operation": operation} | options
        peer.write(self.path, pa.Table.from_pylist(rows), given)
        known = [*self.archived(), *self.active()]
        self.commits = sorted({*known, *self.commits})

    def archived(self) -> list[str]:
        """Return the archived commits, each of which has metadata."""
        entries = read_archive(table_at(LocalStorage(str(self.path))))
        commits = [entry for entry in entries if entry.action.endswith("commit")]
        metadata = [archived_commit(entry) for entry in commits]
        assert all(commit is not None and commit.stats for commit in metadata)
        return [entry.requested_at for entry in commits]

    def active(self) -> list[str]:
        return [one.requested_at for one in self.ours.timeline() if one.action.writes_data]

    def numbers(self) -> list[int]:
        """Return the numbers of the log files."""
        config = self.ours.config()
        names = [one.name for one in (self.path / config.history_folder).iterdir()]
        return sorted(n for n in map(archive_log_number, names) if n is not None)

    def assert_read(self, peer: HudiPeer) -> None:
        """Both see all rows, and every commit is in one of the two timelines."""
        assert values(self.ours.to_arrow()) == self.rows
        assert values(peer.read(self.path)) == self.rows
        assert values(self.ours.to_arrow(since="0" * 17)) == self.rows
        assert sorted({*self.archived(), *self.active()}) == self.commits
        assert not self.ours.doctor(min_age_seconds=0)


def values(table: pa.Table) -> dict[str, int]:
    return dict(zip(table["id"].to_pylist(), table["ts"].to_pylist(), strict=True))


def archive(table: OldTable) -> list[str]:
    report = table.ours.archive(keep_min=2, keep_max=3)
    return [one.requested_at for one in report.instants if one.action.writes_data]


def shown_by_hudi(peer: HudiPeer, table: OldTable) -> list[str]:
    """Return the archived commits that Hudi's procedure shows."""
    peer.sql(f"CREATE TABLE IF NOT EXISTS {table.path.name} USING hudi LOCATION '{table.path}'")
    shown = peer.sql(
        f"CALL show_archived_commits(table => '{table.path.name}', limit => 100, "
        "start_ts => '20000101000000000', end_ts => '20990101000000000')"
    )
    return sorted(str(row["commit_time"]) for row in shown)


def take_turns(peer: HudiPeer, table: OldTable, options: dict[str, str]) -> None:
    for ts in range(1, 6):
        operation = "insert_overwrite" if ts == 3 else "upsert"
        table.write(peer, ts, options, operation)
    table.write(peer, 6, options | CLEANING)
    assert archive(table) == table.commits[:4]
    assert table.numbers() == [1]
    table.assert_read(peer)
    assert shown_by_hudi(peer, table) == table.commits[:4]
    for ts in range(7, 9):
        table.write(peer, ts, options)
    table.write(peer, 9, options | ARCHIVING)
    assert len(table.archived()) > 4
    assert table.numbers() == [1, 2]
    table.assert_read(peer)
    for ts in range(10, 13):
        table.write(peer, ts, options)
    assert archive(table)
    assert table.numbers() == [1, 2, 3]
    table.assert_read(peer)
    assert shown_by_hudi(peer, table) == table.archived() == table.commits[:-2]


@TYPES
def test_hudi_0_15_and_bucketlake_archive_in_turns(
    hudi_0_15: HudiPeer, tmp_path: Path, table_type: str
) -> None:
    table = OldTable(tmp_path / f"turns_{table_type}", table_type)
    take_turns(hudi_0_15, table, {})


@TYPES
def test_hudi_1_archives_in_turns_with_bucketlake_and_upgrades_the_archive(
    hudi: HudiPeer, tmp_path: Path, table_type: str
) -> None:
    """An upgrade reads every entry, and writes the instants into the newer form."""
    table = OldTable(tmp_path / f"newer_{table_type}", table_type)
    take_turns(hudi, table, AS_VERSION_6)
    archived = table.archived()
    table.write(hudi, 13, {})
    assert table.ours.config().version == int(HUDI_VERSION.startswith("1.")) * 9
    assert table.archived()[: len(archived)] == archived
    assert values(table.ours.to_arrow()) == values(hudi.read(table.path)) == table.rows
