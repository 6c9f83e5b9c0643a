"""A file of the crowds that were run, so that pieces of a long run add up; a JSON object a line."""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

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
    """

    kind: str
    first: int
    last: int
    commit: str
    seconds: int
    failures: list[int]

    @classmethod
    def of(cls, kind: str | None, seeds: range, findings: Sequence[str], seconds: float) -> Self:
        """Return what was run with the code of this checkout."""
        asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
        asked += ["--abbrev=12", "--exclude=*"]
        commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
        failed = sorted(int(found[1]) for each in findings if (found := _SEED.match(each)))
        return cls(kind or "all", min(seeds), max(seeds), commit, round(seconds), failed)

    def add_to(self, path: Path) -> None:
        """Add the piece to a file."""
        with path.open("a") as lines:
            lines.write(json.dumps(asdict(self)) + "\n")


def totals(path: Path) -> Iterator[str]:
    """Yield for each commit and kind of a file how many different seeds were run and failed."""
    seeds, failed = (
        defaultdict[tuple[str, str], set[int]](set),
        defaultdict[tuple[str, str], set[int]](set),
    )
    for line in path.read_text().splitlines():
        runs = CrowdRuns(**json.loads(line))
        seeds[runs.commit, runs.kind] |= {*range(runs.first, runs.last + 1)}
        failed[runs.commit, runs.kind] |= {*runs.failures}
    for place, ran in seeds.items():
        yield f"{place[0]} {place[1]}: {len(ran):,} seeds, {len(failed[place])} failed"
