"""Keep a table of flights fresh from a change stream, with PySpark and bucketlake.

The feed lies in Parquet files, one a week, with rows to upsert and rows that delete. A job of
Spark's Structured Streaming writes them to a Hudi table with dynamic buckets: see stream_job.py. In
the middle of a write the job is killed, and started again. At the end the table is compared, row by
row, with what it must hold, and read by another Hudi implementation.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq
from change_stream import count_periods, cut, expected_state, make_events
from checks import check_table
from feed import FeedFile, write_feed
from flight_data import FLIGHT_KEY, read_flights
from stream_job import start_spark
from summary import Progress, Stopwatch, print_next_steps, print_summary

import bucketlake as bl
from bucketlake.errors import TableNotFoundError

PERIOD_DAYS = {"weekly": 7, "daily": 1}
INDEX = bl.DynamicBucket(max_records=10_000, assigners=2)  # A month has about 28,000 flights.
KILL_WAIT_SECONDS = 60


def keep_fresh(path: Path, feed: Sequence[FeedFile], checkpoint: Path) -> Progress:
    """Run the job, kill it in the middle of a write, and run it again to its end."""
    progress = Progress(feed)
    progress.print_head()
    for is_to_be_killed in (True, False) if len(feed) > 1 else (False,):
        job = start_job(path, feed[0].path.parent, checkpoint)
        try:
            for facts in facts_of(job):
                progress.add(facts)
                if is_to_be_killed and progress.batches >= len(feed) // 2:
                    if kill_in_a_write(job, path):
                        progress.print_kill()
                    break
            if job.wait() and not is_to_be_killed:
                sys.exit("the job failed")
        finally:
            kill(job)
    return progress


def start_job(path: Path, feed: Path, checkpoint: Path) -> subprocess.Popen[str]:
    """Start the job as a process group of its own, with its JVM and its Python workers."""
    script = Path(__file__).with_name("stream_job.py")
    command = [sys.executable, str(script), str(path), str(feed), str(checkpoint)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


def facts_of(job: subprocess.Popen[str]) -> Iterator[dict[str, float]]:
    """Yield what the job tells about each batch."""
    assert job.stdout is not None
    for line in job.stdout:
        if line.startswith("{"):
            yield json.loads(line)


def kill_in_a_write(job: subprocess.Popen[str], path: Path) -> bool:
    """Wait until the next write is pending, and kill the job; return whether it was killed."""
    deadline = time.monotonic() + KILL_WAIT_SECONDS
    while job.poll() is None and not pending_writes(path):
        if time.monotonic() > deadline:
            sys.exit("the job stands still")
        time.sleep(0.01)
    is_running = job.poll() is None
    kill(job)
    return is_running


def kill(job: subprocess.Popen[str]) -> None:
    """Kill the job and all its processes, if they still run."""
    if job.poll() is None:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def pending_writes(path: Path) -> set[str]:
    """Return the instants of the table that began and did not complete."""
    names = [file.name for file in (path / ".hoodie" / "timeline").iterdir()]
    begun = {name.split(".")[0] for name in names if name.endswith(".inflight")}
    return begun - {name.split("_")[0] for name in names if "_" in name}


def main() -> int:
    """Run the demo; 0 if the table is what it must be."""
    arguments = parse_arguments()
    path: Path = arguments.path
    feed_path = path.with_name(f"{path.name}-feed")
    checkpoint = path.with_name(f"{path.name}-checkpoint")
    make_room(path)
    shutil.rmtree(checkpoint, ignore_errors=True)
    watch = Stopwatch()
    with watch.step("make the feed"):
        flights = read_flights()
        events = make_events(flights)
        if arguments.weeks is not None:
            events = cut(events, days=7 * arguments.weeks)
        period_days = PERIOD_DAYS[arguments.batches]
        print(
            f"{flights.num_rows:,} flights became a stream of {len(events):,} events in"
            f" {count_periods(events, period_days)} {arguments.batches} batches: {feed_path}"
        )
        feed = write_feed(feed_path, flights, events, period_days)
    bl.create_table(
        str(path),
        schema=pq.read_schema(feed[0].path),
        record_key=list(FLIGHT_KEY),
        partition_by=["month"],
        ordering="updated_at",  # Of rows with one key the latest event wins, however late it came.
        index=INDEX,
        upkeep="auto",  # Batches clean and archive the table when it is due.
    )
    print(f"The table: {path} (copy-on-write, a folder a month, {INDEX})\n")
    with watch.step("write all batches, with two starts of Spark"):
        progress = keep_fresh(path, feed, checkpoint)
    with watch.step("read and check"):
        spark = start_spark()
        table = bl.open_table(str(path))
        expected = expected_state(flights, events)
        checks = check_table(table, spark, path, flights, events, expected)
        spark.stop()
    print_summary(table, path, progress, checks, watch)
    print_next_steps(path)
    return 0 if all(check.passed for check in checks) else 1


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="demo.py",
        description=__doc__,
        epilog="example: scripts/demo --batches daily --weeks 2 --path /tmp/flights\n"
        "scripts/demo --cdc --help: another demo, which follows a database",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--batches", choices=list(PERIOD_DAYS), default="weekly", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--weeks", type=int, metavar="N", help="only the first N weeks of the stream, of about 56"
    )
    parser.add_argument(
        "--path",
        type=Path,
        default=Path("artifacts/flights"),
        help="where the table comes to lie; the table of an earlier run is replaced"
        " (default: %(default)s)",
    )
    arguments = parser.parse_args()
    if arguments.weeks is not None and arguments.weeks < 1:
        parser.error("--weeks must be 1 or more")
    return arguments


def make_room(path: Path) -> None:
    """Remove the table of an earlier run; refuse a folder that holds anything else."""
    if not path.exists() or not any(path.iterdir()):
        return
    try:
        key = bl.open_table(str(path)).config().key_spec.record_key_fields
    except TableNotFoundError:
        key = ()
    if key != FLIGHT_KEY:
        sys.exit(f"{path} holds something that is no table of flights; name another --path")
    shutil.rmtree(path)


if __name__ == "__main__":
    sys.exit(main())
