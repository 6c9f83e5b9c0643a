"""Keep a table of flights fresh from a change stream, with PySpark and bucketlake.

The feed lies in Parquet files, a folder a week: rows to upsert, keys to delete. The job reads each
folder with Spark and writes it to a Hudi table with a bucket index: see `keep_fresh`. At the end
the table is compared, row by row, with what it must hold, and read by another Hudi implementation.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from change_stream import count_periods, cut, expected_state, make_events
from checks import check_table
from feed import FeedFolder, write_feed
from flight_data import FLIGHT_KEY, read_flights
from pyspark.sql import SparkSession
from summary import Progress, Stopwatch, print_next_steps, print_summary

import bucketlake as bl
from bucketlake.errors import TableNotFoundError

PERIOD_DAYS = {"weekly": 7, "daily": 1}
BUCKETS = 4  # In each month, which has about 28,000 flights.
JVM_OPTIONS = (
    f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"
    " -XX:TieredStopAtLevel=1"  # Compile fast: this job ends before thorough compiling pays.
)


def start_spark() -> SparkSession:
    """Start Spark on this machine. bucketlake needs no jar and no setting of its own."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # Nothing else needs to reach it.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Its workers use this environment.
    return (
        SparkSession.builder.master("local[2]")  # Two threads of this process are the cluster.
        .appName("bucketlake flights demo")
        .config("spark.sql.session.timeZone", "UTC")  # The feed's timestamps are in UTC.
        .config("spark.sql.shuffle.partitions", 2)  # As many as there are threads.
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", JVM_OPTIONS)
        .getOrCreate()
    )


def keep_fresh(spark: SparkSession, path: Path, feed: Sequence[FeedFolder]) -> Progress:
    """Do the job: make the table, then write one folder of the feed after the other."""
    table = bl.create_table(
        str(path),
        schema=spark.read.parquet(str(feed[0].upserts)).schema,
        record_key=list(FLIGHT_KEY),
        partition_by=["month"],
        ordering="updated_at",  # Of rows with one key the latest event wins, however late it came.
        index=bl.SimpleBucket(BUCKETS),
    )
    progress = Progress(len(feed))
    progress.print_head()
    for folder in feed:
        with progress.batch(folder) as results:
            results.append(table.upsert(spark.read.parquet(str(folder.upserts))))
            results.append(table.delete(spark.read.parquet(str(folder.deletes))))
    return progress


def main() -> int:
    """Run the demo; 0 if the table is what it must be."""
    arguments = parse_arguments()
    path: Path = arguments.path
    feed_path = path.with_name(f"{path.name}-feed")
    make_room(path)
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
    with watch.step("start Spark"):
        spark = start_spark()
    print(f"The table: {path} (copy-on-write, a folder a month, {BUCKETS} buckets in each)\n")
    with watch.step("write all batches"):
        progress = keep_fresh(spark, path, feed)
    with watch.step("read and check"):
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
        epilog="example: scripts/demo --batches daily --weeks 2 --path /tmp/flights",
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
