"""A Hive Metastore in a process of its own: release 2.3.9, from the jars of PySpark 3.5."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bucketlake.catalogs.hive import HiveMetastore
from bucketlake.errors import CatalogError

_ENVIRONMENT = Path(__file__).parents[1] / ".venv-spark35"
_SERVER = "org.apache.hadoop.hive.metastore.HiveMetaStore"
_SECONDS_MAX = 300
_PACKAGES = ("lang", "lang.invoke", "net", "nio", "util", "util.concurrent")


@contextmanager
def hive_metastore() -> Iterator[str]:
    """Start a metastore with an empty database, and yield its address."""
    jars = next(_ENVIRONMENT.glob("lib/python3*/site-packages/pyspark/jars"))
    with tempfile.TemporaryDirectory(prefix="metastore-") as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        Path(folder, "hive-site.xml").write_text(_settings(folder))
        opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _PACKAGES]
        command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *opened]
        command += ["-cp", f"{folder}:{jars}/*", _SERVER, "-p", str(port)]
        with Path(folder, "log").open("wb") as log:
            server = subprocess.Popen(
                command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            address = f"thrift://127.0.0.1:{port}"
            _wait(address, server, Path(folder, "log"))
            yield address
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _settings(folder: str) -> str:
    told = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/db;create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": f"{folder}/warehouse",
        "hive.async.log.enabled": "false",
    }
    each = (f"<property><name>{k}</name><value>{v}</value></property>" for k, v in told.items())
    return f"<configuration>{''.join(each)}</configuration>"


def _wait(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for an answer: an open port is none."""
    end = time.monotonic() + _SECONDS_MAX
    while True:
        try:
            HiveMetastore(address).has_database("default")
        except CatalogError:
            said = log.read_text(errors="replace")[-2000:]
            assert server.poll() is None, said
            assert time.monotonic() < end, said
            time.sleep(0.5)
        else:
            return
