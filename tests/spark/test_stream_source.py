"""``spark.readStream.format("bucketlake")``: each change once, over restarts, up to its limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.index.setting import TableIndex
from tests.spark.frames import Row, rows_of
from tests.waiting import SECONDS_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming import DataStreamReader

source = pytest.importorskip("pyspark.sql.datasource", reason="Spark 3 has no sources in Python")

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])


@pytest.fixture(scope="module", autouse=True)
def registered(spark: SparkSession) -> None:
    bl.register(spark)


def make(path: Path, index: TableIndex, table_type: str, **settings: Any) -> bl.Table:
    return bl.create_table(
        str(path / "table"),
        schema=SCHEMA,
        record_key="id",
        partition_by="day",
        index=index,
        table_type=table_type,
        **settings,
    )


def batch(numbers: Any, v: int) -> pa.Table:
    rows = [{"id": f"k{n}", "day": "ab"[n % 2], "v": v} for n in numbers]
    return pa.Table.from_pylist(rows, SCHEMA)


class Query:
    """A streaming query that is started again and again from one checkpoint."""

    def __init__(self, spark: SparkSession, table: bl.Table, folder: Path, **options: str) -> None:
        self.spark, self.table, self.folder, self.options = spark, table, folder, options
        self.batches: list[list[Row]] = []
        self.on_batch: Callable[[int], None] = lambda number: None

    def run(self, **options: str) -> list[list[tuple[str, int]]]:
        """Read what there is; return key and value of the rows of each new batch that has some."""
        seen = len(self.batches)
        self.read_on(**options)
        new = filter(None, self.batches[seen:])  # The first batch of Spark may be empty.
        return [sorted((row["id"], row["v"]) for row in rows) for rows in new]

    def read_on(self, **options: str) -> None:
        """Read what there is into `batches`."""
        stream: DataStreamReader = self.spark.readStream.format("bucketlake")
        loaded = stream.options(**(self.options | options)).load(self.table.path)
        writer = loaded.writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(SECONDS_MAX)

    def _take(self, frame: DataFrame, number: int) -> None:
        rows = rows_of(frame)
        self.on_batch(number)  # Fails before the batch is taken.
        self.batches.append(rows)


def keys(numbers: Any, v: int) -> list[tuple[str, int]]:
    return sorted((f"k{n}", v) for n in numbers)


@pytest.mark.parametrize(
    ("index", "table_type"),
    [
        (bl.SimpleBucket(2), "copy_on_write"),
        (bl.ConsistentBucket(2), "merge_on_read"),
        (bl.DynamicBucket(), "merge_on_read"),
    ],
    ids=["simple", "consistent", "dynamic"],
)
def test_a_stream_has_the_table_and_then_each_change_once_over_restarts(
    spark: SparkSession, tmp_path: Path, index: TableIndex, table_type: str
) -> None:
    table = make(tmp_path, index, table_type)
    query = Query(spark, table, tmp_path, max_commits="1")
    table.upsert(batch(range(10), 0))
    table.upsert(batch(range(5), 1))
    assert query.run() == [sorted([*keys(range(5), 1), *keys(range(5, 10), 0)])]
    assert query.run() == []
    table.upsert(batch(range(3), 2))
    table.upsert(batch([1, 20], 3))
    if table_type == "merge_on_read":
        table.compact()  # It changes no row, so its batch has none.
    table.delete(pa.table({"id": ["k0"], "day": ["a"]}))

    def die(number: int) -> None:
        if number == 2:
            raise RuntimeError("the query dies in its third batch")

    query.on_batch = die
    with pytest.raises(Exception, match="dies in its third batch"):
        query.run()
    assert sum(len(rows) for rows in query.batches[1:]) == 3
    table.upsert(batch([30], 4))
    query.on_batch = lambda number: None
    assert query.run() == [keys([1, 20], 3), keys([30], 4)]


def test_a_batch_that_is_run_again_has_the_same_rows_though_they_changed_since(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = make(tmp_path, bl.SimpleBucket(2), "merge_on_read")
    query = Query(spark, table, tmp_path)
    table.upsert(batch(range(4), 0))
    seen: list[int] = []

    def change_then_die(number: int) -> None:
        if not seen:
            seen.append(number)
            table.upsert(batch(range(2, 6), 1))
            raise RuntimeError("the batch fails once")

    query.on_batch = change_then_die
    with pytest.raises(Exception, match="the batch fails once"):
        query.run()
    assert query.run() == [keys(range(4), 0), keys(range(2, 6), 1)]


def test_a_stream_begins_where_it_is_told(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path, bl.SimpleBucket(2), "copy_on_write")
    table.upsert(batch(range(4), 0))
    second = table.upsert(batch(range(2), 1))
    table.upsert(batch([7], 2))
    assert second.completed_at is not None
    expected: dict[str, list[list[tuple[str, int]]]] = {
        "earliest": [keys(range(4), 0), keys(range(2), 1), keys([7], 2)],
        "000": [keys(range(4), 0), keys(range(2), 1), keys([7], 2)],
        second.completed_at: [keys([7], 2)],
        "latest": [],
    }
    for start, batches in expected.items():
        folder = tmp_path / start
        assert Query(spark, table, folder, start=start, max_commits="1").run() == batches, start
    latest = Query(spark, table, tmp_path / "latest", start="latest")
    table.upsert(batch([8, 9], 3))
    assert latest.run(where="id <> 'k9'", columns="v,id") == [keys([8], 3)]
    whole = Query(spark, table, tmp_path / "whole", start="earliest").run()
    assert whole == [sorted(map(tuple, table.to_arrow(columns=["id", "v"]).to_pandas().values))]


def test_a_batch_has_the_commits_that_fit_its_bytes_and_at_least_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = make(tmp_path, bl.SimpleBucket(1), "merge_on_read")
    sizes = []
    for n, rows in enumerate([4, 3, 30_000, 3, 3, 3]):
        before = stored_bytes(table)
        table.upsert(batch(range(rows), n))
        sizes.append(stored_bytes(table) - before)
        if n == 3:
            table.compact()  # Its rows are not in the stream, so its size does not count.
    large = sizes.pop(2)
    small = max(sizes)
    assert 4 * small < large

    def batches(number: str, **options: str) -> list[int]:
        query = Query(spark, table, tmp_path / number, start="earliest", **options)
        return [max(v for _, v in rows) for rows in query.run()]

    # The greatest value of a batch tells its last commit.
    assert batches("one", max_bytes="1") == [0, 1, 2, 3, 4, 5]
    assert batches("some", max_bytes=str(3 * small)) == [1, 2, 5]
    assert batches("both", max_bytes=str(3 * small), max_commits="2") == [1, 2, 3, 5]
    assert batches("all", max_bytes=str(10 * large)) == [5]


def stored_bytes(table: bl.Table) -> int:
    """Return the size of the data files."""
    files = [path for path in Path(table.path).rglob("*") if path.is_file()]
    return sum(path.stat().st_size for path in files if ".hoodie" not in path.parts)


def test_a_stream_of_an_empty_table_waits_for_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    table = make(tmp_path, bl.DynamicBucket(), "copy_on_write")
    query = Query(spark, table, tmp_path)
    assert query.run() == []
    table.upsert(batch([1], 0))
    assert query.run() == [keys([1], 0)]


def test_cleaned_files_stop_a_stream_with_the_way_to_begin_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = make(tmp_path, bl.SimpleBucket(1), "copy_on_write")
    query = Query(spark, table, tmp_path, max_commits="1")
    table.upsert(batch(range(4), 0))
    assert query.run() == [keys(range(4), 0)]
    for v in (1, 2, 3):
        table.upsert(batch(range(4), v))
    table.clean(retain_versions=1)
    with pytest.raises(Exception, match="begin the stream again with a new checkpoint"):
        query.run()
    # Without the limit the batch ends at the newest commit, whose files are there.
    again = Query(spark, table, tmp_path / "again", start="earliest")
    assert again.run() == [keys(range(4), 3)]
    images = {"changes": "true", "columns": "id,v"}
    with pytest.raises(Exception, match="and the option start=") as caught:
        Query(spark, table, tmp_path / "gone", **images).run()
    since = str(caught.value).partition("the option start=")[2][:17]
    assert table.changes_to_arrow(since=since).num_rows == 0
    table.upsert(batch([0], 9))
    assert table.changes_to_arrow(since=since).num_rows == 1


def test_archived_commits_are_batches_as_long_as_their_files_are_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = make(tmp_path, bl.SimpleBucket(1), "copy_on_write")
    for n in range(6):
        table.upsert(batch([n], n))
    table.archive(keep_min=2, keep_max=3)
    assert len(table.timeline()) < 6
    query = Query(spark, table, tmp_path, start="earliest", max_commits="4")
    assert query.run() == [sorted((f"k{n}", n) for n in range(4)), [("k4", 4), ("k5", 5)]]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"start": "earlist"}, "start = 'earlist' .*did you mean 'earliest'"),
        ({"start": "2999-01-01"}, "start = '2999-01-01' cannot be used: give a time up to now"),
        ({"since": "2024-01-01"}, "since = '2024-01-01' .*a stream begins at its option start"),
        ({"as_of": "2024-01-01"}, "as_of = '2024-01-01' "),
        ({"max_commits": "0"}, "max_commits = '0' cannot be used: give an integer of at least 1"),
        ({"max_bytes": "1 MB"}, "max_bytes = '1 MB' cannot be used: give an integer of at least 1"),
        ({"read_optimized": "true"}, "a stream would miss the rows of log files"),
        ({"max_commit": "1"}, "did you mean 'max_commits'"),
    ],
)
def test_an_option_that_a_stream_cannot_use_says_why(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], says: str
) -> None:
    table = make(tmp_path, bl.SimpleBucket(1), "copy_on_write")
    with pytest.raises(Exception, match=says):
        Query(spark, table, tmp_path, **options).run()


def test_a_table_without_meta_columns_has_no_stream(
    spark: SparkSession, golden_table: Callable[[str], Path], tmp_path: Path
) -> None:
    table = bl.open_table(str(golden_table("cow_without_meta_fields")))
    with pytest.raises(Exception, match="an incremental read of a table without meta columns"):
        Query(spark, table, tmp_path).run()


def changes_of(frames: list[list[Row]]) -> list[list[tuple[str, int | None, int | None]]]:
    def change(row: Row) -> tuple[str, int | None, int | None]:
        before, after = row["before"], row["after"]
        return (after or before)["id"], (before or {}).get("v"), (after or {}).get("v")

    return [sorted(map(change, rows), key=str) for rows in frames if rows]


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_a_stream_of_changes_has_each_change_once_with_both_images(
    spark: SparkSession, tmp_path: Path, table_type: str
) -> None:
    table = make(tmp_path, bl.DynamicBucket(), table_type)
    query = Query(spark, table, tmp_path, changes="true", columns="id,v", max_commits="1")
    first = table.upsert(batch(range(3), 0))
    table.upsert(batch([1], 5))
    query.read_on()
    inserts: list[tuple[str, int | None, int | None]] = [(f"k{n}", None, 0) for n in range(3)]
    assert changes_of(query.batches) == [inserts, [("k1", 0, 5)]]
    table.delete(pa.table({"id": ["k0"], "day": ["a"]}))
    if table_type == "merge_on_read":
        table.compact()  # It changes no row.
    query.read_on()
    assert changes_of(query.batches)[2:] == [[("k0", 0, None)]]

    assert first.completed_at is not None
    expected = table.changes(spark, since=first)
    found = _loading(spark, since=first.completed_at).load(table.path)
    assert found.schema == expected.schema
    assert sorted(rows_of(found), key=str) == sorted(rows_of(expected), key=str)
    assert len(rows_of(found)) == 2
    with pytest.raises(Exception, match="changes are read with since and until"):
        _loading(spark, as_of=first.completed_at).load(table.path)
    with pytest.raises(Exception, match="declare no schema"):
        _loading(spark).schema("op string").load(table.path).collect()
    with pytest.raises(Exception, match="give true or false"):
        _loading(spark, changes="yes").load(table.path)


def _loading(spark: SparkSession, **options: str) -> DataFrameReader:
    return spark.read.format("bucketlake").options(**{"changes": "true", **options})
