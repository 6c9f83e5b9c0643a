"""Log files of timeline layout 1 that a rollback of a failed write must not delete.

There the name of a log file has the instant of its slice. So a file that a marker names may be in
the plan of a compaction, which reads the log files that it finds: without the file, nobody could
execute the plan. The rollback replaces such a file by a block that cancels those of the write.
Hudi's own rollback always adds such a block, and leaves the file.

On storage that can append, Hudi adds the blocks of several writes to one file. bucketlake does not
roll such a write back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from bucketlake.errors import UnsupportedFeatureError
from bucketlake.format.log_block import encode_rollback_block, read_log_blocks
from bucketlake.model.file_name import InstantTime, LogFileName
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline, planned_slices
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.written_files import written_files


def cancel_blocks(table: OpenTable, instant: InstantTime, paths: Iterable[str]) -> Collection[str]:
    """Cancel the blocks of a failed write in log files that must stay; return these files.

    Parameters
    ----------
    table : OpenTable
    instant : InstantTime
        The failed write.
    paths : iterable of str
        Files that its markers name.

    Raises
    ------
    UnsupportedFeatureError
        If a file has blocks of the write, and of a completed commit.
    """
    names = {path: LogFileName.from_file_name(path.rpartition("/")[2]) for path in paths}
    logs = {path: name for path, name in names.items() if name is not None}
    if not logs:
        return ()
    storage, timeline = table.storage, load_timeline(table)
    foreign = [path for path, name in logs.items() if name.writer != instant]
    kept = _of_commits(storage, timeline, instant, foreign)
    planned = {path for held in planned_slices(storage, timeline) for path in held.paths}
    block = encode_rollback_block(instant, target=instant)
    for path in planned.intersection(logs) - kept:
        if storage.stat(path) is not None:
            storage.put(path, block)
        kept.add(path)
    return kept


def _of_commits(
    storage: Storage, timeline: Timeline, instant: InstantTime, paths: Collection[str]
) -> set[str]:
    """Return the files that completed commits wrote, too."""
    found: set[str] = set()
    if not paths:
        return found
    for _, written in written_files(storage, timeline):
        for files in written.values():
            found |= files.keys() & set(paths)
    for path in found:
        if any(block.instant == instant for block in read_log_blocks(storage, path)):
            raise UnsupportedFeatureError(
                f"rolling back instant {instant}, which appended to a log file of another commit",
                f"{storage.root}/{path}",
                "let Hudi roll it back: its next write does",
            )
    return found
