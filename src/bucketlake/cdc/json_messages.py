"""Messages in JSON, many at once: groups of one schema, and their payloads as Arrow columns.

Connect's JSON converter repeats the schema in each message, so messages of one schema have one
beginning. It is found with comparisons of bytes and parsed once; Arrow parses the payloads behind
it. Python reads the payloads that Arrow refuses, such as those with ``"NaN"`` among numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from bucketlake.model.arrays import spans_of

_SCHEMA, _PAYLOAD = b'{"schema":', b'"payload":'
_PIECE_BYTES = 1 << 18
_OTHER_ORDER = r'^\s*\{\s*"(schema|payload)"\s*:'


@dataclass(frozen=True, slots=True, eq=False)
class MessageGroup:
    """Messages with one schema.

    Attributes
    ----------
    schema : Any
        That of Connect or of Avro; None if the messages have none, or it is not known.
    rows : ndarray of int64
        Which messages they are.
    payloads : pa.Array or list of bytes
        In JSON what follows the schema, or the whole messages; in Avro the data.
    columns : callable
        Takes some of the payloads and a raw schema; returns their columns.
    """

    schema: Any
    rows: npt.NDArray[np.int64]
    payloads: Any
    columns: Callable[[Any, pa.Schema], pa.Table]


def json_groups(messages: pa.Array, rows: npt.NDArray[np.int64]) -> Iterator[MessageGroup]:
    """Divide messages, of which none is null, by their schemas."""
    messages = messages.cast(pa.binary())
    has_schema = pc.starts_with(messages, _SCHEMA).to_numpy(zero_copy_only=False)
    if not has_schema.all():
        messages = _usual(messages, has_schema)
        has_schema = pc.starts_with(messages, _SCHEMA).to_numpy(zero_copy_only=False)
    plain, todo = np.flatnonzero(~has_schema), np.flatnonzero(has_schema)
    if len(plain):
        yield MessageGroup(None, rows[plain], _taken(messages, plain), payload_columns)
    left = _taken(messages, todo)
    while len(todo):
        text = left[0].as_py()
        head = text[: text.find(_PAYLOAD) + len(_PAYLOAD)]
        try:
            schema = json.loads(head + b"null}")["schema"]
        except (ValueError, KeyError, TypeError, RecursionError):
            head, schema = text, None  # No message of this form: the reader of the rows says so.
        same = pc.starts_with(left, head).to_numpy(zero_copy_only=False)
        own = _taken(left, np.flatnonzero(same))
        payloads = own if head is text else pc.binary_slice(own, len(head), -1)
        yield MessageGroup(schema, rows[todo[same]], payloads, payload_columns)
        todo, left = todo[~same], _taken(left, np.flatnonzero(~same))


def _taken(texts: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Array:
    return texts if len(rows) == len(texts) else texts.take(pa.array(rows))


def rows_with(texts: pa.Array, part: bytes) -> npt.NDArray[np.bool_]:
    """Return which texts hold some bytes; several times as fast as Arrow's search."""
    found = np.zeros(len(texts), np.bool_)
    for first, data, offsets in _pieces(texts):
        places, at = [], data.find(part)
        while at > -1:
            places.append(at)
            at = data.find(part, at + len(part))
        found[first + np.searchsorted(offsets, places, side="right") - 1] = True
    return found


def any_has(texts: pa.Array, parts: Iterable[bytes]) -> bool:
    """Return whether one of the texts holds one of some parts."""
    parts = [*parts]
    return any(part in data for _, data, _ in _pieces(texts) for part in parts)


def _pieces(texts: pa.Array) -> Iterator[tuple[int, bytes, npt.NDArray[np.int32]]]:
    """Yield the first row, the bytes and the offsets of some texts: few enough for a cache."""
    (octets, offsets), first = spans_of(texts), 0
    while first < len(texts):
        start = offsets[first]
        end = max(first + 1, int(np.searchsorted(offsets, start + _PIECE_BYTES, "right")) - 1)
        piece = octets[start : offsets[end]].tobytes()
        yield first, piece, offsets[first : end + 1] - start
        first = end


def _usual(messages: pa.Array, usual: npt.NDArray[np.bool_]) -> pa.Array:
    """Write messages again whose schema stands with blanks around it, or behind the payload."""
    other = pc.and_(pc.match_substring_regex(messages, _OTHER_ORDER), pa.array(~usual))
    if not pc.any(other).as_py():
        return messages

    def again(text: bytes) -> bytes:
        try:
            parts = json.loads(text)
            parts = {"schema": parts["schema"], "payload": parts["payload"]}
            return json.dumps(parts, separators=(",", ":")).encode()
        except (ValueError, KeyError, TypeError, RecursionError):
            return text

    texts = pa.array([again(text) for text in messages.filter(other).to_pylist()], pa.binary())
    return pc.replace_with_mask(messages, other, texts)


def payload_columns(payloads: pa.Array, raw: pa.Schema) -> pa.Table:
    """Parse payloads; other fields than those of the schema are passed over.

    Raises
    ------
    ValueError
        If one of them is no JSON object with these types, or no UTF-8.
    """
    count, texts = len(payloads), payloads.cast(pa.binary())
    texts.cast(pa.string())  # Arrow's reader does not look at it.
    lines = pc.binary_join_element_wise(texts, b"\n", b"")
    data = lines.buffers()[2]
    # Arrow's reader takes objects wherever they stand, and a line of null kills the process.
    are_objects = pc.and_(pc.starts_with(texts, b"{"), pc.ends_with(texts, b"}"))
    is_plain = pc.all(are_objects).as_py() and not any(_has_map(field.type) for field in raw)
    if is_plain and data is not None:
        offsets = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset :]
        start, end = int(offsets[0]), int(offsets[count])
        try:
            found = arrow_json.read_json(
                pa.BufferReader(data.slice(start, end - start)),
                arrow_json.ReadOptions(use_threads=False, block_size=max(end - start, 1) + 1),
                arrow_json.ParseOptions(explicit_schema=raw, unexpected_field_behavior="ignore"),
            )
            if found.num_rows == count:
                return found.select(raw.names).combine_chunks()
        except pa.ArrowException:
            pass  # Python reads them, or says what is wrong.
    return python_rows([json.loads(text) for text in payloads.to_pylist()], raw)


def python_rows(objects: list[Any], raw: pa.Schema) -> pa.Table:
    """Return objects that Python has parsed as columns; raises ValueError for other types."""
    for held in objects:
        if not isinstance(held, dict):
            raise ValueError(f"a {type(held).__name__}, where an object belongs")
    columns = []
    for field in raw:
        values = [_fitting(held.get(field.name), field.type) for held in objects]
        try:
            columns.append(pa.array(values, field.type))
        except (pa.ArrowException, OverflowError, TypeError) as error:
            raise ValueError(f"field {field.name}: {error}") from error
    return pa.Table.from_arrays(columns, schema=raw)


def _fitting(value: Any, kind: pa.DataType) -> Any:
    """Return a value of Python as Arrow takes it for a type."""
    if value is None:
        return None
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {field.name: _fitting(value.get(field.name), field.type) for field in kind}
    if pa.types.is_map(kind) and isinstance(value, dict):
        return [(name, _fitting(held, kind.item_type)) for name, held in value.items()]
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_fitting(held, kind.value_type) for held in value]
    if pa.types.is_floating(kind) and isinstance(value, str):
        return float(value)
    if pa.types.is_string(kind) and not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if pa.types.is_integer(kind) and isinstance(value, float | bool):
        raise ValueError(f"{value!r} is no whole number")
    return value


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return any(_has_map(kind.field(at).type) for at in range(kind.num_fields))
