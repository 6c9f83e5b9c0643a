"""What the first twelve tables lack: archives, savepoints, rollbacks, pending commits."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from bucketlake.config.paths_of_table import PROPERTIES_FILE
from bucketlake.config.support import check_readable, check_writable
from bucketlake.config.table_config import TableConfig
from bucketlake.config.table_version import LAYOUT_1, LAYOUT_2
from bucketlake.errors import TimelineError, UnsupportedFeatureError
from bucketlake.format.archive_file import ArchivedState, archive_log_name, encode_archive_log
from bucketlake.format.avro.timeline_records import avro_schema, decode_record, encode_record
from bucketlake.format.commit_metadata import decode_commit_metadata, encode_commit_metadata
from bucketlake.format.json_fields import render_json
from bucketlake.format.properties import parse_properties, render_properties
from bucketlake.model.file_name import BaseFileName
from bucketlake.model.keys import KeyGenerator
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_reader import (
    archived_commit,
    archived_completion_times,
    read_archive,
)
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.markers import MarkerType, read_markers
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config
from tests.golden.objects import (
    MORE_TABLES_FOLDER,
    containers_of_table,
    objects_of_table,
    table_names,
)
from tests.pinned import snapshot_as_of
from tests.storages import memory_of

TABLES = table_names(MORE_TABLES_FOLDER)
UNWRITABLE = {
    "cow_dropped_partition_columns": "writing a table whose files lack the partition columns",
    "cow_without_meta_fields": "writing a table without meta columns",
}


def _open(name: str) -> tuple[MemoryStorage, TableConfig, Timeline]:
    storage = memory_of(objects_of_table(name))
    config = read_table_config(storage)
    return storage, config, load_timeline(opened_table(storage, config))


@pytest.mark.parametrize("name", TABLES)
def test_properties_render_to_the_same_bytes(name: str) -> None:
    data = objects_of_table(name)[PROPERTIES_FILE]
    comments = [line[1:] for line in data.decode().splitlines() if line.startswith("#")]
    assert render_properties(parse_properties(data), "\n".join(comments)) == data


@pytest.mark.parametrize("name", [name for name in TABLES if "_v" not in name])
def test_configuration_comes_back_as_the_entries_that_hudi_wrote(name: str) -> None:
    properties = parse_properties(objects_of_table(name)[PROPERTIES_FILE])
    config = TableConfig.from_properties(properties)
    again = config.to_properties()
    assert TableConfig.from_properties(again) == config
    # Settings of timestamps are written in full; a list that is empty may be left out.
    prefix = "hoodie.keygen.timebased."
    theirs = {key for key, text in properties.items() if text and not key.startswith(prefix)}
    ours = {key for key, text in again.items() if text and not key.startswith(prefix)}
    assert ours == theirs
    assert {key: again[key] for key in ours} == {key: properties[key] for key in theirs}


@pytest.mark.parametrize("name", TABLES)
def test_table_is_refused_only_for_what_its_name_says(name: str) -> None:
    _, config, _ = _open(name)
    check_readable(config, name)
    if name in UNWRITABLE:
        with pytest.raises(UnsupportedFeatureError, match=UNWRITABLE[name]):
            check_writable(config, name)
        return
    check_writable(config, name)


@pytest.mark.parametrize("name", TABLES)
def test_every_container_has_the_known_schema_and_survives_being_written_again(name: str) -> None:
    for path, data, schema in containers_of_table(name):
        record_name = schema["name"]
        assert schema == avro_schema(record_name)
        record = decode_record(data, path, record_name)
        assert decode_record(encode_record(record_name, record), path, record_name) == record


@pytest.mark.parametrize("name", TABLES)
def test_every_completed_commit_decodes_and_tells_a_schema(name: str) -> None:
    storage, _, timeline = _open(name)
    for instant in timeline.completed_commits():
        assert timeline.read_commit(storage, instant).schema_json
    assert timeline.latest_schema(storage)


@pytest.mark.parametrize("name", [name for name in TABLES if name != "cow_pending_commit"])
def test_every_data_file_is_of_a_completed_instant(name: str) -> None:
    storage, _, timeline = _open(name)
    paths = (stored.path for stored in storage.list("") if not stored.path.startswith(".hoodie/"))
    names = [BaseFileName.from_file_name(path.rpartition("/")[2]) for path in paths]
    instants = {one.instant for one in names if one is not None}
    assert instants
    assert all(map(timeline.is_completed, instants))


ARCHIVED = {
    "cow_archived": {"commit": 6, "clean": 3},
    "cow_v6_archived": {"commit": 6, "clean": 4},
    "cow_of_0_15_0": {"commit": 7, "replacecommit": 1, "clean": 6, "rollback": 2},
    "mor_of_0_15_0": {"deltacommit": 8, "commit": 2},
}


@pytest.mark.parametrize("name", ARCHIVED)
def test_archive_holds_what_left_the_active_timeline(name: str) -> None:
    storage, config, timeline = _open(name)
    archived = read_archive(opened_table(storage, config))
    assert Counter(entry.action for entry in archived) == ARCHIVED[name]
    assert timeline.start is not None
    assert archived[0].requested_at < timeline.start
    for entry in archived:
        is_later = entry.completed_at > entry.requested_at
        assert is_later is config.layout.has_completion_times
        assert entry.metadata
        assert timeline.find_completed(entry.requested_at) is None
        assert not entry.action.endswith("commit") or timeline.is_completed(entry.requested_at)


@pytest.mark.parametrize("name", ARCHIVED)
def test_archived_commits_decode_like_active_ones(name: str) -> None:
    storage, config, _ = _open(name)
    operations = {"replacecommit": "INSERT_OVERWRITE"}
    if config.table_type is TableType.MERGE_ON_READ:
        operations["commit"] = "COMPACT"
    for entry in read_archive(opened_table(storage, config)):
        metadata = archived_commit(entry)
        if metadata is not None:
            assert metadata.operation == operations.get(entry.action, "UPSERT")
            assert metadata.compacted is (metadata.operation == "COMPACT")
            assert bool(metadata.replaced_file_ids) is (entry.action == "replacecommit")
            assert metadata.schema_json
            assert all(stat.path and stat.record_count for stat in metadata.stats)


@pytest.mark.parametrize("name", ["cow_archived", "cow_of_0_15_0"])
def test_archive_is_read_by_range(name: str) -> None:
    storage, config, _ = _open(name)
    times = [entry.requested_at for entry in read_archive(opened_table(storage, config))]
    some = read_archive(
        opened_table(storage, config), since=times[2], until=times[4], with_metadata=False
    )
    assert [entry.requested_at for entry in some] == times[2:5]
    assert {entry.metadata for entry in some} == {None}
    since = archived_completion_times(opened_table(storage, config), since=times[7])
    assert sorted(since) == times[7:]


def test_commits_of_version_6_are_printed_as_hudi_prints_them() -> None:
    objects = objects_of_table("cow_v6")
    commits = [objects[path] for path in objects if path.endswith((".commit", ".inflight"))]
    assert len(commits) > 2
    for data in commits:
        assert render_json(json.loads(data)).encode() == data
        decoded = decode_commit_metadata(data, "f")
        again = encode_commit_metadata(decoded, LAYOUT_1)
        assert again.startswith(b'{\n  "partitionToWriteStats" : {\n')
        assert decode_commit_metadata(again, "f") == decoded
        assert json.loads(again).keys() == json.loads(data).keys()


def test_time_travel_in_version_6_is_refused_where_only_its_archive_tells_of_a_clean() -> None:
    storage, config, timeline = _open("cow_v6_archived")
    times = [entry.requested_at for entry in read_archive(opened_table(storage, config))]
    first = timeline.completed_commits()[0].requested_at

    def slices(as_of: str | None) -> int:
        return len(snapshot_as_of(opened_table(storage, config), as_of).all_slices())

    assert slices(None) > 0
    for at in (times[1], first):
        with pytest.raises(TimelineError, match="this clean deleted"):
            slices(at)
    cleans = [one for one in timeline.instants if one.action is Action.CLEAN]
    log = encode_archive_log(
        [
            ArchivedState(
                one.requested_at,
                one.action.value,
                one.state.name,
                one.requested_at,
                storage.read(timeline.path_of(one)),
            )
            for one in cleans
        ]
    )
    storage.put(f"{config.history_folder}/{archive_log_name(99)}", log)
    for path in [stored.path for stored in storage.list("") if ".clean" in stored.path]:
        storage.delete(path)
    with pytest.raises(TimelineError, match="this clean deleted"):
        slices(first)
    assert slices(None) > 0


def test_pending_commit_has_a_marker_for_each_of_its_files() -> None:
    storage, _, timeline = _open("cow_pending_commit")
    (pending,) = timeline.pending()
    assert (pending.action, pending.state) == (Action.COMMIT, State.INFLIGHT)
    assert not timeline.is_completed(pending.requested_at)
    markers = read_markers(storage, pending.requested_at)
    files = {path for path in objects_of_table("cow_pending_commit") if _is_of(path, pending)}
    assert files
    assert files <= {marker.data_path for marker in markers}
    assert {marker.type for marker in markers} == {MarkerType.CREATE, MarkerType.MERGE}


def _is_of(path: str, instant: Instant) -> bool:
    return path.endswith(f"_{instant.requested_at}.parquet") and not path.startswith(".hoodie/")


def test_rolled_back_commit_has_left_the_timeline() -> None:
    storage, _, timeline = _open("cow_rolled_back")
    (rollback,) = [one for one in timeline.completed() if one.action is Action.ROLLBACK]
    path = f".hoodie/timeline/{rollback.to_file_name(LAYOUT_2)}"
    metadata = decode_record(storage.read(path), path, "HoodieRollbackMetadata")
    (gone,) = metadata["commitsRollback"]
    assert gone not in {one.requested_at for one in timeline.instants}
    assert not timeline.is_completed(gone)


def test_savepoint_stands_beside_the_commit_it_keeps() -> None:
    _, _, timeline = _open("cow_savepoint")
    (savepoint,) = [one for one in timeline.completed() if one.action is Action.SAVEPOINT]
    commit = timeline.find_completed(savepoint.requested_at)
    assert commit is not None
    assert commit.completed_at != savepoint.completed_at
    assert timeline.completion_time(savepoint.requested_at) == commit.completed_at


@pytest.mark.parametrize(
    ("name", "replaced"),
    [
        ("cow_insert_overwrite", 2),
        ("cow_insert_overwrite_table", 3),
        ("cow_delete_partition", 3),
        ("cow_clustered", 2),
        ("cow_v8_insert_overwrite", 2),
        ("cow_deletes", 0),
    ],
)
def test_replaced_file_groups_are_those_of_replace_commits(name: str, replaced: int) -> None:
    storage, _, timeline = _open(name)
    groups = timeline.replaced_file_groups(storage)
    assert len(groups) == replaced
    for (partition, file_id), instant in groups.items():
        commit = timeline.find_completed(instant)
        assert commit is not None
        assert file_id in timeline.read_commit(storage, commit).replaced_file_ids[partition]


def test_settings_of_each_table_are_what_its_name_says() -> None:
    configs = {name: _open(name)[1] for name in TABLES}
    assert configs["cow_commit_time"].merge_mode is MergeMode.COMMIT_TIME
    assert configs["cow_commit_time"].ordering_fields == ()
    assert configs["cow_hive_encoded"].key_spec.hive_style
    assert configs["cow_hive_encoded"].key_spec.url_encode
    assert configs["cow_two_partition_fields"].key_spec.partition_fields == ("region", "kind")
    assert configs["cow_keys_with_nulls"].key_spec.generator is KeyGenerator.COMPLEX
    assert configs["cow_utc_timeline"].timeline_timezone == "UTC"
    assert configs["cow_parquet_metafile"].partition_metafile_as_base_format
    assert configs["cow_v8"].version == 8
    timestamp = configs["cow_timestamp_partitions"].key_spec.timestamp
    assert timestamp is not None
    assert (timestamp.timestamp_type, timestamp.output_format) == (
        "EPOCHMILLISECONDS",
        "yyyy/MM/dd",
    )
