"""Numbers as people read them: sizes, counts, shares, times."""

from __future__ import annotations

from datetime import datetime

from bucketlake.errors import TimelineError
from bucketlake.model.text_table import cell_text, printable
from bucketlake.timeline.instant import instant_to_datetime

NOTHING = "–"

_BYTES = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"), (1, "bytes"))
_COUNTS = ((10**9, "billion "), (10**6, "million "), (10**3, "thousand "), (1, ""))


def byte_unit(most: float) -> tuple[int, str]:
    """Return the divisor and the name of the unit for sizes up to a greatest one.

    >>> byte_unit(2_500_000), byte_unit(0)
    ((1000000, 'MB'), (1, 'bytes'))
    """
    return next((unit for unit in _BYTES if most >= unit[0]), _BYTES[-1])


def count_unit(most: float, what: str) -> tuple[int, str]:
    """Return the divisor and the name of the unit for counts up to a greatest one.

    >>> count_unit(25_000_000, "rows"), count_unit(9_999, "rows")
    ((1000000, 'million rows'), (1, 'rows'))
    """
    divisor, word = next((unit for unit in _COUNTS if most >= 10 * unit[0]), _COUNTS[-1])
    return divisor, f"{word}{what}"


def number_text(name: str, value: object) -> str:
    """Return a value of a table: its name says what it is.

    >>> number_text("size_bytes", 1500), number_text("rows", 1500), number_text("share", 0.25)
    ('1.5 kB', '1,500', '25.0%')
    """
    if value is None or value == "":
        return NOTHING
    if name in ("instant", "completed_at"):
        return time_text(str(value))
    if name.startswith("share") and isinstance(value, float):
        return f"{value:.1%}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, int) and not isinstance(value, bool) and not name.endswith("_bytes"):
        return f"{value:,}"
    return printable(value) if isinstance(value, str) else cell_text(name, value)


def time_of(instant: str) -> datetime | None:
    """Return the time of an instant, on its clock; None if its digits are a counter."""
    try:
        return instant_to_datetime(instant)
    except TimelineError:
        return None


def time_text(instant: str) -> str:
    """Return the time of an instant for people.

    >>> time_text("20240102030405678")
    '2024-01-02 03:04:05'
    """
    at = time_of(instant)
    return instant if at is None else f"{at:%Y-%m-%d %H:%M:%S}"
