"""Log files of the metadata table: what one instant writes into one file group.

A log file has a block of entries and after it a block of removals; either may be missing (Hudi's
table format, "log files of the metadata table"). Another log file opens a file group: it is empty,
and lets readers count the file groups of a partition before any key falls into them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.config.table_config import TableConfig
from bucketlake.format.hfile.writer import encode_hfiles
from bucketlake.format.log_deletes import Deletes, encode_birth_block, encode_delete_block
from bucketlake.format.metadata_record.record_schema import (
    record_schema_json,
    without_value_type_field,
)
from bucketlake.hashing.key_filter import shards_of_keys
from bucketlake.model.file_name import BaseFileName, FileId, InstantTime, LogFileName, file_path
from bucketlake.model.write_stat import WriteStat
from bucketlake.storage.base import Storage
from bucketlake.timeline.instant import instant_to_ms, is_initial

BASE_EXTENSION = "hfile"

DRIVER_TOKEN = "0-0-1"
"""Token in the names of files that the driver of an action writes."""

COPY_TOKEN = DRIVER_TOKEN
"""Token in the names of log files that a compaction of layout 1 repeats in its new slices."""

TASK_TOKEN = "1-0-1"  # Of files that tasks of a write make; builds have that of the driver.
_BIRTH_TOKEN = "0-0-0"  # Tokens of other log files differ, because the rest of the name may not.
_VERSION = 1  # Since table version 8 each delta commit opens new log files.
_NO_KEYS = pa.nulls(0, pa.string())
_NO_VALUES = pa.nulls(0, pa.binary())


@dataclass(frozen=True, slots=True, eq=False)
class GroupEntries:
    """Entries that one instant puts into a file group, and keys that it removes from it.

    Parameters
    ----------
    keys : pyarrow.Array of string or binary
        Keys of the entries, ascending by bytes, each once.
    values : pyarrow.Array of binary, or a dictionary of binary
        A value for each key.
    removed : pyarrow.Array of string
        Keys whose entries are removed; none of them is among ``keys``.
    """

    keys: pa.Array = field(default_factory=lambda: _NO_KEYS)
    values: pa.Array = field(default_factory=lambda: _NO_VALUES)
    removed: pa.Array = field(default_factory=lambda: _NO_KEYS)

    @classmethod
    def of(cls, keys: pa.Array, values: pa.Array, removed: pa.Array = _NO_KEYS) -> GroupEntries:
        """Return entries in order; the keys may come in any order, each once."""
        order = pc.sort_indices(keys.cast(pa.binary()))
        return cls(keys.take(order), values.take(order), removed)

    def by_shard(self, shard_count: int) -> Iterator[tuple[int, GroupEntries]]:
        """Yield the shards that have entries, each with its entries."""
        if shard_count == 1:
            yield 0, self
            return
        shards = shards_of_keys(self.keys.cast(pa.string()), shard_count)
        removed_shards = shards_of_keys(self.removed.cast(pa.string()), shard_count)
        for shard in np.unique(np.concatenate([shards, removed_shards])).tolist():
            here, gone = (pa.array(numbers == shard) for numbers in (shards, removed_shards))
            keys, values = self.keys.filter(here), self.values.filter(here)
            yield shard, GroupEntries(keys, values, self.removed.filter(gone))

    def __len__(self) -> int:
        return len(self.keys) + len(self.removed)


def log_file_name(
    file_id: FileId, instant: InstantTime, write_token: str = DRIVER_TOKEN
) -> LogFileName:
    """Return the name of a log file of an instant."""
    assert write_token != _BIRTH_TOKEN, "the token of the log files that open file groups"
    return LogFileName(file_id, instant, _VERSION, write_token)


def base_file_name(
    file_id: FileId, instant: InstantTime, write_token: str = DRIVER_TOKEN
) -> BaseFileName:
    """Return the name of a base file of an instant."""
    return BaseFileName(file_id, write_token, instant, BASE_EXTENSION)


def is_first_base_file(name: BaseFileName | LogFileName) -> bool:
    """Return whether a commit may have opened a file group with a file."""
    return isinstance(name, BaseFileName) and name.write_token == TASK_TOKEN


def birth_file_name(file_id: FileId, instant: InstantTime) -> LogFileName:
    """Return the name of the log file that opens a file group."""
    return LogFileName(file_id, instant, _VERSION, _BIRTH_TOKEN)


@dataclass(frozen=True, slots=True)
class EntryEncoder:
    """Encodes the files of entries that an instant writes.

    Attributes
    ----------
    instant : InstantTime
        The instant.
    created_at_ms : int
        Time for the files, in milliseconds since 1970-01-01 UTC; 0 for an initialisation.
    has_value_types : bool
        Whether records have the field for them (``TableVersion.has_value_types``).
    """

    instant: InstantTime
    created_at_ms: int
    has_value_types: bool = True

    @classmethod
    def of(cls, config: TableConfig, instant: InstantTime) -> Self:
        """Return what encodes the files of an instant of a table, data table or metadata table."""
        zone = config.timeline_timezone
        at_ms = 0 if is_initial(instant) else instant_to_ms(instant, zone)
        return cls(instant, at_ms, config.rules.has_value_types)

    def base_file(self, partition: str, keys: pa.Array, values: pa.Array) -> bytes:
        """Encode the base file of a file group; the keys are in order."""
        return self.base_files(partition, keys, values, [0, len(keys)])[0]

    def base_files(
        self, partition: str, keys: pa.Array, values: pa.Array, bounds: Sequence[int]
    ) -> list[bytes]:
        """Encode the base files of file groups; the keys of each are in order.

        ``bounds`` has the first entry of each, and the number of entries.
        """
        values, schema_json = self._records(partition, values)
        at_ms = self.created_at_ms
        return encode_hfiles(keys, values, bounds, schema_json, created_at_ms=at_ms)

    def log_file(self, partition: str, entries: GroupEntries) -> bytes:
        """Encode the log file of a file group, whose entries are not empty."""
        from bucketlake.format.log_data import encode_hfile_block  # Readers write no block.

        assert len(entries), "a log file without content"
        blocks = []
        if len(entries.keys):
            records = self._records(partition, entries.values)
            times: dict[str, Any] = {"instant": self.instant, "created_at_ms": self.created_at_ms}
            blocks.append(encode_hfile_block(entries.keys, *records, **times))
        if len(entries.removed):
            deletes = Deletes.of_keys(entries.removed.cast(pa.string()), partition)
            blocks.append(encode_delete_block(deletes, instant=self.instant))
        return b"".join(blocks)

    def _records(self, partition: str, values: pa.Array) -> tuple[pa.Array, str]:
        """Return records as the table stores them, and their schema."""
        if not self.has_value_types:
            values = without_value_type_field(partition, values)
        return values, record_schema_json(has_value_types=self.has_value_types)


def put_log_file(
    storage: Storage,
    partition: str,
    name: LogFileName,
    entries: GroupEntries,
    encoder: EntryEncoder,
) -> WriteStat:
    """Write the log file of a file group; an existing file is replaced.

    Parameters
    ----------
    storage : Storage
        Storage of the metadata table.
    partition : str
        The partition of the metadata table.
    name : LogFileName
        The name of the file.
    entries : GroupEntries
        What the instant changes; not empty.
    encoder : EntryEncoder
        Of the instant that writes the file.

    Returns
    -------
    WriteStat
        The file, for the commit of the metadata table.
    """
    data = encoder.log_file(partition, entries)
    storage.put(file_path(partition, name.to_file_name()), data)
    return log_file_stat(name, partition, entries, len(data))


def log_file_stat(
    name: LogFileName, partition: str, entries: GroupEntries, size_bytes: int
) -> WriteStat:
    """Return what a commit of the metadata table says about a log file."""
    return WriteStat(
        file_id=name.file_id,
        path=file_path(partition, name.to_file_name()),
        partition_path=partition,
        previous_commit=name.instant,
        record_count=len(entries.keys),
        update_count=len(entries.keys),
        delete_count=len(entries.removed),
        file_size_bytes=size_bytes,
    )


def base_file_stat(name: BaseFileName, partition: str, count: int, size_bytes: int) -> WriteStat:
    """Return what a commit of the metadata table says about the first base file of a group."""
    return WriteStat(
        file_id=name.file_id,
        path=file_path(partition, name.to_file_name()),
        partition_path=partition,
        record_count=count,
        insert_count=count,
        file_size_bytes=size_bytes,
        opens_group=True,
    )


def open_file_group(
    storage: Storage, partition: str, file_id: FileId, instant: InstantTime
) -> None:
    """Write the log file that opens a file group; repeating it does no harm.

    Parameters
    ----------
    storage : Storage
        Storage of the metadata table.
    partition, file_id
        The file group.
    instant : InstantTime
        The instant that opens it.
    """
    name = birth_file_name(file_id, instant).to_file_name()
    storage.put(file_path(partition, name), encode_birth_block(instant))


def is_birth_log(name: BaseFileName | LogFileName) -> bool:
    """Return whether a file only opens a file group."""
    is_first = isinstance(name, LogFileName) and name.version == _VERSION
    return is_first and name.write_token == _BIRTH_TOKEN  # Hudi 1.2.0 uses the token again.
