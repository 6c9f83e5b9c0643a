"""For all histories of writes, a table under a record-level index equals a dictionary of rows.

After each write the index is compared with the rows: each row is where its entry says, and other
entries are only those of keys whose delete an ordering value might have rejected.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bucketlake as bl
from bucketlake.model.table_type import TableType
from bucketlake.services.check.findings import Severity
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline.instant import system_now_ms
from bucketlake.write import write_plan
from bucketlake.write.record_index import lookups
from tests.bounds import set_bounds
from tests.choices import DEEP, combinations

FLAG = "_hoodie_is_deleted"
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("day", pa.string()),
        ("at", pa.int64()),
        ("v", pa.int64()),
        (FLAG, pa.bool_()),
    ]
)
DAYS = ("a", "b", "c")
_numbers = itertools.count()
_values = itertools.count()

Row = dict[str, Any]

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(0, 40).map("k{}".format),
            "day": st.sampled_from(DAYS),
            "at": st.integers(0, 9),
            FLAG: st.sampled_from([False, False, False, True]),
        }
    ),
    min_size=1,
    max_size=30,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), ROWS),
        st.tuples(st.just("upsert"), ROWS),
        st.tuples(st.just("delete"), ROWS),
        st.tuples(st.sampled_from(["overwrite", "overwrite_table"]), ROWS),
        st.tuples(st.just("drop"), st.sampled_from(DAYS)),
        st.tuples(st.just("compact"), st.none()),
    ),
    min_size=2,
    max_size=7,
)


@dataclass
class Model:
    """A table and the rows that it should have.

    A merge-on-read table keeps the ordering value of a delete until it is compacted: the key has an
    entry, so an earlier record goes into the same file group and loses. A delete without an
    ordering value hides the stored row only from reads: if a record with a smaller ordering value
    than the row's follows before a compaction, the row is back, as in Hudi. So the table is
    compacted after such a delete.
    """

    partitioned: bool
    ordered: bool
    table: bl.Table
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    tombstones: dict[tuple[str, str], int] = field(default_factory=dict)
    may_be_dead: set[tuple[str, str]] = field(default_factory=set)
    hides_rows: bool = False

    @property
    def merges_on_read(self) -> bool:
        return self.table.config().table_type is TableType.MERGE_ON_READ

    def run(self, step: str, value: Any) -> None:
        if step in ("upsert", "overwrite", "overwrite_table"):
            rows = [row | {"v": next(_values)} for row in value]
            batch = pa.Table.from_pylist(rows, SCHEMA)
            if step == "upsert":
                self.table.upsert(batch)
            else:
                self.table.insert_overwrite(batch, whole_table=step == "overwrite_table")
                touched = DAYS if step == "overwrite_table" else {row["day"] for row in rows}
                self.forget(touched)
            for row in self.winners(rows):
                self.apply(row)
        elif step == "delete":
            self.table.delete(pa.Table.from_pylist(value, SCHEMA).select(["id", "day"]))
            for row in value:
                self.remove(self.held(row))
        elif step == "drop" and any(b.partition_path == value for b in self.table.buckets()):
            self.table.delete_partitions(value)
            self.forget([value])
        if self.merges_on_read and (step == "compact" or (self.ordered and self.hides_rows)):
            self.table.compact()
            self.tombstones.clear()
            self.hides_rows = False

    def winners(self, rows: list[Row]) -> list[Row]:
        """Return one row for each key: that with the greatest ordering value, then the last."""
        found: dict[tuple[str, str], Row] = {}
        for row in rows:
            key = ("" if not self.partitioned else row["day"], row["id"])
            if key not in found or not self.ordered or row["at"] >= found[key]["at"]:
                found[key] = row
        return [*found.values()]

    def held(self, row: Row) -> tuple[str, str]:
        """Return the key under which the row of a record is, or would be."""
        if not self.partitioned:
            for key in (*self.rows, *self.tombstones, *self.may_be_dead):
                if key[1] == row["id"]:
                    return key
        return row["day"], row["id"]

    def apply(self, row: Row) -> None:
        key, own = self.held(row), (row["day"], row["id"])
        stored = self.rows.get(key)
        if self.ordered and stored is not None and row["at"] < stored["at"]:
            return
        is_here = key == own or row[FLAG]
        if self.ordered and is_here and row["at"] < self.tombstones.get(key, row["at"]):
            return
        was_known = stored is not None or key in self.tombstones or key in self.may_be_dead
        self.hides_rows |= not is_here
        self.rows.pop(key, None)
        self.tombstones.pop(key, None)
        if not row[FLAG]:
            self.may_be_dead.discard(key)
            self.rows[own] = {name: row[name] for name in ("id", "day", "at", "v")}
        elif was_known:
            if self.ordered and self.merges_on_read:
                self.tombstones[key] = row["at"]
            if self.ordered or self.merges_on_read:
                self.may_be_dead.add(key)

    def remove(self, key: tuple[str, str]) -> None:
        was_known = key in self.rows or key in self.may_be_dead
        self.hides_rows = True
        self.rows.pop(key, None)
        self.tombstones.pop(key, None)
        self.may_be_dead.discard(key)
        if was_known and self.merges_on_read:
            self.may_be_dead.add(key)

    def forget(self, days: Any) -> None:
        for held in (self.rows, self.tombstones):
            for key in [key for key in held if key[0] in days]:
                del held[key]
        self.may_be_dead = {key for key in self.may_be_dead if key[0] not in days}

    def check(self) -> None:
        meta = ["_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name"]
        found = self.table.to_arrow(columns=["id", "day", "at", "v", *meta]).to_pylist()
        key_of = lambda row: (row["day"], row["id"])  # noqa: E731
        plain = [{name: row[name] for name in ("id", "day", "at", "v")} for row in found]
        assert sorted(plain, key=key_of) == sorted(self.rows.values(), key=key_of)
        live = {(bucket.partition_path, bucket.file_id) for bucket in self.table.buckets()}
        entries: dict[tuple[str, str], str] = {}
        for day in DAYS:
            for entry in self.table.record_locations(day).to_pylist():
                key = entry["partition_path"], entry["record_key"]
                assert key not in entries, f"{key} has two entries"
                assert (day, entry["file_id"]) in live, f"{key} is in a group that is not live"
                entries[key] = entry["file_id"]
        for row in found:
            file_id = row["_hoodie_file_name"].partition("_")[0]
            assert entries[row["_hoodie_partition_path"], row["id"]] == file_id
        dead = entries.keys() - {(row["day"], row["id"]) for row in found}
        assert dead <= self.may_be_dead, f"dead entries {dead - self.may_be_dead}"
        if not self.partitioned:
            assert len({name for _, name in entries}) == len(entries), "a key has two entries"
        wrong = [
            finding
            for finding in self.table.doctor(check_keys=True, min_age_seconds=0)
            if finding.severity is not Severity.NOTE
        ]
        assert not wrong, wrong


@contextmanager
def new_model(*, partitioned: bool, ordered: bool, table_type: str) -> Iterator[Model]:
    """Give a model with an empty table in memory."""
    name = f"record-index-{next(_numbers)}"
    MemoryStorage(name, system_now_ms)
    table = bl.create_table(
        f"memory://{name}",
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["day"],
        ordering="at" if ordered else None,
        index=bl.RecordIndex(partitioned, max_file_size=2_500, small_file_limit=2_200),
        table_type=table_type,
    )
    try:
        yield Model(partitioned, ordered, table)
    finally:
        forget(name)


@pytest.mark.parametrize(
    ("partitioned", "ordered", "table_type"),
    combinations(
        [True, False, False, True],
        [True, True, False, False],
        ["copy_on_write", "merge_on_read", "copy_on_write", "merge_on_read"],
    ),
)
@settings(
    max_examples=500 if DEEP else 4,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS, are_cut=st.booleans())
def test_histories_of_writes_give_the_rows_and_entries_of_a_dictionary(
    monkeypatch: pytest.MonkeyPatch,
    partitioned: bool,
    ordered: bool,
    table_type: str,
    steps: list[tuple[str, Any]],
    are_cut: bool,
) -> None:
    with (
        monkeypatch.context() as patch,
        new_model(partitioned=partitioned, ordered=ordered, table_type=table_type) as model,
    ):
        if are_cut:  # Several tasks share the lookups of one shard.
            set_bounds(patch, write_plan, RECORDS_PER_TASK_MAX=3)
            set_bounds(patch, lookups, LOOKED_UP_MAX=5)
        for step, value in steps:
            model.run(step, value)
            model.check()
