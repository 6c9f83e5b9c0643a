"""The pages that use Spark, as printed: README and tutorial."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.guides import PAGES, ROOT, blocks, run_page

pytestmark = pytest.mark.spark


ELSEWHERE = {"spark-connect"}
if version("pyspark").startswith("3."):
    ELSEWHERE.add("read-with-spark-format")  # Spark 3 has no data sources in Python.


def is_run_here(page: str) -> bool:
    code = "".join(code for _, code in blocks(ROOT / page, "python"))
    return "SparkSession" in code and Path(page).stem not in ELSEWHERE


@pytest.mark.parametrize("page", [page for page in PAGES if is_run_here(page)])
def test_page_runs_as_printed_from_top_to_bottom(
    page: str, spark: SparkSession, tmp_path: Path
) -> None:
    run_page(page, tmp_path)
