"""Record keys: made from columns as Hudi's key generators do.

A key of one field is the text of its value. A key of several fields is ``f1:v1,f2:v2``; a missing
value is written as ``__null__``, an empty value as ``__empty__``, and nothing is escaped.
``model/value_text.py`` makes the text of a value, ``model/partition_path.py`` the partition path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import ConfigError, InputError
from bucketlake.model.arguments import check_optional_texts, check_texts, names_of
from bucketlake.model.field_path import column_of, field_at, roots_of, steps_of, why_missing
from bucketlake.model.value_text import Column, value_texts

NULL_TEXT = "__null__"
EMPTY_TEXT = "__empty__"

_SHOWN_VALUES = 5  # Number of values of a row shown in a message.


class KeyGenerator(Enum):
    """The rule for keys and partition paths; the value is Hudi's spelling."""

    SIMPLE = "SIMPLE"
    COMPLEX = "COMPLEX"
    TIMESTAMP = "TIMESTAMP"
    NON_PARTITION = "NON_PARTITION"
    CUSTOM = "CUSTOM"


@dataclass(frozen=True, slots=True)
class TimestampPartition:
    """How a time becomes a partition value; the fields have the names of Hudi's settings.

    Attributes
    ----------
    timestamp_type : str
        What the column holds: ``UNIX_TIMESTAMP`` (seconds), ``EPOCHMILLISECONDS``,
        ``EPOCHMICROSECONDS`` (columns of timestamps too), ``SCALAR`` (in ``scalar_unit``; for
        columns of dates, ``DAYS``), ``DATE_STRING`` (text in one of ``input_formats``) or
        ``MIXED`` (text, or numbers in ``scalar_unit``).
    output_format : str
        Pattern of the partition value, in Joda's letters: ``yyyy/MM/dd``.
    scalar_unit : str
        ``DAYS``, ``HOURS``, ``MINUTES``, ``SECONDS``, ``MILLISECONDS``, ``MICROSECONDS`` or
        ``NANOSECONDS``.
    input_formats : tuple of str
        Patterns of text; the first pattern that matches is used.
    input_timezone : str or None
        Time zone of text without an offset; None for UTC.
    output_timezone : str or None
        Time zone of the partition value. None means UTC; for text it means the zone of the text.

    Examples
    --------
    >>> by_day = TimestampPartition("EPOCHMICROSECONDS", "yyyy/MM/dd")  # Of a timestamp column.
    """

    timestamp_type: str
    output_format: str
    scalar_unit: str = "SECONDS"
    input_formats: tuple[str, ...] = ()
    input_timezone: str | None = None
    output_timezone: str | None = None

    def __post_init__(self) -> None:
        check_texts(
            timestamp_type=self.timestamp_type,
            output_format=self.output_format,
            scalar_unit=self.scalar_unit,
        )
        check_optional_texts(
            input_timezone=self.input_timezone, output_timezone=self.output_timezone
        )
        object.__setattr__(self, "input_formats", names_of(self.input_formats, "input_formats"))


def inferred_generator(
    record_key_fields: tuple[str, ...], partition_fields: tuple[str, ...]
) -> KeyGenerator:
    """Return the generator that Hudi infers for a table that names none."""
    if not partition_fields:
        return KeyGenerator.NON_PARTITION
    if len(record_key_fields) == len(partition_fields) == 1:
        return KeyGenerator.SIMPLE
    return KeyGenerator.COMPLEX


@dataclass(frozen=True, slots=True)
class KeySpec:
    """Settings of a table's record keys and partition paths."""

    record_key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...]
    generator: KeyGenerator
    hive_style: bool = False
    url_encode: bool = False
    timestamp: TimestampPartition | None = None
    partition_field_kinds: tuple[str, ...] = ()  # For CUSTOM: "SIMPLE" or "TIMESTAMP" per field.
    bare_keys: bool = False  # Whether a COMPLEX key of one field lacks its name.
    # Entries in the words of who made the table: Hudi has several for one meaning.
    stated: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def has_composite_keys(self) -> bool:
        """Whether keys contain their field names: ``f1:v1,f2:v2``, and ``f:v`` for COMPLEX."""
        has_names = self.generator is KeyGenerator.COMPLEX and not self.bare_keys
        return len(self.record_key_fields) > 1 or has_names


def check_generator(spec: KeySpec) -> None:
    """Raise ConfigError for columns with which the key generator of a new table cannot work.

    Hudi's generators refuse them, too, with their first record.
    """
    name = f"the key generator {spec.generator.value}"
    partitions = ",".join(spec.partition_fields)
    if spec.generator in (KeyGenerator.SIMPLE, KeyGenerator.TIMESTAMP):
        if len(spec.record_key_fields) > 1:
            raise ConfigError(
                "hoodie.datasource.write.recordkey.field",
                ",".join(spec.record_key_fields),
                f"{name} takes one field; use COMPLEX or CUSTOM for several",
            )
        if len(spec.partition_fields) != 1:
            raise ConfigError(
                "hoodie.datasource.write.partitionpath.field",
                partitions,
                f"{name} takes one field; use COMPLEX or CUSTOM for several, and NON_PARTITION "
                "for none",
            )
    kinds = spec.partition_field_kinds
    if spec.generator is KeyGenerator.CUSTOM and (
        len(kinds) != len(spec.partition_fields) or not {*kinds} <= {"SIMPLE", "TIMESTAMP"}
    ):
        raise ConfigError(
            "hoodie.datasource.write.partitionpath.field",
            partitions,
            f"{name} needs the kind of each field, SIMPLE or TIMESTAMP, as in city:SIMPLE",
        )


def record_keys(columns: pa.Table | pa.RecordBatch, spec: KeySpec) -> Column:
    """Return the record key of each row.

    Parameters
    ----------
    columns : Table or RecordBatch
        At least the record key columns, in the types that the table stores.
    spec : KeySpec
        How the table makes keys. A field is a path, see ``model/field_path.py``.

    Returns
    -------
    Array or ChunkedArray of string
        Keys as stored in ``_hoodie_record_key``, never null or empty.

    Raises
    ------
    InputError
        If a column is missing, its type cannot be part of a key, or a row has no key: all its key
        fields are null or empty.
    ConfigError
        If the table has no record key fields.

    Examples
    --------
    >>> spec = KeySpec(("a", "b"), (), KeyGenerator.NON_PARTITION)
    >>> record_keys(pa.table({"a": [1, 2], "b": ["x", None]}), spec).to_pylist()
    ['a:1,b:x', 'a:2,b:__null__']
    """
    keys = keys_or_null(columns, spec)
    if keys.null_count:
        missing = keys.is_null().to_numpy(zero_copy_only=False)
        raise _missing_key(columns, spec.record_key_fields, missing)
    return keys


def keys_or_null(columns: pa.Table | pa.RecordBatch, spec: KeySpec) -> Column:
    """Return the record key of each row; null where all its key fields are null or empty.

    Parameters and other errors are those of :func:`record_keys`.
    """
    names = spec.record_key_fields
    if not names:
        raise ConfigError("hoodie.table.recordkey.fields", "", "name the columns of the record key")
    texts = [_texts_of(columns, name) for name in names]
    missing = np.logical_and.reduce([_is_missing(text) for text in texts])
    keys = _joined(names, texts) if spec.has_composite_keys else texts[0]
    return pc.if_else(pa.array(~missing), keys, None) if missing.any() else keys


def _joined(names: tuple[str, ...], texts: list[Column]) -> Column:
    parts: list[Any] = []
    for name, text in zip(names, texts, strict=True):
        filled = pc.if_else(pc.equal(text, ""), EMPTY_TEXT, text).fill_null(NULL_TEXT)
        parts += [f"{',' if parts else ''}{name}:", filled]
    return pc.binary_join_element_wise(*parts, "")


def key_text(spec: KeySpec, values: Mapping[str, Any], schema: pa.Schema) -> str:
    """Return the record key for literal values.

    Parameters
    ----------
    spec : KeySpec
        How the table makes keys.
    values : mapping of str to Any
        Values by key field; a missing key field is null. The values of ``a.b`` and ``a.c`` may be
        together in a mapping ``{"a": {"b": …, "c": …}}``.
    schema : pa.Schema
        The table's columns.

    Returns
    -------
    str
        The key.

    Raises
    ------
    InputError
        If a value does not fit its column's type, or the row has no key.

    Examples
    --------
    >>> spec = KeySpec(("id",), (), KeyGenerator.NON_PARTITION)
    >>> key_text(spec, {"id": 7}, pa.schema([("id", pa.int64())]))
    '7'
    """
    given = values_by_field(values, spec.record_key_fields)
    columns = {name: _literal(schema, name, given) for name in spec.record_key_fields}
    keys = record_keys(pa.table(columns), spec)
    return str(keys[0].as_py())


def key_columns(spec: KeySpec, schema: pa.Schema) -> list[str]:
    """Return the top-level columns that hold the record key fields, each once."""
    return roots_of(spec.record_key_fields, schema.names)


def values_by_field(values: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """Return the values of fields, by path; a field without a value is left out.

    Examples
    --------
    >>> values_by_field({"header": {"eid": 1}, "day": None}, ["header.eid", "day", "v"])
    {'header.eid': 1, 'day': None}
    """
    found = {}
    for path in fields:
        held: Any = values
        for step in steps_of(path, list(values)):
            if not isinstance(held, Mapping) or step not in held:
                break
            held = held[step]
        else:
            found[path] = held
    return found


def _texts_of(columns: pa.Table | pa.RecordBatch, name: str) -> Column:
    return value_texts(column_of(columns, name, "record key"), f"record key column {name!r}")


def _is_missing(texts: Column) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.equal(texts.fill_null(""), "").to_numpy(zero_copy_only=False))


def _missing_key(
    columns: pa.Table | pa.RecordBatch, names: tuple[str, ...], missing: npt.NDArray[np.bool_]
) -> InputError:
    first = int(np.argmax(missing))
    others = [name for name in columns.schema.names if name not in names][:_SHOWN_VALUES]
    shown = ", ".join(f"{name}={columns.column(name)[first].as_py()!r}" for name in others)
    fields = ", ".join(map(repr, names))
    return InputError(
        f"record key column{'s' if len(names) > 1 else ''} {fields}",
        f"{int(missing.sum())} of {len(missing)} rows have a null or empty key, the first of them "
        f"is row {first}{f' with {shown}' if shown else ''}",
        "give each row a key, or drop these rows",
    )


def _literal(schema: pa.Schema, name: str, values: Mapping[str, Any]) -> pa.Array:
    where, field = f"record key column {name!r}", field_at(schema, name)
    if field is None:
        raise InputError(where, f"the table {why_missing(schema, name)}", "name a field of it")
    value, data_type = values.get(name), field.type
    try:
        # Two steps, because building the array with the type would round 1.5 to an integer.
        return pa.array([value]).cast(data_type)
    except (pa.ArrowException, OverflowError) as error:
        raise InputError(
            where,
            f"{value!r} is not a value of its type {data_type} ({error})",
            f"give a value of type {data_type}",
        ) from None
