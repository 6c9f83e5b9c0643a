"""Pruning by the record-level index: the file groups that hold one of the record keys.

Conditions that leave few record keys prune with both kinds of the index (Hudi prunes with a global
index only). A key without an entry is in no file group. The index is used only if it is complete:
the table's properties list it, and the metadata table has every commit of the pinned timeline. If
an entry points to a file group that is not live, the entry says nothing about its key, and the file
groups that may hold the key are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from bucketlake.config.table_config import TableConfig
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.index.kinds import IndexKind
from bucketlake.metadata.file_listing import listed_partitions
from bucketlake.metadata.record_index.locations import KeyLocations, RecordIndexReader
from bucketlake.model.file_name import Group
from bucketlake.model.file_slice import FileSlice
from bucketlake.read.snapshot import Snapshot

PARTITIONS_MAX = 256
"""Largest number of data partitions to look up keys in; for more, planning would take too long."""

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class RecordGroups:
    """The file groups to which the entries of some keys point, live or not.

    Attributes
    ----------
    groups : frozenset of (str, FileId)
        The file groups.
    is_partitioned : bool
        Whether a key has an entry for each data partition, not one for the table.
    """

    groups: frozenset[Group]
    is_partitioned: bool

    def slices(self, live: Sequence[FileSlice], among: Sequence[FileSlice]) -> list[FileSlice]:
        """Return the slices that may hold one of the keys.

        Parameters
        ----------
        live : sequence of FileSlice
            All live slices of the data partitions in which keys were looked up.
        among : sequence of FileSlice
            Those of them to choose from.
        """
        known = {file_slice.group for file_slice in live}
        partitions = {path for path, _ in known}
        lost = {path for path, _ in self.groups - known if path in partitions}
        if lost and not self.is_partitioned:
            lost = partitions
        return [
            file_slice
            for file_slice in among
            if file_slice.partition_path in lost or file_slice.group in self.groups
        ]


def groups_of_records(
    snapshot: Snapshot,
    index: IndexKind | None,
    keys: Sequence[str],
    partitions: Sequence[str] | None = None,
) -> tuple[RecordGroups | None, str | None]:
    """Look record keys up in the record-level index of a pinned table.

    Parameters
    ----------
    snapshot : Snapshot
        The pinned table.
    index : IndexKind or None
        The table's bucket index; None if it has none, or if it is not known.
    keys : sequence of str
        Record keys.
    partitions : sequence of str, optional
        Data partitions to look in; by default all. With a global index, file groups of all data
        partitions are returned.

    Returns
    -------
    (RecordGroups or None, str or None)
        The file groups, or why the index cannot be used.

    Raises
    ------
    MetadataTableError
        If the metadata table is damaged, or lacks a commit.
    """
    has_partitions = bool(snapshot.config.key_spec.partition_fields)

    def look_up(reader: RecordIndexReader) -> RecordGroups | None:
        is_partitioned = reader.shards.is_partitioned
        if index is not None and has_partitions and not is_partitioned:
            return None
        require_shards(snapshot, reader, partitions)
        found = reader.find_everywhere(pa.array(keys, pa.string()), partitions)
        groups = frozenset(group for located in found for group in _groups_of(located))
        return RecordGroups(groups, is_partitioned)

    found, reason = ask_record_index(snapshot, look_up, partitions)
    if found is None and reason is None:
        reason = "a global record-level index has each key once, a bucket index per partition"
    return found, reason


def ask_record_index(
    snapshot: Snapshot,
    ask: Callable[[RecordIndexReader], _Answer],
    partitions: Collection[str] | None = None,
) -> tuple[_Answer | None, str | None]:
    """Ask the record-level index of a pinned table; return None and why, if it cannot be used.

    With ``partitions``, only the entries of these data partitions are asked for.

    Raises
    ------
    MetadataTableError
        If the metadata table is damaged, or lacks a commit.
    """
    if not _has_index(snapshot.config):
        return None, "the table has no record-level index"
    if snapshot.timeline.until is not None:
        return None, "the record-level index has no earlier states"
    wanted = None if partitions is None else frozenset(partitions)
    found = snapshot.while_kept(
        _has_index, lambda: (ask(RecordIndexReader(snapshot.metadata_table, wanted)), None)
    )
    return (None, "the record-level index was turned off") if found is None else found


def require_shards(
    snapshot: Snapshot, reader: RecordIndexReader, partitions: Sequence[str] | None
) -> None:
    """Raise MetadataTableError if the index has no shards of a data partition with file groups."""
    if not reader.shards.is_partitioned:
        return
    asked = listed_partitions(reader.table) if partitions is None else partitions
    lacking = set(asked) - reader.shards.counts.keys()
    if lacking:
        live = snapshot.partition_slices(sorted(lacking))
        reader.require_shards(file_slice.partition_path for file_slice in live)


def _groups_of(located: KeyLocations) -> set[Group]:
    locations = (located.locations[code] for code in set(located.found.codes.tolist()))
    return {(location.partition_path, location.file_id) for location in locations}


def _has_index(config: TableConfig) -> bool:
    needed = {MetadataPartition.FILES, MetadataPartition.RECORD_INDEX}
    return config.populate_meta_fields and needed <= set(config.metadata_partitions)
