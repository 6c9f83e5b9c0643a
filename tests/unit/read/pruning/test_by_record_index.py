"""Pruning and locating by the record-level index, and when it is not used."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bucketlake as bl
from bucketlake.config.table_keys import METADATA_PARTITIONS
from bucketlake.errors import MetadataTableError, UnsupportedFeatureError
from bucketlake.read.pruning import prune as prune_module
from bucketlake.read.pruning.by_record_index import groups_of_records
from bucketlake.read.pruning.prune import prune_slices
from bucketlake.read.snapshot import Snapshot, load_snapshot
from bucketlake.storage.location import open_storage
from bucketlake.storage.memory import MemoryStorage
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import read_table_config, table_at
from bucketlake.where.parser import parse_where
from tests.bounds import set_bounds
from tests.indexed_tables import add_record_index
from tests.pinned import snapshot_as_of
from tests.storages import set_properties

SCHEMA = pa.schema({"id": pa.string(), "p": pa.string(), "at": pa.int64()})
NAMES = [f"k{number:02d}" for number in range(60)]
KINDS = pytest.mark.parametrize("is_partitioned", [True, False], ids=["partitioned", "global"])


def rows(names: list[str], at: int = 1) -> pa.Table:
    """Return rows of the partitions x, y and z; a name is always in the same partition."""
    partitions = ["xyz"[int(name[1:]) % 3] for name in names]
    return pa.table([names, partitions, [at] * len(names)], schema=SCHEMA)


def make(path: str, table_type: str = "merge_on_read", **given: Any) -> bl.Table:
    settings: dict[str, Any] = {
        "schema": SCHEMA,
        "record_key": ["id"],
        "partition_by": ["p"],
        "ordering": "at",
        "index": bl.SimpleBucket(4),
    }
    return bl.create_table(path, table_type=table_type, **{**settings, **given})


def pinned(table: bl.Table) -> Snapshot:
    storage = open_storage(table.path)
    return load_snapshot(table_at(storage))


@pytest.fixture
def table(new_path: Callable[[], str]) -> bl.Table:
    """A merge-on-read table with 60 keys, of which two are deleted in log files."""
    made = make(new_path())
    made.upsert(rows(NAMES))
    made.upsert(rows(NAMES[:20], at=2))
    made.delete(rows(["k00", "k01"]))
    return made


def kept(table: bl.Table, where: str, *, index: bl.SimpleBucket | None = None) -> int | str:
    """Return the number of file groups to read, or why the index skips none."""
    snapshot = pinned(table)
    predicate = parse_where(where, snapshot.schema)
    slices, report = prune_slices(snapshot, index, predicate)
    assert report.file_groups_kept == len(slices)
    return report.record_index_reason or len(slices)


@KINDS
def test_keys_leave_only_their_file_groups(table: bl.Table, is_partitioned: bool) -> None:
    add_record_index(open_storage(table.path), is_partitioned=is_partitioned, shards=2)
    assert kept(table, "id = 'k05'") == 1
    assert kept(table, "id IN ('k05', 'k06', 'absent')") == 2
    assert kept(table, "id = 'k05' AND at > 3") == 1
    assert kept(table, "id = 'k05' AND p = 'x'") == 0  # It is in z.
    assert kept(table, "id = 'k00'") == 1  # A log file deletes it, and compaction drops its entry.
    assert kept(table, "id = 'absent'") == 0
    assert kept(table, "id = 'k05' OR at = 7") == "no = or IN on id that holds for every row"
    for where in ("id = 'k05'", "id = 'k00'", "id IN ('k00', 'k07', 'k59')", "id = 'absent'"):
        expected = [row for row in table.to_arrow().to_pylist() if f"'{row['id']}'" in where]
        assert sorted(table.to_arrow(where=where).to_pylist(), key=str) == sorted(expected, key=str)


def test_bucket_and_index_prune_together(table: bl.Table) -> None:
    add_record_index(open_storage(table.path), is_partitioned=True)
    report = table.explain("id = 'k05'")
    assert (report.file_groups_kept, report.record_index_reason) == (1, None)
    assert report.bucket_reason is None
    assert report.file_groups_total == 12


def test_global_index_of_a_table_with_buckets_prunes_nothing(table: bl.Table) -> None:
    add_record_index(open_storage(table.path), is_partitioned=False)
    reason = table.explain("id = 'k05'").record_index_reason
    assert reason == "a global record-level index has each key once, a bucket index per partition"
    assert table.locate("k05")[0].partition_path == "z"


def test_table_without_index_says_so(table: bl.Table) -> None:
    assert table.explain("id = 'k05'").record_index_reason == "the table has no record-level index"
    with pytest.raises(UnsupportedFeatureError, match="the table has no record-level index"):
        table.record_locations("x")


@KINDS
def test_entry_of_a_dead_file_group_says_nothing(table: bl.Table, is_partitioned: bool) -> None:
    add_record_index(open_storage(table.path), is_partitioned=is_partitioned)
    snapshot = pinned(table)
    groups, _ = groups_of_records(snapshot, None, ["k05"])
    assert groups is not None
    (holder,) = groups.slices(live := snapshot.all_slices(), live)
    without = [file_slice for file_slice in live if file_slice != holder]
    left = groups.slices(without, without)
    assert {file_slice.partition_path for file_slice in left} == (
        {"z"} if is_partitioned else {"x", "y", "z"}
    )
    assert left == [s for s in without if not is_partitioned or s.partition_path == "z"]


def test_locate_looks_at_files_where_the_index_points_to_a_dead_file_group(
    table: bl.Table,
) -> None:
    storage = open_storage(table.path)
    add_record_index(storage, is_partitioned=True)
    of_index = {s.path: storage.read(s.path) for s in storage.list(".hoodie/metadata/record_index")}
    before = table.locate("k05")
    set_properties(storage, {METADATA_PARTITIONS: ""})
    table.insert_overwrite(rows([name for name in NAMES if name != "k02"], at=9))
    add_record_index(storage, is_partitioned=True)
    for path, content in of_index.items():
        storage.put(path, content)  # As a writer leaves it that forgets the index.
    (found,) = table.locate("k05")
    assert found.file_id != before[0].file_id
    assert found.committed_at > before[0].committed_at
    assert table.to_arrow(where="id = 'k05'")["at"].to_pylist() == [9]


def test_time_travel_and_incremental_reads_do_not_use_the_index(table: bl.Table) -> None:
    add_record_index(storage := open_storage(table.path), is_partitioned=True)
    first = table.timeline()[0]
    config = read_table_config(storage)
    earlier = snapshot_as_of(opened_table(storage, config), first.requested_at)
    reason = "the record-level index has no earlier states"
    assert groups_of_records(earlier, None, ["k05"]) == (None, reason)
    for name in ("k00", "k05"):
        assert table.to_arrow(where=f"id = '{name}'", as_of=first.requested_at).num_rows == 1
    since = table.to_arrow(where="id = 'k05'", since="2000-01-01")
    assert since["at"].to_pylist() == [2]


def test_index_of_many_partitions_is_not_asked(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_record_index(open_storage(table.path), is_partitioned=True)
    set_bounds(monkeypatch, prune_module, PARTITIONS_MAX=2)
    assert kept(table, "id = 'k05'") == "keys are looked up in at most 2 partitions"
    assert kept(table, "id = 'k05' AND p IN ('x', 'z')") == 1


def test_index_that_was_turned_off_is_not_used(table: bl.Table) -> None:
    add_record_index(storage := open_storage(table.path), is_partitioned=True)
    snapshot = pinned(table)
    table.drop_metadata_table()
    reason = "the record-level index was turned off"
    assert groups_of_records(snapshot, None, ["k05"]) == (None, reason)
    assert storage.stat(".hoodie/metadata/.hoodie/hoodie.properties") is None


def test_index_that_lacks_a_commit_is_an_error(table: bl.Table) -> None:
    add_record_index(storage := open_storage(table.path), is_partitioned=True)
    set_properties(storage, {METADATA_PARTITIONS: ""})
    table.upsert(rows(["k99"]))
    set_properties(storage, {METADATA_PARTITIONS: "files,record_index"})
    with pytest.raises(MetadataTableError, match="1 commits from"):
        table.locate("k99")


def test_damaged_index_is_an_error_that_names_the_file(table: bl.Table) -> None:
    add_record_index(storage := open_storage(table.path), is_partitioned=True)
    for stored in list(storage.list(".hoodie/metadata/record_index")):
        if stored.path.endswith(".hfile"):
            storage.put(stored.path, storage.read(stored.path)[:-1])
    with pytest.raises(MetadataTableError, match=r"record-index-.*\.hfile.*rebuild"):
        table.to_arrow(where="id = 'k05'")


# Keys of several columns and other types.

TYPED = pa.schema({"n": pa.int64(), "day": pa.date32(), "t": pa.string(), "p": pa.string()})


@KINDS
def test_composite_and_typed_keys_are_found(
    new_path: Callable[[], str], is_partitioned: bool
) -> None:
    table = make(
        new_path(),
        schema=TYPED,
        record_key=["n", "day", "t"],
        ordering=None,
        index=bl.SimpleBucket(4),
    )
    days = [date(2024, 1, number % 5 + 1) for number in range(30)]
    texts = [f"a,b:{number}" for number in range(30)]
    columns = [list(range(30)), days, texts, ["x", "y", "z"] * 10]
    table.upsert(pa.table(columns, schema=TYPED))
    add_record_index(open_storage(table.path), is_partitioned=is_partitioned, shards=3)
    where = "n = 7 AND day = DATE '2024-01-03' AND t = 'a,b:7'"
    assert kept(table, where) == 1
    assert table.to_arrow(where=where)["n"].to_pylist() == [7]
    assert "no = or IN on t" in str(kept(table, "n = 7 AND day = DATE '2024-01-03'"))
    (found,) = table.locate({"n": 7, "day": date(2024, 1, 3), "t": "a,b:7"})
    assert (found.partition_path, found.record_key) == ("y", "n:7,day:2024-01-03,t:a,b:7")


@KINDS
def test_condition_on_the_record_key_itself_prunes(table: bl.Table, is_partitioned: bool) -> None:
    add_record_index(open_storage(table.path), is_partitioned=is_partitioned)
    found = table.to_arrow(where="_hoodie_record_key = 'k05'", columns=["id"])
    assert found["id"].to_pylist() == ["k05"]


def test_table_without_partitions_has_one_set_of_shards(new_path: Callable[[], str]) -> None:
    table = make(new_path(), partition_by=())
    table.upsert(rows(NAMES))
    for is_partitioned in (True, False):
        add_record_index(open_storage(table.path), is_partitioned=is_partitioned, shards=2)
        assert kept(table, "id = 'k05'") == 1
        assert table.explain("id IN ('k05', 'k06', 'k07', 'k08')").file_groups_kept < 5
        assert [found.partition_path for found in table.locate("k05")] == [""]
        assert len(table.record_locations("")) == 60


@given(st.sets(st.sampled_from([*NAMES, "absent"]), min_size=1, max_size=6), st.booleans())
def test_reads_by_key_return_what_a_whole_read_filters(names: set[str], of_index: bool) -> None:
    table, everything = _shared(of_index)
    listed = ", ".join(f"'{name}'" for name in sorted(names))
    found = table.to_arrow(where=f"id IN ({listed})").to_pylist()
    assert sorted(row["id"] for row in found) == sorted(names & everything)
    slices, _ = prune_slices(pinned(table), None, parse_where(f"id IN ({listed})", SCHEMA))
    # A built index has the keys that only log files delete, as one that writes maintain.
    assert len(slices) <= len(names - {"absent"})


_made: dict[bool, tuple[bl.Table, set[str]]] = {}


def _shared(is_partitioned: bool) -> tuple[bl.Table, set[str]]:
    """Return a table of all examples, and its keys."""
    if is_partitioned not in _made:
        name = f"records-{is_partitioned}"
        MemoryStorage(name)
        table = make(f"memory://{name}")
        table.upsert(rows(NAMES))
        table.delete(rows(NAMES[::4]))
        add_record_index(open_storage(table.path), is_partitioned=is_partitioned, shards=3)
        _made[is_partitioned] = table, {*NAMES} - {*NAMES[::4]}
    return _made[is_partitioned]
