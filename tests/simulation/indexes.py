"""Record-level indexes of simulated tables, and conversions of tables to dynamic buckets."""

from __future__ import annotations

import bucketlake as bl
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.index.setting import INDEXED_KINDS, TableIndex, setting_at
from bucketlake.metadata.record_index.definition_file import read_index_definitions
from bucketlake.services.metadata.rebuild import build_metadata_table
from bucketlake.services.rebucket.kind_conversion import ConversionReport, run_kind_conversion
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.locks import NO_LOCK, TableLock
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.timeline.table_properties import read_table_config, table_at
from bucketlake.write.target import Target

CONVERTED = bl.DynamicBucket(max_records=2, assigners=2)
"""The index of converted tables."""

LARGE_ROWS = 2
"""Rows of a large partition in a simulation: a batch has a few rows, and often one."""


def is_dynamic(index: TableIndex | None) -> bool:
    """Return whether a table is under dynamic buckets, from its creation or a conversion."""
    return isinstance(index, bl.DynamicBucket)


def index_in_force(storage: Storage) -> TableIndex | None:
    """Return the index kind of a table as of its completed commits."""
    stored = setting_at(storage, load_timeline(table_at(storage)))
    return None if stored is None else stored.index


def lacks_index(storage: Storage) -> bool:
    """Return whether writes to a table need a record-level index that it does not have.

    A conversion of a table with a global index may have died after it built a partitioned one.
    """
    index, config = index_in_force(storage), read_table_config(storage)
    if not isinstance(index, bl.RecordIndex | bl.DynamicBucket):
        return False
    name = MetadataPartition.RECORD_INDEX
    known = read_index_definitions(opened_table(storage, config)).get(name)
    is_right = known is not None and known.is_partitioned == index.partitioned
    return name not in config.metadata_partitions or not is_right


def build_index(table: OpenTable) -> None:
    """Build the record-level index of a table as its index kind needs it, or the usual one."""
    storage = table.storage
    index = index_in_force(storage)
    is_needed = isinstance(index, INDEXED_KINDS)
    if not is_needed and not read_table_config(storage).rules.has_partitioned_index:
        return  # A key may be in two partitions, and the index would be one for the table.
    build_metadata_table(
        table,
        [MetadataPartition.RECORD_INDEX],
        is_partitioned=not isinstance(index, INDEXED_KINDS) or index.partitioned,
    )


def convert(target: Target, *, lock: TableLock = NO_LOCK) -> ConversionReport:
    """Convert an opened table to dynamic buckets in this process."""
    table = table_at(target.storage, lock, target.table.clock.now_ms)
    return run_kind_conversion(table, CONVERTED)
