"""A file of the crowds that were run, so that pieces of a long run add up; a JSON object a line."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from tests.conformance.kinds import kind_of_seed

_SEED = re.compile(r"seed (\d+): ")


@dataclass(frozen=True)
class CrowdRuns:
    """One piece.

    Attributes
    ----------
    kind : str
        The index kind; ``all`` if each seed picked one.
    first, last : int
        The seeds, both included.
    commit : str
        The commit of the code.
    seconds : int
        How long the piece took.
    failures : list of int
        The seeds that failed.
    kinds : dict of str to (int, float)
        How many crowds each kind had, and their processor seconds.
    """

    kind: str
    first: int
    last: int
    commit: str
    seconds: int
    failures: list[int]
    kinds: dict[str, tuple[int, float]]

    @classmethod
    def of(
        cls,
        kind: str | None,
        seeds: range,
        findings: Sequence[str],
        seconds: float,
        taken: Sequence[float],
    ) -> Self:
        """Return what was run with the code of this checkout; ``taken`` are seconds by seed."""
        asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
        asked += ["--abbrev=12", "--exclude=*"]
        commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
        failed = sorted(int(found[1]) for each in findings if (found := _SEED.match(each)))
        kinds: dict[str, tuple[int, float]] = {}
        for seed, cpu in zip(seeds, taken, strict=True):
            name = kind_of_seed(seed, kind)[0].name
            count, sum_ = kinds.get(name, (0, 0.0))
            kinds[name] = count + 1, round(sum_ + cpu, 2)
        ends = min(seeds), max(seeds)
        return cls(kind or "all", *ends, commit, round(seconds), failed, kinds)

    def add_to(self, path: Path) -> None:
        """Add the piece to a file."""
        with path.open("a") as lines:
            lines.write(json.dumps(asdict(self)) + "\n")


def totals(path: Path) -> Iterator[str]:
    """Yield for each kind what the pieces of a file add up to."""
    counts, failed = Counter[str](), Counter[str]()
    cpu: dict[str, float] = defaultdict(float)
    for line in path.read_text().splitlines():
        runs = json.loads(line)
        for name, (count, seconds) in runs["kinds"].items():
            counts[name] += count
            cpu[name] += seconds
        one = None if runs["kind"] == "all" else runs["kind"]
        failed.update(kind_of_seed(seed, one)[0].name for seed in runs["failures"])
    for name, count in sorted(counts.items()):
        rate = count / cpu[name] if cpu[name] else 0
        yield f"{name}: {count:,} runs, {failed[name]} failed, {rate:.1f} a processor second"
    yield f"all kinds: {counts.total():,} runs, {failed.total()} failed"
