"""The example of a REST catalog, with a server that keeps generic tables in memory."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "catalogs"))

from rest_catalog import GenericTables


class Server(ThreadingHTTPServer):
    kept: dict[str, Any]


class Answers(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        path, _, asked = self.path.partition("?pageToken=")
        if path != self.path:  # One name a page.
            inside = (each.removeprefix(f"{path}/") for each in self.server.kept)
            names = sorted(each for each in inside if "/" not in each)
            at = int(asked or "0")
            page = {"identifiers": [{"namespace": ["sales"], "name": names[at]}]}
            more = {"next-page-token": str(at + 1)} if at + 1 < len(names) else {}
            self._answer(200, page | more)
            return
        found = self.server.kept.get(self.path)
        self._answer(200 if found is not None else 404, found)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = body["namespace"][0] if "namespace" in body else body["name"]
        path = f"{self.path}/{name}"
        if path in self.server.kept:
            self._answer(409, {"error": "exists"})
            return
        self.server.kept[path] = body if "namespace" in body else {"table": body}
        self._answer(200, self.server.kept[path])

    def do_DELETE(self) -> None:
        self._answer(204 if self.server.kept.pop(self.path, None) else 404, None)

    def _answer(self, code: int, body: object) -> None:
        if self.headers["Authorization"] != "Bearer right":
            code, body = 401, {"error": "who are you?"}
        data = b"" if code == 204 else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with Server(("127.0.0.1", 0), Answers) as server:
        server.kept = {}
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_table_is_found_by_its_name_and_its_entry_follows(url: str, tmp_path: Path) -> None:
    catalog = GenericTables(url, "lake", "right")
    rows = pa.table({"id": [1, 2], "day": ["mo", "tu"]})
    table = bl.create_table(str(tmp_path / "o"), rows, record_key="id", partition_by="day")
    assert [each.action for each in bl.sync(table, catalog, "sales.orders").entries] == ["created"]
    assert [each.action for each in bl.sync(table, catalog, "sales.orders").entries] == [
        "unchanged"
    ]
    table.upsert(rows.append_column("note", pa.array(["a", "b"])), merge_schema=True)
    (altered,) = bl.sync(table, catalog, "sales.orders").entries
    assert (altered.action, altered.columns) == ("altered", ("note",))
    found = bl.open_table("sales.orders", catalog=catalog)
    assert found.to_arrow().num_rows == 2
    bl.sync(table, catalog, "sales.again")
    assert catalog.table_names("sales") == ["again", "orders"]


def test_a_wrong_token_is_told(url: str, tmp_path: Path) -> None:
    table = bl.create_table(str(tmp_path / "o"), pa.table({"id": [1]}), record_key="id")
    with pytest.raises(bl.CatalogError, match=r"401.*who are you.*check the token"):
        bl.sync(table, GenericTables(url, "lake", "wrong"), "sales.orders")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n\r\n<html>", b"SSH-2.0-x\r\n"])
def test_a_server_that_is_silent_or_speaks_otherwise_is_told(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as beside:

        def accept() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)
                while not answer and connection.recv(1000):
                    pass

        done = beside.submit(accept)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(bl.CatalogError, match=r"within 0.5 s: [^;]*; check the address"):
            GenericTables(url, "lake", "right", timeout=0.5).has_database("sales")
        done.result()
