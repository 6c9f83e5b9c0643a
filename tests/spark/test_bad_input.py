"""Bad DataFrames and failing storage: bucketlake's own error on the driver, the table as it was."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 -- the name that PySpark's users know.
from pyspark.sql import types as T  # noqa: N812

import bucketlake as bl
import bucketlake.read.handle
from bucketlake.config.paths_of_table import MARKER_FOLDER
from bucketlake.errors import InputError, StorageError, UnsupportedFeatureError
from bucketlake.storage.base import Buffer
from bucketlake.storage.local import LocalStorage
from tests.bad_input import BATCHES, SCHEMA, BadBatch, good_rows
from tests.spark.frames import files_of, frame_of, in_order, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def table(table_path: Path) -> bl.Table:
    """A table with rows, written without Spark."""
    table = bl.create_table(
        str(table_path),
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["part"],
        ordering="ts",
        index=bl.SimpleBucket(2),
    )
    table.upsert(good_rows())
    return table


@pytest.fixture(scope="module")
def good(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    return frame_of(spark, good_rows(), tmp_path_factory.mktemp("good"))


def require_as_it_was(table: bl.Table, before: dict[str, bytes]) -> None:
    """Nothing came, went or changed; nothing is pending, and the next write works."""
    assert files_of(Path(table.path)) == before
    assert table.upsert(good_rows()).updated == 4


SAVED = {
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.bucket.index.num.buckets": "2",
}


@pytest.mark.any_spark
@pytest.mark.parametrize("engine", ["SIMPLE", "CONSISTENT_HASHING"])
def test_a_refused_first_save_of_a_frame_leaves_nothing_and_the_next_one_works(
    spark: SparkSession, good: DataFrame, table_path: Path, engine: str
) -> None:
    options = {**SAVED, "hoodie.index.type": "BUCKET", "hoodie.index.bucket.engine": engine}
    spoilt = good.withColumn("part", F.lit("a/b"))
    spooled = good.withColumn("part", F.concat(F.uuid(), F.lit("/")))
    for bad in (spoilt, spooled) if engine == "SIMPLE" else (spoilt,):
        with pytest.raises(InputError, match=r"partitionpath\.urlencode=true"):
            bl.save(bad, str(table_path), options=options)
        assert files_of(table_path) == {}
        assert not (table_path / ".hoodie").exists()
    assert bl.save(good, str(table_path), options=options).inserted == 4


@pytest.mark.any_spark
@pytest.mark.parametrize("bad", BATCHES, ids=lambda bad: bad.name)
def test_a_bad_frame_is_refused_as_an_arrow_table_is(
    spark: SparkSession, tmp_path: Path, table: bl.Table, bad: BadBatch
) -> None:
    before = files_of(Path(table.path))
    rows = bad.spoil(good_rows())
    if "PRICE" in rows.column_names:
        frame = frame_of(spark, good_rows(), tmp_path).selectExpr("*", "1 AS PRICE")
    else:
        frame = frame_of(spark, rows, tmp_path)
    with pytest.raises(InputError, match=bad.message):
        table.upsert(frame)
    require_as_it_was(table, before)


@pytest.mark.parametrize(
    "expression",
    [
        "INTERVAL '1' MONTH",
        "INTERVAL '1' DAY",
        "map(1, 2)",
    ],
)
def test_a_column_of_a_type_that_no_table_holds_is_refused_by_name(
    good: DataFrame, table: bl.Table, expression: str
) -> None:
    before = files_of(Path(table.path))
    frame = good.selectExpr("*", f"{expression} AS odd")
    with pytest.raises(InputError, match=r"column '?odd.* cannot be stored"):
        table.upsert(frame)
    assert table.delete(frame.limit(0)).instant is None  # Deletes look at key columns alone.
    require_as_it_was(table, before)


def test_an_interval_that_pyspark_may_not_know_itself_is_refused(
    good: DataFrame, table: bl.Table
) -> None:
    before = files_of(Path(table.path))
    with pytest.raises(InputError, match="interval"):
        table.upsert(good.selectExpr("*", "named_struct('x', make_interval(1)) AS odd"))
    require_as_it_was(table, before)


@pytest.mark.parametrize("name", ["id", "part", "price", "PRICE"])
def test_a_column_that_is_there_twice_is_refused(
    good: DataFrame, table: bl.Table, name: str
) -> None:
    before = files_of(Path(table.path))
    frame = good.select("*", good[name.lower()].alias(name))
    with pytest.raises(
        InputError, match=f"{name.lower()}.* more than once|two columns have the same name"
    ):
        table.upsert(frame)
    if name in ("id", "part"):
        with pytest.raises(InputError, match=f"{name}.* more than once"):
            table.delete(frame)
    require_as_it_was(table, before)


@pytest.mark.any_spark
def test_a_table_in_memory_is_refused_before_anything_runs(good: DataFrame) -> None:
    table = bl.create_table(
        "memory://spark-bad-input", schema=SCHEMA, record_key=["id"], index=bl.SimpleBucket(1)
    )
    with pytest.raises(UnsupportedFeatureError, match="a table in memory, through Spark"):
        table.upsert(good)
    with pytest.raises(UnsupportedFeatureError, match="a table in memory, through Spark"):
        table.read()
    assert table.timeline() == []


class FullDisk(LocalStorage):
    """A disk that has no room for data files, in tasks or wherever else."""

    def put_if_absent(self, path: str, data: Buffer) -> None:
        if path.endswith(".parquet"):
            raise StorageError(f"{self.root}/{path}", "put if absent", "no space left on device")
        super().put_if_absent(path, data)

    def put_all_if_absent(self, objects: Sequence[tuple[str, Buffer]]) -> set[str]:
        for path, data in objects:
            self.put_if_absent(path, data)
        return set()


class ReadOnly(LocalStorage):
    """A disk on which this user may change nothing but what is bucketlake's own."""

    def put(self, path: str, data: Buffer) -> None:
        raise StorageError(f"{self.root}/{path}", "put", "permission denied")

    def put_if_absent(self, path: str, data: Buffer) -> None:
        raise StorageError(f"{self.root}/{path}", "put if absent", "permission denied")

    def put_all_if_absent(self, objects: Sequence[tuple[str, Buffer]]) -> set[str]:
        raise StorageError(f"{self.root}/{objects[0][0]}", "put if absent", "permission denied")


class LosesFiles(LocalStorage):
    """A disk on which a data file cannot be read."""

    def local_path(self, path: str) -> Path | None:
        if path.endswith(".parquet"):
            raise StorageError(f"{self.root}/{path}", "read", "input/output error")
        return super().local_path(path)


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        (FullDisk, "put if absent .*parquet: no space left on device"),
        (ReadOnly, "permission denied"),
        (LosesFiles, "read .*parquet: input/output error"),
    ],
)
def test_an_error_of_storage_in_a_task_arrives_as_itself_and_the_write_is_rolled_back(
    good: DataFrame,
    table: bl.Table,
    monkeypatch: pytest.MonkeyPatch,
    storage: type[LocalStorage],
    message: str,
) -> None:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Tasks cannot import the tests.
    before, rows = files_of(Path(table.path)), in_order(rows_of(table.to_arrow()))
    monkeypatch.setattr(bucketlake.read.handle, "open_storage", lambda path, options: storage(path))
    with pytest.raises(StorageError, match=message) as caught:
        table.upsert(good.selectExpr("id", "part", "ts + 1 AS ts", "price"))
    assert "Traceback" not in str(caught.value)
    monkeypatch.undo()
    assert in_order(rows_of(table.to_arrow())) == rows
    left = files_of(Path(table.path)).items()  # Markers stay for a while.
    assert {path: data for path, data in left if not path.startswith(MARKER_FOLDER)} == before
    assert table.upsert(good_rows()).updated == 4


def test_a_batch_of_another_schema_object_is_refused(table: bl.Table, good: DataFrame) -> None:
    before = files_of(Path(table.path))
    for data in (good.collect(), good.schema, [1]):
        with pytest.raises(InputError, match=r"pass a DataFrame of Spark, pandas or polars"):
            table.upsert(data)
    require_as_it_was(table, before)


@pytest.mark.any_spark
@pytest.mark.parametrize("column", ["id", "part", "note"])
def test_text_that_is_no_utf8_is_refused(spark: SparkSession, table: bl.Table, column: str) -> None:
    before = files_of(Path(table.path))
    texts = dict.fromkeys(("id", "part", "note"), "'a'") | {column: "CAST(X'ff41' AS string)"}
    columns = ", ".join(f"{text} AS {name}" for name, text in texts.items())
    frame = spark.sql(f"SELECT {columns}, 1L AS ts, CAST(NULL AS decimal(5, 2)) AS price")
    with pytest.raises(InputError, match=rf"column {column}: holds bytes that are not .*UTF"):
        table.upsert(frame, merge_schema="add_columns")
    require_as_it_was(table, before)


def test_the_error_of_a_bad_batch_ends_spark_s_traceback_of_a_stream(
    spark: SparkSession, table: bl.Table, good: DataFrame, tmp_path: Path
) -> None:
    bad = good.selectExpr("CAST(NULL AS STRING) AS id", *[n for n in good.columns if n != "id"])
    bad.write.parquet(str(tmp_path / "source"))
    stream = spark.readStream.schema(bad.schema).parquet(str(tmp_path / "source")).writeStream
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = stream.foreachBatch(table.upsert_batch(query_name="orders")).start()
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination()
    text = str(raised.value)
    sentence = r"bucketlake\.errors\.InputError: table .*: record key column 'id': .*; give .*\n"
    assert len(re.findall(sentence, text)) == 1
    assert re.search(r"table\.py\", line \d+, in __call__\n.*raise .*\n" + sentence, text)


def test_null_types_meta_columns_and_no_rows_are_taken_as_from_arrow(
    spark: SparkSession, tmp_path: Path
) -> None:
    none = F.lit(None)
    n = none.alias("n")
    schema = "id string, n int, tags array<string>, m map<string,int>, s struct<a:int,b:array<int>>"
    empty = spark.createDataFrame([], schema)
    table = bl.create_table(
        str(tmp_path / "t"), schema=empty.schema, record_key="id", index=bl.SimpleBucket(1)
    )
    key = spark.createDataFrame([("a",)], "id string")
    inside = F.struct(none.alias("a"), F.array().alias("b")).alias("s")
    untyped = key.select("id", F.array().alias("tags"), F.create_map().alias("m"), inside, n)
    hudi = untyped.withColumn("_hoodie_commit_time", F.lit("1"))
    for given in (untyped, hudi):
        assert table.upsert(given, merge_schema=given is hudi).written == 1
    stored = [{"id": "a", "n": None, "tags": [], "m": [], "s": {"a": None, "b": []}}]
    assert table.to_arrow().to_pylist() == stored
    assert table.upsert(key.where("id = 'b'")).instant is None
    with pytest.raises(InputError, match=r"foreachBatch\(table.upsert_batch"):
        table.upsert(spark.readStream.format("rate").load())


def test_char_and_varchar_warn_at_creation_that_no_length_is_checked(tmp_path: Path) -> None:
    schema = T.StructType([T.StructField("id", T.VarcharType(3))])
    with pytest.warns(UserWarning, match=r"column id .* checks the length of varchar\(3\)"):
        table = bl.create_table(
            str(tmp_path / "t"), schema=schema, record_key="id", index=bl.SimpleBucket(1)
        )
    assert table.upsert(pa.table({"id": ["longer"]})).inserted == 1
