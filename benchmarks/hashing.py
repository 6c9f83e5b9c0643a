"""How many record keys a second are hashed, on one core?

Rates count processor time of the one thread that works, so that other work on the machine disturbs
them little.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.common.benchmark import REPEATS, Benchmark, Contender, Settings
from benchmarks.common.data import random_digits
from benchmarks.common.report import Page
from benchmarks.common.rows import DataSet
from benchmarks.common.tables import Row, Table, rate_columns
from benchmarks.common.turn import plain_work
from benchmarks.systems.engine_free import EngineFree, rates
from bucketlake.hashing.index_key import hash_strings
from bucketlake.index.bucket_hash import assign_buckets

BUCKET_COUNT = 256
STEPS = {
    "string-ascii_20": "string hash, 20 ASCII characters",
    "string-ascii_short": "string hash, 1 to 7 ASCII characters",
    "string-mixed": "string hash, mixed scripts",
    "bucket-ascii_20": "bucket, 20 ASCII characters",
    "bucket-mixed": "bucket, mixed scripts",
    "bucket-composite": "bucket, two fields",
    "bucket-composite-device": "bucket, one field of two",
    "bucket-odd": "bucket, two fields with colons in values",
}


class Hashing(EngineFree):
    """Hash keys of several kinds."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(keys=f"{settings['rows']} of each kind", buckets=BUCKET_COUNT)
        self._repeats = settings["repeats"]
        rng = np.random.default_rng(settings["seed"])
        self._keys = make_keys(settings["rows"], rng)

    def string(self, _data: DataSet, _table: Path, kind: str) -> None:
        """Hash keys as Java hashes strings."""
        self._measure(hash_strings, kind)

    def bucket(self, _data: DataSet, _table: Path, kind: str, *fields: str) -> None:
        """Assign buckets to keys, by all fields or some."""
        self._measure(partial(assign_buckets, bucket_count=BUCKET_COUNT, hash_fields=fields), kind)

    def _measure(self, work: Callable[[pa.Array], Any], kind: str) -> None:
        keys = self._keys[kind]
        work(keys.slice(0, 1000))
        self.seen = rates(partial(work, keys), len(keys), self._repeats)


def make_keys(number: int, random: np.random.Generator) -> dict[str, pa.Array]:
    """Make keys of each kind."""
    ascii_20 = random_digits(number, random)
    numbers = 10 ** random.uniform(0, 7, number)
    ascii_short = pa.array(numbers.astype(np.int64)).cast(pa.string())
    words = pa.array(["ключ", "日本", "naïve", "😀", "plain", "Ünal"])
    word = words.take(pa.array(random.integers(0, len(words), number)))
    clock = pa.array(["10:30:00", "2024-01-01 00:00:00", "x"])
    odd = clock.take(pa.array(random.integers(0, len(clock), number)))
    return {
        "ascii_20": ascii_20,
        "ascii_short": ascii_short,
        "mixed": pc.binary_join_element_wise(word, ascii_short, "-"),
        "composite": pc.binary_join_element_wise("device:", ascii_20, ",day:", ascii_short, ""),
        "odd": pc.binary_join_element_wise("device:", ascii_20, ",day:", odd, ""),
    }


BENCHMARK = Benchmark(
    name="hashing",
    description="Record keys hashed a second, on one core.",
    contenders=[Contender("hashing", Hashing, steps=tuple(STEPS), once=True)],
    turn=plain_work,
    orders=False,
    options=[REPEATS],
    defaults={"rows": 1_000_000, "rounds": 1},
    page=Page(
        title="Benchmark of hashing",
        text="Record keys hashed a second, on one core, by the processor time of the thread.",
        head="{rows:,} keys of each kind",
        blocks=[
            Table(
                lambda _: [Row("hashing", step, title) for step, title in STEPS.items()],
                rate_columns("million keys a second"),
                head="what is hashed",
            )
        ],
    ),
)
