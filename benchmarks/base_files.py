"""How many rows a second go into and out of a base file, on one core, in how many bytes?"""

from __future__ import annotations

from benchmarks.common.benchmark import Benchmark, Contender, Option, count
from benchmarks.common.figures import Result
from benchmarks.common.report import Page
from benchmarks.common.tables import Column, Row, Table
from benchmarks.common.turn import plain_work
from benchmarks.workloads.base_file_layouts import BaseFileLayouts

LAYOUTS = {
    "bucketlake": "bucketlake",
    "snappy": "… with snappy",
    "zstd_3": "… with zstd 3",
    "no_deltas": "… without deltas",
    "dictionaries": "… with dictionaries everywhere, no deltas",
    "defaults": "PyArrow's defaults (snappy)",
}
STEPS = tuple(f"{step}-{layout}" for layout in LAYOUTS for step in ("write", "read"))


def _column(title: str, step: str, field: str, unit: str) -> Column:
    def tell(result: Result, row: Row) -> str:
        return f"{result.median(row.contender, f'{step}-{row.step}', field) / 1e6:.2f} {unit}"

    return Column(title, tell)


BENCHMARK = Benchmark(
    name="base_files",
    description="Rows written to and read from a base file a second, on one core, by layout.",
    contenders=[Contender("base-files", BaseFileLayouts, steps=STEPS, once=True)],
    turn=plain_work,
    orders=False,
    options=[Option("--repeats", count, 5, "measurements of each rate")],
    defaults={"rows": 500_000, "rounds": 1},
    page=Page(
        title="Benchmark of base files",
        text="Order-like rows written to and read from a base file, on one core, by the processor "
        "time of the thread.",
        head="{rows:,} rows",
        blocks=[
            Table(
                lambda _: [Row("base-files", layout, title) for layout, title in LAYOUTS.items()],
                [
                    _column("rows written a second", "write", "rate", "M"),
                    _column("rows read a second", "read", "rate", "M"),
                    _column("size", "write", "bytes", "MB"),
                ],
                head="layout",
            )
        ],
    ),
)
