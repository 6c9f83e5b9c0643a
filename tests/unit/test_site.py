"""The site has each page in a group of its side bar."""

from __future__ import annotations

import re
import runpy

from tests.guides import ROOT

CONF = runpy.run_path(str(ROOT / "docs" / "conf.py"))


def pages_of(contents: str) -> set[str]:
    return {*re.findall(r"^/(\S+)$", contents, re.MULTILINE)}


def test_every_page_is_in_a_group_or_in_a_list() -> None:
    grouped = pages_of("\n".join(CONF["contents"]()))
    for page in CONF["LISTS"]:
        text = (ROOT / f"{page}.md").read_text(encoding="utf-8")
        grouped |= {name.removeprefix("/") for name in CONF["pages_below"](page, text)}
    files = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    pages = {path.relative_to(ROOT).with_suffix("").as_posix() for path in files}
    assert pages - grouped == {"README", "docs/index"}  # The first page, and that of the groups.
    assert grouped <= pages


def test_groups_are_those_of_the_index_page() -> None:
    captions = re.findall(r":caption: (.+)", "\n".join(CONF["contents"]()))
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert captions == re.findall(r"^\*\*(.+?)\.\*\*", index, re.MULTILINE) != []
