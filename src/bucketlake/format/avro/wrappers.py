"""Wrapped values: records that name the type of their one value, in a union of such records.

Delete blocks have them as ordering values, the metadata table as bounds of columns. A value's place
in the union is its *branch*; branch 0 is null.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from bucketlake.format.avro.cursor import Cursor
from bucketlake.format.avro.read_columns import read_column
from bucketlake.format.avro.tree import AvroNode, Wire
from bucketlake.model.arrays import Ints
from bucketlake.model.column_type import TIMESTAMP

WRAPPERS: tuple[AvroNode, ...] = (  # By branch of the union, from 1 on.
    AvroNode(Wire.BOOLEAN, pa.bool_()),
    AvroNode(Wire.INT, pa.int32()),
    AvroNode(Wire.LONG, pa.int64()),
    AvroNode(Wire.FLOAT, pa.float32()),
    AvroNode(Wire.DOUBLE, pa.float64()),
    AvroNode(Wire.BYTES, pa.binary()),
    AvroNode(Wire.STRING, pa.string()),
    AvroNode(Wire.INT, pa.date32()),
    AvroNode(Wire.BYTES, pa.decimal128(30, 15)),
    AvroNode(Wire.LONG, pa.time64("us")),
    AvroNode(Wire.LONG, TIMESTAMP),
)
LOCAL_DATE = AvroNode(Wire.INT, pa.date32())  # The branch after these, where there is one.
BRANCHES = {node.arrow: branch for branch, node in enumerate(WRAPPERS, 1)}


def read_wrapped(
    cursor: Cursor, branches: Ints, wrappers: Sequence[AvroNode]
) -> dict[int, tuple[Ints, pa.Array]]:
    """Read the values after their branches.

    Parameters
    ----------
    cursor : Cursor
        Before the value in each record; it is moved after the value.
    branches : ndarray of int64, shape (n_records,)
        The branch of each value; 0 has no value. None is beyond the wrappers.
    wrappers : sequence of AvroNode
        The types, from branch 1 on.

    Returns
    -------
    dict
        By branch, the rows and their values.
    """
    found = {}
    for branch in np.unique(branches[branches != 0]).tolist():
        rows = np.flatnonzero(branches == branch)
        inner = cursor.at(cursor.position[rows], cursor.end[rows])
        found[branch] = (rows, read_column(wrappers[branch - 1], inner)())
        cursor.position[rows] = inner.position
    return found
