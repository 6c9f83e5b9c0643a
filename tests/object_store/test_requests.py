"""What an upsert and a read send over the wire: no request but those that storage is asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest

import bucketlake as bl
from tests.object_store.proxy import Road

ROWS = pa.table({"id": [f"k{n}" for n in range(20)], "p": ["a", "b"] * 10})


def kind_of(method: str, path: str) -> str:
    return "LIST" if "list-type=2" in path else method


@pytest.mark.parametrize(
    ("metadata_table", "expected"),
    [
        (False, {"GET": 8, "LIST": 10, "HEAD": 4, "PUT": 9, "POST": 2}),
        (True, {"GET": 16, "LIST": 15, "HEAD": 6, "PUT": 16, "POST": 2}),
    ],
)
def test_an_upsert_of_one_file_group_and_a_read_send_few_requests(
    road: Road, new_path: Callable[[], str], metadata_table: bool, expected: dict[str, int]
) -> None:
    table = bl.create_table(
        new_path(), schema=ROWS.schema, record_key=["id"], partition_by=["p"],
        index=bl.SimpleBucket(2), metadata_table=metadata_table,
    )  # fmt: skip
    table.upsert(ROWS)
    road.reset()
    table.upsert(ROWS.slice(0, 1))
    sent = Counter(kind_of(*one) for one in road.asked)
    # The numbers of tests/tables/test_cost.py; deletes of several objects are POSTs.
    assert sent == expected, road.asked
    road.reset()
    assert table.to_arrow().num_rows == 20
    files = sum(path.endswith(".parquet") for _, path in road.asked)
    assert files == 4, road.asked
    assert not any(method == "HEAD" for method, _ in road.asked), road.asked
