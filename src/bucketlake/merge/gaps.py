"""Gaps: the values of a row that count as not given, so that another row of its key has a say.

A gap is a column that a batch lacks, a null, or the text that a source of changes puts in place of
a value that it did not read. Tables of Hudi with a partial update mode say which of the last two.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.config.merge_entries import FILL_UNAVAILABLE, IGNORE_DEFAULTS
from bucketlake.config.table_config import TableConfig
from bucketlake.merge.incoming import BoolArray


@dataclass(frozen=True, slots=True)
class Gaps:
    """Which values count as not given.

    Attributes
    ----------
    missing : collection of str
        Columns without any value.
    nulls : bool
        Whether a null is a gap.
    marker : str or None
        A text that is a gap, in columns of texts and bytes.
    """

    missing: Collection[str] = frozenset()
    nulls: bool = False
    marker: str | None = None

    @classmethod
    def of_table(cls, config: TableConfig) -> Self | None:
        """Return the gaps of a table with a partial update mode; None without such a mode.

        Notes
        -----
        ``PartialUpdateHandler`` of Hudi 1.2.0. Its mode IGNORE_DEFAULTS compares a value with the
        column's default by identity, so that no value but null is a gap.
        """
        if config.partial_update_mode == IGNORE_DEFAULTS:
            return cls(nulls=True)
        if config.partial_update_mode == FILL_UNAVAILABLE:
            return cls(marker=config.unavailable_value)
        return None

    def __bool__(self) -> bool:
        return bool(self.missing) or self.nulls or self.marker is not None

    def of(self, name: str, values: pa.Array | pa.ChunkedArray) -> BoolArray | None:
        """Return which values of a column are gaps; None if none can be."""
        if name in self.missing:
            return np.ones(len(values), np.bool_)
        found: BoolArray | None = None
        if self.nulls and values.null_count:
            found = values.is_null().to_numpy(zero_copy_only=False)
        if self.marker is not None:
            marked = _equal(values, self.marker)
            found = marked if found is None or marked is None else found | marked
        return found


def _equal(values: pa.Array | pa.ChunkedArray, marker: str) -> BoolArray | None:
    if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        return None
    wanted = pa.scalar(marker.encode(), pa.binary()).cast(values.type)
    equal: BoolArray = pc.fill_null(pc.equal(values, wanted), False).to_numpy(zero_copy_only=False)
    return equal
