"""The table of options has each option of Hudi, and says what becomes of it."""

from __future__ import annotations

import re

import pytest

from bucketlake.config.hudi_options import (
    Rule,
    accepted_options,
    hudi_options,
    option_names,
    unknown_option,
)
from bucketlake.config.write_options import parse_job_options
from bucketlake.errors import BucketLakeError, ConfigError
from tests.golden.options.make_config_properties import read_listing

DECLARED = read_listing()
OF_BUCKETLAKE = re.compile(
    r"mergeSchema|hoodie\.bucket\.index\.(ext|dynamic)\..*|hoodie\.bucket\.index\.partition\.rule"
)
READ_BY_NAME = {
    "hoodie.payload.delete.field",
    "hoodie.payload.delete.marker",
    "hoodie.payload.update.on.same.ordering.field",
    "hoodie.record.merge.property.hoodie.payload.delete.field",
    "hoodie.record.merge.property.hoodie.payload.delete.marker",
    "hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value",
    "hoodie.write.partial.update.unavailable.value",
    "hoodie.archive.limit.instants",
    "hoodie.auto.commit",
    "hoodie.bulkinsert.are.partitioner.records.sorted",
    "hoodie.fileIndex.dataSkippingFailureMode",
    "hoodie.metadata.fallback.enable",
    "hoodie.metadata.index.partition.stats.enable",
    "hoodie.query.as.ro.table",
    "hoodie.write.lock.dynamodb.partition_key",
    "hoodie.streamer.transformer.class",
    "hoodie.streamer.transformer.sql",
    "hoodie.deltastreamer.transformer.class",
    "hoodie.deltastreamer.transformer.sql",
}
"""Options of Hudi that its classes read by name, without a ``ConfigProperty``."""

REFUSED = [option for option in hudi_options().values() if option.rule is Rule.REFUSED]


def test_table_has_each_option_that_hudi_declares() -> None:
    assert [one["key"] for one in DECLARED if one["key"] not in option_names()] == []


def test_table_has_each_other_name_that_hudi_declares() -> None:
    names = {name for one in DECLARED for name in one["alternatives"].split(",") if name}
    assert names - {*option_names()} == set()
    for one in DECLARED:
        same = {option_names()[name] for name in filter(None, one["alternatives"].split(","))}
        if one["key"] != "hoodie.base.file.format":  # Two options of Hudi share an old name.
            assert same <= {option_names()[one["key"]]}


def test_table_has_no_option_that_is_neither_of_hudi_nor_of_bucketlake() -> None:
    declared = {one["key"] for one in DECLARED} | READ_BY_NAME
    assert [k for k in hudi_options() if k not in declared and not OF_BUCKETLAKE.fullmatch(k)] == []


def test_no_name_belongs_to_two_options() -> None:
    names = [n for option in hudi_options().values() for n in (option.key, *option.other_names)]
    assert len({*names}) == len(names)


def test_default_of_hudi_is_accepted_for_each_option() -> None:
    for declared in DECLARED:
        assert accepted_options({declared["key"]: declared["default"]})


@pytest.mark.parametrize("option", REFUSED, ids=lambda option: option.key)
def test_refused_option_is_an_error_with_a_next_step(option) -> None:
    assert len(option.text) > 10
    with pytest.raises(ConfigError, match=re.escape(option.text)):
        accepted_options({option.key: "com.example.Other"})
    for value in option.values:
        assert accepted_options({option.key: value.lower()}) == {option.key: value.lower()}


def test_used_options_say_what_they_mean_and_tuning_options_need_not() -> None:
    for option in hudi_options().values():
        assert bool(option.text) is (option.rule is not Rule.TUNING), option.key
        assert not option.values or option.rule is Rule.REFUSED, option.key


@pytest.mark.parametrize(
    ("stronger", "weaker"),
    [
        ("hoodie.table.ordering.fields", "hoodie.datasource.write.precombine.field"),
        ("hoodie.table.ordering.fields", "hoodie.table.precombine.field"),
        ("hoodie.table.precombine.field", "hoodie.datasource.write.precombine.field"),
        ("hoodie.datasource.write.recordkey.field", "hoodie.table.recordkey.fields"),
        ("hoodie.table.name", "hoodie.datasource.write.table.name"),
        ("hoodie.datasource.write.table.type", "hoodie.datasource.write.storage.type"),
        ("hoodie.datasource.write.storage.type", "hoodie.table.type"),
        (
            "hoodie.keygen.timebased.output.dateformat",
            "hoodie.deltastreamer.keygen.timebased.output.dateformat",
        ),
    ],
)
def test_stronger_name_counts_as_in_hudi(stronger: str, weaker: str) -> None:
    """As real Hudi 1.2.0 stored the values when both were given."""
    for options in ({stronger: "a", weaker: "b"}, {weaker: "b", stronger: "a"}):
        assert [*accepted_options(options).values()] == ["a"]
    assert [*accepted_options({weaker: "b"}).values()] == ["b"]


def test_unknown_option_is_named_with_the_option_that_may_be_meant() -> None:
    assert unknown_option("hoodie.payload.delet.marker") == (
        "hoodie.payload.delet.marker (did you mean hoodie.payload.delete.marker?)"
    )
    assert unknown_option("com.example.depth") == "com.example.depth"


KEYS = {"hoodie.datasource.write.recordkey.field": "id"}
MODE = "hoodie.write.record.merge.mode"
STRATEGY = "hoodie.write.record.merge.strategy.id"
PAYLOAD = "hoodie.datasource.write.payload.class"
COMMIT_TIME_ID = "ce9acb64-bde0-424c-9b91-f6ebba25356d"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({MODE: "CUSTOM"}, "COMMIT_TIME_ORDERING or EVENT_TIME_ORDERING"),
        ({MODE: "NEWEST"}, "one of COMMIT_TIME_ORDERING"),
        ({STRATEGY: "11111111-1111-1111-1111-111111111111"}, "hoodie.write.record.merge.mode"),
        ({PAYLOAD: "com.example.Mine"}, "one of OverwriteWithLatest.*write this table with Hudi"),
        ({PAYLOAD: "com.example.AWSDmsAvroPayload"}, "payload class com.example"),
        ({"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}, f"give {PAYLOAD} instead"),
        (
            {
                PAYLOAD: "PartialUpdateAvroPayload",
                "hoodie.table.partial.update.mode": "FILL_UNAVAILABLE",
            },
            f"give {PAYLOAD} instead",
        ),
        ({PAYLOAD: "AWSDmsAvroPayload", MODE: "EVENT_TIME_ORDERING"}, "leave one of them out"),
        ({STRATEGY: COMMIT_TIME_ID, MODE: "EVENT_TIME_ORDERING"}, "leave one of them out"),
        ({"hoodie.payload.delete.field": "op"}, "delete.marker is missing"),
        ({"hoodie.payload.delete.marker": "D"}, "delete.field is missing"),
        (
            {
                PAYLOAD: "AWSDmsAvroPayload",
                "hoodie.payload.delete.field": "op",
                "hoodie.payload.delete.marker": "D",
            },
            "payload class means Op=D",
        ),
        (
            {PAYLOAD: "MySqlDebeziumAvroPayload", "hoodie.table.ordering.fields": "ts"},
            "orders by _event_bin_file,_event_pos; leave the option out",
        ),
        ({"hoodie.record.merge.mode": "EVENT_TIME_ORDERING"}, f"give {MODE} instead"),
        ({"hoodie.record.merge.strategy.id": "other"}, f"give {MODE} instead"),
        ({"hoodie.compaction.payload.class": "com.example.Mine"}, f"give {PAYLOAD} instead"),
        (
            {"hoodie.record.merge.property.hoodie.payload.delete.field": "op"},
            "give hoodie.payload.delete.field instead",
        ),
    ],
)
def test_option_that_would_change_the_winners_is_refused(
    options: dict[str, str], said: str
) -> None:
    with pytest.raises(BucketLakeError, match=said):
        parse_job_options(KEYS | options)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ("COMMIT_TIME_ORDERING", (), None)),
        ({"hoodie.table.ordering.fields": "ts"}, ("EVENT_TIME_ORDERING", ("ts",), None)),
        ({MODE: "event_time_ordering"}, ("EVENT_TIME_ORDERING", (), None)),
        ({STRATEGY: COMMIT_TIME_ID}, ("COMMIT_TIME_ORDERING", (), None)),
        ({"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"}, ("COMMIT_TIME_ORDERING", (), None)),
        (
            {PAYLOAD: "AWSDmsAvroPayload", "hoodie.table.ordering.fields": "ts"},
            ("COMMIT_TIME_ORDERING", ("ts",), ("Op", "D")),
        ),
        (
            {PAYLOAD: "org.apache.hudi.common.model.debezium.MySqlDebeziumAvroPayload"},
            (
                "EVENT_TIME_ORDERING",
                ("_event_bin_file", "_event_pos"),
                ("_change_operation_type", "d"),
            ),
        ),
        (
            {
                PAYLOAD: "PartialUpdateAvroPayload",
                "hoodie.table.partial.update.mode": "IGNORE_DEFAULTS",
            },
            ("EVENT_TIME_ORDERING", (), None),
        ),
        (
            {PAYLOAD: "PostgresDebeziumAvroPayload"},
            ("EVENT_TIME_ORDERING", ("_event_lsn",), ("_change_operation_type", "d")),
        ),
    ],
)
def test_job_says_who_wins_and_what_deletes(
    options: dict[str, str], expected: tuple[object, ...]
) -> None:
    merging = parse_job_options(KEYS | options).merging
    assert (merging.mode.value, merging.ordering_fields, merging.marker) == expected


def test_services_run_unless_the_job_turns_all_of_them_off() -> None:
    asked = KEYS | {"hoodie.clean.automatic": "true", "hoodie.keep.min.commits": "2"}
    on = parse_job_options(asked)
    off = parse_job_options(asked | {"hoodie.table.services.enabled": "false"})
    assert None not in (on.compact_after, on.archive_limits, on.retention)
    assert (off.compact_after, off.archive_limits, off.retention) == (None, None, None)
