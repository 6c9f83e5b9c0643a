"""Build a project of dbt whose sources and results are tables of bucketlake.

    python build.py LAKE

dbt runs in this process, so its session is ours: the tables of the lake are made known to Spark
before, and what the models give is upserted after. A build that fails upserts nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dbt.cli.main import dbtRunner
from pyspark.sql import SparkSession

import bucketlake as bl

HERE = Path(__file__).parent
SOURCES = {"sales.orders": "orders"}
RESULTS = {"shop.totals": ("totals", "region")}
"""Tables that dbt makes; each with its folder in the lake and its record key."""


def build(spark: SparkSession, lake: str) -> list[bl.WriteResult]:
    """Run and test all models, and upsert what they give."""
    bl.register(spark)
    for name, folder in SOURCES.items():
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {name.partition('.')[0]}")
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        spark.sql(f"CREATE TABLE {name} USING bucketlake OPTIONS (path '{lake}/{folder}')")
    place = ["--project-dir", str(HERE), "--profiles-dir", str(HERE)]
    done = dbtRunner().invoke(["build", *place])
    if not done.success:
        raise SystemExit(f"dbt failed: {done.exception or 'see above'}")
    written = []
    for name, (folder, key) in RESULTS.items():
        rows = spark.table(name)
        try:
            table = bl.open_table(f"{lake}/{folder}")
        except bl.TableNotFoundError:
            table = bl.create_table(f"{lake}/{folder}", schema=rows, record_key=key)
        written.append(table.upsert(rows))
    return written


if __name__ == "__main__":
    session = SparkSession.builder.appName("shop").getOrCreate()
    for result in build(session, sys.argv[1]):
        print(result)
