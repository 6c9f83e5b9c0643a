"""The documents are true: links lead somewhere, code runs, what they name is there."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import pytest

from bucketlake.cli.main import main as command_line
from bucketlake.storage import location
from tests.guides import FENCE, ROOT, blocks, run_blocks

FOLDERS = ("docs", "tests", "examples", "benchmarks")
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))]
)
GUIDES = [path for path in DOCUMENTS if path.is_relative_to(ROOT / "docs") or path.parent == ROOT]
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
CODE_SPAN = re.compile(r"`([^`\n]+)`")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def prose(path: Path) -> str:
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def each_document(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=map(relative, paths))


# ---- links and names ----------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as its viewer makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


@each_document(DOCUMENTS)
def test_every_relative_link_leads_to_a_page_and_its_heading(path: Path) -> None:
    broken = []
    for match in LINK.finditer(prose(path)):
        target, _, anchor = match["target"].partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        page = (path.parent / target).resolve() if target else path
        if not page.exists() or (anchor and anchor not in anchors(page)):
            broken.append(match["target"])
    assert broken == []


FOREIGN_HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"), ("pythonhosted", "org"), ("maven", "org"), ("apache", "org/maven2"),
        ("npmjs", "com"), ("crates", "io"), ("deb", "debian", "org"),
    )
]  # fmt: skip
MACHINE_PATHS = [f"/{folder}/" for folder in ("work", "root", "farm", "home")]


@each_document(DOCUMENTS)
def test_no_document_names_a_registry_or_a_path_of_one_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [word for word in (*FOREIGN_HOSTS, *MACHINE_PATHS) if word in text] == []


@cache
def names_of_tests() -> set[str]:
    names = set()
    for file in (ROOT / "tests").rglob("*.py"):
        names |= {file.stem, *re.findall(r"^ *def (test_\w+)", file.read_text("utf-8"), re.M)}
    return names


@each_document(GUIDES)
def test_every_test_that_a_document_cites_is_there(path: Path) -> None:
    cited = set(re.findall(r"\btest_\w+", path.read_text(encoding="utf-8")))
    assert sorted(cited - names_of_tests() - {"test_"}) == []


IS_A_PATH = re.compile(
    r"(?:tests|docs|src|scripts|benchmarks|examples)/[\w./-]*|[\w/-]+/[\w-]+\.py"
)


@each_document(GUIDES)
def test_every_file_that_a_document_names_is_there(path: Path) -> None:
    named = {span for span in CODE_SPAN.findall(prose(path)) if IS_A_PATH.fullmatch(span)}
    places = (ROOT, ROOT / "src" / "bucketlake")
    assert [n for n in sorted(named) if not any((place / n).exists() for place in places)] == []


@each_document(GUIDES)
def test_commands_shown_are_scripts_and_commands_that_there_are(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    shown = [m["code"] for m in FENCE.finditer(text) if m["language"] == "bash"]
    shown = [line for code in shown for line in code.splitlines()]
    shown += [
        span for span in CODE_SPAN.findall(prose(path)) if re.match(r"scripts/|bucketlake ", span)
    ]
    for line in shown:
        words = line.partition("#")[0].split()
        if words and words[0].startswith("scripts/"):
            assert (ROOT / words[0]).exists(), line
        if words[:1] == ["bucketlake"] and len(words) > 1 and "|" not in line and "·" not in line:
            assert words[1] in command_line.commands, line
            options = {o for p in command_line.commands[words[1]].params for o in p.opts}
            options |= {o for p in command_line.commands[words[1]].params for o in p.secondary_opts}
            used = {word.partition("=")[0] for word in words if word.startswith("-")}
            assert used - options - {"--help", "--version"} == set(), line


@each_document(GUIDES)
def test_json_shown_is_json(path: Path) -> None:
    for _, code in blocks(path, "json"):
        json.loads(code)


# ---- code that runs -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("x = 1\nprint(x)  # prints 1", None),
        ("print(2)  # prints 1", AssertionError),
        ("print(never_made)", NameError),
    ],
)
def test_page_that_promises_what_does_not_happen_fails(
    code: str, outcome: type[Exception] | None
) -> None:
    with pytest.raises(outcome) if outcome else nullcontext():
        run_blocks([("python", code)], "page", {})


def test_command_on_a_page_that_fails_is_a_failure() -> None:
    with pytest.raises(AssertionError, match="nowhere"):
        run_blocks([("bash", "bucketlake show nowhere\n")], "page", {})


def test_conditional_put_probe_of_the_guide_tells_a_store_that_has_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The probe says so where a second put wins, and not only where all is well."""

    class CarelessStorage:
        def put_if_absent(self, path: str, data: bytes) -> None: ...

        def delete(self, path: str) -> None: ...

    monkeypatch.setattr(location, "open_storage", lambda *_: CarelessStorage())
    (probe,) = [
        code
        for _, code in blocks(ROOT / "docs/how-to/object-stores.md", "python")
        if "put_if_absent" in code
    ]
    exec(probe, {"storage_options": None})
    assert "no conditional put" in capsys.readouterr().out
