"""A contender's process, seen from the runner."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.common.process import ContenderError, ContenderProcess, run_alone
from benchmarks.common.rows import DataSet

ECHO = """
from benchmarks.common.benchmark import Contender

class Echo:
    def load(self, data, table):
        print("noise on standard output")
    def upsert(self, data, table, *arguments):
        raise ValueError(f"no such thing as {arguments}")
    def read(self, data, table):
        return {"rows": 3}
    def settle(self):
        pass
    def observe(self, step, table):
        return {"after": step}
    def facts(self):
        return {"versions": {"echo": "1"}, "settings": {}}

class BENCHMARK:
    contenders = [Contender("echo", lambda settings: Echo())]
"""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "echo_benchmark.py").write_text(ECHO)
    monkeypatch.setattr("benchmarks.common.process.EXTRA_PATHS", (str(tmp_path),))
    log = tmp_path / "echo.log"
    return lambda: ContenderProcess("echo_benchmark", ["echo"], sys.executable, {}, log)


@pytest.fixture
def echo(start):
    process = start()
    yield process
    process.close()


def test_a_process_answers_through_its_noise_and_reports_what_a_step_saw(
    echo: ContenderProcess, tmp_path: Path
) -> None:
    data = DataSet(tmp_path)
    loaded = echo.run("load", "echo", data, tmp_path)
    assert loaded["after"] == "load"
    assert loaded["seconds"] >= 0
    assert json.loads(json.dumps(loaded)) == loaded
    assert echo.run("read", "echo", data, tmp_path)["checksum"] == {"rows": 3}


def test_a_failing_step_is_told_with_its_traceback_and_the_process_goes_on(
    echo: ContenderProcess, tmp_path: Path
) -> None:
    data = DataSet(tmp_path)
    with pytest.raises(ContenderError, match=r"no such thing as .'7'"):
        echo.run("upsert-7", "echo", data, tmp_path)
    assert echo.run("read", "echo", data, tmp_path)["checksum"] == {"rows": 3}


def test_a_step_alone_tells_the_seconds_of_its_whole_process(start, tmp_path: Path) -> None:
    answer = run_alone(start, "read", "echo", DataSet(tmp_path), tmp_path)
    assert answer["checksum"] == {"rows": 3}
    assert 0 < answer["session_seconds"] <= answer["seconds"] + 0.01
    assert answer["cpu_seconds"] > 0


def test_a_process_that_does_not_start_is_an_error(echo: ContenderProcess) -> None:
    assert echo.facts == {"echo": {"versions": {"echo": "1"}, "settings": {}}}
    with pytest.raises(ContenderError, match="no_such_benchmark"):
        ContenderProcess("no_such_benchmark", ["echo"], sys.executable, {}, echo._log_path)
