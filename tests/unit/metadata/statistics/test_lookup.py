"""Statistics of Hudi that may be wrong are not believed; those of bucketlake are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bucketlake.format.metadata_record.record_schema import ColumnStats
from bucketlake.metadata.statistics.merged import credible_statistics
from bucketlake.metadata.statistics.of_file import column_stats_of, rows_statistics

FACTS = [
    (pa.int32(), [1, 5], True),
    (pa.int32(), [1, None], True),
    (pa.string(), ["a", "b"], True),
    (pa.string(), ["a", None], False),  # The null may be a long text of another row group.
    (pa.string(), [None, None], False),
    (pa.float64(), [1.0, 2.0], False),  # There may be a NaN, and other numbers beside it.
    (pa.timestamp("us", "UTC"), [None], False),  # It may be an INT96.
    (pa.string(), [], True),  # A log file that only deletes.
]


def stats_of(data_type: pa.DataType, values: list[Any]) -> ColumnStats:
    rows = pa.table({"c": pa.array(values, data_type)})
    return column_stats_of([("f", rows_statistics(rows, rows.schema))])


@pytest.mark.parametrize(("data_type", "values", "is_credible"), FACTS, ids=str)
def test_statistics_of_hudi_are_believed_if_no_footer_can_have_misled_it(
    data_type: pa.DataType, values: list[Any], is_credible: bool
) -> None:
    ours = stats_of(data_type, values)
    kept = credible_statistics(ours)
    assert (kept.minima.branches == ours.minima.branches).all()
    assert (kept.value_counts, kept.null_counts) == (ours.value_counts, ours.null_counts)
    hudis = replace(ours, is_tight_bound=pa.array([False]))
    for found in (credible_statistics(hudis), credible_statistics(ours, of_partitions=True)):
        assert found.value_counts.null_count == (0 if is_credible else 1)
        has_bounds = bool(ours.minima.branches[0]) and is_credible
        assert bool(found.minima.branches[0]) == bool(found.maxima.branches[0]) == has_bounds


def test_nulls_that_hudi_marks_with_zeros_are_believed() -> None:
    nulls = stats_of(pa.int32(), [None, None])
    zeros = stats_of(pa.int32(), [0])
    hudis = replace(
        nulls, minima=zeros.minima, maxima=zeros.maxima, is_tight_bound=pa.array([False])
    )
    found = credible_statistics(hudis)
    assert (found.value_counts.to_pylist(), found.null_counts.to_pylist()) == ([2], [2])


def test_count_of_nulls_beside_doubtful_numbers_is_believed() -> None:
    hudis = replace(stats_of(pa.float64(), [1.0]), is_tight_bound=pa.array(np.zeros(1, np.bool_)))
    assert credible_statistics(hudis).null_counts.to_pylist() == [0]
