"""The table's properties on storage: reading, creating and updating ``hoodie.properties``.

The file is replaced in steps, with a backup beside it, as Hudi does it. A reader may come at any
step, and a writer may die at any step: where the file is missing or cut off, the backup is as good,
and the next update starts by restoring it. Two updates at once destroy each other's work: hold the
table lock. What the entries mean, :class:`~bucketlake.config.table_config.TableConfig` knows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from bucketlake.config.layout import HOODIE_FOLDER, PROPERTIES_BACKUP_FILE, PROPERTIES_FILE
from bucketlake.config.table_config import TableConfig, is_whole, table_checksum
from bucketlake.config.table_keys import CHECKSUM
from bucketlake.errors import (
    ConfigError,
    FormatError,
    ObjectNotFoundError,
    StorageError,
    TableNotFoundError,
)
from bucketlake.format.properties import java_date, parse_properties, render_properties
from bucketlake.storage.base import Storage
from bucketlake.timeline.clock import system_now_ms
from bucketlake.timeline.instant import instant_from_ms

_READ_ATTEMPTS = 5
_READ_PAUSE_S = 1.0
_NAMES_SHOWN = 3


def read_table_config(
    storage: Storage, *, sleep: Callable[[float], None] = time.sleep
) -> TableConfig:
    """Read what a table is, also while its properties are being updated.

    Parameters
    ----------
    storage : Storage
        Rooted at the table.
    sleep : callable
        Waits that many seconds between attempts, which happens only on invalid content.

    Raises
    ------
    TableNotFoundError
        If there is no Hudi table at the root; the error says what is there.
    FormatError
        If the properties are invalid, or name no table that can be understood.
    """
    try:
        return TableConfig.from_properties(read_properties(storage, sleep=sleep))
    except ConfigError as error:
        found = "no such entry" if error.value is None else repr(error.value)
        expected = f"{error.key}: {error.allowed}"
        raise FormatError(f"{storage.root}/{PROPERTIES_FILE}", expected, found) from error


def read_properties(
    storage: Storage, *, sleep: Callable[[float], None] = time.sleep
) -> dict[str, str]:
    """Read the entries of ``hoodie.properties``; raises what :func:`read_table_config` raises."""
    for attempt in range(_READ_ATTEMPTS):
        if attempt:
            sleep(_READ_PAUSE_S)
        found = _read_valid(storage)
        if found is not None:
            return found[1]
        if not _has_properties(storage):
            raise TableNotFoundError(storage.root, _what_is_there(storage))
    raise FormatError(
        f"{storage.root}/{PROPERTIES_FILE}",
        "table properties with a name and a matching checksum",
        "a truncated or foreign file, and no valid backup beside it",
    )


def create_table_properties(
    storage: Storage, config: TableConfig, *, now_ms: Callable[[], int] = system_now_ms
) -> None:
    """Make the root a table; from then on it exists.

    Raises
    ------
    AlreadyExistsError
        If there is a table already.
    """
    content = _render(config.to_properties(), "Properties saved on", now_ms())
    storage.put_if_absent(PROPERTIES_FILE, content)


def update_table_properties(
    storage: Storage,
    set: Mapping[str, str] | None = None,  # noqa: A002  # Reads as a sentence at the call.
    remove: Iterable[str] = (),
    *,
    now_ms: Callable[[], int] = system_now_ms,
) -> dict[str, str]:
    """Change entries of the table's properties, under the table lock.

    Parameters
    ----------
    storage : Storage
    set : mapping of str to str, optional
        Entries to add or replace.
    remove : iterable of str
        Keys to take away; one that is not there is passed over.
    now_ms : callable
        Milliseconds since 1970 UTC, for the comment on top.

    Returns
    -------
    dict of str to str
        The entries after the update.

    Raises
    ------
    AlreadyExistsError
        If another process is updating the properties at the same time.
    StorageError
        If storage fails, or what was written does not read back; the old content counts then, or
        the new one.
    """
    recover_table_properties(storage)
    current = read_properties(storage, sleep=lambda _: None)
    gone = frozenset(remove)
    merged = {key: value for key, value in current.items() if key not in gone} | dict(set or {})
    merged[CHECKSUM] = table_checksum(merged)
    if merged == current:
        return current
    _replace(storage, _render(merged, "Updated at", now_ms()), merged)
    return merged


def _replace(storage: Storage, content: bytes, expected: Mapping[str, str]) -> None:
    """Carry out the steps; a crash after any of them leaves a valid file or a valid backup."""
    old = storage.read(PROPERTIES_FILE)
    storage.put_if_absent(PROPERTIES_BACKUP_FILE, old)
    storage.put(PROPERTIES_FILE, content)  # Whole; Hudi has no such put: it deletes and creates.
    if _read_if_valid(storage, PROPERTIES_FILE) != expected:
        storage.put(PROPERTIES_FILE, old)
        reason = "what was written does not read back; the old content is restored"
        raise StorageError(PROPERTIES_FILE, "update", reason)
    storage.delete(PROPERTIES_BACKUP_FILE)


def recover_table_properties(storage: Storage) -> None:
    """Finish or undo an update that died: a valid file stays, else the backup takes its place.

    Under the table lock, since the update may be somebody's who lives.
    """
    if storage.stat(PROPERTIES_BACKUP_FILE) is None:
        return
    found = _read_valid(storage)
    if found is None:
        return  # Reading reports it, and no evidence is destroyed.
    if found[0] == PROPERTIES_BACKUP_FILE:
        storage.put(PROPERTIES_FILE, storage.read(PROPERTIES_BACKUP_FILE))
    storage.delete(PROPERTIES_BACKUP_FILE)


def _read_valid(storage: Storage) -> tuple[str, dict[str, str]] | None:
    """Return the path and entries of the file, or of its backup where that is the better one."""
    properties = _read_if_valid(storage, PROPERTIES_FILE)
    if properties is None or CHECKSUM not in properties:
        # Without a checksum the file may be cut off, and look whole.
        backup = _read_if_valid(storage, PROPERTIES_BACKUP_FILE)
        if backup is not None and (properties is None or CHECKSUM in backup):
            return PROPERTIES_BACKUP_FILE, backup
    return None if properties is None else (PROPERTIES_FILE, properties)


def _read_if_valid(storage: Storage, path: str) -> dict[str, str] | None:
    try:
        properties = parse_properties(storage.read(path))
    except ObjectNotFoundError:
        return None
    return properties if is_whole(properties) else None


def _has_properties(storage: Storage) -> bool:
    """Look again, in the other order: an update may have swapped the files between two reads."""
    paths = (PROPERTIES_BACKUP_FILE, PROPERTIES_FILE)
    return any(storage.stat(path) is not None for path in paths)


def _render(properties: Mapping[str, str], occasion: str, now_ms: int) -> bytes:
    at = instant_from_ms(now_ms, "UTC")
    iso = f"{at[:4]}-{at[4:6]}-{at[6:8]}T{at[8:10]}:{at[10:12]}:{at[12:14]}.{at[14:]}Z"
    return render_properties(properties, f"{occasion} {iso}\n{java_date(now_ms)}")


def _what_is_there(storage: Storage) -> str:
    """Say what a path without table properties holds, for the error."""
    folders = [path.rpartition("/")[2] for path in storage.list_folders("")]
    files = [stored.path for stored in storage.list("", recursive=False)]
    if HOODIE_FOLDER in folders:
        return f"its {HOODIE_FOLDER} folder has no hoodie.properties"
    if "_delta_log" in folders:
        return "it holds a Delta Lake table (_delta_log)"
    if "metadata" in folders and _has_iceberg_metadata(storage):
        return "it holds an Iceberg table (metadata/*.metadata.json)"
    names = [f"{name}/" for name in folders] + files
    if not names:
        return "there is nothing"
    shown = ", ".join(names[:_NAMES_SHOWN])
    return f"it holds {shown}" + (" and more" if len(names) > _NAMES_SHOWN else "")


def _has_iceberg_metadata(storage: Storage) -> bool:
    listed = storage.list("metadata", recursive=False)
    return any(stored.path.endswith(".metadata.json") for stored in listed)
