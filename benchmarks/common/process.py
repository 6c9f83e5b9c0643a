"""A contender's process: JSON lines in, JSON lines out, one step at a time.

`serve` is the child's side: it times a step inside the process. `ContenderProcess` is the runner's
side: it has the file system and the heap settled before a step, and watches what the step uses.
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
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.common.rows import DataSet
from benchmarks.common.usage import (
    ProcessTree,
    core_count,
    cpu_seconds,
    is_group_alive,
    machine_cpu_seconds,
)

REPOSITORY = Path(__file__).resolve().parents[2]
EXTRA_PATHS: tuple[str, ...] = ()  # Where else a child looks for its module.
START_LIMIT_S, STEP_LIMIT_S = 900, 4 * 3_600


class ContenderError(RuntimeError):
    """A contender's step failed or its result is wrong."""


def guarded(work: Callable[[], None], problems: list[BaseException]) -> Callable[[], None]:
    """Return the work of a thread, which adds its error to the problems."""

    def run() -> None:
        try:
            work()
        except BaseException as error:
            problems.append(error)

    return run


def serve(module: str, names: Sequence[str]) -> None:
    """Make contenders of a benchmark, and answer the runner's requests until it closes the pipe."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Whatever a JVM prints must not reach the runner's pipe.
    systems: dict[str, Any] = {}
    for request in map(json.loads, sys.stdin):
        try:
            if request["step"] == "start":
                every = import_module(module).BENCHMARK.contenders
                chosen = [contender for contender in every if contender.name in names]
                systems = {each.name: each.make(request["settings"]) for each in chosen}
                answer = {name: system.facts() for name, system in systems.items()}
            else:
                answer = _answer(systems[request["contender"]], request)
        except BaseException:
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")


def _answer(system: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    step, table, data = request["step"], Path(request["table"]), DataSet(Path(request["data"]))
    if step == "settle":
        system.settle()
        os.sync()  # Pages that another contender left dirty are not written back on our time.
        return {}
    if step == "observe":
        seen: dict[str, Any] = system.observe(request["after"], table)
        return seen
    name, *arguments = step.split("-")
    method = getattr(system, name)
    started = time.perf_counter()
    sums = method(data, table, *arguments)
    seconds = time.perf_counter() - started
    return {"seconds": seconds} if sums is None else {"seconds": seconds, "checksum": sums}


class ContenderProcess:
    """One long-lived process that holds contenders, warm between steps."""

    def __init__(
        self,
        module: str,
        names: Sequence[str],
        python: str,
        settings: Mapping[str, Any],
        log_path: Path,
    ) -> None:
        self._name, self._log_path = ", ".join(names), log_path
        log_path.parent.mkdir(parents=True, exist_ok=True)
        command = [python, "-m", "benchmarks.common.process", module, ",".join(names)]
        with log_path.open("w") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(python),
                cwd=REPOSITORY,
                text=True,
                start_new_session=True,  # Ctrl-C reaches the runner, which then closes the pipes.
            )
        try:
            self.facts = self.ask({"step": "start", "settings": settings}, START_LIMIT_S)
        except ContenderError:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The child's number."""
        return self._process.pid

    def run(self, step: str, contender: str, data: DataSet, table: Path) -> dict[str, Any]:
        """Run one step and return its seconds, what was observed, and what it used.

        Settling before it and observing after it are not part of its seconds or its usage.
        """
        where = {"contender": contender, "data": str(data.path), "table": str(table)}
        self.ask({"step": "settle", **where})
        with ProcessTree(self.pid).watch() as peak:
            answer = self.ask({"step": step, **where})
        seen = self.ask({"step": "observe", "after": step, **where})
        return {**answer, **seen, **peak.facts()}

    def ask(self, request: Mapping[str, Any], limit_s: float = STEP_LIMIT_S) -> dict[str, Any]:
        """Send a request and wait for the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watchdog = threading.Timer(limit_s, self._kill)
        watchdog.start()
        line = ""
        try:
            with contextlib.suppress(BrokenPipeError):  # It has ended already.
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        answer = json.loads(line) if line else {"error": f"ended during {request['step']}"}
        if "error" in answer:
            log_end = self._log_path.read_text(errors="replace")[-3000:]
            raise ContenderError(f"{self._name}: {answer['error']}\n{self._log_path}:\n{log_end}")
        return dict(answer)

    def close(self) -> None:
        """Close the pipe, which ends the child, and wait for it and for all that it started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        deadline = time.monotonic() + 60
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        while is_group_alive(self.pid) and time.monotonic() < deadline:
            time.sleep(0.02)  # The JVM ends a little later.
        self._kill()
        self._process.wait()
        self._process.stdout.close()

    def _kill(self) -> None:
        """End the child and what it started: a JVM, its Python workers."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


def run_alone(
    start: Callable[[], ContenderProcess], step: str, contender: str, data: DataSet, table: Path
) -> dict[str, Any]:
    """Run a step in a process of its own; its seconds are those of the process's whole life."""
    os.sync()
    machine, started = machine_cpu_seconds(), time.perf_counter()
    process = start()
    session = time.perf_counter() - started
    where = {"contender": contender, "data": str(data.path), "table": str(table)}
    try:
        answer = process.ask({"step": step, **where})
        cpu = cpu_seconds(process.pid)
    finally:
        process.close()
    seconds = time.perf_counter() - started
    others = max(0.0, machine_cpu_seconds() - machine - cpu) / (seconds * core_count())
    used = {"cpu_seconds": round(cpu, 2), "other_cpu_share": round(others, 3)}
    return {**answer, **used, "seconds": seconds, "session_seconds": round(session, 2)}


def _environment(python: str) -> dict[str, str]:
    paths = [str(REPOSITORY), str(REPOSITORY / "src"), *EXTRA_PATHS]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
    }
    environment.pop("SPARK_HOME", None)  # Each interpreter brings the Spark that it measures.
    return environment


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2].split(","))
