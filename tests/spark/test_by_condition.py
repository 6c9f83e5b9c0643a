"""Updates and deletes by condition through Spark: any expression, and clear errors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = pa.table(
    {
        "id": [f"k{n}" for n in range(40)],
        "day": ["ab"[n % 2] for n in range(40)],
        "n": pa.array(range(40), pa.int32()),
        "name": [f"name {n}" for n in range(40)],
        "at": [1] * 40,
    }
)


@pytest.fixture(params=["copy_on_write", "merge_on_read"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> bl.Table:
    made = bl.create_table(
        str(tmp_path / "orders"),
        schema=ROWS.schema,
        record_key="id",
        partition_by="day",
        ordering="at",
        table_type=request.param,
    )
    made.upsert(ROWS)
    return made


def test_spark_evaluates_conditions_and_expressions(spark: SparkSession, table: bl.Table) -> None:
    where = "day = 'a' AND length(name) = 6 AND n % 4 = 0"
    changes = {"n": "CAST(pow(n, 2) AS int)", "name": "regexp_replace(name, 'name', day)"}
    result = table.update(changes, where=where, spark=spark)
    expected = {row["id"]: row for row in ROWS.to_pylist()}
    chosen = [n for n in range(40) if n % 4 == 0 and len(f"name {n}") == 6]
    for n in chosen:
        expected[f"k{n}"] |= {"n": n * n, "name": f"a {n}"}
    assert (result.inserted, result.updated, result.deleted) == (0, len(chosen), 0)
    found = {row["id"]: row.asDict() for row in table.read(spark).collect()}
    assert found == expected
    assert table.delete(where="n > 100 OR id = 'k1'", spark=spark).deleted == 1 + sum(
        row["n"] > 100 for row in expected.values()
    )
    left = {row["id"] for row in table.to_arrow(columns=["id"]).to_pylist()}
    assert left == {k for k, row in expected.items() if row["n"] <= 100 and k != "k1"}


def test_wrong_expressions_are_refused_before_anything_is_written(
    spark: SparkSession, table: bl.Table
) -> None:
    before = len(table.timeline())
    with pytest.raises(InputError, match="no_such_function"):
        table.update({"n": "no_such_function(n)"}, spark=spark)
    with pytest.raises(InputError, match=r"'nam'.*did you mean 'name'"):
        table.update({"n": "length(nam)"}, spark=spark)
    with pytest.raises(InputError, match="partition column"):
        table.update({"day": "'c'"}, spark=spark)
    assert len(table.timeline()) == before
