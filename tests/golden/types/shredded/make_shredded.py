"""Make the files of this folder: shredded variants, as Spark 4 writes and reads them.

    python tests/golden/types/shredded/make_shredded.py

Each file has a column ``v``, shredded as ``SHAPES`` say, and ``expected``: Spark's JSON text of
what it reads from that column. Made with Spark 4.3; PyArrow copied the columns into one file.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

HERE = Path(__file__).parent
NAMES = ["a", "b", "c", "é", "k", "not a column"]
SHAPES = {
    "object": """struct<a: bigint, b: string, `é`: boolean, k: array<struct<a: int, b: string>>,
        c: struct<a: decimal(9, 2), b: array<bigint>, c: struct<a: double>>>""",
    "list": "array<array<smallint>>",
    "text": "string",
    "number": "decimal(18, 4)",
}
SCALARS = {
    "i8": ("tinyint", "-1Y"),
    "i16": ("smallint", "-300S"),
    "i32": ("int", "70000"),
    "i64": ("bigint", "9000000000L"),
    "f": ("float", "1.5F"),
    "d": ("double", "-2.5D"),
    "d9": ("decimal(9, 2)", "-1.25BD"),
    "d18": ("decimal(18, 3)", "-1234567890.5BD"),
    "d38": ("decimal(38, 5)", "-12345678901234567890.125BD"),
    "day": ("date", "DATE'1969-02-03'"),
    "at": ("timestamp", "TIMESTAMP'2020-01-01 01:02:03.500001 UTC'"),
    "local": ("timestamp_ntz", "TIMESTAMP_NTZ'2020-01-01 01:02:03.250001'"),
    "bytes": ("binary", "X'00ff'"),
    "s": ("string", "repeat('é', 40)"),
    "t": ("boolean", "true"),
}


def value(rng: random.Random, depth: int) -> Any:
    """Return a random value of JSON."""
    kind = rng.randrange(8 if depth else 5)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.choice([0, 1, -5, 127, 128, 40_000, 2**31, -(2**50)])
    if kind == 2:
        return rng.choice([0.5, -1.25, 1e300, 3.14159])
    if kind in (3, 4):
        return rng.choice(["", "x", "é" * 31, "y" * 63, "z" * 64, "long" * 80])
    if kind == 5:
        return [value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {name: value(rng, depth - 1) for name in NAMES if rng.random() < 0.5}


def main() -> None:
    """Write the files."""
    spark = SparkSession.builder.master("local[1]").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.variant.writeShredding.enabled", "true")
    rng = random.Random(12)
    documents = [None, *(json.dumps(value(rng, 3)) for _ in range(120))]
    documents += ['{"c":{}}', "[[1,2],[],[null,3]]", "[]", json.dumps([[7] * 300]), "{}"]
    texts = spark.createDataFrame([*enumerate(documents)], "id long, text string")
    for name, shape in SHAPES.items():
        write(spark, texts.selectExpr("id", "parse_json(text) AS v"), name, shape)
    values = ", ".join(f"'{name}', {text}" for name, (_, text) in SCALARS.items())
    nothing = ", ".join(f'"{name}":null' for name in SCALARS)
    rows = spark.sql(
        f"""SELECT 0L AS id, to_variant_object(named_struct({values})) AS v
        UNION ALL SELECT 1L, parse_json('{{{nothing}}}')
        UNION ALL SELECT 2L, parse_json('{{"i8":"x"}}')"""
    )
    fields = ", ".join(f"{name}: {kind}" for name, (kind, _) in SCALARS.items())
    write(spark, rows, "scalars", f"struct<{fields}>")


def write(spark: SparkSession, rows: DataFrame, name: str, shape: str) -> None:
    """Write rows with Spark; add the text that Spark reads."""
    spark.conf.set("spark.sql.variant.forceShreddingSchemaForTest", shape)
    folder = HERE / f"{name}.written"
    rows.coalesce(1).sortWithinPartitions("id").write.parquet(str(folder))
    back = spark.read.schema("id long, v variant").parquet(str(folder))
    found = back.orderBy("id").selectExpr("to_json(v) AS text").collect()
    (written,) = folder.glob("*.parquet")
    columns = pq.read_table(written)
    texts = pa.array([row.text for row in found], pa.string())
    columns = columns.append_column("expected", texts)
    pq.write_table(columns, HERE / f"{name}.parquet", compression="zstd", store_schema=False)
    for file in [*folder.iterdir()]:
        file.unlink()
    folder.rmdir()


if __name__ == "__main__":
    main()
