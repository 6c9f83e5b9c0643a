"""The log blocks of a file slice that count, in the order in which they are merged.

Log files come in their total order. A rollback block cancels the blocks of its target, and a block
of a log compaction stands for those that it was made of. Up to table version 6 a log file holds the
blocks of many instants, and each is asked whether its instant is committed; from version 8 on the
name of the file has answered that for the blocks of its own instant, which should be all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bucketlake.errors import FormatError, UnsupportedFeatureError
from bucketlake.format.log_block import BlockKind, HeaderKey, LogBlock, read_log_blocks
from bucketlake.model.file_name import InstantTime
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline

_DATA = frozenset(
    {BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA, BlockKind.HFILE_DATA, BlockKind.DELETE}
)
_ROLLBACK = "0"


def counted_blocks(storage: Storage, file_slice: FileSlice, timeline: Timeline) -> list[LogBlock]:
    """Return the blocks of a slice, oldest first.

    Raises
    ------
    FormatError
        If a log file is damaged, where Hudi's readers would leave its records out; or if log
        compactions stand for each other.
    UnsupportedFeatureError
        If a block is of a kind, or is a command, that is not known.
    """
    groups: dict[InstantTime, list[LogBlock]] = {}
    for file in file_slice.log_files:
        for block in read_log_blocks(storage, file.path, file.size_bytes):
            if block.kind is BlockKind.COMMAND:
                groups.pop(_rolled_back(block), None)
            elif block.kind in _DATA and _is_committed(block, file, timeline):
                groups.setdefault(block.instant, []).append(block)
    return [block for instant in _in_order(groups) for block in groups[instant]]


def _rolled_back(command: LogBlock) -> InstantTime:
    """Return the target of a rollback block; no other command is known."""
    for key in (HeaderKey.TARGET_INSTANT_TIME, HeaderKey.COMMAND_BLOCK_TYPE):
        if not command.headers.get(key):
            told = ", ".join(one.name for one in command.headers)
            raise command.malformed(f"header {key.name} of a command", told)
    kind = command.headers[HeaderKey.COMMAND_BLOCK_TYPE]
    if kind != _ROLLBACK:
        where = f"{command.path} at byte {command.offset_bytes}"
        raise UnsupportedFeatureError(f"command {kind} of a log", where, "read it with Hudi")
    return InstantTime(command.headers[HeaderKey.TARGET_INSTANT_TIME])


def _is_committed(block: LogBlock, file: DataFile, timeline: Timeline) -> bool:
    is_of_name = timeline.layout_version > 1 and block.instant == file.name.instant
    return is_of_name or timeline.is_completed(block.instant)


def _in_order(groups: dict[InstantTime, list[LogBlock]]) -> list[InstantTime]:
    """Return the instants whose blocks are merged: a log compaction in place of what it covers."""
    covering = {
        original: instant for instant, blocks in groups.items() for original in _covered(blocks)
    }
    compactions = set(covering.values())
    newest_first: list[InstantTime] = []
    for instant in reversed(groups):
        standing = _last_of(instant, covering, groups)
        if standing in compactions and standing == instant:
            continue  # It is placed where the first instant that it covers is met.
        if standing not in newest_first:
            newest_first.append(standing)
    # One whose originals are gone stands where it was written.
    alone = [one for one in compactions if one not in covering and one not in newest_first]
    order = {instant: place for place, instant in enumerate(groups)}
    for one in alone:
        at = next((i for i, o in enumerate(newest_first) if order[o] < order[one]), None)
        newest_first.insert(len(newest_first) if at is None else at, one)
    return newest_first[::-1]


def _last_of(
    instant: InstantTime,
    covering: Mapping[InstantTime, InstantTime],
    groups: Mapping[InstantTime, Sequence[LogBlock]],
) -> InstantTime:
    """Return the log compaction that stands for an instant in the end, or the instant itself."""
    passed = [instant]
    while passed[-1] in covering:
        standing = covering[passed[-1]]
        if standing in passed:
            raise FormatError(
                groups[standing][0].path,
                "log compactions of earlier blocks",
                f"a circle of them: {', '.join(passed)}",
            )
        passed.append(standing)
    return passed[-1]


def _covered(blocks: list[LogBlock]) -> Iterator[InstantTime]:
    for block in blocks:
        for text in block.headers.get(HeaderKey.COMPACTED_BLOCK_TIMES, "").split(","):
            if text.strip():
                yield InstantTime(text.strip())
