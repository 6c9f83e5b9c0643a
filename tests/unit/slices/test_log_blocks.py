"""Which log blocks count, and in which order they are merged."""

from __future__ import annotations

import pytest

from bucketlake.config.table_version import LAYOUT_1, LAYOUT_2, TimelineLayout
from bucketlake.errors import FormatError, UnsupportedFeatureError
from bucketlake.format.log_block import BlockKind, HeaderKey, encode_block
from bucketlake.model.file_name import FileId, InstantTime, LogFileName
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.slices.file_system_view import counted_blocks
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.instant import Action, Instant, State

GROUP = FileId("00000000-0000-4000-8000-000000000000-0")


def block(at: str, covers: str | None = None, kind: BlockKind = BlockKind.DELETE) -> bytes:
    headers = {HeaderKey.INSTANT_TIME: at}
    if covers is not None:
        headers[HeaderKey.COMPACTED_BLOCK_TIMES] = covers
    return encode_block(kind, headers, at.encode())


def rollback(at: str, target: str) -> bytes:
    headers = {
        HeaderKey.INSTANT_TIME: at,
        HeaderKey.TARGET_INSTANT_TIME: target,
        HeaderKey.COMMAND_BLOCK_TYPE: "0",
    }
    return encode_block(BlockKind.COMMAND, headers)


def order(
    files: list[bytes],
    layout: TimelineLayout = LAYOUT_2,
    completed: tuple[str, ...] = tuple("0123456"),
) -> list[str]:
    """Return the instants of the blocks that count in files which bear instant 1."""
    storage = MemoryStorage.fresh()
    names = []
    for number, content in enumerate(files, 1):
        name = LogFileName(GROUP, InstantTime("1"), number, "1-0-1")
        file = DataFile("p", name, len(content))
        storage.put(file.path, content)
        names.append(file)
    instants = tuple(
        Instant(InstantTime(t), Action.DELTA_COMMIT, State.COMPLETED, InstantTime(f"{t}5"))
        for t in completed
    )
    timeline = Timeline(
        instants, ".hoodie/timeline", layout, InstantTime("1"), ".hoodie/timeline/history"
    )
    found = counted_blocks(
        storage, FileSlice("p", GROUP, InstantTime("1"), None, tuple(names)), timeline
    )
    return [bytes(one.content).decode() for one in found]


def test_blocks_come_by_file_and_of_one_instant_together() -> None:
    assert order([block("1") + block("1"), block("2")]) == ["1", "1", "2"]
    assert order([block("1"), block("2"), block("1")]) == ["1", "1", "2"]


def test_a_rollback_block_cancels_the_blocks_of_its_target() -> None:
    assert order([block("1"), block("2"), rollback("3", "2"), block("4")]) == ["1", "4"]
    assert order([block("1"), rollback("2", "1"), block("1")]) == ["1"]


@pytest.mark.parametrize("missing", ["TARGET_INSTANT_TIME", "COMMAND_BLOCK_TYPE"])
def test_a_command_that_lacks_a_header_is_refused_by_its_name(missing: str) -> None:
    told = {"INSTANT_TIME": "2", "TARGET_INSTANT_TIME": "1", "COMMAND_BLOCK_TYPE": "0"}
    headers = {HeaderKey[name]: text for name, text in told.items() if name != missing}
    command = encode_block(BlockKind.COMMAND, headers)
    with pytest.raises(FormatError, match=rf"\.log\.1.*: expected header {missing}"):
        order([block("1") + command])


def test_a_command_other_than_rollback_is_not_obeyed() -> None:
    command = rollback("2", "1").replace(b"\0\0\0\x010", b"\0\0\0\x011")
    with pytest.raises(UnsupportedFeatureError, match="command 1 of a log"):
        order([block("1") + command])


def test_blocks_of_changes_are_no_records() -> None:
    assert order([block("1"), block("2", kind=BlockKind.CDC_DATA)]) == ["1"]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([block("1"), block("2"), block("3", "1,2"), block("4")], ["3", "4"]),
        ([block("1"), block("2"), block("4"), block("5", "1,2")], ["5", "4"]),
        ([block("2"), block("4"), block("5", "1,2"), block("6", "5,4")], ["6"]),
        ([block("0"), block("4"), block("5", "1,2")], ["0", "4", "5"]),
    ],
    ids=["next to", "before a later one", "of a log compaction", "whose originals are gone"],
)
def test_a_log_compaction_stands_where_the_newest_of_its_originals_stood(
    files: list[bytes], expected: list[str]
) -> None:
    assert order(files) == expected


@pytest.mark.parametrize(
    "files",
    [
        [block("1"), block("2", "1,2")],
        [block("1", "2"), block("2", "1")],
        [block("1"), block("2", "1,4"), block("3", "2"), block("4", "3")],
    ],
)
def test_log_compactions_that_stand_for_each_other_are_refused(files: list[bytes]) -> None:
    with pytest.raises(FormatError, match=r"\.log\..*: expected log compactions of earlier blocks"):
        order(files)


def test_before_version_8_each_block_is_asked_whether_it_is_committed() -> None:
    files = [block("11"), block("12"), block("13"), rollback("14", "11")]
    assert order(files, layout=LAYOUT_1, completed=("11", "12")) == ["12"]
    assert order(files[:3], layout=LAYOUT_1, completed=("11", "13")) == ["11", "13"]


def test_from_version_8_on_blocks_of_another_instant_than_their_files_are_asked_too() -> None:
    files = [block("1"), block("11"), block("12")]
    assert order(files, completed=("1", "11")) == ["1", "11"]
    assert order(files, completed=("12",)) == ["1", "12"]


def test_a_block_that_opens_a_group_is_of_the_instant_in_the_name_or_of_a_commit() -> None:
    assert order([block("1"), block("9")]) == ["1"]
    with pytest.raises(FormatError, match=r"\.log\.1.*blocks of instant 1, .*of instant 9"):
        order([block("9"), block("1")])
