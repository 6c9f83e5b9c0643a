"""Types, Avro schemas and schema evolution agree with real Hudi, but for the differences named."""

from __future__ import annotations

import datetime as dt
import json
import tarfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from bucketlake.errors import InputError
from bucketlake.format.avro.table_schema import avro_from_arrow
from bucketlake.format.avro.tree import arrow_from_avro
from bucketlake.format.base_file import BaseFileReader, encode_base_file
from bucketlake.model.cast import cast_table
from bucketlake.model.column_type import TIMESTAMP, TIMESTAMP_NTZ, type_name
from bucketlake.model.evolution import evolve
from bucketlake.model.row_merge import SchemaMerge
from bucketlake.model.schema import normalise_schema
from bucketlake.storage.local import LocalStorage

HERE = Path(__file__).parent / "types"
TABLES = Path(__file__).parent / "tables"
COMMIT_SCHEMAS = json.loads((HERE / "commit_schemas.json").read_text("utf-8"))
EVOLUTION = json.loads((HERE / "evolution.json").read_text("utf-8"))

ARROW_TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "short": (pa.int16(), 7),
    "int": (pa.int32(), 16_777_217),
    "bigint": (pa.int64(), 2**53 + 1),
    "float": (pa.float32(), 0.1),
    "double": (pa.float64(), 1e10),
    "string": (pa.string(), "12"),
    "binary": (pa.binary(), b"12"),
    "date": (pa.date32(), dt.date(2020, 1, 2)),
    "timestamp": (TIMESTAMP, dt.datetime(2020, 1, 2, 3)),
    "timestamp_ntz": (TIMESTAMP_NTZ, dt.datetime(2020, 1, 2, 3)),
    "boolean": (pa.bool_(), True),
}


def arrow_type(name: str) -> tuple[pa.DataType, Any]:
    if name.startswith("decimal"):
        precision, scale = name.removeprefix("decimal(").removesuffix(")").split(",")
        return pa.decimal128(int(precision), int(scale)), Decimal(3)
    return ARROW_TYPES[name]


@pytest.mark.parametrize("table_name", COMMIT_SCHEMAS)
def test_schema_of_every_type_is_printed_as_hudi_printed_it(table_name: str) -> None:
    text = COMMIT_SCHEMAS[table_name]
    assert avro_from_arrow(arrow_from_avro(text), table_name) == text


@pytest.mark.parametrize("archive", sorted(TABLES.rglob("*.tar.gz")), ids=lambda path: path.name)
def test_schema_of_every_commit_is_printed_as_hudi_printed_it(archive: Path) -> None:
    seen = set(commit_schemas(archive))
    assert seen
    for text in seen:
        assert avro_from_arrow(arrow_from_avro(text), archive.name.removesuffix(".tar.gz")) == text


def commit_schemas(archive: Path) -> list[str]:
    """Return the schemas in the commits of a packed table."""
    found = []
    with tarfile.open(archive) as packed:
        for member in packed.getmembers():
            folder, _, file_name = member.name.rpartition("/")
            content = packed.extractfile(member) if file_name.endswith("commit") else None
            if content is None or ".hoodie/metadata/" in folder:
                continue
            head = content.read(3)
            content.seek(0)
            if head == b"Obj":
                found += [
                    record["extraMetadata"].get("schema") for record in fastavro.reader(content)
                ]
            elif head.startswith(b"{"):
                found.append(json.load(content)["extraMetadata"].get("schema"))
    return [text for text in found if text]


def read(storage: LocalStorage, name: str, schema: pa.Schema) -> list[dict[str, Any]]:
    with BaseFileReader(storage, name) as reader:
        rows = cast_table(reader.read(schema.names), schema).sort_by("id")
    rows.validate(full=True)
    listed: list[dict[str, Any]] = rows.to_pylist()
    return listed


def test_base_files_of_all_three_writers_hold_the_same_rows() -> None:
    storage = LocalStorage(str(HERE))
    schema = arrow_from_avro((HERE / "base_file_schema.json").read_text("utf-8"))
    expected = read(storage, "spark_int96.parquet", schema)
    assert len(expected) == 24
    assert repr(read(storage, "hudi_upsert.parquet", schema)) == repr(expected)
    assert repr(read(storage, "hudi_bulk_insert.parquet", schema)) == repr(expected)


def test_file_of_hudi_written_again_holds_the_same_rows(tmp_path: Path) -> None:
    schema = arrow_from_avro((HERE / "base_file_schema.json").read_text("utf-8"))
    with BaseFileReader(LocalStorage(str(HERE)), "hudi_upsert.parquet") as reader:
        content = encode_base_file([reader.read()], schema).data
    (tmp_path / "ours.parquet").write_bytes(content)
    ours = read(LocalStorage(str(tmp_path)), "ours.parquet", schema)
    theirs = read(LocalStorage(str(HERE)), "hudi_upsert.parquet", schema)
    assert repr(ours) == repr(theirs)


def refused_by_choice(table: str, incoming: str) -> bool:
    """Whether Hudi takes the pair and bucketlake asks for an explicit cast (docs/spec/types.md)."""
    kinds = {table, incoming}
    if kinds & {"string", "binary"} and table != incoming:
        return True  # Numbers and dates turn to text, text to numbers, bytes to text.
    return table == "bigint" and incoming.startswith("timestamp")  # They would be read as times.


def kept_by_choice(table: str, incoming: str) -> bool:
    """Whether the column stays, and takes the numbers of the batch that lose no digit."""
    floats, whole = ("float", "double"), ("short", "int", "bigint")
    if incoming.startswith("decimal"):
        return table in (*floats, *whole)
    return incoming in floats and (table == "bigint" or table.startswith("decimal"))


def widened_by_choice(table: str, incoming: str) -> str | None:
    """Name the type that bucketlake chooses where Hudi rounds what is stored."""
    return "double" if table in ("short", "int") and incoming == "float" else None


@pytest.mark.parametrize("answer", EVOLUTION, ids=lambda a: f"{a['table']}<-{a['incoming']}")
def test_column_becomes_what_hudi_makes_of_it(answer: dict[str, Any]) -> None:
    table, incoming = answer["table"], answer["incoming"]
    (old, old_value), (new, new_value) = arrow_type(table), arrow_type(incoming)
    stored = normalise_schema(pa.schema({"c": old}), "evolving")
    if table.startswith("decimal") and incoming.startswith("decimal") and "refused" in answer:
        grown = evolve(stored, pa.schema({"c": new}), merge=SchemaMerge.of(True))
        assert grown.equals(stored), "a decimal that Hudi refuses is taken where its values fit"
        return
    if kept_by_choice(table, incoming):
        assert evolve(stored, pa.schema({"c": new}), merge=SchemaMerge.of(True)).equals(stored)
        return
    if refused_by_choice(table, incoming) or ("refused" in answer and not by_value(answer)):
        with pytest.raises(InputError, match="column c"):
            evolve(stored, pa.schema({"c": new}), merge=SchemaMerge.of(True))
        return
    grown = evolve(stored, pa.schema({"c": new}), merge=SchemaMerge.of(True))
    if "refused" in answer:
        with pytest.raises(InputError, match="column c"):
            cast_table(pa.table({"c": pa.array([new_value], new)}), grown)
        return
    expected = widened_by_choice(table, incoming)
    assert type_name(grown.field("c").type) == (expected or answer["becomes"])
    if expected is None:
        values = [
            cast_table(pa.table({"c": pa.array([value], kind)}), grown)["c"][0].as_py()
            for value, kind in ((old_value, old), (new_value, new))
        ]
        assert [plain(value) for value in values] == [unquoted(text) for text in answer["values"]]


def by_value(answer: dict[str, Any]) -> bool:
    """Whether Hudi refused the value, not the type."""
    return "Cannot encode decimal" in answer["refused"]


def plain(value: Any) -> str:
    return str(value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value)


def unquoted(text: str) -> str:
    return text.removeprefix("bytearray(").removesuffix(")") if "bytearray" in text else text
