"""Which record wins is one rule for both writers, whatever the type of the ordering field."""

from __future__ import annotations

import datetime as dt
import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.interop.model import Row
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import BUCKETLAKE, HUDI, SharedTable, Writer
from tests.interop.table_kind import TableKind

pytestmark = pytest.mark.interop

INFINITE, NAN = float("inf"), float("nan")
FLOATS = [-INFINITE, -1.5, -0.0, 0.0, 2.5, INFINITE, NAN]
TIMES = [dt.datetime(1969, 12, 31), dt.datetime(1970, 1, 1), dt.datetime(2024, 1, 1, 0, 0, 0, 1)]
PAIRS = [{"at": at, "step": step} for at in (-1, 0, 5) for step in ("", "a", "b")]

# In ascending order. Real Hudi 1.2.0 fails on dates and decimals, and on nulls of any type.
ASCENDING: dict[str, tuple[dict[str, pa.DataType], list[Row]]] = {
    "int": ({"at": pa.int32()}, [{"at": at} for at in (-5, 0, 3)]),
    "long": ({"at": pa.int64()}, [{"at": at} for at in (-(2**40), 0, 2**62)]),
    "float": ({"at": pa.float32()}, [{"at": at} for at in FLOATS]),
    "double": ({"at": pa.float64()}, [{"at": at} for at in FLOATS]),
    "string": ({"at": pa.string()}, [{"at": at} for at in ("", "B", "a", "ä", "\uffee", "🙂")]),
    "timestamp": ({"at": pa.timestamp("us", tz="UTC")}, [{"at": at} for at in TIMES]),
    "timestamp_ntz": ({"at": pa.timestamp("us")}, [{"at": at} for at in TIMES]),
    "boolean": ({"at": pa.bool_()}, [{"at": at} for at in (False, True)]),
    "long, then string": ({"at": pa.int64(), "step": pa.string()}, PAIRS),
}


@pytest.mark.parametrize(("first", "second"), [(BUCKETLAKE, HUDI), (HUDI, BUCKETLAKE)])
@pytest.mark.parametrize("name", ASCENDING)
def test_greater_ordering_value_wins(
    hudi: HudiPeer, tmp_path: Path, name: str, first: Writer, second: Writer
) -> None:
    types, values = ASCENDING[name]
    schema = pa.schema([("id", pa.string()), *types.items(), ("v", pa.int32())])
    kind = TableKind(schema=schema, partition_by=(), ordering=",".join(types))
    table = SharedTable(hudi, tmp_path / "ordered", kind)
    if first is BUCKETLAKE:
        table.begin()
    pairs: list[tuple[int, int]] = list(itertools.product(range(len(values)), repeat=2))
    table.write(first, [{"id": f"{a}-{b}", **values[a], "v": 1} for a, b in pairs])
    table.write(second, [{"id": f"{a}-{b}", **values[b], "v": 2} for a, b in pairs])
    expected = {f"{a}-{b}": 2 if b >= a else 1 for a, b in pairs}
    assert winners(table.ours.to_arrow()) == expected
    assert winners(hudi.read(table.path)) == expected


def winners(found: pa.Table) -> dict[str, Any]:
    assert found.num_rows == len(set(found["id"].to_pylist()))
    return {row["id"]: row["v"] for row in found.to_pylist()}


@pytest.mark.parametrize("merge_on_read", [False, True], ids=["cow", "mor"])
@pytest.mark.parametrize("name", ["int", "long"])
def test_a_delete_by_flag_at_zero_does_what_it_does_in_hudi(
    hudi: HudiPeer, tmp_path: Path, name: str, merge_on_read: bool
) -> None:
    """Of an int the value 0 is none, and such a delete wins."""
    types, _ = ASCENDING[name]
    schema = pa.schema([("id", pa.string()), *types.items(), ("_hoodie_is_deleted", pa.bool_())])
    kind = TableKind(schema=schema, partition_by=(), ordering="at", merge_on_read=merge_on_read)
    stored = {"a": -1, "b": 0, "c": 7}
    rows = [{"id": i, "at": at, "_hoodie_is_deleted": False} for i, at in stored.items()]
    left = {}
    for writer in Writer:
        table = SharedTable(hudi, tmp_path / writer.value, kind)
        table.begin()
        table.write(BUCKETLAKE, rows)
        table.write(writer, [row | {"at": 0, "_hoodie_is_deleted": True} for row in rows])
        left[writer] = sorted(table.ours.to_arrow()["id"].to_pylist())
        assert sorted(hudi.read(table.path)["id"].to_pylist()) == left[writer]
    assert left == dict.fromkeys(Writer, [] if name == "int" else ["c"])
