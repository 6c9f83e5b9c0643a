"""The history of rows: the table follows from the set of changes, whatever their order and cuts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketlake as bl
from bucketlake.errors import ConfigError, InputError, TimelineError
from bucketlake.storage.memory import forget
from tests.meanwhile import meanwhile
from tests.tables.test_remembered_deletes import KINDS, Event

NUMBERS = itertools.count()


EVENTS = (
    Event("a", 6, True),
    Event("a", 5, False),
    Event("a", 9, False),
    Event("b", 3, False),
    Event("b", 3, True),
)


def batch(changes: Sequence[Event]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([change.key for change in changes], pa.string()),
            "at": pa.array([change.at for change in changes], pa.int64()),
            "v": pa.array([f"{change.key}{change.at}" for change in changes], pa.string()),
            "_hoodie_is_deleted": pa.array([change.deletes for change in changes], pa.bool_()),
        }
    )


def history(changes: Sequence[Event]) -> bl.ChangeHistory:
    return bl.history(batch(changes), keys="id", sequence_by="at")


def made(address: str, index: Any = None, **options: Any) -> bl.Table:
    empty = history(EVENTS)
    return bl.create_table(
        address, schema=empty.schema, record_key=empty.record_key, index=index, **options
    )


def expected(changes: Sequence[Event]) -> list[dict[str, Any]]:
    """Return what the set of changes means; at one place a delete wins."""
    rows = []
    for key in sorted({change.key for change in changes}):
        places = sorted({change.at for change in changes if change.key == key})
        for at, end in zip(places, [*places[1:], None], strict=True):
            deletes = Event(key, at, True) in changes
            rows.append(
                {
                    "id": key,
                    "v": None if deletes else f"{key}{at}",
                    "valid_from": at,
                    "valid_to": at if deletes else end,
                    "is_current": end is None and not deletes,
                }
            )
    return rows


def rows_of(table: bl.Table) -> list[dict[str, Any]]:
    return sorted(table.to_arrow().to_pylist(), key=lambda row: (row["id"], row["valid_from"]))


@settings(max_examples=12)
@given(
    changes=st.lists(
        st.builds(Event, st.sampled_from("abc"), st.integers(0, 6), st.booleans()), max_size=12
    ),
    cuts=st.sets(st.integers(1, 11)),
    kind=st.sampled_from([*KINDS]),
    table_type=st.sampled_from(["copy_on_write", "merge_on_read"]),
    compacts=st.booleans(),
)
def test_the_table_follows_from_the_set_of_changes(
    changes: list[Event], cuts: set[int], kind: str, table_type: str, *, compacts: bool
) -> None:
    name = f"history{next(NUMBERS)}"
    table = made(f"memory://{name}", KINDS[kind], table_type=table_type)
    ends = [*sorted(cuts), len(changes)]
    for begin, end in zip([0, *ends], ends, strict=False):
        history(changes[begin:end]).apply(table)
        if compacts and table_type == "merge_on_read":
            table.compact()
    assert rows_of(table) == expected(changes)
    assert history(changes).apply(table).instant is None
    forget(name)


@pytest.mark.parametrize("partition_by", ["id", "valid_from"])
def test_every_order_of_a_few_changes_gives_the_same_partitions(
    new_path: Callable[[], str], partition_by: str
) -> None:
    for order in itertools.islice(itertools.permutations(EVENTS), 0, None, 29):
        table = made(new_path(), bl.SimpleBucket(1), partition_by=partition_by)
        for change in order:
            history([change]).apply(table)
        assert rows_of(table) == expected(EVENTS)


def test_only_the_file_groups_of_the_keys_are_written(new_path: Callable[[], str]) -> None:
    table = made(new_path(), bl.SimpleBucket(8, hash_fields=["id"]))
    history([Event(f"k{n}", 1, False) for n in range(100)]).apply(table)
    result = history([Event("k7", 2, False)]).apply(table)
    assert (result.file_groups, result.inserted, result.updated) == (1, 1, 1)


def test_a_writer_that_ends_the_same_row_meanwhile_is_seen(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(new_path(), bl.SimpleBucket(8))
    history([Event("a", 1, False)]).apply(table)
    # The other writer is faster, and writes to another bucket.
    meanwhile(monkeypatch, lambda: history([Event("a", 4, False)]).apply(table))
    history([Event("a", 3, False)]).apply(table)
    assert rows_of(table) == expected([Event("a", at, False) for at in (1, 3, 4)])
    assert len(table.timeline()) == 3


def test_the_marker_and_the_names_are_those_of_the_caller(new_path: Callable[[], str]) -> None:
    changes = [
        {"id": 1, "op": "I", "name": "x", "lsn": "b"},
        {"id": 1, "op": "D", "name": "x", "lsn": "a"},
    ]
    names = ("__START_AT", "__END_AT", "holds")
    found = bl.history(
        changes, keys="id", sequence_by="lsn", delete_marker=("op", "D"), columns=names
    )
    table = bl.create_table(new_path(), schema=found.schema, record_key=found.record_key)
    found.apply(table)
    rows = sorted(table.to_arrow().to_pylist(), key=lambda row: row["__START_AT"])
    assert [(row["name"], row["__END_AT"], row["holds"]) for row in rows] == [
        (None, "a", False),
        ("x", None, True),
    ]


def test_two_rows_of_one_place_are_named(new_path: Callable[[], str]) -> None:
    table = made(new_path())
    history([Event("a", 1, False)]).apply(table)
    other = batch([Event("a", 1, False)]).set_column(2, "v", pa.array(["other"]))
    with pytest.raises(InputError, match=r"one key and place.*'v': 'other'.*'v': 'a1'"):
        bl.history(other, keys="id", sequence_by="at").apply(table)
    assert rows_of(table) == expected([Event("a", 1, False)])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"keys": "ids"}, "column ids: the batch has no such column"),
        ({"sequence_by": "when"}, "column when"),
        ({"sequence_by": "x"}, "type double"),
        ({"sequence_by": "id"}, "none of the keys"),
        ({"columns": ("v", "valid_to", "is_current")}, "names of the interval"),
        ({"columns": ("a", "b")}, "name three"),
        ({"columns": ("a", "a", "b")}, "each of them once"),
        ({"keys": []}, "each of them once"),
        ({"keys": ["id", "id"]}, "each of them once"),
        ({"sequence_by": "nothing"}, "column nothing: it is a column of type null"),
        ({"delete_marker": "D"}, "give a column and the text"),
        ({"delete_marker": ("op", "D")}, "column op: the batch has no such column"),
    ],
)
def test_bad_arguments_are_named(options: dict[str, Any], problem: str) -> None:
    rows = batch(EVENTS).append_column("x", pa.array([1.0] * len(EVENTS)))
    rows = rows.append_column("nothing", pa.nulls(len(EVENTS)))
    with pytest.raises((InputError, ConfigError), match=problem):
        bl.history(rows, **{"keys": "id", "sequence_by": "at", **options})


def test_a_null_in_key_or_sequence_is_named(new_path: Callable[[], str]) -> None:
    rows = batch(EVENTS).set_column(1, "at", pa.array([1, None, 3, 4, 5]))
    with pytest.raises(InputError, match="column valid_from: a change has a null"):
        bl.history(rows, keys="id", sequence_by="at").apply(made(new_path()))


@pytest.mark.parametrize(
    "options",
    [
        {"record_key": "id"},
        {"partition_by": "v"},
        {"ordering": "valid_to"},
        {"delete_marker": ("v", "x")},
    ],
)
def test_a_table_that_cannot_hold_it_is_refused(
    new_path: Callable[[], str], options: dict[str, Any]
) -> None:
    found = history(EVENTS)
    key = {"record_key": found.record_key}
    table = bl.create_table(new_path(), schema=found.schema, **{**key, **options})
    with pytest.raises(ConfigError, match="create it with record_key="):
        found.apply(table)
    assert table.count() == 0


@pytest.mark.parametrize("order", [(5, 1), (9, 5, 1), (1, 9, 5)])
def test_a_rollback_that_would_leave_an_interval_is_refused(
    new_path: Callable[[], str], order: tuple[int, ...]
) -> None:
    table = made(new_path(), bl.SimpleBucket(1), partition_by="valid_from")
    changes = [Event("a", at, False) for at in order]
    instants = [history([change]).apply(table).instant for change in changes]
    for instant in instants[:-1]:
        with pytest.raises(TimelineError, match="later commits build on it"):
            table.rollback(instant)
    table.rollback(instants[-2], cascade=True)
    assert rows_of(table) == expected(changes[:-2])
    history(changes).apply(table)
    assert rows_of(table) == expected(changes)


@pytest.mark.parametrize(
    ("place", "values", "problem"),
    [
        (1, pa.array(["1"] * len(EVENTS)), "valid_from: the table holds bigint, the batch string"),
        (2, pa.array([7] * len(EVENTS)), "column v: the table holds string, the batch bigint"),
        (3, pa.array(["yes"] * len(EVENTS)), "flag of deletes must be boolean"),
    ],
)
def test_a_column_of_another_type_is_named(
    new_path: Callable[[], str], place: int, values: pa.Array, problem: str
) -> None:
    rows = batch(EVENTS)
    table, rows = made(new_path()), rows.set_column(place, rows.column_names[place], values)
    with pytest.raises(InputError, match=problem):
        bl.history(rows, keys="id", sequence_by="at").apply(table)
    assert table.count() == 0


def test_other_columns_are_named(new_path: Callable[[], str]) -> None:
    rows = batch(EVENTS).append_column("w", pa.array([1] * len(EVENTS)))
    with pytest.raises(InputError, match=r"lack \[\] and add \['w'\]"):
        bl.history(rows, keys="id", sequence_by="at").apply(made(new_path()))
