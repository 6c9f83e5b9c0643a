"""The benchmark of LakeLoader's tables: the rows of its shapes, and what is measured of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.common.data import Recipe, prepare
from benchmarks.common.rows import KEY, PARTITION, REGIONS
from benchmarks.lakeloader import BENCHMARK, TITLES
from tests.unit.benchmarks.pages import contender, content, measured, page_of

ROWS, PARTITIONS = 4_000, 4


def _prepared(root: Path, shape: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the region of each key, of the load and of the changes."""
    data = prepare(root, Recipe(ROWS, PARTITIONS, shape=shape))
    tables = (pq.read_table(folder) for folder in (data.load, data.changes))
    loaded, changed = (
        dict(zip(each[KEY].to_pylist(), each[PARTITION].to_pylist(), strict=True))
        for each in tables
    )
    return loaded, changed


def test_facts_are_updated_most_where_they_are_newest(tmp_path: Path) -> None:
    loaded, changed = _prepared(tmp_path, "facts")
    updated = [loaded[key] for key in changed if key in loaded]
    counts = [updated.count(region) for region in REGIONS[:PARTITIONS]]
    assert len(updated) == ROWS // 5
    assert counts == sorted(counts)
    assert counts[-1] > 3 * counts[0]
    assert {changed[key] for key in changed if key not in loaded} == {REGIONS[PARTITIONS - 1]}


def test_dimensions_have_one_partition(tmp_path: Path) -> None:
    loaded, changed = _prepared(tmp_path, "dimensions")
    assert {*loaded.values(), *changed.values()} == {REGIONS[0]}
    assert len(loaded.keys() & changed.keys()) == ROWS // 5


def test_events_are_never_updated(tmp_path: Path) -> None:
    loaded, changed = _prepared(tmp_path, "events")
    assert not loaded.keys() & changed.keys()
    assert len(changed) == ROWS * 22 // 100
    assert {*changed.values()} == {REGIONS[PARTITIONS - 1]}


@pytest.mark.parametrize("shape", ["facts", "events"])
def test_partitions_follow_time(tmp_path: Path, shape: str) -> None:
    loaded, _ = _prepared(tmp_path, shape)
    counts = np.unique([*loaded.values()], return_counts=True)[1]
    assert counts.tolist() == [ROWS // PARTITIONS] * PARTITIONS


def test_the_page_has_all_kinds_beside_the_peers() -> None:
    names = [each.name for each in BENCHMARK.contenders]
    steps = {title: measured(2.0, data_files=7) for title in TITLES}
    text = page_of(BENCHMARK, content({name: contender(steps) for name in names}, shape="facts"))
    assert "1,000 rows of facts" in text
    for name in names:
        assert f"| {name} | 2.00" in text
