# ruff: noqa
# fmt: off
# Kept as it was run, so that the tables stay explained by it; see README.md.
"""Write two small tables with VARIANT by real Hudi 1.2.0 on Spark 3.5, which can write the type but not read it.

usage: make_variant_tables.py OUT_DIR
The rows of NAME.expected.parquet are those that were given, by the last write of each key.
"""
import json, os, sys, tarfile, tempfile
from pyspark.sql import SparkSession
from pyspark.sql.types import *
out = sys.argv[1]; os.makedirs(out, exist_ok=True); os.environ["PYSPARK_PYTHON"] = sys.executable
s = (SparkSession.builder.master("local[2]").config("spark.jars.packages", "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0").config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
  .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension").config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog")
  .config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2").config("spark.sql.session.timeZone", "UTC").getOrCreate()); s.sparkContext.setLogLevel("ERROR")
V = StructType([StructField("metadata", BinaryType(), False), StructField("value", BinaryType(), False)])
def value(i, ts):  # {"a": i}, a text, a null of JSON, or none.
    return (None, (bytearray(b"\x01\x01\x00\x01a"), bytearray(b"\x02\x01\x00\x00\x02\x0c" + bytes([10 * ts + i]))), (bytearray(b"\x01\x00\x00"), bytearray(b"\x09" + f"{ts}{i % 10}".encode())), (bytearray(b"\x01\x00\x00"), bytearray(b"\x00")))[i % 4]
schema = StructType([StructField("id", StringType(), False), StructField("region", StringType()), StructField("ts", LongType()), StructField("v", V, True, {"hudi_type": "VARIANT"})])
for table_type in ("COPY_ON_WRITE", "MERGE_ON_READ"):
    name = f"{'cow' if table_type[0] == 'C' else 'mor'}_variant"; p = f"{tempfile.mkdtemp()}/{name}"; last = {}
    o = {"hoodie.table.name": name, "hoodie.datasource.write.recordkey.field": "id", "hoodie.datasource.write.partitionpath.field": "region", "hoodie.datasource.write.precombine.field": "ts", "hoodie.datasource.write.table.type": table_type,
         "hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2", "hoodie.compact.inline": "false", "hoodie.clean.automatic": "false", "hoodie.metadata.enable": "false"}
    for ts, ids in ((1, range(12)), (2, range(6, 16))):
        rows = [(f"k{i}", "ab"[i % 2], ts, value(i, ts)) for i in ids]; last.update({row[0]: row for row in rows})
        s.createDataFrame(rows, schema).coalesce(1).write.format("hudi").options(**o).mode("append").save(p)
    e = tempfile.mkdtemp() + "/e"; s.createDataFrame([last[key] for key in sorted(last)], schema).coalesce(1).write.parquet(e)
    part = next(f for f in os.listdir(e) if f.endswith(".parquet")); os.replace(f"{e}/{part}", f"{out}/{name}.expected.parquet")
    with tarfile.open(f"{out}/{name}.tar.gz", "w:gz") as tar: tar.add(p, name, filter=lambda x: None if x.name.endswith(".crc") else x)
    print(name, len(last), flush=True)
