"""The metadata table as readers and writers find it: its timeline, and the slices of its groups.

The metadata table is a merge-on-read table in a folder of its data table. A commit completes there
first, and then on the data timeline. So a commit of the metadata table counts only if the data
timeline agrees. A reader must not believe a metadata table that lacks a commit of the data table:
rows would be missing without an error. ``metadata/entry_reader.py`` reads the entries of
slices.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from bucketlake.config import table_keys as keys
from bucketlake.config.merge_entries import MERGER_OF_HUDI_0
from bucketlake.config.paths_of_table import HOODIE_FOLDER, METADATA_TABLE_FOLDER
from bucketlake.config.table_config import TableConfig, table_checksum
from bucketlake.errors import (
    CommitConflictError,
    FormatError,
    MetadataTableError,
    ObjectNotFoundError,
    TableNotFoundError,
)
from bucketlake.format.log_block import BlockKind, read_log_blocks
from bucketlake.format.metadata_record.file_ids import MetadataFileId, MetadataPartition
from bucketlake.metadata.log_files import BASE_EXTENSION, is_first_base_file
from bucketlake.model.file_name import BaseFileName, FileId, Group, InstantTime, LogFileName
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.grouping import grouped
from bucketlake.model.kept import fields_alone, kept_by_argument
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.slices.file_system_view import (
    FileVersion,
    SeenFiles,
    data_files,
    file_versions,
    latest_slices,
    list_files,
    list_partition,
)
from bucketlake.storage.base import Storage, Subfolder
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.instant import Action, Instant, State, is_initial
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.timeline.table_properties import read_table_config

_LOG_COMPACTION = "LOG_COMPACT"

BUILD_OPERATION = "BULK_INSERT_PREPPED"
"""Operation of the commits that build partitions."""

# The id of a file group may have dots, since the escape of data partitions keeps them.
_BASE = re.compile(rf"(?P<file_id>[^._].*)_(?P<token>[^_.]+)_(?P<instant>\d+)\.{BASE_EXTENSION}")
_LOG = re.compile(
    r"\.(?P<file_id>.+)_(?P<instant>[0-9]+)\.log\.(?P<version>[0-9]{1,10})_(?P<token>\d+-\d+-\d+)"
)


@dataclass(frozen=True)
class MetadataTable:
    """A metadata table beside one state of its data table.

    Attributes
    ----------
    storage : Subfolder
        The folder of the metadata table, as a storage.
    config : TableConfig
        Its own properties.
    timeline : Timeline
        Its own timeline, loaded after the timeline of the data table.
    data_timeline : Timeline
        The timeline of the data table.
    partitions : tuple of str
        The partitions that readers may use.
    """

    storage: Subfolder
    config: TableConfig
    timeline: Timeline
    data_timeline: Timeline
    partitions: tuple[str, ...]

    @property
    def table(self) -> OpenTable:
        """The metadata table, as an open one; tasks get this value without a clock and a lock."""
        return opened_table(self.storage, self.config)

    @kept_by_argument
    def counts(self, instant: InstantTime) -> bool:
        """Return whether a reader may use what an instant of the metadata table wrote.

        Notes
        -----
        An instant counts if it is completed here and on the data timeline. The data timeline does
        not have all instants: initialisations and table services are instants of the metadata table
        only, and old instants are archived. An instant that is pending in the data table does not
        count, and neither does a commit that was requested after the data timeline was listed.
        """
        data = self.data_timeline
        if not self.timeline.is_completed(instant) or instant in data.undone:
            return False
        if instant in self._data_instants:
            return not self._data_instants[instant]
        if is_initial(instant) or (data.start is not None and instant < data.start):
            return True
        if data.until is not None and instant > data.until:
            return False
        completed_at = self.timeline.completion_time(instant)
        if completed_at is None or completed_at <= (data.newest_time() or ""):
            return True
        if not self.timeline.layout.has_completion_times:
            return True  # Completion times are those of files, which a copy of the table changes.
        found = self.timeline.find_completed(instant)
        assert found is not None, "a completed instant"
        operation = self.timeline.read_commit(self.storage, found).operation
        return operation in (_LOG_COMPACTION, BUILD_OPERATION)

    def may_include(self, instant: InstantTime) -> bool:
        """Return whether base files may include a commit, so that it cannot be undone alone.

        Later compactions include it, and so do later builds. A commit that is not on the timeline
        here is archived, so it is compacted, or the metadata table was built after it.
        """
        completed_at = self.timeline.completion_time(instant)
        if completed_at is None:
            return self.data_timeline.is_completed(instant)
        return any(
            later.requested_at > completed_at
            if later.action is Action.COMMIT
            else (later.completed_at or "") > completed_at
            and _may_be_build(later, self.data_timeline)
            for later in self.timeline.completed_commits()
        )

    def completion_time(self, instant: InstantTime) -> InstantTime | None:
        """Return when an instant completed here; None if neither timeline nor archive says it."""
        return self._seen.time(instant)

    def time_of(self, file: DataFile) -> InstantTime:
        """Return when the instant of a file completed, or the instant if nobody knows."""
        return self.completion_time(file.name.instant) or file.name.instant

    def in_order(self, logs: Iterable[DataFile]) -> tuple[DataFile, ...]:
        """Return log files of a file group in the order in which they are applied."""
        return tuple(sorted(logs, key=self._seen.order))

    @kept_by_argument
    def compacted_slices(self, compaction: Instant) -> Mapping[FileId, FileSlice]:
        """Return what a completed compaction merged, by file group; files have no sizes.

        The plan names every group that was merged, so it is read once per object: lookups in many
        shards would else read it as often.

        Raises
        ------
        ObjectNotFoundError, FormatError
            If the plan cannot be read.
        """
        planned = replace(compaction, action=Action.COMPACTION, state=State.REQUESTED)
        slices = self.timeline.read_compaction_plan(self.storage, planned)
        return {held.file_id: held for held in slices}

    def slices(self, partition: str) -> list[FileSlice]:
        """Return the slices of a partition, sorted by file id.

        The folder is listed once per object. In a partition with one sequence of file groups, the
        position of a slice is its shard; see :meth:`shards` for the record-level index.

        Raises
        ------
        MetadataTableError
            If the partition has no file groups, or some are missing.
        """
        found = self._listed.get(partition)
        if found is None:
            found = self._listed[partition] = self._slices(partition)
        return found

    def versions(self, files: Iterable[DataFile]) -> dict[Group, list[FileVersion]]:
        """Return all versions of the file groups of some files, newest first."""
        return file_versions(files, self._seen)

    def shards(self, partition: str) -> dict[str | None, list[FileSlice]]:
        """Return the slices of a partition by data partition; the position in a list is the shard.

        Only a partitioned record-level index has data partitions; other slices are under None.
        """
        return _by_data_partition(self.slices(partition))

    def index_shards(
        self, data_partitions: Collection[str] | None = None
    ) -> dict[str | None, list[FileSlice]]:
        """Return the slices of the record-level index, as :meth:`shards`.

        Parameters
        ----------
        data_partitions : collection of str, optional
            Data partitions whose shards are wanted in a partitioned index. Then the cost of what is
            found follows these partitions and not the table. The shards of a global index are
            returned in any case, and all shards of an index that has none for these partitions.

        Raises
        ------
        MetadataTableError
            As :meth:`slices`.
        """
        index = MetadataPartition.RECORD_INDEX
        if data_partitions is not None and index not in self._listed:
            of_global = f"{MetadataFileId(index, 0).to_file_id()}_"
            wanted = [MetadataFileId.prefix_of_shards(path) for path in data_partitions]
            found = _by_data_partition(self._slices(index, [of_global, *wanted]))
            if found and None not in found:
                return found
        return self.shards(index)

    def file_groups(self, partition: str) -> list[FileId]:
        """Return the file groups of a partition, also of one that is being built, sorted by id.

        Raises
        ------
        MetadataTableError
            If there are none, or some are missing.
        """
        if partition in self.partitions:
            # In layout 1 the writer asks for the slices later, so they are listed once with sizes.
            if partition in self._listed or self.timeline.layout.logs_name_slices:
                slices = self.slices(partition)
            else:
                texts = self.storage.list_briefly(partition)
                named = (metadata_file(partition, text, 0) for text in texts)
                slices = latest_slices(filter(None, named), self._seen)
                self._require_groups(partition, slices)
            return [found.file_id for found in slices]
        files = list_files_of(self.storage, partition)
        found = sorted({file.name.file_id for file in files})
        if not found and partition != MetadataPartition.RECORD_INDEX:
            raise self.damaged(f"its partition {partition} has no file groups", partition)
        return found

    def maintained_slices(self, partition: str) -> list[FileSlice]:
        """Return the slices of a partition, also of one that is being built, sorted by file id.

        Such a partition may lack its base files.
        """
        if partition in self.partitions:
            return self.slices(partition)
        return self._found_slices(partition)

    def path_of(self, file: DataFile) -> str:
        """Return the path of a file relative to the data table, for reads and messages."""
        return f"{self.storage.folder}/{file.path}"

    def damaged(self, problem: str, partition: str | None = None) -> MetadataTableError:
        """Return the error for a metadata table, or a partition of it, that cannot be used."""
        return MetadataTableError(self.storage.outer.root, problem, partition)

    @cached_property
    def _listed(self) -> dict[str, list[FileSlice]]:
        return {}

    @cached_property
    def _data_instants(self) -> dict[InstantTime, bool]:
        """Whether all actions at a time of the data timeline are pending; usually there is one."""
        pending = {instant.requested_at: True for instant in self.data_timeline.pending()}
        return pending | {i.requested_at: False for i in self.data_timeline.completed()}

    @cached_property
    def _seen(self) -> _SeenFiles:
        return _SeenFiles(self)

    # Without slices and other cached values: a task lists what it needs.
    __getstate__ = fields_alone

    def _slices(self, partition: str, prefixes: Collection[str] | None = None) -> list[FileSlice]:
        slices = self._found_slices(partition, prefixes)
        if slices or prefixes is None:
            self._require_groups(partition, slices)
        return slices

    def _found_slices(
        self, partition: str, prefixes: Collection[str] | None = None
    ) -> list[FileSlice]:
        return latest_slices(list_files_of(self.storage, partition, prefixes), self._seen)

    def _require_groups(self, partition: str, slices: Sequence[FileSlice]) -> None:
        if not slices:
            # A partitioned index has no shards before the table has data partitions;
            # RecordIndexReader.require_shards compares them.
            if partition != MetadataPartition.RECORD_INDEX:
                raise self.damaged(f"its partition {partition} has no file groups", partition)
            return
        if partition == MetadataPartition.FILES and slices[0].base_file is None:
            # Its first base file lists what the table had before; without it rows would be missing.
            raise self.damaged(f"its partition {partition} has no base file", partition)
        shards: dict[str | None, set[int]] = defaultdict(set)
        for found in slices:
            facts = MetadataFileId.from_file_id(found.file_id)
            if facts is not None:  # Partitions of other kinds of index are not read.
                shards[facts.data_partition].add(facts.shard)
        for data_partition, numbers in shards.items():
            missing = set(range(max(numbers))) - numbers
            if missing:
                of = "" if data_partition is None else f" of data partition {data_partition!r}"
                problem = f"its partition {partition} lacks shard {min(missing)}{of}"
                raise self.damaged(problem, partition)


class _SeenFiles(SeenFiles):
    """As in other tables, but a log file counts and is ordered by the commits of both tables."""

    def __init__(self, metadata: MetadataTable) -> None:
        super().__init__(metadata.table, metadata.timeline)
        self._is_counted = metadata.counts

    def counts(self, file: DataFile) -> bool:
        if self.timeline.layout.logs_name_slices or (
            isinstance(file.name, BaseFileName) and not self._is_of_commit(file)
        ):
            return super().counts(file)
        return self._is_counted(file.name.instant)

    def _is_of_commit(self, base: DataFile) -> bool:
        """Return whether a base file has the first entries of a group, and of a delta commit."""
        if not is_first_base_file(base.name):
            return False
        found = self.timeline.find_completed(base.name.instant)
        return found is not None and found.action is Action.DELTA_COMMIT

    def is_after(self, instant: InstantTime, base: InstantTime) -> bool:
        if is_initial(instant):
            return instant >= base  # A compaction finds the file group, so it comes later.
        return super().is_after(instant, base)

    def order(self, log: DataFile) -> tuple[str | int, ...]:
        """Return the sort key of a log file: completion time, then instant, version and token."""
        instant = log.name.instant
        if self.timeline.layout.logs_name_slices:
            return log.order
        is_first = is_initial(instant)
        return (instant if is_first else self.time(instant) or instant, *log.order)


def _by_data_partition(
    slices: Iterable[FileSlice],
) -> dict[str | None, list[FileSlice]]:
    facts = ((MetadataFileId.from_file_id(held.file_id), held) for held in slices)
    return grouped((None if own is None else own.data_partition, held) for own, held in facts)


def open_metadata_table(table: OpenTable, timeline: Timeline) -> MetadataTable:
    """Open the metadata table of a data table whose properties list it.

    Parameters
    ----------
    table : OpenTable
        The data table.
    timeline : Timeline
        The timeline of the data table. Commits of the metadata table that this timeline does not
        have do not count, except in base files that a later compaction wrote.

    Raises
    ------
    MetadataTableError
        If the metadata table is missing, or lacks a commit of the data table.
    FormatError
        If its properties cannot be read.
    """
    found = load_metadata_table(table, timeline)
    # Readers do not use partitions that are still being built.
    skipped = skipped_commits(found) if found.partitions else []
    if skipped:
        # A rollback may have removed the commits from both timelines after the first was listed.
        completed = {i.requested_at for i in load_timeline(table).completed_commits()}
        skipped = [instant for instant in skipped if instant in completed]
    if skipped:
        raise found.damaged(f"{len(skipped)} commits from {skipped[0]} on are missing in it")
    return found


def load_metadata_table(table: OpenTable, timeline: Timeline) -> MetadataTable:
    """Load a metadata table without comparing it with the data; see :func:`open_metadata_table`."""
    inner = Subfolder(table.storage, METADATA_TABLE_FOLDER)
    try:
        own = read_table_config(inner)
    except TableNotFoundError as error:
        problem = f"{inner.folder} is none: {error.found}"
        raise MetadataTableError(table.storage.root, problem) from error
    # Hudi omits the time zone there; both tables have the same clock.
    own = replace(own, timeline_timezone=table.config.timeline_timezone)
    if own.layout_version != table.config.layout_version:
        if read_table_config(table.storage).layout_version != table.config.layout_version:
            problem = "the version of the table was changed meanwhile; open it, and repeat the call"
            raise CommitConflictError("not begun", problem)
        path = f"{inner.folder}/.hoodie/hoodie.properties"
        expected = f"timeline layout {table.config.layout_version}, as in the data table"
        raise FormatError(path, expected, str(own.layout_version))
    partitions = table.config.metadata_partitions
    known = load_timeline(opened_table(inner, own))
    return MetadataTable(inner, own, known, timeline, partitions)


def list_files_of(
    storage: Storage, partition: str, prefixes: Collection[str] | None = None
) -> list[DataFile]:
    """Return the files of a partition, valid or not; ``storage`` is the metadata table's.

    With ``prefixes``, only the files of file groups whose ids begin with one of these.
    """
    if prefixes is None:
        return list_partition(storage, partition, metadata_file)
    starts = tuple(dot + prefix for dot in ("", ".") for prefix in prefixes)  # Log files have dots.
    return list(data_files(storage.list_named(partition, starts), partition, metadata_file))


def list_all_files(storage: Storage) -> list[DataFile]:
    """Return the files of all partitions, valid or not; ``storage`` is the metadata table's."""
    partitions = [path for path in storage.list_folders("") if path != HOODIE_FOLDER]
    return list_files(storage, partitions, metadata_file)


def files_of_instants(storage: Storage, instants: Collection[InstantTime]) -> list[DataFile]:
    """Return the files of all partitions that have one of some instants in their names."""
    return [file for file in list_all_files(storage) if file.name.instant in instants]


def block_instants(storage: Storage, file: DataFile) -> set[InstantTime]:
    """Return the instants of the data and deletes in a log file; none if it is gone meanwhile."""
    try:
        blocks = [*read_log_blocks(storage, file.path, file.size_bytes)]
    except ObjectNotFoundError:
        return set()
    return {block.instant for block in blocks if block.kind is not BlockKind.COMMAND}


def skipped_commits(table: MetadataTable) -> list[InstantTime]:
    """Return the completed commits of the data table that the metadata table lacks, in order.

    Commits are not missing if the metadata table was built after them, or archived them.
    """
    known, data = table.timeline, table.data_timeline
    skipped = [c for c in data.completed_commits() if not known.is_completed(c.requested_at)]
    if not skipped:
        return []
    builds = [commit for commit in known.completed_commits() if _may_be_build(commit, data)]
    if not known.layout.has_completion_times:
        # A copy of the table does not keep when files were written, so only instants are compared.
        times = [commit.requested_at for commit in known.completed_commits()]
        since = min((at for at in times if not is_initial(at)), default=None)
        return [c.requested_at for c in skipped if since is not None and c.requested_at > since]

    def after(build: Instant) -> list[Instant]:
        since = _known_until(build)
        return [commit for commit in skipped if (commit.completed_at or "") > since]

    if builds and after(builds[0]):  # Usually the first build is that of the list of files.
        of_files = [
            build
            for build, commit in known.read_commits(table.storage, builds)
            if commit.operation == BUILD_OPERATION and MetadataPartition.FILES in commit.write_stats
        ]
        skipped = after(max(of_files or builds[:1], key=_known_until))
    elif builds:
        skipped = []
    return [commit.requested_at for commit in skipped]


def _may_be_build(commit: Instant, data: Timeline) -> bool:
    """Return whether a commit of the metadata table may have built a partition.

    It then has an initial instant, one that the data table does not have, or that of an indexing.
    """
    at = commit.requested_at
    actions = {instant.action for instant in data.instants if instant.requested_at == at}
    return is_initial(at) or actions <= {Action.INDEXING}


def _known_until(build: Instant) -> InstantTime:
    """Return until when commits of the data table are in the entries of a build."""
    at = build.requested_at
    return (build.completed_at or at) if is_initial(at) else at


def metadata_file(partition: str, text: str, size_bytes: int) -> DataFile | None:
    """Return the file of a partition with a name; None if the name is of another file."""
    name = _file_name(text)
    return None if name is None else DataFile(partition, name, size_bytes)


@lru_cache(maxsize=2**13)  # A commit lists its partitions several times.
def _file_name(text: str) -> BaseFileName | LogFileName | None:
    log, base = _LOG.fullmatch(text), _BASE.fullmatch(text)
    if log is not None:
        instant, version = InstantTime(log["instant"]), int(log["version"])
        return LogFileName(FileId(log["file_id"]), instant, version, log["token"])
    if base is not None:
        instant = InstantTime(base["instant"])
        return BaseFileName(FileId(base["file_id"]), base["token"], instant, BASE_EXTENSION)
    return None


# ---- The metadata table as a table of its own ----------------------------------------------------
#
# Hudi gives every metadata table the same properties, except for name and checksum. So a writer
# need not read them.


def inner_table(table: OpenTable) -> OpenTable:
    """Return the metadata table of a table, which need not exist; nothing is read.

    It has the clock and the lock of the data table. All its instants are completed with
    ``publish_completed``: readers do not use one before the instant of the data table with the same
    time is completed, if there is one.

    Parameters
    ----------
    table : OpenTable
        The data table.
    """
    own = TableConfig.from_properties(inner_properties(table.config))
    config = replace(own, timeline_timezone=table.config.timeline_timezone)
    return replace(table, storage=Subfolder(table.storage, METADATA_TABLE_FOLDER), config=config)


def inner_properties(config: TableConfig) -> dict[str, str]:
    """Return the properties of a table's metadata table: the entries that Hudi writes.

    Parameters
    ----------
    config : TableConfig
        The data table.
    """
    rules = config.rules
    entries = {
        keys.NAME: f"{config.name}_metadata",
        keys.TABLE_TYPE: TableType.MERGE_ON_READ.value,
        keys.VERSION: str(config.version),
        keys.LAYOUT_VERSION: str(config.layout.number),
        keys.BASE_FILE_FORMAT: "HFILE",
        keys.RECORD_KEY_FIELDS: "key",
        keys.POPULATE_META_FIELDS: "false",  # Hudi builds the table anew otherwise.
        keys.DROP_PARTITION_COLUMNS: "false",
        keys.PAYLOAD_CLASS: "org.apache.hudi.metadata.HoodieMetadataPayload",
    }
    if rules.has_names_of_hudi_1:
        entries |= {
            keys.INITIAL_VERSION: str(config.version),
            keys.TIMELINE_PATH: "timeline",
            keys.HISTORY_PATH: "history",
            keys.ARCHIVE_FOLDER: rules.layout.archive_folder,
            keys.KEY_GENERATOR_TYPE: "HOODIE_TABLE_METADATA",
            keys.MERGE_MODE: MergeMode.CUSTOM.value,
            keys.MERGE_STRATEGY: "00000000-0000-0000-0000-000000000000",  # The payload merges.
        }
    else:
        generator = "org.apache.hudi.metadata.HoodieTableMetadataKeyGenerator"
        entries |= {
            # Hudi 1.2.0, which names none, has the folder of its data tables.
            keys.ARCHIVE_FOLDER: config.archive_folder,
            keys.KEY_GENERATOR_CLASS: generator,
            keys.MERGE_STRATEGY_OLD: MERGER_OF_HUDI_0,
        }
    return entries | {keys.CHECKSUM: table_checksum(entries)}
