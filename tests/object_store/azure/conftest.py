"""Azurite in place of memory: ``new_path`` and ``storage`` of these tests lie in a container.

Credentials come from the environment, as on machines with a role; no test here hands any in.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage
from tests.azurite import ACCOUNT, KEY, azurite_process, make_container
from tests.in_ci import skip_or_fail
from tests.server_beside import ServerUnavailableError

_numbers = itertools.count()


@pytest.fixture(scope="session")
def azurite() -> Iterator[str]:
    """Address of an account; where the server cannot be had, a skip, or in CI a failure."""
    try:
        with azurite_process() as endpoint:
            yield endpoint
    except ServerUnavailableError as error:
        skip_or_fail("Azure's storage", str(error))


@pytest.fixture(autouse=True)
def s3_environment(azurite: str) -> Iterator[pytest.MonkeyPatch]:
    """Credentials and endpoint of Azure in place of those of S3, as the environment says them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
                patch.delenv(name)
        patch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
        patch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
        patch.setenv("AZURE_STORAGE_ENDPOINT", azurite)
        patch.setenv("AZURE_ALLOW_HTTP", "true")
        yield patch


@pytest.fixture
def container(azurite: str) -> str:
    """An empty container."""
    name = f"lake-{os.getpid()}-{next(_numbers)}"
    make_container(azurite, name)
    return name


@pytest.fixture
def new_path(container: str) -> Callable[[], str]:
    """Give a path where nothing is, another one each time, in a container."""
    return lambda: f"az://{container}/lake/t{next(_numbers)}"


@pytest.fixture
def storage(container: str) -> Storage:
    """An empty place in a container."""
    return open_storage(f"az://{container}/wh/t%201 #2")
