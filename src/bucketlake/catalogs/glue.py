"""AWS Glue's data catalog, by boto3, within the bounds of its calls."""

from __future__ import annotations

import getpass
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bucketlake.catalogs.catalog import (
    DESCRIPTION,
    OUTPUT_FORMAT,
    SERDE,
    CatalogColumn,
    KeyValues,
    TableEntry,
    batches,
    in_s3,
)
from bucketlake.errors import CatalogError, ConfigError

_CREATES, _DELETES, _GETS = 100, 25, 1000
"""Partitions of one call: BatchCreatePartition and BatchUpdatePartition; BatchDeletePartition;
BatchGetPartition and a page of GetPartitions (AWS Glue Web API reference)."""
_TRANSIENT = ("ThrottlingException", "InternalServiceException", "OperationTimeoutException")
_ATTEMPTS = 4
"""So often is a part of a batch sent that Glue passes over for a while; boto3 repeats whole calls
alone."""
_WAIT_S = 0.25
_CORRECT = "correct what it names, and sync again"
_LATER = (
    "sync again later, which goes on; AWS_RETRY_MODE and AWS_MAX_ATTEMPTS let boto3 wait longer"
)
_AGAIN = "another process changed it: sync again"
_EXPIRED = ("ExpiredTokenException", "ExpiredToken", "UnrecognizedClientException")
_RENEW = "renew the credentials, and sync again"
_STEPS = {
    **dict.fromkeys(("ConcurrentModificationException", "EntityNotFoundException"), _AGAIN),
    **dict.fromkeys(_EXPIRED, _RENEW),
    "AccessDeniedException": "allow the call for these credentials",
    "ResourceNumberLimitExceededException": "ask AWS for a higher quota, and sync again",
    **dict.fromkeys(_TRANSIENT, _LATER),
}
_ADDRESS = re.compile(r"glue(?:://(?P<region>[a-z0-9-]*))?/?")
_OF_TABLE = (
    *("Name", "Description", "Owner", "LastAccessTime", "LastAnalyzedTime", "Retention"),
    *("StorageDescriptor", "PartitionKeys", "ViewOriginalText", "ViewExpandedText"),
    *("TableType", "Parameters", "TargetTable"),
)
_OF_PARTITION = (
    "Values",
    "LastAccessTime",
    "StorageDescriptor",
    "Parameters",
    "LastAnalyzedTime",
)
"""Fields of an answer that an update takes again."""


class GlueCatalog:
    """The data catalog of an account; credentials, region and end point as boto3 finds them.

    Parameters
    ----------
    address : str
        ``glue`` or ``glue://region``.
    client : object, optional
        A client of boto3 to use.

    Raises
    ------
    ConfigError
        If the address is none of Glue, or boto3 is missing.
    """

    batch = _CREATES

    def __init__(self, address: str = "glue", client: Any = None) -> None:
        self.address, self.calls = address, 0
        self._region = region_of(address)
        self._client = client

    def close(self) -> None:
        """Nothing is open between calls."""

    def has_database(self, name: str) -> bool:
        """Whether there is a database."""
        return self._call("get_database", {"EntityNotFoundException"}, Name=name) is not None

    def create_database(self, entry: TableEntry) -> None:
        """Create the database of an entry; nothing is done if another process was faster."""
        given = {"Name": entry.database, "Description": DESCRIPTION}
        self._call("create_database", {"AlreadyExistsException"}, DatabaseInput=given)

    def table(self, database: str, name: str) -> TableEntry | None:
        """Return the entry of a table; None if there is none."""
        missing = {"EntityNotFoundException"}
        answer = self._call("get_table", missing, DatabaseName=database, Name=name)
        if answer is None:
            return None
        held = answer["Table"]
        descriptor = held.get("StorageDescriptor", {})
        return TableEntry(
            database,
            name,
            _columns(descriptor.get("Columns", ())),
            _columns(held.get("PartitionKeys", ())),
            descriptor.get("Location", ""),
            descriptor.get("InputFormat", ""),
            dict(held.get("Parameters", {})),
            dict(descriptor.get("SerdeInfo", {}).get("Parameters", {})),
            held.get("TableType") == "MANAGED_TABLE",
            held,
        )

    def table_names(self, database: str) -> list[str]:
        """Return the names of all tables of a database, page by page."""
        found = self._pages("get_tables", "TableList", DatabaseName=database)
        return [held["Name"] for held in found]

    def create_table(self, entry: TableEntry) -> None:
        """Create an entry; nothing is done if another process was faster."""
        held = {
            "Name": entry.name,
            "Owner": getpass.getuser(),
            "Retention": 0,
            "StorageDescriptor": {
                "Location": in_s3(entry.location),
                "OutputFormat": OUTPUT_FORMAT,
                "Compressed": False,
                "NumberOfBuckets": 0,
                "SerdeInfo": {"SerializationLibrary": SERDE},
                "BucketColumns": [],
                "SortColumns": [],
            },
            "PartitionKeys": _fields(entry.keys),
            "TableType": "EXTERNAL_TABLE",
        }
        given = _filled(held, entry)
        given["Parameters"].setdefault("hudi.metadata-listing-enabled", "FALSE")
        told = {"DatabaseName": entry.database, "TableInput": given}
        self._call("create_table", {"AlreadyExistsException"}, **told)

    def alter_table(self, entry: TableEntry, cascade: bool) -> None:
        """Put an entry in place of the stored one, unless it was changed since it was read.

        Glue has no cascade: with it, the columns of all partitions are put, too. The table's are
        last, so that another sync puts all again if this one dies between.
        """
        if cascade and entry.keys:
            columns = {"Columns": _fields(entry.columns)}
            self._put(entry, self._all(entry), lambda held: held | columns)
        given = {key: entry.stored[key] for key in _OF_TABLE if key in entry.stored}
        told: dict[str, Any] = {"SkipArchive": True, "DatabaseName": entry.database}
        if entry.stored.get("VersionId"):
            told["VersionId"] = entry.stored["VersionId"]
        self._call("update_table", set(), TableInput=_filled(given, entry), **told)

    def drop_table(self, entry: TableEntry) -> None:
        """Drop the entry of a table with its partitions, and no file."""
        missing = {"EntityNotFoundException"}
        self._call("delete_table", missing, DatabaseName=entry.database, Name=entry.name)

    def values(self, entry: TableEntry) -> set[KeyValues]:
        """Return the values of all partitions, page by page."""
        return {tuple(held["Values"]) for held in self._all(entry, ExcludeColumnSchema=True)}

    def locations(self, entry: TableEntry, values: Sequence[KeyValues]) -> dict[KeyValues, str]:
        """Return the locations of some partitions."""
        found = self._some(entry, values)
        return {tuple(held["Values"]): held["StorageDescriptor"]["Location"] for held in found}

    def add_partitions(self, entry: TableEntry, locations: Mapping[KeyValues, str]) -> None:
        """Add partitions with the columns and formats of their table."""
        descriptor = _filled(dict(entry.stored), entry)["StorageDescriptor"]
        for some in batches(locations.items(), _CREATES):
            given = [
                {
                    "Values": list(values),
                    "StorageDescriptor": descriptor | {"Location": in_s3(location)},
                    "Parameters": {},
                }
                for values, location in some
            ]
            self._batch("batch_create_partition", entry, "AlreadyExistsException", given)

    def move_partitions(self, entry: TableEntry, locations: Mapping[KeyValues, str]) -> None:
        """Give partitions other locations; all else of them stays."""
        found = self._some(entry, list(locations))
        for held in found:
            place = {"Location": in_s3(locations[tuple(held["Values"])])}
            held["StorageDescriptor"] = held["StorageDescriptor"] | place
        self._put(entry, found, lambda held: held)

    def drop_partitions(self, entry: TableEntry, values: Sequence[KeyValues]) -> None:
        """Drop the entries of partitions and no file."""
        for some in batches(values, _DELETES):
            given = [{"Values": list(each)} for each in some]
            missing = "EntityNotFoundException"
            self._batch("batch_delete_partition", entry, missing, given, "PartitionsToDelete")

    def _all(self, entry: TableEntry, **more: bool) -> Iterable[dict[str, Any]]:
        told = {"DatabaseName": entry.database, "TableName": entry.name, "MaxResults": _GETS}
        return self._pages("get_partitions", "Partitions", **told, **more)

    def _pages(self, name: str, key: str, **told: object) -> Iterator[dict[str, Any]]:
        token: dict[str, str] = {}
        while True:
            answer = self._call(name, set(), **told, **token)
            yield from answer[key]
            if not answer.get("NextToken"):
                return
            token = {"NextToken": answer["NextToken"]}

    def _some(self, entry: TableEntry, values: Sequence[KeyValues]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        asked = [{"Values": list(each)} for each in values]
        while asked:
            answer = self._call(
                "batch_get_partition",
                set(),
                DatabaseName=entry.database,
                TableName=entry.name,
                PartitionsToGet=asked[:_GETS],
            )
            found += answer.get("Partitions", ())
            left = answer.get("UnprocessedKeys", ())
            if len(left) >= len(asked[:_GETS]):
                problem = f"it answers batch_get_partition for none of {len(left)} partitions"
                raise CatalogError(self.address, problem, _LATER)
            asked = [*left, *asked[_GETS:]]
        return found

    def _put(
        self,
        entry: TableEntry,
        found: Iterable[dict[str, Any]],
        changed: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> None:
        for some in batches(found, _CREATES):
            given = []
            for held in some:
                put = {key: held[key] for key in _OF_PARTITION if key in held}
                put["StorageDescriptor"] = changed(held["StorageDescriptor"])
                given.append({"PartitionValueList": held["Values"], "PartitionInput": put})
            self._batch("batch_update_partition", entry, "", given, "Entries")

    def _batch(
        self, name: str, entry: TableEntry, passed: str, given: Any, key: str = "PartitionInputList"
    ) -> None:
        """Send one batch; Glue tells of each value that it refused, and takes the others."""
        told = {"DatabaseName": entry.database, "TableName": entry.name}
        for attempt in range(1, _ATTEMPTS + 1):
            later = set()
            for error in self._call(name, set(), **told, **{key: given}).get("Errors", ()):
                detail, values = error.get("ErrorDetail", {}), _values_of(error)
                code = detail.get("ErrorCode")
                if code in _TRANSIENT and attempt < _ATTEMPTS:
                    later.add(values)
                elif code != passed:
                    said = detail.get("ErrorMessage", detail)
                    problem = f"it refuses {name} of {[*values]}: {said}"
                    raise CatalogError(self.address, problem, _STEPS.get(code, _CORRECT))
            if not later:
                return
            time.sleep(_WAIT_S * 2**attempt)
            given = [each for each in given if _values_of(each) in later]

    def _call(self, name: str, passed: set[str], **told: Any) -> Any:
        """Return an answer; None for an error that is passed."""
        client = self._connected()
        from botocore.exceptions import BotoCoreError, ClientError

        self.calls += 1
        try:
            return getattr(client, name)(**told)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in passed:
                return None
            problem = f"it refuses {name}: {error.response.get('Error', {}).get('Message', code)}"
            raise CatalogError(self.address, problem, _STEPS.get(code, _CORRECT)) from error
        except BotoCoreError as error:
            problem = f"it does not answer {name}: {error}"
            raise CatalogError(
                self.address, problem, "check region, end point and credentials"
            ) from error

    def _connected(self) -> Any:
        if self._client is None:
            try:
                import boto3
            except ImportError as error:
                allowed = "Glue needs the package boto3: pip install 'bucketlake[glue]'"
                raise ConfigError("catalog", self.address, allowed) from error
            from botocore.exceptions import BotoCoreError

            try:
                self._client = boto3.client("glue", region_name=self._region)
            except (BotoCoreError, ValueError) as error:
                advice = "give a region (glue://region), and check the end point"
                raise CatalogError(self.address, f"no client: {error}", advice) from error
        return self._client


def region_of(address: str) -> str | None:
    """Return the region of an address, if it has one; raise ConfigError if it is none of Glue."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ConfigError("catalog", address, "it must be glue or glue://region")
    return found["region"] or None


def _values_of(told: Mapping[str, Any]) -> KeyValues:
    """Return the values in an error, or in a part of a batch: each call has its own word."""
    words = ("PartitionValues", "PartitionValueList", "Values")
    return next((tuple(told[word]) for word in words if word in told), ())


def _filled(held: dict[str, Any], entry: TableEntry) -> dict[str, Any]:
    descriptor = held["StorageDescriptor"]
    serde = {**descriptor["SerdeInfo"], "Parameters": dict(entry.serde)}
    descriptor = {
        **descriptor,
        "Columns": _fields(entry.columns),
        "InputFormat": entry.input_format,
        "SerdeInfo": serde,
    }
    return {**held, "StorageDescriptor": descriptor, "Parameters": dict(entry.parameters)}


def _fields(columns: Iterable[CatalogColumn]) -> list[dict[str, str]]:
    return [{"Name": each.name, "Type": each.type, "Comment": each.comment} for each in columns]


def _columns(fields: Iterable[Mapping[str, str]]) -> tuple[CatalogColumn, ...]:
    return tuple(CatalogColumn(f["Name"], f.get("Type", ""), f.get("Comment", "")) for f in fields)
