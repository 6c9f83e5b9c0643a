"""From the path that a user gives to the storage behind it.

Paths are those that Hadoop's readers take, and taken as literally: nothing is decoded, joined from
a working directory of a worker, or expanded. A relative local path means the directory in which
this process runs now.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace

from bucketlake.errors import ConfigError, UnsupportedFeatureError
from bucketlake.storage.base import Storage
from bucketlake.storage.local import LocalStorage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.storage.object_store import ObjectStorage
from bucketlake.storage.paths import check_folder
from bucketlake.storage.store_address import SERVICES, parse_store_url
from bucketlake.storage.store_options import HIDDEN, StoreOptions, without_user
from bucketlake.storage.subfolder import Subfolder

_SCHEMES = ("file", "memory", *SERVICES)
_SERVED = f"served are local paths and {', '.join(f'{scheme}:' for scheme in _SCHEMES)}"

# One letter is a drive, and a colon without a slash may stand in a file's name.
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<rest>/.*)", re.DOTALL)
_FSYNC = "fsync"


def open_storage(path: str, storage_options: Mapping[str, str] | None = None) -> Storage:
    """Open the storage behind a table's path. Nothing is read or made yet.

    Parameters
    ----------
    path : str
        ``/lake/orders``, ``lake/orders``, ``file:/lake/orders``, ``s3://bucket/orders`` (``s3a``
        and ``s3n`` mean the same), ``gs://bucket/orders``,
        ``abfss://container@account.dfs.core.windows.net/orders`` (``abfs``, ``wasb``, ``wasbs``,
        and ``az://container/orders``), or ``memory://name`` within one process.
    storage_options : mapping of str to str, optional
        Of an object store: options of obstore's store, ``max_retries``, ``retry_timeout``
        (seconds), or for S3 ``fs.s3a.*`` as Hadoop spells them. Of a local path: ``fsync``,
        ``true`` by default.

    Returns
    -------
    Storage

    Raises
    ------
    ConfigError
        If the path names no bucket, or an option is unknown or cannot be used.
    UnsupportedFeatureError
        If the path's scheme is not served.

    Examples
    --------
    >>> open_storage("file:///lake/orders").root
    '/lake/orders'
    >>> open_storage("hdfs://namenode/lake")
    Traceback (most recent call last):
        ...
    bucketlake.errors.UnsupportedFeatureError: hdfs://namenode/lake: storage hdfs: is not \
supported; served are local paths and file:, memory:, s3:, s3a:, s3n:, gs:, abfs:, abfss:, az:, \
wasb:, wasbs:
    """
    if not path:
        raise ConfigError("path", path, "it is the place of a table, such as /lake/orders")
    options = dict(storage_options or {})
    parts = _SCHEME.fullmatch(path)
    if parts is None:
        _refuse_forgotten_slashes(path)
        return _open_local(path, options)
    scheme, rest = parts["scheme"].lower(), parts["rest"]
    if scheme == "file":
        return _open_local(_file_path(path, rest), options)
    if scheme not in _SCHEMES:
        # A password may stand before the host, a signature at the end.
        shown = StoreOptions().redact(without_user(path))
        raise UnsupportedFeatureError(f"storage {scheme}:", shown, _SERVED)
    if not rest.startswith("//"):
        raise ConfigError("path", without_user(path), f"it starts with {scheme}://")
    if scheme == "memory":
        return _open_memory(rest[2:], options)
    address = parse_store_url(scheme, rest[2:])
    return ObjectStorage(address, StoreOptions.from_user(options, address.bucket))


def _refuse_forgotten_slashes(path: str) -> None:
    """Refuse ``s3:bucket/t``, which would be a folder of that name on this disk."""
    scheme, colon, _ = path.partition(":")
    if colon and scheme.lower() in _SCHEMES:
        slashes = "/" if scheme.lower() == "file" else "//"
        raise ConfigError("path", without_user(path), f"it starts with {scheme}:{slashes}")


def place_of(root: str) -> str:
    """Return what all spellings of a storage's root have in common.

    By it a process finds again what it knows of a table. A folder that is mounted twice, and an
    account of Azure that the options name and the path does not, it cannot tell.

    >>> place_of("s3a://lake/orders") == place_of("s3://lake/orders")
    True
    """
    parts = _SCHEME.fullmatch(root)
    if parts is None:
        return os.path.realpath(root)
    if parts["scheme"] not in SERVICES:
        return root
    return str(replace(parse_store_url(parts["scheme"], parts["rest"][2:]), root=""))


def _file_path(path: str, rest: str) -> str:
    """Return what follows ``file:``, ``file://`` or ``file://localhost``."""
    if not rest.startswith("//"):
        return rest
    host, slash, below_root = rest[2:].partition("/")
    if host not in ("", "localhost") or not slash:
        raise ConfigError("path", without_user(path), "a file: path starts with file:/ or file:///")
    return f"/{below_root}"


def _open_local(path: str, options: dict[str, str]) -> LocalStorage:
    fsync = str(options.pop(_FSYNC, "true")).lower()
    if fsync not in ("true", "false"):
        raise ConfigError(_FSYNC, fsync, "it is true or false")
    _refuse_options(options, f"a local path takes {_FSYNC} only")
    return LocalStorage(os.path.abspath(path), fsync == "true")  # noqa: PTH100 - no links resolved.


def _open_memory(rest: str, options: dict[str, str]) -> Storage:
    _refuse_options(options, "memory: takes no options")
    name, _, folder = rest.strip("/").partition("/")
    if not name:
        raise ConfigError("path", f"memory://{rest}", "it names what is shared: memory://name")
    check_folder(folder, "open")
    return Subfolder(MemoryStorage(name), folder) if folder else MemoryStorage(name)


def _refuse_options(options: Mapping[str, str], allowed: str) -> None:
    if options:
        raise ConfigError(min(options), HIDDEN, allowed)
