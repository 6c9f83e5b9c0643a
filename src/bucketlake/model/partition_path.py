"""Partition paths, made from columns as Hudi's key generators do.

Each partition field gives the text of its value, or ``__HIVE_DEFAULT_PARTITION__`` if the value is
null or empty. If the table says so, the text is url-encoded and follows ``field=``. ``/`` joins the
fields. A path that leads out of the table, or that Hudi cannot address, raises an error.
``model/value_text.py`` makes the text of values, ``model/time_partition.py`` the text of times.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import ConfigError, InputError
from bucketlake.model.arrays import one_array
from bucketlake.model.field_path import column_of
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.time_partition import check_timestamp_partition, time_texts
from bucketlake.model.value_text import Column, value_texts

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Name of a partition whose value is null or empty."""

_KIND_SIMPLE, _KIND_TIMESTAMP = "SIMPLE", "TIMESTAMP"
_ESCAPED = [*map(chr, range(0x20)), "\x7f", *"\"#%'*/:=?\\{[]^"]
_ESCAPES = {ord(character): f"%{ord(character):02X}" for character in _ESCAPED}
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")
_RESERVED_SEGMENTS = {"": "an empty name", ".": "'.'", "..": "'..'", ".hoodie": "'.hoodie'"}
_ENCODE_HINT = "create the table with url_encode=True, or change the value"


def partition_paths(columns: pa.Table | pa.RecordBatch, spec: KeySpec) -> pa.DictionaryArray:
    """Return the partition path of each row.

    Parameters
    ----------
    columns : Table or RecordBatch
        At least the partition columns, in the types that the table stores.
    spec : KeySpec
        How the table makes paths.

    Returns
    -------
    DictionaryArray of string, indices of int32
        Paths; the dictionary has each path once. ``""`` in a table without partitions.

    Raises
    ------
    InputError
        If a column is missing, or the path of a value cannot be stored.
    ConfigError
        If bucketlake does not support the settings.

    Examples
    --------
    >>> spec = KeySpec(("id",), ("region",), KeyGenerator.SIMPLE, hive_style=True)
    >>> partition_paths(pa.table({"region": ["eu", None]}), spec).to_pylist()
    ['region=eu', 'region=__HIVE_DEFAULT_PARTITION__']
    """
    fields = _fields_of(spec)
    if not fields:
        indices = np.zeros(columns.num_rows, np.int32)
        paths = [""] if columns.num_rows else []
        return pa.DictionaryArray.from_arrays(indices, pa.array(paths, pa.string()))
    check_partitioning(spec)
    joined = _joined([_segments_of(columns, field, spec) for field in fields])
    for path in joined.dictionary.to_pylist():
        _check_path(path, spec)
    return joined


def check_partitioning(spec: KeySpec) -> None:
    """Raise ConfigError for settings of partition paths that bucketlake does not support.

    Raises
    ------
    ConfigError
        If a timestamp-based partition has no setting or an unsupported setting, or if there are
        several timestamp-based partitions.
    """
    times = [field for field in _fields_of(spec) if field.is_time]
    if times and spec.timestamp is None:
        raise ConfigError(
            "hoodie.keygen.timebased.timestamp.type",
            None,
            f"partition field {times[0].name!r} holds times; give their format as partitions",
        )
    if times and spec.timestamp is not None:
        check_timestamp_partition(spec.timestamp)
    if spec.generator is KeyGenerator.TIMESTAMP and len(spec.partition_fields) != 1:
        raise ConfigError(
            "hoodie.table.partition.fields",
            ",".join(spec.partition_fields),
            "a timestamp-based table has one partition field; use CUSTOM for several",
        )


def formatted_fields(spec: KeySpec) -> list[str]:
    """Return the partition fields of which several values have one path: formatted times."""
    return [field.name for field in _fields_of(spec) if field.is_time]


def encode_segment(text: str) -> str:
    r"""Escape what Hudi escapes in a partition value: controls and ``"#%'*/:=?\{[]^``.

    Examples
    --------
    >>> encode_segment("p 1/z")
    'p 1%2Fz'
    """
    return text.translate(_ESCAPES)


def decode_segment(text: str) -> str:
    """Undo :func:`encode_segment`.

    Examples
    --------
    >>> decode_segment("p 1%2Fz")
    'p 1/z'
    """
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


@dataclass(frozen=True, slots=True)
class _Field:
    """A partition field, and whether its value is a formatted time."""

    name: str
    is_time: bool


def _fields_of(spec: KeySpec) -> list[_Field]:
    if spec.generator is KeyGenerator.NON_PARTITION:
        return []
    default = _KIND_TIMESTAMP if spec.generator is KeyGenerator.TIMESTAMP else _KIND_SIMPLE
    kinds = spec.partition_field_kinds or (default,) * len(spec.partition_fields)
    for kind in kinds:
        if kind.upper() not in (_KIND_SIMPLE, _KIND_TIMESTAMP):
            raise ConfigError(
                "hoodie.table.partition.fields", kind, "a field's kind is SIMPLE or TIMESTAMP"
            )
    return [
        _Field(name, kind.upper() == _KIND_TIMESTAMP)
        for name, kind in zip(spec.partition_fields, kinds, strict=True)
    ]


def _segments_of(
    columns: pa.Table | pa.RecordBatch, field: _Field, spec: KeySpec
) -> pa.DictionaryArray:
    """Return a field's part of each path; each distinct value is converted once."""
    where = f"partition column {field.name!r}"
    values = column_of(columns, field.name, "partition")
    if field.is_time:
        assert spec.timestamp is not None, "check_partitioning ensures this"
        return _mapped(time_texts(values, spec.timestamp, where), _to_segment(field, spec))
    encoded = _encode(values)
    texts = value_texts(encoded.dictionary, where)
    distinct = pa.DictionaryArray.from_arrays(encoded.indices, texts)
    return _mapped(distinct, _to_segment(field, spec))


def _encode(values: Column) -> pa.DictionaryArray:
    """Encode a column as a dictionary array; the dictionary has only values that occur."""
    array = one_array(values)
    if pa.types.is_dictionary(array.type):  # Its dictionary may have values that no row has.
        array = array.dictionary_decode()
    return array.dictionary_encode(null_encoding="encode")


def _to_segment(field: _Field, spec: KeySpec) -> Callable[[str | None], str]:
    prefix = f"{field.name}=" if spec.hive_style else ""

    def to_segment(text: str | None) -> str:
        value = text or DEFAULT_PARTITION
        if spec.url_encode:
            value = encode_segment(value)
        elif "/" in value and not field.is_time:
            raise InputError(
                f"partition column {field.name!r}",
                f"the value {value!r} contains a slash, which would make several folders",
                _ENCODE_HINT,
            )
        return prefix + value

    return to_segment


def _mapped(encoded: pa.DictionaryArray, change: Callable[[str | None], str]) -> pa.DictionaryArray:
    """Convert the texts of a dictionary; texts that become equal are combined."""
    changed = pa.array([change(text) for text in encoded.dictionary.to_pylist()], pa.string())
    distinct = changed.dictionary_encode()
    indices = distinct.indices.take(encoded.indices)
    return pa.DictionaryArray.from_arrays(indices, distinct.dictionary)


def _joined(parts: Sequence[pa.DictionaryArray]) -> pa.DictionaryArray:
    """Join the fields' parts with slashes; each distinct path is made once."""
    joined = parts[0]
    for part in parts[1:]:
        width = max(len(part.dictionary), 1)
        pairs = _codes(joined).astype(np.int64) * width + _codes(part)
        distinct = pa.array(pairs).dictionary_encode()
        pair = distinct.dictionary.to_numpy()
        texts = pc.binary_join_element_wise(
            joined.dictionary.take(pair // width), part.dictionary.take(pair % width), "/"
        )
        joined = pa.DictionaryArray.from_arrays(distinct.indices, texts)
    return joined


def _codes(encoded: pa.DictionaryArray) -> npt.NDArray[np.int32]:
    return np.asarray(encoded.indices.to_numpy())


def _check_path(path: str, spec: KeySpec) -> None:
    where = f"partition column{'s' if len(spec.partition_fields) > 1 else ''} " + ", ".join(
        map(repr, spec.partition_fields)
    )
    segments = path.split("/")
    for segment in segments:
        if segment in _RESERVED_SEGMENTS:
            raise InputError(
                where,
                f"the partition path {path!r} has a folder with the name "
                f"{_RESERVED_SEGMENTS[segment]}, which cannot hold data",
                "change the value",
            )
    if "\0" in path:
        raise InputError(where, f"the partition path {path!r} contains a NUL", _ENCODE_HINT)
    if ":" in segments[0]:
        raise InputError(
            where,
            f"Hudi cannot address the partition path {path!r}: it treats the text before the "
            "colon as the scheme of a URI",
            _ENCODE_HINT,
        )
