"""Records of the partition ``files``: the list of partitions, and the files of a partition.

A record has a map from names to sizes. The list of partitions has paths with size 0. How newer maps
change older maps is left to the reader of the metadata table.
"""

from __future__ import annotations

import pyarrow as pa

from bucketlake.format.avro.cursor import Cursor, Ints
from bucketlake.format.avro.read_columns import Make, read_column
from bucketlake.format.avro.tree import AvroNode, Wire
from bucketlake.format.avro.write_columns import join, write_column
from bucketlake.format.metadata_record.record_schema import (
    BOOLEAN,
    RecordKind,
    read_payloads,
    record_frame,
)

FILES_KINDS = (RecordKind.PARTITION_LIST, RecordKind.FILES)

_INFO = pa.struct(
    [
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("is_deleted", pa.bool_(), nullable=False),
    ]
)
FILE_MAP = pa.map_(pa.string(), pa.field("value", _INFO, nullable=False))
"""Type of a column of maps: file name to ``size_bytes`` and ``is_deleted``."""

_LONG = AvroNode(Wire.LONG, pa.int64())
_NODE = AvroNode(
    Wire.MAP,
    FILE_MAP,
    children=(
        AvroNode(Wire.STRING, pa.string()),
        AvroNode(Wire.RECORD, _INFO, children=(_LONG, BOOLEAN)),
    ),
)


def encode_file_maps(kind: RecordKind, maps: pa.MapArray) -> pa.BinaryArray:
    """Encode records of ``files``.

    Parameters
    ----------
    kind : RecordKind
        ``PARTITION_LIST`` for the one list of partitions, otherwise ``FILES``.
    maps : pyarrow.MapArray
        Of type ``FILE_MAP``. Entries are written in their order.
    """
    assert kind in FILES_KINDS, "a kind of the partition files"
    start, end = (pa.scalar(part) for part in record_frame(kind))
    return join([start, *write_column(_NODE, maps), end])


def decode_file_maps(values: pa.BinaryArray, path: str) -> tuple[Ints, pa.MapArray]:
    """Decode records of ``files``.

    Parameters
    ----------
    values : pyarrow.BinaryArray
        Values of an HFile.
    path : str
        The file, for messages.

    Returns
    -------
    kinds : ndarray of int64, shape (n_records,)
        ``PARTITION_LIST`` or ``FILES``.
    maps : pyarrow.MapArray
        Of type ``FILE_MAP``.

    Raises
    ------
    FormatError
        If a value is malformed, or no record of ``files``; the error names the file.
    """
    makes: list[Make] = []

    def read(cursor: Cursor) -> None:
        makes.append(read_column(_NODE, cursor))

    kinds = read_payloads(values, path, FILES_KINDS, read)
    return kinds, makes[0]()
