"""Whether a metadata table says what its data table holds."""

from __future__ import annotations

from bucketlake.metadata.file_listing import list_files
from bucketlake.metadata.table import open_metadata_table
from bucketlake.read import file_system_view
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.table_properties import read_table_config


def listed_files(storage: Storage) -> dict[str, int]:
    """The files that the metadata table lists, with their sizes."""
    config = read_table_config(storage)
    metadata = open_metadata_table(storage, config, load_timeline(storage, config))
    return {file.path: file.size_bytes for file in list_files(metadata, None)}


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
