"""When the instants in the names of log files completed: the order of log files since version 8.

A log file belongs to the newest base file that was requested before the log file's instant
completed (Hudi's table format, "file slices"). The timeline knows most completion times; those of
archived instants are read from the archive, and only if they matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from bucketlake.model.file_name import InstantTime
from bucketlake.timeline.active import Timeline

CompletionTimes: TypeAlias = Callable[[InstantTime, InstantTime], Mapping[InstantTime, InstantTime]]


class LogCompletions:
    """Decides which slice a log file belongs to, and the order of log files.

    Parameters
    ----------
    timeline : Timeline
        The timeline of the table.
    archived : callable, optional
        Returns the completion times of archived instants between two instants.
    """

    def __init__(self, timeline: Timeline, archived: CompletionTimes | None) -> None:
        self._timeline, self._archived = timeline, archived
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
        if self._archived is None or start is None or instant >= start:
            return None
        known = self._known
        if known is None or instant < known[0]:
            known = self._known = instant, self._archived(instant, start)
        return known[1].get(instant)
