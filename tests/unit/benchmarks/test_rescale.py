"""The rescale benchmark's checks and its page: a figure is only as good as these."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from benchmarks.common.process import ContenderError
from benchmarks.common.rows import CHOSEN_PATTERN
from benchmarks.rescale import (
    ALL,
    BENCHMARK,
    HUDI_STUMBLED,
    ONE,
    counts_after,
    layout_errors,
    run_again_if_hudi_stumbled,
)
from tests.unit.benchmarks.pages import contender, content, page_of

BEFORE = {"eu-west": 2, "eu-north": 2}


@pytest.fixture
def table(tmp_path: Path) -> bl.Table:
    """A table whose one partition is to be rescaled, as the benchmark's contenders make it."""
    rows = pa.table(
        {
            "order_id": [f"ord-{number:016d}" for number in range(200)],
            "region": ["eu-west", "eu-north"] * 100,
        }
    )
    table = bl.create_table(
        str(tmp_path / "orders"),
        schema=rows.schema,
        record_key=["order_id"],
        partition_by=["region"],
        index=bl.PartitionBucket({CHOSEN_PATTERN: 2}, 2),
    )
    table.upsert(rows)
    return table


def _after(step: str) -> dict[str, int]:
    return counts_after(step, {"partitions": 2, "buckets": 2, "new_buckets": 4})


def test_one_partition_or_all_of_them_get_the_new_count() -> None:
    assert _after(ONE) == {"eu-west": 4, "eu-north": 2}
    assert _after(ALL) == {"eu-west": 4, "eu-north": 4}


def test_a_layout_is_right_before_and_after_each_step(table: bl.Table) -> None:
    path = Path(table.path)
    assert layout_errors(path, BEFORE) == []
    table.rescale(add={CHOSEN_PATTERN: 4}, dry_run=False)
    assert layout_errors(path, _after(ONE)) == []
    table.rescale({".*": 4}, default=4, dry_run=False)
    assert layout_errors(path, _after(ALL)) == []


def test_a_table_that_was_not_rescaled_is_told_by_rules_buckets_and_rows(table: bl.Table) -> None:
    errors = layout_errors(Path(table.path), _after(ONE))
    assert errors[:2] == [
        "the rules give eu-west 2 buckets, expected 4",
        "eu-west has the buckets 0, 1, expected 4",
    ]
    assert all("rows of other buckets" in error for error in errors[2:])
    assert len(errors) == 4


def test_rows_in_the_file_of_another_bucket_are_found(table: bl.Table) -> None:
    first, second = (b for b in table.buckets() if b.partition_path == "eu-north")
    root = Path(table.path)
    shutil.copy(root / str(first.path), root / str(second.path))
    [error] = layout_errors(root, BEFORE)
    assert str(second.path) in error


def test_a_partition_that_is_missing_is_told(table: bl.Table) -> None:
    errors = layout_errors(Path(table.path), {**BEFORE, "us-east": 2})
    assert errors[0] == (
        "partitions ['eu-north', 'eu-west'], expected ['eu-north', 'eu-west', 'us-east']"
    )


def test_a_stumble_of_hudi_is_run_again_once_and_counted() -> None:
    outcomes: list[Any] = [ContenderError(f"… {HUDI_STUMBLED} …"), "done"]
    assert run_again_if_hudi_stumbled(lambda: _next(outcomes)) == ("done", 1)
    assert run_again_if_hudi_stumbled(lambda: "done") == ("done", 0)
    outcomes = [ContenderError(HUDI_STUMBLED), ContenderError(HUDI_STUMBLED), "done"]
    with pytest.raises(ContenderError):
        run_again_if_hudi_stumbled(lambda: _next(outcomes))


def test_any_other_error_is_not_run_again() -> None:
    outcomes: list[Any] = [ContenderError("wrong rows"), "done"]
    with pytest.raises(ContenderError, match="wrong rows"):
        run_again_if_hudi_stumbled(lambda: _next(outcomes))
    assert outcomes == ["done"]


def _next(outcomes: list[Any]) -> Any:
    outcome = outcomes.pop(0)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _result() -> dict[str, Any]:
    """Two rounds: ours takes 1 and 2 s for a partition, Hudi twice that; a table takes 4 times."""

    def steps(seconds: float, **more: int) -> dict[str, Any]:
        fixed = {"written_bytes": 7_000_000, "other_cpu_share": 0.0, "reruns": 0}
        step = {"cpu_seconds": 1.5, **fixed, **more}
        return {
            ONE: {**step, "seconds": seconds},
            ALL: {**step, "seconds": 4 * seconds},
        }

    memory = {
        "worker_idle_bytes": 100_000_000,
        "worker_peak_bytes": 160_000_000,
        "largest_group_arrow_bytes": 20_000_000,
    }
    rounds = {
        "bucketlake-spark4": [steps(1.0, **memory), steps(2.0, **memory)],
        "hudi-procedure": [steps(2.0), steps(4.0, reruns=1)],
    }
    contenders = {name: contender(*each) for name, each in rounds.items()}
    return content(contenders, new_buckets=8)


def test_a_page_holds_times_ratios_costs_and_what_was_run_again() -> None:
    page = page_of(BENCHMARK, _result())
    assert "## 1,000 rows, 2 partitions x 4 buckets to 8, 2 rounds" in page
    assert (
        "| bucketlake-spark4 | **1.50** (1.00 to 2.00) | **6.00** (4.00 to 8.00) | 4.00x |" in page
    )
    assert "| hudi-procedure | 2.00x | 2.00x |" in page
    assert "| bucketlake-spark4 | 1.5 | 1.5 | 7.0 | 7.0 | 160 (60) | 160 (60) | 0 |" in page
    assert "| hudi-procedure | 1.5 | 1.5 | 7.0 | 7.0 | – | – | 2 |" in page


def test_a_contender_that_failed_has_no_figures_but_a_reason() -> None:
    result = _result()
    result["contenders"]["hudi-procedure"] = {"rounds": [], "error": "wrong rows\nat line 1"}
    page = page_of(BENCHMARK, result)
    assert "- hudi-procedure: wrong rows\n" in page
    assert "Time over bucketlake's" not in page
