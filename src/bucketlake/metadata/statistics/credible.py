"""What of stored statistics can be believed.

Hudi 1.2.0 takes statistics of base files from the footers of Parquet. If a footer has none of a
column, Hudi writes something else:

- A floating column with a NaN has the bounds 0 and 0, or those of other row groups and 0.
- A text column with long values, and a column of type INT96, seem to have only nulls. If another
  row group of the file has bounds, the file has these, and the values seem to be nulls.

Hudi itself loses rows by such statistics. bucketlake's statistics of files have none of this; their
bounds are tight, and Hudi's never are. Statistics of partitions come from both, and both may say
that they are tight.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.format.avro.wrappers import BRANCHES
from bucketlake.format.metadata_record.column_stats import ColumnStats

_FLOATING = (BRANCHES[pa.float32()], BRANCHES[pa.float64()])
_TEXT = BRANCHES[pa.string()]


def credible_statistics(stats: ColumnStats, *, of_partitions: bool = False) -> ColumnStats:
    """Return statistics without what may be wrong: it becomes unknown.

    Parameters
    ----------
    stats : ColumnStats
        Statistics of files or partitions.
    of_partitions : bool
        Whether they are of partitions.
    """
    is_ours = stats.is_tight_bound.to_numpy(zero_copy_only=False) & (not of_partitions)
    branches = np.maximum(stats.minima.branches, stats.maxima.branches)
    rows, nulls = (
        pc.fill_null(counts, -1).to_numpy() for counts in (stats.value_counts, stats.null_counts)
    )
    seems_null = (rows == nulls) & (rows > 0) & (branches == 0)
    may_hide_values = (branches == _TEXT) & (nulls != 0)
    counts_differ = ~is_ours & (seems_null | may_hide_values)
    lacks_bounds = counts_differ | (~is_ours & np.isin(branches, _FLOATING) & (rows != nulls))
    kept = np.flatnonzero(~lacks_bounds)
    unknown = pa.array(lacks_bounds)
    return replace(
        stats,
        minima=stats.minima.only(kept),
        maxima=stats.maxima.only(kept),
        value_counts=pc.if_else(unknown, None, stats.value_counts),
        null_counts=pc.if_else(pa.array(counts_differ), None, stats.null_counts),
    )
