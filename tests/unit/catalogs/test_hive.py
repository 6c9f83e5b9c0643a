"""What is sent to a Hive Metastore, by a client that only notes it; real ones are in interop."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest
from pymetastore.hive_metastore import ThriftHiveMetastore, ttypes
from thrift.protocol import TBinaryProtocol
from thrift.transport import TSocket, TTransport

from bucketlake.catalogs.catalog import CatalogColumn, TableEntry
from bucketlake.catalogs.hive import HiveMetastore
from bucketlake.errors import CatalogError
from tests.bounds import set_bounds
from tests.catalog_services import Metastore


class Noted(HiveMetastore):
    def __init__(self) -> None:
        super().__init__("thrift://nowhere:9083")
        self.sent: list[tuple[str, int]] = []

    def _call(self, name: str, *arguments: Any) -> Any:
        last = arguments[-1]
        parts = getattr(last, "parts", last)
        self.sent.append((name, len(getattr(parts, "names", parts))))
        if name != "get_partitions_by_names":
            return None
        make, place = self._types.Partition, self._types.StorageDescriptor
        return [make(values=[each.partition("=")[2]], sd=place(location="x")) for each in last]


def entry(columns: int) -> TableEntry:
    keys = (CatalogColumn("day", "string"),)
    each = tuple(CatalogColumn(f"c{number}", "string") for number in range(columns))
    types = Noted()._types
    stored = types.Table(sd=types.StorageDescriptor(serdeInfo=types.SerDeInfo()))
    return TableEntry("db", "t", each, keys, "file:/t", "org.apache.hudi.x", {}, {}, stored=stored)


@pytest.mark.parametrize(("columns", "most"), [(3, 1000), (1000, 100), (200_000, 1)])
def test_partitions_of_one_message_are_bounded_by_its_columns_and_those_of_a_drop_by_number(
    columns: int, most: int
) -> None:
    catalog, wide = Noted(), entry(columns)
    count = min(1000, 3 * most)
    values = [(str(number),) for number in range(count)]
    catalog.add_partitions(wide, {each: f"file:/t/{each[0]}" for each in values})
    catalog.move_partitions(wide, {each: f"file:/t/{each[0]}" for each in values})
    assert catalog.locations(wide, values).keys() == {*values}
    catalog.drop_partitions(wide, values)
    by_name: dict[str, list[int]] = {}
    for name, number in catalog.sent:
        by_name.setdefault(name, []).append(number)
    for name, numbers in by_name.items():
        assert max(numbers) == min(count, 100 if name == "drop_partitions_req" else most), name
    assert sum(by_name["add_partitions_req"]) == sum(by_name["drop_partitions_req"]) == count
    assert sum(by_name["alter_partitions"]) == count


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("or-ders is not a valid object name", r"create_table: or-ders is .*name; choose a name"),
        ("types incompatible in their places :\nv", r"in their places : v; pass replace=True"),
        ("Permission denied\n\tat org.Place", r"denied; correct what it names"),
    ],
)
def test_what_a_metastore_refuses_is_told_whole_and_with_a_next_step(said: str, words: str) -> None:
    class Refusing(Metastore):
        def _create_table(self, table: Any) -> None:
            raise ttypes.InvalidOperationException(said)

    with pytest.raises(CatalogError, match=words):
        Refusing().opened().create_table(entry(1))


def test_a_view_is_called_one() -> None:
    service = Metastore()
    service.opened().create_database(entry(1))
    service.opened().create_table(entry(1))
    service.tables["db", "t"].tableType = "VIRTUAL_VIEW"
    found = service.opened().table("db", "t")
    assert found is not None
    assert (found.format, found.is_hudi) == ("a view", False)


def test_a_port_where_no_metastore_listens_is_told_at_once() -> None:
    """A server of another kind may answer something and wait."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as beside:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.settimeout(60)
                with suppress(OSError):
                    while connection.recv(1000):
                        pass

        done = beside.submit(answer)
        catalog = HiveMetastore(f"thrift://127.0.0.1:{server.getsockname()[1]}", timeout=30)
        with pytest.raises(CatalogError, match=r"does not answer get_database: No protocol.*check"):
            catalog.has_database("sales")
        done.result()


@contextmanager
def silent() -> Iterator[str]:
    """Yield the address of a server that accepts and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"thrift://127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def served(service: Metastore) -> Iterator[str]:
    """Yield the address of a thrift server that answers as a service does."""
    processor = ThriftHiveMetastore.Processor(service)
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as beside:

        def answer() -> None:
            with suppress(OSError):  # The end.
                while True:
                    place = TSocket.TSocket()
                    place.setHandle(server.accept()[0])
                    buffered = TTransport.TBufferedTransport(place)
                    protocol = TBinaryProtocol.TBinaryProtocol(buffered)
                    with suppress(TTransport.TTransportException), closing(buffered):
                        while True:
                            processor.process(protocol, protocol)

        beside.submit(answer)
        try:
            yield f"thrift://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)


def test_a_server_that_never_answers_is_given_up_soon_and_the_next_address_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_bounds(monkeypatch, "bucketlake.catalogs.hive", _FIRST_S=0.5)
    with silent() as nobody, served(Metastore()) as somebody:
        words = r"does not answer get_database: nothing came within 0.5 s; check the address"
        with pytest.raises(CatalogError, match=words):
            HiveMetastore(nobody).has_database("sales")
        catalog = HiveMetastore(f"{nobody},{somebody}")
        catalog.create_database(entry(1))
        assert catalog.has_database("db")
        catalog.close()


def test_a_server_that_falls_silent_in_a_call_is_told_with_another_step() -> None:
    done = threading.Event()

    class Busy(Metastore):
        def _get_table_req(self, request: Any) -> Any:
            done.wait(60)

    with served(Busy()) as address:
        catalog = HiveMetastore(address, timeout=0.5)
        assert not catalog.has_database("sales")
        words = r"answer get_table_req: nothing came within 0.5 s; sync again.*timeout=…"
        with pytest.raises(CatalogError, match=words):
            catalog.table("sales", "orders")
        done.set()
