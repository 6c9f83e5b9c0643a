"""The pages that need no Spark, as printed: their Python, and their commands in a shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guides import PAGES, ROOT, blocks, run_page

ON_A_SERVER = ["object-stores", "share-a-table-with-hudi", "spark-connect"]  # Run where those are.


def is_run_here(page: str) -> bool:
    code = "".join(code for _, code in blocks(ROOT / page, "python"))
    return bool(code) and "SparkSession" not in code and Path(page).stem not in ON_A_SERVER


@pytest.mark.parametrize("page", [page for page in PAGES if is_run_here(page)])
def test_page_runs_as_printed_from_top_to_bottom(page: str, tmp_path: Path) -> None:
    run_page(page, tmp_path)
