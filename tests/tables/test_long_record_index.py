"""A record-level index over many commits: its files stay few, and it forgets removed keys."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions import metadata_compaction
from bucketlake.actions.metadata_withdrawal import DELTA_COMMITS
from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.metadata.location_cache.key_codes import GroupNumbers, read_base
from bucketlake.metadata.metadata_table import load_metadata_table
from bucketlake.storage.location import open_storage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.open_table import opened_table
from tests.bounds import set_bounds
from tests.choices import DEEP
from tests.metadata_truth import require_true_index
from tests.storages import objects_of

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
ROUNDS, LIVING = 100 if DEEP else 44, 5  # Each round is two commits.


def entries_of_base_file(table: bl.Table) -> int:
    """Return how many entries the base file of the only shard has."""
    storage, config = open_storage(table.path), table.config()
    metadata = load_metadata_table(
        opened_table(storage, config), load_timeline(opened_table(storage, config))
    )
    (held,) = metadata.slices("record_index")
    assert held.base_file is not None
    count, _ = read_base(metadata, held.base_file, GroupNumbers())
    return count


def test_many_commits_leave_few_files_and_no_entries_of_removed_keys(
    new_path: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(
        monkeypatch, metadata_compaction, KEPT_MS=0
    )  # The commits follow each other in milliseconds.
    table = bl.create_table(new_path(), schema=SCHEMA, record_key=["id"], index=bl.RecordIndex())
    storage = open_storage(table.path)
    counts = []
    for number in range(ROUNDS):
        table.upsert(pa.table({"id": [f"k{number}"], "v": [number]}, SCHEMA))
        table.delete(pa.table({"id": [f"k{number - LIVING}"]}))
        counts.append(sum(path.startswith(METADATA_TABLE_FOLDER) for path in objects_of(storage)))
        if number > DELTA_COMMITS:
            assert LIVING <= entries_of_base_file(table) <= LIVING + 1
    assert len(table.record_locations("")) == LIVING
    require_true_index(storage)
    middle = ROUNDS // 2
    assert max(counts[middle:]) <= 1.1 * max(counts[:middle]), counts
