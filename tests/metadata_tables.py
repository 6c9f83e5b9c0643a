"""Whether a metadata table says what its data table holds."""

from __future__ import annotations

from bucketlake.metadata.file_listing import list_files
from bucketlake.metadata.table import open_metadata_table
from bucketlake.read import file_system_view
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.table_properties import read_table_config


def listed_files(storage: Storage) -> dict[str, int]:
    """The files of completed instants that the metadata table lists, with their sizes.

    It also lists copies of log files for a pending resize; all that it lists exists.
    """
    config = read_table_config(storage)
    timeline = load_timeline(storage, config)
    listed = list_files(open_metadata_table(storage, config, timeline), None)
    found = file_system_view.list_partitions(storage)
    there = {file.path for files in found.values() for file in files}
    assert {file.path for file in listed} <= there
    return {f.path: f.size_bytes for f in listed if timeline.is_completed(f.name.instant)}


def stored_files(storage: Storage) -> dict[str, int]:
    """The files of completed instants that storage holds, with their sizes."""
    timeline = load_timeline(storage, read_table_config(storage))
    found = file_system_view.list_partitions(storage)
    return {
        file.path: file.size_bytes
        for files in found.values()
        for file in files
        if timeline.is_completed(file.name.instant)
    }
