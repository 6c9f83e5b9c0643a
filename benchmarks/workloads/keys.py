"""Tables of random keys, of which the size of an index is told.

The same for both systems: a key, a partition and an ordering value in each row. Hexadecimal keys
have 20 digits. UUIDs have the form that programs usually store, 36 characters.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common.data import texts
from benchmarks.common.rows import EPOCH_MS, KEY, ORDERING, PARTITION, REGIONS, DataSet

HEX, UUID = "hex", "uuid"
HEX_DIGITS = 20
_DASHES_AFTER = (8, 4, 4, 4, 12)
_FORMAT = 1


def random_keys(kind: str, count: int, rng: np.random.Generator) -> pa.Array:
    """Return distinct random keys, as one block of bytes; two equal ones are not to be expected."""
    digits = rng.integers(0, 16, (count, HEX_DIGITS if kind == HEX else 32), np.uint8)
    text = np.frombuffer(b"0123456789abcdef", np.uint8)[digits]
    if kind == UUID:
        text[:, 12] = ord("4")  # The version: random.
        parts = np.split(text, np.cumsum(_DASHES_AFTER)[:-1], axis=1)
        dash = np.full((count, 1), ord("-"), np.uint8)
        text = np.hstack([column for part in parts for column in (part, dash)][:-1])
    return texts(text)


def key_rows(kind: str, count: int, region: str, rng: np.random.Generator) -> pa.Table:
    """Return rows with random keys of one partition."""
    columns = [
        random_keys(kind, count, rng),
        pa.repeat(region, count),
        pa.array(np.full(count, EPOCH_MS)),
    ]
    return pa.table(columns, names=[KEY, PARTITION, ORDERING])


def key_table(kind: str, count: int, partitions: int, rng: np.random.Generator) -> pa.Table:
    """Return rows with random keys, spread evenly over partitions."""
    counts = np.bincount(np.arange(count) % partitions, minlength=partitions).tolist()
    parts = zip(counts, REGIONS[:partitions], strict=True)
    rows = pa.concat_tables([key_rows(kind, own, region, rng) for own, region in parts])
    return rows.take(pa.array(rng.permutation(count)))


def prepare_keys(root: Path, kind: str, count: int, partitions: int, seed: int) -> DataSet:
    """Return a data set of random keys without changes, generating its files if they are not there.

    There are two files, so that two cores read.
    """
    data = DataSet(root / f"keys-v{_FORMAT}-{kind}-{count}r-{partitions}p-s{seed}")
    if not data.facts_path.exists():
        print(f"generating {count:,} {kind} keys in {data.path}", file=sys.stderr)
        rng = np.random.default_rng([seed, count])
        rows = key_table(kind, count, partitions, rng)
        data.load.mkdir(parents=True, exist_ok=True)
        half = -(-count // 2)
        for number in range(2):
            part = rows.slice(number * half, half)
            pq.write_table(part, data.load / f"part-{number:05d}.parquet", compression="zstd")
        data.facts_path.write_text(json.dumps({"rows": count, "kind": kind}) + "\n")
    return data
