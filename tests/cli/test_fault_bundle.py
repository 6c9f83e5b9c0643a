"""The file for a report of a fault: whole, and without data, names or secrets."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import bucketlake as bl
from bucketlake.cli.main import main

PARTS = {
    *("environment.json", "properties.json", "index.json", "timeline.json", "buckets.json"),
    *("metadata_table.json", "findings.json"),
}


@pytest.fixture
def table(tmp_path: Path) -> bl.Table:
    rows = pa.table({"patient": ["Zoe", "Bob"], "ward": ["secret1", "secret2"], "at": [1, 2]})
    made = bl.create_table(
        str(tmp_path / "hospital"), schema=rows.schema, record_key="patient", partition_by="ward"
    )
    made.upsert(rows)
    return made


def bundle_of(table: bl.Table, target: Path) -> dict[str, str]:
    result = CliRunner().invoke(main, ["doctor", table.path, "--bundle", str(target)])
    assert result.exit_code == 0, result.output
    with zipfile.ZipFile(target) as bundle:
        return {name: bundle.read(name).decode() for name in bundle.namelist()}


def test_a_bundle_has_facts_of_the_table_and_no_word_of_its_rows(
    table: bl.Table, tmp_path: Path
) -> None:
    parts = bundle_of(table, tmp_path / "fault.zip")
    assert parts.keys() == PARTS
    buckets = json.loads(parts["buckets.json"])
    assert {bucket["partition_path"] for bucket in buckets} == {"partition-1", "partition-2"}
    assert json.loads(parts["timeline.json"])[0]["written"] == 2
    assert json.loads(parts["properties.json"])["values"]["hoodie.table.version"] == "9"
    whole = "".join(parts.values()).lower()
    words = ["hospital", "patient", "ward", "zoe", "bob", "secret", str(tmp_path).lower()]
    assert [word for word in words if word in whole] == []


def test_a_bundle_of_a_broken_table_tells_the_kinds_of_errors(
    table: bl.Table, tmp_path: Path
) -> None:
    commit = next((Path(table.path) / ".hoodie/timeline").glob("*.commit"))
    commit.write_bytes(b"no Avro")
    parts = bundle_of(table, tmp_path / "fault.zip")
    assert parts.keys() == PARTS
    assert "error" in json.loads(parts["findings.json"])["summary"]
    assert json.loads(parts["buckets.json"]) == {"error": "FormatError"}
