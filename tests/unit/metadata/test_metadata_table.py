"""The metadata table: which of its instants count, its slices, and commits that it lacks."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER, PROPERTIES_FILE
from bucketlake.errors import FormatError, MetadataTableError
from bucketlake.format.log_deletes import encode_birth_block
from bucketlake.metadata.metadata_table import skipped_commits
from bucketlake.metadata.record_index.locations import RecordIndexReader
from bucketlake.model.file_name import InstantTime
from tests.bounds import set_bounds
from tests.faulty_storage import FaultyStorage
from tests.metadata_tables import FIRST, ROOT, MadeTable, at, data_block, partition_list


@pytest.fixture
def made() -> MadeTable:
    """A metadata table that was built at time 1 and has commits 10 and 20."""
    table = MadeTable()
    table.initialise(partition_list())
    table.update(at(10), at(15), partition_list("a"))
    table.update(at(20), at(25), partition_list("b"))
    return table


def logs_of(made: MadeTable) -> list[InstantTime]:
    (only,) = made.open().slices("files")
    return [log.name.instant for log in only.log_files]


# Which instants count.


def test_instant_counts_where_both_timelines_completed_it(made: MadeTable) -> None:
    table = made.open()
    assert table.counts(at(10))
    assert table.counts(at(20))
    assert not table.counts(at(30))


def test_initialisation_counts_without_an_instant_of_the_data(made: MadeTable) -> None:
    assert made.open().counts(FIRST)


def test_commit_that_died_between_the_two_timelines_does_not_count(made: MadeTable) -> None:
    made.commit(at(30), at(35))
    made.log(at(30), data_block(partition_list("c"), at(30)))
    made.data(at(30))
    assert not made.open().counts(at(30))
    assert logs_of(made) == [FIRST, at(10), at(20)]


def test_commit_that_is_pending_in_the_metadata_table_does_not_count(made: MadeTable) -> None:
    made.commit(at(30))
    made.log(at(30), data_block(partition_list("c"), at(30)))
    made.data(at(30))
    assert not made.open().counts(at(30))
    assert logs_of(made) == [FIRST, at(10), at(20)]


def test_commit_after_the_data_timeline_was_listed_does_not_count(made: MadeTable) -> None:
    pinned = made.timeline
    made.update(at(30), at(35), partition_list("c"))
    assert not made.open(pinned).counts(at(30))
    assert made.open().counts(at(30))


def test_commit_that_began_late_and_completed_after_the_listing_does_not_count(
    made: MadeTable,
) -> None:
    pinned = made.timeline
    made.update(at(19), at(35), partition_list("c"))
    assert not made.open(pinned).counts(at(19))


def test_archived_commit_of_the_data_counts(made: MadeTable) -> None:
    for name in (f"{at(10)}.commit.requested", f"{at(10)}.inflight", f"{at(10)}_{at(15)}.commit"):
        made.storage.delete(f".hoodie/timeline/{name}")
    assert made.open().counts(at(10))


def test_archived_clean_between_active_commits_counts(made: MadeTable) -> None:
    made.commit(at(16), at(18))
    assert made.open().counts(at(16))


def test_instant_that_both_tables_archived_counts(made: MadeTable) -> None:
    assert not made.open().counts(at(5))
    made.storage.delete_folder(f"{ROOT}/timeline")
    made.commit(at(10), at(15))
    made.commit(at(20), at(25))
    assert made.open().counts(at(5))


def test_log_compaction_counts_although_the_data_do_not_have_it(made: MadeTable) -> None:
    made.commit(at(30), at(35), action="logcompaction", operation="LOG_COMPACT")
    assert made.open().counts(at(30))


def test_time_travel_drops_later_commits(made: MadeTable) -> None:
    then = made.open(made.timeline.as_of(at(15)))
    assert then.counts(at(10))
    assert not then.counts(at(20))


def test_undone_commit_does_not_count(made: MadeTable) -> None:
    undone = made.load(made.timeline.without([at(20)]))
    assert not undone.counts(at(20))


# Slices.


def test_slice_after_a_compaction_has_the_commits_that_completed_later(made: MadeTable) -> None:
    made.commit(at(18), at(26), action="compaction", operation="COMPACT")
    base = made.base(at(18), partition_list("a"))
    (only,) = made.open().slices("files")
    assert only.base_file is not None
    assert only.base_file.path == base
    assert [log.name.instant for log in only.log_files] == [at(20)]


def test_commit_that_overlaps_a_compaction_belongs_to_the_newer_slice(made: MadeTable) -> None:
    made.update(at(17), at(22), partition_list("c"))
    made.commit(at(18), at(26), action="compaction", operation="COMPACT")
    made.base(at(18), partition_list("a"))
    assert logs_of(made) == [at(17), at(20)]


def test_pending_compaction_leaves_the_slice_whole(made: MadeTable) -> None:
    made.commit(at(18), action="compaction")
    made.base(at(18), partition_list("a"))
    (only,) = made.open().slices("files")
    assert only.base_file is not None
    assert only.base_file.name.instant == FIRST
    assert [log.name.instant for log in only.log_files] == [FIRST, at(10), at(20)]


def test_log_files_come_in_order_of_completion(made: MadeTable) -> None:
    made.update(at(12), at(30), partition_list("c"))
    assert logs_of(made) == [FIRST, at(10), at(20), at(12)]


def test_log_file_of_the_initialisation_comes_before_a_compaction(made: MadeTable) -> None:
    """The archive is not asked for the time at which the initialisation completed."""
    made.storage.delete_folder(f"{ROOT}/timeline")
    made.commit(at(20), at(25))
    made.commit(at(18), at(26), action="compaction", operation="COMPACT")
    made.base(at(18), partition_list("a"))
    made.storage.delete(f"{METADATA_TABLE_FOLDER}/files/.files-0000-0_{at(10)}.log.1_1-0-1")
    table = made.open()
    steps = FaultyStorage(made.storage)
    (only,) = replace(table, storage=replace(table.storage, outer=steps)).slices("files")
    assert [log.name.instant for log in only.log_files] == [at(20)]
    assert [step.operation for step in steps.trace] == ["list"]


def test_log_file_that_opens_a_group_comes_with_the_log_file_of_its_commit(
    made: MadeTable,
) -> None:
    made.with_partitions("files", "record_index")
    group = {"file_id": "record-index-a-0000-0", "folder": "record_index"}
    made.log(at(10), encode_birth_block(at(10)), token="0-0-0", **group)  # type: ignore[arg-type]
    made.log(at(10), data_block({}, at(10)), token="1-0-1", **group)  # type: ignore[arg-type]
    (only,) = made.open().slices("record_index")
    assert [log.name.write_token for log in only.log_files] == ["0-0-0", "1-0-1"]


def test_groups_of_data_partitions_are_apart_and_names_may_have_dots(made: MadeTable) -> None:
    made.with_partitions("files", "record_index")
    for file_id in ("record-index-v1.2-0001-0", "record-index-v1.2-0000-0", "record-index--0000-0"):
        made.log(at(10), encode_birth_block(at(10)), file_id=file_id, folder="record_index")
        made.base(at(10), {}, file_id, folder="record_index")
    shards = made.open().shards("record_index")
    ids = {path: [found.file_id for found in held] for path, held in shards.items()}
    assert ids == {
        "": ["record-index--0000-0"],
        "v1.2": ["record-index-v1.2-0000-0", "record-index-v1.2-0001-0"],
    }
    assert all(len(held.files) == 2 for held in made.open().slices("record_index"))


def test_position_of_a_slice_is_its_shard(made: MadeTable) -> None:
    made.with_partitions("files", "column_stats")
    for shard in (2, 0, 1):
        file_id = f"col-stats-{shard:04d}-0"
        made.log(at(10), encode_birth_block(at(10)), file_id=file_id, folder="column_stats")
    table = made.open()
    assert [found.file_id[10:14] for found in table.slices("column_stats")] == [
        "0000",
        "0001",
        "0002",
    ]
    assert table.shards("column_stats") == {None: table.slices("column_stats")}


def test_slices_are_listed_once_and_are_not_pickled(made: MadeTable) -> None:
    table = made.open()
    before = table.slices("files")
    made.update(at(30), at(35), partition_list("c"))
    assert table.slices("files") is before
    assert pickle.loads(pickle.dumps(replace(table, storage=table.storage))).timeline


# Missing parts.


def test_missing_metadata_table_is_an_error_with_the_next_step() -> None:
    made = MadeTable()
    made.storage.delete(f"{METADATA_TABLE_FOLDER}/{PROPERTIES_FILE}")
    with pytest.raises(MetadataTableError, match=r"rebuild_metadata_table\(\) .*, or turn it off"):
        made.open()


def test_damaged_properties_name_the_file(made: MadeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    set_bounds(monkeypatch, "bucketlake.timeline.table_properties", _READ_SECONDS_MAX=0)
    made.storage.put(f"{METADATA_TABLE_FOLDER}/{PROPERTIES_FILE}", b"hoodie.table.name=a\n")
    with pytest.raises(FormatError, match=r"\.hoodie/metadata/\.hoodie/hoodie\.properties"):
        made.open()


def test_partition_without_file_groups_is_an_error(made: MadeTable) -> None:
    made.storage.delete_folder(f"{METADATA_TABLE_FOLDER}/files")
    with pytest.raises(MetadataTableError, match="its partition files has no file groups"):
        made.open().slices("files")


def test_list_of_files_without_a_base_file_is_an_error(made: MadeTable) -> None:
    made.storage.delete(f"{METADATA_TABLE_FOLDER}/files/files-0000-0_1-0-1_{FIRST}.hfile")
    with pytest.raises(MetadataTableError, match="its partition files has no base file"):
        made.open().slices("files")


def test_record_level_index_is_empty_before_the_first_data_partition(made: MadeTable) -> None:
    """Also if its earlier commits are known: a build made it anew for a table without rows."""
    made.with_partitions("files", "record_index")
    made.commit(at(30), at(35), partitions=("files", "record_index"))
    made.data(at(30), at(35))
    assert made.open().slices("record_index") == []
    RecordIndexReader(made.open()).require_shards([])
    with pytest.raises(MetadataTableError, match="no shards of data partition 'a'"):
        RecordIndexReader(made.open()).require_shards(["b", "a"])


def test_missing_shard_is_an_error(made: MadeTable) -> None:
    made.with_partitions("files", "record_index")
    for file_id in ("record-index-a-0000-0", "record-index-a-0002-0", "record-index-b-0000-0"):
        made.log(at(10), encode_birth_block(at(10)), file_id=file_id, folder="record_index")
    with pytest.raises(MetadataTableError, match="lacks shard 1 of data partition 'a'"):
        made.open().slices("record_index")


# Commits that the metadata table lacks.


def test_commit_beside_the_metadata_table_is_an_error_that_names_it(made: MadeTable) -> None:
    made.data(at(30), at(35))
    made.data(at(40), at(45), "replacecommit")
    with pytest.raises(MetadataTableError, match=f"2 commits from {at(30)} on are missing in it"):
        made.open()
    assert skipped_commits(made.load()) == [at(30), at(40)]


def test_savepoints_cleans_and_pending_commits_are_not_missed(made: MadeTable) -> None:
    made.data(at(10), at(31), "savepoint")
    made.data(at(32), at(33), "clean")
    made.data(at(34))
    assert made.open().timeline.completed_commits()


def test_commits_before_the_metadata_table_are_not_missed() -> None:
    made = MadeTable()
    made.data(at(2), at(4))
    made.data(at(5), at(6))
    made.initialise(partition_list(), until=at(7))
    made.update(at(3), at(15), partition_list("a"))
    assert skipped_commits(made.open()) == []
    made.data(at(4), at(8))
    assert skipped_commits(made.load()) == [at(4)]


def test_later_build_of_an_index_does_not_hide_a_missing_commit(made: MadeTable) -> None:
    made.data(at(30), at(35))
    made.build(InstantTime("0" * 16 + "1"), at(40), "column_stats")
    assert skipped_commits(made.load()) == [at(30)]


def test_later_build_of_the_list_of_files_knows_earlier_commits(made: MadeTable) -> None:
    made.data(at(30), at(35))
    made.build(InstantTime("0" * 16 + "1"), at(40), "files")
    assert skipped_commits(made.load()) == []


def test_build_at_a_turn_knows_the_commits_before_the_turn(made: MadeTable) -> None:
    made.data(at(30), at(35))
    made.build(at(36), at(50), "column_stats")
    assert skipped_commits(made.load()) == [at(30)]
    made.build(at(37), at(51), "files")
    assert skipped_commits(made.open()) == []
    made.data(at(38), at(40))
    assert skipped_commits(made.load()) == [at(38)]


def test_build_that_completed_after_the_listing_of_the_data_counts(made: MadeTable) -> None:
    made.build(at(36), at(50), "files")
    assert made.open().counts(at(36))


def test_table_that_is_still_being_built_misses_no_commit(made: MadeTable) -> None:
    made.data(at(30), at(35))
    with pytest.raises(MetadataTableError):
        made.open()
    assert made.with_partitions().open().partitions == ()


def test_commits_that_the_metadata_table_archived_are_not_missed(made: MadeTable) -> None:
    made.storage.delete_folder(f"{ROOT}/timeline")
    made.commit(at(20), at(25))
    assert skipped_commits(made.load()) == []


def test_commit_that_was_rolled_back_after_the_listing_is_not_missed(made: MadeTable) -> None:
    made.data(at(30), at(35))
    pinned = made.timeline
    made.storage.delete(f".hoodie/timeline/{at(30)}_{at(35)}.commit")
    assert made.open(pinned)
