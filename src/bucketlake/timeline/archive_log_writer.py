"""Adding log files to an archive of timeline layout 1, also if several processes do it at once.

An archival first claims the next number: it puts an object with the content of the log file, if
absent, into bucketlake's own folder. The claim decides that the instants are archived. Then the log
file of that number is put, by the archival, or if it died, by whoever wants the next number. So an
archive has no file that was not claimed, and no instant twice. A claim without content keeps
instants active: every archival that was planned before finds its number taken.

Why claims: a log file counts as soon as it exists. Hudi stops reading an archive at a file that has
nothing new, so neither an empty file nor one that repeats instants could take a number.

Hudi's archival takes the number after the greatest log file, without a claim. Only the table lock
protects from it. If it took a claimed number, the claim is void and its instants stay active.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from bucketlake.config.paths_of_table import ARCHIVAL_FOLDER
from bucketlake.errors import AlreadyExistsError, ObjectNotFoundError
from bucketlake.format.archive_log import (
    ArchivedState,
    archive_log_name,
    decode_archive_log,
    encode_archive_log,
)
from bucketlake.storage.base import Storage, StoredObject
from bucketlake.timeline.archive_files import log_numbers
from bucketlake.timeline.instant import Instant, instant_from_ms
from bucketlake.timeline.open_table import OpenTable

KEEPING: Final = b""
"""Content of a claim that archives nothing."""

_CLAIMS_KEPT = 3  # The newest one is needed; a slow archival may look for its own.


def last_log_number(table: OpenTable) -> int:
    """Return the last number of a log file or claim, after the log file of the last claim is put.

    A caller that plans an archival loads the timeline afterwards.
    """
    claims = _claims(table.storage)
    number = max(claims, default=0)
    if claims:
        _carry_out(table, number)
    return max(number, _last_log(table))


def claim_log(table: OpenTable, number: int, content: bytes) -> bool:
    """Claim a number, and put its log file unless the content is ``KEEPING``.

    Returns
    -------
    bool
        False if another writer changed the archive since :func:`last_log_number`.
    """
    storage, path = table.storage, _claim_path(number)
    try:
        storage.put_if_absent(path, content)
    except AlreadyExistsError:
        try:
            if storage.read(path) != content:  # Otherwise our own put without response.
                return False
        except ObjectNotFoundError:
            return False
    # A writer that slept may find its number free again; there is a greater number then.
    if max(*_claims(storage), _last_log(table), number) > number:
        return False
    is_put = _carry_out(table, number)
    for old in sorted(_claims(storage))[:-_CLAIMS_KEPT]:
        storage.delete(_claim_path(old))
    return is_put


def encode_files(
    table: OpenTable, instants: Sequence[Sequence[tuple[Instant, StoredObject]]]
) -> bytes:
    """Return a log file with the files of instants, each sorted by state.

    Raises
    ------
    ObjectNotFoundError
        If an instant left the active timeline meanwhile.
    """
    zone = table.config.timeline_timezone
    return encode_archive_log(
        [
            ArchivedState(
                instant.requested_at,
                instant.action.value,
                instant.state.name,
                instant_from_ms(stored.modified_at_ms, zone),
                table.storage.read(stored.path),
            )
            for files in instants
            for instant, stored in files
        ]
    )


def _carry_out(table: OpenTable, number: int) -> bool:
    """Put the log file of the last claim; return False if a file of Hudi has its number.

    Raises
    ------
    FormatError
        If the claim is damaged.
    """
    storage = table.storage
    with suppress(ObjectNotFoundError):
        content = storage.read(_claim_path(number))
        decode_archive_log(content, _claim_path(number), ())  # Raises an error if it is damaged.
        path = f"{table.config.history_folder}/{archive_log_name(number)}"
        if content == KEEPING:
            return True
        if _last_log(table) < number:
            with suppress(AlreadyExistsError):
                storage.put_if_absent(path, content)
        return storage.read(path) == content
    return False


def _claims(storage: Storage) -> list[int]:
    names = (o.path.rpartition("/")[2] for o in storage.list(ARCHIVAL_FOLDER, recursive=False))
    return [int(name) for name in names if name.isascii() and name.isdecimal()]


def _claim_path(number: int) -> str:
    return f"{ARCHIVAL_FOLDER}/{number}"


def _last_log(table: OpenTable) -> int:
    return max(log_numbers(table.storage, table.config.history_folder), default=0)
