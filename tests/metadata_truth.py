"""Whether a metadata table says what its data table holds: the comparison for all tests.

What the table holds is found without the metadata table: files by listing storage, statistics by
reading each file, and locations of keys by reading all rows. A metadata table that is built again
has exactly that. A maintained one may say more, as far as the design allows it:

- Bounds of partitions may be wider than their files.
- Files of a clean that is not completed may be listed although they are deleted.
- In a merge-on-read table, and in one with an ordering column, the index keeps entries of deleted
  keys. They name live file groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from bucketlake.config.table_version import OLDEST_STATISTICS
from bucketlake.format.clean_metadata import decode_clean_plan
from bucketlake.format.metadata_record.bounds import without_value_types
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.format.metadata_record.record_schema import ColumnStats, decode_column_stats
from bucketlake.hashing.key_filter import shards_of_keys
from bucketlake.metadata import file_listing
from bucketlake.metadata.entry_reader import read_all
from bucketlake.metadata.metadata_table import MetadataTable, block_instants, open_metadata_table
from bucketlake.metadata.record_index.definition_file import statistics_version
from bucketlake.metadata.record_index.locations import RecordIndexReader
from bucketlake.metadata.statistics.merged import merge_layers, unite_statistics
from bucketlake.metadata.statistics.of_file import (
    column_stats_of,
    indexed_columns,
    statistics_of_file,
)
from bucketlake.model.file_name import LogFileName
from bucketlake.model.file_slice import DataFile
from bucketlake.model.schema import RECORD_KEY
from bucketlake.model.table_type import TableType
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.slices import file_system_view
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.instant import State
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config, table_at

FILES, COLUMN_STATS, PARTITION_STATS, RECORD_INDEX = MetadataPartition

Story = Callable[[str], str]
"""Adds to a finding what a reader needs to know about the run."""


def require_true_metadata(storage: Storage, story: Story = str) -> None:
    """Check all valid partitions of a metadata table against the table, if there are some."""
    valid = read_table_config(storage).metadata_partitions
    if FILES in valid:
        require_true_files(storage, story)
    if COLUMN_STATS in valid or PARTITION_STATS in valid:
        require_true_statistics(storage, story)
    if RECORD_INDEX in valid:
        require_true_index(storage, story)


# ---- The list of files --------------------------------------------------------------------------


def require_true_files(storage: Storage, story: Story = str) -> None:
    """Check that the metadata table lists the live files, and no file that storage has not."""
    listed, stored = listed_files(storage, story), stored_files(storage)
    too_much = listed.items() - stored.items()
    assert not too_much, story(f"the metadata table lists {too_much} too much")
    # A late task may bring a file back that was cleaned; it is in no live slice.
    live = [live_files(storage, lists_storage=by_storage) for by_storage in (True, False)]
    assert live[0] == live[1], story(f"the metadata table lacks {live[0] ^ live[1]}")


def listed_files(storage: Storage, story: Story = str) -> dict[str, int]:
    """The files of completed instants that the metadata table lists, with their sizes.

    It also lists copies of log files for a pending resize. All that it lists exists, unless a clean
    that is not completed has deleted it; such files are left out.
    """
    config = read_table_config(storage)
    timeline = load_timeline(opened_table(storage, config))
    listed = file_listing.listed_files(
        open_metadata_table(opened_table(storage, config), timeline), None
    )
    found = file_system_view.list_partitions(storage)
    there = {file.path for files in found.values() for file in files}
    gone = {file.path for file in listed} - there
    for clean in timeline.pending_cleans():
        path = timeline.path_of(replace(clean, state=State.REQUESTED))
        gone.difference_update(decode_clean_plan(storage.read(path), path).paths)
    assert not gone, story(f"the metadata table lists {gone}, which are gone")
    return {
        file.path: file.size_bytes
        for file in listed
        if file.path in there and timeline.is_completed(file.name.instant)
    }


def stored_files(storage: Storage) -> dict[str, int]:
    """The files of completed instants that storage holds, with their sizes."""
    timeline = load_timeline(table_at(storage))
    found = file_system_view.list_partitions(storage)
    return {
        file.path: file.size_bytes
        for files in found.values()
        for file in files
        if timeline.is_completed(file.name.instant)
    }


def live_files(storage: Storage, *, lists_storage: bool) -> set[str]:
    """The files of live slices, as listed by storage or by the metadata table."""
    snapshot = load_snapshot(table_at(storage), lists_storage=lists_storage)
    return {file.path for file in committed_files(snapshot)}


def committed_files(snapshot: Snapshot) -> list[DataFile]:
    """The files of live slices, without log files of version 6 whose write is not completed."""
    files = [file for held in snapshot.all_slices() for file in held.files]
    if not snapshot.timeline.layout.logs_name_slices:
        return files
    return [file for file in files if _is_committed(snapshot, file)]


def _is_committed(snapshot: Snapshot, file: DataFile) -> bool:
    if not isinstance(file.name, LogFileName):
        return True
    # A log file of Hudi names no writer. A write that it refused leaves one, until it is undone.
    writer = file.name.writer
    writers = block_instants(snapshot.storage, file) if writer is None else {writer}
    return any(map(snapshot.timeline.is_completed, writers))


# ---- Statistics ---------------------------------------------------------------------------------

Facts = dict[tuple[str, str], tuple[Any, ...]]
"""Minimum, maximum, number of rows and of nulls, and size, by file or partition, and column."""


def require_true_statistics(storage: Storage, story: Story = str) -> None:
    """Check that each live file has its statistics, and that those of partitions hold the files'.

    No file that the metadata table does not list has statistics.
    """
    config = read_table_config(storage)
    snapshot = load_snapshot(opened_table(storage, config), lists_storage=True)
    columns = None
    if snapshot.schema_or_none is not None:
        columns = indexed_columns(opened_table(storage, config), snapshot.schema)
    if columns is None:
        return
    by_partition: dict[str, list[ColumnStats]] = {}
    for file in committed_files(snapshot):
        held = file.name.to_file_name(), statistics_of_file(storage, file.path, columns)
        measured = column_stats_of([held])
        if statistics_version(opened_table(storage, config)) == OLDEST_STATISTICS:
            measured = without_value_types(measured)
        by_partition.setdefault(file.partition_path, []).append(measured)
    metadata = open_metadata_table(opened_table(storage, config), snapshot.timeline)
    if COLUMN_STATS in config.metadata_partitions:
        found = facts_of(statistics_in(metadata, COLUMN_STATS))
        for key, facts in facts_of(_joined(by_partition)).items():
            # NaN is not equal to itself, so texts are compared.
            assert repr(found.get(key)) == repr(facts), story(
                f"the statistics of {key} are {found.get(key)}, not {facts}"
            )
        names = {file.name.to_file_name() for file in file_listing.listed_files(metadata)}
        stale = {name for name, _ in found} - names
        assert not stale, story(f"there are statistics of {stale}, which are no files")
    if PARTITION_STATS in config.metadata_partitions:
        wider = facts_of(statistics_in(metadata, PARTITION_STATS))
        for path, parts in by_partition.items():
            for (_, column), facts in _united(parts).items():
                known = wider.get((path, column))
                assert known is not None, story(f"{column} of {path!r} has no statistics")
                assert _holds(known, facts), story(
                    f"statistics {known} of {column} in {path!r} are too tight for {facts}"
                )


def statistics_in(metadata: MetadataTable, partition: str) -> ColumnStats:
    """Return all statistics of a partition of a metadata table, a record for each key."""
    found = []
    for entries in read_all(metadata, partition):
        if len(entries.keys):
            _, stats = decode_column_stats(entries.values, entries.where)
            codes = entries.keys.dictionary_encode().indices.to_numpy().astype("int64")
            found.append(merge_layers(codes, stats, entries.where)[1])
    return ColumnStats.concat(found or [column_stats_of([])])


def facts_of(stats: ColumnStats) -> Facts:
    """Return the facts of each row."""
    bounds = []
    for wrapped in (stats.minima, stats.maxima):
        values: list[Any] = [None] * len(stats)
        for held, part in wrapped.parts.values():
            for row, value in zip(held.tolist(), part.to_pylist(), strict=True):
                values[row] = value
        bounds.append(values)
    counts = (stats.value_counts, stats.null_counts, stats.stored_bytes)
    columns = [*bounds, *(column.to_pylist() for column in counts)]
    keys = zip(stats.names.to_pylist(), stats.columns.to_pylist(), strict=True)
    return dict(zip(keys, zip(*columns, strict=True), strict=True))


def _joined(by_partition: dict[str, list[ColumnStats]]) -> ColumnStats:
    parts = [stats for held in by_partition.values() for stats in held]
    return ColumnStats.concat(parts or [column_stats_of([])])


def _united(parts: list[ColumnStats]) -> Facts:
    stats = ColumnStats.concat(parts)
    codes = stats.columns.dictionary_encode()
    places = codes.indices.to_numpy().astype("int64")
    return facts_of(unite_statistics(stats, places, len(codes.dictionary), "files"))


def _holds(wider: tuple[Any, ...], facts: tuple[Any, ...]) -> bool:
    low, high, count, nulls, _ = facts
    return (
        (low is None or wider[0] is None or _rank(wider[0]) <= _rank(low))
        and (high is None or wider[1] is None or _rank(wider[1]) >= _rank(high))
        and all(
            more is None or more >= least for more, least in ((wider[2], count), (wider[3], nulls))
        )
    )


def _rank(value: Any) -> tuple[bool, Any]:
    """Return the sort key of a value: NaN is greater than every number."""
    return (value != value, 0 if value != value else value)


# ---- The record-level index ---------------------------------------------------------------------


def require_true_index(storage: Storage, story: Story = str) -> None:
    """Check that each key has one entry, in its shard, with the file group that holds its row."""
    config = read_table_config(storage)
    snapshot = load_snapshot(opened_table(storage, config), lists_storage=True)
    stored, entries = stored_keys(snapshot), indexed_keys(snapshot, story)
    wrong = {
        key: (entries.get(key), held) for key, held in stored.items() if entries.get(key) != held
    }
    assert not wrong, story(f"entries and file groups of keys differ: {wrong}")
    dead = {key: entries[key] for key in entries.keys() - stored.keys()}
    if config.table_type is TableType.COPY_ON_WRITE and not config.ordering_fields:
        assert not dead, story(f"there are entries of deleted keys: {dead}")
    live = {(held.partition_path, held.file_id) for held in snapshot.all_slices()}
    lost = {key: held for key, held in dead.items() if (key[0], held) not in live}
    assert not lost, story(f"entries of deleted keys name file groups that are not live: {lost}")


def stored_keys(snapshot: Snapshot) -> dict[tuple[str, str], str]:
    """Return the file group of each row, by partition and key."""
    reader = SliceReader.of_snapshot(snapshot)
    found: dict[tuple[str, str], str] = {}
    for held in snapshot.all_slices():
        for chunk in reader.read(held, [RECORD_KEY]):
            for key in chunk[RECORD_KEY].to_pylist():
                found[held.partition_path, key] = held.file_id
    return found


def indexed_keys(snapshot: Snapshot, story: Story = str) -> dict[tuple[str, str], str]:
    """Return the file group of each entry of the index, by partition and key."""
    config = read_table_config(snapshot.storage)
    metadata = open_metadata_table(opened_table(snapshot.storage, config), snapshot.timeline)
    index = RecordIndexReader(metadata)
    found: dict[tuple[str, str], str] = {}
    for path, slices in index.slices.items():
        for number, held in enumerate(slices):
            located = index.read_slice(held)
            shards = shards_of_keys(located.keys, len(slices))
            assert (shards == number).all(), story(f"shard {held.file_id} has keys of others")
            for row in pa.table({"k": located.keys, "c": located.codes}).to_pylist():
                at = located.locations[row["c"]]
                assert path in (None, at.partition_path), story(f"{row} is in {held.file_id}")
                place = at.partition_path, row["k"]
                assert place not in found, story(f"{place} has two entries")
                found[place] = at.file_id
    return found
