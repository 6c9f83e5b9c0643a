"""The expected rows of writes that combine columns, row by row: a plain model for tests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

Row = dict[str, Any]
Key = Any

FLAG = "_hoodie_is_deleted"

_RULES: dict[str, Callable[[Any, Any], Any]] = {
    "replace": lambda old, new: new,
    "keep": lambda old, new: old,
    "sum": lambda old, new: old + new,
    "min": min,
    "max": max,
    "union": lambda old, new: [*dict.fromkeys([*old, *new])],
}


def combined(
    old: Row,
    new: Row,
    columns: Collection[str],
    *,
    keeps_missing: bool = False,
    keeps_nulls: bool = False,
    rules: Mapping[str, str] | None = None,
) -> Row:
    """Return the row that an older and a newer row make; a row lacks what its batch lacks."""
    row = {}
    for name in columns:
        if name not in new:
            row[name] = old.get(name) if keeps_missing else None
            continue
        rule, older, newer = (rules or {}).get(name), old.get(name), new[name]
        if rule not in (None, "replace"):
            both = older is not None and newer is not None
            row[name] = _RULES[rule](older, newer) if both else newer if older is None else older
        else:
            row[name] = older if newer is None and keeps_nulls else newer
    return row


def _accumulated(stored: Row, late: Row, columns: Collection[str], **how: Any) -> Row:
    """Return the columns in which a late row counts: those of sums, extremes and unions."""
    rules = how.get("rules") or {}
    counts = [name for name in columns if rules.get(name) in ("sum", "min", "max", "union")]
    return combined(stored, {n: late.get(n) for n in counts}, counts, rules=rules)


def upserted(
    rows: Mapping[Key, Row],
    batch: Sequence[Row],
    columns: Collection[str],
    *,
    key_of: Callable[[Row], Key],
    ordering: str | None = None,
    **how: Any,
) -> dict[Key, Row]:
    """Return the rows of a table after an upsert: first rows of a batch, then with those stored."""

    def time_of(row: Row) -> int:
        return 0 if ordering is None or row[ordering] is None else row[ordering]

    def rank_of(row: Row) -> tuple[int, bool]:
        """At equal ordering values a delete wins."""
        is_ordered = ordering is not None and row[ordering] is not None
        return time_of(row), is_ordered and bool(row.get(FLAG))

    after, groups = dict(rows), {}
    for row in batch:
        groups.setdefault(key_of(row), []).append(row)
    for key, group in groups.items():
        row, begins = None, False
        for other in sorted(group, key=rank_of):  # Stable: equal ones keep the order of the batch.
            if row is None or other.get(FLAG) or row.get(FLAG):
                begins = begins or (row is not None and bool(row.get(FLAG)))
                row = other
            else:
                row = combined(row, other, [c for c in columns if c in other], **how)
        stored = after.get(key)
        always = row.get(FLAG) and (ordering is None or row[ordering] is None)
        if stored is not None and not always and time_of(row) < time_of(stored):
            if not row.get(FLAG) and not begins:
                after[key] = stored | _accumulated(stored, row, columns, **how)
            continue
        if row.get(FLAG):
            after.pop(key, None)
        elif stored is None or begins:
            after[key] = {name: row.get(name) for name in columns}
        else:
            after[key] = combined(stored, row, columns, **how)
    return after
