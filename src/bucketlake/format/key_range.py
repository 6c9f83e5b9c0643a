"""The smallest and largest record key of a file, in Hudi's order of keys.

A Hudi writer with a bloom index skips a file if its key range does not contain the wanted key. It
compares keys as Java does, by UTF-16 units. UTF-8 bytes have the same order with one exception:
characters from U+10000 on (4 bytes) come *before* U+E000 to U+FFFF in Java, and after them in
UTF-8.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.model.arrays import mask_of, spans_of

_FEW_KEYS = 256
_LEAD_OF_FOUR_BYTES = 0xF0
_LEADS_FROM_E000 = (0xEE, 0xEF)
_LEAD_SHIFT = 0x10  # Moves those two lead bytes above all lead bytes of four-byte characters.


def key_range(keys: pa.Array) -> tuple[str, str] | None:
    """Return the smallest and the largest key.

    Parameters
    ----------
    keys : pyarrow.Array of string
        Record keys.

    Returns
    -------
    (str, str) or None
        None if there is no key.

    Examples
    --------
    >>> key_range(pa.array(["b", "a"]))
    ('a', 'b')
    """
    if (
        0 < len(keys) <= _FEW_KEYS
        and not keys.null_count
        and "".join(few := keys.to_pylist()).isascii()
    ):
        return min(few), max(few)
    texts = _in_java_order(keys)
    smallest, largest = (end.as_py() for end in pc.min_max(texts).values())
    if smallest is None or texts is keys:
        return None if smallest is None else (smallest, largest)
    return _restored(smallest), _restored(largest)


def in_key_range(keys: pa.Array, low: str, high: str) -> npt.NDArray[np.bool_]:
    """Tell which keys lie in a range that :func:`key_range` found; both ends are included.

    Examples
    --------
    >>> in_key_range(pa.array(["a", "b", "c"]), "b", "b").tolist()
    [False, True, False]
    """
    ends = pa.array([low, high])
    texts = _in_java_order(pa.concat_arrays([ends, keys.cast(pa.string())]))
    inside = pc.and_(pc.greater_equal(texts[2:], texts[0]), pc.less_equal(texts[2:], texts[1]))
    return mask_of(inside)


def _in_java_order(texts: pa.Array) -> pa.Array:
    """Change UTF-8 bytes so that their order is the order of UTF-16 units."""
    units, bounds = spans_of(texts)  # Slices of a column share its bytes.
    if units[bounds[0] : bounds[-1]].max(initial=0) < _LEAD_OF_FOUR_BYTES:
        return texts
    validity, offsets, _ = texts.buffers()
    lifted = units + _LEAD_SHIFT * np.isin(units, _LEADS_FROM_E000).astype(np.uint8)
    buffers = [validity, offsets, pa.py_buffer(lifted)]
    return pa.Array.from_buffers(pa.binary(), len(texts), buffers, offset=texts.offset)


def _restored(text: bytes) -> str:
    for lead in _LEADS_FROM_E000:
        text = text.replace(bytes([lead + _LEAD_SHIFT]), bytes([lead]))
    return text.decode()
