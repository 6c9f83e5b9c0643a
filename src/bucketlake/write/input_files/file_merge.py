"""Files as the source of a merge.

A merge that is an upsert writes the files as an upsert of them does. For other merges the engine
reads their rows, once, and joins them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import pyarrow as pa

from bucketlake.write.input_files.file_source import FileSource
from bucketlake.write.merge_rows import source_schema
from bucketlake.write.merge_write import MergeJoin, MergeSource


class FileMerge:
    """The source of a merge, in files.

    Parameters
    ----------
    files : FileSource
        The files.
    read : callable
        Reads the files, and returns their rows as the source of a merge.
    """

    def __init__(self, files: FileSource, read: Callable[[], MergeSource]) -> None:
        self._files, self._read = files, read
        self._joined: MergeSource | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of the source; an upsert may drop some of them later."""
        return source_schema(self._files.schema)

    def records(self) -> FileSource:
        """Return the files as the records of an upsert."""
        return self._files

    def join(self) -> MergeJoin:
        """Return what joins the rows of the files with the table."""
        if self._joined is None:
            self._joined = self._read()
        return self._joined.join()

    def close(self) -> None:
        """Drop what is kept of the files."""
        self._files.close()
        if self._joined is not None:
            self._joined.close()


def rows_in_files(files: FileSource) -> pa.Table:
    """Read files into memory."""
    reader, pieces = files.reading()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        tables = [table for read in pool.map(lambda p: [*reader.read(p)], pieces) for table in read]
    return pa.concat_tables([reader.schema.empty_table(), *tables])
