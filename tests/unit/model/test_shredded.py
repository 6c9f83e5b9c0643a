"""Shredded variants are put together as Spark reads them; broken ones are refused."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bucketlake as bl
from bucketlake.errors import FormatError, UnsupportedFeatureError
from bucketlake.format.base_file import BaseFileReader
from bucketlake.model.shredded import whole_variants
from bucketlake.model.variant import VARIANT, is_shredded, require_variants

FILES = sorted((Path(__file__).parents[2] / "golden/types/shredded").glob("*.parquet"))
A = b"\1\1\0\1a"  # A dictionary with the name a.


def parsed(text: str | None) -> Any:
    return text and json.loads(text, parse_float=Decimal)


def level(typed: pa.DataType) -> pa.DataType:
    return pa.struct({"value": pa.binary(), "typed_value": typed})


def column(rows: list[dict[str, Any] | None], typed: pa.DataType) -> pa.StructArray:
    metadata = pa.field("metadata", pa.binary(), nullable=False)
    return pa.array(rows, pa.struct([metadata, *level(typed)]))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_variants_that_spark_shredded_are_those_that_spark_reads(path: Path) -> None:
    pytest.importorskip("pyspark.sql.variant_utils")
    file = pq.read_table(path)
    shredded = file["v"].combine_chunks()
    assert is_shredded(shredded.type)
    expected = file["expected"].to_pylist()
    # Slices have offsets, and rows of another number of bits.
    for begin in (0, 3):
        whole = require_variants(whole_variants(shredded.slice(begin)))
        assert whole.type == VARIANT
        texts = [bl.variant_json(value) for value in whole.to_pylist()]
        assert [*map(parsed, texts)] == [*map(parsed, expected[begin:])]


def test_scalars_keep_the_type_of_their_column() -> None:
    # By hand from Parquet's "Variant Binary Encoding".
    bytes_of = {
        pa.int8(): (-1, b"\x0c\xff"),
        pa.int64(): (1, b"\x18\1\0\0\0\0\0\0\0"),
        pa.bool_(): (False, b"\x08"),
        pa.string(): ("xy", b"\x09xy"),
        pa.binary(): (b"x", b"\x3c\1\0\0\0x"),
        pa.decimal128(9, 2): (Decimal("-0.02"), b"\x20\2\xfe\xff\xff\xff"),
        pa.decimal128(10, 0): (Decimal(1), b"\x24\0\1\0\0\0\0\0\0\0"),
        pa.binary(16): (b"0123456789abcdef", b"\x500123456789abcdef"),
    }
    for kind, (value, expected) in bytes_of.items():
        rows = [{"metadata": A, "typed_value": value}, None, {"metadata": A}]
        found = whole_variants(column(rows, kind)).to_pylist()
        # Spec: where a value must be, a missing one is a null of JSON.
        assert [row and row["value"] for row in found] == [expected, None, b"\0"], kind


OBJECT = pa.struct({"a": level(pa.int8())})
BOTH = {"value": b"\x0c\1", "typed_value": 1}


@pytest.mark.parametrize(
    ("row", "kind", "problem"),
    [
        (BOTH, pa.int8(), "value and typed_value both have one, and int8 is no object"),
        (
            {"value": b"\0", "typed_value": []},
            pa.list_(level(pa.int8())),
            "both have one, and list<.*> is no object",
        ),
        ({"value": b"\0", "typed_value": {"a": {}}}, OBJECT, "value has no object beside"),
        (
            {"value": b"\2\1\0\0\1\0", "typed_value": {"a": {}}},
            OBJECT,
            "fields are in value, but have a column: a",
        ),
        ({"value": b"\2\1\0\0\2\0", "typed_value": {"a": {}}}, OBJECT, "its value is cut"),
        ({"typed_value": {"a": BOTH}}, OBJECT, "both have one, and int8"),
        (
            {"typed_value": {"b": {"typed_value": 1}}},
            pa.struct({"b": level(pa.int8())}),
            "names of fields are not in the metadata: b",
        ),
        ({"metadata": b"\7", "typed_value": 1}, pa.int8(), "metadata have an unknown version"),
    ],
)
def test_broken_shredded_variant_is_refused_with_file_and_column(
    row: dict[str, Any], kind: pa.DataType, problem: str
) -> None:
    good = {"metadata": A, "typed_value": None, "value": b"\0"}
    values = column([good, {"metadata": A, **row}], kind)
    with pytest.raises(FormatError, match=problem) as caught:
        reader_of(values).read(["v"])
    assert "part.parquet" in str(caught.value)
    assert "column v of shredded variants" in str(caught.value)


def test_unknown_type_of_a_shredded_column_spares_the_other_columns() -> None:
    for kind in (pa.uint8(), pa.struct({"a": pa.int64()}), pa.list_(level(pa.time32("ms")))):
        reader = reader_of(column([], kind))
        assert reader.read(["id"]).num_rows == 0
        with pytest.raises(UnsupportedFeatureError, match=r"part\.parquet, column v: .* of type"):
            reader.read(["v"])


def reader_of(values: pa.StructArray) -> BaseFileReader:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": pa.nulls(len(values), pa.string()), "v": values}), sink)
    return BaseFileReader.of_bytes(sink.getvalue(), "part.parquet")


def test_changed_bytes_are_a_variant_or_refused() -> None:
    (path,) = (path for path in FILES if path.stem == "object")
    column_of_file = pq.read_table(path)["v"].combine_chunks()
    rows = [row for row in column_of_file.to_pylist() if row and row["value"]]
    rng, refused = random.Random(3), 0
    for _ in range(400):
        row, part = dict(rng.choice(rows)), rng.choice(["metadata", "value"])
        changed = bytearray(row[part])
        changed[rng.randrange(len(changed))] = rng.randrange(256)
        row[part] = bytes(
            changed[: rng.randrange(len(changed) + 1)] if rng.random() < 0.3 else changed
        )
        try:
            whole_variants(pa.array([row], column_of_file.type))
        except pa.ArrowInvalid:
            refused += 1
    assert 0 < refused < 400
