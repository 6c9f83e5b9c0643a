"""The folder of a cached shard on local disk: its parts, its state, and when it was used.

The state names the parts, the files that they cover, and the file groups of their codes. It is one
small file that is replaced by a rename, so readers see one state or the other. Parts never change.
Processes take no lock: if two of them change a shard at once, the last state wins, and the parts of
the other are deleted later. A part that a new state does not name is deleted at once; a process
that maps it keeps it, and a process that is about to open it reads the state again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bucketlake.metadata.location_cache.coverage import Coverage
from bucketlake.metadata.location_cache.part import (
    DamagedFileError,
    Part,
    open_part,
    write_part,
    write_whole,
)
from bucketlake.model.file_name import FileId, Group

_VERSION = 1
_STATE, _USED, _PART_SUFFIX = "state", "used", ".part"
_ATTEMPTS = 3
_UNPUBLISHED_SECONDS = 600.0  # A part this young may be that of a state that is being made.


@dataclass(frozen=True, slots=True)
class ShardState:
    """What the files of a cached shard hold.

    Attributes
    ----------
    coverage : Coverage
        The files of the metadata table whose entries they hold.
    groups : tuple of Group
        The file group of each code.
    parts : tuple of str
        Names of the parts, oldest first. Entries of later parts replace those of earlier parts.
    """

    coverage: Coverage
    groups: tuple[Group, ...]
    parts: tuple[str, ...]

    def to_bytes(self) -> bytes:
        """Return the content of the state file."""
        value = {
            "version": _VERSION,
            "coverage": self.coverage.to_value(),
            "groups": self.groups,
            "parts": self.parts,
        }
        text = json.dumps(value).encode()
        return b"%08x\n%s" % (zlib.crc32(text), text)

    @classmethod
    def from_bytes(cls, content: bytes, path: Path) -> ShardState:
        """Undo :meth:`to_bytes`; raise DamagedFileError."""
        checksum, _, text = content.partition(b"\n")
        if checksum != b"%08x" % zlib.crc32(text):
            raise DamagedFileError(f"{path}: the checksum is wrong")
        value = json.loads(text)
        if value["version"] != _VERSION:
            raise DamagedFileError(f"{path}: version {value['version']} instead of {_VERSION}")
        groups = tuple((partition, FileId(file_id)) for partition, file_id in value["groups"])
        return cls(Coverage.from_value(value["coverage"]), groups, tuple(value["parts"]))


@dataclass(frozen=True, slots=True)
class LastUse:
    """When a cached shard was used.

    Attributes
    ----------
    at_ns : int
        Time of the last lookup, in nanoseconds since 1970.
    query : str or None
        The streaming query that last added keys to the shard; None if no query did.
    checkpoint : int
        The checkpoint of the query in which it did so ("last updated checkpoint").
    """

    at_ns: int
    query: str | None = None
    checkpoint: int = -1


@dataclass(frozen=True, slots=True)
class ShardFolder:
    """The folder of one shard.

    Attributes
    ----------
    path : Path
        The folder; it may not exist.
    """

    path: Path

    @classmethod
    def of(cls, root: Path, table_root: str, file_id: str) -> ShardFolder:
        """Return the folder of a shard of a table, below the root of a cache."""
        return cls(root / _digest(table_root) / _digest(file_id))

    def of_table(self) -> list[ShardFolder]:
        """Return the folders of all cached shards of the table, also this one."""
        return [ShardFolder(path) for path in self.path.parent.glob("*") if path.is_dir()]

    def load(self) -> tuple[ShardState, list[Part]] | None:
        """Return the state and its parts; None if the shard is not cached.

        Raises
        ------
        DamagedFileError
            If a file is damaged or missing.
        OSError
            If the folder cannot be read.
        """
        missing: OSError | None = None
        for _ in range(_ATTEMPTS):
            path = self.path / _STATE
            try:
                state = ShardState.from_bytes(path.read_bytes(), path)
            except FileNotFoundError:
                return None
            try:
                return state, [self.open(name) for name in state.parts]
            except FileNotFoundError as error:  # Another process replaced the state, probably.
                missing = error
        raise DamagedFileError(f"{missing}")

    def add_part(self, part: Part, instant: str) -> str:
        """Write a part of a state that will be published; return its name."""
        self.path.mkdir(parents=True, exist_ok=True)
        name = f"{instant}-{os.urandom(6).hex()}{_PART_SUFFIX}"
        write_part(part, self.path / name)
        return name

    def open(self, name: str) -> Part:
        """Map a part; see :func:`open_part`."""
        return open_part(self.path / name)

    def publish(self, state: ShardState) -> None:
        """Make a state the current one, and delete the parts of earlier states."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self.path / _STATE, [state.to_bytes()])
        young = time.time() - _UNPUBLISHED_SECONDS
        for entry in self._files():
            is_kept = entry.name in (_STATE, _USED) or entry.name in state.parts
            with suppress(OSError):
                if not is_kept and entry.stat().st_mtime < young:
                    (self.path / entry.name).unlink()

    def delete_parts(self, names: Sequence[str]) -> None:
        """Delete parts that the state does not name any more."""
        for name in names:
            with suppress(OSError):
                (self.path / name).unlink()

    def remove(self) -> None:
        """Delete the cached shard; the state goes first."""
        with suppress(OSError):
            (self.path / _STATE).unlink()
        shutil.rmtree(self.path, ignore_errors=True)

    def note_use(self, query: str | None = None, checkpoint: int = -1) -> None:
        """Record a use, and for a shard that gets new keys the checkpoint of the query."""
        path = self.path / _USED
        with suppress(OSError):
            if query is not None:
                write_whole(path, [json.dumps([query, checkpoint]).encode()])
            else:
                path.touch()

    def size_bytes(self) -> int:
        """Return the size of all files."""
        return self.size_and_use()[0]

    def size_and_use(self) -> tuple[int, LastUse]:
        """Return the size of all files, and when the shard was used; 0 if that is not known."""
        total, last_use = 0, LastUse(0)
        for entry in self._files():
            with suppress(OSError):
                status = entry.stat()
                total += status.st_size
                if entry.name == _USED:
                    last_use = self._last_use(status)
        return total, last_use

    def _last_use(self, status: os.stat_result) -> LastUse:
        if not status.st_size:  # No query has added keys.
            return LastUse(status.st_mtime_ns)
        try:
            query, checkpoint = json.loads((self.path / _USED).read_bytes())
            return LastUse(status.st_mtime_ns, str(query), int(checkpoint))
        except (ValueError, TypeError):  # Damaged.
            return LastUse(status.st_mtime_ns)

    def _files(self) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.path) as entries:
                return list(entries)
        except OSError:
            return []


def shard_folders(root: Path) -> list[ShardFolder]:
    """Return the folders of all cached shards below the root of a cache."""
    return [ShardFolder(path) for path in root.glob("*/*") if path.is_dir()]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
