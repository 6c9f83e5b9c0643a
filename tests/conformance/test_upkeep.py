"""Services on a table of each kind: compaction, rollback, savepoints, cleaning, archival."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bucketlake.errors import TimelineError
from bucketlake.timeline.instant import State
from tests.conformance.cases import Case, Checked, in_order, rows, rows_of


@pytest.mark.merge_on_read
def test_a_compaction_changes_no_row_and_leaves_no_log_file(table: Checked) -> None:
    table.delete(rows([2, 8]))
    report = table.table.compact()
    assert report.slices
    assert all(bucket.log_files == 0 for bucket in table.table.buckets())
    assert table.table.compact().slices == ()
    table.check()
    table.check_next_write_finds_all()


@pytest.mark.merge_on_read
def test_writes_between_the_plan_of_a_compaction_and_its_run_are_kept(table: Checked) -> None:
    planned = table.table.compact(schedule_only=True).scheduled
    assert planned is not None
    table.upsert(rows(range(3, 15), 2))
    table.delete(rows([0, 4]))
    table.upsert(rows(range(40, 43), days="c"))
    table.check_rows()
    assert planned in table.table.compact().instants
    table.check()
    table.upsert(rows([0, 4, 5], 3))
    table.check()
    assert all(i.state is State.COMPLETED for i in table.table.timeline())


def test_a_rollback_of_the_last_commit_gives_the_rows_of_before(table: Checked) -> None:
    before = dict(table.rows)
    buckets = table.table.buckets()
    mistaken = table.upsert(rows(range(4, 20), 2)).instant
    assert mistaken is not None
    report = table.table.rollback(mistaken)
    assert [one.instant for one in report.commits] == [mistaken]
    table.rows = before
    assert table.table.buckets() == buckets
    table.check()
    table.check_next_write_finds_all()


def test_a_rollback_of_a_commit_with_dependents_is_rejected_or_takes_them_along(
    table: Checked,
) -> None:
    before = dict(table.rows)
    first = table.upsert(rows(range(4, 14, 2), 3)).instant
    late = rows(range(4, 14, 2), 2)  # They lose to the rows of the first commit.
    second = table.upsert([*late, *rows(range(5, 15, 2), 3)]).instant
    assert first is not None
    with pytest.raises(TimelineError, match="build on it"):
        table.table.rollback(first)
    table.check_rows()
    planned = table.table.rollback(first, cascade=True, dry_run=True)
    done = table.table.rollback(first, cascade=True)
    assert [one.instant for one in done.commits] == [second, first]
    assert planned.commits == done.commits
    table.rows = before
    table.check()
    table.check_next_write_finds_all()


def test_a_rollback_leaves_a_later_commit_of_another_partition(table: Checked) -> None:
    before = dict(table.rows)
    undone = table.upsert(rows(range(0, 20, 2), 2)).instant
    table.rows = before
    table.upsert(rows(range(1, 20, 2), 3))
    assert undone is not None
    assert len(table.table.rollback(undone).commits) == 1
    table.check()


def test_an_overwrite_and_a_dropped_partition_are_rolled_back(table: Checked) -> None:
    before = dict(table.rows)
    for write in (lambda: table.overwrite(rows(range(30, 34), 1)), lambda: table.drop("a")):
        instant = write().instant
        assert instant is not None
        table.check_rows()
        table.table.rollback(instant)
        table.rows = dict(before)
        table.check_rows()
    table.check_next_write_finds_all()


def test_a_restore_gives_the_rows_of_the_savepoint(table: Checked) -> None:
    saved = table.table.savepoint()
    before = dict(table.rows)
    table.upsert(rows(range(4, 20), 2))
    if table.case.merges_on_read:
        table.table.compact()
    table.overwrite(rows(range(0, 8, 2), 3))
    table.drop("b")
    table.table.clean(retain_versions=1)
    table.table.restore(saved)
    table.rows = before
    table.check()
    table.table.delete_savepoint(saved)
    table.check_next_write_finds_all()


def test_cleans_and_archivals_change_no_row_and_what_is_retained_is_read(
    case: Case, new_path: Callable[[], str]
) -> None:
    table = case.make(new_path())
    instants, states = [], []
    for at in range(4):
        instants.append(table.upsert(rows(range(5 + at), at)).instant)
        states.append(in_order(table.rows.values()))
        if at == 1:
            table.overwrite(rows(range(0, 8, 2), at))
    if case.merges_on_read:
        table.table.compact()
    cleaned = table.table.clean(retain_commits=1)
    assert sum(one.files for one in cleaned.partitions) > 0
    table.check_rows()
    assert rows_of(table.table.to_arrow(as_of=instants[-1])) == states[-1]
    with pytest.raises(TimelineError):
        table.table.to_arrow(as_of=instants[0])
    count = len(table.table.timeline())
    table.table.archive(keep_min=2, keep_max=3)
    assert len(table.table.timeline()) < count
    table.check()
    table.check_next_write_finds_all()
