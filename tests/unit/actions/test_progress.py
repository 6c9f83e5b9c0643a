"""Long services say how far they are."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions import progress
from tests.bounds import set_bounds


@pytest.fixture
def table(new_path: Callable[[], str]) -> bl.Table:
    """A table with a savepoint and three later commits."""
    schema = pa.schema([("id", pa.string()), ("p", pa.string()), ("v", pa.int64())])
    made = bl.create_table(
        new_path(),
        schema=schema,
        record_key=["id"],
        partition_by=["p"],
        index=bl.SimpleBucket(1),
    )
    for v in range(4):
        made.upsert(pa.table({"id": ["a", "b"], "p": ["x", "y"], "v": [v, v]}, schema))
        if v == 0:
            made.savepoint()
    return made


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """What was logged, where no time has to pass."""
    caplog.set_level(logging.INFO, "bucketlake")
    set_bounds(monkeypatch, progress, PROGRESS_SECONDS=0)
    return lambda: caplog.text


def test_a_clean_tells_of_its_files(table: bl.Table, said: Callable[[], str]) -> None:
    [clean] = table.clean(retain_commits=1).instants
    assert f"clean {clean}: 1 of 2 files" in said()


def test_a_restore_tells_of_the_instants_that_it_undoes(
    table: bl.Table, said: Callable[[], str]
) -> None:
    first, *_, last = (one.requested_at for one in table.timeline() if one.action.writes_data)
    restored = table.restore(first).instant
    assert f"restore {restored}: 1 of 3 instants" in said()
    assert f"rollback of {last}: 1 of 2 files" in said()


def test_nothing_is_told_of_what_is_short(
    table: bl.Table, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bucketlake")
    table.clean(retain_commits=1)
    assert not caplog.messages
