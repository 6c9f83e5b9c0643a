"""Times of reads: entries of the timeline, times before the first commit, and fast clocks."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import ClockWarning, ConfigError
from bucketlake.services.check.findings import FindingKind, Severity

SCHEMA = pa.schema({"id": pa.string(), "n": pa.int64()})
DAY_NS = 24 * 3600 * 10**9


def row(key: str, n: int = 1) -> pa.Table:
    return pa.table({"id": [key], "n": [n]}, schema=SCHEMA)


@pytest.fixture(params=[6, 8, 9])
def table(request: pytest.FixtureRequest, new_path: Callable[[], str]) -> bl.Table:
    """A table with a row of each of three commits."""
    made = bl.create_table(
        new_path(), schema=SCHEMA, record_key="id", index=bl.SimpleBucket(1), version=request.param
    )
    for key in "abc":
        made.upsert(row(key))
    return made


def ids(table: bl.Table, **times: object) -> list[str]:
    return sorted(table.to_arrow(**times)["id"].to_pylist())  # type: ignore[arg-type]


def test_entries_of_the_timeline_stand_for_their_commits(table: bl.Table) -> None:
    first, second, third = table.timeline()
    assert ids(table, as_of=second) == ["a", "b"]
    assert ids(table, since=first) == ["b", "c"]
    assert ids(table, since=first, until=second) == ["b"]
    assert ids(table, since=third) == []
    assert table.changes_to_arrow(since=second)["op"].to_pylist() == ["i"]
    assert table.count(as_of=first) == 1


def test_a_requested_time_stands_for_its_commit_in_a_range_too(table: bl.Table) -> None:
    first, second, third = (entry.requested_at for entry in table.timeline())
    assert ids(table, since=third) == []
    assert ids(table, since=first, until=second) == ["b"]
    table.archive(keep_min=1, keep_max=2)
    assert ids(table, since=first, until=second) == ["b"]


def test_an_entry_of_a_pending_commit_is_no_time(table: bl.Table) -> None:
    entry = table.timeline()[-1]
    pending = type(entry)(entry.requested_at, entry.action, type(entry.state).INFLIGHT)
    for name in ("as_of", "since"):
        with pytest.raises(ConfigError, match=f"{name} = .*not completed"):
            ids(table, **{name: pending})


def test_a_time_before_the_first_commit_is_an_error(table: bl.Table) -> None:
    first = table.timeline()[0].requested_at
    for _ in range(2):
        with pytest.raises(ConfigError, match=f"first commit of the table is {first}"):
            ids(table, as_of="2020-01-01")
        assert ids(table, as_of=first) == ["a"]
        table.archive(keep_min=1, keep_max=2)


def test_a_table_without_commits_has_no_rows_at_any_time(new_path: Callable[[], str]) -> None:
    table = bl.create_table(new_path(), schema=SCHEMA, record_key="id")
    assert ids(table, as_of="2020-01-01") == []


@contextmanager
def fast_clock(ahead_ns: int = DAY_NS) -> Iterator[None]:
    """Let the clock of this host be ahead."""
    now = time.time_ns
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: now() + ahead_ns)
        yield


def test_instants_of_a_fast_clock_are_told_by_reads_writes_and_the_doctor(table: bl.Table) -> None:
    with fast_clock():
        fast = bl.open_table(table.path).upsert(row("d"))
        assert table.doctor() == []
    now = datetime.now(UTC)
    told = f"instant {fast.instant} is in the future: the clock or zone of a writer is or was ahead"
    with pytest.warns(ClockWarning, match=f"{told}; as_of = .*table.timeline"):
        assert ids(table, as_of=now) == ["a", "b", "c"]
    with pytest.warns(ClockWarning, match="since = "):
        assert ids(table, since=now) == ["d"]
    [finding] = table.doctor()
    assert (finding.kind, finding.severity) == (FindingKind.CLOCK_AHEAD, Severity.WARNING)
    assert told in str(finding)
    with pytest.warns(ClockWarning, match="the write gets instant .* 2 instants, from"):
        table.upsert(row("e"))
    with warnings.catch_warnings(action="error"):  # Nothing is read by the clock.
        assert ids(table, as_of=table.timeline()[-1]) == ["a", "b", "c", "d", "e"]
        assert ids(table, since=fast) == ["e"]
        assert ids(table, since="000") == ids(table)


def test_a_clock_that_is_seconds_ahead_is_usual(table: bl.Table) -> None:
    with fast_clock(ahead_ns=20 * 10**9):
        bl.open_table(table.path).upsert(row("d"))
    assert ids(table, as_of=datetime.now(UTC)) == ["a", "b", "c"]
    assert table.doctor() == []
    table.upsert(row("e"))
