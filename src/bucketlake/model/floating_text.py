"""Floating-point numbers as text, as Java writes them.

Hudi can change a column of numbers to strings, and then reads numbers of older files as Java's
text: ``1.0E10``, not ``1e+10``. bucketlake does not change columns like this, but reads such
tables.
"""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

_PLAIN_EXPONENTS = range(-3, 7)  # Java writes magnitudes in [0.001, 10,000,000) without exponent.
_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity", "0": "0.0", "-0": "-0.0"}


def floating_text(array: pa.Array) -> pa.StringArray:
    """Return floats or doubles as text of Java's ``toString``, with the fewest digits.

    Notes
    -----
    Texts are made in a loop over distinct numbers, because this is needed only for old files of few
    tables.

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
    power = len(digits) - 1 + exponent  # The power of ten of the first digit.
    minus = "-" if sign else ""
    if power not in _PLAIN_EXPONENTS:
        return f"{minus}{written[0]}.{written[1:] or '0'}E{power}"
    if power < 0:
        return f"{minus}0.{'0' * (-power - 1)}{written}"
    return f"{minus}{written[: power + 1].ljust(power + 1, '0')}.{written[power + 1 :] or '0'}"
