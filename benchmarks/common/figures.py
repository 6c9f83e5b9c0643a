"""What a page or a plot asks a result: the values of a contender's step, by round.

Ratios are taken pair by pair: a peer's seconds over ours in the same round, then the median of
these, so that a slow minute of the machine falls on both sides.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


def is_ours(name: str) -> bool:
    """Tell whether a contender is bucketlake, and not a peer."""
    return name.startswith("bucketlake")


@dataclass(frozen=True, slots=True)
class Result:
    """A result file."""

    content: Mapping[str, Any]

    @property
    def row_count(self) -> int:
        """Rows of the load."""
        return int(self.content["data"]["rows"])

    @property
    def settings(self) -> Mapping[str, Any]:
        """The options of the run."""
        found: Mapping[str, Any] = self.content["settings"]
        return found

    @property
    def names(self) -> list[str]:
        """Contenders with figures, in their order."""
        return [name for name in self.content["contenders"] if self.rounds(name)]

    @property
    def has_spark(self) -> bool:
        """Whether any contender runs on Spark."""
        return any("spark" in self.facts(name)["versions"] for name in self.names)

    @property
    def failures(self) -> dict[str, str]:
        """The error of each contender that failed."""
        contenders = self.content["contenders"]
        return {name: each["error"] for name, each in contenders.items() if "error" in each}

    @property
    def round_count(self) -> int:
        """How often each contender took its turn; a run may have been stopped before its end."""
        return max((len(self.rounds(name)) for name in self.names), default=0)

    def facts(self, name: str) -> Mapping[str, Any]:
        """Return the versions and settings of a contender."""
        found: Mapping[str, Any] = self.content["contenders"][name]
        return found

    def rounds(self, name: str) -> list[Mapping[str, Any]]:
        """Return what was measured of a contender, by round; nothing if it did not run."""
        found: list[Mapping[str, Any]] = self.content["contenders"].get(name, {}).get("rounds", [])
        return found

    def first(self, name: str, step: str) -> Mapping[str, Any]:
        """Return what was measured of a step in the first round; nothing if it did not run."""
        found: Mapping[str, Any] = {}
        for each in self.rounds(name)[:1]:
            found = each.get(step, found)
        return found

    def values(self, name: str, step: str, field: str = "seconds") -> list[Any]:
        """Return a measured value of a contender's step, by round."""
        steps = (each[step] for each in self.rounds(name) if step in each)
        return [found[field] for found in steps if field in found]

    def median(self, name: str, step: str, field: str = "seconds") -> float:
        """Return the median of a measured value."""
        return float(statistics.median(self.values(name, step, field)))

    def ratios(self, step: str, over: str, under: str, field: str = "seconds") -> list[float]:
        """Return one contender's value over another's, round by round."""
        pairs = zip(self.values(over, step, field), self.values(under, step, field), strict=False)
        return [above / below for above, below in pairs]

    def ranked(self, step: str, field: str = "seconds") -> list[str]:
        """Return the contenders that have the step: ours first, then by its median."""
        names = [name for name in self.names if self.values(name, step, field)]
        return sorted(names, key=lambda n: (not is_ours(n), self.median(n, step, field)))

    def busy_share(self, names: Collection[str], steps: Collection[str]) -> float:
        """Return how much of the machine other processes used, as a median over steps."""
        others = [
            seen.get("other_cpu_share", 0.0)
            for name in names or self.names
            for each in self.rounds(name)
            for step, seen in each.items()
            if not steps or step in steps
        ]
        return statistics.median(others) if others else 0.0

    @property
    def words(self) -> dict[str, Any]:
        """What the texts of a page may name: data, settings and rounds."""
        data, count = self.content["data"], self.round_count
        updates, inserts = data.get("updates", 0), data.get("inserts", 0)
        return {
            **data,
            **self.settings,
            "millions": f"{data['rows'] / 1e6:g}",
            "changes": updates + inserts,
            "updates_k": f"{updates / 1e3:,.0f}",
            "inserts_k": f"{inserts / 1e3:,.0f}",
            "changes_k": f"{(updates + inserts) / 1e3:,.0f}",
            "cores": self.content["machine"]["cores"],
            "round_count": count,
            "rounds": f"{count} round{'s' if count != 1 else ''}",
        }


def spread(numbers: Sequence[float]) -> str:
    """Median, minimum and maximum; the number itself where there is one."""
    middle = statistics.median(numbers)
    if len(numbers) == 1:
        return f"{middle:.2f}"
    return f"**{middle:.2f}** ({min(numbers):.2f} to {max(numbers):.2f})"


def factor(ratios: Sequence[float]) -> str:
    """The median of ratios; a dash if nothing was measured."""
    return f"{statistics.median(ratios):.2f}x" if ratios else "–"


def factors(ratios: Sequence[float]) -> str:
    """The median, minimum and maximum of ratios."""
    return f"{factor(ratios)} ({min(ratios):.2f} to {max(ratios):.2f})"


def met(holds: bool) -> str:
    """The verdict on an aim."""
    return "met" if holds else "**missed**"
