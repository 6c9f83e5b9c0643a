"""A condition that names the partitions: they alone are listed."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.read.pruning.by_partition import PINNED_MAX, pinned_partitions
from bucketlake.storage.local import LocalStorage
from bucketlake.where.parser import parse_where
from tests.spies import spy

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("n", pa.int32()), ("d", pa.date32())])


def pinned(where: str, *fields: str, hive_style: bool = False) -> list[str] | None:
    spec = KeySpec(("id",), fields, KeyGenerator.COMPLEX, hive_style=hive_style)
    return pinned_partitions(parse_where(where, SCHEMA), spec, SCHEMA)


def test_values_of_all_partition_fields_name_the_partitions() -> None:
    assert pinned("p = 'eu' AND id > 'a'", "p") == ["eu"]
    assert pinned("p IN ('eu', 'us')", "p", hive_style=True) == ["p=eu", "p=us"]
    assert pinned("p = 'eu' AND n IN (1, -2)", "p", "n") == ["eu/-2", "eu/1"]
    assert pinned("(p = 'a' AND n = 1) OR (p = 'b' AND n = 1)", "p", "n") == ["a/1", "b/1"]
    assert pinned("d = DATE '2026-01-02'", "d") == ["2026-01-02"]
    assert pinned("p = 'a' AND p = 'b'", "p") == []


@pytest.mark.parametrize(
    "where",
    ["id = 'x'", "p > 'a'", "p = 'a' OR n = 1", "p = ''", "p IS NULL", "p <=> NULL", "NOT p = 'a'"],
)
def test_other_conditions_name_no_partitions(where: str) -> None:
    assert pinned(where, "p") is None


def test_many_values_are_not_listed_one_by_one() -> None:
    few = ", ".join(f"'{n}'" for n in range(PINNED_MAX))
    assert len(pinned(f"p IN ({few})", "p") or ()) == PINNED_MAX
    assert pinned(f"p IN ({few}, 'x')", "p") is None
    assert pinned("id = 'a'") is None


@pytest.fixture
def table(tmp_path: Path) -> bl.Table:
    table = bl.create_table(
        str(tmp_path / "t"),
        schema=SCHEMA,
        record_key="id",
        partition_by=["p", "d"],
        index=bl.SimpleBucket(2),
        metadata_table=False,  # With it, no folder is listed.
    )
    day = datetime.date(2026, 1, 2)
    rows = [{"id": f"k{n}", "p": "abc"[n % 3], "n": n, "d": day} for n in range(30)]
    table.upsert(pa.Table.from_pylist(rows, SCHEMA))
    return table


def test_a_read_lists_the_partitions_that_its_condition_names(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = spy(monkeypatch, LocalStorage, "list", lambda _, prefix, **__: prefix)
    found = table.to_arrow(where="p = 'b' AND d = DATE '2026-01-02' AND n < 20")
    assert sorted(found["n"].to_pylist()) == [1, 4, 7, 10, 13, 16, 19]
    data = [path for path in listed if not path.startswith(".hoodie")]
    assert data == ["b/2026-01-02"]
    assert table.explain(where="p = 'b' AND d = DATE '2026-01-02'").partitions_total == 3


def test_a_partition_that_is_not_there_or_not_marked_gives_no_rows(table: bl.Table) -> None:
    where = "p = 'b' AND d = DATE '2026-01-02'"
    assert table.to_arrow(where="p = 'x' AND d = DATE '2026-01-02'").num_rows == 0
    marker = next(Path(table.path, "b/2026-01-02").glob(".hoodie_partition_metadata*"))
    marker.unlink()
    assert table.to_arrow(where=where).num_rows == 0 == table.to_arrow(where="p = 'b'").num_rows
