"""Compactions beside each other, and beside what other processes do before their plans are put.

A planner looks at the table; then another process acts, and only then the planner puts its plan.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import TimelineError
from bucketlake.services import compaction
from bucketlake.timeline.instant import State
from tests.bounds import set_bounds
from tests.faulty_storage import SimulatedCrash
from tests.meanwhile import PUTS, meanwhile
from tests.spies import breaks, overtake

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("v", pa.int64())])
Rows = dict[tuple[str, str], int]


class Shared:
    """A table that several processes use, and the rows that it must have."""

    def __init__(self, path: str, version: int) -> None:
        self.table = bl.create_table(
            path,
            schema=SCHEMA,
            record_key="id",
            partition_by="p",
            index=bl.SimpleBucket(1),
            table_type="merge_on_read",
            version=version,
        )
        self.rows: Rows = {}
        for v in (1, 2):
            self.write(v, ("a", "k0"), ("a", "k1"), ("b", "k0"))
        self.saved = self.table.savepoint()
        self.then = dict(self.rows)
        self.last = self.write(3, ("a", "k0"), ("b", "k1"), ("c", "k0"))

    @property
    def other(self) -> bl.Table:
        """The table, opened by another process."""
        return bl.open_table(self.table.path)

    def write(self, v: int, *keys: tuple[str, str]) -> str:
        """Upsert rows; return the instant."""
        given = [{"id": key, "p": p, "v": v} for p, key in keys]
        self.rows |= dict.fromkeys(keys, v)
        instant = self.other.upsert(pa.Table.from_pylist(given, SCHEMA)).instant
        assert instant is not None
        return instant

    def check(self) -> None:
        """Check rows, and that nothing is wrong, before and after what is pending is executed."""
        for compacts in (False, True):
            if compacts:
                self.other.compact()
            found = self.other.to_arrow().to_pylist()
            assert {(row["p"], row["id"]): row["v"] for row in found} == self.rows
            assert len(found) == len(self.rows)
            assert not self.other.doctor(check_keys=True, min_age_seconds=0)
            self.write(max(self.rows.values()) + 1, ("a", "k0"), ("b", "k0"), ("d", "k0"))

    # What another process does meanwhile.

    def compacts(self) -> None:
        self.other.compact()

    def writes_and_compacts(self) -> None:
        self.write(4, ("a", "lost"), ("b", "k0"))
        self.other.compact()

    def compacts_and_writes(self) -> None:
        self.other.compact()
        self.write(4, ("a", "lost"), ("b", "k0"))

    def compacts_twice(self) -> None:
        self.compacts_and_writes()
        self.writes_and_compacts()

    def plans(self) -> None:
        self.other.compact(schedule_only=True)

    def plans_and_writes(self) -> None:
        self.other.compact(schedule_only=True)
        self.write(4, ("a", "lost"), ("b", "k0"))

    def plans_writes_and_compacts(self) -> None:
        self.plans_and_writes()
        self.other.compact()

    def compacts_and_cleans(self) -> None:
        self.other.delete_savepoint(self.saved)
        self.writes_and_compacts()
        self.other.clean(retain_commits=1)

    def rolls_back(self) -> None:
        """A pending plan that names files of the commit would refuse this."""
        self.other.rollback(self.last)
        self.rows = dict(self.then)

    def restores(self) -> None:
        self.other.restore(self.saved)
        self.rows = dict(self.then)

    def compacts_and_restores(self) -> None:
        self.writes_and_compacts()
        self.restores()

    def overwrites(self) -> None:
        rows = pa.Table.from_pylist([{"id": "k9", "p": "a", "v": 5}], SCHEMA)
        self.other.insert_overwrite(rows)
        self.rows = {at: v for at, v in self.rows.items() if at[0] != "a"} | {("a", "k9"): 5}

    def drops(self) -> None:
        self.other.delete_partitions("b")
        self.rows = {at: v for at, v in self.rows.items() if at[0] != "b"}


MEANWHILE = (
    Shared.compacts,
    Shared.writes_and_compacts,
    Shared.compacts_and_writes,
    Shared.compacts_twice,
    Shared.plans,
    Shared.plans_and_writes,
    Shared.plans_writes_and_compacts,
    Shared.compacts_and_cleans,
    Shared.rolls_back,
    Shared.restores,
    Shared.compacts_and_restores,
    Shared.overwrites,
    Shared.drops,
)


PLAN = ".compaction.requested"
CASES = [
    *((6, act) for act in MEANWHILE),
    *((version, act) for n, act in enumerate(MEANWHILE) for version in (8 + n % 2,)),
]


@pytest.mark.parametrize(("version", "act"), CASES)
def test_a_compaction_keeps_what_others_did_between_its_look_and_its_plan(
    version: int,
    act: Callable[[Shared], None],
    new_path: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = Shared(new_path(), version)
    meanwhile(monkeypatch, lambda: act(shared), PUTS, PLAN)
    shared.table.compact()
    shared.check()


@pytest.mark.parametrize("act", [act for act in MEANWHILE if act is not Shared.rolls_back])
def test_a_compaction_keeps_what_others_did_between_its_plan_and_its_turn(
    act: Callable[[Shared], None], new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Shared(new_path(), 6)
    overtake(monkeypatch, compaction, "settle_plan", lambda: act(shared))
    takes_it_away = act in (Shared.restores, Shared.compacts_and_restores)
    gone = pytest.raises(TimelineError, match="no longer pending")
    with gone if takes_it_away else nullcontext():
        shared.table.compact()
    shared.check()


def test_a_plan_whose_planner_died_before_it_named_a_file_group_is_removed(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a living planner it stays."""
    shared = Shared(new_path(), 6)
    breaks(monkeypatch, compaction, "_put", SimulatedCrash())
    with pytest.raises(SimulatedCrash):
        shared.table.compact()
    monkeypatch.undo()
    [plan] = [found for found in shared.other.timeline() if found.state is not State.COMPLETED]
    assert len(shared.other.compact().instants) == 1
    assert plan in shared.other.timeline()
    set_bounds(monkeypatch, compaction, _DEAD_AFTER_MS=-1)
    shared.other.compact()
    assert plan not in shared.other.timeline()
    shared.check()
