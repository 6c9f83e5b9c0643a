"""Each backend under one name, and the services that stand in for the cloud."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bucketlake.storage.base import Storage, Subfolder
from bucketlake.storage.local import LocalStorage
from bucketlake.storage.location import open_storage
from bucketlake.storage.memory import MemoryStorage
from tests.faulty_storage import FaultyStorage
from tests.s3_server import client_of, new_bucket, running_moto
from tests.unit.storage.bucket import Bucket


@pytest.fixture(autouse=True)
def _no_cloud_settings_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """Address of an S3 that lives as long as the test run."""
    with running_moto() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def s3_client(s3_endpoint: str) -> Any:
    """The vendor's own client."""
    return client_of(s3_endpoint)


@pytest.fixture
def bucket(s3_endpoint: str, s3_client: Any) -> Bucket:
    """An empty bucket."""
    return new_bucket(s3_endpoint, s3_client)


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
