"""How many rows a second go into and out of a base file, on one core, in how many bytes?

Prints JSON: per layout the rates of each round, their median, and the file's size. Rates count
processor time of the one thread that works. PyArrow's own settings are beside bucketlake's, and
bucketlake's with single choices undone.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bucketlake.format.base_file import BaseFileReader, encode_base_file
from bucketlake.format.parquet_layout import ROW_GROUP_ROWS_MAX, choose_layout
from bucketlake.model.file_name import InstantTime
from bucketlake.model.schema import META_NAMES, normalise_schema
from bucketlake.storage.memory import MemoryStorage

EXAMPLE = "example: python -m benchmarks.base_files --rows 2000000 --rounds 5"
CHUNK_ROWS = 131_072
INSTANT = InstantTime("20260101000000000")

Encode = Callable[[pa.Table], bytes]


def main() -> None:
    """Measure and print."""
    arguments = _parse_arguments()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    rows = make_rows(arguments.rows, np.random.default_rng(arguments.seed))
    answer = {
        "question": "rows written to and read from a base file a second, on one core",
        "rows": arguments.rows,
        "seed": arguments.seed,
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "machine": platform.machine(),
        "results": [
            _measure(name, encode, rows, arguments.rounds)
            for name, encode in _layouts(rows).items()
        ],
    }
    print(json.dumps(answer, indent=2))


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.base_files", description=__doc__, epilog=EXAMPLE
    )
    parser.add_argument("--rows", type=int, default=500_000, help="rows of the file")
    parser.add_argument("--rounds", type=int, default=5, help="repetitions")
    parser.add_argument("--seed", type=int, default=7, help="seed of the rows")
    return parser.parse_args()


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
        "PyArrow's defaults": _with_pyarrow({}),
        "PyArrow's defaults, zstd 1": _with_pyarrow(
            {"compression": "zstd", "compression_level": 1}
        ),
        "snappy": _with_pyarrow({**ours, "compression": "snappy", "compression_level": None}),
        "zstd 3": _with_pyarrow({**ours, "compression_level": 3}),
        "no deltas": _with_pyarrow({**ours, "column_encoding": None}),
        "dictionaries everywhere": _with_pyarrow(
            {**ours, "column_encoding": None, "use_dictionary": True}
        ),
        "statistics everywhere": _with_pyarrow({**ours, "write_statistics": True}),
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


def _measure(name: str, encode: Encode, rows: pa.Table, rounds: int) -> dict[str, Any]:
    storage = MemoryStorage("benchmark")
    storage.put("f.parquet", encode(rows))
    size_bytes = len(storage.read("f.parquet"))
    written = [_rate(rows.num_rows, lambda: encode(rows)) for _ in range(rounds)]
    read = [_rate(rows.num_rows, lambda: _read(storage)) for _ in range(rounds)]
    return {
        "layout": name,
        "size_bytes": size_bytes,
        "rows_written_per_second": _summary(written),
        "rows_read_per_second": _summary(read),
    }


def _read(storage: MemoryStorage) -> None:
    with BaseFileReader(storage, "f.parquet") as reader:
        for _ in reader.iter_chunks(rows_max=CHUNK_ROWS):
            pass


def _rate(row_count: int, function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return row_count / (time.process_time() - start)


def _summary(rates: list[float]) -> dict[str, Any]:
    return {"median": round(statistics.median(rates)), "rounds": [round(rate) for rate in rates]}


if __name__ == "__main__":
    main()
