"""Hudi and bucketlake write by turns to tables whose metadata table both maintain."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake.errors import MetadataTableWarning
from bucketlake.metadata.metadata_table import inner_table
from bucketlake.storage.location import open_storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.instant import Action, Instant
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import table_at
from tests.choices import DEEP
from tests.interop import shared_table
from tests.interop.model import Row, commits_of, in_order, rows_of
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import (
    BUCKETLAKE,
    HUDI,
    WITH_METADATA,
    WITHOUT_METADATA,
    SharedTable,
    Writer,
)
from tests.interop.table_kind import EVENT, TableKind
from tests.interop.test_hudi_serves_ours import Driver
from tests.metadata_truth import listed_files, stored_files

pytestmark = pytest.mark.interop

USUAL = ("column_stats", "files", "partition_stats")
SCHEMA = pa.schema(
    [
        *EVENT,
        ("day", pa.date32()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
SKIPPING = {**WITH_METADATA, "hoodie.enable.data.skipping": "true"}
INDEXED = {"hoodie.metadata.global.record.level.index.enable": "true"}
DAY, NOON = dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, 12, 0, 0, 123456, dt.UTC)
CONDITIONS: dict[str, Callable[[Row], bool]] = {
    "day < DATE'2024-01-09'": lambda row: row["day"] is not None and row["day"].day < 9,
    "price >= 20.25": lambda row: row["price"] is not None and row["price"] >= Decimal("20.25"),
    "at > TIMESTAMP'2024-01-20 12:00:00Z'": lambda row: row["at"].day >= 20,
    "note = 'at 3'": lambda row: row["note"] == "at 3",
    "note IS NULL": lambda row: row["note"] is None,
    "region = 'eu' AND v < 9": lambda row: row["region"] == "eu" and row["v"] < 9,
    "id = 'k7'": lambda row: row["id"] == "k7",
}


def rows(numbers: range, ts: int, regions: tuple[str, ...] = ("eu", "us")) -> list[Row]:
    """Make events with values of more types, some of them null."""
    return [
        row
        | {
            "note": None if row["v"] % 5 == 0 else row["note"],
            "day": None if row["v"] % 7 == 0 else DAY + dt.timedelta(days=row["v"] % 28),
            "price": None if ts == 2 else Decimal(row["v"] * 4 + ts) / 4,
            "at": NOON + dt.timedelta(days=row["v"] % 28),
        }
        for row in shared_table.rows(numbers, ts, regions)
    ]


class Turns:
    """A table with a metadata table, and what is compared after each turn."""

    def __init__(self, hudi: HudiPeer, path: Path, *, merge_on_read: bool = False) -> None:
        kind = TableKind(SCHEMA, merge_on_read=merge_on_read, metadata_table=True)
        self.table = SharedTable(hudi, path, kind)
        self.ts = 0

    @property
    def path(self) -> Path:
        return self.table.path

    def upsert(
        self,
        writer: Writer,
        options: dict[str, str] | None = None,
        partitions: tuple[str, ...] = USUAL,
    ) -> None:
        """Upsert the next events; afterwards the metadata table has these partitions."""
        self.ts += 1
        first = 3 * self.ts
        self.table.upsert(writer, rows(range(first, first + 12), self.ts), options)
        self.check(partitions)

    def check(self, partitions: tuple[str, ...] = USUAL) -> None:
        """Compare all readers with the model, and the metadata table with storage."""
        table = self.table
        storage = open_storage(str(table.path))
        # Hudi lists them in the order in which it built them.
        assert sorted(table.ours.config().metadata_partitions) == sorted(partitions)
        assert listed_files(storage) == stored_files(storage)
        table.assert_read_by_all(SKIPPING, WITHOUT_METADATA)
        conditions = list(CONDITIONS)
        self.check_filter(conditions[self.ts % len(conditions)])

    def check_filters(self) -> None:
        for where in CONDITIONS:
            self.check_filter(where)

    def check_filter(self, where: str) -> None:
        table, schema = self.table, self.table.kind.schema
        wanted = in_order(filter(CONDITIONS[where], table.model.rows.values()), schema)
        found = table.hudi.read(table.path, SKIPPING, where=where)
        assert rows_of(found, schema) == wanted, where
        assert rows_of(table.ours.to_arrow(where=where), schema) == wanted, where

    def roll_back(self) -> None:
        """Have bucketlake undo the next upsert of its own."""
        self.ts += 1
        self.table.write(BUCKETLAKE, rows(range(60), self.ts, ("eu", "us", "asia")))
        self.table.ours.rollback(commits_of(self.table.ours)[-1].requested_at)
        self.check()

    def call(self, procedure: str, arguments: str) -> None:
        """Run a procedure of Hudi with the metadata table."""
        sql = self.table.hudi.sql
        sql("SET hoodie.metadata.enable=true")
        sql(f"CREATE TABLE IF NOT EXISTS turns USING hudi LOCATION '{self.path}'")
        sql(f"CALL {procedure}(table => 'turns', {arguments})")
        sql("DROP TABLE turns")
        self.check()

    def compact(self, writer: Writer) -> None:
        """Compact the data table."""
        compacted = self.done(Action.COMMIT)
        if writer is BUCKETLAKE:
            self.table.ours.compact()
            self.check()
        else:
            given = "hoodie.compact.inline.max.delta.commits=1"
            self.call("run_compaction", f"op => 'scheduleAndExecute', options => '{given}'")
        assert self.done(Action.COMMIT) == compacted + 1

    def clean(self, writer: Writer) -> None:
        """Clean the data table."""
        cleaned = self.done(Action.CLEAN)
        if writer is BUCKETLAKE:
            self.table.ours.clean(retain_commits=1)
            self.check()
        else:
            self.call("run_clean", "retain_commits => 1")
        assert self.done(Action.CLEAN) == cleaned + 1

    def done(self, action: Action) -> int:
        """Return the number of completed instants of an action."""
        timeline = self.table.ours.timeline()
        return sum(1 for i in timeline if i.action is action and i.completed_at)

    def die(self, monkeypatch: pytest.MonkeyPatch, step: str, *, is_committed: bool) -> None:
        """Have an upsert of bucketlake die; say whether the next writer commits it."""
        self.ts += 1
        batch = rows(range(50, 62), self.ts, ("eu", "us", "asia"))
        Driver(monkeypatch, step).die(self.table, batch)
        self.table.assert_read_by_all(SKIPPING, WITHOUT_METADATA)
        if is_committed:
            self.table.model.upsert(batch)


def metadata_timeline(path: Path) -> Timeline:
    storage = open_storage(str(path))
    table = inner_table(table_at(storage))
    return load_timeline(opened_table(table.storage, table.config))


def compactions(path: Path) -> list[Instant]:
    return [i for i in metadata_timeline(path).completed() if i.action is Action.COMMIT]


@pytest.mark.parametrize("merge_on_read", [True, False] if DEEP else [True])  # Minutes each.
def test_metadata_table_of_ours_is_maintained_by_both(
    hudi: HudiPeer, tmp_path: Path, merge_on_read: bool
) -> None:
    turns = Turns(hudi, tmp_path / "shared", merge_on_read=merge_on_read)
    table = turns.table
    table.begin()
    while not compactions(turns.path):
        turns.upsert(HUDI if turns.ts % 3 == 1 else BUCKETLAKE)
        assert turns.ts < 13
    turns.check_filters()
    turns.upsert(HUDI, {"hoodie.metadata.compact.max.delta.commits": "1"})
    assert len(compactions(turns.path)) == 2
    turns.upsert(BUCKETLAKE)
    turns.check_filters()
    for writer, other in ((BUCKETLAKE, HUDI), (HUDI, BUCKETLAKE)):
        if merge_on_read:
            turns.compact(writer)
        turns.upsert(other)
        turns.clean(writer)
    turns.upsert(BUCKETLAKE)
    turns.check_filters()


@pytest.mark.parametrize("merge_on_read", [True, False] if DEEP else [False])
def test_replaced_and_undone_commits_leave_the_metadata_table_right(
    hudi: HudiPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merge_on_read: bool
) -> None:
    turns = Turns(hudi, tmp_path / "shared", merge_on_read=merge_on_read)
    table = turns.table
    table.begin()
    turns.upsert(BUCKETLAKE)
    for writer, other in ((BUCKETLAKE, HUDI), (HUDI, BUCKETLAKE)):
        turns.upsert(other)
        table.overwrite(writer, rows(range(9), turns.ts, ("us",)))
        turns.check()
        turns.upsert(other)
        table.delete_partitions(writer, ["eu"])
        turns.check()
        turns.upsert(other)
        table.delete(writer, rows(range(3 * turns.ts, 3 * turns.ts + 4), turns.ts))
        turns.check()
    turns.roll_back()
    turns.upsert(HUDI)
    turns.roll_back()
    turns.upsert(BUCKETLAKE)
    turns.check_filters()
    for step, hudi_is_next, is_committed in (
        ("actions.transact.claim_commit", True, False),
        ("actions.transact.claim_commit", False, False),
        ("actions.transact.finish", True, False),
        ("actions.transact.finish", False, True),
        ("actions.completion.publish_completed", True, False),
        ("actions.completion.publish_completed", False, True),
    ):
        turns.die(monkeypatch, step, is_committed=is_committed)
        turns.upsert(HUDI if hudi_is_next else BUCKETLAKE)
    turns.upsert(HUDI, {"hoodie.metadata.compact.max.delta.commits": "1"})
    turns.upsert(BUCKETLAKE)
    turns.check_filters()
    assert compactions(turns.path)
    assert not metadata_timeline(turns.path).pending()


def test_record_index_of_hudi_is_kept_by_us_and_lost_to_hudi_without_its_option(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    turns = Turns(hudi, tmp_path / "shared")
    turns.table.upsert(HUDI, rows(range(30), 0), INDEXED)
    for indexed in (True, False, True):
        held = (*USUAL, "record_index") if indexed else USUAL
        turns.check(held)
        with warnings.catch_warnings():
            warnings.simplefilter("error", MetadataTableWarning)
            turns.upsert(BUCKETLAKE, partitions=held)
        if indexed:
            found = [turns.table.ours.record_locations(region) for region in ("eu", "us")]
            known = [key for entries in found for key in entries["record_key"].to_pylist()]
            assert sorted(known) == sorted(row["id"] for row in turns.table.model.rows.values())
        turns.upsert(HUDI)
        turns.ts += 1
        batch = rows(range(turns.ts, turns.ts + 9), turns.ts)
        turns.table.upsert(HUDI, batch, INDEXED if not indexed else None)
    turns.check_filters()


def test_metadata_table_of_hudi_is_dropped_and_built_anew_by_either(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    turns = Turns(hudi, tmp_path / "shared")
    table = turns.table
    for builder in (HUDI, BUCKETLAKE):
        turns.upsert(HUDI)
        table.ours.drop_metadata_table()
        turns.ts += 1
        table.upsert(BUCKETLAKE, rows(range(20, 30), turns.ts, ("us", "asia")))
        assert table.ours.config().metadata_partitions == ()
        table.assert_read_by_all(SKIPPING, WITHOUT_METADATA)
        if builder is BUCKETLAKE:
            assert table.ours.rebuild_metadata_table() == USUAL
            turns.check()
    built = set(metadata_timeline(turns.path).completed())
    for writer in (HUDI, BUCKETLAKE, HUDI):
        turns.upsert(writer)
    assert built < set(metadata_timeline(turns.path).completed())
    turns.check_filters()
