"""Commit or rollback, exactly one, on an S3 server."""

from tests.unit.timeline.test_outcome import *  # noqa: F403 - The same tests, with other fixtures.
