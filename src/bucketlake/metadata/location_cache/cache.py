"""Lookups of record keys through a cache on local disk; see ``docs/decisions/0025-*``.

The cache belongs to a user on a host: all Python workers there map the same files. Each shard of
the record-level index has a folder of its own, with its keys and their file groups at one state of
the shard. A lookup brings that state to the pinned slice, if it can, by reading new log files. The
cache is never authoritative: where it cannot be used, the metadata table answers, and any file may
be deleted at any time.
"""

from __future__ import annotations

import os
import random
import stat
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.errors import BucketLakeError, ConfigError
from bucketlake.metadata.location_cache.cached_shard import find_codes
from bucketlake.metadata.location_cache.key_codes import GroupNumbers, note_logs
from bucketlake.metadata.location_cache.refreshing import BypassError, Served, refresh_shard
from bucketlake.metadata.location_cache.shard_folder import LastUse, ShardFolder, shard_folders
from bucketlake.metadata.record_index.entries_of_write import Noted
from bucketlake.metadata.record_index.locations import NOT_FOUND, RecordIndexReader
from bucketlake.model.file_name import Group
from bucketlake.model.file_slice import FileSlice

# ---- Which cached shards are dropped -------------------------------------------------------------
#
# The rule of the dynamic bucket index (Hudi's discussion 18514) makes a shard *eligible*: the
# streaming query that last added keys to it has committed since, and added none. A shard to which
# no query adds keys is always eligible. A byte budget then drops the eligible shards that were
# used least recently. The cache has committed entries only, so a dropped shard costs time and
# nothing else.
#
# The policy of the discussion drops all eligible shards of the table when a checkpoint ends. A
# task does not see that end, so the first lookup of the next batch applies the rule, for the
# checkpoint before (:attr:`Checkpoint.before`): a shard that gets keys in each batch stays.


class EvictionPolicy(Enum):
    """When eligible shards are dropped."""

    LRU = "lru"
    """While the cache exceeds its budget, the least recently used first."""

    CHECKPOINT = "checkpoint"
    """All shards of the table, when a checkpoint ends; a byte budget holds as well."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The progress of a streaming query.

    Attributes
    ----------
    query : str
        Name of the query.
    current : int
        The batch that is being written.
    succeeded : int
        The last batch that is committed; -1 before the first.
    """

    query: str
    current: int
    succeeded: int = -1

    @property
    def before(self) -> Checkpoint:
        """The checkpoint before, as it was when it ended."""
        return Checkpoint(self.query, self.current - 1, self.succeeded - 1)


@dataclass(frozen=True, slots=True)
class CachedSize:
    """A cached shard, as the eviction sees it."""

    folder: ShardFolder
    size_bytes: int
    last_use: LastUse


def plan_eviction(
    cached: Sequence[CachedSize],
    bytes_max: int,
    policy: EvictionPolicy = EvictionPolicy.LRU,
    checkpoint: Checkpoint | None = None,
) -> list[CachedSize]:
    """Return the shards to drop.

    Parameters
    ----------
    cached : sequence of CachedSize
        All cached shards that are not in use.
    bytes_max : int
        The budget. It is exceeded if too few shards are eligible.
    policy : EvictionPolicy
        Whether shards within the budget are dropped too.
    checkpoint : Checkpoint, optional
        Progress of the query that writes. Updates by other queries protect no shard.
    """
    eligible = [each for each in cached if _is_eligible(each.last_use, checkpoint)]
    if policy is EvictionPolicy.CHECKPOINT and checkpoint is not None:
        # Another task fills a shard that was never used, and notes its use afterwards.
        return [each for each in eligible if each.last_use.at_ns]
    dropped, left = [], sum(each.size_bytes for each in cached)
    for each in sorted(eligible, key=lambda each: each.last_use.at_ns):
        if left <= bytes_max:
            break
        dropped.append(each)
        left -= each.size_bytes
    return dropped


def evict(
    folders: Iterable[ShardFolder],
    bytes_max: int,
    policy: EvictionPolicy = EvictionPolicy.LRU,
    checkpoint: Checkpoint | None = None,
    in_use: ShardFolder | None = None,
) -> None:
    """Drop some of the cached shards."""
    cached = [CachedSize(folder, *folder.size_and_use()) for folder in folders if folder != in_use]
    if in_use is not None:
        bytes_max -= in_use.size_bytes()
    for each in plan_eviction(cached, bytes_max, policy, checkpoint):
        each.folder.remove()


def _is_eligible(last_use: LastUse, checkpoint: Checkpoint | None) -> bool:
    if checkpoint is None or last_use.query != checkpoint.query:
        return True
    return last_use.checkpoint <= checkpoint.succeeded


# ---- The cache -----------------------------------------------------------------------------------

CACHE_BYTES_MAX = 4 * 2**30
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
    bytes_max: int = CACHE_BYTES_MAX
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

    def note(self, table_root: str, instant: str, written: Sequence[Noted]) -> None:
        """Note what a task wrote into files of shards, for the next lookups on this host.

        See :func:`~bucketlake.metadata.location_cache.key_codes.note_logs`.
        """
        with suppress(UnsafeFolderError, OSError):
            root = make_root(self.root)
            for folder, written_bytes in note_logs(root, table_root, instant, written):
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


# ---- The folder of the location cache on a host --------------------------------------------------
#
# Each user has one, to which nobody else writes.

_NAME = "bucketlake-locations"

_FOREIGN_WRITES = stat.S_IWGRP | stat.S_IWOTH


class UnsafeFolderError(Exception):
    """Another user owns the folder of the cache, or can write to it."""


def default_folder() -> str:
    """Return the folder below the temporary folder of this host, with the user's number."""
    return str(Path(tempfile.gettempdir()) / f"{_NAME}-{_user()}")


def make_root(path: Path) -> Path:
    """Create the folder if it is missing, and return it.

    Raises
    ------
    UnsafeFolderError
        If another user could change the cached answers.
    OSError
        If it cannot be created.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    require_own(path)
    return path


def require_own(path: Path) -> None:
    """Raise UnsafeFolderError if another user could write to a folder.

    Raises
    ------
    OSError
        If there is no such folder, or it cannot be looked at.
    """
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise UnsafeFolderError(f"{path} is a link or a file, not a folder")
    if hasattr(os, "geteuid") and (
        status.st_uid != os.geteuid() or status.st_mode & _FOREIGN_WRITES
    ):
        raise UnsafeFolderError(f"{path} belongs to another user, or others can write to it")


def _user() -> str:
    return str(os.geteuid()) if hasattr(os, "geteuid") else "user"


# ---- What the environment says of the cache ------------------------------------------------------
#
# The driver reads the variables, and the tasks of a write get the cache as a value. So executors
# need no variables of their own, on Spark Connect neither. See ``docs/how-to/dynamic-buckets.md``.

FOLDER: Final = "BUCKETLAKE_CACHE_FOLDER"
"""Folder on each host; created if it is missing."""

BYTES: Final = "BUCKETLAKE_CACHE_BYTES"
"""Size of the cache on each host; 0 for none."""

EVICTION: Final = "BUCKETLAKE_CACHE_EVICTION"
"""Which shards are dropped: ``lru`` or ``checkpoint``."""


def chosen_cache() -> LocationCache | None:
    """Return the cache as the variables say; None if it is turned off.

    Raises
    ------
    ConfigError
        If a variable has a value that cannot be used.
    """
    folder, bytes_max, policy = _folder(), _bytes_max(), _policy()
    return LocationCache(folder, bytes_max, policy) if bytes_max else None


def _folder() -> str | None:
    text = os.environ.get(FOLDER, "")
    if not text:
        return None
    path = Path(text)
    if not path.is_absolute():
        raise ConfigError(FOLDER, text, "give an absolute path: tasks run in other folders")
    try:
        require_own(path)
    except FileNotFoundError:  # Tasks create it on their hosts.
        return text
    except (UnsafeFolderError, OSError) as error:
        allowed = f"{error}; give a folder that you own and that nobody else can write to"
        raise ConfigError(FOLDER, text, allowed) from error
    return text


def _bytes_max() -> int:
    text = os.environ.get(BYTES) or str(CACHE_BYTES_MAX)
    if not (text.isascii() and text.isdecimal()):
        raise ConfigError(BYTES, text, "give a number of bytes, such as 4294967296; 0 for no cache")
    return int(text)


def _policy() -> EvictionPolicy:
    text = os.environ.get(EVICTION) or EvictionPolicy.LRU
    try:
        return EvictionPolicy(text)
    except ValueError:
        allowed = " or ".join(policy.value for policy in EvictionPolicy)
        raise ConfigError(EVICTION, text, f"give {allowed}") from None
