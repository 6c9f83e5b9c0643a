"""Hudi's hash of a record key, said as loops over one key: the oracle of the columnar code."""

from __future__ import annotations

from collections.abc import Sequence


def java_string_hash(text: str) -> int:
    """Return ``String.hashCode`` as a signed number of 32 bits."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[0::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) % 2**32
    return _signed(value)


def java_list_hash(elements: Sequence[str | None]) -> int:
    """Return ``List.hashCode`` of texts and nulls."""
    value = 1
    for element in elements:
        value = (31 * value + (0 if element is None else java_string_hash(element))) % 2**32
    return _signed(value)


def index_key(record_key: str, hash_fields: Sequence[str]) -> list[str | None]:
    """Take the values of the hash fields out of a record key, scanning as Hudi does."""
    if "," not in record_key or ":" not in record_key:
        return [record_key]
    values: list[str | None] = []
    at = 0
    while at < len(record_key):
        colon = record_key.index(":", at)
        end = _end_of_value(record_key, colon)
        if record_key[at:colon] in hash_fields:
            values.append(_value(record_key[colon + 1 : end]))
        if end is None:
            break
        at = end + 1
    return values or [record_key]


def split_index_key(record_key: str, hash_fields: Sequence[str]) -> list[str | None]:
    """Take values out of a record key as Hudi 0.14 and 0.15 do, by the names of the hash fields."""
    if ":" not in record_key:
        return [record_key]
    parts = [part.split(":", 1) for part in record_key.rstrip(",").split(",")]
    return [
        part[0] if len(part) == 1 else _value(part[1])
        for part in parts
        if len(part) == 1 or part[0] in hash_fields
    ]


def bucket_of(record_key: str, bucket_count: int, hash_fields: Sequence[str] = ()) -> int:
    """Return the bucket of a record key."""
    return (java_list_hash(index_key(record_key, hash_fields)) & 0x7FFFFFFF) % bucket_count


def _end_of_value(key: str, colon: int) -> int | None:
    """Return where a value ends: the last comma before the next colon that has one before it."""
    next_colon = key.find(":", colon + 1)
    while next_colon >= 0:
        comma = key.rfind(",", 0, next_colon)
        if comma > colon:
            return comma
        next_colon = key.find(":", next_colon + 1)
    return None


def _value(text: str) -> str | None:
    return {"__null__": None, "__empty__": ""}.get(text, text)


def _signed(value: int) -> int:
    return value - 2**32 if value >= 2**31 else value
