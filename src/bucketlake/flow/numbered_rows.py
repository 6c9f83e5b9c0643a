"""Rows of a task that are divided by a column of numbers: one number for each of its plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from bucketlake.flow.stage import IntArray


@dataclass(frozen=True, slots=True, eq=False)
class NumberedRows:
    """Rows in the order of their numbers; rows with one number keep their order.

    Attributes
    ----------
    rows : pa.Table
        The rows.
    numbers : ndarray of int32, ascending
        Their numbers.
    """

    rows: pa.Table
    numbers: IntArray

    @classmethod
    def of(cls, rows: pa.Table, column: str) -> Self:
        """Order rows by a column; rows that are in order are not copied."""
        numbers = rows[column].to_numpy()
        order = np.argsort(numbers, kind="stable")
        if (np.diff(order) != 1).any():
            rows, numbers = rows.take(pa.array(order)), numbers[order]
        return cls(rows, numbers)

    def with_number(self, number: int) -> pa.Table:
        """Return the rows with a number, without copying them."""
        start, end = np.searchsorted(self.numbers, [number, number + 1])
        return self.rows.slice(start, end - start)
