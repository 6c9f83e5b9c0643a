"""A clean whose process died defers no compaction of the metadata table."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions import cleaner, metadata_compaction
from bucketlake.metadata.contents import last_compaction
from bucketlake.metadata.metadata_table import inner_table
from bucketlake.model.file_name import InstantTime
from bucketlake.model.retention import CleanPolicy, Retention
from bucketlake.services.cleaning import clean
from bucketlake.storage.location import open_storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.instant import Action, State
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.outcome import read_outcome
from tests.bounds import set_bounds
from tests.faulty_storage import FaultyStorage, SimulatedCrash, distinct_deaths
from tests.inside import timeline_of
from tests.metadata_truth import require_true_metadata
from tests.storages import objects_of

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
COMMITS = 8  # The clean would be the ninth delta commit; a compaction is due after ten.
NewPath = Callable[[], str]


def rows(v: int) -> pa.Table:
    return pa.table({"id": ["a", "b"], "v": [v, v]}, SCHEMA)


def metadata_timeline(table: bl.Table) -> Timeline:
    inner = inner_table(opened_table(open_storage(table.path), table.config()))
    return load_timeline(inner)


@pytest.fixture
def written(new_path: NewPath) -> dict[str, bytes]:
    """The files of a table before its clean."""
    table = bl.create_table(new_path(), schema=SCHEMA, record_key=["id"], index=bl.SimpleBucket(1))
    for v in range(COMMITS):
        table.upsert(rows(v))
    return objects_of(open_storage(table.path))


def copy_of(written: dict[str, bytes], path: str) -> bl.Table:
    storage = open_storage(path)
    for name, data in written.items():
        storage.put(name, data)
    return bl.open_table(path)


def run_clean(table: bl.Table, storage: FaultyStorage) -> None:
    clean(opened_table(storage, table.config()), Retention(CleanPolicy.COMMITS, 1))


def dead_cleans(
    written: dict[str, bytes], new_path: NewPath
) -> list[tuple[bl.Table, InstantTime, bool]]:
    """Return a table for each death after which log files are left: clean, whether decided."""
    table = copy_of(written, new_path())
    storage = FaultyStorage(open_storage(table.path), reads_count=False)
    run_clean(table, storage)
    found = []
    for death in distinct_deaths(storage):
        table = copy_of(written, new_path())
        with pytest.raises(SimulatedCrash):
            run_clean(table, FaultyStorage(open_storage(table.path), [death], reads_count=False))
        known = {instant.requested_at for instant in metadata_timeline(table).instants}
        for pending in timeline_of(table).pending_cleans():
            if pending.requested_at in known:
                at = pending.requested_at
                outcome = read_outcome(open_storage(table.path), at, Action.CLEAN)
                found.append((table, at, outcome is not None))
    return found


def test_commits_end_a_clean_that_died_anywhere_before_they_compact_the_metadata_table(
    written: dict[str, bytes], new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, metadata_compaction, _WAIT_SECONDS_MAX=0.0)
    set_bounds(monkeypatch, cleaner, _DEAD_AFTER_MS=-1)
    tables = dead_cleans(written, new_path)
    assert {decided for _, _, decided in tables} == {True, False}
    for table, dead, _ in tables:
        assert last_compaction(metadata_timeline(table)) is None
        for v in range(10, 13):
            table.upsert(rows(v))
        assert last_compaction(metadata_timeline(table)) is not None
        [ended] = [i for i in table.timeline() if i.action is Action.CLEAN]
        assert (ended.requested_at, ended.state) == (dead, State.COMPLETED)
        assert table.to_arrow().column("v").to_pylist() == [12, 12]
        require_true_metadata(open_storage(table.path), f"clean {dead}: {{}}".format)


def test_a_young_clean_that_is_not_decided_is_left_to_its_process(
    written: dict[str, bytes], new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, metadata_compaction, _WAIT_SECONDS_MAX=0.0)
    undecided = [(t, at) for t, at, decided in dead_cleans(written, new_path) if not decided]
    table, living = undecided[-1]
    for v in range(10, 13):
        table.upsert(rows(v))
    assert last_compaction(metadata_timeline(table)) is None
    assert [i.requested_at for i in timeline_of(table).pending_cleans()] == [living]
