"""What servers beside the tests share: a port, the wait for them, what fetches them."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

from tests.waiting import SECONDS_MAX

TOOLS = Path(__file__).parents[1] / ".uv"
"""Where scripts/setup puts uv, and where servers are kept."""


class ServerUnavailableError(Exception):
    """There is no such server to start; the text says why."""


def free_port() -> int:
    """Return a port of this machine that nobody listens to."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def await_server(
    name: str, address: tuple[str, int], process: subprocess.Popen[bytes], log: Path
) -> None:
    """Wait until a server listens; raise if its process ends before."""
    deadline = time.monotonic() + SECONDS_MAX
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(address, timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise ServerUnavailableError(f"{name} does not start: {log.read_text(errors='replace')}")


def uv_run(package: str, program: str) -> list[str]:
    """Return what runs a program of a package of PyPI through uv; empty without uv."""
    uv = shutil.which("uv") or shutil.which("uv", path=TOOLS / "tool" / "bin")
    return [uv, "tool", "run", "--quiet", "--from", package, program] if uv else []
