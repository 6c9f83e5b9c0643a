"""The documents are true: links lead somewhere, code runs, what they name is there."""

from __future__ import annotations

import ast
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.cli.main import main as command_line

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "tests", "examples", "benchmarks")
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))]
)
GUIDES = [path for path in DOCUMENTS if path.is_relative_to(ROOT / "docs") or path.parent == ROOT]
RUN = ["README.md", "docs/tutorial.md", *sorted(f"docs/how-to/{p.name}" for p in GUIDES if
       p.parent.name == "how-to")]  # fmt: skip

FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
CODE_SPAN = re.compile(r"`([^`\n]+)`")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def prose(path: Path) -> str:
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def blocks(path: Path, language: str) -> list[str]:
    text = path.read_text(encoding="utf-8")
    return [match["code"] for match in FENCE.finditer(text) if match["language"] == language]


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
    shown = [line for block in blocks(path, "bash") for line in block.splitlines()]
    shown += [
        span for span in CODE_SPAN.findall(prose(path)) if re.match(r"scripts/|bucketlake ", span)
    ]
    for line in shown:
        words = line.partition("#")[0].split()
        if words and words[0].startswith("scripts/"):
            assert (ROOT / words[0]).exists(), line
        if words[:1] == ["bucketlake"] and len(words) > 1 and "|" not in line and "·" not in line:
            assert words[1] in command_line.commands, line


@each_document(GUIDES)
def test_json_shown_is_json(path: Path) -> None:
    for block in blocks(path, "json"):
        json.loads(block)


# ---- code that runs -----------------------------------------------------------------------------


def orders(count: int) -> pa.Table:
    """Rows that fit every table of the guides' examples."""
    return pa.table(
        {
            **{name: [f"UA{i}" for i in range(count)] for name in ("flight_id", "trip_id")},
            "month": pa.array([1 + i % 2 for i in range(count)], pa.int32()),
            "city": ["Bonn" if i % 2 else "Kyiv" for i in range(count)],
            "dep_delay": [float(i) for i in range(count)],
            "updated_at": list(range(count)),
        }
    )


def trips(path: str) -> bl.Table:
    """A table without a stored index setting, as Hudi makes them."""
    table = bl.create_table(
        path, schema=orders(1).schema, record_key=["trip_id"], partition_by=["city"],
        ordering="updated_at", index=bl.SimpleBucket(16),
    )  # fmt: skip
    table.upsert(orders(40))
    return table


def names_for(document: str, folder: Path) -> dict[str, Any]:
    """What a reader of a guide has in hand."""
    rows = orders(40)
    given: dict[str, Any] = {"df": rows, "changes": rows, "cancelled": rows, "batch": rows}
    given |= {"storage_options": None, "key": "…", "secret": "…", "path": str(folder / "trips")}
    match document:
        case "README.md":
            given["path"] = str(folder / "moved")
            given["options"] = {
                "hoodie.table.name": "flights",
                "hoodie.datasource.write.recordkey.field": "flight_id",
                "hoodie.index.type": "BUCKET",
                "hoodie.bucket.index.num.buckets": "16",
            }
        case "docs/how-to/move-a-hudi-job.md":
            pass
        case "docs/tutorial.md":
            lake = bl.create_table(
                str(folder / "lake" / "trips"), schema=rows.schema, record_key=["trip_id"],
                index=bl.SimpleBucket(8),
            )  # fmt: skip
            lake.upsert(rows)
            (folder / "lake/trips/.hoodie/.bucket_index/ext/engine.json").unlink()
            given = {"new_trips": rows}
        case "docs/how-to/merge-on-read.md":
            given["last_seen"] = "2020-01-01"
        case _:
            given["table"] = trips(given["path"])
            given["instant"] = given["table"].timeline()[0].requested_at
    return given


NEEDS_SPARK = re.compile(r"\bspark\b|\bpyspark\b|\.read\(|s3a://")


def statements(code: str) -> Iterator[tuple[ast.stmt, str]]:
    for statement in ast.parse(code).body:
        yield statement, ast.get_source_segment(code, statement) or ""


def names_set_by(statement: ast.stmt) -> set[str]:
    found = ast.walk(statement)
    return {n.id for n in found if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def names_used_by(statement: ast.stmt) -> set[str]:
    found = ast.walk(statement)
    return {n.id for n in found if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def run_blocks(path: Path, names: dict[str, Any], adapt: Callable[[str], str]) -> tuple[int, str]:
    """Run a guide's Python in order; pass over what needs Spark, and what hangs on that."""
    run, unknown, printed = 0, set(), io.StringIO()
    given = set(names)
    for block in blocks(path, "python"):
        code = adapt(block)
        for statement, source in statements(code):
            if NEEDS_SPARK.search(source) or names_used_by(statement) & unknown:
                unknown |= names_set_by(statement) - given
                continue
            with redirect_stdout(printed):
                exec(compile(ast.Module([statement], []), relative(path), "exec"), names)
            unknown -= names_set_by(statement)
            run += 1
    return run, printed.getvalue()


LEAST_STATEMENTS = {"README.md": 6, "docs/tutorial.md": 14}


@pytest.mark.parametrize("document", RUN)
def test_python_in_a_guide_runs(document: str, tmp_path: Path) -> None:
    def adapt(code: str) -> str:
        return code.replace("/tmp/", f"{tmp_path}/").replace('"/lake/', f'"{tmp_path}/lake/')

    run, printed = run_blocks(ROOT / document, names_for(document, tmp_path), adapt)
    assert run >= LEAST_STATEMENTS.get(document, 1)
    if document == "docs/tutorial.md":
        assert printed.splitlines()[0] == "1"  # The update that the comment beside it promises.
    assert "no conditional put" not in printed


def test_conditional_put_probe_of_the_guide_tells_a_store_that_has_none() -> None:
    """The probe says so where a second put wins, and not only where all is well."""
    (_, probe) = blocks(ROOT / "docs/how-to/object-stores.md", "python")
    code = probe.replace("open_storage(", "careless_storage(")
    assert code.count("careless_storage(") == 1

    class CarelessStorage:
        def put_if_absent(self, path: str, data: bytes) -> None: ...

        def delete(self, path: str) -> None: ...

    printed = io.StringIO()
    names = {"careless_storage": lambda *_: CarelessStorage(), "path": "", "storage_options": None}
    with redirect_stdout(printed):
        exec(code, names)
    assert "no conditional put" in printed.getvalue()
