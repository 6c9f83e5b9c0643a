"""Lookups of record keys through a cache on local disk; see ``docs/decisions/0025-*``.

The cache belongs to a user on a host: all Python workers there map the same files. Each shard of
the record-level index has a folder of its own, with its keys and their file groups at one state of
the shard. A lookup brings that state to the pinned slice, if it can, by reading new log files. The
cache is never authoritative: where it cannot be used, the metadata table answers, and any file may
be deleted at any time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.errors import BucketLakeError
from bucketlake.metadata.location_cache.cached_shard import find_codes
from bucketlake.metadata.location_cache.eviction import Checkpoint, EvictionPolicy, evict
from bucketlake.metadata.location_cache.key_codes import GroupNumbers
from bucketlake.metadata.location_cache.noted_log import note_log
from bucketlake.metadata.location_cache.refreshing import BypassError, Served, refresh_shard
from bucketlake.metadata.location_cache.root_folder import (
    UnsafeFolderError,
    default_folder,
    make_root,
)
from bucketlake.metadata.location_cache.shard_folder import ShardFolder, shard_folders
from bucketlake.metadata.record_index.locations import NOT_FOUND, RecordIndexReader
from bucketlake.metadata.slices.log_files import GroupEntries
from bucketlake.model.file_name import Group
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.write_stat import WriteStat

BYTES_MAX = 4 * 2**30
"""Default size of the cache of a user on a host."""

_SCAN_SHARE = 8  # Shards to drop are looked for each time that so much of the budget was written.


@dataclass(frozen=True, slots=True, eq=False)
class CachedLookup:
    """The file groups of some keys.

    Attributes
    ----------
    codes : ndarray of int32, shape (n_keys,)
        For each key, the position of its file group in ``groups``; ``NOT_FOUND`` without an entry.
    groups : tuple of (str, FileId)
        Data partitions and ids of file groups; perhaps also of file groups that no key has.
    served : Served
        How the lookup was answered.
    """

    codes: npt.NDArray[np.int32]
    groups: tuple[Group, ...]
    served: Served


@dataclass(frozen=True, slots=True)
class LocationCache:
    """The cache of a user on this host; a small picklable value.

    Attributes
    ----------
    folder : str or None
        Folder on local disk. None for that of the user below the temporary folder of the host on
        which keys are looked up.
    bytes_max : int
        Size above which shards are dropped.
    policy : EvictionPolicy
        Whether shards are dropped at checkpoints, too.
    """

    folder: str | None = None
    bytes_max: int = BYTES_MAX
    policy: EvictionPolicy = EvictionPolicy.LRU

    @property
    def root(self) -> Path:
        """The folder on this host."""
        return Path(self.folder or default_folder())

    def find(
        self,
        index: RecordIndexReader,
        held: FileSlice,
        keys: pa.Array,
        checkpoint: Checkpoint | None = None,
    ) -> CachedLookup:
        """Look up keys in a shard.

        Parameters
        ----------
        index : RecordIndexReader
            The pinned index.
        held : FileSlice
            The pinned slice of the shard.
        keys : pa.Array of text
            Keys without nulls, in any order. Other keys than those of the shard are not found.
        checkpoint : Checkpoint, optional
            Progress of the streaming query that writes. Keys that are not found count as new keys.

        Returns
        -------
        CachedLookup
            The same file groups as ``index.find_in`` gives.

        Raises
        ------
        MetadataTableError, CommitConflictError, StorageError
            As ``index.find_in``. Errors of the cache itself are not raised.
        """
        try:
            root = make_root(self.root)
            folder = ShardFolder.of(root, index.table.storage.outer.root, held.file_id)
            shard = refresh_shard(folder, index.table, held, len(keys))
        except (BypassError, BucketLakeError, UnsafeFolderError, OSError, pa.ArrowInvalid):
            # The metadata table either answers, or raises the error that says what is wrong.
            return _without_cache(index, held, keys)
        codes = find_codes(shard.parts, keys)
        has_new_keys = (codes == NOT_FOUND).any()
        if checkpoint is not None and has_new_keys:
            folder.note_use(checkpoint.query, checkpoint.current)
        else:
            folder.note_use()
        if checkpoint is not None and self.policy is EvictionPolicy.CHECKPOINT:
            self._end_checkpoint(folder, checkpoint)
        if shard.written_bytes:
            self._keep_budget(root, folder, shard.written_bytes, checkpoint)
        return CachedLookup(codes, shard.groups, shard.served)

    def note(
        self,
        table_root: str,
        log: WriteStat,
        entries: GroupEntries,
        groups: Sequence[Group],
    ) -> None:
        """Note what a task wrote into the log file of a shard, for the next lookup on this host.

        Parameters
        ----------
        table_root : str
            Address of the data table.
        log : WriteStat
            The log file.
        entries, groups
            See :func:`~bucketlake.metadata.location_cache.noted_log.note_log`.
        """
        name = log.path.rpartition("/")[2]
        with suppress(UnsafeFolderError, OSError):
            root = make_root(self.root)
            folder = ShardFolder.of(root, table_root, log.file_id)
            written_bytes = note_log(folder, name, log.file_size_bytes, entries, groups)
            self._keep_budget(root, folder, written_bytes)

    def _end_checkpoint(self, in_use: ShardFolder, checkpoint: Checkpoint) -> None:
        """Apply the rule of the discussion once for the checkpoint before."""
        table = in_use.path.parent
        if _begun.get(table) != checkpoint:
            _begun[table] = checkpoint
            rule = EvictionPolicy.CHECKPOINT
            evict(in_use.of_table(), self.bytes_max, rule, checkpoint.before, in_use)

    def _keep_budget(
        self,
        root: Path,
        in_use: ShardFolder,
        written_bytes: int,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """Sometimes look for shards to drop: once in a share of the budget.

        Chance decides, because the processes of a host do not know what the others wrote.
        """
        if random.random() * self.bytes_max <= written_bytes * _SCAN_SHARE:
            evict(shard_folders(root), self.bytes_max, EvictionPolicy.LRU, checkpoint, in_use)


_begun: dict[Path, Checkpoint] = {}  # The newest batch that this process looked keys up for.


def _without_cache(index: RecordIndexReader, held: FileSlice, keys: pa.Array) -> CachedLookup:
    found = index.find_in(held, keys)
    numbers = GroupNumbers()
    codes = np.append(numbers.of_locations(found.locations), np.int32(NOT_FOUND))[found.codes]
    return CachedLookup(codes, numbers.groups, Served.BYPASSED)
