"""The cache of a dynamic table: how fast it is filled, its bytes and those of the index.

One partition with random hexadecimal keys, whose index was just built, so that each shard is a base
file. A fill looks up a tenth of the keys, in a new folder, so that each shard is read whole, hashed
and written to local disk. The lookup is a part of its time, and a small one.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import bucketlake as bl
from benchmarks.common.data import SEED
from benchmarks.common.rows import KEY, REGIONS, DataSet
from benchmarks.systems.engine_free import EngineFree
from benchmarks.systems.order_tables import create, index_files
from benchmarks.workloads.index_growth import open_index
from benchmarks.workloads.keys import HEX, key_rows
from bucketlake.metadata.location_cache.cache import LocationCache
from bucketlake.metadata.location_cache.refreshing import Served
from bucketlake.metadata.location_cache.shard_folder import shard_folders
from bucketlake.metadata.record_index.locations import NOT_FOUND

ASKED_SHARE = 0.1
"""Keys that are looked up, as a share of the stored ones."""

INDEX = bl.DynamicBucket(assigners=4)


class CacheFills(EngineFree):
    """Make a table, and fill the cache of its shards."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._count = settings["cache_keys"]
        self._asked = pa.array([], pa.string())
        super().__init__(
            keys=f"{self._count} random ones of 20 hexadecimal digits in one partition",
            index=repr(INDEX),
        )

    def make(self, _data: DataSet, table: Path) -> None:
        """Write the rows, and build the index again."""
        rng = np.random.default_rng([SEED, self._count])
        rows = key_rows(HEX, self._count, REGIONS[0], rng)
        created = create(table, rows.schema, INDEX, "merge_on_read")
        created.bulk_insert(rows)
        created.rebuild_metadata_table(["record_index"])
        self._asked = rows[KEY].combine_chunks().slice(0, int(self._count * ASKED_SHARE))
        self.seen = index_files(table)

    def fill(self, _data: DataSet, table: Path, _number: str) -> None:
        """Fill the cache in a new folder."""
        folder = table.with_name("locations")
        shutil.rmtree(folder, ignore_errors=True)
        index = open_index(table)
        shards = index.slices[REGIONS[0]]
        numbers = index.shards.numbers_of(self._asked, REGIONS[0])
        asked = [self._asked.filter(pa.array(numbers == n)) for n in range(len(shards))]
        cache, cpu = LocationCache(str(folder)), time.process_time()
        lookups = [cache.find(index, held, keys) for held, keys in zip(shards, asked, strict=True)]
        spent = time.process_time() - cpu
        for found in lookups:
            assert found.served is Served.BUILT, found.served
            assert (found.codes != NOT_FOUND).all(), "all keys are stored"
        disk_bytes, memory_bytes = cache_bytes(folder)
        self.seen = {
            "fill_cpu_seconds": spent,
            "keys": self._count,
            "disk_bytes": disk_bytes,
            "memory_bytes": memory_bytes,
        }
        shutil.rmtree(folder)


def cache_bytes(root: Path) -> tuple[int, int]:
    """Return the size of a cache on local disk, and of the arrays that each lookup reads."""
    folders = shard_folders(root)
    loaded = [found for folder in folders if (found := folder.load()) is not None]
    memory_bytes = sum(part.resident_bytes for _, parts in loaded for part in parts)
    return sum(folder.size_bytes() for folder in folders), memory_bytes
