"""A follower that applies the changes of each commit has the rows of the table after that commit.

Histories are random: writes of all operations, services between them and inside of them, on all
index kinds, table types and table versions. The follower is a dictionary. No model says what a
write does; the table itself is read after each step.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import bucketlake as bl
from bucketlake.errors import CommitConflictError, InputError, TimelineError
from bucketlake.storage.memory import forget
from tests.choices import DEEP
from tests.conformance.kinds import KINDS, Kind
from tests.meanwhile import meanwhile

SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("v", pa.int64()), ("at", pa.int64())]
)
FLAG = "_hoodie_is_deleted"
NUMBERS = itertools.count()

Row = dict[str, Any]
Rows = dict[tuple[str, str], Row]

BATCH = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 9)),
    min_size=1,
    max_size=6,
)
WRITES = ["upsert", "upsert", "upsert", "insert", "bulk_insert", "insert_overwrite", "delete",
          "delete_where", "drop", "update", "merge"]  # fmt: skip
SERVICES = ["compact", "plan_compaction", "resize", "plan_resize", "clean", "archive", "rescale"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(WRITES), BATCH, st.none()),
        st.tuples(st.sampled_from(SERVICES), BATCH, st.none()),
        st.tuples(st.sampled_from(WRITES), BATCH, st.sampled_from(["upsert", *SERVICES])),
    ),
    min_size=2,
    max_size=8,
)
CASES = [(kind, table_type) for kind in KINDS for table_type in kind.table_types]


@dataclass
class Follower:
    """Rows that follow a table by its changes."""

    table: bl.Table
    is_global: bool
    rows: Rows = field(default_factory=dict)
    seen: str = "000"

    def follow(self, past: Mapping[str, Rows]) -> None:
        """Apply the changes since the last ones, commit by commit; compare with noted rows."""
        found = self.table.changes_to_arrow(since=self.seen).to_pylist()
        held = {at: [*changes] for at, changes in itertools.groupby(found, _completed_at)}
        for at in sorted({*held, *(at for at in past if at > self.seen)}):
            for change in held.get(at, ()):
                self._apply(change)
            self.seen = at
            assert at not in past or self.rows == past[at], at

    def _apply(self, change: Row) -> None:
        before, after = change["before"], change["after"]
        assert change["op"] == ("i" if before is None else "d" if after is None else "u")
        assert before != after, change
        row = after if before is None else before
        key = row["day"], row["id"]
        assert self.rows.pop(key, None) == before, change
        if self.is_global and after is not None:
            assert row["id"] not in {held for _, held in self.rows}, "it was deleted before"
        if after is not None:
            self.rows[key] = after


def _completed_at(change: Row) -> str:
    return str(change["completed_at"])


@dataclass
class World:
    """A table with a random history, and its rows after each step."""

    kind: Kind
    table: bl.Table
    merges_on_read: bool
    past: dict[str, Rows] = field(default_factory=dict)
    is_cleaned: bool = False

    def run(self, step: str, batch: list[tuple[int, str, int, int]], during: str | None) -> None:
        """Write, or run a service; refusals are left out."""
        with pytest.MonkeyPatch.context() as patch:
            if during is not None:
                meanwhile(patch, lambda: self._do(during, batch[:1]))
            with suppress(CommitConflictError):
                self._do(step, batch)

    def _do(self, step: str, drawn: list[tuple[int, str, int, int]]) -> None:
        table, rows = self.table, self._rows(drawn)
        plain = pa.Table.from_pylist(rows, SCHEMA)
        steps: dict[str, Callable[[], object]] = {
            "upsert": lambda: table.upsert(
                pa.Table.from_pylist(rows, SCHEMA.append(pa.field(FLAG, pa.bool_())))
            ),
            "insert": lambda: table.insert(plain),
            "bulk_insert": lambda: table.bulk_insert(plain),
            "insert_overwrite": lambda: table.insert_overwrite(plain),
            "delete": lambda: table.delete(plain.select(["id", "day"])),
            "delete_where": lambda: table.delete(where=f"v = {rows[0]['v']}"),
            "drop": lambda: table.delete_partitions([rows[0]["day"]]),
            "update": lambda: table.update({"v": "v + 1"}, where=f"id >= '{rows[0]['id']}'"),
            "merge": lambda: (
                table.merge(plain, on="t.id = s.id AND t.day = s.day")
                .when_matched_update({"v": "s.v + 10"})
                .when_not_matched_insert_all()
                .execute()
            ),
            "compact": table.compact,
            "plan_compaction": lambda: table.compact(schedule_only=True),
            "resize": lambda: table.resize(max_file_size=1, max_groups=100),
            "plan_resize": lambda: table.resize(
                max_file_size=1, max_groups=100, schedule_only=True
            ),
            "clean": self._clean,
            "archive": lambda: table.archive(keep_min=2, keep_max=3),
            "convert": lambda: table.convert(bl.DynamicBucket(max_records=4)),
            "rescale": lambda: table.rescale({"a": len(drawn)}, dry_run=False),
        }
        if not self._fits(step):
            return
        with suppress(InputError):  # bulk_insert of stored keys, rows that are there twice.
            steps[step]()

    def _fits(self, step: str) -> bool:
        kind = self.kind
        if "compact" in step:
            return self.merges_on_read
        if "resize" in step:
            return isinstance(kind.index, bl.ConsistentBucket | bl.ExtendibleBucket)
        return step != "rescale" or kind.is_rescaled

    def _clean(self) -> None:
        self.is_cleaned = True
        self.table.clean(retain_commits=3)

    def _rows(self, drawn: list[tuple[int, str, int, int]]) -> list[Row]:
        at = next(NUMBERS)
        found = [
            {"id": f"k{number}", "day": day, "v": v, "at": at, FLAG: flag == 0}
            for number, day, v, flag in drawn
        ]
        by_key = {row["id"] if self.kind.keys_are_global else (row["id"], row["day"]): row
                  for row in found}  # fmt: skip
        return list(by_key.values())

    def rows(self) -> Rows:
        """Return the rows of the table."""
        return {(row["day"], row["id"]): row for row in self.table.to_arrow().to_pylist()}

    def note(self) -> None:
        """Note the rows after the last commit."""
        times = [found.completed_at for found in self.table.timeline() if found.completed_at]
        if times:
            self.past[max(times)] = self.rows()


@contextmanager
def world(kind: Kind, table_type: str, *, ordering: str | None) -> Iterator[World]:
    name = f"changes-{next(NUMBERS)}"
    table = bl.create_table(
        f"memory://{name}/t", schema=SCHEMA, record_key=kind.record_key("day"),
        partition_by=["day"], index=kind.index, table_type=table_type, version=kind.version,
        ordering=ordering,
    )  # fmt: skip
    try:
        yield World(kind, table, table_type == "merge_on_read")
    finally:
        forget(f"{name}/t")


KEYS = [(number, "a", 1, 1) for number in range(4)]
GLOBAL = next(kind for kind in KINDS if kind.keys_are_global)
RINGS = next(kind for kind in KINDS if kind.name == "extendible")
MOVED = [("upsert", KEYS, None), ("insert_overwrite", [(1, "b", 2, 2)], None),
         ("upsert", [(2, "a", 3, 3)], None)]  # fmt: skip
CONVERTED = [("upsert", KEYS, None), ("convert", KEYS, None), ("upsert", KEYS[:2], None)]
OVERTAKEN = [("upsert", KEYS, None), ("plan_resize", KEYS, None), ("upsert", KEYS, "resize"),
             ("upsert", KEYS[:2], None)]  # fmt: skip


@example(case=(KINDS[0], "merge_on_read"), ordering="at", steps=CONVERTED)
@example(case=(GLOBAL, "copy_on_write"), ordering=None, steps=MOVED)
@example(case=(RINGS, "merge_on_read"), ordering="at", steps=OVERTAKEN)
@settings(max_examples=5_000 if DEEP else 10)
@given(case=st.sampled_from(CASES), ordering=st.sampled_from(["at", None]), steps=STEPS)
def test_a_follower_of_changes_has_the_rows_of_the_table(
    case: tuple[Kind, str], ordering: str | None, steps: list[Any]
) -> None:
    is_global = case[0].keys_are_global
    with world(*case, ordering=ordering) as here:
        follower = Follower(here.table, is_global)
        for step in steps:
            here.run(*step)
            here.note()
            follower.follow(here.past)
        starts = {"000": {}, **here.past}
        for seen, rows in starts.items():
            try:
                Follower(here.table, is_global, dict(rows), seen).follow(here.past)
                break
            except TimelineError:
                assert here.is_cleaned
