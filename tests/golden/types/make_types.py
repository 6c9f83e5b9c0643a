"""Ask real Hudi 1.2.0 how it stores types and lets schemas evolve, and keep its answers.

Run with PySpark 3.5, pandas < 3, pyarrow and fastavro: ``python make_types.py OUT_DIR``. The Hudi
bundle is fetched by its coordinates.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import re
import shutil
import sys
import tempfile
from decimal import Decimal
from pathlib import Path

import fastavro
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 -- the name that PySpark's users know.

BUNDLE = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"
TABLE_NAMES = ("orders", "a-b", "1a", "a.b", "a b", "é", "a__b", "日本", "a$b", "-a")

INNER = T.StructType(
    [
        T.StructField("x", T.IntegerType()),
        T.StructField("d", T.DecimalType(12, 3)),
        T.StructField(
            "deeper",
            T.StructType(
                [
                    T.StructField("y", T.LongType(), False),
                    T.StructField("words", T.ArrayType(T.StringType())),
                ]
            ),
        ),
    ]
)

COLUMNS = {
    "i": T.IntegerType(),
    "small": T.ShortType(),
    "l": T.LongType(),
    "f": T.FloatType(),
    "d": T.DoubleType(),
    "b": T.BooleanType(),
    "s": T.StringType(),
    "bin": T.BinaryType(),
    "dec10": T.DecimalType(10, 2),
    "dec38": T.DecimalType(38, 18),
    "day": T.DateType(),
    "at": T.TimestampType(),
    "local": T.TimestampNTZType(),
    "struct": INNER,
    "ints": T.ArrayType(T.IntegerType()),
    "never_null": T.ArrayType(T.IntegerType(), False),
    "structs": T.ArrayType(INNER),
    "lists": T.ArrayType(T.ArrayType(T.StringType())),
    "decimals": T.ArrayType(T.DecimalType(9, 1)),
    "map": T.MapType(T.StringType(), T.LongType()),
    "map_never_null": T.MapType(T.StringType(), T.LongType(), False),
    "map_structs": T.MapType(T.StringType(), INNER),
    "map_lists": T.MapType(T.StringType(), T.ArrayType(T.DecimalType(12, 1))),
}

SCHEMA = T.StructType(
    [
        T.StructField("id", T.StringType(), False),
        T.StructField("ts", T.LongType()),
        *(T.StructField(name, kind) for name, kind in COLUMNS.items()),
        T.StructField("commented", T.StringType(), True, {"comment": 'a "comment"'}),
    ]
)

SCALARS = {
    "short": (T.ShortType(), 7),
    "int": (T.IntegerType(), 16_777_217),
    "bigint": (T.LongType(), 2**53 + 1),
    "float": (T.FloatType(), 0.1),
    "double": (T.DoubleType(), 1e10),
    "string": (T.StringType(), "12"),
    "binary": (T.BinaryType(), b"12"),
    "date": (T.DateType(), dt.date(2020, 1, 2)),
    "timestamp": (T.TimestampType(), dt.datetime(2020, 1, 2, 3)),
    "timestamp_ntz": (T.TimestampNTZType(), dt.datetime(2020, 1, 2, 3)),
    "boolean": (T.BooleanType(), True),
    **{
        f"decimal({p},{s})": (T.DecimalType(p, s), Decimal(3))
        for p, s in ((8, 2), (10, 0), (10, 2), (10, 4), (11, 2), (12, 2), (12, 4), (20, 0))
    },
}


def start() -> SparkSession:
    """Start a session with Hudi."""
    return (
        SparkSession.builder.master("local[1]")
        .config("spark.jars.packages", BUNDLE)
        .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
        .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
        .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )


def write(frame: DataFrame, path: Path, name: str, operation: str = "upsert") -> None:
    """Write a non-partitioned copy-on-write table of one bucket."""
    (
        frame.write.format("hudi")
        .option("hoodie.table.name", name)
        .option("hoodie.datasource.write.recordkey.field", "id")
        .option("hoodie.datasource.write.precombine.field", "ts")
        .option("hoodie.datasource.write.partitionpath.field", "")
        .option(
            "hoodie.datasource.write.keygenerator.class",
            "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
        )
        .option("hoodie.datasource.write.operation", operation)
        .option("hoodie.index.type", "BUCKET")
        .option("hoodie.bucket.index.num.buckets", "1")
        .option("hoodie.bloom.index.filter.dynamic.max.entries", "10")
        .option("hoodie.index.bloom.num_entries", "10")
        .option("hoodie.metadata.enable", "false")
        .option("hoodie.clean.automatic", "false")
        .option("hoodie.embed.timeline.server", "false")
        .mode("append")
        .save(str(path))
    )


def commit_schema(path: Path) -> str:
    """Return the Avro schema in the table's newest commit."""
    commits = [f for f in (path / ".hoodie/timeline").iterdir() if f.suffix == ".commit"]
    with max(commits).open("rb") as file:
        schema: str = next(iter(fastavro.reader(file)))["extraMetadata"]["schema"]
    return schema


def base_file(path: Path) -> Path:
    """Return the table's newest base file."""
    return max(path.glob("*.parquet"), key=lambda file: file.name.rpartition("_")[2])


def innermost(error: Exception) -> str:
    """Return the first line of the innermost Java cause."""
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if cause is None:
        return str(error).partition("\n")[0]
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.toString()).partition("\n")[0][:200]


def row(rng: random.Random, number: int) -> tuple[object, ...]:
    """Make one row of SCHEMA, of which many values are null."""

    def maybe(value: object) -> object:
        return None if rng.random() < 0.2 else value

    def inner() -> tuple[object, ...]:
        deeper = (rng.randrange(-(2**63), 2**63), [str(rng.random())] * rng.randrange(3))
        return (rng.randrange(-(2**31), 2**31), Decimal(rng.randrange(10**12)).scaleb(-3), deeper)

    # Spark 3.5 refuses to write dates before 1582 and timestamps before 1900.
    day = dt.date(1900, 1, 2) + dt.timedelta(rng.randrange(2_958_000))
    at = dt.datetime(1900, 1, 2) + dt.timedelta(microseconds=rng.randrange(255 * 10**15))
    values = (
        maybe(rng.choice([-(2**31), 2**31 - 1, 0])),
        maybe(rng.choice([-(2**15), 2**15 - 1])),
        maybe(rng.choice([-(2**63), 2**63 - 1, 0])),
        maybe(rng.choice([float("nan"), -0.0, 1.5, float("inf")])),
        maybe(rng.choice([float("nan"), -0.0, 1e308, 5e-324])),
        maybe(rng.random() < 0.5),
        maybe(rng.choice(["", "ä", "🙂"])),
        maybe(rng.randbytes(3)),
        maybe(Decimal("-99999999.99")),
        maybe(Decimal("99999999999999999999.999999999999999999")),
        maybe(day),
        maybe(at),
        maybe(at),
        maybe(inner()),
        maybe([rng.randrange(9) for _ in range(rng.randrange(3))]),
        maybe([rng.randrange(9) for _ in range(rng.randrange(3))]),
        maybe([inner() for _ in range(rng.randrange(3))]),
        maybe([["a"], []]),
        maybe([Decimal("1.5")]),
        maybe({"a": 1, "b": None}),
        maybe({"a": 1}),
        maybe({"q": inner(), "r": None}),
        maybe({"z": [Decimal("1.5")]}),
    )
    return (f"k{number:02d}", 1, *values, "text")


def make_base_files(spark: SparkSession, out: Path, work: Path) -> None:
    """Keep a base file of each of Hudi's two ways to write, and Spark's own of the same rows."""
    rng = random.Random(18)
    frame = spark.createDataFrame([row(rng, number) for number in range(24)], SCHEMA).coalesce(1)
    for operation in ("upsert", "bulk_insert"):
        # Hudi's row path, which bulk_insert takes, fails on shorts ("Unsupported type").
        wide = frame.withColumn("small", frame.small.cast("int"))
        write(frame if operation == "upsert" else wide, work / operation, "types", operation)
        shutil.copy(base_file(work / operation), out / f"hudi_{operation}.parquet")
    (out / "base_file_schema.json").write_text(commit_schema(work / "upsert"), encoding="utf-8")
    frame.orderBy("id").coalesce(1).write.parquet(str(work / "plain"))
    shutil.copy(next((work / "plain").glob("*.parquet")), out / "spark_int96.parquet")


def make_schemas(spark: SparkSession, out: Path, work: Path) -> None:
    """Keep the commit schemas of tables with awkward names."""
    schemas = {}
    for number, name in enumerate(TABLE_NAMES):
        path = work / f"name{number}"
        write(spark.createDataFrame([], SCHEMA).coalesce(1), path, name)
        schemas[name] = commit_schema(path)
    text = json.dumps(schemas, ensure_ascii=False, indent=1)
    (out / "commit_schemas.json").write_text(text + "\n", encoding="utf-8")


def make_evolution(spark: SparkSession, out: Path, work: Path) -> None:
    """Keep, for each pair of types, what a column becomes that meets a batch of the other type."""

    def batch(key: str, kind: str) -> DataFrame:
        data_type, value = SCALARS[kind]
        fields = [*SCHEMA.fields[:2], T.StructField("c", data_type)]
        return spark.createDataFrame([(key, 1, value)], T.StructType(fields))

    results = []
    for table in SCALARS:
        origin = work / f"from_{table}"
        write(batch("k1", table), origin, "evolving")
        for incoming in SCALARS:
            path = work / "evolving"
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(origin, path)
            result = {"table": table, "incoming": incoming}
            try:
                write(batch("k2", incoming), path, "evolving")
                read = spark.read.format("hudi").load(str(path))
                result["becomes"] = read.schema["c"].dataType.simpleString()
                result["values"] = [str(found.c) for found in read.orderBy("id").collect()]
            except Exception as error:  # Whatever Hudi raises is the answer.
                result["refused"] = re.sub(r" writerSchema:.*", "", innermost(error))
            results.append(result)
            print(result, flush=True)
    lines = ",\n".join(json.dumps(result, ensure_ascii=False) for result in results)
    (out / "evolution.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def main() -> None:
    """Make everything."""
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    spark = start()
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory() as folder:
        make_base_files(spark, out, Path(folder))
        make_schemas(spark, out, Path(folder))
        make_evolution(spark, out, Path(folder))
    spark.stop()


if __name__ == "__main__":
    main()
