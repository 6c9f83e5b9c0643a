"""Packing records for a shuffle: many rows of one task become one binary value.

A shuffle of single rows converts each row from columns, copies it, and converts it back. So the
rows of a task are sent as compressed Arrow streams (pieces), and the engine only moves bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

PIECE_ROWS = 32_768
"""Number of rows that are cut into pieces together: more rows give fewer and longer pieces."""

CHUNK_BYTES = 64 << 20
"""Size at which a chunk ends, even with fewer rows."""

PIECE_BYTES_MAX = 512 << 10
"""Largest size of a piece with several rows, before compression."""

# A piece crosses between Python and the JVM twice, and is kept in the memory of the JVM.
_WRITING = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_READING = pa.ipc.IpcReadOptions(use_threads=False)


def chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Combine batches into chunks of about ``CHUNK_ROWS`` rows."""
    held: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size_bytes += batch.nbytes
        if rows >= PIECE_ROWS or size_bytes >= CHUNK_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size_bytes = [], 0, 0
    if rows:
        yield pa.Table.from_batches(held)


def pack(
    rows: pa.Table, tasks: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], pa.BinaryArray]:
    """Cut rows into pieces by task.

    Parameters
    ----------
    rows : pyarrow.Table
        Rows of any columns, in the order of their tasks.
    tasks : ndarray of int32, shape (n_rows,)
        Tasks of the rows, ascending.

    Returns
    -------
    ndarray of int32, shape (n_pieces,)
        The task of each piece.
    pyarrow.BinaryArray
        The pieces; the rows of a task keep their order.
    """
    packed = rows.combine_chunks()
    rows_max = max(1, PIECE_BYTES_MAX * len(tasks) // max(1, packed.nbytes))
    ends = np.append(np.flatnonzero(tasks[1:] != tasks[:-1]) + 1, len(tasks))
    sink = pa.BufferOutputStream()
    offsets, tasks_of_pieces, start = [0], [], 0
    for end in ends:
        while start < end:
            piece = packed.slice(start, min(rows_max, end - start))
            with pa.ipc.new_stream(sink, piece.schema, options=_WRITING) as stream:
                stream.write_table(piece)
            offsets.append(sink.tell())
            tasks_of_pieces.append(tasks[start])
            start += piece.num_rows
    buffers = [None, pa.py_buffer(np.array(offsets, np.int32)), sink.getvalue()]
    pieces = pa.BinaryArray.from_buffers(pa.binary(), len(tasks_of_pieces), buffers)
    return np.array(tasks_of_pieces, np.int32), pieces


def unpack(piece: pa.BinaryScalar) -> list[pa.RecordBatch]:
    """Return the rows of a piece."""
    return [*pa.ipc.open_stream(piece.as_buffer(), options=_READING)]
