"""Record-level indexes that real Hudi wrote: every row is found, and a built index is the same."""

from __future__ import annotations

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.flow.threads import HERE
from bucketlake.format.hfile.reader import HFileReader
from bucketlake.format.log_block import BlockKind, read_log_blocks
from bucketlake.format.log_deletes import decode_delete_block
from bucketlake.format.metadata_record.record_schema import decode_locations
from bucketlake.metadata.metadata_table import inner_table
from bucketlake.metadata.record_index.locations import RecordIndexReader
from bucketlake.model.file_name import InstantTime
from bucketlake.model.schema import RECORD_KEY
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.services.metadata.index_builder import build_index, plan_index
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import table_at
from tests.choices import some
from tests.golden.objects import objects_of_table
from tests.storages import memory_of

TABLES = ["cow_rli_partitioned", "mor_rli_partitioned", "mor_record_index"]
FIRST = InstantTime("0" * 17)

Location = tuple[str, str, str]  # Data partition, key, and file id.


@pytest.fixture(params=TABLES)
def snapshot(request: pytest.FixtureRequest) -> Snapshot:
    storage = memory_of(objects_of_table(request.param))
    return load_snapshot(table_at(storage))


def rows_of(snapshot: Snapshot) -> set[Location]:
    """Return the location of every row, from the data."""
    reader = SliceReader.of_snapshot(snapshot)
    return {
        (file_slice.partition_path, key, file_slice.file_id)
        for file_slice in snapshot.all_slices()
        for chunk in reader.read(file_slice, [RECORD_KEY])
        for key in chunk[RECORD_KEY].to_pylist()
    }


def deleted_in_logs(snapshot: Snapshot) -> set[Location]:
    """Return where delete blocks of log files name keys, from the blocks of the files."""
    return {
        (file_slice.partition_path, key, file_slice.file_id)
        for file_slice in snapshot.all_slices()
        for log_file in file_slice.log_files
        for block in read_log_blocks(snapshot.storage, log_file.path, log_file.size_bytes)
        if block.kind is BlockKind.DELETE
        for key in decode_delete_block(block).record_keys.to_pylist()
    }


def located(table: pa.Table) -> set[Location]:
    names = ("partition_path", "record_key", "file_id")
    return set(zip(*(table[name].to_pylist() for name in names), strict=True))


def test_index_of_hudi_has_every_row_and_no_other_key(snapshot: Snapshot) -> None:
    reader = RecordIndexReader(snapshot.metadata_table)
    expected = rows_of(snapshot)
    partitions = {path for path, _, _ in expected}
    found = [located(reader.read_partition(path).to_table()) for path in sorted(partitions)]
    assert set().union(*found) == expected
    assert len(expected) > 8
    for path in partitions:
        keys = pa.array([key for held, key, _ in sorted(expected) if held == path] + ["absent"])
        (one,) = reader.find_everywhere(keys, [path])
        assert one.codes[-1] == -1
        assert located(one.found.to_table()) == {row for row in expected if row[0] == path}


@pytest.mark.parametrize("is_partitioned", [True, False], ids=["partitioned", "global"])
def test_built_index_is_that_of_the_rows(snapshot: Snapshot, is_partitioned: bool) -> None:
    metadata = MemoryStorage.fresh()
    table = opened_table(metadata, inner_table(opened_table(metadata, snapshot.config)).config)
    plan = plan_index(snapshot, table, FIRST, is_partitioned=is_partitioned)
    stats = build_index(snapshot, table, plan, HERE)
    found = set()
    for stat in stats:
        hfile = HFileReader.open(metadata, stat.path, stat.file_size_bytes).read()
        values = decode_locations(hfile.values, stat.path)
        for key, code in zip(hfile.keys.to_pylist(), values.indices.to_pylist(), strict=True):
            location = values.locations[code]
            found.add((location.partition_path, key.decode(), str(location.file_id)))
    # As Hudi's index, see the test above, and keys that only log files delete: an index that
    # writes maintain has them, too.
    rows = rows_of(snapshot)
    stored = {(path, key) for path, key, _ in rows}
    assert found == rows | {gone for gone in deleted_in_logs(snapshot) if gone[:2] not in stored}
    if is_partitioned:
        assert plan.shards == RecordIndexReader(snapshot.metadata_table).shards
    else:
        assert plan.shards.global_count == 10


@pytest.mark.parametrize("name", TABLES)
def test_reads_by_key_use_only_the_file_groups_of_the_keys(name: str) -> None:
    storage = memory_of(objects_of_table(name))
    table = bl.open_table(storage.root)
    snapshot = load_snapshot(table_at(storage))
    rows = sorted(rows_of(snapshot))
    everything = {row["id"]: row for row in table.to_arrow().to_pylist()}
    total = table.explain().file_groups_total
    assert total > 1
    for _, key, _ in some(rows, 6):
        report = table.explain(f"id = '{key}'")
        assert (report.file_groups_kept, report.record_index_reason) == (1, None)
        assert table.to_arrow(where=f"id = '{key}'").to_pylist() == [everything[key]]
    keys = [key for _, key, _ in rows[:1] + rows[-1:]]
    where = f"id IN ('{keys[0]}', '{keys[1]}', 'absent')"
    assert table.explain(where).file_groups_kept == len({row[2] for row in (rows[0], rows[-1])})
    assert {row["id"] for row in table.to_arrow(where=where).to_pylist()} == set(keys)
    assert table.explain("id = 'absent'").file_groups_kept == 0
    assert table.to_arrow(where="id = 'absent'").num_rows == 0


@pytest.mark.parametrize("name", TABLES)
def test_table_locates_every_record_of_hudi(name: str) -> None:
    storage = memory_of(objects_of_table(name))
    table = bl.open_table(storage.root)
    snapshot = load_snapshot(table_at(storage))
    rows = sorted(rows_of(snapshot))
    for partition, key, file_id in some(rows, 6):
        for given in (None, partition):
            (found,) = table.locate(key, given)
            assert (found.partition_path, found.file_id) == (partition, file_id)
            assert storage.stat(found.path) is not None
    assert table.locate("absent") == []
    partition, key, _ = rows[0]
    assert table.locate(key, next(path for path, _, _ in rows if path != partition)) == []
    assert located(table.record_locations(partition)) == {
        row for row in rows if row[0] == partition
    }
