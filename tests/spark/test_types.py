"""Every type that Spark and Hudi share, over its whole range, and tables whose schema grew.

The values are written down as Arrow columns, by hand; Spark gets them from a Parquet file. What a
table then holds must be those values, through Spark and through Arrow alike, whatever the session's
time zone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import InputError, NullElementWarning
from bucketlake.model.schema import normalise_schema
from tests.spark.frames import arrow_of, frame_of, in_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NAN, INF = math.nan, math.inf
ANCIENT, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
BEFORE_1582 = datetime(1582, 10, 4, 23, 59, 59, 999999, UTC)
IN_THE_GAP = datetime(1582, 10, 10, tzinfo=UTC)  # Days that the Julian calendar skipped.
BEFORE_1900 = datetime(1899, 12, 31, 12, 30, tzinfo=UTC)

Column = tuple[pa.DataType, list[Any]]
COLUMNS: dict[str, Column] = {
    "yes": (pa.bool_(), [True, False]),
    "tiny": (pa.int8(), [-128, 127, 0]),
    "small": (pa.int16(), [-32768, 32767]),
    "whole": (pa.int32(), [-(2**31), 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1, 2**53 + 1]),
    "single": (pa.float32(), [NAN, INF, -INF, -0.0, 0.0, 1e-45, 3.4028235e38]),
    "double": (pa.float64(), [NAN, INF, -INF, -0.0, 0.0, 5e-324, 1.7976931348623157e308]),
    "wide": (pa.decimal128(38, 0), [Decimal("9" * 38), Decimal("-" + "9" * 38), Decimal(0)]),
    "deep": (pa.decimal128(38, 38), [Decimal("0." + "9" * 38), Decimal("-0." + "0" * 37 + "1")]),
    "money": (pa.decimal128(9, 2), [Decimal("9999999.99"), Decimal("-0.01"), Decimal("0.00")]),
    "byte18": (pa.decimal128(18, 18), [Decimal("0." + "9" * 18), Decimal("-0." + "9" * 18)]),
    "text": (pa.string(), ["", "a", "日本😀", "x\0y", " padded ", "e\u0301"]),
    "raw": (pa.binary(), [b"", b"\0\xff", b"text"]),
    "day": (
        pa.date32(),
        [d.date() for d in (ANCIENT, BEFORE_1582, IN_THE_GAP, BEFORE_1900, LAST)]
        + [date(1969, 12, 31), date(1582, 10, 15)],
    ),
    "instant": (
        pa.timestamp("us", "UTC"),
        [ANCIENT, BEFORE_1582, IN_THE_GAP, BEFORE_1900, LAST, datetime(2024, 3, 10, 7, tzinfo=UTC)],
    ),
    "wall": (
        pa.timestamp("us"),
        [t.replace(tzinfo=None) for t in (ANCIENT, BEFORE_1582, IN_THE_GAP, BEFORE_1900, LAST)],
    ),
    "list": (pa.list_(pa.int32()), [[], [1, -1], [None]]),
    "lists": (pa.list_(pa.list_(pa.string())), [[["a", None], None, []], []]),
    "map": (pa.map_(pa.string(), pa.int64()), [[], [("a", 1), ("b", None)]]),
    "maps": (
        pa.map_(pa.string(), pa.list_(pa.date32())),
        [[("k", [ANCIENT.date(), None]), ("n", None), ("e", [])]],
    ),
    "struct": (
        pa.struct(
            [
                ("a", pa.int32()),
                ("b", pa.struct([("c", pa.string()), ("d", pa.timestamp("us", "UTC"))])),
            ]
        ),
        [{"a": 1, "b": {"c": "x", "d": BEFORE_1582}}, {"a": None, "b": None}, {"a": 2, "b": {}}],
    ),
    "structs": (
        pa.list_(pa.struct([("q", pa.decimal128(20, 3)), ("w", pa.binary())])),
        [[{"q": Decimal("1.500"), "w": b"\1"}, None, {"q": None, "w": None}], []],
    ),
}
ROWS = max(len(values) for _, values in COLUMNS.values()) + 1  # The last row is null but for keys.


def values_table() -> pa.Table:
    columns = {"id": pa.array([f"k{i}" for i in range(ROWS)]), "v": pa.array([1] * ROWS)}
    for name, (data_type, values) in COLUMNS.items():
        columns[name] = pa.array([*values, *[None] * (ROWS - len(values))], data_type)
    return pa.table(columns)


VALUES = values_table()


@contextmanager
def time_zone(spark: SparkSession, name: str) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", name)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def shown(rows: pa.Table, like: pa.Table = VALUES) -> list[str]:
    """Print rows so that NaN equals NaN and -0.0 is not 0.0."""
    stored = rows.select(like.column_names).cast(normalise_schema(like.schema, "values"))
    return [repr(row) for row in in_order(stored.to_pylist())]


def new_table(folder: Path, schema: pa.Schema, **settings: Any) -> bl.Table:
    settings = {"record_key": ["id"], "index": bl.SimpleBucket(2)} | settings
    return bl.create_table(str(folder / "table"), schema=schema, **settings)


@pytest.mark.filterwarnings("ignore::bucketlake.errors.NullElementWarning")
@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/St_Johns"])
@pytest.mark.parametrize("spooled", [False, True])
def test_every_value_of_every_type_comes_back(
    spark: SparkSession, tmp_path: Path, zone: str, spooled: bool
) -> None:
    with time_zone(spark, zone):
        frame = frame_of(spark, VALUES, tmp_path)
        frame = frame.limit(1_000) if spooled else frame
        table = new_table(tmp_path, frame.schema)
        assert table.upsert(frame).inserted == ROWS
        assert shown(table.to_arrow()) == shown(VALUES)
        assert shown(arrow_of(table.read(spark))) == shown(VALUES)
        # Half of the rows pass through a merge as stored rows, the others as incoming ones.
        table.upsert(frame.where("id < 'k4'"))
        assert shown(table.to_arrow()) == shown(VALUES)
        assert shown(arrow_of(table.read(spark))) == shown(VALUES)


def test_a_null_element_in_an_array_is_warned_of_by_its_column(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = VALUES.select(["id", "list"])
    table = new_table(tmp_path, rows.schema)
    with pytest.warns(NullElementWarning, match="an array in column list has a null element"):
        table.upsert(frame_of(spark, rows, tmp_path))


def test_a_time_in_a_key_and_a_partition_does_not_depend_on_the_sessions_zone(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = pa.table(
        {
            "at": pa.array([ANCIENT, BEFORE_1900, LAST], pa.timestamp("us", "UTC")),
            "day": pa.array([ANCIENT.date(), date(1969, 12, 31), None], pa.date32()),
            "v": [1, 2, 3],
        }
    )
    table = new_table(tmp_path, rows.schema, record_key=["at"], partition_by=["day"])
    table.upsert(rows)
    for zone in ("Asia/Tokyo", "America/St_Johns"):
        with time_zone(spark, zone):
            result = table.upsert(frame_of(spark, rows, tmp_path))
            assert (result.inserted, result.updated) == (0, 3)
    assert table.to_arrow().num_rows == 3


BEFORE = pa.table(
    {
        "id": ["a1", "a2"],
        "part": ["a", "a"],
        "count": pa.array([2**31 - 1, None], pa.int32()),
        "ratio": pa.array([0.1, NAN], pa.float32()),
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
        "place": pa.array([{"x": 1}, None], pa.struct([("x", pa.int32())])),
        "stops": pa.array([[{"s": "p"}], []], pa.list_(pa.struct([("s", pa.string())]))),
    }
)
AFTER = pa.table(
    {
        "id": ["b1", "b2"],
        "part": ["b", "b"],
        "count": pa.array([2**40, None], pa.int64()),
        "ratio": pa.array([1e300, None], pa.float64()),
        "price": pa.array([Decimal("12345.678"), None], pa.decimal128(10, 3)),
        "place": pa.array(
            [{"x": 2, "y": "new"}, None], pa.struct([("x", pa.int32()), ("y", pa.string())])
        ),
        "stops": pa.array(
            [[{"s": "q", "n": 7}], None],
            pa.list_(pa.struct([("s", pa.string()), ("n", pa.int64())])),
        ),
        "added": pa.array([True, None], pa.bool_()),
    }
)
GROWN = [
    {
        "id": "a1",
        "part": "a",
        "count": 2**31 - 1,
        "ratio": 0.1,
        "price": Decimal("1.500"),
        "place": {"x": 1, "y": None},
        "stops": [{"s": "p", "n": None}],
        "added": None,
    },
    dict.fromkeys(AFTER.column_names) | {"id": "a2", "part": "a", "ratio": NAN, "stops": []},
    *AFTER.to_pylist(),
]


def test_older_files_are_read_in_the_types_of_the_grown_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = new_table(tmp_path, BEFORE.schema, partition_by=["part"])
    table.upsert(frame_of(spark, BEFORE, tmp_path))
    # The files of partition a stay as they are.
    table.upsert(frame_of(spark, AFTER, tmp_path), merge_schema=True)
    grown = pa.Table.from_pylist(GROWN, AFTER.schema)
    assert shown(table.to_arrow(), AFTER) == shown(grown, AFTER)
    assert shown(arrow_of(table.read(spark)), AFTER) == shown(grown, AFTER)
    only = table.read(spark, columns=["added", "id", "ratio"], where="part = 'a'")
    assert in_order(map(repr, arrow_of(only).to_pylist())) == in_order(
        repr({"added": None, "id": row["id"], "ratio": row["ratio"]}) for row in GROWN[:2]
    )
    # A later write rewrites the older file in the new types.
    table.upsert(frame_of(spark, grown.slice(0, 1), tmp_path))
    assert shown(table.to_arrow(), AFTER) == shown(grown, AFTER)
    assert shown(arrow_of(table.read(spark)), AFTER) == shown(grown, AFTER)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"count": pa.array(["x", "y"])}, r"column count: the table holds int, the batch string"),
        (
            {"count": pa.array([1, 2**40], pa.int64())},
            r"column count: bigint does not fit int \(value 1099511627776 of key",
        ),
        (
            {"cuont": pa.array([1, 2], pa.int32())},
            r"column cuont: the table has no such column, .*did you mean 'count'.*'add_columns'",
        ),
        ({"count": None}, r"column count: the table has it as int, the batch lacks it"),
        ({"id": pa.array([1.5, 2.5])}, r"column id: the table holds string, the batch double"),
        (
            {"place": pa.array([{"x": 2**40}] * 2, pa.struct([("x", pa.int64())]))},
            r"column place\.x: bigint does not fit int \(value 1099511627776 of key",
        ),
        (
            {"stops": pa.array([[{"s": 1}]] * 2, pa.list_(pa.struct([("s", pa.int32())])))},
            r"column stops\[\]\.s: the table holds string, the batch int",
        ),
        ({"COUNT": pa.array([1, 2])}, r"two columns have the same name \(count, COUNT\)"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_by_its_column(
    spark: SparkSession, tmp_path: Path, changed: dict[str, pa.Array | None], message: str
) -> None:
    table = new_table(tmp_path, BEFORE.schema, partition_by=["part"])
    columns = {name: BEFORE[name] for name in BEFORE.column_names} | changed
    batch = pa.table({name: column for name, column in columns.items() if column is not None})
    with pytest.raises(InputError, match=message):
        table.upsert(batch)
    if "COUNT" in changed:  # Spark would not even write a file of it.
        frame = frame_of(spark, BEFORE, tmp_path).selectExpr("*", "1L AS COUNT")
    else:
        frame = frame_of(spark, batch, tmp_path)
    with pytest.raises(InputError, match=message):
        table.upsert(frame)
    assert table.timeline() == []


def test_decimals_that_fit_are_taken_and_a_value_that_does_not_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = new_table(tmp_path, BEFORE.schema, partition_by=["part"])
    place = BEFORE.schema.get_field_index("price")

    def priced(*prices: str) -> pa.Table:
        column = pa.array([Decimal(price) for price in prices], pa.decimal128(38, 10))
        return BEFORE.set_column(place, "price", column)

    for batch in (priced("0.5", "1.25"), priced("0.5", "1.125")):
        frame = frame_of(spark, batch, tmp_path)
        if batch["price"][1].as_py() == Decimal("1.25"):
            assert table.upsert(frame).inserted == 2
            continue
        for data in (batch, frame):
            with pytest.raises(
                InputError,
                match=r"column price: decimal\(38,10\) does not fit decimal\(5,2\) \(value 1.125.*"
                "merge_schema='widen_types'",
            ):
                table.upsert(data)
    assert table.schema().field("price").type == pa.decimal128(5, 2)
    assert in_order(table.to_arrow()["price"].to_pylist()) == [Decimal("0.50"), Decimal("1.25")]


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize("stored", [False, True])
def test_the_flag_of_deletes_is_optional_and_adds_no_column(
    spark: SparkSession, tmp_path: Path, table_type: str, stored: bool
) -> None:
    flag = pa.field("_hoodie_is_deleted", pa.bool_())
    schema = BEFORE.schema.append(flag) if stored else BEFORE.schema
    table = new_table(tmp_path, schema, partition_by=["part"], table_type=table_type)
    for engine in ("spark", "arrow"):
        batch = BEFORE.append_column(flag, pa.array([True, False]))
        table.upsert(BEFORE if engine == "arrow" else frame_of(spark, BEFORE, tmp_path))
        assert table.to_arrow().num_rows == 2
        table.upsert(batch if engine == "arrow" else frame_of(spark, batch, tmp_path))
        assert table.to_arrow()["id"].to_pylist() == ["a2"]
    assert table.schema() == schema
    if stored:
        assert table.to_arrow()["_hoodie_is_deleted"].to_pylist() == [False]


def test_a_stream_adds_columns_only_when_asked_to(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path, BEFORE.schema, partition_by=["part"])
    batch = frame_of(spark, BEFORE.append_column("added", pa.array([1, 2])), tmp_path)
    with pytest.raises(InputError, match=r"column added: .*merge_schema='add_columns'"):
        table.upsert_batch("q")(batch, 0)
    table.upsert_batch("q", merge_schema="add_columns")(batch, 0)
    assert table.schema().names == [*BEFORE.column_names, "added"]
