"""Sets and intervals in place of alternatives: true for the same rows, and pruned as carefully."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.config.table_config import TableConfig
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.read.pruning.by_partition import partitions_that_may_match
from bucketlake.read.pruning.by_statistics import ColumnBounds, bounds_may_match
from bucketlake.read.pruning.key_candidates import find_hash_keys, possible_values
from bucketlake.where.arrow_filter import truth_of
from bucketlake.where.predicate import (
    Among,
    And,
    Comparison,
    In,
    IsNull,
    Not,
    Operator,
    Or,
    Predicate,
    Within,
    leaves,
)
from bucketlake.where.sets import merged

START = datetime(2024, 1, 1, tzinfo=UTC)
WHOLE = st.integers(-4, 12)
HALVES = WHOLE.map(lambda n: n + Decimal("0.5"))
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[object], st.SearchStrategy[object]]] = {
    # The type, the values of rows, and the values in conditions.
    "i": (pa.int32(), WHOLE, WHOLE | HALVES | st.sampled_from([2**31, -(2**40), 2**63 - 1])),
    "n": (pa.int64(), WHOLE | st.sampled_from([-(2**63), 2**63 - 1]),
          WHOLE | HALVES | st.sampled_from([-(2**63), 2**63 - 1])),
    "s": (pa.string(), st.sampled_from("abcdefgh\U0001f600"), st.sampled_from("abcdefghij")),
    "d": (pa.float64(), st.sampled_from([-0.0, 0.0, 1.5, math.inf, -math.inf, math.nan, 2.0]),
          st.sampled_from([-0.0, 0.0, 1.5, math.inf, -math.inf, math.nan, 2.0, 7.25])),
    "f": (pa.float32(), st.sampled_from([-0.0, 0.5, 1.5, math.nan]),
          st.sampled_from([0.0, 0.1, 0.5, math.nan])),
    "x": (pa.decimal128(9, 2), WHOLE.map(Decimal),
          WHOLE.map(Decimal) | st.sampled_from([Decimal("0.125"), Decimal("12345678901.5")])),
    "b": (pa.bool_(), st.booleans(), st.booleans()),
    "t": (pa.date32(), WHOLE.map(lambda n: date(2024, 1, 20) + timedelta(n)),
          WHOLE.map(lambda n: date(2024, 1, 20) + timedelta(n))),
    "z": (pa.timestamp("us", "UTC"), WHOLE.map(lambda n: START + timedelta(hours=n)),
          WHOLE.map(lambda n: START + timedelta(hours=n))),
}  # fmt: skip
SCHEMA = pa.schema([(name, kind) for name, (kind, _, _) in VALUES.items()])
SPEC = KeySpec(("n", "s"), ("i",), KeyGenerator.COMPLEX)
CONFIG = TableConfig("t", TableType.COPY_ON_WRITE, SPEC, MergeMode.COMMIT_TIME)
ORDERED = [op for op in Operator if op not in (Operator.EQUAL, Operator.NULL_SAFE_EQUAL)]
KEY_COLUMNS = ("i", "n", "s", "t", "b")


def with_null(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return values | st.none()


@st.composite
def comparisons(draw: st.DrawFn, operators: list[Operator], columns: list[str]) -> Comparison:
    column = draw(st.sampled_from(columns))
    value = draw(with_null(VALUES[column][2]))
    return Comparison(column, draw(st.sampled_from(operators)), value)  # type: ignore[arg-type]


@st.composite
def alternatives(draw: st.DrawFn) -> Predicate:
    """Draw many conditions of few kinds, so that some of them are joined."""
    columns = draw(st.lists(st.sampled_from([*VALUES]), min_size=1, max_size=3, unique=True))
    equal = st.tuples(*(comparisons([Operator.EQUAL], [name]) for name in columns)).map(And)
    between = st.lists(comparisons(ORDERED, columns[:1]), min_size=1, max_size=2)
    listed = st.lists(with_null(VALUES[columns[0]][2]), min_size=1, max_size=12, unique_by=repr)
    one = st.one_of(
        equal,
        between.map(lambda parts: And(tuple(parts))),
        comparisons([Operator.EQUAL], columns[:1]),
        listed.map(lambda values: In(columns[0], tuple(values))),  # type: ignore[arg-type]
        st.just(IsNull(columns[0])),
    )
    kinds = draw(st.lists(one, min_size=1, max_size=24))
    return Or(tuple(kinds)) if len(kinds) > 1 else kinds[0]


PREDICATES = st.recursive(
    alternatives(),
    lambda inner: st.one_of(
        inner.map(Not),
        st.tuples(inner, inner).map(And),
        st.tuples(inner, inner).map(Or),
    ),
    max_leaves=3,
)
ROWS = st.lists(
    st.fixed_dictionaries({name: with_null(rows) for name, (_, rows, _) in VALUES.items()}),
    max_size=12,
).map(lambda rows: pa.Table.from_pylist(rows, SCHEMA))


@given(predicate=PREDICATES, rows=ROWS)
def test_sets_are_true_for_the_rows_of_their_alternatives(
    predicate: Predicate, rows: pa.Table
) -> None:
    plain, joined = (
        truth_of(each, rows).to_pylist() for each in (predicate, merged(predicate, SCHEMA))
    )
    assert [found is True for found in joined] == [found is True for found in plain]


@given(predicate=PREDICATES, rows=ROWS)
def test_sets_under_not_are_unknown_for_the_rows_of_their_alternatives(
    predicate: Predicate, rows: pa.Table
) -> None:
    joined = truth_of(merged(predicate, SCHEMA, is_negated=True), rows)
    assert joined.to_pylist() == truth_of(predicate, rows).to_pylist()


@given(predicate=PREDICATES, rows=ROWS)
def test_pruning_by_sets_loses_no_row(predicate: Predicate, rows: pa.Table) -> None:
    joined = merged(predicate, SCHEMA)
    rows = rows.filter(truth_of(predicate, rows))
    bounds = {}
    for field in SCHEMA:
        column = rows[field.name].combine_chunks()
        bounds[field.name] = ColumnBounds(
            column, column, column.is_valid().to_numpy(False), column.is_null().to_numpy(False)
        )
    # Each row is a file of its own, with exact bounds.
    assert bounds_may_match(joined, bounds, len(rows)).all()
    possible = possible_values(joined, SCHEMA)
    assert possible is not None or not len(rows)
    for name, held in (possible or {}).items():
        assert {*rows[name].to_pylist()} <= held
    partitions = [str(value) for value in rows["i"].drop_null().to_pylist()]
    assert partitions_that_may_match(joined, partitions, SPEC, SCHEMA).all()


@given(
    keys=st.lists(st.tuples(*(with_null(VALUES[name][1]) for name in KEY_COLUMNS[:3])), max_size=9),
    rows=ROWS,
)
def test_set_of_given_keys_holds_the_rows_with_equal_values_also_nulls(
    keys: list[tuple[object, ...]], rows: pa.Table
) -> None:
    names = KEY_COLUMNS[:3]
    batch = pa.RecordBatch.from_pylist(
        [dict(zip(names, key, strict=True)) for key in dict.fromkeys(keys)],
        pa.schema([SCHEMA.field(name) for name in names]),
    )
    wanted = {*keys}
    found = truth_of(Among(batch), rows).to_pylist()
    assert found == [tuple(row[name] for name in names) in wanted for row in rows.to_pylist()]


def test_many_alternatives_become_one_set_or_one_list_of_intervals() -> None:
    pairs = [
        And((Comparison("n", Operator.EQUAL, i), Comparison("s", Operator.EQUAL, f"k{i}")))
        for i in range(1_000)
    ]
    ranges = [
        And(
            (
                Comparison("t", Operator.GREATER, at),
                Comparison("t", Operator.LESS, at + timedelta(9)),
            )
        )
        for at in (date(2024, 1, 1) + timedelta(10 * i) for i in range(1_000))
    ]
    found = [*leaves(merged(Or((*pairs, *ranges)), SCHEMA))]
    assert [type(leaf) for leaf in found] == [Among, Within]
    among, within = found
    assert isinstance(among, Among)
    assert isinstance(within, Within)
    assert (among.columns, among.keys.num_rows) == (("n", "s"), 1_000)
    assert len(within.starts) == len(within.ends) == 1_000
    keys = find_hash_keys(merged(Or(tuple(pairs)), SCHEMA), CONFIG, (), SCHEMA)
    assert keys.keys is not None
    assert len(keys.keys) == 1_000  # Not each n with each s.
    assert keys.are_whole


def test_few_alternatives_stay_as_they_are() -> None:
    few = Or(tuple(Comparison("n", Operator.EQUAL, i) for i in range(7)))
    assert merged(few, SCHEMA) == few
    assert merged(In("n", (1, 2)), SCHEMA) == In("n", (1, 2))


def test_ranges_that_touch_are_one_interval() -> None:
    def between(low: int, high: int) -> Predicate:
        ends = ((Operator.GREATER_OR_EQUAL, low), (Operator.LESS, high))
        return And(tuple(Comparison("n", operator, value) for operator, value in ends))

    found = merged(Or(tuple(between(i, i + 1) for i in range(100))), SCHEMA)
    assert found == Within("n", (0,), (99,))
    rows = pa.table({"n": pa.array([-1, 0, 50, 99, 100, None], pa.int64())})
    assert truth_of(found, rows).to_pylist() == [False, True, True, True, False, None]
    assert truth_of(Not(found), rows).to_pylist() == [True, False, False, False, True, None]


def test_set_of_many_integers_is_found_by_its_bits() -> None:
    rng = np.random.default_rng(5)
    keys = rng.choice(2**40, 5_000, replace=False) - 2**39
    values = np.concatenate([keys, keys + 1, rng.integers(-(2**39), 2**39, 10_000)])
    rows = pa.table({"n": pa.array(values, mask=values % 7 == 0)})
    found = truth_of(Among(pa.RecordBatch.from_pydict({"n": keys})), rows).to_pylist()
    held = {*keys.tolist()}
    assert found == [None if v % 7 == 0 else v in held for v in values.tolist()]
