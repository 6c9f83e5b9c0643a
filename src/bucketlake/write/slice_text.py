"""A slice of the record-level index as text, as plans send it to tasks."""

from __future__ import annotations

from dataclasses import replace

from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.metadata.table import MetadataSlice
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import FileSlice


def text_of_slice(stored: MetadataSlice) -> str:
    """Return a slice of the index as text, to send it to a task."""
    at = InstantTime("")  # Its files tell the slice.
    return FileSlice("", stored.file_id, at, stored.base, stored.logs).to_text()


def slice_of_text(text: str) -> MetadataSlice:
    """Parse a slice of the index; undoes :func:`text_of_slice`."""
    held = FileSlice.from_text(text)
    place = MetadataPartition.RECORD_INDEX.value
    files = [replace(file, partition_path=place) for file in held.files]
    base = files.pop(0) if held.base_file is not None else None
    return MetadataSlice(held.file_id, base, tuple(files))
