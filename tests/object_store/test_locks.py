"""Locks that are shared with Hudi, on an S3 server."""

import pytest

from bucketlake.storage.base import Storage
from tests.unit.storage.bucket import Bucket
from tests.unit.timeline.test_locks import *  # noqa: F403 - The same tests, with another storage.


@pytest.fixture
def storage(bucket: Bucket) -> Storage:
    """An empty place in a bucket."""
    return bucket.open()
