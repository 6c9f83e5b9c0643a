"""Tables in AWS Glue: against moto, and against a stub with the limits of Glue that moto lacks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import boto3
import pyarrow as pa
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ClientError, EndpointConnectionError
from moto import mock_aws

import bucketlake as bl
from bucketlake.catalogs.glue import GlueCatalog
from bucketlake.catalogs.table_sync import entries_in_database

NAME = "sales.orders"
LIMITS = {
    "batch_create_partition": ("PartitionInputList", 100),
    "batch_update_partition": ("Entries", 100),
    "batch_delete_partition": ("PartitionsToDelete", 25),
    "batch_get_partition": ("PartitionsToGet", 1000),
}
PAGE = 40
NUMBERS = itertools.count()


class Glue:
    """A client with the bounds of the service: sizes of calls, pages, versions of a table."""

    def __init__(self, client: Any) -> None:
        self._client, self._version = client, 0
        self.calls: list[str] = []
        self.own: dict[str, Callable[..., Any]] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(**given: Any) -> Any:
            self.calls.append(name)
            if name in LIMITS:
                key, most = LIMITS[name]
                assert len(given[key]) <= most
            own = self.own.get(name) or getattr(type(self), f"_{name}", None)
            return getattr(self._client, name)(**given) if own is None else own(self, **given)

        return call

    def _get_table(self, **given: Any) -> Any:
        found = self._client.get_table(**given)
        found["Table"]["VersionId"] = str(self._version)
        return found

    def _update_table(self, VersionId: str, **given: Any) -> Any:  # noqa: N803
        if VersionId != str(self._version):
            raise error("ConcurrentModificationException", "update_table")
        self._version += 1
        return self._client.update_table(**given)

    def _get_partitions(self, NextToken: str = "0", **given: Any) -> Any:  # noqa: N803
        found, start = self._client.get_partitions(**given)["Partitions"], int(NextToken)
        more = {"NextToken": str(start + PAGE)} if start + PAGE < len(found) else {}
        return {"Partitions": found[start : start + PAGE], **more}

    def _get_tables(self, NextToken: str = "0", **given: Any) -> Any:  # noqa: N803
        found, start = self._client.get_tables(**given)["TableList"], int(NextToken)
        more = {"NextToken": str(start + PAGE)} if start + PAGE < len(found) else {}
        return {"TableList": found[start : start + PAGE], **more}

    def _batch_get_partition(self, PartitionsToGet: Any, **given: Any) -> Any:  # noqa: N803
        found = self._client.batch_get_partition(PartitionsToGet=PartitionsToGet[:PAGE], **given)
        return {**found, "UnprocessedKeys": PartitionsToGet[PAGE:]}


def error(code: str, name: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": f"{code} by the test"}}, name)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Glue]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with mock_aws():
        yield Glue(boto3.client("glue", region_name="eu-west-1"))


@pytest.fixture
def catalog(client: Glue) -> GlueCatalog:
    return GlueCatalog("glue", client)


def rows(*regions: str, **more: pa.Array) -> pa.Table:
    return pa.table({"id": [*regions], "region": [*regions], **more})


def new_table(count: int) -> bl.Table:
    names = [f"r{number:03}" for number in range(count)]
    keys = {"record_key": "id", "partition_by": "region", "metadata_table": False}
    return bl.create_table(
        f"memory://glue/{next(NUMBERS)}", rows(*names), index=bl.SimpleBucket(1), **keys
    )  # type: ignore[arg-type]


def test_all_tables_of_a_database_that_are_tables_of_hudi_are_found(
    client: Glue, catalog: GlueCatalog
) -> None:
    bl.sync(new_table(1), catalog, "sales.zebra")  # On the second page.
    for number in range(PAGE):
        client.create_table(DatabaseName="sales", TableInput={"Name": f"other{number}"})
    (found,) = entries_in_database(catalog, "Sales")
    assert found.title == "sales.zebra"


def test_a_table_of_many_partitions_in_calls_that_glue_takes(
    client: Glue, catalog: GlueCatalog
) -> None:
    table = new_table(230)
    bl.sync(table, catalog, NAME)
    assert client.calls.count("batch_create_partition") == 3
    entry = catalog.table("sales", "orders")
    assert entry is not None
    assert {values[0] for values in catalog.values(entry)} == {f"r{n:03}" for n in range(230)}
    assert bl.sync(table, catalog, NAME).entries[0].action == "unchanged"
    table.upsert(rows("r001", "new", v=pa.array([1, 2])), merge_schema=True)
    done = bl.sync(table, catalog, NAME).entries[0]
    assert (done.columns, done.added) == (("v",), 1)
    told = client._client.get_partitions(DatabaseName="sales", TableName="orders")["Partitions"]
    columns = {tuple(c["Name"] for c in p["StorageDescriptor"]["Columns"]) for p in told}
    assert len(columns) == 1  # Glue has no cascade: each partition was told.
    table.delete_partitions([f"r{number:03}" for number in range(60)])
    assert bl.sync(table, catalog, NAME).entries[0].dropped == 60
    assert client.calls.count("batch_delete_partition") == 3
    entry = catalog.table("sales", "orders")
    assert entry is not None
    assert len(catalog.values(entry)) == 171
    assert entry.parameters["hudi.metadata-listing-enabled"] == "FALSE"


def test_a_change_meanwhile_is_told(client: Glue, catalog: GlueCatalog) -> None:
    table = new_table(1)
    bl.sync(table, catalog, NAME)
    table.upsert(rows("r000"))
    entry = catalog.table("sales", "orders")
    assert entry is not None
    client._version += 1
    with pytest.raises(bl.CatalogError, match="another process changed it: sync again"):
        catalog.alter_table(entry, cascade=False)
    bl.sync(table, catalog, NAME)


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (error("ExpiredTokenException", "get_table"), "renew the credentials"),
        (error("AccessDeniedException", "get_table"), "allow the call"),
        (error("ThrottlingException", "get_table"), "sync again later"),
        (EndpointConnectionError(endpoint_url="https://glue"), "check region, end point"),
    ],
)
def test_what_glue_refuses_is_told_with_a_next_step(raised: Exception, words: str) -> None:
    class Refusing:
        def get_table(self, **_: Any) -> None:
            raise raised

    table = new_table(1)
    with pytest.raises(bl.CatalogError, match=words):
        bl.sync(table, GlueCatalog("glue", Refusing()), NAME)
    assert table.count() == 1


def test_a_partition_that_glue_refuses_is_named(client: Glue, catalog: GlueCatalog) -> None:
    def refused(_client: Glue, **_: Any) -> Any:
        detail = {"ErrorCode": "InvalidInputException", "ErrorMessage": "too long"}
        return {"Errors": [{"PartitionValues": ["r000"], "ErrorDetail": detail}]}

    client.own["batch_create_partition"] = refused
    table = new_table(1)
    with pytest.raises(bl.CatalogError, match=r"\['r000'\]: too long"):
        bl.sync(table, catalog, NAME)


def test_what_glue_passes_over_for_a_while_is_sent_again_alone(
    client: Glue, catalog: GlueCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("bucketlake.catalogs.glue.time.sleep", waits.append)
    sent: list[list[str]] = []
    never: list[str] = []

    def throttled(stub: Glue, PartitionInputList: Any, **given: Any) -> Any:  # noqa: N803
        sent.append([each["Values"][0] for each in PartitionInputList])
        first = PartitionInputList[:1] if len(sent) < 3 or never else []
        taken = PartitionInputList[len(first) :]
        if taken:
            stub._client.batch_create_partition(PartitionInputList=taken, **given)
        detail = {"ErrorCode": "ThrottlingException", "ErrorMessage": "rate exceeded"}
        return {"Errors": [{"PartitionValues": f["Values"], "ErrorDetail": detail} for f in first]}

    client.own["batch_create_partition"] = throttled
    table = new_table(3)
    bl.sync(table, catalog, NAME)
    assert sent == [["r000", "r001", "r002"], ["r000"], ["r000"]]
    assert waits == sorted(waits)
    assert len(waits) == 2
    entry = catalog.table("sales", "orders")
    assert entry is not None
    assert len(catalog.values(entry)) == 3
    never.append("again")
    with pytest.raises(bl.CatalogError, match=r"\['x'\]: rate exceeded; sync again later"):
        catalog.add_partitions(entry, {("x",): "s3://lake/x"})


def test_keys_that_are_never_processed_end(client: Glue, catalog: GlueCatalog) -> None:
    bl.sync(new_table(1), catalog, NAME)
    entry = catalog.table("sales", "orders")
    assert entry is not None
    client.own["batch_get_partition"] = lambda _stub, PartitionsToGet, **_: {  # noqa: N803
        "UnprocessedKeys": PartitionsToGet
    }
    with pytest.raises(bl.CatalogError, match="for none of 1 partitions"):
        catalog.locations(entry, [("r000",)])


def test_a_call_that_is_throttled_is_repeated_by_boto3(
    client: Glue, catalog: GlueCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)
    left = [1, 2]

    def throttled(request: AWSPreparedRequest, **_: Any) -> AWSResponse | None:
        if not left:
            return None
        left.pop()
        body = BytesIO(b'{"__type": "ThrottlingException", "message": "rate exceeded"}')
        body.stream = lambda *_: [body.getvalue()]  # type: ignore[attr-defined]
        return AWSResponse(request.url, 400, {}, body)

    client._client.meta.events.register_first("before-send.glue.GetDatabase", throttled)
    assert not catalog.has_database("sales")
    assert not left


def test_credentials_that_expire_in_the_middle_leave_what_the_next_sync_completes(
    client: Glue, catalog: GlueCatalog
) -> None:
    table, calls = new_table(230), []

    def expires(stub: Glue, **given: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise error("ExpiredTokenException", "batch_create_partition")
        return stub._client.batch_create_partition(**given)

    client.own["batch_create_partition"] = expires
    with pytest.raises(bl.CatalogError, match="renew the credentials"):
        bl.sync(table, catalog, NAME)
    assert bl.sync(table, catalog, NAME).entries[0].added == 130


@pytest.mark.parametrize(
    ("held", "kind"),
    [
        ({"TableType": "VIRTUAL_VIEW", "ViewOriginalText": "SELECT 1"}, "a view"),
        ({"Parameters": {"table_type": "ICEBERG"}}, "ICEBERG"),
    ],
)
def test_an_entry_of_another_format_is_no_table_to_be_altered(
    client: Glue, catalog: GlueCatalog, held: dict[str, Any], kind: str
) -> None:
    client.create_database(DatabaseInput={"Name": "sales"})
    client.create_table(DatabaseName="sales", TableInput={"Name": "orders", **held})
    table = new_table(1)
    with pytest.raises(bl.CatalogError, match=f"no table of Hudi there, but {kind}"):
        bl.sync(table, catalog, NAME)
    assert bl.sync(table, catalog, NAME, replace=True).entries[0].action == "replaced"


def test_an_address_of_s3a_is_written_as_aws_spells_it(catalog: GlueCatalog) -> None:
    table = new_table(1)
    bl.sync(table, catalog, NAME)
    entry = catalog.table("sales", "orders")
    assert entry is not None
    catalog.add_partitions(entry, {("other",): "s3a://lake/orders/other"})
    assert catalog.locations(entry, [("other",)]) == {("other",): "s3://lake/orders/other"}
