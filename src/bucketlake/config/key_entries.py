"""The entries of ``hoodie.properties`` for record keys and partition paths, as a ``KeySpec``.

A table names its key generator by a type (since table version 8), by a Java class (before), or not
at all; then it is inferred from the fields, as in Hudi. The name of an unsupported generator is
kept, so that the error of a write can name it.
"""

from __future__ import annotations

import re

from bucketlake.config import table_keys as keys
from bucketlake.config.entries import ConfigEntries
from bucketlake.config.table_version import TableVersion
from bucketlake.errors import ConfigError
from bucketlake.model.keys import (
    KeyGenerator,
    KeySpec,
    TimestampPartition,
    inferred_generator,
)

_TIMESTAMP_KIND = "TIMESTAMP"
_CLASS_SUFFIX = "KeyGenerator"
_CLASS_PACKAGE = "org.apache.hudi.keygen"
_AVRO = "_AVRO"
_BY_CLASS = {
    "Simple": KeyGenerator.SIMPLE,
    "Complex": KeyGenerator.COMPLEX,
    "TimestampBased": KeyGenerator.TIMESTAMP,
    "Nonpartitioned": KeyGenerator.NON_PARTITION,
    "Custom": KeyGenerator.CUSTOM,
}
_BY_TYPE = {generator.value: generator for generator in KeyGenerator}


def key_generator_name(entries: ConfigEntries) -> str | None:
    """Return the key generator's type or class in a table's entries; None if there is none."""
    return entries.text(keys.KEY_GENERATOR_TYPE, keys.KEY_GENERATOR_CLASS)


def key_generator_of(name: str) -> KeyGenerator | None:
    """Return the generator of a type or class name; None if bucketlake does not have it.

    Examples
    --------
    >>> key_generator_of("SIMPLE_AVRO")
    <KeyGenerator.SIMPLE: 'SIMPLE'>
    >>> key_generator_of("org.apache.hudi.keygen.ComplexKeyGenerator")
    <KeyGenerator.COMPLEX: 'COMPLEX'>
    """
    by_type = _BY_TYPE.get(name.upper().removesuffix(_AVRO))
    class_name = name.rpartition(".")[2]
    if by_type is not None or not class_name.endswith(_CLASS_SUFFIX):
        return by_type
    return _BY_CLASS.get(class_name.removesuffix(_CLASS_SUFFIX).removesuffix("Avro"))


def key_spec_of(entries: ConfigEntries) -> KeySpec:
    """Read the key settings of a table."""
    record_key_fields = entries.fields(keys.RECORD_KEY_FIELDS)
    partition_fields = entries.fields(keys.PARTITION_FIELDS)
    generator = key_generator_of(key_generator_name(entries) or "")
    if generator is None and any(":" in partition_field for partition_field in partition_fields):
        generator = KeyGenerator.CUSTOM
    generator = generator or inferred_generator(record_key_fields, partition_fields)
    if generator is KeyGenerator.NON_PARTITION:
        partition_fields = ()  # Hudi ignores and does not store them.
    names, kinds = _split_kinds(partition_fields)
    is_custom = generator is KeyGenerator.CUSTOM
    has_timestamp = generator is KeyGenerator.TIMESTAMP or (is_custom and _TIMESTAMP_KIND in kinds)
    return KeySpec(
        record_key_fields=record_key_fields,
        partition_fields=names,
        generator=generator,
        hive_style=entries.boolean(keys.HIVE_STYLE),
        url_encode=entries.boolean(keys.URL_ENCODE),
        timestamp=_timestamp_of(entries) if has_timestamp else None,
        partition_field_kinds=kinds if is_custom and all(kinds) else (),
        stated=tuple(_stated(entries, generator, has_timestamp=has_timestamp).items()),
    )


def render_key_spec(spec: KeySpec, rules: TableVersion) -> dict[str, str]:
    """Return key settings as entries of a table version; the inverse of :func:`key_spec_of`."""
    kinds = spec.partition_field_kinds or ("",) * len(spec.partition_fields)
    with_kinds = zip(spec.partition_fields, kinds, strict=True)
    entries = {
        keys.KEY_GENERATOR_TYPE: spec.generator.value,
        keys.PARTITION_FIELDS: ",".join(
            f"{name}:{kind}" if kind else name for name, kind in with_kinds
        ),
        keys.HIVE_STYLE: str(spec.hive_style).lower(),
        keys.URL_ENCODE: str(spec.url_encode).lower(),
    }
    if spec.record_key_fields:
        entries[keys.RECORD_KEY_FIELDS] = ",".join(spec.record_key_fields)
    stated = dict(spec.stated)
    if spec.timestamp is not None and f"{keys.TIMESTAMP_PREFIX}timestamp.type" not in stated:
        entries |= _render_timestamp(spec.timestamp)
    entries |= stated
    if not rules.has_names_of_hudi_1:
        entries[keys.KEY_GENERATOR_CLASS] = _class_of(entries.pop(keys.KEY_GENERATOR_TYPE))
        entries[keys.PARTITION_FIELDS] = ",".join(spec.partition_fields)
    return entries


def _class_of(generator_type: str) -> str:
    """Return the Java class of a type of key generator."""
    generator = _BY_TYPE[generator_type.removesuffix(_AVRO)]
    name = next(name for name, found in _BY_CLASS.items() if found is generator)
    avro = "Avro" if generator_type.endswith(_AVRO) else ""
    return f"{_CLASS_PACKAGE}.{name}{avro}{_CLASS_SUFFIX}"


def _stated(
    entries: ConfigEntries, generator: KeyGenerator, *, has_timestamp: bool
) -> dict[str, str]:
    """Return the entries that a table stores in the words in which they are given, as in Hudi."""
    stated = {}
    name = key_generator_name(entries)
    if name is not None and key_generator_of(name) is not None:
        is_avro = name.upper().endswith(_AVRO) or name.endswith(f"Avro{_CLASS_SUFFIX}")
        stated[keys.KEY_GENERATOR_TYPE] = generator.value + (_AVRO if is_avro else "")
    names = []
    if generator is KeyGenerator.CUSTOM:
        names.append(keys.PARTITION_FIELDS)
    if has_timestamp:
        names += [f"{keys.TIMESTAMP_PREFIX}{name}" for name in _TIMESTAMP_NAMES]
    texts = {name: entries.text(name) for name in names}
    return stated | {name: text for name, text in texts.items() if text is not None}


def _split_kinds(partition_fields: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split ``field:KIND``, the form of the generator CUSTOM since table version 8."""
    parts = [partition_field.partition(":") for partition_field in partition_fields]
    names = tuple(name.strip() for name, _, _ in parts)
    return names, tuple(kind.strip().upper() for _, _, kind in parts)


def _timestamp_of(entries: ConfigEntries) -> TimestampPartition | None:
    """Return how timestamps become partitions; None if the table does not store it."""
    settings = {name: entries.text(f"{keys.TIMESTAMP_PREFIX}{name}") for name in _TIMESTAMP_NAMES}
    timestamp_type, output_format = settings["timestamp.type"], settings["output.dateformat"]
    if timestamp_type is None or output_format is None:
        return None
    delimiter = settings["input.dateformat.list.delimiter.regex"] or ","
    return TimestampPartition(
        timestamp_type=timestamp_type,
        output_format=output_format,
        scalar_unit=settings["timestamp.scalar.time.unit"] or "SECONDS",
        input_formats=_split_formats(settings["input.dateformat"] or "", delimiter),
        input_timezone=settings["input.timezone"] or settings["timezone"],
        output_timezone=settings["output.timezone"] or settings["timezone"],
    )


def _split_formats(text: str, delimiter: str) -> tuple[str, ...]:
    try:
        parts = re.split(delimiter, text)
    except re.error as error:
        key = f"{keys.TIMESTAMP_PREFIX}input.dateformat.list.delimiter.regex"
        raise ConfigError(key, delimiter, f"it must be a regular expression ({error})") from None
    return tuple(part.strip() for part in parts if part.strip())


_TIMESTAMP_NAMES = (
    "timestamp.type",
    "timestamp.scalar.time.unit",
    "input.dateformat",
    "input.dateformat.list.delimiter.regex",
    "output.dateformat",
    "input.timezone",
    "output.timezone",
    "timezone",
)


def _render_timestamp(timestamp: TimestampPartition) -> dict[str, str]:
    is_default = timestamp.scalar_unit == "SECONDS"
    has_unit = not is_default or timestamp.timestamp_type.upper() in _WITH_UNIT
    used = "".join(timestamp.input_formats)
    delimiter = next((mark for mark in _DELIMITERS if mark not in used), ",")
    settings = {
        "timestamp.type": timestamp.timestamp_type,
        "timestamp.scalar.time.unit": timestamp.scalar_unit if has_unit else "",
        "input.dateformat": delimiter.join(timestamp.input_formats),
        "input.dateformat.list.delimiter.regex": "" if delimiter == "," else delimiter,
        "output.dateformat": timestamp.output_format,
        "input.timezone": timestamp.input_timezone,
        "output.timezone": timestamp.output_timezone,
    }
    return {f"{keys.TIMESTAMP_PREFIX}{name}": text for name, text in settings.items() if text}


_WITH_UNIT = ("SCALAR", "MIXED")
_DELIMITERS = (",", ";", "#", "~")  # Between input formats; a format may contain a comma.
