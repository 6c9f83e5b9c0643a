"""Tables of other kinds under dynamic buckets: beside writers, after deaths, and back in time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions.conflict import retried
from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.errors import (
    BucketLakeError,
    CommitConflictError,
    ConfigError,
    IndexStateError,
    TimelineError,
)
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.index.stored_setting import SETTING_FILE, VERSIONS_FOLDER
from bucketlake.metadata.file_listing import list_partitions_as
from bucketlake.metadata.record_index.shards import ShardLimits
from bucketlake.model.result import WriteResult
from bucketlake.model.table_type import Operation
from bucketlake.read.arrow_reader import read_arrow
from bucketlake.read.read_plan import plan_slices
from bucketlake.read.snapshot import load_snapshot
from bucketlake.services.check.findings import Severity
from bucketlake.services.metadata import rebuild
from bucketlake.services.metadata.rebuild import build_metadata_table
from bucketlake.services.rebucket import kind_conversion
from bucketlake.services.rebucket.kind_conversion import run_kind_conversion
from bucketlake.slices.file_system_view import list_files
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline.table_properties import read_table_config, table_at
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource, PackedRecords
from bucketlake.write.target import open_target
from tests.between import InterruptedEngine
from tests.bounds import set_bounds
from tests.choices import some
from tests.faulty_storage import Effect, Fault, FaultyStorage, SimulatedCrash, distinct_deaths
from tests.meanwhile import PUTS, meanwhile
from tests.metadata_truth import require_true_index, require_true_metadata
from tests.spies import breaks, overtake

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("at", pa.int64())])
DYNAMIC = bl.DynamicBucket(max_records=10, assigners=2)
SIMPLE = bl.SimpleBucket(3)
NewPath = Callable[[], str]

pytestmark = pytest.mark.filterwarnings("ignore::bucketlake.errors.MetadataTableWarning")
TYPES = pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])


def rows(*numbers: int, at: int = 1, day: str = "a") -> pa.Table:
    return pa.Table.from_pylist([{"id": f"k{n}", "day": day, "at": at} for n in numbers], SCHEMA)


def make(path: str, index: Any = SIMPLE, **given: Any) -> bl.Table:
    defaults: dict[str, Any] = {"record_key": "id", "partition_by": "day", "ordering": "at"}
    table = bl.create_table(path, schema=SCHEMA, index=index, **defaults | given)
    table.upsert(rows(*range(12)))
    return table


def held(table: bl.Table, **given: Any) -> dict[str, int]:
    found = table.to_arrow(columns=["id", "at"], **given).to_pylist()
    result = {row["id"]: row["at"] for row in found}
    assert len(result) == len(found), "no key is stored twice"
    return result


def expected(*numbers: int, at: int = 1) -> dict[str, int]:
    return {f"k{n}": at for n in numbers}


def index_of(table: bl.Table) -> Any:
    return bl.open_table(table.path).index


def healthy(table: bl.Table) -> bool:
    found = table.doctor(check_keys=True, min_age_seconds=0)
    return not [finding for finding in found if finding.severity is not Severity.NOTE]


# ---- A conversion alone -------------------------------------------------------------------------


@TYPES
def test_a_conversion_is_shown_first_and_changes_no_file(
    new_path: NewPath, table_type: str
) -> None:
    table = make(new_path(), table_type=table_type)
    before = [bucket.file_id for bucket in table.buckets()]
    plan = table.convert(DYNAMIC, dry_run=True)
    assert (plan.builds_index, plan.indexed_groups, plan.instant) == (True, 3, None)
    assert plan.indexed_keys > 0
    assert (plan.partitions, plan.file_groups, plan.size_bytes) == ((), 0, 0)
    assert index_of(table) == SIMPLE
    converted = bl.convert(table.path, DYNAMIC)
    assert converted.index == DYNAMIC == index_of(table)
    assert [bucket.file_id for bucket in table.buckets()] == before
    assert converted.convert(DYNAMIC, dry_run=False).instant is None, "it is converted"
    # A handle from before writes under the new kind, and new keys fill the groups with room.
    table.upsert(rows(*range(10, 40), at=2))
    assert held(table) == expected(*range(12)) | expected(*range(10, 40), at=2)
    assert {*before} < {bucket.file_id for bucket in table.buckets()}
    for n in (3, 30):
        assert len(table.locate(f"k{n}")) == 1
        assert held(table, where=f"id = 'k{n}'") == {f"k{n}": held(table)[f"k{n}"]}
    assert healthy(table)
    table.delete_partitions("a")
    table.upsert(rows(1, 2))
    assert held(table) == expected(1, 2)
    assert healthy(table)


def test_a_record_index_that_fits_is_kept(new_path: NewPath) -> None:
    path = new_path()
    table = make(path)
    storage = open_storage(path)
    build_metadata_table(
        table_at(storage), ["record_index"], is_partitioned=True, limits=DYNAMIC.shard_limits
    )
    assert not table.convert(DYNAMIC, dry_run=True).builds_index
    assert table.convert(DYNAMIC, dry_run=False).instant is not None
    other = make(new_path(), bl.RecordIndex())
    assert other.convert(DYNAMIC, dry_run=True).builds_index, "it has another number of shards"


def test_other_directions_are_refused_with_the_way(new_path: NewPath) -> None:
    table = make(new_path(), DYNAMIC)
    with pytest.raises(ConfigError, match=r"new table .*bulk_insert"):
        table.convert(SIMPLE)
    with pytest.raises(ConfigError, match=r"keeps its number of assigners"):
        table.convert(bl.DynamicBucket(assigners=3), dry_run=False)
    with pytest.raises(ConfigError, match=r"new table .*bulk_insert"):
        make(new_path(), bl.RecordIndex()).convert(SIMPLE, dry_run=False)


def test_a_key_that_is_stored_twice_is_an_error_and_the_table_keeps_its_index(
    new_path: NewPath,
) -> None:
    table = make(new_path(), bl.SimpleBucket(2))
    storage = open_storage(table.path)
    storage.delete(SETTING_FILE)  # As if Hudi wrote the table, and a job with another count came.
    table.bulk_insert(rows(1, day="b"))
    (path,) = [file.path for file in list_files(storage, ["b"])]
    copy = path.rpartition("/")[2].replace("0000000", "0000007", 1)
    storage.put(f"b/{copy}", storage.read(path))
    with pytest.raises(IndexStateError, match="key 'k1' is in"):
        table.convert(DYNAMIC, dry_run=False)
    assert index_of(table) != DYNAMIC


# ---- Hash rings ---------------------------------------------------------------------------------


@TYPES
def test_a_ring_is_left_and_resizes_are_refused(new_path: NewPath, table_type: str) -> None:
    table = make(new_path(), bl.ConsistentBucket(2), table_type=table_type)
    table.resize(max_file_size=1, max_groups=1, schedule_only=True)
    for dry_run in (True, False):
        with pytest.raises(IndexStateError, match=r"pending resize.*table\.resize\(\)"):
            table.convert(DYNAMIC, dry_run=dry_run)
    table.resize(max_file_size=1, max_groups=1)
    resized = table.timeline()[-1].requested_at
    before = held(table)
    table.convert(DYNAMIC, dry_run=False)
    with pytest.raises(ConfigError, match="split and merge"):
        table.resize(max_file_size=1)
    with pytest.raises(ConfigError, match="rescale"):
        table.rescale({"a": 5})
    table.upsert(rows(*range(30), at=2))
    assert held(table) == expected(*range(30), at=2)
    assert held(table, as_of=resized) == before
    assert held(table, as_of=resized, where="id = 'k3'") == expected(3)
    assert healthy(table)


# ---- Writers beside a conversion ----------------------------------------------------------------


@TYPES
@pytest.mark.parametrize("index", [SIMPLE, bl.ConsistentBucket(2), bl.RecordIndex()], ids=repr)
def test_a_write_that_began_before_is_made_again_under_the_new_kind(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch, table_type: str, index: Any
) -> None:
    table = make(new_path(), index, table_type=table_type)

    def other() -> None:
        bl.convert(table.path, DYNAMIC).upsert(rows(*range(100, 105), at=2))

    meanwhile(monkeypatch, other)
    table.upsert(rows(*range(103, 108), at=3))
    assert held(table) == expected(*range(12)) | expected(*range(100, 103), at=2) | expected(
        *range(103, 108), at=3
    )
    assert healthy(table)


def test_a_write_between_the_build_and_the_conversion_is_in_the_index(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(new_path())

    def write() -> None:
        table.upsert(rows(*range(5, 20), at=2))
        table.upsert(rows(1, day="b"))

    overtake(monkeypatch, kind_conversion, "convert_kind", write)
    table.convert(DYNAMIC, dry_run=False)
    table.upsert(rows(*range(15, 25), at=3))
    table.upsert(rows(1, day="b", at=3))
    assert len(table.to_arrow()) == 26
    assert healthy(table)


@pytest.mark.parametrize("is_after", [False, True])
def test_an_index_that_was_taken_off_meanwhile_is_built_again(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch, *, is_after: bool
) -> None:
    table = make(new_path())
    storage = open_storage(table.path)

    def take_off() -> None:
        list_partitions_as(storage, lost=[MetadataPartition.RECORD_INDEX])

    step = (("delete_folder",), ".temp") if is_after else (PUTS, ".replacecommit.requested")
    waiting = meanwhile(monkeypatch, take_off, *step)
    assert table.convert(DYNAMIC, dry_run=False).builds_index
    assert not waiting
    assert "record_index" in read_table_config(storage).metadata_partitions
    assert index_of(table) == DYNAMIC
    table.upsert(rows(*range(10, 20), at=2))
    assert held(table) == expected(*range(10)) | expected(*range(10, 20), at=2)
    assert healthy(table)


def test_a_build_does_not_list_what_a_writer_took_off_meanwhile(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(new_path())
    storage, builds = open_storage(table.path), []

    def other(*_: object) -> None:
        builds.append(1)
        if len(builds) == 1:
            list_partitions_as(storage, lost=[MetadataPartition.RECORD_INDEX])
            table.upsert(rows(*range(100, 110)))

    engine = InterruptedEngine(other)
    with pytest.raises(CommitConflictError):
        build_metadata_table(table_at(storage), ["record_index"], engine=engine)
    assert "record_index" not in read_table_config(storage).metadata_partitions
    assert "record_index" in build_metadata_table(
        table_at(storage), ["record_index"], engine=engine
    )
    assert len(table.record_locations("a")) == 22


@pytest.mark.parametrize("step", ["claim_initial_instant", "initialise_partitions"])
def test_a_build_that_was_overtaken_by_one_with_other_shards_adds_no_shard(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    table = make(new_path())
    storage = open_storage(table.path)

    def build() -> None:
        build_metadata_table(table_at(storage), ["record_index"], is_partitioned=False)

    overtake(monkeypatch, rebuild, step, build)
    with pytest.raises(CommitConflictError):
        build_metadata_table(table_at(storage), ["record_index"], limits=DYNAMIC.shard_limits)
    require_true_index(storage)
    table.upsert(rows(1, 20, at=2))
    require_true_index(storage)
    assert healthy(table)


@pytest.mark.parametrize("shards", [DYNAMIC.shard_limits, None])
def test_a_write_whose_index_is_built_again_with_other_shards_is_made_again(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch, shards: Any
) -> None:
    table = make(new_path(), table_type="merge_on_read")
    storage = open_storage(table.path)
    build_metadata_table(table_at(storage), ["record_index"], limits=ShardLimits(3, 3))

    def build_again() -> None:
        list_partitions_as(storage, lost=["record_index"])
        storage.delete_folder(f"{METADATA_TABLE_FOLDER}/record_index")
        if shards is not None:
            build_metadata_table(table_at(storage), ["record_index"], limits=shards)

    overtake(monkeypatch, PackedRecords, "write", build_again)
    table.upsert(rows(*range(6, 20), at=2))
    assert held(table) == expected(*range(6)) | expected(*range(6, 20), at=2)
    require_true_metadata(storage)


# ---- Deaths -------------------------------------------------------------------------------------


def rows_in(storage: Storage) -> dict[str, int]:
    snapshot = load_snapshot(table_at(storage))
    found = read_arrow(storage, plan_slices(snapshot, snapshot.all_slices())).to_pylist()
    assert len({row["id"] for row in found}) == len(found), "no key is stored twice"
    return {row["id"]: row["at"] for row in found}


def upsert_in(storage: Storage, batch: pa.Table) -> None:
    def write() -> WriteResult:
        target = open_target(table_at(storage), None)
        return write_records(target, Operation.UPSERT, ArrowSource(batch, threads=1))

    retried(write)


@pytest.mark.parametrize("effect", [Effect.DIE, Effect.ERROR])
def test_a_conversion_that_died_anywhere_goes_on_and_writes_meanwhile_are_right(
    effect: Effect, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, "bucketlake.timeline.table_properties", _DEAD_AFTER_SECONDS=0.0)
    set_bounds(monkeypatch, "bucketlake.timeline.heartbeat", EXPIRES_AFTER_MS=0)
    name = "conversion-deaths"

    def fresh() -> MemoryStorage:
        forget(name)
        make(f"memory://{name}")
        return MemoryStorage(name)

    done = FaultyStorage(fresh(), reads_count=False)
    run_kind_conversion(table_at(done), DYNAMIC)
    deaths = distinct_deaths(done)
    assert any(step.path.startswith(VERSIONS_FOLDER) for step in done.trace)
    for number, death in enumerate(some(deaths, 16)):
        fault = Fault(death.operation, death.moment, effect)
        storage = fresh()
        faulty = FaultyStorage(storage, [fault], reads_count=False)
        with suppress(SimulatedCrash, BucketLakeError):
            run_kind_conversion(table_at(faulty), DYNAMIC)
        assert rows_in(storage) == expected(*range(12)), faulty.replay()
        wanted = expected(*range(12))
        if number % 2:  # A writer comes before the next attempt.
            with suppress(IndexStateError):  # Under the new kind, without an index: a named error.
                upsert_in(storage, rows(*range(10, 16), at=2))
                wanted |= expected(*range(10, 16), at=2)
        run_kind_conversion(table_at(storage), DYNAMIC)
        upsert_in(storage, rows(*range(14, 20), at=3))
        wanted |= expected(*range(14, 20), at=3)
        assert rows_in(storage) == wanted, faulty.replay()
        assert bl.open_table(f"memory://{name}").index == DYNAMIC
    forget(name)


def test_a_table_without_a_setting_can_still_be_written_after_a_conversion_that_died(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(new_path())
    open_storage(table.path).delete(SETTING_FILE)

    breaks(monkeypatch, kind_conversion, "begun_write", SimulatedCrash())
    with pytest.raises(SimulatedCrash):
        bl.open_table(table.path).convert(DYNAMIC, dry_run=False)
    monkeypatch.undo()
    for index in (None, DYNAMIC):
        with pytest.raises((ConfigError, IndexStateError), match=r"did not complete|holds None"):
            bl.open_table(table.path, index).upsert(rows(1))
    with pytest.raises(IndexStateError):
        bl.open_table(table.path, bl.SimpleBucket(4)).upsert(rows(1, 2, 3, 4, 5))
    bl.open_table(table.path, SIMPLE).upsert(rows(1, at=2))
    assert index_of(table) == SIMPLE
    assert bl.convert(table.path, DYNAMIC).index == DYNAMIC
    table.upsert(rows(2, at=2))
    assert held(table) == expected(*range(12)) | expected(1, 2, at=2)


# ---- Back in time -------------------------------------------------------------------------------


@TYPES
def test_a_conversion_is_rolled_back_with_the_writes_that_used_it(
    new_path: NewPath, table_type: str
) -> None:
    table = make(new_path(), table_type=table_type)
    before = held(table)
    conversion = table.convert(DYNAMIC, dry_run=False).instant
    assert conversion is not None
    table.upsert(rows(*range(5, 30), at=2))
    with pytest.raises(TimelineError):
        table.rollback(conversion)
    table.rollback(conversion, cascade=True)
    assert index_of(table) == SIMPLE
    assert held(table) == before
    table.upsert(rows(*range(10, 15), at=3))
    assert held(table) == before | expected(*range(10, 15), at=3)
    assert healthy(table)
    bl.convert(table.path, DYNAMIC).upsert(rows(*range(12, 20), at=4))
    assert held(table) == before | expected(10, 11, at=3) | expected(*range(12, 20), at=4)
    assert healthy(table)


@TYPES
def test_a_restore_to_before_the_conversion_brings_the_earlier_kind_back(
    new_path: NewPath, table_type: str
) -> None:
    table = make(new_path(), table_type=table_type)
    before, savepoint = held(table), table.savepoint()
    table.convert(DYNAMIC, dry_run=False)
    table.upsert(rows(*range(5, 30), at=2))
    after = held(table)
    assert held(table, as_of=savepoint) == before
    assert held(table, as_of=savepoint, where="id = 'k7'") == expected(7)
    assert after == expected(*range(5)) | expected(*range(5, 30), at=2)
    table.restore(savepoint)
    assert index_of(table) == SIMPLE
    assert held(table) == before
    table.upsert(rows(*range(10, 15), at=3))
    assert held(table) == before | expected(*range(10, 15), at=3)
    assert healthy(table)


def test_a_rollback_to_before_the_build_leaves_a_named_error_or_a_valid_index(
    new_path: NewPath,
) -> None:
    table = make(new_path())
    last = table.upsert(rows(50, 51)).instant
    assert last is not None
    table.convert(DYNAMIC, dry_run=False)
    table.rollback(last, cascade=True)
    table.upsert(rows(*range(10, 15), at=3))
    assert held(table) == expected(*range(12)) | expected(*range(10, 15), at=3)


def test_a_conversion_leaves_the_timeline_and_stays(new_path: NewPath) -> None:
    table = make(new_path())
    table.convert(DYNAMIC, dry_run=False)
    for at in range(2, 8):
        table.upsert(rows(at, at=at))
    assert table.archive(keep_min=2, keep_max=3).instants
    assert index_of(table) == DYNAMIC
    table.upsert(rows(*range(20, 30)))
    assert held(table).keys() == expected(*range(12), *range(20, 30)).keys()
    assert healthy(table)


# ---- What others pay ----------------------------------------------------------------------------


def test_a_table_that_was_never_converted_does_not_look_for_conversions(new_path: NewPath) -> None:
    table = make(new_path())
    storage = FaultyStorage(open_storage(table.path))
    upsert_in(storage, rows(1, at=2))
    assert not [step for step in storage.trace if step.path.startswith(VERSIONS_FOLDER)]
    assert len([step for step in storage.trace if step.path == SETTING_FILE]) == 1


# ---- Tables of Hudi -----------------------------------------------------------------------------

GOLDEN = [
    "cow_simple",
    "cow_complex_key",
    "cow_nonpartitioned",
    "cow_partition_level",
    "cow_rli_partitioned",
    "cow_no_bucket_index",
    "mor_simple",
    "mor_compacted",
    "mor_consistent",
    "mor_consistent_split",
    "mor_rli_partitioned",
]


@pytest.mark.parametrize("name", GOLDEN)
def test_a_table_of_hudi_without_a_setting_is_converted(
    golden_table: Callable[[str], Path], name: str
) -> None:
    table = bl.open_table(str(golden_table(name)))
    before = table.to_arrow()
    files = {bucket.file_id for bucket in table.buckets()}
    converted = bl.convert(table.path, bl.DynamicBucket(max_records=50, assigners=2))
    assert {bucket.file_id for bucket in converted.buckets()} == files
    assert converted.to_arrow().num_rows == before.num_rows
    converted.upsert(before)
    after = converted.to_arrow()
    key = converted.config().key_spec.record_key_fields
    assert after.num_rows == before.num_rows, "no key is stored twice"
    assert sorted(map(str, after.select(key).to_pylist())) == sorted(
        map(str, before.select(key).to_pylist())
    )
