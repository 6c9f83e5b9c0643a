"""Reading, creating and updating ``hoodie.properties``.

The file is replaced in steps with a backup beside it, as in Hudi. A reader may come, and a writer
may die, between any two steps. If the file is missing or truncated, the backup is valid, and the
next update restores it first. The backup also keeps a second update waiting.

Hudi's checksum covers only the name of the table. A file that bucketlake writes also has a checksum
of its content, in a comment. Hudi's writers drop comments, so a file that Hudi changed is not
checked. Neither is a file that somebody edited: a file is damaged if exactly one byte was changed.
:class:`~bucketlake.config.table_config.TableConfig` interprets the entries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

from bucketlake.config.paths_of_table import HOODIE_FOLDER, PROPERTIES_BACKUP_FILE, PROPERTIES_FILE
from bucketlake.config.table_config import TableConfig, is_whole, table_checksum
from bucketlake.config.table_keys import CHECKSUM, NAME
from bucketlake.errors import (
    AlreadyExistsError,
    ConfigError,
    FormatError,
    ObjectNotFoundError,
    StorageError,
    TableNotFoundError,
)
from bucketlake.format.checksum import BLANK, is_sealed, seal, with_one_byte_restored
from bucketlake.format.properties import java_date, parse_properties, render_properties
from bucketlake.model.names import closest_name
from bucketlake.storage.base import PlacedStorage, Storage, StoredObject, read_if_there
from bucketlake.storage.waiting import looks, until
from bucketlake.timeline.instant import instant_from_ms, system_now_ms
from bucketlake.timeline.locks import NO_LOCK, TableLock
from bucketlake.timeline.open_table import OpenTable, opened_table

_READ_SECONDS_MAX = 4.0
_UPDATE_ATTEMPTS = 20
_DEAD_AFTER_SECONDS = 2.0
_NAMES_SHOWN = 3
_NOTHING = "there is nothing"
_SEAL = b"#bucketlake.checksum="


def read_table_config(storage: Storage) -> TableConfig:
    """Read the properties of a table, also while they are being updated.

    Parameters
    ----------
    storage : Storage
        Storage of the table.

    Raises
    ------
    TableNotFoundError
        If there is no Hudi table; the error names what is there.
    FormatError
        If the properties are damaged, or do not describe a table that bucketlake understands.
    """
    try:
        return TableConfig.from_properties(read_properties(storage))
    except ConfigError as error:
        found = "no such entry" if error.value is None else repr(error.value)
        expected = f"{error.key}: {error.allowed}"
        raise FormatError(f"{storage.root}/{PROPERTIES_FILE}", expected, found) from error


def read_properties(storage: Storage) -> dict[str, str]:
    """Read the entries of ``hoodie.properties``; same errors as :func:`read_table_config`."""
    for _ in looks(_READ_SECONDS_MAX):
        found = _read_valid(storage)
        if found is not None:
            return found[1]
        if not _has_properties(storage):
            raise _no_table(storage)
    raise FormatError(
        f"{storage.root}/{PROPERTIES_FILE}",
        f"table properties with a name and a matching checksum ({CHECKSUM})",
        f"{_what_is_wrong(storage)}, and no valid backup beside it",
    )


def table_at(
    storage: Storage,
    lock: TableLock = NO_LOCK,
    now_ms: Callable[[], int] = system_now_ms,
) -> OpenTable:
    """Read the properties of a table, and open it; see :func:`opened_table`."""
    return opened_table(storage, read_table_config(storage), lock, now_ms)


def reopened(table: OpenTable) -> OpenTable:
    """Return a table with its properties of now."""
    return table.with_config(read_table_config(table.storage))


def create_properties(
    storage: Storage, entries: Mapping[str, str], *, now_ms: Callable[[], int] = system_now_ms
) -> None:
    """Create ``hoodie.properties``; with this file the table exists.

    Raises
    ------
    AlreadyExistsError
        If the table already exists.
    """
    storage.put_if_absent(PROPERTIES_FILE, _render(entries, "Properties saved on", now_ms()))


def update_table_properties(
    storage: Storage,
    change: Callable[[dict[str, str]], Mapping[str, str]],
    *,
    now_ms: Callable[[], int] = system_now_ms,
) -> dict[str, str]:
    """Change entries of the table's properties.

    Other processes may update them at the same time; then the change is made again from what they
    wrote. A process that stops for longer than two seconds in the middle of its update counts as
    dead, and its update may be lost. A table lock excludes that.

    Parameters
    ----------
    storage : Storage
    change : callable
        Returns all entries after the update, given those before; it may be called several times.
    now_ms : callable
        Milliseconds since 1970 UTC, for the comment at the top.

    Returns
    -------
    dict of str to str
        The entries after the update.

    Raises
    ------
    AlreadyExistsError
        If other processes update the properties all the time.
    StorageError
        If storage fails, or the written content cannot be read back. Then either the old or the new
        content is valid.
    """
    for _ in range(_UPDATE_ATTEMPTS):
        _recover_when_alone(storage)
        current = read_properties(storage)
        merged = dict(change(dict(current)))
        merged[CHECKSUM] = table_checksum(merged)
        if merged == current:
            return current
        if _replace(storage, current, merged, _render(merged, "Updated at", now_ms())):
            return merged
    reason = f"other processes updated it during {_UPDATE_ATTEMPTS} attempts; try again later"
    raise AlreadyExistsError(f"{storage.root}/{PROPERTIES_FILE}", "update", reason)


def restore_properties(storage: Storage) -> bool:
    """Restore a file in which one byte was changed; return False if it is not that.

    The caller knows that no update is running.
    """
    content = undamaged_properties(read_if_there(storage, PROPERTIES_FILE) or b"")
    if content is not None:
        storage.put(PROPERTIES_FILE, content)
    return content is not None


def replace_properties(
    storage: Storage, entries: Mapping[str, str], *, now_ms: Callable[[], int] = system_now_ms
) -> None:
    """Replace a broken file, and give it a checksum; the caller knows that no update is running."""
    whole = {**entries, CHECKSUM: table_checksum(entries)}
    storage.put(PROPERTIES_FILE, _render(whole, "Updated at", now_ms()))
    storage.delete(PROPERTIES_BACKUP_FILE)


def _replace(
    storage: Storage, current: Mapping[str, str], expected: Mapping[str, str], content: bytes
) -> bool:
    """Replace the file in steps; after a crash there is a valid file or a valid backup.

    Return False if another process updates the file, or has updated it since it was read.
    """
    try:
        old = storage.read(PROPERTIES_FILE)
        if parse_properties(old) != current:
            return False
        storage.put_if_absent(PROPERTIES_BACKUP_FILE, old)
    except (ObjectNotFoundError, AlreadyExistsError):
        return False
    if storage.read(PROPERTIES_FILE) != old:  # Another update ended before this one had its backup.
        storage.delete(PROPERTIES_BACKUP_FILE)
        return False
    storage.put(PROPERTIES_FILE, content)  # Atomic. Hudi deletes the file and creates it again.
    found = _read_if_valid(storage, PROPERTIES_FILE)
    if found is None or CHECKSUM not in found:  # As if truncated.
        storage.put(PROPERTIES_FILE, old)
        reason = "the written content cannot be read back; the old content is restored"
        raise StorageError(PROPERTIES_FILE, "update", reason)
    if found != expected:
        return False  # Another process took this one for dead, and the backup is that process's.
    storage.delete(PROPERTIES_BACKUP_FILE)
    return True


def _recover_when_alone(storage: Storage) -> None:
    """Wait for the end of an update by another process; end it if the process is dead."""
    while (seen := storage.stat(PROPERTIES_BACKUP_FILE)) is not None:
        changed = partial(_is_another, storage, seen)
        if not until(changed, _DEAD_AFTER_SECONDS):
            recover_table_properties(storage)
            return


def _is_another(storage: Storage, seen: StoredObject) -> bool:
    return storage.stat(PROPERTIES_BACKUP_FILE) != seen


def recover_table_properties(storage: Storage) -> None:
    """Finish or undo a failed update: keep a valid file, else replace it by the backup.

    The caller knows that the update is not running any more.
    """
    if storage.stat(PROPERTIES_BACKUP_FILE) is None:
        return
    found = _read_valid(storage)
    if found is None:
        return  # Neither file is valid. The next read raises an error; both files stay.
    if found[0] == PROPERTIES_BACKUP_FILE:
        storage.put(PROPERTIES_FILE, storage.read(PROPERTIES_BACKUP_FILE))
    storage.delete(PROPERTIES_BACKUP_FILE)


def _read_valid(storage: Storage) -> tuple[str, dict[str, str]] | None:
    """Return the path and entries of the file, or of its backup if only that is valid."""
    for path in (PROPERTIES_FILE, PROPERTIES_BACKUP_FILE):
        properties = _read_if_valid(storage, path)
        if properties is not None:
            return path, properties
    return None


def _read_if_valid(storage: Storage, path: str) -> dict[str, str] | None:
    data = read_if_there(storage, path)
    if data is None:
        return None
    if undamaged_properties(data) is not None:
        raise FormatError(
            f"{storage.root}/{path}",
            "table properties with their checksum",
            "one changed byte: the file is damaged; a repair restores it. If the byte was edited, "
            f"delete the line of the file that begins with {_SEAL.decode()}",
        )
    entries = _entries_if_whole(data)
    return None if entries is None else dict(entries)


@lru_cache(maxsize=32)  # An action reads the properties of its table several times.
def _entries_if_whole(data: bytes) -> tuple[tuple[str, str], ...] | None:
    properties = parse_properties(data)
    return tuple(properties.items()) if is_whole(properties) else None


def undamaged_properties(data: bytes) -> bytes | None:
    """Return the content that was written if one byte of it was changed; else None."""
    begin = data.find(_SEAL)
    place = begin + len(_SEAL)
    if begin < 0 or is_sealed(data, place):
        return None
    return with_one_byte_restored(data, place)


def _what_is_wrong(storage: Storage) -> str:
    data = read_if_there(storage, PROPERTIES_FILE)
    if data is None:
        return "no file"
    properties = parse_properties(data)
    if NAME not in properties:
        return "no name of a table: the file is truncated or foreign"
    if CHECKSUM not in properties:
        return "no checksum, which every table has: the file was cut off or edited"
    return f"the checksum {properties[CHECKSUM]} for another name: the file was edited"


def _has_properties(storage: Storage) -> bool:
    """Return whether one of the files exists, checked in the opposite order of reading.

    An update may have swapped the files between two reads.
    """
    paths = (PROPERTIES_BACKUP_FILE, PROPERTIES_FILE)
    return any(storage.stat(path) is not None for path in paths)


def _render(properties: Mapping[str, str], occasion: str, now_ms: int) -> bytes:
    at = instant_from_ms(now_ms, "UTC")
    iso = f"{at[:4]}-{at[4:6]}-{at[6:8]}T{at[8:10]}:{at[10:12]}:{at[12:14]}.{at[14:]}Z"
    comments = (f"{occasion} {iso}", java_date(now_ms), f"{_SEAL[1:].decode()}{BLANK.decode()}")
    content = render_properties(properties, "\n".join(comments))
    return seal(content, content.index(_SEAL) + len(_SEAL))


def _no_table(storage: Storage) -> TableNotFoundError:
    around = surroundings(storage)
    if around.file is not None:
        found = "it is a file" if around.file == storage.root else f"{around.file} is a file"
        return TableNotFoundError(storage.root, found, "give the folder of a table")
    found = _what_is_there(storage)
    if around.table is not None:
        next_step = (
            f"the path lies inside the table {around.table}: open that table, and choose rows or "
            "partitions with where= (--where)"
        )
        return TableNotFoundError(storage.root, found, next_step)
    similar = similar_folder(storage) if found == _NOTHING else None
    if similar is None:
        return TableNotFoundError(storage.root, found)
    next_step = f"{TableNotFoundError.usual_step}; did you mean {similar!r}?"
    return TableNotFoundError(storage.root, found, next_step)


def _what_is_there(storage: Storage) -> str:
    """Return what a path without table properties holds, for the error."""
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
        return _NOTHING
    shown = ", ".join(names[:_NAMES_SHOWN])
    return f"it holds {shown}" + (" and more" if len(names) > _NAMES_SHOWN else "")


def _has_iceberg_metadata(storage: Storage) -> bool:
    listed = storage.list("metadata", recursive=False)
    return any(stored.path.endswith(".metadata.json") for stored in listed)


# ---- Where a path lies: at a file, or inside of a table. No table can be there -------------------


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is at a path, or around it.

    Attributes
    ----------
    file : str or None
        Address of a file that is the path, or a part of it.
    table : str or None
        Address of the table in whose folder the path lies.
    """

    file: str | None = None
    table: str | None = None

    @property
    def problem(self) -> str | None:
        """Why no table can be at the path, in words; None if one can."""
        if self.file is not None:
            return f"{self.file} is a file, and a table is a folder"
        return None if self.table is None else f"the path lies inside the table {self.table}"


def surroundings(storage: Storage) -> Surroundings:
    """Look at the folders around the root of a storage.

    A folder that the caller may not look at ends the search: a permission may hold for the table's
    folder alone.
    """
    inner = storage
    while isinstance(inner, PlacedStorage) and (outer := inner.parent()) is not None:
        try:
            if _is_file(outer, inner.root.rpartition("/")[2]):
                return Surroundings(file=inner.root)
            if outer.stat(PROPERTIES_FILE) is not None:
                return Surroundings(table=outer.root)
        except StorageError:
            break
        inner = outer
    return Surroundings()


def _is_file(outer: Storage, name: str) -> bool:
    """Return whether a name is a file; on object stores an empty object may mark a folder."""
    stored = outer.stat(name)
    return stored is not None and (stored.size_bytes > 0 or outer.local_path(name) is not None)


def similar_folder(storage: Storage) -> str | None:
    """Return the folder beside a missing one whose name is nearly the same."""
    outer = storage.parent() if isinstance(storage, PlacedStorage) else None
    if outer is None:
        return None
    try:
        found = closest_name(storage.root.rpartition("/")[2], outer.list_folders(""))
    except StorageError:
        return None
    return None if found is None else f"{outer.root.rstrip('/')}/{found}"
