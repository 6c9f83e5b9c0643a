"""Record-level indexes built by Spark tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import IndexStateError
from bucketlake.flow.stage import Engine
from bucketlake.flow.threads import HERE
from bucketlake.storage.location import open_storage
from tests.indexed_tables import add_record_index

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.any_spark]

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
DAYS = ("2024-01-01", "2024-01-02", "d/e")


def rows(start: int, stop: int) -> pa.Table:
    numbers = range(start, stop)
    columns = [[f"k{n}" for n in numbers], [DAYS[n % 3] for n in numbers], list(numbers)]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)


def make(path: Path) -> bl.Table:
    return bl.create_table(
        str(path), schema=SCHEMA, record_key=["id"], partition_by=["day"],
        table_type="merge_on_read", url_encode=True, index=bl.SimpleBucket(3),
    )  # fmt: skip


@pytest.mark.parametrize("is_partitioned", [True, False], ids=["partitioned", "global"])
def test_tasks_write_the_files_that_this_process_writes(
    spark: SparkSession, table_path: Path, is_partitioned: bool
) -> None:
    from bucketlake.spark.flow import SparkEngine

    table = make(table_path)
    table.upsert(rows(0, 900))
    table.delete(rows(0, 900).slice(0, 100))
    storage = open_storage(str(table_path))
    contents = []
    engines: tuple[Engine, ...] = (HERE, SparkEngine(spark))
    for engine in engines:
        add_record_index(storage, is_partitioned=is_partitioned, shards=4, engine=engine)
        found = storage.list(".hoodie/metadata/record_index")
        contents.append({stored.path: storage.read(stored.path) for stored in found})
    assert contents[0] == contents[1]
    assert sum(path.endswith(".hfile") for path in contents[0]) == (12 if is_partitioned else 4)
    assert [row.v for row in table.read(spark, where="id = 'k500'").collect()] == [500]
    assert table.read(spark, where="id = 'k7'").count() == 0


def test_key_of_two_partitions_is_the_same_error_in_a_task(
    spark: SparkSession, table_path: Path
) -> None:
    from bucketlake.spark.flow import SparkEngine

    table = make(table_path)
    table.upsert(pa.table([["k", "k"], list(DAYS[:2]), [1, 2]], schema=SCHEMA))
    with pytest.raises(IndexStateError, match="key 'k' is in data partitions"):
        add_record_index(
            open_storage(str(table_path)), is_partitioned=False, engine=SparkEngine(spark)
        )
