"""The work of a compaction of the metadata table, slice by slice: in this process or in tasks.

The driver plans the slices (``metadata/slices/slice_compaction.py``), and publishes the compaction
after all are rewritten. Each slice becomes one base file, whose name and bytes follow from the
plan, so a task may run twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bucketlake.errors import BucketLakeError, StorageError
from bucketlake.flow.stage import Engine, JobStage
from bucketlake.metadata.creation import base_file_name
from bucketlake.metadata.metadata_table import MetadataTable
from bucketlake.metadata.slices.log_files import created_ms
from bucketlake.metadata.slices.rewrite import rewrite_slice
from bucketlake.model.file_name import InstantTime, file_path
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.write_stat import NO_PREVIOUS_COMMIT, WriteStat
from bucketlake.timeline.data_file import put_data_file
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.markers import Marker, MarkerType
from bucketlake.timeline.transitions import instant_path

HERE_BYTES_MAX = 64 * 2**20
"""Up to this size of their files, slices are rewritten in the driver, in a few seconds.

50 MB, an index of 4 million keys, took 3.2 processor seconds in the driver and 5.3 in tasks.
"""


@dataclass(frozen=True, slots=True)
class SliceRewriter:
    """The values that all tasks of one compaction share; picklable.

    Attributes
    ----------
    table : MetadataTable
        The metadata table, as it was planned.
    instant : InstantTime
        Instant of the compaction.
    pending_path : str
        Path of a file of the metadata table that exists while the compaction may be completed;
        by default that of its inflight file.
    """

    table: MetadataTable
    instant: InstantTime
    pending_path: str = ""

    @property
    def inflight(self) -> str:
        """Path of a file that exists while the compaction is pending."""
        if self.pending_path:
            return self.pending_path
        pending = Instant(self.instant, Action.COMPACTION, State.INFLIGHT)
        return instant_path(self.table.config, pending)

    def rewrite(self, held: FileSlice) -> tuple[WriteStat, bytes] | None:
        """Return a new base file, which is not written yet; None if the log files change nothing.

        Raises
        ------
        CommitConflictError, FormatError, UnsupportedFeatureError, InputError
            As ``rewrite_slice``.
        """
        base, partition = held.base_file, held.partition_path
        made = rewrite_slice(
            self.table,
            held,
            created_at_ms=created_ms(self.instant, self.table.config.timeline_timezone),
        )
        if made is None:
            return None
        name = base_file_name(held.file_id, self.instant).to_file_name()
        stat = WriteStat(
            file_id=held.file_id,
            path=file_path(partition, name),
            partition_path=partition,
            previous_commit=NO_PREVIOUS_COMMIT if base is None else base.name.instant,
            previous_base_file=None if base is None else base.name.to_file_name(),
            record_count=made.entry_count,
            update_count=made.entry_count,
            file_size_bytes=len(made.data),
        )
        return stat, made.data

    def write(self, held: FileSlice) -> WriteStat | None:
        """Write the new base file of a slice, in this process."""
        made = self.rewrite(held)
        if made is None:
            return None
        stat, data = made
        self.table.storage.put(stat.path, data)
        return stat


@dataclass(frozen=True, slots=True)
class RewriteStage(JobStage):
    """Writes new base files in tasks that may run twice or late."""

    rewriter: SliceRewriter

    def run(self, plans: Sequence[FileSlice], _: object) -> Iterator[WriteStat]:
        """Write the base file of each slice, with its marker."""
        for held in plans:
            made = self.rewriter.rewrite(held)
            if made is not None:
                yield self._put(*made)

    def _put(self, stat: WriteStat, data: bytes) -> WriteStat:
        storage, name = self.rewriter.table.storage, stat.path.rpartition("/")[2]
        marker = Marker(stat.partition_path, name, MarkerType.CREATE)
        instant, inflight = self.rewriter.instant, self.rewriter.inflight
        if not put_data_file(storage, instant, inflight, marker, data, place=storage):
            stored = storage.stat(stat.path)  # Another deflate library makes another size.
            if stored is not None:
                return replace(stat, file_size_bytes=stored.size_bytes)
        return stat


def rewrite_slices(
    rewriter: SliceRewriter, slices: Sequence[FileSlice], engine: Engine
) -> list[WriteStat]:
    """Write the new base files of slices, in this process or in tasks.

    Raises
    ------
    CommitConflictError, FormatError, UnsupportedFeatureError, InputError
        As ``rewrite_slice``.
    StorageError
        If the engine failed.
    """
    sizes = [held.size_bytes for held in slices]
    if engine.in_memory or sum(sizes) <= HERE_BYTES_MAX:
        written = map(rewriter.write, slices)
        return [stat for stat in written if stat is not None]
    return _rewritten_in_tasks(engine, rewriter, slices, sizes)


def _rewritten_in_tasks(
    engine: Engine,
    rewriter: SliceRewriter,
    slices: Sequence[FileSlice],
    sizes: Sequence[int],
) -> list[WriteStat]:
    try:
        stats: list[WriteStat] = engine.start(RewriteStage(rewriter), slices, sizes).results()
    except BucketLakeError:
        raise
    except Exception as error:  # The commit before the compaction is complete, and must not fail.
        folder, doing = rewriter.table.storage.folder, "compact in tasks"
        raise StorageError(folder, doing, str(error)) from error
    return stats
