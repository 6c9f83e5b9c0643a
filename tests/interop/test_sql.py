"""Hudi's SQL on tables of bucketlake, with the options of ``to_options``: keys stay unique."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import bucketlake as bl
from tests.interop.peer.client import HudiPeer

SCHEMA = pa.schema({"id": pa.string(), "v": pa.int64(), "note": pa.string(), "city": pa.string()})
NEW = "SELECT '{0}' id, {1}L v, 'sql' note, 'Bonn' city UNION ALL SELECT '{2}', {1}L, 'sql', 'Bonn'"
STATEMENTS = (
    f"INSERT INTO sql_table {NEW.format('k0', 5, 'k6')}",
    f"MERGE INTO sql_table t USING ({NEW.format('k1', 6, 'k7')}) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "UPDATE sql_table SET note = 'sql', v = 8 WHERE id = 'k2'",
    "DELETE FROM sql_table WHERE id = 'k3'",
)
AFTER = {"k0": 5, "k1": 6, "k2": 8, "k4": 1, "k5": 1, "k6": 5, "k7": 6}


def rows(keys: list[str], v: int) -> pa.Table:
    count = len(keys)
    return pa.table(
        {"id": keys, "v": [v] * count, "note": ["ours"] * count, "city": ["Bonn"] * count},
        schema=SCHEMA,
    )


@pytest.mark.parametrize(
    ("index", "table_type"),
    [(bl.SimpleBucket(2), "copy_on_write"), (bl.SimpleBucket(2), "merge_on_read"),
     (bl.DynamicBucket(), "copy_on_write")],
    ids=["simple-cow", "simple-mor", "dynamic-cow"],
)  # fmt: skip
def test_sql_with_the_options_of_a_table_keeps_each_key_once(
    hudi: HudiPeer, table_path: Path, index: bl.SimpleBucket | bl.DynamicBucket, table_type: str
) -> None:
    table = bl.create_table(
        str(table_path), schema=SCHEMA, record_key="id", partition_by="city", ordering="v",
        index=index, table_type=table_type,
    )  # fmt: skip
    table.upsert(rows([f"k{number}" for number in range(6)], 1))
    hudi.sql(f"CREATE TABLE sql_table USING hudi LOCATION '{table_path}'")
    for key, value in index.to_options().items():
        hudi.sql(f"SET {key}={value}")
    for statement in STATEMENTS:
        hudi.sql(statement)
    found = table.to_arrow(columns=["id", "v"])
    assert sorted(found["id"].to_pylist()) == sorted(AFTER)
    assert dict(zip(*found.to_pydict().values(), strict=True)) == AFTER
    assert hudi.read(table_path).num_rows == len(AFTER)
    table.upsert(rows([*AFTER, "k9"], 9))
    assert sorted(table.to_arrow()["id"].to_pylist()) == [*sorted(AFTER), "k9"]
    assert table.doctor(check_keys=True) == []
