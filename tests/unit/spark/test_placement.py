"""Integers that Spark's hash maps to the tasks of our choice."""

from __future__ import annotations

import numpy as np
import pytest

from bucketlake.spark.facts import spark_hash, values_for_tasks

# SELECT hash(v) of Spark 4.3, v an INT.
HASHES_OF_SPARK = {
    0: 933211791,
    1: -559580957,
    -1: -1604776387,
    42: 29417773,
    2**31 - 1: 133916647,
    -(2**31): 723455942,
    123456789: -598405280,
}


def test_hash_of_an_integer_is_that_of_spark() -> None:
    values = np.array(list(HASHES_OF_SPARK), np.int32)
    assert spark_hash(values).tolist() == list(HASHES_OF_SPARK.values())


@pytest.mark.parametrize("task_count", [1, 2, 3, 7, 32, 200, 2_000])
def test_each_task_has_a_value_that_its_shuffle_sends_to_it(task_count: int) -> None:
    values = values_for_tasks(task_count)
    assert np.mod(spark_hash(values), task_count).tolist() == list(range(task_count))


def test_values_are_the_same_wherever_they_are_made() -> None:
    assert values_for_tasks(50).tolist() == values_for_tasks(50).tolist()
