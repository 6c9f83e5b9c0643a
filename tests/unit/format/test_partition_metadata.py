"""The partition marker."""

from __future__ import annotations

import pytest

from bucketlake.format.properties import (
    parse_properties,
    partition_marker_path,
    render_partition_metadata,
)
from bucketlake.model.file_name import InstantTime

INSTANT = InstantTime("20240102030405678")


@pytest.mark.parametrize(("path", "depth"), [("", 0), ("eu", 1), ("2024/01/02", 3)])
def test_marker_tells_the_first_commit_and_the_depth(path: str, depth: int) -> None:
    content = render_partition_metadata(INSTANT, path)
    entries = {"commitTime": INSTANT, "partitionDepth": str(depth)}
    assert parse_properties(content) == entries


def test_marker_of_a_table_without_partitions_lies_at_its_root() -> None:
    assert partition_marker_path("") == ".hoodie_partition_metadata"
    assert partition_marker_path("a/b") == "a/b/.hoodie_partition_metadata"
