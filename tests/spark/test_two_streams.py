"""Two streaming queries write the same keys of one partition: both go on, and no key is doubled.

Each batch has keys that are new to the table and new in the other stream's batch of the same number
at the same time, keys of earlier batches, and keys of the stream's own. The ordering values of the
two streams differ, so the model of the table does not depend on which commit is first.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bucketlake as bl
from bucketlake.actions.conflict import retried
from bucketlake.actions.tombstone_list import BATCHES
from bucketlake.services.check.findings import Severity
from bucketlake.storage.location import open_storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.open_table import opened_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.any_spark]

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
STREAMS = ("orders", "returns")
BATCHES_PER_STREAM = 6
COMMITS_IN_A_ROW_MAX = 4
"""How many commits of one stream may pass while the other one has batches left."""


def batch_of(stream: int, number: int) -> list[dict[str, Any]]:
    """Return a batch: keys that both streams write, and some of its own."""
    ts = len(STREAMS) * number + stream
    ids = [f"k{i}" for i in range(number * 20, number * 20 + 30)]
    ids += [f"{STREAMS[stream]}{i}" for i in range(number * 5, number * 5 + 10)]
    return [{"id": id_, "p": "a", "v": ts * 1000 + i, "ts": ts} for i, id_ in enumerate(ids)]


def model() -> dict[str, dict[str, Any]]:
    """Return the rows of the table: of each key the row with the greatest ordering value."""
    batches = [
        batch_of(stream, number)
        for number in range(BATCHES_PER_STREAM)
        for stream in range(len(STREAMS))
    ]
    return {row["id"]: row for batch in batches for row in batch}


def start(spark: SparkSession, table: bl.Table, folder: Path, stream: int) -> StreamingQuery:
    """Start the query of a stream: each of its files is a batch."""
    name = STREAMS[stream]
    source = folder / name
    source.mkdir()
    for number in range(BATCHES_PER_STREAM):
        rows = pa.Table.from_pylist(batch_of(stream, number), SCHEMA)
        pq.write_table(rows, source / f"{number}.parquet", store_schema=False)
    schema = spark.read.parquet(str(source)).schema
    read = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
    writer = read.writeStream.foreachBatch(table.upsert_batch(query_name=name))
    writer = writer.queryName(name).option("checkpointLocation", str(folder / f"{name}.state"))
    return writer.trigger(availableNow=True).start()


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_two_streams_into_one_partition_both_go_on_and_double_no_key(
    spark: SparkSession,
    tmp_path: Path,
    table_type: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts = Counter[int]()  # How many batches took so many attempts.

    def counted(write: Callable[[], Any]) -> Any:
        made = 0

        def attempt() -> Any:
            nonlocal made
            made += 1
            return write()

        try:
            return retried(attempt)
        finally:
            attempts[made] += 1

    monkeypatch.setattr("bucketlake.services.metadata.needed_index.retried", counted)
    table = bl.create_table(
        str(tmp_path / "table"),
        schema=SCHEMA,
        record_key="id",
        partition_by="p",
        ordering="ts",
        index=bl.DynamicBucket(max_records=50, assigners=2),
        table_type=table_type,
    )
    queries = [start(spark, table, tmp_path, stream) for stream in range(len(STREAMS))]
    for query in queries:
        query.awaitTermination()
        assert query.exception() is None
    order = streams_of_commits(table)
    assert Counter(order) == dict.fromkeys(STREAMS, BATCHES_PER_STREAM)
    last = max(order.index(name) for name in STREAMS)
    left = min(len(order) - 1 - order[::-1].index(name) for name in STREAMS)
    in_a_row = max(len([*run]) for _, run in groupby(order[: left + 1]))
    assert in_a_row <= COMMITS_IN_A_ROW_MAX, order
    assert last <= COMMITS_IN_A_ROW_MAX, order
    assert max(attempts) > 1, f"the writes of the streams did not meet: {attempts}"
    found = table.to_arrow().to_pylist()
    assert {row["id"]: row for row in found} == model()
    assert len(found) == len(model()), "a key is there twice"
    assert {row["id"]: row.asDict() for row in table.read(spark).collect()} == model()
    findings = table.doctor(check_keys=True, check_files=True, min_age_seconds=0)
    assert not [one for one in findings if one.severity is not Severity.NOTE]


def streams_of_commits(table: bl.Table) -> list[str]:
    """Return the stream of each commit that has a new batch, in order of completion."""
    storage = open_storage(table.path)
    timeline = load_timeline(opened_table(storage, table.config()))
    found: list[str] = []
    known: dict[str, int] = {}
    for commit in sorted(timeline.completed_commits(), key=lambda one: one.completed_at or ""):
        extra = timeline.read_commit(storage, commit).extra
        batches = {name: held["batch"] for name, held in json.loads(extra[BATCHES]).items()}
        found += [name for name, number in batches.items() if known.get(name) != number]
        known = batches
    return found
