"""Row-at-a-time Avro by fastavro, the oracle of the vectorised codec, and blocks in memory."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterable
from typing import Any

import fastavro
import pyarrow as pa

from bucketlake.format.log_block import (
    BlockKind,
    HeaderKey,
    LogBlock,
    encode_block,
    read_log_blocks,
)
from tests.storages import memory_of

INSTANT = "20260101000000000"
PATH = "p/.f_1.log.1_0-0-0"


def only_block(content: bytes) -> LogBlock:
    """Return the one block of a log file."""
    (block,) = read_log_blocks(memory_of({PATH: content}), PATH)
    return block


def block_of(
    content: bytes, schema: Any = None, *, kind: BlockKind = BlockKind.AVRO_DATA
) -> LogBlock:
    """Frame some content, and read the frame."""
    headers = {HeaderKey.INSTANT_TIME: INSTANT}
    if schema is not None:
        headers[HeaderKey.SCHEMA] = schema if isinstance(schema, str) else json.dumps(schema)
    return only_block(encode_block(kind, headers, content))


def partial(content: bytes) -> bytes:
    """Return the block of a log file as one of a partial update; we write none."""
    block = only_block(content)
    headers = block.headers | {HeaderKey.IS_PARTIAL: "true"}
    return encode_block(block.kind, headers, block.content)


def avro_content(schema_json: str, rows: Iterable[dict[str, Any]], version: int = 3) -> bytes:
    """Write rows as the content of an Avro block."""
    schema = fastavro.parse_schema(json.loads(schema_json))
    records = []
    for row in rows:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, schema, row)
        records.append(struct.pack(">i", len(buffer.getvalue())) + buffer.getvalue())
    count = b"" if version == 1 else struct.pack(">i", len(records))
    return struct.pack(">i", version) + count + b"".join(records)


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows as fastavro has them: maps are dictionaries."""
    return [
        {field.name: _plain(row[field.name], field.type) for field in table.schema}
        for row in table.to_pylist()
    ]


def _plain(value: Any, data_type: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(data_type):
        return {key: _plain(one, data_type.item_type) for key, one in value}
    if pa.types.is_list(data_type):
        return [_plain(one, data_type.value_type) for one in value]
    if pa.types.is_struct(data_type):
        return {field.name: _plain(value[field.name], field.type) for field in data_type}
    return value
