"""The options of the data source: texts by name, as Spark hands them over.

Spark turns the names into small letters. They are the arguments of ``Table.read``, those of a
stream, and storage options with a prefix.

Spark 4.3 hands a Python data source the options of a table of its catalog only when the table is
created, so then they are stored in the schema, which Spark keeps.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bucketlake.errors import ConfigError
from bucketlake.model.names import one_of
from bucketlake.read.request import ReadRequest
from bucketlake.storage.store_options import HIDDEN

PREFIX = "storage."
"""Begins the name of each storage option."""

STORED = "bucketlake.options"
"""Key of the options in the metadata of the first column, in a table of Spark's catalog."""

_TIMES = ("as_of", "since", "until")
_OF_STREAMS = ("start", "max_commits", "max_bytes")
_FLAGS_OF_READS = ("read_optimized", "changes")
_KNOWN = ("path", "where", "columns", *_TIMES, *_FLAGS_OF_READS, *_OF_STREAMS, f"{PREFIX}*")

_OF_CATALOG = "provider"  # Spark adds it, and others, when a table of its catalog is created.
_IN_CATALOG = "option."
_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one load.

    Attributes
    ----------
    path : str
        Folder of the table.
    given : mapping of str to str
        The other options, without storage options.
    storage_options : mapping of str to str
        The storage options, without the prefix.
    """

    path: str
    given: Mapping[str, str]
    storage_options: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """Check the names of options.

        Raises
        ------
        ConfigError
            If there is no path or several, or an option is unknown.
        """
        if "paths" in options:
            raise ConfigError("paths", options["paths"], "give one path: a table is one folder")
        if not options.get("path"):
            raise ConfigError(
                "path",
                options.get("path"),
                "give the folder of the table: load(path) in Python, OPTIONS (path '...') in SQL, "
                "where CREATE TABLE takes no columns",
            )
        storage = {
            name[len(PREFIX) :]: text
            for name, text in options.items()
            if name.lower().startswith(PREFIX)
        }
        given = {n: text for n, text in options.items() if not n.lower().startswith(PREFIX)}
        unknown = sorted(given.keys() - {*_KNOWN})
        if unknown:  # The value may be a secret with a misspelled name.
            raise ConfigError(unknown[0], HIDDEN, one_of(unknown[0], _KNOWN))
        return cls(given.pop("path"), given, storage)

    def request(self) -> ReadRequest:
        """Return the request of a read.

        Raises
        ------
        ConfigError
            If an option of streams is given, or a value cannot be used.
        """
        self._refuse(_OF_STREAMS, "it belongs to a stream: spark.readStream")
        if self.of_changes:
            self._refuse(("as_of", "read_optimized"), "changes are read with since and until")
        times = {name: self.given.get(name) for name in _TIMES}
        flag = self._flag("read_optimized")
        return ReadRequest(self.given.get("where"), self.columns, **times, read_optimized=flag)

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The columns to return; None for all."""
        text = self.given.get("columns")
        return None if text is None else tuple(name.strip() for name in text.split(","))

    def stream_request(self) -> ReadRequest:
        """Return the request of each batch of a stream, still without times.

        Raises
        ------
        ConfigError
            If an option is given that a stream does not have.
        """
        self._refuse(_TIMES, "a stream begins at its option start, and has no end")
        self._refuse(("read_optimized",), "a stream would miss the rows of log files")
        return ReadRequest(self.given.get("where"), self.columns)

    @property
    def of_changes(self) -> bool:
        """Whether changes are read, with the rows before and after, in place of rows."""
        return self._flag("changes")

    @property
    def is_of_stream(self) -> bool:
        """Whether an option is given that only streams have."""
        return not self.given.keys().isdisjoint(_OF_STREAMS)

    @property
    def start(self) -> str | None:
        """Where a stream begins."""
        return self.given.get("start")

    @property
    def max_commits(self) -> int | None:
        """The most commits of a batch of a stream; None for no limit."""
        return self._limit("max_commits")

    @property
    def max_bytes(self) -> int | None:
        """The most bytes that the commits of a batch of a stream wrote; None for no limit."""
        return self._limit("max_bytes")

    def _limit(self, name: str) -> int | None:
        text = self.given.get(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdecimal() and int(text)):
            raise ConfigError(name, text, "give an integer of at least 1")
        return int(text)

    def _flag(self, name: str) -> bool:
        text = self.given.get(name, "false")
        if text.lower() not in _FLAGS:
            raise ConfigError(name, text, "give true or false")
        return _FLAGS[text.lower()]

    def _refuse(self, names: Iterable[str], reason: str) -> None:
        for name in names:
            if name in self.given:
                raise ConfigError(name, self.given[name], reason)


def in_catalog(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options with which a table of Spark's catalog is created; None otherwise.

    Raises
    ------
    ConfigError
        If there is a storage option, because anyone who sees the table could read it.
    """
    if _OF_CATALOG not in options:
        return None
    given = {n[len(_IN_CATALOG) :]: t for n, t in options.items() if n.startswith(_IN_CATALOG)}
    if "path" in options:
        given["path"] = options["path"]
    for name in given:
        if name.lower().startswith(PREFIX):
            raise ConfigError(
                name,
                HIDDEN,
                "a table of Spark's catalog shows its options; set the variables of the object "
                "store in the environment, or CREATE TEMPORARY VIEW ... USING bucketlake",
            )
    return given


def stored_options(schema: Any) -> dict[str, str]:
    """Return the options that the schema of a table of Spark's catalog has; none otherwise."""
    texts = (field.metadata.get(STORED) for field in schema.fields)
    found = next((text for text in texts if text is not None), None)
    return {} if found is None else dict(json.loads(found))


def all_options(options: Mapping[str, str], schema: Any) -> dict[str, str]:
    """Return the options of a read: those of the load, or those of a table of Spark's catalog.

    Raises
    ------
    ConfigError
        If a table of the catalog is read with options of its own.
    """
    stored = stored_options(schema)
    if stored and options:
        name = next(iter(options))
        raise ConfigError(
            name,
            HIDDEN,
            "Spark mixes up the options of several reads of one table of its catalog; create a "
            "table or a view with this option",
        )
    return stored or dict(options)
