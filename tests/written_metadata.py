"""A data table in memory with a metadata table that bucketlake writes, for tests of the writing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import AlreadyExistsError
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.metadata.changes import (
    MetadataChange,
    publish_change,
    write_change,
)
from bucketlake.metadata.creation import (
    create_metadata_table,
    initial_instant,
    initialise_partitions,
    usual_file_groups,
)
from bucketlake.metadata.file_listing import entries_of_table
from bucketlake.metadata.log_files import GroupEntries
from bucketlake.metadata.metadata_table import MetadataTable, inner_table, open_metadata_table
from bucketlake.model.file_name import InstantTime
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.storage.base import Storage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.instant import Action, Instant, State, shift_instant
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.timeline.table_properties import create_properties
from bucketlake.timeline.transitions import instant_path

FILES, COLUMN_STATS, PARTITION_STATS, RECORD_INDEX = MetadataPartition
CONFIG = TableConfig(
    "trips",
    TableType.COPY_ON_WRITE,
    KeySpec(("id",), ("region",), KeyGenerator.SIMPLE),
    MergeMode.COMMIT_TIME,
    metadata_partitions=("files",),
)
_EPOCH = InstantTime("20240102030405000")


def at(seconds: float) -> InstantTime:
    """Return a time some seconds after the tables began."""
    return shift_instant(_EPOCH, timedelta(seconds=seconds))


class WrittenTable:
    """A data table of which only the timeline exists, and its metadata table.

    Parameters
    ----------
    storage : Storage, optional
        Storage of the table.
    partitions : sequence of MetadataPartition
        Partitions of the metadata table; they are initialised without entries.
    """

    def __init__(
        self,
        storage: Storage | None = None,
        partitions: Sequence[MetadataPartition] = (FILES,),
    ) -> None:
        self.storage = MemoryStorage.fresh() if storage is None else storage
        self.config = replace(CONFIG, metadata_partitions=tuple(map(str, partitions)))

    def create(self) -> WrittenTable:
        """Create the metadata table, and the properties of the data table."""
        create_metadata_table(opened_table(self.storage, self.config))
        for number, name in enumerate(self.config.metadata_partitions):
            partition = MetadataPartition(name)
            first = entries_of_table({}) if partition is FILES else GroupEntries()
            groups = dict.fromkeys(usual_file_groups(partition), first)
            initialise_partitions(
                opened_table(self.storage, self.config),
                {partition: groups},
                instant=initial_instant(number),
                completed_at=at(number / 1000),
            )
        with suppress(AlreadyExistsError):
            create_properties(self.storage, self.config.to_properties())
        return self

    def seen_by(self, storage: Storage) -> WrittenTable:
        """Return the table as another process sees it."""
        return WrittenTable(
            storage, [MetadataPartition(n) for n in self.config.metadata_partitions]
        )

    @property
    def inner(self) -> OpenTable:
        """The metadata table, for its paths."""
        return inner_table(opened_table(self.storage, self.config))

    @property
    def timeline(self) -> Timeline:
        """The data timeline."""
        return load_timeline(opened_table(self.storage, self.config))

    def open(self) -> MetadataTable:
        """Open the metadata table."""
        return open_metadata_table(opened_table(self.storage, self.config), self.timeline)

    def begin(self, instant: InstantTime, action: Action = Action.COMMIT) -> None:
        """Put an action on the data timeline."""
        for state in (State.REQUESTED, State.INFLIGHT):
            self.storage.put(self._path(Instant(instant, action, state)), b"")

    def complete(
        self, instant: InstantTime, completed_at: InstantTime, action: Action = Action.COMMIT
    ) -> None:
        """Complete an action on the data timeline."""
        done = Instant(instant, action, State.COMPLETED, completed_at)
        self.storage.put(self._path(done), b"")

    def commit(
        self,
        instant: InstantTime,
        completed_at: InstantTime,
        change: MetadataChange,
        action: Action = Action.COMMIT,
    ) -> None:
        """Carry out an action on both timelines, in the order of a writer."""
        self.begin(instant, action)
        content = write_change(self.open(), instant, change)
        publish_change(opened_table(self.storage, self.config), instant, completed_at, content)
        self.complete(instant, completed_at, action)

    def write_files(self, seconds: float, files: Mapping[str, Mapping[str, int]]) -> InstantTime:
        """Commit files; the commit takes a second. Return its instant."""
        change = MetadataChange(written=files, listed=list(files))
        self.commit(at(seconds), at(seconds + 1), change)
        return at(seconds)

    def _path(self, instant: Instant) -> str:
        return instant_path(self.config, instant)
