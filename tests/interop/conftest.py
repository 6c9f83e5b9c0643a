"""Real Hudi for the interop tests: one peer a release, started by the first test that asks for it.

The newest release runs in each test process. Tests that ask for another peer are a group, which one
process runs: no other peer is started twice.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests import s3a
from tests.choices import DEEP, code_version, keep_cases_of_this_version
from tests.in_ci import skip_or_fail
from tests.interop.peer.client import HUDI_VERSION, HudiPeer, PeerUnavailableError
from tests.s3_server import client_of, moto_process, new_bucket
from tests.unit.storage.bucket import Bucket


def pytest_report_header() -> str:
    """Say which version of the code chooses; see below."""
    return f"interop: cases of version {'all' if DEEP else code_version()[:12]}"


SHARED = {
    "hudi_0_15": "hudi_0_15",
    "hudi_1_0": "hudi_0_15",  # Some tests use both.
    "hudi_1_1": "hudi_1_1",
    "hudi_in_tokyo": "hudi_in_tokyo",
    "bucket": "bucket",
}
"""What takes long to start, and the group of the tests that use it."""

Releases = Callable[[str], HudiPeer]


@pytest.hookimpl(tryfirst=True)  # Before xdist reads the groups.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep an eighth; turns of both writers on each kind and table type are all kept."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("slow")
            asked = {*getattr(item, "fixturenames", ())}
            if group := next((SHARED[name] for name in SHARED if name in asked), None):
                item.add_marker(pytest.mark.xdist_group(group))
    keep_cases_of_this_version(config, items, Path(__file__).parent, 8)


@pytest.fixture(scope="session")
def hudi_of_release() -> Iterator[Releases]:
    """Real Hudi on Spark 3.5 by release; where it cannot be had, a skip, or in CI a failure."""
    with ExitStack() as started:
        yield cache(lambda version: started.enter_context(start_hudi(version=version)))


def as_it_began(peer: HudiPeer) -> Iterator[HudiPeer]:
    """Give a peer to a test; then it forgets what was SET and the tables that were named."""
    yield peer
    for table in peer.sql("SHOW TABLES"):
        peer.sql(f"DROP TABLE {table['tableName']}")
    peer.sql("RESET")


@pytest.fixture(scope="session")
def hudi_peer(hudi_of_release: Releases) -> HudiPeer:
    """The newest release, for fixtures that tests share."""
    return hudi_of_release(HUDI_VERSION)


@pytest.fixture
def hudi(hudi_peer: HudiPeer) -> Iterator[HudiPeer]:
    """The newest release."""
    yield from as_it_began(hudi_peer)


@pytest.fixture
def hudi_1_1(hudi_of_release: Releases) -> Iterator[HudiPeer]:
    """The first release that writes version 9, in its newest patch."""
    yield from as_it_began(hudi_of_release("1.1.1"))


@pytest.fixture
def hudi_1_0(hudi_of_release: Releases) -> Iterator[HudiPeer]:
    """The last release that writes version 8 by default."""
    yield from as_it_began(hudi_of_release("1.0.2"))


@pytest.fixture
def hudi_0_15(hudi_of_release: Releases) -> Iterator[HudiPeer]:
    """The last release that writes version 6 by default."""
    yield from as_it_began(hudi_of_release("0.15.0"))


@pytest.fixture(scope="session")
def hudi_in_tokyo() -> Iterator[HudiPeer]:
    """Another one, nine hours ahead of UTC."""
    with start_hudi({"TZ": "Asia/Tokyo"}) as peer:
        yield peer


@pytest.fixture(scope="session")
def bucket() -> Iterator[Bucket]:
    """A bucket of an S3 server that lives as long as the test run."""
    with moto_process() as endpoint:
        yield new_bucket(endpoint, client_of(endpoint))


@pytest.fixture(scope="session")
def hudi_on_s3(bucket: Bucket) -> Iterator[HudiPeer]:
    """Real Hudi that reaches this server."""
    settings = s3a.settings(bucket.options["endpoint"])
    settings |= {"spark.jars.packages": s3a.packages("3.5")}
    with start_hudi(environment_of(bucket), settings) as peer:
        yield peer


def environment_of(bucket: Bucket) -> dict[str, str]:
    """Say in variables where the server is, and the keys to it."""
    names = {"ENDPOINT_URL": "endpoint", "REGION": "region"}
    names |= {"ACCESS_KEY_ID": "access_key_id", "SECRET_ACCESS_KEY": "secret_access_key"}
    return {f"AWS_{name}": bucket.options[key] for name, key in names.items()}


def start_hudi(
    environment: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    version: str = HUDI_VERSION,
) -> HudiPeer:
    """Start real Hudi; where it cannot be had, skip, or in CI fail."""
    try:
        with _one_at_a_time():
            return HudiPeer(environment, settings, version)
    except PeerUnavailableError as error:
        skip_or_fail("real Hudi", str(error))


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Keep other test processes, of other checkouts too, from fetching the same packages now.

    They fetch into one folder of this user, and Spark itself keeps no order there.
    """
    with Path(tempfile.gettempdir(), f"hudi-peer-{os.getuid()}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
