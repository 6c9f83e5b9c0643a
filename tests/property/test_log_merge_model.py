"""The merge of log entries and base rows against a plain model that goes entry by entry."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.merge.combining import Gaps
from bucketlake.merge.incoming import IncomingRecords
from bucketlake.merge.log_records import merged_entries, merged_slice

SCHEMA = pa.schema(
    [("_hoodie_record_key", pa.string()), ("ts", pa.int64()), ("v", pa.int64()), ("w", pa.int64())]
)
KEYS = ["a", "b", "c", "d"]


@dataclass(frozen=True)
class Entry:
    """One entry of a block: a row, a part of a row, or a delete."""

    key: str
    ts: int  # Of a delete: None stands as 0 with ``reset``.
    v: int | None = None
    w: int | None = None
    deleted: bool = False
    reset: bool = False


Row = dict[str, int | None]


@st.composite
def blocks(draw: st.DrawFn, *, partial: bool) -> list[tuple[tuple[str, ...] | None, list[Entry]]]:
    """Blocks of rows, of parts of rows, or of deletes."""
    found = []
    for number in range(draw(st.integers(0, 5))):
        kinds = ["rows", "deletes", "partial"] if partial else ["rows", "deletes"]
        kind = draw(st.sampled_from(kinds))
        columns = draw(st.sampled_from([("ts", "v"), ("ts", "w")])) if kind == "partial" else None
        entries = []
        for key in draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=5)):
            ts, value = draw(st.integers(0, 4)), 100 * number + len(entries)
            if kind == "deletes":
                reset = draw(st.booleans())
                entries.append(Entry(key, 0 if reset else ts, deleted=True, reset=reset))
            else:
                v = value if columns is None or "v" in columns else None
                w = value if columns is None or "w" in columns else None
                entries.append(Entry(key, ts, v, w))
        found.append((columns, entries))
    return found


def entries_of(
    columns: tuple[str, ...] | None, entries: list[Entry], compares: bool
) -> IncomingRecords:
    deleted = np.array([e.deleted for e in entries])
    lacking = {*SCHEMA.names[1:]}.difference(SCHEMA.names if columns is None else columns)
    rows = pa.table({})
    if not deleted.any():
        rows = pa.Table.from_pylist(
            [{"_hoodie_record_key": e.key, "ts": e.ts, "v": e.v, "w": e.w} for e in entries], SCHEMA
        )
    return IncomingRecords(
        keys=pa.array([e.key for e in entries], pa.string()),
        ordering=(pa.array([e.ts for e in entries], pa.int64()),) if compares else (),
        deleted=deleted,
        is_reset=np.array([e.reset for e in entries]),
        columns=rows,
        unset={name: np.ones(len(entries), np.bool_) for name in lacking},
    )


def merged(
    found: list[tuple[tuple[str, ...] | None, list[Entry]]],
    base: dict[str, Row],
    compares: bool,
    gaps: Gaps | None = None,
) -> dict[str, Row]:
    blocks = [entries_of(columns, entries, compares) for columns, entries in found]
    stored = pa.Table.from_pylist(
        [{"_hoodie_record_key": key, **row} for key, row in base.items()], SCHEMA
    )
    chunks = [stored.slice(i, 2) for i in range(0, stored.num_rows, 2)]
    fields = ("ts",) if compares else ()
    records = merged_entries(blocks, SCHEMA, compares=compares, gaps=gaps)
    run = merged_slice(records, iter(chunks), fields, gaps)
    rows = [row for chunk in run for row in chunk.to_pylist()]
    result = {row.pop("_hoodie_record_key"): row for row in rows}
    assert len(result) == len(rows), "a key is there twice"
    return result


def model(
    found: list[tuple[tuple[str, ...] | None, list[Entry]]],
    base: dict[str, Row],
    compares: bool,
    gaps: Gaps | None = None,
) -> dict[str, Row]:
    """Merge entry by entry, the logs first; a null is like a column that is not there, if a gap."""
    current: dict[str, tuple[Entry, Row]] = {}
    for columns, entries in found:
        for entry in entries:
            values: Row = {"ts": entry.ts, "v": entry.v, "w": entry.w}
            if columns is not None:
                values = {name: values[name] for name in columns}
            if gaps is not None:
                values = {name: value for name, value in values.items() if value is not None}
            if entry.key in current:
                held, row = current[entry.key]
                wins = held.reset or entry.reset or not compares or entry.ts >= held.ts
                if not wins:
                    if not (held.deleted or entry.deleted):
                        current[entry.key] = (held, values | row)  # What it lacks comes from here.
                    continue
                if (columns is not None or gaps is not None) and not held.deleted:
                    values = row | values
            current[entry.key] = (entry, {} if entry.deleted else values)
    rows = {key: dict(row) for key, row in base.items()}
    for key, (entry, values) in current.items():
        if key in rows and compares and not entry.reset and entry.ts < (rows[key]["ts"] or 0):
            if gaps is not None and not entry.deleted:
                given = {name: value for name, value in rows[key].items() if value is not None}
                rows[key] |= values | given
            continue
        if entry.deleted:
            rows.pop(key, None)
        else:
            rows[key] = {"ts": None, "v": None, "w": None} | rows.get(key, {}) | values
    return rows


BASE = st.dictionaries(
    st.sampled_from(KEYS),
    st.fixed_dictionaries({"ts": st.integers(0, 4), "v": st.just(-1), "w": st.just(-2)}),
)


@given(found=blocks(partial=False), base=BASE, compares=st.booleans())
def test_logs_are_merged_first_and_then_meet_the_base(
    found: list[tuple[tuple[str, ...] | None, list[Entry]]], base: dict[str, Row], compares: bool
) -> None:
    assert merged(found, base, compares) == model(found, base, compares)


@given(found=blocks(partial=True), base=BASE, compares=st.booleans())
def test_parts_of_rows_override_what_they_win_over(
    found: list[tuple[tuple[str, ...] | None, list[Entry]]], base: dict[str, Row], compares: bool
) -> None:
    assert merged(found, base, compares) == model(found, base, compares)


def nulled(
    found: list[tuple[tuple[str, ...] | None, list[Entry]]], draw: st.DataObject
) -> list[tuple[tuple[str, ...] | None, list[Entry]]]:
    """Return blocks of whole rows of which some lack values."""
    return [
        (
            columns,
            [
                replace(entry, **{n: None for n in "vw" if draw.draw(st.booleans())})
                if not entry.deleted
                else entry
                for entry in entries
            ],
        )
        for columns, entries in found
    ]


@given(
    found=blocks(partial=False),
    base=st.dictionaries(
        st.sampled_from(KEYS),
        st.fixed_dictionaries(
            {
                "ts": st.integers(0, 4),
                "v": st.sampled_from([None, -1]),
                "w": st.sampled_from([None, -2]),
            }
        ),
    ),
    compares=st.booleans(),
    data=st.data(),
)
def test_gaps_take_the_values_of_rows_that_win_or_lose(
    found: list[tuple[tuple[str, ...] | None, list[Entry]]],
    base: dict[str, Row],
    compares: bool,
    data: st.DataObject,
) -> None:
    found, gaps = nulled(found, data), Gaps(nulls=True)
    assert merged(found, base, compares, gaps) == model(found, base, compares, gaps)


def one(key: str, ts: int, v: int) -> tuple[None, list[Entry]]:
    return None, [Entry(key, ts, v, v)]


def delete(key: str) -> tuple[None, list[Entry]]:
    return None, [Entry(key, 0, deleted=True, reset=True)]


def test_a_record_after_a_commit_time_delete_cancels_it_as_hudi_does() -> None:
    """Real Hudi 1.2.0: of base 10, delete, upsert 5 the old row with 10 is back."""
    base: dict[str, Row] = {"a": {"ts": 10, "v": -1, "w": -2}}
    assert merged([delete("a"), one("a", 5, 7)], base, True) == base
    found = [one("a", 12, 7), delete("a"), one("a", 11, 8)]
    assert merged(found, base, True)["a"]["ts"] == 11
    assert merged([one("a", 7, 7), delete("a")], base, True) == {}


def calls_for(blocks: int) -> int:
    """Count the calls that merging so many parts of one row takes."""
    calls = Counter[str]()
    parts = [entries_of(("ts", "v"), [Entry("a", n, v=n)], True) for n in range(blocks)]
    sys.setprofile(lambda _, event, __: calls.update([event]))
    try:
        merged_entries(parts, SCHEMA, compares=True)
    finally:
        sys.setprofile(None)
    return calls.total()


def test_many_parts_of_one_row_cost_as_much_each_as_few() -> None:
    assert calls_for(320) < 9 * calls_for(40)


def test_a_part_that_is_late_gives_what_the_greater_part_lacks_as_in_hudi() -> None:
    """Real Hudi 1.2.0, table mor_partial_updates of the golden tables: event e2."""
    base: dict[str, Row] = {"a": {"ts": 10, "v": -1, "w": -2}}
    greater = ("ts", "v"), [Entry("a", 10, v=333)]
    late = ("ts", "w"), [Entry("a", 9, w=7)]
    assert merged([greater, late], base, True) == {"a": {"ts": 10, "v": 333, "w": 7}}
    assert merged([late], base, True) == base
    found = [(("ts", "v"), [Entry("a", 12, v=333)]), one("a", 11, 8)]
    assert merged(found, base, True) == {"a": {"ts": 12, "v": 333, "w": 8}}
