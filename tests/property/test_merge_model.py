"""The copy-on-write merge against a plain dictionary, for all inputs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.merge.group_merge import GroupMerge, MergeRule, Stamp
from bucketlake.merge.incoming import (
    IncomingRecords,
    commit_time_deletes,
    comparable,
    delete_flags,
    distinct_rows,
    key_order,
)
from bucketlake.model.file_name import InstantTime
from bucketlake.model.schema import META_NAMES
from bucketlake.model.table_type import MergeMode

SCHEMA = pa.schema(
    [("id", pa.string()), ("v", pa.int64()), ("ts", pa.int64()), ("tags", pa.list_(pa.string()))]
)
INT_ORDERED = SCHEMA.set(2, pa.field("ts", pa.int32()))
STAMP = Stamp(InstantTime("20260101000000000"), 3, "p", "f.parquet")

KEYS = st.sampled_from([f"k{i}" for i in range(8)] + ["ä", "日本", "", "k" * 30])
ROWS = st.lists(
    st.tuples(
        KEYS,
        st.integers(0, 9),
        st.one_of(st.none(), st.integers(-2, 3)),
        st.booleans(),
        st.one_of(st.none(), st.lists(st.sampled_from("ab"), max_size=2)),
    ),
    max_size=25,
)


def incoming(
    rows: list[tuple], ordering: tuple[str, ...], schema: pa.Schema = SCHEMA
) -> IncomingRecords:
    table = pa.table(
        {
            "id": pa.array([r[0] for r in rows], pa.string()),
            "v": pa.array([r[1] for r in rows], pa.int64()),
            "ts": pa.array([r[2] for r in rows], schema.field("ts").type),
            "tags": pa.array([r[4] for r in rows], pa.list_(pa.string())),
            "_hoodie_is_deleted": pa.array([r[3] for r in rows], pa.bool_()),
        }
    )
    return IncomingRecords(
        table["id"].combine_chunks(),
        table.select(SCHEMA.names),
        tuple(comparable(table[f]) for f in ordering),
        deleted := delete_flags(table),
        commit_time_deletes(deleted, table, ordering),
    )


def stored_chunks(model: dict, chunk_rows: int, schema: pa.Schema) -> list[pa.Table]:
    rows = list(model.values())
    table = pa.table(
        {
            "_hoodie_commit_time": pa.array(["0"] * len(rows), pa.string()),
            "_hoodie_commit_seqno": pa.array([f"0_{i}" for i in range(len(rows))], pa.string()),
            "_hoodie_record_key": pa.array([r[0] for r in rows], pa.string()),
            "id": pa.array([r[0] for r in rows], pa.string()),
            "v": pa.array([r[1] for r in rows], pa.int64()),
            "ts": pa.array([r[2] for r in rows], schema.field("ts").type),
            "tags": pa.array([r[4] for r in rows], pa.list_(pa.string())),
        }
    )
    return [table.slice(i, chunk_rows) for i in range(0, table.num_rows, chunk_rows)]


def ord_of(row: tuple) -> int:
    return row[2] or 0


def has_ordering(row: tuple, schema: pa.Schema) -> bool:
    """Whether a delete can tell its ordering value: an int's 0 is spelled as none."""
    return row[2] is not None and not (row[2] == 0 and schema == INT_ORDERED)


def model_after(
    model: dict, rows: list[tuple], event_time: bool, schema: pa.Schema = SCHEMA
) -> dict:
    best: dict[str, tuple] = {}
    emptied: set[str] = set()  # Keys whose earlier records a delete without ordering removes.
    for row in rows:
        old = best.get(row[0])
        removes = event_time and row[3] and not has_ordering(row, schema)
        is_first = old is None or (row[0] in emptied and old[3] and not has_ordering(old, schema))
        if removes:
            emptied.add(row[0])
        wins = is_first or not event_time or ord_of(row) > ord_of(old)
        if not wins and not removes and ord_of(row) == ord_of(old):
            wins = row[3] or not old[3]  # At equal values a delete wins, else the later row.
        if removes or wins:
            best[row[0]] = row
    after = dict(model)
    for key, row in best.items():
        old = after.get(key)
        compares = event_time and key not in emptied
        if compares and old is not None and ord_of(row) < ord_of(old):
            continue
        if row[3]:
            after.pop(key, None)
        else:
            after[key] = row
    return after


@given(
    before=ROWS,
    batch=ROWS,
    event_time=st.booleans(),
    chunk_rows=st.integers(1, 5),
    schema=st.sampled_from([SCHEMA, INT_ORDERED]),
)
def test_merge_of_any_batch_equals_the_row_by_row_model(
    before, batch, event_time, chunk_rows, schema
):
    model = model_after({}, before, event_time, schema)
    mode = MergeMode.EVENT_TIME if event_time else MergeMode.COMMIT_TIME
    ordering = ("ts",) if event_time else ()
    given_records = incoming(batch, ordering, schema)
    records = given_records.take(distinct_rows(given_records, np.arange(len(batch))))
    resets = given_records.keys.filter(pa.array(given_records.is_reset))
    records = replace(records, is_reset=np.array(pc.is_in(records.keys, resets), bool))
    merge = GroupMerge(records, MergeRule(mode, ordering), STAMP, schema)
    parts = list(merge.run(iter(stored_chunks(model, chunk_rows, schema))))
    rows = [row for part in parts for row in part.to_pylist()]
    expected = model_after(model, batch, event_time, schema)
    assert {r["id"]: (r["v"], r["ts"], r["tags"]) for r in rows} == {
        key: (row[1], row[2], row[4]) for key, row in expected.items()
    }
    assert len(rows) == len(expected) == merge.counts.written
    assert len({r["_hoodie_commit_seqno"] for r in rows}) == len(rows)
    assert merge.counts.inserted == len(set(expected) - set(model))
    assert merge.counts.deleted == len(set(model) - set(expected))
    assert all(list(part.column_names[:5]) == list(META_NAMES) for part in parts)


@given(batch=ROWS, seed=st.integers(0, 10))
def test_merge_of_an_unordered_batch_does_not_depend_on_arrival(batch, seed):
    shuffled = [batch[i] for i in np.random.default_rng(seed).permutation(len(batch))]
    outputs = []
    for rows in (batch, shuffled):
        all_records = incoming(rows, ("ts",))
        records = all_records.take(distinct_rows(all_records, None))
        merge = GroupMerge(records, MergeRule(MergeMode.EVENT_TIME, ("ts",)), STAMP, SCHEMA)
        outputs.append([r for part in merge.run(iter(())) for r in part.to_pylist()])
    assert outputs[0] == outputs[1]


@given(
    st.lists(st.one_of(st.text(max_size=40), st.text("ab", max_size=12))),
    st.sampled_from(["", "ä", "a longer prefix "]),
    st.integers(0, 3),
)
def test_key_order_sorts_by_utf8_bytes_and_keeps_the_order_of_equal_keys(ends, prefix, start):
    keys = [prefix + end for end in ends]
    order = key_order(pa.array(keys, pa.string()).slice(start))
    kept = keys[start:]
    assert order.tolist() == sorted(range(len(kept)), key=lambda i: kept[i].encode())


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            [math.nan, math.inf, 1.5, 0.0, -0.0, -1.5, -math.inf, None],
            [-math.inf, -1.5, -0.0, 0.0, None, 1.5, math.inf, math.nan],
        ),
    ],
)
def test_comparable_orders_floats_as_java_does(values, expected):
    order = comparable(pa.array(values, pa.float64())).to_numpy().argsort(kind="stable")
    ordered = [values[i] for i in order]
    assert [str(v) for v in ordered] == [str(v) for v in expected]


def test_comparable_counts_a_missing_number_as_zero():
    assert comparable(pa.array([None, -1], pa.int32())).to_pylist() == [0, -1]
