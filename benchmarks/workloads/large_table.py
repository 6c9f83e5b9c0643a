"""A table of very many file groups without data files: a program that makes its metadata.

``python -m benchmarks.workloads.large_table FOLDER KIND FOLDERS GROUPS``. A first
upsert makes a table with a commit. Then the metadata table gets a base file that lists further
files of that commit, which do not exist. So planning a write reads what it would read in a real
table. The record-level index has a shard for each partition, with an entry for each file group.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

import bucketlake as bl
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.format.metadata_record.record_schema import IndexedLocation, encode_locations
from bucketlake.metadata.creation import (
    initialise_partitions,
    next_initial_instant,
    usual_file_groups,
)
from bucketlake.metadata.file_listing import entries_of_table
from bucketlake.metadata.log_files import GroupEntries
from bucketlake.metadata.record_index.shards import Shard
from bucketlake.model.file_name import BaseFileName, FileId, InstantTime, derived_uuid
from bucketlake.storage.location import open_storage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.instant import instant_to_ms, table_clock
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config

SIMPLE, RECORD = "simple", "record"
"""Kinds of index."""

SCHEMA = pa.schema({"id": pa.string(), "day": pa.string(), "at": pa.int64()})
FILE_BYTES = 100_000_000


def day(number: int) -> str:
    """Return a partition path."""
    return f"day{number:07d}"


def key(number: int) -> str:
    """Return the key of which the index says that it is in the group with this number."""
    return f"key{number:04d}"


def make_large_table(path: str, kind: str, folders: int, groups: int) -> None:
    """Make a table with as many partitions and file groups."""
    in_folder = groups // folders
    table = bl.create_table(
        path,
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["day"],
        ordering="at",
        index=bl.SimpleBucket(in_folder) if kind == SIMPLE else bl.RecordIndex(),
        table_type="merge_on_read",
        metadata_table=True,
    )
    table.upsert(pa.table({"id": ["first"], "day": ["first"], "at": [1]}, schema=SCHEMA))
    storage = open_storage(path)
    config = read_table_config(storage)
    timeline = load_timeline(opened_table(storage, config))
    (commit,) = timeline.completed_commits()
    instant = commit.requested_at
    ids = {
        day(number): _file_ids(kind, instant, day(number), in_folder) for number in range(folders)
    }
    sizes = {
        path: {_file_name(id_, instant): FILE_BYTES + place for place, id_ in enumerate(own)}
        for path, own in ids.items()
    }
    (list_group,) = usual_file_groups(MetadataPartition.FILES)
    entries = {MetadataPartition.FILES: {list_group: entries_of_table(sizes)}}
    if kind != SIMPLE:
        at_ms = instant_to_ms(instant, config.timeline_timezone)
        entries[MetadataPartition.RECORD_INDEX] = dict(_shards(ids, at_ms))
    initialise_partitions(
        opened_table(storage, config),
        entries,
        instant=next_initial_instant(opened_table(storage, config)),
        completed_at=table_clock(storage.root, config.timeline_timezone).next_instant(timeline),
    )


def _file_ids(kind: str, instant: InstantTime, path: str, count: int) -> list[FileId]:
    uuids = [derived_uuid(instant, path, str(number)) for number in range(count)]
    if kind == SIMPLE:
        uuids = [f"{bucket:08d}{uuid[8:]}" for bucket, uuid in enumerate(uuids)]
    return [FileId(f"{uuid}-0") for uuid in uuids]


def _file_name(file_id: FileId, instant: InstantTime) -> str:
    return BaseFileName(file_id, "0-0-0", instant, "parquet").to_file_name()


def _shards(ids: Mapping[str, list[FileId]], at_ms: int) -> Iterator[tuple[FileId, GroupEntries]]:
    for path, own in ids.items():
        values = encode_locations([IndexedLocation(path, id_, at_ms) for id_ in own])
        keys = pa.array([key(number) for number in range(len(own))], pa.binary())
        places = pa.array(np.arange(len(own), dtype=np.int32))
        entries = GroupEntries(keys, pa.DictionaryArray.from_arrays(places, values))
        yield Shard(0, path).file_id, entries


def _main(folder: str, kind: str, folders: str, groups: str) -> None:
    # Storage on disk waits for the disk with each of the many small files, so they are copied.
    name = "large-table"
    make_large_table(f"memory://{name}", kind, int(folders), int(groups))
    storage = MemoryStorage(name)
    for stored in storage.list(""):
        target = Path(folder, stored.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(storage.read(stored.path))


if __name__ == "__main__":
    _main(*sys.argv[1:])
