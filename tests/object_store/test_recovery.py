"""Recovery from the remains of others, on an S3 server."""

from tests.unit.actions.test_recovery import *  # noqa: F403 - The same tests, with other fixtures.
