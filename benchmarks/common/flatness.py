"""Which figures of a long run stay flat: its first quarter beside its last one.

A run tells lists of values, such as batches and samples. What a quarter is, the benchmark says: of
the time, or of the commits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.common.figures import Result, met
from benchmarks.common.plot import AIM, Line
from benchmarks.common.tables import listing

QUARTERS = 4
FLAT = 1.5
"""A figure is flat if that of the last quarter is at most so many times that of the first."""

Sample = Mapping[str, Any]
Tell = Callable[[Sample], float | None]

Told = tuple[str, str, Tell, Callable[[Sequence[float]], float], int]
"""A row: its title, which list of the run tells it, how, which of the values, its digits."""


def field(name: str, unit: float = 1) -> Tell:
    """Return what tells a value of a batch or a sample; None where it was not known."""
    return lambda each: None if each[name] is None else each[name] / unit


def percentile_95(values: Sequence[float]) -> float:
    """Return the smallest value that 95 of 100 do not exceed."""
    return sorted(values)[-(-95 * len(values) // 100) - 1]


def table_of_quarters(
    text: str,
    parts: Mapping[str, Sequence[Sample]],
    quarter_of: Callable[[Sample], int],
    judged: Sequence[Told],
    plain: Sequence[Told],
) -> str:
    """Return the table of the quarters.

    Parameters
    ----------
    text : str
        What stands above it.
    parts : mapping of str to sequence of mappings
        The lists of the run.
    quarter_of : callable
        Returns the quarter of a value, from 0; values of others are left out.
    judged, plain : sequence of Told
        The rows whose last quarter is compared with the first, and rows below them.
    """
    rows = []
    for told in (*judged, *plain):
        title, of, tell, form, digits = told
        values: list[list[float]] = [[] for _ in range(QUARTERS)]
        for each in parts[of]:
            value, quarter = tell(each), quarter_of(each)
            if value is not None and 0 <= quarter < QUARTERS:
                values[quarter].append(value)
        found = [form(part) if part else None for part in values]
        cells = ["–" if value is None else f"{value:,.{digits}f}" for value in found]
        verdict = _verdict(found[0], found[-1], digits) if told in judged else ["", ""]
        rows.append([title, *cells, *verdict])
    heads = [f"{n + 1}. quarter" for n in range(QUARTERS)]
    heads = ["<", *heads, "last over first", f"<at most {FLAT:g}x"]
    return listing("First and last quarter", text, heads, rows)


def _verdict(first: float | None, last: float | None, digits: int) -> list[str]:
    """Judge the last quarter by the first."""
    if first is None or last is None:
        return ["–", "–"]
    # What no figure of the table shows is no growth.
    is_flat = last <= FLAT * first or last - first < 10**-digits
    return [f"{last / first:.2f}x" if first else "–", met(is_flat)]


def lines_of_run(seen: Callable[[Result], Mapping[str, Any]]) -> Callable[..., Any]:
    """Return what makes lines over minutes, and a dot for each kill.

    ``seen`` returns the lists of the run; nothing if it did not end.
    """

    def lines(*told: tuple[str, str, Tell, str]) -> Callable[[Result], list[Line]]:
        def make(result: Result) -> list[Line]:
            run = seen(result)
            if not run:
                return []
            made = []
            for title, of, tell, colour in told:
                points = [(each["at"] / 60, tell(each)) for each in run[of] if each["at"] >= 0]
                known = [(at, value) for at, value in points if value is not None]
                made.append(Line(title, known, colour, is_dots=of == "batches"))
            kills = [(each["at"] / 60, 0.0) for each in run["kills"]]
            return [*made, Line("a part is killed", kills, AIM, is_dots=True)] if kills else made

        return make

    return lines
