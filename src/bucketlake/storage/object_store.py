"""Tables on S3, Google Cloud Storage and Azure, through obstore.

Keys are the literal paths, as for Hadoop's clients: obstore percent-encodes a path once for the
request, and the service decodes it. Put-if-absent is a conditional request: ``If-None-Match: *`` on
S3 and Azure, generation 0 on Google. A put is always atomic.

What happens after a put-if-absent without response:

- The connection drops, or the service answers 5xx, 429 or 408. obstore repeats the request. If the
  first request was successful, the second one finds its own object, and the caller gets
  AlreadyExistsError. Equal bytes do not prove that the object is the caller's (Hudi's lock files
  are all empty), so this is not converted to success; see ``Storage.put_if_absent``.
- There is no response in time. obstore does not repeat a conditional request. The caller gets
  StorageError and does not know the result; the request may still arrive.
- The service answers 409, which obstore treats as "exists". This is right on Azure. On S3 it means
  "two requests collided, repeat yours", and the path may be free. So this class reads the path, and
  repeats the put if there is no object.

A duplicate is a copy within the store. The request is conditional on Google and Azure. On S3 it is
not, unless the options say how (``copy_if_not_exists``), so this class looks first, and two copies
at once replace each other by the same bytes. Azure may answer before the copy is complete; the
object is empty meanwhile, so this class waits for its bytes.

Folder markers of Hadoop's clients (``folder/``) appear in listings as empty objects ``folder``. If
such an entry could be a real object, a second listing decides. obstore cannot delete the markers,
so a deleted folder may still appear in ``list_folders``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import obstore
from obstore import exceptions as obstore_errors
from obstore.store import AzureStore

from bucketlake.errors import AlreadyExistsError, ObjectNotFoundError, StorageError
from bucketlake.flow.call import count_request
from bucketlake.storage.base import (
    Buffer,
    Paths,
    StoredObject,
    check_folder,
    check_path,
    flat_view,
    is_side_file,
    names_and_times,
    require_same_size,
    with_prefixes,
)
from bucketlake.storage.secret_text import raise_alone
from bucketlake.storage.store_address import CREDENTIALS, StoreAddress, open_store
from bucketlake.storage.store_options import StoreOptions
from bucketlake.storage.waiting import looks

if TYPE_CHECKING:
    from obstore import ListResult, ObjectMeta, UpdateVersion

_Metas: TypeAlias = "list[ObjectMeta]"
_Level: TypeAlias = "ListResult[Sequence[ObjectMeta]]"
_Objects: TypeAlias = list[StoredObject]

_PUT_SECONDS_MAX = 0.5  # Of a conditional put that S3 answers with 409 while there is no object.
_COPY_SECONDS_MAX = 30.0  # Of a copy on Azure.
_REQUESTS_AT_ONCE = 32
_REMOVE_ROUNDS = 3  # Attempts to delete a folder while others also delete from it.


class ObjectStorage:
    """The part of a bucket that belongs to a table.

    Parameters
    ----------
    address : StoreAddress
    options : StoreOptions

    Raises
    ------
    ConfigError
        If the store does not accept the options.
    """

    def __init__(self, address: StoreAddress, options: StoreOptions) -> None:
        self._address, self._options = address, options
        self._store = open_store(address, options)

    def __repr__(self) -> str:
        return f"ObjectStorage({self.root!r})"

    def __getstate__(self) -> tuple[StoreAddress, StoreOptions]:
        """Pickle without the client, because its pickle would show the secrets."""
        return self._address, self._options

    def __setstate__(self, state: tuple[StoreAddress, StoreOptions]) -> None:
        self._address, self._options = state
        self._store = open_store(*state)

    @property
    def root(self) -> str:
        """The address as the user wrote it."""
        return self._address.root

    def parent(self) -> ObjectStorage | None:
        """Return the folder of the bucket around the root."""
        if not self._address.prefix:
            return None
        root, prefix = (
            text.rpartition("/")[0] for text in (self._address.root, self._address.prefix)
        )
        return ObjectStorage(replace(self._address, root=root, prefix=prefix), self._options)

    requests_at_once = _REQUESTS_AT_ONCE  # Each waits for the network.

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
        """Yield the objects below a folder, sorted by path."""
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

    def list_named(self, folder: str, prefixes: tuple[str, ...]) -> Iterator[StoredObject]:
        """Yield the objects directly in a folder with one of some prefixes.

        The whole folder is listed, a request for each 1,000 objects: obstore lists whole folders
        only, and not every store lists in order from a name on.
        """
        return with_prefixes(self.list(folder, recursive=False), prefixes)

    def list_briefly(self, folder: str) -> dict[str, int | None]:
        """Return the names of the objects directly in a folder, with their times of change."""
        return names_and_times(self.list(folder, recursive=False))

    def list_folders(self, folder: str) -> Paths:
        """Return the direct subfolders of a folder."""
        check_folder(folder, "list folders of")
        return sorted(self._list_direct(folder)["common_prefixes"])

    def put(self, path: str, data: Buffer) -> None:
        """Write an object and replace an existing one."""
        try:
            with self._asking(path, "put"):
                obstore.put(self._store, path, flat_view(data))
        except AlreadyExistsError:  # The put had no condition.
            reason = "the store refused to replace the existing object; repeat the request"
            raise StorageError(self._full(path), "put", reason) from None

    def put_if_absent(self, path: str, data: Buffer) -> None:
        """Write an object if none exists."""
        for _ in looks(_PUT_SECONDS_MAX):
            try:
                with self._asking(path, "put if absent"):
                    obstore.put(self._store, path, flat_view(data), mode="create")
                return
            except _ConflictError:
                if self.stat(path) is not None:
                    reason = "the object exists already"
                    raise AlreadyExistsError(self._full(path), "put if absent", reason) from None
        reason = "the store answered 409 (conflict) each time, but there is no object"
        raise StorageError(self._full(path), "put if absent", f"{reason}; repeat the request")

    def duplicate(self, source: str, target: str) -> bool:
        """Copy an object within the store."""
        check_path(source, "duplicate")
        _require_no_control_characters(self._full(source), "duplicate")
        copied = self._copy(source, target)
        on_azure = isinstance(self._store, AzureStore)
        if on_azure:
            self._wait_for_copy(source, target)
        if on_azure or not copied:
            require_same_size(self, source, target)
        return True

    def read_version(self, path: str) -> tuple[bytes, str] | None:
        """Return an object and its version: an ETag, or a number."""
        try:
            with self._asking(path, "read"):
                found = obstore.get(self._store, path)
                return bytes(found.bytes()), json.dumps(_version(found.meta))
        except ObjectNotFoundError:
            return None

    def put_if_version(self, path: str, data: Buffer, version: str | None) -> str:
        """Write an object if it still has a version."""
        condition: Literal["create"] | UpdateVersion = "create"
        if version is not None:
            condition = json.loads(version)
        try:
            with self._asking(path, "put if unchanged"):
                put = obstore.put(self._store, path, flat_view(data), mode=condition)
                return json.dumps(_version(put))
        except (AlreadyExistsError, ObjectNotFoundError):
            reason = "there is another version, or no object"
            raise AlreadyExistsError(self._full(path), "put if unchanged", reason) from None

    def delete(self, path: str) -> None:
        """Delete an object."""
        try:
            with self._asking(path, "delete"):
                obstore.delete(self._store, path)
        except ObjectNotFoundError:
            return

    def delete_folder(self, folder: str) -> None:
        """Delete all objects below a folder."""
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
        """Remove folder markers, which obstore shows as empty objects with the folder's name.

        A listing of one level has a marker among its folders and a real object among its objects.
        So each folder with an uncertain object is listed again.
        """
        doubtful = {stored.path for stored in found if not stored.size_bytes} - _folders_of(found)
        real: set[str] = set()
        for folder in {path.rpartition("/")[0] for path in doubtful}:
            real |= {meta["path"] for meta in self._list_direct(folder)["objects"]} - {folder}
        return [stored for stored in found if stored.size_bytes or stored.path in real]

    def _copy(self, source: str, target: str) -> bool:
        """Copy an object; return False if the target exists."""
        try:
            with self._asking(target, "duplicate"):
                try:
                    obstore.copy(self._store, source, target, overwrite=False)
                except obstore_errors.NotSupportedError:
                    if self.stat(target) is not None:
                        return False
                    obstore.copy(self._store, source, target)
        except AlreadyExistsError:
            return False
        except ObjectNotFoundError:
            raise ObjectNotFoundError(
                self._full(source), "duplicate", "there is no object"
            ) from None
        return True

    def _wait_for_copy(self, source: str, target: str) -> None:
        """Wait while a copy on Azure is empty, unless its source is empty, too."""
        for _ in looks(_COPY_SECONDS_MAX):
            copy = self.stat(target)
            if copy is None or copy.size_bytes:
                return
            original = self.stat(source)
            if original is None or not original.size_bytes:
                return

    def _ends_before(self, path: str, start: int, length: int) -> bool:
        """Return whether a range that the store rejected is empty."""
        stored = self.stat(path)
        if stored is None:
            raise ObjectNotFoundError(self._full(path), "read range of", "there is no object")
        return length == 0 or start >= stored.size_bytes

    @contextmanager
    def _asking(self, path: str, operation: str) -> Iterator[None]:
        """Reject paths that obstore cannot use, and convert its errors to ours, without secrets."""
        check_path(path, operation)
        with self._asking_folder(path, operation):
            yield

    @contextmanager
    def _asking_folder(self, folder: str, operation: str) -> Iterator[None]:
        full_path = self._full(folder)
        _require_same_process(full_path, operation)
        _require_no_control_characters(full_path, operation)
        count_request(operation)
        try:
            yield
        except FileNotFoundError as error:
            if operation.startswith("put"):  # The bucket does not exist.
                raise_alone(StorageError(full_path, operation, self._reason(error)))
            raise_alone(ObjectNotFoundError(full_path, operation, "there is no object"))
        except (obstore_errors.AlreadyExistsError, obstore_errors.PreconditionError) as error:
            conflict = "409 Conflict" in str(error)
            reason = "the object exists already"
            kind = _ConflictError if conflict else AlreadyExistsError
            raise_alone(kind(full_path, operation, reason))
        except (obstore_errors.BaseError, OSError, ValueError) as error:
            raise_alone(StorageError(full_path, operation, self._reason(error)))

    def _reason(self, error: Exception) -> str:
        """Return the message of the store, shortened and without secrets."""
        text = str(error).partition("\n\nDebug source")[0]
        answer = _ANSWER.search(text)
        if answer is not None:
            told = [found[1] for tag in _TOLD if (found := tag.search(text))]
            text = f"the store answered {': '.join([answer[1].strip(), *told])}"
        hint = ""
        if isinstance(error, _DENIED) or (answer is not None and answer[1][:3] in ("401", "403")):
            names = ", ".join(CREDENTIALS[self._address.service])
            hint = (
                "; the credentials in use are missing, wrong, or lack a permission here: give them "
                f"as storage_options (-o) ({names}), or in the environment"
            )
        text = self._options.redact(text)  # Before it is cut: half a secret would not be found.
        return " ".join(text.split())[:_REASON_LENGTH_MAX] + hint


class _ConflictError(AlreadyExistsError):
    """The store answered 409, which may mean "exists" or "repeat"."""


_REASON_LENGTH_MAX = 500
_ANSWER = re.compile(r"status code: (\d{3}[ A-Za-z]*)")
_TOLD = (re.compile(r"<Code>([^<]*)</Code>"), re.compile(r"<Message>([^<]*)</Message>"))
_DENIED = (obstore_errors.PermissionDeniedError, obstore_errors.UnauthenticatedError)

_first_process_id: list[int] = []  # The process whose first operation started obstore's threads.


def _require_same_process(full_path: str, operation: str) -> None:
    """Raise StorageError in a forked process: it has no obstore threads and would wait forever."""
    process_id = os.getpid()
    if not _first_process_id:
        _first_process_id.append(process_id)
    if process_id != _first_process_id[0]:
        reason = (
            f"process {process_id} was forked from a process that had used object storage; "
            "start worker processes with spawn, or fork before the first use"
        )
        raise StorageError(full_path, operation, reason)


def _require_no_control_characters(full_path: str, operation: str) -> None:
    if not full_path.isprintable():
        found = next((c for c in full_path if c < " " or c == "\x7f"), None)
        if found is not None:
            reason = f"control character {found!r}, which obstore cannot send; encode such values"
            raise StorageError(full_path, operation, reason)


def _version(meta: Mapping[str, Any]) -> dict[str, str]:
    # The client rejects None, though it returns it: a bucket without versions only has ETags.
    named = {name: meta.get(name) for name in ("e_tag", "version")}
    return {name: value for name, value in named.items() if value is not None}


def _described(meta: ObjectMeta) -> StoredObject:
    modified_at_ms = int(meta["last_modified"].timestamp() * 1000)
    # Azure quotes it in answers about one object, and not in listings.
    etag = (meta.get("e_tag") or "").removeprefix("W/").strip('"')
    return StoredObject(meta["path"], meta["size"], modified_at_ms, etag)


def _folders_of(found: _Objects) -> set[str]:
    """Return all parent folders of objects."""
    folders: set[str] = set()
    for stored in found:
        folder = stored.path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return folders
