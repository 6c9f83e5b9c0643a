"""Names as callers give them: a text, or a sequence of texts."""

from __future__ import annotations

from collections.abc import Sequence

Names = str | Sequence[str]
"""Names of columns or partitions; a text is one name, not a sequence of letters."""


def names_of(given: Names) -> tuple[str, ...]:
    """Return the names.

    Examples
    --------
    >>> names_of("id"), names_of(["id", "day"])
    (('id',), ('id', 'day'))
    """
    return (given,) if isinstance(given, str) else tuple(given)
