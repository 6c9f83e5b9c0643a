"""Merge-on-read tables of version 6: names of log files, their slices, and compactions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from threading import Event, Thread

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions.pending import begin_instant
from bucketlake.config.paths_of_table import COMMIT_ORDER_FOLDER
from bucketlake.errors import TimelineError, UnsupportedFeatureError
from bucketlake.format.avro.timeline_records import encode_record
from bucketlake.format.log_block import BlockKind, encode_rollback_block, read_log_blocks
from bucketlake.model.file_name import FileId, InstantTime, LogFileName, log_instant
from bucketlake.model.file_slice import FileSlice
from bucketlake.read.snapshot import load_snapshot
from bucketlake.services.check.findings import FindingKind
from bucketlake.timeline.active import load_timeline, planned_slices
from bucketlake.timeline.instant import Action, State, shift_instant
from bucketlake.timeline.markers import Marker, MarkerType, write_markers
from bucketlake.timeline.table_properties import table_at
from tests.inside import storage_of, values_of
from tests.meanwhile import PUTS, meanwhile
from tests.waiting import SECONDS_MAX

PLAN = ".compaction.requested"
SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])


@pytest.fixture
def table(new_path: Callable[[], str]) -> bl.Table:
    """A table with rows k0 to k3 in one base file."""
    made = bl.create_table(
        new_path(), schema=SCHEMA, record_key=["id"], ordering="v", index=bl.SimpleBucket(1),
        table_type="merge_on_read", metadata_table=False, version=6,
    )  # fmt: skip
    made.upsert(rows(0, 1, 2, 3, v=1))
    return made


def rows(*numbers: int, v: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": f"k{n}", "v": v} for n in numbers], SCHEMA)


def logs_of(table: bl.Table) -> list[str]:
    """Return the log files in the order of Hudi's readers."""
    paths = [stored.path for stored in storage_of(table).list("", recursive=False)]
    names = [name for path in paths if (name := LogFileName.from_file_name(path))]
    names.sort(key=lambda name: (name.instant, name.version, name.write_token))
    return [name.to_file_name() for name in names]


def instants(table: bl.Table) -> list[str]:
    return [instant.requested_at for instant in table.timeline()]


def planned_logs(table: bl.Table) -> set[str]:
    opened = table_at(storage_of(table))
    slices = planned_slices(opened.storage, load_timeline(opened))
    return {file.path for planned in slices for file in planned.log_files}


def without_commit(table: bl.Table, instant: str) -> None:
    """Leave a write as if its process had died right before the commit."""
    storage = storage_of(table)
    storage.delete(f".hoodie/{instant}.deltacommit")
    storage.delete(f".hoodie/.bucket_index/ext/outcome/{instant}.json")
    for path in logs_of(table):
        name = LogFileName.from_file_name(path)
        if name is not None and name.writer == instant:
            write_markers(storage, name.writer, [Marker("", path, MarkerType.APPEND)])


def test_log_files_have_the_instant_of_their_slice_and_rising_versions(table: bl.Table) -> None:
    [base] = instants(table)
    first, second = table.upsert(rows(0, v=2)), table.delete(rows(1, v=0).select(["id"]))
    names = [LogFileName.from_file_name(path) for path in logs_of(table)]
    assert [(name.instant, name.version, name.writer) for name in names if name] == [
        (base, 1, first.instant),
        (base, 2, second.instant),
    ]
    blocks = [[*read_log_blocks(storage_of(table), path)] for path in logs_of(table)]
    assert [[block.instant for block in of_file] for of_file in blocks] == [
        [first.instant],
        [second.instant],
    ]
    assert values_of(table) == {"k0": 2, "k2": 1, "k3": 1}
    assert values_of(table, as_of=first.instant) == {"k0": 2, "k1": 1, "k2": 1, "k3": 1}


def test_the_metadata_of_a_delta_commit_names_the_slice(table: bl.Table) -> None:
    [base] = instants(table)
    table.upsert(rows(0, v=2))
    instant = table.upsert(rows(0, v=3)).instant
    commit = json.loads(storage_of(table).read(f".hoodie/{instant}.deltacommit"))
    [stat] = commit["partitionToWriteStats"][""]
    assert stat["prevCommit"] == base
    assert stat["logVersion"] == 2
    assert stat["logFiles"] == logs_of(table)
    assert stat["baseFile"].endswith(f"_{base}.parquet")


def test_writes_beside_a_planned_compaction_add_to_its_slice(table: bl.Table) -> None:
    table.upsert(rows(0, v=2))
    planned = table.compact(schedule_only=True).scheduled
    assert planned is not None
    table.upsert(rows(1, v=2))
    table.upsert(rows(2, v=2))
    assert [log_instant(path) for path in logs_of(table)][1:] == [planned, planned]
    expected = {"k0": 2, "k1": 2, "k2": 2, "k3": 1}
    assert values_of(table) == expected
    assert len(planned_logs(table)) == 1
    table.compact()
    assert values_of(table) == expected
    [bucket] = table.buckets()
    assert bucket.log_files == 0
    assert not table.doctor(check_keys=True, min_age_seconds=0)


def test_a_write_that_began_before_the_plan_of_a_compaction_is_repeated(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its log file would be in the slice that nobody reads any more."""
    table.upsert(rows(0, v=2))
    meanwhile(monkeypatch, lambda: table.compact(schedule_only=True))
    result = table.upsert(rows(1, v=2))
    [planned] = [i for i in table.timeline() if i.state is not State.COMPLETED]
    assert planned.requested_at < str(result.instant)
    assert log_instant(logs_of(table)[-1]) == planned.requested_at
    table.compact()
    assert values_of(table) == {"k0": 2, "k1": 2, "k2": 1, "k3": 1}


def test_a_write_that_began_before_a_whole_compaction_is_repeated(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.upsert(rows(0, v=2))
    meanwhile(monkeypatch, table.compact)
    table.upsert(rows(1, v=2))
    table.compact()
    assert values_of(table) == {"k0": 2, "k1": 2, "k2": 1, "k3": 1}


def test_a_plan_gets_the_log_files_of_commits_before_its_turn(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write has looked for plans before the plan was put."""
    table.upsert(rows(0, v=2))
    has_begun, may_commit = Event(), Event()
    meanwhile(
        monkeypatch,
        lambda: (has_begun.set(), may_commit.wait(SECONDS_MAX)),
        PUTS,
        COMMIT_ORDER_FOLDER,
    )
    writer = Thread(target=table.upsert, args=(rows(1, v=2),))
    writer.start()
    assert has_begun.wait(SECONDS_MAX)
    meanwhile(monkeypatch, lambda: (may_commit.set(), writer.join()), PUTS, PLAN, after=True)
    planned = table.compact(schedule_only=True)
    monkeypatch.undo()
    assert [held.log_files for held in planned.slices] == [2]
    assert len(logs_of(table)) == 2
    assert planned_logs(table) == {*logs_of(table)}
    table.compact()
    assert values_of(table) == {"k0": 2, "k1": 2, "k2": 1, "k3": 1}


def test_a_compaction_is_later_than_the_writes_that_may_not_see_its_plan(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.upsert(rows(0, v=2))
    opened = table_at(storage_of(table))
    begun, running = [], ExitStack()

    def begin() -> None:
        time.sleep(0.002)
        write = begin_instant(opened, load_timeline(opened), Action.DELTA_COMMIT)
        begun.append(running.enter_context(write)[0])

    meanwhile(monkeypatch, begin, PUTS, PLAN)
    with running:
        planned = table.compact(schedule_only=True).scheduled
    assert planned is not None
    assert begun[0] < planned
    table.compact()
    assert values_of(table) == {"k0": 2, "k1": 1, "k2": 1, "k3": 1}


def test_a_compaction_counts_from_its_plan_on(table: bl.Table) -> None:
    """Readers of layout 1 know only the time at which it was planned."""
    table.upsert(rows(0, v=2))
    planned = table.compact(schedule_only=True).scheduled
    later = table.upsert(rows(1, v=2))
    assert table.compact(min_log_files=9).instants == (planned,)
    assert values_of(table, as_of=later.instant) == {"k0": 2, "k1": 2, "k2": 1, "k3": 1}
    assert values_of(table, since=later.instant) == {}
    assert values_of(table, since=planned) == {"k1": 2}


def test_readers_leave_out_what_a_pending_write_appended(table: bl.Table) -> None:
    table.upsert(rows(0, v=2))
    pending = table.upsert(rows(0, 1, v=3)).instant
    assert pending is not None
    log = logs_of(table)[-1]
    without_commit(table, pending)
    assert values_of(table) == {"k0": 2, "k1": 1, "k2": 1, "k3": 1}
    assert not any(log in found.paths for found in plan_of(table))
    table.upsert(rows(2, v=4))  # Rolls it back.
    assert log not in logs_of(table)
    assert values_of(table) == {"k0": 2, "k1": 1, "k2": 4, "k3": 1}


def plan_of(table: bl.Table) -> list[FileSlice]:
    return load_snapshot(table_at(storage_of(table))).all_slices()


def test_a_rollback_cancels_the_blocks_of_a_log_file_that_a_compaction_of_hudi_reads(
    table: bl.Table,
) -> None:
    """Its plans name what they find, and a plan without a file could not be executed."""
    table.upsert(rows(0, v=2))
    dead = table.upsert(rows(1, v=3)).instant
    assert dead is not None
    table.compact(schedule_only=True)
    [planned] = [i for i in table.timeline() if i.state is not State.COMPLETED]
    without_commit(table, dead)
    storage, log = storage_of(table), logs_of(table)[-1]
    table.upsert(rows(2, v=4))
    [block] = read_log_blocks(storage, log)
    assert block.kind is BlockKind.COMMAND
    assert table.compact(min_log_files=9).instants == (planned.requested_at,)
    assert values_of(table) == {"k0": 2, "k1": 1, "k2": 4, "k3": 1}


def test_a_rollback_keeps_a_log_file_of_a_commit_that_a_marker_names(table: bl.Table) -> None:
    """Hudi marks a log file before it appends to it, and perhaps does not."""
    table.upsert(rows(0, v=2))
    opened = table_at(storage_of(table))
    with begin_instant(opened, load_timeline(opened), Action.DELTA_COMMIT) as (dead, _):
        write_markers(opened.storage, dead, [Marker("", logs_of(table)[0], MarkerType.APPEND)])
    table.upsert(rows(1, v=2))
    assert values_of(table) == {"k0": 2, "k1": 2, "k2": 1, "k3": 1}


def test_a_commit_of_log_files_is_rolled_back(table: bl.Table) -> None:
    table.upsert(rows(0, v=2))
    instant = table.upsert(rows(1, v=2)).instant
    assert instant is not None
    table.rollback(instant)
    assert len(logs_of(table)) == 1
    assert values_of(table) == {"k0": 2, "k1": 1, "k2": 1, "k3": 1}


def test_a_compaction_is_rolled_back_with_the_writes_to_its_slice(table: bl.Table) -> None:
    table.upsert(rows(0, v=2))
    planned = table.compact(schedule_only=True).scheduled
    table.upsert(rows(1, v=2))
    table.compact()
    assert planned is not None
    with pytest.raises(TimelineError, match="later commits build on it"):
        table.rollback(planned)
    table.rollback(planned, cascade=True)
    assert values_of(table) == {"k0": 2, "k1": 1, "k2": 1, "k3": 1}


def test_a_savepoint_waits_for_a_compaction_that_was_planned_before_its_commit(
    table: bl.Table,
) -> None:
    table.upsert(rows(0, v=2))
    table.compact(schedule_only=True)
    table.upsert(rows(1, v=2))
    with pytest.raises(TimelineError, match=r"compaction.*pending.*table\.compact"):
        table.savepoint()
    table.compact()
    saved = table.savepoint()
    table.upsert(rows(2, v=3))
    table.compact()
    table.restore(saved)
    assert values_of(table) == {"k0": 2, "k1": 2, "k2": 1, "k3": 1}


def test_changes_are_those_of_each_commit(table: bl.Table) -> None:
    since = instants(table)[0]
    table.upsert(rows(0, v=2))
    table.compact(schedule_only=True)
    table.upsert(rows(0, 1, v=3))
    table.compact()
    table.delete(rows(3, v=0).select(["id"]))
    found = table.changes_to_arrow(since=since).to_pylist()
    images = [(row["op"], row["before"], row["after"]) for row in found]
    told = [(op, before and before["v"], after and after["v"]) for op, before, after in images]
    assert told == [("u", 1, 2), ("u", 2, 3), ("u", 1, 3), ("d", 1, None)]


def test_an_old_slice_is_cleaned_with_its_log_files(table: bl.Table) -> None:
    table.upsert(rows(0, v=2))
    table.compact()
    table.upsert(rows(1, v=3))
    table.clean(retain_commits=1)
    [log] = logs_of(table)
    assert log_instant(log) == instants(table)[2]
    assert values_of(table) == {"k0": 2, "k1": 3, "k2": 1, "k3": 1}


def test_doctor_finds_a_log_file_of_no_commit_unless_its_blocks_are_cancelled(
    table: bl.Table,
) -> None:
    [base] = instants(table)
    storage = storage_of(table)
    table.upsert(rows(0, v=2))
    content = storage.read(logs_of(table)[0])
    [bucket] = table.buckets()
    stray = shift_instant(instants(table)[-1], timedelta(milliseconds=1))
    name = LogFileName.in_slice(FileId(bucket.file_id), InstantTime(base), 2, stray, 1)
    storage.put(name.to_file_name(), content)
    [finding] = table.doctor(min_age_seconds=0)
    assert (finding.kind, finding.files) == (FindingKind.ORPHAN_FILE, (name.to_file_name(),))
    command = encode_rollback_block(stray, target=stray)
    other = LogFileName(name.file_id, name.instant, 3, "0-1-2").to_file_name()
    storage.put(other, command)
    assert not table.doctor(min_age_seconds=0)


def test_a_rollback_in_which_hudi_died_is_carried_on(table: bl.Table) -> None:
    """Its plan names log files whose blocks are to be cancelled."""
    table.upsert(rows(0, v=2))
    undone = table.upsert(rows(1, v=2)).instant
    request = {
        "partitionPath": "",
        "fileId": table.buckets()[0].file_id,
        "latestBaseInstant": instants(table)[0],
        "filesToBeDeleted": [],
        "logBlocksToBeDeleted": {logs_of(table)[-1]: 7},
    }
    info = {"commitTime": undone, "action": "deltacommit"}
    plan = {"instantToRollback": info, "RollbackRequests": [request]}
    storage = storage_of(table)
    at = shift_instant(instants(table)[-1], timedelta(milliseconds=1))
    storage.put(f".hoodie/{at}.rollback.requested", encode_record("HoodieRollbackPlan", plan))
    storage.put(f".hoodie/{at}.rollback.inflight", b"")
    table.upsert(rows(2, v=2))
    assert undone not in instants(table)
    assert [log_instant(path) for path in logs_of(table)] == [instants(table)[0]] * 2
    assert values_of(table) == {"k0": 2, "k1": 1, "k2": 2, "k3": 1}


def test_a_log_file_of_a_commit_is_read_whatever_its_token_says(table: bl.Table) -> None:
    """Hudi gives its file the token of the file before, perhaps of a write that was rolled back."""
    storage = storage_of(table)
    table.upsert(rows(0, v=2))
    instant = table.upsert(rows(1, v=2)).instant
    assert instant is not None
    [*_, own] = logs_of(table)
    name, dead = LogFileName.from_file_name(own), shift_instant(instant, timedelta(milliseconds=1))
    assert name is not None
    other = LogFileName.in_slice(name.file_id, name.instant, name.version, dead, 1).to_file_name()
    storage.put(other, storage.read(own))
    storage.delete(own)
    commit = f".hoodie/{instant}.deltacommit"
    storage.put(commit, storage.read(commit).replace(own.encode(), other.encode()))
    assert values_of(table) == {"k0": 2, "k1": 2, "k2": 1, "k3": 1}
    assert not table.doctor(min_age_seconds=0)


def test_such_a_rollback_is_left_to_hudi_in_newer_versions(new_path: Callable[[], str]) -> None:
    table = bl.create_table(
        new_path(), schema=SCHEMA, record_key=["id"], index=bl.SimpleBucket(1),
        table_type="merge_on_read", metadata_table=False,
    )  # fmt: skip
    undone = table.upsert(rows(0, v=1)).instant
    assert undone is not None
    request = {"partitionPath": "", "fileId": "", "latestBaseInstant": undone}
    request |= {"filesToBeDeleted": [], "logBlocksToBeDeleted": {".f_1.log.1_1-0-1": 7}}
    info = {"commitTime": undone, "action": "deltacommit"}
    plan = {"instantToRollback": info, "RollbackRequests": [request]}
    at = shift_instant(undone, timedelta(milliseconds=1))
    requested = f".hoodie/timeline/{at}.rollback.requested"
    storage_of(table).put(requested, encode_record("HoodieRollbackPlan", plan))
    storage_of(table).put(f".hoodie/timeline/{at}.rollback.inflight", b"")
    with pytest.raises(UnsupportedFeatureError, match="let Hudi finish it"):
        table.upsert(rows(1, v=1))


def test_a_write_that_followed_a_compaction_which_a_restore_withdrew_is_repeated(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.upsert(rows(0, v=2))
    saved = table.savepoint()
    table.upsert(rows(1, v=2))
    table.compact(schedule_only=True)
    meanwhile(monkeypatch, lambda: table.restore(saved))
    table.upsert(rows(2, v=3))
    assert {log_instant(path) for path in logs_of(table)} == {instants(table)[0]}
    assert values_of(table) == {"k0": 2, "k1": 1, "k2": 3, "k3": 1}
