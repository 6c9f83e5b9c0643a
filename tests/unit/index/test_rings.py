"""Versions of hash rings in storage: which one counts, and what becomes of the others."""

from __future__ import annotations

import pytest

from bucketlake.config.table_version import LAYOUT_2
from bucketlake.errors import FormatError, HashingMetadataError
from bucketlake.format.hashing_metadata import HashingMetadata, encode_hashing_metadata
from bucketlake.index.hashing_config import INITIAL_INSTANT
from bucketlake.index.ring_engine import CONSISTENT
from bucketlake.index.ring_state import RingSource
from bucketlake.index.rings import (
    create_ring,
    first_version,
    forget_notes,
    forget_old_rings,
    has_rings,
    load_ring,
    metadata_path,
    noted_instants,
    publish_before_archival,
    publish_rings,
    ring_after,
    save_rings,
    stored_versions,
    undo_rings,
)
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.outcome import claim_rollback
from tests.storages import memory_of, objects_of

TIMES = [InstantTime(f"2026112410000{n}000") for n in range(8)]
HISTORY = ".hoodie/timeline/history"


@pytest.fixture
def storage() -> Storage:
    return memory_of()


def timeline(*completed: InstantTime, pending: InstantTime | None = None) -> Timeline:
    """Return a timeline of replace commits, perhaps with a pending clustering."""
    instants = [Instant(at, Action.REPLACE_COMMIT, State.COMPLETED, at) for at in completed]
    if pending is not None:
        instants.append(Instant(pending, Action.CLUSTERING, State.INFLIGHT))
    instants.sort(key=lambda instant: instant.order)
    start = min(completed, default=None)
    return Timeline(tuple(instants), ".hoodie/timeline", LAYOUT_2, start, history_folder=HISTORY)


def split(metadata: HashingMetadata, instant: InstantTime) -> HashingMetadata:
    """Return the version after a split of the first node."""
    ring = metadata.ring
    value, middle = int(ring.values[0]), ring.middle(int(ring.values[0]))
    assert middle is not None
    prefixes = [f"{place:08x}-0000-4000-8000-{instant[-12:]}" for place in (1, 2)]
    return ring_after(metadata, ring.split(value, [middle], prefixes), instant)


def versions(storage: Storage, *instants: InstantTime, path: str = "a") -> list[HashingMetadata]:
    """Store the first version of a ring, and a version of each instant."""
    made = [first_version(path, 2)]
    assert create_ring(storage, made[0])
    for instant in instants:
        made.append(split(made[-1], instant))
        save_rings(storage, instant, {path: made[-1]})
    return made


def counting(storage: Storage, found: Timeline, path: str = "a") -> InstantTime | None:
    metadata = load_ring(storage, found, path)
    return None if metadata is None else metadata.instant


# ---- Which version counts -----------------------------------------------------------------------


def test_a_partition_without_a_version_begins_with_a_ring_that_is_not_stored(
    storage: Storage,
) -> None:
    assert load_ring(storage, timeline(TIMES[0]), "a") is None
    state = RingSource(storage, timeline(TIMES[0]), 4).state("a")
    assert (len(state.ring), state.is_stored) == (4, False)
    assert not has_rings(storage)


def test_the_newest_version_of_a_completed_commit_counts(storage: Storage) -> None:
    made = versions(storage, TIMES[1], TIMES[2])
    assert counting(storage, timeline(TIMES[0])) == INITIAL_INSTANT
    assert counting(storage, timeline(TIMES[0], TIMES[1])) == TIMES[1]
    assert load_ring(storage, timeline(*TIMES[:3]), "a") == made[2]


def test_the_version_of_a_pending_resize_does_not_count_yet(storage: Storage) -> None:
    versions(storage, TIMES[1])
    assert counting(storage, timeline(TIMES[0], pending=TIMES[1])) == INITIAL_INSTANT


def test_a_version_of_no_commit_does_not_count_even_with_a_marker(storage: Storage) -> None:
    versions(storage, TIMES[1])
    publish_rings(storage, TIMES[1], ["a"])
    assert counting(storage, timeline(TIMES[0], TIMES[2])) == INITIAL_INSTANT


@pytest.mark.parametrize("is_marked", [False, True])
def test_a_version_older_than_the_timeline_counts_if_a_marker_says_so(
    storage: Storage, *, is_marked: bool
) -> None:
    versions(storage, TIMES[1])
    if is_marked:
        publish_rings(storage, TIMES[1], ["a"])
    expected = TIMES[1] if is_marked else INITIAL_INSTANT  # The archive has no such commit.
    assert counting(storage, timeline(TIMES[5])) == expected


def test_a_version_that_was_rolled_back_never_counts_again(storage: Storage) -> None:
    versions(storage, TIMES[1])
    publish_rings(storage, TIMES[1], ["a"])
    claim_rollback(storage, TIMES[1])
    assert counting(storage, timeline(TIMES[5])) == INITIAL_INSTANT


def test_time_travel_sees_the_version_of_its_time(storage: Storage) -> None:
    versions(storage, TIMES[1], TIMES[2])
    found = timeline(*TIMES[:4])
    assert counting(storage, found.as_of(TIMES[1])) == TIMES[1]
    assert counting(storage, found.without({TIMES[2]})) == TIMES[1]


def test_partitions_inside_others_and_none_have_rings_of_their_own(storage: Storage) -> None:
    for number, path in enumerate(("", "a", "a/b")):
        versions(storage, TIMES[number], path=path)
    for number, path in enumerate(("", "a", "a/b")):
        assert counting(storage, timeline(*TIMES[:3]), path) == TIMES[number]
    assert {(v.partition_path, v.instant) for v in stored_versions(storage)} == {
        (path, instant)
        for number, path in enumerate(("", "a", "a/b"))
        for instant in (INITIAL_INSTANT, TIMES[number])
    }


def test_a_ring_in_the_folder_of_another_partition_is_an_error(storage: Storage) -> None:
    storage.put(metadata_path("b", INITIAL_INSTANT), encode_hashing_metadata(first_version("a", 2)))
    with pytest.raises(HashingMetadataError, match="partition 'a'"):
        load_ring(storage, timeline(TIMES[0]), "b")


def test_a_version_that_was_cut_off_is_an_error_and_no_older_one_is_taken(
    storage: Storage,
) -> None:
    versions(storage, TIMES[1])
    path = metadata_path("a", TIMES[1])
    storage.put(path, storage.read(path)[:-50])
    with pytest.raises(FormatError, match=TIMES[1]):
        load_ring(storage, timeline(*TIMES[:2]), "a")


# ---- Creation, and undoing ----------------------------------------------------------------------


def test_of_two_writers_that_make_a_ring_both_win_if_it_is_the_same(storage: Storage) -> None:
    assert create_ring(storage, first_version("a", 4))
    assert create_ring(storage, first_version("a", 4))
    before = objects_of(storage)
    assert not create_ring(storage, first_version("a", 8))
    assert objects_of(storage) == before


def test_undoing_a_commit_takes_versions_markers_and_the_note_of_it_alone(
    storage: Storage,
) -> None:
    versions(storage, TIMES[1])
    publish_rings(storage, TIMES[1], ["a"])
    before = objects_of(storage)
    save_rings(storage, TIMES[2], {path: split(first_version(path, 2), TIMES[2]) for path in "ab"})
    publish_rings(storage, TIMES[2], ["a", "b"])
    undo_rings(storage, TIMES[2])
    assert objects_of(storage) == before


def test_undoing_a_resize_of_hudi_takes_the_versions_that_its_plan_names(storage: Storage) -> None:
    versions(storage)
    before = objects_of(storage)
    metadata = split(first_version("a", 2), TIMES[1])
    storage.put(metadata_path("a", TIMES[1]), encode_hashing_metadata(metadata))
    publish_rings(storage, TIMES[1], ["a"])
    undo_rings(storage, TIMES[1], ["a"])
    assert objects_of(storage) == before


def test_a_version_that_is_saved_again_stays_as_it_was(storage: Storage) -> None:
    made = versions(storage, TIMES[1])
    save_rings(storage, TIMES[1], {"a": split(made[1], TIMES[1])})
    assert load_ring(storage, timeline(*TIMES[:2]), "a") == made[1]


# ---- Cleaning and archival ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("earliest", "left"),
    [
        (0, [INITIAL_INSTANT, *TIMES[1:5]]),
        (1, [INITIAL_INSTANT, *TIMES[1:5]]),
        (2, TIMES[1:5]),
        (3, TIMES[2:5]),
        (4, TIMES[3:5]),
        (7, TIMES[3:5]),
    ],
)
def test_a_clean_keeps_the_newest_version_before_the_earliest_commit_and_two_in_any_case(
    storage: Storage, earliest: int, left: list[InstantTime]
) -> None:
    versions(storage, *TIMES[1:5])
    publish_rings(storage, TIMES[1], ["a"])
    forget_old_rings(storage, timeline(*TIMES), ["a"], TIMES[earliest])
    assert sorted(version.instant for version in stored_versions(storage)) == left
    # Hudi fails on a marker without a version.
    markers = [path for path in objects_of(storage) if path.endswith(".commit")]
    assert len(markers) == (TIMES[1] in left)


def test_a_clean_counts_no_version_that_does_not_count(storage: Storage) -> None:
    versions(storage, *TIMES[1:5])
    found = timeline(TIMES[0], TIMES[1], TIMES[6], pending=TIMES[3])
    before = [*stored_versions(storage)]
    forget_old_rings(storage, found, ["a"], TIMES[6])
    assert [*stored_versions(storage)] == before
    assert counting(storage, found) == TIMES[1]


def test_versions_of_archived_commits_are_published_where_they_are_not(storage: Storage) -> None:
    versions(storage, TIMES[1])
    publish_before_archival(storage, {TIMES[1]: {"a", "b"}, TIMES[2]: {"a"}})
    markers = [path for path in objects_of(storage) if path.endswith(".commit")]
    assert markers == [f"{CONSISTENT.folder}/a/{TIMES[1]}.commit"]
    forget_notes(storage, [TIMES[1]])
    assert noted_instants(storage) == set()
    assert counting(storage, timeline(TIMES[5])) == TIMES[1]
