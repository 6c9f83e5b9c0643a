"""A snapshot: a table pinned at one point of its timeline, from which every read and write starts.

Picks the live file slices of all or some partitions, and the table's schema at that point. What
lies in the slices is read elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import pyarrow as pa

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import InputError, UnsupportedFeatureError
from bucketlake.format.avro.schema import arrow_from_avro
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.read.clean_guard import require_uncleaned
from bucketlake.read.file_system_view import (
    FileVersion,
    file_versions,
    latest_slices,
    list_files,
    list_marked_files,
    list_partitions,
)
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_reader import archived_completion_times, has_archive


@dataclass(frozen=True, slots=True)
class ListedSlices:
    """The live slices among listed files; whoever uses them has to check for cleans since the pin.

    Attributes
    ----------
    snapshot : Snapshot
        The pinned table.
    files : tuple of DataFile
        What was listed.
    slices : tuple of FileSlice
        The live slices among the files.
    partitions : tuple of str or None
        The partitions that were listed; None for all.
    """

    snapshot: Snapshot
    files: tuple[DataFile, ...]
    slices: tuple[FileSlice, ...]
    partitions: tuple[str, ...] | None

    def require_uncleaned(self, newest: Timeline) -> None:
        """Refuse slices that lack what a clean took.

        Parameters
        ----------
        newest : Timeline
            The table's timeline, listed after the files.

        Raises
        ------
        CommitConflictError
            If the table was cleaned since it was pinned.
        TimelineError
            If it was cleaned since the earlier time that is asked for.
        """
        pinned = self.snapshot
        require_uncleaned(
            pinned.storage,
            pinned.config,
            pinned.timeline,
            newest,
            self.files,
            self.slices,
            self.partitions,
        )


@dataclass(frozen=True)
class Snapshot:
    """A pinned table.

    Attributes
    ----------
    storage, config
        The table.
    timeline : Timeline
        What counts as completed, restricted to the pinned time.
    schema_text : str or None
        Avro schema of the data, as the table tells it; None where it was never told one.
    """

    storage: Storage
    config: TableConfig
    timeline: Timeline
    schema_text: str | None

    @cached_property
    def schema_or_none(self) -> pa.Schema | None:
        """Data schema, without meta columns; None on a table that never had one."""
        return arrow_from_avro(self.schema_text) if self.schema_text else None

    @property
    def schema(self) -> pa.Schema:
        """Data schema, without meta columns; InputError on a table that never had one."""
        schema = self.schema_or_none
        if schema is None:
            raise InputError(
                self.storage.root,
                "the table has no schema yet: nothing was ever written to it",
                "write records first",
            )
        return schema

    def all_slices(self) -> list[FileSlice]:
        """Return the live slices of every partition; the cost follows the table."""
        return self._checked(self.listed(None))

    def partition_slices(self, partitions: Iterable[str]) -> list[FileSlice]:
        """Return the live slices of some partitions; the cost follows those."""
        return self._checked(self.listed(partitions))

    def listed(self, partitions: Iterable[str] | None) -> ListedSlices:
        """Return the live slices of some partitions, or of all, for the caller to check later."""
        if partitions is None:
            files = [f for held in list_partitions(self.storage).values() for f in held]
            return self._among(files, None)
        paths = tuple(partitions)
        return self._among(list_files(self.storage, paths), paths)

    def marked_slices(self, partitions: Iterable[str]) -> list[FileSlice]:
        """Return the live slices of some partitions, as :meth:`all_slices` finds them.

        A folder without a partition marker is no partition to a reader.
        """
        paths = tuple(partitions)
        return self._checked(self._among(list_marked_files(self.storage, paths), paths))

    def versions(self, files: Iterable[DataFile]) -> dict[tuple[str, FileId], list[FileVersion]]:
        """Return all versions of the file groups of some files; see ``file_versions``."""
        return file_versions(self._known(files), self.timeline, self._archived)

    def live_slices(self, files: Iterable[DataFile]) -> list[FileSlice]:
        """Return the live slices among files that were listed, whatever a clean took."""
        replaced = self.timeline.replaced_file_groups(self.storage)
        return latest_slices(self._known(files), self.timeline, replaced, self._archived)

    def _among(self, files: list[DataFile], partitions: tuple[str, ...] | None) -> ListedSlices:
        return ListedSlices(self, tuple(files), tuple(self.live_slices(files)), partitions)

    def _checked(self, listed: ListedSlices) -> list[FileSlice]:
        listed.require_uncleaned(load_timeline(self.storage, self.config))
        return list(listed.slices)

    def _known(self, files: Iterable[DataFile]) -> list[DataFile]:
        """Return the files but those of a writer that began before the timeline, and showed later.

        What is older than the timeline counts as archived, hence completed. Where nothing was ever
        archived it is of a write whose clock is behind, in a table that is hardly older.
        """
        found, start = list(files), self.timeline.start
        if start is None or all(file.name.instant >= start for file in found):
            return found
        if self.timeline.layout_version == 1 or has_archive(self.storage, self.config):
            return found
        return [file for file in found if file.name.instant >= start]

    def __getstate__(self) -> dict[str, Any]:
        # The parsed schema stays behind; whoever unpickles parses it when it is asked for.
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def _archived(
        self, since: InstantTime, until: InstantTime
    ) -> Mapping[InstantTime, InstantTime]:
        return archived_completion_times(self.storage, self.config, since=since, until=until)


def load_snapshot(
    storage: Storage,
    config: TableConfig,
    timeline: Timeline | None = None,
    as_of: str | None = None,
) -> Snapshot:
    """Pin a table.

    Parameters
    ----------
    storage, config
        The table.
    timeline : Timeline, optional
        Its timeline, where the caller has just loaded it.
    as_of : str, optional
        Time travel: instants requested later do not count. See ``Timeline.as_of`` for the forms.

    Raises
    ------
    UnsupportedFeatureError
        If a file's columns may bear other names than the table's.
    """
    pinned = timeline or load_timeline(storage, config)
    if as_of is not None:
        pinned = pinned.as_of(as_of)
    commit = pinned.schema_commit(storage)
    if commit is not None and commit.evolves_on_read:
        # A renamed column would read as nulls, a dropped one of that name as its old values.
        raise UnsupportedFeatureError(
            "schema evolution on read (hoodie.schema.on.read.enable)",
            storage.root,
            "read and write it with Hudi",
        )
    text = (commit.schema_json if commit is not None else None) or config.create_schema
    return Snapshot(storage, config, pinned, text or None)
