"""Table formats with a native library of their own, in one process without Spark.

Reading the Parquet files into Arrow is a part of a step, as it is for bucketlake without Spark.

- *deltalake*: partitioned by region, and the condition names the partition column too, so that only
  touched partitions are read. The update is conditional on the ordering column. zstd of the level
  that all contenders have.
- *lance*: its own file format and encoding, which has no codec to choose; no partitions. The update
  is conditional on the ordering column, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common.data import Checksum
from benchmarks.common.rows import KEY, ORDERING, PARTITION, DataSet
from benchmarks.systems.engine_free import EngineFree


class _Native(EngineFree, ABC):
    def observe(self, step: str, table: Path) -> dict[str, Any]:
        """Return the size of the data files, except after a read."""
        if step == "read":
            return {}
        kept = ("_delta_log", "_versions", "_transactions")
        files = (path for path in table.rglob("*") if path.is_file())
        return {
            "data_bytes": sum(
                path.stat().st_size for path in files if not set(kept) & set(path.parts)
            )
        }

    def read(self, _data: DataSet, table: Path) -> dict[str, int]:
        """Sum everything up."""
        found = Checksum()
        found.add(self.rows(table))
        return found.sums

    @abstractmethod
    def rows(self, table: Path) -> pa.Table:
        """Read the table."""


class DeltaLake(_Native):
    """Load by an append, upsert by MERGE, with the deltalake library."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(partition_by=PARTITION, compression=f"zstd level {settings['zstd_level']}")
        self._level = settings["zstd_level"]

    def _properties(self) -> Any:
        from deltalake import WriterProperties

        return WriterProperties(compression="ZSTD", compression_level=self._level)

    def load(self, data: DataSet, table: Path) -> None:
        """Append the first rows."""
        from deltalake import write_deltalake

        properties = self._properties()
        rows = pq.read_table(data.load)
        write_deltalake(table, rows, partition_by=[PARTITION], writer_properties=properties)

    def upsert(self, data: DataSet, table: Path) -> None:
        """Merge the changes."""
        from deltalake import DeltaTable

        merge = DeltaTable(table).merge(
            pq.read_table(data.changes),
            f"t.{PARTITION} = s.{PARTITION} AND t.{KEY} = s.{KEY}",
            source_alias="s",
            target_alias="t",
            writer_properties=self._properties(),
        )
        newer = f"s.{ORDERING} >= t.{ORDERING}"
        merge.when_matched_update_all(newer).when_not_matched_insert_all().execute()

    def rows(self, table: Path) -> pa.Table:
        """Read the table."""
        from deltalake import DeltaTable

        return DeltaTable(table).to_pyarrow_table()

    def facts(self) -> dict[str, Any]:
        """Return versions and settings."""
        import deltalake

        found = super().facts()
        return {**found, "versions": {**found["versions"], "deltalake": deltalake.__version__}}


class Lance(_Native):
    """Load by a write, upsert by merge_insert, with the lance library."""

    def load(self, data: DataSet, table: Path) -> None:
        """Write the first rows."""
        import lance

        lance.write_dataset(pq.read_table(data.load), str(table))

    def upsert(self, data: DataSet, table: Path) -> None:
        """Merge the changes."""
        import lance

        merge = lance.dataset(str(table)).merge_insert(KEY)
        newer = f"source.{ORDERING} >= target.{ORDERING}"
        merge.when_matched_update_all(newer).when_not_matched_insert_all()
        merge.execute(pq.read_table(data.changes))

    def rows(self, table: Path) -> pa.Table:
        """Read the table."""
        import lance

        return lance.dataset(str(table)).to_table()

    def facts(self) -> dict[str, Any]:
        """Return versions and settings."""
        import lance

        found = super().facts()
        return {**found, "versions": {**found["versions"], "lance": lance.__version__}}
