"""The order in which the blocks of a slice's log files are merged, and which of them are replaced.

Log files have a total order. A rollback block cancels the blocks of its target instant, and a block
of a log compaction replaces the blocks that it was made from. The caller decides which instants
count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from bucketlake.errors import FormatError, UnsupportedFeatureError
from bucketlake.format.log_block import ROLLBACK_COMMAND, BlockKind, HeaderKey, LogBlock
from bucketlake.model.file_name import InstantTime


def blocks_to_merge(blocks: Iterable[LogBlock]) -> list[LogBlock]:
    """Return the data and delete blocks that are merged, oldest first.

    Parameters
    ----------
    blocks : iterable of LogBlock
        Blocks whose instants count, and commands, in order of the log files.

    Raises
    ------
    FormatError
        If log compactions replace each other in a circle.
    UnsupportedFeatureError
        If a block is an unknown command.
    """
    groups: dict[InstantTime, list[LogBlock]] = {}
    for block in blocks:
        if block.kind is BlockKind.COMMAND:
            groups.pop(_rolled_back(block), None)
        else:
            groups.setdefault(block.instant, []).append(block)
    return [block for instant in _in_order(groups) for block in groups[instant]]


def _rolled_back(command: LogBlock) -> InstantTime:
    """Return the target of a rollback block; raise UnsupportedFeatureError for other commands."""
    for key in (HeaderKey.TARGET_INSTANT_TIME, HeaderKey.COMMAND_BLOCK_TYPE):
        if not command.headers.get(key):
            headers = ", ".join(header.name for header in command.headers)
            raise command.malformed(f"header {key.name} of a command", headers)
    kind = command.headers[HeaderKey.COMMAND_BLOCK_TYPE]
    if kind != ROLLBACK_COMMAND:
        where = f"{command.path} at byte {command.offset_bytes}"
        raise UnsupportedFeatureError(f"command {kind} of a log", where, "read it with Hudi")
    return InstantTime(command.headers[HeaderKey.TARGET_INSTANT_TIME])


def _in_order(groups: dict[InstantTime, list[LogBlock]]) -> list[InstantTime]:
    """Return the instants to merge, in order; a log compaction replaces what it covers."""
    covering = {
        original: instant for instant, blocks in groups.items() for original in _covered(blocks)
    }
    compactions = set(covering.values())
    newest_first: list[InstantTime] = []
    for instant in reversed(groups):
        standing = _last_of(instant, covering, groups)
        if standing in compactions and standing == instant:
            continue  # The loop places it at the newest instant that it covers.
        if standing not in newest_first:
            newest_first.append(standing)
    # A log compaction whose original blocks are missing stays where it was written.
    alone = [time for time in compactions if time not in covering and time not in newest_first]
    order = {instant: place for place, instant in enumerate(groups)}
    for compaction in alone:
        at = next((i for i, o in enumerate(newest_first) if order[o] < order[compaction]), None)
        newest_first.insert(len(newest_first) if at is None else at, compaction)
    return newest_first[::-1]


def _last_of(
    instant: InstantTime,
    covering: Mapping[InstantTime, InstantTime],
    groups: Mapping[InstantTime, Sequence[LogBlock]],
) -> InstantTime:
    """Return the last log compaction that replaces an instant, or the instant itself."""
    passed = [instant]
    while passed[-1] in covering:
        standing = covering[passed[-1]]
        if standing in passed:
            raise FormatError(
                groups[standing][0].path,
                "log compactions of earlier blocks",
                f"log compactions that replace each other: {', '.join(passed)}",
            )
        passed.append(standing)
    return passed[-1]


def _covered(blocks: list[LogBlock]) -> Iterator[InstantTime]:
    for block in blocks:
        for text in block.headers.get(HeaderKey.COMPACTED_BLOCK_TIMES, "").split(","):
            if text.strip():
                yield InstantTime(text.strip())
