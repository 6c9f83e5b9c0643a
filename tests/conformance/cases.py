"""A table of an index kind and table type, with its expected rows: a dictionary of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import bucketlake as bl
from bucketlake.index.setting import TableIndex
from bucketlake.model.result import WriteResult
from bucketlake.services.check.findings import Severity
from bucketlake.storage.location import open_storage
from bucketlake.storage.memory import MemoryStorage
from tests.conformance.kinds import Kind
from tests.inside import storage_of

SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("v", pa.int64()), ("at", pa.int64())]
)
FLAG = "_hoodie_is_deleted"
WITH_FLAG = SCHEMA.append(pa.field(FLAG, pa.bool_()))

Row = dict[str, Any]
Rows = dict[tuple[str, str], Row]
"""Rows by partition and id."""


@dataclass(frozen=True)
class Case:
    """An index kind and a table type; each test of the suite runs for several cases."""

    kind: Kind
    table_type: str

    def __str__(self) -> str:
        return f"{self.kind.name}-{self.table_type}"

    @property
    def index(self) -> TableIndex:
        """The index of the kind's tables."""
        return self.kind.index

    @property
    def merges_on_read(self) -> bool:
        """Whether updates go to log files."""
        return self.table_type == "merge_on_read"

    @property
    def record_key(self) -> list[str]:
        """Columns of the record key."""
        return self.kind.record_key("day")

    def make(
        self,
        path: str,
        *,
        schema: pa.Schema = SCHEMA,
        ordering: str | None = "at",
        cdc: str | None = None,
    ) -> Checked:
        """Make an empty table."""
        table = bl.create_table(
            path,
            schema=schema,
            record_key=self.record_key,
            partition_by=["day"],
            ordering=ordering,
            index=self.index,
            table_type=self.table_type,
            cdc=cdc,
            version=self.kind.version,
        )
        return Checked(self, table, ordered=ordering is not None)

    def filled(self, path: str, *, with_base_files: bool = False) -> Checked:
        """Return a table with keys 0 to 11: the first six written twice, the last four later.

        The table is made once for each case, then copied.

        Parameters
        ----------
        path : str
            Path of the table.
        with_base_files : bool
            Whether the first keys are in base files, also where file groups begin with log files.
        """
        if (self, with_base_files) not in _FILLED:
            made = self.make(f"{path}-first")
            made.upsert(rows(range(8)))
            if with_base_files and self.merges_on_read:
                made.table.compact()
            made.upsert([*rows(range(6), 1), *rows(range(8, 12))])
            _FILLED[self, with_base_files] = (objects(made.table), made.rows)
        held, known = _FILLED[self, with_base_files]
        storage = open_storage(path)
        for name, data in held.items():
            storage.put(name, data)
        return Checked(self, bl.open_table(path), rows=dict(known))


_FILLED: dict[tuple[Case, bool], tuple[Mapping[str, bytes], Rows]] = {}


def rows(numbers: Iterable[int], at: int = 0, *, days: str = "ab") -> list[Row]:
    """Return rows with some keys; ``at`` is the ordering value, and ``v`` is computed from it."""
    return [
        {"id": f"k{n}", "day": days[n % len(days)], "v": n + 1000 * at, "at": at} for n in numbers
    ]


def arrow(batch: Iterable[Row], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Return rows as an Arrow table."""
    return pa.Table.from_pylist([*batch], schema)


def objects(table: bl.Table) -> dict[str, bytes]:
    """Return all objects of a table."""
    storage = storage_of(table)
    return {one.path: storage.read(one.path) for one in storage.list("")}


def filled_storage(name: str, held: Mapping[str, bytes]) -> MemoryStorage:
    """Put objects into a new storage in memory."""
    storage = MemoryStorage(name)
    for path, data in held.items():
        storage.put(path, data)
    return storage


@dataclass
class Checked:
    """A table and its expected rows.

    Each write changes both: the table, and the dictionary of rows.
    """

    case: Case
    table: bl.Table
    rows: Rows = field(default_factory=dict)
    ordered: bool = True

    def upsert(
        self, batch: list[Row], write: Callable[[bl.Table, Any], WriteResult] = bl.Table.upsert
    ) -> WriteResult:
        """Upsert rows; ``write`` may be another function that upserts."""
        schema = WITH_FLAG if any(FLAG in row for row in batch) else SCHEMA
        result = write(self.table, arrow(batch, schema))
        self.expect_upserted(batch)
        return result

    def expect_upserted(self, batch: list[Row]) -> None:
        """Change the expected rows as an upsert of these rows does."""
        for row in batch:
            held_at = self.key_held(row)
            held = self.rows.get(held_at)
            if held is not None and self.ordered and row["at"] < held["at"]:
                continue
            self.rows.pop(held_at, None)
            if not row.get(FLAG):
                self.rows[row["day"], row["id"]] = {name: row[name] for name in SCHEMA.names}

    def key_held(self, row: Row) -> tuple[str, str]:
        """Return under which key of the dictionary the row with a record key is, if it is there."""
        if self.case.kind.keys_are_global:
            found = [key for key in self.rows if key[1] == row["id"]]
            assert len(found) <= 1, found
            if found:
                return found[0]
        return row["day"], row["id"]

    def delete(self, batch: list[Row]) -> WriteResult:
        """Delete the keys of rows."""
        result = self.table.delete(arrow(batch).select(["id", "day"]))
        for row in batch:
            self.rows.pop(self.key_held(row), None)
        return result

    def overwrite(self, batch: list[Row], *, whole_table: bool = False) -> WriteResult:
        """Replace the partitions of rows, or the whole table."""
        result = self.table.insert_overwrite(arrow(batch), whole_table=whole_table)
        touched = {row["day"] for row in batch}
        self.rows = {
            key: row for key, row in self.rows.items() if not whole_table and key[0] not in touched
        }
        self.expect_upserted(batch)
        return result

    def drop(self, *partitions: str) -> WriteResult:
        """Delete whole partitions."""
        result = self.table.delete_partitions(partitions)
        self.rows = {key: row for key, row in self.rows.items() if key[0] not in partitions}
        return result

    def key_of(self, row: Row) -> Mapping[str, Any]:
        """Return the values of a row's record key."""
        return {name: row[name] for name in self.case.record_key}

    def check_rows(self) -> None:
        """Read the table and check that it has the expected rows, each once."""
        found, expected = rows_of(self.table.to_arrow()), in_order(self.rows.values())
        assert found == expected, f"read {found}, expected {expected}"

    def check(self) -> None:
        """Read the table, locate some rows by their keys, and run the doctor.

        Findings of severity ``NOTE`` are allowed: a rejected write leaves its markers for five
        minutes.
        """
        self.check_rows()
        live = self._live()
        for row in in_order(self.rows.values())[:: max(1, len(self.rows) // 2)]:
            self._locate(row, live)
        findings = self.table.doctor(check_keys=True, min_age_seconds=0)
        wrong = [one for one in findings if one.severity is not Severity.NOTE]
        assert not wrong, f"the doctor finds {wrong}"

    def check_entries(self) -> None:
        """Check that the record-level index names the file group of each row, and no other keys."""
        meta = ("_hoodie_partition_path", "_hoodie_record_key", "_hoodie_file_name")
        found = self.table.to_arrow(columns=meta)
        stored = {(path, key, name.partition("_")[0]) for path, key, name in _tuples(found, meta)}
        entries: set[tuple[str, ...]] = set()
        for path in {path for path, _ in self.rows}:
            located = self.table.record_locations(path)
            entries.update(_tuples(located, ("partition_path", "record_key", "file_id")))
        assert entries == stored

    def check_next_write_finds_all(self) -> None:
        """Write all rows again; check that every key is found, and that no key is stored twice."""
        held = in_order(self.rows.values())
        result = self.upsert(held)
        if not self.case.merges_on_read:  # A writer of log files does not read what is stored.
            assert (result.updated, result.inserted) == (len(held), 0), result
        self.check_rows()

    def locate(self, row: Row) -> tuple[str, int | None]:
        """Check that a key is in exactly one live file group; return its partition and bucket."""
        return self._locate(row, self._live())

    def _live(self) -> dict[tuple[str, str], int | None]:
        """Return the buckets of the live file groups, by partition and file id."""
        return {(b.partition_path, b.file_id): b.bucket_id for b in self.table.buckets()}

    def _locate(
        self, row: Row, live: Mapping[tuple[str, str], int | None]
    ) -> tuple[str, int | None]:
        [found] = self.table.locate(self.key_of(row), row["day"])
        assert found.partition_path == row["day"]
        assert live[found.partition_path, found.file_id] == found.bucket_id
        return found.partition_path, found.bucket_id


def _tuples(found: pa.Table, names: Iterable[str]) -> Iterable[tuple[str, ...]]:
    return zip(*(found[name].to_pylist() for name in names), strict=True)


def in_order(found: Iterable[Row]) -> list[Row]:
    """Return rows sorted by partition and id, with only the columns of the schema."""
    plain = [{name: row[name] for name in SCHEMA.names} for row in found]
    return sorted(plain, key=lambda row: (row["day"], row["id"]))


def rows_of(found: pa.Table) -> list[Row]:
    """Return the sorted rows of a table; check that no key occurs twice."""
    plain = in_order(found.to_pylist())
    assert len({(row["day"], row["id"]) for row in plain}) == len(plain), "a key is there twice"
    return plain
