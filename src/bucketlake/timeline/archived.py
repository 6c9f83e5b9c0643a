"""The archived timeline: instants that have left the active one, kept as Parquet files.

From table version 8 on the archive is a log-structured merge tree: a version file names the newest
manifest, the manifest names the valid Parquet files, whose names tell the range of instants they
hold. It is read for completion times and for histories that begin before the active timeline, and
is not written here. The older form, Avro logs, is refused by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from bucketlake.config.inner_path import require_inner_name
from bucketlake.config.layout import KEPT_FOLDER_FILE
from bucketlake.config.table_config import TableConfig
from bucketlake.errors import FormatError, ObjectNotFoundError, UnsupportedFeatureError
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage

_VERSION_FILE = "_version_"
_MANIFEST = re.compile(r"manifest_(\d+)", re.ASCII)
_DATA_FILE = re.compile(r"(\d+)_(\d+)_\d+\.parquet", re.ASCII)
_OLD_ARCHIVE = re.compile(r"\.commits_?\.archive\..*")

# Readers race with the writer that merges files and drops old manifests; it keeps the newest three.
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class ArchivedInstant:
    """A completed instant of the archive.

    Attributes
    ----------
    requested_at, completed_at : InstantTime
    action : str
        Action of the completed file, in Hudi's spelling.
    metadata : bytes or None
        Content of the completed file; None where it is not asked for or not kept.
    """

    requested_at: InstantTime
    completed_at: InstantTime
    action: str
    metadata: bytes | None = None


def read_archive(
    storage: Storage,
    config: TableConfig,
    *,
    since: str = "",
    until: str | None = None,
    with_metadata: bool = True,
) -> list[ArchivedInstant]:
    """Return the archived instants in order of their requested time.

    Parameters
    ----------
    storage : Storage
    config : TableConfig
    since, until : str
        Inclusive bounds of the requested time; files outside of them are not read.
    with_metadata : bool
        Whether to read the content of the completed files too, which is most of an archive.

    Raises
    ------
    UnsupportedFeatureError
        If the table has an archive in the form of before table version 8.
    FormatError
        If a file of the archive is broken.
    """
    if config.layout_version == 1:
        _refuse_old_archive(storage, config)
        return []
    for _ in range(_ATTEMPTS - 1):
        try:
            return _read(storage, config.history_folder, since, until, with_metadata)
        except ObjectNotFoundError:
            continue
    return _read(storage, config.history_folder, since, until, with_metadata)


def has_archive(storage: Storage, config: TableConfig) -> bool:
    """Tell whether anything was ever archived; the cost is one listing."""
    names = (
        stored.path.rpartition("/")[2]
        for stored in storage.list(config.history_folder, recursive=False)
    )
    return any(name != KEPT_FOLDER_FILE for name in names)


def archived_completion_times(
    storage: Storage, config: TableConfig, *, since: str = "", until: str | None = None
) -> dict[InstantTime, InstantTime]:
    """Return completion times by requested time; of two actions at one time the commit's."""
    entries = read_archive(storage, config, since=since, until=until, with_metadata=False)
    entries.sort(key=lambda entry: "commit" in entry.action)
    return {entry.requested_at: entry.completed_at for entry in entries}


def _read(
    storage: Storage, folder: str, since: str, until: str | None, with_metadata: bool
) -> list[ArchivedInstant]:
    columns = ["instantTime", "completionTime", "action", *(["metadata"] if with_metadata else [])]
    found: dict[tuple[str, str], ArchivedInstant] = {}
    for name in _valid_files(storage, folder):
        if _may_hold(name, since, until):
            for entry in _read_file(storage, f"{folder}/{name}", columns):
                if since <= entry.requested_at and (until is None or entry.requested_at <= until):
                    found[entry.requested_at, entry.action] = entry
    return [found[place] for place in sorted(found)]


def _valid_files(storage: Storage, folder: str) -> list[str]:
    """Return the file names that the newest manifest holds; none where there is no archive."""
    version = _manifest_version(storage, folder)
    if version is None:
        return []
    path = f"{folder}/manifest_{version}"
    data = storage.read(path)
    try:
        names = [str(file["fileName"]) for file in json.loads(data)["files"]]
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(path, "a JSON manifest of the archive", repr(data[:32])) from error
    for name in names:
        require_inner_name(name, path, "the name of a file of the archive")
    return names


def _manifest_version(storage: Storage, folder: str) -> int | None:
    """Read the version file, or where it is gone or broken take the greatest manifest there."""
    try:
        text = storage.read(f"{folder}/{_VERSION_FILE}").decode("latin-1").strip()
    except ObjectNotFoundError:
        text = ""
    if text.isascii() and text.isdecimal():
        return int(text)
    names = (stored.path.rpartition("/")[2] for stored in storage.list(folder, recursive=False))
    versions = [int(match[1]) for match in map(_MANIFEST.fullmatch, names) if match]
    return max(versions, default=None)


def _may_hold(file_name: str, since: str, until: str | None) -> bool:
    match = _DATA_FILE.fullmatch(file_name)
    if match is None:
        return True  # A name that tells no range is read rather than skipped.
    return match[2] >= since and (until is None or match[1] <= until)


def _read_file(storage: Storage, path: str, columns: Sequence[str]) -> Iterator[ArchivedInstant]:
    data = storage.read(path)
    try:
        table = pq.read_table(pa.BufferReader(data), columns=list(columns))
        rows = table.select(list(columns)).to_pylist()  # A few thousand small rows at the most.
    except (pa.ArrowException, KeyError) as error:
        raise FormatError(path, f"Parquet with columns {', '.join(columns)}", str(error)) from error
    for row in rows:
        requested_at = InstantTime(row["instantTime"] or "")
        completed_at = InstantTime(row["completionTime"] or requested_at)
        yield ArchivedInstant(requested_at, completed_at, row["action"] or "", row.get("metadata"))


def _refuse_old_archive(storage: Storage, config: TableConfig) -> None:
    for stored in storage.list(config.history_folder, recursive=False):
        if _OLD_ARCHIVE.fullmatch(stored.path.rpartition("/")[2]):
            raise UnsupportedFeatureError(
                "an archived timeline in the form of before table version 8",
                stored.path,
                "ask for the active timeline only, or let Hudi 1.x upgrade the table",
            )
