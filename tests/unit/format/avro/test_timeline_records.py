"""Avro records of the timeline, as containers."""

from __future__ import annotations

import io

import fastavro
import pytest

from bucketlake.errors import FormatError
from bucketlake.format.avro import timeline_records
from bucketlake.format.avro.timeline_records import (
    avro_schema,
    decode_record,
    empty_record,
    encode_record,
)

ROLLBACK_PLAN = {
    "instantToRollback": {"commitTime": "20240102030405678", "action": "commit"},
    "RollbackRequests": [
        {
            "partitionPath": "p0",
            "fileId": "",
            "latestBaseInstant": "",
            "filesToBeDeleted": ["/t/p0/a.parquet"],
            "logBlocksToBeDeleted": {},
        }
    ],
    "version": 1,
}


def test_record_comes_back_from_its_container() -> None:
    data = encode_record("HoodieRollbackPlan", ROLLBACK_PLAN)
    assert decode_record(data, "f", "HoodieRollbackPlan") == ROLLBACK_PLAN


def test_same_record_gives_the_same_bytes() -> None:
    first, second = (encode_record("HoodieRollbackPlan", ROLLBACK_PLAN) for _ in range(2))
    assert first == second


def test_container_is_not_compressed_and_names_the_record_in_full() -> None:
    reader = fastavro.reader(io.BytesIO(encode_record("HoodieRollbackPlan", ROLLBACK_PLAN)))
    assert reader.metadata["avro.codec"] == "null"
    assert reader.writer_schema["name"] == "org.apache.hudi.avro.model.HoodieRollbackPlan"


@pytest.mark.parametrize("name", sorted(timeline_records._RECORDS))
def test_every_schema_is_valid_avro_and_takes_its_own_defaults(name: str) -> None:
    fastavro.parse_schema(avro_schema(name))
    required = [
        field["name"]
        for field in avro_schema(name)["fields"]
        if "default" not in field and "null" not in field["type"]
    ]
    record = empty_record(name) | {field: _smallest(name, field) for field in required}
    decoded = decode_record(encode_record(name, record), "f", name)
    assert decoded == record


def _smallest(name: str, field: str) -> object:
    """A value for a field that must have one."""
    kind = next(one["type"] for one in avro_schema(name)["fields"] if one["name"] == field)
    kind = kind["type"] if isinstance(kind, dict) else kind
    return {"string": "x", "long": 1, "int": 1, "array": [], "map": {}}[kind]


def test_plain_strings_of_other_writers_are_accepted() -> None:
    def plain(part: object) -> object:
        if isinstance(part, dict) and part.get("type") == "string":
            return "string"
        if isinstance(part, dict):
            return {key: plain(value) for key, value in part.items() if "java" not in key}
        return [plain(one) for one in part] if isinstance(part, list) else part

    buffer = io.BytesIO()
    fastavro.writer(
        buffer, fastavro.parse_schema(plain(avro_schema("HoodieRollbackPlan"))), [ROLLBACK_PLAN]
    )
    assert decode_record(buffer.getvalue(), "f", "HoodieRollbackPlan") == ROLLBACK_PLAN


def test_fields_that_an_older_writer_lacks_take_their_defaults() -> None:
    schema = {"type": "record", "name": "HoodieCleanerPlan", "fields": []}
    schema["namespace"] = timeline_records.NAMESPACE
    schema["fields"] = [{"name": "policy", "type": "string"}]
    buffer = io.BytesIO()
    fastavro.writer(buffer, fastavro.parse_schema(schema), [{"policy": "KEEP_LATEST_COMMITS"}])
    plan = decode_record(buffer.getvalue(), "f", "HoodieCleanerPlan")
    assert plan["lastCompletedCommitTimestamp"] == ""
    assert plan["version"] == 1


def test_empty_file_is_a_record_of_defaults() -> None:
    assert decode_record(b"", "f", "HoodieCommitMetadata") == {
        "partitionToWriteStats": None,
        "compacted": None,
        "extraMetadata": None,
        "version": 1,
        "operationType": None,
    }


def test_every_cut_container_is_refused_by_the_name_of_its_file() -> None:
    data = encode_record("HoodieRollbackPlan", ROLLBACK_PLAN)
    for length in range(1, len(data)):
        with pytest.raises(FormatError, match=r"\.hoodie/timeline/1\.rollback"):
            decode_record(data[:length], ".hoodie/timeline/1.rollback", "HoodieRollbackPlan")


def test_container_of_another_record_is_refused_by_its_name() -> None:
    data = encode_record("HoodieRollbackPlan", ROLLBACK_PLAN)
    with pytest.raises(FormatError, match=r"HoodieCleanerPlan.*found.*HoodieRollbackPlan"):
        decode_record(data, "f", "HoodieCleanerPlan")


def test_two_records_in_a_container_are_refused() -> None:
    buffer = io.BytesIO()
    schema = fastavro.parse_schema(avro_schema("HoodieRollbackPlan"))
    fastavro.writer(buffer, schema, [ROLLBACK_PLAN, ROLLBACK_PLAN])
    with pytest.raises(FormatError, match="2 records"):
        decode_record(buffer.getvalue(), "f", "HoodieRollbackPlan")


def test_a_count_of_records_that_take_no_room_is_not_believed() -> None:
    name = "HoodieIndexCommitMetadata"  # Each of its fields has a default, so that none is needed.
    buffer = io.BytesIO()
    fastavro.writer(buffer, {"type": "record", "name": name, "fields": []}, [{}] * 200_000)
    with pytest.raises(FormatError, match="2 records or more"):
        decode_record(buffer.getvalue(), "f", name)
