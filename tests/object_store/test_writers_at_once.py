"""Several writers on one table at once, on an S3 server."""

from tests.tables.test_writers_at_once import *  # noqa: F403 - The same tests, with other fixtures.
