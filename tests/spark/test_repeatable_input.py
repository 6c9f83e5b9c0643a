"""Inputs that give other rows when evaluated again: they are spooled once, and others are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.config.paths_of_table import EXTENSION_FOLDER
from bucketlake.errors import IndexStateError, InputError, StorageError
from bucketlake.flow.stage import Rows
from bucketlake.index.layout import SlotPlan
from bucketlake.merge.group_merge import MergeRule
from bucketlake.model.table_type import MergeMode
from bucketlake.spark.frame_source import SPOOL_FOLDER, Spool, _is_stable, is_repeatable
from bucketlake.spark.record_pieces import pack, unpack
from bucketlake.storage.local import LocalStorage
from bucketlake.write.batch_reader import BatchReader
from bucketlake.write.group_writer import GroupWriter
from bucketlake.write.slot_stage import RECORDS, WriteStage, WriteTask
from bucketlake.write.tag import Tagger
from bucketlake.write.write_plan import Placement
from tests.spark.frames import frame_of, rows_of
from tests.spies import spy
from tests.table_index import of_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 40
SCHEMA = pa.schema([("id", pa.string()), ("p", pa.int64()), ("v", pa.float64())])
Change = Callable[["DataFrame"], "DataFrame"]


def with_python_udf(df: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    return df.withColumn("v", F.udf(lambda v: v + 1, "double")("v"))


def with_pandas_udf(df: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    return df.withColumn("v", F.pandas_udf(lambda v: v + 1, "double")(F.col("v")) * 2)


def beyond_what_spark_prints(df: DataFrame) -> DataFrame:
    """A random number in the last of many columns."""
    wide = df.selectExpr("*", *(f"p + {i} AS c{i}" for i in range(60)), "rand() AS w")
    return wide.selectExpr("id", "p", "w AS v")


def with_a_column(expression: str) -> Change:
    return lambda df: df.selectExpr("id", "p", f"CAST({expression} AS double) AS v")


STABLE: dict[str, Change] = {
    "a file scan": lambda df: df,
    "columns and a filter": lambda df: df.where("p > 0").selectExpr(
        "id", "p + 1 AS p", "v * 2 AS v"
    ),
    "a union": lambda df: df.where("p = 0").union(df.where("p = 1")),
    "many columns": lambda df: df.selectExpr("*", *(f"p + {i} AS c{i}" for i in range(60))).select(
        "id", "p", "v"
    ),
    "a subquery over files": lambda df: df.alias("d").where("d.p >= 0"),
}
UNSTABLE: dict[str, Change] = {
    "rand": with_a_column("rand()"),
    "rand with a seed": with_a_column("rand(1)"),
    "rand in a filter": lambda df: df.where("rand() < 0.5"),
    "rand beyond what is printed": beyond_what_spark_prints,
    "uuid as the key": lambda df: df.selectExpr("uuid() AS id", "p", "v"),
    "monotonically_increasing_id": with_a_column("monotonically_increasing_id()"),
    "current_timestamp": with_a_column("unix_micros(current_timestamp())"),
    "now as the key": lambda df: df.selectExpr("concat(id, now()) AS id", "p", "v"),
    "reflection": lambda df: df.selectExpr(
        "reflect('java.util.UUID', 'randomUUID') AS id", "p", "v"
    ),
    "a Python UDF": with_python_udf,
    "a pandas UDF": with_pandas_udf,
    "mapInArrow": lambda df: df.mapInArrow(lambda batches: batches, df.schema),
    "limit": lambda df: df.repartition(4).limit(ROWS // 2),
    "dropDuplicates": lambda df: df.dropDuplicates(["p"]),
    "sample": lambda df: df.sample(0.5),
    "an aggregate": lambda df: (
        df.groupBy("p").agg({"id": "first", "v": "max"}).toDF("p", "id", "v")
    ),
}


@pytest.fixture(scope="module")
def source(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    rows = pa.table(
        {
            "id": [f"k{i}" for i in range(ROWS)],
            "p": [i % 3 for i in range(ROWS)],
            "v": [float(i) for i in range(ROWS)],
        },
        schema=SCHEMA,
    )
    return frame_of(spark, rows, tmp_path_factory.mktemp("source"))


@pytest.fixture
def table(table_path: Path) -> bl.Table:
    return bl.create_table(
        str(table_path),
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["p"],
        index=bl.SimpleBucket(2),
    )


def spooled_files(table: bl.Table) -> list[str]:
    return [stored.path for stored in LocalStorage(table.path).list(SPOOL_FOLDER)]


@pytest.fixture
def spools(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of files in the spool at the end of each write."""
    return spy(monkeypatch, Spool, "drop", lambda spool: len([*spool._storage.list(SPOOL_FOLDER)]))


@pytest.mark.parametrize("change", STABLE.values(), ids=STABLE)
def test_scans_of_files_with_projections_and_filters_are_repeatable(
    source: DataFrame, change: Change
) -> None:
    assert is_repeatable(change(source))


@pytest.mark.parametrize("change", UNSTABLE.values(), ids=UNSTABLE)
def test_an_input_that_may_change_is_told_from_one_that_does_not(
    source: DataFrame, change: Change
) -> None:
    assert not is_repeatable(change(source))


def test_a_relation_that_is_no_file_may_change() -> None:
    assert not _is_stable("      +- Relation [id#1,v#2] JDBCRelation(trips) [numPartitions=1]")
    assert not _is_stable("      +- Relation spark_catalog.default.trips[id#1,v#2] parquet")
    assert _is_stable("      +- Relation [id#1,v#2] parquet")


def test_a_row_of_a_bucket_that_was_not_counted_is_an_error(table: bl.Table) -> None:
    """A source that a table format lists anew may have got a partition meanwhile."""
    rows = pa.table({"id": ["a", "b"], "p": [0, 1], "v": [0.0, 1.0]}, schema=SCHEMA)
    tagger = Tagger(table.config().key_spec, of_table(bl.SimpleBucket(2)).layout(), SCHEMA)
    placement = Placement.of_slots([SlotPlan("0", slot, (), 1, slot) for slot in range(2)])
    rule = MergeRule(MergeMode.COMMIT_TIME, ())
    writer, reader = cast(GroupWriter, None), BatchReader("t", SCHEMA, rule, deletes_by_key=False)
    packed = Rows(RECORDS, tagger.with_tags(rows, tagger.tag(rows)))
    with pytest.raises(IndexStateError, match="1 records belong to other slots: the input changed"):
        WriteStage(WriteTask(tagger, writer, reader), placement, SCHEMA).route(packed)
    reader = replace(reader, deletes_by_key=True)
    deleting = WriteStage(WriteTask(tagger, writer, reader), placement, SCHEMA)
    tasks, routed = deleting.route(packed)
    _, pieces = pack(routed, tasks)
    [piece] = pieces
    assert sum(unpacked.num_rows for unpacked in unpack(piece)) == 1


def test_asking_prints_nothing_and_leaves_no_view_and_no_setting(
    spark: SparkSession, source: DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "spark.sql.debug.maxToStringFields"
    before = spark.conf.get(key, None)
    views = [view.name for view in spark.catalog.listTables()]
    is_repeatable(source)
    assert capsys.readouterr().out == ""
    assert [view.name for view in spark.catalog.listTables()] == views
    assert spark.conf.get(key, None) == before


@pytest.mark.parametrize(
    "name",
    [
        "uuid as the key",
        "rand in a filter",
        "rand beyond what is printed",
        "limit",
        "now as the key",
        "a Python UDF",
    ],
)
def test_a_changing_input_is_written_as_it_was_once_and_its_spool_is_gone(
    source: DataFrame, table: bl.Table, spools: list[int], name: str
) -> None:
    result = table.upsert(UNSTABLE[name](source))
    rows = rows_of(table.to_arrow())
    assert result.inserted == len(rows) == len({row["id"] for row in rows})
    expected = {"rand in a filter": range(1, ROWS), "limit": range(ROWS // 2, ROWS // 2 + 1)}
    assert len(rows) in expected.get(name, [ROWS])
    assert spools[0] > 0
    assert spooled_files(table) == []


@pytest.mark.parametrize("name", ["uuid as the key", "a Python UDF"])
def test_a_spool_is_read_where_the_tables_folder_has_odd_characters(
    source: DataFrame, tmp_path: Path, spools: list[int], name: str
) -> None:
    path = tmp_path / "t[1]{a,b}?*"
    table = bl.create_table(
        str(path), schema=SCHEMA, record_key="id", partition_by="p", index=bl.SimpleBucket(2)
    )
    assert table.upsert(UNSTABLE[name](source)).inserted == ROWS
    assert spools[0] > 0
    assert table.read().count() == ROWS


def test_a_file_scan_is_not_spooled(source: DataFrame, table: bl.Table, spools: list[int]) -> None:
    assert table.upsert(source.where("v >= 0")).inserted == ROWS
    assert spools == [0]
    assert not (Path(table.path) / SPOOL_FOLDER).exists()


def test_the_spool_is_gone_when_the_write_fails(
    source: DataFrame, table: bl.Table, spools: list[int]
) -> None:
    keyless = source.selectExpr("if(v = 7, NULL, id) AS id", "p", "rand() AS v")
    with pytest.raises(InputError, match="have a null or empty key"):
        table.upsert(keyless)
    assert spools[0] > 0
    assert spooled_files(table) == []
    assert table.timeline() == []


def test_an_error_of_the_users_own_function_stays_theirs_and_nothing_is_left(
    source: DataFrame, table: bl.Table
) -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PythonException
    from pyspark.sql import functions as F  # noqa: N812

    failing = source.withColumn("v", F.udf(lambda v: 1 / (v - 7), "double")("v"))
    # PySpark 3.5 tells of a function that fails within a write as Java told it.
    with pytest.raises((PythonException, Py4JJavaError), match="ZeroDivisionError"):
        table.upsert(failing)
    assert spooled_files(table) == []
    assert table.timeline() == []


class NoDelete(LocalStorage):
    """A disk on which folders cannot be deleted."""

    def delete_folder(self, folder: str) -> None:
        raise StorageError(folder, "delete folder", "no permission")


def test_a_spool_that_cannot_be_deleted_is_no_failure(source: DataFrame, table_path: Path) -> None:
    spool = Spool(NoDelete(str(table_path)), str(table_path))
    assert spool.stable(source.limit(3)).count() == 3
    spool.drop()
    assert [*LocalStorage(str(table_path)).list(EXTENSION_FOLDER)]
