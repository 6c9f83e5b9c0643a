"""Rollback of commits, on an S3 server."""

from tests.tables.test_rollback import *  # noqa: F403 - The same tests, with other fixtures.
