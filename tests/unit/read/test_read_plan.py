"""Plans of reads, which every engine asks for before it reads."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import InputError
from bucketlake.read.read_plan import plan_read
from bucketlake.read.request import PinnedRead, ReadRequest
from bucketlake.table import handle_of


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_an_empty_list_of_columns_is_refused(new_path: Callable[[], str], table_type: str) -> None:
    """Its rows could not be counted, in logs or in Arrow at all."""
    rows = pa.table({"id": ["a", "b"]})
    table = bl.create_table(
        new_path(), schema=rows.schema, record_key=["id"], index=bl.SimpleBucket(1),
        table_type=table_type,
    )  # fmt: skip
    table.upsert(rows)
    table.upsert(rows)
    for read in (
        lambda: table.to_arrow(columns=[]),
        lambda: table.to_arrow(where="id = 'a'", columns=[]),
    ):
        with pytest.raises(InputError, match=r"columns of .*: the list of columns is empty"):
            read()
    with pytest.raises(InputError, match="omit the argument to read all columns"):
        plan_read(PinnedRead(handle_of(table).snapshot(), ReadRequest(columns=())), None)
