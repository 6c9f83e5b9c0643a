"""Mending ``hoodie.properties``: a damaged byte by its checksum, else by what commits record."""

from __future__ import annotations

from collections.abc import Callable

from bucketlake.config import table_keys as keys
from bucketlake.config.paths_of_table import (
    HOODIE_FOLDER,
    METADATA_TABLE_FOLDER,
    PROPERTIES_FILE,
)
from bucketlake.config.recorded_entries import RECORDED, mended, parse_recorded
from bucketlake.config.table_config import TableConfig
from bucketlake.config.table_version import LAYOUT_1, NEWEST_VERSION, OLDEST_VERSION
from bucketlake.errors import ObjectNotFoundError
from bucketlake.format.archive_file import ArchivedInstant
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.format.properties import parse_properties
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.archive_reader import archived_commit, newest_archived
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import replace_properties, restore_properties


def mend_properties(storage: Storage, now_ms: Callable[[], int]) -> bool | None:
    """Restore the file: a changed byte, or lost and changed entries; a cut line is dropped.

    Returns
    -------
    bool or None
        Whether the metadata table must be removed, because the file had lost which of its
        partitions are valid. None if nothing was changed, because no commit records the entries.
    """
    if restore_properties(storage):
        return False
    try:
        data = storage.read(PROPERTIES_FILE)
    except ObjectNotFoundError:
        data = b""
    current = parse_properties(data[: data.rfind(b"\n") + 1])
    recorded = _newest_record(storage, current)
    if recorded is None:
        return None
    entries = mended(current, recorded)
    lost_list = (
        keys.CHECKSUM not in current
        and keys.METADATA_PARTITIONS not in current
        and bool(storage.list_folders(METADATA_TABLE_FOLDER))
    )
    if lost_list:
        entries[keys.METADATA_PARTITIONS] = MetadataPartition.FILES
    replace_properties(storage, entries, now_ms=now_ms)
    return lost_list


def _newest_record(storage: Storage, current: dict[str, str]) -> dict[str, str] | None:
    """Return the entries in the newest commit that has them."""
    folder = current.get(keys.TIMELINE_PATH, "timeline")
    has_folder = next(iter(storage.list(f"{HOODIE_FOLDER}/{folder}")), None) is not None
    places = TableConfig(  # Only the folders of the timeline are true.
        "",
        TableType.COPY_ON_WRITE,
        KeySpec((), (), KeyGenerator.NON_PARTITION),
        MergeMode.COMMIT_TIME,
        version=NEWEST_VERSION if has_folder else OLDEST_VERSION,
        timeline_path=folder,
        history_path=current.get(keys.HISTORY_PATH, "history"),
        archive_folder=current.get(keys.ARCHIVE_FOLDER, LAYOUT_1.archive_folder),
    )
    timeline = load_timeline(opened_table(storage, places))
    for instant in reversed(timeline.completed_commits()):
        found = parse_recorded(timeline.read_commit(storage, instant).extra.get(RECORDED))
        if found is not None:
            return found

    entry = newest_archived(
        storage, places.history_folder, None, lambda e: _record_in(e) is not None
    )
    return None if entry is None else _record_in(entry)


def _record_in(entry: ArchivedInstant) -> dict[str, str] | None:
    commit = archived_commit(entry)
    return None if commit is None else parse_recorded(commit.extra.get(RECORDED))
