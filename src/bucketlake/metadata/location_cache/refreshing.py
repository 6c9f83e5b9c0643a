"""Brings the cached state of a shard to a pinned slice, or makes it from the metadata table.

Usually the cached state is that of the slice, or lacks some log files, which are then read. Else
the whole shard is read, unless the lookup has so few keys that it is cheaper to ask the metadata
table. What was read counts even if it cannot be written to disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto

from bucketlake.errors import (
    CommitConflictError,
    FormatError,
    ObjectNotFoundError,
    UnsupportedFeatureError,
)
from bucketlake.metadata.location_cache.cached_shard import (
    DENSE,
    PartBuilder,
    add_entries,
    changed_parts,
)
from bucketlake.metadata.location_cache.coverage import Coverage
from bucketlake.metadata.location_cache.key_codes import (
    GroupNumbers,
    forget_logs,
    noted_changes,
    read_base,
    read_key_changes,
)
from bucketlake.metadata.location_cache.part import DamagedFileError, Part
from bucketlake.metadata.location_cache.shard_folder import ShardFolder, ShardState
from bucketlake.metadata.metadata_table import MetadataTable
from bucketlake.model.file_name import Group
from bucketlake.model.file_slice import DataFile, FileSlice

_BLOCK_BYTES = 2**14  # About the stored size of a block, which a lookup of one key reads.
_LOOKUPS = 8  # A shard is read whole if so many lookups like this one read as much.
_NOT_LEADING = (ObjectNotFoundError, CommitConflictError, FormatError, UnsupportedFeatureError)


class Served(Enum):
    """How a lookup in a shard was answered."""

    AS_IT_WAS = auto()
    """By the cached shard, without a read of entries."""

    EXTENDED = auto()
    """By the cached shard, after the entries of new log files were added."""

    BUILT = auto()
    """By the cached shard, after it was read whole from the metadata table."""

    BYPASSED = auto()
    """By the metadata table, without the cache."""

    @property
    def is_from_cache(self) -> bool:
        """Whether the cache answered, perhaps after it read new log files."""
        return self in (Served.AS_IT_WAS, Served.EXTENDED)


class BypassError(Exception):
    """The metadata table shall answer this lookup."""


@dataclass(frozen=True, slots=True, eq=False)
class RefreshedShard:
    """A shard at a pinned slice.

    Attributes
    ----------
    parts : sequence of Part
        Oldest first.
    groups : tuple of Group
        The file group of each code.
    served : Served
        What was done; never ``BYPASSED``.
    written_bytes : int
        Size of the parts that were written.
    """

    parts: Sequence[Part]
    groups: tuple[Group, ...]
    served: Served
    written_bytes: int = 0


def refresh_shard(
    folder: ShardFolder, table: MetadataTable, held: FileSlice, key_count: int
) -> RefreshedShard:
    """Return a shard at a pinned slice.

    Parameters
    ----------
    folder : ShardFolder
        Folder of the shard.
    table : MetadataTable
        The pinned table.
    held : FileSlice
        The slice of the shard.
    key_count : int
        Number of keys to look up.

    Raises
    ------
    BypassError
        If the cache is of no use for this lookup.
    BucketLakeError
        If the metadata table cannot be read.
    """
    if table.config.layout.logs_name_slices:  # Names of log files do not tell instants there.
        raise BypassError
    refresh = _Refresh(folder, table, held)
    try:
        loaded = folder.load()
    except (DamagedFileError, OSError):
        folder.remove()
        loaded = None
    if loaded is not None:
        state, parts = loaded
        refreshed = refresh.extended(state, parts)
        if refreshed is not None:
            return refreshed
        if state.coverage.is_newer_than(table):
            raise BypassError
    if not is_worth_reading(held, key_count):
        raise BypassError
    return refresh.built()


def is_worth_reading(held: FileSlice, key_count: int) -> bool:
    """Return whether to read a shard whole for a lookup of some keys.

    A lookup reads all log files, and a block of the base file for each key.
    """
    base_bytes = 0 if held.base_file is None else held.base_file.size_bytes
    looked_up = held.log_bytes + min(key_count * _BLOCK_BYTES, base_bytes)
    return _LOOKUPS * looked_up >= held.log_bytes + base_bytes


@dataclass(frozen=True, slots=True)
class _Refresh:
    folder: ShardFolder
    table: MetadataTable
    held: FileSlice

    def extended(self, state: ShardState, parts: list[Part]) -> RefreshedShard | None:
        """Bring a cached state to the slice; None if it does not lead there."""
        try:
            lacking = state.coverage.lacks(self.table, self.held)
            if lacking is None:
                return None
            return self._with_logs(state, parts, lacking)
        except _NOT_LEADING:  # A plan or a log file before a compaction was deleted meanwhile.
            return None

    def _with_logs(
        self, state: ShardState, parts: list[Part], lacking: Sequence[DataFile]
    ) -> RefreshedShard | None:
        coverage = Coverage.of(self.table, self.held)
        is_same = (state.coverage.base, state.coverage.logs) == (coverage.base, coverage.logs)
        if not lacking:
            if not is_same:  # A compaction put what is cached into a base file.
                with suppress(OSError):
                    self.folder.publish(replace(state, coverage=coverage))
            return RefreshedShard(parts, state.groups, Served.AS_IT_WAS)
        numbers = GroupNumbers({group: code for code, group in enumerate(state.groups)})
        changes = noted_changes(self.folder, lacking, numbers)
        if changes is None:
            changes = read_key_changes(self.table, self.held, lacking, numbers)
        if changes.reaches_back:
            return None
        count, added = changed_parts(parts, changes)
        kept = ShardState(coverage, numbers.groups, state.parts[:count])
        refreshed = self._saved(kept, parts[:count], added, Served.EXTENDED)
        self.folder.delete_parts(state.parts[count:])
        forget_logs(self.folder, lacking)
        return refreshed

    def built(self) -> RefreshedShard:
        """Read the whole slice, but not its first base file or only log file if that is noted."""
        coverage = Coverage.of(self.table, self.held)
        numbers = GroupNumbers()
        parts: list[Part] = []
        read_count = 0
        base = self.held.base_file
        if base is not None:
            noted = noted_changes(self.folder, [base], numbers)
            if noted is None:
                read_count, batches = read_base(self.table, base, numbers)
            else:
                batches = iter([noted.put])
            builder = PartBuilder(read_count if noted is None else noted.count)
            for batch in batches:
                add_entries(builder, batch)
            parts.append(builder.finish(DENSE))
        if self.held.log_files:
            changes = noted_changes(self.folder, self.held.log_files, numbers)
            if changes is None:
                changes = read_key_changes(self.table, self.held, self.held.log_files, numbers)
                read_count += changes.count
            count, added = changed_parts(parts, changes)
            parts = [*parts[:count], *added]
        served = Served.BUILT if read_count else Served.EXTENDED  # With the note of a log file.
        refreshed = self._saved(ShardState(coverage, numbers.groups, ()), [], parts, served)
        forget_logs(self.folder, self.held.files)
        return refreshed

    def _saved(
        self, kept: ShardState, kept_parts: Sequence[Part], added: Sequence[Part], served: Served
    ) -> RefreshedShard:
        """Write new parts after those of a state, and publish the state with them."""
        mapped: list[Part] = []
        try:
            names = [self.folder.add_part(part, kept.coverage.newest_time) for part in added]
            # From now on the parts are in the page cache, where other processes find them too.
            mapped = [self.folder.open(name) for name in names]
            self.folder.publish(replace(kept, parts=(*kept.parts, *names)))
        except (OSError, DamagedFileError):  # The disk is full, or somebody deleted the files.
            mapped = list(added)
        written_bytes = sum(part.size_bytes for part in added)
        return RefreshedShard([*kept_parts, *mapped], kept.groups, served, written_bytes)
