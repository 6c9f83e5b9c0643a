"""The merge-on-read benchmark's checks and its page: a figure is only as good as these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from benchmarks.common.process import ContenderError
from benchmarks.merge_on_read import BENCHMARK, TITLES, check_log_files
from tests.unit.benchmarks.pages import contender, content, page_of
from tests.unit.benchmarks.turns import turn_of


@pytest.fixture
def table(tmp_path: Path) -> bl.Table:
    """A table as a first load leaves it, without log files."""
    table = bl.create_table(
        str(tmp_path / "orders"),
        schema=ROWS.schema,
        record_key=["order_id"],
        index=bl.SimpleBucket(2),
        table_type="merge_on_read",
    )
    table.upsert(ROWS)
    return table


ROWS = pa.table({"order_id": ["ord-1", "ord-2", "ord-3"], "quantity": [1, 2, 3]})


def test_log_files_must_be_live_after_an_upsert_and_gone_after_a_compaction(
    table: bl.Table,
) -> None:
    path, turn = Path(table.path), turn_of("ours")
    with pytest.raises(ContenderError, match="ours has 0 live log files after upsert"):
        check_log_files(turn, "upsert", path)
    table.upsert(ROWS)
    check_log_files(turn, "upsert", path)
    with pytest.raises(ContenderError, match=r"ours has \d live log files after compact"):
        check_log_files(turn, "compact", path)
    table.compact()
    check_log_files(turn, "compact", path)


def test_a_table_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ContenderError, match="ours has an unreadable table after compact"):
        check_log_files(turn_of("ours"), "compact", tmp_path)


def _result() -> dict[str, Any]:
    """Two rounds: each of our steps takes 1 and 2 s, each of Hudi's five times that."""

    def steps(seconds: float, **more: int) -> dict[str, Any]:
        files = {"data_bytes": 7_000_000, "log_bytes": 1_500_000}
        step = {"seconds": seconds, "cpu_seconds": 1.5, "other_cpu_share": 0.0, **files, **more}
        return dict.fromkeys(TITLES, step)

    memory = {
        "worker_idle_bytes": 100_000_000,
        "worker_peak_bytes": 160_000_000,
        "largest_group_arrow_bytes": 20_000_000,
    }
    rounds = {
        "hudi-mor": [steps(5.0), steps(10.0)],
        "bucketlake-mor-spark4": [steps(1.0, **memory), steps(2.0, **memory)],
    }
    return content({name: contender(*each) for name, each in rounds.items()})


def test_a_page_holds_times_ratios_costs_and_sizes_ours_first() -> None:
    page = page_of(BENCHMARK, _result())
    assert "## 1,000 rows, 2 partitions x 4 buckets, 2 rounds" in page
    times = " | ".join(["**1.50** (1.00 to 2.00)"] * 6)
    assert f"| bucketlake-mor-spark4 | {times} |\n| hudi-mor |" in page
    assert f"| hudi-mor | {' | '.join(['5.00x'] * 6)} |" in page
    assert f"| bucketlake-mor-spark4 | {' | '.join(['160 (60)'] * 6)} |" in page
    assert f"| hudi-mor | {' | '.join(['–'] * 6)} |" in page
    assert "| hudi-mor | 7.0 | 1.5 | 7.0 | 1.5 | 7.0 | 1.5 |" in page


def test_a_page_says_which_aims_are_met_and_claims_nothing_of_who_did_not_run() -> None:
    page = page_of(BENCHMARK, _result())
    ours, found = "| bucketlake-mor-spark4", "5.00x (5.00 to 5.00)"
    assert f"{ours}, upsert: at least 7x faster than hudi-mor | {found} | **missed** |" in page
    assert f"{ours}, merged read, few columns: at least 4x faster than hudi-mor | 5.00x" in page
    assert f"{ours}, compaction: at least 5x faster than hudi-mor | {found} | met |" in page
    assert "hudi-mor-nomdt" not in page
