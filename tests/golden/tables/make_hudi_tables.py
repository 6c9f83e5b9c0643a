# ruff: noqa
# fmt: off
# Kept as it was run, so that the tables stay explained by it; see README.md.
"""Write a zoo of small tables with the real Apache Hudi (Spark bundle), and what a reader must find in each.

usage: make_hudi_tables.py OUT_DIR SEED [NAME ...]     (needs HUDI_JAR and pyspark 3.5.x on this interpreter)
Each OUT_DIR/NAME.tar.gz holds the table; OUT_DIR/NAME.expected.parquet the rows a snapshot read must return
(meta columns aside), as Hudi's own reader returned them and as the model in this script predicts them.
"""
import datetime as dt, decimal, json, os, random, shutil, sys, tarfile, tempfile
from pyspark.sql import SparkSession, functions as F, types as T

out, seed = sys.argv[1], int(sys.argv[2]); only = set(sys.argv[3:])
os.makedirs(out, exist_ok=True)
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = (SparkSession.builder.master("local[2]").config("spark.jars", os.environ["HUDI_JAR"])
  .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
  .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
  .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
  .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog")
  .config("spark.driver.memory", "3g").config("spark.sql.shuffle.partitions", "3")
  .config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
  .config("spark.sql.session.timeZone", "UTC").config("spark.default.parallelism", "3").getOrCreate())
spark.sparkContext.setLogLevel("ERROR")
R = random.Random(seed)
UNI = ["ä", "日本", "🙂", "é", "ß", "Ω", "x", "y", "a b", "a/b", "a%b", "k=v"]

SCHEMA = T.StructType([T.StructField("id", T.StringType(), False), T.StructField("region", T.StringType()),
  T.StructField("ts", T.LongType(), False), T.StructField("qty", T.IntegerType()), T.StructField("price", T.DoubleType()),
  T.StructField("amount", T.DecimalType(18, 4)), T.StructField("day", T.DateType()), T.StructField("at", T.TimestampType()),
  T.StructField("flag", T.BooleanType()), T.StructField("blob", T.BinaryType()),
  T.StructField("tags", T.ArrayType(T.StringType())), T.StructField("attrs", T.MapType(T.StringType(), T.LongType())),
  T.StructField("geo", T.StructType([T.StructField("lat", T.DoubleType()), T.StructField("label", T.StringType())]))])

def row(i, ts, regions, uni):
    k = f"k{i}" + (R.choice(UNI) if uni and i % 7 == 0 else "")
    KEYS.setdefault(i, k); k = KEYS[i]
    maybe = lambda v: None if R.random() < .1 else v
    return (k, regions[i % len(regions)], ts, maybe(R.randrange(-5, 1000)), maybe(R.random() * 1e6),
            maybe(decimal.Decimal(R.randrange(-10**10, 10**10)).scaleb(-4)), maybe(dt.date(2000, 1, 1) + dt.timedelta(R.randrange(12000))),
            maybe(dt.datetime(2020, 1, 1) + dt.timedelta(microseconds=R.randrange(10**15))), maybe(R.random() < .5),
            maybe(R.randbytes(R.randrange(9))), maybe([R.choice(UNI) for _ in range(R.randrange(4))]),
            maybe({R.choice("abc"): R.randrange(100)}), maybe((R.random() * 90, R.choice(UNI))))

def write(path, rows, opts, op="upsert", mode="append", schema=SCHEMA):
    (spark.createDataFrame(rows, schema).write.format("hudi").options(**opts)
       .option("hoodie.datasource.write.operation", op).mode(mode).save(path))

def base(name, tt, **kw):
    o = {"hoodie.table.name": name, "hoodie.datasource.write.recordkey.field": "id", "hoodie.datasource.write.partitionpath.field": "region",
         "hoodie.datasource.write.precombine.field": "ts", "hoodie.datasource.write.table.type": tt, "hoodie.index.type": "BUCKET",
         "hoodie.bucket.index.num.buckets": "3", "hoodie.compact.inline": "false", "hoodie.clean.automatic": "false",
         "hoodie.parquet.compression.codec": "zstd"}
    o.update({k: v for k, v in kw.items()}); return o

class Model(dict):
    """(region, id) -> row under event-time ordering; deletes are explicit."""
    def up(self, rows):
        for r in rows:
            k = (r[1], r[0]); old = self.get(k)
            if old is None or r[2] >= old[2]: self[k] = r
    def rm(self, rows):
        for r in rows: self.pop((r[1], r[0]), None)

def scenario(name, tt="COPY_ON_WRITE", regions=("eu", "us", "apac"), uni=True, n=60, rounds=3, opts=None, steps=None, late=False):
    if only and name not in only: return
    global KEYS; KEYS = {}
    d = tempfile.mkdtemp(); p = f"{d}/{name}"; o = base(name, tt, **(opts or {})); m = Model()
    rows = [row(i, 1000, regions, uni) for i in range(n)]
    write(p, rows, o, mode="overwrite"); m.up(rows)
    for r in range(1, rounds):
        ids = R.sample(range(n), n // 3) + list(range(n, n + n // 6)); n += n // 6
        rows = [row(i, 1000 + 10 * r - (15 if late and R.random() < .4 else 0), regions, uni) for i in ids]
        write(p, rows, o); m.up(rows)
        if r % 2:
            gone = [row(i, 5000 + r, regions, uni) for i in R.sample(range(n - n // 6), 5)]
            write(p, gone, o, op="delete"); m.rm(gone)
    for s in steps or []: s(p, o, m, regions, n)
    got = spark.read.format("hudi").load(p).select(*SCHEMA.fieldNames())
    got = got.coalesce(1); rows = got.collect()
    def norm(v):
        if isinstance(v, (bytearray, bytes)): return bytes(v)
        if isinstance(v, T.Row): return tuple(v)
        return v
    a = {(r["region"], r["id"]): tuple(norm(v) for v in r) for r in rows}
    b = {k: tuple(norm(v) for v in r) for k, r in m.items()}
    bad = [k for k in set(a) | set(b) if a.get(k) != b.get(k)]
    print(f"{name}: {len(rows)} rows, distinct {len(a)}, model {len(b)}, differ {len(bad)}", [(a.get(k), b.get(k)) for k in bad[:1]], flush=True)
    got.write.mode("overwrite").parquet(f"{d}/exp"); f = [x for x in os.listdir(f"{d}/exp") if x.endswith(".parquet")][0]
    shutil.copy(f"{d}/exp/{f}", f"{out}/{name}.expected.parquet")
    with tarfile.open(f"{out}/{name}.tar.gz", "w:gz") as t: t.add(p, arcname=name, filter=lambda i: None if i.name.endswith(".crc") else i)
    json.dump({"options": o, "rows": len(rows), "model_differs": len(bad)}, open(f"{out}/{name}.json", "w"), indent=1)
    shutil.rmtree(d)

def up_step(k=20, **extra):
    def f(p, o, m, regions, n):
        rows = [row(i, 9000, regions, True) for i in R.sample(range(n), k)]; write(p, rows, {**o, **extra}); m.up(rows)
    return f
def call(sql):
    def f(p, o, m, regions, n): print("   ", sql, spark.sql(sql.format(p=p)).limit(3).collect()[:1])
    return f

M = "MERGE_ON_READ"
CH = {"hoodie.index.bucket.engine": "CONSISTENT_HASHING", "hoodie.bucket.index.num.buckets": "2", "hoodie.bucket.index.min.num.buckets": "1", "hoodie.bucket.index.max.num.buckets": "8"}
scenario("cow_simple")
scenario("mor_simple", M, rounds=4)
scenario("mor_late_events", M, rounds=5, late=True)
scenario("mor_compacted", M, rounds=4, steps=[call("CALL run_compaction(op => 'run', path => '{p}')"), up_step()])
scenario("cow_nonpartitioned", opts={"hoodie.datasource.write.partitionpath.field": "", "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator"})
scenario("cow_complex_key", opts={"hoodie.datasource.write.recordkey.field": "id,region", "hoodie.bucket.index.hash.field": "id", "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.ComplexKeyGenerator"})
scenario("cow_partition_level", opts={"hoodie.bucket.index.partition.rule.type": "regex", "hoodie.bucket.index.partition.expressions": "eu,5;us,2", "hoodie.bucket.index.num.buckets": "3"})
scenario("mor_consistent", M, opts=CH, rounds=4)
scenario("mor_consistent_split", M, opts={**CH, "hoodie.parquet.max.file.size": "1000", "hoodie.bucket.index.split.threshold": "0.5", "hoodie.parquet.small.file.limit": "0", "hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "2",
   "hoodie.clustering.plan.strategy.class": "org.apache.hudi.client.clustering.plan.strategy.SparkConsistentBucketClusteringPlanStrategy", "hoodie.clustering.execution.strategy.class": "org.apache.hudi.client.clustering.run.strategy.SparkConsistentBucketClusteringExecutionStrategy", "hoodie.clustering.updates.strategy": "org.apache.hudi.client.clustering.update.strategy.SparkConsistentBucketDuplicateUpdateStrategy"}, rounds=5)
scenario("cow_rli_partitioned", opts={"hoodie.index.type": "RECORD_LEVEL_INDEX", "hoodie.metadata.record.level.index.enable": "true"})
scenario("mor_rli_partitioned", M, opts={"hoodie.index.type": "RECORD_LEVEL_INDEX", "hoodie.metadata.record.level.index.enable": "true"}, rounds=4)
scenario("mor_v6", M, opts={"hoodie.write.table.version": "6", "hoodie.write.auto.upgrade": "false"}, rounds=4)
