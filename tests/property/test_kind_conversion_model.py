"""For all histories of writes around a conversion to dynamic buckets, a table equals a dictionary.

The ordering values grow from write to write, so the later write of a key wins under every kind.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import bucketlake as bl
from bucketlake.index.setting import TableIndex
from bucketlake.model.table_type import TableType
from bucketlake.services.check.findings import Severity
from bucketlake.slices.file_system_view import list_files
from bucketlake.storage.location import open_storage
from bucketlake.storage.memory import forget
from tests.choices import DEEP, combinations, some

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("at", pa.int64())])
DAYS = ("a", "b")
DYNAMIC = bl.DynamicBucket(max_records=6, assigners=2)
KINDS: dict[str, TableIndex] = {
    "simple": bl.SimpleBucket(3),
    "several_groups": bl.SimpleBucket(2, max_file_size=1_500),
    "rules": bl.PartitionBucket({"a": 2}, default=3),
    "rings": bl.ConsistentBucket(2),
    "record_index": bl.RecordIndex(max_file_size=1_500),
    "global_record_index": bl.RecordIndex(partitioned=False),
}
_numbers = itertools.count()

KEYS = st.lists(st.tuples(st.integers(0, 25), st.sampled_from(DAYS)), min_size=1, max_size=20)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), KEYS),
        st.tuples(st.just("upsert"), KEYS),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("overwrite"), KEYS),
        st.tuples(st.just("drop"), st.sampled_from(DAYS)),
        st.tuples(st.sampled_from(["compact", "clean", "resize"]), st.none()),
    ),
    min_size=1,
    max_size=4,
)

Rows = dict[tuple[str, str], int]


@dataclass
class Model:
    """A table, and the rows that it should have now and at each instant."""

    table: bl.Table
    is_global: bool
    has_rings: bool
    rows: Rows = field(default_factory=dict)
    past: dict[str, Rows] = field(default_factory=dict)
    is_cleaned: bool = False

    def run(self, step: str, value: Any) -> None:
        at = next(_numbers)
        result: bl.WriteResult | None = None
        if step in ("upsert", "overwrite"):
            keys = dict.fromkeys((day, f"k{number}") for number, day in value)
            if self.is_global:  # The last of several records of a key is written.
                keys = dict.fromkeys({key: (day, key) for day, key in keys}.values())
            found = [{"id": key, "day": day, "at": at} for day, key in keys]
            batch = pa.Table.from_pylist(found, SCHEMA)
            if step == "upsert":
                result = self.table.upsert(batch)
            else:
                result = self.table.insert_overwrite(batch)
                self.forget({day for day, _ in keys})
            if self.is_global:
                written = {key for _, key in keys}
                self.rows = {held: v for held, v in self.rows.items() if held[1] not in written}
            self.rows |= dict.fromkeys(keys, at)
        elif step == "delete":
            found = [{"id": f"k{number}", "day": day} for number, day in value]
            result = self.table.delete(pa.Table.from_pylist(found, SCHEMA.remove(2)))
            gone = {(day, f"k{number}") for number, day in value}
            names = {key for _, key in gone}
            self.rows = {
                held: v
                for held, v in self.rows.items()
                if not (held[1] in names if self.is_global else held in gone)
            }
        elif step == "drop" and any(b.partition_path == value for b in self.table.buckets()):
            result = self.table.delete_partitions(value)
            self.forget({value})
        elif step == "compact" and self.table.config().table_type is TableType.MERGE_ON_READ:
            self.table.compact()
        elif step == "clean":
            self.is_cleaned |= bool(self.table.clean(retain_commits=1).partitions)
        elif step == "resize" and self.has_rings:
            self.table.resize(max_file_size=1_000)
        if result is not None and result.instant is not None:
            self.past[result.instant] = dict(self.rows)

    def forget(self, days: set[str]) -> None:
        self.rows = {held: v for held, v in self.rows.items() if held[0] not in days}

    def convert(self) -> None:
        storage = open_storage(self.table.path)
        before = {file.path for file in list_files(storage, DAYS)}
        report = self.table.convert(DYNAMIC, dry_run=False)
        assert {file.path for file in list_files(storage, DAYS)} == before, "no file is rewritten"
        assert report.instant is not None
        assert bl.open_table(self.table.path).index == DYNAMIC
        self.past[report.instant] = dict(self.rows)
        self.is_global = self.has_rings = False

    def check(self) -> None:
        assert rows_of(self.table) == self.rows
        live = {(bucket.partition_path, bucket.file_id) for bucket in self.table.buckets()}
        entries: dict[tuple[str, str], str] = {}
        for day in DAYS:
            for entry in self.table.record_locations(day).to_pylist():
                assert (day, entry["file_id"]) in live
                entries[day, entry["record_key"]] = entry["file_id"]
        assert entries.keys() >= self.rows.keys()
        for day, key in some([*self.rows], 3):
            (found,) = self.table.locate(key, day)
            assert found.file_id == entries[day, key]
            condition = f"id = '{key}' and day = '{day}'"
            assert rows_of(self.table, where=condition) == {(day, key): self.rows[day, key]}
        findings = self.table.doctor(check_keys=True, min_age_seconds=0)
        assert not [found for found in findings if found.severity is not Severity.NOTE]

    def check_past(self) -> None:
        for instant, rows in self.past.items():
            assert rows_of(self.table, as_of=instant) == rows
            for day, key in some([*rows], 2):
                condition = f"id = '{key}'"
                found = rows_of(self.table, as_of=instant, where=condition)
                assert found[day, key] == rows[day, key]


def rows_of(table: bl.Table, **given: Any) -> Rows:
    found = table.to_arrow(columns=["id", "day", "at"], **given).to_pylist()
    rows = {(row["day"], row["id"]): row["at"] for row in found}
    assert len(rows) == len(found), "no key is stored twice"
    return rows


@contextmanager
def new_model(kind: str, table_type: str) -> Iterator[Model]:
    name = f"conversions-{next(_numbers)}"
    try:
        table = bl.create_table(
            f"memory://{name}",
            schema=SCHEMA,
            record_key="id",
            partition_by="day",
            ordering="at",
            index=KINDS[kind],
            table_type=table_type,
        )
        yield Model(table, kind == "global_record_index", kind == "rings")
    finally:
        forget(name)


@pytest.mark.parametrize(
    ("kind", "table_type"), combinations([*KINDS], ["copy_on_write", "merge_on_read"])
)
@pytest.mark.filterwarnings("ignore::bucketlake.errors.MetadataTableWarning")
@given(before=STEPS, after=STEPS)
@example(before=[("drop", "b")], after=[("drop", "a")])  # An index of no rows.
@example(before=[("drop", "a")], after=[("upsert", [(0, "a")])])
@settings(
    max_examples=200 if DEEP else 2, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
def test_a_table_equals_a_dictionary_before_and_after_its_conversion(
    kind: str, table_type: str, before: list[tuple[str, Any]], after: list[tuple[str, Any]]
) -> None:
    with new_model(kind, table_type) as model:
        model.run("upsert", [(number, day) for number in range(8) for day in DAYS])
        for step, value in before:
            model.run(step, value)
        model.convert()
        model.check()
        for step, value in after:
            model.run(step, value)
            model.check()
        if not model.is_cleaned:
            model.check_past()
