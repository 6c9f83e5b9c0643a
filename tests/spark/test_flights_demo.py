"""The flights demo, as a newcomer runs it: two weeks of the stream, then the commands it names."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "flights" / "demo.py"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        pyspark.__version__ < "4" or importlib.util.find_spec("hudi") is None,
        reason="the demo needs PySpark 4 (DataFrame.toArrow) and hudi-rs",
    ),
]


def run(command: list[str], folder: Path) -> str:
    """Run a command to its end; it must succeed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_demo_ends_well_and_the_commands_it_names_work(tmp_path: Path) -> None:
    text = run([sys.executable, str(DEMO), "--weeks", "2", "--path", "flights"], tmp_path)
    assert "2/2" in text
    answers = re.findall(r"^  .*  (yes|NO): ", text, re.MULTILINE)
    assert answers == ["yes"] * 4
    commands = text.partition("\nTry next\n")[2].replace("\\\n", " ").strip().splitlines()
    assert len(commands) == 4
    for command in commands:
        assert run(shlex.split(command, comments=True), tmp_path)


def test_the_demo_does_not_touch_a_folder_that_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    command = [sys.executable, str(DEMO), "--path", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "holds something that is no table of flights" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
