"""Upgrading and downgrading a table: to another table version, in place.

The properties of the table decide its version, and they are replaced as one: in the same step the
metadata table leaves them, because its form follows the version. From then on readers list the
storage. The metadata table is then built anew, as for any table. The properties name its partitions
until that is done, so that a call after a crash goes on.

Up to table version 7 the timeline has another layout. Then the whole timeline is written in the
other layout before the properties change (``services/layout_change.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bucketlake.actions.recovery import settle_failed_writes
from bucketlake.config import table_keys as keys
from bucketlake.config.merge_entries import unstorable_merges
from bucketlake.config.support import check_writable
from bucketlake.config.table_config import TableConfig
from bucketlake.config.table_version import TableVersion, check_version, table_version
from bucketlake.errors import ConfigError
from bucketlake.flow.stage import Engine
from bucketlake.flow.threads import HERE
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.index.setting import resolve_index
from bucketlake.metadata.creation import delete_metadata_table, known_partitions
from bucketlake.metadata.record_index.definition_file import read_index_definitions
from bucketlake.model.names import one_of
from bucketlake.model.shown import Shown
from bucketlake.read.key_spelling import is_spelling_open, stored_keys_are_bare
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.services.layout_change import (
    COMPLETION_TIMES,
    end_move,
    move_timeline,
    require_movable,
)
from bucketlake.services.metadata.rebuild import build_metadata_table
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.clock import system_now_ms
from bucketlake.timeline.locks import NO_LOCK, Check, TableLock
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.other_layout import read_move
from bucketlake.timeline.table_properties import (
    read_table_config,
    table_at,
    update_table_properties,
)
from bucketlake.write.create import require_known_types

DROPPABLE = (COMPLETION_TIMES,)
"""What a downgrade may lose if the caller names it."""


@dataclass(frozen=True, slots=True)
class VersionReport(Shown):
    """What an upgrade or downgrade changes or has changed.

    Attributes
    ----------
    version : int
        Table version afterwards.
    version_before : int
        Table version before.
    readers : str
        The releases of Hudi that read the table afterwards.
    built : tuple of str
        Partitions of the metadata table that are built anew.
    dropped : tuple of str
        Partitions of the metadata table that the table does not have afterwards.
    compacted : int
        File slices whose log files are compacted first.
    """

    version: int
    version_before: int
    readers: str
    built: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    compacted: int = 0


def plan_version_change(table: OpenTable, to: int, drop: Sequence[str] = ()) -> VersionReport:
    """Return what a change of the version does.

    Raises
    ------
    UnsupportedFeatureError
        If the table cannot be written in either version.
    ConfigError
        If bucketlake does not write this version, or the version lacks what the table uses; the
        error names it.
    InputError
        The same for the type of a column.
    TimelineError
        If an action is pending that the change cannot end.
    """
    check_version(to)
    for name in drop:
        if name not in DROPPABLE:
            raise ConfigError("drop", name, one_of(name, DROPPABLE))
    config, root = table.config, table.storage.root
    check_writable(config.in_version(config.version), root)  # The metadata table is built anew.
    rules, target = table_version(to), config.in_version(to)
    there = f"{root} in version {to}"
    check_writable(TableConfig.from_properties(target.to_properties()), there)
    snapshot = load_snapshot(table)
    _require_known(snapshot, rules)
    _require_same_keys(snapshot, to)
    compacted = 0
    if target.layout != config.layout:
        compacted = require_movable(snapshot, target, drop)
    held = config.written_metadata_partitions | _unbuilt(config)
    dropped = frozenset(_unknown_partitions(table, rules, held))
    return VersionReport(
        version=to,
        version_before=config.version,
        readers=rules.releases,
        built=tuple(sorted(held - dropped)),
        dropped=tuple(sorted(held & dropped)),
        compacted=compacted,
    )


def change_version(
    storage: Storage,
    to: int,
    *,
    drop: Sequence[str] = (),
    engine: Engine = HERE,
    lock: TableLock = NO_LOCK,
    now_ms: Callable[[], int] = system_now_ms,
) -> VersionReport:
    """Change the version of a table; see :func:`plan_version_change`.

    Parameters
    ----------
    storage : Storage
        The table.
    to : int
        The version.
    drop : sequence of str
        What may be lost, of :data:`DROPPABLE`.
    engine : Engine
        Compacts slices, and builds a record-level index.
    lock : TableLock
        Held while the timeline and the properties change.
    now_ms : callable
        Milliseconds since 1970 UTC.

    Raises
    ------
    CommitConflictError
        If another process builds or removes the metadata table meanwhile, or writes to a table
        whose timeline moves.
    """
    table = table_at(storage, lock, now_ms)
    plan = plan_version_change(table, to, drop)
    is_moved = read_move(storage) is not None  # By a call that died.
    if plan.version_before == to:
        plan = replace(plan, built=plan.built if _unbuilt(table.config) else (), dropped=())
        if not plan.built and not is_moved:
            return plan
    with lock.held(storage) as require_held:
        free = table.without_lock()
        if is_moved:
            end_move(free)
        if plan.version_before != to:
            _change(free, plan, drop, engine, require_held)
    if plan.built:
        _build(storage, plan, engine, lock, now_ms)
    elif not read_table_config(storage).written_metadata_partitions:
        delete_metadata_table(storage)
    with lock.held(storage):
        update_table_properties(storage, _without_unbuilt, now_ms=now_ms)
        end_move(table_at(storage, now_ms=now_ms))
    return plan


def _build(
    storage: Storage,
    plan: VersionReport,
    engine: Engine,
    lock: TableLock,
    now_ms: Callable[[], int],
) -> None:
    """Build the metadata table in the form of the version that the table has now."""
    definitions = read_index_definitions(table_at(storage, now_ms=now_ms))
    # Before Hudi defined its indexes, the record-level index was one of the whole table.
    is_defined = MetadataPartition.RECORD_INDEX in definitions
    build_metadata_table(
        storage,
        plan.built,
        is_partitioned=None if is_defined else False,
        engine=engine,
        lock=lock,
        now_ms=now_ms,
    )


def _change(
    table: OpenTable,
    plan: VersionReport,
    drop: Sequence[str],
    engine: Engine,
    require_held: Check,
) -> None:
    """Replace the properties, with the timeline if its layout changes."""
    target, now_ms = table.config.in_version(plan.version), table.clock.now_ms

    def put(check: Check = lambda: None, entry: Mapping[str, str] | None = None) -> None:
        def change(entries: dict[str, str]) -> Mapping[str, str]:
            config = TableConfig.from_properties(entries)
            check()
            if config.version == plan.version:
                return entries
            return _in_version(config, plan, entry or {}).to_properties()

        update_table_properties(table.storage, change, now_ms=now_ms)

    if target.layout == table.config.layout:
        settle_failed_writes(table, load_timeline(table))
        put()
    else:
        move_timeline(
            table,
            target,
            lambda check: put(check, {keys.TIMELINE_MOVED: str(now_ms())}),
            drop=drop,
            engine=engine,
            require_held=require_held,
        )


def _require_known(snapshot: Snapshot, rules: TableVersion) -> None:
    """Raise an error that names what a table uses and a version lacks."""
    config = snapshot.config
    index = resolve_index(snapshot.storage, snapshot.timeline, None)
    if index is not None and index.first_version > rules.number:
        version = rules.number
        raise ConfigError(
            "index",
            index,
            f"readers know it since version {index.first_version}, and no conversion leads from it "
            f"to an index that version {version} has: make a new table with create_table(..., "
            f"index=SimpleBucket(4), version={version}) (bucketlake create --buckets 4 "
            f"--table-version {version}), and write the rows of this one to it with bulk_insert",
        )
    for key, value, problem in unstorable_merges(
        rules, config.ordering_fields, config.delete_field, config.partial_update_mode
    ):
        raise ConfigError(key, value, f"the table {snapshot.storage.root} uses it, and {problem}")
    schema = snapshot.schema_or_none
    if schema is not None:
        require_known_types(rules, schema, snapshot.storage.root)


def _require_same_keys(snapshot: Snapshot, to: int) -> None:
    """Raise ConfigError if writers of the version would spell the keys in another way."""
    config = snapshot.config
    is_open = is_spelling_open(replace(config, version=to, initial_version=to))
    if not is_open and not is_spelling_open(config):
        return
    is_bare = stored_keys_are_bare(snapshot)
    if is_bare is not None and is_bare is not is_open:
        field = config.key_spec.record_key_fields[0]
        held, asked = ("without", "with") if is_bare else ("with", "without")
        raise ConfigError(
            "to",
            to,
            f"the keys of the table are stored {held} the name of their field ({field}:VALUE), and "
            f"writers of version {to} would store them once more {asked} it; write the rows to a "
            "new table instead",
        )


def _in_version(config: TableConfig, plan: VersionReport, entry: Mapping[str, str]) -> TableConfig:
    unbuilt = {keys.UNBUILT_PARTITIONS: ",".join(plan.built)} if plan.built else {}
    return replace(config.in_version(plan.version), extra={**config.extra, **unbuilt, **entry})


def _unbuilt(config: TableConfig) -> frozenset[str]:
    """Return the partitions of the metadata table that a change before has not built yet."""
    return frozenset(filter(None, config.extra.get(keys.UNBUILT_PARTITIONS, "").split(",")))


def _without_unbuilt(entries: dict[str, str]) -> Mapping[str, str]:
    return {key: text for key, text in entries.items() if key != keys.UNBUILT_PARTITIONS}


def _unknown_partitions(
    table: OpenTable, rules: TableVersion, held: frozenset[str]
) -> Iterator[str]:
    """Yield the partitions of the metadata table that cannot be built in a version."""
    yield from held - {partition.value for partition in known_partitions(rules)}
    index = read_index_definitions(table).get(MetadataPartition.RECORD_INDEX)
    if index is not None and index.is_partitioned and not rules.has_partitioned_index:
        yield MetadataPartition.RECORD_INDEX
