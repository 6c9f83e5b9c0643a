"""Different keys of several columns that have the same text are an error that shows both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.errors import InputError
from bucketlake.services.check.findings import FindingKind

SCHEMA = pa.schema([("a", pa.string()), ("b", pa.string()), ("p", pa.string()), ("v", pa.int64())])
ALIKE = {
    "a name in a value": (("x,b:y", "z"), ("x", "y,b:z"), "a:x,b:y,b:z"),
    "null": ((None, "z"), ("__null__", "z"), "a:__null__,b:z"),
    "empty": (("x", ""), ("x", "__empty__"), "a:x,b:__empty__"),
}
INDEXES = [bl.SimpleBucket(1), bl.DynamicBucket(max_records=100), bl.RecordIndex(partitioned=False)]
Pair = tuple[Any, Any]


def rows(*keys: Pair) -> pa.Table:
    return pa.Table.from_pylist(
        [{"a": a, "b": b, "p": "p", "v": n} for n, (a, b) in enumerate(keys)], SCHEMA
    )


def made(path: str, index: Any, **settings: Any) -> bl.Table:
    return bl.create_table(
        path, schema=SCHEMA, record_key=["a", "b"], partition_by="p", index=index, **settings
    )


@pytest.mark.parametrize("alike", ALIKE)
@pytest.mark.parametrize("index", INDEXES, ids=lambda index: type(index).__name__)
@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_two_keys_of_a_batch_with_the_same_text_are_refused_with_both(
    new_path: Callable[[], str], table_type: str, index: Any, alike: str
) -> None:
    table = made(new_path(), index, table_type=table_type)
    one, other, text = ALIKE[alike]
    batch = rows(one, *((f"k{n}", "plain") for n in range(9)), other)
    table.upsert(rows(("k0", "plain")))
    for write in (table.upsert, table.delete):
        with pytest.raises(InputError) as caught:
            write(batch)
        for shown in (f"a={one[0]!r}, b={one[1]!r}", f"a={other[0]!r}, b={other[1]!r}", text):
            assert shown in str(caught.value)
    assert table.to_arrow().num_rows == 1


def test_odd_keys_that_are_alone_or_repeated_are_written(new_path: Callable[[], str]) -> None:
    table = made(new_path(), bl.SimpleBucket(1))
    keys: list[Pair] = [("x,b:y", "z"), ("__null__", "z"), ("x", ""), ("x", "y"), ("q,b:", "b:,b:")]
    table.upsert(rows(*keys, *keys))
    assert table.to_arrow().num_rows == len(keys)


def test_doctor_finds_stored_keys_that_other_values_can_have(new_path: Callable[[], str]) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.string())])
    table = bl.create_table(new_path(), schema=schema, record_key=["a", "b"])
    table.upsert(pa.table({"a": ["x", "y"], "b": ["y,b:z", "plain, b"]}))
    assert not table.doctor()
    (found,) = table.doctor(check_keys=True)
    assert found.kind is FindingKind.KEYS_AMBIGUOUS
    assert "1 keys" in found.meaning
    assert "'a:x,b:y,b:z'" in found.meaning
