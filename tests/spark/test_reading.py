"""Reads through Spark and Arrow give the same rows: conditions, columns, earlier times, places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import BucketLakeError, ConfigError, FormatError, InputError, StorageError
from bucketlake.format import base_file
from bucketlake.model.schema import META_NAMES
from bucketlake.storage.location import open_storage
from tests.listed_files import list_file
from tests.spark.frames import Row, frame_of, in_order, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.string()), ("site", pa.string()), ("v", pa.int64())])
BUCKETS = 4


class Written(NamedTuple):
    """A table, and the rows that it held after each of its commits."""

    table: bl.Table
    states: dict[str, list[Row]]

    @property
    def rows(self) -> list[Row]:
        return list(self.states.values())[-1]


@pytest.fixture
def set_to(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Gives a setting of the session another value for one test."""
    before: dict[str, str | None] = {}

    def change(key: str, value: str) -> None:
        before[key] = spark.conf.get(key, None)
        spark.conf.set(key, value)

    yield change
    for key, held in before.items():
        spark.conf.unset(key) if held is None else spark.conf.set(key, held)


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("reading")
    table = bl.create_table(
        str(folder / "table"),
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["site"],
        index=bl.SimpleBucket(BUCKETS),
    )
    held: dict[str, Row] = {}
    states = {}
    for v, ids in enumerate([range(40), range(20, 60), range(0, 60, 3)]):
        rows = [{"id": f"k{i}", "site": ["eu", "us", "日本"][i % 3], "v": v} for i in ids]
        result = table.upsert(frame_of(spark, pa.Table.from_pylist(rows, SCHEMA), folder))
        held |= {row["id"]: row for row in rows}
        assert result.instant is not None
        states[result.instant] = list(held.values())
    return Written(table, states)


@pytest.mark.parametrize(
    ("where", "keeps"),
    [
        (None, lambda row: True),
        ("id = 'k7'", lambda row: row["id"] == "k7"),
        (
            "id IN ('k7', 'k8', 'nobody') AND v = 0",
            lambda r: r["id"] in {"k7", "k8"} and r["v"] == 0,
        ),
        ("site = '日本'", lambda row: row["site"] == "日本"),
        ("site > 'f' OR id = 'k1'", lambda row: row["site"] > "f" or row["id"] == "k1"),
        ("NOT (v = 2)", lambda row: row["v"] != 2),
        ("v IS NULL", lambda row: False),
        (
            "id LIKE 'k5%' AND length(site) = 2",
            lambda r: r["id"][:2] == "k5" and len(r["site"]) == 2,
        ),
    ],
)
def test_a_condition_keeps_the_same_rows_in_spark_and_arrow(
    spark: SparkSession, written: Written, where: str | None, keeps
) -> None:
    expected = in_order(row for row in written.rows if keeps(row))
    assert in_order(rows_of(written.table.read(spark, where=where))) == expected
    if where is None or "LIKE" not in where:  # Arrow evaluates a part of SQL, and says so.
        assert in_order(rows_of(written.table.to_arrow(where=where))) == expected
    else:
        with pytest.raises(BucketLakeError):
            written.table.to_arrow(where=where)


def test_columns_come_in_the_order_asked_for_and_meta_columns_by_name(
    spark: SparkSession, written: Written
) -> None:
    columns = ["v", "_hoodie_commit_time", "id"]
    frame = written.table.read(spark, columns=columns, where="site = 'eu'")
    assert frame.columns == columns
    arrow = written.table.to_arrow(columns=columns, where="site = 'eu'")
    assert arrow.column_names == columns
    assert in_order(rows_of(frame)) == in_order(rows_of(arrow))
    instants = list(written.states)
    assert {row["_hoodie_commit_time"] == instants[row["v"]] for row in rows_of(arrow)} == {True}
    assert written.table.read(spark).columns == SCHEMA.names


def test_meta_columns_tell_the_place_of_each_record(spark: SparkSession, written: Written) -> None:
    rows = rows_of(written.table.read(spark, columns=[*META_NAMES, "id", "site"]))
    paths = {bucket.path for bucket in written.table.buckets()}
    for row in rows:
        assert row["_hoodie_record_key"] == row["id"]
        assert row["_hoodie_partition_path"] == row["site"]
        assert f"{row['site']}/{row['_hoodie_file_name']}" in paths
    assert len({row["_hoodie_commit_seqno"] for row in rows}) == len(rows)


def test_the_table_is_read_as_of_each_of_its_commits(spark: SparkSession, written: Written) -> None:
    for instant, rows in written.states.items():
        assert in_order(rows_of(written.table.read(spark, as_of=instant))) == in_order(rows)
        assert in_order(rows_of(written.table.to_arrow(as_of=instant))) == in_order(rows)
    for read in (written.table.to_arrow, partial(written.table.read, spark)):
        with pytest.raises(bl.ConfigError, match="the first commit of the table is"):
            read(as_of="2000-01-01")


def test_each_record_is_located_where_its_bucket_lies(written: Written) -> None:
    buckets = {bucket.path: bucket for bucket in written.table.buckets()}
    assert len(buckets) == len({(b.partition_path, b.bucket_id) for b in buckets.values()})
    located: Counter[str] = Counter()
    for row in written.rows[:12]:
        [location] = written.table.locate({"id": row["id"]})
        assert written.table.locate(row["id"], partition=row["site"]) == [location]
        assert location.partition_path == row["site"]
        assert buckets[location.path].bucket_id == location.bucket_id
        located[location.path] += 1
    assert len(located) > BUCKETS
    assert written.table.locate("nobody") == []
    assert written.table.locate("k1", partition="eu") == []  # It lives in another one.


def test_explain_tells_what_a_read_looks_at(written: Written) -> None:
    everything = written.table.explain()
    assert everything.partitions_kept == everything.partitions_total == 3
    one = written.table.explain(where="site = 'eu' AND id = 'k3'")
    assert (one.partitions_total, one.partitions_kept) == (3, 1)
    [location] = written.table.locate("k3", partition="eu")
    assert one.bucket_ids == (location.bucket_id,)
    assert one.file_groups_kept == 1


def test_a_read_needs_a_session_and_columns_that_there_are(
    spark: SparkSession, written: Written
) -> None:
    with pytest.raises(InputError, match="there is no column 'nothing'"):
        written.table.read(spark, columns=["nothing"])
    assert in_order(rows_of(written.table.read())) == in_order(written.rows)  # The active one.


@pytest.mark.parametrize("where", ["1", "sum(v) > 1", "upper(id)", "nowhere(id) = 1"])
def test_a_condition_that_spark_refuses_is_an_error_of_the_library(
    spark: SparkSession, written: Written, where: str
) -> None:
    with pytest.raises(InputError, match=r": where .*; correct the condition") as caught:
        written.table.read(spark, where=where)
    assert "\n" not in str(caught.value)


def test_reading_before_any_write_gives_the_columns_and_no_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = bl.create_table(
        str(tmp_path / "t"), schema=SCHEMA, record_key=["id"], index=bl.SimpleBucket(1)
    )
    assert table.read(spark).columns == SCHEMA.names
    assert rows_of(table.read(spark)) == []
    assert table.to_arrow().num_rows == 0
    with pytest.raises(ConfigError, match="yyyy"):
        table.read(spark, as_of="soon")


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_a_frame_whose_files_were_cleaned_since_is_an_error_and_not_fewer_rows(
    spark: SparkSession, set_to: Callable[[str, str], None], tmp_path: Path, table_type: str
) -> None:
    """Whatever the session says of missing files."""
    table = bl.create_table(
        str(tmp_path / "t"), schema=SCHEMA, record_key=["id"], index=bl.SimpleBucket(2),
        table_type=table_type,
    )  # fmt: skip
    batch = pa.Table.from_pylist([{"id": f"k{i}", "site": "eu", "v": i} for i in range(9)], SCHEMA)
    for _ in range(2):
        table.upsert(batch)
    frame = table.read(spark)
    table.upsert(batch)
    if table_type == "merge_on_read":
        table.compact()
    table.clean(retain_versions=1)
    set_to("spark.sql.files.ignoreMissingFiles", "true")
    with pytest.raises(Exception, match=r"(?i)FILE_NOT_EXIST|does not exist|was deleted since"):
        frame.collect()
    assert table.read(spark).count() == 9


def one_file(path: Path) -> tuple[bl.Table, pa.Table]:
    rows = pa.table(
        {
            "id": [f"k{n}" for n in range(100)],
            "day": [date(1500, 1, 1)] * 100,
            "at": pa.array([datetime(1500, 1, 1, tzinfo=UTC)] * 100, pa.timestamp("us", "UTC")),
        }
    )
    table = bl.create_table(
        str(path), schema=rows.schema, record_key="id", index=bl.SimpleBucket(1)
    )
    table.upsert(rows)
    return table, rows


@pytest.mark.parametrize("mode", ["LEGACY", "EXCEPTION", "CORRECTED"])
def test_old_days_in_files_that_do_not_name_their_writer_are_read_as_they_are(
    set_to: Callable[[str, str], None],
    table_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    """Hudi's own files are such ones."""
    monkeypatch.setattr(base_file, "CALENDAR", {})
    table, rows = one_file(table_path)
    set_to("spark.sql.parquet.datetimeRebaseModeInRead", mode)
    set_to("spark.sql.parquet.int96RebaseModeInRead", mode)
    read = table.read().selectExpr("day = DATE'1500-01-01' AS d", "unix_micros(at) AS a").distinct()
    micros = rows["at"].cast(pa.int64())[0].as_py()
    assert [tuple(row) for row in read.collect()] == [(True, micros)]


def test_a_damaged_file_is_an_error_whatever_the_session_says(
    set_to: Callable[[str, str], None], table_path: Path
) -> None:
    table, _ = one_file(table_path)
    (file,) = table_path.glob("*.parquet")
    content = bytearray(file.read_bytes())
    footer = int.from_bytes(content[-8:-4], "little") + 8
    content[4:-footer] = bytes(len(content) - footer - 4)
    file.write_bytes(content)
    set_to("spark.sql.files.ignoreCorruptFiles", "true")
    with pytest.raises(Exception, match=r"(?i)FAILED_READ_FILE|can ?not read|corrupt|decompress"):
        table.read().collect()


@pytest.mark.any_spark
def test_foreign_file_is_not_read_through_a_listing_or_a_link(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = {
        name: bl.create_table(str(tmp_path / name), schema=SCHEMA, record_key="id",
                              partition_by="site", index=bl.SimpleBucket(1))
        for name in ("other", "listed", "linked")
    }  # fmt: skip
    for table in made.values():
        table.upsert(pa.table({"id": ["a"], "site": ["x"], "v": [1]}, schema=SCHEMA))
    foreign = next((tmp_path / "other/x").glob("*.parquet"))
    list_file(open_storage(made["listed"].path), "../other/x", foreign.name)
    with pytest.raises(FormatError, match="inside the table"):
        made["listed"].read(spark).collect()
    own = next((tmp_path / "linked/x").glob("*.parquet"))
    own.unlink()
    own.symlink_to(foreign)
    with pytest.raises(StorageError, match="a symbolic link leads to"):
        made["linked"].read(spark).collect()


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_keys_choose_the_same_rows_with_spark_as_without(
    spark: SparkSession, tmp_path: Path, table_type: str
) -> None:
    schema = pa.schema([*SCHEMA, ("head", pa.struct([("n", pa.int32())]))])
    rows = [
        {"id": f"k{i}", "site": f"s{i % 2}", "v": None if i == 3 else i, "head": {"n": i}}
        for i in range(20)
    ]
    table = bl.create_table(
        str(tmp_path / "t"), schema=schema, record_key=["id"], partition_by=["site"],
        index=bl.SimpleBucket(2), table_type=table_type,
    )  # fmt: skip
    table.upsert(pa.Table.from_pylist(rows, schema))
    table.upsert(pa.Table.from_pylist(rows[:5], schema))
    keys = pa.table({"id": ["k1", "k2", "k3", "none"], "more": [1, 2, 3, 4]})
    pairs = pa.table({"head.n": pa.array([3, 4, 5], pa.int32()), "v": [None, 4, 6]})
    options: list[dict[str, Any]] = [
        {"keys": keys},
        {"keys": spark.createDataFrame([("k1", "s1"), ("k2", "s1")], "id string, site string")},
        {"keys": keys, "where": "v > 1", "columns": ["site"]},
        {"where": (["head.n", "v"], pairs), "columns": ["id"]},
        {"where": ("v", [])},
    ]
    counts = []
    for given in options:
        with_spark = rows_of(table.read(spark, **given))
        assert in_order(with_spark) == in_order(table.to_arrow(**given).to_pylist())
        counts.append(len(with_spark))
    assert counts == [3, 1, 1, 1, 0]
