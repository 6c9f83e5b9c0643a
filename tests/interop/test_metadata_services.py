"""The metadata table that bucketlake writes, compacts and cleans, in the hands of real Hudi."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake.actions import metadata_compaction, metadata_withdrawal
from bucketlake.actions.metadata_compaction import compact_metadata
from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER, OUTCOME_FOLDER
from bucketlake.format.hfile.reader import HFileReader
from bucketlake.format.hfile.writer import encode_hfile
from bucketlake.format.metadata_record.record_schema import record_schema_json
from bucketlake.metadata import rewrite
from bucketlake.metadata.metadata_table import inner_table
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.location import open_storage
from bucketlake.timeline.active import Timeline, load_timeline
from bucketlake.timeline.instant import Action, State, table_clock
from bucketlake.timeline.locks import NO_LOCK
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.timeline.table_properties import read_table_config, table_at
from tests.bounds import set_bounds
from tests.choices import DEEP
from tests.faulty_storage import SimulatedCrash
from tests.indexed_tables import add_record_index
from tests.interop.model import Row, in_order, rows_of
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import (
    BUCKETLAKE,
    HUDI,
    WITH_METADATA,
    WITHOUT_METADATA,
    SharedTable,
    rows,
)
from tests.interop.table_kind import TableKind
from tests.meanwhile import PUTS, dying
from tests.spies import breaks

pytestmark = pytest.mark.interop

SKIPPING = {**WITH_METADATA, "hoodie.enable.data.skipping": "true"}
GLOBAL_INDEX = {
    **WITH_METADATA,
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.index.partition.stats.enable": "false",
}
CONDITIONS: dict[str, Callable[[Row], bool]] = {
    "v >= 20": lambda row: row["v"] >= 20,
    "ts > 2": lambda row: row["ts"] > 2,
    "region = 'eu' AND v < 9": lambda row: row["region"] == "eu" and row["v"] < 9,
    "note IS NULL": lambda row: row["note"] is None,
    "id = 'k7'": lambda row: row["id"] == "k7",
}
KINDS = pytest.mark.parametrize("merge_on_read", [True, False] if DEEP else [True])  # Minutes each.


def known(path: Path) -> Timeline:
    """Return the timeline of the metadata table."""
    storage = open_storage(str(path))
    table = inner_table(table_at(storage))
    return load_timeline(opened_table(table.storage, table.config))


def compactions(path: Path) -> list[InstantTime]:
    return [i.requested_at for i in known(path).completed() if i.action is Action.COMMIT]


def compact(path: Path, delta_commits: int = 10) -> InstantTime | None:
    storage = open_storage(str(path))
    config = read_table_config(storage)
    clock = table_clock(storage.root, config.timeline_timezone)
    return compact_metadata(
        OpenTable(storage, config, clock, NO_LOCK),
        delta_commits=delta_commits,
    )


def assert_read(table: SharedTable) -> None:
    """Compare all readers with the model, and Hudi's filters by statistics too."""
    table.assert_read_by_all(SKIPPING, WITHOUT_METADATA)
    held, schema = list(table.model.rows.values()), table.kind.schema
    for where, holds in CONDITIONS.items():
        found = rows_of(table.hudi.read(table.path, SKIPPING, where=where), schema)
        assert found == in_order(filter(holds, held), schema), where


def begin(hudi: HudiPeer, path: Path, *, merge_on_read: bool = False) -> SharedTable:
    """Begin a table with two commits, and build its metadata table."""
    table = SharedTable(hudi, path, TableKind(merge_on_read=merge_on_read))
    table.begin()
    table.upsert(BUCKETLAKE, rows(range(24), 1))
    table.delete(BUCKETLAKE, rows(range(3), 0))
    table.ours.rebuild_metadata_table()
    return table


def commit_often(table: SharedTable, first: int, count: int = 11) -> None:
    for ts in range(first, first + count):
        table.upsert(BUCKETLAKE, rows(range(ts % 40, ts % 40 + 12), ts, ("eu", "us", "asia")))


@KINDS
def test_metadata_table_that_we_build_is_used_and_compacted_by_both(
    hudi: HudiPeer, tmp_path: Path, merge_on_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = begin(hudi, tmp_path / "shared", merge_on_read=merge_on_read)
    set_bounds(monkeypatch, metadata_withdrawal, DELTA_COMMITS=1000)  # None of ours.
    table.upsert(HUDI, rows(range(15, 30), 2), SKIPPING)
    commit_often(table, 3)
    assert compactions(table.path) == []
    table.upsert(HUDI, rows(range(25, 40), 14), SKIPPING)
    assert len(compactions(table.path)) == 1
    assert_read(table)
    monkeypatch.undo()
    set_bounds(monkeypatch, metadata_compaction, KEPT_MS=0)
    commit_often(table, 15)
    assert len(compactions(table.path)) == 2
    assert_read(table)
    table.upsert(HUDI, rows(range(30, 45), 26), SKIPPING)
    commit_often(table, 27)
    assert len(known(table.path).completed_commits()) < 32  # Some are archived.
    table.upsert(HUDI, rows(range(35, 50), 38), SKIPPING)
    table.delete(HUDI, rows(range(20, 24), 0), SKIPPING)
    assert_read(table)


def test_hudi_takes_back_a_write_of_ours_that_died_with_log_files(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    table = begin(hudi, tmp_path / "shared")
    table.upsert(BUCKETLAKE, rows(range(10), 2))

    with dying(PUTS, OUTCOME_FOLDER):
        table.write(BUCKETLAKE, rows(range(5), 9))
    (pending,) = known(table.path).pending()
    table.upsert(HUDI, rows(range(3, 9), 3), SKIPPING)
    assert_read(table)
    named = [path.name for path in (table.path / METADATA_TABLE_FOLDER).rglob("*")]
    assert not [name for name in named if pending.requested_at in name]
    commit_often(table, 4)
    assert compactions(table.path)
    assert_read(table)


def test_hudi_goes_on_after_a_compaction_of_ours_that_died_and_after_a_rollback(
    hudi: HudiPeer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = begin(hudi, tmp_path / "shared")
    # A process of Hudi 1.2.0 whose first work on column statistics is a pending compaction fails.
    table.upsert(HUDI, rows(range(3, 9), 2), SKIPPING)
    set_bounds(monkeypatch, metadata_withdrawal, DELTA_COMMITS=1000)  # None of ours.
    commit_often(table, 3)
    breaks(monkeypatch, rewrite, "rewrite_slice", SimulatedCrash())
    with pytest.raises(SimulatedCrash):
        compact(table.path)
    monkeypatch.undo()
    (pending,) = known(table.path).pending()
    assert (pending.action, pending.state) == (Action.COMPACTION, State.INFLIGHT)
    table.upsert(HUDI, rows(range(3, 9), 20), SKIPPING)
    assert not known(table.path).pending()
    assert compactions(table.path)
    assert_read(table)
    before = dict(table.model.rows)
    table.upsert(BUCKETLAKE, rows(range(60), 21))
    table.ours.rollback(table.ours.timeline()[-1].requested_at)
    table.model.rows = before
    assert_read(table)
    table.upsert(HUDI, rows(range(5, 12), 22), SKIPPING)
    assert_read(table)


def test_hudi_uses_an_index_of_a_million_entries_and_shards_without_entries(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    kind = TableKind(max_file_size=10_000)  # Hudi opens file groups as it likes.
    for name, extra in (("large", 1_200_000), ("emptied", 0)):
        table = SharedTable(hudi, tmp_path / name, kind)
        table.upsert(
            HUDI, rows(range(2 if name == "emptied" else 200), 1), {"hoodie.index.type": "SIMPLE"}
        )
        shards = 1 if extra else 4
        add_record_index(open_storage(str(table.path)), is_partitioned=False, shards=shards)
        for shard in range(shards):
            put_base_file(table.path, shard, extra)
        table.upsert(HUDI, rows(range(1, 250, 3), 2), GLOBAL_INDEX)
        assert compact(table.path, 1) is not None
        table.delete(HUDI, rows(range(9 if extra else 250), 0), GLOBAL_INDEX)
        assert compact(table.path, 1) is not None
        table.upsert(HUDI, rows(range(5, 300, 4), 3), GLOBAL_INDEX)
        table.assert_read_by_all(GLOBAL_INDEX)
        for key in ("k5", "k8", "k249", "extra0000007"):
            found = hudi.read(table.path, GLOBAL_INDEX, where=f"id = '{key}'")
            held = [row for row in table.model.rows.values() if row["id"] == key]
            assert rows_of(found, kind.schema) == in_order(held, kind.schema), (name, key)


def put_base_file(path: Path, shard: int, extra: int) -> None:
    """Give a shard a base file with additional keys, or an empty one if it has none."""
    folder = path / METADATA_TABLE_FOLDER / "record_index"
    found = sorted(folder.glob(f"record-index-{shard:04d}-0_*.hfile"))
    file = found[0] if found else folder / f"record-index-{shard:04d}-0_0-0-1_{1:017d}.hfile"
    keys, values = pa.nulls(0, pa.binary()), pa.nulls(0, pa.binary())
    if found:
        held = HFileReader.of_bytes(file.read_bytes(), file.name).read()
        keys, values = held.keys, held.values
    if extra:
        names = pa.array([f"extra{number:07d}" for number in range(extra)]).cast(pa.binary())
        assert names[-1].as_py() < keys[0].as_py()
        keys = pa.concat_arrays([names, keys])
        values = pa.concat_arrays([pa.repeat(values[0], extra), values])
    file.write_bytes(encode_hfile(keys, values, record_schema_json(), created_at_ms=0))
