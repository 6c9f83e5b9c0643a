"""Metadata tables of version 6, where the name of a log file has the instant of its slice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import bucketlake as bl
from bucketlake.actions import cleaner, metadata_compaction, metadata_upkeep
from bucketlake.actions.metadata_compaction import clean_metadata, compact_metadata
from bucketlake.actions.metadata_upkeep import record_deletion
from bucketlake.actions.metadata_withdrawal import withdraw_compactions
from bucketlake.actions.pending import begin_instant
from bucketlake.config import table_keys as keys
from bucketlake.config.paths_of_table import COMMIT_ORDER_FOLDER, METADATA_TABLE_FOLDER
from bucketlake.errors import ConfigError, UnsupportedFeatureError
from bucketlake.format.clustering_plan import encode_compaction_plan
from bucketlake.metadata.contents import last_compaction
from bucketlake.metadata.log_files import is_birth_log
from bucketlake.metadata.metadata_table import (
    MetadataTable,
    block_instants,
    list_all_files,
    load_metadata_table,
)
from bucketlake.model.file_name import BaseFileName, InstantTime, LogFileName
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.heartbeat import beating
from bucketlake.timeline.instant import Action
from bucketlake.timeline.table_properties import read_properties
from bucketlake.timeline.transitions import remove_pending
from tests.bounds import set_bounds
from tests.faulty_storage import SimulatedCrash
from tests.golden.objects import objects_of_table
from tests.inside import opened, storage_of, values_of
from tests.meanwhile import PUTS, meanwhile
from tests.metadata_truth import require_true_files, require_true_metadata
from tests.spies import breaks, overtake, spy_answers
from tests.storages import memory_of
from tests.tables.test_metadata_upkeep import WAYS, make
from tests.tables.test_version_6 import SCHEMA, rows

NewPath = Callable[[], str]
STATISTICS = ["files", "column_stats"]


@pytest.fixture(params=["copy_on_write", "merge_on_read"])
def table(new_path: NewPath, request: pytest.FixtureRequest) -> bl.Table:
    """A table with three commits, whose metadata table also has statistics."""
    made = create(new_path(), table_type=request.param)
    made.upsert(rows(0, 1, 2, 3))
    made.rebuild_metadata_table(STATISTICS)
    made.upsert(rows(2, 3, 4, 5, v=2))
    made.upsert(rows(1, 3, 6, v=3))
    return made


def create(path: str, **more: object) -> bl.Table:
    given = {"index": bl.SimpleBucket(2), "partition_by": ["day"], "ordering": "v"} | more
    return bl.create_table(path, schema=SCHEMA, record_key=["id"], version=6, **given)


def metadata_of(table: bl.Table) -> MetadataTable:
    return load_metadata_table(opened(table), load_timeline(opened(table)))


def compact(table: bl.Table, delta_commits: int = 1) -> InstantTime | None:
    """Compact the metadata table."""
    here = opened(table)
    return compact_metadata(here, delta_commits=delta_commits)


def names_in(table: bl.Table, partition: str = "files") -> list[BaseFileName | LogFileName]:
    """Return the names of the files of a partition, but for those that open groups."""
    files = list_all_files(metadata_of(table).storage)
    names = [file.name for file in files if file.partition_path == partition]
    return [name for name in names if not is_birth_log(name)]


def logs_of(table: bl.Table, partition: str = "files") -> list[LogFileName]:
    logs = [name for name in names_in(table, partition) if isinstance(name, LogFileName)]
    return sorted(logs, key=lambda name: (name.instant, name.version))


def newest(table: bl.Table) -> InstantTime:
    return table.timeline()[-1].requested_at


def require_true(table: bl.Table) -> None:
    """Compare the metadata table with storage, and find nothing wrong."""
    require_true_metadata(storage_of(table))
    assert not metadata_of(table).timeline.pending()
    found = table.doctor(check_keys=True, min_age_seconds=0)
    assert not [one for one in found if "leftover" not in one.kind.value.replace("_", " ")], found


# ---- What is stored -----------------------------------------------------------------------------


def test_a_new_metadata_table_has_the_files_and_properties_of_hudi_0_15(new_path: NewPath) -> None:
    table = create(new_path())
    assert table.config().metadata_partitions == ("files",)
    found = read_properties(metadata_of(table).storage)
    del found[keys.CHECKSUM], found[keys.NAME]
    assert found == {
        "hoodie.compaction.payload.class": "org.apache.hudi.metadata.HoodieMetadataPayload",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.archivelog.folder": "archived",
        "hoodie.timeline.layout.version": "1",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.table.recordkey.fields": "key",
        "hoodie.compaction.record.merger.strategy": "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
        "hoodie.populate.meta.fields": "false",
        "hoodie.table.keygenerator.class": (
            "org.apache.hudi.metadata.HoodieTableMetadataKeyGenerator"
        ),
        "hoodie.table.base.file.format": "HFILE",
        "hoodie.table.version": "6",
    }
    folder = f"{METADATA_TABLE_FOLDER}/files"
    paths = {stored.path.removeprefix(f"{folder}/") for stored in storage_of(table).list(folder)}
    assert paths == {
        ".files-0000-0_00000000000000010.log.1_0-0-0",
        ".hoodie_partition_metadata",
        "files-0000-0_0-0-1_00000000000000010.hfile",
    }
    timeline = f"{METADATA_TABLE_FOLDER}/.hoodie/00000000000000010.deltacommit"
    assert json.loads(storage_of(table).read(timeline))["operationType"] == "BULK_INSERT_PREPPED"


def test_log_files_have_the_instant_of_their_slice_and_rising_versions(new_path: NewPath) -> None:
    table = create(new_path())
    first, second = table.upsert(rows(1)), table.upsert(rows(2))
    found = [(name.instant, name.version, name.writer) for name in logs_of(table)]
    built = "00000000000000010"
    assert found == [(built, 2, first.instant), (built, 3, second.instant)]
    path = f"{METADATA_TABLE_FOLDER}/.hoodie/{second.instant}.deltacommit"
    [stat] = json.loads(storage_of(table).read(path))["partitionToWriteStats"]["files"]
    assert (stat["prevCommit"], stat["logVersion"]) == (built, 3)


WAYS_OF_6 = [way for way in WAYS if not str(way.id).startswith(("convert", "rescale"))]


@pytest.mark.parametrize(("table_type", "run"), WAYS_OF_6)
def test_after_every_operation_the_metadata_table_is_true(
    new_path: NewPath, table_type: str, run: Callable[[bl.Table], Any]
) -> None:
    table = make(new_path(), table_type, version=6)
    table.rebuild_metadata_table(STATISTICS)
    assert compact(table) is None  # The build has included both commits.
    run(table)
    require_true_metadata(storage_of(table))
    before = table.to_arrow().to_pylist()
    compact(table)
    require_true_metadata(storage_of(table))
    assert table.to_arrow().to_pylist() == before


def test_partitions_that_hudi_0_15_does_not_know_are_refused(table: bl.Table) -> None:
    with pytest.raises(ConfigError, match="partition_stats"):
        table.rebuild_metadata_table(["partition_stats"])
    with pytest.raises(ConfigError, match="for the whole table only"):
        table.rebuild_metadata_table(["record_index"], partitioned=True)


# ---- Compaction ---------------------------------------------------------------------------------


def test_a_compaction_makes_a_slice_named_after_the_last_commit(table: bl.Table) -> None:
    before, last = values_of(table), newest(table)
    assert compact(table) == f"{last}001"
    require_true(table)
    assert values_of(table) == before
    later = table.upsert(rows(1, 9, v=4)).instant
    log = logs_of(table)[-1]
    assert (log.instant, log.version, log.writer) == (f"{last}001", 1, later)
    require_true(table)
    assert compact(table, 2) is None
    assert compact(table) == f"{later}001"
    require_true(table)


def test_files_and_timeline_stay_few(new_path: NewPath, monkeypatch: pytest.MonkeyPatch) -> None:
    set_bounds(monkeypatch, "bucketlake.actions.metadata_compaction", KEPT_MS=-1)
    table = create(new_path())
    for number in range(75):
        table.upsert(rows(number % 7, v=number))
    assert last_compaction(metadata_of(table).timeline) is not None
    assert len(names_in(table)) < 45
    assert len(metadata_of(table).timeline.instants) < 50
    archived = storage_of(table).list(f"{METADATA_TABLE_FOLDER}/.hoodie/archived")
    assert any(".commits_.archive." in stored.path for stored in archived)
    require_true(table)


def test_a_commit_before_the_turn_of_a_compaction_is_written_into_the_new_slice(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log files were named after the old slice."""
    compacted: list[InstantTime | None] = []
    meanwhile(monkeypatch, lambda: compacted.append(compact(table)), PUTS, COMMIT_ORDER_FOLDER)
    written = table.upsert(rows(1, 2, 3, v=5)).instant
    assert compacted[0] is not None
    own = [name for name in logs_of(table) if name.writer == written]
    assert [name.instant for name in own] == compacted
    require_true(table)


@contextmanager
def pending_write(table: bl.Table) -> Iterator[InstantTime]:
    """Have a write that began and does not end."""
    here = opened(table)
    action = table.timeline()[-1].action
    with begin_instant(here, load_timeline(here), action) as (instant, _):
        yield instant
    remove_pending(here, instant, action)


def test_commits_after_a_pending_write_are_repeated_in_the_new_slice(table: bl.Table) -> None:
    """The base files have no commit after it, so that Hudi can roll it back."""
    last = newest(table)
    with pending_write(table) as pending:
        later = table.upsert(rows(1, 8, v=5)).instant
        assert last < pending < later
        assert compact(table) == f"{last}001"
        require_true_metadata(storage_of(table))
        assert compact(table) is None  # All later commits come after the pending write.
        copy = logs_of(table)[-1]
        assert (copy.instant, copy.write_token) == (f"{last}001", "0-0-1")
    require_true(table)
    assert not metadata_of(table).may_include(InstantTime(later))
    table.rollback(later)
    storage = metadata_of(table).storage
    assert not [f for f in list_all_files(storage) if later in block_instants_of(storage, f)]
    require_true(table)


def after_base_files(monkeypatch: pytest.MonkeyPatch, deed: Callable[[], object]) -> None:
    """Let something happen when a compaction has written its base files."""
    spy_answers(monkeypatch, metadata_compaction, "rewrite_slices", lambda _: deed())


def test_a_commit_during_a_compaction_is_repeated_in_the_new_slice(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = newest(table)

    def write() -> None:
        table.upsert(rows(1, 8, v=5))
        table.delete(rows(2).select(["id", "day"]))

    after_base_files(monkeypatch, write)
    assert compact(table) == f"{last}001"
    assert [name.version for name in logs_of(table) if name.instant == f"{last}001"] == [1, 2]
    require_true(table)


def test_a_rollback_during_a_compaction_ends_it(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_base_files(monkeypatch, lambda: table.rollback(newest(table)))
    assert compact(table) is None
    assert last_compaction(metadata_of(table).timeline) is None
    require_true(table)


def test_a_build_during_a_compaction_ends_it(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_base_files(monkeypatch, lambda: table.rebuild_metadata_table(["column_stats"]))
    assert compact(table) is None
    require_true(table)


def test_a_clean_that_wrote_before_a_compaction_is_waited_for(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes no turn after it wrote its log files, so nobody makes it write them again."""
    compacted: list[str | None] = []
    if table.config().table_type.value == "MERGE_ON_READ":
        table.compact()
    set_bounds(monkeypatch, metadata_compaction, _ATTEMPTS=1)
    overtake(monkeypatch, cleaner, "decide_plan", lambda: compacted.append(compact(table)))
    table.clean(retain_versions=1)
    assert compacted == [None]
    require_true(table)
    assert compact(table) is not None
    require_true(table)


def test_a_clean_that_wrote_during_a_compaction_is_in_the_new_slice_or_ends_it(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_base_files(monkeypatch, lambda: table.clean(retain_versions=1))
    assert compact(table) is not None
    require_true(table)


def test_an_action_of_the_metadata_table_alone_that_died_is_taken_back(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = opened(table)
    with monkeypatch.context() as patch:
        breaks(patch, metadata_upkeep, "publish_change", SimulatedCrash())
        with pytest.raises(SimulatedCrash):
            record_deletion(here, load_timeline(here), ["a/nothing.parquet"])
    assert compact(table) is None  # It may still live.
    assert len(metadata_of(table).timeline.pending()) == 1
    set_bounds(monkeypatch, metadata_compaction, _DEAD_AFTER_MS=-1)
    assert compact(table) is not None
    require_true(table)


def die(*_: object, **__: object) -> None:
    raise SimulatedCrash


STEPS = [
    "actions.metadata_compaction.rewrite_slices",
    "actions.metadata_compaction._undecided",
    "actions.metadata_compaction.encode_compaction_plan",
    "actions.metadata_compaction.block_instants",
    "metadata.changes.claim_commit",
    "metadata.changes.publish_completed",
]


@pytest.mark.parametrize("step", STEPS)
def test_a_compaction_that_dies_at_any_step_is_ended_by_the_next_action(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    before, last = values_of(table), newest(table)
    with pending_write(table):
        table.upsert(rows(9, v=9))
        with monkeypatch.context() as patch:
            patch.setattr(f"bucketlake.{step}", die)
            if step == "actions.metadata_compaction._undecided":
                patch.setattr(
                    metadata_compaction,
                    "_planned",
                    partial(planned_without, metadata_compaction._planned),
                )
            with pytest.raises(SimulatedCrash):
                compact(table)
        assert values_of(table) == before | {"k9": 9}
        table.upsert(rows(8, v=8))
        require_true_metadata(storage_of(table))
        is_decided = step == "metadata.changes.publish_completed"
        done = last_compaction(metadata_of(table).timeline)
        assert done == (f"{last}001" if is_decided else None)
        clean_metadata(opened(table))
    if not is_decided:
        assert f"{last}001" not in {name.instant for name in names_in(table)}
    require_true(table)
    assert compact(table) is not None
    require_true(table)
    assert values_of(table) == before | {"k9": 9, "k8": 8}


def planned_without(planned: Callable[..., Any], *given: Any) -> Any:
    """Plan a compaction before the process dies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata_compaction, "_undecided", lambda _: False)
        return planned(*given)


def test_files_of_a_process_that_sleeps_are_deleted_only_once_it_cannot_publish_them(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = newest(table)

    def sleep() -> None:
        clean_metadata(opened(table))
        assert f"{last}001" in {name.instant for name in names_in(table)}
        monkeypatch.setattr("bucketlake.actions.metadata_compaction.is_alive", lambda *_: False)
        clean_metadata(opened(table))
        assert f"{last}001" not in {name.instant for name in names_in(table)}

    after_base_files(monkeypatch, sleep)
    assert compact(table) is None
    require_true(table)


def test_a_compaction_of_hudi_that_died_is_withdrawn(table: bl.Table) -> None:
    instant = InstantTime(f"{newest(table)}001")
    plan_of_hudi(table, instant)
    table.upsert(rows(9, v=9))
    require_true(table)
    assert last_compaction(metadata_of(table).timeline) is None


def test_a_compaction_of_hudi_that_commits_have_followed_is_left_to_it(table: bl.Table) -> None:
    instant = InstantTime(f"{newest(table)}001")
    plan_of_hudi(table, instant)
    metadata = metadata_of(table)
    name = replace(logs_of(table)[-1], instant=instant, write_token="3-4-5")
    log = next(file for file in list_all_files(metadata.storage) if file.name == logs_of(table)[-1])
    metadata.storage.put(f"files/{name.to_file_name()}", metadata.storage.read(log.path))
    with pytest.raises(UnsupportedFeatureError, match="let Hudi complete it"):
        table.upsert(rows(9, v=9))


def plan_of_hudi(table: bl.Table, instant: InstantTime) -> None:
    metadata = metadata_of(table)
    folder = metadata.config.timeline_folder
    plan = encode_compaction_plan(metadata.slices("files"))
    metadata.storage.put(f"{folder}/{instant}.compaction.requested", plan)
    metadata.storage.put(f"{folder}/{instant}.compaction.inflight", b"")


def test_a_writer_waits_for_a_compaction_of_a_living_process(table: bl.Table) -> None:
    """Its process decides in a moment; here it is withdrawn by another one."""
    instant, here = InstantTime(f"{newest(table)}001"), opened(table)
    metadata = metadata_of(table)
    with beating(metadata.storage, instant):
        plan_of_hudi(table, instant)
        withdraw_compactions(here)
        table.upsert(rows(9, v=9))
    require_true(table)


# ---- Undoing, builds and the index --------------------------------------------------------------


@pytest.mark.parametrize("is_compacted", [False, True])
def test_an_undone_commit_is_gone_whether_or_not_it_was_compacted(
    table: bl.Table, is_compacted: bool
) -> None:
    before, last = values_of(table), table.upsert(rows(1, 2, 9, v=7)).instant
    if is_compacted:
        assert compact(table) is not None
    assert metadata_of(table).may_include(InstantTime(last)) is is_compacted
    table.rollback(last)
    require_true(table)
    assert values_of(table) == before
    table.upsert(rows(4, v=8))
    compact(table)
    require_true(table)


def test_an_undone_commit_of_hudi_leaves_no_log_file(table: bl.Table) -> None:
    """Hudi names log files as it likes; the delta commit tells which are its own."""
    last = table.upsert(rows(1, 2, 9, v=7)).instant
    storage = metadata_of(table).storage
    commit = f"{metadata_of(table).config.timeline_folder}/{last}.deltacommit"
    for file in list_all_files(storage):
        if isinstance(file.name, LogFileName) and file.name.writer == last:
            name = replace(file.name, write_token="2-34-56")
            content = storage.read(commit).decode()
            old, new = file.name.to_file_name(), name.to_file_name()
            storage.put(commit, content.replace(old, new).encode())
            storage.put(f"{file.partition_path}/{new}", storage.read(file.path))
            storage.delete(file.path)
    require_true(table)
    table.rollback(last)
    assert not [f for f in list_all_files(storage) if last in block_instants_of(storage, f)]
    require_true(table)


def block_instants_of(storage: Any, file: Any) -> set[InstantTime]:
    return block_instants(storage, file) if isinstance(file.name, LogFileName) else set()


def test_a_log_file_of_another_writer_with_the_same_token_stays(table: bl.Table) -> None:
    """Hudi 1.2.0 gives its next file the token of the one before."""
    ours = table.upsert(rows(1, 2, 9, v=7)).instant
    theirs = table.upsert(rows(5, v=7)).instant
    storage = metadata_of(table).storage
    for file in list_all_files(storage):
        if isinstance(file.name, LogFileName) and file.name.writer == theirs:
            token = f"{ours[:8]}-{ours[8:]}-1"
            name = replace(file.name, write_token=token).to_file_name()
            storage.put(f"{file.partition_path}/{name}", storage.read(file.path))
            storage.delete(file.path)
    table.rollback(ours, cascade=True)
    require_true_metadata(storage_of(table))
    assert any(theirs in block_instants_of(storage, file) for file in list_all_files(storage))


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_savepoint_is_restored(table: bl.Table, is_compacted: bool) -> None:
    before = values_of(table)
    table.savepoint()
    for number in range(3):
        table.upsert(rows(number, 7 + number, v=10))
    if is_compacted:
        compact(table)
    table.restore(next(i.requested_at for i in table.timeline() if i.action is Action.SAVEPOINT))
    require_true(table)
    assert values_of(table) == before


@pytest.mark.parametrize("partitions", [["files"], STATISTICS, ["column_stats"]])
def test_a_commit_beside_a_build_is_in_its_slices(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch, partitions: list[str]
) -> None:
    for partition in partitions:
        meanwhile(
            monkeypatch, lambda: table.upsert(rows(1, 8, v=5)), PUTS, f"metadata/{partition}/"
        )
    table.rebuild_metadata_table(partitions)
    monkeypatch.undo()
    require_true(table)
    compact(table)
    require_true(table)


@pytest.fixture(params=["copy_on_write", "merge_on_read"])
def indexed(new_path: NewPath, request: pytest.FixtureRequest) -> bl.Table:
    """A table with a record-level index of the whole table."""
    made = create(new_path(), table_type=request.param, index=bl.RecordIndex(partitioned=False))
    made.upsert(rows(*range(10)))
    made.upsert(rows(8, 9, 10, 11, v=2))
    return made


def test_the_record_level_index_is_kept(indexed: bl.Table) -> None:
    assert "record_index" in indexed.config().metadata_partitions
    require_true(indexed)
    assert compact(indexed) is not None
    require_true(indexed)
    indexed.delete(rows(1, 2).select(["id", "day"]))
    indexed.upsert(rows(2, 30, v=4))
    require_true(indexed)
    indexed.rollback(newest(indexed))
    require_true(indexed)
    indexed.rebuild_metadata_table()
    require_true(indexed)
    indexed.upsert(rows(31, 2, v=5))
    require_true(indexed)
    assert compact(indexed) is not None
    require_true(indexed)


def test_index_files_of_tasks_are_repeated_if_a_compaction_made_new_slices(
    indexed: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    compacted: list[object] = []
    meanwhile(monkeypatch, lambda: compacted.append(compact(indexed)))
    written = indexed.upsert(rows(20, 21, v=3)).instant
    assert compacted[0] is not None
    own = [name for name in logs_of(indexed, "record_index") if name.writer == written]
    assert own
    for name in own:
        slices = metadata_of(indexed).slices("record_index")
        held_in = next(found for found in slices if found.file_id == name.file_id)
        assert name.instant == held_in.instant
    require_true(indexed)


# ---- Other versions -----------------------------------------------------------------------------


def test_upgrade_and_downgrade_build_the_metadata_table_anew(new_path: NewPath) -> None:
    table = create(new_path())
    for number in range(4):
        table.upsert(rows(number, number + 1, v=number))
    compact(table)
    before = values_of(table)
    assert table.upgrade().built == ("files",)
    require_true_metadata(storage_of(table))
    table.rebuild_metadata_table(["column_stats", "partition_stats"])
    report = table.downgrade(to=6)
    assert (report.built, report.dropped) == (("column_stats", "files"), ("partition_stats",))
    assert values_of(table) == before
    require_true(table)
    table.upsert(rows(5, v=9))
    compact(table)
    require_true(table)


def test_a_record_level_index_of_the_whole_table_comes_along(new_path: NewPath) -> None:
    index = bl.RecordIndex(partitioned=False)
    table = bl.create_table(new_path(), schema=SCHEMA, record_key=["id"], index=index)
    table.upsert(rows(*range(10)))
    assert "record_index" in table.downgrade(to=6).built
    table.upsert(rows(8, 9, 10, v=2))
    require_true(table)
    assert "record_index" in table.upgrade().built
    table.upsert(rows(9, 10, 11, v=3))
    require_true_metadata(storage_of(table))


def test_a_metadata_table_is_turned_off_and_on(new_path: NewPath) -> None:
    table = create(new_path())
    table.upsert(rows(1, 2, 3))
    table.drop_metadata_table()
    table.upsert(rows(2, 3, 4, v=2))
    assert table.config().metadata_partitions == ()
    assert table.rebuild_metadata_table() == ("files",)
    table.upsert(rows(3, 4, 5, v=3))
    require_true(table)
    facts = table.metadata_table()
    assert [part.name for part in facts.partitions] == ["files"]
    assert facts.commits_since_compaction == 2


def test_a_compaction_that_slept_since_its_plan_leaves_the_slices_of_another_one(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has the same instant, and so the same names."""
    done: list[InstantTime | None] = []

    def another() -> None:
        done.append(compact(table))
        table.upsert(rows(2, 4, v=9))

    overtake(monkeypatch, metadata_compaction, "beating", another)
    assert compact(table) is None
    assert done != [None]
    require_true_metadata(storage_of(table))
    assert table.doctor() == []


def test_a_metadata_table_of_hudi_is_continued() -> None:
    """Hudi 1.2.0 gave all of its log files the token of those that open file groups."""
    storage = memory_of(objects_of_table("mor_v6"))
    table = bl.open_table(storage.root, index=bl.SimpleBucket(3))
    assert {name.write_token for name in logs_of(table)} == {"0-0-0"}
    before = table.to_arrow()
    table.upsert(before.slice(0, 5))
    require_true_files(storage)
    assert compact(table) is not None
    require_true_files(storage)
    for number in range(12):
        table.upsert(before.slice(number, 5))
    require_true_files(storage)
    assert table.to_arrow().num_rows == before.num_rows
    assert not table.doctor(min_age_seconds=0)
