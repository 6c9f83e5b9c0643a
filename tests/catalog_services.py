"""The services behind catalogs, in memory: their clients' calls, at any of which a caller may die.

``hive.py`` and ``glue.py`` are used as they are. What the real services do otherwise is left to
moto and to a real metastore; here each call takes no time.
"""

# ruff: noqa: N803  (The arguments are those of Glue.)

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from botocore.exceptions import ClientError
from pymetastore.hive_metastore import ttypes

from bucketlake.catalogs.catalog import Catalog, KeyValues
from bucketlake.catalogs.glue import GlueCatalog
from bucketlake.catalogs.hive import HiveMetastore
from bucketlake.model.partition_path import encode_segment
from tests.memory_catalog import KilledError

Name = tuple[str, str]
Told = tuple[str, tuple[tuple[str, str], ...]]
"""What a service has of a partition: its location, names and types of its columns."""

READS = ("get", "batch_get")


class Service:
    """Counts calls; a caller may die before one of them is done, or before it is answered.

    Attributes
    ----------
    changes : list of str
        Calls that change something.
    lives : int or None
        So many calls are answered until the caller dies; None: it lives.
    does_last : bool
        Whether the call in which the caller dies is done.
    """

    def __init__(self) -> None:
        self.databases: set[str] = set()
        self.tables: dict[Name, Any] = {}
        self.partitions: dict[Name, dict[KeyValues, Any]] = {}
        self.changes: list[str] = []
        self.lives: int | None = None
        self.does_last = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        answer = getattr(self, f"_{name}")

        def call(*given: Any, **named: Any) -> Any:
            dies = self.lives == 0
            if dies and not self.does_last:
                raise KilledError
            if self.lives is not None:
                self.lives -= 1
            if not name.startswith(READS):
                self.changes.append(name)
            found = deepcopy(answer(*deepcopy(given), **deepcopy(named)))
            if dies:
                raise KilledError
            return found

        return call

    def opened(self) -> Catalog:
        """Return a catalog that asks the service."""
        raise NotImplementedError

    def told(self, name: Name) -> dict[KeyValues, Told]:
        """Return the partitions of a table."""
        raise NotImplementedError


class Metastore(Service):
    """A Hive Metastore; the methods are those of its thrift service."""

    def opened(self) -> Catalog:
        catalog = HiveMetastore("thrift://memory:9083", batch=3)
        catalog._client = self
        return catalog

    def told(self, name: Name) -> dict[KeyValues, Told]:
        found = {values: each.sd for values, each in self.partitions[name].items()}
        return {
            values: (sd.location, tuple((col.name, col.type) for col in sd.cols))
            for values, sd in found.items()
        }

    def _get_database(self, name: str) -> Any:
        if name not in self.databases:
            raise ttypes.NoSuchObjectException(name)
        return ttypes.Database(name=name)

    def _create_database(self, database: Any) -> None:
        self._check_name(database.name)
        self.databases.add(database.name)

    def _get_table_req(self, request: Any) -> Any:
        return ttypes.GetTableResult(table=self._found((request.dbName, request.tblName)))

    def _create_table(self, table: Any) -> None:
        """Check the name before the database, as releases 2 and 3 do."""
        name = table.dbName, table.tableName
        self._check_name(table.tableName)
        if name in self.tables:
            raise ttypes.AlreadyExistsException(str(name))
        if table.dbName not in self.databases:
            raise ttypes.InvalidObjectException(table.dbName)
        self.tables[name], self.partitions[name] = table, {}

    @staticmethod
    def _check_name(name: str) -> None:
        if not re.fullmatch("[A-Za-z0-9_]+", name):
            raise ttypes.InvalidObjectException(f"{name} is not a valid object name")

    def _alter_table_with_environment_context(
        self, database: str, table: str, altered: Any, context: Any
    ) -> None:
        name = database, table
        held = self._found(name)
        if [key.name for key in altered.partitionKeys] != [key.name for key in held.partitionKeys]:
            raise ttypes.InvalidOperationException("partition keys can not be changed.")
        self.tables[name] = altered
        if context.properties.get("CASCADE") == "true":
            for partition in self.partitions[name].values():
                partition.sd.cols = deepcopy(altered.sd.cols)

    def _drop_table(self, database: str, table: str, deletes_data: bool) -> None:
        assert not deletes_data
        self._found((database, table))
        del self.tables[database, table], self.partitions[database, table]

    def _get_partition_names(self, database: str, table: str, most: int) -> list[str]:
        assert most == -1
        return [*self._by_name((database, table))]

    def _get_partitions_by_names(self, database: str, table: str, names: list[str]) -> list[Any]:
        held = self._by_name((database, table))
        return [held[each] for each in names if each in held]

    def _add_partitions_req(self, request: Any) -> None:
        held = self.partitions[request.dbName, request.tblName]
        assert request.ifNotExists
        for each in request.parts:
            held.setdefault(tuple(each.values), each)

    def _alter_partitions(self, database: str, table: str, altered: list[Any]) -> None:
        held = self.partitions[database, table]
        held.update({tuple(each.values): each for each in altered})

    def _drop_partitions_req(self, request: Any) -> None:
        assert request.ifExists
        assert not request.deleteData
        name = request.dbName, request.tblName
        found = self._by_name(name)
        for each in request.parts.names:
            if each in found:
                del self.partitions[name][tuple(found[each].values)]

    def _found(self, name: Name) -> Any:
        if name not in self.tables:
            raise ttypes.NoSuchObjectException(str(name))
        return self.tables[name]

    def _by_name(self, name: Name) -> dict[str, Any]:
        keys = self._found(name).partitionKeys
        return {
            "/".join(
                f"{k.name}={encode_segment(v)}" for k, v in zip(keys, values, strict=True)
            ): each
            for values, each in self.partitions[name].items()
        }


class Glue(Service):
    """AWS Glue; the methods are those of its client in boto3."""

    PAGE = 2

    def __init__(self) -> None:
        super().__init__()
        self._versions = itertools.count()

    def opened(self) -> Catalog:
        return GlueCatalog("glue", self)

    def told(self, name: Name) -> dict[KeyValues, Told]:
        found = {k: held["StorageDescriptor"] for k, held in self.partitions[name].items()}
        return {
            values: (sd["Location"], tuple((col["Name"], col["Type"]) for col in sd["Columns"]))
            for values, sd in found.items()
        }

    def _get_database(self, Name: str) -> Any:
        if Name not in self.databases:
            raise _refused("EntityNotFoundException")
        return {"Database": {"Name": Name}}

    def _create_database(self, DatabaseInput: Any) -> None:
        self.databases.add(DatabaseInput["Name"])

    def _get_table(self, DatabaseName: str, Name: str) -> Any:
        return {"Table": self._found((DatabaseName, Name))}

    def _create_table(self, DatabaseName: str, TableInput: Any) -> None:
        self._get_database(DatabaseName)
        name = DatabaseName, TableInput["Name"]
        if name in self.tables:
            raise _refused("AlreadyExistsException")
        self.tables[name] = TableInput | {"VersionId": str(next(self._versions))}
        self.partitions[name] = {}

    def _update_table(
        self,
        DatabaseName: str,
        TableInput: Any,
        VersionId: str,
        SkipArchive: bool,
    ) -> None:
        assert SkipArchive
        name = DatabaseName, TableInput["Name"]
        if self._found(name)["VersionId"] != VersionId:
            raise _refused("ConcurrentModificationException")
        self.tables[name] = TableInput | {"VersionId": str(next(self._versions))}

    def _delete_table(self, DatabaseName: str, Name: str) -> None:
        self._found((DatabaseName, Name))
        del self.tables[DatabaseName, Name], self.partitions[DatabaseName, Name]

    def _get_partitions(
        self,
        DatabaseName: str,
        TableName: str,
        MaxResults: int,
        NextToken: str = "0",
        ExcludeColumnSchema: bool = False,
    ) -> Any:
        assert MaxResults <= 1000
        start, found = int(NextToken), [*self.partitions[DatabaseName, TableName].values()]
        more = {"NextToken": str(start + self.PAGE)} if start + self.PAGE < len(found) else {}
        page = deepcopy(found[start : start + self.PAGE])
        for held in page if ExcludeColumnSchema else ():
            del held["StorageDescriptor"]["Columns"]
        return {"Partitions": page, **more}

    def _batch_get_partition(
        self,
        DatabaseName: str,
        TableName: str,
        PartitionsToGet: Any,
    ) -> Any:
        held = self.partitions[DatabaseName, TableName]
        asked = [tuple(each["Values"]) for each in PartitionsToGet]
        return {"Partitions": [held[values] for values in asked if values in held]}

    def _batch_create_partition(
        self,
        DatabaseName: str,
        TableName: str,
        PartitionInputList: Any,
    ) -> Any:
        held, wrong = self.partitions[DatabaseName, TableName], []
        for each in PartitionInputList:
            if tuple(each["Values"]) in held:
                wrong.append(_told(each["Values"], "AlreadyExistsException"))
            held.setdefault(tuple(each["Values"]), each)
        return {"Errors": wrong}

    def _batch_update_partition(
        self,
        DatabaseName: str,
        TableName: str,
        Entries: Any,
    ) -> Any:
        held = self.partitions[DatabaseName, TableName]
        given = {tuple(each["PartitionValueList"]): each["PartitionInput"] for each in Entries}
        assert given.keys() <= held.keys()
        held.update(given)
        return {}

    def _batch_delete_partition(
        self,
        DatabaseName: str,
        TableName: str,
        PartitionsToDelete: Any,
    ) -> Any:
        held, asked = self.partitions[DatabaseName, TableName], PartitionsToDelete
        gone = [each["Values"] for each in asked if held.pop(tuple(each["Values"]), None) is None]
        return {"Errors": [_told(values, "EntityNotFoundException") for values in gone]}

    def _found(self, name: Name) -> Mapping[str, Any]:
        if name not in self.tables:
            raise _refused("EntityNotFoundException")
        held: Mapping[str, Any] = self.tables[name]
        return held


def _refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "by the test"}}, "call")


def _told(values: list[str], code: str) -> dict[str, Any]:
    return {"PartitionValues": values, "ErrorDetail": {"ErrorCode": code}}
