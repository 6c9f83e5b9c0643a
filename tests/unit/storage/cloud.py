"""A service of the cloud that says what the test wants, and remembers what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COPY_SOURCES = ("x-amz-copy-source", "x-goog-copy-source", "x-ms-copy-source")
CONDITIONS = ("if-none-match", "x-goog-if-generation-match")


@dataclass(frozen=True)
class Request:
    method: str
    path: str  # Decoded once, as a service decodes it.
    condition: tuple[str, str] | None
    copied_from: str | None = None  # The path of the source, decoded once.


@dataclass(frozen=True)
class Answer:
    """What is said to a conditional put instead of doing it.

    Attributes
    ----------
    status : int
        0 breaks the connection.
    lands : bool
        Whether the put takes effect all the same.
    """

    status: int
    body: str = ""
    lands: bool = False


@dataclass
class Cloud:
    """Objects by path; puts and copies are conditional as on the real services.

    Attributes
    ----------
    looks_until_copied : int
        How often a copy is empty before it has its bytes.
    """

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)
    taken_status: int = 412
    looks_until_copied: int = 0
    pending: dict[str, bytes] = field(default_factory=dict)

    def handle(self, request: Request, data: bytes) -> Answer:
        self.requests.append(request)
        if request.method != "PUT":
            found = self.objects.get(request.path)
            if request.path in self.pending:
                self.looks_until_copied -= 1
                if self.looks_until_copied == 0:
                    self.objects[request.path] = self.pending.pop(request.path)
            return Answer(404) if found is None else Answer(200, found.decode())
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None and not answer.lands:
            return answer
        if request.condition is not None and request.path in self.objects:
            return Answer(self.taken_status)
        if request.copied_from is not None:
            if request.copied_from not in self.objects:
                return Answer(404, "<Error><Code>NoSuchKey</Code></Error>")
            data = self.objects[request.copied_from]
            if self.looks_until_copied:
                self.pending[request.path], data = data, b""
        self.objects[request.path] = data
        return answer or Answer(200)


@contextmanager
def running_cloud() -> Iterator[Cloud]:
    cloud = Cloud()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited.
            pass

        def do_PUT(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = [(n, v) for n in CONDITIONS if (v := self.headers.get(n)) is not None]
            sources = [v for n in COPY_SOURCES if (v := self.headers.get(n)) is not None]
            source = f"/{urlsplit(sources[0]).path.lstrip('/')}" if sources else None
            request = Request(
                self.command,
                unquote(self.path),
                found[0] if found else None,
                None if source is None else unquote(source),
            )
            answer = cloud.handle(request, data)
            if answer.status:
                self._say(answer)
            else:
                self.close_connection = True
                self.connection.shutdown(2)

        do_GET = do_HEAD = do_PUT  # noqa: N815 - inherited.

        def _say(self, answer: Answer) -> None:
            body = answer.body.encode()
            self.send_response(answer.status)
            for name, value in (
                ("ETag", '"x"'),
                ("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT"),
                ("x-goog-generation", "1"),
                ("Content-Length", str(len(body))),
            ):
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    cloud.url = f"http://127.0.0.1:{server.server_port}"
    yield cloud
    server.shutdown()
    server.server_close()
    thread.join()
