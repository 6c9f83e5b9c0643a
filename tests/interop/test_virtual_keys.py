"""Tables without meta columns, which Hudi writes and everybody reads."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.golden.more_tables import of_version
from tests.golden.virtual_tables import VIRTUAL
from tests.interop.layouts import LAYOUTS, ONE, Layout
from tests.interop.model import in_order
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import HUDI, SharedTable
from tests.interop.test_merge_on_read import KEYS, compact, events, log_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.interop

TWO_KEYS = LAYOUTS[7]
CASES = [
    (ONE, 6, False),
    (ONE, 9, False),
    (ONE, 6, True),
    (ONE, 8, True),
    (ONE, 9, True),
    (TWO_KEYS, 9, True),
]


@pytest.mark.parametrize(("layout", "version", "merge_on_read"), CASES)
def test_a_table_without_meta_columns_is_read_by_all_after_each_write_of_hudi(
    hudi: HudiPeer,
    spark: SparkSession,
    tmp_path: Path,
    layout: Layout,
    version: int,
    merge_on_read: bool,
) -> None:
    kind = replace(layout.kind, merge_on_read=merge_on_read)
    table = SharedTable(hudi, tmp_path / "virtual", kind, layout.as_hudi_shows)
    table.options |= VIRTUAL | of_version(version)
    random_ = random.Random(f"{layout.name} {version}")
    for step in range(1, 4):
        batch = events(layout, random_, step)
        table.upsert(HUDI, batch)
        table.delete(HUDI, [layout.event(n, 0) for n in random_.sample(range(KEYS), 4)])
        table.assert_read_by_all()
        held = table.model.rows.values()
        found = [row.asDict() for row in table.ours.read(spark).collect()]
        assert in_order(found, kind.schema) == in_order(held, kind.schema)
        for row in batch[:2]:
            condition = layout.key_filter(row)
            found = [r.asDict() for r in table.ours.read(spark, where=condition).collect()]
            key = table.model.key(row)
            wanted = [table.model.rows[key]] if key in table.model.rows else []
            assert in_order(found, kind.schema) == in_order(wanted, kind.schema)
        if merge_on_read and step == 2:
            compact(table, HUDI)
            table.assert_read_by_all()
    assert table.ours.config().version == version
    assert bool(log_files(table)) == merge_on_read
    assert [one.kind for one in table.ours.doctor(check_keys=True, check_files=True)] == []
