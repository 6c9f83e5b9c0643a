"""Versions of a hashing config: which count, when, and in which form they are read and written."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace

import pytest

from bucketlake.config.table_version import LAYOUT_2
from bucketlake.errors import AlreadyExistsError, FormatError
from bucketlake.index.hashing_config import (
    CONFIGS_FOLDER,
    DRAFT_FILE,
    HASHING_ARCHIVE_FOLDER,
    INITIAL_INSTANT,
    HashingConfig,
    archive_configs,
    committed_configs,
    config_path,
    is_partition_level,
    latest_config,
    save_config,
)
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.instant import Action, Instant, State


def at(number: int) -> InstantTime:
    return InstantTime(f"2026010100000{number:04}")


def timeline(*pending: int, until: int | None = None, last: int = 9) -> Timeline:
    """A timeline of rescales, all completed but the pending ones."""
    instants = tuple(
        Instant(at(n), Action.REPLACE_COMMIT, State.INFLIGHT)
        if n in pending
        else Instant(at(n), Action.REPLACE_COMMIT, State.COMPLETED, at(n))
        for n in range(1, last + 1)
    )
    return Timeline(instants, "", LAYOUT_2, None, "", until=None if until is None else at(until))


def empty_storage() -> MemoryStorage:
    return MemoryStorage(uuid.uuid4().hex)  # Those of one name share what they hold.


def a_config(instant: InstantTime, count: int = 3) -> HashingConfig:
    return HashingConfig("eu,5", count, "regex", instant)


@pytest.fixture
def storage() -> MemoryStorage:
    storage = empty_storage()
    for n in (0, 1, 2):
        save_config(storage, a_config(at(n) if n else INITIAL_INSTANT, n + 1))
    return storage


def counts(storage: MemoryStorage, known: Timeline) -> list[int]:
    return [config.default_count for config in committed_configs(storage, known)]


def test_a_version_of_no_commit_does_not_count(storage: MemoryStorage) -> None:
    save_config(storage, a_config(InstantTime(f"{at(2)[:-1]}5"), 9))
    known = replace(timeline(last=3), start=at(1))
    assert counts(storage, replace(known, instants=known.instants[:1])) == [1, 2]


def test_versions_count_from_the_oldest_on_but_for_pending_ones(storage: MemoryStorage) -> None:
    assert counts(storage, timeline()) == [1, 2, 3]
    assert counts(storage, timeline(2)) == [1, 2]
    assert latest_config(storage, timeline(1)) == a_config(at(2), 3)


def test_a_time_travel_sees_the_versions_of_its_time(storage: MemoryStorage) -> None:
    assert counts(storage, timeline(until=1)) == [1, 2]
    storage.delete(config_path(INITIAL_INSTANT))
    assert latest_config(storage, timeline(until=0)) is None


def test_a_version_that_came_after_the_timeline_was_listed_does_not_count(
    storage: MemoryStorage,
) -> None:
    assert counts(storage, timeline(last=1)) == [1, 2]


def test_all_versions_older_than_the_timeline_but_the_newest_are_archived(
    storage: MemoryStorage,
) -> None:
    save_config(storage, a_config(at(4), 5))
    active = replace(timeline(), start=at(3))
    assert archive_configs(storage, active) == [INITIAL_INSTANT, at(1)]
    assert archive_configs(storage, active) == []
    listed = sorted(stored.path for stored in storage.list(CONFIGS_FOLDER))
    assert listed == [config_path(at(2)), config_path(at(4))]
    assert counts(storage, active) == [1, 2, 3, 5]


def test_a_table_without_versions_is_not_partition_level() -> None:
    storage = empty_storage()
    assert not is_partition_level(storage)
    assert latest_config(storage, timeline()) is None


def test_a_first_version_that_is_pending_does_not_count() -> None:
    storage = empty_storage()
    save_config(storage, a_config(at(1)))
    assert latest_config(storage, timeline(1)) is None


def test_a_version_is_never_replaced(storage: MemoryStorage) -> None:
    with pytest.raises(AlreadyExistsError):
        save_config(storage, a_config(at(1)))


def test_archived_versions_count_in_the_form_of_hudi_and_of_the_rfc(storage: MemoryStorage) -> None:
    for n in (1, 2):
        storage.delete(config_path(at(n)))
    storage.put(f"{HASHING_ARCHIVE_FOLDER}/{at(1)}.hashing_config", a_config(at(1), 7).to_json())
    merged = {at(2): json.loads(a_config(at(2), 8).to_json())}
    draft = {at(3): {"expression": "a,1", "rule": "regex", "default": 9}}
    path = f"{HASHING_ARCHIVE_FOLDER}/archived.hashing_config"
    storage.put(path, json.dumps(merged | draft).encode())
    assert counts(storage, timeline()) == [1, 7, 8, 9]


def test_versions_of_the_draft_count_until_there_are_others() -> None:
    storage = empty_storage()
    entries = {"expression": "a,1", "rule": "regex", "default": 9}
    storage.put(DRAFT_FILE, json.dumps({at(1): entries, at(2): entries | {"default": 8}}).encode())
    assert counts(storage, timeline()) == [9, 8]
    assert latest_config(storage, timeline()) == HashingConfig("a,1", 8, "regex", at(2))
    assert latest_config(storage, timeline(2)) == HashingConfig("a,1", 9, "regex", at(1))
    assert latest_config(storage, timeline(until=1)) == HashingConfig("a,1", 9, "regex", at(1))
    save_config(storage, a_config(at(3)))
    assert latest_config(storage, timeline()) == a_config(at(3))
    assert counts(storage, timeline()) == [9, 8, 3]


def test_a_time_travel_finds_archived_versions(storage: MemoryStorage) -> None:
    for instant in (INITIAL_INSTANT, at(1)):
        data = storage.read(config_path(instant))
        storage.put(f"{HASHING_ARCHIVE_FOLDER}/{instant}.hashing_config", data)
        storage.delete(config_path(instant))
    assert latest_config(storage, timeline(until=1)) == a_config(at(1), 2)
    assert latest_config(storage, timeline(until=0)) == a_config(INITIAL_INSTANT, 1)
    assert latest_config(storage, timeline()) == a_config(at(2), 3)


def test_strange_files_beside_the_versions_are_passed_over(storage: MemoryStorage) -> None:
    storage.put(f"{CONFIGS_FOLDER}/.{at(5)}.hashing_config.crc", b"crc")
    storage.put(f"{CONFIGS_FOLDER}/README", b"words")
    assert counts(storage, timeline()) == [1, 2, 3]


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"{}", b'{"expressions": 1, "rule": "regex", "defaultBucketNumber": 1}'],
)
def test_a_version_that_cannot_be_read_is_named(storage: MemoryStorage, data: bytes) -> None:
    storage.put(config_path(at(9)), data)
    with pytest.raises(FormatError, match=at(9)):
        committed_configs(storage, timeline())
