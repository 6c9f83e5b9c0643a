"""The example notebook: its code runs from top to bottom, and shows what is stored in it."""

from __future__ import annotations

import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "examples/notebooks"


def run_cell(source: str, names: dict[str, Any]) -> tuple[str, object]:
    """Run a cell; return what it prints, and the value of its last expression."""
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(ast.Module(body, []), "cell", "exec"), names)
        value = None
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return out.getvalue(), value


def shown(value: object) -> dict[str, str]:
    """Return how a notebook shows a value."""
    html = getattr(value, "_repr_html_", None)
    return {"text/plain": repr(value)} | ({} if html is None else {"text/html": html()})


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebook_shows_what_it_stores(path: Path, tmp_path: Path) -> None:
    cells = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    assert len(cells) > 5
    compared = 0
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(tmp_path):
        for cell in cells:
            printed, value = run_cell("".join(cell["source"]), names)
            found = shown(value) if value is not None else {}
            for output in cell["outputs"]:
                if output["output_type"] == "stream":
                    assert printed == "".join(output["text"])
                else:
                    stored = {kind: "".join(text) for kind, text in output["data"].items()}
                    assert found.keys() == stored.keys()
                    if "varies" not in cell["metadata"].get("tags", []):
                        assert found["text/plain"] == stored["text/plain"]
                compared += 1
    assert compared >= 5
