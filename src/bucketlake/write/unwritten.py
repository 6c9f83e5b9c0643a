"""Tables without commits: one process at a time makes one, or removes what an earlier one left.

A process first puts its claim, a heartbeat with a name of its own, and then looks whether anybody
writes to the table. A first write puts itself on the timeline first, and then looks whether
anybody has a claim, and whether the table is still the one that it was planned for. So at least
one of the two sees the other: no table is removed under a write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from bucketlake.actions.recovery import settle_failed_writes
from bucketlake.config.paths_of_table import (
    HEARTBEAT_FOLDER,
    HOODIE_FOLDER,
    MARKER_FOLDER,
    OUTCOME_FOLDER,
    PROPERTIES_BACKUP_FILE,
    PROPERTIES_FILE,
    SPOOL_FOLDER,
)
from bucketlake.config.recorded_entries import recorded_entries
from bucketlake.config.support import check_writable
from bucketlake.errors import (
    AlreadyExistsError,
    CommitConflictError,
    InputError,
    LockError,
    UnsupportedFeatureError,
)
from bucketlake.format.properties import PARTITION_METADATA_PREFIX
from bucketlake.index.stored_setting import read_stored
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage, StoredObject
from bucketlake.storage.waiting import until
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.archive_reader import has_archive
from bucketlake.timeline.heartbeat import beating, delete_heartbeat, is_alive
from bucketlake.timeline.instant import system_now_ms
from bucketlake.timeline.locks import FILE_LOCK, NO_LOCK, STORAGE_LOCK, TableLock
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.table_properties import read_table_config, table_at
from bucketlake.write.target import Target

_MADE_ANEW = "another process made the table anew, with other settings; write again"
_CLAIM = InstantTime("creation")
_WAIT_SECONDS_MAX = 60.0

_OF_OTHERS = (HEARTBEAT_FOLDER, SPOOL_FOLDER, FILE_LOCK, STORAGE_LOCK)
_OF_LATE_TASKS = re.compile(rf"{re.escape(MARKER_FOLDER)}/.*|{re.escape(OUTCOME_FOLDER)}/\d+\.json")


@contextmanager
def claimed(storage: Storage) -> Iterator[None]:
    """Hold the claim to make or remove the table; raise LockError if it is not free in time."""
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(beating(storage, _CLAIM))
                break
            except AlreadyExistsError:
                wait_for_claims(storage)
                delete_heartbeat(storage, _CLAIM)  # Its process died.
        yield


def wait_for_claims(storage: Storage, now_ms: Callable[[], int] = system_now_ms) -> None:
    """Wait until no living process has the claim."""
    if not until(lambda: not is_alive(storage, _CLAIM, now_ms), _WAIT_SECONDS_MAX):
        claim = f"{storage.root}/{HEARTBEAT_FOLDER}/{_CLAIM}"
        raise LockError(claim, "a process that makes the table", _WAIT_SECONDS_MAX)


def require_not_made_anew(target: Target, instant: InstantTime) -> None:
    """Raise CommitConflictError if the table of a first write, begun now, was made anew."""
    if target.snapshot.timeline.completed_commits():
        return
    wait_for_claims(target.storage, target.table.clock.now_ms)
    require_same_table(target.table, instant)
    if target.stored is not None and read_stored(target.storage) != target.stored:
        raise CommitConflictError(instant, _MADE_ANEW)


def require_same_table(table: OpenTable, instant: str = "not begun") -> None:
    """Raise CommitConflictError if the properties are not those that a caller has looked at."""
    if recorded_entries(read_table_config(table.storage)) != recorded_entries(table.config):
        raise CommitConflictError(instant, _MADE_ANEW)


def is_unwritten(table: OpenTable) -> bool:
    """Return whether nobody has written to a table, or writes to it; settle dead writes before.

    False for a table that has data files, whatever its timeline says: the timeline may be lost.
    """
    try:
        check_writable(table.config, table.storage.root)
    except UnsupportedFeatureError:
        return False
    timeline = settle_failed_writes(table, load_timeline(table))
    return (
        not timeline.completed_commits()
        and not timeline.pending()
        and not has_archive(table)
        and all(_is_left_over(stored) for stored in table.storage.list(""))
    )


def remove_unwritten(
    storage: Storage, *, lock: TableLock = NO_LOCK, tasks_may_run: bool = True
) -> None:
    """Remove a table without commits, and what a table left that was not made or removed wholly.

    The caller holds the claim.

    Parameters
    ----------
    storage : Storage
        The table's storage.
    lock : TableLock
        The lock that Hudi's writers share.
    tasks_may_run : bool
        Whether tasks of a failed write may still run. Then outcomes and markers of writes stay: a
        late task finds there that its file does not count, or the next write does.

    Raises
    ------
    AlreadyExistsError
        If somebody has written to the table, or writes to it.
    InputError
        If the folder has other files, which readers would treat as data files.
    """
    if storage.stat(PROPERTIES_FILE) is not None:
        if not is_unwritten(table_at(storage, lock)):
            raise AlreadyExistsError(
                storage.root, "create table", "another process writes to the table; use open_table"
            )
        storage.delete(PROPERTIES_FILE)  # Now there is no table.
        storage.delete(PROPERTIES_BACKUP_FILE)
    require_room(storage)
    for stored in [*storage.list("")]:
        is_of_task = tasks_may_run and _OF_LATE_TASKS.fullmatch(stored.path)
        if not is_of_task and not stored.path.startswith(_OF_OTHERS):
            storage.delete(stored.path)


def require_room(storage: Storage) -> None:
    """Raise InputError if the folder has other files, which readers would treat as data files."""
    foreign = next((held.path for held in storage.list("") if not _is_left_over(held)), None)
    if foreign is not None:
        raise InputError(
            f"create table {storage.root}",
            f"the folder holds {foreign}, which is not part of a Hudi table",
            "choose an empty folder",
        )


def remove_empty_folder(storage: Storage) -> None:
    """Remove the folders, which a local disk keeps, of a table of which no file is left."""
    if next(iter(storage.list("")), None) is None:
        for folder in storage.list_folders(""):
            storage.delete_folder(folder)


def _is_left_over(stored: StoredObject) -> bool:
    """Return whether a file of a folder without a table may be removed: never a data file."""
    folder, _, name = stored.path.rpartition("/")
    is_marker = bool(folder) and name.startswith(PARTITION_METADATA_PREFIX)
    return is_marker or stored.path.startswith(f"{HOODIE_FOLDER}/")
