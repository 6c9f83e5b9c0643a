"""Commits take turns, on an S3 server."""

from tests.unit.timeline.test_commit_order import *  # noqa: F403 - The same tests, with other fixtures.
