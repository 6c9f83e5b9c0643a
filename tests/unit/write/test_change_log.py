"""The file of changes of one merge, in each mode, with required columns and nested values."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from bucketlake.format.avro.table_schema import avro_from_arrow
from bucketlake.format.log_block import BlockKind, HeaderKey, log_blocks_of
from bucketlake.format.log_data import decode_data_block
from bucketlake.model.file_name import InstantTime
from bucketlake.model.schema import COMMIT_TIME, RECORD_KEY
from bucketlake.model.table_type import ChangeLogMode
from bucketlake.write.change_log import ChangeLog

INSTANT = InstantTime("20240101120000000")
SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False), pa.field("v", pa.decimal128(9, 2)),
     pa.field("l", pa.list_(pa.struct([("x", pa.int32())])))]
)  # fmt: skip
TEXT = avro_from_arrow(SCHEMA, "trips")


def rows(instant: str, *keys: str) -> pa.Table:
    made = [
        {COMMIT_TIME: instant, RECORD_KEY: k, "id": k, "v": None, "l": [{"x": len(instant)}]}
        for k in keys
    ]
    meta = [(COMMIT_TIME, pa.string()), (RECORD_KEY, pa.string())]
    return pa.Table.from_pylist(made, pa.schema([*meta, *SCHEMA]))


def image(instant: str, key: str) -> dict[str, Any]:
    return {"id": key, "v": None, "l": [{"x": len(instant)}]}


@pytest.mark.parametrize("mode", ChangeLogMode)
def test_each_mode_holds_its_columns_sorted_by_key(mode: ChangeLogMode) -> None:
    log, keys = ChangeLog(mode, INSTANT, SCHEMA), pa.array(["z", "d", "u", "a", "late"])
    stored = [rows("old", "q", "u"), rows("old", "late", "d", "r")]
    assert sum(len(chunk) for chunk in log.watch_stored(iter(stored), keys)) == 5
    merged = [
        rows("old", "q"),
        rows(INSTANT, "u"),
        rows("old", "late", "r"),
        rows(INSTANT, "z", "a"),
    ]
    assert len([*log.watch_merged(iter(merged))]) == 4
    data = log.encode(TEXT, pa.array(["d"]))
    [block] = log_blocks_of(data, "x.cdc")
    assert (block.kind, block.instant) == (BlockKind.CDC_DATA, INSTANT)
    expected: list[dict[str, Any]] = [
        {"op": "i", "record_key": "a", "before": None, "after": image(INSTANT, "a")},
        {"op": "d", "record_key": "d", "before": image("old", "d"), "after": None},
        {"op": "u", "record_key": "u", "before": image("old", "u"), "after": image(INSTANT, "u")},
        {"op": "i", "record_key": "z", "before": None, "after": image(INSTANT, "z")},
    ]
    columns = {
        ChangeLogMode.OP_KEY_ONLY: ["op", "record_key"],
        ChangeLogMode.DATA_BEFORE: ["op", "record_key", "before"],
        ChangeLogMode.DATA_BEFORE_AFTER: ["op", "ts_ms", "before", "after"],
    }[mode]
    expected = [{name: {**row, "ts_ms": INSTANT}[name] for name in columns} for row in expected]
    assert decode_data_block(block).to_pylist() == expected
    names = [field["name"] for field in json.loads(block.headers[HeaderKey.SCHEMA])["fields"]]
    assert names == columns


def test_a_merge_that_changes_nothing_holds_no_change() -> None:
    log = ChangeLog(ChangeLogMode.DATA_BEFORE_AFTER, INSTANT, SCHEMA)
    assert [*log.watch_merged(log.watch_stored(iter([rows("old", "q")]), pa.array(["q"])))]
    [block] = log_blocks_of(log.encode(TEXT, pa.array([], pa.string())), "x.cdc")
    assert decode_data_block(block).num_rows == 0
