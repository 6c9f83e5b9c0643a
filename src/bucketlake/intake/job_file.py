"""The settings of an ingest in a file: TOML, or the properties of a job of Hudi's Streamer."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bucketlake.errors import ConfigError, InputError
from bucketlake.format.properties import parse_properties
from bucketlake.intake.ingesting import KNOWN_OPTIONS
from bucketlake.model.names import one_of
from bucketlake.write.input_files.files import files

_PLACES = ("table", "tables", "kafka", "files", "storage_options")


@dataclass(frozen=True)
class JobFile:
    """What a file says of an ingest; the arguments of ``ingest``.

    Attributes
    ----------
    source : InputFiles, mapping of str to str, or None
        The source; None if the file names none.
    table : str, mapping of str to str, or None
        The tables.
    options : mapping of str to object
        Further arguments.
    unused : tuple of str
        Names in the file that have no meaning here.
    """

    source: Any = None
    table: str | Mapping[str, str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    unused: tuple[str, ...] = ()


def read_toml(path: str) -> JobFile:
    """Read the settings of an ingest from TOML.

    ``table`` is a path, or ``[tables]`` has paths by topic. ``[kafka]`` has options of Spark's
    Kafka source, or ``[files]`` the arguments of :func:`files`. All else are options of ``ingest``.

    Raises
    ------
    InputError
        If the file is no TOML.
    ConfigError
        If a name in it is unknown.
    """
    try:
        held = tomllib.loads(_read(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(path, f"it is no TOML: {error}", "correct the file") from error
    known = {*_PLACES, *KNOWN_OPTIONS}
    for name in held:
        if name not in known:
            raise ConfigError(name, held[name], f"it is unknown in {path}; {one_of(name, known)}")
    if "kafka" in held and "files" in held:
        raise ConfigError("kafka", path, "give either [kafka] or [files]")
    source = held.get("kafka")
    if "files" in held:
        given = held["files"]
        if not isinstance(given, dict) or "paths" not in given:
            raise ConfigError("files", given, "give a section [files] with paths = [...]")
        try:
            source = files(**{"folder_columns": True, **given})
        except TypeError as error:
            raise ConfigError("files", given, f"give the arguments of files(): {error}") from error
    elif source is not None:
        if not isinstance(source, dict):
            raise ConfigError("kafka", source, "give a section [kafka] with options of the source")
        source = {name: _text(value) for name, value in source.items()}
    options = {k: v for k, v in held.items() if k in KNOWN_OPTIONS or k == "storage_options"}
    return JobFile(source, held.get("tables", held.get("table")), options)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(path, f"it cannot be read: {error.strerror}", "check the path") from error


# ---- Hudi's Streamer -----------------------------------------------------------------------------


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _is_true(text: str) -> bool:
    return text.strip().lower() == "true"


_MEANINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "hoodie.datasource.write.recordkey.field": ("record_key", _names),
    "hoodie.datasource.write.partitionpath.field": ("partition_by", _names),
    "hoodie.datasource.write.precombine.field": ("ordering", _names),
    "hoodie.table.ordering.fields": ("ordering", _names),
    "hoodie.table.precombine.field": ("ordering", _names),
    "hoodie.datasource.write.hive_style_partitioning": ("hive_style", _is_true),
    "hoodie.datasource.write.partitionpath.urlencode": ("url_encode", _is_true),
    "hoodie.datasource.write.table.type": ("table_type", str.lower),
    "hoodie.streamer.kafka.source.maxEvents": ("max_rows", int),
    "hoodie.streamer.source.dfs.root": ("files", str),
    "hoodie.streamer.source.kafka.topic": ("subscribe", str),
    "auto.offset.reset": ("startingOffsets", str),
    "hoodie.base.path": ("table", str),
}
_CLIENT = ("bootstrap.servers", "security.", "sasl.", "ssl.", "client.", "fetch.", "request.")
"""What names of a Kafka client's own properties begin with."""


def read_streamer_properties(path: str) -> JobFile:
    """Read the properties of a job of Hudi's Streamer, as far as they have a meaning here.

    Raises
    ------
    InputError
        If the file cannot be read, or a value is none of its property.
    """
    options: dict[str, Any] = {}
    kafka: dict[str, str] = {}
    unused: list[str] = []
    for name, text in parse_properties(_read(path)).items():
        newer = name.replace("hoodie.deltastreamer.", "hoodie.streamer.")
        if newer.startswith(_CLIENT):
            kafka[f"kafka.{newer}"] = text
        elif newer in _MEANINGS:
            option, parse = _MEANINGS[newer]
            try:
                value = parse(text.strip())
            except ValueError as error:
                raise InputError(f"{path}, {name}", str(error), "correct the value") from error
            (kafka if option in ("subscribe", "startingOffsets") else options)[option] = value
        else:
            unused.append(name)
    table, folder = options.pop("table", None), options.pop("files", None)
    source: Any = kafka if "subscribe" in kafka else None
    if source is None and folder is not None:
        source = files(folder, folder_columns=True)
    if "partition_by" in options and not options["partition_by"]:
        del options["partition_by"]
    return JobFile(source, table, options, tuple(sorted(unused)))
