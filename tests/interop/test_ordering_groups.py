"""Hudi reads the rows of a table whose columns have orderings of their own, and merges its logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from tests.interop.peer.client import HudiPeer
from tests.ordering_groups import ORDERING, SCHEMA, batch_of, expected, histories

pytestmark = pytest.mark.interop


def plain(found: pa.Table) -> dict[str, Any]:
    return {row["id"]: row for row in found.select(SCHEMA.names).to_pylist()}


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_hudi_reads_what_the_events_mean(hudi: HudiPeer, tmp_path: Path, table_type: str) -> None:
    table = bl.create_table(
        str(tmp_path / "grouped"),
        schema=SCHEMA,
        record_key="id",
        partition_by="part",
        ordering=ORDERING,
        index=bl.SimpleBucket(2),
        table_type=table_type,
    )
    events = histories(3)
    for at in range(0, len(events), 60):
        table.upsert(batch_of(events[at : at + 60]), missing="keep")
        if at == 60:
            assert plain(hudi.read(table.path)) == plain(table.to_arrow())
    assert plain(hudi.read(table.path)) == plain(table.to_arrow()) == expected(events)
    if table_type == "merge_on_read":
        hudi.sql(f"CREATE TABLE grouped USING hudi LOCATION '{table.path}'")
        hudi.sql("CALL run_compaction(op => 'scheduleAndExecute', table => 'grouped')")
        assert any(i.action.value == "commit" for i in table.timeline())
        assert plain(hudi.read(table.path)) == plain(table.to_arrow()) == expected(events)
