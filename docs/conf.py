"""The documentation site, made of the Markdown pages as they are: ``scripts/docs`` builds it.

The source folder is the repository, so that a link works on the site as it works in a checkout.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

project = "bucketlake"
author = "the bucketlake developers"
release = version = installed_version("bucketlake")
html_title = f"bucketlake {release}"

extensions = ["myst_parser", "sphinx_copybutton"]
root_doc = "README"
include_patterns = ["*.md", "docs/**.md"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4

html_theme = "pydata_sphinx_theme"
html_additional_pages = {"index": "to_first_page.html"}
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(ROOT / "docs/_static/scorer.js")
html_sidebars = {"**": ["groups.html"]}
html_show_sourcelink = False
html_theme_options = {
    "switcher": {"json_url": "../versions.json", "version_match": release},
    "check_switcher": False,
    "navbar_start": ["navbar-logo", "version-switcher"],
    "navbar_center": [],
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "navigation_with_keys": False,
}

_LINK = re.compile(r"\]\(([^)#:]+\.md)\)")


LISTS = {
    "docs/reference": "docs/reference/",
    "docs/performance": "docs/benchmarks/",
    "docs/decisions/README": "docs/decisions/",
    "docs/spec/README": "docs/spec/",
}
"""Pages that list the pages of a folder."""

suppress_warnings = ["toc.not_included"]  # A page that no group has, such as that of the groups.


def contents() -> Iterator[str]:
    """Yield a table of contents for each group of pages on ``docs/index.md``."""
    groups = re.split(r"^\*\*(.+?)\.\*\*", (ROOT / "docs/index.md").read_text(), flags=re.MULTILINE)
    for title, text in zip(groups[1::2], groups[2::2], strict=True):
        pages = [(ROOT / "docs" / link).resolve() for link in _LINK.findall(text)]
        names = [page.relative_to(ROOT).with_suffix("").as_posix() for page in pages]
        yield _contents_of([f":caption: {title}"], (f"/{name}" for name in names))


def _contents_of(options: Sequence[str], names: Iterable[str]) -> str:
    return "\n".join(["```{toctree}", *options, ":hidden:", "", *dict.fromkeys(names), "```"])


def pages_below(page: str, text: str) -> Iterator[str]:
    """Yield the pages of its folder that a list links to."""
    for link in _LINK.findall(text):
        target = ((ROOT / page).parent / link).resolve().relative_to(ROOT)
        if target.as_posix().startswith(LISTS[page]):
            yield f"/{target.with_suffix('').as_posix()}"


def add_contents(_app: Any, page: str, source: list[str]) -> None:
    """Give the first page the tables of contents, which its readers elsewhere need not see."""
    if page == root_doc:
        source[0] += "\n\n" + "\n\n".join(contents()) + "\n"
    elif page in LISTS:
        source[0] += "\n\n" + _contents_of([], pages_below(page, source[0])) + "\n"


def setup(app: Any) -> None:
    """Connect the tables of contents."""
    app.connect("source-read", add_contents)
