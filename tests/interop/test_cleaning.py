"""Old versions that Hudi and bucketlake clean in turns, and plans that one leaves the other."""

from __future__ import annotations

import random
import shutil
from itertools import count
from pathlib import Path

import pytest

from bucketlake.errors import TimelineError
from bucketlake.model.retention import Retention
from bucketlake.services.cleaning import clean
from bucketlake.storage.local import LocalStorage
from bucketlake.timeline.instant import Action, State
from bucketlake.timeline.open_table import opened_table
from tests.choices import combinations, some
from tests.faulty_storage import Fault, FaultyStorage, SimulatedCrash
from tests.interop.layouts import BY_RULES, COMMIT_TIME, LAYOUTS, ONE, Layout
from tests.interop.model import in_order, rows_of
from tests.interop.peer.client import HudiPeer, read_with_hudi_rs
from tests.interop.shared_table import BUCKETLAKE, HUDI, SharedTable, Writer
from tests.interop.test_merge_on_read import compact, events, merged

pytestmark = pytest.mark.interop

CHOSEN = (ONE, COMMIT_TIME, BY_RULES, LAYOUTS[0], LAYOUTS[7])
MERGE_ON_READ = (False, True)
CASES = some(combinations(CHOSEN, MERGE_ON_READ), 3)
KINDS = [merged(one) if merge else one for one, merge in CASES]
TYPES = (ONE, merged(ONE))
RETAINED = (
    ({"retain_commits": 1}, "retain_commits => 1"),
    ({"retain_commits": 3}, "retain_commits => 3"),
    (
        {"retain_versions": 2},
        "clean_policy => 'KEEP_LATEST_FILE_VERSIONS', file_versions_retained => 2",
    ),
)


@pytest.fixture
def session(hudi: HudiPeer) -> HudiPeer:
    """The peer, without metadata tables."""
    hudi.sql("SET hoodie.metadata.enable=false")
    return hudi


def name_of(layout: Layout) -> str:
    return f"{layout.name}, {'merge' if layout.kind.merge_on_read else 'copy'}"


def hudi_cleans(session: HudiPeer, path: Path, retained: str = "retain_commits => 1") -> None:
    name = "cleaned"
    session.sql(f"DROP TABLE IF EXISTS {name}")
    session.sql(f"CREATE TABLE {name} USING hudi LOCATION '{path}'")
    session.sql(
        f"CALL run_clean(table => '{name}', {retained}, options => 'hoodie.metadata.enable=false')"
    )
    session.sql(f"DROP TABLE IF EXISTS {name}")


def data_files(path: Path) -> set[str]:
    found = [p for p in path.rglob("*") if p.is_file() and ".hoodie" not in str(p)]
    return {str(p.relative_to(path)) for p in found if not p.name.endswith(".crc")}


def cleans(table: SharedTable) -> list[str]:
    return [i.requested_at for i in table.ours.timeline() if i.action is Action.CLEAN]


def lively(session: HudiPeer, path: Path, layout: Layout, steps: int = 4) -> SharedTable:
    """A table that both wrote to, with overwritten and deleted partitions among the rest."""
    table = SharedTable(session, path, layout.kind, layout.as_hudi_shows)
    random_ = random.Random(name_of(layout))
    table.begin()
    for step in range(1, steps + 1):
        table.upsert(HUDI if step % 2 else BUCKETLAKE, events(layout, random_, step))
        if step == 2:
            table.overwrite(BUCKETLAKE, events(layout, random_, step)[:6])
        if layout.kind.merge_on_read and step == 3:
            compact(table, BUCKETLAKE)
    return table


@pytest.mark.parametrize("layout", KINDS, ids=name_of)
def test_both_clean_in_turns_and_everybody_reads_on(
    session: HudiPeer, tmp_path: Path, layout: Layout
) -> None:
    table = lively(session, tmp_path / "turns", layout)
    random_ = random.Random(1)
    for step in range(5, 9):
        table.upsert(HUDI if step % 2 else BUCKETLAKE, events(layout, random_, step))
        if layout.kind.merge_on_read:
            compact(table, BUCKETLAKE if step % 2 else HUDI)
        before, held = data_files(table.path), cleans(table)
        if step in (5, 8):
            table.ours.clean(retain_commits=1)
        else:
            hudi_cleans(session, table.path)
        assert len(cleans(table)) == len(held) + 1
        assert data_files(table.path) < before
        table.assert_read_by_all()
    assert all(i.state is State.COMPLETED for i in table.ours.timeline())


@pytest.mark.parametrize(
    ("retained", "layout"),
    combinations(RETAINED, TYPES),
    ids=lambda v: name_of(v) if isinstance(v, Layout) else v[1],
)
def test_the_same_files_go_whoever_cleans(
    session: HudiPeer, tmp_path: Path, layout: Layout, retained: tuple[dict[str, int], str]
) -> None:
    ours, hudis = retained
    table = lively(session, tmp_path / "ours", layout, steps=6)
    random_ = random.Random(2)
    if layout.kind.merge_on_read:
        compact(table, HUDI)
        table.upsert(HUDI, events(layout, random_, 7))
        table.ours.compact(schedule_only=True)
    table.upsert(BUCKETLAKE, events(layout, random_, 8))
    twin = tmp_path / "hudis"
    shutil.copytree(table.path, twin)
    before = data_files(table.path)
    table.ours.clean(**ours)
    hudi_cleans(session, twin, hudis)
    assert data_files(table.path) == data_files(twin) < before
    table.assert_read_by_all()


def planned(table: SharedTable) -> str:
    """Have bucketlake plan a clean and die at its next step."""
    storage = LocalStorage(str(table.path))
    for operation in count(1):
        faulty = FaultyStorage(storage, [Fault(operation)], reads_count=False)
        with pytest.raises(SimulatedCrash):
            clean(opened_table(faulty, table.ours.config()), Retention(count=1))
        pending = [i for i in table.ours.timeline() if i.state is not State.COMPLETED]
        if pending:
            break
    [plan] = pending
    assert (plan.action, plan.state) == (Action.CLEAN, State.REQUESTED)
    return plan.requested_at


@pytest.mark.parametrize("layout", TYPES, ids=name_of)
def test_hudi_carries_out_a_clean_that_we_planned(
    session: HudiPeer, tmp_path: Path, layout: Layout
) -> None:
    table = lively(session, tmp_path / "planned", layout)
    table.upsert(BUCKETLAKE, events(layout, random.Random(3), 9))
    files = table.ours.clean(retain_commits=1, dry_run=True).partitions
    before, plan = data_files(table.path), planned(table)
    hudi_cleans(session, table.path, "retain_commits => 100")
    assert len(before) - len(data_files(table.path)) == sum(one.files for one in files) > 0
    [done] = [i for i in table.ours.timeline() if i.action is Action.CLEAN]
    assert (done.requested_at, done.state) == (plan, State.COMPLETED)
    table.assert_read_by_all()
    table.upsert(HUDI, events(layout, random.Random(4), 10))
    table.assert_read_by_all()


@pytest.mark.parametrize("layout", TYPES, ids=name_of)
def test_we_carry_out_a_clean_that_hudi_planned(
    session: HudiPeer, tmp_path: Path, layout: Layout
) -> None:
    """Hudi died after it had put the plan on the timeline."""
    table = lively(session, tmp_path / "planned", layout)
    table.upsert(HUDI, events(layout, random.Random(3), 9))
    held = tmp_path / "held"
    shutil.copytree(table.path, held)
    hudi_cleans(session, table.path)
    after = data_files(table.path)
    [plan] = Path(table.path, ".hoodie/timeline").glob("*.clean.requested")
    shutil.copy(plan, held / ".hoodie/timeline")
    shutil.rmtree(table.path)
    held.rename(table.path)
    assert after < data_files(table.path)
    report = table.ours.clean(retain_commits=100)
    assert report.instants == (plan.name.partition(".")[0],)
    assert data_files(table.path) == after
    table.assert_read_by_all()
    table.upsert(HUDI, events(layout, random.Random(4), 10), {"hoodie.clean.commits.retained": "1"})
    table.assert_read_by_all()


@pytest.mark.parametrize(
    ("layout", "writer"),
    combinations(TYPES, list(Writer)),
    ids=lambda v: name_of(v) if isinstance(v, Layout) else f"by {v.value}",
)
def test_what_is_retained_is_read_as_it_was_and_what_is_not_is_refused(
    session: HudiPeer, tmp_path: Path, layout: Layout, writer: Writer
) -> None:
    table = SharedTable(session, tmp_path / "then", layout.kind)
    random_, schema = random.Random(5), layout.kind.schema
    held, times = [], []
    table.begin()
    for step in range(1, 7):
        table.upsert(HUDI if step % 2 else BUCKETLAKE, events(layout, random_, step))
        if layout.kind.merge_on_read:
            compact(table, BUCKETLAKE)
        held.append(in_order(list(table.model.rows.values()), schema))
        times.append([i.requested_at for i in table.ours.timeline() if i.action.writes_data][-1])
    retained = 5 if layout.kind.merge_on_read else 3
    if writer is HUDI:
        hudi_cleans(session, table.path, f"retain_commits => {retained}")
    else:
        table.ours.clean(retain_commits=retained)
    for at, rows in zip(times[3:], held[3:], strict=True):
        assert rows_of(table.ours.to_arrow(as_of=at), schema) == rows
        assert rows_of(session.time_travel(table.path, at), schema) == rows
        assert rows_of(read_with_hudi_rs(table.path, at), schema) == rows
    with pytest.raises(TimelineError, match="ask for a later time"):
        table.ours.to_arrow(as_of=times[0])
