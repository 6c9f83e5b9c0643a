"""A merge-on-read table under the partitioned index, at one size after another, without Spark.

Each size is a new table with random hexadecimal keys in eight partitions, and rows of a few bytes:
what is measured of the index does not depend on other columns.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import bucketlake as bl
from benchmarks.common.rows import KEY, ORDERING, PARTITION, REGIONS, DataSet
from benchmarks.systems.engine_free import EngineFree
from benchmarks.systems.order_tables import create, index_files
from benchmarks.workloads.keys import HEX, key_rows
from bucketlake.metadata.record_index.locations import NOT_FOUND, RecordIndexReader
from bucketlake.read.snapshot import load_snapshot
from bucketlake.storage.location import open_storage
from bucketlake.timeline.table_properties import table_at

PARTITIONS = 8
LOOKED_UP, LOCATED = 10_000, 20
"""How many keys the steps `lookup` and `locate` find."""


class IndexGrowth(EngineFree):
    """Steps with a table of so many keys."""

    def __init__(self) -> None:
        super().__init__(
            keys="random, 20 hexadecimal digits", partitions=PARTITIONS, table_type="merge_on_read"
        )
        self._stored = pa.table({})  # Some rows of the table, of all partitions.

    def load(self, data: DataSet, table: Path, keys: str) -> None:
        """Write the rows, a partition at a time."""
        count = int(keys) // PARTITIONS
        rng = np.random.default_rng([data.facts["seed"], count])
        created: bl.Table | None = None
        samples = []
        for region in REGIONS[:PARTITIONS]:
            rows = key_rows(HEX, count, region, rng)
            samples.append(rows.take(pa.array(rng.integers(0, count, LOOKED_UP // PARTITIONS))))
            created = created or create(table, rows.schema, bl.RecordIndex(), "merge_on_read")
            created.bulk_insert(rows)
        self._stored = pa.concat_tables(samples)

    def build(self, _data: DataSet, table: Path) -> None:
        """Build the index again."""
        bl.open_table(str(table)).rebuild_metadata_table(["record_index"])
        self.seen = index_files(table)

    def lookup(self, _data: DataSet, table: Path) -> None:
        """Look up keys of all partitions in the index, opening it anew."""
        reader = open_index(table)
        rows = self._stored
        for region in REGIONS[:PARTITIONS]:
            own = rows.filter(pc.equal(rows[PARTITION], region))[KEY].combine_chunks()
            (found,) = reader.find_everywhere(own, [region])
            assert (found.codes != NOT_FOUND).all(), "all keys are stored"

    def locate(self, _data: DataSet, table: Path) -> None:
        """Locate some keys, one after the other, opening the table anew for each."""
        rows = self._stored.slice(0, LOCATED)
        for key, region in zip(rows[KEY].to_pylist(), rows[PARTITION].to_pylist(), strict=True):
            assert len(bl.open_table(str(table)).locate(key, region)) == 1

    def upsert_row(self, _data: DataSet, table: Path) -> None:
        """Update a row whose key is stored."""
        _upsert(self._stored.slice(0, 1), table)

    def insert_row(self, _data: DataSet, table: Path) -> None:
        """Insert a row by an upsert."""
        keys = pa.array([f"new-{time.time_ns()}"])
        _upsert(self._stored.slice(0, 1).set_column(0, KEY, keys), table)


def open_index(table: Path) -> RecordIndexReader:
    """Open the record-level index of a table."""
    storage = open_storage(str(table))
    return RecordIndexReader(load_snapshot(table_at(storage)).metadata_table)


def _upsert(row: pa.Table, table: Path) -> None:
    later = pa.array([int(time.time() * 1000)])
    written = row.set_column(row.schema.get_field_index(ORDERING), ORDERING, later)
    bl.open_table(str(table)).upsert(written)
