"""Real Hudi and hudi-rs read what bucketlake wrote, whatever its keys and partitions."""

from __future__ import annotations

import pytest

from tests.interop.history import History
from tests.interop.layouts import LAYOUTS, Layout
from tests.interop.model import Model, in_order, rows_of
from tests.interop.peer.client import HudiPeer, read_changes_with_hudi_rs, read_with_hudi_rs

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module", params=LAYOUTS, ids=lambda layout: layout.name)
def layout(request: pytest.FixtureRequest) -> Layout:
    return request.param


@pytest.fixture(scope="module")
def history(layout: Layout, tmp_path_factory: pytest.TempPathFactory) -> History:
    """Inserts, updates, late events and deletes in a table of that layout."""
    path = tmp_path_factory.mktemp("layouts") / "table"
    kind, table, model = layout.kind, layout.kind.create(path), Model(layout.kind)
    for numbers, ts in ((range(24), 5), (range(12, 30), 7), (range(4), 3)):
        rows = [layout.event(n, ts) for n in numbers]
        model.upsert(rows)
        if table.upsert(kind.rows(rows)).instant is not None:  # None: all events came too late.
            model.commit(table)
    gone = [layout.event(n, 0) for n in range(3, 30, 7)]
    model.delete(gone)
    table.delete(kind.rows(gone))
    model.commit(table)
    return History(kind, path, model)


def test_snapshot(hudi: HudiPeer, layout: Layout, history: History) -> None:
    schema = layout.kind.schema
    rows = history.model.rows.values()
    assert rows_of(history.table.to_arrow(), schema) == in_order(rows, schema)
    assert rows_of(read_with_hudi_rs(history.path), schema) == in_order(rows, schema)
    shown = in_order(map(layout.as_hudi_shows, rows), schema)
    assert rows_of(hudi.read(history.path), schema) == shown


def test_time_travel_and_changes(hudi: HudiPeer, layout: Layout, history: History) -> None:
    schema, path, (first, second, *_) = layout.kind.schema, history.path, history.model.states
    then = first.rows.values()
    assert rows_of(history.table.to_arrow(as_of=first.instant), schema) == in_order(then, schema)
    assert rows_of(read_with_hudi_rs(path, first.instant), schema) == in_order(then, schema)
    shown = in_order(map(layout.as_hudi_shows, then), schema)
    assert rows_of(hudi.time_travel(path, first.instant), schema) == shown
    changed = history.model.changed_rows(1, 1)
    span = first.completed_at, second.completed_at
    assert rows_of(read_changes_with_hudi_rs(path, *span), schema) == in_order(changed, schema)
    shown = in_order(map(layout.as_hudi_shows_changes, changed), schema)
    assert rows_of(hudi.incremental(path, *span), schema) == shown


def test_bucket_pruning_of_hudi_finds_keys(
    hudi: HudiPeer, layout: Layout, history: History
) -> None:
    schema, options = layout.kind.schema, layout.kind.bucket_options()
    for row in list(history.model.rows.values())[:3]:
        got = hudi.read(history.path, options, where=layout.key_filter(row))
        assert rows_of(got, schema) == [layout.as_hudi_shows(row)]
