"""Vectors: columns of so many numbers a row, such as embeddings, of Hudi's type VECTOR.

A table holds them as fixed-size lists of Arrow: ``pa.list_(pa.float32(), 768)``, or of float64 or
int8. Base files and log blocks hold their bytes: numbers in order, little-endian. Both layouts have
the same buffer, so no value is copied between them. docs/spec/hudi-types.md has what was measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.model.by_schema import by_schema

ELEMENTS: dict[str, pa.DataType] = {
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "INT8": pa.int8(),
}
"""The numbers of a vector, by Hudi's word for their type."""

_WORDS = {element: word for word, element in ELEMENTS.items()}
_WORD = re.compile(r"VECTOR\(\s*(\d+)\s*(?:,\s*(\w+)\s*)?\)", re.IGNORECASE)
_FOOTER_ENTRY = re.compile(rf"\s*([^:,]+):({_WORD.pattern})\s*(?:,|$)", re.IGNORECASE)


def is_vector(data_type: pa.DataType) -> bool:
    """Return whether a column of a type is a column of vectors."""
    is_fixed = pa.types.is_fixed_size_list(data_type)
    return bool(is_fixed and data_type.value_type in _WORDS and data_type.list_size > 0)


def plain_vector(data_type: pa.DataType) -> pa.DataType:
    """Return a vector type as tables have it, whatever its element is named."""
    return pa.list_(data_type.value_type, data_type.list_size)


def element_word(data_type: pa.DataType) -> str:
    """Return Hudi's word for the numbers of a vector type."""
    return _WORDS[data_type.value_type]


def vector_word(data_type: pa.DataType) -> str:
    """Return Hudi's name of a vector type.

    Examples
    --------
    >>> vector_word(pa.list_(pa.float32(), 3)), vector_word(pa.list_(pa.int8(), 3))
    ('VECTOR(3)', 'VECTOR(3, INT8)')
    """
    element = element_word(data_type)
    return f"VECTOR({data_type.list_size}{'' if element == 'FLOAT' else f', {element}'})"


def vector_of_word(word: str) -> pa.DataType | None:
    """Return the type that Hudi's name of a vector type means; None for other texts.

    Examples
    --------
    >>> vector_of_word("VECTOR(3, DOUBLE)")
    FixedSizeListType(fixed_size_list<item: double>[3])
    """
    found = _WORD.fullmatch(word.strip())
    element = ELEMENTS.get((found[2] or "FLOAT").upper()) if found else None
    if found is None or element is None or not 0 < int(found[1]) < _SIZE_MAX:
        return None
    return pa.list_(element, int(found[1]))


_SIZE_MAX = 2**28  # So that the bytes of a vector have a size of 32 bits.


# ---- The columns of vectors of a base file: an entry of its footer -------------------------------


VECTOR_COLUMNS = "hoodie.vector.columns"


@by_schema
def footer_of_vectors(schema: pa.Schema) -> dict[str, str]:
    """Return the entry of a footer that names the columns of vectors; nothing without them.

    Examples
    --------
    >>> footer_of_vectors(pa.schema({"id": pa.string(), "v": pa.list_(pa.float32(), 3)}))
    {'hoodie.vector.columns': 'v:VECTOR(3)'}
    """
    words = [f"{field.name}:{vector_word(field.type)}" for field in schema if is_vector(field.type)]
    return {VECTOR_COLUMNS: ",".join(words)} if words else {}


def with_vectors(fields: list[pa.Field], key_values: Mapping[str, str]) -> Iterator[pa.Field]:
    """Yield the fields of a file, those of vectors with their types, as the footer names them."""
    found = _FOOTER_ENTRY.finditer(key_values.get(VECTOR_COLUMNS, ""))
    types = {entry[1]: vector_of_word(entry[2]) for entry in found}
    for field in fields:
        kind = types.get(field.name)
        fits = kind is not None and field.type == bytes_type(kind)
        yield field.with_type(kind) if fits else field


# ---- Vectors and their bytes: two views of one buffer --------------------------------------------


def bytes_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of the bytes of vectors."""
    return pa.binary(data_type.list_size * data_type.value_type.bit_width // 8)


def bytes_of_vectors(vectors: pa.FixedSizeListArray) -> pa.FixedSizeBinaryArray:
    """Return the bytes of vectors, which have no null inside, without a copy."""
    kind, numbers = vectors.type, vectors.values
    data = numbers.buffers()[1]
    width = kind.value_type.bit_width // 8
    data = pa.py_buffer(b"") if data is None else data.slice(numbers.offset * width)
    buffers = [vectors.buffers()[0], data]
    return pa.Array.from_buffers(bytes_type(kind), len(vectors), buffers, offset=vectors.offset)


def vectors_of_bytes(
    values: pa.FixedSizeBinaryArray, data_type: pa.DataType
) -> pa.FixedSizeListArray:
    """Return the vectors of a type that bytes hold, without a copy."""
    validity, data = values.buffers()
    count = (values.offset + len(values)) * data_type.list_size
    data = pa.py_buffer(b"") if data is None else data
    numbers = pa.Array.from_buffers(data_type.value_type, count, [None, data])
    return pa.Array.from_buffers(
        data_type, len(values), [validity], offset=values.offset, children=[numbers]
    )


def vectors_of_lists(
    lists: pa.Array, data_type: pa.DataType, numbers: pa.Array
) -> pa.FixedSizeListArray:
    """Return lists without nulls as vectors of a type.

    Parameters
    ----------
    lists : pyarrow.Array
        Lists of any layout; none is null.
    data_type : pyarrow.DataType
        The type of the vectors.
    numbers : pyarrow.Array
        The elements of the lists, one list after the other, in the type of the vectors' numbers.

    Raises
    ------
    pyarrow.ArrowInvalid
        If a list has another length, or a null.
    """
    expected = data_type.list_size
    lengths = pc.list_value_length(lists)
    wrong = lengths.filter(pc.not_equal(lengths, expected))
    if len(wrong):
        raise pa.ArrowInvalid(f"it has {wrong[0]} elements, expected {expected}")
    if numbers.null_count:
        raise pa.ArrowInvalid("it has a null inside; a vector has numbers alone")
    return pa.FixedSizeListArray.from_arrays(numbers, type=data_type)
