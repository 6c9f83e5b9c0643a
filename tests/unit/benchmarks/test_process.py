"""A contender's process, seen from the runner."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.common.process import ContenderError, ContenderProcess
from benchmarks.common.rows import DataSet

ECHO = """
import sys
from benchmarks.common.process import serve

class Echo:
    def load(self, data, table):
        print("noise on standard output")
    def upsert(self, data, table):
        raise ValueError("no such thing")
    def read(self, table):
        return {"rows": 3}
    def settle(self):
        pass
    def observe(self, step, table):
        return {"after": step}
    def facts(self):
        return {"versions": {}, "settings": {}}

serve(lambda settings: {"echo": Echo()})
"""


@pytest.fixture
def echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "echo_contender.py").write_text(ECHO)
    monkeypatch.setattr("benchmarks.common.process.EXTRA_PATHS", (str(tmp_path),))
    process = ContenderProcess("echo_contender", sys.executable, {}, tmp_path / "echo.log")
    yield process
    process.close()


def test_a_process_answers_through_its_noise_and_reports_what_a_step_saw(
    echo: ContenderProcess, tmp_path: Path
) -> None:
    data = DataSet(tmp_path)
    loaded = echo.run("load", "echo", data, tmp_path, timeout_s=30)
    assert loaded["after"] == "load"
    assert loaded["seconds"] >= 0
    assert json.loads(json.dumps(loaded)) == loaded
    assert echo.run("read", "echo", data, tmp_path, timeout_s=30)["checksum"] == {"rows": 3}


def test_a_failing_step_is_told_with_its_traceback_and_the_process_goes_on(
    echo: ContenderProcess, tmp_path: Path
) -> None:
    data = DataSet(tmp_path)
    with pytest.raises(ContenderError, match="no such thing"):
        echo.run("upsert", "echo", data, tmp_path, timeout_s=30)
    assert echo.run("read", "echo", data, tmp_path, timeout_s=30)["checksum"] == {"rows": 3}
