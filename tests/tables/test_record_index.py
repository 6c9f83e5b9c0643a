"""Tables under a record-level index: what is special to the kind, and what it rejects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.config import table_keys
from bucketlake.config.paths_of_table import METADATA_TABLE_FOLDER
from bucketlake.errors import (
    CommitConflictError,
    ConfigError,
    IndexMissingError,
    IndexStateError,
    InputError,
    MetadataTableError,
    MetadataTableWarning,
)
from bucketlake.hashing.key_filter import shards_of_keys
from bucketlake.index.conflict_keys import (
    ChangedShards,
    describe_key,
    key_of_shard,
    written_keys,
)
from bucketlake.index.setting import index_from_options
from bucketlake.metadata.file_listing import list_partitions_as
from bucketlake.metadata.record_index import pinned_index
from bucketlake.metadata.record_index.shards import ShardLimits
from bucketlake.model.file_name import FileId
from bucketlake.model.result import WriteResult
from bucketlake.model.table_type import Operation
from bucketlake.model.write_stat import CommitMetadata, WriteStat
from bucketlake.storage.location import open_storage
from bucketlake.timeline.table_properties import read_table_config, table_at
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource
from bucketlake.write.record_index.index_upkeep import IndexUpkeep
from bucketlake.write.target import open_target
from tests.bounds import set_bounds
from tests.inside import upsert_once
from tests.meanwhile import meanwhile
from tests.metadata_truth import require_true_index
from tests.spies import overtake
from tests.storages import set_properties

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("day", pa.string()),
        ("at", pa.int64()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
NewPath = Callable[[], str]
Entries = dict[tuple[str, str], str]


def make(path: str, index: bl.RecordIndex | None = None, **settings: Any) -> bl.Table:
    defaults: dict[str, Any] = {"partition_by": ["day"], "ordering": "at"}
    return bl.create_table(
        path,
        schema=SCHEMA,
        record_key=["id"],
        index=index or bl.RecordIndex(),
        **defaults | settings,
    )


def rows(*keys: str, at: int = 1, deleted: bool = False) -> pa.Table:
    """Return rows of keys such as ``a1``: the day is the first letter, the id what follows."""
    return pa.Table.from_pylist(
        [{"id": key[1:], "day": key[0], "at": at, "_hoodie_is_deleted": deleted} for key in keys],
        SCHEMA,
    )


def held(table: bl.Table) -> dict[str, int]:
    found = table.to_arrow().to_pylist()
    assert len({row["day"] + row["id"] for row in found}) == len(found)
    return {row["day"] + row["id"]: row["at"] for row in found}


def counts(result: WriteResult) -> tuple[int | None, ...]:
    return result.inserted, result.updated, result.deleted


def entries(table: bl.Table, *days: str) -> set[str]:
    """Return the keys that the index has for some days."""
    found = [entry for day in days for entry in table.record_locations(day).to_pylist()]
    return {entry["partition_path"] + entry["record_key"] for entry in found}


def groups(table: bl.Table, day: str = "a") -> list[str]:
    return sorted(b.file_id for b in table.buckets() if b.partition_path == day)


# ---- Where keys go ------------------------------------------------------------------------------


def test_keys_stay_in_their_group_and_new_keys_fill_small_groups(new_path: NewPath) -> None:
    table = make(new_path())
    table.upsert(rows("a1", "a2", "b1"))
    first = groups(table)
    table.upsert(rows("a2", "a3", "a4", at=2))
    assert groups(table) == first
    full = bl.open_table(table.path, bl.RecordIndex(max_file_size=1, small_file_limit=1))
    full.upsert(rows("a1", "a5", at=3))
    assert len(groups(table)) == 2
    assert set(first) < set(groups(table))
    assert held(table) == {"a1": 3, "a2": 2, "a3": 2, "a4": 2, "a5": 3, "b1": 1}
    assert entries(table, "a", "b") == set(held(table))
    assert bl.open_table(table.path).index == bl.RecordIndex()


def test_a_file_group_whose_id_begins_with_eight_digits_is_no_bucket(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "bucketlake.index.groups_for_new_keys.derived_uuid",
        lambda *_: "00000007-0000-4000-8000-00000000000a",
    )
    table = make(new_path(), bl.RecordIndex(max_file_size=1, small_file_limit=0))
    table.upsert(rows("a1", "b1"))
    assert [bucket.bucket_id for bucket in table.buckets()] == [None, None]
    assert table.locate("1", "a")[0].bucket_id is None
    table.upsert(rows("a1", at=2))
    assert held(table) == {"a1": 2, "b1": 1}


def test_conflict_keys_of_a_record_index_are_whole_file_ids(new_path: NewPath) -> None:
    one, two = (FileId(f"00000007-0000-4000-8000-00000000000{n}-0") for n in range(2))
    table = make(new_path())
    storage = open_storage(table.path)
    layout = open_target(table_at(storage), None).layout
    stat = WriteStat(one, "a/x.parquet", "a")
    keys = written_keys(CommitMetadata("UPSERT", {"a": (stat,)}), layout.conflict_key_of_group)
    assert keys == {("a", one)}
    assert layout.conflict_key_of_group("a", two) not in keys
    assert describe_key(key_of_shard("a", 3)) == (
        "new or deleted keys of index shard 3 of partition 'a'"
    )


def test_a_commit_names_the_shards_that_it_opened_or_changed(new_path: NewPath) -> None:
    table = make(new_path())
    table.upsert(rows("a1", "b1"))
    table.upsert(rows("a1", at=2))
    table.delete(rows("b1").select(["id", "day"]))
    storage = open_storage(table.path)
    snapshot = open_target(table_at(storage), None).snapshot
    timeline = snapshot.timeline
    found = [
        ChangedShards.of_commit(held, instant.requested_at)
        for instant, held in timeline.read_commits(storage, timeline.completed_commits())
    ]
    a, b = key_of_shard("a", 0), key_of_shard("b", 0)
    assert found == [
        ChangedShards(frozenset({a, b}), frozenset({a, b})),
        ChangedShards(),
        ChangedShards(removed=frozenset({b})),
    ]
    assert ChangedShards.of_commit(CommitMetadata("UPSERT", {}), "c") is None


def test_entries_go_only_if_their_rows_are_certain_to_go(new_path: NewPath) -> None:
    table = make(new_path())
    table.upsert(rows("a1", "a2", "a3", at=5))
    table.upsert(rows("a1", at=4, deleted=True))  # It loses.
    table.upsert(rows("a2", at=6, deleted=True))  # It wins, but an ordering value decided it.
    table.delete(rows("a3").select(["id", "day"]))
    assert held(table) == {"a1": 5}
    assert entries(table, "a") == {"a1", "a2"}
    table.upsert(rows("a2", at=7))
    assert held(table) == {"a1": 5, "a2": 7}
    without = make(new_path(), ordering=None)
    without.upsert(rows("a1", "a2"))
    without.upsert(rows("a1", deleted=True))
    assert entries(without, "a") == {"a2"}


# ---- A global index -----------------------------------------------------------------------------


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_a_key_of_a_global_index_moves_to_the_partition_of_its_newest_record(
    new_path: NewPath, table_type: str
) -> None:
    table = make(new_path(), bl.RecordIndex(partitioned=False), table_type=table_type)
    table.upsert(rows("a1", "a2", "b3", at=5))
    older = table.upsert(rows("c1", at=4))
    assert (counts(older), older.ignored) == ((0, 0, 0), 1)
    assert held(table) == {"a1": 5, "a2": 5, "b3": 5}
    # A key that moves is updated, though one file group loses a row and another one gets it.
    assert counts(table.upsert(rows("c1", "a3", at=5))) == (0, 2, 0)
    assert held(table) == {"a2": 5, "a3": 5, "c1": 5}
    assert entries(table, "a", "b", "c") == set(held(table))
    both = pa.concat_tables([rows("a1", at=7), rows("b1", at=8), rows("c1", at=6)])
    assert counts(table.upsert(both)) == (0, 1, 0)
    assert held(table) == {"a2": 5, "a3": 5, "b1": 8}
    gone = table.upsert(rows("c2", at=9, deleted=True))  # A delete goes to where the key is.
    assert counts(gone) == (0, 0, 1)
    table.delete(rows("a1").select(["id", "day"]))
    assert held(table) == {"a3": 5}
    late = table.upsert(rows("b2", at=6))  # The delete is newer, also in another partition.
    assert (counts(late), late.ignored) == ((0, 0, 0), 1)
    # The index still has an entry of the deleted row, whose key is new.
    assert counts(table.upsert(rows("b2", "c3", at=10))) == (1, 1, 0)
    assert held(table) == {"c3": 10, "b2": 10}


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_a_key_that_moves_counts_as_updated_by_each_write(
    new_path: NewPath, table_type: str
) -> None:
    table = make(new_path(), bl.RecordIndex(False), table_type=table_type, ordering=None)
    table.upsert(rows("a1", "a2", "a3", "a4", at=5))
    assert counts(table.upsert(rows("b1", "b5"))) == (1, 1, 0)
    options = {
        "hoodie.table.name": table.config().name,
        "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
    }
    saved = bl.save(rows("c1", "c6"), table.path, options=options)
    assert counts(saved) == (1, 1, 0)
    merge = table.merge(rows("d1", "d7", "d2"), "t.id = s.id").when_not_matched_insert_all()
    moved = merge.when_matched_update({"day": "s.day"}, "s.id <> '2'").when_matched_delete()
    assert counts(moved.execute()) == (1, 1, 1)
    assert counts(table.insert_overwrite(rows("e1", "e3", "e8"))) == (1, 2, 0)
    assert {*held(table)} == {"a4", "b5", "c6", "d7", "e1", "e3", "e8"}


def test_an_overwrite_of_a_partition_takes_its_keys_from_others_in_a_global_index(
    new_path: NewPath,
) -> None:
    table = make(new_path(), bl.RecordIndex(partitioned=False))
    table.upsert(rows("a1", "a2", "b3", "b4"))
    table.insert_overwrite(rows("b1", "b3", at=2))
    assert held(table) == {"a2": 1, "b1": 2, "b3": 2}
    assert entries(table, "a", "b") == set(held(table))
    table.insert_overwrite(rows("c2", at=3), whole_table=True)
    assert held(table) == {"c2": 3}
    assert entries(table, "a", "b", "c") == {"c2"}


# ---- Other writers ------------------------------------------------------------------------------


def test_writers_that_add_keys_to_a_shard_conflict_also_in_different_groups(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(new_path(), bl.RecordIndex(small_file_limit=0))
    table.upsert(rows("a1", "b1"))
    meanwhile(monkeypatch, lambda: table.upsert(rows("a2")))
    with pytest.raises(CommitConflictError, match="keys of index shard 0 of partition 'a'"):
        upsert_once(table, rows("a3"))
    meanwhile(monkeypatch, lambda: table.upsert(rows("a4")))
    upsert_once(table, rows("a1", "b2", at=2))  # No new key in this partition.
    meanwhile(monkeypatch, lambda: table.upsert(rows("a5")))
    with pytest.raises(CommitConflictError):  # It found no key to delete, and now there is one.
        upsert_once(table, rows("a5", "b1").select(["id", "day"]), Operation.DELETE)
    assert held(table) == {"a1": 2, "a2": 1, "a4": 1, "a5": 1, "b1": 1, "b2": 2}
    assert entries(table, "a", "b") == set(held(table))


@pytest.mark.parametrize("partitioned", [True, False])
def test_a_commit_of_another_program_may_have_added_any_key(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch, partitioned: bool
) -> None:
    table = make(new_path(), bl.RecordIndex(partitioned, small_file_limit=0))
    table.upsert(rows("a1", "b1"))

    def foreign(*keys: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(ChangedShards, "to_metadata", lambda _: {})
            table.upsert(rows(*keys))

    meanwhile(monkeypatch, lambda: foreign("a2"))
    with pytest.raises(CommitConflictError, match="another program"):
        upsert_once(table, rows("a3"))
    meanwhile(monkeypatch, lambda: foreign("a4"))
    if partitioned:
        upsert_once(table, rows("b3"))
    else:
        with pytest.raises(CommitConflictError, match="another program"):
            upsert_once(table, rows("b3"))
    meanwhile(monkeypatch, lambda: foreign("a5"))
    upsert_once(table, rows("b1", at=2))


def test_writers_that_give_a_new_partition_different_shard_counts_conflict(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the keys of the first are looked up in shards of the second, and written twice."""
    table = make(new_path())
    table.upsert(rows("b1"))
    of_three = [f"a{n}" for n in range(30) if shards_of_keys(pa.array([str(n)]), 3)[0] > 0]

    def write_with_three_shards() -> None:
        with monkeypatch.context() as patched:
            limits = ShardLimits(3, 3)
            set_bounds(patched, "bucketlake.index.dynamic", PARTITIONED_LIMITS=limits)
            table.upsert(rows(*of_three))

    meanwhile(monkeypatch, write_with_three_shards)
    with pytest.raises(CommitConflictError, match="'a' another number of index shards"):
        upsert_once(table, rows("a0", "a3", "b2"))
    assert set(held(table)) == {*of_three, "b1"}
    table.upsert(rows("a0", "a3", "b2", *of_three, at=2))
    assert set(held(table)) == {*of_three, "a0", "a3", "b1", "b2"}
    require_true_index(open_storage(table.path))


def test_a_write_whose_index_was_built_again_meanwhile_is_retried(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(new_path())
    table.upsert(rows("a1"))
    meanwhile(monkeypatch, lambda: table.rebuild_metadata_table(["record_index"]))
    table.upsert(rows("a1", "a2", at=2))
    assert held(table) == {"a1": 2, "a2": 2}
    require_true_index(open_storage(table.path))


def test_the_index_knows_when_it_was_built_again(new_path: NewPath) -> None:
    table = make(new_path())
    storage = open_storage(table.path)
    index = open_target(table_at(storage), None).pinned_index(["a"])
    table.upsert(rows("a1"))
    assert not index.was_built_again()
    table.drop_metadata_table()
    assert index.was_built_again()


def test_entries_of_groups_that_another_program_removed_are_replaced(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(new_path())
    table.upsert(rows("a1", "a2", "b1"))
    with monkeypatch.context() as patch:
        patch.setattr(IndexUpkeep, "remove", lambda *_: ((), ChangedShards()))
        table.delete_partitions("a")
    assert entries(table, "a") == {"a1", "a2"}
    table.upsert(rows("a1", "a3", "b1", at=2))
    assert held(table) == {"a1": 2, "a3": 2, "b1": 2}
    (found,) = table.locate("1", "a")
    assert found.file_id in groups(table)
    assert table.upsert(rows("a1", at=3)).updated == 1


def test_a_commit_that_found_no_key_depends_on_the_commit_that_removed_it(
    new_path: NewPath,
) -> None:
    table = make(new_path(), bl.RecordIndex(small_file_limit=0))
    table.upsert(rows("a1", "a2"))
    removal = table.delete(rows("a1").select(["id", "day"])).instant
    again = table.upsert(rows("a1", at=2)).instant  # In a group of its own.
    assert removal is not None
    report = table.rollback(removal, cascade=True)
    assert [undone.instant for undone in report.commits] == [again, removal]
    assert held(table) == {"a1": 1, "a2": 1}
    assert entries(table, "a") == {"a1", "a2"}


# ---- What is rejected ---------------------------------------------------------------------------


def test_a_write_builds_the_index_that_a_table_lacks(new_path: NewPath) -> None:
    table = make(new_path())
    table.upsert(rows("a1"))
    storage = open_storage(table.path)
    left = [
        name for name in read_table_config(storage).metadata_partitions if name != "record_index"
    ]
    set_properties(storage, {table_keys.METADATA_PARTITIONS: ",".join(left)})
    with pytest.warns(MetadataTableWarning, match="was missing; this write builds it"):
        table.upsert(rows("a2"))
    assert held(table) == {"a1": 1, "a2": 1}
    set_properties(storage, {table_keys.METADATA_PARTITIONS: ",".join(left)})
    with pytest.warns(MetadataTableWarning, match="was missing; this write builds it"):
        table.delete_partitions("a")
    assert held(table) == {}


def test_a_table_without_the_index_that_its_caller_states_is_not_written(
    new_path: NewPath,
) -> None:
    table = make(new_path(), bl.SimpleBucket(2))
    open_storage(table.path).delete(".hoodie/.bucket_index/ext/index.json")
    with pytest.raises(IndexMissingError, match="rebuild_metadata_table"):
        bl.open_table(table.path, bl.RecordIndex()).upsert(rows("a1"))
    assert held(table) == {}


def test_an_index_of_the_other_kind_is_not_built_for_a_table_that_needs_one(
    new_path: NewPath,
) -> None:
    table = make(new_path(), bl.RecordIndex(partitioned=False))
    with pytest.raises(ConfigError, match=r"partitioned.*False"):
        table.rebuild_metadata_table(["record_index"], partitioned=True)


def test_a_build_that_begins_while_a_write_opens_its_index_is_a_missing_index(
    new_path: NewPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(new_path(), bl.RecordIndex(partitioned=False))
    table.upsert(rows("a1"))
    storage = open_storage(table.path)

    def take_off() -> None:
        list_partitions_as(storage, lost=["record_index"])
        storage.delete_folder(f"{METADATA_TABLE_FOLDER}/record_index")

    overtake(monkeypatch, pinned_index, "open_metadata_table", take_off)
    target = open_target(table_at(storage), None)
    with pytest.raises(IndexMissingError, match=r"has none.*rebuild_metadata_table"):
        write_records(target, Operation.UPSERT, ArrowSource(rows("a2")))


def test_a_table_with_the_other_kind_of_index_is_not_written(new_path: NewPath) -> None:
    table = make(new_path(), bl.RecordIndex(partitioned=False))
    table.upsert(rows("a1"))
    storage = open_storage(table.path)
    storage.delete(".hoodie/.bucket_index/ext/index.json")  # As if Hudi had written the table.
    with pytest.raises(
        ConfigError, match=r"RecordIndex\(partitioned=True\).*RecordIndex\(partitioned=False\)"
    ):
        bl.open_table(table.path).upsert(rows("a2"))
    with pytest.raises(IndexStateError, match="is global"):
        bl.open_table(table.path, bl.RecordIndex()).upsert(rows("a2"))
    assert bl.open_table(table.path, bl.RecordIndex(False)).upsert(rows("a2")).inserted == 1


def test_a_partition_with_a_dot_is_rejected_before_anything_is_written(new_path: NewPath) -> None:
    table = make(new_path())
    bad = pa.Table.from_pylist([{"id": "1", "day": "v1.2", "at": 1}], SCHEMA)
    with pytest.raises(InputError, match=r"v1\.2"):
        table.upsert(bad)
    assert table.timeline() == []
    table.upsert(rows("a1"))
    in_one = make(new_path(), bl.RecordIndex(partitioned=False))
    in_one.upsert(bad)
    assert in_one.to_arrow().num_rows == 1


def test_a_record_index_needs_the_metadata_table(new_path: NewPath) -> None:
    with pytest.raises(ConfigError, match="metadata table"):
        make(new_path(), metadata_table=False)


def test_rescale_resize_and_conversion_are_not_for_record_indexes(new_path: NewPath) -> None:
    table = make(new_path())
    table.upsert(rows("a1"))
    with pytest.raises(ConfigError, match="opens file groups"):
        table.rescale({"a": 2})
    with pytest.raises(ConfigError, match="ConsistentBucket"):
        table.resize()
    with pytest.raises(ConfigError, match="not converted"):
        table.convert(bl.RecordIndex(max_file_size=5))
    with pytest.raises(ConfigError):
        table.convert(bl.SimpleBucket(2))


@pytest.mark.parametrize(
    ("options", "index"),
    [
        ({"hoodie.index.type": "RECORD_LEVEL_INDEX"}, bl.RecordIndex()),
        ({"hoodie.index.type": "record_index"}, bl.RecordIndex(False)),
        (
            {
                "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
                "hoodie.metadata.record.index.enable": "true",
                "hoodie.parquet.small.file.limit": "0",
                "hoodie.parquet.max.file.size": "1000",
            },
            bl.RecordIndex(False, 1000, 0),
        ),
    ],
)
def test_options_of_a_hudi_job_name_a_record_index(
    options: dict[str, str], index: bl.RecordIndex
) -> None:
    assert index_from_options(options) == index


@pytest.mark.parametrize(
    "wrong",
    [
        {"hoodie.metadata.record.level.index.enable": "false"},
        {"hoodie.metadata.record.index.enable": "true"},
        {"hoodie.parquet.max.file.size": "much"},
        {"hoodie.metadata.enable": "false"},
        {"hoodie.storage.layout.type": "BUCKET"},
    ],
)
def test_options_that_contradict_a_record_index_are_rejected(
    wrong: dict[str, str], new_path: NewPath
) -> None:
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.index.type": "RECORD_LEVEL_INDEX",
    }
    with pytest.raises(ConfigError, match=next(iter(wrong)).rpartition(".")[2]):
        bl.save(rows("a1"), new_path(), options=options | wrong)


def test_a_job_of_a_global_index_that_keeps_keys_in_their_partition_is_rejected() -> None:
    options = {
        "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
        "hoodie.record.index.update.partition.path": "false",
    }
    with pytest.raises(ConfigError, match="moves to the partition"):
        index_from_options(options)


@pytest.mark.parametrize(
    "settings", [{"partitioned": 1}, {"max_file_size": 0}, {"small_file_limit": -1}]
)
def test_settings_out_of_range_are_rejected(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        bl.RecordIndex(**settings)


# ---- Missing files of the index -----------------------------------------------------------------


def missing_files(table: bl.Table, name: str) -> None:
    """Delete the files of the index whose names have a text."""
    storage = open_storage(table.path)
    for stored in list(storage.list(".hoodie/metadata/record_index")):
        if name in stored.path:
            storage.delete(stored.path)


@pytest.mark.parametrize(
    ("partitioned", "name"),
    [(True, "record-index"), (True, "record-index-a-"), (False, "record-index"), (False, "0003-0")],
)
def test_missing_files_of_the_index_double_no_key_and_a_build_mends_it(
    new_path: NewPath, partitioned: bool, name: str
) -> None:
    """No commit on the timeline of the metadata table names the index any more."""
    table = make(new_path(), bl.RecordIndex(partitioned=partitioned))
    table.upsert(rows("a1", "a2", "b3", "b4"))
    table.rebuild_metadata_table()
    missing_files(table, name)
    for use in (
        lambda: table.locate("1"),
        lambda: table.locate("1", "a"),
        lambda: table.upsert(rows("a1", "a5", at=2)),
    ):
        with pytest.raises(
            MetadataTableError, match=r"rebuild_metadata_table\(\['record_index'\]\)"
        ):
            use()
    table.rebuild_metadata_table(["record_index"])
    table.upsert(rows("a1", "a5", at=2))
    assert held(table) == {"a1": 2, "a2": 1, "a5": 2, "b3": 1, "b4": 1}
    require_true_index(open_storage(table.path))
