"""Compaction plans, as Hudi stores them in requested compactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bucketlake.errors import UnsupportedFeatureError
from bucketlake.format.avro.timeline_records import decode_record, encode_record
from bucketlake.format.planned_slice import planned_slice
from bucketlake.model.file_slice import FileSlice

_PLAN = "HoodieCompactionPlan"
_VERSION = 2
_MEGABYTE = 1024 * 1024


def encode_compaction_plan(slices: Sequence[FileSlice]) -> bytes:
    """Encode a plan that compacts file slices in their current state."""
    return encode_record(
        _PLAN,
        {
            "operations": [_operation(file_slice) for file_slice in slices],
            "extraMetadata": {},
            "version": _VERSION,
            "strategy": None,
            "preserveHoodieMetadata": False,
            "missingSchedulePartitions": [],
        },
    )


def decode_compaction_plan(data: bytes, path: str) -> list[FileSlice]:
    """Decode the slices of a plan; the plan has no file sizes, so they are 0.

    Raises
    ------
    FormatError
        If the bytes are not a plan, or it names something that is no data file of the table.
    UnsupportedFeatureError
        If a slice has a bootstrap file.
    """
    record = decode_record(data, path, _PLAN)
    return [_slice(operation, path) for operation in record["operations"] or []]


def _operation(file_slice: FileSlice) -> dict[str, Any]:
    base_bytes = file_slice.base_file.size_bytes if file_slice.base_file is not None else 0
    return {
        "baseInstantTime": file_slice.instant,
        "deltaFilePaths": [file.name.to_file_name() for file in file_slice.log_files],
        "dataFilePath": file_slice.base_file.name.to_file_name()
        if file_slice.base_file is not None
        else None,
        "fileId": file_slice.file_id,
        "partitionPath": file_slice.partition_path,
        "metrics": {
            "TOTAL_LOG_FILES": float(len(file_slice.log_files)),
            "TOTAL_LOG_FILES_SIZE": float(file_slice.log_bytes),
            "TOTAL_IO_READ_MB": float((base_bytes + file_slice.log_bytes) // _MEGABYTE),
            "TOTAL_IO_WRITE_MB": float(base_bytes // _MEGABYTE),
            "TOTAL_IO_MB": float((2 * base_bytes + file_slice.log_bytes) // _MEGABYTE),
        },
        "bootstrapFilePath": None,
    }


def _slice(operation: Mapping[str, Any], path: str) -> FileSlice:
    if operation["bootstrapFilePath"]:
        raise UnsupportedFeatureError("compacting a bootstrap file", path, "compact it with Hudi")
    return planned_slice(
        operation["partitionPath"] or "",
        operation["fileId"] or "",
        operation["dataFilePath"],
        operation["deltaFilePaths"] or [],
        path,
        instant=operation["baseInstantTime"] or "",
    )
