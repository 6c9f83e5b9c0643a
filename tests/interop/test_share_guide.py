"""The page on sharing a table, as printed, beside the real Hudi that it is about."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.guides import ROOT, blocks, run_blocks
from tests.interop.peer.client import HudiPeer

pytestmark = pytest.mark.interop

PAGE = "docs/how-to/share-a-table-with-hudi.md"


def test_sharing_page_runs_as_printed_on_a_table_that_hudi_made_by_its_options(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    path = str(tmp_path / "trips")
    rows = pa.table({"trip_id": ["t1", "t3"], "city": ["Bonn", "Bonn"], "updated_at": [1, 1]})
    names: dict[str, Any] = {}
    for language, code in blocks(ROOT / PAGE, "python", "sql"):
        if "open_table" in code:  # The job of Hudi ran before, with the options of the page.
            hudi.write(path, rows, names["hudi_options"] | names["sharing"])
        code = code.replace("/lake/trips", path)
        if language == "python":
            run_blocks([(language, code)], PAGE, names)
            continue
        newest = names["table"].timeline()[-1].requested_at
        code = re.sub(r"instant_time => '\d+'", f"instant_time => '{newest}'", code)
        for statement in code.split(";"):
            if statement.strip():
                hudi.sql(statement)
    assert sorted(names["table"].to_arrow()["trip_id"].to_pylist()) == ["t1", "t3"]
