"""The state of a table for the checks of the doctor: listed once, files before the timeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from bucketlake.config.paths_of_table import HEARTBEAT_FOLDER, MARKER_FOLDER
from bucketlake.config.table_config import TableConfig
from bucketlake.errors import FormatError, HashingMetadataError, UnsupportedFeatureError
from bucketlake.format.properties import PARTITION_METADATA_PREFIX
from bucketlake.index.setting import TableIndex, resolve_index
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.write_stat import WriteStat
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.slices.file_system_view import data_file, list_objects
from bucketlake.storage.base import Storage, StoredObject
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_reader import read_archive
from bucketlake.timeline.instant import Action, Instant, instant_from_ms
from bucketlake.timeline.open_table import OpenTable


@dataclass(frozen=True)
class Examination:
    """The listed files and instants of a table, and values derived from them.

    Attributes
    ----------
    opened : OpenTable
        The table.
    given : TableIndex or None
        The index that the caller states.
    timeline : Timeline
        The timeline, listed after the objects.
    objects : mapping of str to StoredObject
        Data files, partition markers, and all other objects outside ``.hoodie``, by path.
    left : mapping of str to StoredObject
        Markers and heartbeats, by path.
    min_age_ms : int
        Smallest age of a leftover.
    """

    opened: OpenTable
    given: TableIndex | None
    timeline: Timeline
    objects: Mapping[str, StoredObject]
    left: Mapping[str, StoredObject]
    min_age_ms: int

    @property
    def storage(self) -> Storage:
        """The table's storage."""
        return self.opened.storage

    @property
    def config(self) -> TableConfig:
        """The table's properties."""
        return self.opened.config

    @cached_property
    def files(self) -> list[DataFile]:
        """All base and log files, inside and outside of partitions."""
        files = (data_file(stored) for stored in self.objects.values())
        return [file for file in files if file is not None]

    @cached_property
    def marked(self) -> set[str]:
        """Folders with a partition marker, which readers treat as partitions."""
        places = (path.rpartition("/") for path in self.objects)
        return {folder for folder, _, name in places if name.startswith(PARTITION_METADATA_PREFIX)}

    @cached_property
    def snapshot(self) -> Snapshot:
        """The table, pinned."""
        return load_snapshot(self.opened, self.timeline, lists_storage=True)

    @cached_property
    def slices(self) -> list[FileSlice]:
        """The live slices of the partitions that readers see."""
        return self.snapshot.live_slices(f for f in self.files if f.partition_path in self.marked)

    @cached_property
    def index(self) -> TableIndex | None:
        """The table's index; None if it is unknown, or bucketlake does not support it."""
        try:
            return resolve_index(self.opened, self.timeline, self.given)
        except UnsupportedFeatureError:  # The rules are not supported.
            return None

    @cached_property
    def broken_rings(self) -> dict[str, FormatError | HashingMetadataError]:
        """Why the hash rings of partitions cannot be read, by partition path."""
        kind = self.index.resized if self.index is not None else None
        found: dict[str, FormatError | HashingMetadataError] = {}
        if kind is not None:
            rings = kind.layout()
            for partition in {file_slice.partition_path for file_slice in self.slices}:
                try:
                    rings.state(partition)
                except (FormatError, HashingMetadataError) as error:
                    found[partition] = error
        return found

    @cached_property
    def placed(self) -> list[FileSlice]:
        """The live slices of the partitions whose buckets are known."""
        return [held for held in self.slices if held.partition_path not in self.broken_rings]

    @cached_property
    def pending(self) -> set[InstantTime]:
        """The times of the pending instants."""
        return {instant.requested_at for instant in self.timeline.pending()}

    @cached_property
    def committed(self) -> dict[str, tuple[Instant, WriteStat]]:
        """The files that commits of the timeline wrote, by path; the newest commit wins."""
        commits = self.timeline.read_commits(self.storage, self.timeline.completed_commits())
        return {stat.path: (instant, stat) for instant, commit in commits for stat in commit.stats}

    @cached_property
    def active(self) -> set[InstantTime]:
        """The instants of the timeline that write data, in any state."""
        return {i.requested_at for i in self.timeline.instants if i.action.writes_data}

    @cached_property
    def archived(self) -> dict[InstantTime, str]:
        """The actions of the instants that left the active timeline for the archive."""
        entries = read_archive(self.opened, with_metadata=False)
        return {entry.requested_at: entry.action for entry in entries}

    def is_delta_commit(self, instant: InstantTime) -> bool:
        """Return whether an instant, perhaps an archived one, is a delta commit."""
        if instant in self.active:
            found = self.timeline.find_completed(instant)
            return found is not None and found.action is Action.DELTA_COMMIT
        return self.archived.get(instant) == Action.DELTA_COMMIT.value

    def instants_below(self, folder: str) -> set[InstantTime]:
        """Return the instants in a folder whose objects are all old enough to be leftovers."""
        held: dict[str, bool] = {}
        for path, stored in self.left.items():
            if path.startswith(f"{folder}/"):
                name = path.removeprefix(f"{folder}/").partition("/")[0]
                held[name] = held.get(name, True) and self.is_old(stored)
        return {InstantTime(name) for name, is_old in held.items() if is_old}

    def is_old(self, stored: StoredObject) -> bool:
        """Return whether an object is older than the writes of a running writer can be."""
        return self.opened.clock.now_ms() - stored.modified_at_ms >= self.min_age_ms

    def is_old_instant(self, instant: InstantTime) -> bool:
        """Return whether an instant was requested before the smallest age of a leftover."""
        oldest = instant_from_ms(
            self.opened.clock.now_ms() - self.min_age_ms, self.config.timeline_timezone
        )
        return instant <= oldest


def examine(table: OpenTable, given: TableIndex | None, *, min_age_ms: int) -> Examination:
    """List a table."""
    objects = {stored.path: stored for stored in list_objects(table.storage)}
    left = {
        stored.path: stored
        for folder in (MARKER_FOLDER, HEARTBEAT_FOLDER)
        for stored in table.storage.list(folder)
    }
    timeline = load_timeline(table)
    return Examination(table, given, timeline, objects, left, min_age_ms)
