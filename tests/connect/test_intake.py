"""Messages and files through Spark Connect: the same rows as without it, and names of a catalog."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import bucketlake as bl
from bucketlake.flow import threads
from bucketlake.following import reading_of
from bucketlake.intake.metrics import IngestReport
from bucketlake.spark.debezium import decoded
from tests.cdc_streams import as_texts, kinds_of, messages, rows_at_end
from tests.memory_catalog import MemoryCatalog
from tests.spark.frames import frame_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::bucketlake.errors.NullElementWarning"),
]


def test_a_recorded_stream_in_two_frames_gives_the_rows_of_its_database(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The second frame has a row whose key changed, and whose value is in a row of the first."""
    rows, table = messages("random", "default", "public.ledger"), None
    for number, part in enumerate((rows.slice(0, 150), rows.slice(150))):
        batch = bl.debezium(frame_of(spark, part, tmp_path / f"part{number}"), table)
        if table is None:
            path = str(tmp_path / "ledger")
            table = bl.create_table(
                path, schema=batch.schema, record_key="id", ordering="_position"
            )
        table.upsert(batch)
    kinds = kinds_of("random", "public.ledger")
    assert as_texts(table.to_arrow(), [*kinds], kinds) == rows_at_end("random", "public.ledger")


def test_a_message_that_cannot_be_read_is_apart_or_fails_the_write(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = messages("random", "default", "public.ledger").slice(0, 3)
    broken = rows.set_column(1, "value", pa.array([b"{", *rows["value"].to_pylist()[1:]]))
    frame = frame_of(spark, broken, tmp_path / "rows")
    found = decoded(frame, reading_of())
    assert found.rows.count() == 2
    (bad,) = found.bad.collect()
    assert (bad["offset"], bytes(bad["value"])) == (rows["offset"][0].as_py(), b"{")
    table = bl.create_table(
        str(tmp_path / "t"), schema=found.rows.schema, record_key="id", ordering="_position"
    )
    with pytest.raises(bl.InputError, match="offset 0: it cannot be read"):
        table.upsert(bl.debezium(frame))
    assert table.timeline() == []


def test_two_ingests_at_once_in_sessions_of_their_own_take_each_file_once(
    spark: SparkSession, connect_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has files that the other has not; and rows that cannot be taken."""
    monkeypatch.setattr(threads, "HERE_BYTES_MAX", -1)  # Few rows go to tasks, too.
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
