"""Listing of files through the metadata table: what newer records mean for older ones."""

from __future__ import annotations

import pytest

from bucketlake.errors import FormatError, MetadataTableError
from bucketlake.metadata.file_listing import listed_files, listed_partitions
from tests.metadata_tables import (
    FIRST,
    Entries,
    MadeTable,
    at,
    data_block,
    delete_block,
    partition_list,
    sizes_of,
)

A1, A2, B1 = (f"{name}-0_1-0-1_{at(5)}.parquet" for name in ("a1", "a2", "b1"))
LOG = f".a1-0_{at(10)}.log.1_1-0-1"


@pytest.fixture
def made() -> MadeTable:
    """A table with two files in partition a and one in b."""
    table = MadeTable()
    in_a = sizes_of("a", {A1: 100, A2: 200})
    table.initialise(partition_list("a", "b") | in_a | sizes_of("b", {B1: 300}))
    return table


def listed(made: MadeTable, *partitions: str) -> dict[str, int]:
    files = listed_files(made.open(), partitions or None)
    return {file.path: file.size_bytes for file in files}


def change(made: MadeTable, number: int, held: Entries) -> None:
    made.update(at(number), at(number + 5), held)


def test_files_are_those_of_the_records(made: MadeTable) -> None:
    assert listed(made) == {f"a/{A1}": 100, f"a/{A2}": 200, f"b/{B1}": 300}
    assert listed(made, "a") == {f"a/{A1}": 100, f"a/{A2}": 200}
    assert listed(made, "a", "a", "b") == listed(made)
    assert listed(made, "c") == {}
    assert listed_partitions(made.open()) == ["a", "b"]


def test_commits_add_files_and_cleans_remove_them(made: MadeTable) -> None:
    change(made, 10, partition_list("a") | sizes_of("a", {LOG: 10}))
    change(made, 20, sizes_of("a", {A2: None}))
    assert listed(made, "a") == {f"a/{A1}": 100, f"a/{LOG}": 10}
    assert listed(made) == {f"a/{A1}": 100, f"a/{LOG}": 10, f"b/{B1}": 300}


def test_size_is_the_greatest_since_the_file_was_removed(made: MadeTable) -> None:
    change(made, 10, sizes_of("a", {LOG: 30}))
    change(made, 20, sizes_of("a", {LOG: 20}))
    assert listed(made, "a")[f"a/{LOG}"] == 30
    change(made, 30, sizes_of("a", {LOG: None}))
    assert f"a/{LOG}" not in listed(made, "a")
    change(made, 40, sizes_of("a", {LOG: 10}))
    assert listed(made, "a")[f"a/{LOG}"] == 10


def test_removal_of_an_unknown_file_does_nothing(made: MadeTable) -> None:
    change(made, 10, sizes_of("a", {LOG: None}))
    assert len(listed(made)) == 3


def test_files_of_a_commit_that_does_not_count_are_not_listed(made: MadeTable) -> None:
    made.data(at(10))
    made.commit(at(10), at(15))
    made.log(at(10), data_block(sizes_of("a", {LOG: 30}), at(10)))
    assert len(listed(made)) == 3


def test_names_that_are_no_data_files_are_left_out(made: MadeTable) -> None:
    change(made, 10, sizes_of("a", {"notes.txt": 3, f"x-0_1-0-1_{at(5)}.orc": 4}))
    assert len(listed(made)) == 3


def test_removed_partition_has_no_files(made: MadeTable) -> None:
    made.both(at(10), at(15))
    gone = data_block(partition_list(removed=["b"]), at(10))
    made.log(at(10), gone, delete_block(["b"], at(10)))
    assert listed_partitions(made.open()) == ["a"]
    assert listed(made, "b") == {}
    assert listed(made) == {f"a/{A1}": 100, f"a/{A2}": 200}


def test_partition_that_is_written_again_has_only_its_new_files(made: MadeTable) -> None:
    made.both(at(10), at(15))
    gone = data_block(partition_list(removed=["b"]), at(10))
    made.log(at(10), gone, delete_block(["b"], at(10)))
    again = f"b2-0_1-0-1_{at(20)}.parquet"
    change(made, 20, partition_list("b") | sizes_of("b", {again: 7}))
    assert listed_partitions(made.open()) == ["a", "b"]
    assert listed(made, "b") == {f"b/{again}": 7}


def test_table_without_partitions_has_one_empty_path() -> None:
    made = MadeTable()
    made.initialise(partition_list(".") | sizes_of("", {A1: 100}))
    assert listed_partitions(made.open()) == [""]
    assert listed(made) == listed(made, "") == {A1: 100}


def test_new_table_lists_no_partition() -> None:
    made = MadeTable()
    made.initialise(partition_list())
    assert listed_partitions(made.open()) == []
    assert listed(made) == listed(made, "a") == {}


def test_missing_list_of_partitions_is_an_error() -> None:
    made = MadeTable()
    made.initialise(sizes_of("a", {A1: 100}))
    with pytest.raises(MetadataTableError, match="files does not list the partitions"):
        listed_partitions(made.open())
    with pytest.raises(MetadataTableError, match="files does not list the partitions"):
        listed_files(made.open())


def test_value_that_is_no_record_names_the_file_group(made: MadeTable) -> None:
    made.update(at(10), at(15), {"a": b"no record"})
    with pytest.raises(FormatError, match=r"^\.hoodie/metadata/files/files-0000-0: "):
        listed(made)


def test_compaction_changes_nothing(made: MadeTable) -> None:
    change(made, 10, sizes_of("a", {LOG: 30, A2: None}))
    before = listed(made)
    made.commit(at(16), at(17), action="compaction", operation="COMPACT")
    in_a = sizes_of("a", {A1: 100, LOG: 30})
    made.base(at(16), partition_list("a", "b") | in_a | sizes_of("b", {B1: 300}))
    assert listed(made) == before
    assert made.open().slices("files")[0].log_files == ()
    assert at(16) > FIRST
