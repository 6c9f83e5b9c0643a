"""Building the values of Hudi's meta columns, columns at a time.

All follow from (instant, group, position of the row), so two attempts of a task build the same.
Constant columns are dictionaries of one value: Parquet stores them so, and no string is copied.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.model.file_name import InstantTime
from bucketlake.model.schema import META_NAMES

DICTIONARY = pa.dictionary(pa.int32(), pa.string())
"""Type of a meta column that holds few values."""


def meta_columns(
    instant: InstantTime,
    group_ordinal: int,
    record_keys: pa.Array,
    partition_path: str,
    file_name: str,
    *,
    first_row: int = 0,
) -> dict[str, pa.Array]:
    """Build the five meta columns of new rows.

    Parameters
    ----------
    instant : InstantTime
        Requested time of the write.
    group_ordinal : int
        Number of the file group within the write: with the instant and the row it makes the
        sequence number unique.
    record_keys : pyarrow.Array of string
        Keys of the rows, in the file's order.
    partition_path, file_name : str
        Where the rows are written.
    first_row : int
        Position of the first of them in the file.

    Returns
    -------
    dict of str to pyarrow.Array
        By name, in the order of base files.
    """
    count = len(record_keys)
    columns = (
        constant_column(instant, count),
        sequence_numbers(instant, group_ordinal, count, first_row=first_row),
        record_keys,
        constant_column(partition_path, count),
        constant_column(file_name, count),
    )
    return dict(zip(META_NAMES, columns, strict=True))


def constant_column(value: str, count: int) -> pa.DictionaryArray:
    """Repeat a string, without repeating its bytes."""
    indices = pa.array(np.zeros(count, np.int32))
    return pa.DictionaryArray.from_arrays(indices, pa.array([value], pa.string()))


def sequence_numbers(
    instant: InstantTime, group_ordinal: int, count: int, *, first_row: int = 0
) -> pa.StringArray:
    """Make sequence numbers ``<instant>_<group ordinal>_<row>``, rows from ``first_row`` on.

    Examples
    --------
    >>> sequence_numbers("20260101000000000", 3, 2, first_row=9).to_pylist()
    ['20260101000000000_3_9', '20260101000000000_3_10']
    """
    prefix = np.frombuffer(f"{instant}_{group_ordinal}_".encode(), np.uint8)
    texts, widths = [], []
    row, end = first_row, first_row + count
    while row < end:  # One turn for each count of digits: numbers of one width fill a matrix.
        digit_count = len(str(row))
        stop = min(end, 10**digit_count)
        texts.append(_texts(prefix, np.arange(row, stop), digit_count).ravel())
        widths.append(np.full(stop - row, len(prefix) + digit_count, np.int32))
        row = stop
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.concatenate(widths or [offsets[:0]]), out=offsets[1:])
    data = np.concatenate(texts or [prefix[:0]])
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(data))


def _texts(
    prefix: npt.NDArray[np.uint8], numbers: npt.NDArray[np.int64], digit_count: int
) -> npt.NDArray[np.uint8]:
    """Write numbers of one digit count behind a prefix, a row of bytes each."""
    rest: npt.NDArray[np.signedinteger] = numbers.astype(np.int32 if digit_count < 10 else np.int64)
    texts = np.empty((len(rest), len(prefix) + digit_count), np.uint8)
    texts[:, : len(prefix)] = prefix
    for place in range(digit_count - 1, -1, -1):
        quotient = rest // 10
        texts[:, len(prefix) + place] = rest - 10 * quotient + ord("0")
        rest = quotient
    return texts
