"""A road to an S3 server on which requests are counted, and conditional puts meet accidents."""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

CONDITION = "If-None-Match"
SLOW_SECONDS = 0.3


class Accident(Enum):
    """What happens to a conditional put."""

    CONFLICT = "409, and it took no effect"
    THROTTLED = "429, and it took no effect"
    SLOW_DOWN = "503, and it took no effect"
    FAILED = "500, and it took no effect"
    FAILED_AFTER = "500, and it took effect"
    ANSWER_LOST = "no answer, and it took effect"
    REQUEST_LOST = "no answer, and it took no effect"
    SLOW = "an answer, late"

    @property
    def lands(self) -> bool:
        return self in (Accident.FAILED_AFTER, Accident.ANSWER_LOST, Accident.SLOW)

    @property
    def status(self) -> int:
        """Status to answer with; 0 breaks the connection."""
        return int(self.value[:3]) if self.value[:3].isdigit() else 0


@dataclass
class Road:
    """The way to a server.

    Attributes
    ----------
    url : str
        Address to give to clients.
    asked : list of (str, str)
        Method and path of each request, in order.
    accident : Accident or None
        What happens to the first conditional put of each kind. Of one kind are paths that differ in
        digits alone; so what is repeated, or done under another instant, gets through.
    conditional_puts : list of str
        Kinds of those so far, in order.
    """

    url: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)
    accident: Accident | None = None
    conditional_puts: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def reset(self, accident: Accident | None = None) -> None:
        with self.lock:
            self.asked, self.conditional_puts, self.accident = [], [], accident

    def pass_by(self, method: str, path: str, *, conditional: bool) -> Accident | None:
        with self.lock:
            self.asked.append((method, path))
            if not conditional:
                return None
            kind = re.sub(r"[0-9a-f]*\d[0-9a-f-]*", "#", path)
            self.conditional_puts.append(kind)
            return self.accident if self.conditional_puts.count(kind) == 1 else None


@contextmanager
def road_to(endpoint: str, road: Road | None = None, host: str = "127.0.0.1") -> Iterator[Road]:
    """Open a road to a server, by default one without accidents, at an address of this machine."""
    road, target = road or Road(), urlsplit(endpoint).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            with suppress(OSError):  # The client was killed or cut off, or waits no longer.
                super().handle()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited.
            pass

        def do_PUT(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            conditional = self.command == "PUT" and self.headers.get(CONDITION) is not None
            accident = road.pass_by(self.command, self.path, conditional=conditional)
            if accident is None or accident.lands:
                answer, body = self._forward(data)
            if accident is Accident.SLOW:
                time.sleep(SLOW_SECONDS)
            if accident is None or accident is Accident.SLOW:
                self._say(answer.status, answer.getheaders(), body)
            elif accident.status:
                self._say(accident.status, [], b"<Error><Code>Planned</Code></Error>")
            else:
                self.close_connection = True
                self.connection.shutdown(2)

        do_GET = do_HEAD = do_POST = do_DELETE = do_PUT  # noqa: N815 - inherited.

        def _forward(self, data: bytes) -> tuple[http.client.HTTPResponse, bytes]:
            connection = http.client.HTTPConnection(target, timeout=60)
            # The host as the client signed it; the length as it was sent.
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                if name.lower() not in ("connection", "transfer-encoding"):
                    connection.putheader(name, value)
            connection.endheaders(data)
            answer = connection.getresponse()
            body = answer.read()
            connection.close()
            return answer, body

        def _say(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            self.send_response_only(status)
            own = {"connection", "transfer-encoding"}
            if self.command != "HEAD":
                own.add("content-length")
                self.send_header("Content-Length", str(len(body)))
            for name, value in headers:
                if name.lower() not in own:
                    self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    server = ThreadingHTTPServer((host, 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    road.url = f"http://{host}:{server.server_port}"
    yield road
    server.shutdown()
    server.server_close()
    thread.join()
