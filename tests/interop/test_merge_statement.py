"""The same statements by bucketlake, and by Hudi's SQL on a copy of the table: equal rows."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from tests.interop.peer.client import HudiPeer

SCHEMA = pa.schema({"id": pa.string(), "v": pa.int64(), "note": pa.string(), "city": pa.string(),
                    "at": pa.int64()})  # fmt: skip
SOURCE = [("k1", 10, "new", "Bonn", 5), ("k2", 20, "gone", "Bonn", 5), ("k3", 30, "old", "Bonn", 1),
          ("k4", 40, "same", "Bonn", 2), ("k8", 80, "new", "Bonn", 5),
          ("k9", 90, "skipped", "Ulm", 5)]  # fmt: skip
QUERY = " UNION ALL ".join(
    f"SELECT '{id}' id, {v}L v, '{note}' note, '{city}' city, {at}L at"
    for id, v, note, city, at in SOURCE  # noqa: A001 -- the name of the column.
)
STATEMENTS = (
    "MERGE INTO {table} t USING {source} s ON t.id = s.id AND t.city = s.city "
    "WHEN MATCHED AND s.note = 'gone' THEN DELETE "
    "WHEN MATCHED AND s.note <> 'gone' THEN UPDATE SET * "  # Hudi tries updates before deletes.
    "WHEN NOT MATCHED AND s.note <> 'skipped' THEN INSERT *",
    "UPDATE {table} SET v = v + 1, note = concat(note, '!') WHERE v < 3",
    "DELETE FROM {table} WHERE v >= 40",
)
STALE = {"k3": 3}  # Its source row is older than the stored one.


def rows_of(found: pa.Table) -> list[dict[str, Any]]:
    plain = found.select(SCHEMA.names).to_pylist()
    return sorted(plain, key=lambda row: row["id"])


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_statements_leave_the_rows_that_hudi_leaves(
    hudi: HudiPeer, table_path: Path, table_type: str
) -> None:
    index = bl.SimpleBucket(2)
    table = bl.create_table(
        str(table_path), schema=SCHEMA, record_key="id", partition_by="city", ordering="at",
        index=index, table_type=table_type,
    )  # fmt: skip
    first = {"note": "first", "city": "Bonn", "at": 2}
    table.upsert(pa.Table.from_pylist([{"id": f"k{n}", "v": n, **first} for n in range(6)], SCHEMA))
    copied = table_path.with_name("by_hudi")
    copytree(table_path, copied)
    hudi.sql(f"CREATE TABLE by_hudi USING hudi LOCATION '{copied}'")
    for key, value in index.to_options().items():
        hudi.sql(f"SET {key}={value}")
    source = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in SOURCE])
    for statement in STATEMENTS:
        hudi.sql(statement.format(table="by_hudi", source=f"({QUERY})"))
        bl.sql(
            None,
            statement.format(table=f"bucketlake.`{table_path}`", source="news"),
            tables={"news": source},
        )
        found = rows_of(table.to_arrow())
        assert found == rows_of(hudi.read(copied)), statement
        assert found == rows_of(hudi.read(table_path)), statement
        assert found == rows_of(bl.open_table(str(copied)).to_arrow()), statement
    assert {row["id"]: row["v"] for row in found if row["id"] in STALE} == STALE
    assert table.doctor(check_keys=True) == []
