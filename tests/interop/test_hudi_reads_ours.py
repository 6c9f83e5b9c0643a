"""What bucketlake wrote, real Hudi and hudi-rs read: every query, at every point of a history."""

from __future__ import annotations

import pytest

from tests.interop.history import History, make_history
from tests.interop.model import in_order, rows_of
from tests.interop.peer.client import (
    HudiPeer,
    read_changes_with_hudi_rs,
    read_with_hudi_rs,
)
from tests.interop.table_kind import BUCKETS, EVENT, TableKind

pytestmark = pytest.mark.interop

FROM_THE_START = "000"


@pytest.fixture(scope="module", params=["ts", None], ids=["event time", "commit time"])
def history(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> History:
    """A table of ours with seven commits."""
    path = tmp_path_factory.mktemp("history") / "history"
    return make_history(path, TableKind(ordering=request.param))


def test_the_history_has_every_kind_of_commit(history: History) -> None:
    actions = {instant.action.value for instant in history.table.timeline()}
    assert actions == {"commit", "replacecommit"}
    regions = [{row["region"] for row in state.rows.values()} for state in history.model.states]
    assert "日本" not in regions[5]
    assert "日本" in regions[4] & regions[6]


def test_snapshot_has_the_rows_of_the_model(hudi: HudiPeer, history: History) -> None:
    expected = in_order(history.model.rows.values(), EVENT)
    assert rows_of(history.table.to_arrow(), EVENT) == expected
    assert rows_of(hudi.read(history.path), EVENT) == expected
    assert rows_of(hudi.read(history.path, history.kind.bucket_options()), EVENT) == expected
    assert rows_of(read_with_hudi_rs(history.path), EVENT) == expected


def test_read_optimized_query_has_the_rows_of_the_snapshot(
    hudi: HudiPeer, history: History
) -> None:
    options = {"hoodie.datasource.query.type": "read_optimized"}
    expected = in_order(history.model.rows.values(), EVENT)
    assert rows_of(hudi.read(history.path, options), EVENT) == expected


def test_time_travel_gives_the_state_of_each_commit(hudi: HudiPeer, history: History) -> None:
    for state in history.model.states:
        expected = in_order(state.rows.values(), EVENT)
        assert rows_of(history.table.to_arrow(as_of=state.instant), EVENT) == expected
        assert rows_of(hudi.time_travel(history.path, state.instant), EVENT) == expected
        assert rows_of(read_with_hudi_rs(history.path, state.instant), EVENT) == expected


def test_changes_of_each_commit_are_the_rows_that_it_wrote(
    hudi: HudiPeer, history: History
) -> None:
    states = history.model.states
    times = [FROM_THE_START, *(state.completed_at for state in states)]
    for n in range(len(states)):
        expected = in_order(history.model.changed_rows(n, n), EVENT)
        since, until = times[n], times[n + 1]
        assert rows_of(hudi.incremental(history.path, since, until), EVENT) == expected, n
        assert rows_of(read_changes_with_hudi_rs(history.path, since, until), EVENT) == expected


def test_changes_since_each_commit_are_the_rows_written_after_it(
    hudi: HudiPeer, history: History
) -> None:
    states = history.model.states
    times = [FROM_THE_START, *(state.completed_at for state in states)]
    for n in range(len(states)):
        expected = in_order(history.model.changed_rows(n, len(states) - 1), EVENT)
        assert rows_of(hudi.incremental(history.path, times[n]), EVENT) == expected, n
        assert rows_of(read_changes_with_hudi_rs(history.path, times[n]), EVENT) == expected, n


def test_bucket_pruning_of_hudi_finds_every_key(hudi: HudiPeer, history: History) -> None:
    options = history.kind.bucket_options()
    rows = list(history.model.rows.values())
    for row in rows[:4]:
        got = hudi.read(history.path, options, where=f"id = '{row['id']}'")
        assert rows_of(got, EVENT) == [row]
    some = rows[::3]
    keys = ", ".join(f"'{row['id']}'" for row in some)
    got = hudi.read(history.path, options, where=f"id IN ({keys})")
    assert rows_of(got, EVENT) == in_order(some, EVENT)


def test_bucket_pruning_of_hudi_looks_at_one_bucket(hudi: HudiPeer, history: History) -> None:
    """Told another number of buckets, Hudi misses keys: so it does prune in the test above."""
    options = history.kind.bucket_options() | {
        "hoodie.bucket.index.num.buckets": str(100 * BUCKETS + 1)
    }
    row = next(iter(history.model.rows.values()))
    assert hudi.read(history.path, options, where=f"id = '{row['id']}'").num_rows == 0
