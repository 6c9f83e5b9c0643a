"""Advice about tables that real Hudi wrote: always an answer, and never what Hudi cannot write."""

from __future__ import annotations

import pytest

import bucketlake as bl
from bucketlake.errors import UnsupportedFeatureError
from tests.conftest import GOLDEN_TABLES
from tests.golden.objects import objects_of_table
from tests.storages import memory_of

NAMES = sorted(
    path.name.removesuffix(".tar.gz")
    for path in GOLDEN_TABLES.rglob("*.tar.gz")
    if not path.name.startswith("damaged")
)


@pytest.mark.parametrize("name", NAMES)
def test_advice_about_a_table_of_hudi_keeps_to_what_hudi_writes(name: str) -> None:
    storage = memory_of(objects_of_table(name))  # It lives as long as its name.
    path = storage.root
    rings = any(word in name for word in ("consistent", "resize"))
    for index in (None, bl.ConsistentBucket(4) if rings else bl.SimpleBucket(4)):
        try:
            found = bl.open_table(path, index).advise(target_file_size=1)  # Each file is large.
        except UnsupportedFeatureError:
            return
        advice = {own.subject: own for own in found}
        assert not advice["upkeep"].changes
        call = advice["index"].call or ""
        assert call.partition("(")[0] in ("", "table.rescale", "table.resize")
        if call.startswith("table.rescale"):
            assert bl.open_table(path).config().version >= 9
