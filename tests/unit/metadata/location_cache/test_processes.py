"""Several processes use one cache at once: all get the answers of the metadata table."""

from __future__ import annotations

import multiprocessing
import random
import time
from dataclasses import replace
from pathlib import Path

from bucketlake.metadata.location_cache.cache import LocationCache, evict
from bucketlake.metadata.location_cache.shard_folder import shard_folders
from bucketlake.metadata.metadata_table import open_metadata_table
from bucketlake.metadata.record_index.locations import RecordIndexReader
from bucketlake.metadata.record_index.shards import IndexShards
from bucketlake.storage.local import LocalStorage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.open_table import opened_table
from tests.cached_index import PlannedIndex, directly, groups_of
from tests.metadata_tables import CONFIG
from tests.unit.metadata.record_index.test_locations import texts
from tests.waiting import SECONDS_MAX

SECONDS = 1.5
TIMES_MIN = 4  # However busy the machine is.
NAMES = [f"key{number:05d}" for number in range(3000)]


def look_for_a_while(reader: RecordIndexReader, folder: str, seed: int) -> int:
    """Look random keys up until the time is over, and some times; return how often."""
    (held,) = reader.slices["eu"]
    rng, cache, count = random.Random(seed), LocationCache(folder), 0
    everything = dict(zip(NAMES, directly(reader, held, texts(NAMES)), strict=True))
    end = time.monotonic() + SECONDS
    while time.monotonic() < end or count < TIMES_MIN:
        names = rng.sample(NAMES, 300)
        found = cache.find(reader, held, texts(names))
        assert groups_of(found) == [everything[name] for name in names], found.served
        count += 1
    return count


def disturb_for_a_while(folder: str, seed: int) -> int:
    """Drop all shards, delete files and damage files until the time is over, and some times."""
    rng, count = random.Random(seed), 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end or count < TIMES_MIN:
        time.sleep(rng.random() * 0.02)
        count += 1
        try:
            # The listing fails, too, where a reader deletes a folder meanwhile.
            files = [path for path in Path(folder).rglob("*") if path.is_file()]
            if rng.random() < 0.3:
                evict(shard_folders(Path(folder)), 0)
            elif files and rng.random() < 0.5:
                rng.choice(files).unlink()
            elif files:
                path = rng.choice(files)
                content = path.read_bytes()
                half = content[: len(content) // 2]
                # A mapped file is not changed in place: a disk does not do that either.
                damaged = path.with_name("damaged.tmp")
                damaged.write_bytes(half)
                damaged.replace(path)
        except OSError:
            continue
    return count


def test_processes_at_different_states_and_damage_meanwhile_get_right_answers(
    tmp_path: Path,
) -> None:
    index = PlannedIndex(IndexShards(None, {"eu": 1}))
    storage = LocalStorage(str(tmp_path / "table"))
    config = replace(CONFIG, metadata_partitions=("files", "record_index"))
    readers = []
    for number in range(3):
        own = NAMES[number * 900 : (number + 1) * 900]
        index.commit({("eu", f"f{number}"): own}, {"eu": NAMES[:50]} if number else {})
        for stored in index.made.storage.list(""):
            storage.put(stored.path, index.made.storage.read(stored.path))
        table = open_metadata_table(
            opened_table(storage, config), load_timeline(opened_table(storage, config))
        )
        readers.append(RecordIndexReader(table))  # Pinned before the next commit.
    folder = str(tmp_path / "cache")
    context = multiprocessing.get_context("spawn")
    with context.Pool(4) as pool:
        work = [pool.apply_async(disturb_for_a_while, (folder, 0))]
        for seed, reader in enumerate(readers):
            work.append(pool.apply_async(look_for_a_while, (reader, folder, seed)))
        counts = [each.get(SECONDS_MAX) for each in work]
    assert min(counts) >= TIMES_MIN
