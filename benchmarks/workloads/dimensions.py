"""One dimension at a time: partitions, buckets, commits, rows of a bucket, values, literals.

Each step makes what it needs and then measures the work alone: processor time and memory of the
process. Nothing runs on Spark.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import bucketlake as bl
from benchmarks.common.rows import DataSet
from benchmarks.common.usage import reset_high_water_mark, status_bytes
from benchmarks.systems.engine_free import EngineFree

DIMENSIONS: dict[str, tuple[str, tuple[int, int, int]]] = {
    "groups": ("100,000 rows into so many new partitions", (250, 1_000, 4_000)),
    "buckets": ("100,000 rows into so many buckets", (64, 256, 1_024)),
    "small": ("worst of 25 upserts of 25 rows, so many partitions", (64, 256, 1_024)),
    "changes": (
        "changes of 8 commits of 10 rows, table of so many rows",
        (20_000, 80_000, 320_000),
    ),
    "logs": ("changes of so many commits of 1,000 rows, merge-on-read", (6, 25, 100)),
    "update": ("half of one bucket of so many rows updated", (312_500, 1_250_000, 5_000_000)),
    "delete": ("half of one bucket of so many rows deleted", (312_500, 1_250_000, 5_000_000)),
    "vectors": ("so many rows of 768 floats", (4_000, 16_000, 64_000)),
    "texts": ("so many texts of 1 MB", (10, 40, 160)),
    "literals": ("id IN (so many) of 5 M rows, as text", (6_250, 25_000, 100_000)),
    "keys": ("so many keys of 5 M rows, as a table", (6_250, 25_000, 100_000)),
    "files": ("100,000 rows in so many Parquet files", (62, 250, 1_000)),
}
"""What each dimension is, and its sizes."""

ROWS = 100_000
STORED_ROWS = 5_000_000
LITERALS = "literals"


class Work(EngineFree):
    """Measures a piece of work in this process."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self._rng = np.random.default_rng(settings["seed"])
        self._scale = settings["rows"] / ROWS
        self._stored: tuple[Path, pa.Table] | None = None

    def measure(self, work: Callable[[], object]) -> None:
        """Run the work; tell its processor time, its time, and what it took of memory."""
        process = os.getpid()
        pa.default_memory_pool().release_unused()
        reset_high_water_mark(process)
        before, started, cpu = status_bytes(process, "VmRSS"), time.perf_counter(), _cpu()
        work()
        self.seen |= {"work_s": time.perf_counter() - started, "work_cpu_s": _cpu() - cpu}
        self.seen["work_bytes"] = max(0, status_bytes(process, "VmHWM") - before)

    def rows(self, count: int, partitions: int = 1) -> pa.Table:
        """Make rows: a key, a partition, a number and a text."""
        return pa.table(
            {
                "id": pa.array(np.arange(count)),
                "part": pa.array([f"p{n:05d}" for n in range(partitions)]).take(
                    pa.array(np.arange(count) % partitions)
                ),
                "price": pa.array(self._rng.random(count)),
                "note": pa.array(self._rng.integers(0, 2**40, count)).cast(pa.string()),
            }
        )

    def scaled(self, text: str) -> int:
        """Return a size, made smaller for a first try."""
        return max(1, int(int(text) * self._scale))

    def vectors_of(self, count: int) -> pa.Table:
        """Make rows with a key and 768 floats."""
        values = pa.array(self._rng.random(count * 768, dtype=np.float32))
        lists = pa.FixedSizeListArray.from_arrays(values, 768).cast(pa.list_(pa.float32()))
        return pa.table({"id": np.arange(count), "vector": lists})

    def texts_of(self, count: int) -> pa.Table:
        """Make rows with a key and a text of 1 MB."""
        texts = [self._rng.bytes(500_000).hex() for _ in range(count)]
        return pa.table({"id": np.arange(count), "note": texts})

    def folder_of(self, folder: Path, count: int) -> list[str]:
        """Write 100,000 rows as so many Parquet files."""
        rows, size = self.rows(ROWS), -(-ROWS // count)
        folder.mkdir(parents=True)
        for number in range(count):
            pq.write_table(rows.slice(number * size, size), folder / f"{number:05d}.parquet")
        return sorted(str(path) for path in folder.iterdir())

    def some_keys(self, count: int) -> np.ndarray:
        """Choose so many keys of the stored rows."""
        return self._rng.choice(self.scaled(str(STORED_ROWS)), count, replace=False)


class OursByDimension(Work):
    """Tables of bucketlake."""

    def __init__(self, settings: Mapping[str, Any], index: Any) -> None:
        super().__init__(settings)
        self._index = index

    def _new(self, table: Path, rows: pa.Table, **options: Any) -> bl.Table:
        partition_by = ["part"] if "part" in rows.column_names else []
        made = {"record_key": ["id"], "partition_by": partition_by, "index": self._index}
        return bl.create_table(str(table), schema=rows.schema, **{**made, **options})

    def _loaded(self, table: Path, rows: pa.Table, **options: Any) -> bl.Table:
        made = self._new(table, rows, **options)
        made.upsert(rows)
        return made

    def groups(self, _data: DataSet, table: Path, count: str) -> None:
        """Load into new partitions."""
        rows = self.rows(ROWS, self.scaled(count))
        made = self._new(table / f"groups{count}", rows)
        self.measure(lambda: made.upsert(rows))

    def buckets(self, _data: DataSet, table: Path, count: str) -> None:
        """Load into buckets of one partition."""
        rows = self.rows(ROWS)
        made = self._new(table / f"buckets{count}", rows, index=bl.SimpleBucket(self.scaled(count)))
        self.measure(lambda: made.upsert(rows))

    def small(self, _data: DataSet, table: Path, count: str) -> None:
        """Upsert little, often, into a table of many partitions."""
        rows = self.rows(ROWS, self.scaled(count))
        made, took = self._loaded(table / f"small{count}", rows), []
        for _ in range(25):
            batch = rows.take(pa.array(self._rng.choice(ROWS, 25, replace=False)))
            self.measure(partial(made.upsert, batch))
            took.append((self.seen["work_cpu_s"], self.seen["work_s"]))
        self.seen["work_cpu_s"], self.seen["work_s"] = max(took)
        self.seen["over_median"] = max(took)[0] / statistics.median(cpu for cpu, _ in took)

    def changes(self, _data: DataSet, table: Path, count: str) -> None:
        """Read the changes of few rows in a larger table."""
        self._changes(table / f"changes{count}", self.scaled(count), (8, 10), "copy_on_write")

    def logs(self, _data: DataSet, table: Path, count: str) -> None:
        """Read the changes of many commits to log files."""
        self._changes(table / f"logs{count}", ROWS, (self.scaled(count), 1_000), "merge_on_read")

    def _changes(self, table: Path, count: int, commits: tuple[int, int], table_type: str) -> None:
        rows = self.rows(count)
        made = self._new(table, rows, table_type=table_type, upkeep="off")
        since = made.upsert(rows).instant
        for _ in range(commits[0]):
            made.upsert(rows.take(pa.array(self._rng.choice(count, commits[1], replace=False))))
        self.measure(lambda: made.changes_to_arrow(since=since))

    def update(self, _data: DataSet, table: Path, count: str) -> None:
        """Update every second row of one bucket."""
        rows = self.rows(self.scaled(count))
        made = self._loaded(table / f"update{count}", rows, index=bl.SimpleBucket(1))
        batch = rows.filter(pc.equal(pc.bit_wise_and(rows["id"], 1), 0))
        self.measure(lambda: made.upsert(batch))

    def delete(self, _data: DataSet, table: Path, count: str) -> None:
        """Delete every second row of one bucket."""
        rows = self.rows(self.scaled(count))
        made = self._loaded(table / f"delete{count}", rows, index=bl.SimpleBucket(1))
        batch = rows.filter(pc.equal(pc.bit_wise_and(rows["id"], 1), 0)).select(["id", "part"])
        self.measure(lambda: made.delete(batch))

    def vectors(self, _data: DataSet, table: Path, count: str) -> None:
        """Load rows with vectors."""
        rows = self.vectors_of(self.scaled(count))
        made = self._new(table / f"vectors{count}", rows)
        self.measure(lambda: made.upsert(rows))

    def texts(self, _data: DataSet, table: Path, count: str) -> None:
        """Load rows with long texts."""
        rows = self.texts_of(self.scaled(count))
        made = self._new(table / f"texts{count}", rows)
        self.measure(lambda: made.upsert(rows))

    def literals(self, _data: DataSet, table: Path, count: str) -> None:
        """Read the rows of many keys, which the text of a condition names."""
        found, keys = self._stored_table(table), self.some_keys(self.scaled(count))
        text = f"id IN ({', '.join(map(str, keys))})"
        self.measure(lambda: found.to_arrow(where=text, columns=["price"]))

    def keys(self, _data: DataSet, table: Path, count: str) -> None:
        """Read the rows of many keys, which a table names."""
        found, keys = self._stored_table(table), self.some_keys(self.scaled(count))
        wanted = pa.table({"id": keys})
        self.measure(lambda: found.to_arrow(keys=wanted, columns=["price"]))

    def _stored_table(self, table: Path) -> bl.Table:
        path = table / "stored"
        if not path.exists():
            self._loaded(path, self.rows(self.scaled(str(STORED_ROWS))), index=bl.SimpleBucket(4))
        return bl.open_table(str(path))

    def files(self, _data: DataSet, table: Path, count: str) -> None:
        """Load files."""
        paths = self.folder_of(table / f"landing{count}", self.scaled(count))
        made = self._new(table / f"files{count}", self.rows(1))
        self.measure(lambda: made.upsert(bl.files(paths)))


class DeltaByDimension(Work):
    """Tables of deltalake."""

    def _merge(self, table: Path, batch: pa.Table) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(table).merge(batch, "t.id = s.id", source_alias="s", target_alias="t")

    def _write(self, table: Path, rows: pa.Table, **options: Any) -> None:
        from deltalake import write_deltalake

        write_deltalake(table, rows, **options)

    def _upsert(self, table: Path, batch: pa.Table) -> None:
        (
            self._merge(table, batch)
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        )

    def groups(self, _data: DataSet, table: Path, count: str) -> None:
        """Load into new partitions."""
        rows = self.rows(ROWS, self.scaled(count))
        path = table / f"groups{count}"
        self.measure(lambda: self._write(path, rows, partition_by=["part"]))

    def small(self, _data: DataSet, table: Path, count: str) -> None:
        """Upsert little, often, into a table of many partitions."""
        rows, path = self.rows(ROWS, self.scaled(count)), table / f"small{count}"
        self._write(path, rows, partition_by=["part"])
        took = []
        for _ in range(25):
            batch = rows.take(pa.array(self._rng.choice(ROWS, 25, replace=False)))
            self.measure(partial(self._upsert, path, batch))
            took.append((self.seen["work_cpu_s"], self.seen["work_s"]))
        self.seen["work_cpu_s"], self.seen["work_s"] = max(took)
        self.seen["over_median"] = max(took)[0] / statistics.median(cpu for cpu, _ in took)

    def changes(self, _data: DataSet, table: Path, count: str) -> None:
        """Read the changes of few rows in a larger table."""
        self._changes(table / f"changes{count}", self.scaled(count), 8, 10)

    def logs(self, _data: DataSet, table: Path, count: str) -> None:
        """Read the changes of many commits."""
        self._changes(table / f"logs{count}", ROWS, self.scaled(count), 1_000)

    def _changes(self, path: Path, count: int, commits: int, size: int) -> None:
        from deltalake import DeltaTable

        rows = self.rows(count)
        self._write(path, rows, configuration={"delta.enableChangeDataFeed": "true"})
        for _ in range(commits):
            self._upsert(path, rows.take(pa.array(self._rng.choice(count, size, replace=False))))
        self.measure(lambda: pa.table(DeltaTable(path).load_cdf(starting_version=1).read_all()))

    def update(self, _data: DataSet, table: Path, count: str) -> None:
        """Update every second row."""
        rows, path = self.rows(self.scaled(count)), table / f"update{count}"
        self._write(path, rows)
        batch = rows.filter(pc.equal(pc.bit_wise_and(rows["id"], 1), 0))
        self.measure(lambda: self._upsert(path, batch))

    def delete(self, _data: DataSet, table: Path, count: str) -> None:
        """Delete every second row."""
        rows, path = self.rows(self.scaled(count)), table / f"delete{count}"
        self._write(path, rows)
        batch = rows.filter(pc.equal(pc.bit_wise_and(rows["id"], 1), 0)).select(["id"])
        self.measure(lambda: self._merge(path, batch).when_matched_delete().execute())

    def vectors(self, _data: DataSet, table: Path, count: str) -> None:
        """Load rows with vectors."""
        rows = self.vectors_of(self.scaled(count))
        self.measure(lambda: self._write(table / f"vectors{count}", rows))

    def texts(self, _data: DataSet, table: Path, count: str) -> None:
        """Load rows with long texts."""
        rows = self.texts_of(self.scaled(count))
        self.measure(lambda: self._write(table / f"texts{count}", rows))

    def files(self, _data: DataSet, table: Path, count: str) -> None:
        """Load files."""
        paths = self.folder_of(table / f"landing{count}", self.scaled(count))
        path = table / f"files{count}"
        self.measure(lambda: self._write(path, ds.dataset(paths).to_table()))


class ArrowByDimension(Work):
    """Plain Parquet files of PyArrow."""

    def groups(self, _data: DataSet, table: Path, count: str) -> None:
        """Write partitions."""
        rows, path = self.rows(ROWS, self.scaled(count)), table / f"groups{count}"
        most = self.scaled(count) + 1

        def write() -> None:
            ds.write_dataset(
                rows,
                path,
                format="parquet",
                partitioning=["part"],
                partitioning_flavor="hive",
                max_partitions=most,
                max_open_files=1_024,
            )

        self.measure(write)

    def literals(self, _data: DataSet, table: Path, count: str) -> None:
        """Read the rows of many keys."""
        path, rows = table / "stored", self.scaled(str(STORED_ROWS))
        if not path.exists():
            path.mkdir(parents=True)
            each = -(-rows // 4)
            for number in range(4):  # As many files as the table of bucketlake has.
                piece = self.rows(rows).slice(number * each, each)
                pq.write_table(piece, path / f"{number}.parquet", compression="zstd")
        keys = pa.array(self.some_keys(self.scaled(count)))
        wanted = ds.field("id").isin(keys)
        self.measure(lambda: ds.dataset(path).to_table(columns=["price"], filter=wanted))

    keys = literals

    def files(self, _data: DataSet, table: Path, count: str) -> None:
        """Read files and write one."""
        paths = self.folder_of(table / f"landing{count}", self.scaled(count))
        path = table / f"files{count}.parquet"
        self.measure(lambda: pq.write_table(ds.dataset(paths).to_table(), path))


def _cpu() -> float:
    times = os.times()
    return times.user + times.system
