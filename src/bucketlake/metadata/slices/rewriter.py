"""The work of a compaction of the metadata table, slice by slice: in this process or in tasks.

The driver plans the slices (``metadata/slices/slice_compaction.py``), and publishes the compaction
after all are rewritten. Each slice becomes one base file, whose name and bytes follow from the
plan, so a task may run twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bucketlake.flow.stage import JobStage
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


@dataclass(frozen=True, slots=True)
class SliceRewriter:
    """The values that all tasks of one compaction share; picklable.

    Attributes
    ----------
    table : MetadataTable
        The metadata table, as it was planned.
    instant : InstantTime
        Instant of the compaction.
    """

    table: MetadataTable
    instant: InstantTime

    @property
    def inflight(self) -> str:
        """Path of the inflight file, which exists while the compaction is pending."""
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
