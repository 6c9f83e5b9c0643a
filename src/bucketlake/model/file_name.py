"""Names of data files: the facts in the name of a base file or log file.

Parsing and printing are inverse. Other names parse to ``None``: folders also hold partition
markers, checksums and temporary files.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass
from typing import NewType, Self, TypeAlias

InstantTime = NewType("InstantTime", str)
"""Time of an instant: 17 digits (14 in old tables), compared as text."""

FileId = NewType("FileId", str)
"""Long-lived name of a file group, unique within its partition."""

Group: TypeAlias = tuple[str, FileId]
"""A file group: the path of its partition, and its file id."""

BASE_FILE_EXTENSION = "parquet"

_BASE = re.compile(r"(?P<file_id>[^._][^_.]*)_(?P<token>[^_.]+)_(?P<instant>[0-9]+)\.(?P<ext>\w+)")
_LOG = re.compile(
    r"\.(?P<file_id>[^._]+)_(?P<instant>[^.]*)\.log\.(?P<version>[0-9]{1,10})"
    r"(?:_(?P<token>\d+-\d+-\d+)(?P<suffix>\.cdc)?)?"
)

_WRITER_TOKEN = re.compile(r"(\d{8})-(\d{9})-\d+")


def file_path(partition_path: str, file_name: str) -> str:
    """Return the path of a file in a partition, relative to the table.

    >>> file_path("day=1", "a.parquet"), file_path("", "a.parquet")
    ('day=1/a.parquet', 'a.parquet')
    """
    return f"{partition_path}/{file_name}" if partition_path else file_name


def file_address(root: str, path: str) -> str:
    """Return the address of a file of a table as Hadoop spells it, for plans.

    >>> file_address("/lake/orders", "day=1/f"), file_address("s3://lake/orders/", "f")
    ('file:/lake/orders/day=1/f', 's3://lake/orders/f')
    """
    scheme = "file:" if root.startswith("/") else ""
    return f"{scheme}{root.rstrip('/')}/{path}"


def derived_uuid(*names: str) -> str:
    """Derive a UUID from names, where Hudi draws a random one: every attempt gets the same.

    Examples
    --------
    >>> derived_uuid("20240101120000000", "region=eu", "3")
    '078c1f47-40ff-474c-a2dc-4dbcb6fd150c'
    """
    digest = hashlib.sha256("\0".join(names).encode()).digest()
    return str(uuid.UUID(bytes=digest[:16], version=4))


@dataclass(frozen=True, slots=True)
class BaseFileName:
    """Name of a base file: ``<file id>_<write token>_<instant>.parquet``."""

    file_id: FileId
    write_token: str
    instant: InstantTime
    extension: str = BASE_FILE_EXTENSION

    @classmethod
    def from_file_name(cls, file_name: str) -> Self | None:
        """Parse a name without its folder; None if it is not a base file."""
        match = _BASE.fullmatch(file_name)
        if match is None:
            return None
        return cls(
            FileId(match["file_id"]), match["token"], InstantTime(match["instant"]), match["ext"]
        )

    def to_file_name(self) -> str:
        """Print the name, without a folder."""
        return f"{self.file_id}_{self.write_token}_{self.instant}.{self.extension}"


@dataclass(frozen=True, slots=True)
class LogFileName:
    """Name of a log file: ``.<file id>_<instant>.log.<version>_<write token>``.

    Since table version 8 the instant is the delta commit that wrote the file, before that it is the
    instant of the slice's base file.
    """

    file_id: FileId
    instant: InstantTime
    version: int
    write_token: str | None
    suffix: str = ""

    @classmethod
    def from_file_name(cls, file_name: str) -> Self | None:
        """Parse a name without its folder; None if it is not a log file."""
        match = _LOG.fullmatch(file_name)
        if match is None:
            return None
        return cls(
            FileId(match["file_id"]),
            InstantTime(match["instant"]),
            int(match["version"]),
            match["token"],
            match["suffix"] or "",
        )

    @classmethod
    def in_slice(
        cls,
        file_id: FileId,
        slice_instant: InstantTime,
        version: int,
        writer: InstantTime,
        number: int,
    ) -> Self:
        """Return a name with the instant of the slice, and the writer in the token.

        The token is three integers of fixed width, because Hudi parses tokens and orders them as
        text. ``number`` tells the log files of one write and one file group apart.

        Examples
        --------
        >>> resize, writer = InstantTime("20240101120000000"), InstantTime("20240101120000009")
        >>> copy = LogFileName.in_slice(FileId("a-0"), resize, 1, writer, 2)
        >>> copy.to_file_name(), copy.writer
        ('.a-0_20240101120000000.log.1_20240101-120000009-2', '20240101120000009')
        """
        return cls(file_id, slice_instant, version, f"{writer[:8]}-{writer[8:]}-{number}")

    @property
    def writer(self) -> InstantTime | None:
        """The write in the token of a copy for a resize, or of a name of timeline layout 1.

        None in other names. Hudi may reuse the token of an earlier file in the slice for its own.
        """
        match = _WRITER_TOKEN.fullmatch(self.write_token or "")
        return None if match is None else InstantTime(match[1] + match[2])

    def to_file_name(self) -> str:
        """Print the name, without a folder."""
        token = "" if self.write_token is None else f"_{self.write_token}"
        return f".{self.file_id}_{self.instant}.log.{self.version}{token}{self.suffix}"


def log_instant(path: str) -> InstantTime | None:
    """Return the instant in the name of a log file; None if the path is not that of a log file.

    Examples
    --------
    >>> log_instant("day=1/.a_20240102030405678.log.1_1-0-1")
    '20240102030405678'
    """
    name = LogFileName.from_file_name(path.rpartition("/")[2])
    return None if name is None else name.instant
