"""Bad input is refused with its reason before anything is published; the table stays as it is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.config.paths_of_table import EXTENSION_FOLDER, PROPERTIES_FILE
from bucketlake.errors import (
    BucketLakeError,
    ConfigError,
    InputError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from bucketlake.storage.local import LocalStorage
from bucketlake.storage.memory import MemoryStorage, forget
from tests.bad_input import BATCHES, SCHEMA, BadBatch, and_column, good_rows
from tests.choices import every_second
from tests.storages import objects_of

NAME = "bad-input"


@cache
def made() -> dict[str, bytes]:
    """What a table with the good rows consists of."""
    table = bl.create_table(
        "memory://bad-input-first",
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["part"],
        ordering="ts",
        index=bl.SimpleBucket(2),
    )
    table.upsert(good_rows())
    return objects_of(MemoryStorage("bad-input-first"))


@pytest.fixture
def table() -> Iterator[bl.Table]:
    """A copy of that table for each test."""
    forget(NAME)
    storage = MemoryStorage(NAME)
    for path, data in made().items():
        storage.put(path, data)
    yield bl.open_table(f"memory://{NAME}")
    forget(NAME)


def objects() -> dict[str, bytes]:
    """Return what the table consists of; bucketlake's own folder may tell of a failed write."""
    held = objects_of(MemoryStorage(NAME))
    return {path: data for path, data in held.items() if not path.startswith(EXTENSION_FOLDER)}


VERBS = ["upsert", "insert", "insert_overwrite"]


@pytest.mark.parametrize("bad", BATCHES, ids=lambda bad: bad.name)
def test_a_bad_batch_is_refused_by_each_operation_and_leaves_no_trace(
    table: bl.Table, bad: BadBatch
) -> None:
    before = objects()
    batch = bad.spoil(good_rows())
    for verb in VERBS:
        with pytest.raises(InputError, match=bad.message):
            getattr(table, verb)(batch)
        assert objects() == before
    assert table.upsert(good_rows()).updated == 4


@pytest.mark.parametrize(
    "data_type",
    [
        pa.duration("us"),
        pa.month_day_nano_interval(),
        pa.decimal256(50, 2),
        pa.time64("us"),
    ],
    ids=str,
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_type_that_cannot_be_stored_is_refused_by_its_column(
    table: bl.Table, data_type: pa.DataType, nested: bool
) -> None:
    kind = pa.list_(pa.struct([("x", data_type)])) if nested else data_type
    before = objects()
    with pytest.raises(InputError, match=r"column odd(\[\]\.x)?: type .* cannot be stored"):
        table.upsert(and_column("odd", None, kind)(good_rows()))
    assert objects() == before


def test_a_column_that_is_there_twice_is_refused(table: bl.Table) -> None:
    before = objects()
    for name in ("id", "price"):
        batch = good_rows().append_column(name, good_rows()[name])
        for verb in [*VERBS, "delete"]:
            if verb == "delete" and name == "price":
                continue  # Deletes look at key columns alone.
            with pytest.raises(
                InputError, match=f"{name}.* more than once|two columns have the same name"
            ):
                getattr(table, verb)(batch)
    assert objects() == before


@pytest.mark.parametrize(
    "bad", [b for b in BATCHES if "key" in b.message], ids=lambda bad: bad.name
)
def test_deletes_need_keys_too(table: bl.Table, bad: BadBatch) -> None:
    before = objects()
    with pytest.raises(InputError, match=bad.message):
        table.delete(bad.spoil(good_rows()))
    assert objects() == before


@pytest.mark.parametrize("data", [["a"], {"id": ["a"]}, "rows.parquet", None, pa.array([1])])
def test_something_that_is_no_table_of_rows_is_refused(table: bl.Table, data: object) -> None:
    before = objects()
    of_text = r"a text is no rows.*bl\.files"
    wanted = of_text if isinstance(data, str) else "pass a DataFrame of Spark, pandas or polars"
    with pytest.raises(InputError, match=wanted):
        table.upsert(data)
    assert objects() == before


# Places that are no table, or none that can be written.


def parquet_file(path: Path) -> None:
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(good_rows(), path)


def delta_table(path: Path) -> None:
    parquet_file(path / "part-0.parquet")
    (path / "_delta_log").mkdir()
    (path / "_delta_log" / "00000000000000000000.json").write_text("{}")


FOREIGN = {
    "nothing": lambda path: None,
    "an empty folder": lambda path: path.mkdir(),
    "Parquet files": lambda path: parquet_file(path / "a=1" / "part-0.parquet"),
    "a Delta table": delta_table,
    "a file": parquet_file,
}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN)
def test_opening_what_is_no_table_says_what_is_there(table_path: Path, make) -> None:
    make(table_path)
    before = {path: path.stat().st_mtime_ns for path in table_path.rglob("*")}
    with pytest.raises(TableNotFoundError, match=r"is not a Hudi table: .+"):
        bl.open_table(str(table_path))
    assert {path: path.stat().st_mtime_ns for path in table_path.rglob("*")} == before


@pytest.mark.parametrize("make", [FOREIGN["Parquet files"], delta_table], ids=["Parquet", "Delta"])
def test_a_table_is_not_made_over_what_something_else_has_written(table_path: Path, make) -> None:
    make(table_path)
    before = sorted(table_path.rglob("*"))
    with pytest.raises(InputError, match=r"holds .*, which is not part of a Hudi table"):
        bl.create_table(str(table_path), schema=SCHEMA, record_key=["id"], index=bl.SimpleBucket(1))
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "1",
    }
    with pytest.raises(InputError, match=r"holds .*, which is not part of a Hudi table"):
        bl.save(good_rows(), str(table_path), options=options)
    assert sorted(table_path.rglob("*")) == before


def changed_properties(path: Path, **changes: str) -> None:
    file = path / PROPERTIES_FILE
    lines = file.read_text().splitlines()
    kept = [line for line in lines if line.partition("=")[0].replace(".", "_") not in changes]
    added = [f"{key.replace('_', '.')}={value}" for key, value in changes.items()]
    file.write_text("\n".join([*kept, *added]) + "\n")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hoodie_table_version": "10"}, "table version 10"),
        ({"hoodie_table_version": "5"}, "table version 5"),
        ({"hoodie_table_format": "iceberg"}, "table format 'iceberg'"),
        ({"hoodie_table_base_file_format": "ORC"}, "base file format ORC"),
        ({"hoodie_populate_meta_fields": "false"}, "without meta columns"),
        ({"hoodie_table_keygenerator_type": "USER_PROVIDED"}, "key generator"),
        ({"hoodie_table_metadata_partitions": "column_stats"}, "metadata table"),
    ],
)
def test_a_table_with_what_a_writer_does_not_know_is_refused_and_stays(
    table_path: Path, changes: dict[str, str], message: str
) -> None:
    table = bl.create_table(
        str(table_path), schema=SCHEMA, record_key=["id"], index=bl.SimpleBucket(1)
    )
    changed_properties(table_path, **changes)
    before = objects_of(LocalStorage(str(table_path)))
    with pytest.raises(UnsupportedFeatureError, match=message):
        table.upsert(good_rows())
    assert objects_of(LocalStorage(str(table_path))) == before


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"record_key": ["nobody"]}, InputError, "record_key names column 'nobody'"),
        ({"record_key": []}, ConfigError, "record_key"),
        ({"partition_by": ["nowhere"]}, InputError, "partition_by names column 'nowhere'"),
        ({"ordering": "never"}, InputError, "ordering names column 'never'"),
        ({"table_type": "iceberg"}, ConfigError, "table_type = 'iceberg'"),
        ({"index": bl.SimpleBucket(2, ["price"])}, ConfigError, "hash_fields"),
        ({"schema": pa.schema([("id", pa.duration("s"))])}, InputError, "column id: type duration"),
    ],
)
def test_a_table_that_could_not_be_written_is_not_made(
    table_path: Path, settings: dict, error: type[BucketLakeError], message: str
) -> None:
    usual = {"schema": SCHEMA, "record_key": ["id"], "index": bl.SimpleBucket(1)}
    with pytest.raises(error, match=message):
        bl.create_table(str(table_path), **(usual | settings))
    assert not table_path.exists()


@pytest.mark.parametrize(
    ("held", "kept", "given"),
    [
        (pa.decimal128(10, 2), [Decimal("1.00"), Decimal("2.00")], pa.array([1.004, 1.9999])),
        (pa.date32(), [date(2020, 1, 1), date(2020, 1, 2)], pa.array([datetime(2020, 1, 1, 5)])),
        (pa.int64(), [1, 2], pa.array([True])),
        (pa.int64(), [1, 2], pa.array([1.0])),
        (pa.string(), ["1", "2"], pa.array([1])),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else None,
)
@pytest.mark.parametrize("column", ["id", "part"])
def test_a_delete_by_keys_of_another_type_is_refused(
    tmp_path: Path, held: pa.DataType, kept: list[object], given: pa.Array, column: str
) -> None:
    """Cast to the table's they would be the keys of other records."""
    other = "part" if column == "id" else "id"
    rows = pa.table({column: pa.array(kept, held), other: ["x", "x"]})
    table = bl.create_table(
        str(tmp_path / "t"),
        schema=rows.schema,
        record_key="id",
        partition_by="part",
        index=bl.SimpleBucket(2),
    )
    table.upsert(rows)
    keys = pa.table({column: given, other: ["x"] * len(given)})
    with pytest.raises(InputError, match=f"column {column}: "):
        table.delete(keys)
    assert len(list(table.timeline())) == 1
    assert table.delete(rows.slice(0, 1)).deleted == 1


def test_a_delete_takes_keys_of_narrower_integers_and_an_empty_batch_of_no_type(
    tmp_path: Path,
) -> None:
    rows = pa.table({"id": [1, 2]})
    table = bl.create_table(
        str(tmp_path / "t"), schema=rows.schema, record_key="id", index=bl.SimpleBucket(2)
    )
    table.upsert(rows)
    assert table.delete(pa.table({"id": []})).instant is None
    assert table.delete(pa.table({"id": pa.array([1], pa.int8())})).deleted == 1


def test_a_name_that_comes_alone_is_one_name(tmp_path: Path) -> None:
    """And not one of its letters each: partitions 1 and 2 are not partition 12."""
    rows = pa.table({"id": ["a"] * 3, "part": ["1", "2", "12"], "n": [1, 2, 3]})
    table = bl.create_table(
        str(tmp_path / "t"),
        schema=rows.schema,
        record_key="id",
        partition_by="part",
        index=bl.SimpleBucket(2, "id"),
    )
    table.upsert(rows)
    table.delete_partitions("12")
    assert table.to_arrow(columns="part").sort_by("part").to_pydict() == {"part": ["1", "2"]}
    before = len(list(table.timeline()))
    assert table.delete_partitions([]).instant is None
    assert len(list(table.timeline())) == before


def no_utf8(rows: int) -> pa.Array:
    texts = pa.array([b"\xffA", *[b"plain"] * (rows - 1)], pa.binary())
    return pa.Array.from_buffers(pa.string(), rows, texts.buffers())


@pytest.mark.parametrize(
    ("table_type", "column", "verb"),
    every_second(
        ["COPY_ON_WRITE", "MERGE_ON_READ"], ["id", "part", "note", "inner.note", "notes"], VERBS
    ),
)
def test_text_that_is_no_utf8_is_refused(
    tmp_path: Path, table_type: str, column: str, verb: str
) -> None:
    """Nobody could read the bucket any more."""
    good = good_rows().append_column("note", pa.array(["a"] * 4))
    good = good.append_column("inner", pa.array([{"note": "a"}] * 4))
    good = good.append_column("notes", pa.array([["a"]] * 4))
    table = bl.create_table(
        str(tmp_path / "t"),
        schema=good.schema,
        record_key=["id"],
        partition_by=["part"],
        index=bl.SimpleBucket(2),
        table_type=table_type,
    )
    spoiled = {
        "inner.note": lambda: pa.StructArray.from_arrays([no_utf8(4)], ["note"]),
        "notes": lambda: pa.ListArray.from_arrays([0, 1, 2, 3, 4], no_utf8(4)),
    }.get(column, lambda: no_utf8(4))()
    name = column.partition(".")[0]
    batch = good.set_column(good.column_names.index(name), name, spoiled)
    with pytest.raises(InputError, match=rf"column {name}: holds bytes that are not .*UTF-?8"):
        getattr(table, verb)(batch)
    assert table.to_arrow().num_rows == 0
    assert not list(table.timeline())
    assert table.upsert(good).inserted == 4


NESTED = {
    "list": pa.list_(pa.string()),
    "struct": pa.struct([("a", pa.string())]),
    "map": pa.map_(pa.string(), pa.string()),
}


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("role", ["record_key", "partition_by", "ordering"])
def test_a_column_that_cannot_have_its_role_is_refused_when_the_table_is_made(
    tmp_path: Path, role: str, kind: str
) -> None:
    path = tmp_path / "t"
    schema = pa.schema([("id", pa.string()), ("odd", NESTED[kind])])
    roles = {"record_key": ["id"], role: ["odd"]}
    with pytest.raises(InputError, match=rf"column odd: {role} names it, but its type "):
        bl.create_table(str(path), schema=schema, index=bl.SimpleBucket(2), **roles)
    assert not path.exists()


@pytest.mark.parametrize("role", ["record_key", "partition_by", "ordering"])
def test_a_column_that_is_named_twice_is_refused_when_the_table_is_made(
    tmp_path: Path, role: str
) -> None:
    path = tmp_path / "t"
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    roles = {"record_key": ["id"], role: ["n", "n"]}
    with pytest.raises(ConfigError, match=rf"{role}.*each column once"):
        bl.create_table(str(path), schema=schema, index=bl.SimpleBucket(2), **roles)
    assert not path.exists()


def test_binary_keys_and_ordering_fields_serve(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.binary()), ("at", pa.binary()), ("n", pa.int64())])
    table = bl.create_table(
        str(tmp_path / "t"),
        schema=schema,
        record_key="id",
        ordering="at",
        index=bl.SimpleBucket(2),
        table_type="merge_on_read",
    )
    for at, n in ((b"2", 2), (b"1", 1)):
        table.upsert(pa.table({"id": [b"k"], "at": [at], "n": [n]}, schema))
    assert table.to_arrow()["n"].to_pylist() == [2]
    flag = pa.array([True])
    gone = pa.table({"id": [b"k"], "at": [b"3"], "n": [3]}, schema)
    table.upsert(gone.append_column("_hoodie_is_deleted", flag))
    assert table.to_arrow().num_rows == 0
