"""The code on the pages of the documents, run as a reader runs it.

A page is read from top to bottom in an empty folder: its Python in one namespace, its shell
commands between, each as printed. A block whose fence has the word ``elsewhere`` needs what no
test has (a cluster, a company's proxy, an installation); the page says so in words.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", "docs/tutorial.md"]
PAGES += sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/how-to/*.md"))

FENCE = re.compile(
    r"^```(?P<language>\w*)(?P<elsewhere> elsewhere)?\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
PRINTS = re.compile(r"#.*\bprints (.+)$")


def blocks(path: Path, *languages: str) -> list[tuple[str, str]]:
    """Return language and code of the blocks of a page that are to be run."""
    found = FENCE.finditer(path.read_text(encoding="utf-8"))
    return [
        (match["language"], match["code"])
        for match in found
        if match["language"] in languages and not match["elsewhere"]
    ]


def run_page(
    page: str, folder: Path, placeholders: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run a page in an empty folder, and return the names that its Python has set.

    Each placeholder is a text of the page that names a server or a folder of the reader's; it must
    occur in the code, and its value takes its place.
    """
    found = blocks(ROOT / page, "python", "bash")
    printed_page = "".join(code for _, code in found)
    for text, value in (placeholders or {}).items():
        assert text in printed_page, f"{page} has no {text} any more"
        found = [(language, code.replace(text, value)) for language, code in found]
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(folder):
        run_blocks(found, page, names)
    return names


def run_blocks(found: list[tuple[str, str]], page: str, names: dict[str, Any]) -> None:
    """Run blocks of Python and shell one after another, here; the Python sets ``names``."""
    for language, code in found:
        if language == "bash":
            _run_shell(code)
        else:
            _run_python(code, page, names)


def _run_shell(code: str) -> None:
    """Run commands in bash, with the programs of this environment; none may fail."""
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        env=os.environ | {"PATH": paths}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"


def _run_python(code: str, page: str, names: dict[str, Any]) -> None:
    """Run statements; what a comment beside a statement says it prints, it must print."""
    for statement, source in _statements(code):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(ast.Module([statement], []), page, "exec"), names)
        promised = PRINTS.findall(source)
        assert not promised or out.getvalue().strip() == promised[0], source


def _statements(code: str) -> Iterator[tuple[ast.stmt, str]]:
    """Yield each statement with its last line, where its comment stands."""
    lines = code.splitlines()
    for statement in ast.parse(code).body:
        yield statement, lines[(statement.end_lineno or 1) - 1]
