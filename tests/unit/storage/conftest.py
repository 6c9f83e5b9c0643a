"""Each backend under one name, and the services that stand in for the cloud."""

from __future__ import annotations

import functools
import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

from bucketlake.storage.base import Storage
from bucketlake.storage.faulty import FaultyStorage
from bucketlake.storage.local import LocalStorage
from bucketlake.storage.location import open_storage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.storage.subfolder import Subfolder
from tests.unit.storage.bucket import ACCESS_KEY, SECRET_KEY, Bucket

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def _no_cloud_settings_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """Address of an S3 that lives as long as the test run."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    # The stand-in looks whether a key is free and then writes, in many threads: give it the
    # atomicity that the service has.
    plain, lock = S3Response.put_object, threading.Lock()

    @functools.wraps(plain)
    def one_at_a_time(self: S3Response) -> Any:
        with lock:
            return plain(self)

    S3Response.put_object = one_at_a_time
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()
    S3Response.put_object = plain


@pytest.fixture(scope="session")
def s3_client(s3_endpoint: str) -> Any:
    """The vendor's own client."""
    keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}
    return boto3.client("s3", endpoint_url=s3_endpoint, region_name="us-east-1", **keys)


@pytest.fixture
def bucket(s3_endpoint: str, s3_client: Any) -> Bucket:
    """An empty bucket."""
    name = f"lake-{next(_numbers)}"
    s3_client.create_bucket(Bucket=name)
    options = {
        "endpoint": s3_endpoint,
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
        "region": "us-east-1",
        "max_retries": "1",
    }
    return Bucket(name, s3_client, options)


_BACKENDS: dict[str, Callable[[pytest.FixtureRequest, Path], Storage]] = {
    "local": lambda _, folder: LocalStorage(str(folder / "table")),
    "memory": lambda _, __: MemoryStorage.fresh(),
    "s3": lambda request, _: request.getfixturevalue("bucket").open("wh/t%201 #2"),
    "faulty": lambda _, __: FaultyStorage(MemoryStorage.fresh()),
    "subfolder": lambda _, __: Subfolder(MemoryStorage.fresh(), ".hoodie/metadata"),
    "local metadata table": lambda _, folder: open_storage(f"{folder}/t/.hoodie/metadata"),
}


@pytest.fixture(params=list(_BACKENDS))
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty storage of each kind."""
    return _BACKENDS[request.param](request, tmp_path)


@pytest.fixture
def local(tmp_path: Path) -> LocalStorage:
    """An empty table on disk."""
    return LocalStorage(str(tmp_path / "table"))
