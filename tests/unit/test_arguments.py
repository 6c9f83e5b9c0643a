"""Each public call with an odd argument either succeeds or raises an error of the library.

The calls come from ``bucketlake.__all__`` and the signatures, so a new public function or parameter
is tried as soon as it exists.
"""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake import errors
from bucketlake.errors import BucketLakeError
from bucketlake.read.request import ReadRequest
from bucketlake.storage.location import open_storage
from bucketlake.storage.memory import forget
from bucketlake.table import handle_of
from tests.memory_catalog import MemoryCatalog

SCHEMA = pa.schema({"id": pa.string(), "day": pa.string(), "at": pa.int64()})
ROWS = pa.table({"id": ["a", "b"], "day": ["x", "y"], "at": [1, 2]}, schema=SCHEMA)
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "2",
}


class Anything:
    """An object that no argument accepts."""


class LikeColumn:
    """As a Column of Spark: it has every attribute, but no truth value and no items."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return LikeColumn()

    def __call__(self, *_: object) -> Any:
        raise TypeError("'Column' object is not callable")

    def __iter__(self) -> Any:
        raise TypeError("Column is not iterable")

    def __bool__(self) -> bool:
        raise ValueError("Cannot convert column into bool")

    def __eq__(self, _other: object) -> Any:
        return LikeColumn()

    __hash__ = object.__hash__


ODD = {
    "none": None,
    "true": True,
    "false": False,
    "zero": 0,
    "one": 1,
    "negative": -1,
    "huge": 10**30,
    "longer than int() reads": "9" * 5_000,
    "fraction": 1.5,
    "not a number": float("nan"),
    "infinite": float("inf"),
    "decimal": Decimal("1.5"),
    "numpy integer": np.int64(3),
    "numpy array": np.array([1, 2]),
    "empty text": "",
    "blank": " ",
    "text": "abc",
    "column": "id",
    "nul": "a\0b",
    "surrogate": "\ud800",
    "sql": "id = 'a' OR",
    "pattern": "(",
    "slashes": "../../a//b",
    "scheme": "s3:a",
    "date text": "2024-01-02T03:04:05.678+01:00",
    "impossible date": "2024-13-45",
    "year 9999": "9999-12-31T23:59:59-12:00",
    "bytes": b"abc",
    "date": date(2024, 1, 2),
    "datetime": datetime(2024, 1, 2, 3, 4),
    "datetime of UTC": datetime(2024, 1, 2, tzinfo=UTC),
    "first datetime": datetime.min.replace(tzinfo=UTC),
    "duration": timedelta(days=1),
    "empty list": [],
    "list": ["id"],
    "twice": ["id", "id"],
    "list of numbers": [5],
    "list of lists": [["id"]],
    "list of none": [None],
    "pairs": [("a", 1)],
    "triples": [("a", 1, 2)],
    "set": {"id"},
    "empty mapping": {},
    "mapping": {"id": "a"},
    "mapping to number": {"day": 3},
    "mapping of numbers": {5: "a"},
    "mapping to list": {"id": [1]},
    "mapping to object": {"id": Anything()},
    "mapping of bad pattern": {"(": 3},
    "path": Path("x"),
    "type": int,
    "function": lambda *_: "abc",
    "object": Anything(),
    "column of Spark": LikeColumn(),
    "list of columns": [LikeColumn()],
    "arrow table": ROWS,
    "arrow schema": SCHEMA,
    "arrow table without columns": pa.table({}),
    "arrow table of nulls": pa.table({"id": pa.nulls(2), "day": pa.nulls(2), "at": pa.nulls(2)}),
    "arrow table of lists": pa.table({"id": [[1]], "day": [[1]], "at": [[1]]}),
    "arrow table with a column twice": pa.table([["a"], ["b"], [1]], names=["id", "id", "at"]),
    "index": bl.SimpleBucket(3),
    "result": bl.WriteResult(None),
    "lock": bl.InProcessLock(),
}
"""Values of all kinds; some of them are right for some parameters."""

WRONG = ("object", "type")
"""Values that are wrong for every parameter: the error must name the parameter."""

NAMES = itertools.count()


def make_template(
    table_type: str = "copy_on_write", index: Any = None, commits: int = 2
) -> bl.Table:
    """Return a table with some commits."""
    table = bl.create_table(
        f"memory://arguments-{next(NAMES)}",
        schema=SCHEMA,
        record_key="id",
        partition_by="day",
        ordering="at",
        index=index or bl.SimpleBucket(2),
        table_type=table_type,
        metadata_table=False,
    )
    for _ in range(commits):
        table.upsert(ROWS)
    return table


@pytest.fixture(scope="module")
def templates() -> dict[str, bl.Table]:
    """Return tables that no call changes; each call gets a copy."""
    rings = make_template("merge_on_read", bl.ConsistentBucket(2))
    empty = make_template(commits=0)  # Its report has no chart to draw.
    made = {"Table.compact": rings, "Table.resize": rings, "Table.report": empty}
    return {"": make_template(), **made}


def copy_of(table: bl.Table) -> bl.Table:
    copied = f"memory://arguments-{next(NAMES)}"
    source, target = open_storage(table.path), open_storage(copied)
    for found in source.list(""):
        target.put(found.path, source.read(found.path))
    return bl.Table(copied, index_at(table.path))


@cache
def index_at(path: str) -> Any:
    return bl.Table(path).index


REQUIRED: dict[str, Callable[[bl.Table], Any]] = {
    "Table.path": lambda _: "memory://elsewhere",
    "advise.sample": lambda _: ROWS,
    "advise.record_key": lambda _: "id",
    "Table.upsert.data": lambda _: ROWS,
    "Table.insert.data": lambda _: ROWS,
    "Table.bulk_insert.data": lambda _: ROWS,
    "Table.insert_overwrite.data": lambda _: ROWS,
    "Table.delete.keys": lambda _: ROWS,
    "Table.update.set": lambda _: {"v": "1"},
    "Table.merge.source": lambda _: ROWS,
    "Table.merge.on": lambda _: "t.id = s.id",
    "sql.spark": lambda _: None,
    "sql.statement": lambda _: "DELETE FROM `memory://nowhere`",
    "Table.delete_partitions.partitions": lambda _: "x",
    "Table.set_upkeep.mode": lambda _: "off",
    "Table.upsert_batch.query_name": lambda _: "q",
    "Table.upsert_batch().data": lambda _: ROWS,
    "Table.upsert_batch().batch_id": lambda _: 1,
    "Table.set_keep_deletes.span": lambda _: "2 days",
    "Table.position.source": lambda _: "orders",
    "Table.unseen.rows": lambda _: ROWS,
    "Table.unseen.source": lambda _: "orders",
    "Table.unseen.partition": lambda _: "day",
    "Table.unseen.offset": lambda _: "at",
    "Position.source": lambda _: "orders",
    "Position.last": lambda _: {"p": 4},
    "Table.locate.key": lambda _: "a",
    "Table.record_locations.partition": lambda _: "x",
    "Table.report.path": lambda _: "report.page",
    "Table.rescale.rules": lambda _: {"x": 4},
    "Table.convert.index": lambda _: bl.SimpleBucket(2, max_file_size=1 << 20),
    "Table.downgrade.to": lambda _: 9,
    "Table.rollback.instant": lambda table: table.timeline()[-1].requested_at,
    "Table.delete_savepoint.instant": lambda table: table.savepoint(),
    "Table.restore.instant": lambda table: table.savepoint(),
    "convert.path": lambda table: table.path,
    "convert.index": lambda _: bl.SimpleBucket(2, max_file_size=1 << 20),
    "create_table.path": lambda _: f"memory://arguments-{next(NAMES)}",
    "create_table.schema": lambda _: SCHEMA,
    "create_table.record_key": lambda _: "id",
    "create_table.index": lambda _: bl.SimpleBucket(2),
    "open_table.path": lambda table: table.path,
    "files.paths": lambda _: "memory://arguments/*.parquet",
    "save.df": lambda _: ROWS,
    "save.path": lambda _: f"memory://arguments-{next(NAMES)}",
    "save.options": lambda _: OPTIONS,
    "SimpleBucket.count": lambda _: 2,
    "PartitionBucket.rules": lambda _: {"a": 1},
    "PartitionBucket.default": lambda _: 2,
    "ConsistentBucket.initial": lambda _: 2,
    "ExtendibleBucket.initial": lambda _: 2,
    "TimestampPartition.timestamp_type": lambda _: "EPOCHMICROSECONDS",
    "TimestampPartition.output_format": lambda _: "yyyy/MM/dd",
    "WriteResult.instant": lambda _: None,
    "Scan.handle": handle_of,
    "Scan.request": lambda _: ReadRequest(),
    "ChangeHistory.data": lambda _: ROWS,
    "ChangeHistory.rule": lambda _: None,
    "ingest.source": lambda _: "landing",
    "ingest.table": lambda _: "taken",
    "debezium.data": lambda _: pa.table({"value": ['{"op": "m"}']}),
    "debezium.schema": lambda _: "id string",
    "sync.table": lambda table: table,
    "blob_reference.path": lambda _: "memory://arguments/a",
    "variant.json": lambda _: "{}",
    "variant_json.value": lambda _: bl.variant("{}"),
    "read_blob.base": lambda _: "memory://arguments",
    "read_blob.blob": lambda _: bl.blob_reference("memory://arguments/a"),
    "sync.catalog": lambda _: MemoryCatalog(),
    "history.data": lambda _: ROWS,
    "history.keys": lambda _: "id",
    "history.sequence_by": lambda _: "v",
}
"""A right value for each parameter that a call needs."""

UNCHECKED = {"WriteResult", "Scan", "ChangeHistory"}
"""What only the library makes: any values are accepted."""

SPELLED = {"keys": "data", "df": "data", "Table.merge.source": "data", "history.keys": "keys"}
"""Parameters that errors name by another word."""


def calls() -> Iterator[tuple[str, Callable[[bl.Table], Callable[..., Any]]]]:
    """Yield each public call: its name, and how to get it for a table."""
    for name in bl.__all__:
        if name not in vars(errors):
            yield name, lambda _, name=name: getattr(bl, name)
    for name in dir(bl.Table):
        if not name.startswith("_") and inspect.isfunction(getattr(bl.Table, name)):
            yield f"Table.{name}", lambda table, name=name: getattr(table, name)
    yield "Table.upsert_batch()", lambda table: table.upsert_batch("q")


def parameters() -> Iterator[Any]:
    for name, get in calls():
        call = get(bl.Table("memory://nowhere"))
        for parameter in inspect.signature(call).parameters:
            yield pytest.param(name, get, parameter, id=f"{name}.{parameter}")


def others(name: str, call: Callable[..., Any], table: bl.Table, odd: str) -> dict[str, Any]:
    """Return right arguments for all parameters that a call needs, except the odd one."""
    given = {}
    for parameter in inspect.signature(call).parameters.values():
        key = f"{name}.{parameter.name}"
        if parameter.name == odd or parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        if parameter.default is inspect.Parameter.empty or key in REQUIRED:
            given[parameter.name] = REQUIRED[key](table)
    return given


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run where a relative path does no harm, and delete what was made in memory."""
    inner = tmp_path / "a" / "b" / "c" / "d"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    first = next(NAMES)
    yield
    for number in range(first, next(NAMES)):
        forget(f"arguments-{number}")


@pytest.mark.parametrize(("name", "get", "parameter"), [*parameters()])
def test_an_odd_argument_is_accepted_or_an_error_of_the_library_names_it(
    name: str,
    get: Callable[[bl.Table], Callable[..., Any]],
    parameter: str,
    templates: dict[str, bl.Table],
) -> None:
    template = templates.get(name, templates[""])
    raw = []
    word = SPELLED.get(f"{name}.{parameter}") or SPELLED.get(parameter, parameter)
    table = copy_of(template)
    for what, value in ODD.items():
        call = get(table)
        given = others(name, call, table, parameter) | {parameter: value}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call(**given)
        except BucketLakeError as error:
            if what in WRONG and word not in str(error):
                raw.append(f"{what}: the error does not name {parameter}: {error}")
        except Exception as error:
            raw.append(f"{what}: {type(error).__name__}: {error}")
        else:
            table = copy_of(template)  # The call may have changed it.
            if what in WRONG and name not in UNCHECKED:
                raw.append(f"{what}: accepted")
    assert not raw, "\n".join(raw)


NUMBERS = (
    "hoodie.bucket.index.num.buckets",
    "hoodie.bucket.index.ext.max.file.size",
    "hoodie.compact.inline.max.delta.commits",
    "hoodie.keep.min.commits",
    "hoodie.keep.max.commits",
    "hoodie.clean.commits.retained",
    "hoodie.clean.hours.retained",
    "hoodie.clean.fileversions.retained",
    "hoodie.clustering.inline.max.commits",
    "hoodie.clustering.async.max.commits",
    "hoodie.write.lock.wait_time_ms",
    "hoodie.write.lock.filesystem.expire",
    "hoodie.write.lock.storage.validity.timeout.secs",
    "hoodie.write.lock.storage.renew.interval.secs",
)
SWITCHES = ("hoodie.compact.inline", "hoodie.archive.automatic", "hoodie.clean.automatic")


@pytest.mark.parametrize("key", NUMBERS)
@pytest.mark.parametrize("value", ["", "many", "1.5", "-1", "9" * 5_000, "٣", 1.5, True])
def test_option_whose_number_is_none_is_refused_although_its_service_is_off(
    key: str, value: Any
) -> None:
    if key in NUMBERS[:2] and value == "":
        return  # Not given. Without a count, a job takes the index of the table, or the default.
    with pytest.raises(BucketLakeError, match=key):
        bl.save(ROWS, "memory://arguments-0", options=OPTIONS | {key: value})


@pytest.mark.parametrize("key", SWITCHES)
def test_option_that_is_neither_true_nor_false_is_refused(key: str) -> None:
    with pytest.raises(BucketLakeError, match=rf"{key} = 'yes'"):
        bl.save(ROWS, "memory://arguments-0", options=OPTIONS | {key: "yes"})


def test_numbers_and_booleans_are_values_of_options() -> None:
    options: Any = OPTIONS | {
        "hoodie.bucket.index.num.buckets": 3,
        "hoodie.datasource.write.hive_style_partitioning": True,
    }
    path = f"memory://arguments-{next(NAMES)}"
    assert bl.save(ROWS, path, options=options).inserted == 2
    assert bl.open_table(path).index == bl.SimpleBucket(3)


def test_error_of_an_option_shows_no_value() -> None:
    secret: Any = {"secret_access_key": ["hunter2"]}
    with pytest.raises(BucketLakeError, match="secret_access_key") as caught:
        bl.open_table("s3://bucket/t", storage_options=secret)
    assert "hunter2" not in str(caught.value)


def test_column_that_is_named_twice_is_refused(templates: dict[str, bl.Table]) -> None:
    with pytest.raises(BucketLakeError, match="named twice"):
        templates[""].to_arrow(columns=["id", "ID"])


def test_since_after_until_or_in_the_future_is_refused(templates: dict[str, bl.Table]) -> None:
    table = templates[""]
    with pytest.raises(BucketLakeError, match=r"since = '2024.*not later than until, 2023"):
        table.to_arrow(since="2024-01-01", until="2023-01-01")
    with pytest.raises(BucketLakeError, match=r"since = '2999.*up to now"):
        table.to_arrow(since=date(2999, 1, 1))
    assert table.to_arrow(since=date(2024, 1, 1), until="2999-01-01").num_rows == 2


def test_times_of_python_read_as_their_text_does(templates: dict[str, bl.Table]) -> None:
    table = templates[""]
    first = table.timeline()[0]
    assert first.completed_at is not None
    at = datetime.strptime(first.completed_at, "%Y%m%d%H%M%S%f").replace(tzinfo=UTC)
    for time in (at, at.replace(tzinfo=None), at.astimezone(), at.isoformat()):
        assert table.to_arrow(until=time, columns="_hoodie_commit_time")[
            0
        ].unique().to_pylist() == [first.requested_at]
        assert table.to_arrow(since=time).num_rows == 2
        assert table.to_arrow(as_of=time).num_rows == 2
    assert table.to_arrow(since=date(2024, 1, 1)).num_rows == table.to_arrow().num_rows
    with pytest.raises(bl.ConfigError, match="the first commit of the table is"):
        table.to_arrow(as_of=date(2024, 1, 1))


def test_path_of_a_local_table_may_be_a_path(tmp_path: Path) -> None:
    path: Any = tmp_path / "t"
    made = bl.create_table(path, schema=SCHEMA, record_key="id", index=bl.SimpleBucket(2))
    assert made.path == bl.open_table(path).path == str(path)
