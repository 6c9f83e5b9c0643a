"""A table and its entry in a catalog, over the life of both."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.catalogs.catalog import LAST_COMMIT, CatalogColumn
from tests.catalog_services import Glue, Metastore
from tests.meanwhile import meanwhile
from tests.memory_catalog import KilledError, MemoryCatalog

NAME = "sales.orders"
HIVE = "hoodie.datasource.hive_sync."


def rows(*regions: str, **more: pa.Array) -> pa.Table:
    ids = [f"{region}-1" for region in regions]
    return pa.table({"id": ids, "region": [*regions], **more})


def table_at(place: str, *, name: str = "orders", **options: object) -> bl.Table:
    settings: dict[str, object] = {"record_key": "id", "partition_by": "region", "name": name}
    return bl.create_table(place, schema=rows("x").schema, **(settings | options))  # type: ignore[arg-type]


@pytest.fixture
def catalog() -> MemoryCatalog:
    return MemoryCatalog()


@pytest.fixture
def table(tmp_path: Path) -> bl.Table:
    made = table_at(str(tmp_path / "orders"))
    made.upsert(rows("eu", "us", "asia"))
    return made


def held(catalog: MemoryCatalog, name: str = NAME) -> Mapping[str, str]:
    """Return the partitions of an entry: values and the last part of their location."""
    found = catalog.partitions[name]
    return {"/".join(values): place.rpartition("/")[2] for values, place in found.items()}


def test_partitions_come_and_go_with_those_of_the_table(
    table: bl.Table, catalog: MemoryCatalog
) -> None:
    first = bl.sync(table, catalog, NAME)
    assert [(e.name, e.action, e.added) for e in first.entries] == [(NAME, "created", 3)]
    assert held(catalog) == {"eu": "eu", "us": "us", "asia": "asia"}
    table.upsert(rows("africa", "eu"))
    assert bl.sync(table, catalog, NAME).entries[0].added == 1
    table.delete_partitions(["us"])
    assert bl.sync(table, catalog, NAME).entries[0].dropped == 1
    table.insert_overwrite(rows("us"), whole_table=True)
    done = bl.sync(table, catalog, NAME).entries[0]
    assert (done.added, done.dropped) == (1, 3)
    assert held(catalog) == {"us": "us"}


def test_a_sync_sends_nothing_where_nothing_is_new(table: bl.Table, catalog: MemoryCatalog) -> None:
    bl.sync(table, catalog, NAME)
    before = [*catalog.names]
    again = bl.sync(table, catalog, NAME)
    assert again.entries[0].action == "unchanged"
    assert again.calls == 1
    assert catalog.names == before


def test_a_commit_to_known_partitions_costs_one_change(
    table: bl.Table, catalog: MemoryCatalog
) -> None:
    bl.sync(table, catalog, NAME)
    del catalog.names[:]
    table.upsert(rows("eu"))
    bl.sync(table, catalog, NAME)
    assert catalog.names == ["alter_table"]


def test_a_dry_run_tells_the_same_and_changes_nothing(
    table: bl.Table, catalog: MemoryCatalog
) -> None:
    told = bl.sync(table, catalog, NAME, dry_run=True)
    assert not catalog.names
    assert told.entries == bl.sync(table, catalog, NAME).entries
    table.delete_partitions(["us"])
    table.upsert(rows("new"))
    before = [*catalog.names]
    told = bl.sync(table, catalog, NAME, dry_run=True)
    assert catalog.names == before
    assert told.entries == bl.sync(table, catalog, NAME).entries


def test_a_restore_takes_away_what_undone_commits_had(
    table: bl.Table, catalog: MemoryCatalog
) -> None:
    kept = table.savepoint()
    table.upsert(rows("later"))
    bl.sync(table, catalog, NAME)
    assert "later" in held(catalog)
    table.restore(kept)
    bl.sync(table, catalog, NAME)
    assert held(catalog) == {"eu": "eu", "us": "us", "asia": "asia"}
    assert catalog.tables[NAME].parameters[LAST_COMMIT] == kept


def test_a_rollback_of_an_earlier_commit_takes_away_and_gives_back_partitions(
    table: bl.Table, catalog: MemoryCatalog
) -> None:
    """The last commit stays, and with it what the entry notes."""
    undone = table.upsert(rows("later")).instant, table.delete_partitions(["us"]).instant
    table.upsert(rows("eu"))
    bl.sync(table, catalog, NAME)
    assert held(catalog).keys() == {"eu", "asia", "later"}
    for instant in undone:
        assert instant is not None
        table.rollback(instant)
    done = bl.sync(table, catalog, NAME).entries[0]
    assert (done.added, done.dropped) == (1, 1)
    assert held(catalog).keys() == {"eu", "us", "asia"}
    before = [*catalog.names]
    assert bl.sync(table, catalog, NAME).entries[0].action == "unchanged"
    assert catalog.names == before


def test_a_commit_of_a_dead_sync_that_is_rolled_back_leaves_no_partition(
    table: bl.Table, catalog: MemoryCatalog
) -> None:
    bl.sync(table, catalog, NAME)
    undone = table.upsert(rows("later")).instant
    catalog.dies_before = catalog.calls + 3  # Before the last commit is noted.
    with pytest.raises(KilledError):
        bl.sync(table, catalog, NAME)
    catalog.dies_before = None
    assert "later" in held(catalog)
    assert undone is not None
    table.rollback(undone)
    assert bl.sync(table, catalog, NAME).entries[0].dropped == 1
    assert held(catalog).keys() == {"eu", "us", "asia"}


def test_options_name_columns_in_any_letters_and_no_other_folder(
    table: bl.Table, catalog: MemoryCatalog
) -> None:
    options = {f"{HIVE}partition_fields": "REGION", f"{HIVE}serde_properties": "k=v\npath=/other"}
    bl.sync(table, catalog, NAME, options=options)
    entry = catalog.tables[NAME]
    assert entry.keys == (CatalogColumn("region", "string"),)
    assert [each.name for each in entry.columns if each.name[0] != "_"] == ["id"]
    assert (entry.serde["k"], entry.path) == ("v", f"file:{table.path}")
    options = {f"{HIVE}partition_extractor_class": "NonPartitionedExtractor"}
    with pytest.raises(bl.InputError, match="expects a table without partitions"):
        bl.sync(table, catalog, "sales.more", options=options)


def test_another_extractor_gives_all_partitions_other_values_at_once(
    tmp_path: Path, catalog: MemoryCatalog
) -> None:
    table = table_at(str(tmp_path / "orders"), hive_style=True)
    table.upsert(rows("eu", "us"))
    single = {f"{HIVE}partition_extractor_class": "SinglePartPartitionValueExtractor"}
    for options, values in (
        (single, {"region=eu", "region=us"}),
        ({}, {"eu", "us"}),
        (single, {"region=eu", "region=us"}),
    ):
        bl.sync(table, catalog, NAME, options=options)
        assert held(catalog).keys() == values
        assert bl.sync(table, catalog, NAME, options=options).entries[0].action == "unchanged"


@pytest.mark.parametrize("service", [Metastore, Glue])
def test_a_new_column_reaches_each_partition_wherever_a_sync_dies(
    service: Callable[[], Metastore | Glue],
) -> None:
    for dies in itertools.count():
        table, held_by = table_at(f"memory://columns/{service.__name__}{dies}"), service()
        table.upsert(rows("eu", "us", "asia"))
        bl.sync(table, held_by.opened(), NAME)
        table.upsert(rows("eu", amount=pa.array([1])), merge_schema=True)
        held_by.lives, held_by.does_last = dies, True
        try:
            bl.sync(table, held_by.opened(), NAME)
        except KilledError:
            held_by.lives = None
        is_dead, held_by.lives = held_by.lives is None, None
        bl.sync(table, held_by.opened(), NAME)
        columns = {names for _, names in held_by.told(("sales", "orders")).values()}
        assert [[name for name, _ in names][-2:] for names in columns] == [["id", "amount"]]
        if not is_dead:
            break
    assert dies > 2


def test_types_that_a_metastore_refuses_are_replaced_on_request(
    table: bl.Table, catalog: MemoryCatalog
) -> None:
    bl.sync(table, catalog, NAME)
    entry = catalog.tables[NAME]
    columns = tuple(replace(c, type="int") if c.name == "id" else c for c in entry.columns)
    catalog.tables[NAME] = replace(entry, columns=columns)
    assert bl.sync(table, catalog, NAME, dry_run=True).entries[0].action == "altered"
    assert bl.sync(table, catalog, NAME, replace=True).entries[0].action == "replaced"
    assert catalog.tables[NAME].columns == entry.columns
    assert bl.sync(table, catalog, NAME, replace=True).entries[0].action == "unchanged"


def test_what_the_timeline_no_longer_tells_is_compared_whole(
    table: bl.Table, catalog: MemoryCatalog
) -> None:
    bl.sync(table, catalog, NAME)
    for number in range(6):
        table.upsert(rows(f"r{number}"))
    table.delete_partitions(["us"])
    table.archive(keep_min=2, keep_max=3)
    bl.sync(table, catalog, NAME)
    assert held(catalog).keys() == {"eu", "asia", *(f"r{number}" for number in range(6))}


@pytest.mark.parametrize("change", ["first", "drop"])
def test_a_sync_that_dies_anywhere_is_completed_by_the_next_one(
    tmp_path: Path, change: str
) -> None:
    wanted, dies = None, 0
    while True:
        table, catalog = table_at(f"memory://dies/{change}{dies}"), MemoryCatalog()
        table.upsert(rows("eu", "us", "asia"))
        if change != "first":
            bl.sync(table, catalog, NAME)
            if change == "drop":
                table.delete_partitions(["us", "asia"])
            table.upsert(rows("a", "b", "c", amount=pa.array([1, 2, 3])), merge_schema=True)
        catalog.dies_before, killed = catalog.calls + dies, False
        try:
            bl.sync(table, catalog, NAME)
        except KilledError:
            killed = True
        catalog.dies_before = None
        bl.sync(table, catalog, NAME)
        found = catalog.tables[NAME].columns, held(catalog)
        wanted = wanted or found
        assert found == wanted
        assert bl.sync(table, catalog, NAME).entries[0].action == "unchanged"
        if not killed:
            break
        dies += 1
    assert dies > 4
    regions = {"eu"} if change == "drop" else {"eu", "us", "asia"}
    assert wanted[1].keys() == regions | ({"a", "b", "c"} if change != "first" else set())


def test_another_table_of_that_name_is_refused_unless_it_is_to_be_replaced(
    tmp_path: Path, table: bl.Table, catalog: MemoryCatalog
) -> None:
    bl.sync(table, catalog, NAME)
    other = table_at(str(tmp_path / "other"))
    other.upsert(rows("mars"))
    del catalog.names[:]
    with pytest.raises(bl.CatalogError, match=r"sales.orders is a table at file:.*/orders, not at"):
        bl.sync(other, catalog, NAME)
    assert not catalog.names
    done = bl.sync(other, catalog, NAME, replace=True)
    assert done.entries[0].action == "replaced"
    assert held(catalog) == {"mars": "mars"}


@pytest.mark.parametrize("keys", [(), (("region", "int"),), (("city", "string"),)])
def test_other_partition_keys_are_refused_before_any_entry_is_changed(
    tmp_path: Path, catalog: MemoryCatalog, keys: tuple[tuple[str, str], ...]
) -> None:
    table = table_at(str(tmp_path / "orders"), table_type="merge_on_read")
    table.upsert(rows("eu"))
    bl.sync(table, catalog, NAME)
    name = f"{NAME}_rt"  # The last one; another commit is due to all.
    stored = tuple(CatalogColumn(*key) for key in keys)
    catalog.tables[name] = replace(catalog.tables[name], keys=stored)
    table.upsert(rows("us"))
    del catalog.names[:]
    words = "no partition keys" if not keys else f"the partition keys {' '.join(keys[0])}"
    with pytest.raises(bl.CatalogError, match=f"{name} has {words}.*region string; .*--replace"):
        bl.sync(table, catalog, NAME)
    assert not catalog.names
    done = bl.sync(table, catalog, NAME, replace=True)
    assert [each.action for each in done.entries] == ["altered", "altered", "replaced"]
    assert held(catalog, name) == {"eu": "eu", "us": "us"}
    assert bl.sync(table, catalog, NAME).entries[2].action == "unchanged"


def test_the_type_that_hudi_gives_to_a_key_of_a_formatted_time_is_kept(
    table: bl.Table, catalog: MemoryCatalog
) -> None:
    bl.sync(table, catalog, NAME)
    keys = (CatalogColumn("region", "bigint"),)
    catalog.tables[NAME] = replace(catalog.tables[NAME], keys=keys)
    table.upsert(rows("new"))
    assert bl.sync(table, catalog, NAME).entries[0].added == 1
    assert catalog.tables[NAME].keys == keys


def test_what_others_put_into_the_entry_stays(table: bl.Table, catalog: MemoryCatalog) -> None:
    bl.sync(table, catalog, NAME)
    entry = catalog.tables[NAME]
    columns = [
        CatalogColumn(c.name, c.type, "by hand" if c.name == "id" else "") for c in entry.columns
    ]
    catalog.tables[NAME] = replace(
        entry,
        columns=tuple(columns),
        parameters={**entry.parameters, "team": "data", "spark.sql.sources.provider": "parquet"},
        serde={**entry.serde, "k": "v"},
    )
    catalog.partitions[NAME][("elsewhere",)] = "s3://other/place"
    catalog.partitions[NAME][("nowhere",)] = f"{entry.location}/nowhere"
    catalog.partitions[NAME][("eu",)] = "s3://wrong/eu"
    table.upsert(rows("new", amount=pa.array([1])), merge_schema=True)
    done = bl.sync(table, catalog, NAME, options={"hoodie.meta.sync.incremental": "false"})
    assert (done.entries[0].moved, done.entries[0].dropped) == (1, 1)
    assert done.entries[0].left == ("elsewhere",)
    found = catalog.tables[NAME]
    assert found.parameters["team"] == "data"
    assert found.parameters["spark.sql.sources.provider"] == "hudi"
    assert found.serde["k"] == "v"
    assert {c.name: c.comment for c in found.columns}["id"] == "by hand"
    assert held(catalog).keys() == {"eu", "us", "asia", "new", "elsewhere"}
    assert catalog.partitions[NAME][("eu",)] == f"{entry.location}/eu"


def test_a_shorter_schema_leaves_no_part_of_the_longer_one(
    table: bl.Table, catalog: MemoryCatalog
) -> None:
    short = {f"{HIVE}schema_string_length_thresh": "50"}
    bl.sync(table, catalog, NAME, options=short)
    assert "spark.sql.sources.schema.part.3" in catalog.tables[NAME].parameters
    table.upsert(rows("eu"))
    bl.sync(table, catalog, NAME)
    parts = [key for key in catalog.tables[NAME].parameters if ".schema.part." in key]
    assert parts == ["spark.sql.sources.schema.part.0"]


def test_a_commit_that_ends_after_a_later_one_is_not_passed_over(
    table: bl.Table, catalog: MemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    bl.sync(table, catalog, NAME)

    def overtake() -> None:
        bl.open_table(table.path).upsert(rows("us"))
        bl.sync(table, catalog, NAME)

    meanwhile(monkeypatch, overtake)
    late = table.upsert(rows("late"))
    assert late.instant is not None
    assert late.instant < catalog.tables[NAME].parameters[LAST_COMMIT]
    bl.sync(table, catalog, NAME)
    assert held(catalog).keys() == {"eu", "us", "asia", "late"}


def test_an_entry_without_a_last_commit_is_compared_whole(
    table: bl.Table, catalog: MemoryCatalog
) -> None:
    """So is one whose first sync died."""
    bl.sync(table, catalog, NAME)
    entry = catalog.tables[NAME]
    del catalog.partitions[NAME][("us",)]
    parameters = {k: v for k, v in entry.parameters.items() if k != LAST_COMMIT}
    catalog.tables[NAME] = replace(entry, parameters=parameters)
    bl.sync(table, catalog, NAME)
    assert "us" in held(catalog)


def test_with_condition_the_last_commit_moves_with_columns_and_partitions_only(
    table: bl.Table, catalog: MemoryCatalog
) -> None:
    options = {"hoodie.datasource.meta_sync.condition.sync": "true"}
    bl.sync(table, catalog, NAME, options=options)
    first = catalog.tables[NAME].parameters[LAST_COMMIT]
    table.upsert(rows("eu"))
    assert bl.sync(table, catalog, NAME, options=options).entries[0].action == "unchanged"
    assert catalog.tables[NAME].parameters[LAST_COMMIT] == first
    last = table.upsert(rows("new")).instant
    bl.sync(table, catalog, NAME, options=options)
    assert catalog.tables[NAME].parameters[LAST_COMMIT] == last


def test_merge_on_read_has_an_entry_for_each_way_to_read_it(
    tmp_path: Path, catalog: MemoryCatalog
) -> None:
    table = table_at(str(tmp_path / "orders"), table_type="merge_on_read")
    table.upsert(rows("eu"))
    assert [each.name for each in bl.sync(table, catalog, NAME).entries] == [
        "sales.orders",
        "sales.orders_ro",
        "sales.orders_rt",
    ]
    for name in catalog.tables:
        assert held(catalog, name) == {"eu": "eu"}


def test_two_paths_with_the_same_values_are_an_error_before_anything(
    tmp_path: Path, catalog: MemoryCatalog
) -> None:
    data = pa.table({"id": ["1", "2"], "region": ["a", "a-b"], "city": ["b-c", "c"]})
    table = bl.create_table(
        str(tmp_path / "t"), data, record_key="id", partition_by=["region", "city"]
    )
    options = {
        f"{HIVE}partition_fields": "place",
        f"{HIVE}partition_extractor_class": "SinglePartPartitionValueExtractor",
    }
    with pytest.raises(bl.InputError, match="gives both the values a-b-c"):
        bl.sync(table, catalog, NAME, options=options)
    options[f"{HIVE}partition_fields"] = "region,city"
    with pytest.raises(bl.InputError, match="expects one value, and there are 2 keys"):
        bl.sync(table, catalog, NAME, options=options)
    assert not catalog.names


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({f"{HIVE}suport_timestamp": "true"}, "did you mean"),
        ({"support_timestamp": "true"}, "did you mean 'hoodie.datasource.hive_sync.support_t"),
        ({"hoodie.nothing": "1"}, "no such option"),
        ({f"{HIVE}partition_extractor_class": "com.mine.Extractor"}, "does not run here"),
        ({f"{HIVE}batch_num": "0"}, "whole number, 1 or more"),
        ({f"{HIVE}table_properties": "level"}, "name=value"),
        ({f"{HIVE}table.strategy": "XX"}, "ALL"),
    ],
)
def test_a_wrong_option_is_named(
    table: bl.Table, catalog: MemoryCatalog, options: dict[str, str], words: str
) -> None:
    with pytest.raises(bl.ConfigError, match=words):
        bl.sync(table, catalog, NAME, options=options)
    assert catalog.calls == 0


@pytest.mark.parametrize(
    "address", ["hive://x", "", "thrift://", "glue://EU West", "thrift:/x:y", "thrift://h:99999"]
)
def test_a_wrong_address_is_named(table: bl.Table, address: str) -> None:
    with pytest.raises(bl.ConfigError, match="catalog = "):
        bl.sync(table, address)


@pytest.mark.parametrize("name", ["a.b.c", "sales.", ".orders", "sales orders"])
def test_a_name_of_other_than_two_parts_is_told(
    table: bl.Table, catalog: MemoryCatalog, name: str
) -> None:
    with pytest.raises(bl.ConfigError, match=r"name = .*give database\.table"):
        bl.sync(table, catalog, name)
    assert catalog.calls == 0


@pytest.mark.parametrize("name", ["sales.or-ders", "sa-les.orders", "sales.bücher"])
def test_a_name_that_a_metastore_refuses_makes_no_database(table: bl.Table, name: str) -> None:
    service = Metastore()
    with pytest.raises(bl.CatalogError, match=r"is not a valid object name; choose a name of"):
        bl.sync(table, service.opened(), name)
    assert (service.databases, service.tables) == (set(), {})


@pytest.mark.parametrize("name", ["my orders", "a.b", "x/y"])
def test_a_table_whose_own_name_is_no_name_of_an_entry_makes_no_database(
    tmp_path: Path, catalog: MemoryCatalog, name: str
) -> None:
    table = table_at(str(tmp_path / "orders"), name=name)
    with pytest.raises(
        bl.ConfigError, match=rf"name = 'default\.{name}' .*: choose another one: name="
    ):
        bl.sync(table, catalog)
    assert not catalog.names


def test_a_path_with_the_values_of_one_that_an_earlier_sync_added_is_an_error(
    tmp_path: Path, catalog: MemoryCatalog
) -> None:
    data = pa.table({"id": ["1"], "region": ["a"], "city": ["b-c"]})
    keys = {"record_key": "id", "partition_by": ["region", "city"]}
    table = bl.create_table(str(tmp_path / "t"), data, **keys)  # type: ignore[arg-type]
    options = {
        f"{HIVE}partition_fields": "place",
        f"{HIVE}partition_extractor_class": "SinglePartPartitionValueExtractor",
    }
    bl.sync(table, catalog, NAME, options=options)
    before, places = [*catalog.names], held(catalog)
    table.upsert(pa.table({"id": ["2"], "region": ["a-b"], "city": ["c"]}))
    with pytest.raises(bl.InputError, match="gives both the values a-b-c"):
        bl.sync(table, catalog, NAME, options=options)
    assert (catalog.names, held(catalog)) == (before, places)


@pytest.mark.parametrize(
    ("sync", "words"),
    [
        (True, "sync = True .*give the address of a catalog"),
        ("nonsense", "catalog = 'nonsense'"),
        ("thrift://h:99999", "thrift://host:port"),
        ("glue://EU", "glue://region"),
        ({"name": NAME}, "catalog = ''"),
        ({"catalog": "glue", "nme": NAME}, "nme = .*did you mean 'name'"),
        ({"catalog": "glue", "name": "a.b.c"}, "give database"),
    ],
)
def test_a_registration_that_cannot_work_makes_no_table(
    tmp_path: Path, sync: object, words: str
) -> None:
    with pytest.raises(bl.ConfigError, match=words):
        table_at(str(tmp_path / "orders"), sync=sync)
    assert not (tmp_path / "orders").exists()


def test_a_missing_database_is_made_unless_it_must_not_be(
    table: bl.Table, catalog: MemoryCatalog
) -> None:
    with pytest.raises(bl.CatalogError, match="there is no database sales"):
        bl.sync(table, catalog, NAME, options={f"{HIVE}auto_create_database": "false"})
    bl.sync(table, catalog, "Sales.Orders")
    assert catalog.databases == {"sales"}
    assert [*catalog.tables] == [NAME]


@pytest.fixture
def at_hand(monkeypatch: pytest.MonkeyPatch, catalog: MemoryCatalog) -> MemoryCatalog:
    """Let each address of a metastore be the catalog in memory."""
    for room in ("table_sync", "hive"):
        monkeypatch.setattr(
            f"bucketlake.catalogs.{room}.HiveMetastore", lambda *_: catalog, raising=False
        )
    return catalog


def test_a_table_is_registered_after_each_write(tmp_path: Path, at_hand: MemoryCatalog) -> None:
    place = str(tmp_path / "orders")
    where = {"catalog": "thrift://m:9083", "name": NAME, f"{HIVE}omit_metadata_fields": "true"}
    table = table_at(place, sync=where)
    result = table.upsert(rows("eu"))
    assert [(step.service, step.done) for step in result.upkeep] == [
        ("sync", "sales.orders created")
    ]
    bl.open_table(place).upsert(rows("us"))
    assert held(at_hand) == {"eu": "eu", "us": "us"}
    assert [each.name for each in at_hand.tables[NAME].columns] == ["id"]
    assert bl.open_table(NAME, catalog="thrift://m:9083").count() == 2


def test_a_catalog_that_fails_fails_no_write(tmp_path: Path) -> None:
    table = table_at(str(tmp_path / "orders"), sync="thrift://127.0.0.1:1")
    with pytest.warns(bl.ServiceWarning, match="the rows are committed"):
        result = table.upsert(rows("eu"))
    assert "does not answer" in (result.upkeep[0].error or "")
    assert table.count() == 1


def test_a_job_with_options_of_hudi_registers_its_table(
    tmp_path: Path, at_hand: MemoryCatalog
) -> None:
    options = {
        "hoodie.table.name": "orders",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "region",
        f"{HIVE}enable": "true",
        f"{HIVE}mode": "hms",
        f"{HIVE}database": "Sales",
        f"{HIVE}metastore.uris": "thrift://m:9083",
    }
    with pytest.warns(UserWarning, match="the options name no index"):
        result = bl.save(rows("eu"), str(tmp_path / "orders"), options=options)
    assert result.upkeep[-1].done == "sales.orders created"
    assert held(at_hand) == {"eu": "eu"}
    del options[f"{HIVE}metastore.uris"]
    with pytest.warns(UserWarning, match="names no catalog"):
        bl.save(rows("us"), str(tmp_path / "orders"), options=options)


def test_whatever_a_catalog_raises_after_a_commit_fails_no_write(
    tmp_path: Path, at_hand: MemoryCatalog
) -> None:
    table = table_at(str(tmp_path / "orders"), sync={"catalog": "thrift://m:9083", "name": NAME})
    at_hand.dies_before = 0
    with pytest.warns(bl.ServiceWarning, match="the rows are committed"):
        table.upsert(rows("eu"))
    at_hand.dies_before = None
    assert table.upsert(rows("us")).upkeep[0].done == "sales.orders created"
    assert held(at_hand).keys() == {"eu", "us"}


def test_the_doctor_compares_with_the_catalog_and_a_repair_syncs(
    tmp_path: Path, at_hand: MemoryCatalog
) -> None:
    table = table_at(str(tmp_path / "orders"), sync={"catalog": "thrift://m:9083", "name": NAME})
    table.upsert(rows("eu", "us"))
    assert table.doctor() == []
    assert "catalog" in table.doctor().checked
    entry = at_hand.tables[NAME]  # No commit follows, and the entry is changed by hand.
    del at_hand.partitions[NAME][("us",)]
    at_hand.partitions[NAME][("mars",)] = f"{entry.location}/mars"
    at_hand.tables[NAME] = replace(entry, columns=entry.columns[:-1])
    del at_hand.names[:]
    (found,) = table.doctor()
    assert (found.kind.value, found.meaning) == (
        "catalog_behind",
        f"{NAME} in the catalog differs: columns id; 1 partitions missing; 1 partitions no longer "
        "there",
    )
    assert table.repair(dry_run=True).repaired == (found,)
    assert not at_hand.names
    assert table.repair().repaired == (found,)
    assert held(at_hand) == {"eu": "eu", "us": "us"}
    assert at_hand.tables[NAME].columns == entry.columns
    at_hand.tables[NAME] = replace(entry, location="file:/elsewhere")
    left = table.repair().left
    assert [each.kind.value for each in left] == ["catalog_not_compared"]
    assert "is a table at file:/elsewhere" in left[0].meaning


def test_a_catalog_that_cannot_be_reached_is_a_finding_and_fails_no_doctor(tmp_path: Path) -> None:
    assert "catalog" not in table_at(str(tmp_path / "orders")).doctor().checked
    table = table_at(str(tmp_path / "synced"), sync="thrift://127.0.0.1:1")
    (found,) = table.doctor()
    assert (found.kind.value, found.severity.value) == ("catalog_not_compared", "warning")
    assert "127.0.0.1:1: it does not answer" in found.meaning
    assert table.repair().left == (found,)


THRIFT = "thrift://m:9083"


def test_statements_and_jobs_take_names_as_open_table_does(
    table: bl.Table, tmp_path: Path, at_hand: MemoryCatalog
) -> None:
    other = table_at(str(tmp_path / "news"), name="news")
    other.upsert(rows("eu", "mars"))
    bl.sync(table, at_hand, NAME)
    bl.sync(other, at_hand, "sales.news")
    done = bl.sql(
        None,
        "MERGE INTO Sales.orders t USING sales.News s ON t.id = s.id "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *",
        catalog=THRIFT,
    )
    assert (done.deleted, done.inserted) == (1, 1)
    options = {"hoodie.table.name": "orders", "hoodie.datasource.write.recordkey.field": "id"}
    options["hoodie.datasource.write.partitionpath.field"] = "region"
    assert bl.save(rows("moon"), NAME, options=options, catalog=THRIFT).inserted == 1
    found = table.to_arrow(columns=["region"])["region"].to_pylist()
    assert sorted(found) == ["asia", "mars", "moon", "us"]
    assert not (tmp_path / NAME).exists()


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("sales.nothing", bl.CatalogError, r"knows no table sales\.nothing; .*bl\.sync\(table"),
        ("orders", bl.ConfigError, r"two parts: database\.table"),
        (".orders", bl.ConfigError, r"two parts: database\.table"),
        ("spark_catalog.sales.orders", bl.ConfigError, r"two parts: database\.table"),
        ("/lake/orders.v1", bl.ConfigError, r"two parts: database\.table"),
    ],
)
def test_a_name_that_no_catalog_has_is_told(
    at_hand: MemoryCatalog, name: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        bl.open_table(name, catalog=THRIFT)
    with pytest.raises(error, match=words):
        bl.save(rows("eu"), name, options={}, catalog=THRIFT)
    assert not at_hand.names


def test_an_entry_of_another_format_is_neither_altered_nor_opened(
    table: bl.Table, catalog: MemoryCatalog
) -> None:
    bl.sync(table, catalog, NAME)
    theirs = replace(catalog.tables[NAME], input_format="", parameters={"table_type": "ICEBERG"})
    catalog.tables[NAME], before = theirs, [*catalog.names]
    with pytest.raises(bl.CatalogError, match="no table of Hudi there, but ICEBERG"):
        bl.sync(table, catalog, NAME)
    with pytest.raises(bl.CatalogError, match="no table of Hudi there, but ICEBERG"):
        bl.open_table(NAME, catalog=catalog)
    assert catalog.names == before
    catalog.tables[NAME] = replace(theirs, parameters={"spark.sql.sources.provider": "hudi"})
    assert bl.sync(table, catalog, NAME).entries[0].action == "altered"  # Spark's own CREATE TABLE.
    catalog.tables[NAME] = theirs
    bl.sync(table, catalog, NAME, replace=True)
    assert catalog.tables[NAME].is_hudi


@pytest.mark.usefixtures("at_hand")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("sales.nothing", r"knows no table sales\.nothing"),
        ("nothing", "no table of this name; .*pass catalog="),
        ("spark_catalog.sales.nothing", "no table of this name; .*pass catalog="),
    ],
)
def test_a_statement_tells_a_name_that_no_catalog_has(name: str, words: str) -> None:
    with pytest.raises(bl.BucketLakeError, match=words):
        bl.sql(None, f"DELETE FROM {name}", catalog=THRIFT)


@pytest.mark.parametrize(
    ("address", "package", "extra"),
    [(THRIFT, "pymetastore.hive_metastore", "hive"), ("glue://eu-west-1", "boto3", "glue")],
)
def test_a_catalog_whose_package_is_missing_names_it(
    monkeypatch: pytest.MonkeyPatch, address: str, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(bl.ConfigError, match=rf"pip install 'bucketlake\[{extra}\]'"):
        bl.sql(None, f"DELETE FROM {NAME}", catalog=address)


def test_types_of_hudi_have_the_words_that_hudi_gives_them(catalog: MemoryCatalog) -> None:
    schema = "id string, e vector(3), w vector(2, int8), v variant, b blob"
    table = bl.create_table("memory://sync/types", schema=schema, record_key="id", name="typed")
    table.upsert(pa.Table.from_pylist([{"id": "a", "e": [1, 2, 3]}], table.schema()))
    bl.sync(table, catalog, "sales.typed")
    entry = catalog.tables["sales.typed"]
    place = "struct<external_path:string,offset:bigint,length:bigint,managed:boolean>"
    assert {each.name: each.type for each in entry.columns if not each.name.startswith("_")} == {
        "id": "string",
        "e": "binary",
        "w": "binary",
        "v": "struct<metadata:binary,value:binary>",
        "b": f"struct<type:string,data:binary,reference:{place}>",
    }
    text = entry.parameters["spark.sql.sources.schema.part.0"]
    words = {each["name"]: each["type"] for each in json.loads(text)["fields"]}
    assert words["e"] == "binary"
    assert [each["name"] for each in words["v"]["fields"]] == ["metadata", "value"]
