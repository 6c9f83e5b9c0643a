"""How fast does the cache of locations answer, and what does it cost?"""

from __future__ import annotations

from benchmarks.common.benchmark import REPEATS, Benchmark, Contender, Option, count
from benchmarks.common.figures import Result
from benchmarks.common.report import Page
from benchmarks.common.tables import Row, Table, listing, rate_columns
from benchmarks.common.turn import plain_work
from benchmarks.workloads.cache_lookups import CacheLookups

NAME = "cache"
LOOKUPS = ("lookup-half", "lookup-stored", "lookup-new", "lookup-few")
STEPS = ("make", "first", *LOOKUPS, "uncached-half", "uncached-few", "commit", "merge")


def titles(result: Result) -> dict[str, str]:
    """Return the title of each rate."""
    batch = f"{result.settings['batch']:,}"
    return {
        "first": "first lookup: the shard is read whole, hashed, written to disk",
        "lookup-half": f"lookup of {batch} keys, half of them new",
        "lookup-stored": f"lookup of {batch} keys, all stored",
        "lookup-new": f"lookup of {batch} keys, all new",
        "lookup-few": "lookup of 10,000 keys, half of them new",
        "commit": f"lookup of {batch} keys, half new, after 20 commits",
        "uncached-half": f"without cache: lookup of {batch} keys, half new",
        "uncached-few": "without cache: lookup of 10,000 keys, half new",
    }


def costs(result: Result) -> str:
    """Tell bytes, and the time after commits."""
    first, commit, merge = (result.first(NAME, step) for step in ("first", "commit", "merge"))
    if not merge:
        return ""
    rows = {
        "memory, bytes per key": str(first["resident_bytes_per_key"]),
        "memory, bytes per key, after 20 commits": str(commit["resident_bytes_per_key"]),
        "local disk, bytes per key (keys of 20 bytes)": str(first["cached_bytes_per_key"]),
        "lookup of 10,000 keys after a commit of 10,000 new keys, ms": (
            f"{commit['median_ms']:.0f} ({commit['least_ms']:.0f} to {commit['most_ms']:.0f})"
        ),
        "lookup that merges all parts into one, s": str(merge["merge_seconds"]),
    }
    return listing("", "", ["<", ""], [[title, text] for title, text in rows.items()])


CLOSING = (
    "Memory is what each lookup reads: the directory, the fingerprints and the codes of the cached "
    "keys. All Python workers of a host share it, since it is mapped. The bytes of keys are read "
    "where a fingerprint is equal, from the page cache or the disk.\n\n"
    "**Beside it**, Hudi's Flink writer with its record-level index, as RFC-107 states it (not "
    "measured here): 50 to 70 bytes of heap for a key, 10 ms and more for a lookup, and 1.2 GB of "
    "RocksDB for 10 M keys."
)

BENCHMARK = Benchmark(
    name="location_cache",
    description="Keys looked up in a shard of the record-level index, with its cache and without.",
    contenders=[Contender(NAME, CacheLookups, steps=STEPS, once=True)],
    turn=plain_work,
    orders=False,
    options=[Option("--batch", count, 1_000_000, "keys of a lookup"), REPEATS],
    defaults={"rows": 10_000_000, "rounds": 1},
    quick={"rows": 2_000_000, "batch": 100_000},
    page=Page(
        title="Benchmark of the location cache",
        text="How fast the cache of the record-level index on local disk answers "
        "([decision 25](../decisions/0025-location-cache.md)). One shard with keys of 20 random "
        "digits, in a base file of the metadata table on local disk. One thread; rates count its "
        "processor time. Other processes take memory bandwidth and processor cache away, so the "
        "rates of a quiet machine are higher.",
        head="{rows:,} keys, {repeats} measurements",
        blocks=[
            Table(
                lambda result: [Row(NAME, step, title) for step, title in titles(result).items()],
                rate_columns("million keys a second, median (minimum to maximum)"),
                head="step",
            ),
            costs,
            lambda _: CLOSING,
        ],
    ),
)
