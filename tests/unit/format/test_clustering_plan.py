"""Clustering plans: what real Hudi wrote decodes, what is written decodes to the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bucketlake.errors import BucketLakeError, FormatError, UnsupportedFeatureError
from bucketlake.format.avro.timeline_records import decode_record, encode_record
from bucketlake.format.clustering_plan import (
    ClusteringGroup,
    ClusteringPlan,
    ResizeFacts,
    decode_clustering_plan,
    encode_clustering_plan,
)
from bucketlake.model.file_name import BaseFileName, FileId, InstantTime, LogFileName
from bucketlake.model.file_slice import DataFile, FileSlice

PATH = "20260101000000002.clustering.requested"
REQUEST = "HoodieRequestedReplaceMetadata"
T, LATER = InstantTime("20260101000000000"), InstantTime("20260101000000001")
GROUP, OTHER = FileId("13bf80ae-ea5e-3871-a8c3-2e516e20bd75-0"), FileId("60ef31a3-0")
BASE = DataFile("eu", BaseFileName(GROUP, "1-0-1", T), 0)
LOGS = tuple(DataFile("eu", LogFileName(GROUP, at, 1, "1-0-1"), 0) for at in (T, LATER))
WITH_BASE = FileSlice("eu", GROUP, T, BASE, LOGS)
LOGS_ALONE = FileSlice(
    "eu", OTHER, T, None, (DataFile("eu", LogFileName(OTHER, T, 1, "1-0-1"), 0),)
)
FACTS = ResizeFacts("eu", '[{"value":1,"fileIdPrefix":null,"tag":"DELETE"}]', 3)
PLAN = ClusteringPlan(
    (
        ClusteringGroup.of_resize((WITH_BASE, LOGS_ALONE), 1, FACTS),
        ClusteringGroup((WITH_BASE,), 2, {"other": "value"}, {"TOTAL_LOG_FILES": 2.0}),
    ),
    "java.Executor",
    {"sort": "id"},
    {"of": "plan"},
)


@pytest.mark.parametrize("root", ["/lake/events", "s3://lake/events", "memory://lake/"])
@pytest.mark.parametrize(
    "plan",
    [PLAN, replace(PLAN, preserves_meta_columns=False, missing_partitions=("eu", "us"))],
)
def test_plan_decodes_to_what_was_encoded_wherever_the_table_lies(
    plan: ClusteringPlan, root: str
) -> None:
    encoded = encode_clustering_plan(plan, root)
    assert decode_clustering_plan(encoded, PATH) == plan
    assert encode_clustering_plan(plan, root) == encoded


def test_fields_that_hudi_insists_on_are_written() -> None:
    record = decode_record(encode_clustering_plan(PLAN, "/lake/events"), PATH, REQUEST)
    assert record["operationType"] == "CLUSTER"  # Without it Hudi does not see the plan.
    first, _ = record["clusteringPlan"]["inputGroups"]
    assert first["numOutputFileGroups"] == 1
    assert first["extraMetadata"] == {
        "clustering.group.partition": "eu",
        "clustering.group.child.node": FACTS.child_nodes,
        "clustering.group.sequence.no": "3",
    }
    assert first["slices"][0] == {
        "dataFilePath": f"file:/lake/events/eu/{GROUP}_1-0-1_{T}.parquet",
        "deltaFilePaths": [f"file:/lake/events/eu/.{GROUP}_{at}.log.1_1-0-1" for at in (T, LATER)],
        "fileId": GROUP,
        "partitionPath": "eu",
        "bootstrapFilePath": "",
        "version": 1,
    }
    assert first["slices"][1]["dataFilePath"] == ""


def test_facts_of_a_resize_are_those_of_its_groups_alone() -> None:
    resized, other = PLAN.groups
    assert resized.resize == FACTS
    assert other.resize is None


def test_log_files_of_a_plan_come_in_any_order() -> None:
    reordered = _changed(lambda slice_: slice_["deltaFilePaths"].reverse())
    assert decode_clustering_plan(reordered, PATH) == PLAN


@pytest.mark.parametrize("partition", ["..", "a/../../b", "/etc", ".hoodie", ".hoodie/timeline"])
def test_partition_of_a_clustering_plan_is_inside(partition: str) -> None:
    _require_refused(FormatError, lambda slice_: slice_.update(partitionPath=partition))


@pytest.mark.parametrize("file_id", ["", "a/b", "..", None])
def test_file_id_of_a_clustering_plan_is_inside(file_id: str | None) -> None:
    _require_refused(FormatError, lambda slice_: slice_.update(fileId=file_id))


@pytest.mark.parametrize("address", ["file:/lake/events/eu/rows.csv", "../..", "file:/eu/"])
def test_file_of_a_clustering_plan_is_a_data_file(address: str) -> None:
    _require_refused(FormatError, lambda slice_: slice_.update(dataFilePath=address))
    _require_refused(FormatError, lambda slice_: slice_.update(deltaFilePaths=[address]))


def test_a_slice_of_a_bootstrapped_table_is_refused() -> None:
    _require_refused(
        UnsupportedFeatureError, lambda slice_: slice_.update(bootstrapFilePath="/source/a.parquet")
    )


@pytest.mark.parametrize("number", ["", "-1", "1.5", "x", "9" * 5000])
def test_a_sequence_number_that_is_none_is_refused(number: str) -> None:
    extra = {**PLAN.groups[0].extra, "clustering.group.sequence.no": number}
    plan = replace(PLAN, groups=(replace(PLAN.groups[0], extra=extra),))
    with pytest.raises(FormatError, match="sequence"):
        decode_clustering_plan(encode_clustering_plan(plan, "/t"), PATH)


@pytest.mark.parametrize("operation", [None, "INSERT_OVERWRITE"])
def test_a_request_without_a_plan_is_refused(operation: str | None) -> None:
    """In timeline layout 1, an insert overwrite has a requested file of this name."""
    with pytest.raises(FormatError, match="a clustering plan"):
        decode_clustering_plan(encode_record(REQUEST, {"operationType": operation}), PATH)


def _require_refused(
    error: type[BucketLakeError], change: Callable[[dict[str, Any]], None]
) -> None:
    with pytest.raises(error, match=PATH):
        decode_clustering_plan(_changed(change), PATH)


def _changed(change: Callable[[dict[str, Any]], None]) -> bytes:
    """Encode a plan whose slices are changed."""
    record = decode_record(encode_clustering_plan(PLAN, "/t"), PATH, REQUEST)
    for group in record["clusteringPlan"]["inputGroups"]:
        for slice_ in group["slices"]:
            change(slice_)
    return encode_record(REQUEST, record)
