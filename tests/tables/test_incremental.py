"""Incremental reads: what commits of a range of completion times changed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import ConfigError
from bucketlake.model.file_name import InstantTime
from bucketlake.read.arrow_reader import read_arrow
from bucketlake.read.incremental import timeline_at
from bucketlake.read.read_plan import plan_read
from bucketlake.read.request import PinnedRead
from bucketlake.read.snapshot import load_snapshot
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.table import handle_of

SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("v", pa.int64()), ("ts", pa.int64())]
)
_NUMBERS = count()


@pytest.fixture(params=["copy_on_write", "merge_on_read"])
def table(request: pytest.FixtureRequest) -> Iterator[bl.Table]:
    name = f"incremental-{next(_NUMBERS)}"
    yield bl.create_table(
        f"memory://{name}", schema=SCHEMA, record_key=["id"], partition_by=["day"], ordering="ts",
        index=bl.SimpleBucket(2), table_type=request.param,
    )  # fmt: skip
    forget(name)


def upsert(table: bl.Table, numbers: range, v: int, ts: int | None = None) -> str:
    """Upsert; return the completion time, or an empty text if nothing was committed."""
    rows = [
        {"id": f"k{n}", "day": "ab"[n % 2], "v": v, "ts": v if ts is None else ts} for n in numbers
    ]
    instant = table.upsert(pa.Table.from_pylist(rows, SCHEMA)).instant
    return completed(table, instant) if instant else ""


def completed(table: bl.Table, instant: str) -> str:
    [found] = [i for i in table.timeline() if i.requested_at == instant]
    assert found.completed_at is not None
    return found.completed_at


def values(rows: pa.Table) -> dict[str, int]:
    assert rows.schema.names == SCHEMA.names
    return {row["id"]: row["v"] for row in rows.to_pylist()}


def keys(numbers: range, v: int) -> dict[str, int]:
    return {f"k{n}": v for n in numbers}


def test_a_range_begins_after_its_begin_and_ends_with_its_end(table: bl.Table) -> None:
    first = upsert(table, range(10), 1)
    second = upsert(table, range(5, 15), 2)
    third = upsert(table, range(12, 20), 3)
    after = {**keys(range(5, 12), 2), **keys(range(12, 20), 3)}
    assert values(table.to_arrow(since=first)) == after
    assert values(table.to_arrow(since=first, until=second)) == keys(range(5, 15), 2)
    assert values(table.to_arrow(since=second, until=third)) == keys(range(12, 20), 3)
    assert values(table.to_arrow(until=first)) == keys(range(10), 1)
    assert values(table.to_arrow(since=third)) == {}
    assert values(table.to_arrow(since=first, until=first)) == {}
    assert values(table.to_arrow(until=third)) == values(table.to_arrow())


def test_conditions_and_columns_count_as_in_a_snapshot(table: bl.Table) -> None:
    first = upsert(table, range(10), 1)
    upsert(table, range(5, 15), 2)
    found = table.to_arrow(since=first, where="day = 'a' AND id <> 'k6'", columns=["id"])
    assert sorted(found["id"].to_pylist()) == ["k10", "k12", "k14", "k8"]
    assert found.column_names == ["id"]
    either = table.to_arrow(since=first, where="id = 'k0' OR id = 'k6'", columns=["id"])
    assert either["id"].to_pylist() == ["k6"]


def test_deleted_records_do_not_show_up(table: bl.Table) -> None:
    first = upsert(table, range(10), 1)
    table.delete(pa.table({"id": ["k2"], "day": ["a"]}))
    assert values(table.to_arrow(since=first)) == {}
    assert "k2" not in values(table.to_arrow(until=None, since="2000-01-01"))


def test_a_record_that_lost_by_its_ordering_value_did_not_change(table: bl.Table) -> None:
    """Real Hudi 1.2.0 returns it for merge-on-read."""
    first = upsert(table, range(10), 5)
    upsert(table, range(10), 4)
    assert values(table.to_arrow(since=first)) == {}


def test_a_compaction_changes_nothing(table: bl.Table) -> None:
    if table.config().table_type.value == "COPY_ON_WRITE":
        with pytest.raises(ConfigError, match="only a merge_on_read table"):
            table.compact()
        return
    first = upsert(table, range(10), 1)
    second = upsert(table, range(5, 10), 2)
    table.compact()
    assert values(table.to_arrow(since=first)) == keys(range(5, 10), 2)
    assert values(table.to_arrow(since=second)) == {}


def test_rows_of_a_file_group_that_was_replaced_since_are_found_where_they_are(
    table: bl.Table,
) -> None:
    first = upsert(table, range(10), 1)
    second = upsert(table, range(5, 10), 2)
    table.rescale({"a": 5}, dry_run=False)
    # A rescale writes rows anew, and they count as changed by it, as in Hudi.
    assert values(table.to_arrow(since=second)) == {
        k: v for k, v in values(table.to_arrow()).items() if int(k[1:]) % 2 == 0
    }
    assert values(table.to_arrow(since=first, until=second)) == keys(range(5, 10), 2)


def test_completion_counts_and_not_the_order_of_requests(table: bl.Table) -> None:
    upsert(table, range(4), 1)
    storage = MemoryStorage(table.path.removeprefix("memory://"))
    second = upsert(table, range(4, 6), 2)
    third = upsert(table, range(6, 8), 3)
    # The second commit completes after the third: its file is renamed to say so.
    [old] = [o.path for o in storage.list(".hoodie/timeline") if f"_{second}." in o.path]
    moved = f"{int(third) + 1000}"
    storage.put(old.replace(f"_{second}.", f"_{moved}."), storage.read(old))
    storage.delete(old)
    assert values(table.to_arrow(since=second, until=third)) == keys(range(6, 8), 3)
    assert values(table.to_arrow(since=third)) == keys(range(4, 6), 2)


@pytest.mark.parametrize("argument", ["as_of", "since", "until"])
@pytest.mark.parametrize("text", ["yesterday", "20261301000000000"])
def test_a_time_that_is_none_is_refused_by_the_name_of_its_argument(
    table: bl.Table, argument: str, text: str
) -> None:
    with pytest.raises(ConfigError, match=f"{argument} = {text!r}"):
        table.to_arrow(**{argument: text})  # type: ignore[arg-type]


def test_time_travel_and_ranges_are_not_mixed(table: bl.Table) -> None:
    with pytest.raises(ConfigError, match="either"):
        table.to_arrow(since="2024-01-01", as_of="2024-01-01")


def test_the_timeline_of_a_time_leaves_out_commits_that_were_archived_since(
    table: bl.Table,
) -> None:
    """A batch of a stream that is run again needs the rows of its own time."""
    ends = [upsert(table, range(4), v) for v in range(1, 9)]
    table.archive(keep_min=2, keep_max=3)
    opened = handle_of(table).open()
    for v, end in enumerate(ends, start=1):
        snapshot = load_snapshot(opened, timeline_at(opened, InstantTime(end)))
        plan = plan_read(PinnedRead(snapshot), None)
        assert values(read_arrow(snapshot.storage, plan)) == keys(range(4), v)
