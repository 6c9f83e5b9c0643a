"""The valid log blocks of a file slice, in the order in which they are merged.

``format/log_order.py`` orders the blocks. Up to table version 6 a log file holds blocks of many
instants, so each block is checked for a committed instant. Since table version 8 the instant in the
file name was checked before, and a block of another instant is an error: its header is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator

from bucketlake.errors import FormatError
from bucketlake.format.log_block import BlockKind, LogBlock, read_log_blocks
from bucketlake.format.log_order import blocks_to_merge
from bucketlake.model.file_name import LogFileName
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline

_DATA = frozenset(
    {BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA, BlockKind.HFILE_DATA, BlockKind.DELETE}
)


def counted_blocks(storage: Storage, file_slice: FileSlice, timeline: Timeline) -> list[LogBlock]:
    """Return the blocks of a slice, oldest first.

    Raises
    ------
    FormatError
        If a log file is damaged (Hudi's readers would omit its records), or if log compactions
        replace each other in a circle.
    UnsupportedFeatureError
        If a block has an unknown kind, or is an unknown command.
    """
    return blocks_to_merge(_counted(storage, file_slice, timeline))


def _counted(storage: Storage, file_slice: FileSlice, timeline: Timeline) -> Iterator[LogBlock]:
    opens_group = file_slice.base_file is None  # The first block of the first file.
    for file in file_slice.log_files:
        for block in read_log_blocks(storage, file.path, file.size_bytes):
            is_data = block.kind in _DATA and _is_committed(
                block, file, file_slice, timeline, opens_group=opens_group
            )
            opens_group = False
            if is_data or block.kind is BlockKind.COMMAND:
                yield block


def _is_committed(
    block: LogBlock,
    file: DataFile,
    file_slice: FileSlice,
    timeline: Timeline,
    *,
    opens_group: bool,
) -> bool:
    name = file.name
    assert isinstance(name, LogFileName), file.path
    writer = name.writer or name.instant
    if not timeline.layout.logs_name_slices and block.instant == writer:
        return True
    if timeline.is_completed(block.instant):
        return True
    # Log files from before an upgrade have the instant of their base file in their names, and
    # blocks of later instants. But the block that opened a group has the instant in the name.
    is_of_base = name.instant == file_slice.instant and block.instant > name.instant
    is_of_base = is_of_base and not opens_group
    if not timeline.layout.logs_name_slices and not is_of_base:
        expected = f"blocks of instant {writer}, which is in the name"
        raise FormatError(file.path, expected, f"a block of instant {block.instant}")
    return False
