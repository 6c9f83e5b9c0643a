"""A table opened for one write: checked to be writable, settled, and pinned."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from bucketlake.actions.recovery import settle_failed_writes
from bucketlake.actions.tombstone_list import tombstone_files
from bucketlake.config.merge_entries import DeleteMarker
from bucketlake.config.support import check_writable
from bucketlake.config.table_config import TableConfig
from bucketlake.flow.stage import Engine
from bucketlake.flow.threads import HERE
from bucketlake.index.layout import Layout
from bucketlake.index.record_layout import located
from bucketlake.index.setting import (
    TableIndex,
    is_stored,
    require_index,
    require_known_index,
    store_index,
)
from bucketlake.index.stored_setting import StoredSetting, read_stored
from bucketlake.merge.group_merge import MergeRule
from bucketlake.metadata.record_index.pinned_index import PinnedIndex, pinned_index
from bucketlake.model.field_path import fields_at
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.table_type import DuplicatePolicy, LogFormat, Operation, TableType
from bucketlake.read.handle import Handle
from bucketlake.read.snapshot import Snapshot, load_snapshot, with_stored_spelling
from bucketlake.storage.base import Storage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.open_table import OpenTable
from bucketlake.write.adopt import require_matching_index
from bucketlake.write.tag import Tagger
from bucketlake.write.tombstones import Tombstones

if TYPE_CHECKING:  # Only dynamic buckets have a cache.
    from bucketlake.metadata.location_cache.cache import LocationCache


@dataclass(frozen=True, slots=True)
class Target:
    """A table opened for one write: checked to be writable, settled, and pinned.

    Attributes
    ----------
    snapshot : Snapshot
        The table as pinned for the write.
    index : TableIndex
        How records find their file group.
    stored : StoredSetting or None
        The index setting that the table stores; None before the first write of bucketlake.
    adopts : bool
        Whether the table does not say its index, so that ``index`` is what the caller states.
    log_format : LogFormat
        The block type of records in log files.
    job_marker : (field, text) or None
        The delete marker of a job, for a table that stores none.
    engine : Engine
        Rewrites slices of the metadata table on an engine.
    refuses_repeats : bool
        Whether two records of the write with one key are an error.
    duplicates : DuplicatePolicy or None
        What an insert does with records whose key is stored; None to update the stored record.
    cache : LocationCache or None
        The cache in which tasks look keys up.
    """

    snapshot: Snapshot
    index: TableIndex
    stored: StoredSetting | None
    adopts: bool = False
    log_format: LogFormat = LogFormat.PARQUET
    engine: Engine = HERE
    job_marker: DeleteMarker | None = None
    refuses_repeats: bool = False
    duplicates: DuplicatePolicy | None = None
    cache: LocationCache | None = None

    @property
    def table(self) -> OpenTable:
        """The table, with its clock and its lock."""
        return self.snapshot.table

    @property
    def storage(self) -> Storage:
        """The table's storage."""
        return self.snapshot.storage

    @property
    def config(self) -> TableConfig:
        """The table's properties."""
        return self.snapshot.config

    @property
    def marker(self) -> DeleteMarker | None:
        """The column and the text in it that make a row of the write a delete."""
        return self.config.custom_marker or self.job_marker

    @property
    def layout(self) -> Layout:
        """The layout of the index at the pinned state of the table."""
        return self.index.layout()

    @property
    def appends(self) -> bool:
        """Whether existing file groups get log files instead of new base files."""
        return self.config.table_type is TableType.MERGE_ON_READ

    def pinned_index(self, partitions: Collection[str]) -> PinnedIndex:
        """Open the record-level index in which the write finds its keys.

        Raises
        ------
        IndexMissingError
            If the table has no such index.
        """
        layout = located(self.layout)
        return pinned_index(
            self.storage,
            self.snapshot.timeline,
            partitions,
            partitioned=layout.partitioned,
            shard_count=layout.new_shards.of_small,
        )

    def merge_rule(self, operation: Operation) -> MergeRule:
        """Return the rule by which records of an operation win over stored records."""
        config = self.config
        # A delete by key has no ordering value, so it removes every older record with the key.
        always = operation is Operation.DELETE
        return MergeRule(config.merge_mode, config.ordering_fields, always)

    def tombstones(
        self, schema: pa.Schema, operation: Operation, *, meets: bool = True
    ) -> Tombstones | None:
        """Return the deletes that the records of a write meet; None if the table remembers none.

        Parameters
        ----------
        schema : pa.Schema
            The table's schema after the write.
        operation : Operation
            Operation of the write.
        meets : bool
            Whether late records stay out. If not, the deletes among the records are remembered all
            the same.
        """
        config = self.config
        if not (operation.orders_records and config.keep_deletes_ms):
            return None
        return Tombstones(
            self.storage,
            tombstone_files(self.table, self.snapshot.timeline),
            fields_at(schema, config.ordering_fields),
            self.marker,
            groups=fields_at(schema, sorted({*config.ordering_groups.values()})),
            has_global_keys=self.index.has_global_keys,
            meets=meets,
        )

    def tagger(self, schema: pa.Schema, tombstones: Tombstones | None = None) -> Tagger:
        """Return the tagger for records of a schema, which meet the deletes first."""
        return Tagger(self.config.key_spec, self.layout.unpinned, schema, tombstones)


def open_target(
    table: OpenTable,
    index: TableIndex | None,
    log_format: LogFormat = LogFormat.PARQUET,
    engine: Engine = HERE,
    job_marker: DeleteMarker | None = None,
) -> Target:
    """Open a table for a write: check that it can be written, settle failed writes, pin it.

    Raises
    ------
    UnsupportedFeatureError
        If the table has a feature that a writer must support and bucketlake does not.
    ConfigError, IndexStateError
        If the index is unknown, or differs from the table's index.
    """
    check_writable(table.config, table.storage.root)
    found = load_timeline(table)
    stored = read_stored(table.storage)
    known = require_index(table, found, index, stored)
    require_known_index(known, table.config.version, table.storage.root)
    known.check_hash_fields(table.config.key_spec.record_key_fields)
    timeline = settle_failed_writes(table, found)
    if timeline is not found:  # A rescale or a conversion may have been finished or undone.
        stored = read_stored(table.storage)
        known = require_index(table, timeline, index, stored)
    pinned = with_stored_spelling(load_snapshot(table, timeline))
    adopts = not is_stored(table.storage, timeline, stored)
    target = Target(pinned, known, stored, adopts, log_format, engine, job_marker)
    return replace(target, cache=_cache_of(table.storage)) if known.growing else target


def _cache_of(storage: Storage) -> LocationCache | None:
    """Return the cache of hosts as it was chosen; None for a table in the memory of this process.

    Such a table is in memory already, and its path names another table in another process.
    """
    if isinstance(storage, MemoryStorage):
        return None
    from bucketlake.metadata.location_cache.cache import chosen_cache

    return chosen_cache()


def target_of(handle: Handle, table: OpenTable, engine: Engine) -> Target:
    """Open the table of a handle for a write; see :func:`open_target`."""
    return open_target(table, handle.index, handle.log_format, engine, handle.job_marker)


def adopt_index(target: Target, slices: Sequence[FileSlice]) -> None:
    """Store the index setting of a table that has none, after checking it against the files."""
    if target.adopts:
        partitions = {file_slice.partition_path for file_slice in slices}
        if target.layout.locates:
            target.pinned_index(partitions)  # Raises an error if the table has no such index.
        else:
            target.layout.pinned(partitions, creates=False)
        require_matching_index(target.storage, slices, target.layout)
        store_index(target.storage, target.index)
