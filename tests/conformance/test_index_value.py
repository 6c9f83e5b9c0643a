"""The index value: its options, its storage in a table, and the error for another index."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

import bucketlake as bl
from bucketlake.errors import IndexStateError
from bucketlake.index.setting import index_from_options
from tests.conformance.cases import SCHEMA, Case, Checked, arrow, objects, rows, rows_of
from tests.inside import storage_of


def test_options_of_an_index_give_the_same_index(case: Case) -> None:
    for index in (case.index, case.kind.other):
        options = index.to_options()
        assert all(key.startswith("hoodie.") for key in options)
        assert index_from_options(options) == index
        assert type(index).from_options(options) == index
        assert pickle.loads(pickle.dumps(index)) == index
    assert case.index != case.kind.other


def test_a_job_with_the_options_of_an_index_makes_a_table_under_it(
    case: Case, new_path: Callable[[], str]
) -> None:
    path = new_path()
    job = {
        "hoodie.table.name": "made",
        "hoodie.datasource.write.recordkey.field": ",".join(case.record_key),
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.datasource.write.precombine.field": "at",
        "hoodie.datasource.write.table.type": case.table_type.upper(),
    }
    for at in range(2):
        bl.save(arrow(rows(range(5), at)), path, options=job | case.index.to_options())
    opened = bl.open_table(path)
    assert opened.index == case.index
    assert rows_of(opened.to_arrow()) == rows_of(arrow(rows(range(5), 1)))


def test_the_index_is_read_back_from_storage(table: Checked) -> None:
    for given in (None, table.case.index):
        opened = bl.open_table(table.table.path, index=given)
        assert opened.index == table.case.index
        table.table = opened
        table.check_next_write_finds_all()


def test_a_table_opened_with_another_index_is_rejected(table: Checked) -> None:
    before = objects(table.table)
    with pytest.raises(IndexStateError, match="was asked for"):
        bl.open_table(table.table.path, index=table.case.kind.other)
    assert objects(table.table) == before


def test_a_table_is_not_made_where_one_with_another_index_was_begun(
    case: Case, new_path: Callable[[], str]
) -> None:
    made = case.make(new_path())
    storage_of(made.table).delete(".hoodie/hoodie.properties")
    before = objects(made.table)
    with pytest.raises(IndexStateError, match="was asked for"):
        bl.create_table(
            made.table.path,
            schema=SCHEMA,
            record_key=case.record_key,
            partition_by=["day"],
            index=case.kind.other,
            table_type=case.table_type,
        )
    assert objects(made.table) == before
