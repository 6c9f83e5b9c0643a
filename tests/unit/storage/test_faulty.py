"""The twin that fails on plan: it counts, strikes once, and tells how it came to it."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from bucketlake.errors import AlreadyExistsError, ObjectNotFoundError, StorageError
from bucketlake.storage.base import Storage
from bucketlake.storage.memory import MemoryStorage
from tests.faulty_storage import (
    Effect,
    Fault,
    FaultyStorage,
    Moment,
    SimulatedCrash,
    Step,
    crash_points,
)


def _paths(storage: Storage) -> list[str]:
    return [stored.path for stored in storage.list("")]


def _with_objects(*paths: str) -> MemoryStorage:
    storage = MemoryStorage.fresh()
    for path in paths:
        storage.put(path, b"1")
    return storage


def _write_and_read(storage: Storage) -> None:
    storage.put("a", b"1")
    storage.put_if_absent("b", b"2")
    storage.read("a")
    list(storage.list(""))
    storage.list_folders("")
    storage.stat("a")
    storage.read_range("a", 0, 1)
    storage.delete("a")
    storage.delete_folder("p")


def test_storage_without_faults_counts_and_traces_every_operation() -> None:
    storage = FaultyStorage(MemoryStorage.fresh())
    _write_and_read(storage)
    assert storage.operations == 9
    assert storage.trace[:3] == [Step("put", "a"), Step("put_if_absent", "b"), Step("read", "a")]
    assert "   8 delete a" in storage.replay()


def test_storage_that_counts_changes_only_leaves_reads_out_of_plan_and_trace() -> None:
    storage = FaultyStorage(MemoryStorage.fresh(), [Fault(3)], reads_count=False)
    with pytest.raises(SimulatedCrash, match="die before operation 3: delete a"):
        _write_and_read(storage)
    assert [step.operation for step in storage.trace] == ["put", "put_if_absent", "delete"]
    with pytest.raises(SimulatedCrash, match="dead already: read a"):
        storage.read("a")


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("write", [FaultyStorage.put, FaultyStorage.put_if_absent])
def test_write_takes_effect_only_where_the_crash_comes_after_it(
    moment: Moment, write: Callable[[FaultyStorage, str, bytes], None]
) -> None:
    inner = MemoryStorage.fresh()
    storage = FaultyStorage(inner, [Fault(1, moment)])
    with pytest.raises(SimulatedCrash):
        write(storage, "a", b"1")
    assert _paths(inner) == (["a"] if moment is Moment.AFTER else [])


@pytest.mark.parametrize("moment", Moment)
def test_duplicate_takes_effect_only_where_the_fault_comes_after_it(moment: Moment) -> None:
    inner = _with_objects("a")
    storage = FaultyStorage(inner, [Fault(1, moment, Effect.ECHO)])
    with pytest.raises(StorageError, match="outcome is unknown") as caught:
        storage.duplicate("a", "b")
    assert not isinstance(caught.value, AlreadyExistsError)  # A repetition meets equal bytes.
    assert storage.trace == [Step("duplicate", "b")]
    assert _paths(inner) == (["a", "b"] if moment is Moment.AFTER else ["a"])
    storage.duplicate("a", "b")
    assert inner.read("b") == b"1"


@pytest.mark.parametrize(
    ("moment", "left"),
    [(Moment.BEFORE, ["p/a", "p/b", "p/c"]), (Moment.HALFWAY, ["p/c"]), (Moment.AFTER, [])],
)
def test_removal_of_a_folder_may_stop_half_way(moment: Moment, left: list[str]) -> None:
    inner = _with_objects("p/a", "p/b", "p/c", "q")
    with pytest.raises(SimulatedCrash):
        FaultyStorage(inner, [Fault(1, moment)]).delete_folder("p")
    assert _paths(inner) == [*left, "q"]


def test_crash_is_not_caught_as_an_exception_and_all_that_follows_fails() -> None:
    storage = FaultyStorage(_with_objects("a"), [Fault(2)])
    storage.read("a")
    crashed = False
    try:
        storage.put("b", b"1")
    except Exception:  # As code under test might do.
        pytest.fail("the crash was caught")
    except BaseException:
        crashed = True
    assert crashed
    assert storage.dead
    later: list[Callable[[], object]] = [
        lambda: storage.put("b", b"1"),
        lambda: storage.read("a"),
        lambda: storage.list(""),
        lambda: storage.local_path("a"),
    ]
    for operation in later:
        with pytest.raises(SimulatedCrash):
            operation()
    assert storage.operations == 2


def test_error_strikes_once_and_leaves_its_outcome_open() -> None:
    inner = MemoryStorage.fresh()
    storage = FaultyStorage(
        inner, [Fault(1, Moment.BEFORE, Effect.ERROR), Fault(2, Moment.AFTER, Effect.ERROR)]
    )
    for path in "ab":
        with pytest.raises(StorageError, match="outcome is unknown") as caught:
            storage.put_if_absent(path, b"1")
        assert not isinstance(caught.value, AlreadyExistsError | ObjectNotFoundError)
    assert _paths(inner) == ["b"]
    storage.put("c", b"1")


def test_echo_tells_the_winner_that_its_own_object_is_there() -> None:
    inner = MemoryStorage.fresh()
    storage = FaultyStorage(inner, [Fault(1, Moment.AFTER, Effect.ECHO)])
    with pytest.raises(AlreadyExistsError):
        storage.put_if_absent("a", b"mine")
    assert inner.read("a") == b"mine"


def test_echo_of_anything_else_is_an_error() -> None:
    for moment in (Moment.BEFORE, Moment.AFTER):
        storage = FaultyStorage(_with_objects("a"), [Fault(1, moment, Effect.ECHO)])
        with pytest.raises(StorageError) as caught:
            storage.read("a")
        assert type(caught.value) is StorageError


def test_fault_after_an_operation_that_fails_by_itself_still_strikes() -> None:
    storage = FaultyStorage(MemoryStorage.fresh(), [Fault(1, Moment.AFTER)])
    with pytest.raises(SimulatedCrash):
        storage.read("nothing")


def test_an_operation_has_three_crash_points() -> None:
    assert [str(fault) for fault in crash_points(1)] == [
        "die before operation 1",
        "die halfway operation 1",
        "die after operation 1",
    ]


def test_crash_points_of_a_scenario_cover_every_distinct_state_of_storage() -> None:
    def scenario(storage: Storage) -> None:
        storage.put("p/a", b"1")
        storage.put("p/b", b"1")
        storage.delete_folder("p")
        storage.put("done", b"1")

    counting = FaultyStorage(MemoryStorage.fresh())
    scenario(counting)
    states = set()
    for fault in crash_points(counting.operations):
        inner = MemoryStorage.fresh()
        with pytest.raises(SimulatedCrash):
            scenario(FaultyStorage(inner, [fault]))
        states.add(tuple(_paths(inner)))
    assert states == {(), ("p/a",), ("p/a", "p/b"), ("p/b",), ("done",)}


def test_pickled_twin_keeps_plan_and_count() -> None:
    storage = FaultyStorage(MemoryStorage.fresh(), [Fault(2)])
    storage.put("a", b"1")
    copy = pickle.loads(pickle.dumps(storage))
    with pytest.raises(SimulatedCrash):
        copy.put("b", b"1")
    assert (copy.operations, storage.operations) == (2, 1)


def test_crash_survives_pickling_between_processes() -> None:
    assert str(pickle.loads(pickle.dumps(SimulatedCrash("here")))) == "here"
