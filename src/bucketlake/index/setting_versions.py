"""Versions of an index setting: a file for each commit that changes it, in a folder of the setting.

A version is valid if its commit is completed on the timeline, so undo, restore and time travel find
the setting of their time. What a version contains is the business of its setting
(``index/group_sizes.py``, ``index/kind_versions.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bucketlake.config.paths_of_table import EXTENSION_FOLDER
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.outcome import is_committed

_SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class SettingVersions:
    """The versions of one setting.

    Attributes
    ----------
    name : str
        Name of its folder.
    """

    name: str

    @property
    def folder(self) -> str:
        """The folder, relative to the table."""
        return f"{EXTENSION_FOLDER}/{self.name}"

    def path(self, instant: InstantTime) -> str:
        """Return the path of a commit's version, relative to the table."""
        return f"{self.folder}/{instant}{_SUFFIX}"

    def save(self, storage: Storage, instant: InstantTime, data: bytes) -> None:
        """Save a version; raise AlreadyExistsError if its instant already has a version."""
        storage.put_if_absent(self.path(instant), data)

    def committed(self, storage: Storage, timeline: Timeline) -> list[InstantTime]:
        """Return the instants of the versions that are valid, sorted by completion time."""
        valid = [at for at in self._instants(storage) if is_committed(storage, timeline, at)]
        return sorted(valid, key=lambda instant: timeline.completion_time(instant) or instant)

    def latest(self, storage: Storage, timeline: Timeline) -> InstantTime | None:
        """Return the instant of the newest valid version; None if there is none."""
        instants = self.committed(storage, timeline)
        return instants[-1] if instants else None

    def forget(self, storage: Storage, instants: Callable[[InstantTime], bool]) -> None:
        """Delete the versions of commits that another program rolled back."""
        for instant in [*self._instants(storage)]:
            if instants(instant):
                storage.delete(self.path(instant))

    def _instants(self, storage: Storage) -> Iterator[InstantTime]:
        for stored in storage.list(self.folder, recursive=False):
            name = stored.path.rpartition("/")[2]
            if name.endswith(_SUFFIX):
                yield InstantTime(name.removesuffix(_SUFFIX))
