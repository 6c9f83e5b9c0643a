"""Opening the storage for a path that a user gives.

Paths are written as for Hadoop's readers, and nothing in them is decoded. As in pandas, polars and
PyArrow, ``~`` at the start of a local path is the home folder; ``./~`` is a folder of that name. A
relative local path is relative to the current directory of this process, not of a worker.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace

from bucketlake.errors import ConfigError, UnsupportedFeatureError
from bucketlake.model.names import did_you_mean
from bucketlake.storage.base import Storage, Subfolder, check_folder
from bucketlake.storage.local import LocalStorage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.storage.secret_text import HIDDEN, has_secret_parameter, shown_url
from bucketlake.storage.store_address import STORE_SERVICES, parse_store_url
from bucketlake.storage.store_options import StoreOptions

_SCHEMES = ("file", "memory", *STORE_SERVICES)
_SERVED = f"use a local path or one of {', '.join(f'{scheme}:' for scheme in _SCHEMES)}"

# A single letter is a drive. A file name may contain a colon without a slash. The address of a
# database has two schemes: jdbc:mysql://host.
_SCHEME = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+(?::[A-Za-z][A-Za-z0-9+.:-]+(?=://))?):(?P<rest>/.*)",
    re.DOTALL,
)
_FSYNC = "fsync"


def open_storage(path: str, storage_options: Mapping[str, str] | None = None) -> Storage:
    """Open the storage for a table's path. Nothing is read or created yet.

    Parameters
    ----------
    path : str
        ``/lake/orders``, ``lake/orders``, ``~/orders``, ``file:/lake/orders``,
        ``s3://bucket/orders`` (``s3a`` and ``s3n`` mean the same), ``gs://bucket/orders``,
        ``abfss://container@account.dfs.core.windows.net/orders`` (``abfs``, ``wasb``, ``wasbs``,
        and ``az://container/orders``), or ``memory://name`` within one process.
    storage_options : mapping of str to str, optional
        For an object store: options of obstore's store, ``max_retries``, ``retry_timeout``
        (seconds), and for S3 Hadoop's ``fs.s3a.*``. For a local path: ``fsync``, ``true`` by
        default.

    Returns
    -------
    Storage

    Raises
    ------
    ConfigError
        If the path names no bucket, or an option is unknown or cannot be used.
    UnsupportedFeatureError
        If the scheme of the path is not supported.

    Examples
    --------
    >>> open_storage("file:///lake/orders").root
    '/lake/orders'
    >>> open_storage("hdfs://namenode/lake")
    Traceback (most recent call last):
        ...
    bucketlake.errors.UnsupportedFeatureError: hdfs://namenode/lake: storage hdfs: is not \
supported; use a local path or one of file:, memory:, s3:, s3a:, s3n:, gs:, abfs:, abfss:, az:, \
wasb:, wasbs:
    """
    if not path:
        raise ConfigError("path", path, "give the path of a table, such as /lake/orders")
    options = dict(storage_options or {})
    parts = _SCHEME.fullmatch(path)
    if parts is None:
        _refuse_forgotten_slashes(path)
        return _open_local(_expanded(path), options)
    scheme, rest = parts["scheme"].lower(), parts["rest"]
    if scheme in ("file", "memory") and has_secret_parameter(rest):
        raise ConfigError("path", shown_url(path), "it must not have secrets")
    if scheme == "file":
        return _open_local(_file_path(path, rest), options)
    if scheme not in _SCHEMES:
        raise UnsupportedFeatureError(f"storage {scheme}:", shown_url(path), _SERVED)
    if not rest.startswith("//"):
        raise ConfigError("path", shown_url(path), f"it must start with {scheme}://")
    if scheme == "memory":
        return _open_memory(rest[2:], options)
    from bucketlake.storage.object_store import ObjectStorage  # It loads obstore.

    address = parse_store_url(scheme, rest[2:])
    return ObjectStorage(address, StoreOptions.from_user(options, address.bucket))


def shown_address(path: str) -> str:
    """Return the address of a table as messages show it: its storage's root, without secrets.

    It is also defined for a path that :func:`open_storage` refuses.

    >>> shown_address("s3a://lake/orders/"), shown_address("s3://key:secret@lake/orders")
    ('s3a://lake/orders', 's3:(hidden)')
    """
    scheme, colon, _ = path.partition(":")
    parts = _SCHEME.fullmatch(path)
    if parts is not None and has_secret_parameter(path):
        return shown_url(path)
    try:
        if parts is not None and scheme.lower() in STORE_SERVICES:
            return parse_store_url(scheme.lower(), parts["rest"][2:]).root
        if parts is not None and scheme.lower() == "memory":
            return f"memory://{parts['rest'].strip('/')}"
        if parts is not None and scheme.lower() == "file":
            return _absolute(_file_path(path, parts["rest"]))
        if parts is None and scheme.lower() not in _SCHEMES:
            return _absolute(_expanded(path))
    except ConfigError:  # The path has no bucket, or has secrets.
        return f"{scheme}:{HIDDEN}" if colon else path
    return shown_url(path)


def _absolute(path: str) -> str:
    return os.path.abspath(path)  # noqa: PTH100 - no links resolved.


def _refuse_forgotten_slashes(path: str) -> None:
    """Reject ``s3:bucket/t``, which would be a folder of that name on local disk."""
    scheme, colon, _ = path.partition(":")
    if colon and scheme.lower() in _SCHEMES:
        slashes = "/" if scheme.lower() == "file" else "//"
        raise ConfigError("path", shown_url(path), f"it must start with {scheme}:{slashes}")


def _expanded(path: str) -> str:
    """Return a local path with the home folder for ``~`` or ``~user`` at its start."""
    expanded = os.path.expanduser(path)  # noqa: PTH111 - a Path would change the text.
    if expanded.startswith("~"):
        raise ConfigError(
            "path",
            path,
            "~ is the home folder, which is not known here; give an absolute path, "
            "or ./~ for a folder of that name",
        )
    return expanded


def place_of(root: str) -> str:
    """Return one spelling of a storage's root for all its spellings.

    A process uses it as the key of what it knows about a table. It does not recognise a folder that
    is mounted twice, or an Azure account that only the options name.

    >>> place_of("s3a://lake/orders") == place_of("s3://lake/orders")
    True
    """
    parts = _SCHEME.fullmatch(root)
    if parts is None:
        return os.path.realpath(root)
    if parts["scheme"] not in STORE_SERVICES:
        return root
    return str(replace(parse_store_url(parts["scheme"], parts["rest"][2:]), root=""))


def _file_path(path: str, rest: str) -> str:
    """Return the path after ``file:``, ``file://`` or ``file://localhost``."""
    if not rest.startswith("//"):
        return rest
    host, slash, below_root = rest[2:].partition("/")
    if host not in ("", "localhost") or not slash:
        raise ConfigError("path", shown_url(path), "it must start with file:/ or file:///")
    return f"/{below_root}"


def _open_local(path: str, options: dict[str, str]) -> LocalStorage:
    fsync = str(options.pop(_FSYNC, "true")).lower()
    if fsync not in ("true", "false"):
        raise ConfigError(_FSYNC, fsync, "it must be true or false")
    _refuse_options(options, f"a local path has only the option {_FSYNC}")
    return LocalStorage(_absolute(path), fsync == "true")


def _open_memory(rest: str, options: dict[str, str]) -> Storage:
    _refuse_options(options, "memory: has no options")
    name, _, folder = rest.strip("/").partition("/")
    if not name:
        raise ConfigError("path", f"memory://{rest}", "it needs a name: memory://name")
    check_folder(folder, "open")
    return Subfolder(MemoryStorage(name), folder) if folder else MemoryStorage(name)


def _refuse_options(options: Mapping[str, str], allowed: str) -> None:
    if options:
        name = min(options)
        raise ConfigError(name, HIDDEN, allowed + did_you_mean(name, [_FSYNC]))
