"""Several builds and removals of one metadata table at once."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.config.paths_of_table import COMMIT_ORDER_FOLDER, METADATA_TABLE_FOLDER
from bucketlake.errors import CommitConflictError
from bucketlake.metadata.record_index.locations import RecordIndexReader
from bucketlake.model.retention import CleanPolicy, Retention
from bucketlake.read.snapshot import load_snapshot
from bucketlake.services.cleaning import CleanReport, clean
from bucketlake.services.metadata.rebuild import build_metadata_table, drop_metadata_table
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config, table_at
from tests.between import InterruptedEngine
from tests.meanwhile import LOOKS, PUTS, meanwhile
from tests.metadata_truth import require_true_metadata
from tests.tables.test_record_index import make, rows

NewPath = Callable[[], str]
INDEX = ["record_index"]


def filled(path: str, index: bl.RecordIndex) -> Storage:
    table = make(path, index)
    table.upsert(rows(*[f"{day}{n}" for day in "ab" for n in range(10)]))
    return open_storage(table.path)


def built_beside(storage: Storage, other: Callable[[], object], *, writes_first: bool) -> None:
    """Build the index; something else happens before or after its tasks write their files."""

    engine = (
        InterruptedEngine(after=other) if writes_first else InterruptedEngine(lambda *_: other())
    )
    build_metadata_table(table_at(storage), INDEX, engine=engine)


@pytest.mark.parametrize("partitioned", [True, False], ids=["partitioned", "global"])
@pytest.mark.parametrize("writes_first", [True, False])
def test_the_last_of_two_builds_wins_and_the_other_ends_with_a_conflict(
    new_path: NewPath, partitioned: bool, writes_first: bool
) -> None:
    storage = filled(new_path(), bl.RecordIndex(partitioned=partitioned))

    def build_all() -> None:
        build_metadata_table(table_at(storage), ["files", *INDEX])

    with pytest.raises(CommitConflictError, match="build it again"):
        built_beside(storage, build_all, writes_first=writes_first)
    assert INDEX[0] in read_table_config(storage).metadata_partitions
    require_true_metadata(storage)
    build_metadata_table(table_at(storage), INDEX)
    require_true_metadata(storage)


@pytest.mark.parametrize("writes_first", [True, False])
def test_a_removal_beside_a_build_wins(new_path: NewPath, writes_first: bool) -> None:
    storage = filled(new_path(), bl.RecordIndex())
    with pytest.raises(CommitConflictError, match="build it again"):
        built_beside(
            storage, lambda: drop_metadata_table(table_at(storage)), writes_first=writes_first
        )
    config = read_table_config(storage)
    assert not config.written_metadata_partitions


@pytest.mark.parametrize("writes_first", [True, False])
def test_a_build_that_another_process_continues_ends_well(
    new_path: NewPath, writes_first: bool
) -> None:
    storage = filled(new_path(), bl.RecordIndex())
    built_beside(
        storage, lambda: build_metadata_table(table_at(storage), INDEX), writes_first=writes_first
    )
    assert INDEX[0] in read_table_config(storage).metadata_partitions
    require_true_metadata(storage)


def test_a_build_does_not_continue_one_of_the_other_kind_of_index(new_path: NewPath) -> None:
    table = make(new_path(), bl.RecordIndex())
    table.upsert(rows("a1", "b2"))
    storage = open_storage(table.path)

    def die() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        build_metadata_table(table_at(storage), INDEX, engine=InterruptedEngine(after=die))
    build_metadata_table(table_at(storage), INDEX, is_partitioned=False)
    config = read_table_config(storage)
    index = RecordIndexReader(load_snapshot(opened_table(storage, config)).metadata_table)
    assert not index.shards.is_partitioned
    [found] = index.find_everywhere(pa.array(["1", "2", "3"]))
    assert found.to_table()["partition_path"].to_pylist() == ["a", "b", None]


def test_a_build_that_is_late_deletes_no_file_of_a_later_build(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = filled(new_path(), bl.RecordIndex())

    def other() -> None:
        build_metadata_table(table_at(storage), INDEX)

    def after_the_check() -> None:
        meanwhile(monkeypatch, other, LOOKS, f"{METADATA_TABLE_FOLDER}/.hoodie/timeline")

    meanwhile(monkeypatch, after_the_check, PUTS, f"{COMMIT_ORDER_FOLDER}/000000000003", after=True)
    with pytest.raises(CommitConflictError, match="build it again"):
        build_metadata_table(table_at(storage), INDEX)
    assert INDEX[0] in read_table_config(storage).metadata_partitions
    require_true_metadata(storage)


def test_the_statistics_of_files_that_a_clean_deletes_during_a_build_are_removed(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = filled(new_path(), bl.RecordIndex())
    bl.Table(storage.root).upsert(rows("a1", "b1"))  # It leaves old versions.
    cleans: list[CleanReport] = []

    def other() -> None:
        cleans.append(clean(table_at(storage), Retention(CleanPolicy.VERSIONS, 1)))

    def once_its_files_are_known() -> None:
        meanwhile(monkeypatch, other, PUTS, f"{METADATA_TABLE_FOLDER}/column_stats")

    meanwhile(monkeypatch, once_its_files_are_known, PUTS, "bucketlake_build.json")
    build_metadata_table(table_at(storage), ["files", "column_stats", "partition_stats"])
    (done,) = cleans
    assert done.partitions
    require_true_metadata(storage)
