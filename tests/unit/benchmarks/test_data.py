"""The benchmarks' rows and their oracle: a figure is only as good as these."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks.common.data import SCHEMA, Checksum, Recipe, prepare
from benchmarks.common.rows import CHECKSUM_SQL, DataSet

RECIPE = Recipe(rows=2_000, partitions=8, seed=7)


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    return prepare(tmp_path, RECIPE)


def _rows(folder: Path) -> pa.Table:
    return pq.read_table(folder, schema=SCHEMA)


def test_the_same_recipe_makes_the_same_rows(tmp_path: Path, data: DataSet) -> None:
    again = prepare(tmp_path / "again", RECIPE)
    assert _rows(data.load).equals(_rows(again.load))
    assert _rows(data.changes).equals(_rows(again.changes))


def test_another_seed_makes_other_rows(tmp_path: Path, data: DataSet) -> None:
    other = prepare(tmp_path, Recipe(rows=2_000, partitions=8, seed=8))
    assert not _rows(data.load).equals(_rows(other.load))


def test_keys_are_unique_and_changes_are_a_fifth_updates_and_a_fiftieth_inserts(
    data: DataSet,
) -> None:
    loaded, changed = _rows(data.load)["order_id"], _rows(data.changes)["order_id"]
    assert pc.count_distinct(loaded).as_py() == 2_000
    assert pc.count_distinct(changed).as_py() == len(changed) == 440
    assert pc.sum(pc.is_in(changed, loaded.combine_chunks())).as_py() == 400
    assert set(pc.utf8_length(loaded).to_pylist()) == {20}


def test_an_update_keeps_what_lasts_and_is_newer(data: DataSet) -> None:
    updates = _rows(data.changes).join(
        _rows(data.load), "order_id", join_type="inner", right_suffix="_before"
    )
    for lasting in ("region", "customer_id", "created"):
        assert updates[lasting].equals(updates[f"{lasting}_before"]), lasting
    assert pc.all(pc.greater(updates["updated_at"], updates["updated_at_before"])).as_py()


def test_the_predicted_checksum_is_that_of_a_plain_merge(data: DataSet) -> None:
    loaded, changed = _rows(data.load), _rows(data.changes)
    newest = {row["order_id"]: row for row in loaded.to_pylist() + changed.to_pylist()}
    found = Checksum()
    found.add(pa.Table.from_pylist(list(newest.values()), schema=SCHEMA))
    assert data.facts["checksum_after_upsert"] == found.sums
    assert set(found.sums) == set(CHECKSUM_SQL)


def test_a_value_in_the_wrong_row_changes_the_checksum(data: DataSet) -> None:
    rows = _rows(data.load)
    quantity = rows["quantity"].combine_chunks()
    turned = pa.concat_arrays([quantity[1:], quantity[:1]])
    found = Checksum()
    found.add(rows.set_column(rows.schema.get_field_index("quantity"), "quantity", turned))
    differing = {name for name, value in found.sums.items() if value != _after_load(data)[name]}
    assert differing == {"pairing"}


def _after_load(data: DataSet) -> dict[str, int]:
    return data.facts["checksum_after_load"]
