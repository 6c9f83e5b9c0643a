"""Messages and files through Spark Connect: the same rows as without it, and names of a catalog."""

from __future__ import annotations

import json
import threading
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import bucketlake as bl
from bucketlake.flow import threads
from bucketlake.intake.metrics import IngestReport
from tests.bounds import set_bounds
from tests.memory_catalog import MemoryCatalog
from tests.spark.message_frames import (
    require_bad_message_apart,
    require_rows_of_database,
    require_topic_taken,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::bucketlake.errors.NullElementWarning"),
]


def test_a_recorded_stream_in_two_frames_gives_the_rows_of_its_database(
    spark: SparkSession, tmp_path: Path
) -> None:
    require_rows_of_database(spark, tmp_path)


def test_a_message_that_cannot_be_read_is_apart_or_fails_the_write(
    spark: SparkSession, tmp_path: Path
) -> None:
    require_bad_message_apart(spark, tmp_path)


@pytest.mark.parametrize("bytes_here", [100_000, 100_000_000], ids=["by tasks", "here"])
def test_a_topic_is_taken_and_its_bad_message_is_a_dead_letter(
    spark: SparkSession, tmp_path: Path, bytes_here: int
) -> None:
    require_topic_taken(spark, tmp_path, bytes_here)


def test_the_report_of_a_stream_counts_what_a_worker_of_the_server_wrote(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, table, lines = tmp_path / "source", str(tmp_path / "table"), tmp_path / "m.jsonl"
    source.mkdir()
    stream = spark.readStream.schema("id string, n bigint").json(str(source))

    def take() -> IngestReport:
        for attempt in count():  # A busy machine's worker answers late.
            try:
                return bl.ingest(
                    stream, table, record_key="id", index=bl.SimpleBucket(1), metrics=[str(lines)],
                    checkpoint=str(tmp_path / "checkpoint"),
                )  # fmt: skip
            except PySparkException as error:
                if attempt == 9 or "Python worker failed to connect back" not in str(error):
                    raise
        raise AssertionError

    (source / "1.json").write_text('{"id": "a", "n": 1}\n{"n": 2}\n{"id": "b", "n": 3}\n')
    first = take()
    assert (first.batches, first.rows, first.dead_letters, first.lag) == (1, 2, 1, None)
    assert first.seconds > 0
    bl.open_table(table).upsert(pa.table({"id": ["z"], "n": [1]}))  # Of another writer.
    (source / "2.json").write_text('{"id": "a", "n": 5}\n')
    second = take()
    assert (second.batches, second.rows, second.dead_letters) == (1, 1, 0)
    told = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [(line["rows"], line["dead_letters"]) for line in told] == [(2, 1), (1, 0)]
    assert not any("lag" in line for line in told)


def test_two_ingests_at_once_in_sessions_of_their_own_take_each_file_once(
    spark: SparkSession, connect_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has files that the other has not; and rows that cannot be taken."""
    set_bounds(monkeypatch, threads, HERE_BYTES_MAX=-1)  # Few rows go to tasks, too.
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        for number in range(3):
            rows = [{"id": f"{name}-{number}-{n}", "n": n} for n in range(3)] + [{"n": 3}]
            (folder / f"{number}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    reports, errors = dict[str, IngestReport](), list[Exception]()

    def take(name: str) -> None:
        session = SparkSession.builder.remote(connect_address).create()
        try:
            for _ in range(2):  # The second one finds nothing new.
                done = bl.ingest(
                    str(tmp_path / name), str(tmp_path / f"{name}-table"), record_key="id",
                    max_files=1, index=bl.SimpleBucket(1),
                )  # fmt: skip
                reports.setdefault(name, done)
        except Exception as error:  # Threads lose errors.
            errors.append(error)
        finally:
            session.stop()

    jobs = [threading.Thread(target=take, args=(name,)) for name in ("one", "two")]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert errors == []
    for name, report in reports.items():
        assert (report.batches, report.rows, report.dead_letters) == (3, 9, 3)
        table = bl.open_table(str(tmp_path / f"{name}-table"))
        wanted = [f"{name}-{number}-{n}" for number in range(3) for n in range(3)]
        assert sorted(table.to_arrow()["id"].to_pylist()) == wanted
        assert table.count() == len(wanted)
        position = table.position("files")
        assert position is not None
        assert dict(position.last) == {"batch": 2}


def test_tables_of_a_catalog_have_their_names(spark: SparkSession, tmp_path: Path) -> None:
    table = bl.create_table(str(tmp_path / "homes"), schema="id string, n bigint", record_key="id")
    table.upsert(pa.table({"id": ["a", "b"], "n": [1, 2]}))
    catalog = MemoryCatalog()
    bl.sync(table, catalog, "connected.homes")
    bl.register(spark, catalog=catalog, database="connected")
    rows = spark.sql("SELECT id FROM connected.homes WHERE n = 2").collect()
    assert [row["id"] for row in rows] == ["b"]
    spark.sql("DROP TABLE connected.homes")
