"""What a catalog keeps of a table, and the seam that each kind of catalog fits.

Hudi's own sync writes the same values (1.2.0, mode ``hms``); ``docs/spec/catalogs.md`` has what was
measured, and where these differ with intent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

KeyValues = tuple[str, ...]
"""The values of a partition, one for each partition key."""

LAST_COMMIT = "last_commit_time_sync"
LAST_COMPLETION = "last_commit_completion_time_sync"
PARQUET_INPUT = "org.apache.hudi.hadoop.HoodieParquetInputFormat"
OUTPUT_FORMAT = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
DESCRIPTION = "automatically created by hoodie"
_SCHEME = re.compile(r"^(file|s3[an]?):/*")


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """A column as a catalog knows it: name in lower case, Hive's type."""

    name: str
    type: str
    comment: str = ""


@dataclass(frozen=True, slots=True)
class TableEntry:
    """What a catalog has of a table, or is to have.

    Attributes
    ----------
    columns, keys : tuple of CatalogColumn
        Columns of the files without the partition columns; partition columns.
    location : str
        Address of the table's folder.
    parameters, serde : mapping of str to str
        Properties of the table and of its serde.
    stored : object or None
        The catalog's own value, from which an altered one is made; None for a wanted entry.
    """

    database: str
    name: str
    columns: tuple[CatalogColumn, ...]
    keys: tuple[CatalogColumn, ...]
    location: str
    input_format: str
    parameters: Mapping[str, str]
    serde: Mapping[str, str]
    managed: bool = False
    stored: Any = field(default=None, compare=False, repr=False)

    @property
    def title(self) -> str:
        """Database and name."""
        return f"{self.database}.{self.name}"

    @property
    def path(self) -> str:
        """Address of the table's folder, as the writer of the entry spelt it."""
        return self.serde.get("path") or self.location

    @property
    def is_hudi(self) -> bool:
        """Whether it is the entry of a table of Hudi; Spark alone tells it by the provider."""
        is_named = self.parameters.get("spark.sql.sources.provider") == "hudi"
        return is_named or self.input_format.startswith("org.apache.hudi.")

    @property
    def format(self) -> str:
        """What it is, for a person: a format of tables, or a view."""
        return self.parameters.get("table_type") or self.input_format or "a view"

    @property
    def is_read_optimized(self) -> bool:
        """Whether readers of the entry leave log files out; copy-on-write tables have none."""
        return self.input_format == PARQUET_INPUT


class Catalog(Protocol):
    """A catalog of tables: the calls that a sync makes, each for one batch or one table.

    A method raises CatalogError with the next step if the catalog cannot be reached or refuses.
    Names are in lower case. Calls that add or drop what is there, or gone, already do nothing: a
    sync that was killed is repeated.
    """

    address: str
    batch: int
    """So many partitions are added, moved or dropped by one call at most."""
    calls: int
    """So many requests were sent."""

    def close(self) -> None:
        """Give back connections; the next call opens them again."""

    def has_database(self, name: str) -> bool:
        """Whether there is a database."""

    def create_database(self, entry: TableEntry) -> None:
        """Create the database of an entry, with :data:`DESCRIPTION`; no database if it is refused.

        The entry itself is made only if the database came meanwhile. It names no commit.
        """

    def table(self, database: str, name: str) -> TableEntry | None:
        """Return the entry of a table, with ``stored``; None if there is none, or no database."""

    def table_names(self, database: str) -> list[str]:
        """Return the names of all tables of a database that there is."""

    def create_table(self, entry: TableEntry) -> None:
        """Create the entry of a table."""

    def alter_table(self, entry: TableEntry, cascade: bool) -> None:
        """Put an entry in place of the one it was made of; with ``cascade`` in its partitions."""

    def drop_table(self, entry: TableEntry) -> None:
        """Drop the entry of a table and no file."""

    def values(self, entry: TableEntry) -> set[KeyValues]:
        """Return the values of all partitions."""

    def locations(self, entry: TableEntry, values: Sequence[KeyValues]) -> dict[KeyValues, str]:
        """Return the locations of some partitions; those that there are not are left out."""

    def add_partitions(self, entry: TableEntry, locations: Mapping[KeyValues, str]) -> None:
        """Add partitions with the columns and formats of their table."""

    def move_partitions(self, entry: TableEntry, locations: Mapping[KeyValues, str]) -> None:
        """Give partitions other locations."""

    def drop_partitions(self, entry: TableEntry, values: Sequence[KeyValues]) -> None:
        """Drop the entries of partitions and no file."""


def same_place(one: str, other: str) -> bool:
    """Return whether two addresses name one place, in the spellings of Hadoop.

    >>> same_place("file:/lake/t", "file:///lake/t/"), same_place("s3a://b/t", "s3://b/t")
    (True, True)
    >>> same_place("/lake/t", "file:/lake/u")
    False
    """
    return _place(one) == _place(other)


def in_s3(address: str) -> str:
    """Return an address in the spelling of AWS.

    >>> in_s3("s3a://lake/orders")
    's3://lake/orders'
    """
    return re.sub("^s3[an]://", "s3://", address)


def is_inside(place: str, folder: str) -> bool:
    """Return whether an address lies below a folder."""
    return _place(place).startswith(f"{_place(folder)}/")


def _place(address: str) -> str:
    told = _SCHEME.match(address)
    if told is None:
        return address.rstrip("/")
    scheme = "/" if told.group(1) == "file" else "s3://"
    return scheme + address[told.end() :].rstrip("/")


def batches(values: Iterable[Any], size: int) -> list[list[Any]]:
    """Cut values into lists of at most a size.

    >>> batches("abc", 2)
    [['a', 'b'], ['c']]
    """
    listed = list(values)
    return [listed[start : start + size] for start in range(0, len(listed), size)]
