"""The Python of README and tutorial, all of it, with Spark."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.unit import test_documents as documents

pytestmark = pytest.mark.spark

FED = [
    {"order_id": "o1", "country": "DE", "status": "paid", "amount": 10.5, "updated_at": 9},
    {"order_id": "o9", "country": "JP", "status": "new", "amount": 90.5, "updated_at": 1},
]

COLUMNS = (
    "flight_id string, trip_id string, month int, city string, dep_delay double, updated_at long"
)


@pytest.mark.parametrize("document", ["README.md", "docs/tutorial.md"])
def test_python_in_a_guide_runs_with_spark(
    document: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def adapt(code: str) -> str:
        for folder in ("/tmp/", "/lake/", "/incoming/"):
            code = code.replace(f'"{folder}', f'"{tmp_path}{folder}')
        return code

    fed = tmp_path / "incoming" / "2026-11-20"
    fed.mkdir(parents=True)
    (fed / "part.json").write_text("\n".join(map(json.dumps, FED)), encoding="utf-8")
    names = documents.names_for(document, tmp_path)
    rows = spark.createDataFrame(documents.orders(40).to_pylist(), COLUMNS)
    names |= {name: rows for name in ("df", "changes", "cancelled") if name in names}
    monkeypatch.setattr(documents, "NEEDS_SPARK", re.compile(r"s3a://"))
    run, printed = documents.run_blocks(documents.ROOT / document, names, adapt)
    sys.stdout.write(printed)
    assert run >= documents.LEAST_STATEMENTS[document] + 2
    if document == "docs/tutorial.md":
        assert "paid" in printed  # What the file of changes says of o1.
