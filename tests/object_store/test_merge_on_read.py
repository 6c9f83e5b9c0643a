"""Merge-on-read tables and compactions, on an S3 server."""

from tests.tables.test_merge_on_read import *  # noqa: F403 - The same tests, with other fixtures.
