"""Tables on S3, Google Cloud Storage and Azure, through obstore.

Keys are the literal paths, as Hadoop's clients write and read them: obstore percent-encodes a path
on the wire once, and the service decodes it. A conditional request lets one put-if-absent win:
``If-None-Match: *`` on S3 and Azure, generation 0 on Google. Every put is whole by nature.

What may happen to a put-if-absent whose answer is lost, and what this class makes of it:

- The connection drops, or the service answers 5xx, 429 or 408: obstore repeats the request. If the
  first one had taken effect, the repetition meets its own object, and the caller hears
  AlreadyExistsError. Equal bytes would not prove that the object is the caller's (a lock file is
  empty for everyone), so this is not turned into success; see the promise at the seam.
- No answer in time: obstore does not repeat a conditional request. The caller hears StorageError
  and knows nothing; the request may still arrive.
- 409, which obstore takes for "exists": so it is on Azure, but S3 means "two requests met, repeat
  yours", and the path may well be free. So it is looked at, and repeated where nothing is there.

Folder markers of Hadoop's clients (``folder/``) show up in listings as empty objects ``folder``,
and are told apart by a second listing where a real object could be meant. They cannot be removed
by obstore, so a removed folder may remain visible to ``list_folders``.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import obstore
from obstore import exceptions as obstore_errors

from bucketlake.errors import AlreadyExistsError, ObjectNotFoundError, StorageError
from bucketlake.storage.base import Buffer, Paths, StoredObject, flat_view
from bucketlake.storage.paths import check_folder, check_path, is_side_file
from bucketlake.storage.store_address import StoreAddress, open_store
from bucketlake.storage.store_options import StoreOptions

if TYPE_CHECKING:
    from obstore import ListResult, ObjectMeta, UpdateVersion

_Metas: TypeAlias = "list[ObjectMeta]"
_Level: TypeAlias = "ListResult[Sequence[ObjectMeta]]"
_Objects: TypeAlias = list[StoredObject]

_ATTEMPTS = 4  # Of a conditional put that S3 answers with 409 while nothing is there.
_PAUSE_S = 0.1  # Before the second; one more of it before each later one.
_REQUESTS_AT_ONCE = 32
_REMOVE_ROUNDS = 3  # Of removing a folder while others remove from it too.


class ObjectStorage:
    """A table's part of a bucket.

    Parameters
    ----------
    address : StoreAddress
    options : StoreOptions

    Raises
    ------
    ConfigError
        If the store does not take the options.
    """

    def __init__(self, address: StoreAddress, options: StoreOptions) -> None:
        self._address, self._options = address, options
        self._store = open_store(address, options)

    def __repr__(self) -> str:
        return f"ObjectStorage({self.root!r})"

    def __getstate__(self) -> tuple[StoreAddress, StoreOptions]:
        """Pickle without the client, whose own pickle would show the secrets."""
        return self._address, self._options

    def __setstate__(self, state: tuple[StoreAddress, StoreOptions]) -> None:
        self._address, self._options = state
        self._store = open_store(*state)

    @property
    def root(self) -> str:
        """The address as the user wrote it."""
        return self._address.root

    @property
    def requests_at_once(self) -> int:
        """Many: each waits for the network."""
        return _REQUESTS_AT_ONCE

    def read(self, path: str) -> bytes:
        """Return a whole object."""
        with self._asking(path, "read"):
            return bytes(obstore.get(self._store, path).bytes())

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Return a part of an object."""
        assert start >= 0, f"range starts at {start}"
        assert length >= 0, f"range has length {length}"
        try:
            with self._asking(path, "read range of"):
                return bytes(obstore.get_range(self._store, path, start=start, length=length))
        except ObjectNotFoundError:
            raise
        except StorageError:
            if self._ends_before(path, start, length):
                return b""
            raise

    def stat(self, path: str) -> StoredObject | None:
        """Describe an object."""
        try:
            with self._asking(path, "stat"):
                return _described(obstore.head(self._store, path))
        except ObjectNotFoundError:
            return None

    def list(self, folder: str, *, recursive: bool = True) -> Iterator[StoredObject]:
        """Yield the objects below a folder, in order of path."""
        check_folder(folder, "list")
        found = self._list_all(folder) if recursive else self._list_direct(folder)["objects"]
        shown = [
            _described(meta)
            for meta in found
            if meta["path"] != folder and not is_side_file(meta["path"].rpartition("/")[2])
        ]
        if recursive:
            shown = self._without_markers(shown)
        return iter(sorted(shown, key=lambda stored: stored.path))

    def list_folders(self, folder: str) -> Paths:
        """Return a folder's direct subfolders."""
        check_folder(folder, "list folders of")
        return sorted(self._list_direct(folder)["common_prefixes"])

    def put(self, path: str, data: Buffer) -> None:
        """Write an object, over what is there."""
        try:
            with self._asking(path, "put"):
                obstore.put(self._store, path, flat_view(data))
        except AlreadyExistsError:  # Nothing was said about what is there.
            reason = "the store refused to write over what is there; repeat"
            raise StorageError(self._full(path), "put", reason) from None

    def put_if_absent(self, path: str, data: Buffer) -> None:
        """Write an object unless one is there."""
        for attempt in range(_ATTEMPTS):
            time.sleep(_PAUSE_S * attempt)
            try:
                with self._asking(path, "put if absent"):
                    obstore.put(self._store, path, flat_view(data), mode="create")
                return
            except _ConflictError:
                if self.stat(path) is not None:
                    reason = "an object is there already"
                    raise AlreadyExistsError(self._full(path), "put if absent", reason) from None
        reason = f"the store answered 409 (conflict) {_ATTEMPTS} times, and nothing is there"
        raise StorageError(self._full(path), "put if absent", f"{reason}; look again, and repeat")

    def read_version(self, path: str) -> tuple[bytes, str] | None:
        """Return an object and its version: the store's tag of its content, or a number."""
        try:
            with self._asking(path, "read"):
                found = obstore.get(self._store, path)
                return bytes(found.bytes()), json.dumps(_version(found.meta))
        except ObjectNotFoundError:
            return None

    def put_if_version(self, path: str, data: Buffer, version: str | None) -> str:
        """Write an object over a version of it."""
        condition: Literal["create"] | UpdateVersion = "create"
        if version is not None:
            condition = json.loads(version)
        try:
            with self._asking(path, "put if unchanged"):
                put = obstore.put(self._store, path, flat_view(data), mode=condition)
                return json.dumps(_version(put))
        except (AlreadyExistsError, ObjectNotFoundError):
            reason = "another version is there, or none"
            raise AlreadyExistsError(self._full(path), "put if unchanged", reason) from None

    def delete(self, path: str) -> None:
        """Remove an object."""
        try:
            with self._asking(path, "delete"):
                obstore.delete(self._store, path)
        except ObjectNotFoundError:
            return

    def delete_folder(self, folder: str) -> None:
        """Remove all objects below a folder."""
        check_path(folder, "delete folder")
        for round_ in range(_REMOVE_ROUNDS):
            paths = [meta["path"] for meta in self._list_all(folder)]
            try:
                with self._asking(folder, "delete folder"):
                    if paths:
                        obstore.delete(self._store, paths)
                return
            except ObjectNotFoundError:
                if round_ == _REMOVE_ROUNDS - 1:
                    raise

    def local_path(self, path: str) -> Path | None:
        """Return None: nothing is on local disk."""
        check_path(path, "local path of")
        return None

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}"

    def _list_all(self, folder: str) -> _Metas:
        with self._asking_folder(folder, "list"):
            return [meta for page in obstore.list(self._store, folder or None) for meta in page]

    def _list_direct(self, folder: str) -> _Level:
        with self._asking_folder(folder, "list"):
            return obstore.list_with_delimiter(self._store, folder or None)

    def _without_markers(self, found: _Objects) -> _Objects:
        """Drop the markers of folders, which obstore shows as empty objects named as the folder.

        Where folders are listed by themselves, a marker is among the folders and a real object is
        not; so each folder that holds a doubtful object is listed once more.
        """
        doubtful = {one.path for one in found if not one.size_bytes} - _folders_of(found)
        real: set[str] = set()
        for folder in {path.rpartition("/")[0] for path in doubtful}:
            real |= {meta["path"] for meta in self._list_direct(folder)["objects"]} - {folder}
        return [one for one in found if one.size_bytes or one.path in real]

    def _ends_before(self, path: str, start: int, length: int) -> bool:
        """Whether a range that the store refused is an empty one."""
        stored = self.stat(path)
        if stored is None:
            raise ObjectNotFoundError(self._full(path), "read range of", "no object is there")
        return length == 0 or start >= stored.size_bytes

    @contextmanager
    def _asking(self, path: str, operation: str) -> Iterator[None]:
        """Refuse what obstore cannot do, and turn its errors into ours, without secrets."""
        check_path(path, operation)
        with self._asking_folder(path, operation):
            yield

    @contextmanager
    def _asking_folder(self, folder: str, operation: str) -> Iterator[None]:
        full_path = self._full(folder)
        _require_same_process(full_path, operation)
        _require_no_control_characters(full_path, operation)
        try:
            yield
        except FileNotFoundError as error:
            if operation.startswith("put"):  # Then it is the bucket that is not there.
                raise StorageError(full_path, operation, self._reason(error)) from None
            raise ObjectNotFoundError(full_path, operation, "no object is there") from None
        except (obstore_errors.AlreadyExistsError, obstore_errors.PreconditionError) as error:
            conflict = "409 Conflict" in str(error)
            reason = "an object is there already"
            kind = _ConflictError if conflict else AlreadyExistsError
            raise kind(full_path, operation, reason) from None
        except (obstore_errors.BaseError, OSError, ValueError) as error:
            raise StorageError(full_path, operation, self._reason(error)) from None

    def _reason(self, error: Exception) -> str:
        """Say what the store said, in short and without secrets."""
        text = str(error).partition("\n\nDebug source")[0]
        answer = _ANSWER.search(text)
        if answer is not None:
            told = [found[1] for tag in _TOLD if (found := tag.search(text))]
            text = f"the store answered {': '.join([answer[1].strip(), *told])}"
        hint = next((hint for kind, hint in _HINTS if isinstance(error, kind)), "")
        text = self._options.redact(text)  # Before it is cut: half a secret would not be known.
        return " ".join(text.split())[:_REASON_LENGTH_MAX] + hint


class _ConflictError(AlreadyExistsError):
    """The store answered 409, which may mean "exists" or "repeat"."""


_REASON_LENGTH_MAX = 500
_ANSWER = re.compile(r"status code: (\d{3}[ A-Za-z]*)")
_TOLD = (re.compile(r"<Code>([^<]*)</Code>"), re.compile(r"<Message>([^<]*)</Message>"))
_HINTS: tuple[tuple[type[Exception], str], ...] = (
    (
        obstore_errors.PermissionDeniedError,
        "; the credentials in use lack a permission on this bucket",
    ),
    (
        obstore_errors.UnauthenticatedError,
        "; give valid credentials, as storage_options or in the environment",
    ),
)

_first_process_id: list[int] = []  # Of the process whose operation started obstore's threads.


def _require_same_process(full_path: str, operation: str) -> None:
    """Refuse to wait for ever: a forked process has obstore's state, but not its threads."""
    process_id = os.getpid()
    if not _first_process_id:
        _first_process_id.append(process_id)
    if process_id != _first_process_id[0]:
        reason = (
            f"process {process_id} was forked from one that had used object storage already; "
            "start worker processes by spawn, or fork before the first use"
        )
        raise StorageError(full_path, operation, reason)


def _require_no_control_characters(full_path: str, operation: str) -> None:
    if not full_path.isprintable():
        found = next((c for c in full_path if c < " " or c == "\x7f"), None)
        if found is not None:
            reason = f"control character {found!r}, which obstore cannot send; encode such values"
            raise StorageError(full_path, operation, reason)


def _version(meta: Mapping[str, Any]) -> dict[str, str]:
    # The client refuses a None that it gave itself: a bucket without versions has tags alone.
    named = {name: meta.get(name) for name in ("e_tag", "version")}
    return {name: value for name, value in named.items() if value is not None}


def _described(meta: ObjectMeta) -> StoredObject:
    modified_at_ms = int(meta["last_modified"].timestamp() * 1000)
    return StoredObject(meta["path"], meta["size"], modified_at_ms)


def _folders_of(found: _Objects) -> set[str]:
    """Return all folders above some objects."""
    folders: set[str] = set()
    for one in found:
        folder = one.path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return folders
