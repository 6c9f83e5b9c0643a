"""The commits of real Hudi tell rows as the table has them, and growth as it happened."""

from __future__ import annotations

from contextlib import suppress

import pytest

import bucketlake as bl
from bucketlake.errors import TimelineError
from tests.golden.objects import objects_of_table
from tests.golden.test_tables import NAMES
from tests.storages import memory_of


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_commits_of_hudi_count_are_those_of_the_table(name: str) -> None:
    storage = memory_of(objects_of_table(name))
    table = bl.open_table(storage.root)
    found = table.buckets()
    counted = sum(bucket.rows or 0 for bucket in found)
    assert counted == found.growth[-1].rows == table.count()
    for size in found.growth:
        with suppress(TimelineError):  # A clean has deleted files of that time.
            assert size.rows == table.count(as_of=size.instant)
