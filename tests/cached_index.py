"""A record-level index made commit by commit, and lookups in it through the cache of locations."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.format.clustering_plan import encode_compaction_plan
from bucketlake.metadata.location_cache.cache import CachedLookup, Checkpoint, LocationCache
from bucketlake.metadata.location_cache.shard_folder import ShardFolder
from bucketlake.metadata.record_index.locations import NOT_FOUND, RecordIndexReader
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import FileSlice
from tests.metadata_tables import ROOT, at, put_instant
from tests.unit.metadata.record_index.test_locations import MadeIndex, texts

RECORD_INDEX = "record_index"


class PlannedIndex(MadeIndex):
    """A made index whose compactions have plans, as those of real tables."""

    def compact(self) -> None:
        """Compact all shards whose log files are not compacted."""
        plan = encode_compaction_plan(self.slices(self.open()))
        instant = at(self._number + 7)
        super().compact()
        put_instant(self.made.storage, ROOT, instant, at(self._number + 8), "compaction", b"", plan)
        for pending in (f"{instant}.commit.requested", f"{instant}.inflight"):
            self.made.storage.delete(f"{ROOT}/timeline/{pending}")

    def undo_last_commit(self) -> None:
        """Restore the table to the state before the last commit."""
        instant = at(self._number)
        storage = self.made.storage
        for folder in (f"{METADATA_TABLE_FOLDER}/{RECORD_INDEX}", ROOT, ".hoodie/timeline"):
            for stored in list(storage.list(folder)):
                if f"_{instant}." in stored.path or f"/{instant}" in stored.path:
                    storage.delete(stored.path)
        self.made.data(at(self._number + 6), at(self._number + 9), "restore")

    def build_anew(self, completed: InstantTime) -> None:
        """Make the base files anew, as the next initial instant of a table without timeline."""
        initial = InstantTime("0" * 16 + "1")
        for stored in list(self.made.storage.list(f"{ROOT}/timeline")):
            if f"/{initial}" in stored.path:
                self.made.storage.delete(stored.path)
        self.base(initial)
        for stored in list(self.made.storage.list(f"{ROOT}/timeline")):
            if f"/{initial}" in stored.path:
                self.made.storage.delete(stored.path)
        self.made.build(initial, completed, RECORD_INDEX)

    def slices(self, reader: RecordIndexReader) -> list[FileSlice]:
        """Return the slices of all shards."""
        return [held for shards in reader.slices.values() for held in shards]


def groups_of(found: CachedLookup) -> list[tuple[str, str] | None]:
    """Return the file group of each key."""
    return [None if code == NOT_FOUND else found.groups[code] for code in found.codes.tolist()]


def directly(
    reader: RecordIndexReader, held: FileSlice, keys: pa.Array
) -> list[tuple[str, str] | None]:
    """Return the file group of each key as the metadata table has it."""
    found = reader.find_in(held, keys)
    places = [(each.partition_path, each.file_id) for each in found.locations]
    return [None if code == NOT_FOUND else places[code] for code in found.codes.tolist()]


def look(
    cache: LocationCache,
    reader: RecordIndexReader,
    held: FileSlice,
    names: list[str],
    checkpoint: Checkpoint | None = None,
) -> CachedLookup:
    """Look keys up, and require the answers of the metadata table."""
    keys = texts(names)
    found = cache.find(reader, held, keys, checkpoint)
    assert groups_of(found) == directly(reader, held, keys)
    return found


def folder_of(cache: LocationCache, reader: RecordIndexReader, held: FileSlice) -> Path:
    """Return the folder of a cached shard."""
    table_root = reader.table.storage.outer.root
    return ShardFolder.of(cache.root, table_root, held.file_id).path
