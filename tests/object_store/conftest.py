"""S3 servers in place of memory: ``new_path`` and ``storage`` of these tests lie in a bucket.

Credentials come from the environment, as on machines with a role; no test here hands any in.
"""

from __future__ import annotations

import itertools
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bucketlake.storage.base import Storage
from tests.choices import code_version, of_this_version
from tests.in_ci import skip_or_fail
from tests.object_store.proxy import Road, road_to
from tests.s3_server import client_of, moto_process, new_bucket
from tests.server_beside import ServerUnavailableError
from tests.unit.storage.bucket import ACCESS_KEY, SECRET_KEY, Bucket
from tests.versitygw import versitygw_process

ON_EACH_SERVER = ["server", "contract", "commit_order", "outcome", "heartbeat", "recovery", "locks"]
ALWAYS_ON_EACH = ["server", "contract"]

_numbers = itertools.count()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what rests on the server's own promises on each, and what stands on that on one."""
    if "s3_endpoint" in metafunc.fixturenames:
        subject = metafunc.module.__name__.rpartition(".test_")[2]
        servers = ["moto", "versitygw"] if subject in ON_EACH_SERVER else ["versitygw_or_moto"]
        metafunc.parametrize("s3_endpoint", servers, indirect=True, scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what another commit runs; a deep run has all, and so has one of named tests.

    The rules for locks, heartbeats and outcomes are tested on one server each time, as the contract
    of storage, on which they rest, is tested on both. Of the tests that come from ``tests/tables``,
    where they all run in memory, half run here.
    """
    if config.getoption("keyword") or any("::" in given for given in config.args):
        return
    cases: dict[tuple[str, ...], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if not isinstance(item, pytest.Function) or Path(__file__).parent != item.path.parent:
            continue
        subject = item.path.stem.removeprefix("test_")
        server = str(getattr(item, "callspec").params["s3_endpoint"])  # noqa: B009 - No public type.
        if subject in ON_EACH_SERVER and subject not in ALWAYS_ON_EACH:
            cases[subject, item.name.replace(server, "")].append(item)
        elif item.function.__module__.startswith("tests.tables."):
            cases[(subject,)].append(item)
    left_out: set[pytest.Item] = set()
    for turn, held in enumerate(cases.values()):
        at = f"{int(code_version(), 16) + turn:x}"
        left_out |= {*held} - {*of_this_version(held, 2, at)}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=[*left_out])


@pytest.fixture(scope="session")
def s3_endpoint(request: pytest.FixtureRequest) -> str:
    """Address of an S3 server that lives as long as the test run."""
    address: str = request.getfixturevalue(request.param)
    return address


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """Address of moto, which plays S3."""
    with moto_process() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def versitygw() -> Iterator[str]:
    """Address of a real server; where it cannot be had, a skip, or in CI a failure."""
    try:
        with versitygw_process() as endpoint:
            yield endpoint
    except ServerUnavailableError as error:
        skip_or_fail("a real S3 server", str(error))


@pytest.fixture(scope="session")
def versitygw_or_moto(request: pytest.FixtureRequest) -> str:
    """Address of the real server, or of moto where that cannot be had."""
    try:
        address: str = request.getfixturevalue("versitygw")
    except pytest.skip.Exception:
        address = request.getfixturevalue("moto")
    return address


@pytest.fixture(scope="session")
def s3_client(s3_endpoint: str) -> Any:
    """The vendor's own client."""
    return client_of(s3_endpoint)


@pytest.fixture(autouse=True)
def s3_environment(s3_endpoint: str) -> Iterator[pytest.MonkeyPatch]:
    """Credentials and endpoint, as the environment says them.

    By a patch of its own: tests undo theirs on the way.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
                patch.delenv(name)
        patch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
        yield patch


@pytest.fixture
def bucket(s3_endpoint: str, s3_client: Any) -> Bucket:
    """An empty bucket."""
    return new_bucket(s3_endpoint, s3_client)


@pytest.fixture
def new_path(bucket: Bucket) -> Callable[[], str]:
    """Give a path where nothing is, another one each time, in a bucket."""
    return lambda: f"s3://{bucket.name}/lake/t{next(_numbers)}"


@pytest.fixture
def storage(bucket: Bucket) -> Storage:
    """An empty place in a bucket, whose name has all that S3's names may have."""
    return bucket.open("wh/t%201 #2")


@pytest.fixture
def road(s3_endpoint: str, s3_environment: pytest.MonkeyPatch) -> Iterator[Road]:
    """A road to the server, which all requests take from now on."""
    with road_to(s3_endpoint) as road:
        s3_environment.setenv("AWS_ENDPOINT_URL", road.url)
        yield road
