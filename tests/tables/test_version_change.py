"""Tables of older versions, and their upgrade and downgrade."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.config import table_keys as keys
from bucketlake.errors import ConfigError, InputError, KeyTwiceError, TimelineError
from bucketlake.format.index_definitions import IndexDefinition
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.metadata.record_index.definition_file import read_index_definitions
from bucketlake.services.version_change import change_version
from bucketlake.storage.location import open_storage
from bucketlake.timeline.table_properties import read_properties, read_table_config, table_at
from tests.choices import of_this_version
from tests.faulty_storage import FaultyStorage, SimulatedCrash, distinct_deaths
from tests.inside import values_of
from tests.metadata_truth import require_true_metadata

NewPath = Callable[[], str]
SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("v", pa.int64()), ("at", pa.date32())]
)


def make(path: str, version: int, **more: object) -> bl.Table:
    given = {"index": bl.SimpleBucket(2), "partition_by": ["day"], "ordering": "v"} | more
    return bl.create_table(path, schema=SCHEMA, record_key=["id"], version=version, **given)


def rows(*numbers: int, v: int = 1) -> pa.Table:
    made = [{"id": f"k{n}", "day": "ab"[n % 2], "v": v, "at": n} for n in numbers]
    columns = {name: [row[name] for row in made] for name in SCHEMA.names}
    return pa.table(
        [pa.array(columns[f.name], pa.int32() if f.name == "at" else f.type) for f in SCHEMA],
        names=SCHEMA.names,
    ).cast(SCHEMA)


def column_stats(table: bl.Table) -> IndexDefinition:
    return read_index_definitions(table_at(open_storage(table.path)))["column_stats"]


def test_a_table_of_version_8_has_the_properties_that_hudi_1_0_writes(new_path: NewPath) -> None:
    table = make(new_path(), 8)
    found = read_properties(open_storage(table.path))
    assert found[keys.VERSION] == found[keys.INITIAL_VERSION] == "8"
    assert found[keys.LAYOUT_VERSION] == "2"
    assert found[keys.MERGE_MODE] == "EVENT_TIME_ORDERING"
    assert found[keys.PAYLOAD_CLASS] == "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
    assert found[keys.MERGE_STRATEGY] == "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
    assert found[keys.ORDERING_FIELDS_OLD] == "v"
    assert not {keys.ORDERING_FIELDS, keys.TABLE_FORMAT, keys.LEGACY_PAYLOAD_CLASS} & {*found}
    inner = read_properties(open_storage(f"{table.path}/.hoodie/metadata"))
    assert inner[keys.VERSION] == "8"
    assert column_stats(table).version == "V1"


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_rows_stay_through_an_upgrade_and_a_downgrade(new_path: NewPath, table_type: str) -> None:
    table = make(new_path(), 8, table_type=table_type)
    table.upsert(rows(*range(20)))
    table.upsert(rows(*range(10, 30), v=2))
    expected = values_of(table)
    report = table.upgrade()
    assert (report.version_before, report.version) == (8, 9)
    assert report.built == ("column_stats", "files", "partition_stats")
    assert values_of(table) == expected
    assert column_stats(table).version == "V2"
    require_true_metadata(open_storage(table.path))
    table.upsert(rows(1, 40, v=3))
    expected |= {"k1": 3, "k40": 3}
    assert table.downgrade(to=8).version == 8
    assert values_of(table) == expected
    assert column_stats(table).version == "V1"
    table.upsert(rows(2, 41, v=4))
    assert values_of(table) == expected | {"k2": 4, "k41": 4}
    require_true_metadata(open_storage(table.path))
    assert table.doctor(check_keys=True, min_age_seconds=0) == []


def test_conditions_prune_by_statistics_of_both_versions(new_path: NewPath) -> None:
    table = make(new_path(), 8, partition_by=[], index=bl.SimpleBucket(1))
    for first in (0, 100):
        made = rows(*range(first, first + 10))
        table.upsert(made.set_column(0, "id", pa.array([f"k{first}-{n}" for n in range(10)])))
    for change in (None, table.upgrade, lambda: table.downgrade(to=8)):
        if change is not None:
            change()
        found = table.to_arrow(where="at >= DATE '1970-04-11'")
        assert found.num_rows == 10


def test_a_dry_run_changes_nothing(new_path: NewPath) -> None:
    table = make(new_path(), 8)
    storage = open_storage(table.path)
    before = {stored.path: storage.read(stored.path) for stored in storage.list("")}
    assert table.upgrade(dry_run=True).version == 9
    assert {stored.path: storage.read(stored.path) for stored in storage.list("")} == before


def test_a_change_to_the_version_of_the_table_does_nothing(new_path: NewPath) -> None:
    table = make(new_path(), 9)
    assert table.upgrade() == table.downgrade(to=9)
    assert table.upgrade().built == ()


def test_a_partitioned_index_that_no_kind_needs_is_left_off(new_path: NewPath) -> None:
    table = make(new_path(), 9)
    table.upsert(rows(1, 2))
    table.rebuild_metadata_table(["record_index"])
    report = table.downgrade(to=8)
    assert report.dropped == (MetadataPartition.RECORD_INDEX,)
    assert MetadataPartition.RECORD_INDEX not in table.config().metadata_partitions
    table.rebuild_metadata_table(["record_index"])
    require_true_metadata(open_storage(table.path))
    with pytest.raises(ConfigError, match="for the whole table only"):
        table.rebuild_metadata_table(["record_index"], partitioned=True)


@pytest.mark.parametrize(
    ("more", "missing"),
    [
        ({"index": bl.DynamicBucket()}, "since version 9"),
        ({"index": bl.RecordIndex()}, "since version 9"),
        ({"index": bl.PartitionBucket({"a": 1}, default=2)}, "since version 9"),
        ({"ordering": ["v", "at"]}, "one ordering field"),
    ],
)
def test_what_version_8_lacks_is_named_before_anything_is_written(
    new_path: NewPath, more: dict[str, object], missing: str
) -> None:
    path = new_path()
    with pytest.raises(ConfigError, match=missing):
        make(path, 8, **more)
    assert not [*open_storage(path).list("")]
    table = make(path, 9, **more)
    with pytest.raises(ConfigError, match=missing):
        table.downgrade(to=8)
    assert table.config().version == 9


def test_a_downgrade_of_dynamic_buckets_says_how_to_get_a_table_of_the_version(
    new_path: NewPath,
) -> None:
    table = make(new_path(), 9, index=bl.DynamicBucket())
    with pytest.raises(ConfigError, match=r"version=8.* with bulk_insert") as refused:
        table.downgrade(to=8)
    assert "table.upgrade" not in str(refused.value)
    new = make(new_path(), 8, index=bl.SimpleBucket(4))
    assert new.bulk_insert(table.to_arrow()).inserted == table.to_arrow().num_rows


def test_a_type_that_version_8_lacks_is_named_before_anything_is_written(
    new_path: NewPath,
) -> None:
    schema = SCHEMA.append(pa.field("seen", pa.timestamp("us")))
    path = new_path()
    with pytest.raises(InputError, match=r"column seen.*choose version 9"):
        bl.create_table(path, schema=schema, record_key="id", index=bl.SimpleBucket(2), version=8)
    assert not [*open_storage(path).list("")]
    table = bl.create_table(path, schema=schema, record_key="id", index=bl.SimpleBucket(2))
    with pytest.raises(InputError, match="column seen"):
        table.downgrade(to=8)


def test_log_files_from_before_a_downgrade_do_not_come_back_below_later_ones(
    new_path: NewPath,
) -> None:
    """Log files of version 9 would come after all that version 6 writes, with their older rows."""
    path = new_path()
    table = make(path, 9, table_type="merge_on_read", index=bl.SimpleBucket(1))
    table.upsert(rows(1))
    point = table.upsert(rows(1, v=2)).instant
    assert point is not None
    table.savepoint(point)
    table.downgrade(6)
    held = bl.open_table(path)
    compaction = held.timeline()[-1].requested_at
    for undo in (held.rollback, lambda _: held.restore(point)):
        with pytest.raises(TimelineError, match=r"before a downgrade.*call table\.upgrade\(\)"):
            undo(compaction)
    held.upsert(rows(1, v=3))
    assert held.to_arrow()["v"].to_pylist() == [3]


@pytest.mark.parametrize("version", [5, 7, 10, "8", 8.0, True, None])
def test_versions_that_are_not_written_are_refused(new_path: NewPath, version: object) -> None:
    with pytest.raises(ConfigError, match="version"):
        make(new_path(), version)  # type: ignore[arg-type]


def test_the_wrong_direction_names_the_right_one(new_path: NewPath) -> None:
    with pytest.raises(ConfigError, match=r"table\.downgrade\(to=8\)"):
        make(new_path(), 9).upgrade(to=8)
    with pytest.raises(ConfigError, match=r"table\.upgrade\(to=9\)"):
        make(new_path(), 8).downgrade(to=9)


def test_a_table_of_version_8_gets_neither_rules_nor_dynamic_buckets(new_path: NewPath) -> None:
    table = make(new_path(), 8)
    table.upsert(rows(1, 2))
    with pytest.raises(ConfigError, match=r"table\.upgrade\(to=9\)"):
        table.rescale({"a": 4}, default=2)
    with pytest.raises(ConfigError, match=r"table\.upgrade\(to=9\)"):
        table.convert(bl.DynamicBucket())


def test_save_continues_a_table_in_its_version_and_names_the_way_to_another(
    new_path: NewPath,
) -> None:
    path = new_path()
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.table.ordering.fields": "v",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "2",
    }
    bl.save(rows(1, 2), path, options={**options, keys.WRITE_VERSION: "8"})
    bl.save(rows(2, 3, v=2), path, options=options)
    table = bl.open_table(path)
    assert table.config().version == 8
    assert values_of(table) == {"k1": 1, "k2": 2, "k3": 2}
    with pytest.raises(ConfigError, match="version"):
        bl.save(rows(4), path, options={**options, keys.WRITE_VERSION: "9"})


@pytest.mark.parametrize("to", of_this_version([9, 8], 2))
def test_a_change_that_dies_anywhere_is_finished_by_the_next_one(
    new_path: NewPath, to: int
) -> None:
    def fresh() -> bl.Table:
        table = make(new_path(), 17 - to)
        table.upsert(rows(1, 2))
        return table

    counted = FaultyStorage(open_storage(fresh().path), reads_count=False)
    change_version(table_at(counted), to)
    for fault in distinct_deaths(counted):
        table = fresh()
        storage = open_storage(table.path)
        with suppress(SimulatedCrash):
            change_version(table_at(FaultyStorage(storage, [fault], reads_count=False)), to)
        assert values_of(table) == {"k1": 1, "k2": 1}, fault
        change_version(table_at(storage), to)
        config = read_table_config(storage)
        assert config.version == to, fault
        assert config.metadata_partitions == ("column_stats", "files", "partition_stats"), fault
        assert keys.UNBUILT_PARTITIONS not in config.extra, fault
        require_true_metadata(storage)
        table.upsert(rows(3))
        assert values_of(table) == {"k1": 1, "k2": 1, "k3": 1}, fault


def test_a_key_in_two_partitions_does_not_fit_an_index_of_the_whole_table(
    new_path: NewPath,
) -> None:
    table = make(new_path(), 8)
    table.rebuild_metadata_table(["record_index"])
    both = pa.concat_tables([rows(1), rows(1).set_column(1, "day", pa.array(["a"]))])
    with pytest.raises(KeyTwiceError, match=r"table\.drop_metadata_table"):
        table.upsert(both)
    table.drop_metadata_table()
    assert table.upsert(both).inserted == 2


def test_bare_keys_are_written_found_and_kept_from_another_version(new_path: NewPath) -> None:
    """Keys of one field beside two partition columns, as Hudi 1.0 spells them."""
    schema = SCHEMA.append(pa.field("hour", pa.string()))
    table = bl.create_table(
        new_path(),
        schema=schema,
        record_key="id",
        partition_by=["day", "hour"],
        index=bl.SimpleBucket(2),
        version=8,
    )
    made = rows(1, 2).append_column("hour", pa.array(["x", "y"]))
    table.upsert(made)
    assert table.upsert(made).updated == 2
    assert table.to_arrow(columns=["_hoodie_record_key"]).to_pydict() == {
        "_hoodie_record_key": ["k2", "k1"]
    }
    assert [found.record_key for found in table.locate({"id": "k1"})] == ["k1"]
    assert table.doctor(check_keys=True, min_age_seconds=0) == []
    with pytest.raises(ConfigError, match="stored without the name of their field"):
        table.upgrade()
