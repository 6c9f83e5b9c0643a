"""Real Hudi for the interop tests: one peer a test process, started by the first that asks."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from tests.interop.peer.client import PROJECT_ROOT, HudiPeer, PeerUnavailableError


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
def hudi_in_tokyo() -> Iterator[HudiPeer]:
    """Another one, nine hours ahead of UTC, for the tests of one module."""
    with start_hudi({"TZ": "Asia/Tokyo"}) as peer:
        yield peer


def start_hudi(
    environment: Mapping[str, str] | None = None, settings: Mapping[str, str] | None = None
) -> HudiPeer:
    """Start real Hudi; where it cannot be had, skip, or in CI fail."""
    try:
        with _one_at_a_time():
            return HudiPeer(environment, settings)
    except PeerUnavailableError as error:
        if os.environ.get("CI", "") not in ("", "0", "false"):
            pytest.fail(f"CI asks for real Hudi, but {error}", pytrace=False)
        pytest.skip(f"real Hudi cannot be had: {error}")


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Keep other test processes from fetching the same packages meanwhile."""
    with (PROJECT_ROOT / ".venv" / "hudi-peer.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
