"""What a table is, from its properties of any version."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace

import pytest

from bucketlake.config.table_config import TableConfig, is_whole, table_checksum
from bucketlake.errors import ConfigError
from bucketlake.model.keys import KeyGenerator, KeySpec, TimestampPartition
from bucketlake.model.table_type import ChangeLogMode, MergeMode, TableType

SPEC = KeySpec(("id",), ("region",), KeyGenerator.SIMPLE)
NEW_TABLE = TableConfig("trips", TableType.COPY_ON_WRITE, SPEC, MergeMode.EVENT_TIME, ("ts",))

V9 = {
    "hoodie.table.name": "trips",
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.table.version": "9",
    "hoodie.timeline.layout.version": "2",
    "hoodie.table.recordkey.fields": "id",
    "hoodie.table.partition.fields": "region",
    "hoodie.table.keygenerator.type": "SIMPLE",
    "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.table.ordering.fields": "ts",
}
KEYGEN = "org.apache.hudi.keygen"
MODEL = "org.apache.hudi.common.model"
V6_OF_0_15 = {  # As stored with the options of a merge-on-read table.
    "hoodie.table.name": "trips",
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.table.version": "6",
    "hoodie.timeline.layout.version": "1",
    "hoodie.archivelog.folder": "archived",
    "hoodie.table.recordkey.fields": "id,day",
    "hoodie.table.partition.fields": "region",
    "hoodie.table.keygenerator.class": "org.apache.hudi.keygen.ComplexAvroKeyGenerator",
    "hoodie.compaction.payload.class": f"{MODEL}.OverwriteWithLatestAvroPayload",
    "hoodie.compaction.record.merger.strategy": "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
    "hoodie.table.precombine.field": "ts",
}


def _config(properties: Mapping[str, str], **changes: str | None) -> TableConfig:
    """Read properties with some changed: dots are written as double underscores."""
    merged = dict(properties)
    for name, text in changes.items():
        merged.pop(key := name.replace("__", "."), None)
        if text is not None:
            merged[key] = text
    return TableConfig.from_properties(merged)


def test_new_table_comes_back_from_its_properties() -> None:
    config = TableConfig.from_properties(NEW_TABLE.to_properties())
    assert config == NEW_TABLE
    config.extra["mine"] = "1"
    assert TableConfig.from_properties(NEW_TABLE.to_properties()) == NEW_TABLE


def test_new_table_has_what_hudi_writes_for_version_9() -> None:
    assert NEW_TABLE.to_properties() == {
        "hoodie.table.name": "trips",
        "hoodie.table.type": "COPY_ON_WRITE",
        "hoodie.table.version": "9",
        "hoodie.table.initial.version": "9",
        "hoodie.timeline.layout.version": "2",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.archivelog.folder": "history",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.table.recordkey.fields": "id",
        "hoodie.table.partition.fields": "region",
        "hoodie.table.keygenerator.type": "SIMPLE",
        "hoodie.table.partition_extractor_class": (
            "org.apache.hudi.hive.SinglePartPartitionValueExtractor"
        ),
        "hoodie.datasource.write.hive_style_partitioning": "false",
        "hoodie.datasource.write.partitionpath.urlencode": "false",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.partition.metafile.use.base.format": "false",
        "hoodie.populate.meta.fields": "true",
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.table.multiple.base.file.formats.enable": "false",
        "hoodie.table.cdc.enabled": "false",
        "hoodie.table.format": "native",
        "hoodie.table.checksum": table_checksum({"hoodie.table.name": "trips"}),
    }


def test_every_setting_comes_back_from_the_properties() -> None:
    timestamp = TimestampPartition(
        "DATE_STRING", "yyyy/MM/dd", "DAYS", ("yyyy-MM-dd", "EEE, dd MMM yyyy"), "UTC", "Asia/Tokyo"
    )
    full = TableConfig(
        "trips",
        TableType.MERGE_ON_READ,
        KeySpec(
            ("id", "day"),
            ("region", "at"),
            KeyGenerator.CUSTOM,
            hive_style=True,
            url_encode=True,
            timestamp=timestamp,
            partition_field_kinds=("SIMPLE", "TIMESTAMP"),
        ),
        MergeMode.CUSTOM,
        ("ts", "seq"),
        database="lake",
        initial_version=8,
        timeline_timezone="LOCAL",
        timeline_path="t",
        history_path="h",
        archive_folder="a",
        create_schema='{"type": "record"}',
        metadata_partitions=("files", "record_index"),
        metadata_partitions_inflight=("column_stats",),
        base_file_format="ORC",
        multiple_base_file_formats=True,
        table_format="other",
        payload_class="com.example.Payload",
        merge_strategy_id="00000000-0000-0000-0000-000000000000",
        partial_update_mode="IGNORE_DEFAULTS",
        unavailable_value="not read",
        delete_field="op",
        delete_marker="D",
        bootstrap_base_path="s3://old",
        foreign_key_generator="USER_PROVIDED",
        partition_extractor="com.example.Extractor",
        populate_meta_fields=False,
        drop_partition_columns=True,
        partition_metafile_as_base_format=True,
        cdc_enabled=True,
        cdc_mode=ChangeLogMode.OP_KEY_ONLY,
        slash_separated_dates=True,
        legacy_payload_class="x",
        extra={"my.own": "y"},
    )
    plain = replace(full, foreign_key_generator=None)
    assert TableConfig.from_properties(plain.to_properties()) == plain
    foreign = TableConfig.from_properties(full.to_properties())
    assert foreign.foreign_key_generator == "USER_PROVIDED"
    assert pickle.loads(pickle.dumps(full)) == full


def test_smallest_table_of_hudi_is_understood() -> None:
    config = TableConfig.from_properties(V9)
    assert config == TableConfig(
        "trips",
        TableType.MERGE_ON_READ,
        SPEC,
        MergeMode.EVENT_TIME,
        ("ts",),
        initial_version=None,
        timeline_timezone="LOCAL",
        archive_folder="archived",
    )


def test_table_of_version_6_is_understood_in_its_old_spelling() -> None:
    config = TableConfig.from_properties(V6_OF_0_15)
    assert config.key_spec == KeySpec(("id", "day"), ("region",), KeyGenerator.COMPLEX)
    assert config.ordering_fields == ("ts",)
    assert config.merge_mode is MergeMode.COMMIT_TIME  # By its payload, whatever the strategy.


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hoodie__compaction__payload__class": f"{MODEL}.DefaultHoodieRecordPayload"},
        {"hoodie__table__keygenerator__class": f"{KEYGEN}.SimpleKeyGenerator"},
        {
            "hoodie__table__keygenerator__class": f"{KEYGEN}.NonpartitionedKeyGenerator",
            "hoodie__table__partition__fields": "",
        },
        {"hoodie__table__keygenerator__class": f"{KEYGEN}.GlobalDeleteKeyGenerator"},
    ],
)
def test_table_of_version_6_comes_back_as_hudi_0_15_spells_it(changes: dict[str, str]) -> None:
    config = _config(V6_OF_0_15, **changes)
    merged = V6_OF_0_15 | {key.replace("__", "."): text for key, text in changes.items()}
    rendered = config.to_properties()
    assert {key: rendered[key] for key in merged} == merged
    assert TableConfig.from_properties(rendered) == config
    of_newer = {
        "hoodie.record.merge.mode",
        "hoodie.record.merge.strategy.id",
        "hoodie.table.ordering.fields",
        "hoodie.table.keygenerator.type",
        "hoodie.table.initial.version",
        "hoodie.table.format",
        "hoodie.timeline.path",
        "hoodie.timeline.history.path",
    }
    assert not of_newer & rendered.keys()


def test_folders_follow_the_layout() -> None:
    new, old = TableConfig.from_properties(V9), TableConfig.from_properties(V6_OF_0_15)
    assert (new.timeline_folder, new.history_folder) == (
        ".hoodie/timeline",
        ".hoodie/timeline/history",
    )
    assert (old.timeline_folder, old.history_folder) == (".hoodie", ".hoodie/archived")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("hoodie__table__name", None),
        ("hoodie__table__name", " "),
        ("hoodie__timeline__layout__version", None),
        ("hoodie__table__version", "nine"),
        ("hoodie__table__version", "-1"),
        ("hoodie__table__type", "COPY_AND_PASTE"),
        ("hoodie__table__timeline__timezone", "CET"),
        ("hoodie__record__merge__mode", "NEWEST"),
        ("hoodie__populate__meta__fields", "yes"),
        ("bucketlake__ordering__groups", "city=at"),
        ("bucketlake__ordering__groups", '{"city": 3}'),
    ],
)
def test_entry_that_no_table_can_have_is_refused_by_its_key(key: str, text: str | None) -> None:
    with pytest.raises(ConfigError, match=key.replace("__", r"\.")):
        _config(V9, **{key: text})


def test_words_are_understood_in_any_case() -> None:
    config = _config(
        V9, hoodie__populate__meta__fields="FALSE", hoodie__table__type="copy_on_write"
    )
    assert not config.populate_meta_fields
    assert config.table_type is TableType.COPY_ON_WRITE


def test_no_partial_update_is_spelled_in_two_ways() -> None:
    assert _config(V9, hoodie__table__partial__update__mode="NONE").partial_update_mode is None


def test_entries_without_meaning_are_carried_along() -> None:
    config = _config(V9, my__own="1", hoodie__table__index__defs__path="x")
    assert config.extra == {"my.own": "1", "hoodie.table.index.defs.path": "x"}
    assert config.to_properties()["my.own"] == "1"


@pytest.mark.parametrize("mode", [MergeMode.COMMIT_TIME, MergeMode.EVENT_TIME])
def test_settings_are_the_same_in_another_version_and_back(mode: MergeMode) -> None:
    config = replace(_config(V9), merge_mode=mode, extra={})
    older = TableConfig.from_properties(config.in_version(8).to_properties())
    assert older.payload_class is not None
    assert older.merge_mode is mode
    newer = TableConfig.from_properties(older.in_version(9).to_properties())
    assert newer.legacy_payload_class == older.payload_class
    assert replace(newer, legacy_payload_class=None) == replace(
        config, metadata_partitions=(), metadata_partitions_inflight=()
    )


@pytest.mark.parametrize(
    ("payload", "strategy", "mode"),
    [
        (None, None, MergeMode.EVENT_TIME),
        (None, "ce9acb64-bde0-424c-9b91-f6ebba25356d", MergeMode.COMMIT_TIME),
        (None, "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5", MergeMode.EVENT_TIME),
        (None, "00000000-0000-0000-0000-000000000000", MergeMode.CUSTOM),
        ("org.apache.hudi.common.model.DefaultHoodieRecordPayload", None, MergeMode.EVENT_TIME),
        ("org.apache.hudi.common.model.PartialUpdateAvroPayload", None, MergeMode.CUSTOM),
        (
            "com.example.Payload",
            "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
            MergeMode.CUSTOM,
        ),
    ],
)
def test_merge_mode_of_version_6_follows_from_payload_then_strategy_then_ordering(
    payload: str | None, strategy: str | None, mode: MergeMode
) -> None:
    config = _config(
        V6_OF_0_15,
        hoodie__compaction__payload__class=payload,
        hoodie__compaction__record__merger__strategy=strategy,
    )
    assert config.merge_mode is mode


def test_merge_mode_without_any_hint_is_commit_time() -> None:
    config = _config(V9, hoodie__record__merge__mode=None, hoodie__table__ordering__fields=None)
    assert config.merge_mode is MergeMode.COMMIT_TIME


def test_strategy_counts_before_the_payload_from_version_8_on() -> None:
    config = _config(
        V9,
        hoodie__record__merge__mode=None,
        hoodie__table__version="8",
        hoodie__record__merge__strategy__id="ce9acb64-bde0-424c-9b91-f6ebba25356d",
        hoodie__compaction__payload__class="com.example.Payload",
    )
    assert config.merge_mode is MergeMode.COMMIT_TIME


@pytest.mark.parametrize(
    ("record_keys", "partitions", "generator"),
    [
        ("id", "region", KeyGenerator.SIMPLE),
        ("id", "", KeyGenerator.NON_PARTITION),
        ("id", None, KeyGenerator.NON_PARTITION),
        ("id,day", "", KeyGenerator.NON_PARTITION),
        ("id,day", "region", KeyGenerator.COMPLEX),
        ("id", "region,city", KeyGenerator.COMPLEX),
        ("id", "region:SIMPLE,at:TIMESTAMP", KeyGenerator.CUSTOM),
    ],
)
def test_generator_without_a_name_follows_from_the_fields(
    record_keys: str, partitions: str | None, generator: KeyGenerator
) -> None:
    config = _config(
        V9,
        hoodie__table__keygenerator__type=None,
        hoodie__table__recordkey__fields=record_keys,
        hoodie__table__partition__fields=partitions,
    )
    assert config.key_spec.generator is generator
    assert config.foreign_key_generator is None


@pytest.mark.parametrize(
    ("class_name", "generator"),
    [
        ("SimpleKeyGenerator", KeyGenerator.SIMPLE),
        ("ComplexAvroKeyGenerator", KeyGenerator.COMPLEX),
        ("TimestampBasedKeyGenerator", KeyGenerator.TIMESTAMP),
        ("TimestampBasedAvroKeyGenerator", KeyGenerator.TIMESTAMP),
        ("NonpartitionedKeyGenerator", KeyGenerator.NON_PARTITION),
        ("CustomKeyGenerator", KeyGenerator.CUSTOM),
    ],
)
def test_generator_is_known_by_its_java_class(class_name: str, generator: KeyGenerator) -> None:
    config = _config(
        V6_OF_0_15, hoodie__table__keygenerator__class=f"org.apache.hudi.keygen.{class_name}"
    )
    assert config.key_spec.generator is generator


@pytest.mark.parametrize("name", ["USER_PROVIDED", "com.example.MyKeyGenerator", "com.example.Own"])
def test_generator_of_somebody_else_keeps_its_name_and_prunes_nothing(name: str) -> None:
    config = _config(V9, hoodie__table__keygenerator__type=name)
    assert config.foreign_key_generator == name
    assert not config.paths_follow_keys


def test_kinds_of_partition_fields_are_taken_off_their_names() -> None:
    config = _config(
        V9,
        hoodie__table__keygenerator__type="CUSTOM",
        hoodie__table__partition__fields="region:simple, at:TIMESTAMP",
        hoodie__keygen__timebased__timestamp__type="UNIX_TIMESTAMP",
        hoodie__keygen__timebased__output__dateformat="yyyy-MM-dd",
        hoodie__keygen__timebased__timezone="Europe/Berlin",
    )
    assert config.key_spec.partition_fields == ("region", "at")
    assert config.key_spec.partition_field_kinds == ("SIMPLE", "TIMESTAMP")
    assert config.key_spec.timestamp == TimestampPartition(
        "UNIX_TIMESTAMP",
        "yyyy-MM-dd",
        input_timezone="Europe/Berlin",
        output_timezone="Europe/Berlin",
    )
    assert config.paths_follow_keys


@pytest.mark.parametrize(
    ("text", "delimiter", "formats"),
    [
        ("yyyy-MM-dd, yyyyMMdd,", None, ("yyyy-MM-dd", "yyyyMMdd")),
        ("EEE, dd MMM;yyyy", ";", ("EEE, dd MMM", "yyyy")),
        ("yyyy|MM", r"\|", ("yyyy", "MM")),
        (None, None, ()),
    ],
)
def test_input_formats_are_split_at_the_delimiter(
    text: str | None, delimiter: str | None, formats: tuple[str, ...]
) -> None:
    config = _config(
        V9,
        hoodie__table__keygenerator__type="TIMESTAMP",
        hoodie__keygen__timebased__timestamp__type="DATE_STRING",
        hoodie__keygen__timebased__output__dateformat="yyyy",
        hoodie__keygen__timebased__input__dateformat=text,
        hoodie__keygen__timebased__input__dateformat__list__delimiter__regex=delimiter,
    )
    assert config.key_spec.timestamp == TimestampPartition(
        "DATE_STRING", "yyyy", input_formats=formats
    )


def test_delimiter_that_is_no_expression_is_refused_by_its_key() -> None:
    with pytest.raises(ConfigError, match=r"list\.delimiter\.regex = '\['"):
        _config(
            V9,
            hoodie__table__keygenerator__type="TIMESTAMP",
            hoodie__keygen__timebased__timestamp__type="DATE_STRING",
            hoodie__keygen__timebased__output__dateformat="yyyy",
            hoodie__keygen__timebased__input__dateformat__list__delimiter__regex="[",
        )


def test_custom_generator_of_version_6_does_not_tell_its_paths() -> None:
    config = _config(
        V6_OF_0_15, hoodie__table__keygenerator__class="org.apache.hudi.keygen.CustomKeyGenerator"
    )
    assert not config.paths_follow_keys


@pytest.mark.parametrize(
    ("database", "name", "checksum"),
    [("", "cow", "121430431"), ("default", "pu", "3368304800"), ("", "t", "498511606")],
)
def test_checksum_is_that_of_hudi(database: str, name: str, checksum: str) -> None:
    properties = {"hoodie.table.name": name}
    if database:
        properties["hoodie.database.name"] = database
    assert table_checksum(properties) == checksum


def test_properties_are_whole_with_a_name_and_the_right_checksum() -> None:
    assert not is_whole({"hoodie.table.name": "cow"})
    assert not is_whole({"hoodie.table.name": "cow", "hoodie.table.version": "6"})
    assert is_whole({"hoodie.table.name": "cow", "hoodie.table.version": "3"})
    assert is_whole({"hoodie.table.name": "cow", "hoodie.table.checksum": "121430431"})
    assert not is_whole({"hoodie.table.name": "cow", "hoodie.table.checksum": "12143043"})
    assert not is_whole({"hoodie.table.checksum": "121430431"})
    assert not is_whole({})


def test_a_version_of_thousands_of_digits_is_no_number() -> None:
    with pytest.raises(ConfigError, match="must be a whole number") as refused:
        TableConfig.from_properties({"hoodie.table.name": "t", "hoodie.table.version": "9" * 5000})
    assert len(str(refused.value)) < 200
