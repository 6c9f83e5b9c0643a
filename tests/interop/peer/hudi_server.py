"""Real Hudi behind a pipe: Spark 3.5 with Hudi's bundle, told what to do line by line.

Runs in the environment of PySpark 3.5 (``scripts/setup spark35``) and is started by ``client.py``,
in an environment where another PySpark lives. It reads one JSON command a line on standard input
and answers with one JSON line each on the file descriptor named by its argument: Spark writes to
standard output and error as it likes, and never into an answer. Rows travel as Parquet files.
Further settings of its session come as JSON, then the version of Hudi.

Commands: ``write``, ``read``, ``sql``, ``load``, ``lock``, ``unlock`` and ``config_properties``,
with the fields that the functions below take. It ends when its input ends, and takes its JVM along.
"""

from __future__ import annotations

import datetime
import decimal
import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any, TextIO

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, Row, SparkSession

HUDI_BUNDLE = "org.apache.hudi:hudi-spark3.5-bundle_2.12"
PACKAGES = "spark.jars.packages"
LOCKS: dict[str, Any] = {}  # Taken, and not given up yet.
SESSION = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.sql.session.timeZone": "UTC",
    # INT64 microseconds, as Hudi itself stores them, and not Spark's INT96.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Rows on their way to a test keep dates before the Gregorian calendar as they are.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    # Tests are short: the optimising compiler and a parallel collector cost more than they give.
    # Hudi measures object sizes by attaching to its own process, which takes seconds; it need not.
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djol.skipHotspotSAAttach=true"
    ),
}


def main() -> None:
    """Start Spark, say so, then serve commands until there are no more."""
    answers = os.fdopen(int(sys.argv[1]), "w", encoding="utf-8", buffering=1)
    warehouse, settings, version = sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
    bundle = f"{HUDI_BUNDLE}:{version}"
    try:
        spark = start_spark(warehouse, settings, bundle)
    except Exception as error:  # Whatever it is, the client has to hear of it.
        answer(answers, {"ok": False, "error": f"{type(error).__name__}: {error}"})
        return
    answer(answers, {"ok": True, "spark": spark.version, "hudi": bundle})
    for line in sys.stdin:
        answer(answers, serve(spark, json.loads(line)))
    spark.stop()


def start_spark(warehouse: str, settings: dict[str, str], bundle: str) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("hudi-peer")
    packages = [bundle, *filter(None, [settings.pop(PACKAGES, "")])]
    for key, value in (SESSION | settings | {PACKAGES: ",".join(packages)}).items():
        builder = builder.config(key, value)
    spark = builder.config("spark.sql.warehouse.dir", warehouse).getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    find_records(spark.sparkContext._jvm)
    return spark


def find_records(jvm: Any) -> None:
    """Have Avro find Hudi's classes of delete records in this thread, which sees the bundle.

    Threads of Java's common pool do not see it, and what they do not find Avro remembers as missing
    for all threads: https://github.com/apache/hudi/issues/13410.
    """
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    records = loader.loadClass("org.apache.hudi.avro.model.HoodieDeleteRecordList")
    model = jvm.org.apache.avro.specific.SpecificData.getForClass(records)
    schemas = [model.getSchema(records)]
    while schemas:
        schema = schemas.pop()
        kind = schema.getType().getName()
        if kind == "record":
            assert model.getClass(schema) is not None, schema.getFullName()
            schemas += [field.schema() for field in schema.getFields()]
        elif kind == "union":
            schemas += [*schema.getTypes()]
        elif kind == "array":
            schemas.append(schema.getElementType())


def serve(spark: SparkSession, command: dict[str, Any]) -> dict[str, Any]:
    """Carry out one command; an error becomes an answer, and the server goes on."""
    verbs = [write, read, sql, load, lock, unlock, config_properties]
    verb = {one.__name__: one for one in verbs}[command.pop("verb")]
    try:
        return {"ok": True, "result": verb(spark, **command)}
    except Py4JError as error:
        return {"ok": False, "error": causes_of(error)}
    except Exception as error:  # As above: the client raises it again in the test.
        return {"ok": False, "error": f"{type(error).__name__}: {error}"}


def write(spark: SparkSession, path: str, rows: str, options: dict[str, str], mode: str) -> None:
    """Write the rows of a Parquet file to a Hudi table."""
    given = with_vectors(spark, spark.read.parquet(rows))
    given.write.format("hudi").options(**options).mode(mode).save(path)


def with_vectors(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """Return rows whose vectors have no nullable elements, as Hudi wants them.

    Spark reads every element of a Parquet file as nullable.
    """
    schema = rows.schema
    vectors = [f for f in schema if f.metadata.get("hudi_type", "").startswith("VECTOR")]
    for field in vectors:
        field.dataType.containsNull = False
    return spark.createDataFrame(rows.collect(), schema) if vectors else rows


def read(
    spark: SparkSession,
    path: str,
    options: dict[str, str],
    columns: list[str] | None,
    where: str | None,
    into: str,
) -> None:
    """Read a Hudi table into a folder with one Parquet file."""
    rows = spark.read.format("hudi").options(**options).load(path)
    if where is not None:
        rows = rows.where(where)
    if columns is not None:
        rows = rows.select(*[f"`{name}`" for name in columns])
    rows.coalesce(1).write.parquet(into)


def sql(spark: SparkSession, text: str) -> list[dict[str, Any]]:
    """Run a statement and return its rows."""
    return [plain(row) for row in spark.sql(text).collect()]


def load(spark: SparkSession, source: str, into: str) -> None:
    """Compile a Java class with the compiler that Spark brings, and put it beside Hudi's."""
    java = spark.sparkContext._jvm.java
    loader = java.lang.Thread.currentThread().getContextClassLoader()
    compiler = spark.sparkContext._jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(source)
    for name, code in compiler.getBytecodes().items():
        file = Path(into, *name.split(".")).with_suffix(".class")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(code)
    loader.addURL(java.io.File(into).toURI().toURL())


def lock(spark: SparkSession, path: str) -> bool:
    """Take the storage-based lock of a table, and keep it; say whether it was to be had."""
    jvm, hudi = spark.sparkContext._jvm, spark.sparkContext._jvm.org.apache.hudi
    properties = hudi.common.config.TypedProperties()
    properties.put("hoodie.base.path", path)
    provider = hudi.client.transaction.lock.StorageBasedLockProvider(
        hudi.common.config.LockConfiguration(properties),
        hudi.storage.hadoop.HadoopStorageConfiguration(
            spark.sparkContext._jsc.hadoopConfiguration()
        ),
    )
    taken: bool = provider.tryLock(1, jvm.java.util.concurrent.TimeUnit.SECONDS)
    if taken:
        LOCKS[path] = provider
    else:
        provider.close()
    return taken


def unlock(spark: SparkSession, path: str) -> None:
    """Give up a lock that was taken."""
    provider = LOCKS.pop(path)
    provider.unlock()
    provider.close()


def config_properties(spark: SparkSession) -> list[dict[str, Any]]:
    """List the options that the classes of Hudi's bundle declare, as they declare them."""
    jvm = spark.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    paths = [url.getPath() for url in loader.getURLs()]
    bundle = next(path for path in paths if HUDI_BUNDLE.partition(":")[2] in path)
    found = []
    for name in classes_with(bundle, b"Lorg/apache/hudi/common/config/ConfigProperty;"):
        try:
            kind = jvm.java.lang.Class.forName(name, False, loader)
            fields = list(kind.getDeclaredFields())
        except Py4JError:  # Its library is not in the bundle, as that of Lance.
            continue
        # The fields of a Scala object belong to its only instance.
        owner = kind.getField("MODULE$").get(None) if name.endswith("$") else None
        for field in fields:
            if not field.getType().getName().endswith(".ConfigProperty"):
                continue
            is_static = jvm.java.lang.reflect.Modifier.isStatic(field.getModifiers())
            if owner is None and not is_static:
                continue
            field.setAccessible(True)
            found.append(described(field.get(owner)) | {"class": name})
    return found


def classes_with(jar: str, constant: bytes) -> list[str]:
    """Return the classes of Hudi with a constant and static values."""
    with zipfile.ZipFile(jar) as packed:
        names = [n for n in packed.namelist() if n.startswith("org/apache/hudi/")]
        names = [n for n in names if n.endswith(".class")]
        codes = {name: packed.read(name) for name in names}
    return [
        name.removesuffix(".class").replace("/", ".")
        for name, code in codes.items()
        if constant in code and b"<clinit>" in code
    ]


def described(declared: Any) -> dict[str, Any]:
    """Return what a ConfigProperty says of its option."""
    since, deprecated = declared.getSinceVersion(), declared.getDeprecatedVersion()
    return {
        "key": declared.key(),
        "default": str(declared.defaultValue()) if declared.hasDefaultValue() else None,
        "alternatives": list(declared.getAlternatives()),
        "since": str(since.get()) if since.isPresent() else None,
        "deprecated": str(deprecated.get()) if deprecated.isPresent() else None,
    }


def plain(value: Any) -> Any:
    """Turn a value of a row into what JSON can carry; text for what it cannot."""
    if isinstance(value, Row):
        return {name: plain(child) for name, child in value.asDict().items()}
    if isinstance(value, dict):
        return {str(key): plain(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(child) for child in value]
    if isinstance(value, (datetime.date, datetime.datetime, decimal.Decimal)):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex()
    return value


def causes_of(error: Py4JError) -> str:
    """Keep what each exception of a Java trace says, without the frames between them."""
    lines = str(error).splitlines()
    said = [line for line in lines if not line.lstrip().startswith(("at ", "... "))]
    return "\n".join(dict.fromkeys(said))


def answer(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
