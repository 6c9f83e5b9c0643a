"""Several builds and removals of one metadata table at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import bucketlake as bl
from bucketlake.errors import CommitConflictError
from bucketlake.model.write_stat import WriteStat
from bucketlake.services.index_build import IndexBuilder, build_here
from bucketlake.services.index_plan import IndexBuildPlan
from bucketlake.services.metadata_table import build_metadata_table, drop_metadata_table
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage
from bucketlake.timeline.table_properties import read_table_config
from tests.metadata_truth import require_true_metadata
from tests.unit.test_record_index import make, rows

NewPath = Callable[[], str]
INDEX = ["record_index"]


def filled(path: str, index: bl.RecordIndex) -> Storage:
    table = make(path, index)
    table.upsert(rows(*[f"{day}{n}" for day in "ab" for n in range(10)]))
    return open_storage(table.path)


def built_beside(storage: Storage, other: Callable[[], object], *, writes_first: bool) -> None:
    """Build the index; something else happens before or after its tasks write their files."""

    def run(builder: IndexBuilder, plan: IndexBuildPlan) -> list[WriteStat]:
        stats = build_here(builder, plan) if writes_first else []
        other()
        return stats if writes_first else build_here(builder, plan)

    build_metadata_table(storage, INDEX, run=run)


@pytest.mark.parametrize("partitioned", [True, False], ids=["partitioned", "global"])
@pytest.mark.parametrize("writes_first", [True, False])
def test_the_last_of_two_builds_wins_and_the_other_ends_with_a_conflict(
    new_path: NewPath, partitioned: bool, writes_first: bool
) -> None:
    storage = filled(new_path(), bl.RecordIndex(partitioned=partitioned))

    def build_all() -> None:
        build_metadata_table(storage, ["files", *INDEX])

    with pytest.raises(CommitConflictError, match="build it again"):
        built_beside(storage, build_all, writes_first=writes_first)
    assert INDEX[0] in read_table_config(storage).metadata_partitions
    require_true_metadata(storage)
    build_metadata_table(storage, INDEX)
    require_true_metadata(storage)


@pytest.mark.parametrize("writes_first", [True, False])
def test_a_removal_beside_a_build_wins(new_path: NewPath, writes_first: bool) -> None:
    storage = filled(new_path(), bl.RecordIndex())
    with pytest.raises(CommitConflictError, match="build it again"):
        built_beside(storage, lambda: drop_metadata_table(storage), writes_first=writes_first)
    config = read_table_config(storage)
    assert not config.written_metadata_partitions


@pytest.mark.parametrize("writes_first", [True, False])
def test_a_build_that_another_process_continues_ends_well(
    new_path: NewPath, writes_first: bool
) -> None:
    storage = filled(new_path(), bl.RecordIndex())
    built_beside(storage, lambda: build_metadata_table(storage, INDEX), writes_first=writes_first)
    assert INDEX[0] in read_table_config(storage).metadata_partitions
    require_true_metadata(storage)
