"""One job: a fresh process starts Spark, takes one step with a contender's table, and ends.

`run_job` is the runner's side: its clock runs from the start of the process to its end. The child
tells what it used, and how long it took until Spark's session was there. Standard library only on
top, since children run on interpreters of their own.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.common.process import REPOSITORY, ContenderError, child_environment
from benchmarks.common.rows import DataSet
from benchmarks.common.usage import core_count, cpu_seconds, machine_cpu_seconds

FACTS, READ = "facts", "read"
"""Steps that are not measured: versions and settings, and the table's sums."""

_ANSWER = "answer: "  # Before it, since a JVM writes to standard output too.
_STOPPING_S = 30.0  # The JVM ends a little after the Python process that started it.


@dataclass(frozen=True, slots=True)
class Job:
    """What a process is to do.

    Attributes
    ----------
    module, contender : str
        Who does it: a module with a function `contenders`, and a name that this offers.
    step : str
        A method of the contender, or `FACTS`.
    data, table : str
        Folders.
    settings : mapping
        Those of the run.
    """

    module: str
    contender: str
    step: str
    data: str
    table: str
    settings: Mapping[str, Any]


def run_job(job: Job, python: str, log_path: Path, limit_s: float) -> dict[str, Any]:
    """Run a job in a process of its own, and return what it answers, with its seconds.

    Raises
    ------
    ContenderError
        If the job fails, or takes longer than the limit.
    """
    log_path.parent.mkdir(parents=True, exist_ok=True)
    os.sync()  # Pages that another contender left dirty are not written back on our time.
    machine_before, started = machine_cpu_seconds(), time.time()
    with log_path.open("w") as log:
        process = subprocess.Popen(
            [python, "-m", "benchmarks.startup.job", json.dumps([asdict(job), started])],
            stdout=subprocess.PIPE,
            stderr=log,
            env=child_environment(python),
            cwd=REPOSITORY,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            output = ""
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        seconds = time.time() - started
        machine = machine_cpu_seconds() - machine_before
        _wait_for_group(process.pid)
        process.wait()
    answers = [line for line in output.splitlines() if line.startswith(_ANSWER)]
    if process.returncode != 0 or not answers:
        log_end = log_path.read_text(errors="replace")[-3000:]
        raise ContenderError(f"{job.contender} failed at {job.step}\n{log_path}:\n{log_end}")
    told: dict[str, Any] = json.loads(answers[-1].removeprefix(_ANSWER))
    others = max(0.0, machine - told.get("cpu_seconds", 0.0)) / (seconds * core_count())
    return {**told, "seconds": seconds, "other_cpu_share": round(others, 3)}


def _wait_for_group(group: int) -> None:
    """Wait until a process and all that it started have ended; end them if they do not."""
    deadline = time.monotonic() + _STOPPING_S
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(0.05)
        os.killpg(group, signal.SIGKILL)


def main(argument: str) -> None:
    """Do the job of this process; the answer is a line of standard output."""
    fields, started = json.loads(argument)
    job = Job(**fields)
    module = importlib.import_module(job.module)
    contender = module.contenders(job.settings)[job.contender]
    session_s = time.time() - started
    answer: dict[str, Any]
    if job.step == FACTS:
        answer = contender.facts()
    elif job.step == READ:
        answer = {"checksum": contender.read(Path(job.table))}
    else:
        getattr(contender, job.step)(DataSet(Path(job.data)), Path(job.table))
        answer = {"session_seconds": round(session_s, 2)}
    used = round(cpu_seconds(os.getpid()), 2)
    contender.spark.stop()
    print(_ANSWER + json.dumps({**answer, "cpu_seconds": used}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
