"""The budget of the code (``tests/architecture.py``) holds, and its measures count right."""

from __future__ import annotations

import ast

import pytest

from tests import architecture
from tests.architecture import CEILINGS, MEASURES, Module


@pytest.mark.parametrize("measure", MEASURES)
def test_a_figure_of_the_code_is_not_above_its_ceiling(measure: str) -> None:
    places = sorted(MEASURES[measure]())
    assert len(places) <= CEILINGS[measure], (
        f"{measure}: {len(places):,}, and the ceiling is {CEILINGS[measure]:,}. Simplify, or raise "
        "the ceiling in tests/architecture.py with a decision record (docs/decisions/) that says "
        f"why. Counted: {', '.join(places[-200:])}"
    )


def test_each_measure_has_a_ceiling_and_each_ceiling_a_measure() -> None:
    assert CEILINGS.keys() == MEASURES.keys()


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "write/one.py": '"""Text."""\nfrom bucketlake.write import two\n\nSHARED = 1\n\n\n'
        "class A:\n    # A comment.\n    def f(self, a, b, c, d, e, g, h, i):\n"
        '        """Text."""\n        return isinstance(a, SimpleBucket)\n',
        "write/two.py": "SHARED = 2\n\n\ndef late():\n    from bucketlake.write import one\n\n"
        "    take_turn(1)\n    complete_instant(1)\n    claim_commit(2)\n"
        "    return one  # noqa: X\n",
        "index/two.py": "class SimpleBucket:\n    def f(self, x):\n"
        "        return isinstance(x, SimpleBucket)\n",
        "merge/long.py": "def long():\n" + "    print()\n" * 60,
        "merge/names.py": "def kept(t):\n    return [n for n in t if n in t.names]\n",
    }
    made = tuple(Module(path, text, ast.parse(text)) for path, text in texts.items())
    monkeypatch.setattr(architecture, "modules", lambda: made)
    architecture.kinds_and_layouts.cache_clear()


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize(
    ("measure", "count", "place"),
    [
        ("code lines", 5 + 7 + 3 + 61 + 2, "write/one.py:9"),
        ("classes of the write path", 2, "write/one.py:7 A"),
        ("places that take a turn", 1, "write/two.py:7"),
        ("modules that claim a commit", 1, "write/two.py"),
        ("calls of complete_instant", 1, "write/two.py:8"),
        ("isinstance on kinds and layouts outside index/", 1, "write/one.py:11"),
        ("public names defined in two modules", 1, "SHARED: write/one.py, write/two.py"),
        ("file names twice", 1, "two.py: write/two.py, index/two.py"),
        ("functions over 60 code lines", 1, "merge/long.py:1 long: 61 lines"),
        ("functions over 7 parameters", 1, "write/one.py:9 f: 8 parameters"),
        ("modules under 60 code lines", 4, "index/two.py: 3 lines"),
        ("lists of names asked in a loop", 1, "merge/names.py:2 t.names"),
        ("import circles", 1, "bucketlake.write.one, bucketlake.write.two"),
        ("suppressed warnings", 1, "write/two.py:10"),
    ],
)
def test_a_measure_counts_what_it_names(measure: str, count: int, place: str) -> None:
    places = [*MEASURES[measure]()]
    assert place in places
    assert len(places) == count
    architecture.kinds_and_layouts.cache_clear()
