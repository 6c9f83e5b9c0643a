"""Shredded variants: variants of which a Parquet file has parts in columns of their own.

Rules: Parquet's "Variant Shredding". At each level, ``value`` has what fits no column, and
``typed_value`` has the rest: a scalar, a list, or a struct with a field for each name that has a
column. Scalars are put together a column at a time; objects and lists, a row at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.model.variant import TYPED_VALUE, VARIANT, require_variants

_NULL = b"\0"  # The null of JSON.
_NUMBERS = {
    pa.int8(): (3, 1),
    pa.int16(): (4, 2),
    pa.int32(): (5, 4),
    pa.int64(): (6, 8),
    pa.float64(): (7, 8),
    pa.date32(): (11, 4),
    pa.timestamp("us", "UTC"): (12, 8),
    pa.timestamp("us"): (13, 8),
    pa.float32(): (14, 4),
    pa.time64("us"): (17, 8),
    pa.timestamp("ns", "UTC"): (18, 8),
    pa.timestamp("ns"): (19, 8),
    pa.binary(16): (20, 16),  # UUID.
}
"""By type: its number in a variant, and the size of a value in bytes."""
_TEXT, _BYTES = 16, 15


def whole_variants(shredded: pa.StructArray) -> pa.StructArray:
    """Put shredded variants together.

    Parameters
    ----------
    shredded : pyarrow.StructArray
        Values of a column for which ``is_shredded`` holds.

    Returns
    -------
    pyarrow.StructArray
        The variants, of type ``VARIANT``. Numbers keep the size that their column has.

    Raises
    ------
    pyarrow.ArrowInvalid
        If a value is in both places, or bytes of a variant are missing.
    pyarrow.ArrowNotImplementedError
        If a column has a type that variants lack; raised without rows, too.
    """
    parts = _parts(shredded)
    metadata = parts["metadata"].fill_null(b"\1\0\0")  # Of rows that are null.
    require_variants(_variants(metadata, pa.repeat(_NULL, len(metadata)).cast(pa.binary())))
    values = _whole(parts, metadata).fill_null(_NULL)
    return _variants(metadata, values, shredded.is_null())


def _variants(
    metadata: pa.BinaryArray, value: pa.BinaryArray, mask: pa.BooleanArray | None = None
) -> pa.StructArray:
    return pa.StructArray.from_arrays([metadata, value], fields=[*VARIANT], mask=mask)


def _parts(level: pa.Array) -> dict[str, pa.Array]:
    """Return the columns of a level by name; a row that is null is null in each of them."""
    if not pa.types.is_struct(level.type):
        _refuse(level.type)
    return dict(zip((field.name for field in level.type), level.flatten(), strict=True))


def _whole(parts: Mapping[str, pa.Array], metadata: pa.BinaryArray) -> pa.BinaryArray:
    """Return the values of one level; null where a value is missing."""
    value = parts.get("value", pa.nulls(len(metadata), pa.binary()))
    typed = parts.get(TYPED_VALUE)
    if typed is None:
        return value
    if pa.types.is_struct(typed.type):
        return _objects(value, typed, metadata)
    built = _lists(typed, metadata) if pa.types.is_list(typed.type) else _scalars(typed)
    is_twice = pc.any(pc.and_(value.is_valid(), built.is_valid())).as_py()
    _require(not is_twice, f"value and typed_value both have one, and {typed.type} is no object")
    return pc.coalesce(value, built)


# ---- Scalars, a column at a time -----------------------------------------------------------------


def _scalars(typed: pa.Array) -> pa.BinaryArray:
    kind = typed.type
    if pa.types.is_boolean(kind):
        flags = typed.fill_null(False).to_numpy(zero_copy_only=False)
        found = _joined(b"", np.where(flags, 1 << 2, 2 << 2).astype(np.uint8).reshape(-1, 1))
    elif pa.types.is_decimal128(kind):
        number, size = next((n, s) for n, s, p in _DECIMALS if kind.precision <= p)
        _require(0 <= kind.scale <= kind.precision, f"{kind} has a scale that variants lack")
        found = _joined(bytes([number << 2, kind.scale]), _raw(typed, 16)[:, :size])
    elif kind in (pa.string(), pa.binary()):
        found = _texts(typed)
    elif kind in _NUMBERS:
        number, size = _NUMBERS[kind]
        found = _joined(bytes([number << 2]), _raw(typed, size))
    else:
        _refuse(kind)
    return pc.if_else(typed.is_valid(), found, pa.scalar(None, pa.binary()))


_DECIMALS = [(8, 4, 9), (9, 8, 18), (10, 16, 38)]  # Number, bytes, precision up to.


def _refuse(kind: pa.DataType) -> None:
    raise pa.ArrowNotImplementedError(f"a shredded variant with a column of type {kind}")


def _raw(array: pa.Array, size: int) -> npt.NDArray[np.uint8]:
    if not len(array):  # It may have no buffer.
        return np.empty((0, size), np.uint8)
    data = array.buffers()[1]
    return np.frombuffer(data, np.uint8, len(array) * size, array.offset * size).reshape(-1, size)


def _joined(head: bytes, raw: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    """Return byte strings of one size: the head, then a row of bytes."""
    rows = np.empty((len(raw), len(head) + raw.shape[1]), np.uint8)
    rows[:, : len(head)] = np.frombuffer(head, np.uint8)
    rows[:, len(head) :] = raw
    kind = pa.binary(rows.shape[1])
    return pa.Array.from_buffers(kind, len(rows), [None, pa.py_buffer(rows)]).cast(pa.binary())


def _texts(typed: pa.Array) -> pa.BinaryArray:
    held = typed.cast(pa.binary()).fill_null(b"")
    sizes = pc.binary_length(held).to_numpy().astype("<u4")
    number = _TEXT if typed.type == pa.string() else _BYTES
    long = _joined(bytes([number << 2]), sizes.view(np.uint8).reshape(-1, 4))
    if number == _TEXT:
        short = _joined(b"", (sizes.clip(0, 63) << 2 | 1).astype(np.uint8).reshape(-1, 1))
        long = pc.if_else(pa.array(sizes < 64), short, long)
    return pc.binary_join_element_wise(long, held, pa.scalar(b"", pa.binary()))


# ---- Lists and objects, a row at a time ----------------------------------------------------------


def _lists(typed: pa.ListArray, metadata: pa.BinaryArray) -> pa.BinaryArray:
    counts = typed.value_lengths().fill_null(0).to_numpy()
    owners = pa.array(np.repeat(np.arange(len(typed)), counts))
    elements = _whole(_parts(typed.flatten()), metadata.take(owners)).fill_null(_NULL).to_pylist()
    ends = np.cumsum(counts)
    spans = zip((ends - counts).tolist(), ends.tolist(), typed.is_valid().to_pylist(), strict=True)
    found = [_list(elements[begin:end]) if is_valid else None for begin, end, is_valid in spans]
    return pa.array(found, pa.binary())


def _objects(value: pa.Array, typed: pa.StructArray, metadata: pa.BinaryArray) -> pa.BinaryArray:
    fields = {
        name.encode(): _whole(_parts(level), metadata).to_pylist()
        for name, level in _parts(typed).items()
    }
    is_partial = pc.and_(value.is_valid(), typed.is_valid())
    require_variants(_variants(metadata.filter(is_partial), value.filter(is_partial)))
    found = value.to_pylist()
    names = metadata.to_pylist()
    for row in np.flatnonzero(typed.is_valid().to_numpy(zero_copy_only=False)):
        known, ids = _dictionary(names[row])
        held = {name: values[row] for name, values in fields.items() if values[row] is not None}
        if found[row] is not None:
            rest = _fields(found[row], known)
            twice = rest.keys() & fields.keys()
            _require(not twice, f"fields are in value, but have a column: {_shown(twice)}")
            held |= rest
        found[row] = _object(held, ids)
    return pa.array(found, pa.binary())


def _shown(names: Iterable[bytes]) -> str:
    return ", ".join(sorted(name.decode(errors="replace") for name in names))


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise pa.ArrowInvalid(problem)


@lru_cache(maxsize=1024)  # Rows of one shape have one dictionary.
def _dictionary(metadata: bytes) -> tuple[list[bytes], dict[bytes, int]]:
    """Return the names of a dictionary whose bytes were checked, and a number of each name."""
    width = (metadata[0] >> 6) + 1
    (count,) = _read(metadata, 1, width, 1)
    offsets = _read(metadata, 1 + width, width, count + 1)
    texts = metadata[1 + width * (count + 2) :]
    names = [texts[low:high] for low, high in pairwise(offsets)]
    return names, {name: number for number, name in enumerate(names)}


def _fields(value: bytes, names: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the fields of an object whose bytes were checked."""
    info = value[0] >> 2
    _require(value[0] & 3 == 2, "value has no object beside the fields of typed_value")
    width, id_width, count_width = (info & 3) + 1, (info >> 2 & 3) + 1, 4 if info & 16 else 1
    (count,) = _read(value, 1, count_width, 1)
    ids_at = 1 + count_width
    ids = _read(value, ids_at, id_width, count)
    offsets = _read(value, ids_at + count * id_width, width, count + 1)
    data = value[ids_at + count * id_width + (count + 1) * width :]
    ends = dict(pairwise(sorted(set(offsets))))  # Values may lie in another order than their names.
    return {names[name]: data[at : ends[at]] for name, at in zip(ids, offsets, strict=False)}


def _read(data: bytes, at: int, width: int, count: int) -> list[int]:
    """Return numbers that lie one after another."""
    places = range(at, at + count * width, width)
    return [int.from_bytes(data[place : place + width], "little") for place in places]


def _object(fields: Mapping[bytes, bytes], ids: Mapping[bytes, int]) -> bytes:
    names = sorted(fields)
    unknown = fields.keys() - ids.keys()
    _require(not unknown, f"names of fields are not in the metadata: {_shown(unknown)}")
    numbers = [ids[name] for name in names]
    id_width = _width(max(numbers, default=0))
    packed, width = _packed([fields[name] for name in names])
    count, is_large = _count(len(names))
    header = 2 | (width - 1) << 2 | (id_width - 1) << 4 | is_large << 6
    return bytes([header]) + count + _numbers(numbers, id_width) + packed


def _list(elements: Sequence[bytes]) -> bytes:
    packed, width = _packed(elements)
    count, is_large = _count(len(elements))
    return bytes([3 | (width - 1) << 2 | is_large << 4]) + count + packed


def _count(count: int) -> tuple[bytes, bool]:
    is_large = count > 255
    return count.to_bytes(4 if is_large else 1, "little"), is_large


def _packed(values: Sequence[bytes]) -> tuple[bytes, int]:
    """Return offsets and values, and the width of an offset."""
    offsets = np.cumsum([0, *map(len, values)]).tolist()
    width = _width(offsets[-1])
    return _numbers(offsets, width) + b"".join(values), width


def _numbers(numbers: Iterable[int], width: int) -> bytes:
    return b"".join(number.to_bytes(width, "little") for number in numbers)


def _width(largest: int) -> int:
    return max(1, (largest.bit_length() + 7) // 8)
