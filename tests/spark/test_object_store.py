"""Spark and a table in a bucket: tasks write through our client, reads go through Hadoop's."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest

from tests.in_ci import IN_CI
from tests.s3_server import client_of, moto_process, new_bucket
from tests.spark.processes import run_driver

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FETCH_FAILED = ("unresolved dependency", "download failed")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the driver program tells, which writes and reads; one for all tests."""
    log = tmp_path_factory.mktemp("bucket") / "log"
    with moto_process() as endpoint:
        bucket = new_bucket(endpoint, client_of(endpoint))
        try:
            told: dict[str, Any] = run_driver("bucket", endpoint, bucket.name, log=log)
        except AssertionError:
            if not any(sign in log.read_text(errors="replace") for sign in FETCH_FAILED):
                raise
            if IN_CI:
                raise
            pytest.skip("Hadoop's client of S3 cannot be fetched")
    told["log"] = log.read_text(errors="replace")
    return told


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_spark_writes_to_a_bucket_and_reads_what_it_wrote(
    report: dict[str, Any], kind: str
) -> None:
    told = report[kind]
    assert len(told["model"]) == 300
    assert told["rows"] == told["model"]
    assert told["where"] == [r for r in told["model"] if r[1] == "a" and r[2] > 1]
    assert told.get("compacted", told["model"]) == told["model"]


def test_base_files_in_a_bucket_are_read_by_sparks_own_reader(report: dict[str, Any]) -> None:
    assert "FileScan parquet" in report["copy_on_write"]["plan"]
    assert "s3a://" in report["copy_on_write"]["plan"]


def test_no_secret_is_in_sparks_plans_logs_or_errors(report: dict[str, Any]) -> None:
    shown = [report[kind]["plan"] for kind in ("copy_on_write", "merge_on_read")]
    assert "mapInArrow" in shown[1] or "MapInArrow" in shown[1]
    shown += [report[kind]["shown"] for kind in ("copy_on_write", "merge_on_read")]
    shown += [report["log"], report["error"], report["files"][1]]
    shown += [report["source"]["plan"]] if "source" in report else []
    assert "SparkListenerJobEnd" in report["events"]
    for secret in report["secrets"]:
        assert secret not in "".join([*shown, report["events"]])


def test_files_in_a_bucket_are_written(report: dict[str, Any]) -> None:
    assert report["files"][0] == 1


@pytest.mark.skipif(version("pyspark").startswith("3."), reason="Spark 3 has no sources in Python")
def test_the_data_source_reads_a_bucket(report: dict[str, Any]) -> None:
    assert report["source"]["rows"] == len(report["merge_on_read"]["model"])
