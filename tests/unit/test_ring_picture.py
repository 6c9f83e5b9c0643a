"""The picture of the guide to resizes shows a ring that is in balance in the end."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ring_picture", ROOT / "scripts/ring_picture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_has_a_part_for_each_bucket_and_no_large_one_is_left_in_the_last_ring() -> None:
    script = load_script()
    rings = script.rings()
    drawn = [
        ElementTree.fromstring(script.picture([ring])).findall(
            ".//{http://www.w3.org/2000/svg}path"
        )
        for ring in rings
    ]
    assert [len(parts) for parts in drawn] == [len(buckets) for _, buckets in rings]
    colors = [{part.get("fill") for part in parts} for parts in drawn]
    assert script.LARGE in colors[0]
    assert script.LARGE not in colors[-1]
    committed = ElementTree.fromstring(script.TARGET.read_text(encoding="utf-8"))
    assert len(committed.findall(".//{http://www.w3.org/2000/svg}g")) == len(rings)
