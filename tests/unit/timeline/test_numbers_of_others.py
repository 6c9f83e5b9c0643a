"""Numbers in the files and names of others: read, or refused; none ends in an error of Python."""

from __future__ import annotations

from bucketlake.config.paths_of_table import COMMIT_ORDER_FOLDER
from bucketlake.format.archive_file import ArchiveFile, archive_log_number
from bucketlake.format.metadata_record.file_ids import MetadataFileId
from bucketlake.model.file_name import LogFileName
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.archive_reader import manifest_numbers
from bucketlake.timeline.commit_order import stray_turns

DIGITS = "9" * 4_301  # One more than Python's int takes.


def test_name_with_thousands_of_digits_is_no_file_of_the_table() -> None:
    assert LogFileName.from_file_name(f".f_1.log.{DIGITS}_1-0-1") is None
    assert LogFileName.from_file_name(".f_1.log.7_1-0-1") is not None
    assert MetadataFileId.from_file_id(f"files-{DIGITS}-0") is None
    assert ArchiveFile(f"1_2_{DIGITS}.parquet", 1).layer is None
    assert archive_log_number(f".commits_.archive.{DIGITS}_1-0-1") is None
    storage = MemoryStorage.fresh()
    storage.put(f"a/manifest_{DIGITS}", b"")
    storage.put(f"{COMMIT_ORDER_FOLDER}/{DIGITS}", b"")
    assert manifest_numbers(storage, "a") == []
    assert stray_turns(storage) == []
