"""Tables with hash rings that several rooms of tests resize, and what must hold of them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bucketlake as bl
from bucketlake.hashing.ring import Ring
from bucketlake.hashing.xx_hash import hash_ring_keys
from bucketlake.index.ring_kind import RingKind
from bucketlake.index.ring_state import file_id_of_node
from bucketlake.index.rings import load_ring
from bucketlake.model.file_name import LogFileName
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.table_properties import table_at
from tests.inside import storage_of

SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("v", pa.int64()), ("text", pa.string())]
)
SPLIT_ALL: dict[str, Any] = {"max_file_size": 1, "merge_threshold": 0.0}
"""Splits every bucket."""

MERGE_ALL: dict[str, Any] = {"max_file_size": 1 << 40}
"""Merges the neighbours of each partition into one bucket, and splits none."""

TEXT_BYTES = 400
"""Bytes of a row, which Parquet cannot compress much."""


def make_table(
    path: str | Path,
    index: bl.ConsistentBucket | bl.ExtendibleBucket | None = None,
    *,
    table_type: str = "merge_on_read",
    partition_by: str | list[str] = "day",
    **options: Any,
) -> bl.Table:
    """Make an empty table with a hash ring of two nodes in each partition."""
    return bl.create_table(
        str(path),
        schema=SCHEMA,
        record_key=options.pop("record_key", ["id"]),
        partition_by=partition_by,
        index=index or bl.ConsistentBucket(2),
        table_type=table_type,
        **options,
    )


def rows(keys: Iterable[int | str], v: int = 0, *, days: str = "a") -> pa.Table:
    """Return rows whose text follows from the key; numbers become keys and take days in turn."""
    made = []
    for place, given in enumerate(keys):
        key = given if isinstance(given, str) else f"k{given}"
        day = days[(given if isinstance(given, int) else place) % len(days)]
        text = random.Random(key).randbytes(TEXT_BYTES // 2).hex()
        made.append({"id": key, "day": day, "v": v, "text": text})
    return pa.Table.from_pylist(made, SCHEMA)


def values(table: bl.Table, **options: Any) -> dict[str, int]:
    """Return what the table holds: the value of each key, which must be there once."""
    found = table.to_arrow(columns=["id", "v"], **options).to_pylist()
    held = {row["id"]: row["v"] for row in found}
    assert len(held) == len(found), "a key is there twice"
    return held


def keyed(keys: Iterable[int | str], v: int = 0) -> dict[str, int]:
    """Return the values that :func:`rows` gives to keys."""
    return {key if isinstance(key, str) else f"k{key}": v for key in keys}


def keys_in(start: int, end: int, count: int, *, tag: str = "x") -> list[str]:
    """Return keys whose hashes lie after ``start`` and up to ``end``."""
    found: list[str] = []
    for block in range(10_000):
        names = [f"{tag}{number}" for number in range(block << 16, (block + 1) << 16)]
        hashes = hash_ring_keys(pa.array(names))
        for place in np.flatnonzero((hashes > start) & (hashes <= end)).tolist():
            found.append(names[place])
            if len(found) == count:
                return found
    raise AssertionError("the range is too narrow to find keys for it")


def timeline_of(table: bl.Table) -> Timeline:
    """Return the table's timeline, just loaded."""
    storage = storage_of(table)
    return load_timeline(table_at(storage))


def ring_of(table: bl.Table, partition: str = "a") -> Ring:
    """Return the ring of a partition that counts now."""
    index = table.index
    assert isinstance(index, RingKind)
    metadata = load_ring(storage_of(table), timeline_of(table), partition, index.engine)
    assert metadata is not None, f"partition {partition!r} has no ring"
    return metadata.ring


def log_files(table: bl.Table) -> list[tuple[str, LogFileName]]:
    """Return the path and the name of each log file in storage."""
    found = []
    for stored in storage_of(table).list(""):
        name = LogFileName.from_file_name(stored.path.rpartition("/")[2])
        if name is not None and not stored.path.startswith(".hoodie"):
            found.append((stored.path, name))
    return found


def copies_of(table: bl.Table, resize: str) -> list[str]:
    """Return the paths of the log files that writes made for a resize that is pending."""
    return [path for path, name in log_files(table) if name.instant == resize]


def is_pending(table: bl.Table, resize: str) -> bool:
    """Return whether a resize is on the timeline and not completed."""
    return any(i.requested_at == resize for i in timeline_of(table).pending_clusterings())


def require_sound(table: bl.Table) -> None:
    """Fail unless live file groups are on the rings, and each key is in the group of its hash."""
    partitions = {bucket.partition_path for bucket in table.buckets()}
    on_ring = {
        (path, file_id_of_node(prefix))
        for path in partitions
        for prefix in ring_of(table, path).prefixes
    }
    assert {(b.partition_path, b.file_id) for b in table.buckets()} <= on_ring
    findings = table.doctor(check_keys=True, check_files=True)
    assert findings == [], findings
