"""Log files of archives up to table version 7."""

from __future__ import annotations

import io
import json
import struct
from dataclasses import replace
from typing import Any

import fastavro
import pytest

from bucketlake.errors import FormatError
from bucketlake.format.archive_file import (
    ArchivedState,
    archive_log_name,
    archive_log_number,
    decode_archive_log,
    encode_archive_log,
    states_of,
)
from bucketlake.format.avro.timeline_records import encode_record
from bucketlake.format.clean_metadata import (
    CleanPlan,
    decode_clean,
    encode_clean,
    encode_clean_plan,
)
from bucketlake.format.commit_metadata import decode_commit_metadata
from bucketlake.format.log_block import HeaderKey, log_blocks_of
from bucketlake.model.file_name import InstantTime
from tests.golden.objects import objects_of_table

PATH = ".commits_.archive.1_1-0-1"
STAT = {
    "fileId": "f-0",
    "path": "eu/f-0_0-0-0_10.parquet",
    "prevCommit": "null",
    "numWrites": 3,
    "runtimeStats": {"totalCreateTime": 7},
    "recordsStats": "a name that only JSON has",
}
COMMIT = json.dumps(
    {
        "partitionToWriteStats": {"eu": [STAT]},
        "compacted": False,
        "extraMetadata": {"schema": "{}"},
        "operationType": "INSERT",
    }
).encode()
STARTED = InstantTime("20")
CLEANED = CleanPlan("KEEP_LATEST_COMMITS", {"eu": ("a.parquet", "b.parquet")}, InstantTime("10"))
STATES = [
    ("10", "commit", "REQUESTED", b""),
    ("10", "commit", "INFLIGHT", b'{"partitionToWriteStats": {"eu": []}}'),
    ("10", "commit", "COMPLETED", COMMIT),
    ("20", "clean", "REQUESTED", encode_clean_plan(CLEANED, "/t")),
    ("20", "clean", "INFLIGHT", b""),
    (
        "20",
        "clean",
        "COMPLETED",
        encode_clean(CLEANED, started_at=STARTED, duration_ms=1),
    ),
    ("30", "compaction", "INFLIGHT", b""),
    ("30", "commit", "COMPLETED", b""),
]


def state(at: str, action: str, name: str, content: bytes) -> ArchivedState:
    changed_at = InstantTime(str(int(at) + 1 + ["REQUESTED", "INFLIGHT", "COMPLETED"].index(name)))
    return ArchivedState(InstantTime(at), action, name, changed_at, content)


def encoded() -> bytes:
    return encode_archive_log([state(*fields) for fields in STATES])


def records_of(data: bytes) -> list[dict[str, Any]]:
    """Decode as any Avro reader does: with the schema of the block."""
    [block] = log_blocks_of(data, PATH, of_archive=True)
    assert block.headers.keys() == {HeaderKey.SCHEMA}
    schema = fastavro.parse_schema(json.loads(block.headers[HeaderKey.SCHEMA]))
    content, records = io.BytesIO(block.content), []
    version, count = struct.unpack(">ii", content.read(8))
    assert version == 3
    for _ in range(count):
        size = struct.unpack(">i", content.read(4))[0]
        record: Any = fastavro.schemaless_reader(io.BytesIO(content.read(size)), schema, None)
        records.append({key: value for key, value in record.items() if value is not None})
    return records


def test_name_of_a_log_file_has_its_number() -> None:
    assert archive_log_name(12) == ".commits_.archive.12_1-0-1"
    assert archive_log_number(archive_log_name(12)) == 12
    assert archive_log_number(".commits_.archive.3_7-8-9") == 3  # As others may name it.
    for name in ("manifest_3", "mergeArchivePlan", ".commits_.archive.x", ".f_10.log.1_0-0-0"):
        assert archive_log_number(name) is None


def test_completed_states_come_back_with_their_content() -> None:
    commit, clean, compacted = decode_archive_log(encoded(), PATH)
    assert [commit.order, clean.order, compacted.order] == [
        ("10", "commit"),
        ("20", "clean"),
        ("30", "commit"),
    ]
    assert [commit.completed_at, clean.completed_at, compacted.completed_at] == ["10", "20", "30"]
    assert decode_commit_metadata(commit.metadata or b"", PATH) == decode_commit_metadata(
        COMMIT, PATH
    )
    assert decode_clean(clean.metadata or b"", PATH) == CLEANED
    assert compacted.metadata is None


def test_states_are_stored_in_order_each_with_the_record_of_its_action() -> None:
    records = records_of(encoded())
    keys = ("commitTime", "actionType", "actionState")
    assert [tuple(r[key] for key in keys) for r in records] == [fields[:3] for fields in STATES]
    held = [{*record} - {*keys, "stateTransitionTime"} for record in records]
    assert held == [
        set(),
        {"hoodieCommitMetadata"},
        {"hoodieCommitMetadata"},
        {"hoodieCleanerPlan"},
        set(),
        {"hoodieCleanMetadata"},
        set(),
        set(),
    ]
    [stat] = records[2]["hoodieCommitMetadata"]["partitionToWriteStats"]["eu"]
    assert (stat["numWrites"], stat["runtimeStats"]["totalCreateTime"]) == (3, 7)


def test_instants_of_one_action_are_read_and_content_only_where_asked_for() -> None:
    [clean] = decode_archive_log(encoded(), PATH, (), "clean")
    assert (clean.order, clean.metadata) == (("20", "clean"), None)


def test_a_block_whose_writer_died_is_ignored_and_those_before_it_are_read() -> None:
    first, second = (encode_archive_log([state(*STATES[i])]) for i in (2, 5))
    for size in [*range(0, len(second), 97), len(second) - 1]:
        found = decode_archive_log(first + second[:size], PATH)
        assert [one.requested_at for one in found] == ["10"], size
    assert [one.requested_at for one in decode_archive_log(first + second, PATH)] == ["10", "20"]
    assert decode_archive_log(b"", PATH) == []


def test_a_damaged_byte_is_an_error_with_the_name_of_the_file() -> None:
    data, refused = encoded(), []
    whole = decode_archive_log(data, PATH)
    for at in range(0, len(data), 11):
        damaged = data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :]
        try:
            assert decode_archive_log(damaged, PATH) == whole, at
        except FormatError as error:
            refused.append(error.path)
    assert len(refused) > len(data) // 11 - 40
    assert {*refused} == {PATH}


@pytest.mark.parametrize("at", range(6, 14))
def test_a_damaged_size_is_not_taken_for_a_writer_that_died(at: int) -> None:
    data = encoded()
    damaged = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
    with pytest.raises(FormatError, match="block"):
        decode_archive_log(damaged, PATH)
    with pytest.raises(FormatError):  # Also in front of another block.
        decode_archive_log(damaged + data, PATH)


@pytest.mark.parametrize("content", [b"not JSON", b'{"partitionToWriteStats": 7}', b"[]"])
def test_content_of_another_kind_is_refused_by_its_instant(content: bytes) -> None:
    with pytest.raises(FormatError, match=r"10\.commit \(COMPLETED\).*HoodieCommitMetadata"):
        encode_archive_log([state("10", "commit", "COMPLETED", content)])


@pytest.mark.parametrize("name", ["cow_of_0_15_0", "mor_of_0_15_0", "cow_v6_archived"])
def test_files_of_hudi_are_written_again_with_the_same_records(name: str) -> None:
    """Hudi's schemas of older releases lack some fields."""
    paths = [path for path in objects_of_table(name) if ".commits_.archive." in path]
    assert paths
    plans = set()
    for path in paths:
        data = objects_of_table(name)[path]
        theirs = decode_archive_log(data, path)
        plans |= {instant.action for instant in theirs if instant.plan is not None}
        again = encode_archive_log([state for instant in theirs for state in states_of(instant)])
        assert decode_archive_log(again, path) == theirs
    assert plans >= ({"commit"} if name.startswith("mor") else {"clean"})


def test_states_of_an_instant_are_those_that_were_archived() -> None:
    plan, data = encode_clean_plan(CLEANED, "/t"), encoded()
    commit, clean, compacted = decode_archive_log(data, PATH)
    assert [clean.plan, commit.plan, compacted.plan] == [plan, None, None]
    assert [(s.action, s.state) for s in states_of(commit)] == [
        ("commit", name) for name in ("REQUESTED", "INFLIGHT", "COMPLETED")
    ]
    assert [s.content for s in states_of(clean)] == [plan, plan, clean.metadata]
    compaction = replace(compacted, plan=encode_record("HoodieCompactionPlan", {"version": 2}))
    assert [(s.action, bool(s.content)) for s in states_of(compaction)] == [
        ("compaction", True),
        ("compaction", False),
        ("commit", False),
    ]


def test_plans_are_read_only_where_they_are_asked_for() -> None:
    assert all(found.plan is None for found in decode_archive_log(encoded(), PATH, ("metadata",)))
    assert any(found.plan for found in decode_archive_log(encoded(), PATH, ("plan",)))
