"""The other engines, as tests call them: real Hudi on Spark 3.5, and hudi-rs.

:class:`HudiPeer` starts ``hudi_server.py`` in the environment of PySpark 3.5 and speaks to it over
pipes. It takes half a minute to start, so a test run shares one (fixture ``hudi`` of the interop
room). What real Hudi raises comes back as :class:`PeerError`; that there is no peer to talk to is
:class:`PeerUnavailableError`.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

PROJECT_ROOT = Path(__file__).parents[3]
PEER_PYTHON = PROJECT_ROOT / ".venv-spark35" / "bin" / "python"
SERVER = Path(__file__).with_name("hudi_server.py")
START_SECONDS_MAX = 600  # The first start ever fetches the bundle.
COMMAND_SECONDS_MAX = 600
HUDI_VERSION = "1.2.0"
FETCH_FAILED = ("unresolved dependency", "download failed")


class PeerError(Exception):
    """The other engine refused or failed; the text is its own."""


class PeerUnavailableError(Exception):
    """There is no peer to talk to: not installed, or its packages cannot be fetched."""


class HudiPeer:
    """Real Hudi in a process of its own, from ``HudiPeer()`` to ``close()``.

    Parameters
    ----------
    environment : mapping of str to str, optional
        Variables of its environment that differ from this process's, such as ``TZ``.
    settings : mapping of str to str, optional
        Settings of its Spark session; packages are fetched besides its own.
    version : str
        The release of Hudi.

    Raises
    ------
    PeerUnavailableError
        If the environment of PySpark 3.5 is missing or Hudi's bundle cannot be fetched.
    PeerError
        If it does not start for any other reason.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        version: str = HUDI_VERSION,
    ) -> None:
        if not PEER_PYTHON.exists():
            raise PeerUnavailableError("there is no .venv-spark35: run scripts/setup spark35")
        self._folder = tempfile.TemporaryDirectory(prefix="hudi-peer-")
        self.log_path = Path(self._folder.name) / "server.log"
        self._exchange_count = 0
        self._process, self._answers = self._start(environment or {}, settings or {}, version)
        try:
            self._hear(START_SECONDS_MAX)
        except PeerError as error:
            log = self.log_path.read_text(errors="replace")
            self.close()
            if any(sign in log for sign in FETCH_FAILED):
                raise PeerUnavailableError(_why_nothing_was_fetched(log)) from error
            raise

    @property
    def pid(self) -> int:
        """The number of its process, which has the JVM as a child."""
        return self._process.pid

    def write(
        self,
        path: str | Path,
        rows: pa.Table,
        options: Mapping[str, str],
        mode: str = "append",
    ) -> None:
        """Write rows with ``df.write.format("hudi")``.

        Spark sees every column as nullable, and a timestamp without a zone as TIMESTAMP_NTZ.
        """
        file = self._next_exchange().with_suffix(".parquet")
        pq.write_table(rows, file, coerce_timestamps="us")
        self._ask("write", path=str(path), rows=str(file), options=dict(options), mode=mode)
        file.unlink()

    def read(
        self,
        path: str | Path,
        options: Mapping[str, str] | None = None,
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> pa.Table:
        """Read with ``spark.read.format("hudi")``, meta columns and all, in no set order."""
        folder = self._next_exchange()
        self._ask(
            "read",
            path=str(path),
            options=dict(options or {}),
            columns=None if columns is None else list(columns),
            where=where,
            into=str(folder),
        )
        # Not as a data set: its folder's name is no partition.
        (file,) = folder.glob("*.parquet")
        return pq.ParquetFile(file).read().replace_schema_metadata(None)

    def time_travel(
        self, path: str | Path, as_of: str, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Read the table as it was at an instant."""
        return self.read(path, {"as.of.instant": as_of}, columns)

    def incremental(
        self,
        path: str | Path,
        since: str,
        until: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Read the rows of the commits completed after ``since`` and not after ``until``."""
        options = {
            "hoodie.datasource.query.type": "incremental",
            "hoodie.datasource.read.begin.instanttime": since,
        }
        if until is not None:
            options["hoodie.datasource.read.end.instanttime"] = until
        return self.read(path, options, columns)

    def sql(self, text: str) -> list[dict[str, Any]]:
        """Run a statement, ``CALL`` among them; values that JSON lacks come back as text."""
        rows: list[dict[str, Any]] = self._ask("sql", text=text)
        return rows

    def load(self, source: Path) -> None:
        """Give its JVM a class from Java source, beside Hudi's."""
        into = self._next_exchange()
        into.mkdir()
        self._ask("load", source=source.read_text(), into=f"{into}/")

    def lock(self, path: str) -> bool:
        """Take the storage-based lock of a table until ``unlock``, if it is to be had now."""
        taken: bool = self._ask("lock", path=path)
        return taken

    def unlock(self, path: str) -> None:
        """Give up a lock that was taken."""
        self._ask("unlock", path=path)

    def config_properties(self) -> list[dict[str, Any]]:
        """List the options that Hudi's classes declare."""
        declared: list[dict[str, Any]] = self._ask("config_properties")
        return declared

    def close(self) -> None:
        """End the process and its JVM, and remove what they left."""
        if self._process.stdin is not None:
            self._process.stdin.close()  # The server reads this as the end of its commands.
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._answers)
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _start(
        self, environment: Mapping[str, str], settings: Mapping[str, str], version: str
    ) -> tuple[subprocess.Popen[bytes], int]:
        """Start the server; return it and the descriptor on which it answers."""
        answers, answers_for_server = os.pipe()
        tables = f"{self._folder.name}/tables"
        arguments = [str(answers_for_server), tables, json.dumps(dict(settings)), version]
        try:
            with self.log_path.open("wb") as log:
                process = subprocess.Popen(
                    [PEER_PYTHON, SERVER, *arguments],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=[answers_for_server],
                    env=_environment() | dict(environment),
                    cwd=self._folder.name,
                )
        finally:
            os.close(answers_for_server)
        return process, answers

    def _ask(self, verb: str, **fields: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"verb": verb, **fields}).encode() + b"\n")
        self._process.stdin.flush()
        return self._hear(COMMAND_SECONDS_MAX).get("result")

    def _hear(self, seconds_max: float) -> dict[str, Any]:
        """Wait for the next answer; PeerError where it is an error or never comes."""
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._answers], [], [], seconds_max)
            if not ready:
                self._process.kill()  # Its late answer would be taken for that of the next command.
                raise PeerError(f"no answer for {seconds_max} s\n{self._end_of_log()}")
            chunk = os.read(self._answers, 1 << 16)
            if not chunk:
                raise PeerError(f"the Hudi server ended\n{self._end_of_log()}")
            line += chunk
        message: dict[str, Any] = json.loads(line)
        if not message["ok"]:
            raise PeerError(f"{message['error']}\n(log: {self.log_path})")
        return message

    def _next_exchange(self) -> Path:
        """Return a path for the next rows, where nothing is yet."""
        self._exchange_count += 1
        return Path(self._folder.name) / f"exchange-{self._exchange_count}"

    def _end_of_log(self) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-20:])


def read_with_hudi_rs(path: str | Path, as_of: str | None = None) -> pa.Table:
    """Read a table's snapshot, or how it was at an instant, with hudi-rs."""
    from hudi import HudiReadOptions

    options = HudiReadOptions()
    if as_of is not None:
        options = options.with_as_of_timestamp(as_of)
    return _read_with_hudi_rs(path, options)


def read_changes_with_hudi_rs(path: str | Path, since: str, until: str | None = None) -> pa.Table:
    """Read the rows of the commits completed after ``since`` and not after ``until``."""
    from hudi import HudiQueryType, HudiReadOptions

    options = HudiReadOptions().with_query_type(HudiQueryType.Incremental)
    options = options.with_start_timestamp(since)
    if until is not None:
        options = options.with_end_timestamp(until)
    return _read_with_hudi_rs(path, options)


def _read_with_hudi_rs(path: str | Path, options: Any) -> pa.Table:
    from hudi import HudiTable

    table = HudiTable(str(path))
    batches = table.read(options)
    schema = batches[0].schema if batches else table.get_schema_with_meta_fields()
    return pa.Table.from_batches(batches, schema)


def _why_nothing_was_fetched(log: str) -> str:
    """Say what the dependency manager complained of, the first few lines of it."""
    signs = ("error", "exception", "not found", "timed out")
    complaints = [
        line.strip() for line in log.splitlines() if any(s in line.lower() for s in signs)
    ]
    return "\n    ".join(["Hudi's Spark bundle cannot be fetched", *dict.fromkeys(complaints[:4])])


def _environment() -> dict[str, str]:
    """Name the server's own Python to Spark, not this process's; give Java names beyond ASCII."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK_", "SPARK_", "PYTHON", "VIRTUAL_ENV"))
    }
    environment |= {"PYSPARK_PYTHON": str(PEER_PYTHON), "SPARK_LOCAL_IP": "127.0.0.1"}
    # West of UTC, Hudi waits for hours between a write to a timeline in UTC and one to a local one.
    environment["TZ"] = "UTC"
    if "UTF-8" not in environment.get("LC_ALL", environment.get("LANG", "")):
        environment["LC_ALL"] = "C.UTF-8"
    return environment
