"""Tables that Hudi began under other indexes, converted to dynamic buckets, written in turns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import bucketlake as bl
from tests.choices import combinations
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import (
    BUCKETLAKE,
    HUDI,
    WITH_METADATA,
    WITHOUT_METADATA,
    SharedTable,
    rows,
)
from tests.interop.table_kind import TableKind

pytestmark = pytest.mark.interop

BLOOM = {"hoodie.index.type": "BLOOM"}


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("index", "merge_on_read"),
    combinations(["simple bucket", "bloom"], [False, True]),
)
def test_a_table_of_hudi_is_converted_and_written_in_turns_by_record_index(
    hudi: HudiPeer, tmp_path: Path, index: str, merge_on_read: bool
) -> None:
    kind = TableKind(merge_on_read=merge_on_read, metadata_table=True)
    table = SharedTable(hudi, tmp_path / "shared", kind)
    own = BLOOM if index == "bloom" else {}
    table.upsert(HUDI, rows(range(60), 1), own)
    table.upsert(HUDI, rows(range(40, 80), 2), own)
    dynamic = replace(kind, partitioned_index=True, dynamic=True)
    path = str(table.path)
    groups = {bucket.file_id for bucket in bl.open_table(path).buckets()}
    converted = bl.convert(path, dynamic.index)
    assert {bucket.file_id for bucket in converted.buckets()} == groups, "no file is rewritten"
    table.kind, table.options = dynamic, dynamic.write_options(table.path)
    table.assert_read_by_all(WITH_METADATA, WITHOUT_METADATA)
    table.upsert(BUCKETLAKE, rows(range(70, 110), 3))
    table.assert_read_by_all(WITH_METADATA, WITHOUT_METADATA)
    table.upsert(HUDI, rows(range(100, 130), 4))
    table.delete(BUCKETLAKE, rows(range(0, 20, 2), 0))
    table.upsert(HUDI, rows(range(0, 125, 5), 5))
    table.upsert(BUCKETLAKE, rows(range(0, 140, 3), 6))
    table.assert_read_by_all(WITH_METADATA, WITHOUT_METADATA)
    known = converted.record_locations("eu").num_rows + converted.record_locations("us").num_rows
    assert known >= len(table.model.rows)
    assert bl.open_table(path).index == dynamic.index
