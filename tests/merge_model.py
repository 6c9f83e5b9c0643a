"""A merge as a loop over rows: what the clauses of MERGE mean, for tests of the real one.

A condition or value is an SQL text and a function of the row of the table and the row of the
source; one of them is None where a clause sees one side alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from bucketlake.write.merge_statement import Effect, Match, Merge

Row: TypeAlias = "dict[str, Any]"
Part: TypeAlias = "tuple[str, Callable[[Any, Any], Any]]"
"""An SQL text, and the same as a function."""


@dataclass(frozen=True)
class When:
    """A clause: its rows, its effect, and perhaps a condition and values; None sets all columns."""

    match: Match
    effect: Effect
    condition: Part | None = None
    values: Mapping[str, Part] | None = None

    def added_to(self, merge: Merge) -> Merge:
        """Return a merge with this clause."""
        words = {Match.MATCHED: "matched", Match.NOT_MATCHED: "not_matched"}
        name = f"when_{words.get(self.match, 'not_matched_by_source')}_{self.effect.name.lower()}"
        condition = None if self.condition is None else self.condition[0]
        if self.effect is Effect.DELETE:
            return getattr(merge, name)(condition)
        if self.values is None:
            return getattr(merge, f"{name}_all")(condition)
        return getattr(merge, name)({k: text for k, (text, _) in self.values.items()}, condition)

    def holds(self, held: Row | None, given: Row | None) -> bool:
        return self.condition is None or self.condition[1](held, given) is True

    def result(self, held: Row | None, given: Row | None, names: Sequence[str]) -> Row | None:
        if self.effect is Effect.DELETE:
            return None
        if self.values is None:
            assert given is not None
            return {name: given[name] for name in names}
        old = dict.fromkeys(names) if held is None else held
        return {**old, **{name: value(held, given) for name, (_, value) in self.values.items()}}


class AmbiguousError(Exception):
    """Two rows of a merge have one key, or the key of an inserted row is stored."""


def merged(
    stored: Sequence[Row],
    source: Sequence[Row],
    on: Callable[[Row, Row], Any],
    clauses: Sequence[When],
    key: Callable[[Row], Any],
    ordering: str | None,
) -> tuple[list[Row], Counter[Effect]]:
    """Return the rows after a merge, and how many rows each effect had."""
    names = [*stored[0]] if stored else [*source[0]]
    matched = [(held, given) for held in stored for given in source if on(held, given) is True]
    pairs: dict[Match, list[tuple[Row | None, Row | None]]] = {
        Match.MATCHED: [*matched],
        Match.NOT_MATCHED: [(None, g) for g in source if not any(g is one for _, one in matched)],
        Match.BY_SOURCE: [(h, None) for h in stored if not any(h is one for one, _ in matched)],
    }
    rows = {key(row): row for row in stored}
    done: Counter[Effect] = Counter()
    seen: set[Any] = set()
    own = [(when.effect, when.condition) for when in clauses if when.match is Match.MATCHED]
    for match, found in pairs.items():
        for held, given in found:
            first = (w for w in clauses if w.match is match and w.holds(held, given))
            when = next(first, None)
            if when is None:
                continue
            row = when.result(held, given, names)
            place = key(held if row is None else row)
            if place in seen:
                if own == [(Effect.DELETE, None)] and row is None:
                    continue
                raise AmbiguousError(place)
            seen.add(place)
            if when.effect is Effect.INSERT and place in rows:
                raise AmbiguousError(place)
            if when.effect is Effect.UPDATE and ordering and row[ordering] < held[ordering]:
                done[Effect.IGNORE] += 1
                continue
            done[when.effect] += 1
            if row is None:
                del rows[place]
            else:
                rows[place] = row
    return [*rows.values()], done
