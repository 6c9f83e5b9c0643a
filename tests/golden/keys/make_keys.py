"""Ask real Hudi for the record key and partition path of each column type and each generator.

usage: make_keys.py OUT_DIR [NAME ...]     (Python with PySpark 3.5, pandas<3 and pyarrow; Java 17)

Each case is a small copy-on-write table with one bucket. The source rows go to Spark as a Parquet
file that pyarrow writes (so that every value is exact), and the two meta columns are read from the
base files, not through Hudi's reader, which cannot parse every partition path that Hudi writes.
Cases run under ``upsert`` (keys made from Avro records) and ``bulk_insert`` (keys made from Spark
rows); ``*.json`` holds both, and the message of the innermost cause where Hudi refuses.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

HUDI = "1.2.0"
DAY_US, DAY = 86_400_000_000, 86_400

# Column type -> values. Numbers stand for the stored integer of dates, timestamps and booleans;
# floats travel as text, binary as hexadecimal digits.
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "byte": (pa.int8(), [0, 1, -1, 127, -128]),
    "short": (pa.int16(), [0, -7, 32767]),
    "int": (pa.int32(), [0, 1, -1, 2147483647, -2147483648]),
    "long": (pa.int64(), [0, 42, -1, 9223372036854775807, -9223372036854775808]),
    "boolean": (pa.bool_(), [1, 0]),
    "float": (
        pa.float32(),
        "0 -0.0 1 1.5 -2.25 0.1 0.001 0.0009999 1e-3 9999999 1e7 1.1e7 16777216 3.4028235e38"
        " 1e-45 1.1754944e-38 1e10 123456.79 3.3e-5 2e23 nan inf -inf 8.41e21 2.0e-3 33554432"
        " 1.0e-10 4.7e-38 1.23456789e12".split(),
    ),
    "double": (
        pa.float64(),
        "0 -0.0 1 1.5 -2.25 0.1 0.001 0.0009999 1e-3 9999999 1e7 1.1e7 12345678.9 1e21 1e22"
        " 1.7976931348623157e308 4.9e-324 2.2250738585072014e-308 123456789012345680 0.3"
        " 0.30000000000000004 2e23 2.0e-3 1e23 nan inf -inf 8.41e21 5e-324 2.2e-322 1e-5 100"
        " 1234567 12345678 0.00123 9007199254740993 1.0e16 4.8726570057e288".split(),
    ),
    "decimal_10_2": (pa.decimal128(10, 2), ["0.00", "1.50", "-1.05", "12345678.90", "100.00"]),
    "decimal_10_0": (pa.decimal128(10, 0), ["0", "-5", "1000000000"]),
    "decimal_38_18": (
        pa.decimal128(38, 18),
        ["0", "1", "0.000000000000000001", "-12345678901234567890.123456789012345678", "0.0000001"],
    ),
    "date": (pa.date32(), [0, 1, -1, 19675, 2932896, -141427, 20593]),
    "date_ancient": (pa.date32(), [-719162, -141428, -719528, -719529, 2932897, 100_000_000]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [0, 1, -1, 1_700_000_000_000_000, 1_700_000_000_123_456, 1_700_000_000_100_000, -DAY_US],
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        [0, 1, -1, 1_700_000_000_000_000, 1_700_000_000_123_456, 1_700_000_000_100_000, -DAY_US],
    ),
    "string": (
        pa.string(),
        ["a", " ", "a b", "null", "__null__", "__empty__", "ключ", "日本", "😀", "a,b", "x" * 40],
    ),
    "binary": (pa.binary(), ["00", "ff", "616263", "", "c3a9"]),
}
COMPOSITE = "org.apache.hudi.keygen.ComplexKeyGenerator"
TIMESTAMP = "org.apache.hudi.keygen.TimestampBasedKeyGenerator"
CUSTOM = "org.apache.hudi.keygen.CustomKeyGenerator"
SIMPLE = "org.apache.hudi.keygen.SimpleKeyGenerator"
HIVE = {"hoodie.datasource.write.hive_style_partitioning": "true"}
ENCODE = {"hoodie.datasource.write.partitionpath.urlencode": "true"}
SLASH = {"hoodie.datasource.write.slash.separated.date.partitioning": "true"}
CONSISTENT = {"hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": "true"}


def column(kind: str, values: list[Any]) -> pa.Array:
    """Build a column whose stored values are exactly the given ones."""
    data_type = TYPES[kind][0]
    if pa.types.is_floating(data_type):
        return pa.array([None if v is None else float(v) for v in values], data_type)
    if pa.types.is_binary(data_type):
        return pa.array([None if v is None else bytes.fromhex(v) for v in values], data_type)
    if pa.types.is_date32(data_type):
        return pa.array(values, pa.int32()).cast(data_type)
    if pa.types.is_timestamp(data_type):
        return pa.array(values, pa.int64()).cast(data_type)
    if pa.types.is_decimal(data_type):
        return pa.array(values, pa.string()).cast(data_type)
    if pa.types.is_boolean(data_type):
        return pa.array([None if v is None else bool(v) for v in values], data_type)
    return pa.array(values, data_type)


class Asker:
    """Writes tiny tables with Hudi and reads their meta columns back."""

    def __init__(self) -> None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        self.folder = tempfile.mkdtemp(prefix="make_keys_")
        self.count = 0
        java = "-Duser.timezone=UTC"
        self.spark = (
            SparkSession.builder.master("local[1]")
            .config("spark.jars.packages", f"org.apache.hudi:hudi-spark3.5-bundle_2.12:{HUDI}")
            .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
            .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
            .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
            .config("spark.driver.extraJavaOptions", java)
            .config("spark.driver.memory", "1g")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", "1")
            .config("spark.sql.parquet.datetimeRebaseModeInRead", "CORRECTED")
            .config("spark.sql.parquet.int96RebaseModeInRead", "CORRECTED")
            .getOrCreate()
        )
        self.spark.sparkContext.setLogLevel("OFF")

    def ask(
        self,
        rows: pa.Table,
        keys: str,
        partitions: str,
        generator: str | None = None,
        read: bool = False,
        **options: str,
    ) -> dict[str, Any]:
        """Return, per operation, the (record key, partition path) of each row, or the refusal.

        With ``read``, only ``upsert``, and what Hudi's snapshot read finds in the column ``p``.
        """
        rows = rows.append_column("row_number", pa.array(range(len(rows)), pa.int64()))
        return {
            operation: self._write(rows, keys, partitions, generator, operation, options, read)
            for operation in (("upsert",) if read else ("upsert", "bulk_insert"))
        }

    def _write(
        self,
        rows: pa.Table,
        keys: str,
        partitions: str,
        generator: str | None,
        operation: str,
        options: dict[str, str],
        read: bool,
    ) -> Any:
        self.count += 1
        source, path = f"{self.folder}/in{self.count}.parquet", f"{self.folder}/t{self.count}"
        pq.write_table(rows, source)
        settings = {
            "hoodie.table.name": "t",
            "hoodie.datasource.write.recordkey.field": keys,
            "hoodie.datasource.write.partitionpath.field": partitions,
            "hoodie.datasource.write.operation": operation,
            "hoodie.index.type": "BUCKET",
            "hoodie.bucket.index.num.buckets": "1",
            "hoodie.metadata.enable": "false",
            "hoodie.combine.before.upsert": "false",
            "hoodie.upsert.shuffle.parallelism": "1",
            "hoodie.bulkinsert.shuffle.parallelism": "1",
            **({"hoodie.datasource.write.keygenerator.class": generator} if generator else {}),
            **options,
        }
        try:
            frame = self.spark.read.parquet(source)
            frame.write.format("hudi").options(**settings).mode("overwrite").save(path)
            found = self._meta_columns(path, len(rows))
            return [*found, self._snapshot(path)] if read else found
        except Exception as error:  # The refusal is the answer.
            return {"refused": innermost(error)}
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def _snapshot(self, path: str) -> Any:
        try:
            return [row["p"] for row in self.spark.read.format("hudi").load(path).collect()]
        except Exception as error:
            return {"refused": innermost(error)}

    def _meta_columns(self, path: str, row_count: int) -> list[list[str]]:
        found: dict[int, list[str]] = {}
        wanted = ["row_number", "_hoodie_record_key", "_hoodie_partition_path"]
        for folder, _, names in os.walk(path):
            for name in names:
                if name.endswith(".parquet"):
                    file = pq.ParquetFile(f"{folder}/{name}")
                    for record in file.read(columns=wanted).to_pylist():
                        found[record["row_number"]] = [record[wanted[1]], record[wanted[2]]]
        return [found.get(i, ["<missing>", "<missing>"]) for i in range(row_count)]


def innermost(error: Exception) -> str:
    """Return class and message of an error's innermost cause."""
    cause = getattr(error, "java_exception", None)
    if cause is None:
        return str(error)[:300]
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.toString())[:300]


def type_cases(asker: Asker) -> dict[str, Any]:
    """Each type as single key, as member of a composite key, and as partition column."""
    cases: dict[str, Any] = {}
    for kind, (data_type, values) in TYPES.items():
        values = list(dict.fromkeys(values))
        table = pa.table({"k": column(kind, values), "p": column(kind, values)})
        case: dict[str, Any] = {"arrow": str(data_type), "values": values}
        case["simple"] = asker.ask(table, "k", "p")
        with_null = pa.table(
            {"k": column(kind, [*values, None]), "s": ["x"] * (len(values) + 1)}
        ).append_column("p", column(kind, [*values, None]))
        case["complex"] = asker.ask(with_null, "k,s", "p,s", COMPOSITE, **HIVE, **ENCODE)
        if "timestamp" in kind or "date" in kind:
            case["simple_consistent"] = asker.ask(table, "k", "p", **CONSISTENT)
            case["complex_consistent"] = asker.ask(
                with_null, "k,s", "p,s", COMPOSITE, **HIVE, **ENCODE, **CONSISTENT
            )
        cases[kind] = case
        print(kind, json.dumps(case, ensure_ascii=False)[:600], flush=True)
    return cases


def generator_cases(asker: Asker) -> list[dict[str, Any]]:
    """String columns under each generator: null, empty and awkward values."""
    one = {"k": ["a", "b:c", "d,e", "f:g,h:i"]}
    two = {"a": ["x", None, "", "p:q", None], "b": ["1", "2", "3", "r,s", ""]}
    part = {
        "k": list("abcdefghijkl"),
        "p": [
            "x", None, "", "p 1/z", "q=2", "%", "a:b", "ä#?", "{}[]^\\", "2020-01-02", "a+b", "~.x",
        ],
    }  # fmt: skip
    days = {"k": list("abcd"), "p": ["2020-01-02", None, "x", "a-b-c"]}
    awkward = {"a": ["x:y,b:z", ":", ",", "a,b:c", "__null__"], "b": ["1", "", ",", ":", None]}
    nested = pa.table(
        {"n": pa.array([{"id": "u", "p": "v"}, {"id": "w", "p": None}]), "s": ["1", "2"]}
    )
    asks: list[tuple[str, Any, str, str, str | None, dict[str, str]]] = [
        ("inferred single key, no partition", one, "k", "", None, {}),
        ("complex with one key", one, "k", "", COMPOSITE, {}),
        ("null key", {"k": ["a", None]}, "k", "", None, {}),
        ("empty key", {"k": ["a", ""]}, "k", "", None, {}),
        ("two keys, no partition", {k: v[:4] for k, v in two.items()}, "a,b", "", None, {}),
        ("two keys, all null or empty", two, "a,b", "", None, {}),
        ("composite awkward", awkward, "a,b", "", None, {}),
        ("partition encoded", part, "k", "p", SIMPLE, ENCODE),
        ("partition hive and encoded", part, "k", "p", SIMPLE, {**HIVE, **ENCODE}),
        ("slash separated", days, "k", "p", SIMPLE, SLASH),
        ("slash separated, hive", days, "k", "p", SIMPLE, {**SLASH, **HIVE}),
        ("slash separated, encoded", days, "k", "p", SIMPLE, {**SLASH, **ENCODE}),
        ("slash separated, two fields", days, "k", "p,k", COMPOSITE, SLASH),
        ("custom simple simple", {**part, "q": ["z"] * 12}, "k", "p:SIMPLE,q:SIMPLE", CUSTOM,
         {**HIVE, **ENCODE}),
        ("nested single", nested, "n.id", "n.p", SIMPLE, HIVE),
        ("nested composite", nested, "n.id,s", "n.p,s", COMPOSITE, HIVE),
    ]  # fmt: skip
    cases = []
    for name, data, keys, partitions, generator, options in asks:
        table = (
            data
            if isinstance(data, pa.Table)
            else pa.table({name: pa.array(values, pa.string()) for name, values in data.items()})
        )
        result = asker.ask(table, keys, partitions, generator, **options)
        cases.append(
            {"name": name, "columns": table.to_pydict(), "keys": keys, "partitions": partitions,
             "generator": (generator or "").rpartition(".")[2], "options": options, **result}
        )  # fmt: skip
        print(json.dumps(cases[-1], ensure_ascii=False), flush=True)
    return cases


def time_options(
    type_: str, output: str, *, zone: str | None = None, **more: str
) -> dict[str, str]:
    prefix = "hoodie.keygen.timebased."
    options = {"timestamp.type": type_, "output.dateformat": output}
    if zone is not None:
        options["timezone"] = zone
    options |= {name.replace("__", "."): value for name, value in more.items()}
    return {prefix + name: value for name, value in options.items()}


LETTERS = (
    "yyyy|yy|y|YYYY|Y|MM|M|dd|d|DDD|D|HH|H|hh|h|kk|k|KK|K|mm|m|ss|s|SSS|S|SSSSSS|a|e|ee|ww|w"
    "|xxxx|xx|E|EEE|EEEE|MMM|MMMM|Z|ZZ|ZZZ|G|C|yyyyy|MMMMM|''|'text'|_-.,|z"
).split("|")


def timestamp_cases(asker: Asker) -> list[dict[str, Any]]:
    """Timestamp-based partitioning: input kinds, patterns, time zones, column types."""
    seconds = [
        0,
        1,
        -1,
        1_700_000_000,
        1_578_283_932,
        1_609_459_199,
        1_583_020_799,
        -DAY * 366 * 200,
    ]
    seconds += [1_583_657_940, 1_604_210_400, 1_604_213_999, 253_402_300_799, None]
    millis = [None if s is None else s * 1000 + 123 for s in seconds]
    micros = [None if s is None else s * 1_000_000 + 123_456 for s in seconds]
    dates = ["2020-01-06 04:12:12", "2021-12-31 23:59:59", "1969-12-31 23:59:59", None]
    tokyo, berlin, york = "Asia/Tokyo", "Europe/Berlin", "America/New_York"
    hour = "yyyy/MM/dd/HH"
    iso, iso_ms = "yyyy-MM-dd'T'HH:mm:ssZ", "yyyy-MM-dd'T'HH:mm:ss.SSSZ"
    both = {"input__dateformat": f"{iso},{iso_ms}"}
    offsets = ["2020-04-01T13:01:33.428Z", "2020-04-01T13:01:33Z", "2020-04-01T13:01:33-05:00",
               "2020-04-01T13:01:33.123+0530"]  # fmt: skip
    unpadded = ["2020-1-6 4:2:2", "2020-01-06 04:12:12", "20201-01-06 04:12:12"]
    spaced = {"input__dateformat": "yyyy-MM-dd HH:mm:ss"}
    asks: list[tuple[pa.DataType, list[Any], dict[str, str]]] = [
        (pa.int64(), seconds, time_options("UNIX_TIMESTAMP", "yyyy-MM-dd HH_mm_ss")),
        (pa.int32(), [s for s in seconds if s is None or abs(s) < 2**31],
         time_options("UNIX_TIMESTAMP", hour)),
        (pa.int64(), millis, time_options("EPOCHMILLISECONDS", hour, zone="GMT")),
        (pa.int64(), millis, time_options("EPOCHMILLISECONDS", hour, zone="GMT+8:00")),
        (pa.int64(), millis, time_options("EPOCHMILLISECONDS", hour, zone=tokyo)),
        (pa.int64(), millis, time_options("EPOCHMILLISECONDS", hour, zone=york)),
        (pa.int64(), micros, time_options("EPOCHMICROSECONDS", "yyyyMMdd_HH_SSSSSS", zone=berlin)),
        (pa.int64(), micros, time_options("EPOCHMICROSECONDS", "SSSSSSSSS'x'SS")),
        (pa.int64(), [0, 20000, -3, 18262, None], time_options(
            "SCALAR", "yyyy-MM-dd", timestamp__scalar__time__unit="DAYS")),
        (pa.int64(), [0, 20000, -3, None], time_options(
            "SCALAR", hour, timestamp__scalar__time__unit="hours")),
        (pa.int64(), seconds, time_options("SCALAR", hour)),
        (pa.int64(), micros, time_options(
            "SCALAR", hour, timestamp__scalar__time__unit="MICROSECONDS")),
        (pa.int64(), [None if s is None else s * 1_000_000_000 for s in seconds[:5]],
         time_options("SCALAR", hour, timestamp__scalar__time__unit="NANOSECONDS")),
        (pa.int64(), [0, 28_000_000, None], time_options(
            "SCALAR", hour, timestamp__scalar__time__unit="MINUTES")),
        (pa.string(), dates, time_options("DATE_STRING", hour, **spaced)),
        (pa.string(), dates, time_options("DATE_STRING", hour, zone=tokyo, **spaced)),
        (pa.string(), dates, time_options("DATE_STRING", hour, **spaced,
            input__timezone=berlin, output__timezone=york)),
        (pa.string(), dates, time_options("DATE_STRING", hour, **spaced, input__timezone=york)),
        (pa.string(), dates, time_options("DATE_STRING", hour, **spaced, output__timezone=york)),
        (pa.string(), ["2020-01-06 04:12:12", ""], time_options("DATE_STRING", hour, **spaced)),
        (pa.string(), unpadded, time_options("DATE_STRING", hour, **spaced)),
        (pa.string(), ["2020-01-06"], time_options("DATE_STRING", hour, **spaced)),
        (pa.string(), ["2020-01-06", "1999-12-31"], time_options(
            "DATE_STRING", "yyyyMMdd", input__dateformat="yyyy-MM-dd")),
        (pa.string(), ["20200106", "19991231"], time_options(
            "DATE_STRING", "yyyy/MM", input__dateformat="yyyyMMdd")),
        (pa.string(), ["06.01.20", "31.12.99", "1.2.49", "1.2.50", "1.2.51", "1.2.1999"],
         time_options("DATE_STRING", "yyyyMMdd", input__dateformat="dd.MM.yy")),
        (pa.string(), offsets, time_options("DATE_STRING", "yyyyMMddHH", **both)),
        (pa.string(), offsets, time_options("DATE_STRING", "yyyyMMddHH", zone="GMT", **both)),
        (pa.string(), offsets, time_options("DATE_STRING", "MM/dd/yyyy", **both,
            input__timezone="", output__timezone="UTC")),
        (pa.string(), offsets, time_options("DATE_STRING", "yyyyMMddHH", **both,
            input__timezone=tokyo, output__timezone=york)),
        (pa.string(), ["1700000000", "2020-01-06 04:12:12"], time_options("MIXED", hour, **spaced)),
        (pa.int64(), [1_700_000_000, 1_700_000_000_000], time_options("MIXED", hour, **spaced)),
        (pa.float64(), [0.0, 1.7e9, 1.5, None], time_options("UNIX_TIMESTAMP", hour)),
        (pa.float32(), [0.0, 1.5e9, None], time_options("UNIX_TIMESTAMP", hour)),
        (pa.decimal128(20, 3), ["0", "1700000000.123", None], time_options("UNIX_TIMESTAMP", hour)),
        (pa.string(), ["1700000000", None], time_options("UNIX_TIMESTAMP", hour)),
        (pa.timestamp("us", "UTC"), micros, time_options("EPOCHMILLISECONDS", hour)),
        (pa.timestamp("us", "UTC"), micros, time_options("EPOCHMICROSECONDS", hour)),
        (pa.timestamp("us", "UTC"), micros, time_options("UNIX_TIMESTAMP", hour)),
        (pa.timestamp("us", "UTC"), micros, time_options("SCALAR", hour,
            timestamp__scalar__time__unit="MICROSECONDS")),
        (pa.timestamp("us", "UTC"), micros, time_options("DATE_STRING", hour, **spaced)),
        (pa.timestamp("us", "UTC"), micros, time_options("EPOCHMILLISECONDS", hour)
            | CONSISTENT),
        (pa.timestamp("us", "UTC"), micros, time_options("EPOCHMILLISECONDS", hour, zone=tokyo)),
        (pa.timestamp("us"), micros, time_options("EPOCHMILLISECONDS", hour)),
        (pa.timestamp("us"), micros, time_options("EPOCHMICROSECONDS", hour)),
        (pa.date32(), [0, 19675, -1, None], time_options("EPOCHMILLISECONDS", hour)),
        (pa.date32(), [0, 19675, -1, None], time_options("SCALAR", hour,
            timestamp__scalar__time__unit="DAYS")),
        (pa.date32(), [0, 19675, -1, None], time_options("DATE_STRING", hour, **spaced)),
        (pa.date32(), [0, 19675, -1, None], time_options("UNIX_TIMESTAMP", hour, zone=york)),
        (pa.int64(), seconds[:5], time_options("UNIX_TIMESTAMP", hour) | HIVE),
        (pa.int64(), seconds[:5], time_options("UNIX_TIMESTAMP", hour) | HIVE | ENCODE),
        (pa.int64(), seconds[:5], time_options("UNIX_TIMESTAMP", "yyyy-MM-dd HH:mm:ss") | ENCODE),
        (pa.int64(), seconds[:5], time_options("UNIX_TIMESTAMP", hour, input__timezone=york)),
        (pa.int64(), [*seconds[:5], None],
         time_options("UNIX_TIMESTAMP", hour, output__timezone=york)),
        (pa.int64(), seconds[:5], time_options("UNIX_TIMESTAMP", hour, zone="EST")),
        (pa.int64(), seconds[:5], time_options("UNIX_TIMESTAMP", hour, zone="GMT-05:30")),
        (pa.int64(), seconds[:5], time_options("UNIX_TIMESTAMP", hour, zone="UTC+8")),
        (pa.int64(), seconds[:5], time_options("UNIX_TIMESTAMP", hour, zone="+08:00")),
        (pa.int64(), seconds[:5], time_options("UNIX_TIMESTAMP", hour, zone="Nowhere/Land")),
        (pa.string(), ["2020-01-06 04", "2020-01-06 04:12:12x"],
         time_options("DATE_STRING", hour, input__dateformat="yyyy-MM-dd HH")),
        (pa.string(), ["2020-03-08 02:30:00"], time_options(
            "DATE_STRING", hour, zone=york, **spaced)),
        (pa.string(), ["2020-11-01 01:30:00"], time_options(
            "DATE_STRING", hour, input__timezone=york, output__timezone="UTC", **spaced)),
        (pa.string(), ["2020-02-30 01:30:00"], time_options("DATE_STRING", hour, **spaced)),
        (pa.string(), ["2020-01-06;04", "2020-01-06 05"], time_options("DATE_STRING", hour,
            input__dateformat="yyyy-MM-dd';'HH#yyyy-MM-dd HH",
            input__dateformat__list__delimiter__regex="#")),
        *[(pa.int64(), millis[:11], time_options("EPOCHMILLISECONDS", f"{letter}_", zone=york))
          for letter in LETTERS],
    ]  # fmt: skip
    cases = []
    for data_type, values, options in asks:
        cases.append(timestamp_case(asker, data_type, values, TIMESTAMP, "p", options))
    daily = time_options("UNIX_TIMESTAMP", "yyyy/MM/dd", zone=tokyo)
    for partitions in ("p:TIMESTAMP", "s:SIMPLE,p:TIMESTAMP", "p:timestamp,s:simple"):
        for options in ({}, HIVE, ENCODE, HIVE | ENCODE):
            cases.append(
                timestamp_case(
                    asker, pa.int64(), [*seconds[:5], None], CUSTOM, partitions, daily | options
                )
            )
    return cases


def timestamp_case(
    asker: Asker,
    data_type: pa.DataType,
    values: list[Any],
    generator: str,
    partitions: str,
    options: dict[str, str],
) -> dict[str, Any]:
    if pa.types.is_date32(data_type):
        data = pa.array(values, pa.int32()).cast(data_type)
    elif pa.types.is_timestamp(data_type):
        data = pa.array(values, pa.int64()).cast(data_type)
    elif pa.types.is_decimal(data_type):
        data = pa.array(values, pa.string()).cast(data_type)
    else:
        data = pa.array(values, data_type)
    keys = [f"k{i}" for i in range(len(values))]
    side = ["a/b" if i % 2 else "c" for i in range(len(values))]
    table = pa.table({"k": keys, "p": data, "s": side})
    result = asker.ask(table, "k", partitions, generator, **options)
    answer = {
        operation: paths if isinstance(paths, dict) else [path for _, path in paths]
        for operation, paths in result.items()
    }
    case = {
        "arrow": str(data_type), "values": values, "s": side, "partitions": partitions,
        "generator": generator.rpartition(".")[2], "options": options, **answer,
    }  # fmt: skip
    print(json.dumps(case, ensure_ascii=False), flush=True)
    return case


def path_cases(asker: Asker) -> list[dict[str, Any]]:
    """One partition value a table, not encoded: does Hudi write it, and read it back?"""
    values = [
        "x", "a b", " a", "a ", " ", "a:b", "a/b:c", "a,b", "a#b", "a?b", "a%b", "%41", "a{b",
        "a}b", "[a]", "a\\b", "a*b", 'a"b', "a'b", "a=b", "=", "a+b", "~", ".x", "_x", "x.y",
        "a/b", "a//b", "/a", "a/", "a/../b", "..", ".", "a/./b", ".hoodie",
        "__HIVE_DEFAULT_PARTITION__", "\t", "a\nb", "ä", "日本", "😀", "a\x01b", "a^b", "a|b",
        "a<b", "null",
    ]  # fmt: skip
    cases = []
    for value in values:
        table = pa.table({"k": ["a"], "p": [value]})
        plain = asker.ask(table, "k", "p", SIMPLE, read=True)["upsert"]
        encoded = asker.ask(table, "k", "p", SIMPLE, read=True, **ENCODE)["upsert"]
        cases.append({"value": value, "plain": plain, "encoded": encoded})
        print(json.dumps(cases[-1], ensure_ascii=False), flush=True)
    return cases


def save(folder: str, name: str, cases: Any) -> None:
    """Write the answers as JSON, a case a line."""
    is_list = isinstance(cases, list)
    heads = [""] * len(cases) if is_list else [f"{json.dumps(key)}: " for key in cases]
    bodies = cases if is_list else cases.values()
    lines = [h + json.dumps(c, ensure_ascii=False) for h, c in zip(heads, bodies, strict=True)]
    begin, end = "[]" if is_list else "{}"
    source = json.dumps(f"Apache Hudi {HUDI} on Spark 3.5, Java 17")
    text = f'{{"source": {source}, "cases": {begin}\n' + ",\n".join(lines) + f"\n{end}}}\n"
    Path(folder, f"{name}.json").write_text(text, encoding="utf-8")


def main() -> None:
    """Ask everything and save the answers."""
    folder, only = sys.argv[1], sys.argv[2:]
    asker = Asker()
    for name, ask in (
        ("column_types", type_cases),
        ("generators", generator_cases),
        ("paths", path_cases),
        ("timestamps", timestamp_cases),
    ):
        if not only or name in only:
            save(folder, name, ask(asker))
    shutil.rmtree(asker.folder)


if __name__ == "__main__":
    main()
