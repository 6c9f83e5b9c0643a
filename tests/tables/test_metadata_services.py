"""Compactions of the metadata table beside the actions of its data table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

import bucketlake as bl
from bucketlake.actions.metadata_compaction import compact_metadata
from bucketlake.actions.metadata_withdrawal import is_due_after_commit, withdraw_compactions
from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.config.table_config import TableConfig
from bucketlake.errors import ServiceWarning, StorageError
from bucketlake.metadata.contents import last_compaction
from bucketlake.metadata.metadata_table import MetadataTable, inner_table, load_metadata_table
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.commit_order import last_turn, take_turn
from bucketlake.timeline.heartbeat import beating
from bucketlake.timeline.instant import Action, Instant, InstantClock, shift_instant, table_clock
from bucketlake.timeline.locks import NO_LOCK
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.timeline.table_properties import read_table_config
from bucketlake.timeline.transitions import create_requested
from tests.meanwhile import PUTS, meanwhile
from tests.metadata_truth import listed_files, stored_files
from tests.unit.actions.test_completion import INDEX, SCHEMA, rows


@pytest.fixture
def table(new_path: Callable[[], str]) -> bl.Table:
    """A table with a metadata table and three commits."""
    made = bl.create_table(
        new_path(), schema=SCHEMA, record_key=["id"], partition_by=["day"], index=INDEX,
    )  # fmt: skip
    for number in range(3):
        made.upsert(rows(number))
    return made


@pytest.mark.parametrize(
    ("options", "partitions"),
    [
        ({}, ("column_stats", "files", "partition_stats")),
        ({"metadata_table": False}, ()),
    ],
)
def test_new_table_has_a_metadata_table_unless_it_is_turned_off(
    new_path: Callable[[], str], options: dict[str, bool], partitions: tuple[str, ...]
) -> None:
    made = bl.create_table(new_path(), schema=SCHEMA, record_key=["id"], index=INDEX, **options)
    assert made.config().metadata_partitions == partitions
    assert bool([*open_storage(made.path).list(METADATA_TABLE_FOLDER)]) == bool(partitions)


@pytest.mark.parametrize("has_metadata_table", [True, False])
def test_conversion_leaves_the_metadata_table_as_it_is(
    new_path: Callable[[], str], has_metadata_table: bool
) -> None:
    made = bl.create_table(
        new_path(), schema=SCHEMA, record_key=["id"], partition_by=["day"], index=INDEX,
        metadata_table=has_metadata_table,
    )  # fmt: skip
    made.upsert(rows(0))
    before = made.config().metadata_partitions
    converted = bl.convert(made.path, INDEX.with_max_file_size(1 << 20))
    assert converted.config().metadata_partitions == before
    assert bool(before) == has_metadata_table


def opened(table: bl.Table) -> tuple[Storage, TableConfig, OpenTable, InstantClock]:
    storage = open_storage(table.path)
    config = read_table_config(storage)
    clock = table_clock(storage.root, config.timeline_timezone)
    return storage, config, inner_table(opened_table(storage, config)), clock


def metadata_of(table: bl.Table) -> MetadataTable:
    storage, config, *_ = opened(table)
    return load_metadata_table(
        opened_table(storage, config), load_timeline(opened_table(storage, config))
    )


def compact(table: bl.Table) -> str | None:
    storage, config, _, clock = opened(table)
    return compact_metadata(
        OpenTable(storage, config, clock, NO_LOCK),
        delta_commits=1,
    )


def pending(table: bl.Table) -> list[Instant]:
    return list(metadata_of(table).timeline.pending())


def test_clean_completes_after_the_last_turn_even_if_the_clock_is_behind(table: bl.Table) -> None:
    """The turn may be that of a compaction that did not see the log files of the clean."""
    storage, config, _, clock = opened(table)
    ahead = shift_instant(
        clock.next_instant(load_timeline(opened_table(storage, config))), timedelta(hours=1)
    )
    assert take_turn(storage, ahead, after=last_turn(storage))
    table.clean(retain_versions=1)
    done = [
        i
        for i in load_timeline(opened_table(storage, config)).completed()
        if i.action is Action.CLEAN
    ]
    assert len(done) == 1
    assert (done[0].completed_at or "") > ahead


def test_rollback_withdraws_a_compaction_of_a_living_process(table: bl.Table) -> None:
    storage, config, inner, clock = opened(table)
    newest = metadata_of(table).timeline.newest_time()
    instant = clock.next_instant(load_timeline(opened_table(storage, config)), after=newest)
    with beating(inner.storage, instant):
        create_requested(inner, instant, Action.COMPACTION, b"plan")
        table.rollback(table.timeline()[-1].requested_at)
    assert not pending(table)
    assert listed_files(storage) == stored_files(storage)


@pytest.mark.parametrize("is_compacted", [False, True])
def test_rolled_back_commit_is_gone_whether_or_not_it_was_compacted(
    table: bl.Table, is_compacted: bool
) -> None:
    storage, *_ = opened(table)
    last = table.timeline()[-1].requested_at
    if is_compacted:
        assert compact(table) is not None
    assert metadata_of(table).may_include(last) is is_compacted  # type: ignore[arg-type]
    before = table.to_arrow(as_of=table.timeline()[-2].requested_at).num_rows
    table.rollback(last)
    assert listed_files(storage) == stored_files(storage)
    assert table.to_arrow().num_rows == before
    table.upsert(rows(9))
    compact(table)
    assert listed_files(storage) == stored_files(storage)


def test_build_is_a_base_file_that_includes_earlier_commits(table: bl.Table) -> None:
    last = table.timeline()[-1].requested_at
    assert not metadata_of(table).may_include(last)  # type: ignore[arg-type]
    table.rebuild_metadata_table(["files"])
    assert metadata_of(table).may_include(last)  # type: ignore[arg-type]
    table.upsert(rows(9))
    later = table.timeline()[-1].requested_at
    assert not metadata_of(table).may_include(later)  # type: ignore[arg-type]


def test_statistics_are_built_anew_beside_a_compaction_that_is_withdrawn(table: bl.Table) -> None:
    storage, config, inner, clock = opened(table)
    newest = metadata_of(table).timeline.newest_time()
    instant = clock.next_instant(load_timeline(opened_table(storage, config)), after=newest)
    with beating(inner.storage, instant):
        create_requested(inner, instant, Action.COMPACTION, b"plan")
        table.rebuild_metadata_table(["column_stats"])
    assert not pending(table)
    withdraw_compactions(opened_table(storage, config))
    assert compact(table) is None or not pending(table)


def test_a_write_compacts_the_metadata_table_when_it_is_due_and_stays_where_that_fails(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise StorageError("p", "put", "simulated")

    storage = open_storage(table.path)
    while not is_due_after_commit(metadata_of(table).timeline):
        table.upsert(rows(3))
    waiting = meanwhile(monkeypatch, fail, PUTS, ".hfile")
    assert last_compaction(metadata_of(table).timeline) is None
    with pytest.warns(ServiceWarning, match="is completed, but a compaction"):
        table.upsert(rows(9))
    assert not waiting
    assert last_compaction(metadata_of(table).timeline) is None
    assert listed_files(storage) == stored_files(storage)
    table.upsert(rows(10))
    assert last_compaction(metadata_of(table).timeline) is not None
