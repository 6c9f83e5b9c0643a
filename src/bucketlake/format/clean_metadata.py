"""Cleaning plans and the metadata of completed cleans, as Hudi stores them on the timeline.

A plan names files by absolute addresses, the metadata by file names. Only partition and file name
are used from both. So the plan of a moved table stays valid, and no plan leads out of the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bucketlake.config.paths_of_table import require_data_names
from bucketlake.errors import UnsupportedFeatureError
from bucketlake.format.avro.timeline_records import Record, decode_record, encode_record
from bucketlake.model.file_name import InstantTime, file_address, file_path

_PLAN = "HoodieCleanerPlan"
_METADATA = "HoodieCleanMetadata"
_VERSION = 2
_SAVEPOINTS = "savepointed_timestamps"


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """The files that a clean deletes or has deleted.

    Attributes
    ----------
    policy : str
        Hudi's spelling of the policy; empty if a completed clean does not store it.
    files : mapping of str to tuple of str
        Names of the files to delete, by partition path.
    earliest : InstantTime or None
        Earliest retained commit; None if versions are counted.
    earliest_action : str
        Action of that commit; empty if unknown.
    newest : InstantTime or None
        Newest completed commit when the clean was planned.
    savepoints : tuple of InstantTime
        Savepoints that existed then.
    """

    policy: str
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    earliest: InstantTime | None = None
    earliest_action: str = ""
    newest: InstantTime | None = None
    savepoints: tuple[InstantTime, ...] = ()

    @property
    def paths(self) -> list[str]:
        """Paths of the files to delete, relative to the table."""
        return [file_path(path, name) for path, names in self.files.items() for name in names]


def encode_clean_plan(plan: CleanPlan, root: str) -> bytes:
    """Encode a plan; files are addresses below ``root``."""
    earliest = {
        "timestamp": plan.earliest,
        "action": plan.earliest_action,
        "state": "COMPLETED",
    }
    return encode_record(
        _PLAN,
        {
            "earliestInstantToRetain": None if plan.earliest is None else earliest,
            "lastCompletedCommitTimestamp": plan.newest or "",
            "policy": plan.policy,
            "filesToBeDeletedPerPartition": {},
            "version": _VERSION,
            "filePathsToBeDeletedPerPartition": {
                partition: [_file(root, partition, name) for name in names]
                for partition, names in plan.files.items()
            },
            "partitionsToBeDeleted": [],
            "extraMetadata": _extra(plan),
        },
    )


def decode_clean_plan(data: bytes, path: str) -> CleanPlan:
    """Decode a plan. Partitions to delete are ignored, because readers need their markers.

    Raises
    ------
    FormatError
        If the bytes are not a cleaning plan, or it names something that is no data file.
    UnsupportedFeatureError
        If the plan deletes files from which a table was bootstrapped.
    """
    record = decode_record(data, path, _PLAN)
    named = record["filesToBeDeletedPerPartition"] or {}
    files = {partition: list(names) for partition, names in named.items()}
    for partition, held in (record["filePathsToBeDeletedPerPartition"] or {}).items():
        if any(file["isBootstrapBaseFile"] for file in held):
            raise UnsupportedFeatureError("cleaning bootstrap files", path, "let Hudi finish it")
        files.setdefault(partition, []).extend(file["filePath"] or "" for file in held)
    earliest = record["earliestInstantToRetain"]
    return CleanPlan(
        record["policy"] or "",
        _bare(files, path),
        InstantTime(earliest["timestamp"]) if earliest else None,
        earliest["action"] if earliest else "",
        InstantTime(record["lastCompletedCommitTimestamp"]) or None,
        _savepoints(record),
    )


def encode_clean(plan: CleanPlan, *, started_at: InstantTime, duration_ms: int) -> bytes:
    """Encode the metadata of a clean that deleted the files of a plan."""
    partitions: dict[str, Record] = {
        partition: {
            "partitionPath": partition,
            "policy": plan.policy,
            "deletePathPatterns": list(names),
            "successDeleteFiles": list(names),
            "failedDeleteFiles": [],
            "isPartitionDeleted": False,
        }
        for partition, names in plan.files.items()
    }
    return encode_record(
        _METADATA,
        {
            "startCleanTime": started_at,
            "timeTakenInMillis": duration_ms,
            "totalFilesDeleted": len(plan.paths),
            "earliestCommitToRetain": plan.earliest or "",
            "lastCompletedCommitTimestamp": plan.newest or "",
            "partitionMetadata": partitions,
            "version": _VERSION,
            "bootstrapPartitionMetadata": {},
            "extraMetadata": _extra(plan),
        },
    )


def decode_clean(data: bytes, path: str) -> CleanPlan:
    """Decode the files that a completed clean deleted, also those that it failed to delete.

    Raises
    ------
    FormatError
        If the bytes are not the metadata of a clean, or name something that is no data file.
    """
    record = decode_record(data, path, _METADATA)
    partitions = record["partitionMetadata"] or {}
    return CleanPlan(
        next((held["policy"] for held in partitions.values()), ""),
        _bare(
            {
                partition: [*held["successDeleteFiles"], *held["failedDeleteFiles"]]
                for partition, held in partitions.items()
            },
            path,
        ),
        InstantTime(record["earliestCommitToRetain"] or "") or None,
        newest=InstantTime(record["lastCompletedCommitTimestamp"] or "") or None,
        savepoints=_savepoints(record),
    )


def _file(root: str, partition: str, name: str) -> Record:
    address = file_address(root, file_path(partition, name))
    return {"filePath": address, "isBootstrapBaseFile": False}


def _bare(files: Mapping[str, list[str]], path: str) -> dict[str, tuple[str, ...]]:
    names = {key: tuple(text.rpartition("/")[2] for text in held) for key, held in files.items()}
    found = {key: tuple(name for name in held if name) for key, held in names.items()}
    require_data_names(found, path)
    return found


def _extra(plan: CleanPlan) -> dict[str, str]:
    return {_SAVEPOINTS: ",".join(plan.savepoints)} if plan.savepoints else {}


def _savepoints(record: Mapping[str, Any]) -> tuple[InstantTime, ...]:
    text = (record["extraMetadata"] or {}).get(_SAVEPOINTS, "")
    return tuple(InstantTime(instant) for instant in text.split(",") if instant)
