"""Pruning and filtering by random conditions, against plain Python over rows in buckets.

The oracle evaluates the same tree that is printed as SQL, row by row, with three-valued logic. What
it keeps must lie in the slices that pruning keeps, and be what the Arrow filter keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketlake.config.table_config import TableConfig
from bucketlake.index.bucket_hash import assign_buckets, file_id_prefix
from bucketlake.index.simple import SimpleBucket
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.keys import KeyGenerator, KeySpec, record_keys
from bucketlake.model.partition_path import DEFAULT_PARTITION, decode_segment, partition_paths
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.read.pruning.by_partition import partitions_that_may_match
from bucketlake.read.pruning.prune import prune
from bucketlake.where.arrow_filter import truth_of
from bucketlake.where.parser import parse_where
from tests.table_index import of_table

SCHEMA = pa.schema(
    {"id": pa.string(), "n": pa.int64(), "other": pa.string(), "p": pa.string(), "day": pa.date32()}
)
VALUES: dict[str, list[Any]] = {
    # Nothing in a key is escaped: these texts spell other keys.
    "id": ["a", "b", "5", "05", "a,n:1", "it's", ",id:b", "é", "😀", "__null__"],
    "n": [1, 2, 5, -7, 2**53 + 1],
    "other": ["a", "x,id:b", "y", ""],
    "p": ["a", "b", "a b", "50%", "a/b", "k=v", "é"],
    "day": [date(2024, 1, 1), date(2024, 2, 29), date(1969, 12, 31)],
}


@dataclass(frozen=True)
class Case:
    """A condition as SQL and as a function of a row."""

    text: str
    evaluate: Callable[[dict[str, Any]], bool | None]


def sql(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return f"DATE '{value}'" if isinstance(value, date) else str(value)


def compared(function: Callable[[Any, Any], bool], column: str, value: Any) -> Any:
    def evaluate(row: dict[str, Any]) -> bool | None:
        held = row[column]
        return None if held is None or value is None else function(held, value)

    return evaluate


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: _order(a) < _order(b),
    "<=": lambda a, b: _order(a) <= _order(b),
    ">": lambda a, b: _order(a) > _order(b),
    ">=": lambda a, b: _order(a) >= _order(b),
}


def _order(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def equality(column: str, value: Any) -> Callable[[dict[str, Any]], bool]:
    return lambda row: bool(row[column] == value)


def member(column: str, values: list[Any]) -> Callable[[dict[str, Any]], bool | None]:
    def evaluate(row: dict[str, Any]) -> bool | None:
        if row[column] is None:
            return None
        return True if row[column] in values else (None if None in values else False)

    return evaluate


def negation(of: Case) -> Case:
    def evaluate(row: dict[str, Any]) -> bool | None:
        result = of.evaluate(row)
        return None if result is None else not result

    return Case(f"NOT ({of.text})", evaluate)


def junction(parts: list[Case], word: str, absorbing: bool) -> Case:
    def evaluate(row: dict[str, Any]) -> bool | None:
        results = [part.evaluate(row) for part in parts]
        if absorbing in results:
            return absorbing
        return None if None in results else not absorbing

    return Case(f" {word} ".join(f"({part.text})" for part in parts), evaluate)


@st.composite
def leaf_cases(draw: st.DrawFn) -> Case:
    column = draw(st.sampled_from(list(VALUES)))
    values = st.sampled_from([*VALUES[column], None])
    kind = draw(st.sampled_from(["compare", "compare", "in", "null", "null-safe"]))
    if kind == "in":
        among = draw(st.lists(values, min_size=1, max_size=3))
        return Case(f"{column} IN ({', '.join(map(sql, among))})", member(column, among))
    if kind == "null":
        return Case(f"{column} IS NULL", lambda row: row[column] is None)
    value = draw(values)
    if kind == "null-safe":
        return Case(f"{column.upper()} <=> {sql(value)}", equality(column, value))
    operator = draw(st.sampled_from(["=", "=", "=", *OPERATORS]))
    return Case(f"{column} {operator} {sql(value)}", compared(OPERATORS[operator], column, value))


def _junctions(cases: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    several = st.lists(cases, min_size=2, max_size=3)
    return st.one_of(
        cases.map(negation),
        several.map(lambda parts: junction(parts, "AND", False)),
        several.map(lambda parts: junction(parts, "OR", True)),
    )


CASES = st.recursive(leaf_cases(), _junctions, max_leaves=8)

ROW = st.fixed_dictionaries(
    {name: st.sampled_from([*values, None]) for name, values in VALUES.items()}
)
ROWS = st.lists(ROW, min_size=1, max_size=12)

SPECS = st.sampled_from(
    [
        (("id",), ()),
        (("n",), ()),
        (("day",), ()),
        (("id", "n"), ()),
        (("id", "n"), ("id",)),
        (("id", "n"), ("n",)),
        (("id", "other"), ("id",)),
        (("id", "other"), ("other", "id")),
        (("other", "n", "id"), ("n",)),
        (("id", "p"), ("id",)),
    ]
)
PARTITIONS = st.sampled_from([(), ("p",), ("day",), ("p", "day"), ("n", "p")])
BUCKETS = 64  # So many that two keys seldom share one.


@st.composite
def anchored_cases(draw: st.DrawFn, rows: list[dict[str, Any]], fields: tuple[str, ...]) -> Case:
    """Ask for rows that are there by some of their fields, and for others beside them."""
    anchors = []
    for row in draw(st.lists(st.sampled_from(rows), min_size=1, max_size=2)):
        columns = draw(st.sets(st.sampled_from([*fields, *fields, *VALUES]), min_size=1))
        parts = [
            Case(f"{name} <=> {sql(row[name])}", equality(name, row[name]))
            for name in sorted(columns)
        ]
        anchors.append(junction(parts, "AND", False))
    case = junction(anchors, "OR", True)
    if draw(st.booleans()):
        return case
    word, absorbing = draw(st.sampled_from([("AND", False), ("OR", True)]))
    return junction([case, draw(CASES)], word, absorbing)


def has_key(row: dict[str, Any], fields: tuple[str, ...]) -> bool:
    return any(row[name] not in (None, "") for name in fields)


@settings(max_examples=4 * settings().max_examples)
@given(
    data=st.data(),
    rows=ROWS,
    keys=SPECS,
    partition=PARTITIONS,
    hive_style=st.booleans(),
    generator=st.sampled_from([KeyGenerator.SIMPLE, KeyGenerator.COMPLEX]),
)
def test_no_row_that_the_condition_keeps_is_pruned(
    data: st.DataObject,
    rows: list[dict[str, Any]],
    keys: tuple[tuple[str, ...], tuple[str, ...]],
    partition: tuple[str, ...],
    hive_style: bool,
    generator: KeyGenerator,
) -> None:
    fields, hash_fields = keys
    generator = generator if partition else KeyGenerator.NON_PARTITION
    spec = KeySpec(fields, partition, generator, hive_style=hive_style, url_encode=True)
    rows = [row for row in rows if has_key(row, fields)]
    table = pa.Table.from_pylist(rows, SCHEMA)
    homes = list(
        zip(
            partition_paths(table, spec).to_pylist(),
            assign_buckets(record_keys(table, spec), BUCKETS, hash_fields or fields).tolist(),
            strict=True,
        )
    )
    slices = [
        FileSlice(path, FileId(f"{file_id_prefix(bucket, 'x' * 36)}-0"), InstantTime("1"), None)
        for path, bucket in sorted(set(homes))
    ]
    index = of_table(SimpleBucket(BUCKETS, hash_fields or None), *fields)
    case = data.draw(anchored_cases(rows, fields)) if rows else Case("true", lambda _: True)
    predicate = parse_where(case.text, SCHEMA)
    config = TableConfig("t", TableType.COPY_ON_WRITE, spec, MergeMode.COMMIT_TIME)
    kept, report = prune(predicate, slices, config, index, SCHEMA)
    read = {(one.partition_path, int(one.file_id[:8])) for one in kept}
    matching = [i for i, row in enumerate(rows) if case.evaluate(row) is True]
    assert [rows[i] for i in matching if homes[i] not in read] == []
    assert report.file_groups_kept == len(kept) <= report.file_groups_total == len(slices)


@given(case=CASES, rows=ROWS)
def test_arrow_filter_keeps_what_the_oracle_keeps(case: Case, rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    kept = table.filter(truth_of(parse_where(case.text, SCHEMA), table))
    assert kept.to_pylist() == [row for row in rows if case.evaluate(row) is True]


def path_values(path: str, spec: KeySpec) -> dict[str, str | None]:
    """Read the values of one path in which no value has a slash; None for the default partition."""
    read = {}
    for name, part in zip(spec.partition_fields, path.split("/"), strict=True):
        text = decode_segment(part.removeprefix(f"{name}=") if spec.hive_style else part)
        read[name] = None if text == DEFAULT_PARTITION else text
    return read


@given(
    rows=st.lists(ROW, min_size=1, max_size=4),
    partition=st.sampled_from([("p",), ("p", "day"), ("n", "p", "day")]),
    hive_style=st.booleans(),
    column=st.sampled_from(["p", "day", "n"]),
    chosen=st.integers(0, 3),
)
def test_partition_is_kept_by_its_own_value_and_dropped_by_the_others(
    rows: list[dict[str, Any]],
    partition: tuple[str, ...],
    hive_style: bool,
    column: str,
    chosen: int,
) -> None:
    """The reading of all paths at once agrees with that of one path."""
    spec = KeySpec(("id",), partition, KeyGenerator.COMPLEX, hive_style=hive_style, url_encode=True)
    paths = partition_paths(pa.Table.from_pylist(rows, SCHEMA), spec).dictionary.to_pylist()
    value = rows[chosen % len(rows)][column]
    where = f"{column} = {sql(value)}" if value is not None else f"{column} IS NULL"
    kept = partitions_that_may_match(parse_where(where, SCHEMA), paths, spec, SCHEMA)
    texts = [path_values(path, spec).get(column, str(value)) for path in paths]
    same = [text == (None if value is None else str(value)) for text in texts]
    unsure = [text is None and column == "p" for text in texts]
    if column in partition:
        assert kept.tolist() == [a or b for a, b in zip(same, unsure, strict=True)]
    else:
        assert kept.all()
