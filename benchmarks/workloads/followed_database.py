"""A random history of two tables of Postgres, followed through Debezium and Kafka, under kills.

The parts are those of the example (`examples/database`): Postgres, a broker of Kafka, and Kafka
Connect with Debezium, each a process. ``bucketlake ingest`` is one more; it keeps a merge-on-read
table with dynamic buckets for each topic. A writer changes the database at a steady rate, a killer
kills one part after another at random moments and starts it again, and the run looks at all of
them each ten seconds. At the end both tables must equal the database, row by row.

``orders`` has its key alone in the primary key, and ``REPLICA IDENTITY FULL``: its rows move from
partition to partition. The primary key of ``lines`` has the partition column, too, and large
values that did not change are not in its messages.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

import bucketlake as bl
from benchmarks.common.process import REPOSITORY, guarded
from benchmarks.common.rows import DataSet
from benchmarks.common.usage import core_count, family, machine_cpu_seconds, status_bytes
from benchmarks.systems.engine_free import EngineFree
from benchmarks.workloads.stream import folder_facts
from benchmarks.workloads.topic_ends import topic_end
from bucketlake.errors import TableNotFoundError
from examples.database.compare import differences
from examples.database.history import History
from examples.database.ingest_job import CONNECTORS
from examples.database.stack import Stack, StackUnavailableError

JARS = REPOSITORY / ".uv" / "change-stream"
TABLES = {
    "orders": "alter table public.orders replica identity full;",
    "lines": "alter table public.lines drop constraint lines_pkey, add primary key (region, id);",
}
KEYS = {"orders": ["id"], "lines": ["region", "id"]}
PARTS = {"job": 4, "connect": 3, "kafka": 3, "postgres": 1}
"""What is killed, and how often beside the others."""

WEIGHTS = (25, 40, 25, 6, 4)  # As many deletes as inserts: the tables keep their size.
COLUMNS_EVERY = 4_000
BUCKET_ROWS = 1_000
EVERY_SECONDS = 2
SAMPLE_SECONDS = 10
EQUAL_SECONDS_MAX = 600


class FollowedDatabase(EngineFree):
    """The database, what follows it, and who kills them.

    Parameters
    ----------
    settings : mapping
        ``minutes``, ``seed``, ``kills`` and ``rate`` of the run; ``rows`` of each table.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(
            connector=CONNECTORS["4.3"],
            tables="merge_on_read, upkeep=auto, partition_by=region, "
            f"DynamicBucket(max_records={BUCKET_ROWS})",
            every=f"{EVERY_SECONDS} seconds",
        )
        self._given = settings
        self._folder = Path(settings["work"]).absolute() / "run"
        self._histories = [
            History("postgres", settings["seed"] + n, f"public.{name}", WEIGHTS,
                    COLUMNS_EVERY)
            for n, name in enumerate(TABLES)
        ]  # fmt: skip
        self._random = random.Random(settings["seed"])
        self._database, self._of_job = threading.Lock(), threading.Lock()
        self._done, self._problems = threading.Event(), list[BaseException]()
        self._job: subprocess.Popen[bytes] | None = None
        self._began, self._rows = 0.0, 0
        self._killed, self._ended = list[dict[str, Any]](), list[dict[str, Any]]()

    def run(self, _data: DataSet, table: Path) -> None:
        """Run for the minutes, and compare at the end."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        self._lake = table
        # The database runs as a user of its own, which may not look into every folder.
        self._stack = Stack(Path(tempfile.mkdtemp(prefix="change-stream-")), JARS)
        try:
            self._start()
            samples = [*self._samples(60 * self._given["minutes"])]
            seconds = self._until_equal()
            self._end_job(signal.SIGTERM)
            self.seen = {
                "samples": samples, "batches": self._batches(), "kills": self._killed,
                "ended": self._ended, "rows_changed": self._rows, "equal_after": seconds,
                "elapsed": time.monotonic() - self._began, "tables": self._last_facts(),
            }  # fmt: skip
            (self._folder / "seen.json").write_text(json.dumps(self.seen, indent=1))
        finally:
            self._done.set()
            self._end_job(signal.SIGKILL)
            self._stack.stop()
            shutil.rmtree(self._stack.folder, ignore_errors=True)

    # ---- the parts ------------------------------------------------------------------------------

    def _start(self) -> None:
        """Start all parts; the snapshot is in the tables when it returns."""
        self._stack.start("postgres", "kafka", "connect")
        for history, more in zip(self._histories, TABLES.values(), strict=True):
            begin = history.begin(self._given["rows"])
            self._stack.sql("postgres", f"begin;{begin}{more}commit;")
        for name in TABLES:
            columns = {"id": pa.int32(), "region": pa.string(), "_position": pa.string()}
            bl.create_table(
                str(self._path(name)), schema=pa.schema(columns), record_key=KEYS[name],
                partition_by=["region"], ordering="_position", table_type="merge_on_read",
                index=bl.DynamicBucket(max_records=BUCKET_ROWS), upkeep="auto",
            )  # fmt: skip
        self._connect()
        (self._folder / "job.toml").write_text(
            f'table = "{self._lake}/{{topic}}"\nevery = {EVERY_SECONDS}\n'
            f'metrics = ["{self._folder}/metrics.jsonl"]\n[kafka]\n'
            f'"kafka.bootstrap.servers" = "{self._stack.brokers}"\n'
            f'subscribe = "{",".join(map(_topic, TABLES))}"\n'
        )
        self._wait(lambda: all(self._end_of(name) >= self._given["rows"] for name in TABLES))
        self._start_job()
        self._wait(lambda: self._lag() == 0)

    def _connect(self) -> None:
        names = ",".join(f"public.{name}" for name in TABLES)
        self._stack.connector("shop", "postgres", **{"table.include.list": names})

    def _start_job(self) -> None:
        conf = {
            "spark.master": f"local[{self._given['cores']}]",
            "spark.jars.packages": CONNECTORS["4.3"],
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "1g",
        }
        command = [str(Path(sys.executable).with_name("bucketlake")), "ingest"]
        command += ["--config", str(self._folder / "job.toml")]
        command += [word for k, v in conf.items() for word in ("--spark-conf", f"{k}={v}")]
        with (self._folder / "job.log").open("ab") as log:
            self._job = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def _end_job(self, how: signal.Signals) -> None:
        job, self._job = self._job, None
        if job is None:
            return
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if how is signal.SIGKILL else os.kill)(job.pid, how)
        try:
            job.wait(120)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)

    def _kill(self, part: str) -> None:
        """Kill a part, and start it again."""
        if part == "job":
            with self._of_job:
                self._end_job(signal.SIGKILL)
                self._start_job()
            return
        # The writer waits for the database, so that it knows which transactions are there.
        with self._database if part == "postgres" else contextlib.nullcontext():
            self._stack.kill(part)
            self._stack.start(part)
        if part == "connect":
            try:
                self._connect()
            except StackUnavailableError:  # A busy machine may take longer than the stack waits.
                self._connect()

    # ---- threads: who changes the database, and who kills ---------------------------------------

    def _threads(self) -> list[threading.Thread]:
        """Start the writer and the killer."""

        works = (self._write, self._kill_some)
        made = [threading.Thread(target=guarded(work, self._problems)) for work in works]
        for thread in made:
            thread.start()
        return made

    def _write(self) -> None:
        """Change the database once a second, as many rows as the rate says."""
        streams = [history.transactions(10**9) for history in self._histories]
        count = 0
        while not self._done.wait(max(0.0, self._began + count - time.monotonic())):
            count, texts, rows = count + 1, list[str](), 0
            while rows < self._given["rate"]:
                texts.append(next(streams[len(texts) % len(streams)]))
                rows += _rows_of(texts[-1])
            with self._database:
                self._stack.sql("postgres", "".join(texts))
            self._rows += rows

    def _kill_some(self) -> None:
        """Kill parts, each at a random moment of its share of the time."""
        number = self._given["kills"]
        share = 60 * self._given["minutes"] / (number + 1)  # The last one passes without a kill.
        moments = [(place + self._random.random()) * share for place in range(number)]
        parts = self._random.choices([*PARTS], [*PARTS.values()], k=number)
        for moment, part in zip(moments, parts, strict=True):
            if self._done.wait(max(0.0, self._began + moment - time.monotonic())):
                return
            at = time.monotonic()
            self._kill(part)
            taken = time.monotonic() - at
            self._killed.append({"at": at - self._began, "part": part, "seconds": taken})

    # ---- what is looked at ----------------------------------------------------------------------

    def _samples(self, seconds: float) -> Iterator[dict[str, Any]]:
        """Let it run so long, and yield what is seen."""
        self._began = time.monotonic()
        threads = self._threads()
        number = 0
        while (at := SAMPLE_SECONDS * number) < seconds and not self._problems:
            time.sleep(max(0.0, self._began + at - time.monotonic()))
            number = int((time.monotonic() - self._began) // SAMPLE_SECONDS) + 1
            sample = self._sample()
            with (self._folder / "samples.jsonl").open("a") as lines:
                lines.write(json.dumps(sample) + "\n")
            yield sample
        self._done.set()
        for thread in threads:
            thread.join()
        if self._problems:
            raise self._problems[0]

    def _sample(self) -> dict[str, Any]:
        self._look_after()
        facts: dict[str, Any] = {"at": round(time.monotonic() - self._began, 1)}
        with self._of_job:
            job = self._job.pid if self._job else 0
            facts["job"] = job
            facts |= process_facts(job)
        facts["machine"] = machine_cpu_seconds() / core_count()
        facts["lag"] = self._lag()
        facts["tables"] = [_files_of(self._path(name)) for name in TABLES]
        return facts

    def _look_after(self) -> None:
        """Start a job anew that ended by itself, and a connector's task that failed."""
        with self._of_job:
            if self._job is not None and self._job.poll() is not None:
                words = (self._folder / "job.log").read_text(errors="replace")[-1_500:]
                at = round(time.monotonic() - self._began, 1)
                self._ended.append({"at": at, "code": self._job.returncode, "words": words})
                self._end_job(signal.SIGKILL)
                self._start_job()
        with contextlib.suppress(OSError):  # It is being killed.
            self._stack.restart_failed("shop")

    def _lag(self) -> int | None:
        """Return how many messages are not in the tables; None while the broker is away."""
        try:
            return sum(self._end_of(name) - self._taken(name) for name in TABLES)
        except OSError:
            return None

    def _end_of(self, name: str) -> int:
        return topic_end(self._stack.ports["kafka"], _topic(name))

    def _taken(self, name: str) -> int:
        """Return up to which offset the topic is in its table."""
        position = bl.open_table(str(self._path(name))).position(_topic(name))
        return 0 if position is None else position.last["0"] + 1

    def _batches(self) -> list[dict[str, Any]]:
        path, now, wall = self._folder / "metrics.jsonl", time.monotonic(), time.time()
        found = [json.loads(line) for line in path.read_text().splitlines()]
        return [
            {
                "at": round(each["at"] - wall + now - self._began, 2),
                "table": [*map(_topic, TABLES)].index(Path(each["table"]).name),
                **{name: each[name] for name in ("rows", "deleted", "dead_letters", "lag")},
                "seconds": round(each["seconds"], 3),
            }
            for each in found
        ]

    # ---- the end --------------------------------------------------------------------------------

    def _until_equal(self) -> float:
        """Wait until both tables equal the database; return the seconds since the last change."""
        stopped = time.monotonic()

        def is_equal() -> bool:
            self._found = self._differences() if self._lag() == 0 else ["rows are on their way"]
            return not self._found

        self._wait(is_equal)
        return time.monotonic() - stopped

    def _differences(self) -> list[str]:
        found = []
        for name in TABLES:
            rows = self._stack.sql("postgres", f"select * from public.{name}")
            table = bl.open_table(str(self._path(name)))
            found += [f"{name}: {each}" for each in differences(rows, table)]
        return found

    def _wait(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        end = time.monotonic() + EQUAL_SECONDS_MAX
        while True:
            with contextlib.suppress(OSError):
                if holds():
                    return
            self._look_after()
            if time.monotonic() > end or len(self._ended) > self._given["kills"] + 5:
                found, lag = getattr(self, "_found", None), self._lag()
                raise AssertionError(f"differs {found}; lag {lag}; jobs ended {self._ended[-3:]}")
            time.sleep(1)

    def _last_facts(self) -> list[dict[str, Any]]:
        """Return rows, dead letters and findings of each table."""
        found = []
        for name in TABLES:
            path = str(self._path(name))
            table = bl.open_table(path)
            try:
                letters = bl.open_table(f"{path}_dead_letters").to_arrow()["reason"].to_pylist()
            except TableNotFoundError:
                letters = []
            findings = table.doctor(check_keys=True, check_files=True, min_age_seconds=0)
            found.append({
                "name": name, "rows": table.count(), "dead_letters": letters,
                "findings": [str(each) for each in findings], "files": _files_of(Path(path)),
            })  # fmt: skip
        return found

    def _path(self, name: str) -> Path:
        return self._lake / _topic(name)


def _topic(name: str) -> str:
    return f"shop.public.{name}"


def _rows_of(transaction: str) -> int:
    """Return how many rows a transaction changes."""
    if transaction.startswith("alter") or transaction.endswith("rollback;"):
        return 0
    return sum(transaction.count(verb) for verb in ("insert into ", "update public", "delete from"))


def _files_of(path: Path) -> dict[str, int]:
    """Count the files of a table, and the bytes of its bookkeeping."""
    facts = dict[str, int]()
    for _ in range(3):
        with contextlib.suppress(FileNotFoundError):  # A clean deletes what is being counted.
            facts = folder_facts(path)
            sizes = [
                (Path(folder) / name).stat().st_size
                for folder, _, names in os.walk(path / ".hoodie")
                for name in names
            ]
            return {**facts, "hoodie_files": len(sizes), "hoodie_bytes": sum(sizes)}
    return facts


def process_facts(root: int) -> dict[str, int]:
    """Return memory and open handles of a job: its Python process, its JVM, the workers."""
    found = {"python_bytes": 0, "jvm_bytes": 0, "workers_bytes": 0, "handles": 0}
    for pid in family(root) if root else []:
        with contextlib.suppress(OSError):  # It has ended.
            is_java = Path(f"/proc/{pid}/comm").read_text().strip() == "java"
            kind = "python" if pid == root else "jvm" if is_java else "workers"
            found[f"{kind}_bytes"] += status_bytes(pid, "VmRSS")
            if kind != "workers":
                found["handles"] += len([*Path(f"/proc/{pid}/fd").iterdir()])
    return found
