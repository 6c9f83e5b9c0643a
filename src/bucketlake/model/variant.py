"""Variants: values such as those of JSON, of Hudi's and Spark's type VARIANT.

A value has two byte strings. ``metadata`` is the dictionary of the names of fields, ``value`` has
the data. Both are as in Parquet's "Variant Binary Encoding"; docs/spec/hudi-types.md has the form
in a table. A table treats a value as one piece. Only :func:`require_variants` looks inside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

VARIANT = pa.struct(
    [
        pa.field("metadata", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)
"""Hudi's type VARIANT, with the fields in the order of Hudi's schemas."""

SPARK_VARIANT = pa.struct([VARIANT.field("value"), VARIANT.field("metadata")])
"""The same with the fields in Spark's order: Spark takes them by their place."""

TYPED_VALUE = "typed_value"
"""The field of a shredded variant that has values in columns of their own."""


def is_variant(data_type: pa.DataType) -> bool:
    """Return whether a column of a type is a column of variants."""
    return data_type in (VARIANT, SPARK_VARIANT)


def may_be_variants(data_type: pa.DataType) -> bool:
    """Return whether a struct has the fields of variants, which may be nullable."""
    fields = [*data_type] if pa.types.is_struct(data_type) else []
    are_bytes = all(pa.types.is_binary(field.type) for field in fields)
    return are_bytes and sorted(field.name for field in fields) == sorted(VARIANT.names)


def is_shredded(data_type: pa.DataType) -> bool:
    """Return whether a column of a file has shredded variants."""
    names = {field.name for field in data_type} if pa.types.is_struct(data_type) else set()
    known = {*VARIANT.names, TYPED_VALUE}
    if not {"metadata", TYPED_VALUE} <= names <= known:
        return False
    metadata = data_type.field("metadata")
    return pa.types.is_binary(metadata.type) and not metadata.nullable


# ---- Whether variants can be read: every size and place is inside of its bytes -------------------

_Integers = npt.NDArray[np.int64]

_PRIMITIVE, _SHORT_TEXT, _OBJECT, _ARRAY = range(4)
_LENGTH_FOLLOWS = -1
_UNKNOWN = -2
# By the number of a primitive type: null, true, false, integers of 1 to 8 bytes, double, decimals,
# date, two timestamps, float, bytes, text, time of day, two timestamps of nanoseconds, UUID.
_SIZES = [0, 0, 0, 1, 2, 4, 8, 8, 5, 9, 17, 4, 8, 8, 4, _LENGTH_FOLLOWS, _LENGTH_FOLLOWS]
_SIZES += [8, 8, 8, 16]
_SIZES_BYTES = np.array(_SIZES + [_UNKNOWN] * (64 - len(_SIZES)))


def require_variants(values: pa.StructArray) -> pa.StructArray:
    """Return variants that can be read.

    Parameters
    ----------
    values : pyarrow.StructArray
        Variants, of type :data:`VARIANT`.

    Raises
    ------
    pyarrow.ArrowInvalid
        If bytes of a variant are missing, a type is unknown, or a name is not in the dictionary.
        Whether texts are UTF-8 and names are sorted is not checked.

    Notes
    -----
    All values are walked at once, one level of nesting after the other.
    """
    held = values.drop_null()
    metadata, value = held.field("metadata"), held.field("value")
    names = metadata.dictionary_encode()  # Rows of one shape have one dictionary.
    counts = _name_counts(_Bytes.of(names.dictionary))
    places = _Bytes.of(value)
    sizes = places.ends - places.starts
    visited = np.zeros(len(value), np.int64)
    rows = np.arange(len(value))
    starts, ends = places.starts, places.ends
    known = counts[names.indices.to_numpy(zero_copy_only=False)] if len(held) else counts
    while len(rows):
        visited += np.bincount(rows, minlength=len(visited))
        starts, ends, rows = _parts(places, starts, ends, rows, known, sizes - visited)
    return values


def _name_counts(dictionaries: _Bytes) -> _Integers:
    """Return how many names each dictionary has."""
    starts, ends = dictionaries.starts, dictionaries.ends
    header = dictionaries.numbers(starts, ends, np.ones_like(starts))
    _require(header & 15 == 1, "its metadata have an unknown version")
    width = (header >> 6) + 1
    counts = dictionaries.numbers(starts + 1, ends, width)
    rows, positions, first = _repeated(counts + 1, starts + 1 + width, ends, width)
    offsets = dictionaries.numbers(positions, ends[rows], width[rows])
    steps = np.diff(offsets)
    _require(steps[np.diff(rows) == 0] >= 0, "its metadata have names in no order")
    _require(offsets[first] == 0, "its metadata have names in no order")
    last = first + counts
    begin = starts + 1 + width * (counts + 2)
    _require(begin + offsets[last] <= ends, "its metadata are cut")
    return counts


def _parts(
    places: _Bytes,
    starts: _Integers,
    ends: _Integers,
    rows: _Integers,
    known: _Integers,
    room: _Integers,
) -> tuple[_Integers, _Integers, _Integers]:
    """Check one level of values; return the starts, ends and rows of the values inside of them.

    ``known`` is the number of names of each row, ``room`` how many more values a row may have: each
    has a byte of its own.
    """
    header = places.numbers(starts, ends, np.ones_like(starts))
    kind, info, after = header & 3, header >> 2, starts + 1
    sizes = np.where(kind == _SHORT_TEXT, info, _SIZES_BYTES[info])
    is_plain = kind <= _SHORT_TEXT
    _require(sizes[is_plain] != _UNKNOWN, "it has a value of an unknown type")
    is_long = (kind == _PRIMITIVE) & (sizes == _LENGTH_FOLLOWS)
    sizes[is_long] = 4 + places.numbers(after[is_long], ends[is_long], np.full(is_long.sum(), 4))
    _require((after + sizes <= ends)[is_plain], "its value is cut")

    holds = ~is_plain
    kind, info, after, ends, rows = (a[holds] for a in (kind, info, after, ends, rows))
    is_object = kind == _OBJECT
    is_large = np.where(is_object, info >> 4, info >> 2) & 1
    id_width = np.where(is_object, (info >> 2 & 3) + 1, 0)
    width, count_width = (info & 3) + 1, np.where(is_large == 1, 4, 1)
    counts = places.numbers(after, ends, count_width)
    ids_at = after + count_width
    offsets_at = ids_at + counts * id_width
    data_at = offsets_at + (counts + 1) * width
    _require(data_at <= ends, "its value is cut")
    _require(np.bincount(rows, counts, len(room)) <= room, "its parts overlap")
    if is_object.any():
        objects = np.flatnonzero(is_object)
        owner, at, _ = _repeated(counts[objects], ids_at[objects], ends[objects], id_width[objects])
        owner = objects[owner]
        ids = places.numbers(at, ends[owner], id_width[owner])
        _require(ids < known[rows[owner]], "it has a field whose name is not in its metadata")
    last = places.numbers(offsets_at + counts * width, ends, width)
    _require(data_at + last <= ends, "its value is cut")
    owner, at, _ = _repeated(counts, offsets_at, ends, width)
    begins = data_at[owner] + places.numbers(at, ends[owner], width[owner])
    return begins, (data_at + last)[owner], rows[owner]


def _repeated(
    counts: _Integers, begins: _Integers, ends: _Integers, widths: _Integers
) -> tuple[_Integers, _Integers, _Integers]:
    """Return owner and position of so many numbers from each begin on, and where each begins."""
    _require(begins + counts * widths <= ends, "its value is cut")
    owner = np.repeat(np.arange(len(counts)), counts)
    first: _Integers = np.cumsum(counts) - counts
    positions: _Integers = begins[owner] + (np.arange(len(owner)) - first[owner]) * widths[owner]
    return owner, positions, first


def _require(holds: npt.NDArray[np.bool_], problem: str) -> None:
    if not holds.all():
        raise pa.ArrowInvalid(f"it is no variant: {problem}")


@dataclass(frozen=True, slots=True)
class _Bytes:
    """Byte strings that lie in one buffer."""

    data: npt.NDArray[np.uint8]
    starts: _Integers
    ends: _Integers

    @classmethod
    def of(cls, values: pa.BinaryArray) -> _Bytes:
        _, offsets, data = values.buffers()
        bounds = np.frombuffer(offsets, np.int32, len(values) + 1, values.offset * 4)
        held = b"" if data is None else data
        return cls(
            np.frombuffer(held, np.uint8), *(b.astype(np.int64) for b in (bounds[:-1], bounds[1:]))
        )

    def numbers(self, at: _Integers, ends: _Integers, widths: _Integers) -> _Integers:
        """Return the little-endian numbers at some places; they end before ``ends``."""
        _require(at + widths <= ends, "it is cut")
        found = np.zeros(len(at), np.int64)
        for byte in range(int(widths.max(initial=0))):
            has = widths > byte
            found[has] |= self.data[at[has] + byte].astype(np.int64) << (8 * byte)
        return found
