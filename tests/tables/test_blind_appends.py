"""Upserts of the same buckets that run at once: merge-on-read writes that read no stored row."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import CommitConflictError
from bucketlake.index.conflict_keys import ConflictKeys
from bucketlake.model.table_type import Operation
from bucketlake.storage.location import open_storage
from bucketlake.timeline.instant import Action
from bucketlake.timeline.table_properties import table_at
from bucketlake.write import ingest, stages
from bucketlake.write.pack import ArrowSource, PackedRecords
from bucketlake.write.target import Target, open_target
from tests.between import overlapped, write_once
from tests.bounds import set_bounds

KINDS = {
    "simple": bl.SimpleBucket(2),
    "partition": bl.PartitionBucket({"x": 3}, 2),
    "consistent": bl.ConsistentBucket(2),
    "extendible": bl.ExtendibleBucket(2),
}
KEYS = [f"k{n}" for n in range(20)]


def made(address: str, index: Any = None, **options: Any) -> bl.Table:
    """Make a table in which all buckets have a row."""
    table = bl.create_table(
        address,
        schema="id string, p string, at bigint, v bigint",
        record_key="id",
        partition_by="p",
        index=index or bl.SimpleBucket(2),
        table_type="merge_on_read",
        **{"ordering": "at", **options},
    )
    table.upsert(rows(0, 0))
    return table


def rows(v: int, at: int = 5, keys: list[str] | None = None, **columns: Any) -> pa.Table:
    keys = keys or KEYS
    given = {"id": keys, "p": ["x"] * len(keys), "at": [at] * len(keys), "v": [v] * len(keys)}
    return pa.table(given | {name: [value] * len(keys) for name, value in columns.items()})


def values(table: bl.Table) -> set[int]:
    found = bl.open_table(table.path).to_arrow()
    assert found.num_rows == len(KEYS)
    return {*found["v"].to_pylist()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"ordering": None, "metadata_table": False}])
def test_both_commit_and_the_later_one_wins_a_tie_whatever_is_compacted(
    new_path: Callable[[], str], kind: str, options: dict[str, Any]
) -> None:
    """A compaction is planned between them, so that their log files are in different slices."""
    table = made(new_path(), KINDS[kind], **options)
    overlapped(table, rows(1), rows(2), then=lambda: table.compact(schedule_only=True))
    found = [values(table)]
    for _ in range(2):
        table.compact()
        found.append(values(table))
    assert found == [{2}] * 3


def test_one_beside_a_compaction_and_a_clean_is_read_in_the_new_slice(
    new_path: Callable[[], str],
) -> None:
    """The files that it saw are gone, but it read none of them."""
    table = made(new_path())

    def serve() -> None:
        table.compact()
        table.clean(retain_versions=1)

    write_once(table, rows(1), planned=serve)
    found = [values(table)]
    table.compact()
    assert [*found, values(table)] == [{1}, {1}]


def test_the_second_one_does_not_wait_for_files_of_the_first_one(
    new_path: Callable[[], str],
) -> None:
    table = made(new_path())
    overlapped(table, rows(1, at=9), rows(2), at="written")
    assert values(table) == {1}, "the greater ordering value wins"


def test_the_second_one_waits_for_the_commit_of_the_first_one(new_path: Callable[[], str]) -> None:
    table = made(new_path())
    begun, goes_on = threading.Event(), threading.Event()

    def pause() -> None:
        begun.set()
        assert goes_on.wait(60)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(write_once, table, rows(1), planned=pause)
        assert begun.wait(60)
        second = pool.submit(write_once, table, rows(2), written=goes_on.set)
        for one in (first, second):
            one.result(60)
    assert values(table) == {2}


@pytest.mark.parametrize("plans", [False, True])
def test_one_that_was_overtaken_is_written_again(
    new_path: Callable[[], str], *, plans: bool
) -> None:
    """Its log file would be read before that of the later one, but completed after it."""
    table = made(new_path())

    def overtake() -> None:
        write_once(table, rows(2))
        if plans:
            table.compact(schedule_only=True)

    with pytest.raises(CommitConflictError, match="retry the write"):
        write_once(table, rows(1), written=overtake)
    write_once(table, rows(1))
    found = [values(table)]
    for _ in range(2):
        table.compact()
        found.append(values(table))
    assert found == [{1}] * 3


def test_a_delete_that_is_committed_meanwhile_keeps_a_late_row_out(
    new_path: Callable[[], str],
) -> None:
    table = made(new_path())
    deletes = rows(1, keys=KEYS[:1], _hoodie_is_deleted=True)
    with pytest.raises(CommitConflictError, match="deleted keys in the same slots meanwhile"):
        overlapped(table, deletes, rows(2))
    write_once(table, rows(2))
    assert bl.open_table(table.path).count() == len(KEYS) - 1


@pytest.mark.parametrize("operation", [Operation.DELETE, Operation.INSERT_OVERWRITE])
def test_log_files_of_other_writes_are_followed_and_new_groups_are_not(
    new_path: Callable[[], str], operation: Operation
) -> None:
    table = made(new_path(), keep_deletes="0 days")
    if operation is Operation.DELETE:
        overlapped(table, rows(1), rows(2), operation)
        assert values(table) == {2}
    else:
        with pytest.raises(CommitConflictError, match="meanwhile; retry"):
            overlapped(table, rows(1), rows(2), operation)


def test_one_that_opened_a_group_after_all_is_none(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_of_them(target: Target, _: object, packed: PackedRecords, __: object) -> ConflictKeys:
        return stages.conflict_keys(target.layout, packed.counts)

    monkeypatch.setattr(ingest, "appended_slots", all_of_them)
    table = made(new_path())
    new = rows(1).set_column(1, "p", pa.array(["y"] * len(KEYS)))
    with pytest.raises(CommitConflictError, match="changed bucket"):
        overlapped(table, rows(1), pa.concat_tables([rows(2), new]))


@contextmanager
def appended(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Note to how many slots each write appends blindly."""
    found: list[int] = []
    begin = ingest.begun_write

    def noted(target: Target, operation: Operation, slots: ConflictKeys = frozenset()) -> Any:
        found.append(len(slots))
        return begin(target, operation, slots)

    with monkeypatch.context() as patch:
        patch.setattr(ingest, "begun_write", noted)
        yield found


OTHERS: dict[str, tuple[dict[str, Any], Callable[[bl.Table], object]]] = {
    "names of log files have their slice": ({"version": 6}, lambda t: t.upsert(rows(1))),
    "a commit names the files of a slice": ({"cdc": "op_key_only"}, lambda t: t.upsert(rows(1))),
    "keys are looked up in a bucket": (
        {"index": bl.SimpleBucket(2, max_file_size=1 << 20)}, lambda t: t.upsert(rows(1)),
    ),
    "keys are looked up in an index": ({"index": bl.DynamicBucket()}, lambda t: t.upsert(rows(1))),
    "a tie is refused": ({}, lambda t: t.upsert(rows(1, at=7), on_tie="fail")),
    "a row keeps stored values": (
        {}, lambda t: t.upsert(rows(1).drop_columns("v"), missing="keep"),
    ),
    "columns are summed": ({}, lambda t: t.upsert(rows(1), merge={"v": "sum"})),
    "deletes by key": ({}, lambda t: t.delete(rows(1).select(["id", "p"]))),
    "an update": ({}, lambda t: t.update({"v": "v + 1"}, where="v = 0")),
    "a merge": ({}, lambda t: _merged(t)),
    "an overwrite": ({}, lambda t: t.insert_overwrite(rows(1))),
    "a bucket is new": (
        {"index": bl.SimpleBucket(64)}, lambda t: t.upsert(rows(1, keys=[f"n{n}" for n in KEYS])),
    ),
}  # fmt: skip
"""Options of a table, and a write that is no blind append."""


def _merged(table: bl.Table) -> object:
    merge = table.merge(rows(1), "t.id = s.id AND t.p = s.p")
    return merge.when_matched_update({"v": "t.v + s.v"}).execute()


def test_keys_that_another_rule_puts_elsewhere_are_looked_up(new_path: Callable[[], str]) -> None:
    table = made(new_path())
    target = open_target(table_at(open_storage(table.path)), None)
    packed = ArrowSource(rows(1)).pack(target.tagger(target.snapshot.schema))
    slices = target.snapshot.partition_slices(["x"])
    found = {
        len(stages.appended_slots(target, Operation.UPSERT, cast("PackedRecords", given), slices))
        for given in (packed, SimpleNamespace(counts=packed.counts, elsewhere={("x", 0): {1}}))
    }
    assert found == {2, 0}


@pytest.mark.parametrize("why", OTHERS)
def test_other_writes_are_none(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    options, run = OTHERS[why]
    table = made(new_path(), **options)
    with appended(monkeypatch) as found:
        run(table)
    assert found == [0]


def test_an_upsert_of_whole_rows_is_one_unless_a_resize_is_pending_or_an_index_is_kept(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(new_path(), bl.ConsistentBucket(2))
    kept = made(new_path())
    with appended(monkeypatch) as found:
        table.upsert(rows(1))
        table.resize(max_file_size=1, schedule_only=True)
        assert table.timeline()[-1].action is Action.CLUSTERING
        table.upsert(rows(1))
        kept.upsert(rows(1))
        kept.rebuild_metadata_table(["record_index"])
        kept.upsert(rows(1))
        set_bounds(monkeypatch, stages, APPENDED_MAX=1)
        made(new_path()).upsert(rows(1))
    assert found == [2, 0, 2, 0, 0, 0]
