"""Every action of a table maintains its metadata table: it lists what storage holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import bucketlake as bl
from bucketlake.actions.completion import complete_instant
from bucketlake.actions.metadata_upkeep import record_deletion
from bucketlake.config.paths_of_table import COMMIT_ORDER_FOLDER, METADATA_TABLE_FOLDER
from bucketlake.config.table_config import TableConfig
from bucketlake.config.table_version import NEWEST_VERSION
from bucketlake.errors import BucketLakeError, CommitConflictError, UnsupportedFeatureError
from bucketlake.metadata.metadata_table import inner_table
from bucketlake.metadata.record_index.definition_file import read_index_definitions
from bucketlake.services.metadata import rebuild as building
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.instant import State
from bucketlake.timeline.locks import NO_LOCK
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.timeline.outcome import read_outcome
from bucketlake.timeline.table_properties import read_table_config
from tests.faulty_storage import SimulatedCrash
from tests.inside import upsert_once
from tests.meanwhile import PUTS, meanwhile
from tests.metadata_truth import listed_files, stored_files
from tests.ring_tables import SPLIT_ALL
from tests.spies import breaks, forbid
from tests.unit.actions.bare_table import AHEAD, BareTable
from tests.unit.actions.test_completion import (
    BROKEN,
    COW,
    INDEX,
    MOR,
    PASSES,
    RINGS,
    SCHEMA,
    rows,
)

FIRST_FILES = f"{METADATA_TABLE_FOLDER}/files/"  # A build writes them when it has listed the table.


def make(
    path: str, table_type: str = COW, *, metadata_table: bool = True, version: int = NEWEST_VERSION
) -> bl.Table:
    """Make a table of a type with two commits, and a savepoint of the first."""
    usual = INDEX if version == NEWEST_VERSION else bl.SimpleBucket(2)
    table = bl.create_table(
        path, schema=SCHEMA, record_key=["id"], partition_by=["day"],
        index=bl.ConsistentBucket(2) if table_type == RINGS else usual,
        table_type={RINGS: MOR}.get(table_type, table_type), metadata_table=metadata_table,
        version=version,
    )  # fmt: skip
    table.upsert(rows(0))
    table.savepoint()
    table.upsert(rows(1))
    return table


def opened(table: bl.Table) -> tuple[Storage, TableConfig]:
    storage = open_storage(table.path)
    return storage, read_table_config(storage)


def listed(table: bl.Table) -> dict[str, int]:
    storage, config = opened(table)
    assert "files" in config.metadata_partitions
    return listed_files(storage)


def stored(table: bl.Table) -> dict[str, int]:
    return stored_files(open_storage(table.path))


WAYS = [
    pytest.param(table_type, run, id=f"{name}-{table_type}")
    for name, ways in PASSES.items()
    for table_type, run, _ in ways
    if table_type != BROKEN
]


@pytest.mark.parametrize("built", ["from the beginning", "later"])
@pytest.mark.parametrize(("table_type", "run"), WAYS)
def test_after_every_operation_the_metadata_table_lists_what_storage_holds(
    new_path: Callable[[], str], table_type: str, run: Callable[[bl.Table], Any], built: str
) -> None:
    table = make(new_path(), table_type, metadata_table=built == "from the beginning")
    if built == "later":
        table.rebuild_metadata_table()
    run(table)
    assert listed(table) == stored(table)
    before = table.to_arrow().sort_by("id")
    table.upsert(rows(7, "abc"))
    assert listed(table) == stored(table)
    table.rebuild_metadata_table()
    assert listed(table) == stored(table)
    table.drop_metadata_table()
    table.rollback(table.timeline()[-1].requested_at)
    assert table.to_arrow().sort_by("id") == before


def test_commit_of_a_writer_that_opened_the_table_before_the_build_is_in_the_metadata_table(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(new_path(), metadata_table=False)
    meanwhile(monkeypatch, table.rebuild_metadata_table)
    table.upsert(rows(2))
    assert listed(table) == stored(table)
    assert set(table.to_arrow()["v"].to_pylist()) == {2}


@pytest.mark.parametrize("is_on", [True, False])
def test_commit_between_the_turn_of_a_build_and_its_end_is_in_the_metadata_table(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch, is_on: bool
) -> None:
    table = make(new_path(), metadata_table=is_on)

    def write_first() -> None:
        table.upsert(rows(2, "abc"))
        table.clean(retain_versions=1)

    meanwhile(monkeypatch, write_first, PUTS, FIRST_FILES)
    table.rebuild_metadata_table()
    assert listed(table) == stored(table)
    assert set(table.to_arrow()["v"].to_pylist()) == {1, 2}


def test_build_that_died_is_continued_and_readers_list_storage_meanwhile(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(new_path(), metadata_table=False)
    with monkeypatch.context() as patched:
        breaks(patched, building._Found, "groups", SimulatedCrash("in the build"))
        with pytest.raises(SimulatedCrash):
            table.rebuild_metadata_table()
    table.upsert(rows(2))
    assert opened(table)[1].metadata_partitions == ()
    assert set(table.to_arrow()["v"].to_pylist()) == {2}
    forbid(monkeypatch, building._Work, "turn_off")
    assert table.rebuild_metadata_table() == ("column_stats", "files", "partition_stats")
    assert listed(table) == stored(table)


def test_commit_of_a_writer_that_opened_the_table_before_the_removal_leaves_no_metadata_table(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(new_path())
    meanwhile(monkeypatch, table.drop_metadata_table)
    table.upsert(rows(2))
    storage, config = opened(table)
    assert config.metadata_partitions == ()
    assert [*storage.list(".hoodie/metadata")] == []
    assert set(table.to_arrow()["v"].to_pylist()) == {2}


def test_late_helper_of_a_commit_whose_metadata_table_is_gone_finds_it_completed(
    new_path: Callable[[], str],
) -> None:
    table = make(new_path())
    storage, config = opened(table)
    newest = load_timeline(opened_table(storage, config)).completed_commits()[-1]
    outcome = read_outcome(storage, newest.requested_at)
    assert outcome is not None
    assert outcome.publication is not None
    table.drop_metadata_table()
    pending = replace(newest, state=State.INFLIGHT, completed_at=None)
    assert complete_instant(opened_table(storage, config), pending, outcome.publication) == newest
    assert [*storage.list(".hoodie/metadata")] == []


def test_write_that_conflicts_leaves_nothing_in_the_metadata_table(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(new_path())
    storage, _ = opened(table)
    before = {stored.path for stored in storage.list(".hoodie/metadata")}

    def lose() -> None:
        raise CommitConflictError("20240101000000000", "simulated")  # type: ignore[arg-type]

    meanwhile(monkeypatch, lose, PUTS, COMMIT_ORDER_FOLDER)
    with pytest.raises(BucketLakeError, match="simulated"):
        upsert_once(table, rows(2))
    after = {stored.path for stored in storage.list(".hoodie/metadata")}
    assert {path for path in after - before if ".marker." not in path} == set()
    assert listed(table) == stored(table)


@pytest.mark.parametrize("partitioned", [True, False])
@pytest.mark.parametrize("table_type", [COW, MOR])
def test_record_index_is_built_beside_a_table_and_kept_by_its_writes(
    new_path: Callable[[], str], table_type: str, *, partitioned: bool
) -> None:
    table = make(new_path(), table_type, metadata_table=False)
    built = table.rebuild_metadata_table(["record_index"], partitioned=partitioned)
    assert built == ("files", "record_index")
    keys = {f"k{n}" for n in range(0, 12, 2)}
    assert {*table.record_locations("a")["record_key"].to_pylist()} == keys
    table.upsert(rows(2))
    assert opened(table)[1].metadata_partitions == ("files", "record_index")
    assert {*table.record_locations("a")["record_key"].to_pylist()} == keys
    assert table.rebuild_metadata_table(["record_index"]) == ("files", "record_index")
    storage, config = opened(table)
    assert (
        read_index_definitions(opened_table(storage, config))["record_index"].is_partitioned
        == partitioned
    )
    assert {*table.record_locations("a")["record_key"].to_pylist()} == keys


def test_locations_without_an_index_name_the_step_that_builds_it(
    new_path: Callable[[], str],
) -> None:
    table = make(new_path(), COW)
    step = r"supported; build the index with table.rebuild_metadata_table\(\['record_index'\]\)"
    with pytest.raises(UnsupportedFeatureError, match=step):
        table.record_locations("a")
    table.rebuild_metadata_table(["record_index"])
    assert table.record_locations("a").num_rows


@pytest.mark.filterwarnings("ignore::bucketlake.errors.MetadataTableWarning")
def test_dynamic_buckets_build_a_lacking_index_in_the_next_upsert_as_the_error_says(
    new_path: Callable[[], str],
) -> None:
    table = bl.create_table(new_path(), schema=rows(1).schema, record_key="id")
    table.upsert(rows(1))
    table.drop_metadata_table()
    with pytest.raises(UnsupportedFeatureError, match="the next upsert builds the index"):
        table.record_locations("")
    table.upsert(rows(2))
    assert table.record_locations("").num_rows == table.to_arrow().num_rows


@pytest.mark.parametrize("lists_copies", [True, False], ids=["by bucketlake", "by Hudi"])
def test_copies_for_a_resize_that_is_pending_at_a_build_are_listed_once_it_completes(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch, lists_copies: bool
) -> None:
    table = make(new_path(), RINGS, metadata_table=False)
    table.resize(**SPLIT_ALL, schedule_only=True)
    table.upsert(rows(2))
    with monkeypatch.context() as patched:
        if not lists_copies:  # Hudi lists the files of completed instants.
            patched.setattr(building, "committed_copies", lambda *_: [])
        table.rebuild_metadata_table()
    table.upsert(rows(3, "b"))
    before = table.to_arrow().sort_by("id")
    table.resize()
    assert listed(table) == stored(table)
    assert table.to_arrow().sort_by("id") == before


def test_a_deletion_that_is_recorded_completes_after_the_instants_of_all_turns(
    new_path: Callable[[], str],
) -> None:
    """Else base files of a compaction would seem to include it, and the files stayed listed."""
    table = BareTable.at(new_path(), metadata_table=True)
    table.take(AHEAD)
    given = (OpenTable(table.storage, table.config, table.clock, NO_LOCK), table.timeline())
    inner = inner_table(opened_table(table.storage, table.config))
    before = {*load_timeline(inner).completed_commits()}
    record_deletion(*given, ["x/gone"])
    made = {*load_timeline(inner).completed_commits()} - before
    assert [one.completed_at is not None and one.completed_at > AHEAD for one in made] == [True]
    record_deletion(*given, [])
    assert len(load_timeline(inner).completed_commits()) == len(before) + 1
