"""Vectors and their bytes are two views of one buffer; Hudi's names of their types."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bucketlake.format.avro.table_schema import avro_from_arrow
from bucketlake.format.avro.tree import arrow_from_avro
from bucketlake.format.base_file import BaseFileReader, encode_base_file
from bucketlake.model.vector import (
    bytes_of_vectors,
    footer_of_vectors,
    vector_of_word,
    vector_word,
    vectors_of_bytes,
    with_vectors,
)

FLOATS = pa.list_(pa.float32(), 2)


@pytest.mark.parametrize("first", [0, 1, 3])
def test_vectors_and_their_bytes_share_the_buffer_also_of_slices(first: int) -> None:
    numbers = pa.array([9, *range(8)], pa.float32()).slice(1)
    vectors = pa.FixedSizeListArray.from_arrays(
        numbers, type=FLOATS, mask=pa.array([False, True, False, False])
    ).slice(first)
    held = bytes_of_vectors(vectors)
    assert held.buffers()[1].address == numbers.buffers()[1].address + 4
    again = vectors_of_bytes(held, FLOATS)
    again.validate(full=True)
    assert again.equals(vectors)
    assert again.values.buffers()[1].address == held.buffers()[1].address


@pytest.mark.parametrize("word", ["VECTOR(3)", "VECTOR(768, DOUBLE)", "VECTOR(1, INT8)"])
def test_name_of_a_vector_type_comes_back(word: str) -> None:
    kind = vector_of_word(word)
    assert kind is not None
    assert vector_word(kind) == word
    schema = pa.schema({"v": kind, "n": pa.int64(), "w": kind})
    footer = footer_of_vectors(schema)
    assert footer == {"hoodie.vector.columns": f"v:{word},w:{word}"}
    width = kind.list_size * kind.value_type.bit_width // 8
    stored = [f.with_type(pa.binary(width)) if f.name != "n" else f for f in schema]
    assert pa.schema(with_vectors(stored, footer)) == schema


@pytest.mark.parametrize("word", ["VECTOR", "VECTOR(0)", "VECTOR(3, INT16)", "VECTOR(-1)", "BLOB"])
def test_other_names_are_no_vectors(word: str) -> None:
    assert vector_of_word(word) is None


def test_second_column_of_a_vector_type_names_it_in_avro() -> None:
    schema = pa.schema({"v": FLOATS, "w": FLOATS, "x": pa.list_(pa.int8(), 2)})
    text = avro_from_arrow(schema, "t")
    assert text.count('"vector_float_2"') == 2
    assert text.count('"logicalType":"vector"') == 2
    assert arrow_from_avro(text) == schema


@pytest.mark.parametrize("count", [1, 1000])
def test_vectors_of_a_base_file_are_plain_bytes_without_statistics(count: int) -> None:
    keys = [str(n) for n in range(count)]
    vectors = pa.array([[1, float("nan")]] * count, FLOATS)
    rows = pa.table({"_hoodie_record_key": keys, "v": vectors})
    encoded = encode_base_file([rows], pa.schema({"v": FLOATS}))
    group = encoded.footer.row_group(0)
    column = group.column(encoded.footer.num_columns - 1)
    assert column.compression == "UNCOMPRESSED"
    assert group.column(2).compression == ("SNAPPY" if count == 1 else "ZSTD")
    assert (column.path_in_schema, column.physical_type) == ("v", "FIXED_LEN_BYTE_ARRAY")
    assert not column.is_stats_set
    assert not column.has_dictionary_page
    with BaseFileReader.of_bytes(encoded.data, "f.parquet") as reader:
        assert reader.key_values["hoodie.vector.columns"] == "v:VECTOR(2)"
        assert str(reader.read(["v"])["v"][0].as_py()) == "[1.0, nan]"
