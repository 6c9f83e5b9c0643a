"""What the driver programs share: a session, a table, rows of a round, storage with a hook.

The programs beside this file are run by tests as processes of their own, each with its Spark
session. Each prints one line of JSON last: what happened, for the test to judge.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import bucketlake as bl
import bucketlake.read.handle
from bucketlake.config.paths_of_table import MARKER_FOLDER
from bucketlake.flow import threads
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Buffer
from bucketlake.storage.local import LocalStorage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.outcome import is_rolled_back
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema(
    [("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.int64())]
)
threads.HERE_BYTES_MAX = -1  # Few rows go to tasks, too.
KEYS = 200
_PARENT = os.getppid()
PARTS = ["a", "b"]
BUCKETS = 2
INDEXES = {
    "simple": bl.SimpleBucket(BUCKETS),
    "record": bl.RecordIndex(),
    "dynamic": bl.DynamicBucket(max_records=40, assigners=2),
}
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.memory": "600m",
    "spark.executor.cores": "1",
    "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def session(master: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("bucketlake-driver")
    for key, value in (SETTINGS | dict(settings or {})).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def make_table(path: str, kind: str = "simple") -> bl.Table:
    """Make a table that holds round 0, written without Spark and without any hook.

    ``kind`` is the name of an index.
    """
    table = bl.create_table(
        path,
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["part"],
        ordering="ts",
        index=INDEXES[kind],
    )
    table.upsert(rows_of_round(0))
    return table


def rows_of_round(number: int) -> pa.Table:
    """Return the batch of a round: a run of keys that moves on, and so inserts and updates."""
    start = number * KEYS // 4
    ids = range(start, start + KEYS)
    return pa.table(
        {
            "id": [f"k{i:06}" for i in ids],
            "part": [PARTS[i % len(PARTS)] for i in ids],
            "ts": [number] * KEYS,
            "v": [number * 1_000_000 + i for i in ids],
        },
        schema=SCHEMA,
    )


def deleted_in(rows: pa.Table) -> pa.Table:
    """Return keys to delete: every third row, and a key that no table has."""
    keys = rows.select(["id", "part"]).to_pylist()[::3]
    return pa.Table.from_pylist([*keys, {"id": "absent", "part": PARTS[0]}])


def parent_lives() -> bool:
    """Whether the test that started this program is still there; it may have been killed."""
    return os.getppid() == _PARENT


def batch_of(name: str, number: int) -> list[tuple[str, str, int, int]]:
    """Return a batch of a stream: keys of its own, most of them in the batch before, too."""
    return [
        (f"{name}-{i:06}", PARTS[i % len(PARTS)], number, number * 1_000_000 + i)
        for i in range(number * 5, number * 5 + 20)
    ]


def model_of(rounds: Iterable[int]) -> list[dict[str, Any]]:
    """Return what the table holds once these rounds are written, in order of key."""
    held = {row["id"]: row for n in rounds for row in rows_of_round(n).to_pylist()}
    return [held[key] for key in sorted(held)]


def table_rows(path: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = bl.open_table(path).to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["id"], row["ts"]))


def frame_of_round(spark: SparkSession, number: int, folder: Path) -> DataFrame:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"round-{number}.parquet"
    pq.write_table(rows_of_round(number), path, store_schema=False)
    return spark.read.parquet(str(path))


class HookedStorage(LocalStorage):
    """Local disk that calls ``hook`` before or after it changes something, also in tasks."""

    def hook(self, operation: str, path: str, *, done: bool) -> None:
        """Do nothing; subclasses do."""

    def put(self, path: str, data: Buffer) -> None:
        self.hook("put", path, done=False)
        super().put(path, data)
        self.hook("put", path, done=True)

    def put_if_absent(self, path: str, data: Buffer) -> None:
        self.hook("put_if_absent", path, done=False)
        super().put_if_absent(path, data)
        self.hook("put_if_absent", path, done=True)

    def put_all_if_absent(self, objects: Sequence[tuple[str, Buffer]]) -> set[str]:
        for path, _ in objects:
            self.hook("put_if_absent", path, done=False)
        existing = super().put_all_if_absent(objects)
        for path, _ in objects:
            self.hook("put_if_absent", path, done=True)
        return existing


def is_marker_list(path: str) -> bool:
    """Tell whether an object is a list of markers."""
    return "/.temp/" in path and not path.endswith(".type")


def use_storage(storage: type[LocalStorage]) -> None:
    """Have all tables of this process lie on a storage of this class."""
    bucketlake.read.handle.open_storage = lambda path, options=None: storage(str(path))


def is_first(folder: str, name: str) -> bool:
    """Whether this caller is the first of all processes to ask."""
    try:
        os.close(os.open(f"{folder}/{name}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def attempt_number() -> int | None:
    """Return the number of the running attempt of a task, speculative ones too; None outside."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else context.attemptNumber()


def host() -> str:
    """Return the address of the worker that this process belongs to."""
    return os.environ.get("SPARK_LOCAL_IP", "")


def attempt_name() -> str:
    """Name the running attempt of a task by stage, partition, attempt and host."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return "driver"
    numbers = f"{context.stageId()}-{context.partitionId()}-{context.attemptNumber()}"
    return f"{numbers}-{host()}"


def note(folder: str, event: str) -> None:
    """Leave a note: time in milliseconds, stage, partition, attempt and host of the task, event."""
    now_ms = time.time_ns() // 1_000_000
    Path(f"{folder}/{now_ms}-{attempt_name()}-{event}").touch()


def notes_of(folder: str, event: str) -> list[str]:
    return sorted(path.name for path in Path(folder).glob(f"*-{event}"))


def wait_for_note(folder: str, event: str) -> None:
    """Wait until a note is there."""
    wait_until(lambda: notes_of(folder, event), lambda: f"there is no note of '{event}'")


def wait_until_quiet(path: str) -> None:
    """Wait until for some seconds no file of a table has come or gone."""
    seen: list[list[Path]] = [[]]

    def is_quiet() -> bool:
        time.sleep(4)
        seen.append(sorted(Path(path).rglob("*")))
        return seen[-1] == seen[-2]

    wait_until(is_quiet)


def left_over(path: str) -> dict[str, list[str]]:
    """Name what should not lie in a table: markers, temporaries, files of no commit.

    Markers of what was rolled back are to stay for a while.
    """
    root, storage = Path(path), LocalStorage(path)
    config = bl.open_table(path).config()
    timeline = load_timeline(opened_table(storage, config))
    committed = {
        stat.path
        for instant in timeline.completed_commits()
        for stats in timeline.read_commit(storage, instant).write_stats.values()
        for stat in stats
    }
    found = [str(file.relative_to(root)) for file in root.rglob("*.parquet")]
    marked = {
        folder.name: [str(file.relative_to(root)) for file in folder.rglob("MARKERS[0-9]*")]
        for folder in root.glob(f"{MARKER_FOLDER}/*")
    }
    return {
        "markers": [
            marker
            for name, markers in marked.items()
            if not is_rolled_back(storage, InstantTime(name))
            for marker in markers
        ],
        "files": sorted(file for file in found if file not in committed),
        "pending": [str(instant.requested_at) for instant in timeline.pending()],
        "staged": [str(file) for file in root.rglob("staging/*")],
        "spooled": [str(file) for file in root.rglob("spool/*")],
    }


def try_upsert(table: bl.Table, frame: DataFrame) -> dict[str, Any]:
    """Write a frame and say how it went."""
    try:
        result = table.upsert(frame)
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)[:400]}
    return {"error": None, "inserted": result.inserted, "updated": result.updated}


def report(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)
