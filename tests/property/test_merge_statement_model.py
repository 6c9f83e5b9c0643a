"""Merges of Arrow tables, compared with a loop over rows: any clauses, rows and conditions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count
from unittest import mock

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import bucketlake as bl
from bucketlake.errors import InputError
from bucketlake.storage.memory import forget
from bucketlake.write import arrow_merge
from bucketlake.write.merge_statement import Effect, Match
from tests.merge_model import AmbiguousError, Part, Row, When, merged

SCHEMA = pa.schema({"id": pa.string(), "day": pa.string(), "n": pa.int64(), "at": pa.int64()})
NUMBERS = count()


def less(one: int | None, other: int | None) -> bool | None:
    return None if one is None or other is None else one < other


ON: list[Part] = [
    ("t.id = s.id AND t.day = s.day", lambda t, s: t["id"] == s["id"] and t["day"] == s["day"]),
    ("t.id = s.id AND s.day = t.day AND t.n < 3",
     lambda t, s: t["id"] == s["id"] and t["day"] == s["day"] and less(t["n"], 3)),
    ("t.n = s.n", lambda t, s: t["n"] is not None and t["n"] == s["n"]),
    ("(t.day = s.day) AND t.n < s.n", lambda t, s: t["day"] == s["day"] and less(t["n"], s["n"])),
    ("t.id = 'a' AND s.n = 1", lambda t, s: t["id"] == "a" and s["n"] == 1),
]  # fmt: skip
OF_BOTH: list[Part | None] = [
    None,
    ("t.n < s.n", lambda t, s: less(t["n"], s["n"])),
    ("s.n IS NULL OR t.at = 1", lambda t, s: s["n"] is None or t["at"] == 1),
    ("NOT (s.n = 2)", lambda t, s: None if s["n"] is None else s["n"] != 2),
]
OF_SOURCE: list[Part | None] = [None, ("n > 1", lambda t, s: less(1, s["n"])),
                                ("s.day IN ('x')", lambda t, s: s["day"] == "x")]  # fmt: skip
OF_TABLE: list[Part | None] = [None, ("n = 2", lambda t, s: t["n"] == 2),
                               ("t.day = 'x'", lambda t, s: t["day"] == "x")]  # fmt: skip
UPDATES = [
    None,
    {"n": ("coalesce(t.n, 0) + 10", lambda t, s: (t["n"] or 0) + 10)},
    {"n": ("s.n", lambda t, s: s["n"]), "at": ("s.at", lambda t, s: s["at"])},
]
INSERTS = [
    None,
    {
        "id": ("concat(s.id, 'x')", lambda t, s: f"{s['id']}x"),
        "day": ("day", lambda t, s: s["day"]),
        "at": ("7", lambda t, s: 7),
    },
    {name: (f"s.{name}", lambda t, s, name=name: s[name]) for name in ("id", "day", "at")},
]
OWN_UPDATES = [{"n": ("t.n + 1", lambda t, s: None if t["n"] is None else t["n"] + 1)}]

rows = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.sampled_from("abcd"),
            "day": st.sampled_from("xy"),
            "n": st.sampled_from([None, 1, 2, 3]),
            "at": st.sampled_from([1, 2, 3]),
        }
    ),
    min_size=1,
    max_size=5,
)


@st.composite
def whens(draw: st.DrawFn) -> list[When]:
    """Draw clauses in which the last of each kind may have no condition."""
    found: list[When] = []
    for match, conditions, updates in (
        (Match.MATCHED, OF_BOTH, UPDATES),
        (Match.NOT_MATCHED, OF_SOURCE, None),
        (Match.BY_SOURCE, OF_TABLE, OWN_UPDATES),
    ):
        for last in draw(st.sampled_from([(), (True,), (True,), (False, True)])):
            condition = draw(st.sampled_from(conditions if last else conditions[1:]))
            if updates is None:
                values = draw(st.sampled_from(INSERTS))
                found.append(When(match, Effect.INSERT, condition, values))
            elif draw(st.booleans()):
                found.append(When(match, Effect.DELETE, condition))
            else:
                values = draw(st.sampled_from(updates))
                found.append(When(match, Effect.UPDATE, condition, values))
    return found


def is_key(on: str) -> bool:
    return on in {ON[0][0], ON[1][0]}


def by_key(given_rows: Sequence[Row]) -> list[Row]:
    return [*{(row["id"], row["day"]): row for row in given_rows}.values()]


@given(rows, rows, st.sampled_from(ON), whens(), st.booleans(), st.booleans(), st.integers(1, 4))
def test_a_merge_does_what_its_clauses_say(
    stored: list[Row],
    source: list[Row],
    on: Part,
    clauses: list[When],
    ordered: bool,
    logs: bool,
    block: int,
) -> None:
    if not clauses or (
        not is_key(on[0]) and any(w.values is None and w.effect is Effect.UPDATE for w in clauses)
    ):
        return  # It is refused: such an update may change keys.
    stored, name = by_key(stored), f"merge-model-{next(NUMBERS)}"
    table = bl.create_table(
        f"memory://{name}",
        schema=SCHEMA,
        record_key="id",
        partition_by="day",
        ordering="at" if ordered else None,
        index=bl.SimpleBucket(2),
        table_type="merge_on_read" if logs else "copy_on_write",
        metadata_table=False,
    )
    patched = mock.patch.object(arrow_merge, "BLOCK_PAIRS", block)
    patched.start()
    try:
        table.upsert(pa.Table.from_pylist(stored, SCHEMA))
        merge = table.merge(pa.Table.from_pylist(source, SCHEMA), on[0])
        for when in clauses:
            merge = when.added_to(merge)
        try:
            expected, effects = merged(
                stored, source, on[1], clauses, lambda row: (row["id"], row["day"]),
                "at" if ordered else None,
            )  # fmt: skip
        except AmbiguousError:
            before = len(table.timeline())
            try:
                merge.execute()
            except InputError:
                assert len([e for e in table.timeline() if e.completed_at]) == before
                assert ordered_rows(table.to_arrow().to_pylist()) == ordered_rows(stored)
                return
            raise AssertionError("two rows changed one row of the table") from None
        result = merge.execute()
        assert ordered_rows(table.to_arrow().to_pylist()) == ordered_rows(expected)
        found = Counter({Effect.INSERT: result.inserted, Effect.UPDATE: result.updated,
                         Effect.DELETE: result.deleted, Effect.IGNORE: result.ignored})  # fmt: skip
        if result.updated is not None:  # An upsert to log files does not know it.
            assert found == effects
    finally:
        patched.stop()
        forget(name)


def ordered_rows(found: Sequence[Row]) -> list[Row]:
    return sorted(found, key=lambda row: (row["id"], row["day"]))
