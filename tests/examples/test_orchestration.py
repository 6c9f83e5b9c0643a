"""The examples for orchestrators run by their own engines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import bucketlake as bl

if TYPE_CHECKING:
    from dlt import Pipeline

EXAMPLES = Path(__file__).parents[2] / "examples" / "orchestration"
sys.path.insert(0, str(EXAMPLES))

# Both engines take seconds to import, so tests do it that run.


@pytest.fixture(autouse=True)
def _signals_of_this_process() -> Iterator[None]:
    """A run of Dagster ignores SIGTERM from then on where SIGINT is ignored; no pool would end."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_assets_of_dagster_are_tables_that_later_assets_read(tmp_path: Path) -> None:
    import dagster
    from dagster_tables import TablesOfLake

    read: list[list[int]] = []

    @dagster.asset(key_prefix="sales", metadata={"record_key": "id", "partition_by": "region"})
    def orders() -> pa.Table:
        return pa.table({"id": [1, 2], "region": ["n", "s"], "amount": [5 * (len(read) + 1), 7]})

    @dagster.asset
    def totals(orders: bl.Scan) -> pa.Table:
        read.append(orders.to_arrow().sort_by("id")["amount"].to_pylist())
        return pa.table({"id": [0], "total": [sum(read[-1])]})

    resources = {"io_manager": TablesOfLake(lake=str(tmp_path))}
    for _ in range(2):
        done = dagster.materialize([orders, totals], resources=resources)
        assert done.success
    assert read == [[5, 7], [10, 7]]
    (event,) = done.asset_materializations_for_node("sales__orders")
    assert event.metadata["updated"].value == 2
    table = bl.open_table(str(tmp_path / "sales" / "orders"))
    assert table.config().key_spec.partition_fields == ("region",)
    assert bl.open_table(str(tmp_path / "totals")).to_arrow()["total"].to_pylist() == [17]


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
    import dlt
    from dlt_destination import lake

    return dlt.pipeline(
        "shop", destination=lake(folder=str(tmp_path / "lake")), pipelines_dir=str(tmp_path / "p")
    )


def test_resources_of_dlt_are_upserted_by_their_primary_key(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    from dlt import resource

    @resource(primary_key="id", write_disposition="merge", columns={"day": {"partition": True}})
    def orders(rows: list[dict[str, object]]) -> Iterator[dict[str, object]]:
        yield from rows

    first = [{"id": 1, "day": "mo", "v": "a"}, {"id": 2, "day": "tu", "v": "b"}]
    pipeline.run(orders(first))
    pipeline.run(orders([{"id": 2, "day": "tu", "v": "c", "note": "new"}]))
    table = bl.open_table(str(tmp_path / "lake" / "orders"))
    rows = table.to_arrow(columns=["id", "day", "v", "note"]).sort_by("id").to_pylist()
    assert rows == [
        {"id": 1, "day": "mo", "v": "a", "note": None},
        {"id": 2, "day": "tu", "v": "c", "note": "new"},
    ]
    assert table.config().key_spec.partition_fields == ("day",)


def test_a_resource_without_a_primary_key_is_refused(pipeline: Pipeline) -> None:
    from dlt.pipeline.exceptions import PipelineStepFailed

    with pytest.raises(PipelineStepFailed, match="give it a primary_key"):
        pipeline.run([{"id": 1}], table_name="orders")


def test_a_project_of_dbt_reads_tables_and_its_results_are_upserted(tmp_path: Path) -> None:
    how = "pip install -e '.[spark]' pytest hypothesis 'dbt-spark[session]' 'dbt-core<1.11'"
    how = f"in an environment of its own: {how}; pytest -k dbt tests/examples/test_orchestration.py"
    pytest.importorskip("dbt.adapters.spark", reason=f"dbt-spark is in no group of ours; {how}")
    rows = pa.table({"id": [1, 2, 3], "region": ["n", "s", "n"], "amount": [5, 7, 1]})
    bl.create_table(str(tmp_path / "lake" / "orders"), rows, record_key="id")
    build = EXAMPLES / "dbt" / "build.py"
    places = {"DBT_TARGET_PATH": str(tmp_path / "target"), "DBT_LOG_PATH": str(tmp_path / "logs")}
    places["DBT_SEND_ANONYMOUS_USAGE_STATS"] = "false"  # It would note an id beside the project.
    command = [sys.executable, str(build), str(tmp_path / "lake")]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, **places}, check=True)
    totals = bl.open_table(str(tmp_path / "lake" / "totals")).to_arrow().sort_by("region")
    assert totals["amount"].to_pylist() == [6, 7]
