"""Compacting one file slice: merging its rows into a new base file of the file group.

The code runs in a task, which may run twice or late. So the plan fixes the file's name and rows,
and the file is published by put-if-absent while the compaction is pending, as in
``write/group_writer.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from bucketlake.flow.stage import JobStage
from bucketlake.format.base_file import BaseFileReader, encode_base_file
from bucketlake.metadata.statistics.of_file import short_base_file_statistics
from bucketlake.model.file_name import BaseFileName, InstantTime, file_path
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.schema import FILE_NAME, META_NAMES
from bucketlake.model.write_stat import WriteStat
from bucketlake.read.slice_reader import SliceReader
from bucketlake.timeline.data_file import put_data_files
from bucketlake.timeline.markers import Marker, MarkerType
from bucketlake.write.group_writer import WRITE_TOKEN


@dataclass(frozen=True, slots=True)
class Compactor(JobStage):
    """The values that all tasks of one compaction share; small and picklable.

    Attributes
    ----------
    reader : SliceReader
        Merges slices.
    instant : InstantTime
        Instant of the compaction.
    schema : pa.Schema
        Data schema of the new files, without meta columns.
    inflight : str
        Path of the inflight file, which exists while the compaction is pending.
    key_filters : bool
        Whether new files get a key filter; see ``Layout.looks_up``.
    indexed : pa.Schema or None
        Columns whose statistics the metadata table has
        (``metadata/statistics/of_file.py``).
    """

    reader: SliceReader
    instant: InstantTime
    schema: pa.Schema
    inflight: str
    key_filters: bool = False
    indexed: pa.Schema | None = None

    def run(self, plans: Sequence[FileSlice], _: object) -> Iterator[WriteStat]:
        """Compact slices."""
        yield from map(self.compact, plans)

    def compact(self, file_slice: FileSlice) -> WriteStat:
        """Write the new base file of a slice, unless another attempt has written it."""
        storage = self.reader.storage
        partition = file_slice.partition_path
        name = BaseFileName(file_slice.file_id, WRITE_TOKEN, self.instant).to_file_name()
        path = file_path(partition, name)
        if storage.stat(path) is None:
            written = encode_base_file(
                self._rows(file_slice, name),
                self.schema,
                key_filter=self.key_filters,
            )
            kind = MarkerType.CREATE if file_slice.base_file is None else MarkerType.MERGE
            marker = Marker(partition, name, kind)
            put_data_files(storage, self.instant, self.inflight, [(marker, written.data)])
        with BaseFileReader(storage, path) as reader:
            rows, size_bytes = reader.row_count, reader.size_bytes
            statistics = short_base_file_statistics(reader, self.indexed)
        base = file_slice.base_file
        return WriteStat(
            file_id=file_slice.file_id,
            path=path,
            partition_path=partition,
            previous_commit=file_slice.instant,
            previous_base_file=base.name.to_file_name() if base is not None else None,
            record_count=rows,
            file_size_bytes=size_bytes,
            statistics=statistics,
        )

    def _rows(self, file_slice: FileSlice, file_name: str) -> Iterator[pa.Table]:
        columns = [*META_NAMES, *self.schema.names]
        place = columns.index(FILE_NAME)
        for chunk in self.reader.read(file_slice, columns):
            names = pa.repeat(file_name, chunk.num_rows)
            yield chunk.set_column(place, FILE_NAME, names)
