"""Savepoints of one side that the other's cleans spare, and restores to them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from bucketlake.timeline.instant import Action, State
from tests.choices import combinations
from tests.interop.layouts import BY_RULES, ONE, Layout
from tests.interop.model import in_order, rows_of
from tests.interop.peer.client import HudiPeer, PeerError, read_with_hudi_rs
from tests.interop.shared_table import BUCKETLAKE, HUDI, SharedTable, Writer
from tests.interop.test_cleaning import data_files, hudi_cleans
from tests.interop.test_merge_on_read import compact, events, merged

pytestmark = pytest.mark.interop

NAME = "saved"
TURNS = [(w, o) for w in Writer for o in Writer if w is HUDI or o is HUDI]
PLAIN, MERGED = ONE, merged(ONE)
TYPES = pytest.mark.parametrize("layout", [PLAIN, MERGED], ids=["cow", "mor"])


def saved_by(*layouts: Layout) -> pytest.MarkDecorator:
    """Run a test for each pair of a saver and another side."""
    chosen = combinations(TURNS, layouts)
    names = [
        f"{'mor' if layout is MERGED else 'cow'}, saved by {saver.value}, then {other.value}"
        for (saver, other), layout in chosen
    ]
    values = [(*turn, layout) for turn, layout in chosen]
    return pytest.mark.parametrize(("saver", "other", "layout"), values, ids=names)


@pytest.fixture
def session(hudi: HudiPeer) -> HudiPeer:
    """The peer, without metadata tables."""
    hudi.sql("SET hoodie.metadata.enable=false")
    return hudi


def call(table: SharedTable, procedure: str, arguments: str) -> None:
    table.hudi.sql(f"DROP TABLE IF EXISTS {NAME}")
    table.hudi.sql(f"CREATE TABLE {NAME} USING hudi LOCATION '{table.path}'")
    table.hudi.sql(f"CALL {procedure}(table => '{NAME}', {arguments})")
    table.hudi.sql(f"DROP TABLE IF EXISTS {NAME}")


def newest(table: SharedTable) -> str:
    return max(i.requested_at for i in table.ours.timeline() if i.action.writes_data)


def save(writer: Writer, table: SharedTable) -> str:
    then = newest(table)
    if writer is BUCKETLAKE:
        table.ours.savepoint(comment="before it goes wrong")
    else:
        call(table, "create_savepoint", f"commit_time => '{then}'")
    return then


def unsave(writer: Writer, table: SharedTable, then: str) -> None:
    if writer is BUCKETLAKE:
        table.ours.delete_savepoint(then)
    else:
        call(table, "delete_savepoint", f"instant_time => '{then}'")


def restore(writer: Writer, table: SharedTable, then: str) -> None:
    if writer is BUCKETLAKE:
        table.ours.restore(then)
    else:
        call(table, "rollback_to_savepoint", f"instant_time => '{then}'")
        assert not table.ours.config().metadata_partitions


def clean(writer: Writer, table: SharedTable) -> None:
    if writer is BUCKETLAKE:
        table.ours.clean(retain_commits=1)
    else:
        hudi_cleans(table.hudi, table.path)


def begun(session: HudiPeer, path: Path, layout: Layout) -> tuple[SharedTable, random.Random]:
    table = SharedTable(session, path, layout.kind, layout.as_hudi_shows)
    random_ = random.Random(path.name)
    table.begin()
    for step, writer in enumerate((BUCKETLAKE, HUDI, BUCKETLAKE), 1):
        table.upsert(writer, events(layout, random_, step))
    return table, random_


@saved_by(PLAIN, MERGED)
def test_a_savepoint_of_one_side_is_spared_by_the_cleans_of_the_other(
    session: HudiPeer, tmp_path: Path, layout: Layout, saver: Writer, other: Writer
) -> None:
    table, random_ = begun(session, tmp_path / "spared", layout)
    held, schema = in_order(list(table.model.rows.values()), layout.kind.schema), layout.kind.schema
    then = save(saver, table)
    kept = data_files(table.path)
    for step in range(4, 8):
        table.upsert(HUDI if step % 2 else BUCKETLAKE, events(layout, random_, step))
        if layout.kind.merge_on_read:
            compact(table, BUCKETLAKE)
    clean(other, table)
    table.assert_read_by_all()
    assert rows_of(table.ours.to_arrow(as_of=then), schema) == held
    # Hudi's Spark reader looks at no time from before the earliest commit that a clean retained.
    assert rows_of(read_with_hudi_rs(table.path, then), schema) == held
    unsave(other, table, then)
    assert not [i for i in table.ours.timeline() if i.action is Action.SAVEPOINT]
    table.upsert(HUDI, events(layout, random_, 8))
    if layout.kind.merge_on_read:
        compact(table, BUCKETLAKE)
    spared = kept & data_files(table.path)
    clean(saver, table)
    assert kept & data_files(table.path) < spared
    table.assert_read_by_all()


@saved_by(MERGED, PLAIN)
def test_a_table_is_restored_by_one_side_to_a_savepoint_of_the_other(
    session: HudiPeer, tmp_path: Path, layout: Layout, saver: Writer, other: Writer
) -> None:
    table, random_ = begun(session, tmp_path / "restored", layout)
    held, groups = dict(table.model.rows), table.file_groups()
    then = save(saver, table)
    for step in (4, 5):
        table.upsert(HUDI if step % 2 else BUCKETLAKE, events(layout, random_, step))
    if layout.kind.merge_on_read:
        compact(table, BUCKETLAKE)
    table.upsert(HUDI, events(layout, random_, 6))
    clean(BUCKETLAKE if other is HUDI else HUDI, table)
    table.overwrite(BUCKETLAKE, events(layout, random_, 7)[:5])
    table.delete_partitions(BUCKETLAKE, ["eu"])
    later = [i.requested_at for i in table.ours.timeline() if i.requested_at > then]
    restore(other, table, then)
    table.model.rows = held
    table.assert_read_by_all()
    assert table.file_groups() == groups
    assert newest(table) == then
    gone = {i for i in later if i not in {j.requested_at for j in table.ours.timeline()}}
    assert gone
    assert not [path for path in data_files(table.path) if any(i in path for i in gone)]
    [done] = [i for i in table.ours.timeline() if i.action is Action.RESTORE]
    assert done.state is State.COMPLETED
    for step, writer in enumerate((HUDI, BUCKETLAKE, HUDI), 8):
        table.upsert(writer, events(layout, random_, step))
        table.delete(writer, [layout.event(n, 0) for n in random_.sample(range(30), 3)])
        if layout.kind.merge_on_read and step == 9:
            compact(table, HUDI)
        table.assert_read_by_all()


def test_rules_and_rescales_of_both_go_back_with_a_restore_of_ours(
    session: HudiPeer, tmp_path: Path
) -> None:
    table, random_ = begun(session, tmp_path / "rescaled", merged(BY_RULES))
    held, index, groups = dict(table.model.rows), table.ours.index, table.file_groups()
    then = save(BUCKETLAKE, table)
    table.ours.rescale({"eu": 2, "us": 7}, default=3, dry_run=False)
    table.upsert(HUDI, events(merged(BY_RULES), random_, 4))
    compact(table, HUDI)
    table.ours.compact(schedule_only=True)
    table.upsert(HUDI, events(merged(BY_RULES), random_, 5))
    table.assert_read_by_all()
    restore(BUCKETLAKE, table, then)
    table.model.rows = held
    assert (table.ours.index, table.file_groups()) == (index, groups)
    table.assert_read_by_all()
    for step, writer in enumerate((HUDI, BUCKETLAKE), 6):
        table.upsert(writer, events(merged(BY_RULES), random_, step))
        table.assert_read_by_all()


@TYPES
def test_we_end_a_restore_that_hudi_began(
    session: HudiPeer, tmp_path: Path, layout: Layout
) -> None:
    """Hudi died after it had put the plan on the timeline; our next write restores the table."""
    table, random_ = begun(session, tmp_path / "begun", layout)
    held = dict(table.model.rows)
    then = save(HUDI, table)
    for step in (4, 5):
        table.upsert(HUDI if step % 2 else BUCKETLAKE, events(layout, random_, step))
    if layout.kind.merge_on_read:
        compact(table, HUDI)
    before = tmp_path / "before"
    shutil.copytree(table.path, before)
    restore(HUDI, table, then)
    began = sorted(Path(table.path, ".hoodie/timeline").glob("[0-9]*.restore.*"))
    assert began
    for path in began:
        shutil.copy(path, before / ".hoodie/timeline")
    shutil.rmtree(table.path)
    before.rename(table.path)
    table.model.rows = held
    table.upsert(BUCKETLAKE, events(layout, random_, 6))
    table.assert_read_by_all()
    assert all(i.state is State.COMPLETED for i in table.ours.timeline())
    table.upsert(HUDI, events(layout, random_, 7))
    table.assert_read_by_all()


@TYPES
def test_hudi_does_not_restore_to_what_is_no_savepoint_of_ours_any_more(
    session: HudiPeer, tmp_path: Path, layout: Layout
) -> None:
    table, random_ = begun(session, tmp_path / "unsaved", layout)
    then = save(BUCKETLAKE, table)
    table.upsert(HUDI, events(layout, random_, 4))
    unsave(BUCKETLAKE, table, then)
    with pytest.raises(PeerError):
        restore(HUDI, table, then)
    table.assert_read_by_all()
