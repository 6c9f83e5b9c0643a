"""The Hive Metastore, by thrift: calls that releases 3 and 4 both answer.

``pymetastore`` has the code that Thrift generates from Hive's IDL
(``docs/decisions/0046-catalogs.md``).
"""

from __future__ import annotations

import getpass
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy, deepcopy
from typing import Any

from bucketlake.catalogs.catalog import (
    DESCRIPTION,
    OUTPUT_FORMAT,
    SERDE,
    CatalogColumn,
    KeyValues,
    TableEntry,
    batches,
)
from bucketlake.errors import CatalogError, ConfigError
from bucketlake.model.partition_path import decode_segment, encode_segment

_DEFAULT_PORT = 9083
_ALL = -1
_DROPS = 100
"""Partitions of one drop: the metastore makes one statement of their names, and Derby takes no
1,000 (as measured with 3.1.3); a hundred at a time take no longer."""
_FIELDS = 100_000
"""Columns of one call, of all its partitions: a metastore takes messages of 100 MB."""
_FIRST_S = 60
"""Seconds until a server must have answered once: one that never does is no metastore."""
_NO_NAME = "is not a valid"
_STEPS = {
    "incompatible": "pass replace=True (--replace) to drop that entry, and no file, for another",
    _NO_NAME: "choose a name of letters, digits and underscores: name= (--name)",
}
_REFUSALS = ("Meta", "InvalidOperation", "InvalidObject", "InvalidInput")
_CORRECT = "correct what it names, and sync again"
_NO_METASTORE = "check the address, and that a metastore without Kerberos or TLS listens there"
_CUT_OFF = "sync again, which completes it; catalog=HiveMetastore(…, timeout=…) waits longer"
_URI = re.compile(r"(?:thrift://)?(?P<host>\[[^\]]+\]|[^:/,]+)(?::(?P<port>\d{1,5}))?/?")


class HiveMetastore:
    """A metastore at one of several addresses; the first that answers is used.

    Parameters
    ----------
    uris : str
        ``thrift://host:port``, several with commas, as in ``hive.metastore.uris``.
    batch : int
        Partitions of one call.
    timeout : float
        Seconds without an answer after which a call fails; by default those of Hive's own clients,
        since one call may change all partitions of a table. An address is given up after 60 s in
        which it never answered.

    Raises
    ------
    ConfigError
        If an address is no address of a metastore, or the package is missing.
    """

    def __init__(self, uris: str, batch: int = 1000, timeout: float = 600.0) -> None:
        self.address, self.batch, self.calls = uris, batch, 0
        self._timeout, self._first_s = timeout, min(timeout, _FIRST_S)
        self._places = places_of(uris)
        self._client: Any = None
        self._transport: Any = None
        self._thrift, self._types = _generated(uris)

    def close(self) -> None:
        """Close the connection; the next call opens another one."""
        if self._transport is not None:
            self._transport.close()
            self._transport = self._client = None

    def has_database(self, name: str) -> bool:
        """Whether there is a database."""
        try:
            self._call("get_database", name)
        except self._types.NoSuchObjectException:
            return False
        return True

    def create_database(self, entry: TableEntry) -> None:
        """Create the database of an entry; the metastore chooses its location in its warehouse.

        The entry is sent before: a metastore tells a name that it does not take before it looks for
        the database, and which names it takes depends on its release and settings.
        """
        types, name = self._types, entry.database
        try:
            self.create_table(entry)
        except (types.NoSuchObjectException, CatalogError) as error:  # There is no database.
            if _NO_NAME in str(error):
                raise
        database = types.Database(name=name, description=DESCRIPTION, parameters={})
        with suppress(types.AlreadyExistsException):
            self._call("create_database", database)

    def table(self, database: str, name: str) -> TableEntry | None:
        """Return the entry of a table; None if there is none."""
        request = self._types.GetTableRequest(dbName=database, tblName=name)
        try:
            held = self._call("get_table_req", request).table
        except self._types.NoSuchObjectException:
            return None
        is_view = (held.tableType or "").endswith("VIEW")
        return TableEntry(
            database,
            name,
            _columns(held.sd.cols),
            _columns(held.partitionKeys or ()),
            held.sd.location or "",
            "" if is_view else held.sd.inputFormat or "",
            dict(held.parameters or {}),
            dict(held.sd.serdeInfo.parameters or {}),
            held.tableType == "MANAGED_TABLE",
            held,
        )

    def table_names(self, database: str) -> list[str]:
        """Return the names of all tables of a database."""
        return list(self._call("get_all_tables", database))

    def create_table(self, entry: TableEntry) -> None:
        """Create an entry; nothing is done if another process was faster."""
        types = self._types
        held = types.Table(
            tableName=entry.name,
            dbName=entry.database,
            owner=getpass.getuser(),
            retention=0,
            lastAccessTime=0,
            sd=types.StorageDescriptor(
                location=entry.location,
                outputFormat=OUTPUT_FORMAT,
                compressed=False,
                numBuckets=0,
                serdeInfo=types.SerDeInfo(serializationLib=SERDE),
                bucketCols=[],
                sortCols=[],
                parameters={},
            ),
            partitionKeys=self._fields(entry.keys),
            tableType="MANAGED_TABLE" if entry.managed else "EXTERNAL_TABLE",
        )
        with suppress(types.AlreadyExistsException):
            self._call("create_table", self._filled(held, entry))

    def alter_table(self, entry: TableEntry, cascade: bool) -> None:
        """Put an entry in place of the stored one; with ``cascade`` its partitions follow."""
        held = self._filled(deepcopy(entry.stored), entry)
        context = self._types.EnvironmentContext({"CASCADE": "true"} if cascade else {})
        name = "alter_table_with_environment_context"
        self._call(name, entry.database, entry.name, held, context)

    def drop_table(self, entry: TableEntry) -> None:
        """Drop the entry of a table and no file."""
        self._call("drop_table", entry.database, entry.name, False)

    def values(self, entry: TableEntry) -> set[KeyValues]:
        """Return the values of all partitions, from their names, which are smaller."""
        names = self._call("get_partition_names", entry.database, entry.name, _ALL)
        return {_values_of_name(name) for name in names}

    def locations(self, entry: TableEntry, values: Sequence[KeyValues]) -> dict[KeyValues, str]:
        """Return the locations of some partitions."""
        return {
            tuple(held.values): held.sd.location
            for some in _bounded(values, entry)
            for held in self._partitions(entry, some)
        }

    def add_partitions(self, entry: TableEntry, locations: Mapping[KeyValues, str]) -> None:
        """Add partitions with the columns and formats of their table."""
        descriptor = self._filled(deepcopy(entry.stored), entry).sd
        for some in _bounded(locations, entry):
            request = self._types.AddPartitionsRequest(
                dbName=entry.database,
                tblName=entry.name,
                parts=[
                    self._types.Partition(
                        values=list(values),
                        dbName=entry.database,
                        tableName=entry.name,
                        sd=_at(descriptor, locations[values]),
                        parameters={},
                    )
                    for values in some
                ],
                ifNotExists=True,
                needResult=False,
            )
            self._call("add_partitions_req", request)

    def move_partitions(self, entry: TableEntry, locations: Mapping[KeyValues, str]) -> None:
        """Give partitions other locations; all else of them stays."""
        for some in _bounded(locations, entry):
            found = self._partitions(entry, some)
            for held in found:
                held.sd = _at(held.sd, locations[tuple(held.values)])
            if found:
                self._call("alter_partitions", entry.database, entry.name, found)

    def drop_partitions(self, entry: TableEntry, values: Sequence[KeyValues]) -> None:
        """Drop the entries of partitions and no file."""
        for some in batches(values, _DROPS):
            request = self._types.DropPartitionsRequest(
                dbName=entry.database,
                tblName=entry.name,
                parts=self._types.RequestPartsSpec(names=_names(entry, some)),
                deleteData=False,
                ifExists=True,
                needResult=False,
            )
            self._call("drop_partitions_req", request)

    def _partitions(self, entry: TableEntry, values: Sequence[KeyValues]) -> list[Any]:
        names = _names(entry, values)
        found: list[Any] = self._call("get_partitions_by_names", entry.database, entry.name, names)
        return found

    def _filled(self, held: Any, entry: TableEntry) -> Any:
        held.sd.cols = self._fields(entry.columns)
        held.sd.inputFormat = entry.input_format
        held.sd.serdeInfo.parameters = dict(entry.serde)
        held.parameters = dict(entry.parameters)
        return held

    def _fields(self, columns: Sequence[CatalogColumn]) -> list[Any]:
        return [self._types.FieldSchema(each.name, each.type, each.comment) for each in columns]

    def _call(self, name: str, *arguments: Any) -> Any:
        self.calls += 1
        types = self._types
        try:
            if self._client is None:
                self._open()
            return getattr(self._client, name)(*arguments)
        except (types.NoSuchObjectException, types.AlreadyExistsException) as error:
            if name in ("get_database", "create_database", "get_table_req", "create_table"):
                raise
            problem = f"{name} found another state than the one just read: {_said(error)}"
            raise CatalogError(self.address, problem, "sync again") from error
        except tuple(getattr(types, f"{each}Exception") for each in _REFUSALS) as error:
            said = _said(error)
            step = next((each for word, each in _STEPS.items() if word in said), _CORRECT)
            raise CatalogError(self.address, f"it refuses {name}: {said}", step) from error
        except (OSError, types.TException) as error:
            first = self._first_s, _NO_METASTORE
            wait, step = (self._timeout, _CUT_OFF) if self._client else first
            self.close()
            is_late = isinstance(getattr(error, "inner", error), TimeoutError)
            said = f"nothing came within {wait:g} s" if is_late else _said(error)
            raise CatalogError(self.address, f"it does not answer {name}: {said}", step) from error

    def _open(self) -> None:
        """Connect to the first address whose server answers a call, which is not counted."""
        (sockets, transports, protocols, client), types = self._thrift, self._types
        for place in self._places:
            socket = sockets.TSocket(*place)
            socket.setTimeout(self._first_s * 1000)
            transport = transports.TBufferedTransport(socket)
            opened = client(protocols.TBinaryProtocolAccelerated(transport, strictRead=True))
            try:
                transport.open()
                with suppress(types.NoSuchObjectException, types.MetaException):
                    opened.get_database("default")
            except (OSError, types.TException):
                transport.close()
                if place == self._places[-1]:
                    raise
            else:
                socket.setTimeout(self._timeout * 1000)
                self._transport, self._client = transport, opened
                return


def _generated(uris: str) -> tuple[tuple[Any, Any, Any, Any], Any]:
    """Return the parts of Thrift and the generated types; a table without a catalog needs none."""
    try:
        from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes
        from thrift.protocol import TBinaryProtocol
        from thrift.transport import TSocket, TTransport
    except ImportError as error:
        allowed = "a metastore needs the package pymetastore: pip install 'bucketlake[hive]'"
        raise ConfigError("catalog", uris, allowed) from error
    # Thrift logs tracebacks of what becomes an error here; handlers of the application get them.
    logging.getLogger("thrift").addHandler(logging.NullHandler())
    return (TSocket, TTransport, TBinaryProtocol, ThriftHiveMetastore.Client), ttypes


def _said(error: Exception) -> str:
    """Return what a metastore says of an error, without places in its code; or the socket."""
    said = str(getattr(error, "message", None) or error)
    if said == "unexpected exception":  # Thrift's own words for an error of the socket.
        said = str(getattr(error, "inner", None) or "it closes the connection")
    return " ".join(said.partition("\n\tat ")[0].split()) or type(error).__name__


def places_of(uris: str) -> list[tuple[str, int]]:
    """Return hosts and ports of addresses; raise ConfigError if one is none of a metastore."""
    return [_place(uri.strip()) for uri in uris.split(",") if uri.strip()]


def _place(uri: str) -> tuple[str, int]:
    found = _URI.fullmatch(uri)
    port = int(found["port"] or _DEFAULT_PORT) if found else 0
    if found is None or not 0 < port < 2**16:
        raise ConfigError("catalog", uri, "it must be thrift://host:port")
    return found["host"].strip("[]"), port


def _columns(fields: Sequence[Any]) -> tuple[CatalogColumn, ...]:
    return tuple(CatalogColumn(each.name, each.type, each.comment or "") for each in fields)


def _at(descriptor: Any, location: str) -> Any:
    found = copy(descriptor)
    found.location = location
    return found


def _bounded(values: Iterable[KeyValues], entry: TableEntry) -> list[list[KeyValues]]:
    """Cut values into lists whose partitions, each with all columns, fit one message.

    >>> wide = (CatalogColumn("c", "string"),) * 60_000
    >>> _bounded([("a",), ("b",)], TableEntry("db", "t", wide, (), "", "", {}, {}))
    [[('a',)], [('b',)]]
    """
    return batches(values, max(1, _FIELDS // max(1, len(entry.columns))))


def _names(entry: TableEntry, values: Sequence[KeyValues]) -> list[str]:
    """Return partitions as the metastore names them; it escapes as Hudi does.

    >>> keys = (CatalogColumn("day", "string"),)
    >>> _names(TableEntry("db", "t", (), keys, "", "", {}, {}), [("a=b",)])
    ['day=a%3Db']
    """
    return [
        "/".join(
            f"{encode_segment(key.name)}={encode_segment(text)}"
            for key, text in zip(entry.keys, each, strict=True)
        )
        for each in values
    ]


def _values_of_name(name: str) -> KeyValues:
    return tuple(decode_segment(part.partition("=")[2]) for part in name.split("/"))
