"""Groups of columns with orderings of their own: the table follows from the set of events."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import bucketlake as bl
from bucketlake.cli.main import main
from bucketlake.errors import BucketLakeError, InputError, UnsupportedFeatureError
from bucketlake.storage.memory import forget
from tests.ordering_groups import (
    EVENTS,
    ORDERING,
    SCHEMA,
    SMALL,
    Event,
    batch_of,
    expected,
    histories,
)

KINDS = {
    "simple": bl.SimpleBucket(2),
    "partition": bl.PartitionBucket({"p": 3}, 2),
    "consistent": bl.ConsistentBucket(2),
    "extendible": bl.ExtendibleBucket(2),
    "dynamic": bl.DynamicBucket(),
    "record": bl.RecordIndex(),
}
MOVING = {"global": bl.RecordIndex(partitioned=False)}
TYPES = ["copy_on_write", "merge_on_read"]
TIMES: list[tuple[pa.DataType, Callable[[int], Any]]] = [
    (pa.int64(), int),
    (pa.float64(), lambda at: at / 2 - 1),
    (pa.string(), "t{}".format),
    (pa.decimal128(6, 2), lambda at: Decimal(at - 4) / 4),
]
NUMBERS = itertools.count()


@pytest.fixture
def address() -> Iterator[str]:
    name = f"groups{next(NUMBERS)}"
    yield f"memory://{name}"
    forget(name)


def made(
    address: str, kind: str = "simple", table_type: str = "copy_on_write", **more: Any
) -> bl.Table:
    settings = {"partition_by": "part", "ordering": ORDERING, "schema": SCHEMA} | more
    index = (KINDS | MOVING)[kind]
    return bl.create_table(address, record_key="id", index=index, table_type=table_type, **settings)


def write(table: bl.Table, events: Sequence[Event]) -> None:
    table.upsert(batch_of(events, table.schema()), missing="keep")


def rows_of(table: bl.Table) -> dict[str, dict[str, Any]]:
    rows = table.to_arrow().select(SCHEMA.names).to_pylist()
    found = {row["id"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def cuts(count: int) -> Iterator[list[int]]:
    """Yield the sizes of batches of every cut of some events."""
    for inner in itertools.chain.from_iterable(
        itertools.combinations(range(1, count), n) for n in range(count)
    ):
        yield [b - a for a, b in itertools.pairwise([0, *inner, count])]


def test_every_order_and_every_cut_of_a_few_events(address: str) -> None:
    """Each history is one of a key of its own."""
    histories = [
        (order, sizes) for order in itertools.permutations(SMALL) for sizes in cuts(len(SMALL))
    ]
    table = made(address)
    for step in range(len(SMALL)):  # The n-th batches of all histories are one batch.
        batch = []
        for number, (order, sizes) in enumerate(histories):
            start = sum(sizes[:step])
            some = order[start : start + sizes[step]] if step < len(sizes) else ()
            batch += [event._replace(key=f"{number}") for event in some]
        write(table, batch)
    (row,) = expected(SMALL).values()
    assert (row["at"], row["street"], row["mail"]) == (8, "street 5", None)
    rows = rows_of(table)
    for number, history in enumerate(histories):
        assert rows[f"{number}"] | {"id": "a"} == row, history
    assert len(rows) == len(histories) == 24 * 8


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_random_histories_with_repeats(address: str, kind: str, table_type: str) -> None:
    seed = [*KINDS].index(kind)
    data_type, time = TIMES[seed % len(TIMES)]
    fields = [f.with_type(data_type) if f.name.endswith("at") else f for f in SCHEMA]
    events = histories(seed, time)
    table = made(address, kind, table_type, schema=pa.schema(fields))
    for at in range(0, len(events), 60):
        write(table, events[at : at + 60])
        if table_type == "merge_on_read" and at == 120:
            table.compact()
    rows, wanted = rows_of(table), expected(events)
    for key in {*rows, *wanted}:
        assert rows.get(key) == wanted.get(key), [e for e in events if e.key == key]
    assert not table.doctor(check_keys=True, min_age_seconds=0)


@pytest.mark.parametrize("table_type", TYPES)
def test_ties_in_each_ordering_are_named_if_asked_and_nothing_is_written(
    address: str, table_type: str
) -> None:
    def write(*rows: dict[str, Any]) -> None:
        table.upsert(pa.Table.from_pylist([*rows], SCHEMA), on_tie="fail")

    table = made(address, table_type=table_type)
    first, late = Event("a", 9, address_at=3).row, Event("a", 5, address_at=2, mail_at=5).row
    write(first, first, late)
    if table_type == "merge_on_read":
        table.compact()
    write(first, late, Event("a", 4, address_at=4).row, Event("b", 4).row)  # Each value is known.
    for row, ordering in (
        (first | {"n": "other"}, "at"),
        (Event("a", 12, address_at=4).row | {"city": None}, "address_at"),
        (Event("a", 8, mail_at=5).row | {"mail": []}, "mail_at"),
        (Event("b", 4).row | {"n": None}, "at"),
    ):
        in_batch = [other | {"id": "c"} for other in (row, first, late, Event("b", 4, 4).row)]
        for rows in ([row], in_batch):
            with pytest.raises(InputError, match=rf"ordering values \({ordering}\) and differ"):
                write(*rows)
    write(Event("a", 8, mail_at=1).row | {"mail": []})  # Older than what the row has.
    assert rows_of(table)["a"] == Event("a", 9, address_at=4, mail_at=5).row


@pytest.mark.parametrize("table_type", TYPES)
def test_a_delete_that_clears_a_group_is_an_update(address: str, table_type: str) -> None:
    table = made(address, table_type=table_type)
    write(table, [Event("a", 9, address_at=3, mail_at=7)])
    result = table.upsert(batch_of([Event("a", 5, deletes=True)]), missing="keep")
    assert (result.updated, result.deleted) == (1, 0)
    (row,) = rows_of(table).values()
    assert (row["city"], row["address_at"], row["mail_at"]) == (None, None, 7)


def test_a_value_without_an_ordering_is_none(address: str) -> None:
    table = made(address)
    row = Event("a", 4, address_at=2).row
    table.upsert(pa.Table.from_pylist([row, row | {"id": "b", "address_at": None}], SCHEMA))
    write(table, [Event("a", 9)])
    rows = rows_of(table)
    assert (rows["a"]["city"], rows["a"]["at"]) == ("city 2", 9)
    assert (rows["b"]["city"], rows["b"]["street"]) == (None, None)


def test_the_orderings_last(tmp_path: Path) -> None:
    table = made(str(tmp_path / "t"), version=6)
    write(table, EVENTS[:4])
    instant = table.savepoint()
    write(table, EVENTS[4:])
    table.restore(instant)
    table.upgrade()
    held = bl.convert(table.path, bl.DynamicBucket())
    assert held.config().ordering_groups == {k: v for k, v in ORDERING.items() if k != "*"}
    assert held.config().ordering_fields == ("at",)
    write(held, EVENTS[::-1])
    assert rows_of(held) == expected(EVENTS)


def test_other_writes_of_such_a_table(address: str) -> None:
    table = made(address)
    first = Event("a", 5, address_at=5, mail_at=2)
    table.bulk_insert(batch_of([first, Event("a", 9, address_at=3)]))
    table.insert(batch_of([Event("a", 8, address_at=7)]), merge_schema="fill_missing")
    table.update({"city": "upper(city)"}, where="id = 'a'")
    (row,) = rows_of(table).values()
    assert (row["at"], row["city"], row["address_at"], row["mail_at"]) == (9, "CITY 7", 7, 2)
    table.insert_overwrite(batch_of([first, Event("a", 6, address_at=1)]))
    assert rows_of(table) == expected([first, Event("a", 6, address_at=1)])


ROW = batch_of([Event("a", 9, address_at=8)])
BAD_WRITES: dict[str, tuple[Callable[[bl.Table], object], str]] = {
    "part of a group": (
        lambda t: t.upsert(ROW.drop_columns(["street"]), missing="keep"),
        r"lack \['street'\] and have \['address_at', 'city'\]",
    ),
    "no ordering": (
        lambda t: t.upsert(ROW.drop_columns(["address_at"]), missing="keep"),
        r"lack \['address_at'\] and have \['city', 'street'\]",
    ),
    "no column without a group": (
        lambda t: t.upsert(ROW.drop_columns(["n"]), missing="keep"),
        r"lack \['n'\].*ordered by 'at' like the row",
    ),
    "a group that is not asked for": (lambda t: t.upsert(ROW), "mail_at.*missing='keep'"),
    "a group newer than its row": (
        lambda t: write(t, [Event("a", 3, address_at=4)]),
        "address_at: it is greater than at in .*greater at",
    ),
    "nulls": (lambda t: t.upsert(ROW, missing="keep", nulls="keep"), "nulls = .*leave it out"),
    "rules": (lambda t: t.upsert(ROW, missing="keep", merge={"n": "max"}), "merge = .*leave it"),
    "a merge": (
        lambda t: t.merge(ROW, "t.id = s.id").when_matched_delete().execute(),
        "merge with orderings of columns.*upsert",
    ),
    "an update": (lambda t: t.update({"mail_at": "3"}), "it is an ordering column"),
}


@pytest.fixture(scope="module")
def held() -> Iterator[bl.Table]:
    name = f"groups{next(NUMBERS)}"
    table = made(f"memory://{name}")
    write(table, [Event("a", 1)])
    yield table
    forget(name)


@pytest.mark.parametrize("name", BAD_WRITES)
def test_a_write_that_cannot_obey_the_orderings_is_refused(held: bl.Table, name: str) -> None:
    work, words = BAD_WRITES[name]
    before = len(held.timeline())
    with pytest.raises(BucketLakeError, match=words):
        work(held)
    assert len(held.timeline()) == before


@pytest.mark.parametrize(
    ("ordering", "words"),
    [
        ({"city": "address_at"}, r"name the ordering of all other columns.*'\*'"),
        ({"city": "adress_at", "*": "at"}, "no such column.*did you mean 'address_at'"),
        ({"at": "address_at", "*": "at"}, "ordering of column at: keys, partitions"),
        ({"id": "address_at", "*": "at"}, "ordering of column id: keys, partitions"),
        ({"address_at": "mail_at", "city": "address_at", "*": "at"}, "column address_at: keys"),
        ({"city": "street", "*": "at"}, "types differ: string, and of at, bigint"),
        ({"city": 3, "*": "at"}, "ordering = 3 cannot be used: give a text"),
    ],
)
def test_orderings_that_cannot_be(address: str, ordering: Any, words: str) -> None:
    with pytest.raises(BucketLakeError, match=words):
        made(address, ordering=ordering)


def test_keys_that_move_are_refused(address: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"keys move between partitions.*RecordIndex"):
        made(address, "global")


def test_columns_of_one_ordering_need_none_of_their_own(address: str) -> None:
    table = made(address, ordering={"n": "at", "*": "at"})
    assert table.config().ordering_groups == {}


def test_the_command_line(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    given = ["--schema", "id string, city string, city_at bigint, at bigint", "--key", "id"]
    create = ["create", path, *given, "--ordering-of", "city=city_at"]
    refused = CliRunner().invoke(main, create)
    assert "name the ordering of all other columns" in refused.output
    assert CliRunner().invoke(main, [*create, "--ordering", "at"]).exit_code == 0
    assert bl.open_table(path).config().ordering_groups == {"city": "city_at"}
    assert "city_at of city" in CliRunner().invoke(main, ["show", path]).output
