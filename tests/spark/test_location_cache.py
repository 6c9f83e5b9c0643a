"""The location cache of dynamic buckets on the executors of a cluster: what a write tells of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.drivers.common import KEYS, model_of
from tests.spark.processes import WORKER_HOSTS, cluster, run_driver

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.any_spark]


def test_two_executors_report_together_what_their_cache_answered(tmp_path: Path) -> None:
    with cluster(tmp_path / "cluster") as master:
        report = run_driver("cached", master, tmp_path, log=tmp_path / "log")
    counts = [(r["looked_up"], r["from_cache"], r["from_table"]) for r in report["results"]]
    new_table, cold, warm = (0, 0, 0), (KEYS, 0, KEYS), (KEYS, KEYS, 0)
    assert counts == [new_table, warm, warm, cold, warm], "the first write noted its keys"
    assert report["rows"] == model_of(range(1, 6))
    hosts = {note.split("-")[4] for note in report["notes"]}
    assert hosts == set(WORKER_HOSTS), "one executor looked all keys up"
