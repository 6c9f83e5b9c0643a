"""For all sequences of resizes and writes: a table equals a dictionary, and its rings are whole."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import bucketlake as bl
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline.instant import system_now_ms
from tests.choices import DEEP
from tests.ring_tables import (
    MERGE_ALL,
    SPLIT_ALL,
    keyed,
    make_table,
    require_sound,
    ring_of,
    rows,
    values,
)

_numbers = itertools.count()

KEYS = st.lists(st.integers(0, 60), min_size=1, max_size=25, unique=True)
TYPES = st.sampled_from(["copy_on_write", "merge_on_read"])
POLICIES = st.sampled_from(["middle", "balanced"])
EXECUTE: dict[str, Any] = {"max_file_size": 1 << 40, "merge_threshold": 0.0}

SPLITS = st.fixed_dictionaries(
    {"split_at": POLICIES, "split_into": st.integers(2, 4), "max_groups": st.integers(1, 3)}
).map(lambda given: SPLIT_ALL | given)
MERGES = st.just(MERGE_ALL)
BETWEEN = st.fixed_dictionaries(
    {
        "max_file_size": st.integers(2_000, 9_000),
        "split_threshold": st.just(1.0),
        "merge_threshold": st.just(0.5),
        "split_at": POLICIES,
    }
)
RESIZES = st.one_of(SPLITS, MERGES, BETWEEN)
STEPS = st.one_of(
    st.tuples(st.just("resize"), RESIZES),
    st.tuples(st.just("plan"), RESIZES),
    st.tuples(st.just("execute"), st.none()),
    st.tuples(st.sampled_from(["upsert", "delete"]), KEYS),
    st.tuples(st.just("compact"), st.none()),
)


def with_table(
    check: Callable[[bl.Table], None],
    table_type: str,
    index: bl.ConsistentBucket | bl.ExtendibleBucket,
) -> None:
    """Check with a new table in memory."""
    name = f"resizes-{next(_numbers)}"
    MemoryStorage(name, system_now_ms)
    try:
        check(make_table(f"memory://{name}", index, table_type=table_type))
    finally:
        forget(name)


@settings(max_examples=500 if DEEP else 8)
@given(
    keys=st.sets(st.integers(0, 10_000), min_size=1, max_size=60),
    table_type=TYPES,
    initial=st.integers(1, 4),
    policy=POLICIES,
    parts=st.integers(2, 4),
)
def test_a_split_and_then_a_merge_restore_the_rows(
    keys: set[int], table_type: str, initial: int, policy: str, parts: int
) -> None:
    def check(table: bl.Table) -> None:
        columns = ["id", "v", "text", "_hoodie_commit_time", "_hoodie_commit_seqno"]
        table.upsert(rows(sorted(keys)))
        before = table.to_arrow(columns=columns).sort_by("id")
        table.resize(**SPLIT_ALL, split_at=policy, split_into=parts)
        require_sound(table)
        assert table.to_arrow(columns=columns).sort_by("id").equals(before)
        table.resize(**MERGE_ALL)
        require_sound(table)
        assert len(table.buckets()) == 1 or len(ring_of(table)) > 1
        assert table.to_arrow(columns=columns).sort_by("id").equals(before)

    with_table(check, table_type, bl.ConsistentBucket(initial, max=12))


@settings(max_examples=1_000 if DEEP else 12)
@given(
    steps=st.lists(STEPS, min_size=3, max_size=9),
    table_type=TYPES,
    initial=st.integers(1, 4),
    has_directory=st.booleans(),
)
def test_a_table_equals_a_dictionary_after_any_resizes_and_writes(
    steps: list[tuple[str, Any]], table_type: str, initial: int, has_directory: bool
) -> None:
    def limits(wanted: dict[str, Any]) -> dict[str, Any]:
        """A directory splits in halves, whatever else was drawn."""
        ignored = ("split_at", "split_into") if has_directory else ()
        return {name: value for name, value in wanted.items() if name not in ignored}

    def check(table: bl.Table) -> None:
        expected = keyed(range(30))
        table.upsert(rows(range(30)))
        for place, (step, wanted) in enumerate(steps, 1):
            if step == "upsert":
                table.upsert(rows(wanted, place))
                expected |= keyed(wanted, place)
            elif step == "delete":
                table.delete(rows(wanted).select(["id", "day"]))
                expected = {key: v for key, v in expected.items() if key not in keyed(wanted)}
            elif step == "plan":
                table.resize(**limits(wanted), schedule_only=True)
            elif step == "compact":
                if table_type == "merge_on_read":
                    table.compact()
            else:
                table.resize(**limits(wanted or EXECUTE))
            assert values(table) == expected, step
        table.resize(**EXECUTE)
        assert values(table) == expected
        assert 1 <= len(ring_of(table)) <= (16 if has_directory else 12)
        require_sound(table)

    with_table(
        check,
        table_type,
        bl.ExtendibleBucket(initial, 4) if has_directory else bl.ConsistentBucket(initial, max=12),
    )
