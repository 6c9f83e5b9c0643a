"""Facts that are computed once in a read or a write, however often they are asked for."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import count

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.merge.incoming import IncomingRecords
from bucketlake.model.table_type import Operation
from bucketlake.read import read_plan, snapshot
from bucketlake.read.snapshot import load_snapshot
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config, table_at
from bucketlake.where import parser
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource
from bucketlake.write.target import open_target
from tests.faulty_storage import FaultyStorage
from tests.spies import spy

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
ROWS = pa.table({"id": ["a", "b"], "v": [1, 2]}, SCHEMA)
_NUMBERS = count()


@pytest.fixture
def table() -> Iterator[bl.Table]:
    """A table with three commits of one schema."""
    name = f"once-{next(_NUMBERS)}"
    made = bl.create_table(
        f"memory://{name}", schema=SCHEMA, record_key=["id"], index=bl.SimpleBucket(2)
    )
    for _ in range(3):
        made.upsert(ROWS)
    yield made
    forget(name)


def storage_of(table: bl.Table) -> FaultyStorage:
    return FaultyStorage(MemoryStorage(table.path.removeprefix("memory://")))


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of schemas that are parsed from now on."""
    texts: list[str] = []
    for module in (snapshot, read_plan):
        spy(monkeypatch, module, "understood_columns", texts.append)
    return texts


def test_a_snapshot_parses_its_schema_once_and_does_not_pickle_it(
    table: bl.Table, parsed: list[str]
) -> None:
    storage = storage_of(table)
    pinned = load_snapshot(opened_table(storage.inner, read_table_config(storage)))
    before = pickle.dumps(pinned)
    assert [pinned.schema, pinned.schema, pinned.schema_or_none] == [SCHEMA] * 3
    assert len(parsed) == 1
    assert pickle.dumps(pinned) == before
    copy = pickle.loads(before)
    assert copy.schema == SCHEMA
    assert len(parsed) == 2


def test_a_read_parses_a_schema_once_however_many_commits_have_it(
    table: bl.Table, parsed: list[str]
) -> None:
    assert table.to_arrow(where="v > 1").num_rows == 1
    assert len(parsed) == 1
    wider = ROWS.append_column("more", pa.array([1, 2]))
    table.upsert(wider.slice(0, 1), merge_schema="add_columns")
    parsed.clear()
    assert table.to_arrow().num_rows == 2
    assert len(parsed) == len({*parsed}) == 2


@pytest.mark.parametrize("since", [None, "2020-01-01"])
def test_a_read_parses_its_condition_once(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch, since: str | None
) -> None:
    """Pruning and filtering get the same predicate."""
    conditions = spy(monkeypatch, parser, "parse_where", lambda text, *_, **__: text)
    found = table.to_arrow(where="id = 'b' AND NOT (v < 0)", since=since)
    assert found["id"].to_pylist() == ["b"]
    assert len(conditions) == 1


def test_merges_of_file_groups_and_of_slices_ask_one_function_which_record_wins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = spy(monkeypatch, IncomingRecords, "wins_over", lambda *given: given[4])
    for table_type in ("copy_on_write", "merge_on_read"):
        asked.clear()
        path = f"memory://once-{next(_NUMBERS)}"
        made = bl.create_table(
            path, schema=SCHEMA, record_key=["id"], ordering="v", index=bl.SimpleBucket(1),
            table_type=table_type,
        )  # fmt: skip
        made.upsert(ROWS)
        made.upsert(ROWS.set_column(1, "v", pa.array([0, 5])))
        assert sorted(made.to_arrow()["v"].to_pylist()) == [1, 5]
        assert asked == [("v",)]
        forget(path.removeprefix("memory://"))


def test_an_upsert_parses_the_schema_once(table: bl.Table, parsed: list[str]) -> None:
    table.upsert(ROWS)
    assert len(parsed) == 1


def test_an_upsert_lists_the_timeline_when_it_opens_begins_and_commits(table: bl.Table) -> None:
    """The listing of its beginning also tells whether a clean came since it was opened."""
    storage = storage_of(table)
    target = open_target(table_at(storage), bl.SimpleBucket(2))
    write_records(target, Operation.UPSERT, ArrowSource(ROWS, threads=1))
    steps = [
        step.operation if step.path == ".hoodie/timeline" else step.path.rpartition(".")[2]
        for step in storage.trace
        if step.path.startswith(".hoodie/timeline") and step.operation in ("list", "put_if_absent")
    ]
    assert steps == ["list", "requested", "list", "inflight", "list", "commit"]


def test_the_commits_of_a_write_are_read_once(table: bl.Table) -> None:
    storage = storage_of(table)
    target = open_target(table_at(storage), bl.SimpleBucket(2))
    write_records(target, Operation.UPSERT, ArrowSource(ROWS, threads=1))
    read = [step.path for step in storage.trace if step.operation == "read"]
    commits = [path for path in read if path.endswith(".commit")]
    assert len(commits) == len({*commits}) == 1
