"""The upsert benchmark's data and arithmetic: a figure is only as good as these."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks.upsert import report
from benchmarks.upsert.data import SCHEMA, Checksum, Recipe, prepare
from benchmarks.upsert.process import ContenderError, ContenderProcess
from benchmarks.upsert.rows import CHECKSUM_SQL, DataSet

RECIPE = Recipe(rows=2_000, partitions=8, seed=7)


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    return prepare(tmp_path, RECIPE)


def _rows(folder: Path) -> pa.Table:
    return pq.read_table(folder, schema=SCHEMA)


def test_the_same_recipe_makes_the_same_rows(tmp_path: Path, data: DataSet) -> None:
    again = prepare(tmp_path / "again", RECIPE)
    assert _rows(data.load).equals(_rows(again.load))
    assert _rows(data.changes).equals(_rows(again.changes))


def test_another_seed_makes_other_rows(tmp_path: Path, data: DataSet) -> None:
    other = prepare(tmp_path, Recipe(rows=2_000, partitions=8, seed=8))
    assert not _rows(data.load).equals(_rows(other.load))


def test_keys_are_unique_and_changes_are_a_fifth_updates_and_a_fiftieth_inserts(
    data: DataSet,
) -> None:
    loaded, changed = _rows(data.load)["order_id"], _rows(data.changes)["order_id"]
    assert pc.count_distinct(loaded).as_py() == 2_000
    assert pc.count_distinct(changed).as_py() == len(changed) == 440
    assert pc.sum(pc.is_in(changed, loaded.combine_chunks())).as_py() == 400
    assert set(pc.utf8_length(loaded).to_pylist()) == {20}


def test_an_update_keeps_what_lasts_and_is_newer(data: DataSet) -> None:
    updates = _rows(data.changes).join(
        _rows(data.load), "order_id", join_type="inner", right_suffix="_before"
    )
    for lasting in ("region", "customer_id", "created"):
        assert updates[lasting].equals(updates[f"{lasting}_before"]), lasting
    assert pc.all(pc.greater(updates["updated_at"], updates["updated_at_before"])).as_py()


def test_the_predicted_checksum_is_that_of_a_plain_merge(data: DataSet) -> None:
    loaded, changed = _rows(data.load), _rows(data.changes)
    newest = {row["order_id"]: row for row in loaded.to_pylist() + changed.to_pylist()}
    found = Checksum()
    found.add(pa.Table.from_pylist(list(newest.values()), schema=SCHEMA))
    assert data.facts["checksum_after_upsert"] == found.sums
    assert set(found.sums) == set(CHECKSUM_SQL)


def test_a_value_in_the_wrong_row_changes_the_checksum(data: DataSet) -> None:
    rows = _rows(data.load)
    quantity = rows["quantity"].combine_chunks()
    turned = pa.concat_arrays([quantity[1:], quantity[:1]])
    found = Checksum()
    found.add(rows.set_column(rows.schema.get_field_index("quantity"), "quantity", turned))
    differing = {name for name, value in found.sums.items() if value != _after_load(data)[name]}
    assert differing == {"pairing"}


def _after_load(data: DataSet) -> dict[str, int]:
    return data.facts["checksum_after_load"]


def _result(times: dict[str, list[float]], **upsert: Any) -> dict[str, Any]:
    """A result in which every step of a contender took the same time in a round."""
    step = {"cpu_seconds": 1.0, "data_bytes": 1, "other_cpu_share": 0.0, "stages": []}
    contenders = {
        name: {
            "versions": {},
            "settings": {},
            "rounds": [
                {
                    "load": {**step, "seconds": each},
                    "upsert": {**step, "seconds": each, **upsert},
                    "read": {**step, "seconds": each},
                }
                for each in seconds
            ],
        }
        for name, seconds in times.items()
    }
    return {
        "data": {"rows": 1_000, "partitions": 8, "seed": 7, "updates": 200, "inserts": 20},
        "settings": {"rounds": 3, "buckets": 4, "driver_memory": "4g"},
        "machine": {"cores": 2, "memory_bytes": 2**34, "processor": "p", "system": "s"},
        "contenders": contenders,
    }


def test_ratios_are_taken_round_by_round() -> None:
    result = _result({"bucketlake-spark4": [1.0, 10.0, 2.0], "delta-merge": [6.0, 61.0, 14.0]})
    assert report.ratios(result, "upsert", "delta-merge", "bucketlake-spark4") == [6.0, 6.1, 7.0]


def test_a_page_says_which_aims_are_met_and_which_are_missed(tmp_path: Path) -> None:
    times = {"bucketlake-spark4": [1.0], "polars-limit": [0.4], "delta-merge": [7.0]}
    page = report.page([_result(times)])
    assert "| upsert: at least 6x faster than delta-merge | 7.00x (7.00 to 7.00) | met |" in page
    assert "polars-limit | 2.50x (2.50 to 2.50) | **missed** |" in page
    assert "hudi-bucket-upsert" not in page  # Not run, so nothing is claimed.


def test_a_busy_machine_makes_figures_provisional() -> None:
    result = _result({"polars-limit": [1.0]})
    assert "Provisional" not in report.page([result])
    for step in result["contenders"]["polars-limit"]["rounds"][0].values():
        step["other_cpu_share"] = 0.5
    assert "**Provisional**: other processes used 50%" in report.page([result])


def test_rows_by_task_are_those_of_the_last_shuffle_that_held_the_batch() -> None:
    stages = [
        {"stage": 1, "rows": 220, "rows_max_over_mean": 3.0},
        {"stage": 2, "rows": 222, "rows_max_over_mean": 1.1},
        {"stage": 3, "rows": 4, "rows_max_over_mean": 9.0},
    ]
    result = _result({"bucketlake-spark4": [1.0]}, stages=stages)
    assert report.evenness(result, "bucketlake-spark4") == 1.1


def test_worker_memory_is_what_the_work_added_over_the_largest_file_group() -> None:
    memory = {"worker_idle_bytes": 100, "worker_peak_bytes": 160, "largest_group_arrow_bytes": 20}
    found = report.worker_memory(
        _result({"bucketlake-spark4": [1.0]}, **memory), "bucketlake-spark4"
    )
    assert found is not None
    assert found.ratio == 3.0


ECHO = """
import sys
from benchmarks.upsert.process import serve

class Echo:
    def load(self, data, table):
        print("noise on standard output")
    def upsert(self, data, table):
        raise ValueError("no such thing")
    def read(self, table):
        return {"rows": 3}
    def settle(self):
        pass
    def observe(self, step, table):
        return {"after": step}
    def facts(self):
        return {"versions": {}, "settings": {}}

serve(lambda settings: {"echo": Echo()})
"""


@pytest.fixture
def echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "echo_contender.py").write_text(ECHO)
    monkeypatch.setattr("benchmarks.upsert.process.EXTRA_PATHS", (str(tmp_path),))
    process = ContenderProcess("echo_contender", sys.executable, {}, tmp_path / "echo.log")
    yield process
    process.close()


def test_a_process_answers_through_its_noise_and_reports_what_a_step_saw(
    echo: ContenderProcess, tmp_path: Path
) -> None:
    data = DataSet(tmp_path)
    loaded = echo.run("load", "echo", data, tmp_path, timeout_s=30)
    assert loaded["after"] == "load"
    assert loaded["seconds"] >= 0
    assert json.loads(json.dumps(loaded)) == loaded
    assert echo.run("read", "echo", data, tmp_path, timeout_s=30)["checksum"] == {"rows": 3}


def test_a_failing_step_is_told_with_its_traceback_and_the_process_goes_on(
    echo: ContenderProcess, tmp_path: Path
) -> None:
    data = DataSet(tmp_path)
    with pytest.raises(ContenderError, match="no such thing"):
        echo.run("upsert", "echo", data, tmp_path, timeout_s=30)
    assert echo.run("read", "echo", data, tmp_path, timeout_s=30)["checksum"] == {"rows": 3}
