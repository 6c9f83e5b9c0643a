"""Clustering plans, as Hudi stores them in requested clusterings.

A resize of consistent hashing is a clustering (RFC-42): each group of its plan holds the file
slices that are rewritten together, and in its extra values the nodes that take their place on the
ring. The text of these nodes is that of ``format/hashing_metadata.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from bucketlake.config.paths_of_table import require_data_partition, require_data_place
from bucketlake.errors import FormatError, UnsupportedFeatureError
from bucketlake.format.avro.timeline_records import Record, decode_record, encode_record
from bucketlake.model.file_name import BaseFileName, FileId, InstantTime, LogFileName, file_address
from bucketlake.model.file_slice import DataFile, FileSlice

_REQUEST = "HoodieRequestedReplaceMetadata"
_OPERATION = "CLUSTER"
_VERSION = 1
_PARTITION = "clustering.group.partition"
_CHILD_NODES = "clustering.group.child.node"
_SEQUENCE_NUMBER = "clustering.group.sequence.no"
_NUMBER = re.compile("[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class ResizeFacts:
    """What a group of a resize says besides its slices.

    Attributes
    ----------
    partition_path : str
        Partition whose ring changes.
    child_nodes : str
        JSON text of the nodes that replace those of the slices.
    sequence_number : int
        Number of resizes of the ring that the plan was made from.
    """

    partition_path: str
    child_nodes: str
    sequence_number: int


@dataclass(frozen=True, slots=True)
class ClusteringGroup:
    """File slices that are rewritten together.

    Attributes
    ----------
    slices : tuple of FileSlice
        The slices, as they were when the plan was made. In a decoded plan all sizes are 0.
    output_count : int
        Number of file groups that take their place.
    extra : mapping of str to str
        Further values, for a resize those of :class:`ResizeFacts`.
    metrics : mapping of str to float
        Sizes that Hudi's command line shows; no program needs them.
    """

    slices: tuple[FileSlice, ...]
    output_count: int
    extra: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of_resize(
        cls, slices: tuple[FileSlice, ...], output_count: int, facts: ResizeFacts
    ) -> Self:
        """Return a group of a resize."""
        extra = {
            _PARTITION: facts.partition_path,
            _CHILD_NODES: facts.child_nodes,
            _SEQUENCE_NUMBER: str(facts.sequence_number),
        }
        return cls(slices, output_count, extra)

    @property
    def resize(self) -> ResizeFacts | None:
        """The facts of a resize; None if the group belongs to another clustering."""
        partition, nodes = self.extra.get(_PARTITION), self.extra.get(_CHILD_NODES)
        number = self.extra.get(_SEQUENCE_NUMBER)
        if partition is None or nodes is None or number is None:
            return None
        return ResizeFacts(partition, nodes, int(number))


@dataclass(frozen=True, slots=True)
class ClusteringPlan:
    """Content of a requested clustering.

    Attributes
    ----------
    groups : tuple of ClusteringGroup
        What is rewritten.
    strategy_class : str
        Java class that executes the plan; empty if the plan does not name one. Hudi 1.2.0 takes the
        class from its own options, and fails on a plan that names none.
    strategy_params : mapping of str to str
        Its parameters.
    extra : mapping of str to str
        Further values of the plan.
    preserves_meta_columns : bool
        Whether rows keep the time of the commit that wrote them.
    missing_partitions : tuple of str or None
        Partitions that Hudi's next plan begins with; None if the plan does not tell.
    """

    groups: tuple[ClusteringGroup, ...]
    strategy_class: str
    strategy_params: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)
    preserves_meta_columns: bool = True
    missing_partitions: tuple[str, ...] | None = None

    @property
    def slices(self) -> tuple[FileSlice, ...]:
        """The slices of all groups."""
        return tuple(planned for group in self.groups for planned in group.slices)

    @property
    def is_resize(self) -> bool:
        """Whether all groups are resized; otherwise it is another clustering of Hudi."""
        return all(group.resize is not None for group in self.groups)


def encode_clustering_plan(plan: ClusteringPlan, root: str) -> bytes:
    """Encode a plan; files are addresses below ``root``."""
    missing = plan.missing_partitions
    return encode_record(
        _REQUEST,
        {
            "operationType": _OPERATION,
            "clusteringPlan": {
                "inputGroups": [_group_record(group, root) for group in plan.groups],
                "strategy": _strategy_record(plan),
                "extraMetadata": dict(plan.extra),
                "version": _VERSION,
                "preserveHoodieMetadata": plan.preserves_meta_columns,
                "missingSchedulePartitions": None if missing is None else list(missing),
            },
            "extraMetadata": {},
            "version": _VERSION,
        },
    )


def decode_clustering_plan(data: bytes, path: str) -> ClusteringPlan:
    """Decode the requested file of a clustering.

    Raises
    ------
    FormatError
        If the bytes hold no clustering plan, or it names something that is no data file of the
        table.
    UnsupportedFeatureError
        If a slice has a bootstrap file.
    """
    request = decode_record(data, path, _REQUEST)
    record = request["clusteringPlan"]
    if record is None:
        raise FormatError(path, "a clustering plan", f"operation {request['operationType']}")
    strategy = record["strategy"] or {}
    missing = record["missingSchedulePartitions"]
    return ClusteringPlan(
        tuple(_decode_group(group, path) for group in record["inputGroups"] or []),
        strategy.get("strategyClassName") or "",
        strategy.get("strategyParams") or {},
        record["extraMetadata"] or {},
        bool(record["preserveHoodieMetadata"]),
        None if missing is None else tuple(missing),
    )


def has_clustering_plan(data: bytes, path: str) -> bool:
    """Return whether the requested file of a replace commit plans a clustering.

    Other replace commits have a request without a plan, or no content. A file that cannot be read
    may plan one.
    """
    try:
        return bool(data) and decode_record(data, path, _REQUEST)["clusteringPlan"] is not None
    except FormatError:
        return True


def _strategy_record(plan: ClusteringPlan) -> Record | None:
    if not plan.strategy_class:
        return None
    return {
        "strategyClassName": plan.strategy_class,
        "strategyParams": dict(plan.strategy_params),
        "version": _VERSION,
    }


def _group_record(group: ClusteringGroup, root: str) -> Record:
    return {
        "slices": [_slice_record(planned, root) for planned in group.slices],
        "metrics": dict(group.metrics),
        "numOutputFileGroups": group.output_count,
        "extraMetadata": dict(group.extra),
        "version": _VERSION,
    }


def _slice_record(planned: FileSlice, root: str) -> Record:
    base = planned.base_file
    return {
        "dataFilePath": "" if base is None else file_address(root, base.path),
        "deltaFilePaths": [file_address(root, file.path) for file in planned.log_files],
        "fileId": planned.file_id,
        "partitionPath": planned.partition_path,
        "bootstrapFilePath": "",
        "version": _VERSION,
    }


def _decode_group(record: Mapping[str, Any], path: str) -> ClusteringGroup:
    extra = record["extraMetadata"] or {}
    number = extra.get(_SEQUENCE_NUMBER, "0")
    if _NUMBER.fullmatch(number) is None:
        raise FormatError(path, f"a number as {_SEQUENCE_NUMBER}", repr(number))
    require_data_partition(extra.get(_PARTITION, ""), path)
    return ClusteringGroup(
        tuple(_decode_slice(planned, path) for planned in record["slices"] or []),
        record["numOutputFileGroups"] or 0,
        extra,
        record["metrics"] or {},
    )


def _decode_slice(record: Mapping[str, Any], path: str) -> FileSlice:
    if record["bootstrapFilePath"]:
        raise UnsupportedFeatureError("clustering a bootstrap file", path, "cluster it with Hudi")
    return planned_slice(
        record["partitionPath"] or "",
        record["fileId"] or "",
        record["dataFilePath"],
        record["deltaFilePaths"] or [],
        path,
    )


# ---- Compaction plans of Hudi in requested compactions, and the file slices that plans name ------

_PLAN = "HoodieCompactionPlan"
_COMPACTION_VERSION = 2
_MEGABYTE = 1024 * 1024


def encode_compaction_plan(slices: Sequence[FileSlice]) -> bytes:
    """Encode a plan that compacts file slices in their current state."""
    return encode_record(
        _PLAN,
        {
            "operations": [_operation(file_slice) for file_slice in slices],
            "extraMetadata": {},
            "version": _COMPACTION_VERSION,
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


# ---- A file slice as plans of table services name it: texts that lead to its files ---------------
#
# Compaction plans name files by their names, clustering plans by addresses. Only the names are used
# from both. So the plan of a moved table stays valid, and no plan leads out of the table.


def planned_slice(
    partition_path: str,
    file_id: str,
    base: str | None,
    logs: Iterable[str],
    path: str,
    instant: str | None = None,
) -> FileSlice:
    """Return a slice of a plan; the plan has no file sizes, so they are 0.

    Parameters
    ----------
    partition_path, file_id : str
        The file group.
    base : str or None
        Name or address of the base file; None or empty if the slice has none.
    logs : iterable of str
        Names or addresses of the log files, in any order.
    path : str
        Name of the plan's file, for the error.
    instant : str, optional
        Instant of the slice; if the plan does not name it, it follows from the files.

    Raises
    ------
    FormatError
        If a text names something that is no data file of the table.
    """
    require_data_place(partition_path, file_id, path)  # Names of new files begin with the id.
    base_file = None
    if base:
        base_name = BaseFileName.from_file_name(_bare(base))
        if base_name is None:
            raise FormatError(path, "the name of a base file", repr(base))
        base_file = DataFile(partition_path, base_name, 0)
    log_files = []
    for text in logs:
        log_name = LogFileName.from_file_name(_bare(text))
        if log_name is None:
            raise FormatError(path, "the name of a log file", repr(text))
        log_files.append(DataFile(partition_path, log_name, 0))
    log_files.sort(key=lambda file: file.order)
    if instant is None:
        named = log_files if base_file is None else [base_file]
        instant = min((file.name.instant for file in named), default="")
    return FileSlice(
        partition_path, FileId(file_id), InstantTime(instant), base_file, tuple(log_files)
    )


def _bare(text: str) -> str:
    return text.rpartition("/")[2]
