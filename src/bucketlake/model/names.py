"""Names as callers give them, and the hint for a name that is nearly right.

``arguments.py`` checks that names are texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from difflib import get_close_matches

Names = str | Sequence[str]
"""Names of columns or partitions; a text is one name, not a sequence of letters."""


def closest_name(given: object, known: Iterable[object]) -> str | None:
    """Return the known name that differs from a given one only by case, or by a few letters.

    A long name may differ by about three letters; many options begin with the same words.

    >>> closest_name("Order_ID", ["order_id", "id"]), closest_name("city", ["id"])
    ('order_id', None)
    """
    spelled: dict[str, str] = {}
    for name in known:
        if isinstance(name, str):  # Keys of a caller's mapping may be anything.
            spelled.setdefault(name.casefold(), name)
    text = str(given).casefold()
    found = get_close_matches(text, spelled, 1, max(0.6, 1 - 3 / max(len(text), 1)))
    return spelled[found[0]] if found else None


def did_you_mean(given: object, known: Iterable[object]) -> str:
    """Return the hint that ends an error about an unknown name; empty without a similar name.

    >>> did_you_mean("pirce", ["id", "price"]), did_you_mean("x", ["id", "price"])
    ("; did you mean 'price'?", '')
    """
    found = closest_name(given, known)
    return "" if found is None else f"; did you mean {found!r}?"


def one_of(given: object, known: Iterable[str]) -> str:
    """Return what is allowed in place of an unknown word, and which word may be meant.

    >>> one_of("Overwrit", ["append", "overwrite"])
    "one of append, overwrite; did you mean 'overwrite'?"
    """
    names = sorted(known) if isinstance(known, Set) else [*known]
    return f"one of {', '.join(names)}{did_you_mean(given, names)}"


def quoted(steps: Iterable[str]) -> str:
    """Return the steps of a name as SQL writes them; a step may have dots and backquotes.

    Examples
    --------
    >>> quoted(["t", "a.b"])
    '`t`.`a.b`'
    """
    return ".".join(f"`{step.replace('`', '``')}`" for step in steps)
