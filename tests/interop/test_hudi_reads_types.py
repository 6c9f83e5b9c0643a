"""Values of every type and schemas that grew: what we wrote, real Hudi and hudi-rs read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.interop.model import Model, commits_of, in_order, rows_of
from tests.interop.peer.client import HudiPeer, read_with_hudi_rs
from tests.interop.table_kind import EVENT, TableKind
from tests.interop.wide_rows import WIDE, wide_rows

pytestmark = pytest.mark.interop


def spelled(table: pa.Table) -> dict[str, list[str]]:
    """Spell the values of each column, so that NaN equals itself and -0.0 is not 0.0."""
    ordered = table.sort_by("id")
    return {
        name: [repr(value) for value in ordered[name].to_pylist()]
        for name in WIDE.names
        if name in ordered.column_names
    }


def test_hudi_reads_values_of_every_type(hudi: HudiPeer, tmp_path: Path) -> None:
    path, rows = tmp_path / "wide", wide_rows(ancient=True)
    table = TableKind(schema=WIDE, partition_by=()).create(path)
    table.upsert(rows)
    assert spelled(table.to_arrow()) == spelled(rows)
    assert spelled(hudi.read(path)) == spelled(rows)


def test_hudi_rs_reads_values_of_every_type_it_knows(tmp_path: Path) -> None:
    """hudi-rs 0.5.0 panics on a time without zone, whoever wrote the table."""
    path, rows = tmp_path / "wide", wide_rows(ancient=True).drop_columns(["local"])
    TableKind(schema=rows.schema, partition_by=()).create(path).upsert(rows)
    assert spelled(read_with_hudi_rs(path)) == spelled(rows)


def test_hudi_rewrites_values_of_every_type_as_they_were(hudi: HudiPeer, tmp_path: Path) -> None:
    """Not ancient ones: Spark 3.5 refuses to read those from files that Hudi wrote."""
    path, rows = tmp_path / "wide", wide_rows(ancient=False)
    kind = TableKind(schema=WIDE, partition_by=())
    kind.create(path).upsert(rows)
    for n in range(rows.num_rows):
        hudi.write(path, rows.slice(n, 1), kind.write_options(path))
    assert spelled(kind.open(path).to_arrow()) == spelled(rows)
    assert spelled(hudi.read(path)) == spelled(rows)
    kind.open(path).upsert(rows.slice(0, 1))
    assert spelled(hudi.read(path)) == spelled(rows)


WIDER = pa.schema(
    [
        pa.field("v", pa.int64()) if field.name == "v" else field
        for field in [*EVENT, pa.field("extra", pa.list_(pa.string()))]
    ]
)


def test_schema_that_grew_is_read_and_grows_on(hudi: HudiPeer, tmp_path: Path) -> None:
    """A column comes and an int becomes a long in one partition; the other keeps its old files."""
    path, kind = tmp_path / "growing", TableKind()
    wider = TableKind(schema=WIDER)
    model = Model(wider)

    def rows(numbers: range, region: str, ts: int, v: int) -> list[dict[str, object]]:
        plain = {"region": region, "ts": ts, "note": None, "extra": None}
        return [{"id": f"{region}{n}", **plain, "v": v + n} for n in numbers]

    def assert_all_read_the_model() -> None:
        expected = in_order(model.rows.values(), WIDER)
        assert rows_of(kind.open(path).to_arrow(), WIDER) == expected
        assert rows_of(hudi.read(path), WIDER) == expected
        assert rows_of(hudi.incremental(path, "000"), WIDER) == expected
        assert rows_of(read_with_hudi_rs(path), WIDER) == expected

    first = [*rows(range(8), "eu", 1, 0), *rows(range(8), "us", 1, 0)]
    model.upsert(first)
    kind.create(path).upsert(kind.rows(first))
    grown = [row | {"extra": ["a", "ä"]} for row in rows(range(4), "eu", 2, 2**40)]
    model.upsert(grown)
    wider.open(path).upsert(wider.rows(grown), merge_schema=["add_columns", "widen_types"])
    assert_all_read_the_model()

    by_hudi = [row | {"extra": []} for row in rows(range(2, 6), "eu", 3, -(2**40))]
    by_hudi += rows(range(2, 4), "us", 3, 2**50)
    model.upsert(by_hudi)
    hudi.write(path, wider.rows(by_hudi), wider.write_options(path))
    assert_all_read_the_model()

    again = [*rows(range(1, 3), "eu", 4, 2**33), *rows(range(7, 12), "us", 4, 2**33)]
    model.upsert(again)
    wider.open(path).upsert(wider.rows(again))
    assert_all_read_the_model()

    started = commits_of(kind.open(path))[0].requested_at
    assert rows_of(hudi.time_travel(path, started), EVENT) == in_order(first, EVENT)
    assert rows_of(kind.open(path).to_arrow(as_of=started), EVENT) == in_order(first, EVENT)


def test_column_that_hudi_added_stays_when_we_write_on(hudi: HudiPeer, tmp_path: Path) -> None:
    path, kind, wider = tmp_path / "grown", TableKind(), TableKind(schema=WIDER)
    model = Model(wider)
    first = [
        {"id": f"k{n}", "region": "eu", "ts": 1, "v": n, "note": "ä", "extra": None}
        for n in range(8)
    ]
    model.upsert(first)
    hudi.write(path, kind.rows(first), kind.write_options(path))
    for n, (ts, v) in enumerate([(2, 2**40), (3, -(2**40))]):
        rows = [first[n] | {"ts": ts, "v": v, "extra": ["x"]}, first[n + 1] | {"ts": ts}]
        model.upsert(rows)
        if n == 0:
            hudi.write(path, wider.rows(rows), wider.write_options(path))
        else:
            wider.open(path).upsert(wider.rows(rows))
    expected = in_order(model.rows.values(), WIDER)
    assert rows_of(wider.open(path).to_arrow(), WIDER) == expected
    assert rows_of(hudi.read(path), WIDER) == expected
    assert rows_of(read_with_hudi_rs(path), WIDER) == expected
