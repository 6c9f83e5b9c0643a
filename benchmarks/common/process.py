"""A contender's process: JSON lines in, JSON lines out, one step at a time.

`serve` is the child's side: it times a step inside the process. `ContenderProcess` is the runner's
side: it has the file system and the heap settled before a step, and watches what the step uses.
Standard library only, since children run on interpreters of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from benchmarks.common.rows import DataSet
from benchmarks.common.usage import ProcessTree

REPOSITORY = Path(__file__).resolve().parents[2]
EXTRA_PATHS: tuple[str, ...] = ()  # Where else a child looks for its module.


class Contender(Protocol):
    """One system under one set of options.

    A benchmark's further steps are methods like `load`, by name. `read` returns the sums of
    `rows.CHECKSUM_SQL` over the table. Each step is timed as a whole, `facts` and `observe` are
    not.
    """

    def load(self, data: DataSet, table: Path) -> None: ...

    def read(self, table: Path) -> dict[str, int]: ...

    def settle(self) -> None:
        """Leave nothing of the last step to run inside the next one's time."""

    def observe(self, step: str, table: Path) -> dict[str, Any]:
        """What is worth telling of the step that has just run: rows by task, and the like."""

    def facts(self) -> dict[str, Any]:
        """Versions and settings, for the result file."""


def serve(contenders: Callable[[Mapping[str, Any]], Mapping[str, Contender]]) -> None:
    """Answer the runner's requests until it closes the pipe.

    The first line holds the settings from which `contenders` builds what this process offers.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Whatever a JVM prints must not reach the runner's pipe.
    requests = (json.loads(line) for line in sys.stdin)
    offered: Mapping[str, Contender] = {}
    for request in requests:
        try:
            if request["step"] == "start":
                offered = contenders(request["settings"])
                answer = {name: contender.facts() for name, contender in offered.items()}
            else:
                answer = _run_step(offered[request["contender"]], request)
        except BaseException:
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")


def _run_step(contender: Contender, request: Mapping[str, Any]) -> dict[str, Any]:
    step, table, data = request["step"], Path(request["table"]), DataSet(Path(request["data"]))
    if step == "settle":
        contender.settle()
        os.sync()  # Pages that another contender left dirty are not written back on our time.
        return {}
    if step == "observe":
        return contender.observe(request["after"], table)
    started = time.perf_counter()
    sums = contender.read(table) if step == "read" else getattr(contender, step)(data, table)
    seconds = time.perf_counter() - started
    return {"seconds": seconds} if sums is None else {"seconds": seconds, "checksum": sums}


def child_environment(python: str) -> dict[str, str]:
    """Return the environment of a child that runs on an interpreter of its own."""
    paths = [str(REPOSITORY), str(REPOSITORY / "src"), *EXTRA_PATHS]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
    }
    environment.pop("SPARK_HOME", None)  # Each interpreter brings the Spark that it measures.
    return environment


class ContenderError(RuntimeError):
    """A contender's step failed; the text holds its traceback and the end of its log."""


class ContenderProcess:
    """One long-lived process that holds a family of contenders, warm between steps."""

    def __init__(
        self, module: str, python: str, settings: Mapping[str, Any], log_path: Path
    ) -> None:
        self.module, self.log_path = module, log_path
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.open("w") as log:
            self._process = subprocess.Popen(
                [python, "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=child_environment(python),
                cwd=REPOSITORY,
                text=True,
                start_new_session=True,  # Ctrl-C reaches the runner, which then closes the pipes.
            )
        self.tree = ProcessTree(self._process.pid)
        try:
            self.facts: dict[str, Any] = self._ask({"step": "start", "settings": settings}, 900)
        except ContenderError:
            self.close()
            raise

    def run(
        self, step: str, contender: str, data: DataSet, table: Path, *, timeout_s: float
    ) -> dict[str, Any]:
        """Run one step and return its seconds, what was observed, and what it used.

        Settling before it and observing after it are not part of its seconds or its usage.
        """
        where = {"contender": contender, "data": str(data.path), "table": str(table)}
        self._ask({"step": "settle", **where}, timeout_s)
        with self.tree.watch() as peak:
            answer = self._ask({"step": step, **where}, timeout_s)
        seen = self._ask({"step": "observe", "after": step, **where}, timeout_s)
        return {**answer, **seen, **peak.facts()}

    def close(self) -> None:
        """Close the pipe, which ends the child, and wait for it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # It has ended already.
            self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._kill()
            self._process.wait()
        self._process.stdout.close()

    def _ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._process.poll() is not None:
            raise ContenderError(f"{self.module} has ended\n{self._log_end()}")
        watchdog = threading.Timer(timeout_s, self._kill)
        watchdog.start()
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            raise ContenderError(
                f"{self.module} ended during {request['step']} (limit {timeout_s:.0f} s)\n"
                f"{self._log_end()}"
            )
        answer = json.loads(line)
        if "error" in answer:
            raise ContenderError(f"{self.module}: {answer['error']}\n{self._log_end()}")
        return answer

    def _kill(self) -> None:
        """End the child and what it started: a JVM, its Python workers."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _log_end(self) -> str:
        return f"{self.log_path}:\n" + self.log_path.read_text(errors="replace")[-3000:]
