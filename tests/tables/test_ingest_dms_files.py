"""A landing zone of AWS DMS becomes a fresh table: full load, changes, in any order."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import bucketlake as bl
from bucketlake.errors import ConfigError, InputError
from bucketlake.storage.memory import forget

_NUMBERS = itertools.count()
# Row 1 was changed before it was copied, at second 9, but the copy does not have the change.
FILES: dict[str, dict[str, list[Any]]] = {
    "LOAD00000001": {"id": [1, 2, 3], "city": ["Rome", "Oslo", None], "at": [9, 9, 9]},
    "20261102-080005000": {
        "Op": ["U", "D", "I", "D"],
        "id": [1, 2, 4, 3],
        "city": ["Paris", "Oslo", "Bern", None],
        "at": [5, 6, 7, 8],
    },
    "20261102-080010000": {"Op": ["I", "U"], "id": [2, 4], "city": ["Kyiv", "Bonn"], "at": [8, 8]},
}
ROWS = {1: ("Paris", 5), 2: ("Kyiv", 8), 4: ("Bonn", 8)}


@pytest.fixture
def table() -> Iterator[str]:
    name = f"dms-{next(_NUMBERS)}"
    yield f"memory://{name}"
    forget(name)
    forget(f"{name}_dead_letters")


def land(folder: Path, name: str, kind: str) -> None:
    times = [dt.datetime(2026, 11, 2, 8, 0, second) for second in FILES[name]["at"]]
    rows = pa.table({**FILES[name], "at": pa.array(times, pa.timestamp("us"))})
    write = {"csv": pc.write_csv, "parquet": pq.write_table}[kind]
    folder.mkdir(exist_ok=True)
    write(rows, folder / f"{name}.{kind}")


def take(folder: Path, table: str, **options: Any) -> Any:
    made = {"record_key": "id", "ordering": "at", "index": bl.SimpleBucket(1), **options}
    return bl.ingest(str(folder), table, envelope="dms", **made)


def rows_of(table: str) -> dict[int, tuple[str, int | None]]:
    rows = bl.open_table(table).to_arrow().to_pylist()
    return {row["id"]: (row["city"], row["at"] and row["at"].second) for row in rows}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    "rounds",
    [[[0], [1], [2]], [[2], [1], [0]], [[1], [0, 2]], [[0, 1, 2]]],
)
def test_loads_and_changes_give_the_rows_of_the_database_in_any_order(
    tmp_path: Path, table: str, kind: str, rounds: Sequence[Sequence[int]]
) -> None:
    folder, names = tmp_path / "orders", [*FILES]
    for some in rounds:
        for number in some:
            land(folder, names[number], kind)
        assert take(folder, table).files == len(some)
    assert take(folder, table).batches == 0
    assert rows_of(table) == ROWS


def test_a_row_that_was_only_loaded_has_no_time(tmp_path: Path, table: str) -> None:
    land(tmp_path, "LOAD00000001", "csv")
    take(tmp_path, table)
    assert rows_of(table) == {1: ("Rome", None), 2: ("Oslo", None), 3: (None, None)}


def test_an_unknown_operation_is_a_dead_letter_and_can_be_replayed(
    tmp_path: Path, table: str
) -> None:
    land(tmp_path, "LOAD00000001", "csv")
    take(tmp_path, table)
    lines = ["Op,id,city,at", *(f"{op},2026-11-02 08:00:30" for op in ("U,1,Nice", "X,2,Bari"))]
    (tmp_path / "20261102-080030000.csv").write_text("\n".join(lines))
    with pytest.raises(InputError, match="2: the operation 'X' is unknown"):
        take(tmp_path, table, on_bad_row="fail")
    assert rows_of(table)[1] == ("Rome", None)
    assert take(tmp_path, table).dead_letters == 1
    assert (rows_of(table)[1], rows_of(table)[2]) == (("Nice", 30), ("Oslo", None))
    dead = bl.open_table(f"{table}_dead_letters")
    (letter,) = dead.to_arrow().to_pylist()
    dead.upsert([letter | {"value": letter["value"].replace(b"X,", b"D,")}])
    assert take(tmp_path, table, replay=True).dead_letters == 0
    assert rows_of(table).keys() == {1, 3}
    (tmp_path / "20261102-080040000.csv").write_text("Op,id,city,at\nY,3,Bari,2026-11-02 08:00:40")
    assert take(tmp_path, table).dead_letters == 1, "a batch of bad rows alone"
    assert take(tmp_path, table).batches == 0


@pytest.mark.parametrize(
    ("is_there", "options", "told"),
    [
        (False, {"ordering": None}, "TimestampColumnName orders: ordering="),
        (True, {}, r"delete_marker=\('Op', 'D'\)"),
        (False, {"envelope": "canal"}, "option of topics"),
    ],
)
def test_what_cannot_be_taken_is_told(
    tmp_path: Path, table: str, options: dict[str, Any], told: str, *, is_there: bool
) -> None:
    land(tmp_path, "20261102-080005000", "csv")
    if is_there:
        schema = "Op string, id bigint, city string, at timestamp_ntz"
        bl.create_table(table, schema=schema, record_key="id", ordering="at")
    with pytest.raises(ConfigError, match=told):
        bl.ingest(str(tmp_path), table, **{
            "record_key": "id", "ordering": "at", "envelope": "dms", **options
        })  # fmt: skip


def test_a_table_of_hudi_in_which_the_later_commit_wins_is_refused(
    tmp_path: Path, table: str
) -> None:
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "at",
        "hoodie.datasource.write.payload.class": "AWSDmsAvroPayload",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "1",
    }
    bl.save([{"Op": "I", "id": 9, "city": "Rome", "at": dt.datetime(2026, 1, 1)}], table,
            options=options)  # fmt: skip
    land(tmp_path, "LOAD00000001", "csv")
    with pytest.raises(ConfigError, match="TimestampColumnName"):
        take(tmp_path, table)
    assert bl.open_table(table).count() == 1
