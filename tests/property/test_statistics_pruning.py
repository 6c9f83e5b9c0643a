"""Pruning by statistics, against the rows: no row that a condition keeps is in a skipped slice.

The conditions are built as trees, and the Arrow filter of bucketlake says which rows they keep.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketlake as bl
from bucketlake.metadata.statistics.merged import FoundStatistics, credible_statistics
from bucketlake.metadata.statistics.of_file import (
    FileStatistics,
    column_stats_of,
    rows_statistics,
)
from bucketlake.model.column_type import TIMESTAMP
from bucketlake.read.pruning import by_statistics
from bucketlake.read.pruning.prune import prune_slices
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import Snapshot
from bucketlake.storage.location import open_storage
from bucketlake.timeline.table_properties import table_at
from bucketlake.where.arrow_filter import truth_of
from bucketlake.where.predicate import (
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Not,
    Opaque,
    Operator,
    Or,
    Predicate,
)
from tests.choices import some
from tests.pinned import snapshot_as_of

SCHEMA = pa.schema(
    {
        "flag": pa.bool_(),
        "n": pa.int64(),
        "f": pa.float32(),
        "d": pa.float64(),
        "text": pa.string(),
        "day": pa.date32(),
        "at": TIMESTAMP,
        "amount": pa.decimal128(9, 2),
    }
)
VALUES: dict[str, list[Any]] = {
    "flag": [True, False],
    "n": [-7, 0, 1, 2, 5, 2**53 + 1],
    "f": [-1.5, -0.0, 0.0, 0.10000000149011612, 2.5, math.inf, math.nan],
    "d": [-1e300, -0.0, 0.1, 2.5, 7.0, math.inf, math.nan],
    "text": ["", "a", "ab", "b", "b%", "é", "\ue000", "\uffee", "😀", "z"],
    "day": [date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29)],
    "at": [datetime(1950, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 0, 0, 0, 1, UTC)],
    "amount": [Decimal("-1.25"), Decimal("0.00"), Decimal("3.50")],
}
LITERALS: dict[str, list[Any]] = {
    **VALUES,
    "n": [*VALUES["n"], Decimal("0.5"), Decimal("4.5")],
    "amount": [*VALUES["amount"], Decimal("3.505"), Decimal(10**6)],
    "f": [*VALUES["d"], *VALUES["f"]],
}
PATTERNS = ["a%", "%b", "a_", "b\u0025", "é%", "😀%", "", "ab"]
ROW = st.fixed_dictionaries({n: st.sampled_from([*held, None]) for n, held in VALUES.items()})


@st.composite
def column_tests(draw: st.DrawFn) -> Predicate:
    column = draw(st.sampled_from(list(VALUES)))
    values = st.sampled_from([*LITERALS[column], None])
    kind = draw(st.sampled_from(["compare", "compare", "compare", "in", "null", "like"]))
    if kind == "compare":
        return Comparison(column, draw(st.sampled_from(Operator)), draw(values))
    if kind == "in":
        return In(column, tuple(draw(st.lists(values, min_size=1, max_size=3))))
    if kind == "like" and column == "text":
        return Like(column, draw(st.sampled_from(PATTERNS)))
    return IsNull(column)


PREDICATES: st.SearchStrategy[Predicate] = st.recursive(
    column_tests() | st.sampled_from([Constant(True), Constant(False), Constant(None)]),
    lambda inner: st.one_of(
        inner.map(Not),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts))),
    ),
    max_leaves=6,
)


def matching(rows: pa.Table, predicate: Predicate) -> pa.Table:
    return rows.filter(truth_of(predicate, rows))


Unit: TypeAlias = list[list[dict[str, Any]]]
"""The rows of the files of a slice."""


def bounds_of(
    units: Sequence[Unit], how: str = "ours", without: Set[int] = frozenset()
) -> dict[str, by_statistics.ColumnBounds]:
    """Return the bounds of slices; files with some numbers have no statistics.

    With ``how`` "hudi" the statistics have the faults of Hudi's.
    """
    files = [file for unit in units for file in unit]
    unit_of_file = np.repeat(np.arange(len(units)), [len(unit) for unit in units])
    places: list[int] = []
    columns: list[int] = []
    held = []
    for place, file in enumerate(files):
        if place not in without:
            found = rows_statistics(pa.Table.from_pylist(file, SCHEMA), SCHEMA)
            held.append((f"f{place}", found if how == "ours" else with_faults(found, file)))
            places += [place] * len(SCHEMA)
            columns += range(len(SCHEMA))
    if not held:
        return {}
    stats = column_stats_of(held)
    if how != "ours":
        stats = replace(stats, is_tight_bound=pa.array(np.zeros(len(stats), np.bool_)))
    found_stats = FoundStatistics(np.array(places), np.array(columns), credible_statistics(stats))
    counts = np.array([len(unit) for unit in units])
    return by_statistics._bounds(found_stats, SCHEMA, unit_of_file, counts)


def with_faults(found: FileStatistics, rows: list[dict[str, Any]]) -> FileStatistics:
    """Return statistics as Hudi would have them, if each row were a row group of a base file."""
    columns = dict(found.columns)
    for name in ("f", "d"):
        values = [row[name] for row in rows if row[name] is not None]
        if any(math.isnan(value) for value in values):
            known = [0.0, *(value for value in values if not math.isnan(value))]
            kind, held = columns[name]
            columns[name] = kind, replace(held, low=min(known), high=max(known))
    texts = [row["text"] for row in rows if row["text"] is not None]
    kind, held = columns["text"]
    short = [text for text in texts if text != "z"]  # As if the others were long.
    columns["text"] = (
        kind,
        replace(
            held,
            null_count=len(rows) - len(short),
            low=min(short, default=None),
            high=max(short, default=None),
        ),
    )
    return FileStatistics(columns)


@settings(max_examples=4 * settings().max_examples)
@given(
    units=st.lists(
        st.lists(st.lists(ROW, max_size=3), min_size=1, max_size=3), min_size=1, max_size=4
    ),
    predicate=PREDICATES,
    how=st.sampled_from(["ours", "hudi"]),
    without=st.sets(st.integers(0, 5), max_size=2),
)
def test_no_slice_with_a_matching_row_is_skipped(
    units: list[Unit], predicate: Predicate, how: str, without: set[int]
) -> None:
    kept = by_statistics.bounds_may_match(predicate, bounds_of(units, how, without), len(units))
    for unit, is_kept in zip(units, kept.tolist(), strict=True):
        rows = pa.Table.from_pylist([row for file in unit for row in file], SCHEMA)
        assert is_kept or matching(rows, predicate).num_rows == 0


def test_slices_whose_values_are_all_outside_are_skipped() -> None:
    blank = dict.fromkeys(SCHEMA.names)
    unit = [[{**blank, "n": 5, "d": 2.5, "text": "b"}, {**blank, "n": 7, "d": 7.0, "text": "bz"}]]
    bounds = bounds_of([unit])
    outside: list[Predicate] = [
        Comparison("n", Operator.LESS, 5),
        Comparison("n", Operator.GREATER, 7),
        Comparison("n", Operator.EQUAL, 8),
        Comparison("d", Operator.GREATER, 7.0),
        Comparison("d", Operator.EQUAL, math.nan),
        In("n", (1, 2, 9)),
        Like("text", "a%"),
        Like("text", "c%"),
        IsNull("n"),
        Not(IsNull("flag")),
        And((Comparison("n", Operator.GREATER, 5), Comparison("text", Operator.LESS, "b"))),
        Not(Or((Comparison("n", Operator.GREATER_OR_EQUAL, 5), Constant(False)))),
    ]
    inside: list[Predicate] = [
        Comparison("n", Operator.EQUAL, 6),
        Comparison("n", Operator.NOT_EQUAL, 5),
        Comparison("n", Operator.NULL_SAFE_EQUAL, 5),
        In("n", (1, 5)),
        Like("text", "b%"),
        Like("text", "%z"),
        IsNull("flag"),
        Opaque("abs(n) = 1", "a function"),
    ]
    for predicate in outside:
        assert by_statistics.bounds_may_match(predicate, bounds, 1).tolist() == [False], predicate
    for predicate in inside:
        assert by_statistics.bounds_may_match(predicate, bounds, 1).tolist() == [True], predicate


def test_nan_is_above_every_number() -> None:
    blank = dict.fromkeys(SCHEMA.names)
    above = Comparison("d", Operator.GREATER, 7.0)
    for values, may_match in (([2.5], False), ([2.5, math.nan], True), ([math.nan], True)):
        unit = [[{**blank, "d": value} for value in values]]
        assert by_statistics.bounds_may_match(above, bounds_of([unit]), 1).tolist() == [may_match]
        # Bounds of Hudi may lack numbers beside a NaN.
        assert by_statistics.bounds_may_match(above, bounds_of([unit], "hudi"), 1).tolist() == [
            True
        ]


# Tables.

KEYED = pa.schema([("id", pa.string()), ("p", pa.string()), ("ts", pa.int64()), *SCHEMA])


@cache
def table_of(table_type: str, ordering: str | None, seed: int) -> bl.Table:
    """Make a table of many small files by commits of several kinds."""
    random = np.random.default_rng(seed)
    table = bl.create_table(
        f"memory://statistics-{table_type}-{ordering}-{seed}",
        schema=KEYED,
        record_key=["id"],
        partition_by=["p"],
        index=bl.SimpleBucket(3),
        table_type=table_type,
        ordering=ordering,
        metadata_table=True,
    )

    def batch(count: int, partitions: str) -> pa.Table:
        rows = []
        # The values of a batch are near each other, so that bounds differ.
        near = {
            name: [*random.choice(len(held), 2).tolist(), None] for name, held in VALUES.items()
        }
        for key in random.choice(40, count, replace=False).tolist():
            chosen = {name: places[random.integers(3)] for name, places in near.items()}
            row = {n: None if at is None else VALUES[n][at] for n, at in chosen.items()}
            place = partitions[key % len(partitions)]
            rows.append({"id": f"k{key}", "p": place, "ts": int(random.integers(9)), **row})
        return pa.Table.from_pylist(rows, KEYED)

    table.upsert(batch(20, "abc"))
    table.upsert(batch(10, "abc"))
    table.delete(batch(5, "abc").select(["id", "p"]))
    if table_type == "merge_on_read":
        table.compact()
    table.insert_overwrite(batch(6, "b"))
    table.upsert(batch(6, "ab"))
    table.upsert(batch(4, "d"))
    return table


def snapshot_of(table: bl.Table, as_of: str | None = None) -> Snapshot:
    storage = open_storage(table.path)
    return snapshot_as_of(table_at(storage), as_of)


def read(snapshot: Snapshot, slices: Any) -> pa.Table:
    reader = SliceReader.of_snapshot(snapshot)
    chunks = [chunk for held in slices for chunk in reader.read(held, KEYED.names)]
    return pa.concat_tables([KEYED.empty_table(), *(c.cast(KEYED) for c in chunks)]).sort_by("id")


TABLES = [
    ("copy_on_write", None),
    ("copy_on_write", "ts"),
    ("merge_on_read", None),
    ("merge_on_read", "ts"),
]


@settings(max_examples=max(20, settings().max_examples // 2), deadline=None)
@given(
    kind=st.sampled_from(TABLES),
    seed=st.integers(0, 2),
    predicate=PREDICATES,
    commit=st.none() | st.integers(0, 5),
)
def test_rows_of_a_pruned_read_are_those_of_a_full_read(
    kind: tuple[str, str | None], seed: int, predicate: Predicate, commit: int | None
) -> None:
    table = table_of(*kind, seed)
    commits = [i.requested_at for i in table.timeline() if i.action.writes_data]
    snapshot = snapshot_of(table, None if commit is None else commits[commit % len(commits)])
    slices, report = prune_slices(snapshot, None, predicate)
    whole = matching(read(snapshot, snapshot.all_slices()), predicate)
    pruned = matching(read(snapshot, slices), predicate)
    assert pruned.to_pylist().__repr__() == whole.to_pylist().__repr__()
    assert report.statistics_skipped <= report.file_groups_total - len(slices)


@pytest.mark.parametrize("kind", TABLES, ids=str)
def test_statistics_skip_file_groups_of_the_tables(kind: tuple[str, str | None]) -> None:
    snapshot = snapshot_of(table_of(*kind, 0))
    skipped = [
        prune_slices(snapshot, None, Comparison(name, Operator.EQUAL, value))[1].statistics_skipped
        for name, values in VALUES.items()
        for value in some(values, 3)
    ]
    assert sum(skipped) > len(skipped)
