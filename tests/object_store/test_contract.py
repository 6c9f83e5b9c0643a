"""What every backend promises, on an S3 server."""

from tests.unit.storage.test_contract import *  # noqa: F403 - The same tests, with other fixtures.
