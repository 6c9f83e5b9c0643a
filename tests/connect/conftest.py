"""A Spark Connect server for the tests of this room, and a session of its client.

The server is a process of its own, as on a cluster: the process of the tests has no JVM.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark.processes import connect_server


@pytest.fixture(scope="session")
def connect_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server that lives as long as the test run."""
    with connect_server(tmp_path_factory.mktemp("connect")) as address:
        yield address


@pytest.fixture(scope="module")
def spark(connect_address: str) -> Iterator[SparkSession]:
    """A session on the server; in this room it takes the place of the classic session."""
    if SparkSession.getActiveSession() is not None:
        pytest.skip("a classic Spark session lives in this process: run scripts/test connect")
    with pytest.MonkeyPatch.context() as patch:
        # PySpark sets this for the whole process, and takes it back for a server of its own alone.
        patch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        session = SparkSession.builder.remote(connect_address).getOrCreate()
        yield session
        session.stop()
