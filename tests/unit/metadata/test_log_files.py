"""Log files of the metadata table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bucketlake.format.log_block import BlockKind, read_log_blocks
from bucketlake.format.log_data import open_hfile_block
from bucketlake.format.log_deletes import decode_delete_block
from bucketlake.metadata.log_files import (
    EntryEncoder,
    GroupEntries,
    log_file_name,
    open_file_group,
    put_log_file,
)
from bucketlake.model.file_name import FileId, InstantTime
from tests.golden.objects import TABLES_FOLDER, objects_of_table
from tests.metadata_tables import CONFIG
from tests.storages import memory_of, objects_of

T = InstantTime("20240102030405678")
GROUP = FileId("files-0000-0")
NAME = log_file_name(GROUP, T)
KEYS = pa.array(["a", "b"])
VALUES = pa.array([b"1", b"22"], pa.binary())


def blocks_of(data: bytes) -> list[BlockKind]:
    storage = memory_of({"f": data})
    return [block.kind for block in read_log_blocks(storage, "f")]


@pytest.mark.parametrize(
    ("entries", "kinds"),
    [
        (GroupEntries.of(KEYS, VALUES), [BlockKind.HFILE_DATA]),
        (GroupEntries(removed=KEYS), [BlockKind.DELETE]),
        (
            GroupEntries.of(KEYS, VALUES, pa.array(["c"])),
            [BlockKind.HFILE_DATA, BlockKind.DELETE],
        ),
    ],
)
def test_blocks_of_a_log_file_are_entries_and_then_removals(
    entries: GroupEntries, kinds: list[BlockKind]
) -> None:
    data = EntryEncoder(T, 0).log_file("files", entries)
    assert blocks_of(data) == kinds


def test_log_file_holds_what_was_given() -> None:
    entries = GroupEntries.of(KEYS, VALUES, pa.array(["x", "y"]))
    data = EntryEncoder(T, 1).log_file("files", entries)
    held, gone = read_log_blocks(memory_of({"f": data}), "f")
    assert (held.instant, gone.instant) == (T, T)
    hfile = open_hfile_block(held).read()
    assert hfile.keys.to_pylist() == [b"a", b"b"]
    assert hfile.values.to_pylist() == VALUES.to_pylist()
    deletes = decode_delete_block(gone)
    assert deletes.record_keys.to_pylist() == ["x", "y"]
    assert set(deletes.partition_paths.to_pylist()) == {"files"}


def test_put_log_file_describes_what_it_wrote() -> None:
    storage = memory_of()
    entries = GroupEntries.of(KEYS, VALUES, pa.array(["x"]))
    stat = put_log_file(storage, "files", NAME, entries, EntryEncoder(T, 0))
    assert stat.path == f"files/.{GROUP}_{T}.log.1_0-0-1"
    assert stat.file_size_bytes == len(storage.read(stat.path))
    counts = stat.record_count, stat.update_count, stat.delete_count, stat.insert_count
    assert counts == (2, 2, 1, 0)
    assert (stat.file_id, stat.partition_path, stat.previous_commit) == (GROUP, "files", T)
    assert [*objects_of(storage)] == [stat.path]


def test_log_file_is_replaced_by_a_repeated_put() -> None:
    storage = memory_of()
    put_log_file(storage, "files", NAME, GroupEntries(removed=KEYS), EntryEncoder(T, 0))
    first = objects_of(storage)
    entries = GroupEntries.of(KEYS, VALUES)
    stat = put_log_file(storage, "files", NAME, entries, EntryEncoder(T, 0))
    assert objects_of(storage).keys() == first.keys()
    assert blocks_of(storage.read(stat.path)) == [BlockKind.HFILE_DATA]


def test_log_file_that_opens_a_group_is_that_of_hudi() -> None:
    objects = objects_of_table("cow_rli_partitioned")
    for path, data in objects.items():
        if path.endswith(".log.1_0-0-0"):
            _, partition, name = path.rsplit("/", 2)
            file_id, instant = FileId(name[1:].split("_")[0]), InstantTime(name.split("_")[1][:17])
            storage = memory_of()
            open_file_group(storage, partition, file_id, instant)
            assert objects_of(storage) == {f"{partition}/{name}": data}
            break
    else:
        pytest.fail(f"{TABLES_FOLDER} has no such file")


def test_name_of_a_log_file_differs_from_the_one_that_opens_its_group() -> None:
    with pytest.raises(AssertionError):
        log_file_name(GROUP, T, "0-0-0")


def test_time_of_an_initialisation_is_zero() -> None:
    initial = InstantTime("00000000000000003")
    assert EntryEncoder.of(CONFIG, initial).created_at_ms == 0
    assert EntryEncoder.of(CONFIG, T).created_at_ms == 1_704_164_645_678


def test_small_log_file_is_smaller_than_hudis() -> None:
    """Hudi's has 15 KB, because it stores the schema with documentation twice."""
    data = EntryEncoder(T, 0).log_file("files", GroupEntries.of(KEYS, VALUES))
    assert len(data) < 11_000
