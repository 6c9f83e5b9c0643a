"""Building a record-level index on a table of bucketlake's."""

from __future__ import annotations

import itertools
import logging
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import CommitConflictError, IndexStateError, InputError
from bucketlake.flow.threads import HERE
from bucketlake.format.hfile.reader import HFileReader
from bucketlake.format.metadata_record.record_schema import decode_locations
from bucketlake.metadata.creation import complete_initialisation
from bucketlake.metadata.metadata_table import inner_table
from bucketlake.metadata.record_index.shards import IndexShards, ShardLimits
from bucketlake.model.file_name import InstantTime
from bucketlake.model.schema import RECORD_KEY
from bucketlake.model.write_stat import WriteStat
from bucketlake.read import slice_reader
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.services.metadata import index_builder
from bucketlake.services.metadata.index_builder import IndexBuildPlan, plan_index
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.instant import instant_to_ms
from bucketlake.timeline.markers import read_markers
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.timeline.table_properties import table_at
from tests.between import InterruptedEngine
from tests.bounds import set_bounds
from tests.faulty_storage import Effect, Fault, FaultyStorage, Moment, SimulatedCrash
from tests.spies import spy
from tests.storages import objects_of

FIRST = InstantTime("0" * 17)
SCHEMA = pa.schema({"id": pa.string(), "p": pa.string(), "at": pa.int64()})

Entry = tuple[str, str, int]  # Data partition, file id, and time.


def rows(keys: list[str], partitions: list[str], at: int = 1) -> pa.Table:
    count = len(keys)
    columns = [keys, list(itertools.islice(itertools.cycle(partitions), count)), [at] * count]
    return pa.table(columns, schema=SCHEMA)


NAMES = [f"k{number}" for number in range(300)]


@dataclass
class Built:
    """A table, and a storage for the index alone."""

    snapshot: Snapshot
    metadata: Storage

    @property
    def table(self) -> OpenTable:
        return opened_table(
            self.metadata, inner_table(opened_table(self.metadata, self.snapshot.config)).config
        )

    def plan(
        self,
        *,
        is_partitioned: bool = True,
        shards: int = 1,
        opened: IndexShards | None = None,
    ) -> IndexBuildPlan:
        return plan_index(
            self.snapshot,
            self.table,
            FIRST,
            is_partitioned=is_partitioned,
            limits=ShardLimits(shards, shards),
            opened=opened,
        )

    def build(self, plan: IndexBuildPlan) -> list[WriteStat]:
        return index_builder.build_index(self.snapshot, self.table, plan, HERE)

    def files(self, suffix: str) -> set[str]:
        """Return the paths in the folder of the index that end like this."""
        found = self.metadata.list("record_index")
        return {stored.path for stored in found if stored.path.endswith(suffix)}

    def entries(self) -> Iterator[tuple[str, str, Entry]]:
        """Yield shard, key and location of all entries in base files."""
        for path in self.files(".hfile"):
            hfile = HFileReader.open(self.metadata, path).read()
            values = decode_locations(hfile.values, path)
            shard = path.split("/")[1].split("_")[0]
            for key, code in zip(hfile.keys.to_pylist(), values.indices.to_pylist(), strict=True):
                location = values.locations[code]
                entry = location.partition_path, str(location.file_id), location.instant_ms
                yield shard, key.decode(), entry

    def expected(self) -> set[tuple[str, Entry]]:
        reader = SliceReader.of_snapshot(self.snapshot)
        return {
            (key, (s.partition_path, str(s.file_id), instant_to_ms(s.instant, "UTC")))
            for s in self.snapshot.all_slices()
            for chunk in reader.read(s, [RECORD_KEY])
            for key in chunk[RECORD_KEY].to_pylist()
        }


def open_built(path: str) -> Built:
    storage = open_storage(path)
    return Built(load_snapshot(table_at(storage)), MemoryStorage.fresh())


def make(path: str, *, merge_on_read: bool = False) -> bl.Table:
    return bl.create_table(
        path,
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["p"],
        ordering="at",
        table_type="merge_on_read" if merge_on_read else "copy_on_write",
        index=bl.SimpleBucket(2),
    )


@pytest.fixture
def built(new_path: Callable[[], str]) -> Built:
    """A table of 300 keys in the partitions a, b and c-d."""
    table = make(path := new_path())
    table.upsert(rows(NAMES, ["a", "b", "c-d"]))
    return open_built(path)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("is_partitioned", [True, False], ids=["partitioned", "global"])
def test_index_has_every_key_in_its_shard(built: Built, is_partitioned: bool, shards: int) -> None:
    plan = built.plan(is_partitioned=is_partitioned, shards=shards)
    stats = built.build(plan)
    found = list(built.entries())
    assert {(key, entry) for _, key, entry in found} == built.expected()
    assert len(found) == len(NAMES)
    for shard, key, (partition, _, _) in found:
        number = int(plan.shards.numbers_of(pa.array([key]), partition)[0])
        assert shard == plan.shards.shard(number, partition).file_id
    assert Counter({stat.file_id: stat.record_count for stat in stats}) == Counter(
        shard for shard, _, _ in found
    )
    for stat in stats:
        assert stat.file_size_bytes == len(built.metadata.read(stat.path))
    assert {m.data_path for m in read_markers(built.metadata, FIRST)} == {s.path for s in stats}


def test_every_shard_is_opened_even_without_keys(built: Built) -> None:
    built.build(built.plan(is_partitioned=False, shards=400))
    opened = built.files(".log.1_0-0-0")
    assert len(opened) == 400
    assert {len(built.metadata.read(path)) for path in opened} == {80}


def test_entries_follow_log_files_of_a_merge_on_read_table(new_path: Callable[[], str]) -> None:
    table = make(path := new_path(), merge_on_read=True)
    table.upsert(rows(NAMES, ["a", "b"]))
    table.delete(rows(NAMES[:10], ["a", "b"]))
    table.upsert(rows(["new"], ["a"], at=2))
    built = open_built(path)
    built.build(built.plan())
    keys = {key for _, key, _ in built.entries()}
    assert keys == {*NAMES, "new"}, "an older record must find the delete in the log file"
    table.compact()
    again = open_built(path)
    again.build(again.plan())
    assert {key for _, key, _ in again.entries()} == {*NAMES[10:], "new"}
    assert {(key, entry) for _, key, entry in again.entries()} == again.expected()


@pytest.mark.parametrize("log_bytes", [slice_reader.LOG_BYTES_PER_PASS, 2_000])
def test_build_decodes_the_log_files_once_for_rows_and_deletes(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch, log_bytes: int
) -> None:
    table = make(path := new_path(), merge_on_read=True)
    table.upsert(rows(NAMES, ["a"]))
    table.delete(rows(NAMES[:10], ["a"]))
    table.upsert(rows([*NAMES[:5], "new"], ["a"], at=2))
    built = open_built(path)
    set_bounds(monkeypatch, slice_reader, LOG_BYTES_PER_PASS=log_bytes)
    read = spy(monkeypatch, slice_reader, "counted_blocks", lambda _, file_slice, __: file_slice)
    built.build(built.plan())
    slices = built.snapshot.all_slices()
    passes = {s.file_id: -(-sum(f.size_bytes for f in s.log_files) // log_bytes) for s in slices}
    assert Counter(s.file_id for s in read) == passes
    assert (log_bytes == 2_000) == (max(passes.values()) > 1)
    assert sorted(key for _, key, _ in built.entries()) == sorted([*NAMES, "new"])


def test_passes_over_the_keys_build_the_same_files(
    built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = built.plan(is_partitioned=False, shards=5)
    built.build(plan)
    at_once = objects_of(built.metadata)
    set_bounds(monkeypatch, index_builder, _KEYS_PER_PASS=130)
    again = open_built(built.snapshot.storage.root)
    again.build(again.plan(is_partitioned=False, shards=5))
    assert objects_of(again.metadata) == at_once


@pytest.mark.parametrize("is_partitioned", [True, False], ids=["partitioned", "global"])
def test_build_that_died_continues_with_the_missing_shards(
    new_path: Callable[[], str], is_partitioned: bool
) -> None:
    table = make(path := new_path())
    table.upsert(rows(NAMES, ["a", "b", "c-d"]))
    whole = open_built(path)
    whole.build(whole.plan(is_partitioned=is_partitioned, shards=3))
    changes = len(list(whole.metadata.list("")))
    for number in range(1, changes + 1, 3):
        built = open_built(path)
        plan = built.plan(is_partitioned=is_partitioned, shards=3)
        healthy = built.metadata
        fault = Fault(number, Moment.AFTER, Effect.DIE)
        built.metadata = FaultyStorage(healthy, [fault], reads_count=False)
        with pytest.raises(SimulatedCrash):
            built.build(plan)
        built.metadata = healthy
        done = built.files(".hfile")
        # The table grows meanwhile, but a shard with a base file keeps its keys.
        plan = built.plan(is_partitioned=is_partitioned, shards=5 if done else 3)
        assert {stat.path for stat in plan.written} == done
        stats = built.build(plan)
        assert {(key, entry) for _, key, entry in built.entries()} == whole.expected()
        assert sum(stat.record_count for stat in stats) == len(NAMES)
        for shard, key, (partition, _, _) in built.entries():
            number_of_key = int(plan.shards.numbers_of(pa.array([key]), partition)[0])
            assert shard == plan.shards.shard(number_of_key, partition).file_id


def test_finished_build_reads_no_data_again(built: Built) -> None:
    stats = built.build(built.plan())
    plan = built.plan(shards=3)
    assert (plan.missing, plan.slices) == ((), ())
    assert built.build(plan) == stats


def test_shards_that_writers_use_are_kept(built: Built) -> None:
    # Writers open one shard in a partition that is new, whatever the build is asked for.
    plan = built.plan(shards=3, opened=IndexShards(None, {"a": 2, "new": 4}))
    assert plan.shards == IndexShards(None, {"a": 2, "b": 1, "c-d": 1})
    plan = built.plan(is_partitioned=False, opened=IndexShards(7))
    assert plan.shards == IndexShards(7)


def test_build_that_was_withdrawn_writes_nothing(built: Built) -> None:
    plan = built.plan()

    def withdraw(work: Any, _: object) -> None:
        built.metadata.delete(work.func.__self__.inflight)

    with pytest.raises(CommitConflictError, match="ended while a task still wrote"):
        index_builder.build_index(built.snapshot, built.table, plan, InterruptedEngine(withdraw))
    assert not built.files(".hfile")


def test_build_that_is_decided_is_not_repeated(built: Built) -> None:
    stats = built.build(built.plan())
    plan = built.plan()
    complete_initialisation(built.table, ["record_index"], stats, FIRST, InstantTime("1" * 17))
    assert built.build(plan) == []


def test_partition_with_a_dot_is_refused_before_anything_is_written(
    new_path: Callable[[], str],
) -> None:
    table = make(path := new_path())
    table.upsert(rows(["k"], ["v1.2"]))
    built = open_built(path)
    with pytest.raises(InputError, match=r"'v1\.2' has a dot.*use a global"):
        built.plan()
    assert objects_of(built.metadata) == {}
    built.build(built.plan(is_partitioned=False))
    assert [key for _, key, _ in built.entries()] == ["k"]


def test_key_of_two_partitions_has_no_place_in_a_global_index(new_path: Callable[[], str]) -> None:
    table = make(path := new_path())
    table.upsert(rows(["k", "k", "l"], ["a", "b"]))
    built = open_built(path)
    with pytest.raises(IndexStateError, match="key 'k' is in data partitions 'a' and 'b'"):
        built.build(built.plan(is_partitioned=False))
    built = open_built(path)
    built.build(built.plan())
    assert {(key, entry) for _, key, entry in built.entries()} == built.expected()


def test_empty_table_gets_the_shards_of_a_global_index(new_path: Callable[[], str]) -> None:
    make(path := new_path())
    built = open_built(path)
    assert built.build(built.plan()) == []
    assert built.files("") == {"record_index/.hoodie_partition_metadata"}
    assert built.build(built.plan(is_partitioned=False, shards=2)) == []
    assert len(built.files("0-0-0")) == 2


def test_number_of_shards_follows_the_keys_of_each_partition(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(path := new_path())
    table.upsert(rows(NAMES, ["a"]))
    table.upsert(rows(NAMES[:100], ["b"]))
    built = open_built(path)
    set_bounds(monkeypatch, "bucketlake.metadata.record_index.shards", _SHARD_BYTES_MAX=48 * 100)
    limits = ShardLimits(1, 10)
    plan = plan_index(built.snapshot, built.table, FIRST, is_partitioned=True, limits=limits)
    assert plan.shards == IndexShards(None, {"a": 6, "b": 2})
    assert plan.key_counts == (50,) * 8


def test_plan_and_builder_travel_to_tasks(built: Built) -> None:
    plan = built.plan()
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_progress_is_logged(
    built: Built, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, "bucketlake.actions.progress", PROGRESS_SECONDS=0.001)
    with caplog.at_level(logging.INFO, logger="bucketlake"):
        built.build(built.plan())
    assert any("record index" in m and "of 3 file groups" in m for m in caplog.messages)


def test_shard_too_large_for_a_file_asks_for_more_shards(
    built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, index_builder, FILE_BYTES_MAX=100)
    with pytest.raises(InputError, match="give it more shards"):
        built.build(built.plan())
