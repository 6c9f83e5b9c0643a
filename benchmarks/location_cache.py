"""How fast does the cache of locations answer, and what does it cost?

One shard of a record-level index, as a table on local disk has it: a base file, and then commits of
new keys as log files. Measured are the first lookup (which reads the shard), lookups in the warm
cache, the lookup after a commit, the merge of the small parts, and the same lookups in the metadata
table without a cache. Seconds are processor time of the one thread that works, so that other work
on the machine disturbs them less; it still takes memory bandwidth and cache away.

Prints JSON, and with ``--page`` writes the page of docs/benchmarks.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from benchmarks.common.process import REPOSITORY
from benchmarks.common.race import machine
from benchmarks.common.usage import machine_cpu_seconds
from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.config.table_config import TableConfig
from bucketlake.format.hfile.writer import HFileWriter
from bucketlake.format.metadata_record.record_index import IndexedLocation, encode_locations
from bucketlake.format.metadata_record.record_schema import record_schema_json
from bucketlake.merge.incoming import key_order
from bucketlake.metadata.location_cache.cache import CachedLookup, LocationCache
from bucketlake.metadata.metadata_table import MetadataSlice, MetadataTable
from bucketlake.metadata.record_index.entries_of_write import NewKeys, index_entries
from bucketlake.metadata.record_index.locations import NOT_FOUND, RecordIndexReader
from bucketlake.metadata.record_index.shards import IndexShards
from bucketlake.metadata.slices.log_files import encode_log_file
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.storage.local import LocalStorage
from bucketlake.storage.subfolder import Subfolder
from bucketlake.timeline.active import load_timeline

SHARDS = IndexShards(None, {"p": 1})
BASE_INSTANT = InstantTime("20260101000000000")
GROUPS = 64
COMMIT_KEYS = 10_000
EXAMPLE = "example: python -m benchmarks.location_cache --keys 10000000 --rounds 5 --page"
PAGE = REPOSITORY / "docs/benchmarks/location_cache.md"
CONFIG = TableConfig(
    "orders",
    TableType.MERGE_ON_READ,
    KeySpec(("id",), ("day",), KeyGenerator.SIMPLE),
    MergeMode.COMMIT_TIME,
    metadata_partitions=("files", "record_index"),
)


def main() -> None:
    """Measure, print, and write the page if that is asked for."""
    options = _parse_arguments()
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        started, cpu = time.perf_counter(), machine_cpu_seconds()
        bench = Bench(folder, options.keys, options.batch, options.rounds, options.seed)
        figures = bench.run()
        busy = machine_cpu_seconds() - cpu - sum(bench.spent)
        elapsed = time.perf_counter() - started
    finally:
        shutil.rmtree(folder)
    answer = {
        "question": "keys looked up in a shard of the record-level index, on one core",
        "keys": options.keys,
        "batch": options.batch,
        "seed": options.seed,
        "rounds": options.rounds,
        "machine": machine() | {"cores": os.cpu_count()},  # Not only those of this process.
        "busy_share": round(max(busy, 0) / elapsed / (os.cpu_count() or 1), 2),
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "pyarrow": pa.__version__,
        },
        "figures": figures,
    }
    text = json.dumps(answer, indent=2)
    print(text)
    if options.page:
        name = f"location_cache-{options.keys}.json"
        (REPOSITORY / "benchmarks/results" / name).write_text(text + "\n")
        PAGE.write_text(page(answer))


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.location_cache", description=__doc__, epilog=EXAMPLE
    )
    add = parser.add_argument
    add("--keys", type=int, default=10_000_000, help="keys of the shard (%(default)s)")
    add("--batch", type=int, default=1_000_000, help="keys of a lookup (%(default)s)")
    add("--rounds", type=int, default=5, help="measurements (%(default)s)")
    add("--seed", type=int, default=1, help="of the random keys (%(default)s)")
    add("--folder", help="where the table and the cache are made, for a while")
    add("--page", action="store_true", help="write the page and the result")
    return parser.parse_args()


Pinned: TypeAlias = tuple[RecordIndexReader, MetadataSlice]


@dataclass
class Bench:
    """The shard and its measurements."""

    folder: Path
    count: int
    batch: int
    rounds: int
    seed: int
    spent: list[float] = field(default_factory=list)
    commits: list[InstantTime] = field(default_factory=list)

    def run(self) -> dict[str, Any]:
        rng = np.random.default_rng(self.seed)
        keys = _sorted_keys(_make_keys(self.count, rng))
        self._write_base(keys)
        stored = keys.take(pa.array(rng.integers(0, len(keys), self.batch)))
        new = _make_keys(self.batch, rng)
        half = pa.concat_arrays([stored[::2], new[::2]])
        half = half.take(pa.array(rng.permutation(len(half))))
        small = half[:COMMIT_KEYS]
        del keys
        figures: dict[str, Any] = {}
        figures["bootstrap"] = self._rates(lambda: self._first(half), self.count)
        first = self._find(half)
        figures["cached_bytes_per_key"] = round(first.use.cached_bytes / self.count, 2)
        figures["resident_bytes_per_key"] = round(first.use.resident_bytes / self.count, 2)
        for name, asked in (("half new", half), ("all stored", stored), ("all new", new)):
            figures[f"lookup, {name}"] = self._lookup_rates(asked)
        figures["lookup of 10 k keys"] = self._lookup_rates(small)
        index, held = self._pinned()
        figures["without cache, 10 k keys"] = self._rates(
            lambda: index.find_in(held, small), COMMIT_KEYS, 1
        )
        figures["without cache, half new"] = self._rates(
            lambda: index.find_in(held, half), self.batch, 1
        )
        self._require_equal(index.find_in(held, half).codes, first)
        figures.update(self._extended(rng, half, small))
        figures["resident_mib_of_process"] = (
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        )
        return figures

    def _extended(
        self, rng: np.random.Generator, half: pa.Array, small: pa.Array
    ) -> dict[str, Any]:
        """Commit new keys until a merge into the first part; measure the lookups after each."""
        seconds, merged, count = [], 0.0, 0
        while merged == 0.0 and count < self.count / 4:
            size = COMMIT_KEYS if len(seconds) < 20 else self.count // 12
            self._commit(_make_keys(size, rng))
            count += size
            pinned = self._pinned()
            spent = self._seconds(partial(self._find, small, pinned))
            if size == COMMIT_KEYS:
                seconds.append(spent)
                if len(seconds) == 20:
                    parts = self._lookup_rates(half)
                    resident = self._find(small).use.resident_bytes / (self.count + count)
            elif count * 8 > self.count:
                merged = spent
        return {
            "lookup of 10 k keys after a commit of 10 k, ms": _spread(
                [round(1000 * each, 1) for each in seconds]
            ),
            "lookup, half new, after 20 commits": parts,
            "resident_bytes_per_key after 20 commits": round(resident, 2),
            "lookup with a merge of all parts, s": round(merged, 2),
        }

    def _find(self, keys: pa.Array, pinned: Pinned | None = None) -> CachedLookup:
        index, held = pinned or self._pinned()
        return LocationCache(str(self.folder / "cache")).find(index, held, keys)

    def _lookup_rates(self, keys: pa.Array) -> dict[str, Any]:
        return self._rates(partial(self._find, keys, self._pinned()), len(keys))

    def _first(self, keys: pa.Array) -> CachedLookup:
        shutil.rmtree(self.folder / "cache", ignore_errors=True)
        found = self._find(keys)
        assert found.use.built == 1, found.use
        return found

    def _require_equal(self, codes: Any, cached: CachedLookup) -> None:
        assert ((codes == NOT_FOUND) == (cached.codes == NOT_FOUND)).all()

    def _rates(self, work: Callable[[], Any], count: int, rounds: int = 0) -> dict[str, Any]:
        """Return million keys a second, of processor time."""
        rates = [count / self._seconds(work) / 1e6 for _ in range(rounds or self.rounds)]
        return _spread([round(rate, 2) for rate in rates])

    def _seconds(self, work: Callable[[], Any]) -> float:
        started = time.thread_time()
        work()
        spent = time.thread_time() - started
        self.spent.append(spent)
        return spent

    def _storage(self) -> LocalStorage:
        return LocalStorage(str(self.folder / "table"), fsync=False)

    def _pinned(self) -> Pinned:
        storage = self._storage()
        inner = Subfolder(storage, METADATA_TABLE_FOLDER)
        table = MetadataTable(
            inner,
            CONFIG,
            load_timeline(inner, CONFIG),
            load_timeline(storage, CONFIG),
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
        instant = InstantTime(str(int(BASE_INSTANT) + 1000 * (len(self.commits) + 1)))
        self.commits.append(instant)
        group = FileId(f"{len(self.commits):08d}-27f7-4628-9878-d51db8cd0617-0")
        entries = index_entries([NewKeys(keys, "p", group)], [], SHARDS, 1_767_225_600_000)
        ((shard, own),) = entries.items()
        data = encode_log_file("record_index", own, instant=instant, created_at_ms=0)
        self._put(f"record_index/.{shard.file_id}_{instant}.log.1_1-0-1", data)
        self._complete(instant, "deltacommit")

    def _complete(self, instant: InstantTime, action: str) -> None:
        name = f".hoodie/timeline/{instant}_{int(instant) + 1}.{action}"
        self._put(name, b"")
        self._storage().put(name, b"")

    def _put(self, path: str, data: bytes) -> None:
        self._storage().put(f"{METADATA_TABLE_FOLDER}/{path}", data)


def _make_keys(count: int, rng: np.random.Generator) -> pa.Array:
    """Return keys of 20 random digits."""
    digits = rng.integers(ord("0"), ord("9") + 1, count * 20, dtype=np.uint8)
    offsets = pa.py_buffer(np.arange(0, 20 * count + 1, 20, dtype=np.int32))
    return pa.Array.from_buffers(pa.string(), count, [None, offsets, pa.py_buffer(digits)])


def _sorted_keys(keys: pa.Array) -> pa.Array:
    return keys.take(pa.array(key_order(keys)))


def _spread(values: list[float]) -> dict[str, Any]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def page(answer: dict[str, Any]) -> str:
    """Return the page of a result."""
    figures = answer["figures"]

    def rate(name: str) -> str:
        found = figures[name]
        return f"**{found['median']:.2f}** ({found['least']:.2f} to {found['most']:.2f})"

    keys, batch = f"{answer['keys']:,}", f"{answer['batch']:,}"
    after_commit = figures["lookup of 10 k keys after a commit of 10 k, ms"]
    rates = {
        "first lookup: the shard is read whole, hashed, written to disk": rate("bootstrap"),
        f"lookup of {batch} keys, half of them new": rate("lookup, half new"),
        f"lookup of {batch} keys, all stored": rate("lookup, all stored"),
        f"lookup of {batch} keys, all new": rate("lookup, all new"),
        "lookup of 10,000 keys, half of them new": rate("lookup of 10 k keys"),
        f"lookup of {batch} keys, half new, after 20 commits": rate(
            "lookup, half new, after 20 commits"
        ),
        f"without cache: lookup of {batch} keys, half new": rate("without cache, half new"),
        "without cache: lookup of 10,000 keys, half new": rate("without cache, 10 k keys"),
    }
    sizes = {
        "memory, bytes per key": figures["resident_bytes_per_key"],
        "memory, bytes per key, after 20 commits": figures[
            "resident_bytes_per_key after 20 commits"
        ],
        "local disk, bytes per key (keys of 20 bytes)": figures["cached_bytes_per_key"],
        "lookup of 10,000 keys after a commit of 10,000 new keys, ms": (
            f"{after_commit['median']:.0f} ({after_commit['least']:.0f} to "
            f"{after_commit['most']:.0f})"
        ),
        "lookup that merges all parts into one, s": figures["lookup with a merge of all parts, s"],
    }
    rows = "\n".join(f"| {name} | {text} |" for name, text in rates.items())
    size_rows = "\n".join(f"| {name} | {text} |" for name, text in sizes.items())
    versions = ", ".join(f"{name} {text}" for name, text in answer["versions"].items())
    host = answer["machine"]
    memory = round(host["memory_bytes"] / 2**30)
    return PAGE_TEXT.format(
        keys=keys,
        machine=f"{host['cores']} cores ({host['processor']}), {memory} GiB, {host['system']}",
        versions=versions,
        seed=answer["seed"],
        rounds=answer["rounds"],
        busy=answer["busy_share"],
        rows=rows,
        sizes=size_rows,
    )


PAGE_TEXT = """# Benchmark of the location cache

How fast the cache of the record-level index on local disk answers
([decision 25](../decisions/0025-location-cache.md)). One shard with {keys} keys of 20 random
digits, in a base file of the metadata table on local disk. One thread; rates count its processor
time. Made by `python -m benchmarks.location_cache --page`.

{machine}; {versions}; seed {seed}; {rounds} rounds. Other processes used {busy:.0%} of the machine.
They take memory bandwidth and processor cache away, so the rates of a quiet machine are higher.

| step | million keys a second, median (minimum to maximum) |
|---|---:|
{rows}

| | |
|---|---:|
{sizes}

Memory is what each lookup reads: the directory, the fingerprints and the codes of the cached keys.
All Python workers of a host share it, since it is mapped. The bytes of keys are read where a
fingerprint is equal, from the page cache or the disk.

**Beside it**, Hudi's Flink writer with its record-level index, as RFC-107 states it (not measured
here): 50 to 70 bytes of heap for a key, 10 ms and more for a lookup, and 1.2 GB of RocksDB for
10 M keys.
"""


if __name__ == "__main__":
    main()
