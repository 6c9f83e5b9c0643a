"""Records of the metadata table in the schema of an older release of Hudi."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pyarrow as pa

from bucketlake.format.metadata_record.record_schema import record_schema


def older_schema() -> dict[str, Any]:
    """The schema without what releases of Hudi 1.x added: value types, arrays, positions."""
    schema = record_schema()
    stats, index = (schema["fields"][-number]["type"][1] for number in (3, 2))
    stats["fields"].pop()
    for bound in stats["fields"][2:4]:
        bound["type"].pop()
    index["fields"].pop()
    del schema["fields"][-1]
    return schema


def as_written_before(values: pa.BinaryArray, schema: dict[str, Any]) -> pa.BinaryArray:
    """Encode values in an older schema, as a row reader and writer do."""
    now, before = (fastavro.parse_schema(one) for one in (record_schema(), schema))
    written = []
    for value in values.to_pylist():
        record = fastavro.schemaless_reader(io.BytesIO(value), now, before, return_record_name=True)
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, before, record)
        written.append(stream.getvalue())
    return pa.array(written, pa.binary())
