"""Rows that delete by the text in a column: ``hoodie.payload.delete.field`` and ``.marker``."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.config import table_keys as keys
from bucketlake.errors import ConfigError, FormatError, UnsupportedFeatureError

WRITE = "hoodie.datasource.write."
OPTIONS = {
    "hoodie.table.name": "trips",
    f"{WRITE}recordkey.field": "id",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "1",
}
MARKER = {"hoodie.payload.delete.field": "op", "hoodie.payload.delete.marker": "D"}
ORDERED = {"hoodie.table.ordering.fields": "ts"}
MODEL = "org.apache.hudi.common.model."
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]

Records = list[tuple[str, str, int, int]]


def rows(records: Records) -> pa.Table:
    columns = zip(*records, strict=True)
    return pa.table(dict(zip(("id", "op", "ts", "v"), map(list, columns), strict=True)))


def left_in(path: Path) -> Records:
    found = bl.open_table(str(path)).to_arrow().to_pylist()
    return sorted((row["id"], row["op"], row["ts"], row["v"]) for row in found)


def edit(path: Path, entries: dict[str, str]) -> None:
    file = path / ".hoodie" / "hoodie.properties"
    kept = [one for one in file.read_text().splitlines() if one.partition("=")[0] not in entries]
    file.write_text("\n".join([*kept, *(f"{key}={text}" for key, text in entries.items())]))


FIRST = [("a", "I", 5, 1), ("b", "I", 5, 1), ("c", "I", 5, 1), ("d", "I", 5, 1), ("e", "D", 5, 1)]
SECOND = [("a", "D", 6, 2), ("b", "D", 5, 2), ("c", "D", 4, 2), ("f", "D", 5, 2), ("g", "I", 5, 2)]
THIRD = [("a", "I", 5, 3), ("c", "I", 5, 3), ("g", "D", 7, 3), ("g", "I", 6, 4), ("b", "I", 1, 3)]

# What real Hudi 1.2.0 has after each of the three batches in a merge-on-read table. In a
# copy-on-write table it has a and b again at the end, because it does not remember their deletes.
STATES: list[Records] = [FIRST[:4], [FIRST[2], FIRST[3], SECOND[4]], [THIRD[1], FIRST[3]]]


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("payload", [None, "DefaultHoodieRecordPayload", "EventTimeAvroPayload"])
def test_marked_row_deletes_unless_it_is_late(
    table_path: Path, table_type: str, payload: str | None
) -> None:
    options = OPTIONS | MARKER | ORDERED | {f"{WRITE}table.type": table_type}
    if payload is not None:
        options[f"{WRITE}payload.class"] = f"{MODEL}{payload}"
    for batch, state in zip((FIRST, SECOND, THIRD), STATES, strict=True):
        bl.save(rows(batch), str(table_path), options=options)
        assert left_in(table_path) == state
    if table_type == "MERGE_ON_READ":
        bl.open_table(str(table_path)).compact()
        assert left_in(table_path) == STATES[-1]


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {f"{WRITE}payload.class": "OverwriteWithLatestAvroPayload", **ORDERED},
        {"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING", **ORDERED},
    ],
    ids=["no ordering", "payload", "mode"],
)
def test_marked_row_always_deletes_under_commit_time_ordering(
    table_path: Path, table_type: str, asked: dict[str, str]
) -> None:
    options = OPTIONS | MARKER | asked | {f"{WRITE}table.type": table_type}
    for batch in (FIRST, SECOND):
        bl.save(rows(batch), str(table_path), options=options)
    assert left_in(table_path) == [FIRST[3], SECOND[4]]


@pytest.mark.parametrize(
    ("operation", "left"),
    [("insert", ["b"]), ("insert_overwrite", ["c"]), ("insert_overwrite_table", ["c"])],
)
def test_marked_rows_are_deletes_in_other_operations(
    table_path: Path, operation: str, left: list[str]
) -> None:
    bl.save(rows([("a", "I", 1, 1), ("b", "I", 1, 1)]), str(table_path), options=OPTIONS | MARKER)
    options = OPTIONS | MARKER | {f"{WRITE}operation": operation}
    bl.save(rows([("a", "D", 2, 2), ("c", "I", 2, 2)]), str(table_path), options=options)
    assert [row[0] for row in left_in(table_path)] == [*dict.fromkeys([*left, "c"])]


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        (
            MARKER | ORDERED,
            {
                keys.MERGE_MODE: "EVENT_TIME_ORDERING",
                keys.ORDERING_FIELDS: "ts",
                keys.STORED_DELETE_FIELD: "op",
                keys.STORED_DELETE_MARKER: "D",
            },
        ),
        (
            {f"{WRITE}payload.class": "AWSDmsAvroPayload", **ORDERED},
            {
                keys.MERGE_MODE: "COMMIT_TIME_ORDERING",
                keys.ORDERING_FIELDS: "ts",
                keys.STORED_DELETE_FIELD: "Op",
                keys.STORED_DELETE_MARKER: "D",
                keys.LEGACY_PAYLOAD_CLASS: f"{MODEL}AWSDmsAvroPayload",
            },
        ),
    ],
)
def test_settings_are_stored_as_hudi_stores_them(
    table_path: Path, asked: dict[str, str], stored: dict[str, str]
) -> None:
    bl.save(rows(FIRST), str(table_path), options=OPTIONS | asked)
    config = bl.open_table(str(table_path)).config()
    found = config.to_properties()
    words = ("merge", "payload", "ordering")
    assert {k: v for k, v in found.items() if any(word in k for word in words)} == stored


def test_table_api_obeys_the_marker_that_a_table_stores(table_path: Path) -> None:
    bl.save(rows(FIRST), str(table_path), options=OPTIONS | MARKER | ORDERED)
    result = bl.open_table(str(table_path)).upsert(rows(SECOND))
    assert (result.deleted, result.inserted) == (2, 1)
    assert left_in(table_path) == STATES[1]


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_marker_of_a_job_counts_for_its_writes_to_a_table_that_stores_none(
    table_path: Path, table_type: str
) -> None:
    schema = rows(FIRST).schema
    index = bl.SimpleBucket(1)
    table = bl.create_table(
        str(table_path), schema=schema, record_key="id", ordering="ts", index=index,
        table_type=table_type,
    )  # fmt: skip
    table.upsert(rows(FIRST))
    options = OPTIONS | MARKER | {"hoodie.table.name": table.config().name}
    bl.save(rows(SECOND), str(table_path), options=options)
    assert left_in(table_path) == [FIRST[2], FIRST[3], FIRST[4], SECOND[4]]
    assert table.config().custom_marker is None


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"hoodie.payload.delete.marker": "X"}, "hoodie.payload.delete.marker = "),
        (
            {f"{WRITE}payload.class": "OverwriteWithLatestAvroPayload"},
            "merge mode of .*payload.class .*EVENT_TIME",
        ),
        ({"hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING"}, "merge.mode = .*EVENT_TIME"),
    ],
)
def test_job_that_contradicts_the_table_is_refused(
    table_path: Path, asked: dict[str, str], said: str
) -> None:
    options = OPTIONS | MARKER | ORDERED
    bl.save(rows(FIRST), str(table_path), options=options)
    with pytest.raises(ConfigError, match=said):
        bl.save(rows(SECOND), str(table_path), options=options | asked)
    assert left_in(table_path) == FIRST[:4]


def test_batch_without_the_column_deletes_nothing(table_path: Path) -> None:
    """As the first load of a replication, which has no operations."""
    options = OPTIONS | {f"{WRITE}payload.class": "AWSDmsAvroPayload"}
    bl.save(pa.table({"id": ["a", "b"]}), str(table_path), options=options)
    changes = pa.table({"id": ["a", "c"], "Op": ["D", "I"]})
    bl.save(changes, str(table_path), options=options, merge_schema="add_columns")
    assert sorted(bl.open_table(str(table_path)).to_arrow()["id"].to_pylist()) == ["b", "c"]


@pytest.mark.parametrize(
    ("make", "marker"),
    [
        (lambda gone: pa.array([int(one) for one in gone], pa.int32()), "1"),
        (lambda gone: pa.array([int(one) for one in gone], pa.int64()), "1"),
        (lambda gone: pa.array(gone, pa.bool_()), "true"),
        (lambda gone: pa.array([{"of": "D" if one else None} for one in gone]), "D"),
    ],
    ids=["int", "long", "bool", "struct"],
)
@pytest.mark.parametrize("table_type", TYPES)
def test_marker_is_compared_with_the_text_of_the_value(
    table_path: Path, table_type: str, make: Callable[[list[bool]], pa.Array], marker: str
) -> None:
    kind = make([False])
    field = "op.of" if pa.types.is_struct(kind.type) else "op"
    options = OPTIONS | {
        "hoodie.payload.delete.field": field,
        "hoodie.payload.delete.marker": marker,
        f"{WRITE}table.type": table_type,
    }
    kinds = make([True, False]).type
    bl.save(pa.table({"id": ["a", "b"], "op": make([False, False]).cast(kinds)}), str(table_path),
            options=options)  # fmt: skip
    bl.save(pa.table({"id": ["a", "b"], "op": make([True, False])}), str(table_path),
            options=options)  # fmt: skip
    assert bl.open_table(str(table_path)).to_arrow()["id"].to_pylist() == ["b"]


@pytest.mark.parametrize("value", [1.0, dt.date(2020, 1, 1), b"D"], ids=["float", "date", "binary"])
def test_column_whose_text_differs_between_the_engines_is_refused(
    table_path: Path, value: Any
) -> None:
    batch = pa.table({"id": ["a"], "op": [value]})
    with pytest.raises(UnsupportedFeatureError, match=r"column op.*_hoodie_is_deleted"):
        bl.save(batch, str(table_path), options=OPTIONS | MARKER)
    assert not table_path.exists()


def test_marker_that_somebody_changed_by_hand_is_noticed(table_path: Path) -> None:
    bl.save(rows(FIRST), str(table_path), options=OPTIONS | MARKER)
    edit(table_path, {keys.STORED_DELETE_MARKER: "X"})
    with pytest.raises(FormatError, match=r"delete\.marker"):
        bl.open_table(str(table_path)).to_arrow()


def test_half_a_marker_in_the_properties_is_refused(table_path: Path) -> None:
    bl.save(rows(FIRST), str(table_path), options=OPTIONS)
    edit(table_path, {keys.STORED_DELETE_FIELD: "op"})
    with pytest.raises(UnsupportedFeatureError, match=r"half a delete marker \(op\)"):
        bl.open_table(str(table_path)).upsert(rows(SECOND))


SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "op": pa.large_string(),
        "gone": pa.bool_(),
        "code": pa.int32(),
        "at": pa.float64(),
        "meta": pa.struct({"op": pa.string()}),
    }
)


def test_argument_of_create_table_stores_what_the_options_of_a_job_store(tmp_path: Path) -> None:
    made = bl.create_table(
        str(tmp_path / "made"),
        schema=rows(FIRST).schema,
        record_key="id",
        ordering="ts",
        delete_marker=("op", "D"),
    )
    bl.save(rows(FIRST), str(tmp_path / "saved"), options=OPTIONS | MARKER | ORDERED)
    assert made.config().custom_marker == ("op", "D")
    assert "op = 'D' deletes" in repr(made)
    assert "op = &#x27;D&#x27;" in made._repr_html_()
    stored = [made.config(), bl.open_table(str(tmp_path / "saved")).config()]
    assert stored[0].to_properties().items() >= {
        (key, text) for key, text in stored[1].to_properties().items() if "merge" in key
    }
    for batch, left in zip([FIRST, SECOND], STATES, strict=False):
        made.upsert(rows(batch))
        assert left_in(tmp_path / "made") == sorted(left)


@pytest.mark.parametrize(
    "marker", [("op", "D"), ["gone", "true"], ("code", "-1"), ("meta.op", "d")]
)
def test_marker_may_be_in_columns_of_several_types(marker: Any) -> None:
    path = f"memory://markers/{marker[0]}"
    bl.create_table(path, schema=SCHEMA, record_key="id", delete_marker=marker)
    assert bl.open_table(path).config().custom_marker == tuple(marker)


@pytest.mark.parametrize(
    ("marker", "error", "words"),
    [
        (("Op", "D"), bl.InputError, "delete_marker names column 'Op'.* 'op'"),
        (("gone", "True"), ConfigError, "delete_marker.*give 'true' or 'false'"),
        (("code", "01"), ConfigError, "no value of column code"),
        (("op", ""), ConfigError, "delete_marker.*give a column and the text"),
        (("at", "1.0"), UnsupportedFeatureError, "column of type double"),
        (("op", True), ConfigError, "delete_marker.*give a column and the text"),
        (("op", "D", "x"), ConfigError, "delete_marker.*give a column and the text"),
        ("op=D", ConfigError, "delete_marker.*give a column and the text"),
    ],
)
def test_marker_that_would_never_delete_is_refused(
    tmp_path: Path, marker: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        bl.create_table(str(tmp_path / "t"), schema=SCHEMA, record_key="id", delete_marker=marker)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("version", [6, 8])
def test_version_that_stores_no_marker_refuses_it(tmp_path: Path, version: int) -> None:
    with pytest.raises(ConfigError, match=r"delete_marker.* choose version 9"):
        bl.create_table(
            str(tmp_path / "t"),
            schema=SCHEMA,
            record_key="id",
            index=bl.SimpleBucket(1),
            version=version,
            delete_marker=("op", "D"),
        )
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_an_update_that_marks_rows_as_deleted_counts_them_as_deleted(table_type: str) -> None:
    flag, path = "_hoodie_is_deleted", f"memory://update-marks-{table_type}"
    schema = pa.schema([("id", pa.string()), ("n", pa.int64()), (flag, pa.bool_())])
    table = bl.create_table(
        path, schema=schema, record_key="id", index=bl.SimpleBucket(1), table_type=table_type
    )
    table.upsert(pa.table({"id": ["a", "b", "c"], "n": [1, 2, 3], flag: [False] * 3}, schema))
    done = table.update({flag: "n > 1", "n": "n + 1"})
    assert (done.inserted, done.updated, done.deleted) == (0, 1, 2)
    assert table.to_arrow()["n"].to_pylist() == [2]
