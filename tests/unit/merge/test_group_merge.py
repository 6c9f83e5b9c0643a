"""The merge of stored rows and incoming records: rows, meta columns and counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bucketlake.hashing.texts import TextTable
from bucketlake.merge.group_merge import GroupMerge, MergeCounts, MergeRule, Stamp
from bucketlake.merge.incoming import IncomingRecords, comparable
from bucketlake.model import arrays
from bucketlake.model.file_name import InstantTime
from bucketlake.model.schema import META_NAMES
from bucketlake.model.table_type import MergeMode
from tests.spies import spy

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
T = InstantTime("20260101000000000")
STAMP = Stamp(T, 3, "p", "f.parquet")
BY_EVENT = MergeRule(MergeMode.EVENT_TIME, ("ts",))
NEW = ("p", "f.parquet")


def stored(*rows: tuple[str, int]) -> pa.Table:
    """Return a chunk of rows (key, ordering value), which an earlier commit wrote."""
    keys = pa.array([key for key, _ in rows], pa.string())
    return pa.table(
        {
            "_hoodie_commit_time": pa.array(["old"] * len(rows), pa.string()),
            "_hoodie_commit_seqno": pa.array([f"old {key}" for key, _ in rows], pa.string()),
            "_hoodie_record_key": keys,
            "id": keys,
            "ts": pa.array([ts for _, ts in rows], pa.int64()),
            "v": pa.array(["stored"] * len(rows), pa.string()),
        }
    )


def incoming(*rows: tuple[str, int, bool]) -> IncomingRecords:
    """Return records (key, ordering value, whether it deletes)."""
    keys = pa.array([key for key, *_ in rows], pa.string())
    ts = pa.array([ts for _, ts, _ in rows], pa.int64())
    columns = pa.table([keys, ts, pa.array(["new"] * len(rows), pa.string())], schema=SCHEMA)
    deleted = np.array([gone for *_, gone in rows], np.bool_)
    return IncomingRecords(keys, columns, (comparable(ts),), deleted, np.zeros(len(rows), np.bool_))


def merged(merge: GroupMerge, *chunks: pa.Table) -> list[list[tuple[Any, ...]]]:
    parts = [*merge.run(iter(chunks))]
    assert all(part.column_names == [*META_NAMES, *SCHEMA.names] for part in parts)
    return [[tuple(row.values()) for row in part.to_pylist()] for part in parts]


def test_rows_keep_their_place_and_their_meta_columns_unless_a_record_wins() -> None:
    merge = GroupMerge(
        incoming(("b", 5, False), ("n", 1, False), ("d", 5, True), ("e", 4, False), ("m", 1, False),
                 ("f", 4, True), ("h", 5, True), ("x", 1, True), ("i", 5, False)),
        BY_EVENT, STAMP, SCHEMA,
    )  # fmt: skip
    parts = merged(
        merge,
        stored(("a", 5), ("b", 5), ("c", 5), ("d", 5), ("e", 5)),
        stored(("f", 5), ("g", 5)),
        stored(("h", 5)),
        stored(("i", 5), ("j", 5)),
    )

    def old(key: str) -> tuple[Any, ...]:
        return ("old", f"old {key}", key, *NEW, key, 5, "stored")

    def new(row: int, key: str, ts: int) -> tuple[Any, ...]:
        return (T, f"{T}_3_{row}", key, *NEW, key, ts, "new")

    assert parts == [
        [old("a"), new(1, "b", 5), old("c"), old("e")],
        [old("f"), old("g")],
        [new(6, "i", 5), old("j"), new(8, "m", 1), new(9, "n", 1)],
    ]
    assert merge.counts == MergeCounts(inserted=2, updated=2, deleted=2, ignored=2, written=10)
    assert merge.counts.changed == 6
    assert merge.is_stored.dtype == merge.is_gone.dtype == np.bool_
    assert merge.is_stored.tolist() == [True, False, True, True, False, True, True, False, True]
    assert merge.is_gone.tolist() == [False, False, True, False, False, False, True, False, False]


@pytest.mark.parametrize(
    ("rule", "compares"),
    [
        (BY_EVENT, True),
        (MergeRule(MergeMode.EVENT_TIME, ("ts",), incoming_always_wins=True), False),
        (MergeRule(MergeMode.EVENT_TIME, ()), False),
        (MergeRule(MergeMode.COMMIT_TIME, ("ts",)), False),
    ],
)
def test_the_rule_says_whether_an_older_record_loses(rule: MergeRule, compares: bool) -> None:
    assert rule.compares is compares
    merge = GroupMerge(incoming(("a", 4, False)), rule, STAMP, SCHEMA)
    [[row]] = merged(merge, stored(("a", 5)))
    assert row[-1] == ("stored" if compares else "new")
    assert merge.counts.ignored == int(compares)


def test_counts_add_up_over_the_chunks() -> None:
    records = [("a", 4, False), ("b", 5, False), ("c", 5, True)]
    more = [(key.upper(), ts, gone) for key, ts, gone in records]
    merge = GroupMerge(incoming(*records, *more), BY_EVENT, STAMP, SCHEMA)
    merged(merge, stored(("a", 5), ("b", 5), ("c", 5)), stored(("A", 5), ("B", 5), ("C", 5)))
    assert merge.counts == MergeCounts(inserted=0, updated=2, deleted=2, ignored=2, written=4)


def test_deletes_by_key_need_no_other_columns() -> None:
    keys = pa.array(["b", "x"])
    flags = np.ones(2, np.bool_)
    records = IncomingRecords(keys, pa.table({"id": keys}), (), flags, flags)
    rule = MergeRule(MergeMode.COMMIT_TIME, ())
    merge = GroupMerge(records, rule, STAMP, SCHEMA)
    [part] = merged(merge, stored(("a", 1), ("b", 1), ("c", 1)))
    assert [(row[0], row[2], row[3]) for row in part] == [("old", "a", "p"), ("old", "c", "p")]
    assert merge.counts == MergeCounts(deleted=1, written=2)


@pytest.mark.parametrize("chunk_count", [3, 12])
def test_all_chunks_are_matched_by_one_table_and_copy_only_records_of_their_own_rows(
    chunk_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = spy(monkeypatch, TextTable, "of_array", len)
    copied = spy(monkeypatch, arrays, "gather", lambda parts, _: sum(map(len, parts)))
    names = [f"k{number:03d}" for number in range(10 * chunk_count)]
    chunks = [stored(*((name, 1) for name in names[at::chunk_count])) for at in range(chunk_count)]
    merge = GroupMerge(incoming(*((name, 2, False) for name in names)), BY_EVENT, STAMP, SCHEMA)
    assert [row[-1] for part in merged(merge, *chunks) for row in part] == ["new"] * len(names)
    assert built == [len(names)]
    assert copied == [10] * chunk_count * (1 + len(SCHEMA.names))
