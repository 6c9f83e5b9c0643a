"""Keys looked up in a shard of the record-level index, with its cache on local disk and without.

One shard, as a table on local disk has it: a base file, and then commits of new keys as log files.
Measured are the first lookup (which reads the shard), lookups in the warm cache, the lookup after a
commit, the merge of the small parts, and the same lookups in the metadata table without a cache.
Times are processor time of the one thread that works, so that other work on the machine disturbs
them less; it still takes memory bandwidth and cache away.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from benchmarks.common.data import random_digits
from benchmarks.common.rows import DataSet
from benchmarks.systems.engine_free import EngineFree, cpu_seconds, rates
from benchmarks.workloads.cache_fills import cache_bytes
from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.config.table_config import TableConfig
from bucketlake.format.hfile.writer import HFileWriter
from bucketlake.format.metadata_record.record_schema import (
    IndexedLocation,
    encode_locations,
    record_schema_json,
)
from bucketlake.merge.incoming import key_order
from bucketlake.metadata.location_cache.cache import CachedLookup, LocationCache
from bucketlake.metadata.location_cache.refreshing import Served
from bucketlake.metadata.log_files import EntryEncoder
from bucketlake.metadata.metadata_table import MetadataTable
from bucketlake.metadata.record_index.entries_of_write import NewKeys, entries_of_shard
from bucketlake.metadata.record_index.locations import NOT_FOUND, RecordIndexReader
from bucketlake.metadata.record_index.shards import IndexShards
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.storage.base import Subfolder
from bucketlake.storage.local import LocalStorage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.open_table import opened_table

SHARDS = IndexShards(None, {"p": 1})
BASE_INSTANT = InstantTime("20260101000000000")
GROUPS = 64
COMMIT_KEYS = 10_000
CONFIG = TableConfig(
    "orders",
    TableType.MERGE_ON_READ,
    KeySpec(("id",), ("day",), KeyGenerator.SIMPLE),
    MergeMode.COMMIT_TIME,
    metadata_partitions=("files", "record_index"),
)

Pinned: TypeAlias = tuple[RecordIndexReader, FileSlice]


class CacheLookups(EngineFree):
    """A shard, and lookups of keys that are half new, all stored, all new, or few."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(shard=f"{settings['rows']} keys of 20 random digits, on one thread")
        self._count, self._batch = settings["rows"], settings["batch"]
        self._repeats = settings["repeats"]
        self._rng = np.random.default_rng(settings["seed"])
        self._folder = Path()
        self._asked: dict[str, pa.Array] = {}
        self._commits = 0

    # ---- steps ----------------------------------------------------------------------------------

    def make(self, _data: DataSet, table: Path) -> None:
        """Write the base file of the shard."""
        self._folder = table
        keys = _sorted_keys(random_digits(self._count, self._rng))
        self._write_base(keys)
        stored = keys.take(pa.array(self._rng.integers(0, len(keys), self._batch)))
        new = random_digits(self._batch, self._rng)
        half = pa.concat_arrays([stored[::2], new[::2]])
        half = half.take(pa.array(self._rng.permutation(len(half))))
        self._asked = {"half": half, "stored": stored, "new": new, "few": half[:COMMIT_KEYS]}

    def first(self, _data: DataSet, _table: Path) -> None:
        """Look keys up in an empty cache: the shard is read whole, hashed, written to disk."""
        self._rates(self._find_first, self._count)
        cached_bytes, resident_bytes = cache_bytes(self._folder / "cache")
        self.seen["cached_bytes_per_key"] = round(cached_bytes / self._count, 2)
        self.seen["resident_bytes_per_key"] = round(resident_bytes / self._count, 2)

    def lookup(self, _data: DataSet, _table: Path, name: str) -> None:
        """Look keys up in the warm cache."""
        keys = self._asked[name]
        self._rates(partial(self._find, keys, self._pinned()), len(keys))

    def uncached(self, _data: DataSet, _table: Path, name: str) -> None:
        """Look keys up in the metadata table; the cache must find the same."""
        keys = self._asked[name]
        index, held = self._pinned()
        self._rates(lambda: index.find_in(held, keys), len(keys), repeats=1)
        found, cached = index.find_in(held, keys).codes, self._find(keys).codes
        assert ((found == NOT_FOUND) == (cached == NOT_FOUND)).all()

    def commit(self, _data: DataSet, _table: Path) -> None:
        """Commit new keys twenty times; look a few keys up after each, and many at the end."""
        seconds = [self._seconds_after_commit(COMMIT_KEYS) for _ in range(20)]
        self._rates(partial(self._find, self._asked["half"], self._pinned()), self._batch)
        _, resident_bytes = cache_bytes(self._folder / "cache")
        keys = self._count + 20 * COMMIT_KEYS
        numbers = (statistics.median(seconds), min(seconds), max(seconds))
        names = ("median_ms", "least_ms", "most_ms")
        self.seen |= {n: round(1000 * each, 1) for n, each in zip(names, numbers, strict=True)}
        self.seen["resident_bytes_per_key"] = round(resident_bytes / keys, 2)

    def merge(self, _data: DataSet, _table: Path) -> None:
        """Commit many keys until a lookup merges all parts into one."""
        committed, spent = 20 * COMMIT_KEYS, 0.0
        while committed * 8 <= self._count:
            committed += self._count // 12
            spent = self._seconds_after_commit(self._count // 12)
        self.seen = {"merge_seconds": round(spent, 2)}

    # ---- what the steps share -------------------------------------------------------------------

    def _seconds_after_commit(self, keys: int) -> float:
        self._commit(random_digits(keys, self._rng))
        return cpu_seconds(partial(self._find, self._asked["few"], self._pinned()))

    def _find(self, keys: pa.Array, pinned: Pinned | None = None) -> CachedLookup:
        index, held = pinned or self._pinned()
        return LocationCache(str(self._folder / "cache")).find(index, held, keys)

    def _find_first(self) -> None:
        shutil.rmtree(self._folder / "cache", ignore_errors=True)
        found = self._find(self._asked["half"])
        assert found.served is Served.BUILT, found.served

    def _rates(self, work: Callable[[], object], count: int, repeats: int = 0) -> None:
        self.seen = rates(work, count, repeats or self._repeats)

    def _storage(self) -> LocalStorage:
        return LocalStorage(str(self._folder / "table"), fsync=False)

    def _pinned(self) -> Pinned:
        storage = self._storage()
        inner = Subfolder(storage, METADATA_TABLE_FOLDER)
        table = MetadataTable(
            inner,
            CONFIG,
            load_timeline(opened_table(inner, CONFIG)),
            load_timeline(opened_table(storage, CONFIG)),
            CONFIG.metadata_partitions,
        )
        index = RecordIndexReader(table)
        return index, index.slices["p"][0]

    def _write_base(self, keys: pa.Array) -> None:
        """Write a base file as compactions do."""
        groups = [
            IndexedLocation(
                "p", FileId(f"{n:08d}-27f7-4628-9878-d51db8cd0617-0"), 1_767_225_600_000
            )
            for n in range(GROUPS)
        ]
        values = encode_locations(groups)
        numbers = pa.array(np.random.default_rng(0).integers(0, GROUPS, len(keys), np.int32))
        writer = HFileWriter(record_schema_json(), created_at_ms=0)
        writer.add(keys.cast(pa.binary()), pa.DictionaryArray.from_arrays(numbers, values))
        (shard,) = SHARDS.shards()
        self._put(f"record_index/{shard.file_id}_1-0-1_{BASE_INSTANT}.hfile", writer.finish())
        self._complete(BASE_INSTANT, "commit")

    def _commit(self, keys: pa.Array) -> None:
        self._commits += 1
        instant = InstantTime(str(int(BASE_INSTANT) + 1000 * self._commits))
        group = FileId(f"{self._commits:08d}-27f7-4628-9878-d51db8cd0617-0")
        entries = entries_of_shard([NewKeys(keys, "p", group)], [], 1_767_225_600_000)
        (shard,) = SHARDS.shards()
        data = EntryEncoder(instant, 0).log_file("record_index", entries)
        self._put(f"record_index/.{shard.file_id}_{instant}.log.1_1-0-1", data)
        self._complete(instant, "deltacommit")

    def _complete(self, instant: InstantTime, action: str) -> None:
        name = f".hoodie/timeline/{instant}_{int(instant) + 1}.{action}"
        self._put(name, b"")
        self._storage().put(name, b"")

    def _put(self, path: str, data: bytes) -> None:
        self._storage().put(f"{METADATA_TABLE_FOLDER}/{path}", data)


def _sorted_keys(keys: pa.Array) -> pa.Array:
    return keys.take(pa.array(key_order(keys)))
