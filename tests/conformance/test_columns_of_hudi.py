"""Columns of the types of Hudi, of each kind: writes keep the newest value of each key, whole."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from bucketlake.model.column_type import BLOB, blob, blob_reference
from bucketlake.model.table_type import Operation
from bucketlake.model.variant import VARIANT
from bucketlake.timeline.table_properties import table_at
from bucketlake.write.ingest import write_records
from bucketlake.write.target import open_target
from tests.conformance.cases import SCHEMA, Case, Row
from tests.conformance.test_attempts import AttemptedAgain
from tests.inside import storage_of

TYPES = {
    "e": pa.list_(pa.float32(), 3),
    "w": pa.list_(pa.int8(), 2),
    "b": BLOB,
    "t": VARIANT,
}
WIDE = pa.schema([*SCHEMA, *TYPES.items()])


def value(name: str, draw: Random) -> Any:
    """Return a value of a column; each fourth is null."""
    if draw.randrange(4) == 0:
        return None
    n = draw.randrange(100)
    return {
        "e": [n + 0.5, float("inf"), -0.0],
        "w": [n - 50, n],
        "b": blob(bytes([n, 0])) if n % 2 else blob_reference(f"files/{n}", n),
        "t": {"metadata": b"\x01\x00\x00", "value": bytes([12, n])},
    }[name]


def batch_of(draw: Random, numbers: list[int], at: int) -> list[Row]:
    return [
        {"id": f"k{n}", "day": "ab"[n % 2], "v": n, "at": at}
        | {name: value(name, draw) for name in TYPES}
        for n in numbers
    ]


def found_in(table: Any) -> dict[str, Row]:
    rows = table.to_arrow().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: {name: row[name] for name in WIDE.names} for row in rows}


def test_random_writes_keep_the_newest_value_of_each_key(
    case: Case, new_path: Callable[[], str]
) -> None:
    if case.kind.version < 9:
        pytest.skip("older versions hold none of these types")
    draw = Random(f"{case}")
    table = case.make(new_path(), schema=WIDE).table
    expected: dict[str, Row] = {}
    for at in range(1, 6):
        numbers = draw.sample(range(16), 9)
        step = draw.choice(["whole", "some", "delete"]) if expected else "whole"
        batch = batch_of(draw, numbers, at)
        if step == "delete":
            keys = [{"id": row["id"], "day": row["day"]} for row in batch[:4]]
            table.delete(pa.Table.from_pylist(keys, pa.schema([*SCHEMA][:2])))
            for row in batch[:4]:
                expected.pop(row["id"], None)
            continue
        names = [n for n in WIDE.names if step == "whole" or n not in draw.sample([*TYPES], 2)]
        given = pa.schema([WIDE.field(name) for name in names])
        rows = [{name: row[name] for name in names} for row in batch]
        table.upsert(pa.Table.from_pylist(rows, given), missing="keep")
        for row in rows:
            expected[row["id"]] = dict.fromkeys(WIDE.names) | expected.get(row["id"], {}) | row
        assert found_in(table) == expected
    if case.merges_on_read:
        table.compact()
    assert found_in(table) == expected
    assert not table.doctor(check_files=True, check_keys=True)


def test_tasks_that_run_again_write_these_types_once(
    case: Case, new_path: Callable[[], str]
) -> None:
    if case.kind.version < 9:
        pytest.skip("older versions hold none of these types")
    draw, path = Random(f"{case}"), new_path()
    table = case.make(path, schema=WIDE).table
    first, second = batch_of(draw, [*range(12)], 1), batch_of(draw, [*range(6, 18)], 2)
    table.upsert(pa.Table.from_pylist(first, WIDE))
    source = AttemptedAgain(table, second, WIDE)
    write_records(open_target(table_at(storage_of(table)), None), Operation.UPSERT, source)
    one, two, three = source.attempts
    assert one
    assert one == two == three
    expected = {row["id"]: row for row in [*first, *second]}
    assert found_in(table) == expected
