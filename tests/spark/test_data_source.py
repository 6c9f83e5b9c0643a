"""``spark.read.format("bucketlake")`` and its SQL, against ``table.read`` and plain rows."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bucketlake as bl
from bucketlake.read.read_plan import plan_read, returned_schema
from bucketlake.where.predicate import Among, In, leaves
from bucketlake.where.sets import merged
from tests.bounds import set_bounds
from tests.choices import DEEP
from tests.conformance.cases import Case, in_order
from tests.conformance.kinds import kinds_named
from tests.conftest import GOLDEN_TABLES
from tests.golden.rows import plain_rows
from tests.spark.frames import Row, arrow_of, rows_of
from tests.spark.test_types import VALUES, new_table, shown, time_zone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

source = pytest.importorskip("pyspark.sql.datasource", reason="Spark 3 has no sources in Python")

from bucketlake.spark import data_source, splits  # noqa: E402
from bucketlake.spark.pushed_filters import pushed_predicate  # noqa: E402
from bucketlake.spark.spark_schema import spark_from_arrow  # noqa: E402
from bucketlake.spark.splits import batches_of  # noqa: E402
from bucketlake.spark.stream_source import SourceOptions  # noqa: E402

pytestmark = pytest.mark.spark

PUSHES = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module", autouse=True)
def registered(spark: SparkSession) -> None:
    bl.register(spark)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each kind; the kinds take turns with their table types."""
    if "case" in metafunc.fixturenames:
        found = [k for k in kinds_named(metafunc.config.getoption("--kind")) if not k.is_variant]
        turns = zip(found, count(1), strict=False)
        cases = [Case(k, k.table_types[turn % len(k.table_types)]) for k, turn in turns]
        metafunc.parametrize("case", cases, ids=list(map(str, cases)))


def load(spark: SparkSession, table: bl.Table, **options: str) -> DataFrame:
    return spark.read.format("bucketlake").options(**options).load(table.path)


def by_id(found: DataFrame) -> list[Row]:
    return sorted(rows_of(found), key=lambda row: row["id"])


def files_read(table: bl.Table, **options: str) -> set[str]:
    """Return the base files that a read by format reads."""
    given = SourceOptions.of({"path": table.path, **options})
    jobs = plan_read(*data_source._pin(given, given.request())).jobs
    return {getattr(job, "path", None) or job.base_file.path for job in jobs}


def test_small_files_share_a_task(trips: bl.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def tasks() -> int:
        loaded = data_source.BucketLakeSource(source.CaseInsensitiveDict({"path": trips.path}))
        return len(loaded.reader(loaded.schema()).partitions())

    assert tasks() == 1
    set_bounds(monkeypatch, splits, _SPLIT_BYTES_LEAST=4_000)
    assert tasks() == 8  # Larger tables have as many tasks as before.


STEPS = {  # As the processes of Spark do them, each after Spark's own imports.
    "load": """
import pyspark.sql.worker.create_data_source
from pyspark_bucketlake import DefaultSource
from pyspark.sql.datasource import CaseInsensitiveDict
found = DefaultSource(CaseInsensitiveDict({"path": path, "where": where}))
result = found, found.schema()
""",
    "plan": """
import pyspark.sql.worker.plan_data_source_read
found, schema = pickle.loads(given)
reader = found.reader(schema)
result = found, reader, reader.partitions()
""",
    "task": """
import pyspark.worker
found, reader, splits = pickle.loads(given)
assert found.name() == "bucketlake"
result = [row for split in splits for batch in reader.read(split) for row in batch.to_pylist()]
""",
}
AROUND_A_STEP = """
import io, os, pickle, sys
path, where = sys.argv[1:]
given = sys.stdin.buffer.read()
touched = []
def seen(event, arguments):
    if event in ("open", "os.scandir") and str(arguments[0]).startswith(path):
        touched.append((event, os.path.relpath(arguments[0], path)))
sys.addaudithook(seen)
{step}
from pyspark.cloudpickle import dumps
modules = [name for name in sys.modules if sys.modules[name] is not None]
sys.stdout.buffer.write(pickle.dumps((modules, touched, dumps(result))))
"""


def in_processes(table: bl.Table, where: str) -> tuple[dict[str, Any], list[Row]]:
    """Read as Spark does; return the modules and opened files of each process, and the rows."""
    found, given = {}, b""
    for name, step in STEPS.items():
        code = AROUND_A_STEP.format(step=step)
        arguments = [sys.executable, "-c", code, table.path, where]
        done = subprocess.run(arguments, input=given, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        modules, touched, given = pickle.loads(done.stdout)
        found[name] = set(modules), Counter(touched)
    return found, pickle.loads(given)


def test_a_point_read_opens_the_table_once_and_imports_little(trips: bl.Table) -> None:
    found, rows = in_processes(trips, "id = 'k1' AND day = 'y'")
    assert rows == [{"id": "k1", "day": "y", "v": 1}]
    opening = [("open", ".hoodie/hoodie.properties"), ("os.scandir", ".hoodie/timeline")]
    # The plan looks whether a clean or a new setting took away what it listed.
    assert [found[step][1][once] for step in ("load", "plan") for once in opening] == [1] * 4
    assert found["plan"][1]["os.scandir", ".hoodie/metadata/.hoodie/timeline"] == 1
    assert not found["task"][1]  # The plan read the rows.
    for modules, _ in found.values():
        assert not {"pandas", "sqlglot"} & modules
    rooms = {name.split(".")[1] for name in found["task"][0] if name.startswith("bucketlake.")}
    assert rooms == {"errors", "model", "spark"}
    assert "bucketlake.spark.data_source" not in found["task"][0]


def test_many_rows_of_a_condition_are_read_by_tasks(
    trips: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = data_source.BucketLakeSource(
        source.CaseInsensitiveDict({"path": trips.path, "where": "day < 'z'"})
    )
    reader = loaded.reader(loaded.schema())
    ways = []
    for limit in (2**20, 1):
        set_bounds(monkeypatch, splits, _ROWS_BYTES_MOST=limit)
        (only,) = reader.partitions()
        rows = [row for batch in reader.read(only) for row in batch.to_pylist()]
        ways.append((type(only).__name__, sorted(row["id"] for row in rows)))
    (read, found), (left, found_by_task) = ways
    assert (read, left) == ("ReadSplit", "Split")
    assert found == found_by_task == sorted(f"k{n}" for n in range(40) if n % 3 < 2)


def test_each_kind_is_read_by_format_and_a_condition_reads_the_files_of_its_key(
    spark: SparkSession, case: Case, tmp_path: Path
) -> None:
    held = case.filled(str(tmp_path / "table"), with_base_files=True)
    assert in_order(rows_of(load(spark, held.table))) == in_order(held.rows.values())
    base_files = {held_in.path for held_in in held.table.buckets() if held_in.path is not None}
    wanted = next(row for row in held.rows.values() if row["id"] == "k0")
    where = f"id = 'k0' AND day = '{wanted['day']}'"
    kept = files_read(held.table, where=where)
    assert len(kept) == held.table.explain(where).file_groups_kept < len(base_files)
    for path in base_files - kept:
        if not path.startswith(f"{wanted['day']}/"):  # A task that opened it would fail.
            Path(held.table.path, path).write_bytes(b"")
    assert rows_of(load(spark, held.table, where=where)) == [wanted]


@pytest.mark.filterwarnings("ignore::bucketlake.errors.NullElementWarning")
@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_every_value_of_every_type_is_that_of_table_read(
    spark: SparkSession, tmp_path: Path, table_type: str
) -> None:
    table = new_table(tmp_path, VALUES.schema, table_type=table_type)
    table.upsert(VALUES)
    table.upsert(VALUES.slice(0, 4))
    with time_zone(spark, "America/St_Johns"):
        frame = load(spark, table)
        assert frame.schema == table.read(spark).schema
        assert shown(arrow_of(frame)) == shown(VALUES)


@pytest.mark.parametrize("name", ["cow_simple", "mor_simple", "mor_v6", "mor_consistent_split"])
def test_a_table_that_hudi_wrote_is_read_by_format(
    spark: SparkSession, golden_table: Callable[[str], Path], name: str
) -> None:
    expected = pq.read_table(next(GOLDEN_TABLES.rglob(f"{name}.expected.parquet")))
    table = bl.open_table(str(golden_table(name)))
    names = table.schema().names
    found = arrow_of(load(spark, table))
    assert found.column_names == names
    assert plain_rows(found, names) == plain_rows(expected, names)


def test_older_files_get_the_types_and_columns_of_the_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    first = pa.table(
        {"id": ["a", "b"], "v": pa.array([1, 2], pa.int32()), "f": pa.array([0.1, 2], pa.float32())}
    )
    table = bl.create_table(
        str(tmp_path / "t"), schema=first.schema, record_key="id", index=bl.SimpleBucket(4)
    )
    table.upsert(first)
    before = load(spark, table)
    wider = pa.table({"id": ["c"], "v": [2**40], "f": [0.1], "note": ["new"]})
    table.upsert(wider, merge_schema=True)
    assert by_id(load(spark, table)) == [
        {"id": "a", "v": 1, "f": 0.1, "note": None},
        {"id": "b", "v": 2, "f": 2.0, "note": None},
        {"id": "c", "v": 2**40, "f": 0.1, "note": "new"},
    ]
    assert [row["id"] for row in by_id(before)] == ["a", "b"]  # Pinned when it was loaded.
    declared = spark.read.schema("NOTE string, id string").format("bucketlake")
    assert sorted(declared.load(table.path).collect(), key=lambda row: row.id)[-1] == ("new", "c")
    for schema, says in (
        ("v int", "it is declared as int, and the table has it as bigint"),
        ("notes string", "there is no column 'notes'.*did you mean 'note'"),
    ):
        with pytest.raises(Exception, match=says):
            spark.read.schema(schema).format("bucketlake").load(table.path).collect()


@pytest.fixture
def trips(tmp_path: Path) -> bl.Table:
    """A merge-on-read table with two commits."""
    table = bl.create_table(
        str(tmp_path / "trips"),
        schema=pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())]),
        record_key="id",
        partition_by="day",
        index=bl.SimpleBucket(4),
        table_type="merge_on_read",
    )
    table.upsert(trips_of(range(40), 0))
    table.upsert(trips_of(range(0, 40, 4), 1000))
    return table


def trips_of(numbers: Any, more: int) -> pa.Table:
    rows = [{"id": f"k{n}", "day": "xyz"[n % 3], "v": n + more} for n in numbers]
    return pa.Table.from_pylist(rows)


def test_the_options_are_the_arguments_of_table_read(spark: SparkSession, trips: bl.Table) -> None:
    first = trips.timeline()[0]
    assert first.completed_at is not None
    options: list[dict[str, Any]] = [
        {"as_of": first.requested_at},
        {"since": first.completed_at},
        {"until": first.completed_at},
        {"where": "v > 1000 AND day = 'x'"},
        {"columns": "v, id"},
        {"read_optimized": "true"},
        {
            "columns": "_hoodie_commit_time,id",
            "where": f"_hoodie_commit_time > '{first.requested_at}'",
        },
    ]
    seen = []
    for given in options:
        argument = dict(given)
        if "columns" in given:
            argument["columns"] = [name.strip() for name in given["columns"].split(",")]
        if "read_optimized" in given:
            argument["read_optimized"] = True
        expected = trips.read(spark, **argument)
        found = load(spark, trips, **given)
        assert found.schema == expected.schema
        seen.append(by_id(found))
        assert seen[-1] == by_id(expected), given
    everything = by_id(trips.read(spark))
    assert all(rows not in ([], everything) for rows in seen)  # Each option does something.


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"as_off": "2024"}, "as_off = '(hidden)' cannot be used: one of .*did you mean 'as_of'"),
        ({"storag.secret": "hush"}, "storag.secret = '(hidden)'"),
        ({"where": "vv = 1"}, "there is no column vv; .*did you mean 'v'"),
        ({"where": "length(id) = 2"}, "read the table with Spark"),
        ({"columns": "id,idd"}, "there is no column 'idd'"),
        ({"columns": ""}, "there is no column ''"),
        ({"as_of": "yesterday"}, "as_of = 'yesterday'"),
        ({"as_of": "2024-01-01", "since": "2024-01-01"}, "give either as_of, or since and until"),
        ({"read_optimized": "yes"}, "read_optimized = 'yes' cannot be used: give true or false"),
        ({"start": "earliest"}, "start = 'earliest' .*belongs to a stream"),
        ({"path": ""}, "path = '' cannot be used: give the folder"),
    ],
)
def test_an_option_that_cannot_be_used_says_why_and_hides_secrets(
    spark: SparkSession, trips: bl.Table, options: dict[str, str], says: str
) -> None:
    given = {"path": trips.path} | options
    with pytest.raises(Exception, match=says.replace("(hidden)", r"\(hidden\)")) as raised:
        spark.read.format("bucketlake").options(**given).load().collect()
    assert "hush" not in str(raised.value)


def test_queries_of_one_frame_do_not_get_each_others_files(
    spark: SparkSession, trips: bl.Table
) -> None:
    spark.conf.set(PUSHES, "true")
    try:
        frame = load(spark, trips)
        assert frame.where("id = 'k1' AND day = 'y'").count() == 1
        assert frame.count() == 40
        one, other = frame.where("id = 'k1'"), frame.where("id = 'k2'")
        assert one.union(other).union(frame).count() == 42
        frame.createOrReplaceTempView("trips_of_one_frame")
        both = "SELECT * FROM trips_of_one_frame WHERE id = 'k1' UNION ALL TABLE trips_of_one_frame"
        assert spark.sql(both).count() == 41
    finally:
        spark.conf.unset(PUSHES)


def test_a_frame_is_the_table_as_it_was_loaded(spark: SparkSession, trips: bl.Table) -> None:
    frame = load(spark, trips)
    before = by_id(frame)
    trips.upsert(trips_of(range(30, 60), 5000))
    assert by_id(frame) == before
    assert load(spark, trips).count() == 60


def test_sql_reads_a_view_and_a_table_of_the_catalog(spark: SparkSession, trips: bl.Table) -> None:
    path = trips.path
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW some_trips USING bucketlake "
        f"OPTIONS (path '{path}', where 'day = ''x''')"
    )
    assert spark.sql("SELECT count(*), max(v) FROM some_trips").collect() == [(14, 1036)]
    spark.sql(
        f"CREATE TABLE trips_of_path USING bucketlake OPTIONS (path '{path}', columns 'id,v')"
    )
    try:
        spark.sql(f"CREATE TABLE trips_at USING bucketlake LOCATION '{path}'")
        assert spark.table("trips_of_path").columns == ["id", "v"]
        joined = "SELECT count(*) FROM trips_of_path JOIN trips_at USING (id, v)"
        assert spark.sql(joined).collect() == [(40,)]
        trips.upsert(trips_of([77], 0))
        assert spark.sql(joined).collect() == [(41,)]  # A table is pinned by each query.
        with pytest.raises(Exception, match="Spark mixes up the options of several reads"):
            spark.sql("SELECT * FROM trips_at WITH (where = 'v = 1')").collect()
        with pytest.raises(Exception, match=r"upsert\(df\)"):
            spark.sql("INSERT INTO trips_at VALUES ('a', 'x', 1)")
    finally:
        spark.sql("DROP TABLE trips_of_path")
        spark.sql("DROP TABLE IF EXISTS trips_at")
    spark.sql(f"CREATE TABLE declared (id string) USING bucketlake LOCATION '{path}'")
    with pytest.raises(Exception, match="CREATE TABLE takes no columns"):
        spark.table("declared").collect()
    spark.sql("DROP TABLE declared")
    assert trips.count() == 41  # Spark's catalog does not own the table.
    for options, says in (
        (f"OPTIONS (path '{path}', `storage.secret` 'hush')", "shows its options"),
        (f"OPTIONS (path '{path}', wher 'v = 1')", "did you mean 'where'"),
        ("", "give the folder of the table"),
    ):
        with pytest.raises(Exception, match=says) as raised:
            spark.sql(f"CREATE TABLE no_trips USING bucketlake {options}")
        assert "hush" not in str(raised.value)


def test_a_write_by_format_names_the_way_to_write_and_writes_nothing(
    spark: SparkSession, trips: bl.Table, tmp_path: Path
) -> None:
    frame = trips.read(spark)
    before = trips.timeline()
    for path in (trips.path, str(tmp_path / "none")):
        for mode in ("append", "overwrite"):
            with pytest.raises(Exception, match=r"\.upsert\(df\).*bl\.save.*nothing was written"):
                frame.write.format("bucketlake").mode(mode).save(path)
        stream = spark.readStream.format("rate").load().writeStream.format("bucketlake")
        query = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start(path)
        with pytest.raises(Exception, match=r"foreachBatch\(.*upsert_batch.*nothing was written"):
            query.awaitTermination()
    assert trips.timeline() == before
    assert not (tmp_path / "none").exists()


# Filters that Spark pushes.

DAYS = [date(2024, 1, 1), date(2024, 1, 2), date(1969, 12, 31)]
AT = datetime(2024, 1, 1, 12, tzinfo=UTC)
NAN = float("nan")
CHOICES: dict[str, list[Any]] = {
    "id": [f"k{n}" for n in range(12)] + ["nobody", ""],
    "day": DAYS,
    "n": [-3, 0, 1, 2, 7],
    "x": [0.5, -0.0, 0.0, NAN, float("inf"), 2.0],
    "cost": [Decimal("1.50"), Decimal("-2.00"), Decimal("0.00")],
    "at": [AT + timedelta(hours=h) for h in range(4)],
    "wall": [datetime(2024, 1, 1, h) for h in range(3)],
    "note": ["", "a", "ab", "ba%", "it's", "日本"],
    "yes": [True, False],
    "s.q": [1, 2, 3],
}
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("day", pa.date32()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("cost", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("wall", pa.timestamp("us")),
        ("note", pa.string()),
        ("yes", pa.bool_()),
        ("s", pa.struct([("q", pa.int64())])),
    ]
)
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": lambda a, b: a == b,
    "LessThan": lambda a, b: a < b,
    "LessThanOrEqual": lambda a, b: a <= b,
    "GreaterThan": lambda a, b: a > b,
    "GreaterThanOrEqual": lambda a, b: a >= b,
}
TEXTS: dict[str, Callable[[str, str], bool]] = {
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": str.__contains__,
}


def known_rows(draw: random.Random) -> list[Row]:
    found = []
    for n in range(36):
        row = {name: draw.choice([*values, None]) for name, values in CHOICES.items()}
        row |= {"id": f"k{n % 12}", "day": DAYS[n // 12]}
        q = row.pop("s.q")
        found.append(row | {"s": draw.choice([{"q": q}, None])})
    return found


def held_at(row: Row, steps: tuple[str, ...]) -> Any:
    for step in steps:
        row = row[step] if row is not None else None
    return row


def comparable(value: Any) -> Any:
    """Spark's order: NaN equals itself and is the greatest number; texts by their bytes."""
    if isinstance(value, float):
        return (value != value, 0.0 if value != value else value)
    return value.encode() if isinstance(value, str) else value


def truth(pushed: Any, row: Row) -> bool | None:
    """Return what Spark makes of a filter; None is unknown."""
    kind = type(pushed).__name__
    if kind == "Not":
        inner = truth(pushed.child, row)
        return None if inner is None else not inner
    held = held_at(row, pushed.attribute)
    if kind in ("IsNull", "IsNotNull"):
        return (held is None) == (kind == "IsNull")
    if kind == "EqualNullSafe":
        return comparable(held) == comparable(pushed.value)
    if kind == "In":
        if held is None:
            return None
        among = [comparable(value) for value in pushed.value if value is not None]
        return comparable(held) in among or (None if None in pushed.value else False)
    if held is None or pushed.value is None:
        return None
    if kind in TEXTS:
        return TEXTS[kind](held, pushed.value)
    return COMPARISONS[kind](comparable(held), comparable(pushed.value))


def place(row: Row) -> tuple[str, date]:
    """Return the key of a row: each row is compared by the filters already."""
    return row["id"], row["day"]


def drawn(draw: random.Random) -> Any:
    name = draw.choice(list(CHOICES))
    path, values = tuple(name.split(".")), [*CHOICES[name], None]
    kinds = [*COMPARISONS, "EqualNullSafe", "In", "IsNull", "IsNotNull"]
    kind = draw.choice([*kinds, *TEXTS] if name in ("id", "note") else kinds)
    if kind in ("IsNull", "IsNotNull"):
        made = getattr(source, kind)(path)
    elif kind == "In":
        made = source.In(path, [draw.choice(values) for _ in range(draw.randint(1, 4))])
    elif kind in TEXTS:
        made = getattr(source, kind)(path, draw.choice(["", "k", "k1", "a", "%", "b", "日"]))
    else:
        made = getattr(source, kind)(path, draw.choice(values))
    return source.Not(made) if draw.random() < 0.25 else made


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_pushed_filters_prune_files_and_lose_no_row(tmp_path: Path, table_type: str) -> None:
    draw = random.Random(7)
    rows = known_rows(draw)
    table = bl.create_table(
        str(tmp_path / "t"),
        schema=SCHEMA,
        record_key="id",
        partition_by="day",
        index=bl.SimpleBucket(4),
        table_type=table_type,
    )
    table.upsert(pa.Table.from_pylist(rows, SCHEMA))
    table.upsert(pa.Table.from_pylist(rows[::3], SCHEMA))
    options = SourceOptions.of({"path": table.path})
    pinned, index = data_source._pin(options, options.request())
    schema = returned_schema(pinned)
    everything = len(table.buckets())
    pruned = 0
    for _ in range(100 if DEEP else 40):
        filters = [drawn(draw) for _ in range(draw.randint(1, 2))]
        chosen = data_source.with_columns(pinned, spark_from_arrow(schema))
        reader = data_source.PushingReader(options, chosen, index, schema)
        assert reader.pushFilters(filters) is filters  # Spark applies all of them again.
        splits = reader.partitions()
        found = [row for s in splits for batch in batches_of(s) for row in batch.to_pylist()]
        expected = [row for row in rows if all(truth(pushed, row) for pushed in filters)]
        kept = [row for row in found if all(truth(pushed, row) for pushed in filters)]
        assert sorted(map(place, kept)) == sorted(map(place, expected)), filters
        pruned += len(plan_read(chosen, index, besides=reader._pushed).jobs) < everything
    assert pruned > 15
    reader = data_source.PushingReader(options, chosen, index, schema)
    reader.pushFilters([source.EqualTo(("id",), "k3"), source.EqualTo(("day",), DAYS[0])])
    assert len(plan_read(chosen, index, besides=reader._pushed).jobs) == 1


def test_pushed_list_of_many_values_is_one_set() -> None:
    schema = pa.schema([("n", pa.int64()), ("day", pa.date32())])
    for length in (1_000, 4_000):
        found = pushed_predicate(source.In(("n",), tuple(range(length))), schema)
        assert found == In("n", tuple(range(length)))
        (leaf,) = leaves(merged(found, schema))
        assert isinstance(leaf, Among)
        assert len(leaf.keys) == length
    assert pushed_predicate(source.In(("day",), ("today",)), schema) is None


def test_spark_itself_pushes_filters_where_it_keeps_the_scans_of_a_frame_apart(
    spark: SparkSession, trips: bl.Table
) -> None:
    class Pushing(data_source.BucketLakeSource):
        """As the source will be on a Spark that keeps scans apart; each load has one query."""

        @classmethod
        def name(cls) -> str:
            return "bucketlake_pushing"

        def reader(self, schema: Any) -> Any:
            found = super().reader(schema)
            return data_source.PushingReader(
                found._options, found._pinned, found._index, found._target
            )

    assert hasattr(source.DataSourceReader, "pushLimit") == data_source.KEEPS_SCANS_APART
    spark.dataSource.register(Pushing)
    for bucket in trips.buckets():
        if bucket.partition_path != "y" and bucket.path is not None:
            Path(trips.path, bucket.path).write_bytes(b"")
    spark.conf.set(PUSHES, "true")
    try:
        frame = spark.read.format("bucketlake_pushing").load(trips.path)
        expected = {f"k{n}" for n in range(1, 40, 3)}
        assert {row.id for row in frame.where("day = 'y' AND id <> 'k1'").collect()} == (
            expected - {"k1"}
        )
    finally:
        spark.conf.unset(PUSHES)
