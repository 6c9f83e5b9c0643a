"""Upserts that combine columns with stored rows, for each index kind, against a plain model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import bucketlake as bl
from bucketlake.errors import InputError
from bucketlake.model.row_merge import RowMerge
from bucketlake.model.table_type import Operation
from bucketlake.services.check.findings import Severity
from bucketlake.timeline.table_properties import table_at
from bucketlake.write.ingest import write_records
from bucketlake.write.target import open_target
from tests.conformance.cases import FLAG, Case, Row
from tests.conformance.test_attempts import AttemptedAgain
from tests.inside import storage_of
from tests.meanwhile import meanwhile
from tests.partial_rows import upserted

WIDE = pa.schema(
    [
        ("id", pa.string()),
        ("day", pa.string()),
        ("at", pa.int64()),
        ("n", pa.int64()),
        ("s", pa.string()),
        ("tags", pa.list_(pa.string())),
    ]
)
RULES = {"n": "sum", "s": "keep", "tags": "union"}


def batch_of(rows: list[Row]) -> pa.Table:
    """Return rows with only the columns that they have."""
    names = [*WIDE.names, FLAG]
    types = WIDE.append(pa.field(FLAG, pa.bool_()))
    return pa.Table.from_pylist(
        rows, pa.schema([types.field(name) for name in names if name in rows[0]])
    )


@dataclass
class Wide:
    """A table with several columns, and its expected rows."""

    case: Case
    table: bl.Table
    rows: dict[Any, Row] = field(default_factory=dict)

    def key_of(self, row: Row) -> Any:
        return row["id"] if self.case.kind.keys_are_global else (row["day"], row["id"])

    def expect(self, batch: list[Row], **how: Any) -> None:
        self.rows = upserted(self.rows, batch, WIDE.names, key_of=self.key_of, ordering="at", **how)

    def upsert(
        self,
        batch: list[Row],
        missing: str | None = None,
        nulls: str | None = None,
        merge: Any = None,
    ) -> bl.WriteResult:
        self.expect(batch, keeps_missing=bool(missing), keeps_nulls=bool(nulls), rules=merge)
        return self.table.upsert(batch_of(batch), missing=missing, nulls=nulls, merge=merge)

    def check(self) -> None:
        found = self.table.to_arrow().select(WIDE.names).to_pylist()
        assert sorted(found, key=order) == sorted(self.rows.values(), key=order)
        findings = self.table.doctor(check_keys=True, min_age_seconds=0)
        assert not [one for one in findings if one.severity is not Severity.NOTE]


def order(row: Row) -> tuple[str, str]:
    return row["day"], row["id"]


def wide_rows(numbers: range, at: int) -> list[Row]:
    return [
        {"id": f"k{n}", "day": "ab"[n % 2], "at": at, "n": n, "s": f"s{n}", "tags": [f"t{at}"]}
        for n in numbers
    ]


@pytest.fixture
def wide(case: Case, new_path: Callable[[], str]) -> Wide:
    """A table of two partitions, whose keys are in base files, log files and both."""
    table = bl.create_table(
        new_path(),
        schema=WIDE,
        record_key=case.record_key,
        partition_by=["day"],
        ordering="at",
        index=case.index,
        table_type=case.table_type,
    )
    made = Wide(case, table)
    made.upsert(wide_rows(range(8), 5))
    made.upsert(wide_rows(range(4, 12), 6))
    return made


def test_columns_that_a_batch_lacks_and_its_nulls_keep_stored_values(wide: Wide) -> None:
    few = [{key: row[key] for key in ("id", "day", "at", "n")} for row in wide_rows(range(9), 7)]
    late = [{**few[0], "id": "k9", "day": "b", "at": 2, "n": 99}]
    new = [{**few[0], "id": "k20", "n": 20}, {**few[0], "id": "k21", "day": "c", "n": 21}]
    result = wide.upsert([*few[:7], *late, *new], missing="keep")
    assert (result.inserted, result.updated, result.ignored, result.deleted) == (2, 7, 1, 0)
    wide.check()
    # Several rows of a key: in the order of their ordering values, then of the batch.
    several = [
        {"id": "k1", "day": "b", "at": 9, "n": None, "s": "third", FLAG: False},
        {"id": "k1", "day": "b", "at": 8, "n": 8, "s": "first", FLAG: False},
        {"id": "k1", "day": "b", "at": 8, "n": 80, "s": None, FLAG: False},
        {"id": "k2", "day": "a", "at": 8, "n": 1, "s": "gone", FLAG: True},
        {"id": "k2", "day": "a", "at": 9, "n": None, "s": "begins", FLAG: False},
        {"id": "k3", "day": "b", "at": 8, "n": None, "s": "gone", FLAG: False},
        {"id": "k3", "day": "b", "at": 9, "n": None, "s": None, FLAG: True},
        {"id": "k21", "day": "c", "at": 9, "n": None, "s": "new", FLAG: False},
    ]
    wide.upsert(several, missing="keep", nulls="keep")
    wide.check()
    wide.table.delete(batch_of([{"id": "k1", "day": "b"}]))
    del wide.rows[wide.key_of({"id": "k1", "day": "b"})]
    wide.upsert([{"id": "k1", "day": "b", "at": 9, "s": "again"}], missing="keep")
    if wide.case.merges_on_read:
        wide.table.compact()
    wide.check()


def test_rules_combine_stored_and_new_values(wide: Wide) -> None:
    batch = [*wide_rows(range(5), 7), *wide_rows(range(3), 7), *wide_rows(range(8, 10), 4)]
    batch[1] = batch[1] | {"tags": None, "n": None}
    batch[3] = batch[3] | {"tags": ["t7", "u", "u"]}
    wide.upsert([*batch, *wide_rows(range(20, 23), 1)], merge=RULES)
    wide.check()
    narrow = [{key: row[key] for key in ("id", "day", "at", "n")} for row in batch]
    wide.upsert([row | {"at": 9} for row in narrow], missing="keep", merge={"n": "max"})
    wide.check()


def test_a_function_makes_the_rows_of_stored_and_new_ones(wide: Wide) -> None:
    seen: list[list[str]] = []

    def add(stored: pa.Table, new: pa.Table) -> pa.Table:
        assert stored["id"].equals(new["id"])
        seen.append(stored["id"].to_pylist())
        total = pc.add(stored["n"], pc.multiply(new["n"], 10))
        return new.set_column(new.column_names.index("n"), "n", total)

    batch = [*wide_rows(range(6), 7), *wide_rows(range(20, 22), 7)]
    result = wide.table.upsert(batch_of(batch), merge=add)
    assert result.written > 0
    assert sorted(key for keys in seen for key in keys) == [f"k{n}" for n in range(6)]
    wide.expect([*({**row, "n": row["n"] * 11} for row in batch[:6]), *batch[6:]])
    wide.check()

    def broken(stored: pa.Table, new: pa.Table) -> pa.Table:
        return new.slice(1)

    before = wide.table.timeline()
    with pytest.raises(InputError, match=r"partition '.', merge function 'broken'.* returned"):
        wide.table.upsert(batch_of(wide_rows(range(6), 8)), merge=broken)
    assert [one.requested_at for one in wide.table.timeline()] == [
        one.requested_at for one in before
    ]
    wide.check()


def test_no_change_of_two_writers_is_lost(wide: Wide, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both add to a number, and both give one column; the second one is planned again."""
    batch = wide_rows(range(6), 7)
    meanwhile(monkeypatch, lambda: wide.upsert(batch, merge=RULES))
    wide.table.upsert(batch_of(batch), merge=RULES)
    wide.expect(batch, rules=RULES)
    wide.check()
    named = [{"id": r["id"], "day": r["day"], "at": 8, "s": f"named {r['id']}"} for r in batch]
    counted = [{"id": r["id"], "day": r["day"], "at": 8, "n": 1000} for r in batch]
    meanwhile(monkeypatch, lambda: wide.upsert(named, missing="keep"))
    wide.table.upsert(batch_of(counted), missing="keep")
    wide.expect(counted, keeps_missing=True)
    wide.check()


@pytest.mark.parametrize(
    "rows", [RowMerge.of(None, "keep", {"n": "sum"}), RowMerge.of("keep", None, None)]
)
def test_attempts_of_a_task_make_the_same_bytes(wide: Wide, rows: RowMerge) -> None:
    names = WIDE.names if rows.rules else ["id", "day", "at", "n"]
    batch = [
        {name: row[name] for name in names}
        for row in [*wide_rows(range(4, 16), 7), *wide_rows(range(4, 6), 8)]
    ]
    source = AttemptedAgain(wide.table, batch, batch_of(batch).schema)
    target = open_target(table_at(storage_of(wide.table)), None)
    write_records(target, Operation.UPSERT, source, rows=rows)
    first, second, third = source.attempts
    assert first
    assert first == second == third
    texts = {name: rule.value for name, rule in rows.rules.items()}
    wide.expect(batch, keeps_missing=rows.keeps_missing, keeps_nulls=rows.keeps_nulls, rules=texts)
    wide.check()


def test_a_partial_row_takes_its_stored_values_along_to_another_partition(wide: Wide) -> None:
    """Under a global index; otherwise it is another record there."""
    wide.upsert(
        [
            {"id": "k1", "day": "a", "at": 9, "n": 1},
            {"id": "k2", "day": "c", "at": 9, "n": 2},
        ],
        missing="keep",
        merge={"n": "sum"},
    )
    wide.upsert([{"id": "k4", "day": "c", "at": 1, "n": 4}], missing="keep")  # Late: it stays.
    wide.check()
