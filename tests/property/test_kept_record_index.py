"""For all histories of writes, other index kinds keep a record-level index equal to the rows.

After each write the entries are compared with the rows that a read returns: each row has one entry,
which names its file group. Other entries are only those of keys whose delete has an ordering value
in a log file, because no merge has decided it yet.
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
from bucketlake.index.setting import TableIndex
from bucketlake.model.table_type import TableType
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline.instant import system_now_ms
from tests.choices import DEEP, every_second

FLAG = "_hoodie_is_deleted"
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("day", pa.string()),
        ("at", pa.int64()),
        (FLAG, pa.bool_()),
    ]
)
DAYS = ("a", "b", "c")
KINDS: dict[str, TableIndex] = {
    "simple": bl.SimpleBucket(3),
    "several groups": bl.SimpleBucket(2, max_file_size=2_000),
    "partition": bl.PartitionBucket({"a": 3}, default=2),
    "consistent": bl.ConsistentBucket(2, max=8),
}
_numbers = itertools.count()

Row = dict[str, Any]
Key = tuple[str, str]

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "number": st.integers(0, 30),
            "day": st.sampled_from(DAYS),
            "at": st.integers(0, 9),
            FLAG: st.sampled_from([False, False, False, True]),
        }
    ),
    min_size=1,
    max_size=25,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), ROWS),
        st.tuples(st.just("upsert"), ROWS),
        st.tuples(st.just("delete"), ROWS),
        st.tuples(st.sampled_from(["overwrite", "overwrite_table"]), ROWS),
        st.tuples(st.just("drop"), st.sampled_from(DAYS)),
        st.tuples(st.sampled_from(["compact", "undo", "rescale", "resize"]), st.none()),
    ),
    min_size=2,
    max_size=7,
)


@dataclass
class Kept:
    """A table of another index kind with a record-level index, and which keys may be dead."""

    table: bl.Table
    partitioned: bool
    ordered: bool
    newest: str | None = None
    may_be_dead: set[Key] = field(default_factory=set)
    splits: bool = True

    @property
    def merges_on_read(self) -> bool:
        return self.table.config().table_type is TableType.MERGE_ON_READ

    def run(self, step: str, value: Any) -> None:
        index = self.table.index
        match step:
            case "upsert" | "overwrite" | "overwrite_table":
                # A global index has each key once, so keys contain the partition.
                rows = [
                    {name: row[name] for name in ("day", "at", FLAG)}
                    | {"id": f"{row['day']}{row['number']}"}
                    for row in value
                ]
                batch = pa.Table.from_pylist(rows, SCHEMA)
                if step == "upsert":
                    self.newest = self.table.upsert(batch).instant
                else:
                    whole = step == "overwrite_table"
                    self.newest = self.table.insert_overwrite(batch, whole_table=whole).instant
                if self.merges_on_read and self.ordered:
                    self.may_be_dead |= {(row["day"], row["id"]) for row in rows if row[FLAG]}
            case "delete":
                keys = [{"id": f"{row['day']}{row['number']}", "day": row["day"]} for row in value]
                self.newest = self.table.delete(pa.Table.from_pylist(keys)).instant
            case "drop" if any(b.partition_path == value for b in self.table.buckets()):
                self.newest = self.table.delete_partitions(value).instant
            case "compact" if self.merges_on_read:
                self.table.compact()
                self.newest = None
            case "undo" if self.newest is not None:
                self.table.rollback(self.newest)
                self.newest = None
            case "rescale" if isinstance(index, bl.PartitionBucket):
                count = 5 if index.count_of("a") != 5 else 4
                self.table.rescale({"a": count, "b": 4}, default=2, dry_run=False)
                self.newest = None
            case "resize" if isinstance(index, bl.ConsistentBucket):
                self.table.resize(max_file_size=1 if self.splits else 10**9)
                self.splits, self.newest = not self.splits, None

    def check(self) -> None:
        meta = ["_hoodie_record_key", "_hoodie_file_name"]
        rows: dict[Key, str] = {}
        for row in self.table.to_arrow(columns=["id", "day", *meta]).to_pylist():
            rows[row["day"], row["id"]] = row["_hoodie_file_name"].partition("_")[0]
        entries: dict[Key, str] = {}
        for day in DAYS:
            for entry in self.table.record_locations(day).to_pylist():
                assert entry["partition_path"] == day
                entries[day, entry["record_key"]] = entry["file_id"]
        assert {key: entries.get(key) for key in rows} == rows
        dead = entries.keys() - rows.keys()
        assert dead <= self.may_be_dead, f"dead entries {dead - self.may_be_dead}"


@contextmanager
def new_table(
    index: TableIndex, *, partitioned: bool, ordered: bool, table_type: str
) -> Iterator[Kept]:
    """Give an empty table in memory with a record-level index."""
    name = f"kept-index-{next(_numbers)}"
    MemoryStorage(name, system_now_ms)
    table = bl.create_table(
        f"memory://{name}",
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["day"],
        ordering="at" if ordered else None,
        index=index,
        table_type=table_type,
    )
    table.rebuild_metadata_table(["record_index"], partitioned=partitioned)
    try:
        yield Kept(table, partitioned, ordered)
    finally:
        forget(name)


@pytest.mark.parametrize(
    ("kind", "table_type", "partitioned"),
    every_second([*KINDS], ["copy_on_write", "merge_on_read"], [True, False]),
)
@settings(
    max_examples=300 if DEEP else 3,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS, ordered=st.booleans())
def test_writes_of_other_kinds_keep_the_index_equal_to_the_rows(
    kind: str,
    table_type: str,
    partitioned: bool,
    steps: list[tuple[str, Any]],
    ordered: bool,
) -> None:
    with new_table(
        KINDS[kind], partitioned=partitioned, ordered=ordered, table_type=table_type
    ) as kept:
        for step, value in steps:
            kept.run(step, value)
            kept.check()
