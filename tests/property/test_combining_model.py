"""Writes that combine columns against a plain row-by-row model, for all batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.merge.combining import Combining, Gaps, completed
from bucketlake.merge.duplicates import combine_duplicates
from bucketlake.merge.group_merge import GroupMerge, MergeRule, Stamp
from bucketlake.merge.incoming import (
    IncomingRecords,
    commit_time_deletes,
    comparable,
    delete_flags,
)
from bucketlake.model.file_name import InstantTime
from bucketlake.model.row_merge import ColumnRule
from bucketlake.model.table_type import MergeMode
from tests.partial_rows import FLAG, Row, upserted

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("tags", pa.list_(pa.string())),
    ]
)
STAMP = Stamp(InstantTime("20260101000000000"), 3, "p", "f.parquet")
NOTHING = st.none()

BATCHES = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.sampled_from("abcdef"),
            "ts": st.integers(0, 3),
            "n": NOTHING | st.integers(-5, 5),
            "x": NOTHING | st.integers(-5, 5).map(float),
            "s": NOTHING | st.sampled_from(["", "p", "q"]),
            "tags": NOTHING | st.lists(NOTHING | st.sampled_from("uvw"), max_size=3),
            FLAG: st.sampled_from([False, False, False, True]),
        }
    ),
    max_size=20,
)
RULES = st.fixed_dictionaries(
    {},
    optional={
        "n": st.sampled_from(["sum", "min", "max", "keep"]),
        "x": st.sampled_from(["sum", "min", "max", "replace"]),
        "s": st.sampled_from(["min", "max", "keep"]),
        "tags": st.sampled_from(["union", "keep"]),
    },
)


def records_of(batch: list[Row], ordering: tuple[str, ...], missing: set[str]) -> IncomingRecords:
    given = [{k: None if k in missing else v for k, v in row.items()} for row in batch]
    columns = pa.Table.from_pylist(given, SCHEMA)
    deleted = delete_flags(pa.Table.from_pylist(batch, pa.schema([(FLAG, pa.bool_())])))
    return IncomingRecords(
        columns["id"].combine_chunks(),
        columns.combine_chunks(),
        tuple(comparable(columns[name]) for name in ordering),
        deleted,
        commit_time_deletes(deleted, columns, ordering),
    )


def stored_chunks(rows: dict[str, Row], size: int) -> list[pa.Table]:
    table = pa.Table.from_pylist([rows[key] for key in sorted(rows)], SCHEMA)
    for place, name in enumerate(("_hoodie_commit_time", "_hoodie_commit_seqno")):
        table = table.add_column(place, name, pa.array(["0"] * len(table), pa.string()))
    table = table.add_column(2, "_hoodie_record_key", table["id"])
    return [table.slice(start, size) for start in range(0, len(table), size)]


@given(
    before=BATCHES,
    batch=BATCHES,
    is_ordered=st.booleans(),
    missing=st.sets(st.sampled_from(["n", "x", "s", "tags"])),
    keeps_nulls=st.booleans(),
    rules=RULES,
    size=st.integers(1, 4),
)
def test_any_batch_is_combined_as_the_row_by_row_model_says(
    before, batch, is_ordered, missing, keeps_nulls, rules, size
):
    rules = {name: rule for name, rule in rules.items() if name not in missing}
    ordering = ("ts",) if is_ordered else ()
    event = MergeMode.EVENT_TIME if is_ordered else MergeMode.COMMIT_TIME
    how = {
        "columns": SCHEMA.names,
        "key_of": lambda row: row["id"],
        "ordering": "ts" if is_ordered else None,
    }
    stored = upserted({}, before, **how)
    partial = [{k: v for k, v in row.items() if k not in missing} for row in batch]
    expected = upserted(
        stored,
        partial,
        **how,
        keeps_missing=True,
        keeps_nulls=keeps_nulls,
        rules=rules,
    )
    combining = Combining(
        "t", Gaps(missing, keeps_nulls), {name: ColumnRule(rule) for name, rule in rules.items()}
    )
    records = records_of(batch, ordering, missing)
    distinct, last = combine_duplicates(records, np.arange(len(batch)), combining)
    assert sorted(distinct.keys.to_pylist()) == sorted({row["id"] for row in batch})
    assert records.keys.take(pa.array(last)).equals(distinct.keys)

    rule = MergeRule(event, ordering)
    merge = GroupMerge(distinct, rule, STAMP, SCHEMA, combining)
    written = [
        row for part in merge.run(iter(stored_chunks(stored, size))) for row in part.to_pylist()
    ]
    assert {row["id"]: {n: row[n] for n in SCHEMA.names} for row in written} == expected
    assert len(written) == len(expected) == merge.counts.written
    assert {row["_hoodie_record_key"] for row in written} == {row["id"] for row in written}

    # A log file has whole rows: without combining, they give the same table.
    chunks = stored_chunks(stored, size)
    whole, inserted, ignored = completed(distinct, chunks, ordering, combining, "here")
    times = tuple(comparable(whole.columns[name]) for name in ordering)
    logged = replace(whole, is_whole=None, ordering=times)
    again = GroupMerge(logged, rule, STAMP, SCHEMA)
    read = [
        row for part in again.run(iter(stored_chunks(stored, size))) for row in part.to_pylist()
    ]
    assert {row["id"]: {n: row[n] for n in SCHEMA.names} for row in read} == expected
    assert inserted == merge.counts.inserted == again.counts.inserted
    assert ignored == merge.counts.ignored - again.counts.ignored


def test_a_union_does_not_depend_on_how_many_rows_of_a_key_come() -> None:
    nothing: Row = dict.fromkeys(SCHEMA.names) | {"id": "a", "ts": 0, FLAG: False}
    combining = Combining("t", Gaps(), {"tags": ColumnRule.UNION})
    for count in range(1, 6):
        batch = [*[nothing] * count, nothing | {"tags": ["v", None, "v"]}]
        distinct, _ = combine_duplicates(
            records_of(batch, (), set()), np.arange(len(batch)), combining
        )
        assert distinct.columns["tags"].to_pylist() == [["v", None, "v"]]


@given(batch=BATCHES, seed=st.integers(0, 10), rules=RULES)
def test_the_order_of_arrival_does_not_matter_for_rows_without_an_order(batch, seed, rules):
    combining = Combining(
        "t", Gaps(nulls=True), {name: ColumnRule(rule) for name, rule in rules.items()}
    )
    found = []
    for order in (range(len(batch)), np.random.default_rng(seed).permutation(len(batch))):
        records = records_of([batch[at] for at in order], ("ts",), set())
        distinct, _ = combine_duplicates(records, None, combining)
        rows = distinct.columns.append_column(FLAG, pa.array(distinct.deleted))
        found.append(sorted(rows.to_pylist(), key=lambda row: row["id"]))
    assert found[0] == found[1]
