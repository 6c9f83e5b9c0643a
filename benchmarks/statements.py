"""MERGE, UPDATE and DELETE: the same three statements by bucketlake, Delta and Hudi."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from benchmarks.common.benchmark import Benchmark, Contender
from benchmarks.common.plot import BY_PROCESSOR, Chart, step_bars
from benchmarks.common.report import Aim, Aims, Page, ratios_table
from benchmarks.common.rows import KEY, ORDERING, PARTITION
from benchmarks.common.statements import DELETED, DELETED_FROM, UPDATED, UPDATED_FROM
from benchmarks.common.tables import Column, Table, columns, figure, median, ranked
from benchmarks.common.turn import Measured, Turn
from benchmarks.systems.bucketlake import contender
from benchmarks.systems.statements import BucketLakeStatements, DeltaStatements, HudiStatements

TITLES = {"merge": "MERGE", "update": "UPDATE", "delete": "DELETE"}
DEFAULT, DELTA, HUDI = "bucketlake-spark35", "delta", "hudi-bucket"
AIMS = {DEFAULT: [Aim(step, peer, 1) for step in TITLES for peer in (DELTA, HUDI)]}


def turn_of(turn: Turn) -> dict[str, Measured]:
    """Run the statements; the rows and the sum of pieces must be those that polars finds."""
    table = turn.fresh("orders")
    measured = {step: turn.step(step, table) for step in turn.steps}
    found = turn.step("read_few", table)["checksum"]
    expected = expected_sums(turn.data.load, turn.data.changes)
    if found != expected:
        turn.refuse(f"has a wrong table: found {found}, expected {expected}")
    return measured


@cache
def expected_sums(load: Path, changes: Path) -> dict[str, int]:
    """Return the number of rows and the sum of pieces after the three statements."""
    import polars as pl  # Here, because the contenders' processes may lack it.

    names = [KEY, PARTITION, ORDERING, "quantity"]
    stored = pl.read_parquet(load / "*.parquet", columns=names)
    given = pl.read_parquet(changes / "*.parquet", columns=names)
    by_key = [KEY, PARTITION]
    found = stored.join(given, on=by_key, how="left", suffix="_s")
    wins = (pl.col(f"{ORDERING}_s") >= pl.col(ORDERING)).fill_null(value=False)
    merged = found.filter(~(wins & (pl.col("quantity_s") == 1))).with_columns(
        quantity=pl.when(wins)
        .then(pl.col("quantity") + pl.col("quantity_s"))
        .otherwise(pl.col("quantity"))
    )
    rows = pl.concat([merged.select(names), given.join(stored, on=by_key, how="anti")])
    pieces = pl.col("quantity")
    is_updated = (pl.col(PARTITION) == UPDATED) & (pieces >= UPDATED_FROM)
    rows = rows.with_columns(quantity=pieces + is_updated.cast(pl.Int32))
    rows = rows.filter(~((pl.col(PARTITION) == DELETED) & (pieces >= DELETED_FROM)))
    return {"rows": len(rows), "quantity": int(rows["quantity"].sum())}


TIMES = Table(
    ranked("merge", DEFAULT),
    [
        *columns(TITLES, "*, s"),
        *columns(TITLES, "*, processor s", "cpu_seconds", median()),
        Column("load, s", figure("load", "seconds", median(2))),
    ],
    text="Median (minimum to maximum). *bucketlake* has dynamic buckets, its default, and a "
    "metadata table; *mor* is merge-on-read. *delta* writes deletion vectors; *hudi-bucket* has "
    "the simple bucket index.",
)

BENCHMARK = Benchmark(
    name="statements",
    description="MERGE with three clauses, UPDATE and DELETE: bucketlake beside Delta and Hudi.",
    contenders=(
        contender(DEFAULT, system=BucketLakeStatements),
        contender("bucketlake-spark4", system=BucketLakeStatements),
        contender("bucketlake-mor-spark4", table_type="merge_on_read", system=BucketLakeStatements),
        Contender(DELTA, DeltaStatements, spark35=True),
        Contender(HUDI, HudiStatements, spark35=True),
    ),
    steps=("load", *TITLES),
    turn=turn_of,
    defaults={"rows": 1_000_000, "rounds": 3, "warmup_rounds": 1},
    page=Page(
        title="Statements benchmark",
        text="Order-like rows (string key, 9 columns, zstd Parquet): after a first load, a MERGE "
        "with a batch of 20 % updates and 2 % inserts, of which the matched orders of one piece "
        "are deleted; then an UPDATE of some orders of one partition, and a DELETE of some of "
        "another. The statements are the same text for all, by `bl.sql`, Delta's and Hudi's SQL "
        "(`benchmarks/common/statements.py`). After every round each contender's table has shown "
        "the row count and the sum of pieces that polars finds.",
        image="Median seconds of MERGE, UPDATE and DELETE",
        head="{rows:,} rows, {partitions} partitions x {buckets} buckets, {rounds}",
        blocks=[TIMES, Aims(lambda _result: AIMS, TITLES), ratios_table(TITLES, "merge")],
        chart=Chart(
            "{millions} M rows: MERGE of {changes_k} k changes, UPDATE and DELETE of a part; "
            "{cores} cores, median of {round_count}",
            [
                *(step_bars(step, title) for step, title in TITLES.items()),
                step_bars("merge", "MERGE, processor time", field="cpu_seconds", unit=BY_PROCESSOR),
            ],
        ),
    ),
)
