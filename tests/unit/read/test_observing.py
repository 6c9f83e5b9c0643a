"""What observers are told of calls, as OpenTelemetry and OpenLineage's own clients get it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import bucketlake as bl
from bucketlake.errors import InputError, ServiceWarning
from bucketlake.flow.call import Call, current_call
from bucketlake.read import observing
from bucketlake.read.observing import lineage_told
from tests.metered import number, reader_of_metrics

ROWS = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})


@pytest.fixture
def table(tmp_path: Path) -> bl.Table:
    return bl.create_table(str(tmp_path / "orders"), schema=ROWS.schema, record_key="id")


# ---- OpenTelemetry -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exporter() -> InMemorySpanExporter:
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    trace.set_tracer_provider(provider)
    return kept


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Iterator[InMemorySpanExporter]:
    exporter.clear()
    yield exporter
    exporter.clear()


def test_a_call_is_a_span_with_its_steps_and_with_what_it_wrote(
    table: bl.Table, spans: InMemorySpanExporter
) -> None:
    result = table.upsert(ROWS)
    *steps, call = spans.get_finished_spans()
    assert call.name == "bucketlake upsert"
    told = dict(call.attributes or {})
    assert told["bucketlake.table"] == table.path
    assert told["bucketlake.instant"] == result.instant
    assert (told["bucketlake.inserted"], told["bucketlake.updated"]) == (3, 0)
    size = sum(file.stat().st_size for file in Path(table.path).glob("*.parquet"))
    assert told["bucketlake.bytes"] == size
    assert {"reading the records", "writing"} <= {step.name for step in steps}
    assert call.context is not None
    assert {step.parent.span_id for step in steps if step.parent} == {call.context.span_id}


def test_a_call_that_fails_is_a_span_with_its_error(
    table: bl.Table, spans: InMemorySpanExporter
) -> None:
    with pytest.raises(InputError):
        table.upsert(pa.table({"id": [None], "v": ["a"]}, schema=ROWS.schema))
    call = spans.get_finished_spans()[-1]
    assert call.status.status_code is trace.StatusCode.ERROR
    assert [event.name for event in call.events] == ["exception"]


def test_rows_and_calls_are_counted(table: bl.Table) -> None:
    reader_of_metrics()

    def counts() -> list[float]:
        return [
            number("rows", change="inserted"),
            number("rows", change="deleted"),
            number("call.duration", call="upsert"),
        ]

    before = counts()
    table.upsert(ROWS)
    table.delete(ROWS.slice(0, 1))
    after = counts()
    assert [new - old for new, old in zip(after, before, strict=True)] == [3, 1, 1]


# ---- OpenLineage ---------------------------------------------------------------------------------


@pytest.fixture
def events_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the client write to a file; return the function that reads it."""
    settings, log = tmp_path / "openlineage.yml", tmp_path / "events"
    settings.write_text(f"transport:\n  type: file\n  append: true\n  log_file_path: {log}\n")
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(settings))
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", "nightly/load/01a22b95-5ec2-787e-83d5-3178ee186bef")
    return lambda: [json.loads(line) for line in log.read_text().splitlines()]


def test_a_write_is_a_run_from_its_files_to_the_table(
    table: bl.Table, events_of: Any, tmp_path: Path
) -> None:
    rows, more = str(tmp_path / "rows.parquet"), str(tmp_path / "more.parquet")
    pq.write_table(ROWS.slice(0, 2), rows)
    pq.write_table(ROWS.slice(2), more)
    instant = table.upsert(bl.files([rows, more])).instant
    begin, end = events_of()
    assert (begin["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert begin["run"]["runId"] == end["run"]["runId"]
    assert begin["eventTime"] < end["eventTime"]
    assert end["job"]["name"] == "bucketlake.upsert.orders"
    assert end["run"]["facets"]["parent"]["job"]["name"] == "load"
    assert [given["name"] for given in end["inputs"]] == [rows, more]
    (output,) = end["outputs"]
    assert (output["namespace"], output["name"]) == ("file", table.path)
    facets = output["facets"]
    assert [column["name"] for column in facets["schema"]["fields"]] == ["id", "v"]
    assert facets["version"]["datasetVersion"] == instant
    given = facets["columnLineage"]["fields"]["v"]["inputFields"]
    assert [field["name"] for field in given] == [rows, more]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 3


def test_a_call_that_changes_nothing_or_fails_before_it_begins_is_no_run(
    table: bl.Table, events_of: Any, tmp_path: Path
) -> None:
    table.count()
    table.delete(ROWS)
    with pytest.raises(InputError):
        table.upsert(pa.table({"id": [None], "v": ["a"]}, schema=ROWS.schema))
    assert not (tmp_path / "events").exists()


def test_a_call_that_fails_after_it_began_is_a_failed_run(events_of: Any) -> None:
    call = Call("upsert", "s3://lake/sales/orders", instants=["20261130083219914"])
    call.entries.append(("thrift://metastore:9083,thrift://other:9083", "sales.orders"))
    with pytest.raises(OSError, match="gone"), lineage_told(call, lambda: None):
        raise OSError("the disk is gone")
    _, end = events_of()
    assert end["eventType"] == "FAIL"
    assert end["run"]["facets"]["errorMessage"]["message"] == "the disk is gone"
    (output,) = end["outputs"]
    assert (output["namespace"], output["name"]) == ("s3://lake", "sales/orders")
    (entry,) = output["facets"]["symlinks"]["identifiers"]
    assert (entry["namespace"], entry["name"]) == ("hive://metastore:9083", "sales.orders")


def test_lineage_that_cannot_be_told_does_not_fail_the_write(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9/")
    with pytest.warns(ServiceWarning, match="lineage could not be told"):
        table.upsert(ROWS)
    assert table.count() == 3


def test_the_call_has_ended_when_its_lineage_is_sent(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work: list[Call | None] = []
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9/")
    monkeypatch.setattr(observing, "_emit", lambda *_: at_work.append(current_call()))
    table.upsert(ROWS)
    assert at_work == [None]  # Its duration is noted, without that of the sending.
