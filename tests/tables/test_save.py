"""``save``: the options of a Hudi job are used, checked, passed over or named as unknown."""

from __future__ import annotations

import warnings
from pathlib import Path

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.config.write_options import OPTION_OF_ARGUMENT
from bucketlake.errors import (
    AlreadyExistsError,
    BucketLakeError,
    ConfigError,
    IndexStateError,
    InputError,
    LockError,
    ServiceWarning,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from tests.spies import breaks

OPTIONS = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.table.ordering.fields": "at",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "4",
}


def rows(*ids: str, at: int = 1, city: str = "Bonn") -> pa.Table:
    return pa.table({"id": ids, "city": [city] * len(ids), "at": [at] * len(ids)})


def ids_of(path: Path) -> list[str]:
    return sorted(bl.open_table(str(path)).to_arrow()["id"].to_pylist())


def test_table_is_made_as_the_options_say_and_then_written_to(table_path: Path) -> None:
    made = bl.save(rows("a", "b"), str(table_path), options=OPTIONS)
    again = bl.save(rows("b", "c", at=2), str(table_path), options=OPTIONS)
    assert (made.inserted, again.inserted, again.updated) == (2, 1, 1)
    table = bl.open_table(str(table_path))
    config = table.config()
    assert (config.name, config.ordering_fields, table.index) == (
        "trips",
        ("at",),
        bl.SimpleBucket(4),
    )
    assert config.key_spec.partition_fields == ("city",)


OLD_SPELLINGS = {
    "hoodie.datasource.write.table.name": "trips",
    "hoodie.datasource.write.precombine.field": "at",
}


def test_older_spellings_of_an_option_mean_the_same(table_path: Path) -> None:
    dropped = ("hoodie.table.name", "hoodie.table.ordering.fields")
    options = {k: v for k, v in OPTIONS.items() if k not in dropped} | OLD_SPELLINGS
    bl.save(rows("a"), str(table_path), options=options)
    config = bl.open_table(str(table_path)).config()
    assert (config.name, config.ordering_fields) == ("trips", ("at",))


@pytest.mark.parametrize(
    ("operation", "left"),
    [
        ("upsert", ["a", "b", "x"]),
        ("insert", ["a", "b", "x"]),
        ("delete", ["b", "x"]),
        ("insert_overwrite", ["a", "x"]),
        ("insert_overwrite_table", ["a"]),
    ],
)
def test_operation_of_the_options_is_done(
    table_path: Path, operation: str, left: list[str]
) -> None:
    bl.save(rows("a", "b"), str(table_path), options=OPTIONS)
    bl.save(rows("x", city="Kyiv"), str(table_path), options=OPTIONS)
    options = OPTIONS | {"hoodie.datasource.write.operation": operation}
    bl.save(rows("a", at=2), str(table_path), options=options)
    assert ids_of(table_path) == left


def test_partitions_to_delete_are_deleted(table_path: Path) -> None:
    bl.save(rows("a"), str(table_path), options=OPTIONS)
    bl.save(rows("x", city="Kyiv"), str(table_path), options=OPTIONS)
    options = OPTIONS | {
        "hoodie.datasource.write.operation": "delete_partition",
        "hoodie.datasource.write.partitions.to.delete": "Kyiv",
    }
    bl.save(rows(), str(table_path), options=options)
    assert ids_of(table_path) == ["a"]


@pytest.mark.parametrize("asked", [{}, {"hoodie.datasource.write.partitions.to.delete": "K*"}])
def test_partitions_to_delete_have_to_be_named(table_path: Path, asked: dict[str, str]) -> None:
    bl.save(rows("x", city="Kyiv"), str(table_path), options=OPTIONS)
    options = OPTIONS | asked | {"hoodie.datasource.write.operation": "delete_partition"}
    with pytest.raises(ConfigError, match="list of partition paths"):
        bl.save(rows("x", city="Kyiv"), str(table_path), options=options)
    assert ids_of(table_path) == ["x"]


DELETES = [
    {"hoodie.datasource.write.operation": "delete"},
    {
        "hoodie.datasource.write.operation": "delete_partition",
        "hoodie.datasource.write.partitions.to.delete": "Bonn",
    },
]


@pytest.mark.parametrize("deletes", DELETES, ids=["delete", "delete_partition"])
def test_a_delete_is_no_overwrite(table_path: Path, deletes: dict[str, str]) -> None:
    bl.save(rows("a", "b"), str(table_path), options=OPTIONS)
    for mode in ("overwrite", "ignore", "errorifexists"):
        with pytest.raises(ConfigError, match="needs 'append'"):
            bl.save(rows("a"), str(table_path), mode=mode, options=OPTIONS | deletes)
    assert ids_of(table_path) == ["a", "b"]


@pytest.mark.parametrize("deletes", DELETES, ids=["delete", "delete_partition"])
def test_a_delete_makes_no_table(table_path: Path, deletes: dict[str, str]) -> None:
    with pytest.raises(TableNotFoundError):
        bl.save(rows("a"), str(table_path), options=OPTIONS | deletes)
    assert not table_path.exists()


@pytest.mark.parametrize("mode", ["ignore", "errorifexists"])
def test_a_job_that_failed_on_its_first_rows_writes_when_it_runs_again(
    table_path: Path, mode: str
) -> None:
    bad = rows("a", "b").set_column(0, "id", pa.array(["a", None]))
    with pytest.raises(InputError):
        bl.save(bad, str(table_path), mode=mode, options=OPTIONS)
    assert bl.save(rows("a", "b"), str(table_path), mode=mode, options=OPTIONS).inserted == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.index.type", "BLOOM"),
        ("hoodie.index.bucket.engine", "LINEAR_HASHING"),
        ("hoodie.clustering.inline", "true"),
        ("hoodie.clustering.schedule.inline", "true"),
        ("hoodie.clustering.async.enabled", "true"),
        ("hoodie.datasource.write.table.type", "MERGE_ON_WRITE"),
        ("hoodie.compact.inline.max.delta.commits", "0"),
        ("hoodie.keep.min.commits", "0"),
        ("hoodie.keep.max.commits", "20"),
        ("hoodie.logfile.data.block.format", "hfile"),
        ("hoodie.write.concurrency.mode", "NON_BLOCKING_CONCURRENCY_CONTROL"),
        ("hoodie.metadata.record.level.index.enable", "true"),
        ("hoodie.datasource.write.operation", "merge"),
        ("hoodie.bucket.index.num.buckets", "many"),
    ],
)
def test_option_that_cannot_be_followed_is_refused_and_nothing_is_made(
    table_path: Path, key: str, value: str
) -> None:
    with pytest.raises(ConfigError, match=value):
        bl.save(rows("a"), str(table_path), options=OPTIONS | {key: value})
    assert not table_path.exists()


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        ({}, 4),
        ({"hoodie.archive.automatic": "true"}, 4),
        ({"hoodie.keep.min.commits": "1", "hoodie.keep.max.commits": "2"}, 2),
        (
            {
                "hoodie.archive.automatic": "false",
                "hoodie.keep.min.commits": "1",
                "hoodie.keep.max.commits": "2",
            },
            4,
        ),
    ],
)
def test_old_instants_are_archived_where_the_options_ask_for_it(
    table_path: Path, asked: dict[str, str], left: int
) -> None:
    for at in range(4):
        bl.save(rows("a", at=at), str(table_path), options=OPTIONS | asked)
    assert len(bl.open_table(str(table_path)).timeline()) == left


@pytest.mark.parametrize(
    ("asked", "files"),
    [
        ({}, 6),
        ({"hoodie.clean.automatic": "false", "hoodie.clean.commits.retained": "1"}, 6),
        ({"hoodie.clean.automatic": "true"}, 6),
        ({"hoodie.clean.automatic": "true", "hoodie.cleaner.commits.retained": "1"}, 2),
        (
            {
                "hoodie.clean.automatic": "true",
                "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
                "hoodie.clean.fileversions.retained": "4",
            },
            4,
        ),
        ({"hoodie.clean.automatic": "true", "hoodie.cleaner.policy": "keep_latest_by_hours"}, 6),
    ],
)
def test_a_write_is_followed_by_a_clean_where_the_job_asks_for_one(
    table_path: Path, asked: dict[str, str], files: int
) -> None:
    for at in range(6):
        bl.save(rows("a", at=at), str(table_path), options=OPTIONS | asked)
    assert len([*table_path.glob("Bonn/*.parquet")]) == files
    assert ids_of(table_path) == ["a"]


@pytest.mark.parametrize(
    "error", [LockError("a lock", "somebody", 1.0), OSError("a lock"), pa.ArrowInvalid("a lock")]
)
def test_a_clean_that_fails_after_the_write_is_told_and_the_write_is_not_said_to_have_failed(
    table_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    breaks(monkeypatch, bl.Table, "clean", error)
    cleaning = {**OPTIONS, "hoodie.clean.automatic": "true"}
    with pytest.warns(ServiceWarning, match=r"committed \(instant 2.*a lock"):
        assert bl.save(rows("a"), str(table_path), options=cleaning).instant is not None
    assert ids_of(table_path) == ["a"]


@pytest.mark.parametrize(
    ("key", "value"),
    [("hoodie.clean.policy", "KEEP_ALL"), ("hoodie.clean.commits.retained", "0")],
)
def test_a_clean_that_cannot_be_done_is_refused_before_the_write(
    table_path: Path, key: str, value: str
) -> None:
    options = OPTIONS | {"hoodie.clean.automatic": "true", key: value}
    with pytest.raises(ConfigError, match=value):
        bl.save(rows("a"), str(table_path), options=options)
    assert not table_path.exists()


@pytest.mark.parametrize(
    "key",
    ["hoodie.keep.min.commits", "hoodie.clean.commits.retained",
     "hoodie.compact.inline.max.delta.commits"],
)  # fmt: skip
def test_a_number_that_was_left_empty_is_refused_before_the_write(
    table_path: Path, key: str
) -> None:
    options = OPTIONS | {"hoodie.clean.automatic": "true", key: ""}
    with pytest.raises(ConfigError, match=f"{key} = '' .*whole number"):
        bl.save(rows("a"), str(table_path), options=options)
    assert not table_path.exists()


WITHOUT_INDEX = {key: text for key, text in OPTIONS.items() if "index" not in key}
QUICKSTART = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.table.name": "trips",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.datasource.write.precombine.field": "at",
    "hoodie.upsert.shuffle.parallelism": 2,
    "hoodie.insert.shuffle.parallelism": 2,
}
"""The options of Hudi's quickstart page."""


@pytest.mark.parametrize(
    "options",
    [
        QUICKSTART,
        WITHOUT_INDEX | {"hoodie.storage.layout.type": "DEFAULT", "hoodie.metadata.enable": "true"},
        WITHOUT_INDEX | {"hoodie.index.type": "", "hoodie.index.bucket.engine": " "},
        WITHOUT_INDEX | {"hoodie.bucket.index.num.buckets": " "},
        WITHOUT_INDEX | {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": ""},
        WITHOUT_INDEX | {"hoodie.index.type": "bucket", "hoodie.index.bucket.engine": "simple"},
    ],
)
def test_options_that_leave_the_index_open_make_a_table_of_the_default_kind_and_say_so(
    table_path: Path, options: dict[str, str]
) -> None:
    with pytest.warns(UserWarning, match=r"name no index: .* DynamicBucket\(\)") as told:
        bl.save(rows("a", "b"), str(table_path), options=options)
    assert told[0].filename == __file__
    with warnings.catch_warnings(action="error"):
        assert bl.save(rows("b", "c"), str(table_path), options=options).inserted == 1
    assert bl.open_table(str(table_path)).index == bl.DynamicBucket()


def test_options_that_leave_the_index_open_take_that_of_the_table(table_path: Path) -> None:
    bl.save(rows("a", "b"), str(table_path), options=OPTIONS)
    with warnings.catch_warnings(action="error"):
        assert bl.save(rows("b", at=2), str(table_path), options=QUICKSTART).updated == 1
    assert bl.open_table(str(table_path)).index == bl.SimpleBucket(4)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"hoodie.bucket.index.num.buckets": "4"}, "hoodie.index.type"),
        ({"hoodie.index.bucket.engine": "CONSISTENT_HASHING"}, "hoodie.index.type"),
        (
            {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.partition.expressions": "x,2"},
            "hoodie.bucket.index.num.buckets",
        ),
        (
            {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.hash.field": "id"},
            "hoodie.bucket.index.num.buckets",
        ),
        (
            {"hoodie.index.type": "BUCKET", "hoodie.index.bucket.engine": "CONSISTENT_HASHING"},
            "hoodie.bucket.index.num.buckets",
        ),
    ],
)
def test_options_that_name_half_an_index_are_refused(
    table_path: Path, options: dict[str, str], key: str
) -> None:
    with pytest.raises(ConfigError, match=key):
        bl.save(rows("a"), str(table_path), options=WITHOUT_INDEX | options)
    assert not table_path.exists()


def test_tuning_is_passed_over_in_silence_and_unknown_options_are_named(table_path: Path) -> None:
    tuning = {
        "hoodie.upsert.shuffle.parallelism": "200",
        "hoodie.parquet.max.file.size": "1",
        "hoodie.clean.commits.retained": "3",
        "hoodie.cleaner.policy": "KEEP_LATEST_COMMITS",
    }
    with warnings.catch_warnings(action="error"):
        bl.save(rows("a"), str(table_path), options=OPTIONS | tuning)
    with pytest.warns(UserWarning, match=r"hoodie\.tabel\.name"):
        bl.save(rows("b"), str(table_path), options=OPTIONS | {"hoodie.tabel.name": "x"})


def test_a_maximum_size_of_files_has_effect_without_a_warning(table_path: Path) -> None:
    size = {"hoodie.bucket.index.ext.max.file.size": str(64 << 20)}
    with warnings.catch_warnings(action="error"):
        bl.save(rows("a"), str(table_path), options=OPTIONS | size)
    index = bl.open_table(str(table_path)).index
    assert isinstance(index, bl.SimpleBucket)
    assert index.max_file_size == 64 << 20


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("hoodie.table.name", "other", ConfigError),
        ("hoodie.datasource.write.recordkey.field", "at", ConfigError),
        ("hoodie.datasource.write.partitionpath.field", "id", ConfigError),
        ("hoodie.bucket.index.num.buckets", "8", IndexStateError),
        ("hoodie.datasource.write.hive_style_partitioning", "true", ConfigError),
        ("hoodie.datasource.write.partitionpath.urlencode", "true", ConfigError),
        ("hoodie.datasource.write.keygenerator.type", "COMPLEX", ConfigError),
    ],
)
def test_option_that_contradicts_the_table_is_refused(
    table_path: Path, key: str, value: str, error: type[BucketLakeError]
) -> None:
    bl.save(rows("a"), str(table_path), options=OPTIONS)
    with pytest.raises(error):
        bl.save(rows("b"), str(table_path), options=OPTIONS | {key: value})
    assert ids_of(table_path) == ["a"]


def test_an_error_spells_what_contradicts_the_table_as_options_do(table_path: Path) -> None:
    bl.save(rows("a"), str(table_path), options=OPTIONS)
    options = OPTIONS | {"hoodie.datasource.write.table.type": "MERGE_ON_READ"}
    said = "'MERGE_ON_READ' .* has 'COPY_ON_WRITE'; use this value, or omit the option"
    with pytest.raises(ConfigError, match=said):
        bl.save(rows("a"), str(table_path), options=options)


@pytest.mark.parametrize("argument", ["url_encode", "hive_style"])
def test_another_spelling_of_partition_paths_needs_a_new_table_as_the_error_says(
    table_path: Path, argument: str
) -> None:
    option = OPTION_OF_ARGUMENT[argument]
    bl.save(rows("a", "b", city="Bad=Ems"), str(table_path), options=OPTIONS)
    options = OPTIONS | {option: "true"}
    said = f"{option} = True .*new table: create_table with {argument}=True.*, then bulk_insert"
    with pytest.raises(ConfigError, match=said):
        bl.save(rows("c"), str(table_path), options=options)
    old, path = bl.open_table(str(table_path)), str(table_path / "../new")
    new = bl.create_table(
        path,
        schema=old.schema(),
        record_key="id",
        partition_by="city",
        ordering="at",
        name="trips",
        index=bl.SimpleBucket(4),
        url_encode=argument == "url_encode",
        hive_style=argument == "hive_style",
    )
    assert new.bulk_insert(old.to_arrow()).inserted == 2
    assert bl.save(rows("b", "c", at=2, city="Bad=Ems"), path, options=options).updated == 1
    assert ids_of(Path(path)) == ["a", "b", "c"]
    partition = {"url_encode": "Bad%3DEms", "hive_style": "city=Bad=Ems"}[argument]
    assert {bucket.partition_path for bucket in new.buckets()} == {partition}


def test_table_is_made_with_the_key_generator_of_the_options(table_path: Path) -> None:
    generator = "org.apache.hudi.keygen.ComplexKeyGenerator"
    options = OPTIONS | {"hoodie.datasource.write.keygenerator.class": generator}
    bl.save(rows("a"), str(table_path), options=options)
    table = bl.open_table(str(table_path))
    assert table.config().key_spec.generator.value == "COMPLEX"
    assert table.to_arrow(columns=["_hoodie_record_key"]).to_pydict() == {
        "_hoodie_record_key": ["id:a"]
    }


def test_key_generator_of_somebodys_own_is_refused(table_path: Path) -> None:
    options = OPTIONS | {"hoodie.datasource.write.keygenerator.class": "com.example.MyKeyGenerator"}
    with pytest.raises(UnsupportedFeatureError, match="MyKeyGenerator"):
        bl.save(rows("a"), str(table_path), options=options)
    assert not table_path.exists()


def test_overwrite_replaces_all_rows_and_keeps_the_history(table_path: Path) -> None:
    first = bl.save(rows("a", "b"), str(table_path), options=OPTIONS)
    bl.save(rows("c"), str(table_path), mode="overwrite", options=OPTIONS)
    assert ids_of(table_path) == ["c"]
    before = bl.open_table(str(table_path)).to_arrow(as_of=first.instant)
    assert sorted(before["id"].to_pylist()) == ["a", "b"]


def test_modes_for_a_table_that_is_there_are_those_of_spark(table_path: Path) -> None:
    bl.save(rows("a"), str(table_path), mode="errorifexists", options=OPTIONS)
    assert bl.save(rows("b"), str(table_path), mode="ignore", options=OPTIONS).instant is None
    for mode in ("error", "errorifexists"):
        with pytest.raises(AlreadyExistsError, match="write with mode='append' or 'overwrite'"):
            bl.save(rows("b"), str(table_path), mode=mode, options=OPTIONS)
    with pytest.raises(ConfigError, match="mode"):
        bl.save(rows("b"), str(table_path), mode="merge", options=OPTIONS)
    assert ids_of(table_path) == ["a"]


def test_metadata_table_goes_where_the_options_turn_it_off(golden_table) -> None:
    path = golden_table("cow_metadata_table")
    held = bl.open_table(str(path))
    spec = held.config().key_spec
    options = {
        "hoodie.table.name": held.config().name,
        "hoodie.datasource.write.recordkey.field": ",".join(spec.record_key_fields),
        "hoodie.datasource.write.partitionpath.field": ",".join(spec.partition_fields),
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "2",
    }
    batch = held.to_arrow()
    assert bl.save(batch, str(path), options=options).updated == batch.num_rows
    assert held.config().metadata_partitions == ("files",)
    result = bl.save(batch, str(path), options=options | {"hoodie.metadata.enable": "false"})
    assert result.updated == batch.num_rows
    assert held.config().metadata_partitions == ()


USUAL = ("column_stats", "files", "partition_stats")


@pytest.mark.parametrize(("option", "partitions"), [(None, USUAL), ("true", USUAL), ("false", ())])
def test_new_table_has_a_metadata_table_unless_the_options_turn_it_off(
    table_path: Path, option: str | None, partitions: tuple[str, ...]
) -> None:
    options = OPTIONS if option is None else OPTIONS | {"hoodie.metadata.enable": option}
    bl.save(rows("a"), str(table_path), options=options)
    assert bl.open_table(str(table_path)).config().metadata_partitions == partitions


def test_missing_metadata_table_is_built_only_if_the_options_turn_it_on(table_path: Path) -> None:
    bl.save(rows("a"), str(table_path), options=OPTIONS | {"hoodie.metadata.enable": "false"})
    bl.save(rows("b"), str(table_path), options=OPTIONS)
    held = bl.open_table(str(table_path))
    assert held.config().metadata_partitions == ()
    bl.save(rows("c"), str(table_path), options=OPTIONS | {"hoodie.metadata.enable": "true"})
    assert held.config().metadata_partitions == USUAL
    assert ids_of(table_path) == ["a", "b", "c"]


def test_metadata_option_that_is_neither_true_nor_false_is_rejected(table_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"hoodie\.metadata\.enable"):
        bl.save(rows("a"), str(table_path), options=OPTIONS | {"hoodie.metadata.enable": "no"})
    assert not table_path.exists()


# ---- hash rings ----------------------------------------------------------------------------------

RINGS = {
    **OPTIONS,
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.bucket.index.max.num.buckets": "8",
    "hoodie.parquet.max.file.size": "1000",
}
MANY = rows(*(f"id-{number}" for number in range(60)))


def resizes(path: Path) -> list[str]:
    """Return the states of the resizes on the timeline."""
    return [
        "done" if instant.completed_at else "planned"
        for instant in bl.open_table(str(path)).timeline()
        if instant.action.value in ("clustering", "replacecommit")
    ]


def test_a_job_with_the_engine_of_hash_rings_makes_such_a_table(table_path: Path) -> None:
    with warnings.catch_warnings(action="error"):
        bl.save(MANY, str(table_path), options=RINGS)
    assert bl.open_table(str(table_path)).index == bl.ConsistentBucket(2, max=8)
    assert resizes(table_path) == []


@pytest.mark.parametrize(
    "named",
    [
        {"hoodie.index.bucket.engine": "EXTENDIBLE_HASHING"},
        {"hoodie.bucket.index.ext.engine": "extendible_hashing"},
    ],
)
def test_a_job_with_the_engine_of_extendible_hashing_makes_such_a_table(
    table_path: Path, named: dict[str, str]
) -> None:
    depth = {"hoodie.bucket.index.ext.extendible.max.depth": "5"}
    with warnings.catch_warnings(action="error"):
        bl.save(MANY, str(table_path), options=OPTIONS | named | depth | INLINE)
        limits = {"hoodie.clustering.inline.max.commits": "1", "hoodie.parquet.max.file.size": "1"}
        bl.save(MANY, str(table_path), options=OPTIONS | named | INLINE | limits)
    table = bl.open_table(str(table_path))
    assert table.index == bl.ExtendibleBucket(4, max_depth=5)
    assert resizes(table_path) == ["done"]
    assert max(len(bucket.hash_suffix or "") for bucket in table.buckets()) > 2
    with pytest.warns(UserWarning, match="max.num.buckets"):
        bl.save(MANY, str(table_path), options=OPTIONS | named | {RINGS_MAX: "8"})
    with pytest.raises(IndexStateError, match="give the options of the table"):
        bl.save(MANY, str(table_path), options=OPTIONS)


RINGS_MAX = "hoodie.bucket.index.max.num.buckets"
INLINE = {"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "2"}
SCHEDULE = {
    "hoodie.clustering.schedule.inline": "true",
    "hoodie.clustering.async.max.commits": "2",
}


@pytest.mark.parametrize(("asked", "state"), [(INLINE, "done"), (SCHEDULE, "planned")])
def test_a_resize_follows_the_write_after_as_many_commits_as_the_job_says(
    table_path: Path, asked: dict[str, str], state: str
) -> None:
    for at, expected in enumerate([[], [state], [state]]):
        bl.save(rows(*MANY["id"].to_pylist(), at=at), str(table_path), options=RINGS | asked)
        assert resizes(table_path) == expected
    assert len(ids_of(table_path)) == 60


def test_limits_of_a_resize_are_those_of_the_job(table_path: Path) -> None:
    limits = {
        "hoodie.clustering.inline": "true",
        "hoodie.clustering.inline.max.commits": "1",
        "hoodie.bucket.index.ext.split.policy": "balanced",
        "hoodie.clustering.plan.strategy.max.num.groups": "1",
        "hoodie.bucket.index.ext.resize.max.bytes": str(10 << 30),
        "hoodie.bucket.index.ext.resize.max.partitions": "1",
        "hoodie.bucket.index.split.threshold": "1.5",
        "hoodie.bucket.index.merge.threshold": "0.1",
    }
    with warnings.catch_warnings(action="error"):
        bl.save(MANY, str(table_path), options=RINGS | limits)
    assert len(bl.open_table(str(table_path)).buckets()) == 3  # One of two was split.


def test_a_file_size_without_a_clustering_option_resizes_nothing(table_path: Path) -> None:
    bl.save(MANY, str(table_path), options=RINGS)
    bl.save(MANY, str(table_path), options=RINGS)
    assert resizes(table_path) == []


HUDI_CLUSTERING = "org.apache.hudi.client.clustering"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("updates.strategy", "update.strategy.SparkConsistentBucketDuplicateUpdateStrategy"),
        ("plan.strategy.class", "plan.strategy.SparkConsistentBucketClusteringPlanStrategy"),
        (
            "execution.strategy.class",
            "run.strategy.SingleSparkJobConsistentHashingExecutionStrategy",
        ),
        (
            "execution.strategy.class",
            "run.strategy.SparkConsistentBucketClusteringExecutionStrategy",
        ),
    ],
)
def test_classes_of_this_engine_are_accepted(table_path: Path, key: str, value: str) -> None:
    named = {f"hoodie.clustering.{key}": f"{HUDI_CLUSTERING}.{value}"}
    with warnings.catch_warnings(action="error"):
        bl.save(MANY, str(table_path), options=RINGS | named)
    with pytest.warns(UserWarning, match=key):  # It is no option of the other engine.
        bl.save(MANY, f"{table_path}-simple", options=OPTIONS | named)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"hoodie.clustering.async.enabled": "true"}, "save starts no service"),
        (
            {"hoodie.clustering.inline": "true", "hoodie.clustering.schedule.inline": "true"},
            "only one of it and hoodie.clustering.inline",
        ),
        (
            {"hoodie.clustering.updates.strategy": "a.SparkRejectUpdateStrategy"},
            "SparkConsistentBucketDuplicateUpdateStrategy",
        ),
        (
            {"hoodie.clustering.plan.strategy.class": "a.SparkSizeBasedClusteringPlanStrategy"},
            "SparkConsistentBucketClusteringPlanStrategy",
        ),
        ({"hoodie.clustering.inline": "yes"}, "one of false, true"),
        ({**INLINE, "hoodie.bucket.index.split.threshold": "-1"}, "must be a number"),
        ({**INLINE, "hoodie.bucket.index.merge.threshold": "1.5"}, "at most half"),
        ({**INLINE, "hoodie.parquet.max.file.size": "0"}, "whole number"),
        ({**INLINE, "hoodie.bucket.index.ext.split.policy": "KEYS"}, "MIDDLE, BALANCED"),
        ({"hoodie.bucket.index.max.num.buckets": "many"}, "number of buckets"),
    ],
)
def test_a_resize_that_cannot_be_done_is_refused_before_the_write(
    table_path: Path, asked: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        bl.save(MANY, str(table_path), options=RINGS | asked)
    assert not table_path.exists()


def test_limits_that_a_job_leaves_out_are_those_of_the_table(table_path: Path) -> None:
    bl.save(MANY, str(table_path), options=RINGS)
    less = {k: v for k, v in RINGS.items() if k != "hoodie.bucket.index.max.num.buckets"}
    bl.save(MANY, str(table_path), options=less)
    other = {**RINGS, "hoodie.bucket.index.max.num.buckets": "9"}
    with pytest.raises(IndexStateError, match="max=9"):
        bl.save(MANY, str(table_path), options=other)


def test_options_of_hash_rings_are_unknown_to_the_other_engine(table_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"max\.num\.buckets.*split\.threshold"):
        bl.save(
            rows("a"),
            str(table_path),
            options=OPTIONS
            | {
                "hoodie.bucket.index.max.num.buckets": "8",
                "hoodie.bucket.index.split.threshold": "2.0",
            },
        )


def test_a_job_of_the_other_engine_does_not_write_to_hash_rings(table_path: Path) -> None:
    bl.save(MANY, str(table_path), options=RINGS)
    with pytest.raises(IndexStateError, match="ConsistentBucket"):
        bl.save(
            MANY,
            str(table_path),
            options=OPTIONS | {"hoodie.bucket.index.num.buckets": "2"},
        )


def test_a_resize_that_fails_after_the_write_is_told(
    table_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch, bl.Table, "resize", LockError("a lock", "somebody", 1.0))
    with pytest.warns(ServiceWarning, match=r"committed \(instant 2.*resize\(\)"):
        bl.save(MANY, str(table_path), options=RINGS | INLINE)
    assert len(ids_of(table_path)) == 60


def with_note(batch: pa.Table) -> pa.Table:
    return batch.append_column("note", pa.array(["x"] * batch.num_rows))


@pytest.mark.parametrize(
    ("options", "merge_schema"),
    [
        ({}, "add_columns"),
        ({"hoodie.datasource.write.reconcile.schema": "true"}, False),
        ({"mergeSchema": "true"}, False),
        ({"MERGESCHEMA": "True"}, False),
    ],
)
def test_a_job_adds_columns_only_where_it_asks_to(
    table_path: Path, options: dict[str, str], merge_schema: bool | str
) -> None:
    bl.save(rows("a"), str(table_path), options=OPTIONS)
    wider = with_note(rows("b"))
    for held in ({}, {"hoodie.write.set.null.for.missing.columns": "true"}):
        with pytest.raises(InputError, match=r"column note: .*merge_schema='add_columns'"):
            bl.save(wider, str(table_path), options=OPTIONS | held)
    bl.save(wider, str(table_path), options=OPTIONS | options, merge_schema=merge_schema)
    assert bl.open_table(str(table_path)).schema().names[-1] == "note"


def test_a_job_writes_nulls_to_missing_columns_only_where_it_asks_to(table_path: Path) -> None:
    bl.save(with_note(rows("a")), str(table_path), options=OPTIONS)
    with pytest.raises(InputError, match=r"column note: .*merge_schema='fill_missing'"):
        bl.save(rows("b"), str(table_path), options=OPTIONS)
    asked = OPTIONS | {"hoodie.write.set.null.for.missing.columns": "true"}
    bl.save(rows("b"), str(table_path), options=asked)
    notes = bl.open_table(str(table_path)).to_arrow(columns=["id", "note"])
    assert notes.sort_by("id")["note"].to_pylist() == ["x", None]


def test_a_word_that_is_no_change_of_a_schema_is_refused_before_a_table_is_made(
    table_path: Path,
) -> None:
    for wrong in ("overwrite", ["add_columns", "all"], 1, None):
        with pytest.raises(ConfigError, match=r"merge_schema.*add_columns, widen_types"):
            bl.save(rows("a"), str(table_path), options=OPTIONS, merge_schema=wrong)
    assert not table_path.exists()


def test_the_flag_of_deletes_in_the_first_rows_makes_no_column(table_path: Path) -> None:
    flagged = rows("a", "b").append_column("_hoodie_is_deleted", pa.array([True, False]))
    bl.save(flagged, str(table_path), options=OPTIONS)
    assert ids_of(table_path) == ["b"]
    assert bl.open_table(str(table_path)).schema().names == ["id", "city", "at"]


INSERT = {"hoodie.datasource.write.operation": "insert"}
POLICY = "hoodie.datasource.insert.dup.policy"


@pytest.mark.parametrize(
    "given",
    [
        {"hoodie.datasource.write.insert.drop.duplicates": "true"},
        {POLICY: "DROP"},
        {**INSERT, POLICY: "drop"},
    ],
)
def test_an_insert_that_drops_duplicates_leaves_stored_records(
    table_path: Path, given: dict[str, str]
) -> None:
    """Also if the option comes with Hudi's default operation, which is upsert."""
    for batch in (rows("a", "b"), rows("b", "c", at=2)):
        bl.save(batch, str(table_path), options=OPTIONS | given)
    table = bl.open_table(str(table_path))
    found = {row["id"]: row["at"] for row in table.to_arrow().to_pylist()}
    assert found == {"a": 1, "b": 1, "c": 2}
    assert table.timeline()[-1].operation == "INSERT"
    with pytest.raises(InputError, match="'b' is stored already"):
        bl.save(rows("b", at=3), str(table_path), options=OPTIONS | INSERT | {POLICY: "fail"})
    with pytest.raises(ConfigError, match=r"dup\.policy.*did you mean 'drop'"):
        bl.save(rows("d"), str(table_path), options=OPTIONS | INSERT | {POLICY: "drops"})
    assert ids_of(table_path) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "key", ["hoodie.datasource.hive_sync.enable", "hoodie.datasource.meta.sync.enable"]
)
def test_a_job_that_syncs_a_catalog_without_its_address_is_told_how(
    table_path: Path, key: str
) -> None:
    with pytest.warns(UserWarning, match=rf"{key} names no catalog.*bl\.sync\("):
        assert bl.save(rows("a"), str(table_path), options=OPTIONS | {key: "true"}).inserted == 1
