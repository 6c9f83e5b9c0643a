"""What an ingest tells of itself: a log line for each batch, JSON lines, a text for Prometheus."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from bucketlake.actions.progress import LOGGER
from bucketlake.errors import ConfigError, StorageError
from bucketlake.model.result import Shown, WriteResult
from bucketlake.storage.user_file import local_file

_HELP = {
    "batches": "Batches that were committed.",
    "rows": "Rows that were inserted or updated.",
    "deleted": "Rows that were deleted, as far as writes know it.",
    "dead_letters": "Rows that went to the table of dead letters.",
    "files": "Files that were taken.",
    "bytes": "Bytes of the files, or of the messages.",
    "seconds": "Time spent on batches.",
    "lag": "What was left of the source after the last batch: files, or rows of a topic.",
}


@dataclass(frozen=True, slots=True)
class IngestReport(Shown):
    """What an ingest did.

    Attributes
    ----------
    batches : int
        Batches that were committed.
    rows : int
        Rows that were inserted or updated.
    deleted : int
        Rows that were deleted, as far as the writes know it.
    dead_letters : int
        Rows that went to the table of dead letters, or with ``replay`` stayed there.
    files : int
        Files that were taken; 0 for other sources.
    bytes : int
        Bytes of the files, or of the messages as they are in memory (an estimate where tasks of
        Spark decode them); 0 for a stream.
    seconds : float
        Time spent on batches.
    lag : int or None
        What was left of the source after the last batch: files, or rows of a topic. None for a
        stream (see Spark's progress) and for dead letters.
    preview : pa.Table or None
        With ``dry_run``: what the first rows become.
    """

    batches: int = 0
    rows: int = 0
    deleted: int = 0
    dead_letters: int = 0
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    lag: int | None = 0
    preview: pa.Table | None = field(default=None, repr=False)


@dataclass(slots=True)
class Metrics:
    """Counts the batches of one ingest, by table, and tells of each.

    Parameters
    ----------
    paths : sequence of str
        Files: JSON lines are appended to a ``.jsonl``, and a ``.prom`` is replaced.
    by_table : dict
        What was done for each table.
    """

    paths: Sequence[str] = ()
    by_table: dict[str, IngestReport] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ConfigError for a file of another kind."""
        for path in self.paths:
            if not path.endswith((".jsonl", ".prom")):
                raise ConfigError("metrics", path, "give files that end with .jsonl or .prom")

    def add(
        self, table: str, result: WriteResult, dead: int, seconds: float, facts: Mapping[str, int]
    ) -> None:
        """Count a batch, and tell of it."""
        is_done = result.instant is not None
        now = {
            "batches": int(is_done),
            "rows": result.written,
            "deleted": result.deleted or 0,
            "dead_letters": dead,
            "files": facts.get("files", 0) * is_done,
            "bytes": facts.get("bytes", 0) * is_done,
            "seconds": seconds,
        }
        before = self.by_table.get(table, IngestReport())
        sums = {name: getattr(before, name) + value for name, value in now.items()}
        known = {"lag": facts["lag"]} if "lag" in facts else {}
        self.by_table[table] = IngestReport(**{**sums, "lag": None, **known})
        told = {"table": table, "instant": result.instant, **now, **known}
        LOGGER.info("ingest %s", " ".join(f"{name}={_text(value)}" for name, value in told.items()))
        told["at"] = round(time.time(), 3)
        for path in self.paths:
            try:
                if path.endswith(".prom"):
                    with local_file(path) as unfinished:
                        unfinished.write_text(self.prometheus())
                else:
                    with Path(path).open("a", encoding="utf-8") as lines:
                        lines.write(json.dumps(told) + "\n")
            except (StorageError, OSError) as error:  # The table is right without them.
                LOGGER.warning("ingest: metrics %s: %s", path, error)

    def total(self) -> IngestReport:
        """Return the sums over all tables."""
        every = [*self.by_table.values()]
        told = {n: [v for r in every if (v := getattr(r, n)) is not None] for n in _HELP}
        sums: dict[str, Any] = {n: sum(v) if v or not every else None for n, v in told.items()}
        return IngestReport(**sums)

    def prometheus(self) -> str:
        """Return the text that Prometheus' node exporter reads."""
        lines: list[str] = []
        for name, text in _HELP.items():
            kind = "gauge" if name == "lag" else "counter"
            full = f"bucketlake_ingest_{name}" + ("" if kind == "gauge" else "_total")
            lines += [f"# HELP {full} {text}", f"# TYPE {full} {kind}"]
            for table, report in sorted(self.by_table.items()):
                if getattr(report, name) is None:
                    continue
                label = table.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
                lines.append(f'{full}{{table="{label}"}} {_text(getattr(report, name))}')
        return "\n".join(lines) + "\n"


def _text(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
