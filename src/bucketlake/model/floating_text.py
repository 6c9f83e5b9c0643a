"""Floating-point numbers as text, the way Java writes them.

Hudi lets a column of numbers become a column of strings, and gives the numbers in older files
Java's text: ``1.0E10``, not ``1e+10``. bucketlake widens no column so, but reads such tables.
"""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

_PLAIN_EXPONENTS = range(-3, 7)  # Java writes magnitudes in [0.001, 10,000,000) without exponent.
_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity", "0": "0.0", "-0": "-0.0"}


def floating_text(array: pa.Array) -> pa.StringArray:
    """Write floats or doubles as Java's ``toString`` does, in the shortest digits.

    Notes
    -----
    Text is made once per distinct number, row by row: this serves old files of rare tables.

    Examples
    --------
    >>> floating_text(pa.array([1e10, 0.1, float("nan")])).to_pylist()
    ['1.0E10', '0.1', 'NaN']
    """
    encoded = pc.cast(array, pa.string()).dictionary_encode()
    texts = pa.array([_java_text(text) for text in encoded.dictionary.to_pylist()], pa.string())
    return texts.take(encoded.indices)


def _java_text(shortest: str) -> str:
    if shortest in _SPECIAL:
        return _SPECIAL[shortest]
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    assert isinstance(exponent, int), shortest
    written = "".join(map(str, digits))
    power = len(digits) - 1 + exponent  # Of ten, at the first digit.
    minus = "-" if sign else ""
    if power not in _PLAIN_EXPONENTS:
        return f"{minus}{written[0]}.{written[1:] or '0'}E{power}"
    if power < 0:
        return f"{minus}0.{'0' * (-power - 1)}{written}"
    return f"{minus}{written[: power + 1].ljust(power + 1, '0')}.{written[power + 1 :] or '0'}"
