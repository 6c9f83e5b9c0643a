"""A REST catalog that takes generic tables, such as Apache Polaris, as a catalog of bucketlake.

    polaris = GenericTables("http://polaris:8181/api/catalog", "lake", token)
    bl.sync(table, polaris, "sales.orders")
    bl.open_table("sales.orders", catalog=polaris)

A generic table has a format, a location and properties, and no partitions; readers find those in
the table. The interface has no update, so a changed entry is dropped and made again: for a moment
the name is not there. The paths and fields are those of Polaris 1.x; it was tried with a server
that speaks them in the tests, not with Polaris itself.
"""

# ruff: noqa: D102, ARG002  (The methods are those of ``bucketlake.catalogs.catalog.Catalog``.)

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import bucketlake as bl
from bucketlake.catalogs.catalog import CatalogColumn, KeyValues, TableEntry

FIELDS = "bucketlake.entry"  # The property that has what properties alone do not tell.


class GenericTables:
    """Entries of tables in a REST catalog; see the methods of bucketlake's ``Catalog``."""

    def __init__(self, url: str, prefix: str, token: str, timeout: float = 30.0) -> None:
        self.address, self.batch, self.calls = url.rstrip("/"), 1000, 0
        self._prefix, self._token, self._timeout = prefix, token, timeout

    def close(self) -> None:
        pass

    def has_database(self, name: str) -> bool:
        return self._ask("GET", f"v1/{self._prefix}/namespaces/{quote(name)}") is not None

    def create_database(self, entry: TableEntry) -> None:
        self._ask("POST", f"v1/{self._prefix}/namespaces", {"namespace": [entry.database]})

    def table(self, database: str, name: str) -> TableEntry | None:
        found = self._ask("GET", self._tables(database, name))
        return None if found is None else _entry(database, found["table"])

    def table_names(self, database: str) -> list[str]:
        names, page = [], ""
        while True:
            found = self._ask("GET", f"{self._tables(database)}?pageToken={quote(page)}") or {}
            names += [each["name"] for each in found.get("identifiers", ())]
            page = found.get("next-page-token") or ""
            if not page:
                return names

    def create_table(self, entry: TableEntry) -> None:
        columns = [[each.name, each.type, each.comment] for each in entry.columns]
        keys = [[each.name, each.type, each.comment] for each in entry.keys]
        fields = {"columns": columns, "keys": keys, "serde": dict(entry.serde)}
        fields["input_format"] = entry.input_format
        body = {
            "name": entry.name,
            "format": "hudi",
            "base-location": entry.location,
            "properties": {**entry.parameters, FIELDS: json.dumps(fields)},
        }
        self._ask("POST", self._tables(entry.database), body)

    def alter_table(self, entry: TableEntry, cascade: bool) -> None:
        self.drop_table(entry)
        self.create_table(entry)

    def drop_table(self, entry: TableEntry) -> None:
        self._ask("DELETE", self._tables(entry.database, entry.name))

    # Partitions are in the table alone.

    def values(self, entry: TableEntry) -> set[KeyValues]:
        return set()

    def locations(self, entry: TableEntry, values: Sequence[KeyValues]) -> dict[KeyValues, str]:
        return {}

    def add_partitions(self, entry: TableEntry, locations: Mapping[KeyValues, str]) -> None:
        pass

    def move_partitions(self, entry: TableEntry, locations: Mapping[KeyValues, str]) -> None:
        pass

    def drop_partitions(self, entry: TableEntry, values: Sequence[KeyValues]) -> None:
        pass

    def _tables(self, database: str, name: str = "") -> str:
        folder = f"polaris/v1/{self._prefix}/namespaces/{quote(database)}/generic-tables"
        return f"{folder}/{quote(name)}" if name else folder

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        """Send a request; return the answer, and None if there is nothing at the path."""
        self.calls += 1
        request = Request(
            f"{self.address}/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/json",
            },
            method=method,
        )
        try:
            with urlopen(request, timeout=self._timeout) as answer:
                return json.loads(answer.read() or b"{}")
        except HTTPError as error:
            if error.code == 404 and method != "POST":
                return None
            if error.code == 409 and method == "POST":  # It is there: a killed sync goes on.
                return {}
            said = error.read().decode(errors="replace")[:300]
            raise bl.CatalogError(
                self.address, f"{error.code}: {said}", "check the token"
            ) from None
        except (OSError, HTTPException, ValueError) as error:  # Also a silent server, or no JSON.
            problem = f"no answer that can be read within {self._timeout:g} s: {error}"
            way_on = "check the address, and that a catalog runs there"
            raise bl.CatalogError(self.address, problem, way_on) from None


def _entry(database: str, table: Mapping[str, Any]) -> TableEntry:
    properties = dict(table["properties"])
    fields = json.loads(properties.pop(FIELDS, "{}"))
    return TableEntry(
        database,
        table["name"],
        tuple(CatalogColumn(*each) for each in fields.get("columns", ())),
        tuple(CatalogColumn(*each) for each in fields.get("keys", ())),
        table.get("base-location", ""),
        fields.get("input_format", ""),
        properties,
        fields.get("serde", {}),
        stored=table,
    )
