"""One door: whatever completes an instant passes ``complete_instant``, and nothing else does it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions import completion
from bucketlake.actions.completion import complete_instant
from bucketlake.actions.turns import head
from bucketlake.errors import CommitConflictError, CommitOutcomeUnknownError, StorageError
from bucketlake.metadata.metadata_table import inner_table
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.commit_order import last_turn, take_turn
from bucketlake.timeline.instant import Action, Instant, InstantClock, State
from bucketlake.timeline.locks import NO_LOCK
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.timeline.outcome import Publication
from bucketlake.timeline.transitions import publish_completed, to_inflight
from bucketlake.write.merge_statement import Merge
from tests.broken_tables import double_a_bucket
from tests.faulty_storage import SimulatedCrash
from tests.spies import spy
from tests.storages import failing
from tests.unit.actions.bare_table import AHEAD, BareTable

SOURCE = Path(bl.__file__).parent
SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
INDEX = bl.PartitionBucket({"a": 3}, default=2)
INDEX_OF_GROUPS = bl.PartitionBucket({"a": 3}, default=2, max_file_size=10_000)
_NUMBERS = count()


def rows(v: int, days: str = "ab") -> pa.Table:
    made = [{"id": f"k{n}", "day": days[n % len(days)], "v": v} for n in range(12)]
    return pa.Table.from_pylist(made, SCHEMA)


KEYS = rows(0).select(["id", "day"])


@dataclass
class Door:
    """What passed the door, and what appeared beside it; a shut one kills whoever comes."""

    passed: list[Action] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)
    is_open: bool = False
    is_shut: bool = False

    def publish(self, *arguments: Any) -> Instant:
        if self.is_shut:
            raise SimulatedCrash("before the door")
        self.is_open = True
        try:
            return publish_completed(*arguments)
        finally:
            self.is_open = False

    def forget(self) -> None:
        self.passed.clear()
        self.beside.clear()

    def note(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        instant = Instant.from_file_name(name)
        if folder == ".hoodie/timeline" and instant and instant.state is State.COMPLETED:
            if self.is_open:
                self.passed.append(instant.action)
            else:
                self.beside.append(path)


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    """Watch every put of memory storage."""
    door = Door()
    for name in ("put", "put_if_absent", "put_if_version"):
        spy(monkeypatch, MemoryStorage, name, lambda _, path, *rest, **named: door.note(path))
    monkeypatch.setattr(completion, "publish_completed", door.publish)
    yield door
    assert door.beside == []


@pytest.fixture
def make() -> Iterator[Callable[[str], bl.Table]]:
    """Make a table of a type with two commits, and a savepoint of the first."""
    names: list[str] = []

    def made(table_type: str) -> bl.Table:
        names.append(f"door-{next(_NUMBERS)}")
        table = bl.create_table(
            f"memory://{names[-1]}", schema=SCHEMA, record_key=["id"], partition_by=["day"],
            index=bl.ConsistentBucket(2) if table_type == RINGS else INDEX,
            table_type={BROKEN: COW, RINGS: MOR}.get(table_type, table_type),
        )  # fmt: skip
        table.upsert(rows(0))
        table.savepoint()
        table.upsert(rows(1))
        if table_type == BROKEN:
            double_a_bucket(table)  # A repair has a partition to write anew.
        return table

    yield made
    for name in names:
        forget(name)


def newest(table: bl.Table) -> InstantTime:
    return [one.requested_at for one in table.timeline() if one.action.writes_data][-1]


def first(table: bl.Table) -> InstantTime:
    return next(one.requested_at for one in table.timeline() if one.action is Action.SAVEPOINT)


def all_of(merge: Merge) -> object:
    return merge.when_matched_update_all().when_not_matched_insert_all().execute()


def some_of(merge: Merge) -> object:
    return merge.when_matched_update({"v": "s.v"}, "t.v < s.v").execute()


COW, MOR, BROKEN, RINGS = "copy_on_write", "merge_on_read", "broken", "rings"
COMMIT, DELTA, REPLACE = Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT

PASSES: dict[str, list[tuple[str, Callable[[bl.Table], object], list[Action]]]] = {
    "upsert": [(COW, lambda t: t.upsert(rows(2)), [COMMIT]),
               (MOR, lambda t: t.upsert(rows(2)), [DELTA])],
    "insert": [(COW, lambda t: t.insert(rows(2)), [COMMIT]),
               (MOR, lambda t: t.insert(rows(2)), [DELTA])],
    "bulk_insert": [(COW, lambda t: t.bulk_insert(rows(2, "c")), [COMMIT]),
                    (MOR, lambda t: t.bulk_insert(rows(2, "c")), [DELTA])],
    "upsert_batch": [(COW, lambda t: t.upsert_batch("q")(rows(2), 0), [COMMIT])],
    "delete": [(COW, lambda t: t.delete(KEYS), [COMMIT]),
               (MOR, lambda t: t.delete(KEYS), [DELTA])],
    "update": [(COW, lambda t: t.update({"v": "9"}), [COMMIT]),
               (MOR, lambda t: t.update({"v": "9"}), [DELTA])],
    "merge": [(COW, lambda t: all_of(t.merge(rows(9), "t.id = s.id AND t.day = s.day")), [COMMIT]),
              (MOR, lambda t: some_of(t.merge(rows(9), "t.id = s.id AND t.day = s.day")), [DELTA])],
    "insert_overwrite": [(COW, lambda t: t.insert_overwrite(rows(2)), [REPLACE]),
                         (MOR, lambda t: t.insert_overwrite(rows(2)), [REPLACE])],
    "delete_partitions": [(COW, lambda t: t.delete_partitions(["a"]), [REPLACE])],
    "convert": [(COW, lambda t: t.convert(INDEX_OF_GROUPS, dry_run=False), [REPLACE])],
    "rescale": [(COW, lambda t: t.rescale({"a": 5}, dry_run=False), [REPLACE])],
    "resize": [(RINGS, lambda t: t.resize(max_file_size=1), [REPLACE])],
    "repair": [(BROKEN, lambda t: t.repair(dry_run=False, min_age_seconds=0), [REPLACE])],
    "compact": [(MOR, lambda t: t.compact(), [COMMIT])],
    "clean": [(COW, lambda t: (t.upsert(rows(2)), t.clean(retain_versions=1)),
               [COMMIT, Action.CLEAN])],
    "rollback": [(COW, lambda t: t.rollback(newest(t)), [Action.ROLLBACK]),
                 (MOR, lambda t: t.rollback(newest(t)), [Action.ROLLBACK])],
    "restore": [(COW, lambda t: t.restore(first(t)), [Action.RESTORE])],
    "savepoint": [(COW, lambda t: t.savepoint(), [Action.SAVEPOINT])],
}  # fmt: skip
"""What completes an instant: methods of a table, each with the actions that it completes."""

COMPLETES_NOTHING = set(
    "advise archive buckets changes changes_to_arrow config count delete_savepoint doctor "
    "downgrade drop_metadata_table explain index locate lock log_format metadata_table path "
    "position read "
    "rebuild_metadata_table record_locations recorded_counts report rule_versions scan schema "
    "set_keep_deletes set_upkeep show unseen "
    "storage_options timeline to_arrow to_pandas to_polars upgrade".split()
)


def test_every_public_name_of_a_table_is_on_one_of_the_two_lists() -> None:
    public = {name for name in dir(bl.Table) if not name.startswith("_")}
    assert public == PASSES.keys() | COMPLETES_NOTHING


def test_the_list_has_every_action_that_a_table_of_ours_completes() -> None:
    completed = {action for ways in PASSES.values() for _, _, done in ways for action in done}
    ours = {COMMIT, DELTA, REPLACE, Action.CLEAN, Action.ROLLBACK, Action.RESTORE}
    assert completed == {*ours, Action.SAVEPOINT}


@pytest.mark.parametrize(
    ("table_type", "run", "completed"),
    [pytest.param(*way, id=f"{name}-{way[0]}") for name, ways in PASSES.items() for way in ways],
)
def test_every_operation_completes_its_instants_through_the_door(
    make: Callable[[str], bl.Table],
    door: Door,
    table_type: str,
    run: Callable[[bl.Table], object],
    completed: list[Action],
) -> None:
    """And after the instants of all turns, though some of them are on no timeline."""
    table = make(table_type)
    door.forget()
    before, storage = {*table.timeline()}, open_storage(table.path)
    assert take_turn(storage, AHEAD, last_turn(storage))
    run(table)
    assert door.passed == completed
    done = [one.completed_at for one in table.timeline() if one not in before]
    assert len(done) == len(completed)
    assert all(at is not None and at > AHEAD for at in done)


def test_a_completed_instant_that_somebody_puts_beside_the_door_is_noticed(
    make: Callable[[str], bl.Table], door: Door
) -> None:
    table = make(COW)
    assert door.beside == []
    double_a_bucket(table)
    assert [path.rpartition(".")[2] for path in door.beside] == ["commit"]
    door.forget()


def look_for_the_last_turn(table: bl.Table) -> object:
    storage = open_storage(table.path)
    clock = InstantClock(table.config().timeline_timezone)
    return head(OpenTable(storage, table.config(), clock, NO_LOCK))


def write_again(table: bl.Table) -> object:
    return table.upsert(rows(3, "c"))


@pytest.mark.parametrize(
    ("table_type", "begun", "finish", "completed"),
    [
        (COW, lambda t: t.upsert(rows(2)), write_again, [COMMIT, COMMIT]),
        (MOR, lambda t: t.upsert(rows(2)), write_again, [DELTA, DELTA]),
        (COW, lambda t: t.upsert(rows(2)), look_for_the_last_turn, [COMMIT]),
        (COW, lambda t: t.insert_overwrite(rows(2)), write_again, [REPLACE, COMMIT]),
        (COW, lambda t: t.rollback(newest(t)), write_again, [Action.ROLLBACK, COMMIT]),
        (COW, lambda t: t.restore(first(t)), write_again, [Action.RESTORE, COMMIT]),
        (COW, lambda t: t.clean(retain_versions=1), lambda t: t.clean(), [Action.CLEAN]),
        (MOR, lambda t: t.compact(), lambda t: t.compact(), [COMMIT]),
    ],
    ids=[
        *("commit", "delta commit", "commit by the next turn", "replace commit"),
        *("rollback", "restore", "clean", "compaction"),
    ],
)  # fmt: skip
def test_what_died_before_the_door_is_completed_through_it_by_the_next_one(
    make: Callable[[str], bl.Table],
    door: Door,
    table_type: str,
    begun: Callable[[bl.Table], object],
    finish: Callable[[bl.Table], object],
    completed: list[Action],
) -> None:
    table = make(table_type)
    table.upsert(rows(1))
    table.delete_savepoint(first(table)) if Action.CLEAN in completed else None
    door.forget()
    door.is_shut = True
    with pytest.raises(SimulatedCrash):
        begun(table)
    assert door.passed == []
    door.is_shut = False
    finish(table)
    assert door.passed == completed


def uses_of(name: str) -> set[str]:
    """Return the modules of the package that use a name other than to define it."""
    return {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if name in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Name) and node.id == name)
        or (isinstance(node, ast.Attribute) and node.attr == name)
        or (isinstance(node, ast.alias) and node.name == name)
    }


def test_nothing_but_the_door_calls_what_puts_a_completed_instant() -> None:
    names = ("metadata/changes", "actions/metadata_withdrawal")
    of_metadata = {f"{name}.py" for name in names}
    doors = {"actions/completion.py", *of_metadata}  # Of both tables.
    assert uses_of("publish_completed") == doors
    assert uses_of("_put_completed") == {"timeline/transitions.py"}


def test_a_completed_instant_is_made_in_one_function() -> None:
    """To publish one beside it, a module would have to make it, or its name, first."""
    makers = [
        (path.relative_to(SOURCE).as_posix(), ast.unparse(node))
        for path in SOURCE.rglob("*.py")
        if "COMPLETED" in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("Instant", "replace")
        and "State.COMPLETED" in {ast.unparse(part) for part in ast.walk(node)}
    ]
    assert [module for module, _ in makers] == ["timeline/transitions.py"], makers


AT, DONE = InstantTime("20240102030405678"), InstantTime("20240102030406789")


def begun_in(table: bl.Table, action: Action) -> tuple[Storage, Instant, Publication]:
    storage = open_storage(table.path)
    pending = to_inflight(opened_table(storage, table.config()), AT, action)
    return storage, pending, Publication(DONE, action, b"")


def test_publication_that_keeps_failing_is_unknown_and_not_to_be_retried(
    new_path: Callable[[], str],
) -> None:
    table = BareTable.at(new_path())
    pending, publication = table.leave(COMMIT), Publication(DONE, COMMIT, b"")
    over = table.over(failing(table.storage, 1, 2, lands=False))
    with pytest.raises(CommitOutcomeUnknownError, match="do not retry"):
        complete_instant(over.opened, pending, publication)
    assert not table.is_completed(pending.requested_at)


def test_a_savepoint_that_storage_fails_to_publish_raises_the_error_of_storage(
    make: Callable[[str], bl.Table],
) -> None:
    """Nobody else completes it, so it is not for a later write to publish."""
    table = make(COW)
    storage, pending, publication = begun_in(table, Action.SAVEPOINT)
    with pytest.raises(StorageError, match="simulated"):
        complete_instant(
            opened_table(failing(storage, 1, 2, lands=False), table.config()), pending, publication
        )


def test_a_savepoint_that_was_deleted_while_it_was_made_is_not_published(
    make: Callable[[str], bl.Table],
) -> None:
    table = make(COW)
    storage, pending, publication = begun_in(table, Action.SAVEPOINT)
    table.delete_savepoint(AT)
    with pytest.raises(CommitConflictError, match="deleted this savepoint; make it again"):
        complete_instant(opened_table(storage, table.config()), pending, publication)
    assert AT not in {one.requested_at for one in table.timeline()}


def test_the_metadata_table_completes_at_the_times_of_the_commit(
    new_path: Callable[[], str],
) -> None:
    table = BareTable.at(new_path(), metadata_table=True)
    at = table.commit(1)
    inner = inner_table(table.opened)
    found = load_timeline(inner).find_completed(at)
    committed = table.timeline().find_completed(at)
    assert found is not None
    assert committed is not None
    assert found.completed_at == committed.completed_at


def test_a_commit_whose_delta_commit_is_gone_is_not_published(new_path: Callable[[], str]) -> None:
    """Another writer undid it, and would find it completed after that."""
    table = BareTable.at(new_path(), metadata_table=True)
    pending = table.leave(COMMIT)
    publication = Publication(AHEAD, COMMIT, b"{}", b"of the metadata table")
    with pytest.raises(CommitConflictError):
        complete_instant(table.opened, pending, publication)
    assert not table.is_completed(pending.requested_at)
