"""Bucket counts of partitions as the classes of real Hudi gave them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bucketlake.errors import ConfigError
from bucketlake.index.partition import PartitionBucket
from bucketlake.index.partition_rules import split_expressions

FILE = Path(__file__).parent / "vectors" / "partition_expressions.json"
LOADED = json.loads(FILE.read_text(encoding="utf-8"))

# What Hudi does not know is ours; a count below one would end in a division by zero there.
OURS_ALONE = [("a,1", "range"), ("a,-3", "regex"), ("a,0", "regex")]


@pytest.mark.parametrize("vector", LOADED["vectors"], ids=lambda v: v["partitionPath"])
def test_partition_has_the_count_that_hudi_gives_it(vector: dict[str, Any]) -> None:
    rules = split_expressions(vector["expressions"])
    index = PartitionBucket(rules, vector["defaultBucketNumber"], vector["rule"])
    assert index.count_of(vector["partitionPath"]) == vector["numBuckets"]


@pytest.mark.parametrize("case", LOADED["invalid"], ids=lambda case: case["expressions"])
def test_expressions_that_hudi_refuses_are_refused(case: dict[str, Any]) -> None:
    refused = case["error"] is not None or (case["expressions"], case["rule"]) in OURS_ALONE
    if not refused:
        index = PartitionBucket(split_expressions(case["expressions"]), 4, case["rule"])
        assert index.count_of("a") == case["numBucketsForPathA"]
        return
    with pytest.raises(ConfigError):
        PartitionBucket(split_expressions(case["expressions"]), 4, case["rule"])
