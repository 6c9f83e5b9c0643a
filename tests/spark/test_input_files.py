"""Files as the records of a write, read by tasks of Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import bucketlake as bl
from bucketlake.errors import InputError
from bucketlake.spark.spark_schema import arrow_from_spark
from bucketlake.write.input_files import heads
from tests.bounds import set_bounds

pytestmark = pytest.mark.spark

ROWS = pa.table(
    {
        "id": [f"k{i}" for i in range(3000)],
        "day": [f"d{i % 3}" for i in range(3000)],
        "n": list(range(3000)),
    }
)


KINDS = {"dynamic": bl.DynamicBucket(), "simple": bl.SimpleBucket(2)}


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_read_parquet_and_text_as_a_frame_of_the_same_rows_is_written(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    for number in range(3):
        own = ROWS.slice(1000 * number, 1000)
        pq.write_table(own, landing / f"{number}.parquet", row_group_size=300)
    pa.csv.write_csv(ROWS.slice(0, 500), landing / "a.csv")
    table = bl.create_table(
        str(tmp_path / "table"),
        schema=ROWS.schema,
        record_key="id",
        partition_by="day",
        index=KINDS[kind],
    )
    assert table.upsert(bl.files(f"{landing}/*.parquet")).inserted == 3000
    assert table.upsert(bl.files(f"{landing}/a.csv")).updated == 500
    assert table.to_arrow().sort_by("n").equals(ROWS)
    frame = spark.read.parquet(f"{landing}/0.parquet")
    assert table.delete(bl.files(f"{landing}/0.parquet")).deleted == frame.count()
    (landing / "b.csv").write_text("id,day,n\nk1,d1,one\n")
    before = len(table.timeline())
    with pytest.raises(InputError, match="one"):
        table.upsert(bl.files([f"{landing}/a.csv", f"{landing}/b.csv"]))
    assert len(table.timeline()) == before


def test_tasks_read_files_for_a_merge_on_other_columns(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.string(), "day": pa.string(), "n": pa.int32()})
    table = bl.create_table(
        str(tmp_path / "table"), schema=schema, record_key="id", partition_by="day"
    )
    table.upsert(ROWS.slice(0, 100).cast(schema))
    pq.write_table(ROWS.slice(50, 25).cast(schema), tmp_path / "a.parquet", row_group_size=10)
    pa.csv.write_csv(ROWS.slice(75, 50), tmp_path / "b.csv")
    news = bl.files([f"{tmp_path}/a.parquet", f"{tmp_path}/b.csv"])
    merge = table.merge(news, "t.n = s.n").when_matched_delete("sqrt(s.n) > 9")
    result = merge.when_matched_update({"n": "-t.n"}).when_not_matched_insert_all().execute()
    assert (result.inserted, result.updated, result.deleted) == (25, 32, 18)
    expected = [*range(50), *(-n for n in range(50, 82)), *range(100, 125)]
    assert sorted(table.to_arrow()["n"].to_pylist()) == sorted(expected)
    by_key = table.merge(news, "t.id = s.id AND t.day = s.day")
    result = by_key.when_matched_update_all().when_not_matched_insert_all().execute()
    assert (result.inserted, result.updated) == (18, 57)
    assert not list((tmp_path / "table/.hoodie/.bucket_index/ext/spool").glob("**/*"))


def test_texts_that_spark_writes_come_back(spark: SparkSession, tmp_path: Path) -> None:
    row = (
        "SELECT 'a' AS id, X'00FF41' AS b, double('NaN') AS x, -double('Infinity') AS y, "
        "float(0.1) AS f, CAST(1.50 AS DECIMAL(9, 2)) AS p, true AS ok, date'1500-01-01' AS d, "
        "timestamp'2026-01-01 08:00:00.123456' AS at, timestamp_ntz'2026-01-01 08:00:00' AS local, "
        "map('k', 1L) AS m, array(struct(1 AS q, date'2026-01-01' AS r)) AS s, 'x\ny\"' AS text"
    )
    whole = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "escape": '"'}
    frame = spark.sql(row)
    table = bl.create_table(
        str(tmp_path / "table"), schema=arrow_from_spark(frame.schema), record_key="id"
    )
    table.upsert(frame)
    expected = table.to_arrow().to_pylist()
    frame.write.options(**whole).option("compression", "gzip").json(str(tmp_path / "json"))
    table.upsert(bl.files(str(tmp_path / "json"), format="jsonl"))
    assert str(table.to_arrow().to_pylist()) == str(expected)
    flat = frame.drop("b", "m", "s")
    flat.write.options(**whole, header=True).option("compression", "bzip2").csv(
        str(tmp_path / "csv")
    )
    table.upsert(bl.files(str(tmp_path / "csv"), format="csv"), missing="keep")
    assert str(table.to_arrow().to_pylist()) == str(expected)


def test_tasks_read_large_texts_cut_where_rows_end(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, heads, PIECE_BYTES=20_000, HEAD_BYTES=5_000)
    breaks = ROWS.set_column(1, "day", pa.array([f'd\n"{i}",' for i in range(3000)]))
    pa.csv.write_csv(breaks, tmp_path / "a.csv")
    table = bl.create_table(str(tmp_path / "table"), schema=ROWS.schema, record_key="id")
    assert table.upsert(bl.files(f"{tmp_path}/a.csv")).inserted == 3000
    assert table.to_arrow().sort_by("n").equals(breaks)
    lines = [json.dumps({"id": f"k{i}", "n": i}) for i in range(2999)] + ['{"id": "k", "day": "d"}']
    (tmp_path / "b.jsonl").write_text("\n".join(lines))
    assert table.upsert(bl.files(f"{tmp_path}/b.jsonl"), nulls="keep").inserted == 1
    lines[2500] = '{"id": "k2500", "n": "x"}'
    (tmp_path / "b.jsonl").write_text("\n".join(lines))
    with pytest.raises(InputError, match=r'row 2501, column n: "x" is a text, and no bigint'):
        table.upsert(bl.files(f"{tmp_path}/b.jsonl"), nulls="keep")
