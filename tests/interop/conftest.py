"""Real Hudi for the interop tests: one peer a test process, started by the first that asks."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import s3a
from tests.choices import DEEP, commit, keep_cases_of_this_commit
from tests.in_ci import skip_or_fail
from tests.interop.peer.client import HUDI_VERSION, HudiPeer, PeerUnavailableError
from tests.s3_server import client_of, moto_process, new_bucket
from tests.unit.storage.bucket import Bucket


def pytest_report_header() -> str:
    """Say which commit chooses; see below."""
    return f"interop: cases of commit {'all' if DEEP else commit()[:12]}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a third; turns of both writers on each kind and table type are all kept."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("slow")
    keep_cases_of_this_commit(config, items, Path(__file__).parent, 3)


@pytest.fixture(scope="session")
def hudi_peer() -> Iterator[HudiPeer]:
    """Real Hudi on Spark 3.5; where it cannot be had, a skip, or in CI a failure."""
    with start_hudi() as peer:
        yield peer


@pytest.fixture
def hudi(hudi_peer: HudiPeer) -> Iterator[HudiPeer]:
    """The same, which afterwards forgets what a test has SET and the tables that it named."""
    yield hudi_peer
    for table in hudi_peer.sql("SHOW TABLES"):
        hudi_peer.sql(f"DROP TABLE {table['tableName']}")
    hudi_peer.sql("RESET")


@pytest.fixture(scope="module")
def hudi_1_1() -> Iterator[HudiPeer]:
    """Hudi of the release before, for the tests of one module."""
    with start_hudi(version="1.1.1") as peer:
        yield peer


@pytest.fixture(scope="module")
def hudi_0_15() -> Iterator[HudiPeer]:
    """The last release that writes version 6 by default."""
    with start_hudi(version="0.15.0") as peer:
        yield peer


@pytest.fixture(scope="module")
def hudi_in_tokyo() -> Iterator[HudiPeer]:
    """Another one, nine hours ahead of UTC, for the tests of one module."""
    with start_hudi({"TZ": "Asia/Tokyo"}) as peer:
        yield peer


@pytest.fixture(scope="session")
def bucket() -> Iterator[Bucket]:
    """A bucket of an S3 server that lives as long as the test run."""
    with moto_process() as endpoint:
        yield new_bucket(endpoint, client_of(endpoint))


@pytest.fixture(scope="session")
def hudi_on_s3(bucket: Bucket) -> Iterator[HudiPeer]:
    """Real Hudi that reaches this server; the group "bucket" of tests shares it."""
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
