"""The systems that run statements: SQL by their own means, on the table that they have loaded."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import bucketlake as bl
from benchmarks.common import statements
from benchmarks.common.rows import DataSet
from benchmarks.systems.bucketlake import BucketLake
from benchmarks.systems.delta import DeltaMerge
from benchmarks.systems.hudi import Hudi, simple_bucket
from benchmarks.systems.spark import SparkSystem

CHANGES = "changes"


class _Statements(SparkSystem):
    """What the three have in common."""

    @abstractmethod
    def name_of(self, table: Path) -> str:
        """Return the table's name in a statement."""

    def run(self, statement: str) -> None:
        """Run a statement."""
        self.spark.sql(statement)

    def merge(self, data: DataSet, table: Path) -> None:
        """Update, delete and insert rows by a batch of changes."""
        self.spark.read.parquet(str(data.changes)).createOrReplaceTempView(CHANGES)
        self.run(statements.merge(self.name_of(table), CHANGES))

    def update(self, _data: DataSet, table: Path) -> None:
        """Update some rows of a partition."""
        self.run(statements.update(self.name_of(table)))

    def delete(self, _data: DataSet, table: Path) -> None:
        """Delete some rows of a partition."""
        self.run(statements.delete(self.name_of(table)))


class BucketLakeStatements(BucketLake, _Statements):
    """By `bl.sql`."""

    def name_of(self, table: Path) -> str:
        """Return the table's name in a statement."""
        return f"bucketlake.`{table}`"

    def run(self, statement: str) -> None:
        """Run a statement."""
        bl.sql(self.spark, statement)


class DeltaStatements(DeltaMerge, _Statements):
    """By Delta's SQL."""

    def name_of(self, table: Path) -> str:
        """Return the table's name in a statement."""
        return f"delta.`{table}`"


class HudiStatements(Hudi, _Statements):
    """By Hudi's SQL, on a table with the simple bucket index that is in the catalog."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings, simple_bucket(settings["buckets"]))

    def load(self, data: DataSet, table: Path) -> None:
        """Write the first rows; statements take the options of the index from the session."""
        super().load(data, table)
        self.prepare(data, table)
        for name, value in self._options.items():
            self.spark.conf.set(name, value)

    def name_of(self, table: Path) -> str:  # noqa: ARG002 -- the catalog knows it.
        """Return the table's name in a statement."""
        return self._table_name
