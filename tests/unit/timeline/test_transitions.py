"""The steps of an instant on storage."""

from __future__ import annotations

import pytest

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import (
    AlreadyExistsError,
    CommitConflictError,
    StorageError,
)
from bucketlake.model.file_name import InstantTime
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.storage.base import Buffer
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.outcome import Publication, forbid_commit
from bucketlake.timeline.transitions import (
    create_requested,
    publish_completed,
    remove_pending,
    to_inflight,
)
from tests.faulty_storage import Effect, FaultyStorage, SimulatedCrash
from tests.storages import failing, memory_of, objects_of

SPEC = KeySpec(("id",), (), KeyGenerator.NON_PARTITION)
CONFIG = TableConfig("trips", TableType.COPY_ON_WRITE, SPEC, MergeMode.COMMIT_TIME)
T, C = InstantTime("20240102030405678"), InstantTime("20240102030406789")
BEGUN = Instant(T, Action.COMMIT, State.INFLIGHT)
COMMIT = Publication(C, Action.COMMIT, b"metadata")
COMPLETED_PATH = f".hoodie/timeline/{T}_{C}.commit"


def _inflight_storage() -> MemoryStorage:
    storage = memory_of()
    create_requested(opened_table(storage, CONFIG), T, Action.COMMIT)
    to_inflight(opened_table(storage, CONFIG), T, Action.COMMIT)
    return storage


def test_instant_goes_from_requested_to_inflight_to_completed() -> None:
    storage = memory_of()
    seen = []
    create_requested(opened_table(storage, CONFIG), T, Action.COMMIT, b"plan")
    seen.append(load_timeline(opened_table(storage, CONFIG)).instants)
    to_inflight(opened_table(storage, CONFIG), T, Action.COMMIT, b"profile")
    seen.append(load_timeline(opened_table(storage, CONFIG)).instants)
    completed = publish_completed(opened_table(storage, CONFIG), BEGUN, COMMIT)
    seen.append(load_timeline(opened_table(storage, CONFIG)).instants)
    assert seen == [
        (Instant(T, Action.COMMIT, State.REQUESTED),),
        (Instant(T, Action.COMMIT, State.INFLIGHT),),
        (completed,),
    ]
    assert objects_of(storage) == {
        f".hoodie/timeline/{T}.commit.requested": b"plan",
        f".hoodie/timeline/{T}.inflight": b"profile",
        COMPLETED_PATH: b"metadata",
    }


def test_time_that_is_taken_is_refused() -> None:
    storage = _inflight_storage()
    with pytest.raises(AlreadyExistsError):
        create_requested(opened_table(storage, CONFIG), T, Action.COMMIT)


def test_a_time_before_those_of_other_writes_is_refused() -> None:
    """Its writer had looked before they came; for their readers it would be an archived commit."""
    storage = memory_of()
    create_requested(opened_table(storage, CONFIG), C, Action.DELTA_COMMIT)
    with pytest.raises(AlreadyExistsError, match="too old"):
        create_requested(opened_table(storage, CONFIG), T, Action.COMMIT)
    [held] = load_timeline(opened_table(storage, CONFIG)).instants
    assert held.requested_at == C
    create_requested(opened_table(storage, CONFIG), T, Action.ROLLBACK)  # Nothing bears its time.


def test_instant_whose_beginning_was_not_answered_has_begun() -> None:
    storage = memory_of()
    create_requested(opened_table(storage, CONFIG), T, Action.COMMIT)
    # The first put lands and its answer is lost; the client's second one finds the path taken.
    to_inflight(
        opened_table(failing(storage, 1, lands=True, effect=Effect.ECHO), CONFIG), T, Action.COMMIT
    )
    assert load_timeline(opened_table(storage, CONFIG)).pending()[0].state is State.INFLIGHT


def test_publishing_again_is_harmless_even_when_the_pending_files_are_gone() -> None:
    storage = _inflight_storage()
    first = publish_completed(opened_table(storage, CONFIG), BEGUN, COMMIT)
    remove_pending(opened_table(storage, CONFIG), T, Action.COMMIT)
    assert publish_completed(opened_table(storage, CONFIG), BEGUN, COMMIT) == first
    assert objects_of(storage) == {COMPLETED_PATH: b"metadata"}


def test_commit_whose_inflight_file_is_gone_is_not_published() -> None:
    storage = _inflight_storage()
    remove_pending(opened_table(storage, CONFIG), T, Action.COMMIT)
    with pytest.raises(CommitConflictError, match="rolled this write back"):
        publish_completed(opened_table(storage, CONFIG), BEGUN, COMMIT)
    assert objects_of(storage) == {}


def test_a_commit_that_is_rolled_back_while_it_is_published_goes_again() -> None:
    """Its publisher had looked before, and others deleted its files since."""
    storage = _inflight_storage()

    class TakenBackMeanwhile(FaultyStorage):
        def put_if_absent(self, path: str, data: Buffer) -> None:
            forbid_commit(storage, T)
            remove_pending(opened_table(storage, CONFIG), T, Action.COMMIT)
            super().put_if_absent(path, data)

    publish_completed(opened_table(TakenBackMeanwhile(storage), CONFIG), BEGUN, COMMIT)
    assert COMPLETED_PATH not in objects_of(storage)


@pytest.mark.parametrize("service", [Action.COMPACTION, Action.CLUSTERING])
def test_service_begins_and_completes_under_different_names(service: Action) -> None:
    storage = memory_of()
    create_requested(opened_table(storage, CONFIG), T, service)
    begun = to_inflight(opened_table(storage, CONFIG), T, service)
    publication = Publication(C, service.completes_as, b"metadata")
    completed = publish_completed(opened_table(storage, CONFIG), begun, publication)
    assert load_timeline(opened_table(storage, CONFIG)).instants == (completed,)
    assert set(objects_of(storage)) == {
        f".hoodie/timeline/{T}.{service.value}.requested",
        f".hoodie/timeline/{T}.{service.value}.inflight",
        f".hoodie/timeline/{T}_{C}.{service.completes_as.value}",
    }


@pytest.mark.parametrize("lands", [True, False])
def test_publication_whose_answer_is_lost_is_found_or_repeated(lands: bool) -> None:
    storage = _inflight_storage()
    lost = failing(storage, 1, lands=lands)
    assert publish_completed(opened_table(lost, CONFIG), BEGUN, COMMIT).completed_at == C
    assert storage.read(COMPLETED_PATH) == b"metadata"


def test_publication_that_fails_twice_raises_the_error_of_storage() -> None:
    lost = failing(_inflight_storage(), 1, 2, lands=False)
    with pytest.raises(StorageError):
        publish_completed(opened_table(lost, CONFIG), BEGUN, COMMIT)


def test_removal_that_dies_leaves_an_instant_that_is_still_pending() -> None:
    storage = _inflight_storage()
    dying = failing(storage, 2, lands=False, effect=Effect.DIE)
    with pytest.raises(SimulatedCrash):
        remove_pending(opened_table(dying, CONFIG), T, Action.COMMIT)
    timeline = load_timeline(opened_table(storage, CONFIG))
    assert timeline.pending() == (Instant(T, Action.COMMIT, State.INFLIGHT),)
    remove_pending(opened_table(storage, CONFIG), T, Action.COMMIT)
    assert load_timeline(opened_table(storage, CONFIG)).instants == ()
