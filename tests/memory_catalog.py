"""A catalog in memory, whose process may die at any call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from bucketlake.catalogs.catalog import KeyValues, TableEntry


class KilledError(Exception):
    """The process that syncs died."""


@dataclass
class MemoryCatalog:
    """Keeps entries as a metastore does: creating and adding twice, and dropping, do no harm.

    Attributes
    ----------
    dies_before : int or None
        The call at which the process dies; None: it lives.
    names : list of str
        The calls that changed something.
    """

    address: str = "memory"
    batch: int = 2
    calls: int = 0
    dies_before: int | None = None
    databases: set[str] = field(default_factory=set)
    tables: dict[str, TableEntry] = field(default_factory=dict)
    partitions: dict[str, dict[KeyValues, str]] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)

    def close(self) -> None:
        pass

    def has_database(self, name: str) -> bool:
        self._count()
        return name in self.databases

    def create_database(self, entry: TableEntry) -> None:
        self._count("create_database")
        self.databases.add(entry.database)

    def table(self, database: str, name: str) -> TableEntry | None:
        self._count()
        return self.tables.get(f"{database}.{name}")

    def table_names(self, database: str) -> list[str]:
        self._count()
        return [each.name for each in self.tables.values() if each.database == database]

    def create_table(self, entry: TableEntry) -> None:
        self._count("create_table")
        assert entry.database in self.databases
        if entry.title not in self.tables:
            self.tables[entry.title] = replace(entry, stored=entry)
            self.partitions[entry.title] = {}

    def alter_table(self, entry: TableEntry, cascade: bool) -> None:
        self._count("alter_table, cascade" if cascade else "alter_table")
        assert self.tables[entry.title].keys == entry.keys
        self.tables[entry.title] = entry

    def drop_table(self, entry: TableEntry) -> None:
        self._count("drop_table")
        del self.tables[entry.title], self.partitions[entry.title]

    def values(self, entry: TableEntry) -> set[KeyValues]:
        self._count()
        return {*self.partitions[entry.title]}

    def locations(self, entry: TableEntry, values: Sequence[KeyValues]) -> dict[KeyValues, str]:
        self._count()
        assert len(values) <= self.batch
        held = self.partitions[entry.title]
        return {each: held[each] for each in values if each in held}

    def add_partitions(self, entry: TableEntry, locations: Mapping[KeyValues, str]) -> None:
        self._count("add_partitions")
        assert len(locations) <= self.batch
        for values, location in locations.items():
            self.partitions[entry.title].setdefault(values, location)

    def move_partitions(self, entry: TableEntry, locations: Mapping[KeyValues, str]) -> None:
        self._count("move_partitions")
        self.partitions[entry.title].update(locations)

    def drop_partitions(self, entry: TableEntry, values: Sequence[KeyValues]) -> None:
        self._count("drop_partitions")
        for each in values:
            self.partitions[entry.title].pop(each, None)

    def _count(self, name: str = "") -> None:
        if self.dies_before is not None and self.calls >= self.dies_before:
            raise KilledError
        self.calls += 1
        if name:
            self.names.append(name)
