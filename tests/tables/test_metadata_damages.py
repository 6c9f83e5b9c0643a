"""Damages of a metadata table: the doctor finds each, and a repair mends it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.errors import MetadataTableError, MetadataTableWarning
from bucketlake.format.metadata_record.record_schema import IndexedLocation, encode_locations
from bucketlake.hashing.key_filter import shards_of_keys
from bucketlake.metadata.changes import MetadataChange, publish_change, write_change
from bucketlake.metadata.log_files import EntryEncoder, GroupEntries, log_file_name, put_log_file
from bucketlake.metadata.metadata_table import open_metadata_table
from bucketlake.model.file_name import FileId
from bucketlake.services.check.findings import FindingKind
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config
from tests.broken_tables import later
from tests.choices import every_second
from tests.inside import values_of
from tests.metadata_truth import require_true_metadata

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
ALL = {"check_keys": True, "check_files": True, "min_age_seconds": 0}
INDEX = f"{METADATA_TABLE_FOLDER}/record_index"
KINDS = {
    "partitioned": bl.RecordIndex(),
    "global": bl.RecordIndex(partitioned=False),
    "buckets": bl.SimpleBucket(2),
}


def rows(numbers: range, v: int) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": f"k{n}", "day": "ab"[n % 2], "v": v} for n in numbers], SCHEMA
    )


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, new_path: Callable[[], str]) -> bl.Table:
    """A table with keys 0 to 9: base files of the metadata table, and log files of one commit."""
    made = bl.create_table(
        new_path(),
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["day"],
        index=KINDS[request.param],
        metadata_table=True,
    )
    made.upsert(rows(range(8), 0))
    made.rebuild_metadata_table(["files", "column_stats", "partition_stats", "record_index"])
    if request.param != "buckets":
        made.upsert(rows(range(6, 10), 1))
    return made


# ---- Damages ------------------------------------------------------------------------------------


def paths(storage: Storage, partition: str, text: str) -> list[str]:
    folder = f"{METADATA_TABLE_FOLDER}/{partition}"
    found = sorted(stored.path for stored in storage.list(folder))
    return [path for path in found if text in path and ".hoodie_partition" not in path]


def flip(storage: Storage, path: str, at: float) -> None:
    content = bytearray(storage.read(path))
    content[int(at * len(content))] ^= 0xFF
    storage.put(path, bytes(content))


def cut(storage: Storage, path: str, at: float) -> None:
    content = storage.read(path)
    storage.put(path, content[: int(at * len(content))])


def index_is_gone(storage: Storage) -> None:
    storage.delete_folder(INDEX)


def files_of_a_shard_are_gone(storage: Storage) -> None:
    name = paths(storage, "record_index", ".hfile")[0].rpartition("/")[2].partition("_")[0]
    for path in paths(storage, "record_index", name):
        storage.delete(path)


def base_file_of_a_shard_is_gone(storage: Storage) -> None:
    storage.delete(paths(storage, "record_index", ".hfile")[0])


def statistics_are_gone(storage: Storage) -> None:
    storage.delete_folder(f"{METADATA_TABLE_FOLDER}/column_stats")


def bounds_of_partitions_are_damaged(storage: Storage) -> None:
    flip(storage, paths(storage, "partition_stats", ".hfile")[0], 0.01)


def _entries(storage: Storage, entries: GroupEntries, *, of_index: bool) -> None:
    """Complete a commit of the metadata table beside the data, as a faulty program does."""
    config = read_table_config(storage)
    metadata = open_metadata_table(
        opened_table(storage, config), load_timeline(opened_table(storage, config))
    )
    newest = metadata.timeline.newest_time()
    assert newest is not None
    instant, end = (later(newest, by_ms) for by_ms in (1, 2))
    change = MetadataChange()
    if of_index:
        group = metadata.slices("record_index")[0].file_id
        stat = put_log_file(
            metadata.storage,
            "record_index",
            log_file_name(group, instant),
            entries,
            EntryEncoder(instant, 0),
        )
        change = MetadataChange(side_files=[stat])
    else:
        names = {"a": {"00000000-0000-4000-8000-00000000000a-0_1-0-1_20200101000000000.parquet": 5}}
        change = MetadataChange(written=names, listed=["a"])
    publish_change(
        opened_table(storage, config), instant, end, write_change(metadata, instant, change)
    )
    data = storage.list(config.timeline_folder)
    last = max(stored.path for stored in data if stored.path.endswith("commit"))
    storage.put(f"{config.timeline_folder}/{instant}_{end}.commit", storage.read(last))


def keys_have_no_entries(storage: Storage) -> None:
    held = [f"k{n}" for n in range(10)]
    _entries(storage, GroupEntries(removed=pa.array(held)), of_index=True)


def an_entry_names_a_dead_file_group(storage: Storage) -> None:
    # A key of the first shard, also of ten shards.
    keys = [f"gone{n}" for n in range(99)]
    location = IndexedLocation("a", FileId("00000000-0000-4000-8000-00000000000a-0"), 0)
    key = keys[shards_of_keys(pa.array(keys), 10).tolist().index(0)]
    entries = GroupEntries.of(pa.array([key]), encode_locations([location]))
    _entries(storage, entries, of_index=True)


def a_file_of_no_instant_is_listed(storage: Storage) -> None:
    _entries(storage, GroupEntries(), of_index=False)


@dataclass(frozen=True)
class Damage:
    do: Callable[[Storage], None]
    found: set[FindingKind]
    refused: bool = False  # Whether lookups of keys and writes raise an error.


BROKEN, WRONG = FindingKind.METADATA_INDEX_BROKEN, FindingKind.INDEX_ENTRIES_WRONG
DAMAGES = [
    Damage(index_is_gone, {BROKEN}, refused=True),
    Damage(files_of_a_shard_are_gone, {BROKEN}, refused=True),
    Damage(base_file_of_a_shard_is_gone, {BROKEN, WRONG}),
    Damage(statistics_are_gone, {BROKEN}),
    Damage(bounds_of_partitions_are_damaged, {BROKEN}),
    Damage(keys_have_no_entries, {WRONG}),
    Damage(an_entry_names_a_dead_file_group, {FindingKind.INDEX_ENTRIES_DEAD}),
    Damage(a_file_of_no_instant_is_listed, {FindingKind.METADATA_LISTS_DELETED}),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.do.__name__)
def test_damage_of_the_metadata_table_is_found_and_repaired(
    table: bl.Table, damage: Damage
) -> None:
    storage, before = open_storage(table.path), values_of(table)
    damage.do(storage)
    found = table.doctor(**ALL)
    assert {finding.kind for finding in found} == damage.found
    if damage.refused and isinstance(table.index, bl.RecordIndex):
        with pytest.raises(MetadataTableError, match="rebuild_metadata_table"):
            table.upsert(rows(range(3), 2))
    report = table.repair(dry_run=False, **ALL)
    assert (set(report.repaired), report.left) == (set(found), ())
    assert table.doctor(**ALL) == []
    require_true_metadata(storage)
    assert values_of(table) == before
    if isinstance(table.index, bl.RecordIndex):
        table.upsert(rows(range(3), 2))
        assert values_of(table) == before | {"k0": 2, "k1": 2, "k2": 2}
        require_true_metadata(storage)


@pytest.mark.parametrize(
    ("kind", "damage", "at"),
    every_second([".hfile", ".log."], [flip, cut], [0.02, 0.3, 0.5, 0.95]),
)
def test_damaged_file_of_the_index_is_named_and_one_partition_is_built_again(
    table: bl.Table, kind: str, damage: Callable[[Storage, str, float], None], at: float
) -> None:
    storage, before = open_storage(table.path), values_of(table)
    damaged = [p for p in paths(storage, "record_index", kind) if "_0-0-0" not in p][:1]
    if not damaged:
        pytest.skip("the index has no log file")
    damage(storage, damaged[0], at)
    found = table.doctor(**ALL)
    if not found:  # A byte that nobody reads, such as a file's time or padding.
        require_true_metadata(storage)
        return
    (finding,) = found
    assert finding.kind is BROKEN
    assert finding.files == (damaged[0],)
    if isinstance(table.index, bl.RecordIndex):
        try:  # A lookup does not read all blocks of a file.
            table.upsert(rows(range(10), 0))
        except MetadataTableError as error:
            assert damaged[0] in str(error)  # noqa: PT017
            assert "at byte" in str(error)  # noqa: PT017
    assert table.rebuild_metadata_table(["record_index"])
    assert table.doctor(**ALL) == []
    assert values_of(table).keys() == before.keys()
    require_true_metadata(storage)


def test_write_of_another_kind_takes_an_index_off_that_lost_the_shards_of_a_partition(
    new_path: Callable[[], str],
) -> None:
    """New shards would have the new keys alone, and reads would skip the rows of the others."""
    table = bl.create_table(
        new_path(),
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["day"],
        index=bl.SimpleBucket(2),
        metadata_table=True,
    )
    table.upsert(rows(range(8), 0))
    table.rebuild_metadata_table(["record_index"])
    files_of_a_shard_are_gone(open_storage(table.path))
    with pytest.warns(MetadataTableWarning, match="record_index"):
        table.upsert(rows(range(8, 12), 1))
    assert table.to_arrow(where="id = 'k0'").num_rows == 1
    assert len(values_of(table)) == 12
