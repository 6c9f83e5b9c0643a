"""Rescales and recorded counts, on an S3 server."""

from tests.tables.test_recorded_counts import *  # noqa: F403 - The same tests, with other fixtures.
