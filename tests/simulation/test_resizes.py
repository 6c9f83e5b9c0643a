"""One resize of hash rings, and storage that fails at each step of it and of what is beside it.

The world and the crowd resize at random; here each step is tried. After each death another process
reads, writes, and resizes: no row may be lost or doubled, and nothing may stay pending.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions.conflict import retried
from bucketlake.config.table_config import TableConfig
from bucketlake.model.file_name import InstantTime
from bucketlake.model.table_type import Operation
from bucketlake.services.resize import execution as resize_module
from bucketlake.services.resize.service import ResizeLimits
from bucketlake.services.undo.rollback_commits import roll_back
from bucketlake.storage.base import Storage
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.instant import Action, State
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config, table_at
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource
from bucketlake.write.target import open_target
from tests.bounds import set_bounds
from tests.choices import some
from tests.faulty_storage import FaultyStorage, SimulatedCrash, distinct_deaths
from tests.simulation.resizes import require_committed_blocks, resize_one_by_one
from tests.simulation.world import SCHEMA, require_tidy

RINGS = bl.ConsistentBucket(2)
SPLIT_ALL = ResizeLimits(max_file_size=1)
MERGE_ALL = ResizeLimits(max_file_size=1 << 30)
TYPES = ["copy_on_write", "merge_on_read"]

Values = dict[str, int]
Step = Callable[[Storage], object]

FIRST = {f"k{i}": 1 for i in range(6)}
SECOND = FIRST | {f"k{i}": 2 for i in range(3, 9)}


def values_with(state: Values, v: int) -> Values:
    return state | {f"k{i}": v for i in range(2, 8)}


def upsert(storage: Storage, numbers: range, v: int) -> None:
    rows = [{"id": f"k{i}", "p": "a", "v": v, "ts": 1} for i in numbers]
    source = ArrowSource(pa.Table.from_pylist(rows, SCHEMA), threads=1)

    def write() -> object:
        target = open_target(table_at(storage), RINGS)
        return write_records(target, Operation.UPSERT, source)

    retried(write)


def resize(storage: Storage, limits: ResizeLimits, *, schedule_only: bool = False) -> None:
    target = open_target(table_at(storage), RINGS)
    resize_one_by_one(target, limits, schedule_only=schedule_only)


def written(table_type: str, *steps: Step) -> dict[str, bytes]:
    """Return the objects of a table after a write, the plan of a resize, and more steps."""
    forget("made")
    bl.create_table(
        "memory://made",
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["p"],
        index=RINGS,
        table_type=table_type,
    )
    storage = MemoryStorage("made")
    upsert(storage, range(6), 1)
    resize(storage, SPLIT_ALL, schedule_only=True)
    for step in steps:
        step(storage)
    return {stored.path: storage.read(stored.path) for stored in storage.list("")}


def second_write(storage: Storage) -> None:
    upsert(storage, range(3, 9), 2)


def copy_of(objects: dict[str, bytes]) -> MemoryStorage:
    forget("crash")
    storage = MemoryStorage("crash")
    for path, content in objects.items():
        storage.put(path, content)
    return storage


def read(storage: FaultyStorage) -> Values:
    """Read the table as a new process, also by file names alone."""
    require_committed_blocks(storage.inner, lambda finding: f"{finding}\n{storage.replay()}")
    found = bl.open_table("memory://crash").to_arrow()
    assert found.num_rows == len(set(found["id"].to_pylist())), storage.replay()
    return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def die_at_every_step(objects: dict[str, bytes], run: Step, possible: list[Values]) -> set[int]:
    """Die at each step; return which of the possible states were read."""
    counting = FaultyStorage(copy_of(objects), reads_count=False)
    run(counting)
    seen = set()
    for number, fault in enumerate(some([*distinct_deaths(counting)], 24)):
        storage = copy_of(objects)
        faulty = FaultyStorage(storage, [fault], reads_count=False)
        with pytest.raises(SimulatedCrash):
            run(faulty)
        found = read(faulty)
        assert found in possible, f"{found}\n{faulty.replay()}"
        seen.add(possible.index(found))
        later = possible
        if number % 2:  # The next process writes, or it resizes first.
            upsert(storage, range(2, 8), 3)
            later = [values_with(state, 3) for state in possible]
        resize(storage, SPLIT_ALL)
        found = read(faulty)
        assert found in later, f"{found}\n{faulty.replay()}"
        upsert(storage, range(2, 8), 4)
        resize(storage, MERGE_ALL)
        assert read(faulty) == values_with(found, 4), faulty.replay()
        table = bl.open_table("memory://crash")
        for key in ("k0", "k3", "k6"):
            assert len(table.locate(key)) == 1, faulty.replay()
        assert all(i.state is State.COMPLETED for i in table.timeline()), faulty.replay()
        require_tidy(storage, lambda finding, at=faulty: f"{finding}\n{at.replay()}")
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("table_type", TYPES)
def test_death_at_every_step_of_a_resize_loses_nothing_and_the_next_one_ends_it(
    table_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On copy-on-write the write overtakes the plan; the next plan has writers wait."""
    set_bounds(monkeypatch, resize_module, ROUNDS_BESIDE_WRITERS=0)
    objects = written(table_type, second_write)
    assert die_at_every_step(objects, lambda s: resize(s, SPLIT_ALL), [SECOND]) == {0}


@pytest.mark.slow
@pytest.mark.parametrize("table_type", TYPES)
def test_death_at_every_step_of_a_write_during_a_resize_shows_all_of_it_or_nothing(
    table_type: str,
) -> None:
    objects = written(table_type)
    assert die_at_every_step(objects, second_write, [FIRST, SECOND]) == {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize("is_completed", [False, True])
def test_death_at_every_step_of_undoing_a_write_that_served_a_resize(*, is_completed: bool) -> None:
    def end(storage: Storage) -> None:
        if is_completed:
            resize(storage, SPLIT_ALL)

    objects = written("merge_on_read", second_write, end)
    commits = load_timeline(opened_table(MemoryStorage("made"), config())).completed_commits()
    [write] = [one.requested_at for one in commits if one.action is Action.DELTA_COMMIT][-1:]
    run = undoing(write, cascade=is_completed)
    assert die_at_every_step(objects, run, [FIRST, SECOND]) == {0, 1}


@pytest.mark.slow
@pytest.mark.parametrize("table_type", TYPES)
def test_death_at_every_step_of_undoing_a_resize_keeps_the_rows(table_type: str) -> None:
    objects = written(table_type, second_write, lambda s: resize(s, SPLIT_ALL))
    commits = load_timeline(opened_table(MemoryStorage("made"), config())).completed_commits()
    done = [one.requested_at for one in commits if one.action is Action.REPLACE_COMMIT][-1]
    assert die_at_every_step(objects, undoing(done), [SECOND]) == {0}


def config() -> TableConfig:
    return read_table_config(MemoryStorage("made"))


def undoing(instant: InstantTime, *, cascade: bool = False) -> Step:
    return lambda storage: roll_back(
        opened_table(storage, config()), None, instant, cascade=cascade
    )
