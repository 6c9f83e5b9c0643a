"""Heartbeats, on an S3 server."""

from tests.unit.timeline.test_heartbeat import *  # noqa: F403 - The same tests, with other fixtures.
