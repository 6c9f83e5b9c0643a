"""A process of a history: it writes, reads and serves one table, and notes what it does.

Before and after each operation it appends a line to its history file, in the form that
``checker.py`` states. It decides by the class of an error whether an operation failed or may have
happened, as section 6 of docs/guarantees.md says; what is not said there is ``unexpected``.
"""

from __future__ import annotations

import ctypes
import json
import random
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

import bucketlake as bl
from bucketlake.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    LockError,
    StorageError,
    TimelineError,
)
from bucketlake.model.table_type import TableType
from tests.mutants import mutated

SCHEMA = pa.schema(
    [("key", pa.string()), ("part", pa.string()), ("n", pa.int64()), ("by", pa.string())]
)
PARTITIONS = ("p0", "p1", "p2")
COUNTERS = {f"counter{n}": PARTITIONS[n % 3] for n in range(5)}
END = "end"
_DIE_WITH_PARENT = 1, 9  # prctl(2): PR_SET_PDEATHSIG, SIGKILL.

Rows = list[tuple[str, int, str]]


@dataclass(frozen=True)
class Task:
    """What a process is told.

    Attributes
    ----------
    name : str
        Of the process; another one after each start.
    notes : str
        Folder of the history files. When it has a file ``end``, the process begins nothing more.
    clock_ms : int
        How far the clock of the process is ahead.
    weights : dict of str to int
        How often it does what: ``write``, ``read``, ``follow``, ``serve``.
    fault : tuple of str
        Module and name of a function, a part of its source, and what it reads instead; or empty.
    """

    name: str
    path: str
    notes: str
    seed: int
    clock_ms: int
    options: dict[str, str]
    weights: dict[str, int]
    fault: tuple[str, ...] = ()


@dataclass
class Notes:
    """The history file of a process."""

    folder: Path
    process: str
    last: int = 0

    def begin(self, what: str, **facts: object) -> str:
        """Note that an operation begins; return its id."""
        self.last += 1
        self._append(begins=what, **facts)
        return f"{self.process}/{self.last}"

    def end(self, how: str, **facts: object) -> None:
        """Note how the operation ended."""
        self._append(ends=how, **facts)

    def _append(self, **facts: object) -> None:
        line = {"process": self.process, "op": self.last, "at": time.monotonic_ns(), **facts}
        file = self.folder / f"{self.process}.jsonl"
        with file.open("ab", buffering=0) as out:  # A killed process leaves whole lines.
            out.write(json.dumps(line).encode() + b"\n")


@dataclass
class Client:
    """A user of the table, with its notes."""

    path: str
    options: dict[str, str]
    notes: Notes
    chance: random.Random
    deletable: list[tuple[str, str]] = field(default_factory=list)
    followed: dict[str, tuple[str, int, str]] = field(default_factory=dict)
    followed_until: str | None = None
    opened: bl.Table | None = None

    def table(self) -> bl.Table:
        """Return a handle: mostly the last one, as a program that keeps it has."""
        if self.opened is None or self.chance.random() < 0.2:
            self.opened = bl.open_table(self.path, storage_options=self.options)
        return self.opened

    def write(self) -> bool:
        """Upsert a batch once; return whether it reported success."""
        spread = self.chance.sample(PARTITIONS, k=self.chance.randint(1, 3))
        counters = self.chance.sample([*COUNTERS], k=self.chance.randint(1, 3))
        gone = [self.deletable.pop(0)] if self.deletable and self.chance.random() < 0.4 else []
        stem = f"{self.notes.process}/{self.notes.last + 1}"
        stays = [(f"{stem}:{n}", part) for n, part in enumerate(spread)]
        may_go = [(f"{stem}:x", self.chance.choice(PARTITIONS))]
        puts = stays + may_go
        rows = [(key, part, 1, stem, False) for key, part in puts]
        rows += [(key, COUNTERS[key], 1, stem, False) for key in counters]
        rows += [(key, part, 0, stem, True) for key, part in gone]
        columns = zip(*rows, strict=True)
        batch = pa.table(
            [pa.array(values) for values in columns], [*SCHEMA.names, "_hoodie_is_deleted"]
        )
        self.notes.begin(
            "write",
            puts=[key for key, _ in puts],
            adds=dict.fromkeys(counters, 1),
            deletes=[key for key, _ in gone],
        )

        def upsert() -> dict[str, object]:
            self.table().upsert(batch, merge={"n": "sum"})
            return {}

        if is_done := self._noted(upsert):
            self.deletable += may_go
        return is_done

    def read(self, *, final: bool = False) -> bool:
        """Read the whole table."""
        self.notes.begin("read", final=final)
        return self._noted(lambda: {"rows": self._rows()}, may_be_refused=True)

    def follow(self) -> bool:
        """Read what was completed since the last such read."""
        self.notes.begin("follow")
        return self._noted(self._follow, may_be_refused=True)

    def serve(self) -> bool:
        """Run a service."""
        self.notes.begin("serve")
        return self._noted(self._serve, may_be_refused=True)

    def _serve(self) -> dict[str, object]:
        table = self.table()
        services: dict[str, Callable[[], object]] = {
            "clean": lambda: table.clean(retain_commits=self.chance.choice((1, 3))),
            "archive": lambda: table.archive(keep_min=5, keep_max=8),
        }
        if table.config().table_type is TableType.MERGE_ON_READ:
            services["compact"] = lambda: table.compact(min_log_files=2)
        if isinstance(table.index, bl.ConsistentBucket):
            services["resize"] = lambda: table.resize(max_file_size=8_000)
        name = self.chance.choice([*services])
        return {"did": name, "result": str(services[name]())[:200]}

    def _rows(self, **options: Any) -> Rows:
        found = self.table().to_arrow(columns=["key", "n", "by"], **options)
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    def _follow(self) -> dict[str, object]:
        entries = self.table().timeline()
        until = max((str(one.completed_at) for one in entries if one.completed_at), default=None)
        if until is not None and until != self.followed_until:
            try:
                rows = self._rows(since=self.followed_until, until=until)
            except TimelineError:  # A clean deleted what it needs, or what it needs is away.
                self.followed, self.followed_until = {}, None
                raise
            self.followed |= {row[0]: row for row in rows}
            self.followed_until = until
        return {"rows": [*self.followed.values()]}

    def _noted(
        self, operation: Callable[[], Mapping[str, object]], *, may_be_refused: bool = False
    ) -> bool:
        """Carry out the operation that was begun, and note its end; return whether it is done."""
        facts: Mapping[str, object] = {}
        try:
            facts, how = operation(), "ok"
        except CommitOutcomeUnknownError as error:
            how, facts = "unknown", {"error": _said(error)}
        except (CommitConflictError, LockError, StorageError) as error:
            how, facts = "refused" if may_be_refused else "failed", {"error": _said(error)}
        except TimelineError as error:
            how = "refused" if may_be_refused else "unexpected"
            facts = {"error": _said(error), "where": traceback.format_exc()}
        except Exception as error:  # Whatever else it is, section 6 does not promise it.
            how, facts = "unexpected", {"error": _said(error), "where": traceback.format_exc()}
        self.notes.end(how, **facts)
        return how == "ok"


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:600]


def shift_clock(ahead_ms: int) -> None:
    """Let the clock of this process be ahead.

    Only Python's, and with it bucketlake's. S3 servers refuse a request that was signed more than
    15 minutes ago or ahead, so the clock of the S3 client stays right.
    """
    now_ns = time.time_ns
    time.time_ns = lambda: now_ns() + ahead_ms * 10**6
    time.time = lambda: time.time_ns() / 1e9


@contextmanager
def faulty(fault: Sequence[str]) -> Iterator[None]:
    """Run the body with a fault in a function of the source, if one is given."""
    if not fault:
        yield
        return
    module, name, old, new = fault
    with mutated(attrgetter(name)(import_module(module)), (old, new)):
        yield


def main(task: Task) -> None:
    ctypes.CDLL(None).prctl(*_DIE_WITH_PARENT)
    shift_clock(task.clock_ms)
    warnings.simplefilter("ignore")
    notes = Notes(Path(task.notes), task.name)
    client = Client(task.path, task.options, notes, random.Random(task.seed))
    verbs = {what: getattr(client, what) for what in task.weights}
    end = Path(task.notes, END)
    with faulty(task.fault):
        while not end.exists():
            [what] = client.chance.choices([*verbs], [*task.weights.values()])
            verbs[what]()
            time.sleep(client.chance.uniform(0, 0.1))


if __name__ == "__main__":
    main(Task(**json.loads(sys.argv[1])))
