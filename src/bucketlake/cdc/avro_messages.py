"""Messages in Avro: which schema each was written with, and its value as Python parses it.

The id of a schema stands in a header, or in the first bytes of a message: a zero byte, then 4 bytes
as Confluent writes it, or 8 bytes as Apicurio does. The registry is asked once for each id, by the
driver, before tasks begin.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from http.client import HTTPException
from io import BytesIO
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.cdc.json_messages import MessageGroup, python_rows
from bucketlake.errors import StorageError
from bucketlake.model.arrays import one_array

_HEADER = "apicurio.{}.globalId"
_PATHS = ("/schemas/ids/{}", "/apis/ccompat/v7/schemas/ids/{}")
_GLOBAL = "/apis/registry/v2/ids/globalIds/{}"
_CONTENT = "/apis/registry/v2/ids/contentIds/{}"
_SECONDS, _NOT_FOUND = 30, 404
_STEP = "check registry=, and framing= for ids of 8 bytes"


def schema_ids(
    messages: pa.Table, column: str, wide: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the schema's id of each message, and where its datum begins; -1 for no id.

    Parameters
    ----------
    messages : pa.Table
        The messages.
    column : str
        ``key`` or ``value``.
    wide : bool
        Whether ids in front of the datum have 8 bytes.
    """
    values, count = one_array(messages[column]).fill_null(b""), messages.num_rows
    ids, starts = np.full(count, -1), np.zeros(count, np.int64)
    headers = one_array(messages["headers"])
    flat, parents = headers.flatten(), pc.list_parent_indices(headers).to_numpy()
    own = pc.fill_null(pc.equal(flat.field("key"), _HEADER.format(column)), False)
    for row, data in zip(
        parents[own.to_numpy(zero_copy_only=False)],
        flat.field("value").filter(own).to_pylist(),
        strict=True,
    ):
        ids[row] = _number(data or b"")
    size = 9 if wide else 5
    framed = np.flatnonzero(
        (ids < 0) & pc.starts_with(values, b"\0").to_numpy(zero_copy_only=False)
    )
    heads = pc.binary_slice(values.take(pa.array(framed)), 1, size)
    for row, data in zip(framed, heads.to_pylist(), strict=True):
        ids[row], starts[row] = _number(data), size
    return ids, starts


def _number(data: bytes) -> int:
    """Return an id in 63 bits: a larger one is of a damaged message, and no registry has it."""
    return int.from_bytes(data[-8:], "big") & (1 << 63) - 1


def fetched(registry: str, ids: Mapping[int, bool], wide: bool) -> dict[int, Any]:
    """Return schemas from a registry by their ids; of each id whether a header had it.

    An id that the registry does not know is left out, if it knows another: its messages are bad.

    Raises
    ------
    StorageError
        If the registry does not answer, or has no schema of any id.
    """
    root, unknown = registry.rstrip("/"), None
    found: dict[int, Any] = {}
    for number, in_header in ids.items():
        paths = [_GLOBAL] if in_header or wide else [*_PATHS, _CONTENT]
        for path in paths:
            address, last = root + path.format(number), path is paths[-1]
            try:
                with urlopen(address, timeout=_SECONDS) as answer:
                    held = json.load(answer)
                found[number] = json.loads(held["schema"]) if "schema" in held else held
                break
            except (HTTPException, URLError, OSError, ValueError, TypeError) as error:
                if last:
                    told = f"the registry gave no Avro schema {number}: {error}; {_STEP}"
                    unknown = StorageError(address, "read", told)
                    if not isinstance(error, HTTPError) or error.code != _NOT_FOUND:
                        raise unknown from error
    if unknown is not None and not found:
        raise unknown
    return found


def avro_groups(
    messages: pa.Table,
    column: str,
    rows: npt.NDArray[np.int64],
    schemas: Mapping[int, Any],
    wide: bool,
) -> Iterator[MessageGroup]:
    """Divide messages by their schemas."""
    ids, starts = schema_ids(messages, column, wide)
    values = one_array(messages[column])
    for number in np.unique(ids[rows]):
        own = rows[ids[rows] == number]
        held = values.take(pa.array(own)).to_pylist()
        data = [text[start:] for text, start in zip(held, starts[own], strict=True)]
        schema = schemas.get(int(number))
        yield MessageGroup(schema, own, data, partial(_columns, schema))


def _columns(schema: Any, data: list[bytes], raw: pa.Schema) -> pa.Table:
    """Parse data; raises ValueError for one that is not of the schema."""
    import fastavro  # Most messages are in JSON.

    parsed = fastavro.parse_schema(_plain(schema))
    try:
        found = [fastavro.schemaless_reader(BytesIO(each), parsed, None) for each in data]
    except (EOFError, IndexError, KeyError, UnicodeDecodeError, OverflowError) as error:
        raise ValueError(f"the message is not of its Avro schema: {error!r}") from error
    return python_rows(found, raw)


def _plain(schema: Any) -> Any:
    """Return a schema whose bytes stay bytes: its decimals are converted all at once."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {key: _plain(held) for key, held in schema.items() if key != "logicalType"}
