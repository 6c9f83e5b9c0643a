"""The active timeline: what a listing shows and what counts."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import ConfigError, FormatError, TimelineError
from bucketlake.format.avro.timeline_records import encode_record
from bucketlake.format.clustering_plan import ClusteringPlan, encode_clustering_plan
from bucketlake.format.commit_metadata import encode_commit_metadata
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.storage import local
from bucketlake.storage.base import Storage, StoredObject, names_and_times
from bucketlake.storage.local import LocalStorage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.active import Timeline, create_timeline, load_timeline
from bucketlake.timeline.archive_reader import read_archive
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.open_table import opened_table
from tests.faulty_storage import FaultyStorage
from tests.spies import spy
from tests.storages import memory_of

SPEC = KeySpec(("id",), (), KeyGenerator.NON_PARTITION)
CONFIG = TableConfig("trips", TableType.COPY_ON_WRITE, SPEC, MergeMode.COMMIT_TIME)
OLD_CONFIG = replace(CONFIG, version=6, layout_version=1, archive_folder="archived")


def _time(number: int) -> InstantTime:
    """An instant time that ends in a number."""
    return InstantTime(f"20240101000000{number:03d}")


def _storage(*names: str, folder: str = ".hoodie/timeline") -> MemoryStorage:
    """A table with empty timeline files; a number in a name becomes a time."""
    return memory_of({f"{folder}/{_full(name)}": b"" for name in names})


def _full(name: str) -> str:
    stem, dot, rest = name.partition(".")
    if not all(part.isdecimal() for part in stem.split("_")):
        return name
    return "_".join(_time(int(part)) for part in stem.split("_")) + dot + rest


def _timeline(*names: str) -> Timeline:
    return load_timeline(opened_table(_storage(*names), CONFIG))


def _numbers(instants: tuple[Instant, ...]) -> list[int]:
    return [int(instant.requested_at[-3:]) for instant in instants]


def _put_commit(
    storage: Storage, number: int, metadata: CommitMetadata, action: str = "commit"
) -> None:
    path = f".hoodie/timeline/{_time(number)}_{_time(number + 1)}.{action}"
    storage.put(path, encode_commit_metadata(metadata))


def test_table_without_a_timeline_has_an_empty_one() -> None:
    timeline = load_timeline(opened_table(memory_of(), CONFIG))
    assert timeline.instants == ()
    assert timeline.start is None
    assert timeline.newest_time() is None
    assert not timeline.is_completed(_time(1))


def test_timeline_knows_when_its_newest_completed_instant_was_written() -> None:
    storage = memory_of()
    written_ms = []
    for name in ("1_9.commit", "3_4.commit", "20.inflight"):
        path = f".hoodie/timeline/{_full(name)}"
        storage.put(path, b"")
        stored = storage.stat(path)
        assert stored is not None
        written_ms.append(stored.modified_at_ms)
    timeline = load_timeline(opened_table(storage, CONFIG))
    assert timeline.newest_written_ms == written_ms[0]
    assert timeline.as_of(_time(5)).newest_written_ms is None
    assert _timeline("1.inflight").newest_written_ms is None


def test_highest_state_of_each_instant_counts() -> None:
    timeline = _timeline(
        "1.commit.requested", "1.inflight", "1_2.commit", "3.commit.requested", "3.inflight"
    )
    assert timeline.instants == (
        Instant(_time(1), Action.COMMIT, State.COMPLETED, _time(2)),
        Instant(_time(3), Action.COMMIT, State.INFLIGHT),
    )


def test_completed_and_pending_instants_are_told_apart_in_order() -> None:
    timeline = _timeline("5_6.clean", "1_9.deltacommit", "3.inflight", "4.rollback.requested")
    assert _numbers(timeline.completed()) == [1, 5]
    assert _numbers(timeline.pending()) == [3, 4]
    assert _numbers(timeline.completed_commits()) == [1]


def test_other_files_in_the_folder_are_passed_over() -> None:
    storage = _storage("1_2.commit", "3_4.commit.0a1b-tmp", ".1_2.commit.crc", "history/x.parquet")
    assert _numbers(load_timeline(opened_table(storage, CONFIG)).instants) == [1]


def test_completed_compaction_is_one_instant_with_its_plan() -> None:
    timeline = _timeline("1.compaction.requested", "1.compaction.inflight", "1_2.commit")
    assert timeline.instants == (Instant(_time(1), Action.COMMIT, State.COMPLETED, _time(2)),)
    assert timeline.pending_compactions() == ()


def test_completed_clustering_is_one_replace_commit_with_its_plan() -> None:
    timeline = _timeline("1.clustering.requested", "1.clustering.inflight", "1_2.replacecommit")
    expected = Instant(_time(1), Action.REPLACE_COMMIT, State.COMPLETED, _time(2))
    assert timeline.instants == (expected,)
    assert timeline.pending_clusterings() == ()


def test_savepoint_and_its_commit_are_two_instants_of_one_time() -> None:
    timeline = _timeline("1_2.commit", "1.savepoint.inflight", "1_3.savepoint")
    assert [one.action for one in timeline.completed()] == [Action.COMMIT, Action.SAVEPOINT]
    assert timeline.completion_time(_time(1)) == _time(2)


def test_pending_plans_are_named() -> None:
    timeline = _timeline(
        "1.compaction.requested",
        "2.logcompaction.inflight",
        "3.clustering.inflight",
        "4.replacecommit.requested",
    )
    assert _numbers(timeline.pending_compactions()) == [1, 2]
    assert _numbers(timeline.pending_clusterings()) == [3]


def test_a_pending_replace_commit_of_layout_1_is_a_clustering_if_it_has_a_plan() -> None:
    plan = encode_clustering_plan(ClusteringPlan((), "Any"), "/t")
    overwrite = encode_record("HoodieRequestedReplaceMetadata", {})
    storage = memory_of()
    for number, content in enumerate((plan, overwrite, b"", b"damaged"), 1):
        storage.put(f".hoodie/{_time(number)}.replacecommit.requested", content)
    timeline = load_timeline(opened_table(storage, OLD_CONFIG))
    assert _numbers(timeline.pending_clusterings()) == [1, 4]
    first = timeline.pending_clusterings()[0]
    assert timeline.path_of(first) == f".hoodie/{_time(1)}.replacecommit.requested"
    assert timeline.read_clustering_plan(storage, first).strategy_class == "Any"


@pytest.mark.parametrize(
    ("number", "completed"),
    [(1, True), (3, True), (4, False), (5, False), (6, True), (7, False), (9, False)],
)
def test_instant_is_completed_on_the_timeline_or_before_it(number: int, completed: bool) -> None:
    timeline = _timeline("3_5.commit", "4.inflight", "6_7.deltacommit", "9_9.clean")
    assert timeline.is_completed(_time(number)) is completed


def test_start_is_that_of_instants_that_write_data_even_pending_ones() -> None:
    timeline = _timeline("1_2.clean", "2_3.rollback", "5.compaction.requested", "6_7.commit")
    assert timeline.start == _time(5)
    assert timeline.is_completed(_time(4))
    assert not timeline.is_completed(_time(5))


def test_a_listing_that_an_archival_went_through_is_not_taken() -> None:
    """Its first commit was listed before it went, and what it would miss are commits."""
    storage = _Archived(_storage(*(f"{n}_{n}.commit" for n in range(100, 999))))
    timeline = load_timeline(opened_table(storage, CONFIG))
    assert storage.listings == 2
    assert timeline.start == _time(700)
    assert all(timeline.is_completed(_time(n)) for n in range(100, 999))


class _Archived(FaultyStorage):
    """A table that is archived while it is listed for the first time."""

    listings = 0

    def list_briefly(self, folder: str) -> dict[str, int | None]:
        self.listings += 1
        listed = super().list_briefly(folder)
        if self.listings > 1:
            return listed
        names = [*listed]
        for name in names[:600]:
            self.inner.delete(f"{folder}/{name}")
        return {name: listed[name] for name in names[:1] + names[600:]}


@pytest.mark.parametrize(
    "names",
    [
        ("1.commit", "1.inflight", "2.clean", "5_6.commit", "6.commit.requested", "7.savepoint"),
        ("1.commit.requested", "1.commit", "2.commit.requested", "2.inflight", "2.commit"),
        ("1.inflight", "hoodie.properties"),
    ],
)
@pytest.mark.parametrize("config", [CONFIG, OLD_CONFIG], ids=["layout 2", "layout 1"])
def test_local_timeline_is_that_of_a_listing_with_all_times(
    tmp_path: Path, names: tuple[str, ...], config: TableConfig
) -> None:
    storage = LocalStorage(str(tmp_path))
    for seconds, name in enumerate(names):
        path = f"{config.timeline_folder}/{_full(name)}"
        storage.put(path, b"")
        os.utime(tmp_path / path, (1_700_000_000 - seconds,) * 2)
    expected = load_timeline(opened_table(_Timed(str(tmp_path)), config))
    assert load_timeline(opened_table(storage, config)) == expected


class _Timed(LocalStorage):
    """A local disk whose listings tell all times, as those of other storages do."""

    def list_briefly(self, folder: str) -> dict[str, int | None]:
        return names_and_times(self.list(folder, recursive=False))


def test_local_timeline_describes_one_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(str(tmp_path), fsync=False)
    for number in range(50):
        storage.put(f".hoodie/timeline/{_time(number)}_{_time(number)}.commit", b"")
    described = spy(monkeypatch, local, "_described", lambda path, _: path)
    assert len(load_timeline(opened_table(storage, CONFIG)).instants) == 50
    assert described == [f".hoodie/timeline/{_time(49)}_{_time(49)}.commit"]


def test_local_timeline_is_without_a_file_that_is_deleted_before_it_tells_its_time(
    tmp_path: Path,
) -> None:
    storage = _Forgetful(str(tmp_path))
    for name in ("1_2.commit", "3_4.commit"):
        storage.put(f".hoodie/timeline/{_full(name)}", b"")
    timeline = load_timeline(opened_table(storage, CONFIG))
    assert _numbers(timeline.instants) == [1]
    assert timeline.newest_written_ms is not None


class _Forgetful(LocalStorage):
    """A local disk on which an object is deleted just before it is described."""

    def stat(self, path: str) -> StoredObject | None:
        self.delete(path)
        return super().stat(path)


def test_savepoint_alone_completes_no_data() -> None:
    assert not _timeline("3_4.commit", "5_6.savepoint").is_completed(_time(5))


def test_completion_time_is_known_of_completed_commits_only() -> None:
    timeline = _timeline("1_4.commit", "2.inflight", "3_5.clean")
    times = [timeline.completion_time(_time(number)) for number in range(4)]
    assert times == [None, _time(4), None, None]


def test_completion_of_an_instant_from_before_an_upgrade_is_when_its_file_was_written() -> None:
    storage = MemoryStorage.fresh(clock=lambda: 1_704_067_200_002)
    storage.put(f".hoodie/timeline/{_time(1)}.commit", b"")
    storage.put(f".hoodie/timeline/{_time(3)}_{_time(4)}.commit", b"")
    timeline = load_timeline(opened_table(storage, CONFIG))
    assert timeline.completion_time(_time(1)) == _time(2)
    assert timeline.is_completed(_time(1))


def test_newest_time_is_the_greatest_of_all() -> None:
    assert _timeline("1_9.commit", "5.inflight").newest_time() == _time(9)
    assert _timeline("1_2.commit", "5_6.clean", "7.inflight").newest_time() == _time(7)


def test_layout_1_keeps_its_instants_in_the_hoodie_folder() -> None:
    storage = _storage("1.commit", "1.inflight", "2.deltacommit.inflight", folder=".hoodie")
    storage.put(".hoodie/hoodie.properties", b"")
    timeline = load_timeline(opened_table(storage, OLD_CONFIG))
    assert [(one.state, one.completed_at) for one in timeline.instants] == [
        (State.COMPLETED, _time(1)),
        (State.INFLIGHT, None),
    ]
    assert timeline.completion_time(_time(1)) == _time(1)


def test_layout_1_knows_when_its_newest_commit_was_requested() -> None:
    now_ms = iter(range(100))
    storage = MemoryStorage("written", lambda: next(now_ms))
    for name in ("1.commit.requested", "2.commit.requested", "2.inflight", "2.commit", "1.commit"):
        storage.put(f".hoodie/{_full(name)}", b"")
    requested = storage.stat(f".hoodie/{_time(2)}.commit.requested")
    assert requested is not None
    timeline = load_timeline(opened_table(storage, OLD_CONFIG))
    assert timeline.newest_written_ms == requested.modified_at_ms


@pytest.mark.parametrize(
    ("as_of", "seen"),
    [(0, []), (1, [1]), (2, [1]), (3, [1, 3]), (9, [1, 3])],
)
def test_time_travel_goes_by_requested_time(as_of: int, seen: list[int]) -> None:
    timeline = _timeline("1_9.commit", "3_4.commit").as_of(_time(as_of))
    assert _numbers(timeline.completed_commits()) == seen
    assert [n for n in (1, 3) if timeline.is_completed(_time(n))] == seen


def test_time_travel_before_the_timeline_still_sees_archived_instants() -> None:
    timeline = _timeline("5_6.commit", "7_8.commit").as_of(_time(3))
    assert timeline.is_completed(_time(3))
    assert not timeline.is_completed(_time(4))
    assert not timeline.is_completed(_time(5))


def test_time_travel_of_a_time_travel_never_sees_more() -> None:
    timeline = _timeline("1_2.commit", "3_4.commit").as_of(_time(1)).as_of(_time(3))
    assert _numbers(timeline.completed()) == [1]


def test_time_travel_takes_a_date_and_refuses_other_text() -> None:
    timeline = _timeline("1_2.commit")
    assert _numbers(timeline.as_of("2024-01-01 00:00:00.001").completed()) == [1]
    assert _numbers(timeline.as_of("2024-01-01").completed()) == []
    with pytest.raises(ConfigError, match="tomorrow"):
        timeline.as_of("tomorrow")


def test_replaced_file_groups_name_the_instant_that_replaced_them() -> None:
    storage = memory_of()
    a, b = FileId("a"), FileId("b")
    _put_commit(storage, 1, CommitMetadata("UPSERT", {}))
    _put_commit(
        storage, 3, CommitMetadata("CLUSTER", {}, replaced_file_ids={"eu": (a, b)}), "replacecommit"
    )
    _put_commit(
        storage, 5, CommitMetadata("DELETE_PARTITION", {}, replaced_file_ids={"us": (a,)}),
        "replacecommit",
    )  # fmt: skip
    storage.put(f".hoodie/timeline/{_time(7)}.replacecommit.inflight", b"not read")
    timeline = load_timeline(opened_table(storage, CONFIG))
    assert timeline.replaced_file_groups(storage) == {
        ("eu", a): _time(3),
        ("eu", b): _time(3),
        ("us", a): _time(5),
    }
    assert set(timeline.as_of(_time(4)).replaced_file_groups(storage)) == {("eu", a), ("eu", b)}


def test_latest_schema_is_that_of_the_newest_commit_that_may_change_it() -> None:
    storage = memory_of()
    _put_commit(storage, 1, CommitMetadata("UPSERT", {}, {"schema": "first"}))
    _put_commit(storage, 3, CommitMetadata("UPSERT", {}, {"schema": "second"}))
    _put_commit(storage, 5, CommitMetadata("COMPACT", {}, {"schema": "of a plan"}, compacted=True))
    _put_commit(storage, 7, CommitMetadata("DELETE", {}, {"schema": ""}))
    timeline = load_timeline(opened_table(storage, CONFIG))
    assert timeline.latest_schema(storage) == "second"
    assert timeline.as_of(_time(2)).latest_schema(storage) == "first"
    assert timeline.as_of(_time(0)).latest_schema(storage) is None


def test_commit_is_read_once_and_not_pickled() -> None:
    storage = memory_of()
    _put_commit(storage, 1, CommitMetadata("UPSERT", {}, {"schema": "first"}))
    timeline = load_timeline(opened_table(storage, CONFIG))
    metadata = timeline.read_commit(storage, timeline.instants[0])
    storage.delete_folder(".hoodie")
    assert timeline.read_commit(storage, timeline.instants[0]) is metadata
    copy = pickle.loads(pickle.dumps(timeline))
    assert copy == timeline
    assert len(pickle.dumps(copy)) == len(pickle.dumps(timeline))
    with pytest.raises(TimelineError, match="gone since the timeline was listed"):
        copy.read_commit(storage, timeline.instants[0])


def test_garbage_in_a_completed_file_is_refused_by_its_name() -> None:
    storage = memory_of()
    path = f".hoodie/timeline/{_time(1)}_{_time(2)}.commit"
    storage.put(path, b"garbage")
    timeline = load_timeline(opened_table(storage, CONFIG))
    with pytest.raises(FormatError, match=path):
        timeline.latest_schema(storage)


def test_new_timeline_has_its_folders_and_no_instants() -> None:
    storage = memory_of()
    create_timeline(opened_table(storage, CONFIG))
    assert [stored.path for stored in storage.list(".hoodie/timeline/history")]
    assert load_timeline(opened_table(storage, CONFIG)).instants == ()
    assert read_archive(opened_table(storage, CONFIG)) == []
