"""Upgrading and downgrading a table: to another table version, in place.

The properties of the table decide its version, and they are replaced as one: in the same step the
metadata table leaves them, because its form follows the version. From then on readers list the
storage. The metadata table is then built anew, as for any table. The properties name its partitions
until that is done, so that a call after a crash goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from bucketlake.actions.recovery import settle_failed_writes
from bucketlake.config import table_keys as keys
from bucketlake.config.merge_entries import unstorable_merges
from bucketlake.config.support import check_writable
from bucketlake.config.table_config import TableConfig
from bucketlake.config.table_version import check_version, table_version
from bucketlake.errors import ConfigError, UnsupportedFeatureError
from bucketlake.flow.stage import Engine
from bucketlake.flow.threads import HERE
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.index.setting import require_known_index, resolve_index
from bucketlake.metadata.record_index.definition_file import read_index_definitions
from bucketlake.model.shown import Shown
from bucketlake.read.key_spelling import is_spelling_open, stored_keys_are_bare
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.services.metadata.rebuild import build_metadata_table
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.clock import system_now_ms
from bucketlake.timeline.locks import NO_LOCK, TableLock
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.table_properties import table_at, update_table_properties
from bucketlake.write.create import require_known_types


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
        Partitions of the metadata table that the version does not have.
    """

    version: int
    version_before: int
    readers: str
    built: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def plan_version_change(table: OpenTable, to: int) -> VersionReport:
    """Return what a change of the version does.

    Raises
    ------
    UnsupportedFeatureError
        If the table cannot be written, or the other version has another timeline layout.
    ConfigError
        If bucketlake does not write this version, or the version lacks what the table uses; the
        error names it.
    InputError
        The same for the type of a column.
    """
    check_version(to)
    config, root = table.config, table.storage.root
    check_writable(config, root)
    if config.layout != table_version(to).layout:
        raise UnsupportedFeatureError(
            f"a change from table version {config.version} to {to}, which has another timeline",
            root,
            "let Hudi upgrade it, or write the rows to a new table of that version",
        )
    index = resolve_index(table.storage, load_timeline(table), None)
    if index is not None:
        require_known_index(index, to, f"the table {root}, as it would be then,")
    rules = table_version(to)
    for key, value, problem in unstorable_merges(
        rules, config.ordering_fields, config.delete_field, config.partial_update_mode
    ):
        raise ConfigError(key, value, f"the table {root} uses it, and {problem}")
    snapshot = load_snapshot(table)
    schema = snapshot.schema_or_none
    if schema is not None:
        require_known_types(rules, schema, root)
    _require_same_keys(snapshot, to)
    held = config.written_metadata_partitions | _unbuilt(config)
    dropped = frozenset(_unknown_partitions(table, to))
    return VersionReport(
        version=to,
        version_before=config.version,
        readers=rules.releases,
        built=tuple(sorted(held - dropped)),
        dropped=tuple(sorted(held & dropped)),
    )


def change_version(
    storage: Storage,
    to: int,
    *,
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
    engine : Engine
        Builds a record-level index.
    lock : TableLock
        Held while the properties change.
    now_ms : callable
        Milliseconds since 1970 UTC.

    Raises
    ------
    CommitConflictError
        If another process builds or removes the metadata table meanwhile.
    """
    table = table_at(storage, lock, now_ms)
    plan = plan_version_change(table, to)
    if plan.version_before == to and not _unbuilt(table.config):
        return replace(plan, built=(), dropped=())
    settle_failed_writes(table, load_timeline(table))

    def change(entries: dict[str, str]) -> Mapping[str, str]:
        config = TableConfig.from_properties(entries)
        return entries if config.version == to else _in_version(config, plan).to_properties()

    with lock.held(storage):
        update_table_properties(storage, change, now_ms=now_ms)
    if plan.built:
        build_metadata_table(storage, plan.built, engine=engine, lock=lock, now_ms=now_ms)
    with lock.held(storage):
        update_table_properties(storage, _without_unbuilt, now_ms=now_ms)
    return plan


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


def _in_version(config: TableConfig, plan: VersionReport) -> TableConfig:
    unbuilt = {keys.UNBUILT_PARTITIONS: ",".join(plan.built)} if plan.built else {}
    return replace(config.in_version(plan.version), extra={**config.extra, **unbuilt})


def _unbuilt(config: TableConfig) -> frozenset[str]:
    """Return the partitions of the metadata table that a change before has not built yet."""
    return frozenset(filter(None, config.extra.get(keys.UNBUILT_PARTITIONS, "").split(",")))


def _without_unbuilt(entries: dict[str, str]) -> Mapping[str, str]:
    return {key: text for key, text in entries.items() if key != keys.UNBUILT_PARTITIONS}


def _unknown_partitions(table: OpenTable, to: int) -> Iterator[str]:
    """Yield the partitions of the metadata table that a version does not have."""
    index = read_index_definitions(table).get(MetadataPartition.RECORD_INDEX)
    if index is not None and index.is_partitioned and not table_version(to).has_partitioned_index:
        yield MetadataPartition.RECORD_INDEX
