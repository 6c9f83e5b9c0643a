"""A snapshot: a table pinned at one point of its timeline; every read and write starts from one.

A snapshot finds the live file slices of all or some partitions, and the table's schema at that
point. It takes the names of files from the metadata table where there is one, else from storage.
``read/slice_reader.py`` reads the slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.config.recorded_entries import require_recorded
from bucketlake.config.table_config import TableConfig
from bucketlake.errors import (
    CommitConflictError,
    FormatError,
    InputError,
    MetadataTableError,
    TimelineError,
    UnsupportedFeatureError,
)
from bucketlake.format.avro.tree import understood_columns
from bucketlake.metadata.metadata_table import MetadataTable, open_metadata_table
from bucketlake.model.file_name import FileId, LogFileName
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.grouping import grouped
from bucketlake.model.kept import fields_alone, kept_property
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.names import did_you_mean
from bucketlake.model.partition_path import DEFAULT_PARTITION, decode_segment
from bucketlake.model.schema import RECORD_KEY, with_meta, without_meta
from bucketlake.slices.file_system_view import (
    FileVersion,
    SeenFiles,
    file_versions,
    latest_slices,
    list_files,
    list_marked_files,
    list_partitions,
)
from bucketlake.storage.base import Storage, check_folder
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.other_layout import require_one_timeline
from bucketlake.timeline.table_properties import read_table_config

if TYPE_CHECKING:
    from bucketlake.read.clean_guard import CommittedFile
    from bucketlake.slices.stored_keys import StoredKeyReader, VirtualKeys

_Answer = TypeVar("_Answer")


# ---- Partition columns that files lack: their values come from the partition path ----------------
#
# Hudi leaves them out if ``hoodie.datasource.write.drop.partition.columns`` is set. The table's
# schema lacks them, too; readers append them as text, as Hudi's reader does, whatever their type
# was.


@dataclass(frozen=True, slots=True)
class DroppedColumns:
    """The partition columns that files lack.

    Attributes
    ----------
    key_spec : KeySpec
        How partition paths are made.
    """

    key_spec: KeySpec

    @classmethod
    def of_config(cls, config: TableConfig) -> DroppedColumns | None:
        """Return what a table lacks; None if its files have all columns."""
        return cls(config.key_spec) if config.drop_partition_columns else None

    def schema_with(self, schema: pa.Schema) -> pa.Schema:
        """Append the columns to the schema of the files."""
        held = frozenset(schema.names)
        absent = [name for name in self.key_spec.partition_fields if name not in held]
        return pa.schema([*schema, *(pa.field(name, pa.string()) for name in absent)])

    def stored(self, needed: pa.Schema) -> pa.Schema:
        """Return the columns to read from files; at least one, which tells the number of rows."""
        names = self.key_spec.partition_fields
        held = pa.schema([field for field in needed if field.name not in names])
        return held if len(held) else pa.schema([(RECORD_KEY, pa.string())])

    def completed(self, rows: pa.Table, needed: pa.Schema, partition_path: str) -> pa.Table:
        """Add the columns to rows of a partition.

        Raises
        ------
        FormatError
            If the path does not have a value for each column.
        """
        values = self.values(partition_path)
        columns = [
            pa.repeat(pa.scalar(values[field.name], pa.string()).cast(field.type), rows.num_rows)
            if field.name in values
            else rows[field.name]
            for field in needed
        ]
        return pa.Table.from_arrays(columns, schema=needed)

    def values(self, partition_path: str) -> dict[str, str | None]:
        """Return the values in a partition path.

        Examples
        --------
        >>> from bucketlake.model.keys import KeyGenerator
        >>> fields = ("id",), ("day", "place")
        >>> spec = KeySpec(*fields, KeyGenerator.COMPLEX, hive_style=True, url_encode=True)
        >>> DroppedColumns(spec).values("day=1/place=a%2Fb")
        {'day': '1', 'place': 'a/b'}
        """
        names, segments = self.key_spec.partition_fields, partition_path.split("/")
        if len(segments) != len(names):
            expected = f"a partition path with values of {', '.join(names)}"
            raise FormatError(partition_path, expected, f"{len(segments)} folders")
        pairs = zip(names, segments, strict=True)
        return {name: self._value(name, segment) for name, segment in pairs}

    def _value(self, name: str, segment: str) -> str | None:
        text = segment.removeprefix(f"{name}=") if self.key_spec.hive_style else segment
        if text == DEFAULT_PARTITION:
            return None
        return decode_segment(text) if self.key_spec.url_encode else text


# ---- A table pinned at a point of its timeline ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListedSlices:
    """The live slices among listed files; the caller must call :meth:`require_whole` later.

    Attributes
    ----------
    snapshot : Snapshot
        The pinned table.
    files : tuple of DataFile
        The listed files.
    slices : tuple of FileSlice
        The live slices among the files.
    partitions : tuple of str or None
        The partitions that were listed; None for all.
    is_seen : bool
        Whether storage listed the files, not the metadata table.
    """

    snapshot: Snapshot
    files: tuple[DataFile, ...]
    slices: tuple[FileSlice, ...]
    partitions: tuple[str, ...] | None
    is_seen: bool

    def require_whole(self, newest: Timeline) -> None:
        """Raise an error if a file that the slices need was deleted.

        Parameters
        ----------
        newest : Timeline
            The table's timeline, listed after the files.

        Raises
        ------
        CommitConflictError
            If a clean or a rollback after the pin deleted needed files.
        TimelineError
            If a clean deleted files that a time-travel query needs.
        MissingFileError
            If storage lists the files, and a committed file is missing. If a metadata table lists
            them, whoever opens the file gets this error.
        """
        from bucketlake.read.clean_guard import require_committed_files, require_uncleaned

        pinned = self.snapshot
        require_uncleaned(
            pinned.table,
            pinned.timeline,
            newest,
            self.files,
            self.slices,
            self.partitions,
            is_seen=self.is_seen,
        )
        if self.is_seen:
            require_committed_files(pinned.storage, pinned.timeline, newest, self._lost())

    def with_lost_files(self) -> ListedSlices:
        """Return the slices as if no committed file was missing.

        A write that replaces them reads none of the files, and must name all file groups.
        """
        lost = self._lost() if self.is_seen else {}
        if not lost:
            return self
        files = (*self.files, *(found.file for found in lost.values()))
        return replace(self, files=files, slices=tuple(self.snapshot.live_slices(files)))

    def _lost(self) -> dict[str, CommittedFile]:
        from bucketlake.read.clean_guard import lost_files

        pinned = self.snapshot
        return lost_files(
            pinned.table,
            pinned.timeline,
            self.files,
            self.slices,
            self.partitions,
            pinned.live_slices,
        )


@dataclass(frozen=True)
class Snapshot:
    """A pinned table.

    Attributes
    ----------
    table : OpenTable
    timeline : Timeline
        The timeline, restricted to the pinned time.
    schema_text : str or None
        Avro schema of the data, as stored in the table; None if the table has no schema yet.
    lists_storage : bool
        Whether files are listed in storage although there is a metadata table. A caller that
        deletes files, or promises that they exist, must see storage.
    """

    table: OpenTable
    timeline: Timeline
    schema_text: str | None
    lists_storage: bool = False

    @property
    def storage(self) -> Storage:
        """The table's storage."""
        return self.table.storage

    @property
    def config(self) -> TableConfig:
        """The table's properties."""
        return self.table.config

    @property
    def virtual_keys(self) -> VirtualKeys | None:
        """How keys are made from columns; None if the table's files store the keys."""
        if self.config.populate_meta_fields:
            return None
        from bucketlake.slices.stored_keys import VirtualKeys

        return VirtualKeys.of_table(self.config, self.readable_schema)

    @property
    def stored_keys(self) -> StoredKeyReader:
        """Reads the keys of file groups."""
        from bucketlake.slices.stored_keys import StoredKeyReader

        return StoredKeyReader(self.storage, self.timeline, self.virtual_keys)

    @cached_property
    def _understood(self) -> tuple[pa.Schema | None, dict[str, UnsupportedFeatureError]]:
        if not self.schema_text:
            return None, {}
        columns, refused = understood_columns(self.schema_text)
        # Hudi 0.15 lists the meta columns, too, where it deletes partitions.
        schema, dropped = without_meta(columns), DroppedColumns.of_config(self.config)
        return schema if dropped is None else dropped.schema_with(schema), refused

    @property
    def refused_columns(self) -> dict[str, UnsupportedFeatureError]:
        """Columns whose types are not supported, each with the error to raise for it."""
        return self._understood[1]

    @property
    def understood_schema(self) -> pa.Schema | None:
        """The schema without columns of types that are not supported; None without a schema.

        For what needs no value of the other columns. A write needs each of them.
        """
        return self._understood[0]

    @property
    def schema_or_none(self) -> pa.Schema | None:
        """Data schema without meta columns; None if the table has no schema yet.

        Raises UnsupportedFeatureError if the type of a column is not supported.
        """
        for error in self.refused_columns.values():
            raise error
        return self.understood_schema

    @property
    def schema(self) -> pa.Schema:
        """Data schema without meta columns; raises InputError if the table has no schema yet.

        Raises UnsupportedFeatureError if the type of a column is not supported.
        """
        return self._required(self.schema_or_none)

    def _required(self, schema: pa.Schema | None) -> pa.Schema:
        if schema is None:
            raise InputError(
                self.storage.root,
                "the table has no schema yet, because no records were written to it",
                "write records first",
            )
        return schema

    @property
    def readable_schema(self) -> pa.Schema:
        """Columns that a read may name: the table's, and the meta columns if files store them."""
        schema = self._required(self.understood_schema)
        return with_meta(schema) if self.config.populate_meta_fields else schema

    def all_slices(self) -> list[FileSlice]:
        """Return the live slices of every partition; the cost grows with the table."""
        return self._checked(self.listed(None))

    def partition_slices(self, partitions: Iterable[str]) -> list[FileSlice]:
        """Return the live slices of some partitions; the cost grows with these partitions."""
        return self._checked(self.listed(partitions))

    def by_partition(
        self, slices: Iterable[FileSlice], named: Iterable[str], doing: str
    ) -> dict[str, list[FileSlice]]:
        """Return slices by partition; raise InputError if a named partition has none."""
        slices_of = grouped((file_slice.partition_path, file_slice) for file_slice in slices)
        for path in named:
            if path not in slices_of:
                raise InputError(
                    f"{doing} partition {path!r} of {self.storage.root}",
                    "the table holds no records in it",
                    "name partitions by their path, as table.buckets() (bucketlake buckets) shows "
                    f"it{did_you_mean(path, {held.partition_path for held in self.all_slices()})}",
                )
        return slices_of

    def replaceable_slices(self, partitions: Iterable[str]) -> list[FileSlice]:
        """Return the live slices of some partitions for a write that replaces them all.

        A file may be missing; see :meth:`ListedSlices.with_lost_files`.
        """
        return self._checked(self.listed(partitions).with_lost_files())

    def listed(self, partitions: Iterable[str] | None) -> ListedSlices:
        """Return the live slices of some partitions, or of all, for the caller to check later."""
        if partitions is None:
            return self._listed(None, list_files)
        named = tuple(partitions)
        for partition in named:  # The metadata table just has no such partition.
            check_folder(partition, "list")
        return self._listed(named, list_files)

    def marked_slices(self, partitions: Iterable[str]) -> list[FileSlice]:
        """Return the live slices of some partitions, as :meth:`all_slices` finds them.

        Readers ignore a folder without a partition marker.
        """
        return self._checked(self._listed(tuple(partitions), list_marked_files))

    def versions(self, files: Iterable[DataFile]) -> dict[tuple[str, FileId], list[FileVersion]]:
        """Return all versions of the file groups of some files; see ``file_versions``."""
        return file_versions(self.known_files(files), self.seen_files())

    def live_slices(self, files: Iterable[DataFile]) -> list[FileSlice]:
        """Return the live slices among listed files, without a check for cleans."""
        replaced = self.timeline.replaced_file_groups(self.storage)
        return latest_slices(self.known_files(files), self.seen_files(), replaced)

    def _listed(
        self,
        partitions: tuple[str, ...] | None,
        list_some: Callable[[Storage, Iterable[str]], list[DataFile]],
    ) -> ListedSlices:
        files = self._files_of_metadata_table(partitions)
        is_seen = files is None
        if files is None and partitions is None:
            files = [f for held in list_partitions(self.storage).values() for f in held]
        elif files is None:
            files = list_some(self.storage, partitions or ())
        slices = tuple(self.live_slices(files))
        return ListedSlices(self, tuple(files), slices, partitions, is_seen)

    def _files_of_metadata_table(self, partitions: tuple[str, ...] | None) -> list[DataFile] | None:
        """Return the files that the metadata table lists; None if storage is to be listed."""
        from bucketlake.metadata.file_listing import listed_files, lists_files

        if self.lists_storage or not lists_files(self.config):
            return None
        return self.while_kept(lists_files, lambda: listed_files(self.metadata_table, partitions))

    def while_kept(
        self, keeps: Callable[[TableConfig], bool], answer: Callable[[], _Answer]
    ) -> _Answer | None:
        """Return an answer of the metadata table; None if the table does not keep it any more.

        It may have been turned off since the properties were read. Whoever turns it off changes the
        properties first and then deletes its files, perhaps some of those that were read.
        """
        try:
            found = answer()
        except (MetadataTableError, CommitConflictError):
            if keeps(read_table_config(self.storage)):
                raise
            return None
        return found if keeps(read_table_config(self.storage)) else None

    @kept_property
    def metadata_table(self) -> MetadataTable:
        """The metadata table as it is now, also for an earlier time; its cleans count then, too.

        Raises MetadataTableError if it is damaged, or lacks a commit.
        """
        found = open_metadata_table(self.table, self.timeline)
        if self.timeline.until is not None or self.timeline.undone:
            now = load_timeline(self.table)
            found = replace(found, data_timeline=now)
        return found

    def _checked(self, listed: ListedSlices) -> list[FileSlice]:
        listed.require_whole(load_timeline(self.table))
        return list(listed.slices)

    def seen_files(self) -> SeenFiles:
        """Return which files count, and to which slice a log file belongs."""
        return SeenFiles(self.table, self.timeline)

    def known_files(self, files: Iterable[DataFile]) -> list[DataFile]:
        """Return the files without those of two kinds of writes that are not completed.

        A file older than the timeline's start usually belongs to an archived, so completed,
        instant. If nothing was ever archived, the file is of a write whose clock is behind.

        In timeline layout 1, the name of a log file does not have the instant of the writer. A
        rollback may delete the file while it is read. So files that a pending write of bucketlake
        names in their tokens are left out.
        """
        from bucketlake.timeline.archive_reader import has_archive

        found, start = self._without_pending_logs(list(files)), self.timeline.start
        if start is None or all(file.name.instant >= start for file in found):
            return found
        if has_archive(self.table):
            return found
        return [file for file in found if file.name.instant >= start]

    def _without_pending_logs(self, files: list[DataFile]) -> list[DataFile]:
        from bucketlake.timeline.active import written_files

        timeline = self.timeline
        if not timeline.layout.logs_name_slices:
            return files
        pending = {
            file.path
            for file in files
            if isinstance(file.name, LogFileName)
            and file.name.writer is not None
            and not timeline.is_completed(file.name.writer)
        }
        if not pending:
            return files
        # Hudi reuses the token of an earlier file, perhaps of a write that was rolled back.
        for _, written in written_files(self.storage, timeline):
            pending.difference_update(*written.values())
        return [file for file in files if file.path not in pending]

    # Without the parsed schema, which is parsed again when it is needed.
    __getstate__ = fields_alone


def load_snapshot(
    table: OpenTable, timeline: Timeline | None = None, *, lists_storage: bool = False
) -> Snapshot:
    """Pin a table.

    Parameters
    ----------
    table : OpenTable
    timeline : Timeline, optional
        The table's timeline, if the caller has just loaded it, or that of an earlier time.
    lists_storage : bool
        Whether files are listed in storage although there is a metadata table.

    Raises
    ------
    FormatError
        If the properties contradict the newest commit.
    TimelineError
        If the timeline moved to another layout since the table was opened.
    UnsupportedFeatureError
        If columns of a file may have other names than in the table's schema, or an upgrade of Hudi
        died half-way.
    """
    pinned = timeline or load_whole_timeline(table)
    commit = pinned.schema_commit(table.storage)
    if commit is not None and commit.evolves_on_read:
        # A renamed column would be read as nulls; a column that was dropped and added again would
        # be read with its old values.
        raise UnsupportedFeatureError(
            "schema evolution on read (hoodie.schema.on.read.enable)",
            table.storage.root,
            "read and write it with Hudi",
        )
    if commit is not None:
        require_recorded(table.config, commit.extra, table.storage.root)
    text = (commit.schema_json if commit is not None else None) or table.config.create_schema
    return Snapshot(table, pinned, text or None, lists_storage)


def load_whole_timeline(table: OpenTable) -> Timeline:
    """Load a timeline; its instants lie where the properties of the table say.

    Raises
    ------
    TimelineError
        If the table looks empty because its timeline moved since it was opened.
    UnsupportedFeatureError
        If an upgrade of Hudi died half-way.
    """
    timeline = load_timeline(table)
    if timeline.start is None:
        found = read_table_config(table.storage)
        if found.layout != table.config.layout:
            raise TimelineError(
                table.config.timeline_folder,
                f"the timeline moved since the table was opened: it has version {found.version} "
                "now; open the table again",
            )
    if not table.config.layout.has_timeline_folder:
        require_one_timeline(table, timeline)
    return timeline


# ---- How keys of one field are spelled where the properties of a table do not tell ---------------
#
# The key generator COMPLEX gives a key of one field the name of the field, ``id:7``. Releases of
# Hudi from 0.14.1 to 1.0.2 leave it out, and so do the writers of a table after them: else each key
# would be stored twice. Since table version 9 all keys have the name. Of an older table only the
# stored keys tell.


def with_stored_spelling(snapshot: Snapshot) -> Snapshot:
    """Return a table whose key settings make keys as the stored ones are spelled.

    A table without records gets the keys that Hudi would write.
    """
    if not is_spelling_open(snapshot.config):
        return snapshot
    is_bare = stored_keys_are_bare(snapshot)
    if is_bare is None:
        is_bare = not snapshot.config.rules.names_single_keys
    spec = replace(snapshot.config.key_spec, bare_keys=is_bare)
    config = replace(snapshot.config, key_spec=spec)
    return replace(snapshot, table=snapshot.table.with_config(config))


def is_spelling_open(config: TableConfig) -> bool:
    """Return whether the properties of a table leave open how its keys are spelled."""
    spec = config.key_spec
    is_single = spec.generator is KeyGenerator.COMPLEX and len(spec.record_key_fields) == 1
    return is_single and config.may_have_bare_keys


def stored_keys_are_bare(snapshot: Snapshot) -> bool | None:
    """Return whether stored keys lack the name of their field; None if no key is stored."""
    reader = snapshot.stored_keys
    prefix = f"{snapshot.config.key_spec.record_key_fields[0]}:"
    for held in snapshot.all_slices():
        with reader.open_base(held) as (_, keys):
            for found in chain(keys, reader.log_keys(held)):
                if len(found):
                    # A value may begin like the name of the field, but not every value.
                    return not pc.all(pc.starts_with(found, prefix)).as_py()
    return None
