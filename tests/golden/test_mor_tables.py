"""Merge-on-read tables of real Hudi hold what their names say, or they would prove nothing."""

from __future__ import annotations

from functools import cache

import pytest

from bucketlake.config.table_config import TableConfig
from bucketlake.format.log_block import BlockKind, HeaderKey, LogBlock, read_log_blocks
from bucketlake.model.file_name import LogFileName
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.archive_reader import read_archive
from bucketlake.timeline.instant import Action
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config
from tests.golden.objects import objects_of_table
from tests.storages import memory_of


def _open(name: str) -> tuple[MemoryStorage, TableConfig, Timeline]:
    storage = memory_of(objects_of_table(name))
    config = read_table_config(storage)
    return storage, config, load_timeline(opened_table(storage, config))


@cache
def _blocks(name: str) -> list[LogBlock]:
    storage, _, _ = _open(name)
    logs = [
        path
        for path in sorted(objects_of_table(name))
        if not path.startswith(".hoodie/")
        if LogFileName.from_file_name(path.rpartition("/")[2]) is not None
    ]
    return [block for path in logs for block in read_log_blocks(storage, path)]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("mor_cdc", 1),
        ("mor_compacted_twice", 2),
        ("mor_late_row_after_compacted_delete", 1),
        ("mor_nested_compacted", 1),
        ("mor_new_column_compacted", 1),
        ("mor_non_blocking_compacted", 1),
        ("mor_partial_updates_compacted", 1),
        ("mor_v6_compacted", 2),
        ("mor_v8_compacted", 2),
        ("mor_wider_columns_compacted", 1),
    ],
)
def test_compactions_left_base_files_and_logs_came_after(name: str, count: int) -> None:
    _, _, timeline = _open(name)
    compactions = [one for one in timeline.completed() if one.action is Action.COMMIT]
    assert len(compactions) == count
    newest = compactions[-1].requested_at
    assert any(path.endswith(f"_{newest}.parquet") for path in objects_of_table(name))
    assert any(block.instant > newest for block in _blocks(name))


def test_compaction_of_the_archived_table_is_in_the_archive() -> None:
    storage, config, timeline = _open("mor_archived_compacted")
    archived = read_archive(opened_table(storage, config))
    assert "commit" in [entry.action for entry in archived]
    assert timeline.start is not None
    for name in ("mor_archived", "mor_archived_compacted"):
        _, _, timeline = _open(name)
        assert timeline.start is not None
        assert any(block.instant < timeline.start for block in _blocks(name))


def test_pending_compaction_is_pending_and_logs_came_after_it() -> None:
    _, _, timeline = _open("mor_pending_compaction")
    (pending,) = timeline.pending_compactions()
    instants = [block.instant for block in _blocks("mor_pending_compaction")]
    assert min(instants) < pending.requested_at < max(instants)


def test_log_compactions_cover_each_other() -> None:
    blocks = _blocks("mor_log_compacted")
    covered = [block.headers.get(HeaderKey.COMPACTED_BLOCK_TIMES) for block in blocks]
    compactions = {b.instant for b, told in zip(blocks, covered, strict=True) if told}
    assert len(compactions) == 2
    assert any(min(compactions) in told for told in covered if told)


def test_partial_blocks_are_there() -> None:
    for name in ("mor_partial_updates", "mor_partial_updates_commit_time"):
        assert sum(block.is_partial for block in _blocks(name)) >= 3


def test_rollbacks_are_blocks_in_version_6_and_leave_no_files_later() -> None:
    kinds = {block.kind for block in _blocks("mor_v6_rolled_back")}
    assert BlockKind.COMMAND in kinds
    for name in ("mor_rolled_back", "mor_rolled_back_by_hand", "mor_v8_rolled_back"):
        _, _, timeline = _open(name)
        assert Action.ROLLBACK in {one.action for one in timeline.completed()}
        assert BlockKind.COMMAND not in {block.kind for block in _blocks(name)}
        assert all(timeline.is_completed(block.instant) for block in _blocks(name))


def test_pending_delta_commit_left_files_behind() -> None:
    _, _, timeline = _open("mor_pending_delta_commit")
    (pending,) = timeline.pending()
    assert pending.requested_at in {block.instant for block in _blocks("mor_pending_delta_commit")}


def test_record_positions_are_told_where_the_index_knows_them() -> None:
    for name in ("mor_bloom", "mor_simple_index"):
        assert any(HeaderKey.RECORD_POSITIONS in block.headers for block in _blocks(name))


def test_file_ids_of_non_blocking_writers_are_constant() -> None:
    paths = [path for path in objects_of_table("mor_non_blocking") if ".log." in path]
    assert paths
    assert all("-0000-0000-0000-000000000000-0_" in path for path in paths)
