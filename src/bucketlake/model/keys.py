"""Record keys: made from columns as Hudi's key generators do.

A key of one field is the text of its value. A key of several fields is ``f1:v1,f2:v2``; a missing
value is written as ``__null__``, an empty value as ``__empty__``, and nothing is escaped.
``model/value_text.py`` makes the text of a value, ``model/partition_path.py`` the partition path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import ConfigError, InputError
from bucketlake.model.arguments import check_optional_texts, check_texts, names_of
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
    # Entries in the words of who made the table: Hudi has several for one meaning.
    stated: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    @property
    def has_composite_keys(self) -> bool:
        """Whether keys contain their field names: ``f1:v1,f2:v2``, and ``f:v`` for COMPLEX."""
        return len(self.record_key_fields) > 1 or self.generator is KeyGenerator.COMPLEX


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
        How the table makes keys. A field ``a.b`` is a column of that name, or field ``b`` of
        column ``a``.

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
    names = spec.record_key_fields
    if not names:
        raise ConfigError("hoodie.table.recordkey.fields", "", "name the columns of the record key")
    texts = [_texts_of(columns, name) for name in names]
    missing = np.logical_and.reduce([_is_missing(text) for text in texts])
    if missing.any():
        raise _missing_key(columns, names, missing)
    if not spec.has_composite_keys:
        return texts[0]
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
        Values by column; a missing key field is null.
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
    columns = {name: _literal(schema, name, values) for name in key_columns(spec, schema)}
    keys = record_keys(pa.table(columns), spec)
    return str(keys[0].as_py())


def key_columns(spec: KeySpec, schema: pa.Schema) -> list[str]:
    """Return the top-level columns that hold the record key fields, each once."""
    fields = spec.record_key_fields
    return list(dict.fromkeys(f if f in schema.names else f.partition(".")[0] for f in fields))


def column_of(columns: pa.Table | pa.RecordBatch, name: str, role: str) -> Column:
    """Return a column, or a field ``a.b`` of a struct column; InputError if there is none."""
    root, *steps = [name] if name in columns.schema.names else name.split(".")
    if columns.schema.get_field_index(root) < 0:
        raise _missing_column(columns, name, role)
    column = columns.column(root)
    for step in steps:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(step) < 0:
            raise _missing_column(columns, name, role)
        column = pc.struct_field(column, step)
    return column


def _texts_of(columns: pa.Table | pa.RecordBatch, name: str) -> Column:
    return value_texts(column_of(columns, name, "record key"), f"record key column {name!r}")


def _is_missing(texts: Column) -> npt.NDArray[np.bool_]:
    missing: npt.NDArray[np.bool_] = pc.equal(texts.fill_null(""), "").to_numpy(
        **({} if isinstance(texts, pa.ChunkedArray) else {"zero_copy_only": False})
    )
    return missing


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


def _missing_column(columns: pa.Table | pa.RecordBatch, name: str, role: str) -> InputError:
    names = columns.schema.names
    repeated = names.count(name) > 1
    return InputError(
        f"{role} column {name!r}",
        f"the data has {'several' if repeated else 'no'} such column{'s' if repeated else ''}; "
        f"its columns are {', '.join(map(repr, names))}",
        "give the data the table's columns, each once",
    )


def _literal(schema: pa.Schema, name: str, values: Mapping[str, Any]) -> pa.Array:
    index = schema.get_field_index(name)
    where = f"record key column {name!r}"
    if index < 0:
        raise InputError(
            where, "the table has no such column", f"its columns are {', '.join(schema.names)}"
        )
    data_type = schema.field(index).type
    try:
        # Two steps, because building the array with the type would round 1.5 to an integer.
        return pa.array([values.get(name)]).cast(data_type)
    except (pa.ArrowException, OverflowError) as error:
        raise InputError(
            where,
            f"{values.get(name)!r} is not a value of its type {data_type} ({error})",
            f"give a value of type {data_type}",
        ) from None
