"""Whether a metadata table says what its data table holds."""

from __future__ import annotations

from dataclasses import replace

from bucketlake.format.clean_metadata import decode_clean_plan
from bucketlake.metadata.file_listing import list_files
from bucketlake.metadata.table import open_metadata_table
from bucketlake.read import file_system_view
from bucketlake.read.snapshot import load_snapshot
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.instant import State
from bucketlake.timeline.table_properties import read_table_config


def listed_files(storage: Storage) -> dict[str, int]:
    """The files of completed instants that the metadata table lists, with their sizes.

    It also lists copies of log files for a pending resize. All that it lists exists, unless a clean
    that is not completed has deleted it; such files are left out.
    """
    config = read_table_config(storage)
    timeline = load_timeline(storage, config)
    listed = list_files(open_metadata_table(storage, config, timeline), None)
    found = file_system_view.list_partitions(storage)
    there = {file.path for files in found.values() for file in files}
    gone = {file.path for file in listed} - there
    for clean in timeline.pending_cleans():
        path = timeline.path_of(replace(clean, state=State.REQUESTED))
        gone.difference_update(decode_clean_plan(storage.read(path), path).paths)
    assert not gone
    return {
        file.path: file.size_bytes
        for file in listed
        if file.path in there and timeline.is_completed(file.name.instant)
    }


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


def live_files(storage: Storage, *, lists_storage: bool) -> set[str]:
    """The files of live slices, as listed by storage or by the metadata table."""
    snapshot = load_snapshot(storage, read_table_config(storage), lists_storage=lists_storage)
    return {path for file_slice in snapshot.all_slices() for path in file_slice.paths}
