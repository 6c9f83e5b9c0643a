"""Upserts into partitions with remembered deletes, and how these deletes grow. Without Spark."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bucketlake as bl
from benchmarks.common.rows import DataSet
from benchmarks.workloads.dimensions import Work
from bucketlake.config.paths_of_table import TOMBSTONE_FOLDER

STORED_ROWS = 2_000_000
REMEMBERED = (0, 10_000, 1_000_000)
BATCHES, BATCH_ROWS = 5, 100_000
PARTITIONS = 8
DAYS = (1, 4, 7)
COMMITS_A_DAY, DELETES_A_COMMIT = 24, 5_000


class Tombstones(Work):
    """Tables with an ordering column; the deletes are of keys that the tables do not have."""

    def __init__(self, settings: Mapping[str, Any], index: Any) -> None:
        super().__init__({**settings, "rows": settings["rows"] / 20})
        self._index = index

    def upsert(self, _data: DataSet, table: Path, count: str) -> None:
        """Upsert half updates and half new rows, of all partitions, beside so many deletes."""
        stored, deletes = self.scaled(str(STORED_ROWS)), self.scaled(count) if int(count) else 0
        made = self._made(table / f"upsert{count}")
        made.upsert(self._rows(np.arange(stored)))
        if deletes:
            gone = self._rows(np.arange(4 * stored, 4 * stored + deletes))
            made.upsert(gone.append_column("_hoodie_is_deleted", [np.ones(deletes, np.bool_)]))
        took, size = [], self.scaled(str(BATCH_ROWS))
        for number in range(BATCHES):
            new = np.arange(stored + number * size, stored + number * size + size // 2)
            keys = [self._rng.choice(stored, size - len(new), replace=False), new]
            rows = self._rows(np.concatenate(keys), at=number + 1)
            self.measure(partial(made.upsert, rows))
            took.append((self.seen["work_cpu_s"], self.seen["work_s"]))
        self.seen["work_cpu_s"], self.seen["work_s"] = map(
            statistics.median, zip(*took, strict=True)
        )
        _, held = _kept(made)
        self.seen["bytes_each"] = held / deletes if deletes else 0.0

    def growth(self, _data: DataSet, table: Path, days: str) -> None:
        """Delete some keys every hour, for so many days."""
        made, size = self._made(table / f"growth{days}"), self.scaled(str(DELETES_A_COMMIT))
        for number in range(int(days) * COMMITS_A_DAY):
            rows = self._rows(np.arange(number * size, (number + 1) * size))
            rows = rows.append_column("_hoodie_is_deleted", [np.ones(size, np.bool_)])
            self.measure(partial(made.upsert, rows))
        files, held = _kept(made)
        self.seen |= {"files": files, "kept_bytes": held}

    def _made(self, path: Path) -> bl.Table:
        return bl.create_table(
            str(path),
            schema=self._rows(np.arange(0)).schema,
            record_key="id",
            partition_by="part",
            ordering="at",
            index=self._index,
            upkeep="auto",
        )

    def _rows(self, keys: Any, at: int = 0) -> pa.Table:
        """Make rows of some keys."""
        parts = np.array([f"p{number}" for number in range(PARTITIONS)])
        return pa.table(
            {
                "id": pa.array(keys).cast(pa.string()),
                "part": parts[keys % PARTITIONS],
                "at": np.full(len(keys), at),
                "price": self._rng.random(len(keys)),
            }
        )


def _kept(table: bl.Table) -> tuple[int, int]:
    """Return number and bytes of the files of remembered deletes that the newest commit names."""
    from bucketlake.actions.tombstone_list import tombstone_files
    from bucketlake.timeline.active import load_timeline
    from bucketlake.timeline.table_properties import table_at

    opened = table_at(bl.table.handle_of(table).storage)
    names = [file.name for file in tombstone_files(opened, load_timeline(opened))]
    paths = [Path(table.path, TOMBSTONE_FOLDER, name) for name in names]
    return len(paths), sum(path.stat().st_size for path in paths)
