"""Copies of log files for file groups that are being resized (RFC-42, "Virtual Log File").

While a resize is pending, the records of a write are in the log files of the old file groups, and
readers see them there. The new file groups need the same records once the resize completes. So the
commit repeats each such log file under a second name in the new group. The name has the instant of
the resize, which hides the copy until the resize completes. The storage makes the copy: a hard link
on a local disk, an object copy in an object store.

The driver makes the copies after it took its turn in the order of commits. A resize takes a turn to
complete, too. So a resize never completes while a write has copies and is not yet decided, and no
reader sees records of a write that is rolled back. If the resize completed since the write began,
the copies are ordinary log files of the new groups, named by the write.

A name is a function of the write, the resize and the old group. The write token starts with the
instant of the write, so that readers, which order the log files of one instant by token, see the
copies in the order of their writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from bucketlake.actions.progress import LOGGER
from bucketlake.model.file_name import InstantTime, LogFileName, file_path, log_instant
from bucketlake.model.write_stat import WriteStat
from bucketlake.storage.base import Storage, at_once
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.markers import Marker, MarkerType, write_markers
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import is_rolled_back


@dataclass(frozen=True, slots=True)
class LogCopyFile:
    """A copy that a commit makes.

    Attributes
    ----------
    source : str
        Path of the log file that is repeated.
    stat : WriteStat
        The copy. Its records are counted for the source alone.
    """

    source: str
    stat: WriteStat


def log_copies(
    storage: Storage, timeline: Timeline, instant: InstantTime, stats: Iterable[WriteStat]
) -> list[LogCopyFile]:
    """Return the copies that a commit needs, as of a point of the timeline.

    Parameters
    ----------
    storage : Storage
        The table's storage.
    timeline : Timeline
        The newest timeline.
    instant : InstantTime
        The write.
    stats : iterable of WriteStat
        Files of the write.
    """
    wanted = [(stat, stat.log_copy) for stat in stats if stat.log_copy is not None]
    pending = {
        resize: _is_pending(storage, timeline, resize) for resize in {c.resize for _, c in wanted}
    }
    copies, names_slices = [], timeline.layout.logs_name_slices
    for stat, copy in wanted:
        if not pending[copy.resize] and timeline.find_completed(copy.resize) is None:
            continue  # The resize was withdrawn: its groups will never be read.
        if pending[copy.resize] or names_slices:
            # While the resize is pending, the name hides the copy.
            name = LogFileName.in_slice(copy.file_id, copy.resize, 1, instant, copy.number)
        else:
            name = LogFileName(copy.file_id, instant, 1, f"1-{copy.number}-1")
        path = file_path(stat.partition_path, name.to_file_name())
        own = WriteStat(
            copy.file_id,
            path,
            stat.partition_path,
            name.instant if names_slices else instant,
            stat.previous_base_file,
            file_size_bytes=stat.file_size_bytes,
            statistics=stat.statistics,
        )
        copies.append(LogCopyFile(stat.path, own))
    return copies


def committed_copies(
    storage: Storage, timeline: Timeline, resizes: Collection[InstantTime]
) -> list[WriteStat]:
    """Return the copies that completed commits have for some resizes.

    A metadata table that was built while the resize was pending may lack them: Hudi lists only the
    files of completed instants then.
    """
    if not resizes:
        return []
    commits = timeline.read_commits(storage, timeline.completed_commits())
    stats = (stat for _, commit in commits for stat in commit.stats)
    return [stat for stat in stats if log_instant(stat.path) in resizes]


def make_log_copies(table: OpenTable, instant: InstantTime, copies: Sequence[LogCopyFile]) -> None:
    """Have the storage make the copies after their markers; repeating it does no harm."""
    storage = table.storage
    kind = MarkerType.of_log_file(table.config.layout)
    places = (copy.stat.path.rpartition("/") for copy in copies)
    write_markers(storage, instant, (Marker(folder, name, kind) for folder, _, name in places))
    shared = at_once(storage, lambda copy: storage.duplicate(copy.source, copy.stat.path), copies)
    if not all(shared):
        LOGGER.warning(
            "%s wrote %d log files twice, because a resize is pending and the storage cannot "
            "duplicate files by itself",
            instant,
            len(shared) - sum(shared),
        )


def _is_pending(storage: Storage, timeline: Timeline, resize: InstantTime) -> bool:
    on_timeline = any(pending.requested_at == resize for pending in timeline.pending_clusterings())
    return on_timeline and not is_rolled_back(storage, resize)
