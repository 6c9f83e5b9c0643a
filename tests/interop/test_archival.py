"""Archives of one side read, written on and merged by the other, at whatever turn."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from bucketlake.storage.local import LocalStorage
from bucketlake.timeline import archive_writer
from bucketlake.timeline.archive_reader import newest_manifest, read_archive
from bucketlake.timeline.open_table import opened_table
from tests.bounds import set_bounds
from tests.choices import DEEP, combinations
from tests.interop.layouts import BY_RULES
from tests.interop.model import commits_of, in_order, rows_of
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import BUCKETLAKE, HUDI, SharedTable, Writer, rows
from tests.interop.table_kind import EVENT, TableKind

pytestmark = pytest.mark.interop

FROM_THE_START = "000"
NEVER = {"hoodie.archive.automatic": "false", "hoodie.clean.automatic": "false"}
ARCHIVING = {
    "hoodie.archive.automatic": "true",
    "hoodie.clean.automatic": "false",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "3",
    "hoodie.keep.max.commits": "4",
}
MERGING = {"hoodie.timeline.compaction.batch.size": "2"}
TYPES = pytest.mark.parametrize("merge_on_read", [False, True], ids=["cow", "mor"])
WRITERS = pytest.mark.parametrize("first", list(Writer), ids=lambda w: f"{w.value} first")


def made(hudi: HudiPeer, path: Path, *, merge_on_read: bool) -> SharedTable:
    table = SharedTable(hudi, path, TableKind(merge_on_read=merge_on_read))
    table.options |= NEVER
    table.begin()
    return table


def upsert(
    table: SharedTable, writer: Writer, step: int, options: dict[str, str] | None = None
) -> None:
    """Update some rows and insert one; none of them is late."""
    table.upsert(writer, rows(range(3 * step, 3 * step + 7), 10 * step), options)
    table.model.commit(table.ours)


def archived(table: SharedTable) -> list[str]:
    entries = read_archive(opened_table(LocalStorage(str(table.path)), table.ours.config()))
    return [one.requested_at for one in entries if one.action.endswith("commit")]


def active(table: SharedTable) -> list[str]:
    return [one.requested_at for one in commits_of(table.ours)]


def layers(table: SharedTable) -> list[int | None]:
    folder = table.ours.config().history_folder
    return [file.layer for file in newest_manifest(LocalStorage(str(table.path)), folder).files]


def archive(table: SharedTable, writer: Writer, step: int) -> None:
    """Archive, in Hudi's case after an upsert of its own, which it does not come without."""
    if writer is HUDI:
        upsert(table, HUDI, step, ARCHIVING | MERGING)
    else:
        table.ours.archive(keep_min=3, keep_max=4)


def assert_history_is_read(table: SharedTable) -> None:
    """Snapshot, changes from every commit on and between them, and every earlier state."""
    table.assert_read_by_all()
    states = table.model.states
    assert [*archived(table), *active(table)] == [state.instant for state in states]
    times = [FROM_THE_START, *(state.completed_at for state in states)]
    last = len(states) - 1
    for n in (0, last - 4, last):
        expected = in_order(table.model.changed_rows(n, last), EVENT)
        ours = table.ours.to_arrow(since=times[n].ljust(17, "0"))
        assert rows_of(ours, EVENT) == expected, n
        assert rows_of(table.hudi.incremental(table.path, times[n]), EVENT) == expected, n
    for n, (since, until) in enumerate(pairwise(times)):
        expected = in_order(table.model.changed_rows(n, n), EVENT)
        ours = table.ours.to_arrow(since=since.ljust(17, "0"), until=until)
        assert rows_of(ours, EVENT) == expected, n
    for state in (states[0], states[-2]):
        expected = in_order(state.rows.values(), EVENT)
        assert rows_of(table.ours.to_arrow(as_of=state.instant), EVENT) == expected
        assert rows_of(table.hudi.time_travel(table.path, state.instant), EVENT) == expected


@pytest.mark.parametrize("merge_on_read", [False, True] if DEEP else [True])  # Minutes each.
def test_hudi_reads_and_writes_on_after_our_archival_and_archives_on(
    hudi: HudiPeer, tmp_path: Path, merge_on_read: bool
) -> None:
    table = made(hudi, tmp_path / "ours", merge_on_read=merge_on_read)
    for step in range(1, 8):
        upsert(table, HUDI if step % 3 == 0 else BUCKETLAKE, step)
    report = table.ours.archive(keep_min=2, keep_max=4)
    assert report.held_back is None
    assert archived(table) == [state.instant for state in table.model.states[:5]]
    assert_history_is_read(table)
    for step in range(8, 11):
        upsert(table, HUDI, step)
    before = len(archived(table))
    upsert(table, HUDI, 11, ARCHIVING | MERGING)
    assert len(archived(table)) > before
    assert layers(table) == [1]  # Of ours and theirs, merged by Hudi.
    table.assert_read_by_all()
    upsert(table, BUCKETLAKE, 12)
    assert_history_is_read(table)


@pytest.mark.parametrize(
    ("merge_on_read", "first"),
    combinations([False, True] if DEEP else [False], list(Writer)[:: 1 if DEEP else 2]),
    ids=lambda v: f"{v.value} first" if isinstance(v, Writer) else "mor" if v else "cow",
)
def test_archivals_take_turns(
    hudi: HudiPeer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    merge_on_read: bool,
    first: Writer,
) -> None:
    """Each also merges files of the other, and drops old manifests."""
    set_bounds(monkeypatch, archive_writer, MERGED_FILES=2)
    table = made(hudi, tmp_path / "turns", merge_on_read=merge_on_read)
    step = 0
    for turn in range(5):
        for _ in range(3):
            step += 1
            upsert(table, HUDI if step % 2 else BUCKETLAKE, step)
        step += 1
        archive(table, first if turn % 2 == 0 else other(first), step)
        table.assert_read_by_all()
    assert max(layer or 0 for layer in layers(table)) >= 1
    assert len(archived(table)) >= 8
    assert_history_is_read(table)


def other(writer: Writer) -> Writer:
    return HUDI if writer is BUCKETLAKE else BUCKETLAKE


def test_compactions_of_both_are_archived_by_both(hudi: HudiPeer, tmp_path: Path) -> None:
    table = made(hudi, tmp_path / "compacted", merge_on_read=True)
    inline = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
    for step in range(1, 5):
        table.upsert(BUCKETLAKE, rows(range(3 * step, 3 * step + 7), 10 * step))
        table.ours.compact()
        table.upsert(HUDI, rows(range(step, step + 4), 10 * step + 5), inline)
        table.assert_read_by_all()
        if step % 2 == 0:
            assert table.ours.archive(keep_min=2, keep_max=4).instants
        else:
            table.upsert(HUDI, rows(range(step, step + 2), 10 * step + 6), ARCHIVING | inline)
        table.assert_read_by_all()
    assert "commit" in [
        one.action
        for one in read_archive(opened_table(LocalStorage(str(table.path)), table.ours.config()))
    ]
    table.upsert(BUCKETLAKE, rows(range(40), 100))
    table.assert_read_by_all()


@WRITERS
def test_replaced_rows_do_not_come_back(hudi: HudiPeer, tmp_path: Path, first: Writer) -> None:
    """Archival waits until Hudi has cleaned the files away; a rescale is among them."""
    table = SharedTable(hudi, tmp_path / "archived", BY_RULES.kind)
    table.options |= NEVER
    table.begin()
    table.upsert(BUCKETLAKE, rows(range(20), 1))
    table.overwrite(first, rows(range(0, 20, 2), 2))
    table.ours.rescale({"us": 4}, default=2, dry_run=False)
    for step in range(3, 8):
        table.upsert(HUDI if step % 2 else BUCKETLAKE, rows(range(step, 2 * step), step))
    report = table.ours.archive(keep_min=2, keep_max=4)
    assert report.held_back is not None
    assert "clean the table first" in report.held_back
    assert len(archived(table)) == 1
    hudi.sql("SET hoodie.metadata.enable=false")
    hudi.sql(f"CREATE TABLE IF NOT EXISTS archived USING hudi LOCATION '{table.path}'")
    hudi.sql("CALL run_clean(table => 'archived', retain_commits => 1)")
    assert table.ours.archive(keep_min=2, keep_max=4).held_back is None
    assert len(active(table)) == 2
    table.assert_read_by_all()
    for writer in (HUDI, BUCKETLAKE):
        table.upsert(writer, rows(range(5, 25), 20))
        table.assert_read_by_all()


def test_a_rollback_of_ours_does_not_keep_hudi_from_archiving(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    """It leaves a manifest without files, where there was no archive."""
    table = made(hudi, tmp_path / "rolled_back", merge_on_read=False)
    for step in range(1, 7):
        upsert(table, BUCKETLAKE, step)
    table.write(BUCKETLAKE, rows(range(50), 99))
    table.ours.rollback(active(table)[-1])
    assert layers(table) == []
    upsert(table, HUDI, 7, ARCHIVING)
    assert archived(table)
    assert_history_is_read(table)
