"""Arrow extension types: those with a stored type, and their values in it.

docs/spec/types.md lists them. Other extension types are refused, at the creation of a table and at
each write, because their storage alone does not tell what the values mean.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_DASHES_AT = (8, 13, 18, 23)
_UUID_BYTES, _UUID_CHARACTERS = 16, 36
_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def stored_type_of_extension(data_type: pa.BaseExtensionType) -> pa.DataType | None:
    """Return the type that stores values of an extension type; None if the type is refused.

    Examples
    --------
    >>> stored_type_of_extension(pa.uuid()), stored_type_of_extension(pa.bool8())
    (DataType(string), DataType(bool))
    """
    if isinstance(data_type, pa.UuidType | pa.JsonType):
        return pa.string()
    return pa.bool_() if isinstance(data_type, pa.Bool8Type) else None


def plain_values(array: pa.ExtensionArray) -> pa.Array:
    """Return the values of an extension type that has a stored type, without the extension."""
    if isinstance(array.type, pa.UuidType):
        return _uuid_texts(array.storage)
    return pc.not_equal(array.storage, 0) if isinstance(array.type, pa.Bool8Type) else array.storage


def _uuid_texts(values: pa.FixedSizeBinaryArray) -> pa.StringArray:
    """Return UUIDs as text of 36 characters, as Java and Python write them."""
    filled = values.fill_null(b"\0" * _UUID_BYTES)
    start = filled.offset * _UUID_BYTES
    data = np.frombuffer(filled.buffers()[1], np.uint8, len(filled) * _UUID_BYTES, start)
    digits = np.stack([_HEX_DIGITS[data >> 4], _HEX_DIGITS[data & 15]], axis=1)
    texts = np.full((len(filled), _UUID_CHARACTERS), ord("-"), np.uint8)
    is_digit = np.ones(_UUID_CHARACTERS, np.bool_)
    is_digit[list(_DASHES_AT)] = False
    texts[:, is_digit] = digits.reshape(len(filled), 2 * _UUID_BYTES)
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(_UUID_CHARACTERS), len(filled), [None, pa.py_buffer(texts.tobytes())]
    )
    return pc.if_else(values.is_valid(), fixed.cast(pa.binary()).cast(pa.string()), None)
