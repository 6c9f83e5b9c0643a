"""Archival into log files, the form up to table version 7, on a table that Hudi 0.15.0 wrote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import bucketlake as bl
from bucketlake.config.paths_of_table import ARCHIVAL_FOLDER
from bucketlake.errors import CommitConflictError, FormatError
from bucketlake.format.archive_file import (
    COMPLETED,
    ArchivedState,
    archive_log_name,
    encode_archive_log,
)
from bucketlake.format.clean_metadata import CleanPlan, encode_clean
from bucketlake.format.commit_metadata import decode_commit_metadata
from bucketlake.model.file_name import InstantTime
from bucketlake.model.retention import ArchivalLimits
from bucketlake.read.snapshot import load_snapshot
from bucketlake.services import archival
from bucketlake.services.archival import ArchiveReport
from bucketlake.storage.base import Storage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.archive_reader import archived_commit, history_files, read_archive
from bucketlake.timeline.archive_writer import (
    Appended,
    append,
    encode_instants,
    instant_files,
    keep_active,
    newest_state,
)
from bucketlake.timeline.instant import Action
from bucketlake.timeline.table_properties import table_at
from tests.choices import some
from tests.faulty_storage import FaultyStorage, SimulatedCrash, crash_points
from tests.golden.objects import objects_of_table
from tests.meanwhile import Interrupted
from tests.storages import memory_of, objects_of

HISTORY = ".hoodie/archived"
LOGS = 7  # Of Hudi, in the table.


@pytest.fixture(autouse=True)
def archivable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the service archive a table of this version."""
    monkeypatch.setattr(archival, "check_writable", lambda *_: None)


@pytest.fixture
def storage() -> MemoryStorage:
    return memory_of(objects_of_table("cow_of_0_15_0"))


def archive_now(storage: Storage) -> ArchiveReport:
    return archival.archive(table_at(storage), ArchivalLimits(1, 2))


def active(storage: Storage) -> list[str]:
    return [one.requested_at for one in load_timeline(table_at(storage)).completed_commits()]


def archived(storage: Storage) -> list[str]:
    """Return the archived commits; each is in one log file, as Hudi's reader wants it."""
    every = [entry.order for file in history_files(storage, HISTORY) for entry in file.read(())]
    assert len(every) == len(set(every))
    return [at for at, action in sorted(every) if action.endswith("commit")]


def logs(storage: Storage) -> set[str]:
    return {stored.path.rpartition("/")[2] for stored in storage.list(HISTORY)}


def rows(storage: Storage) -> Any:
    return bl.open_table(storage.root).to_arrow().sort_by("id").to_pylist()


def changed(storage: Storage) -> Any:
    return bl.open_table(storage.root).to_arrow(since="0" * 17).sort_by("id").to_pylist()


def plan_archival(storage: Storage) -> Callable[[], Appended]:
    """Plan an archival of the first commit; return what publishes it, and does no more."""
    table = table_at(storage)
    state = newest_state(table)
    first = load_timeline(table).completed_commits()[:1]
    encoded = encode_instants(table, instant_files(table), first, {})
    return lambda: append(table, state, first, encoded)


def steps_of(storage: Storage, *, reads_count: bool) -> int:
    counting = FaultyStorage(memory_of(objects_of(storage)), reads_count=reads_count)
    archive_now(counting)
    return counting.operations


def test_instants_go_into_the_next_log_file_with_all_their_files(storage: MemoryStorage) -> None:
    before, commits, already = rows(storage), active(storage), archived(storage)
    objects = objects_of(storage)
    report = archive_now(storage)
    actions = [one.action.value for one in report.instants]
    assert actions == ["rollback", "rollback", "commit", "commit"]
    assert active(storage) == commits[2:]
    assert archived(storage) == already + commits[:2]
    assert logs(storage) == {archive_log_name(number) for number in range(1, LOGS + 2)}
    gone = {path.partition(".hoodie/")[2] for path in objects.keys() - objects_of(storage).keys()}
    assert {name.partition(".")[0] for name in gone} == {
        one.requested_at for one in report.instants
    }
    assert len(gone) == 3 * len(report.instants)
    assert rows(storage) == changed(storage) == before
    [entry] = read_archive(table_at(storage), since=commits[0], until=commits[0])
    metadata = archived_commit(entry)
    assert metadata == decode_commit_metadata(objects[f".hoodie/{commits[0]}.commit"], "")
    assert not bl.open_table(storage.root).doctor(min_age_seconds=0)


def test_death_at_every_step_loses_nothing_and_is_made_good(storage: MemoryStorage) -> None:
    objects, commits = objects_of(storage), [*archived(storage), *active(storage)]
    expected = rows(storage)
    steps = steps_of(storage, reads_count=False)
    assert steps >= 12
    for fault in some([*crash_points(steps)], 20):
        fresh = memory_of(objects)
        faulty = FaultyStorage(fresh, [fault], reads_count=False)
        with pytest.raises(SimulatedCrash):
            archive_now(faulty)
        for _ in range(2):
            assert sorted({*archived(fresh), *active(fresh)}) == commits, faulty.replay()
            assert rows(fresh) == changed(fresh) == expected, faulty.replay()
            archive_now(fresh)
        assert active(fresh) == commits[-1:], faulty.replay()
        assert archived(fresh) == commits[:-1], faulty.replay()


def test_archivals_at_the_same_time_do_no_harm(storage: MemoryStorage) -> None:
    """Another one comes in before each of the steps of the first."""
    objects, commits = objects_of(storage), [*archived(storage), *active(storage)]
    expected = rows(storage)
    for step in some(range(1, steps_of(storage, reads_count=True) + 1), 20):
        fresh = memory_of(objects)
        archive_now(Interrupted(fresh, step, partial(archive_now, fresh)))
        assert active(fresh) == commits[-1:], step
        assert archived(fresh) == commits[:-1], step
        assert rows(fresh) == changed(fresh) == expected, step


def test_an_archival_that_was_overtaken_adds_nothing(storage: MemoryStorage) -> None:
    publish = plan_archival(storage)
    archive_now(storage)
    before = objects_of(storage)
    assert publish() is Appended.OVERTAKEN
    assert objects_of(storage) == before


def test_an_instant_that_is_kept_active_stays_whoever_planned_before(
    storage: MemoryStorage,
) -> None:
    publish, commits, before = plan_archival(storage), active(storage), logs(storage)
    assert keep_active(table_at(storage), InstantTime(commits[0]))
    assert publish() is Appended.OVERTAKEN
    assert logs(storage) == before  # Hudi's reader would stop at a file that has nothing new.
    assert active(storage) == commits
    archive_now(storage)
    assert logs(storage) - before == {archive_log_name(LOGS + 2)}
    assert not keep_active(table_at(storage), InstantTime(commits[0]))


def test_a_claim_whose_archival_died_is_carried_out_before_an_instant_is_kept(
    storage: MemoryStorage,
) -> None:
    """The claim decided, so the instant is archived."""
    commits = active(storage)
    table = table_at(storage)
    state = newest_state(table)
    first = load_timeline(table).completed_commits()[:1]
    encoded = encode_instants(table, instant_files(table), first, {})
    storage.put(f"{ARCHIVAL_FOLDER}/{state.number + 1}", encoded)  # And it dies.
    assert not keep_active(table, InstantTime(commits[0]))
    assert commits[0] in archived(storage)
    archive_now(storage)
    assert active(storage) == commits[1:]


def test_a_damaged_claim_is_an_error_and_adds_no_log_file(storage: MemoryStorage) -> None:
    publish, before = plan_archival(storage), logs(storage)
    assert publish() is Appended.DONE
    storage.delete(f"{HISTORY}/{archive_log_name(LOGS + 1)}")  # As if it had died before.
    claim = f"{ARCHIVAL_FOLDER}/{LOGS + 1}"
    data = storage.read(claim)
    storage.put(claim, data[:-40] + bytes([data[-40] ^ 1]) + data[-39:])
    with pytest.raises(FormatError, match=claim):
        archive_now(storage)
    assert logs(storage) == before


def test_a_claim_that_hudi_overtook_without_a_lock_is_void(storage: MemoryStorage) -> None:
    publish, commits = plan_archival(storage), active(storage)
    name = f"{HISTORY}/{archive_log_name(LOGS + 1)}"
    theirs = encode_archive_log([])
    storage.put(name, theirs)
    assert publish() is Appended.OVERTAKEN
    assert storage.read(name) == theirs
    assert commits[0] not in archived(storage)
    assert archive_now(storage).instants
    assert active(storage) == commits[-1:]


def test_a_number_that_a_sleeping_archival_finds_free_again_is_not_used(
    storage: MemoryStorage,
) -> None:
    publish, commits, before = plan_archival(storage), active(storage), logs(storage)
    for _ in range(5):
        assert keep_active(table_at(storage), InstantTime(commits[0]))
    claims = [stored.path for stored in storage.list(ARCHIVAL_FOLDER)]
    assert len(claims) == 3  # The others are deleted.
    assert publish() is Appended.OVERTAKEN
    assert logs(storage) == before
    assert archive_now(storage).instants
    assert archived(storage)[-2:] == commits[:2]


def test_a_reader_is_told_of_a_clean_that_was_archived_without_any_commit(
    storage: MemoryStorage,
) -> None:
    """Hudi archives the oldest cleans by their number, and leaves some."""
    table = table_at(storage)
    timeline = load_timeline(table)
    no_clean_yet = tuple(one for one in timeline.instants if one.action is not Action.CLEAN)
    snapshot = load_snapshot(table, replace(timeline, instants=no_clean_yet))
    [needed, *_] = [path for held in snapshot.all_slices() for path in held.paths]
    partition, _, name = needed.rpartition("/")
    at = InstantTime("29991231235959999")
    plan = CleanPlan("KEEP_LATEST_FILE_VERSIONS", {partition: (name,)})
    done = encode_clean(plan, started_at=at, duration_ms=1)
    log = encode_archive_log([ArchivedState(at, "clean", COMPLETED, at, done)])
    storage.put(f"{HISTORY}/{archive_log_name(LOGS + 1)}", log)
    storage.delete(needed)
    with pytest.raises(CommitConflictError, match=f"{at}.*this clean deleted"):
        snapshot.all_slices()
