"""A DataFrame of Spark as a sample for advice."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

import bucketlake as bl
from bucketlake import advising
from bucketlake.errors import InputError
from tests.bounds import set_bounds

pytestmark = pytest.mark.spark


def test_a_dataframe_is_a_sample_as_its_arrow_table_is(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.range(5000).selectExpr("id", "cast(id % 3 as string) as part", "id * 7 as n")
    found = bl.advise(frame, record_key="id", partition_by="part", rows=1_000_000_000)
    assert [own.path for own in found.workload.partitions] == ["0", "1", "2"]
    assert found[0].advised.startswith("bl.SimpleBucket(")
    set_bounds(monkeypatch, advising, SAMPLE_ROWS_MAX=30)
    few = bl.advise(frame, record_key="id").workload
    assert few.bytes_per_row is not None
    assert few.size_bytes <= 30 * few.bytes_per_row + 1


def test_a_dataframe_without_rows_or_without_an_end_is_no_sample(spark: SparkSession) -> None:
    with pytest.raises(InputError, match="sample: it has no rows"):
        bl.advise(spark.range(0), record_key="id")
    stream = spark.readStream.format("rate").load()
    with pytest.raises(InputError, match="is a stream"):
        bl.advise(stream, record_key="value")
