"""Facts of the driver arrive at the tasks that they are meant for."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from bucketlake.spark.facts import column_facts, facts_in_tasks

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "by_task", [{0: ["${x}"], 1: ["d"], 2: ["it's", "\\n"]}, {0: ["a"], 2: ["b"]}, {}]
)
def test_facts_arrive_at_their_tasks(spark: SparkSession, by_task: dict[int, list[str]]) -> None:
    told = [(text, task) for task, texts in by_task.items() for text in texts]
    sent = facts_in_tasks(spark, [text for text, _ in told], [task for _, task in told], 3)
    rows = sent.repartition(3, "task").select(F.spark_partition_id().alias("at"), "facts").collect()
    found = {row.at: column_facts(pa.array([row.facts])) for row in rows}
    assert {at: facts for at, facts in found.items() if facts} == by_task
