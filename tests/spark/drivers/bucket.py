"""A table in a bucket: written by Spark's tasks, read by Spark's own reader.

Arguments: address of the server, name of the bucket. The session fetches Hadoop's client of S3.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

import bucketlake as bl
from bucketlake.errors import StorageError
from bucketlake.storage.location import open_storage
from tests import s3a
from tests.spark.drivers.common import SCHEMA, model_of, rows_of_round, session
from tests.unit.storage.bucket import ACCESS_KEY, SECRET_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rows_of(df: DataFrame) -> list[list[object]]:
    return sorted([*row] for row in df.select(*SCHEMA.names).collect())


def plan_of(df: DataFrame) -> str:
    with redirect_stdout(io.StringIO()) as shown:
        df.explain(True)
    return shown.getvalue()


def main(endpoint: str, bucket: str) -> None:
    client = {"spark.jars.packages": s3a.packages(pyspark.__version__)}
    events = Path(tempfile.mkdtemp())
    client |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()}
    client["spark.eventLog.compress"] = "false"
    spark = session("local[2]", s3a.settings(endpoint) | client)
    options = {
        "endpoint": endpoint,
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
        "region": "us-east-1",
    }
    told = {}
    for kind in ("copy_on_write", "merge_on_read"):
        table = bl.create_table(
            f"s3a://{bucket}/lake/{kind} of 1%2F", schema=SCHEMA, record_key=["id"],
            partition_by=["part"], ordering="ts", index=bl.SimpleBucket(2), table_type=kind,
            storage_options=options,
        )  # fmt: skip
        for number in range(3):
            rows = spark.createDataFrame(rows_of_round(number).to_pylist()).select(*SCHEMA.names)
            # The last of them may change between two evaluations, and is spooled to the bucket.
            table.upsert(rows if number < 2 else rows.where("rand() >= 0"))
        read = table.read(spark)
        told[kind] = {
            "rows": rows_of(read),
            "model": sorted([*row.values()] for row in model_of(range(3))),
            "where": rows_of(table.read(spark, where="part = 'a' AND ts > 1")),
            "plan": plan_of(read) + plan_of(read.where("v > 0").groupBy("part").count()),
            "shown": f"{table!r} {table.explain(where='ts > 1')} {table.buckets()!r}",
        }
        if kind == "merge_on_read":
            table.compact()
            told[kind]["compacted"] = rows_of(table.read(spark))
    if not spark.version.startswith("3."):  # Spark 3 has no sources in Python.
        bl.register(spark)
        reader = spark.read.format("bucketlake")
        for name, text in options.items():
            reader = reader.option(f"storage.{name}", text)
        from_source = reader.load(table.path)
        told["source"] = {"rows": from_source.count(), "plan": plan_of(from_source)}
    files = bl.files(f"s3://{bucket}/lake/landed/*.csv", storage_options=options)
    open_storage(f"s3://{bucket}/lake/landed", options).put("1.csv", b"id,part,ts,v\nz,a,9,9\n")
    told["files"] = [table.upsert(files).written, repr(files)]
    wrong = bl.Table(table.path, table.index, options | {"endpoint": "http://127.0.0.1:9"})
    try:
        wrong.upsert(spark.createDataFrame(rows_of_round(3).to_pylist()))
    except StorageError as error:
        told["error"] = str(error)
    told["secrets"] = [ACCESS_KEY, SECRET_KEY]
    spark.stop()
    told["events"] = "".join(f.read_text() for f in events.rglob("*") if f.is_file())
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
