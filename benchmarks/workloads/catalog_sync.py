"""Syncs of a table of many partitions with a catalog in memory, which counts calls, or a metastore.

The partitions are names: the table below has no file, so the listing of a table is not measured.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Self, cast

import pyarrow as pa

from benchmarks.common.benchmark import Settings
from benchmarks.common.rows import DataSet
from benchmarks.common.usage import reset_high_water_mark, status_bytes
from benchmarks.systems.engine_free import EngineFree
from bucketlake.catalogs.catalog import Catalog
from bucketlake.catalogs.settings import SyncSettings
from bucketlake.catalogs.synchronize import TableSync
from bucketlake.catalogs.table_entries import TableFacts
from bucketlake.catalogs.table_sync import open_catalog, sync_facts
from bucketlake.read.snapshot import Snapshot
from tests.memory_catalog import MemoryCatalog

PARTITIONS = (100, 10_000, 150_000)
TOUCHED = 10
"""Partitions of a commit; half of them are new."""

DROPPED = 1000
"""Partitions that the last commit drops; half of all, if those are fewer."""

BATCH = 1000
_SCHEMA = pa.schema({"id": pa.string(), "v": pa.int64(), "day": pa.string()})
_SETTINGS = SyncSettings(database="sales")


class Commit(NamedTuple):
    """A completed commit, and the partitions that it wrote."""

    requested_at: str
    paths: tuple[str, ...]


@dataclass
class NamedPartitions:
    """A pinned table of which only partitions and commits are known; it is its own timeline."""

    paths: dict[str, None] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    storage: None = None

    @classmethod
    def of(cls, count: int) -> Self:
        """Return a table of so many partitions, in one commit."""
        made = cls()
        made.commit(_days(0, count))
        return made

    def commit(self, paths: Iterable[str]) -> None:
        """Add a commit that wrote partitions."""
        written = tuple(paths)
        self.paths.update(dict.fromkeys(written))
        self.commits.append(Commit(f"{20260101000000000 + len(self.commits)}", written))

    @property
    def timeline(self) -> NamedPartitions:
        """The commits."""
        return self

    def all_slices(self) -> list[Any]:
        """Return a slice of each partition."""
        return [SimpleNamespace(partition_path=path) for path in self.paths]

    def partition_slices(self, paths: Sequence[str]) -> list[Any]:
        """Return a slice of each of some partitions."""
        return [SimpleNamespace(partition_path=path) for path in paths if path in self.paths]

    def completed_commits(self) -> list[Commit]:
        """Return all commits."""
        return self.commits

    def completed(self, *_: object) -> list[Any]:
        """Return the instants that are no commits: there are none."""
        return []

    def completion_time(self, instant: str) -> str:
        """Return when a commit completed: no two overlap."""
        return instant

    def read_commits(self, _storage: None, commits: Iterable[Commit]) -> Iterator[tuple[Any, Any]]:
        """Yield what some commits wrote."""
        for each in commits:
            stats = dict.fromkeys(each.paths)
            yield each, SimpleNamespace(write_stats=stats, replaced_file_ids={})

    def sync(self, catalog: Catalog, name: str = "orders", lake: str = "/lake") -> TableSync:
        """Bring the entry of the table up to date."""
        facts = TableFacts(
            name=name,
            location=f"file:{lake}/{name}",
            is_merge_on_read=False,
            schema=_SCHEMA,
            comments={},
            partition_fields=("day",),
            formatted=(),
            extractor="HiveStylePartitionValueExtractor",
            last_commit=self.commits[-1].requested_at,
            last_completion=self.commits[-1].requested_at,
            spark_version=None,
            writer_version="1.2.0",
        )
        (done,) = sync_facts(cast(Snapshot, self), facts, catalog, _SETTINGS)
        return done


class CatalogSync(EngineFree):
    """Sync a table for the first time, without a new commit, after one, and after a restore."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(batch=BATCH)
        self._rows, self._address = settings["rows"], settings["metastore"]
        self._catalog: Catalog = MemoryCatalog()
        self._table, self._name, self._lake = NamedPartitions(), "", ""

    def first(self, _data: DataSet, folder: Path, partitions: str) -> None:
        """Make the entry with all partitions."""
        count = int(partitions) * self._rows // PARTITIONS[-1]
        is_real = bool(self._address)
        self._catalog = (
            open_catalog(self._address, BATCH) if is_real else MemoryCatalog(batch=BATCH)
        )
        self._name, self._lake = f"orders_{partitions}_{os.getpid()}_{time.time_ns()}", str(folder)
        self._table = NamedPartitions.of(count)
        done = self._sync()
        assert (done.action, done.added) == ("created", count)

    def nothing(self, _data: DataSet, _folder: Path, _partitions: str) -> None:
        """Sync where no commit followed."""
        assert self._sync().action == "unchanged"

    def commit(self, _data: DataSet, _folder: Path, _partitions: str) -> None:
        """Sync after a commit to few partitions."""
        count = len(self._table.paths)
        self._table.commit(_days(count - TOUCHED // 2, TOUCHED))
        assert self._sync().added == TOUCHED // 2

    def whole(self, _data: DataSet, _folder: Path, _partitions: str) -> None:
        """Compare all names, as after a restore: the last commit of the entry is gone."""
        last = self._table.commits.pop()
        for path in last.paths[TOUCHED // 2 :]:
            del self._table.paths[path]
        assert self._sync().dropped == TOUCHED // 2

    def drop(self, _data: DataSet, _folder: Path, _partitions: str) -> None:
        """Sync after a commit that dropped partitions."""
        gone = [*self._table.paths][: min(DROPPED, len(self._table.paths) // 2)]
        self._table.commit(gone)
        for path in gone:
            del self._table.paths[path]
        assert self._sync().dropped == len(gone)

    def _sync(self) -> TableSync:
        before = self._catalog.calls
        reset_high_water_mark(os.getpid())
        held = status_bytes(os.getpid(), "VmRSS")
        done = self._table.sync(self._catalog, self._name, self._lake)
        self.seen = {
            "calls": self._catalog.calls - before,
            "more_bytes": max(0, status_bytes(os.getpid(), "VmHWM") - held),
        }
        self._catalog.close()
        return done


def _days(start: int, count: int) -> Iterator[str]:
    first = date(1600, 1, 1)
    return (f"day={first + timedelta(days=number)}" for number in range(start, start + count))
