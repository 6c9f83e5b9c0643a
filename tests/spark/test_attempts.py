"""Tasks that run twice, late, and after death: a committed row is neither lost nor doubled.

Shown on a cluster of two workers at two addresses, with one core each, and on local masters that
repeat a failed task and that do not. What a task did it noted in a folder, so each test also says
that what it is about has really happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import bucketlake as bl
from bucketlake.storage.local import LocalStorage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.open_table import opened_table
from tests.choices import of_this_version
from tests.spark.drivers.common import PARTS, make_table, model_of, rows_of_round
from tests.spark.processes import cluster, run_driver

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.any_spark]

NOTHING_LEFT = {"markers": [], "files": [], "pending": [], "staged": [], "spooled": []}
WRITTEN = {"error": None, "inserted": 50, "updated": 150}


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


def notes(report: dict[str, Any], event: str) -> list[list[str]]:
    """Return the notes of an event: time, then stage, partition, attempt and host of the task."""
    found = [note.split("-") for note in report["notes"]]
    return [note[:-1] for note in found if note[-1] == event]


def counts_of_last_commit(path: Path) -> dict[str, tuple[int, ...]]:
    """Return what the last commit says of each bucket, once checked against the files."""
    storage = LocalStorage(str(path))
    timeline = load_timeline(opened_table(storage, bl.open_table(str(path)).config()))
    commit = timeline.read_commit(storage, timeline.completed_commits()[-1])
    counts = {}
    for stat in (stat for stats in commit.write_stats.values() for stat in stats):
        assert stat.file_size_bytes == (path / stat.path).stat().st_size
        assert stat.record_count == pq.read_metadata(path / stat.path).num_rows
        bucket = f"{stat.partition_path}/{stat.file_id[:8]}"
        counts[bucket] = (stat.insert_count, stat.update_count, stat.delete_count)
    return counts


def test_a_slow_attempt_is_overtaken_by_its_copy_and_its_late_work_is_swept_up(
    master: str, tmp_path: Path
) -> None:
    report = run_driver("late", master, tmp_path, "commit", log=tmp_path / "log")
    [slept] = notes(report, "sleeps")
    [woke] = notes(report, "wakes")
    [returned] = notes(report, "returned")
    assert slept[1:] == woke[1:]
    assert int(woke[0]) > int(returned[0]), "the write did not return while the attempt slept"
    copies = [note for note in notes(report, "marked") if note[1:3] == slept[1:3]]
    assert [(note[3], note[4] == slept[4]) for note in copies] == [("1", False), ("0", True)]
    assert report["first"] == report["second"] == WRITTEN
    assert report["rows_before"] == report["rows_after"] == model_of([0, 1])
    assert len(report["left_before"]["markers"]) == 1  # The sleeper's, after the commit.
    assert report["left_before"]["files"] == []
    assert report["rows"] == model_of([0, 1, 2])
    assert report["left"] == NOTHING_LEFT


def test_an_attempt_that_writes_after_the_rollback_takes_its_file_away_again(
    master: str, tmp_path: Path
) -> None:
    report = run_driver("late", master, tmp_path, "rollback", log=tmp_path / "log")
    [returned] = notes(report, "returned")
    [late] = notes(report, "puts")
    assert int(late[0]) > int(returned[0]), "the attempt was not late"
    assert report["first"]["error"] == "StorageError"
    assert "no space left on device" in report["first"]["message"]
    assert report["rows_before"] == report["rows_after"] == model_of([0])
    assert report["left_before"]["files"] == []
    assert report["second"]["error"] is None
    assert report["rows"] == model_of([0, 2])
    assert report["left"] == NOTHING_LEFT


@pytest.mark.parametrize(
    ("moment", "kind"),
    [
        *(("marked", "simple"), ("entries", "record")),
        *of_this_version([("published", "simple"), ("published", "record")], 2),
        *of_this_version([("any", "record"), ("any", "simple")], 2),
    ],
)
def test_a_write_outlives_the_death_of_an_executor_or_fails_whole(
    master: str, tmp_path: Path, moment: str, kind: str
) -> None:
    report = run_driver("killed_executor", master, tmp_path, moment, 1, kind, log=tmp_path / "log")
    assert len(notes(report, "kills")) == (3 if moment == "any" else 1)
    rounds = [0]
    for number, result in enumerate(report["results"], 1):
        if result["error"] is None:
            rounds.append(number)
        assert result["rows"] == model_of(rounds)
    if moment != "any":
        assert rounds == [0, 1, 2, 3]
    assert report["last"]["error"] is None
    assert report["rows"] == model_of([*rounds, 4])
    left = report["left"]
    assert (left["markers"], left["files"], left["pending"]) == ([], [], [])
    if kind == "record":
        require_exact_index(bl.open_table(str(tmp_path / "table")))


def require_exact_index(table: bl.Table) -> None:
    """Require that the index has the keys of the table, each in the file group where it is."""
    found = table.to_arrow(columns=["id", "part", "_hoodie_file_name"]).to_pylist()
    held = {(row["part"], row["id"]): row["_hoodie_file_name"].partition("_")[0] for row in found}
    entries = {
        (part, entry["record_key"]): entry["file_id"]
        for part in PARTS
        for entry in table.record_locations(part).to_pylist()
    }
    assert entries == held


FAULTS = pytest.mark.parametrize("fault", ["marker", "file", "published"])


@pytest.fixture(scope="module")
def repeating(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """What one driver reports whose tasks are tried four times, for each fault; and its folder."""
    folder = tmp_path_factory.mktemp("repeating")
    return folder, run_driver("retries", "local[2,4]", folder, "simple", log=folder / "log")


@pytest.fixture(scope="module")
def giving_up(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one driver reports whose tasks are tried once, for each fault."""
    folder = tmp_path_factory.mktemp("giving up")
    report: dict[str, Any] = run_driver("retries", "local[2]", folder, "simple", log=folder / "log")
    return report


def test_a_repeated_task_writes_the_same_entries_of_the_record_index(tmp_path: Path) -> None:
    report = run_driver("retries", "local[2,4]", tmp_path, "record", log=tmp_path / "log")
    for fault in ("marker", "file", "published"):
        found = report[fault]
        assert found["failures"] == 1
        assert found["first"] == found["second"] == WRITTEN
        assert found["rows"] == model_of([0, 1, 2])
        assert found["left"] == NOTHING_LEFT
        require_exact_index(bl.open_table(str(tmp_path / fault / "table")))


@FAULTS
def test_a_task_that_is_repeated_gives_the_file_and_the_statistics_of_one_that_is_not(
    repeating: tuple[Path, dict[str, Any]], tmp_path: Path, fault: str
) -> None:
    folder, report = repeating[0] / fault, repeating[1][fault]
    assert report["failures"] == 1
    assert report["first"] == report["second"] == WRITTEN
    assert report["after_first"] == model_of([0, 1])
    twin = make_table(str(tmp_path / "twin"))
    for number in (1, 2):
        twin.upsert(rows_of_round(number))
    assert counts_of_last_commit(folder / "table") == counts_of_last_commit(tmp_path / "twin")


@FAULTS
def test_where_tasks_are_not_repeated_a_failure_leaves_the_table_as_it_was(
    giving_up: dict[str, Any], fault: str
) -> None:
    report = giving_up[fault]
    assert report["failures"] == 1
    assert report["first"]["error"] == "StorageError"
    assert report["first"]["message"].endswith("the line went dead")
    assert report["after_first"] == model_of([0])
    assert report["second"]["error"] is None
    assert report["rows"] == model_of([0, 2])
    assert report["left"] == NOTHING_LEFT
