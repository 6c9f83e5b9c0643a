"""Numbers of updates and merges on Spark in columns of other number types."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from bucketlake.errors import InputError
from tests.tables.test_store_assignment import FIRST, REFUSED, SCHEMA, TAKEN, new_table, row_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_update_and_merge_round_as_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(str(tmp_path / "t"))
    expected = {column: value for column, _, value in TAKEN}  # The last one of each column.
    texts = {column: text for column, text, _ in TAKEN}
    table.update(texts, where="id = 'a'", spark=spark)
    assert {name: row_of(table)[name] for name in expected} == expected
    table.upsert(pa.Table.from_pylist([FIRST], schema=SCHEMA))
    source = spark.createDataFrame([("a",)], "id string")
    merge = table.merge(source, on="t.id = s.id").when_matched_update(texts)
    # The other clause keeps large numbers, which must not become doubles.
    merge.when_not_matched_by_source_update({"n": "t.n", "a": "t.a"}).execute()
    assert {name: row_of(table)[name] for name in expected} == expected
    assert row_of(table, "b")["n"] == 2**62


@pytest.mark.parametrize(("column", "text", "told"), [REFUSED[0], REFUSED[3], REFUSED[5]])
def test_number_that_does_not_fit_is_refused_on_spark(
    spark: SparkSession, tmp_path: Path, column: str, text: str, told: str
) -> None:
    table = new_table(str(tmp_path / "t"))
    before = table.to_arrow()
    source = spark.createDataFrame([("a",), ("b",)], "id string")
    for change in (
        lambda: table.update({column: text}, spark=spark),
        table.merge(source, on="t.id = s.id").when_matched_update({column: text}).execute,
    ):
        with pytest.raises(InputError) as raised:
            change()
        assert told.replace("1e+300", "1") in str(raised.value).replace("1e+300", "1")
    assert table.to_arrow().equals(before)


def test_expression_of_several_rows_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(str(tmp_path / "t"))
    with pytest.raises(InputError, match="explode"):
        table.update({"n": "explode(array(1, 2))"}, spark=spark)
