"""Changes of version that move the timeline: from version 6 to 8 and 9, and back."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import fastavro
import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions.pending import begin_instant
from bucketlake.actions.turns import head
from bucketlake.config import table_keys as keys
from bucketlake.config.paths_of_table import (
    ARCHIVAL_FOLDER,
    EXTENSION_FOLDER,
    METADATA_TABLE_FOLDER,
    VERSION_CHANGE_FILE,
)
from bucketlake.errors import (
    CommitConflictError,
    ConfigError,
    FormatError,
    TimelineError,
    UnsupportedFeatureError,
)
from bucketlake.format.archive_file import CONTENT
from bucketlake.format.avro.timeline_records import decode_record
from bucketlake.format.commit_metadata import decode_commit_metadata
from bucketlake.index.stored_setting import SETTING_FILE
from bucketlake.metadata.metadata_table import load_metadata_table
from bucketlake.model.file_slice import FileSlice
from bucketlake.read.snapshot import load_snapshot
from bucketlake.services import version_change
from bucketlake.services.check.findings import Finding, FindingKind
from bucketlake.services.version_change import change_version
from bucketlake.storage.base import Storage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.archive_reader import history_files, read_archive
from bucketlake.timeline.commit_order import last_turn, take_turn
from bucketlake.timeline.heartbeat import beating
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.other_layout import read_move
from bucketlake.timeline.table_properties import read_table_config, table_at
from tests.choices import of_this_version, some
from tests.faulty_storage import FaultyStorage, SimulatedCrash, distinct_deaths
from tests.golden.objects import objects_of_table
from tests.inside import storage_of, values_of
from tests.meanwhile import PUTS, dying, meanwhile
from tests.metadata_truth import require_true_metadata
from tests.storages import memory_of, objects_of

NewPath = Callable[[], str]
SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
DAYS = "ab"
ONLY_IN_JSON = {"totalLogBlocksScanTimeMs", "totalValidLogBlocks", "totalLogBlocksSize"}
"""Counters of Hudi 1.2.0 that its Avro records do not have."""

CHANGES = pytest.mark.parametrize(("version", "to"), [(6, 8), (6, 9), (8, 6), (9, 6)])
INDEXES = {
    "simple": bl.SimpleBucket(2),
    "groups": bl.SimpleBucket(2, max_file_size=4000),
    "ring": bl.ConsistentBucket(2),
    "directory": bl.ExtendibleBucket(2),
}


def make(path: str, version: int, **more: object) -> bl.Table:
    given = {
        "index": bl.SimpleBucket(2),
        "partition_by": ["day"],
        "ordering": "v",
    } | more
    return bl.create_table(path, schema=SCHEMA, record_key=["id"], version=version, **given)


def rows(*numbers: int, v: int = 1, days: str = DAYS) -> pa.Table:
    made = [{"id": f"k{n}", "day": days[n % len(days)], "v": v} for n in numbers]
    return pa.Table.from_pylist(made, SCHEMA)


def lived(path: str, version: int, **more: object) -> bl.Table:
    """Make a table whose timeline has an archive, and actions of many kinds."""
    table = make(path, version, **more)
    for n in range(5):
        table.upsert(rows(*range(n, n + 8), v=n + 1))
    table.insert_overwrite(rows(1, 3, v=6, days="b"))
    table.clean(retain_commits=1)
    for n in range(6, 9):
        table.upsert(rows(*range(n, n + 8), v=n + 1))
    assert table.archive(keep_min=2, keep_max=3).instants
    table.savepoint()
    undone = table.upsert(rows(1, 2, v=50))
    assert undone.instant is not None
    table.rollback(undone.instant)
    table.upsert(rows(0, 20, v=10))
    table.delete(rows(4))
    return table


def slices_of(storage: Storage) -> list[FileSlice]:
    return load_snapshot(table_at(storage)).all_slices()


def history(storage: Storage) -> list[tuple[str, str]]:
    """Return the completed instants of both timelines."""
    table = table_at(storage)
    active = [i for i in load_timeline(table).instants if i.state is State.COMPLETED]
    archived = read_archive(table, with_metadata=False)
    assert len({entry.order for entry in archived}) == len(archived)
    return sorted({(i.requested_at, i.action.value) for i in active} | {e.order for e in archived})


def contents(storage: Storage) -> dict[tuple[str, str], Any]:
    """Return what the instants of both timelines hold: commits decoded, the others as bytes."""
    table = table_at(storage)
    timeline = load_timeline(table)
    found = {
        (i.requested_at, i.action.value): storage.read(timeline.path_of(i))
        for i in timeline.completed()
    }
    found |= {entry.order: entry.metadata or b"" for entry in read_archive(table)}
    return {
        order: decode_commit_metadata(data, "") if order[1].endswith("commit") else data
        for order, data in found.items()
    }


def unexpected(table: bl.Table) -> list[Finding]:
    """Return what a doctor finds beside heartbeats and old turns of processes that died."""
    harmless = (FindingKind.LEFTOVER_HEARTBEAT, FindingKind.LEFTOVER_TURN)
    found = table.doctor(min_age_seconds=0)
    return [finding for finding in found if finding.kind not in harmless]


def require_nothing_left(storage: Storage) -> None:
    """Check that the other layout has no file, and no mark tells of a change."""
    config = read_table_config(storage)
    names = {stored.path.rpartition("/")[2] for stored in storage.list(".hoodie", recursive=False)}
    if config.layout.has_timeline_folder:
        assert not [name for name in names if Instant.from_file_name(name)]
        assert not [*storage.list(".hoodie/archived")]
        assert not [*storage.list(ARCHIVAL_FOLDER)]
    else:
        assert not [*storage.list(".hoodie/timeline")]
    if not config.metadata_partitions:
        assert not [*storage.list(METADATA_TABLE_FOLDER)]
    require_true_metadata(storage)
    assert read_move(storage) is None


@CHANGES
@pytest.mark.parametrize("index", [*INDEXES])
def test_rows_and_history_stay(new_path: NewPath, version: int, to: int, index: str) -> None:
    table = lived(new_path(), version, index=INDEXES[index])
    storage = storage_of(table)
    expected, since = values_of(table), values_of(table, since="0" * 17)
    saved = next(i.requested_at for i in table.timeline() if i.action is Action.SAVEPOINT)
    then, told, said = values_of(table, as_of=saved), history(storage), contents(storage)
    report = table.upgrade(to=to) if to > version else table.downgrade(to=to)
    assert (report.version_before, report.version) == (version, to)
    assert values_of(table) == expected
    assert values_of(table, since="0" * 17) == since
    assert values_of(table, as_of=saved) == then
    assert history(storage) == told
    assert contents(storage) == said
    require_nothing_left(storage)
    assert table.doctor(check_keys=True, min_age_seconds=0) == []
    table.upsert(rows(30, v=11))
    assert values_of(table) == expected | {"k30": 11}
    table.delete_savepoint(saved)
    table.archive(keep_min=1, keep_max=2)
    assert values_of(table) == expected | {"k30": 11}
    assert values_of(table, since="0" * 17) == since | {"k30": 11}
    assert table.doctor(check_keys=True, min_age_seconds=0) == []


@CHANGES
def test_a_savepoint_is_restored_afterwards(new_path: NewPath, version: int, to: int) -> None:
    table = lived(new_path(), version)
    saved = next(i.requested_at for i in table.timeline() if i.action is Action.SAVEPOINT)
    then = values_of(table, as_of=saved)
    change_version(table_at(storage_of(table)), to)
    table.restore(saved)
    assert values_of(table) == then
    table.upsert(rows(30, v=11))
    assert values_of(table) == then | {"k30": 11}


def test_a_table_that_goes_up_and_down_is_as_it_was(new_path: NewPath) -> None:
    table = lived(new_path(), 6, metadata_table=False)
    storage = storage_of(table)
    ours = f"{EXTENSION_FOLDER}/commit_order/"

    def lasting() -> dict[str, bytes]:
        """Leave out turns, dates and claims of the archive."""
        found = objects_of(storage)
        return {
            path: data
            for path, data in found.items()
            if not path.startswith((ours, ARCHIVAL_FOLDER)) and not path.endswith("properties")
        }

    before, entries = lasting(), read_table_config(storage)
    table.upgrade()
    table.downgrade(to=6)
    after = lasting()
    assert after.keys() - before.keys() <= {".hoodie/.index_defs/index.json"}
    different = {path for path in before if path not in after or before[path] != after[path]}
    assert SETTING_FILE in different  # Keys that were split as Hudi 0.15 does stay whole.
    for path in different - {SETTING_FILE}:  # JSON has the fields in another order.
        is_log = path.startswith(".hoodie/archived/.commits_")
        assert is_log or fields(before[path]) == fields(after[path]), path
    now = read_table_config(storage)
    assert now.extra.keys() - entries.extra.keys() <= {keys.TIMELINE_MOVED}
    assert {**vars(now), "extra": {}} == {**vars(entries), "extra": {}}


def test_requested_times_stand_for_completion_times(new_path: NewPath) -> None:
    """So who read up to a commit goes on from there."""
    table = lived(new_path(), 6)
    read_until = table.timeline()[-1].completed_at
    table.upgrade()
    assert all(i.completed_at == i.requested_at for i in table.timeline())
    assert table.to_arrow(since=read_until).num_rows == 0
    later = table.upsert(rows(40))
    assert later.completed_at is not None
    assert later.completed_at > later.instant
    assert table.to_arrow(since=read_until, columns=["id"])["id"].to_pylist() == ["k40"]


def test_upgraded_commits_are_avro_and_downgraded_ones_json(new_path: NewPath) -> None:
    table = make(new_path(), 6)
    at = table.upsert(rows(1)).instant
    storage = storage_of(table)
    table.upgrade(to=8)
    path = f".hoodie/timeline/{at}_{at}.commit"
    assert decode_record(storage.read(path), path, "HoodieCommitMetadata")["operationType"]
    overwrite = table.insert_overwrite(rows(1))
    table.downgrade(to=6)
    assert json.loads(storage.read(f".hoodie/{at}.commit"))["operationType"] == "UPSERT"
    replaced = json.loads(storage.read(f".hoodie/{overwrite.instant}.replacecommit"))
    assert replaced["partitionToReplaceFileIds"]


def test_the_inflight_file_of_a_clean_repeats_its_plan_for_hudi_0_15() -> None:
    storage = memory_of(objects_of_table("cow_archived"))
    cleans = [i for i in load_timeline(table_at(storage)).completed() if i.action is Action.CLEAN]
    inflight = f".hoodie/timeline/{cleans[-1].requested_at}.clean.inflight"
    storage.put(inflight, b"")
    change_version(table_at(storage), 6)
    folder = f".hoodie/{cleans[-1].requested_at}.clean"
    assert storage.read(f"{folder}.inflight") == storage.read(f"{folder}.requested") != b""


OLD_TABLES = ["cow_of_0_15_0", "cow_v6", "cow_v6_archived"]
NEW_TABLES = ["cow_archived", "cow_savepoint", "cow_insert_overwrite", "cow_v8_insert_overwrite"]
MORE_NEW_TABLES = ["cow_clustered", "cow_rolled_back", "cow_restored", "cow_metadata_table"]


@pytest.mark.parametrize("name", OLD_TABLES + NEW_TABLES + MORE_NEW_TABLES)
def test_tables_of_hudi_keep_rows_history_and_every_field(name: str) -> None:
    storage = memory_of(objects_of_table(name))
    table = bl.open_table(storage.root)
    version = table.config().version
    before, told, said = all_rows(storage), history(storage), raw(storage)
    report = change_version(table_at(storage), 9 if version == 6 else 6)
    assert all_rows(storage) == before
    assert history(storage) == told
    require_nothing_left(storage)
    if report.built:
        require_true_metadata(storage)
    change_version(table_at(storage), version)
    assert all_rows(storage) == before
    assert raw(storage) == said
    assert not table.doctor(min_age_seconds=0)


def all_rows(storage: Storage) -> list[dict[str, Any]]:
    """Return the rows, each with the time of its commit."""
    table = bl.open_table(storage.root)
    names = ["_hoodie_record_key", "_hoodie_commit_time", *table.to_arrow().column_names]
    return sorted(table.to_arrow(columns=names).to_pylist(), key=str)


def raw(storage: Storage) -> dict[tuple[str, str], Any]:
    """Return all fields of all completed instants, of the archive also the plans."""
    table = table_at(storage)
    timeline = load_timeline(table)
    found: dict[tuple[str, str], Any] = {}
    for instant in timeline.completed():
        data = storage.read(timeline.path_of(instant))
        found[instant.requested_at, instant.action.value] = fields(data)
    for file in history_files(storage, table.config.history_folder):
        for entry in file.read(CONTENT):
            found[entry.order] = fields(entry.metadata or b""), fields(entry.plan or b"")
    return found


def fields(data: bytes) -> Any:
    """Return the fields of a record that have a value; the version of commits is not in JSON."""
    if data.startswith(b"{"):
        record = json.loads(data)
    elif data:
        [record] = fastavro.reader(io.BytesIO(data))
    else:
        return None
    if "partitionToWriteStats" in record:
        record.pop("version", None)
    return with_value(record)


def with_value(value: Any) -> Any:
    if isinstance(value, dict):
        found = {key: with_value(held) for key, held in value.items() if key not in ONLY_IN_JSON}
        return {key: held for key, held in found.items() if held is not None}
    return [with_value(held) for held in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "name", ["mor_of_0_15_0", "mor_v6", "mor_v6_compacted", "mor_v6_rolled_back"]
)
def test_log_files_of_version_6_stay_in_their_slices(name: str) -> None:
    storage = memory_of(objects_of_table(name))
    before = all_rows(storage)
    slices = [(found.base_file, found.log_files) for found in slices_of(storage)]
    assert any(logs for _, logs in slices)
    change_version(table_at(storage), 9)
    assert all_rows(storage) == before
    assert [(found.base_file, found.log_files) for found in slices_of(storage)] == slices
    table = bl.open_table(storage.root)
    assert not table.doctor(check_keys=True, min_age_seconds=0)
    assert table.compact().instants
    assert [row["id"] for row in all_rows(storage)] == [row["id"] for row in before]
    assert not any(found.log_files for found in slices_of(storage))
    assert not table.doctor(min_age_seconds=0)


def test_what_was_written_to_log_files_of_version_6_is_not_undone() -> None:
    """A log file may have rows of several commits."""
    storage = memory_of(objects_of_table("mor_of_0_15_0"))
    old = load_timeline(table_at(storage))
    last = old.completed_commits()[-1]
    assert last.action is Action.DELTA_COMMIT
    saved = f".hoodie/{old.completed_commits()[0].requested_at}.savepoint"
    storage.put(saved, b"")
    before = objects_of(storage)
    with pytest.raises(TimelineError, match="this savepoint could not be restored"):
        change_version(table_at(storage), 9)
    assert objects_of(storage) == before
    storage.delete(saved)
    change_version(table_at(storage), 9)
    table = bl.open_table(storage.root, index=bl.SimpleBucket(2))
    with pytest.raises(TimelineError, match="before an upgrade"):
        table.rollback(last.requested_at)
    data = table.to_arrow().slice(0, 1)
    undone = table.upsert(data.set_column(2, "ts", pa.array([99])))
    assert undone.instant is not None
    table.rollback(undone.instant)


@pytest.mark.parametrize(("version", "to"), of_this_version([(6, 8), (8, 6), (9, 6), (6, 9)], 2))
def test_a_change_that_dies_anywhere_is_finished_or_undone(
    new_path: NewPath, version: int, to: int
) -> None:
    base = objects_of(storage_of(lived(new_path(), version)))
    first = memory_of(base)
    expected = values_of(bl.open_table(first.root))
    told = history(first)
    counted = FaultyStorage(memory_of(base), reads_count=False)
    change_version(table_at(counted), to)
    faults = distinct_deaths(counted)
    versions = set()
    for fault in some(faults, 14):
        storage = memory_of(base)
        faulty = FaultyStorage(storage, [fault], reads_count=False)
        with suppress(SimulatedCrash):
            change_version(table_at(faulty), to)
        table = bl.open_table(storage.root)
        found = table.config().version
        versions.add(found)
        assert found in (version, to)
        assert values_of(table) == expected, faulty.replay()
        assert history(storage) == told, faulty.replay()
        # Writers go on in either version.
        copied = memory_of(objects_of(storage))
        other = bl.open_table(copied.root)
        other.upsert(rows(50, v=20))
        assert values_of(other) == expected | {"k50": 20}, faulty.replay()
        for target, by in ((storage, expected), (copied, expected | {"k50": 20})):
            change_version(table_at(target), to)
            changed = bl.open_table(target.root)
            assert changed.config().version == to
            assert values_of(changed) == by, faulty.replay()
            require_nothing_left(target)
            assert keys.UNBUILT_PARTITIONS not in changed.config().extra
            assert unexpected(changed) == [], faulty.replay()
    assert versions == {version, to}


def test_after_a_death_the_table_may_also_go_back(new_path: NewPath) -> None:
    base = objects_of(storage_of(lived(new_path(), 9)))
    first = memory_of(base)
    expected = values_of(bl.open_table(first.root))
    counted = FaultyStorage(memory_of(base), reads_count=False)
    change_version(table_at(counted), 6)
    for fault in some(distinct_deaths(counted), 10):
        storage = memory_of(base)
        with suppress(SimulatedCrash):
            change_version(table_at(FaultyStorage(storage, [fault], reads_count=False)), 6)
        change_version(table_at(storage), 9)
        require_nothing_left(storage)
        assert values_of(bl.open_table(storage.root)) == expected
        require_true_metadata(storage)


def test_a_writer_of_the_old_layout_does_not_commit_after_the_turn(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lived(new_path(), 9)
    opened = table_at(storage_of(table))
    seen: list[str] = []

    def write() -> None:
        with pytest.raises(CommitConflictError, match="version of the table is being changed"):
            table.upsert(rows(60))
        seen.append("during")

    expected = values_of(table)
    meanwhile(monkeypatch, write, PUTS, VERSION_CHANGE_FILE, after=True)
    table.downgrade(to=6)
    assert seen
    with pytest.raises(CommitConflictError, match="open it, and repeat"):
        head(opened)
    assert values_of(table) == expected
    table.upsert(rows(60))
    assert values_of(table) == expected | {"k60": 1}


def test_a_change_that_was_taken_for_dead_is_not_decided(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lived(new_path(), 9)
    copy = version_change.copy_timeline

    def copy_slowly(*arguments: Any) -> None:
        copy(*arguments)
        turn = last_turn(storage_of(table))
        assert turn is not None
        storage_of(table).delete(f".hoodie/.heartbeat/{turn.instant}")
        table.upsert(rows(60))

    with monkeypatch.context() as patched:
        patched.setattr(version_change, "copy_timeline", copy_slowly)
        with pytest.raises(CommitConflictError, match="took this change"):
            table.downgrade(to=6)
    assert table.config().version == 9
    assert values_of(table)["k60"] == 1
    table.downgrade(to=6)
    assert values_of(table)["k60"] == 1
    require_nothing_left(storage_of(table))


def test_a_dead_change_hinders_nobody(new_path: NewPath, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lived(new_path(), 9)
    with dying(PUTS, VERSION_CHANGE_FILE, after=True):
        table.downgrade(to=6)
    assert storage_of(table).stat(VERSION_CHANGE_FILE) is not None
    table.upsert(rows(60))
    table.downgrade(to=9)  # Nothing to change, but to clear away.
    require_nothing_left(storage_of(table))
    assert values_of(table)["k60"] == 1


def test_a_living_write_is_not_disturbed(new_path: NewPath) -> None:
    table = lived(new_path(), 9)
    opened = table_at(storage_of(table))
    before = table.config()
    with (
        begin_instant(opened, load_timeline(opened), Action.COMMIT),
        pytest.raises(CommitConflictError, match="other processes write"),
    ):
        table.downgrade(to=6)
    assert table.config() == before
    table.downgrade(to=6)


def test_a_dead_write_is_rolled_back_first(new_path: NewPath) -> None:
    table = lived(new_path(), 9)
    opened, expected = table_at(storage_of(table)), values_of(table)
    with begin_instant(opened, load_timeline(opened), Action.COMMIT) as (dead, _):
        pass
    assert dead in {i.requested_at for i in table.timeline()}
    table.downgrade(to=6)
    assert dead not in {i.requested_at for i in table.timeline()}
    assert values_of(table) == expected


@pytest.mark.parametrize(("version", "to"), [(6, 9), (9, 6)])
def test_a_first_write_that_dies_during_a_change_is_never_visible(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch, version: int, to: int
) -> None:
    """It began after the change had looked for writes, and put its files before it died."""
    table = make(new_path(), version, metadata_table=False)
    storage = storage_of(table)

    def die() -> None:
        with dying(PUTS, f"{EXTENSION_FOLDER}/outcome", after=False):
            table.upsert(rows(60))

    meanwhile(monkeypatch, die, PUTS, VERSION_CHANGE_FILE, after=True)
    change_version(table_at(storage), to)
    for number in range(3):
        table.upsert(rows(*range(4), v=number))
    assert table.archive(keep_min=1, keep_max=2).instants
    assert values_of(table) == dict.fromkeys(("k0", "k1", "k2", "k3"), 2)


def test_who_opened_the_table_before_a_change_is_told_to_open_it_again(new_path: NewPath) -> None:
    table = make(new_path(), 6, metadata_table=True)
    table.upsert(rows(1))
    opened = table_at(storage_of(table))
    timeline = load_timeline(opened)
    table.upgrade()
    with pytest.raises(CommitConflictError, match="open it, and repeat"):
        load_metadata_table(opened, timeline)


def test_a_planned_clean_is_carried_out_first(new_path: NewPath) -> None:
    table = make(new_path(), 9)
    for n in range(3):
        table.upsert(rows(1, v=n))
    storage = storage_of(table)
    [clean] = table.clean(retain_versions=1).instants
    files = {path for path in objects_of(storage) if path.endswith(".parquet")}
    timeline = load_timeline(table_at(storage))
    [completed] = [i for i in timeline.completed() if i.requested_at == clean]
    storage.delete(timeline.path_of(completed))
    storage.delete(f"{EXTENSION_FOLDER}/outcome/{clean}.clean.json")
    table.downgrade(to=6)
    assert clean in {i.requested_at for i in table.timeline()}
    assert {path for path in objects_of(storage) if path.endswith(".parquet")} == files


def test_a_pending_resize_is_named(new_path: NewPath) -> None:
    storage = memory_of(objects_of_table("mor_resize_pending"))
    before = objects_of(storage)
    with pytest.raises((TimelineError, UnsupportedFeatureError)):
        change_version(table_at(storage), 6)
    assert objects_of(storage) == before


def test_log_files_are_compacted_before_a_downgrade(new_path: NewPath) -> None:
    table = lived(new_path(), 9, table_type="merge_on_read")
    table.upsert(rows(0, 1, 2, v=70))
    expected = values_of(table)
    planned = table.downgrade(to=6, dry_run=True)
    assert planned.compacted > 0
    assert table.downgrade(to=6).compacted == planned.compacted
    assert not any(found.log_files for found in slices_of(storage_of(table)))
    assert values_of(table) == expected
    table.upsert(rows(0, 1, 2, v=80))
    assert any(found.log_files for found in slices_of(storage_of(table)))
    written = values_of(table)
    for entry in table.timeline():
        if entry.action is Action.SAVEPOINT:
            table.delete_savepoint(entry.requested_at)
    table.upgrade(to=9)
    assert values_of(table) == written != expected


def overlapping(table: bl.Table) -> None:
    """Have a commit complete after one that began later."""
    storage = storage_of(table)
    timeline = load_timeline(table_at(storage))
    first, second = timeline.completed_commits()[-2:]
    late = max(i.completed_at or "" for i in timeline.completed())
    path = timeline.path_of(first)
    moved = path.replace(f"_{first.completed_at}", f"_{int(late) + 1}")
    storage.put(moved, storage.read(path))
    storage.delete(path)
    assert second.requested_at > first.requested_at


def test_an_order_that_would_be_lost_must_be_named(new_path: NewPath) -> None:
    table = make(new_path(), 9)
    for n in range(3):
        table.upsert(rows(n, v=n))
    overlapping(table)
    before, expected = objects_of(storage_of(table)), values_of(table)
    with pytest.raises(ConfigError, match="--drop completion_times"):
        table.downgrade(to=6)
    with pytest.raises(ConfigError, match="one of completion_times"):
        table.downgrade(to=6, drop="completion_time")
    assert objects_of(storage_of(table)) == before
    table.downgrade(to=6, drop="completion_times")
    assert values_of(table) == expected


def overtaken(path: str, operation: str, key: str) -> bl.Table:
    """Return a table with a write of a row that a compaction of its bucket has overtaken."""
    table = bl.create_table(
        path,
        schema=pa.schema({"id": pa.string(), "n": pa.int64()}),
        record_key="id",
        index=bl.SimpleBucket(1),
        table_type="merge_on_read",
    )
    for n in range(2):
        table.upsert(pa.table({"id": ["a"], "n": [n]}))
    with pytest.MonkeyPatch.context() as patch:
        meanwhile(patch, bl.open_table(table.path).compact)
        getattr(table, operation)(pa.table({"id": [key], "n": [2]}))
    return table


def test_time_travel_that_would_be_lost_must_be_named(new_path: NewPath) -> None:
    """A log file of a write that a compaction overtakes belongs to its slice by its time alone."""
    table = overtaken(new_path(), "upsert", "a")
    compaction = table.timeline()[-1]
    assert table.to_arrow(as_of=compaction)["n"].to_pylist() == [2]
    lost = f"compaction {compaction.requested_at} overtook commit .* as of a time from"
    with pytest.raises(ConfigError, match=f"{lost} .*--drop completion_times"):
        table.downgrade(to=6, dry_run=True)
    table.downgrade(to=6, drop="completion_times")
    assert table.to_arrow()["n"].to_pylist() == [2]


def test_a_compaction_of_what_an_overwrite_removes_loses_no_time_travel(new_path: NewPath) -> None:
    table = overtaken(new_path(), "insert_overwrite", "b")
    actions = [instant.action.value for instant in table.timeline()]
    assert actions[-2:] == ["replacecommit", "commit"], "the compaction began later"
    at = table.timeline()[-1].requested_at
    table.downgrade(to=6)
    for told in (None, at):
        assert table.to_arrow(as_of=told)["id"].to_pylist() == ["b"]


def test_a_savepoint_between_begin_and_end_of_a_commit_must_go_first(new_path: NewPath) -> None:
    table = make(new_path(), 9)
    for n in range(3):
        table.upsert(rows(n, v=n))
    saved = table.savepoint()
    overlapping(table)
    with pytest.raises(ConfigError, match="delete the savepoint first"):
        table.downgrade(to=6, drop=["completion_times"])
    table.delete_savepoint(saved)
    table.downgrade(to=6, drop=["completion_times"])


@pytest.mark.parametrize(
    ("more", "error", "missing"),
    [
        ({"index": bl.DynamicBucket()}, ConfigError, "since version 9"),
        ({"index": bl.PartitionBucket({"a": 1}, default=2)}, ConfigError, "since version 9"),
        ({"index": bl.RecordIndex()}, ConfigError, "since version 9"),
        ({"ordering": ["v", "day"]}, ConfigError, "one ordering field"),
    ],
)
def test_what_version_6_lacks_is_named_before_anything_is_written(
    new_path: NewPath, more: dict[str, object], error: type[Exception], missing: str
) -> None:
    table = make(new_path(), 9, **more)
    before = objects_of(storage_of(table))
    with pytest.raises(error, match=missing):
        table.downgrade(to=6)
    assert objects_of(storage_of(table)) == before


def test_a_dry_run_changes_nothing(new_path: NewPath) -> None:
    table = lived(new_path(), 9)
    before = objects_of(storage_of(table))
    report = table.downgrade(to=6, dry_run=True)
    assert (report.version, report.readers) == (6, "Hudi 0.14 and 0.15")
    assert report.dropped == ("partition_stats",)
    assert objects_of(storage_of(table)) == before


def half_moved(name: str) -> MemoryStorage:
    """Return a table of version 6 after Hudi moved some instants, and died."""
    storage = memory_of(objects_of_table(name))
    commits = load_timeline(table_at(storage)).completed_commits()
    for commit in commits[-2:]:
        at = commit.requested_at
        path = f".hoodie/{at}.{commit.action.value}"
        storage.put(
            f".hoodie/timeline/{at}_{int(at) + 7}.{commit.action.value}", storage.read(path)
        )
        storage.delete(path)
    return storage


def test_a_half_upgraded_table_of_hudi_is_named_and_not_written() -> None:
    unmoved = memory_of(objects_of_table("cow_of_0_15_0"))
    whole = bl.open_table(unmoved.root)
    names = [name for name in whole.to_arrow().column_names if not name.startswith("_hoodie")]
    data = whole.to_arrow(columns=names)
    storage = half_moved("cow_of_0_15_0")
    before = objects_of(storage)
    table = bl.open_table(storage.root, index=bl.SimpleBucket(2))
    last = load_timeline(table_at(storage)).completed_commits()[-1].requested_at
    calls = (
        table.upgrade,
        table.to_arrow,
        table.clean,
        lambda: table.upsert(data),
        lambda: table.rollback(last, dry_run=True),
    )
    for call in calls:
        with pytest.raises(UnsupportedFeatureError, match=r"two timelines.*write once more"):
            call()
    assert objects_of(storage) == before


def test_a_half_downgraded_table_of_hudi_is_named_and_not_written(new_path: NewPath) -> None:
    table = lived(new_path(), 9)
    storage = storage_of(table)
    timeline = load_timeline(table_at(storage))
    last = timeline.completed_commits()[-1]
    path = timeline.path_of(last)
    storage.put(f".hoodie/{last.requested_at}.commit", storage.read(path))
    storage.delete(path)
    storage.delete(f"{EXTENSION_FOLDER}/outcome/{last.requested_at}.json")
    before = objects_of(storage)
    for call in (lambda: table.downgrade(to=6), lambda: table.upsert(rows(1))):
        with pytest.raises(UnsupportedFeatureError, match="two timelines"):
            call()
    assert objects_of(storage) == before


def test_an_archive_that_hudi_left_where_it_was_goes(new_path: NewPath) -> None:
    """Hudi's upgrade keeps the log files; its instants are in the new archive, too."""
    table = lived(new_path(), 6)
    storage = storage_of(table)
    old = {path: data for path, data in objects_of(storage).items() if "/archived/" in path}
    table.upgrade()
    for path, data in old.items():
        storage.put(path, data)
    told = history(storage)
    table.downgrade(to=6)
    assert history(storage) == told
    table.upgrade()
    for path, data in old.items():
        storage.put(path, data)
    for stored in [*storage.list(".hoodie/timeline/history")]:
        storage.delete(stored.path)
    with pytest.raises(UnsupportedFeatureError, match="two timelines"):
        table.downgrade(to=6)


def test_a_reader_that_opened_the_old_version_does_not_see_an_empty_table(
    new_path: NewPath,
) -> None:
    table = lived(new_path(), 9)
    opened = table_at(storage_of(table))
    table.downgrade(to=6)
    with pytest.raises(TimelineError, match="open the table again"):
        load_snapshot(opened)


def test_the_zone_of_writers_is_not_taken_from_files_that_moved() -> None:
    """Otherwise new times would be as old as the last commit."""
    now_ms = 1_800_000_000_000
    storage = MemoryStorage.fresh(clock=lambda: now_ms)
    for path, data in objects_of_table("cow_of_0_15_0").items():
        storage.put(path, data)
    change_version(table_at(storage, now_ms=lambda: now_ms), 9)
    table = table_at(storage, now_ms=lambda: now_ms)
    timeline = load_timeline(table)
    assert timeline.newest_written_ms is None
    assert table.clock.next_instant(timeline) > "2027"


def test_turns_and_heartbeats_of_a_change_stay_behind_nowhere(new_path: NewPath) -> None:
    table = lived(new_path(), 6)
    table.upgrade()
    turn = last_turn(storage_of(table))
    assert turn is not None
    assert turn.layout == 2
    assert not [*storage_of(table).list(".hoodie/.heartbeat")]
    table.upsert(rows(1))
    turn = last_turn(storage_of(table))
    assert turn is not None
    assert turn.layout == 2


def test_two_changes_at_once_exclude_each_other(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lived(new_path(), 9)

    def change_too() -> None:
        with pytest.raises(CommitConflictError, match="is being changed"):
            table.downgrade(to=6)

    expected = values_of(table)
    meanwhile(monkeypatch, change_too, PUTS, VERSION_CHANGE_FILE, after=True)
    table.downgrade(to=6)
    assert values_of(table) == expected
    require_nothing_left(storage_of(table))


def test_a_heartbeat_keeps_a_change_alive(new_path: NewPath) -> None:
    table = lived(new_path(), 9)
    opened = table_at(storage_of(table))
    now = head(opened)
    instant = now.next_instant()
    with beating(opened.storage, instant):
        assert take_turn(opened.storage, instant, now.turn, layout=1)
        with pytest.raises(CommitConflictError):
            table.upsert(rows(1, v=90))
    table.upsert(rows(1, v=90))


@pytest.mark.parametrize("name", ["timeline", "archive"])
@pytest.mark.parametrize("folder", ["../x", "/etc", "day=1", "", ".hoodie/../x"])
def test_folders_of_the_mark_of_a_change_are_inside(
    new_path: NewPath, name: str, folder: str
) -> None:
    table = make(new_path(), 9)
    place = {"layout": 1, "timeline": ".hoodie", "archive": ".hoodie/archived"}
    mark = {"from": place | {name: folder}, "to": place}
    storage_of(table).put(VERSION_CHANGE_FILE, json.dumps(mark).encode())
    before = objects_of(storage_of(table))
    with pytest.raises(FormatError, match=r"version_change\.json"):
        table.upgrade()
    assert objects_of(storage_of(table)) == before


@CHANGES
def test_a_batch_of_a_stream_is_not_written_again(new_path: NewPath, version: int, to: int) -> None:
    table = make(new_path(), version)
    for batch_id in (1, 2):
        table.upsert_batch("q")(rows(batch_id), batch_id)
    change_version(table_at(storage_of(table)), to)
    count = len(table.timeline())
    table.upsert_batch("q")(rows(2, v=5), 2)
    assert len(table.timeline()) == count
    table.upsert_batch("q")(rows(3), 3)
    assert values_of(table) == {"k1": 1, "k2": 1, "k3": 1}
