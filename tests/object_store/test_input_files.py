"""Files as the records of a write, on an S3 server."""

from tests.tables.test_input_files import *  # noqa: F403 - The same tests, with other fixtures.
