"""Turning the metadata table of a table on and off, and building it again.

The build for an existing table runs beside writers, in these steps:

1. The partitions to build leave the table's properties, and a turn in the order of commits is
   taken; from then on no writer adds files to them. Their files are deleted, and empty file groups
   are made.
2. The partitions come into the list of partitions that are being built, which readers do not use.
3. The build takes another turn. All commits with an earlier turn are completed by then. All with a
   later turn read the properties again, and maintain these partitions with log files.
4. The build makes the base files from the table as it was at the turn; their instant is that of the
   turn. The log files of later commits are applied to them.
5. The partitions move into the list of valid partitions.

The turns also order builds and removals: a build goes on only while no other has taken a turn after
it, so that of several at once the last one wins. A build takes a turn before its first step, too.
From then on to its end, the last of its turns has a heartbeat, so that others see that it is at
work.

A build that died in step 4 is continued by the next one: writers have maintained the partitions
meanwhile. If it died before, the next build begins again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from bucketlake.actions.conflict import retried
from bucketlake.actions.log_copies import committed_copies
from bucketlake.actions.metadata_withdrawal import withdraw_compactions
from bucketlake.actions.progress import counted_progress
from bucketlake.actions.recovery import end_undoing, writable_timeline
from bucketlake.actions.transact import beating_turn
from bucketlake.config.paths_of_table import HOODIE_FOLDER, METADATA_TABLE_FOLDER
from bucketlake.config.table_config import TableConfig
from bucketlake.errors import CommitConflictError, ConfigError, ObjectNotFoundError
from bucketlake.flow.stage import Engine
from bucketlake.flow.threads import HERE
from bucketlake.format.index_definitions import IndexDefinition
from bucketlake.format.metadata_record.bounds import has_bounds
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.index.setting import IndexedKind, needed_index, setting_at
from bucketlake.metadata.creation import (
    claim_initial_instant,
    create_metadata_table,
    delete_metadata_table,
    files_of_partitions,
    initialise_partitions,
    known_partitions,
    usual_file_groups,
    usual_partitions,
    withdraw_initialisations,
)
from bucketlake.metadata.file_listing import entries_of_table, list_partitions_as
from bucketlake.metadata.log_files import GroupEntries
from bucketlake.metadata.metadata_table import inner_table, load_metadata_table
from bucketlake.metadata.record_index.definition_file import (
    columns_with_statistics,
    read_index_definitions,
    update_index_definitions,
)
from bucketlake.metadata.record_index.shards import IndexShards, ShardRule
from bucketlake.metadata.statistics.merged import entries_of_statistics
from bucketlake.metadata.statistics.of_file import (
    STATISTICS,
    FileStatistics,
    NamedStatistics,
    indexed_columns,
    statistics_of_file,
    usual_columns,
)
from bucketlake.model.bounded_json import parse_json
from bucketlake.model.field_path import field_at
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.file_slice import DataFile
from bucketlake.model.grouping import grouped
from bucketlake.model.kept import kept_property
from bucketlake.model.names import one_of
from bucketlake.model.schema import with_meta
from bucketlake.model.write_stat import WriteStat
from bucketlake.read.snapshot import ListedSlices, Snapshot, load_snapshot
from bucketlake.services.metadata.index_builder import IndexBuildPlan, build_index, plan_index
from bucketlake.slices.file_system_view import list_partitions
from bucketlake.storage.base import at_once
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.commit_order import Head, Turn, last_turn
from bucketlake.timeline.heartbeat import beating, is_alive
from bucketlake.timeline.instant import Action
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.table_properties import read_table_config, reopened

_BUILD_FILE = f"{METADATA_TABLE_FOLDER}/{HOODIE_FOLDER}/bucketlake_build.json"
"""Instant and partitions of a build between its turn and its end."""

_OVERTAKEN = "another process took partitions of the metadata table off meanwhile; build it again"


def build_metadata_table(
    table: OpenTable,
    partitions: Sequence[str] = (),
    *,
    is_partitioned: bool | None = None,
    limits: ShardRule | None = None,
    keeps_one: bool = False,
    engine: Engine = HERE,
) -> tuple[str, ...]:
    """Build partitions of the metadata table, also anew; return all valid partitions.

    Parameters
    ----------
    table : OpenTable
        The table, with its properties of now.
    partitions : sequence of str
        Partitions to build; by default those that the table has, or the usual ones if it has none,
        and the record-level index if the kind of the table needs it.
    is_partitioned : bool or None
        Whether keys are unique in each data partition, for a record-level index; None: as the kind
        of the table needs it, or as the index that the table has or had, or else True.
    limits : ShardRule, optional
        Number of shards of a record-level index; by default as the index kind of the table says.
    keeps_one : bool
        Whether a key that is stored twice gets the place of one of its rows in the record-level
        index. Writes then change only this row, so the caller removes the others at once.
    engine : Engine
        Builds shards of a record-level index on an engine.

    Raises
    ------
    UnsupportedFeatureError
        If the table cannot be written.
    ConfigError
        If bucketlake does not maintain such a partition.
    CommitConflictError
        If another build or removal began meanwhile.
    KeyTwiceError
        If a key is stored twice, so that a record-level index has no place for it.
    """
    storage = table.storage
    timeline = writable_timeline(table)
    # A restore that was continued may take partitions off.
    table = reopened(table)
    needed = needed_index(storage, timeline)
    chosen = partitions_to_build(table.config, partitions, needs_index=needed is not None)
    work = _Work(table)
    index = None
    if MetadataPartition.RECORD_INDEX in chosen:
        partitioned = _is_partitioned(table, needed, is_partitioned)
        index = _IndexBuild(table, partitioned, limits, keeps_one, engine)
    # Another process continues only a build of the same content.
    content: dict[str, Any] = {
        "partitions": [*chosen],
        "partitioned": None if index is None else index.is_partitioned,
        "keepsOne": keeps_one,
    }
    with ExitStack() as at_work:
        begun = _begun(table, content)
        if begun is None:
            owner = work.open_partitions(chosen, index, at_work)
            instant, timeline = at_work.enter_context(work.turn(owner))
        else:
            at_work.enter_context(beating(storage, begun, is_new=False))
            instant, timeline = begun, load_timeline(table)
        storage.put(_BUILD_FILE, json.dumps({"instant": instant, **content}).encode())
        found = _Found(table, timeline)
        built = [] if index is None else index.build(instant, timeline, work.require_owner)
        groups = {name: found.groups(name) for name in chosen}
        work.require_owner(instant)
        work.initialise(groups, instant, built)
        valid = work.list_as_valid(chosen, instant)
        storage.delete(_BUILD_FILE)
    return valid


def drop_metadata_table(table: OpenTable) -> None:
    """Turn the metadata table off, and delete its files.

    If the kind of the table needs the record-level index, the next write builds both again
    (``services/metadata/needed_index.py``).
    """
    with ExitStack() as at_work:
        _Work(table).turn_off(tuple(MetadataPartition), at_work)


def builder_at_work(table: OpenTable) -> InstantTime | None:
    """Return the instant of a living process that builds or removes partitions; None if none does.

    An indexing of Hudi that is pending counts as living: it has no heartbeat.
    """
    turn = last_turn(table.storage)
    own = None if turn is None else turn.metadata_instant
    if own is not None and is_alive(table.storage, own, table.clock.now_ms):
        return own
    indexings = load_timeline(table).pending(Action.INDEXING)
    return indexings[0].requested_at if indexings else None


def partitions_to_build(
    config: TableConfig, given: Sequence[str] = (), *, needs_index: bool = False
) -> tuple[MetadataPartition, ...]:
    """Return the partitions that a build makes, in the order in which Hudi builds them.

    Other partitions are valid only together with the list of files. ``needs_index`` says whether
    the kind of the table needs a record-level index. See :func:`build_metadata_table` for the
    other parameters and the error.
    """
    known = {partition.value: partition for partition in known_partitions(config.rules)}
    for name in given:
        if name not in known:
            raise ConfigError("partitions", name, one_of(name, known))
    names = config.written_metadata_partitions
    held = {known[name] for name in names if name in known}
    wanted = {known[name] for name in given} or held or set(usual_partitions(config.rules))
    if MetadataPartition.FILES not in config.metadata_partitions:
        wanted.add(MetadataPartition.FILES)
    if MetadataPartition.FILES in wanted:
        wanted |= held
    if needs_index and not given:
        wanted.add(MetadataPartition.RECORD_INDEX)
    return tuple(partition for partition in MetadataPartition if partition in wanted)


def _begun(table: OpenTable, content: dict[str, Any]) -> InstantTime | None:
    """Return the instant of a build of this content that took its turn and died."""
    try:
        held = parse_json(table.storage.read(_BUILD_FILE))
        instant = InstantTime(str(held.pop("instant")))
    except ObjectNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # Damaged: the build begins again.
    is_maintained = {*content["partitions"]} <= {*table.config.metadata_partitions_inflight}
    turn = last_turn(table.storage)
    is_last = turn is not None and turn.metadata_instant == instant
    return instant if is_maintained and is_last and held == content else None


def _columns(table: OpenTable) -> tuple[str, ...]:
    """Return the columns whose statistics are built: those that have statistics, or the usual."""
    known, has_types = columns_with_statistics(table), table.config.rules.has_value_types
    if known and has_types:
        return known
    schema = load_snapshot(table).understood_schema
    if schema is None:
        return known
    if not known:
        return usual_columns(schema, has_value_types=has_types)
    # Perhaps the table had another version, whose statistics hold more types.
    fields = {name: field_at(with_meta(schema), name) for name in known}
    return tuple(
        name
        for name, field in fields.items()
        if field is not None and has_bounds(field.type, has_value_types=has_types)
    )


@dataclass(frozen=True)
class _Found:
    """What a table holds at a point of its timeline."""

    table: OpenTable
    timeline: Timeline

    def groups(self, partition: MetadataPartition) -> dict[FileId, GroupEntries]:
        """Return the entries of a partition of the metadata table, by file group.

        Tasks make the files of the record-level index.
        """
        if partition is MetadataPartition.RECORD_INDEX:
            return {}
        groups = usual_file_groups(partition)
        entries = dict(self._entries(partition).by_shard(len(groups)))
        return {id_: entries.get(shard, GroupEntries()) for shard, id_ in enumerate(groups)}

    def _entries(self, partition: MetadataPartition) -> GroupEntries:
        if partition in STATISTICS:
            return self._entries_of_statistics[partition]
        sizes = {
            path: {file.name.to_file_name(): file.size_bytes for file in files}
            for path, files in self._files.items()
        }
        return entries_of_table(sizes)

    @kept_property
    def _files(self) -> dict[str, list[DataFile]]:
        resizes = {pending.requested_at for pending in self.timeline.pending_clusterings()}
        # Commits list their copies for a pending resize.
        copies = {
            stat.path for stat in committed_copies(self.table.storage, self.timeline, resizes)
        }
        listed = list_partitions(self.table.storage)
        self._require_whole([file for files in listed.values() for file in files])
        return {
            path: [
                file
                for file in files
                if self.timeline.is_completed(file.name.instant) or file.path in copies
            ]
            for path, files in listed.items()
        }

    def _require_whole(self, files: Sequence[DataFile]) -> None:
        """Raise an error if a committed file is missing: nobody would look for it any more."""
        snapshot = load_snapshot(self.table, self.timeline, lists_storage=True)
        slices = tuple(snapshot.live_slices(files))
        listed = ListedSlices(snapshot, tuple(files), slices, None, is_seen=True)
        listed.require_whole(load_timeline(self.table))

    @kept_property
    def _entries_of_statistics(self) -> dict[MetadataPartition, GroupEntries]:
        return entries_of_statistics(
            self._statistics(), version=self.table.config.rules.statistics_version
        )

    def _statistics(self) -> dict[str, list[NamedStatistics]]:
        snapshot = load_snapshot(self.table, self.timeline, lists_storage=True)
        schema = snapshot.understood_schema
        if schema is None:
            return {}
        columns = indexed_columns(reopened(self.table), schema)
        assert columns is not None, "the properties list the partitions that are being built"
        wanted = [file for files in self._files.values() for file in files]

        def read(file: DataFile) -> FileStatistics | None:
            with suppress(ObjectNotFoundError):  # A clean deleted it meanwhile.
                return statistics_of_file(self.table.storage, file.path, columns, file.size_bytes)
            return None

        log_progress = counted_progress("statistics of the table", len(wanted), "files")
        found = at_once(self.table.storage, read, wanted, log_progress)
        return grouped(
            (file.partition_path, (file.name.to_file_name(), read_from))
            for file, read_from in zip(wanted, found, strict=True)
            if read_from is not None
        )


def _is_partitioned(table: OpenTable, needed: IndexedKind | None, given: bool | None) -> bool:
    if not table.config.rules.has_partitioned_index:
        if given:
            version = f"table version {table.config.version} has one for the whole table only"
            raise ConfigError("partitioned", given, f"{version}; give False")
        return False
    if given is not None:
        return given
    if needed is not None:
        return needed.partitioned
    known = read_index_definitions(table).get(MetadataPartition.RECORD_INDEX)
    return known is None or known.is_partitioned


@dataclass(frozen=True, slots=True)
class _IndexBuild:
    """The build of a record-level index."""

    table: OpenTable
    is_partitioned: bool
    limits: ShardRule | None
    keeps_one: bool
    engine: Engine

    def new_file_ids(self, instant: InstantTime) -> list[FileId]:
        """Return the file groups of a new index, which an initialisation opens."""
        return self._plan(self._snapshot(), instant, None).file_ids

    def build(
        self, instant: InstantTime, timeline: Timeline, require_owner: Callable[[InstantTime], None]
    ) -> list[WriteStat]:
        """Write the base files of the index for the table at a turn."""
        name, root = MetadataPartition.RECORD_INDEX, self.table.storage.root

        def attempt() -> list[WriteStat]:
            # A clean may delete files of the table as it was at the turn. The newest state serves
            # too, because entries of later writes are newer than the base files.
            snapshot = self._snapshot()
            require_owner(instant)
            # Listed after the commits, which may have opened shards of new partitions.
            metadata = load_metadata_table(reopened(self.table), timeline)
            opened = IndexShards.of_file_ids(metadata.file_groups(name), root)
            require_owner(instant)  # Another build deletes file groups after its turn.
            plan = self._plan(snapshot, instant, opened)
            return build_index(
                snapshot,
                self._inner,
                plan,
                self.engine,
                keeps_one=self.keeps_one,
                is_needed=needed_index(self.table.storage, snapshot.timeline) is not None,
            )

        return retried(attempt)

    def _plan(
        self, snapshot: Snapshot, instant: InstantTime, opened: IndexShards | None
    ) -> IndexBuildPlan:
        partitioned = self.is_partitioned
        stored = setting_at(self.table.storage, snapshot.timeline)
        kind, limits = None if stored is None else stored.index, self.limits
        if limits is None and kind is not None and kind.partitioned == partitioned:
            limits = kind.shard_limits
        return plan_index(
            snapshot, self._inner, instant, is_partitioned=partitioned, limits=limits, opened=opened
        )

    def _snapshot(self) -> Snapshot:
        return load_snapshot(self.table, load_timeline(self.table), lists_storage=True)

    @property
    def _inner(self) -> OpenTable:
        return inner_table(self.table)


@dataclass(frozen=True, slots=True)
class _Work:
    """The steps of a build or a removal."""

    table: OpenTable

    def turn_off(
        self, partitions: Collection[MetadataPartition], at_work: ExitStack
    ) -> InstantTime:
        """Take partitions off the properties, and delete their files; return the turn's instant.

        The heartbeats of its turns end with ``at_work``.
        """
        is_whole = MetadataPartition.FILES in partitions
        at_work.enter_context(self.turn())  # Whoever misses a partition sees that this is at work.
        with self.table.lock.held(self.table.storage):
            now = read_table_config(self.table.storage)
            lost = now.written_metadata_partitions if is_whole else partitions
            list_partitions_as(self.table.storage, lost=lost)
        # Writers with an earlier turn have ended, later ones read the properties.
        instant, _ = at_work.enter_context(self.turn())
        # Listed before the check, so that these are files of earlier builds: another build may take
        # its turn after the check, and be done before the files are deleted.
        files = [] if is_whole else files_of_partitions(self.table.storage, partitions)
        self.require_owner(instant)
        if is_whole:
            delete_metadata_table(self.table.storage)
            return instant
        withdraw_compactions(self.table)
        withdraw_initialisations(self.table)
        at_once(self.table.storage, self.table.storage.delete, files)
        return instant

    def open_partitions(
        self,
        partitions: Collection[MetadataPartition],
        index: _IndexBuild | None,
        at_work: ExitStack,
    ) -> InstantTime:
        """Make empty partitions that writers maintain; return the turn's instant."""
        columns = _columns(self.table)
        owner = self.turn_off(partitions, at_work)
        create_metadata_table(self.table)
        for partition in partitions:
            instant = claim_initial_instant(self.table)
            self.require_owner(owner)  # Otherwise the next build may not have seen the instant.
            if index is not None and partition is MetadataPartition.RECORD_INDEX:
                file_ids = index.new_file_ids(instant)
            else:
                file_ids = usual_file_groups(partition)
            self.initialise({partition: dict.fromkeys(file_ids, GroupEntries())}, instant)
        self.define_indexes(partitions, columns, index, owner)
        with self.table.lock.held(self.table.storage):
            list_partitions_as(
                self.table.storage, building=partitions, check=lambda _: self.require_owner(owner)
            )
        return owner

    def require_owner(self, instant: InstantTime) -> None:
        """Raise CommitConflictError if another build or removal took a turn after an instant."""
        _require_last(last_turn(self.table.storage), instant)

    def initialise(
        self,
        partitions: Mapping[MetadataPartition, Mapping[FileId, GroupEntries]],
        instant: InstantTime,
        built: Sequence[WriteStat] = (),
    ) -> None:
        """Write and commit the entries of partitions; see ``metadata/creation.py``."""
        completed_at = self.table.clock.next_instant(load_timeline(self.table))
        initialise_partitions(
            self.table, partitions, instant=instant, completed_at=completed_at, built=built
        )

    def define_indexes(
        self,
        partitions: Collection[MetadataPartition],
        columns: tuple[str, ...],
        index: _IndexBuild | None,
        owner: InstantTime,
    ) -> None:
        """Describe the indexes for readers, before the properties list them."""
        definitions = []
        if STATISTICS & {*partitions}:
            definitions.append(
                IndexDefinition.of_column_stats(columns, self.table.config.rules.statistics_version)
            )
        if index is not None:
            partitioned = index.is_partitioned
            definitions.append(IndexDefinition.of_record_index(is_partitioned=partitioned))
        with self.table.lock.held(self.table.storage):
            self.require_owner(owner)
            update_index_definitions(self.table, definitions)

    def list_as_valid(
        self, partitions: Collection[MetadataPartition], owner: InstantTime
    ) -> tuple[str, ...]:
        """List partitions as valid, which were being built; return all that are valid."""

        def check(listed: Collection[str]) -> None:
            self.require_owner(owner)
            # Another build or removal takes them off before its turn, a write at any time. They
            # are valid already if another process continued this build.
            if not {*partitions} <= {*listed}:
                raise CommitConflictError(owner, _OVERTAKEN)

        with self.table.lock.held(self.table.storage):
            return list_partitions_as(self.table.storage, valid=partitions, check=check)

    def turn(
        self, owner: InstantTime | None = None
    ) -> AbstractContextManager[tuple[InstantTime, Timeline]]:
        """Take a turn; give its instant, and the timeline since then.

        With ``owner``, the last build or removal must be that of this instant.
        """

        def is_ready(now: Head) -> bool:
            if owner is not None:
                _require_last(now.turn, owner)
            return not end_undoing(self.table, now.timeline)

        return beating_turn(self.table, is_ready=is_ready, changes_metadata=True)


def _require_last(turn: Turn | None, instant: InstantTime) -> None:
    if turn is None or turn.metadata_instant != instant:
        raise CommitConflictError(instant, _OVERTAKEN)
