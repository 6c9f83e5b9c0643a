"""Metadata tables in memory, made instant by instant, for tests of their readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER, PROPERTIES_FILE
from bucketlake.config.table_config import TableConfig
from bucketlake.format.commit_metadata import encode_commit_metadata
from bucketlake.format.hfile.writer import encode_hfile
from bucketlake.format.log_block import BlockKind, HeaderKey, encode_block
from bucketlake.format.log_deletes import Deletes, encode_birth_block, encode_delete_block
from bucketlake.format.metadata_record.record_schema import (
    ALL_PARTITIONS,
    FILE_MAP,
    RecordKind,
    encode_file_maps,
    record_schema_json,
)
from bucketlake.metadata.metadata_table import (
    BUILD_OPERATION,
    MetadataTable,
    load_metadata_table,
    open_metadata_table,
)
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.model.write_stat import CommitMetadata, WriteStat
from bucketlake.storage.base import Storage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.open_table import opened_table

PROPERTIES = (
    "hoodie.table.name=trips_metadata\nhoodie.table.type=MERGE_ON_READ\nhoodie.table.version=9\n"
    "hoodie.timeline.layout.version=2\nhoodie.timeline.path=timeline\n"
    "hoodie.table.base.file.format=HFILE\nhoodie.table.recordkey.fields=key\n"
    "hoodie.populate.meta.fields=false\nhoodie.table.keygenerator.type=HOODIE_TABLE_METADATA\n"
    "hoodie.compaction.payload.class=org.apache.hudi.metadata.HoodieMetadataPayload\n"
    "hoodie.record.merge.mode=CUSTOM\n"
    "hoodie.record.merge.strategy.id=00000000-0000-0000-0000-000000000000\n"
    "hoodie.table.checksum=1249152950\n"
)
CONFIG = TableConfig(
    "trips",
    TableType.COPY_ON_WRITE,
    KeySpec(("id",), ("day",), KeyGenerator.SIMPLE),
    MergeMode.COMMIT_TIME,
    metadata_partitions=("files",),
)
FILES_ID = "files-0000-0"
FIRST = InstantTime("0" * 17)
ROOT = f"{METADATA_TABLE_FOLDER}/.hoodie"

Entries = Mapping[str, bytes]


def at(number: int) -> InstantTime:
    """Return a time that ends in a number."""
    return InstantTime(f"20240101000{number:06d}")


def file_map(kind: RecordKind, files: Mapping[str, int | None]) -> bytes:
    """Return a record of ``files``: sizes by name, None for a removed file."""
    entries = [
        (name, {"size_bytes": size or 0, "is_deleted": size is None})
        for name, size in files.items()
    ]
    (value,) = encode_file_maps(kind, pa.array([entries], FILE_MAP)).to_pylist()
    return bytes(value)


def partition_list(*names: str, removed: Sequence[str] = ()) -> Entries:
    """Return the entry that lists partitions."""
    sizes = dict.fromkeys(names, 0) | dict.fromkeys(removed)
    return {ALL_PARTITIONS: file_map(RecordKind.PARTITION_LIST, sizes)}


def sizes_of(partition: str, sizes: Mapping[str, int | None]) -> Entries:
    """Return the entry of a partition: sizes of files by name, None for a removed file."""
    return {partition or ".": file_map(RecordKind.FILES, sizes)}


def hfile_of(entries: Entries) -> bytes:
    """Return an HFile of entries."""
    keys = sorted(entries, key=str.encode)
    columns = (pa.array([k.encode() for k in keys], pa.binary()), [entries[k] for k in keys])
    values = pa.array(columns[1], pa.binary())
    return encode_hfile(columns[0], values, record_schema_json(), created_at_ms=0)


def data_block(
    entries: Entries, instant: InstantTime, replaces: Sequence[InstantTime] = ()
) -> bytes:
    """Return a log block of entries; a log compaction replaces the blocks of other instants."""
    headers = {HeaderKey.INSTANT_TIME: str(instant), HeaderKey.SCHEMA: record_schema_json()}
    if replaces:
        headers[HeaderKey.COMPACTED_BLOCK_TIMES] = ",".join(replaces)
    return encode_block(BlockKind.HFILE_DATA, headers, hfile_of(entries))


def delete_block(keys: Sequence[str], instant: InstantTime, partition: str = "files") -> bytes:
    """Return a log block that deletes keys."""
    deletes = Deletes.of_keys(pa.array(keys, pa.string()), partition)
    return encode_delete_block(deletes, instant=instant)


def put_instant(
    storage: Storage,
    folder: str,
    instant: InstantTime,
    completed: InstantTime | None,
    action: str,
    content: bytes = b"",
    plan: bytes = b"",
) -> None:
    """Put the files of an instant on a timeline in layout 2."""
    pending = "" if action == "commit" else f".{action}"
    storage.put(f"{folder}/timeline/{instant}.{action}.requested", plan)
    storage.put(f"{folder}/timeline/{instant}{pending}.inflight", b"")
    if completed is not None:
        as_completed = {"logcompaction": "deltacommit", "compaction": "commit"}
        name = f"{instant}_{completed}.{as_completed.get(action, action)}"
        storage.put(f"{folder}/timeline/{name}", content)


class MadeTable:
    """A data table and its metadata table, of which only what a test needs exists."""

    def __init__(self, config: TableConfig = CONFIG) -> None:
        self.config = config
        self.storage = MemoryStorage.fresh()
        self.storage.put(f"{METADATA_TABLE_FOLDER}/{PROPERTIES_FILE}", PROPERTIES.encode())

    @property
    def timeline(self) -> Timeline:
        """The data timeline."""
        return load_timeline(opened_table(self.storage, self.config))

    def open(self, timeline: Timeline | None = None) -> MetadataTable:
        """Open the metadata table."""
        return open_metadata_table(
            opened_table(self.storage, self.config), timeline or self.timeline
        )

    def load(self, timeline: Timeline | None = None) -> MetadataTable:
        """Open the metadata table without a comparison with the data."""
        return load_metadata_table(
            opened_table(self.storage, self.config), timeline or self.timeline
        )

    def data(
        self, instant: InstantTime, completed: InstantTime | None = None, action: str = "commit"
    ) -> None:
        """Put an instant on the data timeline."""
        put_instant(self.storage, ".hoodie", instant, completed, action)

    def commit(
        self,
        instant: InstantTime,
        completed: InstantTime | None = None,
        *,
        action: str = "deltacommit",
        operation: str = "UPSERT_PREPPED",
        partitions: Sequence[str] = ("files",),
    ) -> None:
        """Put an instant on the timeline of the metadata table."""
        stats = {
            name: (WriteStat(FileId(f"{name}-0000-0"), f"{name}/f", name),) for name in partitions
        }
        content = encode_commit_metadata(CommitMetadata(operation, stats))
        put_instant(self.storage, ROOT, instant, completed, action, content)

    def both(self, instant: InstantTime, completed: InstantTime) -> None:
        """Complete a commit on both timelines."""
        self.commit(instant, completed)
        self.data(instant, completed)

    def build(self, instant: InstantTime, completed: InstantTime, partition: str) -> None:
        """Complete the build of a partition, whose files a test puts itself."""
        self.commit(instant, completed, operation=BUILD_OPERATION, partitions=(partition,))

    def initialise(self, entries: Entries, *, until: InstantTime | None = None) -> None:
        """Build the partition ``files`` with a base file, at time 1 or later."""
        self.build(FIRST, until or at(1), "files")
        self.log(FIRST, encode_birth_block(FIRST), token="0-0-0")
        self.base(FIRST, entries)

    def base(
        self, instant: InstantTime, entries: Entries, file_id: str = FILES_ID, *, folder: str = ""
    ) -> str:
        """Put a base file; return its path."""
        path = f"{folder or 'files'}/{file_id}_1-0-1_{instant}.hfile"
        self.storage.put(f"{METADATA_TABLE_FOLDER}/{path}", hfile_of(entries))
        return path

    def log(
        self,
        instant: InstantTime,
        *blocks: bytes,
        file_id: str = FILES_ID,
        folder: str = "",
        version: int = 1,
        token: str = "1-0-1",
    ) -> str:
        """Put a log file; return its path."""
        path = f"{folder or 'files'}/.{file_id}_{instant}.log.{version}_{token}"
        self.storage.put(f"{METADATA_TABLE_FOLDER}/{path}", b"".join(blocks))
        return path

    def update(self, instant: InstantTime, completed: InstantTime, entries: Entries) -> None:
        """Complete a commit on both timelines that writes entries of ``files``."""
        self.both(instant, completed)
        self.log(instant, data_block(entries, instant))

    def with_partitions(self, *names: str) -> MadeTable:
        """Let the properties list these partitions."""
        self.config = replace(self.config, metadata_partitions=names)
        return self
