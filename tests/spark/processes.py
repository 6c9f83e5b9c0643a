"""Processes of tests: driver programs, and a Spark cluster of two workers on this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from tests.waiting import SECONDS_MAX, wait_until

ROOT = Path(__file__).parents[2]
WORKER_HOSTS = ["127.0.0.1", "127.0.0.2"]
DRIVER_SECONDS_MAX = 2 * SECONDS_MAX  # It waits itself, and then says for what.

# Runs a command until it ends or until the process of the tests has died, however that died. What
# the command has started dies with it.
_GUARDED = """
(while kill -0 $PPID && kill -0 $$; do sleep 1; done; kill -KILL 0) > /dev/null 2>&1 &
exec "$@"
"""


def environment() -> dict[str, str]:
    """Return the environment of a process that can import the tests and bucketlake."""
    folders = [str(ROOT), str(ROOT / "src")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(folders),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "LC_ALL": "C.UTF-8",
    }


def start_driver(name: str, *arguments: object, log: Path) -> subprocess.Popen[str]:
    """Start a driver program in a process group of its own; its errors go to the log."""
    command = [sys.executable, "-m", f"tests.spark.drivers.{name}", *map(str, arguments)]
    with log.open("w") as errors:
        return _start(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=errors)


def _start(
    command: list[str],
    *,
    cwd: Path,
    env: dict[str, str],
    stdout: int | IO[str],
    stderr: int | IO[str],
) -> subprocess.Popen[str]:
    """Start a command in a process group of its own, which does not outlive this process."""
    return subprocess.Popen(
        ["bash", "-c", _GUARDED, "guarded", *command],
        cwd=cwd, env=env, stdout=stdout, stderr=stderr, text=True, start_new_session=True,
    )  # fmt: skip


def run_driver(name: str, *arguments: object, log: Path) -> Any:
    """Run a driver program to its end and return what it reports."""
    process = start_driver(name, *arguments, log=log)
    try:
        output, _ = process.communicate(timeout=DRIVER_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise AssertionError(
            f"{name} still ran after {DRIVER_SECONDS_MAX} s: {tail(log)}"
        ) from None
    finally:
        kill_group(process)
    assert process.returncode == 0, f"{name}: {tail(log)}"
    return json.loads(output.strip().splitlines()[-1])


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a process that was started here, and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def tail(log: Path, lines: int = 25) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Run a standalone Spark cluster with a worker on each of two addresses; yield its master."""
    import pyspark

    home = Path(pyspark.__file__).parent
    port = _free_port()
    master = f"spark://127.0.0.1:{port}"
    processes = [
        _start_java(
            home, folder / "master", "127.0.0.1",
            "org.apache.spark.deploy.master.Master",
            "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0",
        )
    ]  # fmt: skip
    try:
        _wait_for(processes[0], folder / "master" / "log", "I have been elected leader")
        for host in WORKER_HOSTS:
            processes.append(
                _start_java(
                    home, folder / host, host,
                    "org.apache.spark.deploy.worker.Worker",
                    "--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0",
                    "--work-dir", str(folder / host), master,
                )
            )  # fmt: skip
        for process, host in zip(processes[1:], WORKER_HOSTS, strict=True):
            _wait_for(process, folder / host / "log", "Successfully registered with master")
        yield master
    finally:
        for process in reversed(processes):
            kill_group(process)


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Run a Spark Connect server with two cores; yield its address."""
    import pyspark

    port = _free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }
    process = _start_java(
        Path(pyspark.__file__).parent, folder / "server", "127.0.0.1",
        "org.apache.spark.deploy.SparkSubmit", "--master", "local[2]",
        "--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        *(word for key, value in settings.items() for word in ("--conf", f"{key}={value}")),
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal",
        memory="1g",
    )  # fmt: skip
    try:
        _wait_for(process, folder / "server" / "log", "Spark Connect server started")
        yield f"sc://127.0.0.1:{port}"
    finally:
        kill_group(process)


def _start_java(
    home: Path, folder: Path, host: str, *command: str, memory: str = "256m"
) -> subprocess.Popen[str]:
    folder.mkdir(parents=True)
    variables = {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_MEMORY": memory,
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    with (folder / "log").open("w") as log:
        return _start(
            [str(home / "bin" / "spark-class"), *command],
            cwd=folder,
            env=environment() | variables,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _wait_for(process: subprocess.Popen[str], log: Path, words: str) -> None:
    def says_so() -> bool:
        assert process.poll() is None, f"the process ended: {tail(log)}"
        return words in log.read_text(errors="replace")

    wait_until(says_so, lambda: f"{log} does not say '{words}': {tail(log)}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
