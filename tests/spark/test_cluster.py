"""A day on a cluster: a master, two workers, speculation, and executors that die.

Bucket kinds that compute a bucket and kinds that look it up take another way through Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import pytest

import bucketlake as bl
from bucketlake.timeline.instant import Action, State
from examples.database.stack import Stack, StackUnavailableError
from tests.choices import DEEP
from tests.in_ci import skip_or_fail
from tests.spark.drivers.common import KEYS, SCHEMA, deleted_in, model_of, rows_of_round, table_rows
from tests.spark.processes import (
    WORKER_HOSTS,
    cluster,
    kill_group,
    run_driver,
    start_driver,
    tail,
)
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.any_spark]

JARS = Path(__file__).parents[2] / ".uv" / "change-stream"  # Where the demo has them.
KILLS = 2
NOTHING_LEFT: dict[str, list[str]] = {"markers": [], "files": [], "pending": [], "spooled": []}


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


class Model:
    """What the table should hold: a row by key."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, object]] = {}

    def apply(self, operation: str, number: int) -> list[int]:
        """Change the rows as a write does; return how many are inserted, updated and deleted."""
        batch, before = rows_of_round(number), self.rows
        if operation == "upsert":
            written = {row["id"]: row for row in batch.to_pylist()}
            self.rows = before | written
            updated = len(before.keys() & written.keys())
            return [len(written) - updated, updated, 0]
        keys = {row["id"] for row in deleted_in(batch).to_pylist()}
        self.rows = {key: row for key, row in before.items() if key not in keys}
        return [0, 0, len(before) - len(self.rows)]


@pytest.mark.parametrize("kind", ["simple", "dynamic"])
def test_writes_on_a_cluster_are_exact_while_executors_die_and_tasks_are_copied(
    master: str, tmp_path: Path, kind: str
) -> None:
    report = run_driver("on_cluster", master, tmp_path, kind, log=tmp_path / "log")
    model = Model()
    for done in report["done"]:
        assert done["changed"] == model.apply(*done["step"]), done["step"]
        assert done["rows"] == [model.rows[key] for key in sorted(model.rows)], done["step"]
        assert done["spark"] == sorted(model.rows), done["step"]
    events = [note.rpartition("-")[2] for note in report["notes"]]
    assert events.count("kills") == KILLS
    assert (events.count("sleeps"), "copies" in events) == (1, True)
    # A killed executor may leave the file that it was writing, which no reader looks at.
    assert len(report["left"].pop("staged")) <= KILLS
    assert report["left"] == NOTHING_LEFT
    assert report["doctor"] == []


def test_two_executors_report_together_what_their_cache_answered(
    master: str, tmp_path: Path
) -> None:
    """Of the location cache of dynamic buckets."""
    report = run_driver("cached", master, tmp_path, log=tmp_path / "log")
    counts = [(r["looked_up"], r["from_cache"], r["from_table"]) for r in report["results"]]
    new_table, cold, warm = (0, 0, 0), (KEYS, 0, KEYS), (KEYS, KEYS, 0)
    assert counts == [new_table, warm, warm, cold, warm], "the first write noted its keys"
    assert report["rows"] == model_of(range(1, 6))
    hosts = {note.split("-")[4] for note in report["notes"]}
    assert hosts == set(WORKER_HOSTS), "one executor looked all keys up"


@pytest.fixture
def brokers() -> Iterator[str]:
    """Run a broker of Kafka; yield its address."""
    with TemporaryDirectory() as folder:
        stack = Stack(Path(folder), JARS)
        try:
            stack.start("kafka")
            yield stack.brokers
        except StackUnavailableError as error:
            skip_or_fail("a broker", str(error))
        finally:
            stack.stop()


@pytest.mark.skipif(not DEEP, reason="a deep run has it")
@pytest.mark.parametrize("kind", ["files", "rows"])
def test_an_ingest_takes_each_row_once_while_an_executor_and_then_the_driver_die(
    master: str, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """Of a landing zone, and of a topic."""
    more = [request.getfixturevalue("brokers")] if kind == "rows" else []
    landing, path, rounds = tmp_path / "landing", str(tmp_path / "table"), range(12)
    landing.mkdir()
    (tmp_path / "notes").mkdir()
    for number in rounds:
        pq.write_table(rows_of_round(number), landing / f"{number:02}.parquet")

    def stored() -> int:
        """Return how many batches are in the table."""
        if not (Path(path) / ".hoodie" / "hoodie.properties").exists():
            return 0
        return sum(
            entry.action is Action.COMMIT and entry.state is State.COMPLETED
            for entry in bl.open_table(path).timeline()
        )

    log = tmp_path / "killed.log"
    driver = start_driver("ingesting", master, tmp_path, *more, log=log)

    def has_begun() -> bool:
        assert driver.poll() is None, f"the driver ended before it was killed: {tail(log)}"
        return stored() >= 2

    try:
        wait_until(has_begun, lambda: tail(log))
    finally:
        kill_group(driver)
    before, batches = stored(), len(rounds) // 2
    report = run_driver("ingesting", master, tmp_path, *more, log=tmp_path / "log")
    assert report["batches"] == batches - before
    assert stored() == batches
    held = [{name: row[name] for name in SCHEMA.names} for row in table_rows(path)]
    assert held == model_of(rounds)
    assert [*bl.open_table(path).doctor(check_keys=True, check_files=True)] == []
    notes = [note.name for note in (tmp_path / "notes").iterdir() if "-" in note.name]
    assert {note.rpartition("-")[2] for note in notes} == {"kills", "writes"}
    assert {note.split("-")[4] for note in notes} == set(WORKER_HOSTS), "one executor did all"
    again = run_driver("ingesting", master, tmp_path, *more, log=tmp_path / "again.log")
    assert again["rows"] == 0
