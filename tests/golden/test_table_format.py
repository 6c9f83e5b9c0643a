"""Tables that real Hudi wrote: their properties, timelines and commit metadata."""

from __future__ import annotations

import io
import json
from functools import cache
from typing import Any, TypeAlias

import pyarrow.parquet as pq
import pytest

from bucketlake.config.paths_of_table import PROPERTIES_FILE
from bucketlake.config.support import check_readable, check_writable
from bucketlake.config.table_config import TableConfig, is_whole
from bucketlake.format.avro.timeline_records import (
    avro_schema,
    decode_record,
    encode_record,
)
from bucketlake.format.clustering_plan import decode_clustering_plan, encode_clustering_plan
from bucketlake.format.commit_metadata import decode_commit_metadata, encode_commit_metadata
from bucketlake.format.properties import (
    PARTITION_METADATA_FILE,
    parse_properties,
    render_properties,
)
from bucketlake.model.file_name import BaseFileName, InstantTime, LogFileName
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_reader import read_archive
from bucketlake.timeline.instant import Action
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config
from tests.golden.objects import (
    TABLES_FOLDER,
    containers_of_table,
    objects_of_table,
    table_names,
)
from tests.storages import memory_of

TABLES = table_names(TABLES_FOLDER)
V9_TABLES = [name for name in TABLES if not name.endswith("_v6")]
METADATA_TABLE = ".hoodie/metadata/"

Opened: TypeAlias = tuple[MemoryStorage, TableConfig, Timeline]


@cache
def _open(name: str, below: str = "") -> Opened:
    objects = objects_of_table(name).items()
    storage = memory_of(
        {path.removeprefix(below): data for path, data in objects if path.startswith(below)}
    )
    config = read_table_config(storage)
    return storage, config, load_timeline(opened_table(storage, config))


@pytest.fixture(params=TABLES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_all_twelve_tables_are_there() -> None:
    assert len(TABLES) == 12


def test_properties_of_table_and_metadata_table_render_to_the_same_bytes(name: str) -> None:
    objects = objects_of_table(name)
    for path in (PROPERTIES_FILE, f"{METADATA_TABLE}{PROPERTIES_FILE}"):
        data = objects[path]
        properties = parse_properties(data)
        comments = [line[1:] for line in data.decode().splitlines() if line.startswith("#")]
        assert is_whole(properties)
        assert "hoodie.table.checksum" in properties
        assert render_properties(properties, "\n".join(comments)) == data


@pytest.mark.parametrize("name", V9_TABLES)
def test_configuration_comes_back_as_the_entries_that_hudi_wrote(name: str) -> None:
    properties = parse_properties(objects_of_table(name)[PROPERTIES_FILE])
    assert TableConfig.from_properties(properties).to_properties() == properties


def test_configuration_tells_what_the_script_asked_for(name: str) -> None:
    _, config, _ = _open(name)
    options = json.loads((TABLES_FOLDER / f"{name}.json").read_text())["options"]
    prefix = "hoodie.datasource.write"
    partition_field = options[f"{prefix}.partitionpath.field"]
    generator = {
        "cow_nonpartitioned": KeyGenerator.NON_PARTITION,
        "cow_complex_key": KeyGenerator.COMPLEX,
    }.get(name, KeyGenerator.SIMPLE)
    assert config.name == name
    assert config.table_type is TableType(options[f"{prefix}.table.type"])
    assert config.version == int(options.get("hoodie.write.table.version", 9))
    assert config.merge_mode is MergeMode.EVENT_TIME
    assert config.ordering_fields == ("ts",)
    assert config.key_spec == KeySpec(
        tuple(options[f"{prefix}.recordkey.field"].split(",")),
        (partition_field,) if partition_field else (),
        generator,
    )


def test_table_is_written_with_its_metadata_table(name: str) -> None:
    _, config, _ = _open(name)
    check_readable(config, name)
    assert "files" in config.metadata_partitions
    check_writable(config, name)


def test_timeline_is_complete_and_in_order(name: str) -> None:
    _, config, timeline = _open(name)
    completed = timeline.completed_commits()
    assert timeline.pending() == ()
    assert timeline.instants == completed
    times = [instant.requested_at for instant in completed]
    assert times == sorted(set(times))
    assert timeline.start == times[0]
    for instant in completed:
        completed_at = timeline.completion_time(instant.requested_at)
        assert completed_at is not None
        assert config.version == 6 or completed_at > instant.requested_at
    names = {f"{config.timeline_folder}/{one.to_file_name(config.layout)}" for one in completed}
    assert names <= set(objects_of_table(name))


def test_archive_is_empty(name: str) -> None:
    storage, config, _ = _open(name)
    assert read_archive(opened_table(storage, config)) == []


def test_every_commit_decodes_and_names_the_files_that_lie_there(name: str) -> None:
    storage, _, timeline = _open(name)
    named = set()
    for instant in timeline.completed_commits():
        metadata = timeline.read_commit(storage, instant)
        for partition, stats in metadata.write_stats.items():
            for stat in stats:
                assert stat.partition_path == partition
                stored = storage.stat(stat.path)
                assert stored is not None
                assert stored.size_bytes == stat.file_size_bytes
                named.add(stat.path)
    there = {path for path in objects_of_table(name) if _is_data_file(path)}
    assert named == there


def _is_data_file(path: str) -> bool:
    name = path.rpartition("/")[2]
    parsed = BaseFileName.from_file_name(name) or LogFileName.from_file_name(name)
    return parsed is not None and not path.startswith(".hoodie/")


def test_record_counts_are_those_of_the_parquet_footers(name: str) -> None:
    storage, _, timeline = _open(name)
    base_files = 0
    for instant in timeline.completed_commits():
        metadata = timeline.read_commit(storage, instant)
        stats = [stat for of_partition in metadata.write_stats.values() for stat in of_partition]
        written = [stat for stat in stats if stat.path.endswith(".parquet")]
        footers = [pq.read_metadata(io.BytesIO(storage.read(stat.path))) for stat in written]
        assert [stat.record_count for stat in written] == [footer.num_rows for footer in footers]
        assert sum(stat.file_size_bytes for stat in written) == sum(
            len(storage.read(stat.path)) for stat in written
        )
        base_files += len(written)
    assert base_files or name == "mor_consistent"  # There everything lies in logs.


def test_operations_are_those_of_the_script(name: str) -> None:
    storage, _, timeline = _open(name)
    metadata = [timeline.read_commit(storage, one) for one in timeline.completed_commits()]
    operations = {one.operation for one in metadata}
    services = {"mor_compacted": {"COMPACT"}, "mor_consistent_split": {"CLUSTER"}}
    assert operations == {"UPSERT", "DELETE"} | services.get(name, set())
    assert {one.operation for one in metadata if one.compacted} == services.get(name, set()) & {
        "COMPACT"
    }


def test_latest_schema_is_the_data_schema(name: str) -> None:
    storage, _, timeline = _open(name)
    schema = json.loads(timeline.latest_schema(storage) or "{}")
    names = [field["name"] for field in schema["fields"]]
    assert names[:3] == ["id", "region", "ts"]
    assert not any(name.startswith("_hoodie") for name in names)


def test_clustering_replaces_what_it_read() -> None:
    storage, _, timeline = _open("mor_consistent_split")
    replaced = timeline.replaced_file_groups(storage)
    clusterings = [one for one in timeline.instants if one.action is Action.REPLACE_COMMIT]
    read = set()
    for instant in clusterings:
        path = f".hoodie/timeline/{instant.requested_at}.clustering.requested"
        plan = decode_clustering_plan(storage.read(path), path)
        read |= {(planned.partition_path, planned.file_id) for planned in plan.slices}
        assert all(group.resize is not None for group in plan.groups)
        assert decode_clustering_plan(encode_clustering_plan(plan, "/t"), path) == plan
    assert len(clusterings) == 3
    assert set(replaced) == read
    assert set(replaced.values()) == {one.requested_at for one in clusterings}


def test_version_6_appends_to_the_slice_of_its_base_file() -> None:
    storage, config, timeline = _open("mor_v6")
    assert (config.version, config.timeline_folder) == (6, ".hoodie")
    stats = [
        (instant, stat)
        for instant in timeline.completed_commits()
        for of_partition in timeline.read_commit(storage, instant).write_stats.values()
        for stat in of_partition
    ]
    logs = [(instant, stat) for instant, stat in stats if not stat.path.endswith(".parquet")]
    assert logs
    for instant, stat in logs:
        name = LogFileName.from_file_name(stat.path.rpartition("/")[2])
        assert name is not None
        assert name.instant == stat.previous_commit <= instant.requested_at


def test_partition_markers_tell_the_first_commit(name: str) -> None:
    storage, config, timeline = _open(name)
    markers = [path for path in objects_of_table(name) if path.endswith(PARTITION_METADATA_FILE)]
    of_data = [path for path in markers if not path.startswith(".hoodie/")]
    assert of_data
    for path in of_data:
        content = storage.read(path)
        assert timeline.is_completed(InstantTime(parse_properties(content)["commitTime"]))
        depth = "1" if config.key_spec.partition_fields else "0"
        assert parse_properties(content)["partitionDepth"] == depth


def test_metadata_table_has_a_timeline_of_its_own(name: str) -> None:
    storage, config, timeline = _open(name, METADATA_TABLE)
    assert config.foreign_key_generator == "HOODIE_TABLE_METADATA"
    metadata = [timeline.read_commit(storage, one) for one in timeline.completed_commits()]
    written = {partition for one in metadata for partition in one.write_stats}
    assert {"files", "column_stats"} <= written


@pytest.mark.parametrize("name", V9_TABLES)
def test_schemas_are_those_that_hudi_writes(name: str) -> None:
    containers = list(containers_of_table(name))
    assert containers
    for _, _, schema in containers:
        assert schema == avro_schema(schema["name"])


@pytest.mark.parametrize("name", V9_TABLES)
def test_records_survive_being_written_again(name: str) -> None:
    for path, data, schema in containers_of_table(name):
        record = decode_record(data, path, schema["name"])
        assert decode_record(encode_record(schema["name"], record), path, schema["name"]) == record


@pytest.mark.parametrize("name", V9_TABLES)
def test_commit_metadata_is_written_again_as_hudi_wrote_it(name: str) -> None:
    # Counters of time and of compaction, which bucketlake does not keep, are all that may differ.
    for path, data, schema in containers_of_table(name):
        if schema["name"] not in ("HoodieCommitMetadata", "HoodieReplaceCommitMetadata"):
            continue
        if not path.endswith("commit"):
            continue  # The workload profile of an inflight file is read, never written.
        theirs = decode_record(data, path, schema["name"])
        again = encode_commit_metadata(decode_commit_metadata(data, path))
        ours = decode_record(again, path, schema["name"])
        for record in (theirs, ours):
            for stats in record["partitionToWriteStats"].values():
                for stat in stats:
                    _forget_counters(stat)
        assert ours == theirs


def _forget_counters(stat: dict[str, Any]) -> None:
    for field in stat:
        if field == "runtimeStats" or field.startswith("totalLog") or "Compacted" in field:
            stat[field] = None
