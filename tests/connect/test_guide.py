"""The page on Spark Connect, as printed, on the server of these tests."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.guides import run_page


def test_connect_page_runs_as_printed_on_a_server(
    connect_address: str, spark: SparkSession, tmp_path: Path
) -> None:
    run_page("docs/how-to/spark-connect.md", tmp_path, {"local[2]": connect_address})
