"""A registry of Avro schemas: the answers of Apicurio and Confluent, from a recording."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def registry_of(schemas: dict[str, dict[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """Serve schemas by kind of id and id; yields the address, and the paths that were asked for."""
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            *_, kind, number = self.path.split("/")
            kind = "contentIds" if kind == "ids" else kind
            held = schemas.get(kind, {}).get(number)
            if held is not None and self.path.startswith("/schemas/ids/"):
                held = {"schema": json.dumps(held)}  # As Confluent's registry answers.
            self.send_response(404 if held is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(held).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
