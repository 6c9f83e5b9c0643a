"""Compaction of the metadata table in Spark tasks, as part of a write or by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions.metadata_compaction import compact_metadata
from bucketlake.actions.metadata_withdrawal import DELTA_COMMITS, withdraw_compactions
from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.errors import CommitConflictError, ServiceWarning
from bucketlake.flow.stage import Engine
from bucketlake.flow.threads import HERE, ThreadFlow
from bucketlake.metadata.rewrite import SliceRewriter
from bucketlake.model.file_name import InstantTime
from bucketlake.model.write_stat import WriteStat
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage
from bucketlake.timeline.instant import table_clock
from bucketlake.timeline.locks import NO_LOCK
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.table_properties import read_table_config, table_at
from tests.bounds import set_bounds
from tests.metadata_truth import require_true_index
from tests.spark.frames import frame_of
from tests.spies import breaks, forbid
from tests.storages import objects_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.any_spark]

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
DAYS = ("2024-01-01", "d/e")


def rows(start: int, stop: int) -> pa.Table:
    numbers = range(start, stop)
    columns = [[f"k{n}" for n in numbers], [DAYS[n % 2] for n in numbers], list(numbers)]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)


def make(path: Path, commits: int) -> bl.Table:
    """Return a table with new keys of each commit, some of them deleted again."""
    table = bl.create_table(
        str(path), schema=SCHEMA, record_key=["id"], partition_by=["day"], url_encode=True,
        index=bl.DynamicBucket(assigners=2),
    )  # fmt: skip
    for number in range(commits - 1):
        table.upsert(rows(100 * number, 100 * number + 100))
    table.delete(rows(0, 30))
    return table


def compact(table: bl.Table, engine: Engine) -> InstantTime | None:
    storage = open_storage(table.path)
    config = read_table_config(storage)
    clock = table_clock(storage.root, config.timeline_timezone)
    return compact_metadata(
        OpenTable(storage, config, clock, NO_LOCK),
        delta_commits=1,
        engine=engine,
    )


def base_files(storage: Storage, instant: InstantTime) -> dict[str, bytes]:
    """Return the base files of a compaction."""
    return {
        path: storage.read(path)
        for path in objects_of(storage)
        if path.startswith(METADATA_TABLE_FOLDER) and path.endswith(f"{instant}.hfile")
    }


@pytest.fixture
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tasks rewrite small slices, too."""
    set_bounds(monkeypatch, "bucketlake.metadata.rewrite", HERE_BYTES_MAX=-1)


@pytest.mark.usefixtures("every_size")
def test_tasks_write_the_files_that_this_process_writes_also_if_they_run_twice(
    spark: SparkSession, table_path: Path
) -> None:
    from bucketlake.spark.flow import SparkEngine

    table = make(table_path, 5)
    storage = open_storage(table.path)
    found: list[tuple[list[WriteStat], dict[str, bytes]]] = []

    class Thrice(SparkEngine):
        """Rewrites slices in this process, and twice in tasks."""

        def start(self, work: Any, plans: Sequence[Any], sizes: Sequence[int]) -> Any:
            start, rewriter = super().start, work.__self__
            attempts: list[Callable[[], list[Any]]] = [
                lambda: [stat for held in plans for stat in rewriter.write(held)],
                lambda: start(work, plans, sizes).results(),
                lambda: start(work, plans, sizes).results(),
            ]
            for attempt in attempts:
                stats = attempt()
                files = base_files(storage, rewriter.instant)
                found.append((sorted(stats, key=lambda stat: stat.path), files))
                if attempt is attempts[0]:
                    for path in files:
                        storage.delete(path)
            return ThreadFlow(HERE, stats)

    instant = compact(table, Thrice(spark))
    assert found[0] == found[1] == found[2]
    assert len(found[0][1]) > len(DAYS) * 2
    assert instant is not None
    require_true_index(storage)


@pytest.mark.usefixtures("every_size")
def test_task_of_a_compaction_that_was_withdrawn_leaves_no_file(
    spark: SparkSession, table_path: Path
) -> None:
    from bucketlake.spark.flow import SparkEngine

    table = make(table_path, 3)
    storage = open_storage(table.path)
    instants = []

    class Late(SparkEngine):
        """Its tasks begin when the compaction is withdrawn."""

        def start(self, work: Any, plans: Sequence[Any], sizes: Sequence[int]) -> Any:
            instants.append(work.__self__.instant)
            withdraw_compactions(table_at(storage))
            return super().start(work, plans, sizes)

    with pytest.raises(CommitConflictError, match="ended while a task still wrote"):
        compact(table, Late(spark))
    assert base_files(storage, instants[0]) == {}
    require_true_index(storage)


@pytest.mark.usefixtures("every_size")
def test_commit_that_compacts_lets_tasks_do_it(
    spark: SparkSession, table_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, SliceRewriter, "write")  # This process does not rewrite the slices.
    table = make(table_path, DELTA_COMMITS - 1)
    assert table.metadata_table().last_compaction is None
    table.upsert(frame_of(spark, rows(5000, 5100), table_path.with_name("input")))
    assert table.metadata_table().last_compaction is not None
    require_true_index(open_storage(table.path))
    assert table.read(spark).count() == 100 * (DELTA_COMMITS - 1) - 30


@pytest.mark.usefixtures("every_size")
def test_failure_of_spark_in_a_compaction_leaves_the_commit_alone(
    spark: SparkSession, table_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bucketlake.spark.flow import SparkFlow

    breaks(monkeypatch, SparkFlow, "results", RuntimeError("the job was cancelled"))
    table = make(table_path, DELTA_COMMITS - 1)
    with pytest.warns(ServiceWarning, match="compact in tasks .*the job was cancelled"):
        table.upsert(rows(5000, 5100))
    monkeypatch.undo()
    assert table.metadata_table().last_compaction is None
    table.upsert(rows(6000, 6100))
    assert table.metadata_table().last_compaction is not None
    assert table.read(spark).count() == 100 * DELTA_COMMITS - 30
