"""How many rows a second go into and out of a base file, on one core, in how many bytes?

PyArrow's own settings are beside bucketlake's, and bucketlake's with single choices undone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.common.benchmark import REPEATS, Benchmark, Contender
from benchmarks.common.figures import Result
from benchmarks.common.report import Page
from benchmarks.common.rows import DataSet
from benchmarks.common.tables import Column, Row, Table
from benchmarks.common.turn import plain_work
from benchmarks.systems.engine_free import EngineFree, rates
from bucketlake.format.base_file import BaseFileReader, encode_base_file
from bucketlake.format.parquet_layout import ROW_GROUP_ROWS_MAX, choose_layout
from bucketlake.model.file_name import InstantTime
from bucketlake.model.schema import META_NAMES, normalise_schema
from bucketlake.storage.memory import MemoryStorage

LAYOUTS = {
    "bucketlake": "bucketlake",
    "snappy": "… with snappy",
    "zstd_3": "… with zstd 3",
    "no_deltas": "… without deltas",
    "dictionaries": "… with dictionaries everywhere, no deltas",
    "defaults": "PyArrow's defaults (snappy)",
}
STEPS = tuple(f"{step}-{layout}" for layout in LAYOUTS for step in ("write", "read"))
CHUNK_ROWS = 131_072
INSTANT = InstantTime("20260101000000000")

Encode = Callable[[pa.Table], bytes]


class BaseFileLayouts(EngineFree):
    """Write and read the same rows in a layout."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        pa.set_cpu_count(1)
        pa.set_io_thread_count(1)
        self._count, self._repeats = settings["rows"], settings["repeats"]
        super().__init__(rows=f"{self._count}, key of 20 characters, ten columns, meta columns")
        self._rows = make_rows(self._count, np.random.default_rng(settings["seed"]))
        self._layouts = _layouts(self._rows)
        self._storage = MemoryStorage("benchmark")

    def write(self, _data: DataSet, _table: Path, layout: str) -> None:
        """Write the rows to memory."""
        encode = self._layouts[layout]
        self._storage.put("f.parquet", encode(self._rows))
        found = rates(lambda: encode(self._rows), self._count, self._repeats)
        self.seen = found | {"bytes": len(self._storage.read("f.parquet"))}

    def read(self, _data: DataSet, _table: Path, layout: str) -> None:
        """Read what was written."""
        self._storage.put("f.parquet", self._layouts[layout](self._rows))
        self.seen = rates(lambda: _read(self._storage), self._count, self._repeats)


def make_rows(count: int, rng: np.random.Generator) -> pa.Table:
    """Make order-like rows: a key of 20 characters, ten columns of mixed types, meta columns."""
    keys = pa.array([f"order-{number:014d}" for number in rng.permutation(5 * count)[:count]])
    words = pa.array([f"w{number:x}" for number in rng.integers(0, 2**20, 50_000)])
    note = [words.take(pa.array(rng.integers(0, len(words), count))) for _ in range(4)]
    cents = pa.array(rng.integers(0, 10**7, count)).cast(pa.decimal128(19, 0))
    columns = {
        "order_id": keys,
        "customer_id": pa.array(rng.integers(0, 200_000, count)),
        "status": _few(["new", "paid", "packed", "shipped", "delivered", "returned"], count, rng),
        "country": _few([f"C{number:02d}" for number in range(60)], count, rng),
        "amount": cents.cast(pa.decimal128(21, 2)).cast(pa.decimal128(12, 2)),
        "quantity": pa.array(rng.integers(1, 20, count).astype(np.int32)),
        "price": pa.array(np.round(rng.random(count) * 1000, 2)),
        "updated_at": pa.array(rng.integers(17 * 10**14, 171 * 10**13, count)).cast(
            pa.timestamp("us", "UTC")
        ),
        "day": pa.array(rng.integers(19_000, 19_700, count).astype(np.int32)).cast(pa.date32()),
        "note": pc.binary_join_element_wise(*note, " "),
    }
    return pa.table({**_meta_columns(keys), **columns})


def _meta_columns(keys: pa.Array) -> dict[str, pa.Array]:
    rows = pa.array(np.arange(len(keys))).cast(pa.string())
    numbers = pc.binary_join_element_wise(f"{INSTANT}_3", rows, "_")
    one_value = [_constant(text, len(keys)) for text in (INSTANT, "2026-01", "f.parquet")]
    columns = (one_value[0], numbers, keys, *one_value[1:])
    return dict(zip(META_NAMES, columns, strict=True))


def _constant(text: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def _few(values: list[str], count: int, rng: np.random.Generator) -> pa.Array:
    return pa.array(values).take(pa.array(rng.integers(0, len(values), count)))


def _layouts(rows: pa.Table) -> dict[str, Encode]:
    layout = choose_layout(rows.slice(0, 4096))
    ours: dict[str, Any] = {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": list(layout.dictionary),
        "column_encoding": layout.encodings,
        "write_statistics": list(layout.statistics),
    }
    return {
        "bucketlake": _encode_ours,
        "defaults": _with_pyarrow({}),
        "snappy": _with_pyarrow({**ours, "compression": "snappy", "compression_level": None}),
        "zstd_3": _with_pyarrow({**ours, "compression_level": 3}),
        "no_deltas": _with_pyarrow({**ours, "column_encoding": None}),
        "dictionaries": _with_pyarrow({**ours, "column_encoding": None, "use_dictionary": True}),
    }


def _encode_ours(rows: pa.Table) -> bytes:
    data = rows.select(rows.column_names[5:])
    chunks = (rows.slice(at, CHUNK_ROWS) for at in range(0, rows.num_rows, CHUNK_ROWS))
    return bytes(encode_base_file(chunks, normalise_schema(data.schema, "orders")).data)


def _with_pyarrow(options: Mapping[str, Any]) -> Encode:
    def encode(rows: pa.Table) -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, row_group_size=ROW_GROUP_ROWS_MAX, store_schema=False, **options)
        return bytes(memoryview(sink.getvalue()))

    return encode


def _read(storage: MemoryStorage) -> None:
    with BaseFileReader(storage, "f.parquet") as reader:
        for _ in reader.iter_chunks(rows_max=CHUNK_ROWS):
            pass


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
    options=[REPEATS],
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
