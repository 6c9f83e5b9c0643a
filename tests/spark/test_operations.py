"""Every operation through DataFrames, compared with a plain model and with Arrow tables.

Each step is done twice: with a DataFrame on one table and with an Arrow table on its twin. Both
must then hold what the model holds, read through Spark and through Arrow.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import InputError
from bucketlake.model.keys import TimestampPartition
from bucketlake.model.result import WriteResult
from tests.spark.frames import Row, frame_of, in_order, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.int32()),
        ("site", pa.string()),
        ("at", pa.int64()),
        ("ts", pa.int64()),
        ("fare", pa.float64()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
ODD = [
    "a b",
    "a=b%2F",
    "{x,y}[z]",
    "*?",
    "日本",
    "e\u0301",
    "_u",
    ".d",
    " padded ",
    "'\"",
    "~#&",
    None,
]
DAY_SECONDS = 86_400


@dataclass(frozen=True)
class Layout:
    """A way to key and partition a table, and the model's own idea of it."""

    name: str
    settings: Mapping[str, Any]
    key: Callable[[Row], Any]
    partition: Callable[[Row], Any]
    sites: list[str | None] = field(default_factory=lambda: ["eu", "us", "日本"])

    @property
    def event_time(self) -> bool:
        return self.settings.get("ordering") is not None


def _day(row: Row) -> int:
    return row["at"] // DAY_SECONDS


LAYOUTS = [
    Layout(
        "event time, one partition column",
        {"record_key": ["id"], "partition_by": ["site"], "ordering": "ts"},
        lambda row: row["id"],
        lambda row: row["site"],
    ),
    Layout(
        "commit time, composite key, two partition columns, hive style",
        {"record_key": ["id", "part"], "partition_by": ["site", "part"], "hive_style": True},
        lambda row: (row["id"], row["part"]),
        lambda row: (row["site"], row["part"]),
    ),
    Layout(
        "no partitions, two ordering columns",
        {"record_key": ["id"], "ordering": ["ts", "fare"]},
        lambda row: row["id"],
        lambda row: None,
    ),
    Layout(
        "odd values, hive style and encoded",
        {
            "record_key": ["id"],
            "partition_by": ["site"],
            "ordering": "ts",
            "hive_style": True,
            "url_encode": True,
        },
        lambda row: row["id"],
        lambda row: row["site"],
        [*ODD, "a/b", "c:d"],
    ),
    Layout(
        "partitions by day of a time",
        {
            "record_key": ["id"],
            "partition_by": ["at"],
            "ordering": "ts",
            "timestamp_partition": TimestampPartition("UNIX_TIMESTAMP", "yyyy/MM/dd"),
        },
        lambda row: row["id"],
        _day,
    ),
]
Place = tuple[Any, Any]


class World:
    """A table written with DataFrames, its twin written with Arrow tables, and the model."""

    def __init__(self, layout: Layout, spark: SparkSession, folder: Path) -> None:
        self.layout, self.spark, self.folder = layout, spark, folder
        self.random = random.Random(layout.name)
        self.by_frame, self.by_arrow = (
            bl.create_table(
                str(folder / name), schema=SCHEMA, index=bl.SimpleBucket(2), **layout.settings
            )
            for name in ("by_frame", "by_arrow")
        )
        self.model: dict[Place, Row] = {}
        self.gone: dict[Place, tuple[Any, ...]] = {}  # The newest delete of each key.
        self.clock = 0

    def place(self, row: Row) -> Place:
        return self.layout.partition(row), self.layout.key(row)

    def batch(self, size: int) -> list[Row]:
        """Make rows, of which several may share a key if their ordering values tell them apart."""
        rows: dict[Any, Row] = {}
        for _ in range(size):
            self.clock += 1
            row = {
                "id": f"k{self.random.randrange(30)}",
                "part": self.random.randrange(2),
                "site": self.random.choice(self.layout.sites),
                "at": self.random.randrange(3) * DAY_SECONDS + self.random.randrange(DAY_SECONDS),
                # Late events: some are older than what came before.
                "ts": self.clock + self.random.choice([0, 0, -40]) * 1_000,
                "fare": self.random.choice([1.5, -0.25]),
                "_hoodie_is_deleted": self.random.choice([True, False, False, None]),
            }
            rows[self.clock if self.layout.event_time else self.place(row)] = row
        return list(rows.values())

    def write(
        self, verb: str, rows: list[Row], model: Mapping[Place, Row], **options: Any
    ) -> WriteResult:
        """Write rows to both tables, which then must hold the model."""
        table = pa.Table.from_pylist(rows, SCHEMA)
        frame = frame_of(self.spark, table, self.folder / "batches")
        results = [
            getattr(self.by_frame, verb)(frame, **options),
            getattr(self.by_arrow, verb)(table, **options),
        ]
        return self.settle(results, model)

    def settle(self, results: list[WriteResult], model: Mapping[Place, Row]) -> WriteResult:
        by_frame, by_arrow = results
        counts = [
            (one.inserted, one.updated, one.deleted, one.file_groups)
            for one in (by_frame, by_arrow)
        ]
        assert counts[0] == counts[1]
        self.model = dict(model)
        expected = in_order(self.model.values())
        assert in_order(rows_of(self.by_frame.read(self.spark))) == expected
        assert in_order(rows_of(self.by_frame.to_arrow())) == expected
        assert in_order(rows_of(self.by_arrow.to_arrow())) == expected
        return by_frame

    def upserted(self, rows: list[Row], onto: Mapping[Place, Row]) -> dict[Place, Row]:
        """Say what the model holds after an upsert; deletes are remembered."""
        if not self.layout.event_time:
            return self.overwritten(rows, onto)
        before = dict(self.gone)
        for row in rows:
            if row["_hoodie_is_deleted"]:
                place = self.place(row)
                self.gone[place] = max(self.order(row), self.gone.get(place, self.order(row)))
        late = [row for row in rows if self.order(row) <= before.get(self.place(row), ())]
        return self.overwritten([row for row in rows if row not in late], onto)

    def overwritten(self, rows: list[Row], onto: Mapping[Place, Row]) -> dict[Place, Row]:
        """Say what the model holds after an overwrite, where ``onto`` stays."""
        after = dict(onto)
        for place, row in self.winners(rows).items():
            if place in after and self.order(row) < self.order(after[place]):
                continue
            after.pop(place, None)
            if not row["_hoodie_is_deleted"]:
                after[place] = row
        return after

    def winners(self, rows: list[Row]) -> dict[Place, Row]:
        best: dict[Place, Row] = {}
        for row in rows:
            other = best.get(self.place(row))
            if other is None or self.order(row) >= self.order(other):
                best[self.place(row)] = row
        return best

    def order(self, row: Row) -> tuple[Any, ...]:
        ordering = self.layout.settings.get("ordering") or ()
        fields = [ordering] if isinstance(ordering, str) else ordering
        return tuple(row[name] for name in fields)

    def of_partitions(self, rows: list[Row]) -> set[Any]:
        return {self.layout.partition(row) for row in rows}


@pytest.fixture(
    params=[LAYOUTS[0], *(pytest.param(one, marks=pytest.mark.any_spark) for one in LAYOUTS[1:])],
    ids=[layout.name.replace(" ", "-") for layout in LAYOUTS],
)
def world(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> World:
    return World(request.param, spark, tmp_path)


def test_each_operation_leaves_what_the_model_holds_however_the_rows_come(world: World) -> None:
    first = world.batch(50)
    made = world.write("upsert", first, world.upserted(first, {}))
    assert (made.inserted, made.updated, made.deleted) == (len(world.model), 0, 0)

    before, changes = world.model, world.batch(25)
    result = world.write("upsert", changes, world.upserted(changes, before))
    assert result.inserted == len(world.model.keys() - before.keys())
    assert result.deleted == len(before.keys() - world.model.keys())
    changed = {
        place
        for place in before.keys() & world.model.keys()
        if before[place] is not world.model[place]
    }
    assert result.updated == len(changed)

    gone = world.batch(12)
    places = {world.place(row) for row in gone}
    kept = {place: row for place, row in world.model.items() if place not in places}
    deleted = len(world.model) - len(kept)
    assert world.write("delete", gone, kept).deleted == deleted

    rows = world.batch(6)[:3]
    kept = {p: row for p, row in world.model.items() if p[0] not in world.of_partitions(rows)}
    world.write("insert_overwrite", rows, world.overwritten(rows, kept))

    more = world.batch(5)
    world.write("insert", more, world.upserted(more, world.model))


@pytest.fixture
def simple(spark: SparkSession, tmp_path: Path) -> World:
    """A table of three partitions with some rows in each."""
    world = World(LAYOUTS[0], spark, tmp_path)
    rows = world.batch(30)
    world.write("upsert", rows, world.upserted(rows, {}))
    assert world.of_partitions(list(world.model.values())) == {"eu", "us", "日本"}
    return world


@pytest.mark.any_spark
def test_bulk_insert_fills_new_partitions_and_refuses_those_that_hold_records(
    simple: World, tmp_path: Path
) -> None:
    rows = [{**row, "site": "new", "_hoodie_is_deleted": None} for row in simple.batch(20)]
    simple.write("bulk_insert", rows, simple.upserted(rows, simple.model))
    frame = frame_of(simple.spark, pa.Table.from_pylist(rows, SCHEMA), tmp_path)
    with pytest.raises(InputError, match="bulk_insert into partition 'new'"):
        simple.by_frame.bulk_insert(frame)


@pytest.mark.any_spark
def test_overwriting_the_whole_table_leaves_the_new_rows_alone_and_none_empties_it(
    simple: World,
) -> None:
    rows = [{**row, "site": "eu"} for row in simple.batch(8)]
    simple.write("insert_overwrite", rows, simple.overwritten(rows, {}), whole_table=True)
    simple.write("insert_overwrite", [], {}, whole_table=True)
    rows = simple.batch(8)
    simple.write("upsert", rows, simple.upserted(rows, {}))


@pytest.mark.any_spark
def test_deleted_partitions_are_gone_and_can_be_filled_again(simple: World) -> None:
    kept = {place: row for place, row in simple.model.items() if place[0] == "eu"}
    results = [t.delete_partitions(["us", "日本"]) for t in (simple.by_frame, simple.by_arrow)]
    simple.settle(results, kept)
    with pytest.raises(InputError, match=r"'us'.*the table holds no records in it"):
        simple.by_frame.delete_partitions(["us"])
    rows = simple.batch(8)
    simple.write("upsert", rows, simple.upserted(rows, simple.model))


@pytest.mark.any_spark
def test_an_empty_batch_makes_no_commit(simple: World) -> None:
    instants = len(simple.by_frame.timeline())
    for verb in ("upsert", "insert", "bulk_insert", "insert_overwrite", "delete"):
        result = simple.write(verb, [], simple.model)
        assert result == WriteResult(None)
    assert len(simple.by_frame.timeline()) == instants


def test_of_equal_ordering_values_in_a_frame_one_whole_row_stays(simple: World) -> None:
    one = {**simple.batch(1)[0], "id": "tie", "site": "eu", "ts": 10**9}
    rows = [{**one, "fare": float(i), "_hoodie_is_deleted": False} for i in range(9)]
    frame = frame_of(simple.spark, pa.Table.from_pylist(rows, SCHEMA), simple.folder / "ties")
    for _ in range(2):  # The same one each time, since frames have no order to decide by.
        simple.by_frame.upsert(frame.repartition(3))
        [found] = rows_of(simple.by_frame.to_arrow(where="id = 'tie'"))
        assert found == rows[-1]


@pytest.mark.any_spark
def test_a_commit_time_table_takes_the_later_batch_whatever_its_times(
    spark: SparkSession, tmp_path: Path
) -> None:
    layout = Layout("commit time", {"record_key": ["id"]}, lambda row: row["id"], lambda row: None)
    world = World(layout, spark, tmp_path)
    rows = [{**row, "ts": 100, "_hoodie_is_deleted": None} for row in world.batch(10)]
    world.write("upsert", rows, world.upserted(rows, {}))
    older = [{**row, "ts": 1, "fare": 9.0} for row in rows]
    world.write("upsert", older, world.upserted(older, world.model))
    gone = [{**row, "_hoodie_is_deleted": True} for row in older[:4]]
    world.write("upsert", gone, world.upserted(gone, world.model))
    assert len(world.model) == len(rows) - 4


def test_rows_of_a_table_can_be_written_back_to_it(simple: World) -> None:
    """The frame reads files that the write replaces."""
    frame = simple.by_frame.read(simple.spark).where("site = 'eu'")
    rows = [{**row, "fare": row["fare"] + 1, "ts": row["ts"] + 1} for row in rows_of(frame)]
    changed = frame.selectExpr(
        "id", "part", "site", "at", "ts + 1 AS ts", "fare + 1 AS fare", "_hoodie_is_deleted"
    )
    simple.settle(
        [
            simple.by_frame.upsert(changed),
            simple.by_arrow.upsert(pa.Table.from_pylist(rows, SCHEMA)),
        ],
        simple.upserted(rows, simple.model),
    )


def test_columns_come_in_any_order_and_far_more_batches_than_rows_fit_in_one(
    simple: World,
) -> None:
    rows = simple.batch(40)
    expected = simple.upserted(rows, simple.model)
    shuffled = pa.Table.from_pylist(rows, SCHEMA).select(SCHEMA.names[::-1])
    key = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = simple.spark.conf.get(key)
    simple.spark.conf.set(key, "3")
    try:
        results = [
            simple.by_frame.upsert(frame_of(simple.spark, shuffled, simple.folder / "shuffled")),
            simple.by_arrow.upsert(shuffled),
        ]
    finally:
        simple.spark.conf.set(key, before)
    simple.settle(results, expected)


def test_a_table_is_made_of_a_frame_with_its_rows_or_of_its_columns_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.createDataFrame(
        [("a", 1, False), ("b", 2, True)], "id string, n long, _hoodie_is_deleted boolean"
    )
    made = bl.create_table(str(tmp_path / "rows"), frame, record_key="id")
    assert [(row.id, row.n) for row in made.read().collect()] == [("a", 1)]
    bare = bl.create_table(str(tmp_path / "columns"), schema=frame, record_key="id")
    assert (bare.schema().names, bare.count()) == (["id", "n"], 0)
    broken = frame.selectExpr("CASE WHEN n = 2 THEN NULL ELSE id END AS id", "n")
    with pytest.raises(bl.InputError, match="null"):
        bl.create_table(str(tmp_path / "refused"), broken, record_key="id")
    assert not [path for path in (tmp_path / "refused").rglob("*") if path.is_file()]


def test_late_rows_of_frames_files_and_merges_stay_out(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("site", pa.string()), ("ts", pa.int64())])
    table = bl.create_table(
        str(tmp_path / "late"), schema=schema, record_key="id", partition_by="site", ordering="ts"
    )

    def frame(ids: str, ts: int, *, gone: bool = False) -> Any:
        rows = [{"id": i, "site": "eu", "ts": ts, "_hoodie_is_deleted": gone} for i in ids]
        return frame_of(spark, pa.Table.from_pylist(rows), tmp_path / f"{ids}{ts}")

    table.upsert(frame("abcd", 6, gone=True))
    late = table.upsert(frame("ax", 5))
    assert (late.inserted, late.ignored) == (1, 1)
    files = tmp_path / "landing"
    frame("by", 5).drop("_hoodie_is_deleted").write.parquet(str(files))
    late = table.upsert(bl.files(f"{files}/*.parquet"))
    assert (late.inserted, late.ignored) == (1, 1)
    source = frame("cz", 5).drop("_hoodie_is_deleted")
    merge = table.merge(source, "t.id = s.id AND t.site = s.site")
    late = merge.when_not_matched_insert_all().execute()
    assert (late.inserted, late.ignored) == (1, 1)
    table.upsert(frame("d", 7))
    assert sorted(row.id for row in table.read(spark).collect()) == ["d", "x", "y", "z"]
