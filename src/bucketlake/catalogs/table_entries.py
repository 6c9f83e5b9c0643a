"""From the facts of a table to the entries that a catalog is to have of it.

Names, types, formats and properties are those of Hudi's sync, so that whoever finds tables of Hudi
by a catalog finds these, and so that a sync of Hudi that follows has nothing to change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa

from bucketlake.catalogs.catalog import (
    LAST_COMMIT,
    LAST_COMPLETION,
    PARQUET_INPUT,
    CatalogColumn,
    KeyValues,
    TableEntry,
)
from bucketlake.catalogs.settings import EXTRACTORS, SyncSettings
from bucketlake.errors import InputError
from bucketlake.model.column_type import is_list
from bucketlake.model.schema import META_NAMES
from bucketlake.model.vector import is_vector

_REALTIME_INPUT = "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat"
_AS_READ_OPTIMIZED = "hoodie.query.as.ro.table"
SPARK = "spark.sql."
_SCHEMA = "spark.sql.sources.schema"
WRITER = "hudi_writer_version"
EXTRACTOR = "bucketlake.partition_extractor"
"""The property with the rule that gave the values of partitions, if it is not the table's own."""

_HIVE_TYPES = (
    (pa.types.is_boolean, "boolean", "boolean"),
    (pa.types.is_int8, "int", "integer"),
    (pa.types.is_int16, "int", "integer"),
    (pa.types.is_int32, "int", "integer"),
    (pa.types.is_int64, "bigint", "long"),
    (pa.types.is_float32, "float", "float"),
    (pa.types.is_float64, "double", "double"),
    (pa.types.is_date, "date", "date"),
    (pa.types.is_time32, "int", "integer"),
    (pa.types.is_time64, "bigint", "long"),
    (pa.types.is_string, "string", "string"),
    (pa.types.is_large_string, "string", "string"),
    (pa.types.is_binary, "binary", "binary"),
    (pa.types.is_large_binary, "binary", "binary"),
    (pa.types.is_fixed_size_binary, "binary", "binary"),
)
"""Tests of Arrow types; Hive's word; the word of Spark's schema JSON."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What a sync needs to know of a table.

    Attributes
    ----------
    location : str
        Address of the folder, such as ``file:/lake/orders`` or ``s3://lake/orders``.
    schema : pa.Schema
        All columns in the order of the table, the meta columns first where files have them.
    comments : mapping of str to str
        Comments of columns that have one.
    partition_fields, formatted : tuple of str
        In their order; those whose values a key generator formats as a time.
    last_commit, last_completion : str or None
        Requested time and completion time of the last completed commit; None before the first.
    spark_version, writer_version, owner : str or None
        Of the writer.
    """

    name: str
    location: str
    is_merge_on_read: bool
    schema: pa.Schema
    comments: Mapping[str, str]
    partition_fields: tuple[str, ...]
    formatted: tuple[str, ...]
    extractor: str
    last_commit: str | None
    last_completion: str | None
    spark_version: str | None
    writer_version: str | None


def entries_of(facts: TableFacts, settings: SyncSettings) -> list[TableEntry]:
    """Return the entries of a table: one, or for merge-on-read one for each way to read it.

    Raises
    ------
    InputError
        If a column has a type that catalogs cannot tell.
    """
    whole = _whole_entry(facts, settings)
    if not facts.is_merge_on_read:
        return [whole]
    name = whole.name
    if settings.strategy != "ALL":
        return [_seen_as(whole, name, read_optimized=settings.strategy == "RO")]
    suffix = "" if settings.skip_ro_suffix else "_ro"
    found = [_seen_as(whole, name, read_optimized=False)] if settings.snapshot_with_name else []
    optimized = _seen_as(whole, f"{name}{suffix}", read_optimized=True)
    realtime = _seen_as(whole, f"{name}_rt", read_optimized=False)
    # With skip_ro_suffix the plain name is the read-optimized table, and no other one.
    return [*(each for each in found if each.name != optimized.name), optimized, realtime]


def _seen_as(entry: TableEntry, name: str, *, read_optimized: bool) -> TableEntry:
    serde = dict(entry.serde)
    if _AS_READ_OPTIMIZED in serde:
        serde[_AS_READ_OPTIMIZED] = str(read_optimized).lower()
    input_format = PARQUET_INPUT if read_optimized else _REALTIME_INPUT
    return replace(entry, name=name, input_format=input_format, serde=serde)


def _whole_entry(facts: TableFacts, settings: SyncSettings) -> TableEntry:
    fields = fields_of(facts, settings)
    hidden = META_NAMES if settings.omit_meta else ()
    schema = pa.schema([each for each in facts.schema if each.name not in hidden])
    comments = facts.comments if settings.comments else {}
    known = {each.name: each for each in schema}
    keys = tuple(
        CatalogColumn(name.lower(), _key_type(None if name in facts.formatted else known.get(name)))
        for name in fields
    )
    named = {*fields}
    columns = tuple(
        CatalogColumn(
            name.lower(), hive_type(each.type, settings.timestamps), comments.get(name, "")
        )
        for name, each in known.items()
        if name not in named
    )
    serde = {**settings.serde_properties, "serialization.format": "1", "path": facts.location}
    parameters = dict(settings.table_properties)
    if not settings.managed:
        parameters["EXTERNAL"] = "TRUE"
    if settings.as_datasource:
        serde[_AS_READ_OPTIMIZED] = "false"
        parameters.update(_spark_parameters(schema, fields, facts, settings))
    own = extractor_of(facts, replace(settings, extractor=None))
    told = {
        WRITER: facts.writer_version,
        EXTRACTOR: None if settings.extractor == own else settings.extractor,
        LAST_COMMIT: facts.last_commit,
        LAST_COMPLETION: facts.last_completion,
    }
    parameters.update({key: value for key, value in told.items() if value is not None})
    return TableEntry(
        settings.database,
        settings.table or facts.name.lower(),
        columns,
        keys,
        facts.location,
        PARQUET_INPUT,
        parameters,
        serde,
        settings.managed,
    )


def fields_of(facts: TableFacts, settings: SyncSettings) -> tuple[str, ...]:
    """Return the columns that are partition keys of the entry, spelt as in the table."""
    if settings.partition_fields is None:
        return facts.partition_fields
    names = {name.lower(): name for name in facts.schema.names}
    return tuple(names.get(each.lower(), each) for each in settings.partition_fields)


def _key_type(column: pa.Field | None) -> str:
    """Return the type of a partition key: a string unless the column's own text is in the path.

    A time in the format of a key generator is no number, and a number of microseconds no timestamp;
    Hudi calls the one ``bigint`` and, with ``support_timestamp``, the other ``timestamp``.
    """
    return "string" if column is None else hive_type(column.type)


def _spark_parameters(
    schema: pa.Schema, fields: Sequence[str], facts: TableFacts, settings: SyncSettings
) -> dict[str, str]:
    known = {each.name: each for each in schema}
    named = {*fields}
    ordered = [each for each in schema if each.name not in named]
    ordered += [known.get(name, pa.field(name, pa.string(), nullable=False)) for name in fields]
    text = _json_struct(ordered, [_words(each.type) for each in ordered])
    length = settings.schema_length
    parts = [text[at : at + length] for at in range(0, len(text), length)]
    found = {
        "spark.sql.sources.provider": "hudi",
        f"{_SCHEMA}.numParts": str(len(parts)),
        **{f"{_SCHEMA}.part.{number}": part for number, part in enumerate(parts)},
    }
    if facts.spark_version is not None:
        found["spark.sql.create.version"] = facts.spark_version
    if fields:
        found[f"{_SCHEMA}.numPartCols"] = str(len(fields))
        found.update({f"{_SCHEMA}.partCol.{n}": name for n, name in enumerate(fields)})
    return found


def hive_type(data_type: pa.DataType, timestamps: bool = False) -> str:
    """Return Hive's word for a type; a timestamp is a ``bigint`` unless the catalog has its type.

    >>> hive_type(pa.list_(pa.struct([("X", pa.int32())])))
    'array<struct<x:int>>'
    """
    return _words(data_type, timestamps)[0]


def _words(data_type: pa.DataType, timestamps: bool = False) -> tuple[str, str]:
    """Return Hive's word for a type, and Spark's JSON."""
    types = pa.types
    if types.is_timestamp(data_type):
        spark = "timestamp" if data_type.tz else "timestamp_ntz"
        return "timestamp" if timestamps else "bigint", f'"{spark}"'
    if types.is_decimal(data_type):
        word = f"decimal({data_type.precision},{data_type.scale})"
        return word, f'"{word}"'
    if is_vector(data_type):
        return "binary", '"binary"'  # As Hudi 1.2.0 does.
    if is_list(data_type):
        hive, spark = _words(data_type.value_type, timestamps)
        nullable = str(data_type.value_field.nullable).lower()
        json_text = f'{{"type":"array", "elementType":{spark},"containsNull":{nullable}}}'
        return f"array<{hive}>", json_text
    if types.is_map(data_type):
        hive, spark = _words(data_type.item_type, timestamps)
        nullable = f'"valueContainsNull":{str(data_type.item_field.nullable).lower()}'
        json_text = f'{{"type":"map", "keyType":"string","valueType":{spark},{nullable}}}'
        return f"map<string,{hive}>", json_text
    if types.is_struct(data_type):
        words = [_words(f.type, timestamps) for f in data_type]
        inner = (f"{f.name.lower()}:{hive}" for f, (hive, _) in zip(data_type, words, strict=True))
        return f"struct<{','.join(inner)}>", _json_struct(data_type, words)
    if types.is_dictionary(data_type):
        return _words(data_type.value_type)
    for is_it, hive, spark in _HIVE_TYPES:
        if is_it(data_type):
            return hive, f'"{spark}"'
    raise InputError(
        f"a column of type {data_type}", "catalogs have no word for it", "cast or drop the column"
    )


def _json_struct(fields: Iterable[pa.Field], words: Iterable[tuple[str, str]]) -> str:
    """Return Spark's JSON of columns, with the blanks that Hudi's own printer makes."""
    inner = ",".join(
        f'{{"name":{json.dumps(f.name, ensure_ascii=False)},"type":{spark},'
        f'"nullable":{str(f.nullable).lower()},"metadata":{{}}}}'
        for f, (_, spark) in zip(fields, words, strict=True)
    )
    return f'{{"type":"struct","fields":[{inner}]}}'


def extractor_of(facts: TableFacts, settings: SyncSettings) -> str:
    """Return the rule that turns partition paths into values."""
    if settings.extractor is not None or settings.partition_fields is None:
        return settings.extractor or facts.extractor
    count = len(settings.partition_fields)
    if count == len(facts.partition_fields):
        return facts.extractor
    return EXTRACTORS[3] if count > 1 else EXTRACTORS[count]


def partition_values(path: str, keys: int, extractor: str) -> KeyValues:
    """Return the values of a partition from its path, by the rule of one of Hudi's extractors.

    Raises
    ------
    InputError
        If the rule does not fit the path.

    Examples
    --------
    >>> partition_values("2024/03/05", 1, "SinglePartPartitionValueExtractor")
    ('2024-03-05',)
    >>> partition_values("region=eu/day=7", 2, "MultiPartKeysValueExtractor")
    ('eu', '7')
    """
    if extractor == "NonPartitionedExtractor":
        if keys:
            raise _no_fit(path, extractor, "a table without partitions")
        return ()
    if extractor != "MultiPartKeysValueExtractor" and keys != 1:
        raise _no_fit(path, extractor, f"one value, and there are {keys} keys")
    if extractor == "SinglePartPartitionValueExtractor":
        return (path.replace("/", "-"),)
    parts = path.split("/")
    if extractor == "HiveStylePartitionValueExtractor":
        _, is_there, value = path.partition("=")
        if not is_there or "=" in value:
            raise _no_fit(path, extractor, "name=value")
        return (value,)
    texts = [part.partition("=")[2] if "=" in part else part for part in parts]
    if extractor == "MultiPartKeysValueExtractor":
        if len(parts) != keys:
            raise _no_fit(path, extractor, f"{keys} segments, one for each partition field")
        return tuple(texts)
    by_day = extractor.startswith("SlashEncodedDay")
    try:
        year, month, day, *hours = map(int, texts)
        if len(hours) != (not by_day):
            raise ValueError(path)
        at = datetime(year, month, day, hours[0] if hours else 0)
    except ValueError:
        raise _no_fit(path, extractor, "yyyy/mm/dd" if by_day else "yyyy/mm/dd/hh") from None
    return (at.strftime("%Y-%m-%d" if by_day else "%Y-%m-%d-%H"),)


def _no_fit(path: str, extractor: str, shape: str) -> InputError:
    return InputError(
        f"partition path {path!r}",
        f"{extractor} expects {shape}",
        "choose another extractor with hoodie.datasource.hive_sync.partition_extractor_class",
    )
