"""How many record keys a second are hashed, on one core?

Prints JSON: per kind of keys the rate of each round, and their median. Rates count processor time
of the one thread that works, so that other work on the machine disturbs them little.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.hashing.java_hash import hash_strings
from bucketlake.index.bucket_hash import assign_buckets

BUCKET_COUNT = 256
EXAMPLE = "example: python -m benchmarks.hashing --keys 2000000 --rounds 7"


def main() -> None:
    """Measure and print."""
    arguments = _parse_arguments()
    keys = _make_keys(arguments.keys, np.random.default_rng(arguments.seed))
    results = [
        _measure(name, column, function, arguments.rounds)
        for name, column, function in (
            ("string hash, 20 ASCII characters", keys["ascii_20"], hash_strings),
            ("string hash, 1 to 7 ASCII characters", keys["ascii_short"], hash_strings),
            ("string hash, mixed scripts", keys["mixed"], hash_strings),
            ("bucket, 20 ASCII characters", keys["ascii_20"], _bucket()),
            ("bucket, mixed scripts", keys["mixed"], _bucket()),
            ("bucket, two fields", keys["composite"], _bucket()),
            ("bucket, one field of two", keys["composite"], _bucket("device")),
            ("bucket, two fields with colons in values", keys["odd"], _bucket()),
        )
    ]
    answer = {
        "question": "record keys hashed a second, on one core",
        "keys": arguments.keys,
        "seed": arguments.seed,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
        "machine": platform.machine(),
        "results": results,
    }
    print(json.dumps(answer, indent=2))


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hashing", description=__doc__, epilog=EXAMPLE
    )
    parser.add_argument(
        "--keys", type=int, default=1_000_000, help="keys of each kind (%(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="measurements (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the random keys (%(default)s)")
    return parser.parse_args()


def _make_keys(count: int, random: np.random.Generator) -> dict[str, pa.Array]:
    digits = random.integers(ord("0"), ord("9") + 1, count * 20, dtype=np.uint8)
    offsets = pa.py_buffer(np.arange(0, 20 * count + 1, 20, dtype=np.int32))
    ascii_20 = pa.Array.from_buffers(pa.string(), count, [None, offsets, pa.py_buffer(digits)])
    numbers = 10 ** random.uniform(0, 7, count)
    ascii_short = pa.array(numbers.astype(np.int64)).cast(pa.string())
    words = pa.array(["ключ", "日本", "naïve", "😀", "plain", "Ünal"])
    word = words.take(pa.array(random.integers(0, len(words), count)))
    clock = pa.array(["10:30:00", "2024-01-01 00:00:00", "x"])
    odd = clock.take(pa.array(random.integers(0, len(clock), count)))
    return {
        "ascii_20": ascii_20,
        "ascii_short": ascii_short,
        "mixed": pc.binary_join_element_wise(word, ascii_short, "-"),
        "composite": pc.binary_join_element_wise("device:", ascii_20, ",day:", ascii_short, ""),
        "odd": pc.binary_join_element_wise("device:", ascii_20, ",day:", odd, ""),
    }


def _bucket(*hash_fields: str) -> Callable[[pa.Array], Any]:
    return lambda keys: assign_buckets(keys, BUCKET_COUNT, hash_fields)


def _measure(
    name: str, keys: pa.Array, function: Callable[[pa.Array], Any], rounds: int
) -> dict[str, Any]:
    function(keys.slice(0, 1000))
    rates = []
    for _ in range(rounds):
        start = time.thread_time()
        function(keys)
        rates.append(round(len(keys) / (time.thread_time() - start)))
    return {"name": name, "keys_per_second": round(statistics.median(rates)), "rounds": rates}


if __name__ == "__main__":
    main()
