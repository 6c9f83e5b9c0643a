"""Making a metadata table: what Hudi makes, and the same after a crash at any step."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER, PROPERTIES_FILE
from bucketlake.config.table_config import TableConfig
from bucketlake.config.table_version import LAYOUT_2
from bucketlake.errors import CommitConflictError
from bucketlake.format.commit_metadata import decode_commit_metadata
from bucketlake.format.properties import parse_properties
from bucketlake.metadata.changes import MetadataChange
from bucketlake.metadata.creation import (
    claim_initial_instant,
    create_metadata_table,
    delete_metadata_table,
    initial_instant,
    initialise_partitions,
    next_initial_instant,
    usual_file_groups,
    withdraw_initialisations,
)
from bucketlake.metadata.entry_reader import read_all
from bucketlake.metadata.file_listing import entries_of_table, listed_files, listed_partitions
from bucketlake.metadata.log_files import GroupEntries
from bucketlake.metadata.metadata_table import inner_properties
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.outcome import claim_rollback
from bucketlake.timeline.table_properties import read_table_config
from tests.faulty_storage import FaultyStorage, SimulatedCrash, distinct_deaths
from tests.golden.objects import objects_of_table
from tests.storages import objects_of
from tests.written_metadata import (
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    WrittenTable,
    at,
)

TWO_PARTITIONS = {
    "eu": {"a_0-0-1_1.parquet": 10, "b_0-0-1_1.parquet": 20},
    "us": {"c_0-0-1_1.parquet": 30},
}


def sizes_of(table: WrittenTable) -> dict[str, dict[str, int]]:
    """Return the sizes of the files that the metadata table lists, by partition and name."""
    metadata = table.open()
    found: dict[str, dict[str, int]] = {path: {} for path in listed_partitions(metadata)}
    for file in listed_files(metadata):
        found[file.partition_path][file.name.to_file_name()] = file.size_bytes
    return found


def build_files(table: WrittenTable, instant: InstantTime, completed_at: InstantTime) -> None:
    (group,) = usual_file_groups(FILES)
    entries = {group: entries_of_table(TWO_PARTITIONS)}
    initialise_partitions(
        opened_table(table.storage, table.config),
        {FILES: entries},
        instant=instant,
        completed_at=completed_at,
    )


@pytest.mark.parametrize("name", ["cow_simple", "mor_compacted", "cow_rli_partitioned"])
def test_properties_are_those_of_hudi(name: str) -> None:
    objects = objects_of_table(name)
    config = TableConfig.from_properties(parse_properties(objects[PROPERTIES_FILE]))
    theirs = parse_properties(objects[f"{METADATA_TABLE_FOLDER}/{PROPERTIES_FILE}"])
    assert inner_properties(config) == theirs


def test_new_metadata_table_lists_no_partition_and_no_file() -> None:
    table = WrittenTable(partitions=[FILES, COLUMN_STATS, PARTITION_STATS]).create()
    assert sizes_of(table) == {}
    metadata = table.open()
    assert [len(metadata.slices(name)) for name in metadata.partitions] == [1, 2, 1]
    assert metadata.timeline.newest_time() == at(0.002)
    assert not metadata.timeline.pending()


def test_new_metadata_table_has_the_files_of_hudi() -> None:
    table = WrittenTable(partitions=[FILES, COLUMN_STATS]).create()
    paths = objects_of(table.inner.storage)
    zero, one = initial_instant(0), initial_instant(1)
    ours = ".hoodie/.bucket_index/ext/outcome/"
    assert sorted(path for path in paths if not path.startswith(ours)) == sorted(
        [
            ".hoodie/hoodie.properties",
            ".hoodie/timeline/history/.keep",
            f".hoodie/timeline/{zero}.deltacommit.requested",
            f".hoodie/timeline/{zero}.deltacommit.inflight",
            f".hoodie/timeline/{zero}_{at(0)}.deltacommit",
            f".hoodie/timeline/{one}.deltacommit.requested",
            f".hoodie/timeline/{one}.deltacommit.inflight",
            f".hoodie/timeline/{one}_{at(0.001)}.deltacommit",
            "files/.hoodie_partition_metadata",
            f"files/.files-0000-0_{zero}.log.1_0-0-0",
            f"files/files-0000-0_0-0-1_{zero}.hfile",
            "column_stats/.hoodie_partition_metadata",
            f"column_stats/.col-stats-0000-0_{one}.log.1_0-0-0",
            f"column_stats/.col-stats-0001-0_{one}.log.1_0-0-0",
        ]
    )


def test_commit_of_an_initialisation_describes_its_base_files() -> None:
    table = WrittenTable().create()
    path = f".hoodie/timeline/{initial_instant(0)}_{at(0)}.deltacommit"
    commit = decode_commit_metadata(table.inner.storage.read(path), path)
    assert commit.operation == "BULK_INSERT_PREPPED"
    (stat,) = commit.stats
    base = f"files/files-0000-0_0-0-1_{initial_instant(0)}.hfile"
    assert (stat.path, stat.partition_path, stat.record_count) == (base, "files", 1)
    assert stat.file_size_bytes == len(table.inner.storage.read(base))
    marker = parse_properties(table.inner.storage.read("files/.hoodie_partition_metadata"))
    assert marker == {"commitTime": initial_instant(0), "partitionDepth": "1"}


def test_metadata_table_of_an_existing_table_lists_its_files() -> None:
    table = WrittenTable()
    create_metadata_table(opened_table(table.storage, table.config))
    build_files(table, initial_instant(0), at(1))
    assert sizes_of(table) == TWO_PARTITIONS


def test_table_without_partitions_has_one_partition_without_a_name() -> None:
    table = WrittenTable()
    create_metadata_table(opened_table(table.storage, table.config))
    (group,) = usual_file_groups(FILES)
    files = {"": {"a_0-0-1_1.parquet": 1}}
    entries = {group: entries_of_table(files)}
    first = initial_instant(0)
    initialise_partitions(
        opened_table(table.storage, table.config),
        {FILES: entries},
        instant=first,
        completed_at=at(1),
    )
    assert sizes_of(table) == files


def test_partition_that_is_built_at_a_turn_ignores_what_completed_before() -> None:
    """Writers maintain it since before; their earlier log files are in the entries."""
    table = WrittenTable(partitions=[FILES]).create()
    table.write_files(1, {"eu": {"old_0-0-1_1.parquet": 1}})
    build_files(table, at(3), at(4))
    table.write_files(5, {"us": {"new_0-0-1_5.parquet": 5}})
    assert sizes_of(table) == {
        "eu": TWO_PARTITIONS["eu"],
        "us": {**TWO_PARTITIONS["us"], "new_0-0-1_5.parquet": 5},
    }


def test_commit_that_was_inflight_while_a_partition_was_built_is_applied() -> None:
    table = WrittenTable(partitions=[FILES]).create()
    table.begin(at(1))
    build_files(table, at(3), at(4))
    change = MetadataChange({"us": {"late_0-0-1_1.parquet": 5}}, listed=["us"])
    table.commit(at(1), at(5), change)
    late = {**TWO_PARTITIONS["us"], "late_0-0-1_1.parquet": 5}
    assert sizes_of(table) == {"eu": TWO_PARTITIONS["eu"], "us": late}


def test_commits_before_a_build_are_not_missing_in_the_metadata_table() -> None:
    table = WrittenTable(partitions=[FILES]).create()
    table.begin(at(1))
    table.complete(at(1), at(2))  # By a writer that found no metadata table.
    build_files(table, at(3), at(4))
    assert sizes_of(table) == TWO_PARTITIONS


def test_creation_that_dies_at_any_step_is_repeated_to_the_same_table() -> None:
    done = FaultyStorage(MemoryStorage.fresh(), reads_count=False)
    partitions = [FILES, COLUMN_STATS]
    expected = sizes_of(WrittenTable(done, partitions).create())
    for fault in distinct_deaths(done):
        inner = MemoryStorage.fresh()
        dying = FaultyStorage(inner, [fault], reads_count=False)
        with pytest.raises(SimulatedCrash):
            WrittenTable(dying, partitions).create()
        table = WrittenTable(inner, partitions).create()
        assert sizes_of(table) == expected, fault
        metadata = table.open()
        assert [len(metadata.slices(name)) for name in metadata.partitions] == [1, 2], fault
        assert not metadata.timeline.pending(), fault
        assert len(metadata.timeline.completed()) == 2, fault


def test_build_that_dies_at_any_step_is_repeated_with_newer_entries() -> None:
    """What is committed first stays; the attempts have one instant but other entries."""

    def build(table: WrittenTable, files: dict[str, dict[str, int]]) -> None:
        (group,) = usual_file_groups(FILES)
        entries = {group: entries_of_table(files)}
        initialise_partitions(
            opened_table(table.storage, table.config),
            {FILES: entries},
            instant=at(3),
            completed_at=at(4),
        )

    earlier = {"eu": TWO_PARTITIONS["eu"]}
    start = WrittenTable().create()
    done = FaultyStorage(MemoryStorage.fresh(), reads_count=False)
    for path, data in objects_of(start.storage).items():
        done.inner.put(path, data)
    build(start.seen_by(done), earlier)
    for fault in distinct_deaths(done):
        inner = MemoryStorage.fresh()
        for path, data in objects_of(start.storage).items():
            inner.put(path, data)
        table = start.seen_by(inner)
        with pytest.raises(SimulatedCrash):
            build(start.seen_by(FaultyStorage(inner, [fault], reads_count=False)), earlier)
        has_decided = any("outcome" in p and str(at(3)) in p for p in objects_of(inner))
        build(table, TWO_PARTITIONS)
        assert sizes_of(table) == (earlier if has_decided else TWO_PARTITIONS), fault
        assert not table.open().timeline.pending(), fault


def test_build_that_was_withdrawn_raises() -> None:
    table = WrittenTable().create()
    claim_rollback(table.inner.storage, at(3))
    with pytest.raises(CommitConflictError, match="withdrew the initialisation of files"):
        build_files(table, at(3), at(4))
    assert sizes_of(table) == {}


def test_file_groups_of_the_index_share_its_keys() -> None:
    table = WrittenTable(partitions=[FILES]).create()
    ids = [f"record-index-{n:04d}-0" for n in range(3)]
    keys, value = pa.array(["b", "a"]), pa.array([b"1", b"2"], pa.binary())
    groups = {ids[0]: GroupEntries.of(keys, value), ids[1]: GroupEntries(), ids[2]: GroupEntries()}
    initialise_partitions(
        opened_table(table.storage, table.config),
        {RECORD_INDEX: groups},
        instant=next_initial_instant(opened_table(table.storage, table.config)),
        completed_at=at(2),
    )
    opened = WrittenTable(table.storage, [FILES, RECORD_INDEX]).open()
    slices = opened.slices(RECORD_INDEX)
    assert [(held.file_id, held.base_file is None, len(held.log_files)) for held in slices] == [
        (ids[0], False, 1),
        (ids[1], True, 1),
        (ids[2], True, 1),
    ]


def test_initial_instants_are_counted_on() -> None:
    table = WrittenTable(partitions=[FILES, COLUMN_STATS]).create()
    assert next_initial_instant(opened_table(table.storage, table.config)) == initial_instant(2)
    table.write_files(1, {"eu": {"a_0-0-1_1.parquet": 1}})
    assert next_initial_instant(opened_table(table.storage, table.config)) == initial_instant(2)


def test_an_initial_instant_belongs_to_one_build_and_ends_with_it() -> None:
    table = WrittenTable(partitions=[FILES]).create()
    first = claim_initial_instant(opened_table(table.storage, table.config))
    second = claim_initial_instant(opened_table(table.storage, table.config))
    assert (first, second) == (initial_instant(1), initial_instant(2))
    withdraw_initialisations(opened_table(table.storage, table.config))
    with pytest.raises(CommitConflictError, match="withdrew the initialisation"):
        initialise_partitions(
            opened_table(table.storage, table.config),
            {RECORD_INDEX: {FileId("record-index-0000-0"): GroupEntries()}},
            instant=first,
            completed_at=at(2),
        )


def test_properties_of_the_metadata_table_can_be_read_as_those_of_a_table() -> None:
    table = WrittenTable().create()
    own = read_table_config(table.inner.storage)
    assert own == table.inner.config.__class__.from_properties(inner_properties(table.config))
    assert own.timeline_folder == ".hoodie/timeline"


def test_deleted_partition_and_deleted_table_leave_nothing() -> None:
    table = WrittenTable(partitions=[FILES, COLUMN_STATS]).create()
    table.storage.delete_folder(f"{METADATA_TABLE_FOLDER}/{COLUMN_STATS}")
    assert not [path for path in objects_of(table.storage) if "column_stats" in path]
    delete_metadata_table(table.storage)
    assert [*objects_of(table.storage)] == [PROPERTIES_FILE]


def test_entries_of_a_build_are_sorted_by_bytes() -> None:
    names = [f"k{n}" for n in np.random.default_rng(7).permutation(50)] + ["é", "😀", "z"]
    values = pa.array([name.encode() for name in names], pa.binary())
    ordered = GroupEntries.of(pa.array(names), values)
    assert ordered.keys.to_pylist() == sorted(names, key=str.encode)
    assert [v.decode() for v in ordered.values.to_pylist()] == ordered.keys.to_pylist()


def test_inflight_instant_of_a_build_is_pending() -> None:
    table = WrittenTable().create()
    build_files(table, at(3), at(4))
    path = table.inner.config.timeline_folder
    completed = Instant(at(3), Action.DELTA_COMMIT, State.COMPLETED, at(4)).to_file_name(LAYOUT_2)
    table.inner.storage.delete(f"{path}/{completed}")
    assert [i.requested_at for i in table.open().timeline.pending()] == [at(3)]
    assert sizes_of(table) == {}
    read = read_all(table.open(), FILES)
    assert [len(found.keys) for found in read] == [1]
