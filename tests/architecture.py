"""The budget of the code: figures of ``src/`` that may fall, and rise only with a decision record.

Each measure lists the places that it counts, so that a failure names them. ``CEILINGS`` has the
greatest number that each may have. A change that lowers a figure lowers its ceiling; a change that
must raise one says why in ``docs/decisions/``. ``python -m tests.architecture`` prints the table.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "bucketlake"
WRITE_PATH = ("write", "flow", "index", "merge")
LINES_OF_A_FUNCTION = 60
PARAMETERS = 7
LINES_OF_A_MODULE = 60
SILENCERS = ("# noqa", "# type: ignore", "simplefilter(", "filterwarnings(")

CEILINGS = {
    "code lines": 61_393,
    "classes of the write path": 121,
    "places that take a turn": 1,
    "modules that claim a commit": 3,
    "calls of complete_instant": 2,
    "isinstance on kinds and layouts outside index/": 0,
    "public names defined in two modules": 0,
    "file names twice": 0,
    "functions over 60 code lines": 0,
    "functions over 7 parameters": 9,
    "modules under 60 code lines": 33,
    "import circles": 0,
    "suppressed warnings": 47,
    "lists of names asked in a loop": 0,
}


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """A file of the source, parsed once."""

    path: str  # Relative to the package, with slashes.
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        return self.path.split("/")[0]

    @property
    def name(self) -> str:
        parts = ["bucketlake", *self.path.removesuffix(".py").split("/")]
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def at(self, node: ast.AST, what: str = "") -> str:
        return f"{self.path}:{getattr(node, 'lineno', 1)} {what}".rstrip()


@cache
def modules() -> tuple[Module, ...]:
    """Parse every file of the source."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(Module(path.relative_to(SOURCE).as_posix(), text, ast.parse(text)))
    return tuple(found)


def code_lines(text: str, tree: ast.AST) -> set[int]:
    """Return the numbers of the lines that hold code: no blank line, comment or docstring."""
    skipped = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            if ast.get_docstring(node, clean=False) is not None:
                lines -= set(range(first.lineno, (first.end_lineno or 0) + 1))
    return lines


@cache
def lines_of(module: Module) -> frozenset[int]:
    return frozenset(code_lines(module.text, module.tree))


def all_code() -> Iterator[str]:
    for module in modules():
        yield from (f"{module.path}:{line}" for line in lines_of(module))


def classes_of_the_write_path() -> Iterator[str]:
    for module in modules():
        if module.room in WRITE_PATH:
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ClassDef):
                    yield module.at(node, node.name)


def calls_of(name: str) -> Iterator[tuple[Module, ast.Call]]:
    for module in modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and name == called_name(node):
                yield module, node


def called_name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return getattr(call.func, "id", "")


def turns() -> Iterator[str]:
    """Places that take a turn in the order of commits."""
    for module, call in calls_of("take_turn"):
        yield module.at(call)


def modules_that_claim() -> Iterator[str]:
    yield from sorted({module.path for module, _ in calls_of("claim_commit")})


def completions() -> Iterator[str]:
    for module, call in calls_of("complete_instant"):
        yield module.at(call)


@cache
def kinds_and_layouts() -> frozenset[str]:
    """Names of the index kinds and layouts: classes of ``index/`` and tuples of such classes."""
    found = set()
    for module in modules():
        if module.room == "index":
            for node in module.tree.body:
                if isinstance(node, ast.ClassDef) and (
                    node.name.endswith(("Bucket", "Layout", "Kind")) or node.name == "RecordIndex"
                ):
                    found.add(node.name)
                elif isinstance(node, ast.Assign):
                    found.update(
                        t.id
                        for t in node.targets
                        if isinstance(t, ast.Name) and t.id.endswith(("Kind", "KINDS", "Layout"))
                    )
    return frozenset(found)


def names_used(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name


def asks_for_kinds(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that ask ``isinstance`` of an index kind or a layout."""
    for node in ast.walk(tree):
        is_question = isinstance(node, ast.Call) and called_name(node) == "isinstance"
        if is_question and kinds_and_layouts() & {*names_used(node.args[1])}:
            yield node


def kinds_asked_outside() -> Iterator[str]:
    for module in modules():
        if module.room != "index":
            yield from (module.at(call) for call in asks_for_kinds(module.tree))


def names_twice() -> Iterator[str]:
    """Public names of modules that two or more modules define."""
    homes: dict[str, set[str]] = defaultdict(set)
    for module in modules():
        for node in module.tree.body:
            for name in defined_names(node):
                if not name.startswith("_"):
                    homes[name].add(module.path)
    for name, paths in sorted(homes.items()):
        if len(paths) > 1:
            yield f"{name}: {', '.join(sorted(paths))}"


def defined_names(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    elif isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


def files_twice() -> Iterator[str]:
    homes: dict[str, list[str]] = defaultdict(list)
    for module in modules():
        homes[module.path.rpartition("/")[2]].append(module.path)
    for name, paths in sorted(homes.items()):
        if len(paths) > 1 and name != "__init__.py":
            yield f"{name}: {', '.join(paths)}"


def functions() -> Iterator[tuple[Module, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for module in modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield module, node


def long_functions() -> Iterator[str]:
    for module, node in functions():
        own = lines_of(module) & set(range(node.lineno, (node.end_lineno or 0) + 1))
        if len(own) > LINES_OF_A_FUNCTION:
            yield module.at(node, f"{node.name}: {len(own)} lines")


def functions_of_many_parameters() -> Iterator[str]:
    for module, node in functions():
        names = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        count = len([name for name in names if name.arg not in {"self", "cls"}])
        if count > PARAMETERS:
            yield module.at(node, f"{node.name}: {count} parameters")


def small_modules() -> Iterator[str]:
    for module in modules():
        if 0 < len(lines_of(module)) < LINES_OF_A_MODULE and not module.path.endswith(
            "__init__.py"
        ):
            yield f"{module.path}: {len(lines_of(module))} lines"


def imports_of(module: Module, known: frozenset[str]) -> set[str]:
    """Modules that a module imports anywhere, within functions too, but not for types alone."""
    found: set[str] = set()
    stack: list[ast.AST] = [module.tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in {*names_used(node.test)}:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            found.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        stack.extend(ast.iter_child_nodes(node))
    return (found & known) - {module.name}


def import_circles() -> Iterator[str]:
    """Yield each group of modules that import each other (strongly connected, of two or more)."""
    known = frozenset(module.name for module in modules() if module.path != "__init__.py")
    graph = {module.name: imports_of(module, known) for module in modules() if module.name in known}
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles: list[list[str]] = []

    def visit(name: str) -> None:
        number[name] = low[name] = len(number)
        stack.append(name)
        for other in graph[name]:
            if other not in number:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], number[other])
        if low[name] == number[name]:
            at = stack.index(name)
            circles.append(stack[at:])
            del stack[at:]

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 4 * len(graph)))
    for name in graph:
        if name not in number:
            visit(name)
    yield from (", ".join(sorted(circle)) for circle in circles if len(circle) > 1)


def suppressed() -> Iterator[str]:
    """Lines that silence a tool: ``noqa``, ``type: ignore``, warnings that are filtered."""
    for module in modules():
        for number, line in enumerate(module.text.splitlines(), 1):
            if any(
                word in line
                for word in ("# noqa", "# type: ignore", "simplefilter(", "filterwarnings(")
            ):
                yield f"{module.path}:{number}"


def lists_of_names(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield each ``names`` that a loop asks for a name: it makes a list of all names each time."""
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For | ast.While):
            repeated: list[ast.AST] = [*loop.body]
        elif isinstance(loop, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            made = (loop.key, loop.value) if isinstance(loop, ast.DictComp) else (loop.elt,)
            repeated = [*made, *(test for each in loop.generators for test in each.ifs)]
        else:
            continue
        for test in (node for part in repeated for node in ast.walk(part)):
            if isinstance(test, ast.Compare) and isinstance(test.ops[-1], ast.In | ast.NotIn):
                held, name = test.comparators[-1], ast.unparse(test.left)
                if name.isupper() or name[0] in "'_":  # One fixed name.
                    continue
                if isinstance(held, ast.Attribute) and held.attr in ("names", "column_names"):
                    yield held


def names_asked_in_loops() -> Iterator[str]:
    for module in modules():
        yield from (module.at(held, ast.unparse(held)) for held in lists_of_names(module.tree))


MEASURES: dict[str, Callable[[], Iterator[str]]] = {
    "code lines": all_code,
    "classes of the write path": classes_of_the_write_path,
    "places that take a turn": turns,
    "modules that claim a commit": modules_that_claim,
    "calls of complete_instant": completions,
    "isinstance on kinds and layouts outside index/": kinds_asked_outside,
    "public names defined in two modules": names_twice,
    "file names twice": files_twice,
    "functions over 60 code lines": long_functions,
    "functions over 7 parameters": functions_of_many_parameters,
    "modules under 60 code lines": small_modules,
    "import circles": import_circles,
    "suppressed warnings": suppressed,
    "lists of names asked in a loop": names_asked_in_loops,
}

if __name__ == "__main__":
    shown = sys.argv[1:]
    for measure, count in MEASURES.items():
        places = [*count()]
        print(f"{len(places):>7,}  {CEILINGS.get(measure, 0):>7,}  {measure}")
        if measure in shown:
            print("\n".join(f"             {place}" for place in places))
