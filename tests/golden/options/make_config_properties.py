"""List the options of real Hudi's writers and readers, from the classes that declare them.

    scripts/setup spark35
    uv run python -m tests.golden.options.make_config_properties

``config_properties.tsv`` has a line for each ``ConfigProperty`` of Hudi's Spark bundle: the option,
its default value, its alternative (older) names, the releases in which it came and was deprecated,
and the class that declares it. Some options are declared by several classes, a few of these with
different values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.interop.peer.client import HUDI_VERSION, HudiPeer

LISTING = Path(__file__).with_name("config_properties.tsv")
COLUMNS = ("key", "default", "alternatives", "since", "deprecated", "class")


def render(declared: Iterable[Mapping[str, Any]]) -> str:
    """Return the listing as text, sorted; a missing value is empty."""
    return "\n".join([f"# Hudi {HUDI_VERSION}", "\t".join(COLUMNS), *sorted(map(_line, declared))])


def read_listing() -> list[dict[str, str]]:
    """Return the lines of the stored listing."""
    lines = LISTING.read_text(encoding="utf-8").splitlines()[2:]
    return [dict(zip(COLUMNS, line.split("\t"), strict=True)) for line in lines]


def _line(one: Mapping[str, Any]) -> str:
    cells = [one["key"], one["default"], ",".join(one["alternatives"]), *_origin(one)]
    return "\t".join("" if cell is None else cell.replace("\n", " ") for cell in cells)


def _origin(one: Mapping[str, Any]) -> list[str | None]:
    return [one["since"], one["deprecated"], one["class"].removeprefix("org.apache.hudi.")]


def main() -> None:
    with HudiPeer() as peer:
        LISTING.write_text(render(peer.config_properties()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
