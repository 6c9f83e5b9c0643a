"""What a read of change data reads: it follows the changes, and opens a file once or twice."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.read.change_plan import pin_changes
from bucketlake.read.change_reader import plan_changes, read_changes
from bucketlake.scan import request_of
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline.table_properties import table_at
from tests.faulty_storage import FaultyStorage


def rows(keys: list[int], v: int) -> pa.Table:
    return pa.table({"id": [f"k{n:05}" for n in keys], "v": [v] * len(keys)})


def reads_of(table_type: str, count: int, commits: int) -> tuple[Counter[str], pa.Table]:
    """Read the changes of some commits of 10 rows each; return how often files were read."""
    name = f"change-work-{table_type}-{count}-{commits}"
    forget(name)
    table = bl.create_table(
        f"memory://{name}", schema=rows([0], 0).schema,
        record_key="id", index=bl.SimpleBucket(1), table_type=table_type,
    )  # fmt: skip
    since = table.upsert(rows([*range(count)], 0)).completed_at
    for commit in range(commits):
        table.upsert(rows([*range(10 * commit, 10 * commit + 10)], commit + 1))
    storage = FaultyStorage(MemoryStorage(name))
    request = request_of(since=since)
    planned = plan_changes(pin_changes(table_at(storage), request), request)
    storage.trace.clear()
    found = read_changes(planned)
    return Counter(step.path for step in storage.trace if step.operation == "read"), found


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize("commits", [4, 16])
def test_files_are_read_as_often_however_many_rows_there_are(table_type: str, commits: int) -> None:
    counts = []
    for count in (500, 2_000):
        reads, found = reads_of(table_type, count, commits)
        assert found["op"].to_pylist() == ["u"] * 10 * commits
        assert [row["v"] for row in found["before"].to_pylist()] == [0] * 10 * commits
        counts.append(sorted(reads.values()))
    logs = [times for path, times in reads.items() if ".log." in path]
    bases = sorted(times for path, times in reads.items() if path.endswith(".parquet"))
    assert counts[0] == counts[1]
    if table_type == "merge_on_read":
        assert logs == [1] * commits
        assert bases == [2]  # For the keys, then for the rows of these keys.
    else:  # Each for commit times; the first and the last one for rows, too.
        assert bases == [1] * (commits - 1) + [2, 2]


def test_rows_that_vanished_are_found_by_the_keys_of_two_files() -> None:
    name = "change-work-deletes"
    forget(name)
    table = bl.create_table(
        f"memory://{name}", schema=rows([0], 0).schema,
        record_key="id", index=bl.SimpleBucket(1),
    )  # fmt: skip
    since = table.upsert(rows([*range(100)], 0)).completed_at
    table.upsert(rows([5, 100], 1))
    table.delete(rows([7, 8], 0).select(["id"]))
    table.upsert(rows([7, 9], 2))
    found = table.changes_to_arrow(since=since)
    keys = [(row["before"] or row["after"])["id"] for row in found.to_pylist()]
    assert list(zip(found["op"].to_pylist(), keys, strict=True)) == [
        ("u", "k00005"), ("i", "k00100"), ("d", "k00007"), ("d", "k00008"),
        ("i", "k00007"), ("u", "k00009"),
    ]  # fmt: skip
    assert [row and row["v"] for row in found["before"].to_pylist()] == [0, None, 0, 0, None, 0]
