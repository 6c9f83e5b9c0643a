"""Commit metadata in both of its forms."""

from __future__ import annotations

import json

import pytest

from bucketlake.config.table_version import LAYOUT_1, LAYOUT_2
from bucketlake.errors import FormatError
from bucketlake.format.avro.timeline_records import decode_record
from bucketlake.format.commit_metadata import (
    changes_rows,
    decode_commit_metadata,
    encode_commit_metadata,
    recode_commit,
)
from bucketlake.model.file_name import FileId
from bucketlake.model.write_stat import CommitMetadata, WriteStat
from tests.golden.objects import objects_of_table

BASE_STAT = WriteStat(
    file_id=FileId("00000001-aaaa-0"),
    path="eu/00000001-aaaa-0_0-1-2_20240102030405678.parquet",
    partition_path="eu",
    previous_commit="20240101030405678",
    previous_base_file="00000001-aaaa-0_0-1-1_20240101030405678.parquet",
    record_count=10,
    insert_count=2,
    update_count=3,
    delete_count=1,
    file_size_bytes=4711,
)
LOG_STAT = WriteStat(
    file_id=FileId("00000002-aaaa-0"),
    path=".00000002-aaaa-0_20240102030405678.log.3_0-1-2",
    partition_path="",
    record_count=5,
    opens_group=True,
)
UPSERT = CommitMetadata(
    operation="UPSERT",
    write_stats={"eu": (BASE_STAT,), "": (LOG_STAT,)},
    extra={"schema": "{}", "ключ": "значение"},
)


def _avro(metadata: CommitMetadata, record: str = "HoodieCommitMetadata") -> dict[str, object]:
    return decode_record(encode_commit_metadata(metadata), "f", record)


def test_commit_comes_back_as_it_was() -> None:
    assert decode_commit_metadata(encode_commit_metadata(UPSERT), "f") == UPSERT


def test_replace_commit_comes_back_with_what_it_replaced() -> None:
    replace = CommitMetadata(
        "INSERT_OVERWRITE", {}, replaced_file_ids={"eu": (FileId("a"), FileId("b")), "us": ()}
    )
    assert decode_commit_metadata(encode_commit_metadata(replace), "f") == replace


@pytest.mark.parametrize("operation", ["INSERT_OVERWRITE", "DELETE_PARTITION", "CLUSTER"])
def test_replacing_operation_is_a_replace_commit_even_where_it_replaced_nothing(
    operation: str,
) -> None:
    record = _avro(CommitMetadata(operation, {}), "HoodieReplaceCommitMetadata")
    assert record["partitionToReplaceFileIds"] == {}


def test_new_file_has_the_word_null_for_its_previous_commit() -> None:
    stat = _avro(UPSERT)["partitionToWriteStats"][""][0]
    assert stat["prevCommit"] == "null"


def test_base_file_has_no_log_fields() -> None:
    stat = _avro(UPSERT)["partitionToWriteStats"]["eu"][0]
    assert (stat["logVersion"], stat["logFiles"], stat["baseFile"]) == (None, None, None)


def test_log_file_repeats_what_its_name_says() -> None:
    stat = _avro(UPSERT)["partitionToWriteStats"][""][0]
    assert (stat["logVersion"], stat["logOffset"], stat["baseFile"]) == (3, 0, "")
    assert stat["logFiles"] == [LOG_STAT.path]


def test_counters_that_nobody_keeps_are_zero_as_java_needs_them() -> None:
    stat = _avro(UPSERT)["partitionToWriteStats"]["eu"][0]
    assert {stat[name] for name in ("totalWriteErrors", "totalLogBlocks", "numUpdates")} == {0}


def test_empty_file_counts_as_metadata_of_defaults() -> None:
    assert decode_commit_metadata(b"", "f") == CommitMetadata("UNKNOWN", {})


def test_json_of_version_6_decodes_and_unknown_keys_are_ignored() -> None:
    stat = {
        "fileId": "a",
        "path": "eu/a_0_1.parquet",
        "prevCommit": "null",
        "numWrites": 4,
        "numInserts": 4,
        "fileSizeInBytes": 99,
        "totalValidLogBlocks": 0,
        "partitionPath": "eu",
        "runtimeStats": None,
    }
    document = {
        "partitionToWriteStats": {"eu": [stat]},
        "compacted": True,
        "extraMetadata": {"schema": '{"type":"record"}'},
        "operationType": "COMPACT",
        "partitionToReplaceFileIds": {"eu": ["b"]},
        "somethingNew": 1,
    }
    metadata = decode_commit_metadata(json.dumps(document).encode(), "f")
    expected = WriteStat(
        FileId("a"),
        "eu/a_0_1.parquet",
        "eu",
        record_count=4,
        insert_count=4,
        file_size_bytes=99,
        opens_group=True,
    )
    assert metadata == CommitMetadata(
        "COMPACT",
        {"eu": (expected,)},
        {"schema": '{"type":"record"}'},
        {"eu": (FileId("b"),)},
        compacted=True,
    )


@pytest.mark.parametrize(
    "data",
    [
        b"garbage",
        b"\x00",
        b"[]",
        b"1",
        b"null",
        b"{",
        b'{"partitionToWriteStats": [1]}',
        b'{"partitionToWriteStats": {"p": [{"numWrites": "many"}]}}',
        b"Obj\x01",
        b"Obj\x01\x00\x00",
    ],
)
def test_garbage_is_refused_by_the_name_of_its_file(data: bytes) -> None:
    with pytest.raises(FormatError, match=r"^\.hoodie/timeline/1_2\.commit"):
        decode_commit_metadata(data, ".hoodie/timeline/1_2.commit")


@pytest.mark.parametrize(
    ("operation", "may"),
    [("UPSERT", True), ("DELETE", True), ("COMPACT", False), ("CLUSTER", False)],
)
def test_only_writes_of_data_change_rows(operation: str, may: bool) -> None:
    assert changes_rows(CommitMetadata(operation, {})) is may


@pytest.mark.parametrize("name", ["cow_v6", "cow_of_0_15_0", "cow_v8", "cow_insert_overwrite"])
def test_commits_of_hudi_keep_every_field_in_the_form_of_the_other_layout(name: str) -> None:
    commits = {
        path: data
        for path, data in objects_of_table(name).items()
        if path.startswith(".hoodie") and path.endswith("commit") and "metadata/" not in path
    }
    assert commits
    for path, data in commits.items():
        replaces = path.endswith("replacecommit")
        is_json = data.startswith(b"{")
        layouts = (LAYOUT_2, LAYOUT_1) if is_json else (LAYOUT_1, LAYOUT_2)
        moved, back = data, b""
        for layout in layouts:
            moved, back = recode_commit(moved, path, layout, replaces_groups=replaces), moved
        assert back.startswith(b"Obj" if is_json else b"{")
        assert decode_commit_metadata(moved, path) == decode_commit_metadata(data, path)
        if is_json:
            held = {k: v for k, v in json.loads(data).items() if v is not None}
            assert held.keys() <= json.loads(moved).keys()


def test_what_is_no_commit_is_refused_and_nothing_stays_nothing() -> None:
    assert recode_commit(b"", "f", LAYOUT_1, replaces_groups=False) == b""
    for data in (b"[]", b"{", b'{"partitionToWriteStats": 3}'):
        with pytest.raises(FormatError, match="commit metadata"):
            recode_commit(data, "f", LAYOUT_2, replaces_groups=False)
