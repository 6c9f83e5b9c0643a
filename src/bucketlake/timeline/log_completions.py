"""When the instants in the names of log files completed: the order of log files since version 8.

A log file belongs to the newest base file that was requested before the log file's instant
completed (Hudi's table format, "file slices"). The timeline knows most completion times; those of
archived instants are read from the archive, and only if they matter.
"""

from __future__ import annotations

from collections.abc import Mapping

from bucketlake.model.file_name import InstantTime
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.archive_reader import archived_completion_times
from bucketlake.timeline.open_table import OpenTable


class LogCompletions:
    """Decides which slice a log file belongs to, and the order of log files.

    Parameters
    ----------
    table : OpenTable
        The table, whose archive may be read.
    timeline : Timeline
        Its timeline, perhaps restricted to an earlier time.
    """

    def __init__(self, table: OpenTable, timeline: Timeline) -> None:
        self._table, self._timeline = table, timeline
        # What was read, and from which instant on: one value, because threads share the object.
        self._known: tuple[InstantTime, Mapping[InstantTime, InstantTime]] | None = None

    def is_after(self, instant: InstantTime, base: InstantTime) -> bool:
        """Return whether a log file's instant completed after the base file was requested."""
        if instant >= base:
            return True
        if self._timeline.layout.logs_name_slices:
            return False  # The name of a log file then has the instant of its slice.
        completed_at = self.time(instant)
        return completed_at is not None and completed_at >= base

    def time(self, instant: InstantTime) -> InstantTime | None:
        """Return when an instant completed; None if neither timeline nor archive says it."""
        return self._timeline.completion_time(instant) or self._archived_time(instant)

    def _archived_time(self, instant: InstantTime) -> InstantTime | None:
        start = self._timeline.start
        if start is None or instant >= start:
            return None
        known = self._known
        if known is None or instant < known[0]:
            times = archived_completion_times(self._table, since=instant, until=start)
            known = self._known = instant, times
        return known[1].get(instant)
