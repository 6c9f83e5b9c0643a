"""Requests that tasks send to storage are counted by the driver, those of a task once."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession

from bucketlake.flow.call import Call, calling, count_request
from bucketlake.spark.arrow_tasks import map_in_arrow
from bucketlake.spark.reports import REPORT_FIELD, Batches, collect, reporting
from tests.metered import number, reader_of_metrics

SCHEMA = pa.schema([pa.field("result", pa.int64()), REPORT_FIELD])


def counted() -> list[float]:
    return [number("storage.requests", operation=name) for name in ("put", "get", "list", "head")]


def test_requests_of_tasks_are_counted_once(spark: SparkSession) -> None:
    reader_of_metrics()
    before = counted()

    def work(batches: Batches) -> Batches:
        for batch in batches:
            for row in batch.column(0).to_pylist():
                count_request("put")
                count_request("get" if row % 2 else "list")
                yield pa.RecordBatch.from_pylist([{"result": row}], SCHEMA)

    told = map_in_arrow(spark.range(0, 6, 1, 3), reporting(work, SCHEMA), SCHEMA).persist()
    with calling(Call("upsert", "file:///lake/orders")):
        assert sorted(held.result for held in collect(told)) == [*range(6)]
        assert len(collect(told)) == 6  # As a later stage passes on what tasks told.
        count_request("head")
    told.unpersist()
    more = [now - then for now, then in zip(counted(), before, strict=True)]
    assert more == [6, 3, 3, 1]
