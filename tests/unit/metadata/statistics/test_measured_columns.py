"""Which columns have statistics, and the statistics that each kind of write sends to its commit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions import commit
from bucketlake.config.table_config import TableConfig
from bucketlake.format.index_definitions import IndexDefinition
from bucketlake.metadata.record_index.definition_file import update_index_definitions
from bucketlake.metadata.statistics.of_file import (
    indexed_columns,
    statistics_by_partition,
    statistics_of_file,
    usual_columns,
    with_statistics,
)
from bucketlake.model.file_name import LogFileName
from bucketlake.model.schema import with_meta
from bucketlake.model.write_stat import WriteStat
from bucketlake.services import compaction
from bucketlake.services.resize import execution
from bucketlake.storage.location import open_storage
from bucketlake.timeline.open_table import opened_table
from bucketlake.write import transaction
from tests import ring_tables
from tests.spies import spy, spy_answers
from tests.storages import memory_of
from tests.written_metadata import CONFIG

SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "day": pa.string(),
        "n": pa.int64(),
        "price": pa.float64(),
        "b": pa.binary(),
    }
)


def usual(schema: pa.Schema) -> pa.Schema:
    return pa.schema([with_meta(schema).field(name) for name in usual_columns(schema)])


COLUMNS = usual(SCHEMA)


def rows(numbers: Sequence[int]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "id": f"k{n}",
                "day": "ab"[n % 2],
                "n": n * 10,
                "price": math.nan if n == 3 else n / 2,
                "b": b"%d" % n,
            }
            for n in numbers
        ],
        SCHEMA,
    )


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[WriteStat]:
    """Let tasks compute statistics; return the write statistics that reach the driver."""
    found: list[WriteStat] = []

    def noting(module: Any, name: str, stats_of: Callable[..., Sequence[WriteStat]]) -> None:
        spy(monkeypatch, module, name, lambda *given: found.extend(stats_of(*given)))
        monkeypatch.setattr(module, "indexed_columns", lambda _, schema: usual(schema))

    noting(transaction, "commit_write", lambda _, plan, *__: plan.stats)
    noting(compaction, "_complete", lambda _snapshot, _instant, stats, _held: stats)
    noting(
        execution,
        "_complete",
        lambda _service, _snapshot, _instant, _plan, results, *_: [
            stat for result in results for stat in result.stats
        ],
    )
    return found


def require_those_of_the_files(table: bl.Table, stats: Sequence[WriteStat]) -> None:
    storage = open_storage(table.path)
    assert stats
    for stat in stats:
        assert stat.statistics is not None, stat.path
        schema = SCHEMA if stat.partition_path in ("a", "b") else ring_tables.SCHEMA
        found = statistics_of_file(storage, stat.path, usual(schema)).cut()
        assert found == stat.statistics, stat.path


@pytest.mark.parametrize("log_format", ["parquet", "avro"])
@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_tasks_send_the_statistics_of_their_files(
    new_path: Callable[[], str], sent: list[WriteStat], table_type: str, log_format: str
) -> None:
    made = bl.create_table(
        new_path(), schema=SCHEMA, record_key=["id"], partition_by=["day"],
        index=bl.SimpleBucket(2), table_type=table_type,
    )  # fmt: skip
    table = bl.open_table(made.path, log_format=log_format)
    table.upsert(rows(range(8)))
    table.upsert(rows(range(4, 12)))
    table.delete(rows([0, 1]).select(["id", "day"]))
    table.insert_overwrite(rows([20, 22]))
    require_those_of_the_files(table, sent)
    logs = [s for s in sent if LogFileName.from_file_name(s.path.rpartition("/")[2]) is not None]
    assert bool(logs) == (table_type == "merge_on_read")


def test_compactions_send_the_statistics_of_their_files(
    new_path: Callable[[], str], sent: list[WriteStat]
) -> None:
    table = bl.create_table(
        new_path(), schema=SCHEMA, record_key=["id"], partition_by=["day"],
        index=bl.SimpleBucket(1), table_type="merge_on_read",
    )  # fmt: skip
    table.upsert(rows(range(8)))
    table.upsert(rows(range(4)))
    sent.clear()
    table.compact()
    require_those_of_the_files(table, sent)


def test_resizes_and_rescales_send_the_statistics_of_their_files(
    new_path: Callable[[], str], sent: list[WriteStat]
) -> None:
    rings = ring_tables.make_table(new_path())
    rings.upsert(ring_tables.rows(range(40), days="r"))
    sent.clear()
    rings.resize(**ring_tables.SPLIT_ALL)
    assert len(sent) > 2
    require_those_of_the_files(rings, sent)
    table = bl.create_table(
        new_path(), schema=SCHEMA, record_key=["id"], partition_by=["day"],
        index=bl.SimpleBucket(2),
    )  # fmt: skip
    table.upsert(rows(range(8)))
    sent.clear()
    table.rescale({"a|b": 4}, dry_run=False)
    assert len(sent) > 2
    require_those_of_the_files(table, sent)


def test_table_without_statistics_computes_none(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stats: list[WriteStat] = []
    spy(monkeypatch, transaction, "commit_write", lambda _, plan, *__: stats.extend(plan.stats))
    table = bl.create_table(
        new_path(), schema=SCHEMA, record_key=["id"], partition_by=["day"],
        index=bl.SimpleBucket(1), metadata_table=False,
    )  # fmt: skip
    table.upsert(rows(range(8)))
    assert {stat.statistics for stat in stats} == {None}
    storage = open_storage(table.path)
    filled = with_statistics(storage, stats, COLUMNS)
    require_those_of_the_files(table, filled)
    assert with_statistics(storage, stats, None) == stats
    found = statistics_by_partition(filled)
    assert set(found) == {"a", "b"}
    ((name, held),) = found["b"]
    assert name == filled[1].path.rpartition("/")[2]
    assert held.cut() == filled[1].statistics
    assert statistics_by_partition(stats) == {}


def test_copy_of_a_log_file_has_the_statistics_of_its_source_under_its_own_name(
    new_path: Callable[[], str], sent: list[WriteStat], monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[WriteStat] = []
    spy_answers(
        monkeypatch, commit, "log_copies", lambda made: copies.extend(copy.stat for copy in made)
    )
    table = ring_tables.make_table(new_path())
    table.upsert(ring_tables.rows(range(40), days="r"))
    table.resize(**ring_tables.SPLIT_ALL, schedule_only=True)
    table.upsert(ring_tables.rows(range(10), 1, days="r"))
    assert copies
    found = statistics_by_partition(copies)["r"]
    assert {name for name, _ in found} == {copy.path.rpartition("/")[2] for copy in copies}
    require_those_of_the_files(table, copies)


# Columns.


def test_usual_columns_are_the_first_ones_with_an_order() -> None:
    fields = [("tags", pa.list_(pa.string())), *((f"c{i}", pa.int64()) for i in range(40))]
    found = usual_columns(pa.schema(fields))
    assert found[:4] == (
        "_hoodie_commit_time",
        "_hoodie_partition_path",
        "_hoodie_record_key",
        "c0",
    )
    assert len(found) == 35


def config_with(*partitions: str, building: str = "") -> TableConfig:
    inflight = (building,) if building else ()
    return replace(CONFIG, metadata_partitions=partitions, metadata_partitions_inflight=inflight)


def test_indexed_columns_are_those_that_the_index_names() -> None:
    storage = memory_of()
    config = config_with("files", "column_stats")
    assert indexed_columns(opened_table(storage, config), SCHEMA) == COLUMNS
    wanted = ("price", "_hoodie_record_key", "absent")
    update_index_definitions(
        opened_table(storage, config), add=[IndexDefinition.of_column_stats(wanted, "V2")]
    )
    found = indexed_columns(opened_table(storage, config), SCHEMA)
    assert found is not None
    assert found.names == ["price", "_hoodie_record_key"]


def test_no_column_is_indexed_without_a_partition_of_statistics() -> None:
    storage = memory_of()
    assert (
        indexed_columns(opened_table(storage, config_with("files", "record_index")), SCHEMA) is None
    )
    assert indexed_columns(opened_table(storage, config_with()), SCHEMA) is None
    building = config_with("files", building="partition_stats")
    assert indexed_columns(opened_table(storage, building), SCHEMA) == COLUMNS
