"""Tables through Spark Connect: each operation once, and what Connect does in a way of its own.

Connect sends functions as pickles inside of plans, shows errors of tasks as text of the server's,
and runs ``foreachBatch`` in a Python process beside the server.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import bucketlake as bl
from bucketlake.errors import InputError, StorageError
from bucketlake.spark.frame_source import SPOOL_FOLDER, is_repeatable
from bucketlake.storage.base import Buffer
from bucketlake.storage.local import LocalStorage
from bucketlake.timeline.instant import State
from tests.memory_catalog import MemoryCatalog
from tests.spark.frames import Row, frame_of, in_order, rows_of
from tests.waiting import SECONDS_MAX

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("ts", pa.int64()), ("v", pa.float64())]
)
DAYS = ("2024-01-01", "2024-01-02", "2023-12-31")


def events(numbers: Iterable[int], ts: int) -> pa.Table:
    rows = [{"id": f"k{n}", "day": DAYS[n % 3], "ts": ts, "v": n / 4 + ts} for n in numbers]
    return pa.Table.from_pylist(rows, SCHEMA)


def model_of(*batches: pa.Table) -> list[Row]:
    """Return the rows that upserts of these batches leave; the times of later ones are later."""
    return in_order({row["id"]: row for batch in batches for row in batch.to_pylist()}.values())


def held_by(table: bl.Table, where: str | None = None) -> list[Row]:
    """Read through the Connect session, which is the active one."""
    return in_order(rows_of(table.read(where=where)))


def commits_of(table: bl.Table) -> int:
    return sum(instant.state is State.COMPLETED for instant in table.timeline())


@pytest.fixture(params=["copy_on_write", "merge_on_read"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def table(spark: SparkSession, table_path: Path, tmp_path: Path) -> bl.Table:
    """A copy-on-write table with the events 0 to 39."""
    return make(table_path, "copy_on_write", frame_of(spark, events(range(40), 1), tmp_path))


def make(path: Path, kind: str, frame: DataFrame) -> bl.Table:
    table = bl.create_table(
        str(path), schema=frame.schema, record_key=["id"], partition_by=["day"], ordering="ts",
        index=bl.SimpleBucket(2), table_type=kind,
    )  # fmt: skip
    assert table.upsert(frame).inserted == frame.count()
    return table


def test_merge_joins_on_the_server(
    spark: SparkSession, table_path: Path, tmp_path: Path, kind: str
) -> None:
    made = make(table_path, kind, frame_of(spark, events(range(40), 1), tmp_path))
    source = spark.range(4).selectExpr("id * 0.25D + 1 AS v", "rand() + 10 AS w")
    merge = made.merge(source, "t.v = s.v AND t.id <> 'k3'")
    merge = merge.when_matched_delete("t.id = 'k1'").when_matched_update({"v": "s.w + length(id)"})
    merge = merge.when_not_matched_by_source_delete("day = '2023-12-31' AND v > 5")
    result = merge.execute()
    rows = events(range(40), 1).to_pylist()
    gone = {"k1"} | {row["id"] for row in rows if row["day"] == "2023-12-31" and row["v"] > 5}
    assert (result.updated, result.deleted) == (2, len(gone))
    found = {row["id"]: row for row in held_by(made)}
    assert found.keys() == {row["id"] for row in rows} - gone
    assert all(12 <= found[key]["v"] < 13 for key in ("k0", "k2"))
    same = [row for row in rows if row["id"] not in gone | {"k0", "k2"}]
    assert in_order(row for key, row in found.items() if key not in ("k0", "k2")) == in_order(same)
    with pytest.raises(InputError, match="no_such_function"):
        made.merge(source, "t.v = s.v").when_matched_delete("no_such_function(w) > 1").execute()
    arrow = events(range(38, 42), 9)
    merge = made.merge(arrow, "t.id = s.id AND t.day = s.day")
    assert merge.when_not_matched_insert_all().execute().inserted == 3  # One was deleted above.
    merge = merge.when_matched_update_all("s.id > ''")
    assert merge.when_not_matched_insert_all("s.id > ''").execute().updated == 4


def test_rows_are_inserted_updated_read_by_condition_and_deleted(
    spark: SparkSession, table_path: Path, tmp_path: Path, kind: str
) -> None:
    first, second = events(range(40), 1), events(range(30, 50), 2)
    table = make(table_path, kind, frame_of(spark, first, tmp_path))
    result = table.upsert(frame_of(spark, second, tmp_path))
    assert result.written == second.num_rows
    model = model_of(first, second)
    assert held_by(table) == model

    where = "id = 'k31' AND day = '2024-01-02'"
    [row] = [row for row in model if row["id"] == "k31"]
    assert held_by(table, where) == [row]
    assert table.read(spark, where=where, columns=["v"]).collect() == [(row["v"],)]
    assert table.explain(where=where).file_groups_kept == 1

    gone = frame_of(spark, events(range(5), 0), tmp_path).select("id", "day")
    assert table.delete(gone).deleted in (5, None)
    left = [row for row in model if row["id"] not in {f"k{n}" for n in range(5)}]
    assert held_by(table) == left
    assert in_order(rows_of(table.to_arrow())) == left
    if kind == "merge_on_read":
        assert table.compact(spark=spark).slices
        assert held_by(table) == left


def test_columns_are_combined_by_a_function_of_the_client(
    spark: SparkSession, table: bl.Table, tmp_path: Path
) -> None:
    factor = 3.0

    def longer(stored: pa.Table, new: pa.Table) -> pa.Table:
        values = pc.multiply(stored["v"], factor)
        return new.set_column(new.column_names.index("v"), "v", values)

    few = frame_of(spark, events(range(35, 45), 2), tmp_path).select("id", "day", "ts")
    assert table.upsert(few, missing="keep", merge=longer).updated == 5
    model = {row["id"]: row for row in events(range(40), 1).to_pylist()}
    for row in events(range(35, 45), 2).to_pylist():
        held = model.get(row["id"])
        model[row["id"]] = row | {"v": None if held is None else held["v"] * factor}
    assert held_by(table) == in_order(model.values())


def test_changes_are_those_without_spark(spark: SparkSession, table: bl.Table) -> None:
    table.upsert(events(range(35, 45), 2))
    columns = ["id", "v"]
    expected = table.changes_to_arrow(where="ts = 2", columns=columns).to_pylist()
    found = table.changes(spark, where="ts = 2", columns=columns).collect()
    assert sorted(str(row.asDict(recursive=True)) for row in found) == sorted(map(str, expected))
    assert len(expected) == 10


def test_an_input_that_may_change_is_spooled_and_others_are_not(
    spark: SparkSession, table: bl.Table, tmp_path: Path
) -> None:
    frame = frame_of(spark, events(range(60), 2), tmp_path)
    assert is_repeatable(frame)
    random_rows = frame.where("rand() < 0.5")
    assert not is_repeatable(random_rows)
    result = table.upsert(random_rows)
    assert len(held_by(table, "ts = 2")) == result.written > 0
    assert [*Path(table.path, SPOOL_FOLDER).rglob("*.parquet")] == []


def test_partitions_are_rescaled_in_tasks_of_the_server(
    spark: SparkSession, table: bl.Table, tmp_path: Path
) -> None:
    report = table.rescale({"2024": 5}, spark=spark, dry_run=False)
    assert [(p.partition_path, p.new_count) for p in report.partitions] == [
        ("2024-01-01", 5), ("2024-01-02", 5),
    ]  # fmt: skip
    assert held_by(table) == model_of(events(range(40), 1))
    assert table.upsert(frame_of(spark, events(range(20, 60), 2), tmp_path)).written == 40
    assert held_by(table) == model_of(events(range(40), 1), events(range(20, 60), 2))
    assert [row["v"] for row in held_by(table, "id = 'k59'")] == [59 / 4 + 2]


@pytest.mark.parametrize("kind", ["merge_on_read"], indirect=True)
def test_hash_rings_are_resized_in_tasks_of_the_server_and_written_meanwhile(
    spark: SparkSession, table_path: Path, tmp_path: Path, kind: str
) -> None:
    first, second = events(range(60), 1), events(range(30, 90), 2)
    table = bl.create_table(
        str(table_path), schema=SCHEMA, record_key=["id"], partition_by=["day"], ordering="ts",
        index=bl.ConsistentBucket(2), table_type=kind,
    )  # fmt: skip
    table.upsert(frame_of(spark, first, tmp_path))
    limits = {"max_file_size": 1, "merge_threshold": 0.0}
    planned = table.resize(**limits, schedule_only=True, spark=spark)
    assert len(planned.buckets) == 6
    table.upsert(frame_of(spark, second, tmp_path))
    assert held_by(table) == model_of(first, second)
    done = table.resize(max_file_size=1 << 40, merge_threshold=0.0, spark=spark)
    assert done.instants == (planned.scheduled,)
    assert held_by(table) == model_of(first, second)
    assert len(table.buckets()) == 12
    assert table.doctor(check_keys=True, check_files=True) == []


def test_each_batch_of_a_stream_is_committed_once(
    spark: SparkSession, table: bl.Table, tmp_path: Path
) -> None:
    source, before = tmp_path / "source", commits_of(table)
    for number in (2, 3):
        frame_of(spark, events(range(number * 10, number * 10 + 25), number), source)
        run_stream(spark, table, source, tmp_path / "checkpoint")
    assert commits_of(table) == before + 2
    batches = [events(range(40), 1), events(range(20, 45), 2), events(range(30, 55), 3)]
    assert held_by(table) == model_of(*batches)


def run_stream(spark: SparkSession, table: bl.Table, source: Path, checkpoint: Path) -> None:
    stream = spark.readStream.schema(spark.read.parquet(str(source)).schema).parquet(str(source))
    writer = stream.writeStream.foreachBatch(table.upsert_batch(query_name="events"))
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    for attempt in count():
        try:
            writer.start().awaitTermination()
        except PySparkException as error:
            # The server gives the process of foreachBatch ten seconds to start, and no setting of
            # Spark changes that. A busy machine may take longer, above all the first time.
            if attempt == 9 or "Python worker failed to connect back" not in str(error):
                raise
        else:
            return


def test_a_bad_batch_is_rejected_by_name_and_the_table_stays_as_it_was(
    spark: SparkSession, table: bl.Table, tmp_path: Path
) -> None:
    commits, rows = commits_of(table), held_by(table)
    frame = frame_of(spark, events(range(40), 2), tmp_path)
    with pytest.raises(InputError, match=r"record key column 'id'.* have a null or empty key"):
        table.upsert(frame.selectExpr("nullif(id, 'k7') AS id", "day", "ts", "v"))
    with pytest.raises(InputError, match="column v: the table holds double, the batch string"):
        table.upsert(frame.selectExpr("id", "day", "ts", "'one' AS v"))
    assert (commits_of(table), held_by(table)) == (commits, rows)
    assert table.upsert(frame).written == 40


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


def test_an_error_of_storage_in_a_task_is_raised_as_itself(
    spark: SparkSession, table: bl.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client gets no more of a task's error than its text."""
    rows, frame = held_by(table), frame_of(spark, events(range(40), 2), tmp_path)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Tasks cannot import the tests.
    monkeypatch.setattr("bucketlake.read.handle.open_storage", lambda path, _: FullDisk(path))
    with pytest.raises(StorageError, match=r"put if absent .*parquet: no space left on device"):
        table.upsert(frame)
    monkeypatch.undo()
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    assert held_by(table) == rows
    assert table.upsert(frame).written == 40


@pytest.mark.skipif(not hasattr(SparkSession, "dataSource"), reason="Spark 3 has no such sources")
def test_a_table_is_read_by_format_in_sql_and_as_a_stream(
    spark: SparkSession, table: bl.Table, tmp_path: Path
) -> None:
    bl.register(spark)
    expected = in_order(rows_of(table.to_arrow()))
    frame = spark.read.format("bucketlake").load(table.path)
    assert in_order(rows_of(frame)) == expected
    assert in_order(rows_of(frame.where("id = 'k3'"))) == [r for r in expected if r["id"] == "k3"]
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW later USING bucketlake "
        f"OPTIONS (path '{table.path}', where 'id = ''k5''')"
    )
    assert [row["id"] for row in rows_of(spark.table("later"))] == ["k5"]
    with pytest.raises(PySparkException, match="did you mean 'where'"):
        _ = spark.read.format("bucketlake").option("wher", "x").load(table.path).schema
    with pytest.raises(PySparkException, match=r"upsert\(df\).*nothing was written"):
        frame.write.format("bucketlake").mode("append").save(table.path)
    changes = spark.readStream.format("bucketlake").load(table.path).writeStream
    target, checkpoint = str(tmp_path / "target"), str(tmp_path / "checkpoint")
    for _ in range(2):  # The second run finds nothing new.
        query = (
            changes.format("parquet")
            .option("checkpointLocation", checkpoint)
            .option("path", target)
        )
        assert query.trigger(availableNow=True).start().awaitTermination(SECONDS_MAX)
    assert in_order(rows_of(spark.read.parquet(target))) == expected


@pytest.mark.skipif(not hasattr(SparkSession, "dataSource"), reason="Spark 3 has no such sources")
def test_tables_of_a_catalog_are_read_by_their_names(spark: SparkSession, table: bl.Table) -> None:
    catalog = MemoryCatalog()
    bl.sync(table, catalog, "sales.events")
    for _ in range(2):  # The second call makes the tables anew.
        bl.register(spark, catalog=catalog, database="sales")
    assert spark.sql("SELECT id FROM sales.events WHERE id = 'k3'").collect() == [("k3",)]
    spark.sql("DROP DATABASE sales CASCADE")
    assert table.count() == 40
