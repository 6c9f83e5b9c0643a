"""Many new partitions, and MERGE beside an upsert of the same rows, with DataFrames on Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

import bucketlake as bl
from benchmarks.common.benchmark import Benchmark, Contender, Settings
from benchmarks.common.figures import Result
from benchmarks.common.report import Page
from benchmarks.common.rows import DataSet
from benchmarks.common.tables import listing
from benchmarks.common.turn import plain_work
from benchmarks.systems.bucketlake import BucketLake
from benchmarks.systems.delta import DeltaMerge
from benchmarks.systems.spark import SparkSystem

DEFAULT, SIMPLE, DELTA = "bucketlake-spark4", "bucketlake-simple-spark4", "delta"
GROUPS = (250, 1_000, 4_000)
ROWS = 100_000
STORED, CHANGED = 7.5, 2.5  # Times as many rows are stored, and changed by MERGE.
GROUP_STEPS = tuple(f"groups-{count}" for count in GROUPS)
UPSERT, MERGE, JOINED = "upsert_many", "merge_many", "merge_joined"
BUCKETS = 8  # Of the table that MERGE and upsert write to.


def orders_of(system: SparkSystem, rows: range, partitions: int) -> DataFrame:
    """Return rows with a key, a partition and a few values."""
    frame = system.spark.range(rows.start, rows.stop, 1, 2)
    return frame.selectExpr(
        "id", f"concat('p', id % {partitions}) AS part", "id % 977 AS n", "md5(string(id)) AS text"
    )


class _Timed:
    """The time of the work alone, without what prepares it."""

    timed: float | None = None

    def measure(self, work: Callable[[], object]) -> None:
        begun = time.perf_counter()
        work()
        self.timed = time.perf_counter() - begun

    def observe(self, _step: str, _table: Path) -> dict[str, Any]:
        """Return the time of the work."""
        timed, self.timed = self.timed, None
        return {} if timed is None else {"work_s": timed}


class OursOnSpark(_Timed, BucketLake):
    """bucketlake."""

    def __init__(self, settings: Settings, index: Any) -> None:
        super().__init__(settings, index, metadata_table=True)
        self._rows = settings["rows"]

    def _new(self, path: Path, rows: DataFrame) -> bl.Table:
        return bl.create_table(
            str(path),
            schema=rows,
            record_key=["id"],
            partition_by=["part"],
            index=self.index,
        )

    def groups(self, _data: DataSet, table: Path, count: str) -> None:
        """Write rows into so many new partitions."""
        rows = orders_of(self, range(self._rows), int(count))
        made = self._new(table.with_name(f"groups-{count}"), rows)
        self.measure(lambda: made.upsert(rows))

    def _loaded(self, table: Path) -> tuple[bl.Table, DataFrame]:
        stored, changed = int(STORED * self._rows), int(CHANGED * self._rows)
        rows = orders_of(self, range(stored), BUCKETS)
        made = self._new(table, rows)
        made.upsert(rows)
        first = stored - changed // 2  # Half of the batch is new.
        return made, orders_of(self, range(first, first + changed), BUCKETS)

    def upsert_many(self, _data: DataSet, table: Path) -> None:
        """Write the batch by an upsert."""
        made, batch = self._loaded(table.with_name("upserted"))
        self.measure(lambda: made.upsert(batch))

    def merge_many(self, _data: DataSet, table: Path) -> None:
        """Write the batch by a MERGE with a condition on the source."""
        self._merge(table.with_name("merged"), "s.n >= 0")

    def merge_joined(self, _data: DataSet, table: Path) -> None:
        """Write the batch by a MERGE with a condition on both sides."""
        self._merge(table.with_name("joined"), "s.n >= t.n")

    def _merge(self, table: Path, condition: str) -> None:
        made, batch = self._loaded(table)
        merge = made.merge(batch, "t.id = s.id AND t.part = s.part")
        merge = merge.when_matched_update_all(condition).when_not_matched_insert_all()
        self.measure(merge.execute)


class DeltaOnSpark(_Timed, DeltaMerge):
    """Delta's append."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._rows = settings["rows"]

    def groups(self, _data: DataSet, table: Path, count: str) -> None:
        """Write rows into so many new partitions."""
        rows = orders_of(self, range(self._rows), int(count))
        path = table.with_name(f"groups-{count}")
        writer = rows.write.format("delta").partitionBy("part")
        self.measure(lambda: writer.save(str(path)))


def _rows(result: Result) -> Iterator[list[str]]:
    rows = result.row_count
    names: Mapping[str, str] = {
        **{f"{rows:,} rows into {n:,} new partitions": f"groups-{n}" for n in GROUPS},
        f"upsert of {CHANGED * rows:,.0f} rows into {STORED * rows:,.0f}": UPSERT,
        "the same rows by MERGE with a condition on the source": MERGE,
        "the same rows by MERGE with a condition on both sides": JOINED,
    }
    for title, step in names.items():
        cells = []
        for contender in (DEFAULT, SIMPLE, DELTA):
            seconds = result.values(contender, step, "work_s")
            text = f"{result.median(contender, step, 'work_s'):.1f}" if seconds else "–"
            cells.append(text)
        yield [title, *cells]


def _table(result: Result) -> str:
    heads = ["<work, seconds", "bucketlake, default", "bucketlake, simple buckets", "Delta"]
    text = "Medians of the rounds. Delta appends, without a look at keys."
    return listing("", text, heads, _rows(result))


BENCHMARK = Benchmark(
    name="spark_dimensions",
    description="Many new partitions, and MERGE beside an upsert, on Spark, beside Delta.",
    contenders=[
        Contender(
            DEFAULT,
            lambda settings: OursOnSpark(settings, bl.DynamicBucket()),
            "bucketlake",
            steps=(*GROUP_STEPS, UPSERT, MERGE, JOINED),
        ),
        Contender(
            SIMPLE,
            lambda settings: OursOnSpark(settings, bl.SimpleBucket(1)),
            "bucketlake",
            steps=(*GROUP_STEPS, UPSERT, MERGE, JOINED),
        ),
        Contender(DELTA, DeltaOnSpark, spark35=True, steps=GROUP_STEPS),
    ],
    turn=plain_work,
    orders=False,
    defaults={"rows": ROWS, "rounds": 2, "warmup_rounds": 1},
    quick={"rows": 10_000, "rounds": 1, "warmup_rounds": 0},
    page=Page(
        title="Many partitions and MERGE on Spark",
        text="The rows of [other dimensions](dimensions.md) that need Spark: a batch into many new "
        "partitions, and a MERGE beside an upsert of the same rows.",
        head="{rounds}",
        blocks=[_table],
    ),
)
