"""The start-up benchmark: what a process of one job tells, and what a page makes of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.common.process import ContenderError
from benchmarks.startup import report
from benchmarks.startup.job import FACTS, Job, run_job

ECHO = """
class Spark:
    def stop(self):
        print("noise after the answer is ready")

class Echo:
    spark = Spark()
    def load(self, data, table):
        print("noise on standard output")
    def upsert(self, data, table):
        raise ValueError("no such thing")
    def read(self, table):
        return {"rows": 3}
    def facts(self):
        return {"versions": {}, "settings": {}}

def contenders(settings):
    return {"echo": Echo()}
"""


@pytest.fixture
def do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "echo_job.py").write_text(ECHO)
    monkeypatch.setattr("benchmarks.common.process.EXTRA_PATHS", (str(tmp_path),))

    def run(step: str) -> dict[str, Any]:
        job = Job("echo_job", "echo", step, str(tmp_path), str(tmp_path), {})
        return run_job(job, sys.executable, tmp_path / "echo.log", limit_s=600)

    return run


def test_a_job_tells_the_seconds_of_its_whole_process(do) -> None:
    answer = do("load")
    assert 0 < answer["session_seconds"] <= answer["seconds"] + 0.01
    assert answer["cpu_seconds"] > 0


def test_a_job_may_ask_for_facts_and_for_sums(do) -> None:
    assert do(FACTS)["versions"] == {}
    assert do("read")["checksum"] == {"rows": 3}


def test_a_job_that_fails_is_an_error_with_the_end_of_its_log(do) -> None:
    with pytest.raises(ContenderError, match="no such thing"):
        do("upsert")


def _result(seconds: dict[str, float], warmup_rounds: int = 1) -> dict[str, Any]:
    fixed = {"cpu_seconds": 3.0, "session_seconds": 1.0, "other_cpu_share": 0.0}
    contenders = {
        name: {
            "versions": {},
            "settings": {},
            "rounds": [{step: {**fixed, "seconds": each} for step in ("load", "upsert")}],
        }
        for name, each in seconds.items()
    }
    return {
        "data": {"rows": 1_000, "partitions": 8, "seed": 7, "updates": 200, "inserts": 20},
        "settings": {
            "rounds": 1,
            "buckets": 4,
            "driver_memory": "4g",
            "warmup": {"rows": 100, "rounds": warmup_rounds},
        },
        "machine": {"cores": 2, "memory_bytes": 2**34, "processor": "p", "system": "s"},
        "contenders": contenders,
    }


@pytest.mark.parametrize(("ours", "verdict"), [(7.9, "met"), (8.1, "**missed**")])
def test_a_page_says_whether_the_first_upsert_is_short_enough(ours: float, verdict: str) -> None:
    page = report.page([_result({"bucketlake-spark35": ours, "delta-merge": 10.0})])
    assert f"| first upsert: at most 8 s | {ours:.2f} s | {verdict} |" in page


def test_a_page_says_whether_the_first_load_is_quicker_than_that_of_delta() -> None:
    page = report.page([_result({"bucketlake-spark35": 10.0, "delta-merge": 9.0})])
    assert "than delta-merge | 0.90x (0.90 to 0.90) | **missed** |" in page


def test_a_page_claims_a_check_only_where_there_was_one() -> None:
    seconds = {"bucketlake-spark35": 1.0}
    assert "column sums" in report.page([_result(seconds)])
    assert "column sums" not in report.page([_result(seconds, warmup_rounds=0)])
