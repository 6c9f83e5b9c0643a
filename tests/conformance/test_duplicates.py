"""Inserts that leave stored records alone, compared with a dictionary, for each index kind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bucketlake.errors import InputError, UnsupportedFeatureError
from bucketlake.model.result import WriteResult
from bucketlake.model.table_type import DuplicatePolicy, Operation
from bucketlake.timeline.table_properties import table_at
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource
from bucketlake.write.target import open_target
from tests.conformance.cases import Checked, Row, arrow, rows
from tests.inside import storage_of


def insert(table: Checked, batch: list[Row], policy: DuplicatePolicy) -> WriteResult:
    target = open_target(table_at(storage_of(table.table)), None)
    target = replace(target, duplicates=policy)
    return write_records(target, Operation.INSERT, ArrowSource(arrow(batch)))


def test_an_insert_drops_records_whose_key_is_stored(table: Checked) -> None:
    gone = rows([1, 6], 1)
    table.delete(gone)
    batch = [*rows(range(9), 9), *rows(range(20, 30), 9)]
    if table.case.kind.keys_are_global:
        with pytest.raises(UnsupportedFeatureError, match=r"insert\.dup\.policy"):
            insert(table, batch, DuplicatePolicy.DROP)
        table.check()
        return
    new = [row for row in batch if table.key_held(row) not in table.rows]
    assert len(new) == 12
    result = insert(table, batch, DuplicatePolicy.DROP)
    assert result.written == len(new)
    # An index takes keys for stored that were deleted after the last compaction.
    assert result.updated in (0, None, len(gone))
    table.expect_upserted(new)
    table.check()
    assert insert(table, rows(range(9), 10), DuplicatePolicy.DROP).instant is None
    table.check_rows()


def test_an_insert_fails_where_a_key_is_stored_and_writes_nothing(table: Checked) -> None:
    before = table.table.timeline()
    is_global = table.case.kind.keys_are_global
    refusal = UnsupportedFeatureError if is_global else InputError
    with pytest.raises(refusal, match="whole table" if is_global else "stored already"):
        insert(table, rows([3, 50, 51], 9), DuplicatePolicy.FAIL)
    assert [one for one in table.table.timeline() if one.action.writes_data] == [
        one for one in before if one.action.writes_data
    ]
    if not is_global:
        assert insert(table, rows([50, 51], 9), DuplicatePolicy.FAIL).written == 2
        table.expect_upserted(rows([50, 51], 9))
    table.check()
