"""Follow a database: Postgres, Debezium and Kafka on one side, a lake table on the other.

A shop's orders change at random in Postgres. Debezium reads the changes from Postgres's log into a
topic of Kafka, and a job (ingest_job.py) keeps a Hudi table equal to the database. On the way each
of the job, the connector, the broker and the database is killed once, and started again. At the end
the table is compared with the database, row by row.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from compare import differences
from history import TABLE, History
from stack import Stack, StackUnavailableError

import bucketlake as bl
from bucketlake.errors import TableNotFoundError

JARS = Path(__file__).parents[2] / ".uv" / "change-stream"
FIRST_ROWS = 500
UNAVAILABLE = 3  # The exit code if a part cannot be had.
EQUAL_SECONDS_MAX = 300


class Demo:
    """The database, its log, and the job that follows it.

    Parameters
    ----------
    folder : Path
        Where all of it lies.
    database : str
        ``postgres`` or ``mariadb``.
    seed : int
        What the history of the database follows from.
    """

    def __init__(self, folder: Path, jars: Path, database: str, seed: int) -> None:
        # Databases run as users of their own, which may not look into every folder.
        self.stack = Stack(Path(tempfile.mkdtemp(prefix="change-stream-")), jars)
        self.path = str(folder / TABLE)
        self.database = database
        self.schema = "public" if database == "postgres" else "shop"
        self.history = History(database, seed, f"{self.schema}.{TABLE}")
        self.job: subprocess.Popen[bytes] | None = None
        self.log = folder / "ingest.log"

    @property
    def topic(self) -> str:
        """The topic of the table."""
        return f"shop.{self.schema}.{TABLE}"

    def start(self) -> None:
        """Start database, broker and connector; the first rows are there before it looks."""
        self.stack.start(self.database, "kafka", "connect")
        if self.database == "mariadb":
            self.stack.sql(self.database, "create database shop")
        self.stack.sql(self.database, self.history.begin(FIRST_ROWS))
        self.connect()
        self.start_job()

    def connect(self) -> None:
        """Let Debezium follow the table."""
        table = {"table.include.list": f"{self.schema}.{TABLE}"}
        if self.database == "mariadb":
            table["database.include.list"] = self.schema
        self.stack.connector("shop", self.database, **table)

    def start_job(self) -> None:
        """Start the job as a process group of its own, with its JVM and its Python workers."""
        script = Path(__file__).with_name("ingest_job.py")
        with self.log.open("ab") as log:
            self.job = subprocess.Popen(
                [sys.executable, script, self.stack.brokers, self.topic, self.path],
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def end_job(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the job: killed with all its processes, or after its batch."""
        if self.job is None:
            return
        if how is signal.SIGKILL:
            os.killpg(self.job.pid, how)
        else:
            self.job.send_signal(how)
        self.job.wait(60)
        self.job = None

    def kill(self, part: str) -> None:
        """Kill a part, and start it again."""
        if part == "job":
            self.end_job(signal.SIGKILL)
            self.start_job()
            return
        self.stack.kill(part)
        self.stack.start(part)
        if part == "connect":
            self.connect()

    def differences(self) -> list[str]:
        """Return how the table differs from the database now."""
        rows = self.stack.sql(self.database, f"select * from {self.history.table}")
        try:
            return differences(rows, bl.open_table(self.path))
        except TableNotFoundError:
            return ["there is no table yet"]

    def until_equal(self, seconds_max: float = EQUAL_SECONDS_MAX) -> float:
        """Wait until the table equals the database; return the seconds.

        Raises
        ------
        AssertionError
            If it does not come so far, or the job has ended.
        """
        started = time.monotonic()
        while found := self.differences():
            ended = self.job is None or self.job.poll() is not None
            if ended or time.monotonic() - started > seconds_max:
                logs = (self.log, self.stack.folder / "connect.log")
                words = "\n".join(path.read_text(errors="replace")[-2_000:] for path in logs)
                states = self.stack.restart_failed("shop")
                raise AssertionError(f"the table differs: {found}; connector {states}\n{words}")
            self.stack.restart_failed("shop")
            time.sleep(0.3)
        return time.monotonic() - started

    def batches(self) -> list[dict[str, float]]:
        """Return what the job told of its batches."""
        path = Path(f"{self.path}.metrics.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def stop(self) -> None:
        """Stop everything."""
        self.end_job(signal.SIGKILL)
        self.stack.stop()
        shutil.rmtree(self.stack.folder)


def show(demo: Demo, transactions: int, done: int, word: str = "") -> None:
    """Print a line of progress."""
    rows = sum(batch["rows"] for batch in demo.batches())
    batches = len(demo.batches())
    print(f"{done:>12,} {transactions:>8,} {batches:>8,} {rows:>12,.0f}   {word}", flush=True)


def follow(demo: Demo, transactions: int) -> None:
    """Change the database, kill each part once, and compare at the end."""
    killed = dict(
        zip((0.2, 0.4, 0.6, 0.8), ("job", "connect", "kafka", demo.database), strict=True)
    )
    moments = {int(transactions * share): part for share, part in killed.items()}
    print(f"{'transactions':>12} {'of':>8} {'batches':>8} {'rows taken':>12}")
    demo.until_equal()
    show(demo, transactions, 0, "the snapshot is in the table")
    for number, statements in enumerate(demo.history.transactions(transactions), 1):
        demo.stack.sql(demo.database, statements)
        if number in moments:
            demo.kill(moments[number])
            show(demo, transactions, number, f"{moments[number]} was killed and started again")
        elif number % max(1, transactions // 8) == 0:
            show(demo, transactions, number)
    seconds = demo.until_equal()
    demo.end_job()
    table = bl.open_table(demo.path)
    print(f"\nThe table equals the database, {seconds:.1f} seconds after its last change:")
    print(
        f"{table.count():,} rows; {sum(b['dead_letters'] for b in demo.batches()):.0f} dead letters"
    )
    table.show(5, columns=["id", "region", "state", "total", "at"])


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(
        prog="scripts/demo --cdc", description="Follow a database with real Debezium and Kafka.",
        epilog="example: scripts/demo --cdc --database mariadb --transactions 200",
    )  # fmt: skip
    parser.add_argument("--database", choices=["postgres", "mariadb"], default="postgres")
    parser.add_argument("--transactions", type=int, default=400, help="how many, by default 400")
    parser.add_argument("--seed", type=int, default=1, help="another one gives another history")
    parser.add_argument(
        "--folder", type=Path, default=Path("artifacts/database"), help="is made anew"
    )
    given = parser.parse_args()
    folder = given.folder.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    demo = Demo(folder, JARS, given.database, given.seed)
    try:
        print(f"Starting {given.database}, Kafka and Debezium (the first time fetches 90 MB) …")
        demo.start()
        follow(demo, given.transactions)
    except StackUnavailableError as error:
        print(error, file=sys.stderr)
        sys.exit(UNAVAILABLE)
    finally:
        demo.stop()
    print(f"\nThe table is {demo.path}; look at it with: bucketlake show {demo.path}")


if __name__ == "__main__":
    main()
