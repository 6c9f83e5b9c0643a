"""Files that the metadata table lists, whether they exist or not, as a faulty program does."""

from __future__ import annotations

from bucketlake.format.commit_metadata import encode_commit_metadata
from bucketlake.metadata.changes import MetadataChange, publish_change, write_change
from bucketlake.metadata.metadata_table import open_metadata_table
from bucketlake.model.file_name import InstantTime
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.table_properties import table_at

LATER = InstantTime("20991231235959999")  # Later than every write of the tests.


def list_file(storage: Storage, partition: str, name: str) -> None:
    """Complete a commit whose metadata says that a partition has a file."""
    opened = table_at(storage)
    metadata = open_metadata_table(opened, load_timeline(opened))
    change = MetadataChange(written={partition: {name: 8}}, listed=["x", partition])
    publish_change(opened, LATER, LATER, write_change(metadata, LATER, change))
    content = encode_commit_metadata(CommitMetadata("UPSERT", {}))
    storage.put(f".hoodie/timeline/{LATER}_{LATER}.deltacommit", content)
