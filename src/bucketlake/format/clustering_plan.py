"""Clustering plans, as Hudi stores them in requested clusterings.

A resize of consistent hashing is a clustering (RFC-42): each group of its plan holds the file
slices that are rewritten together, and in its extra values the nodes that take their place on the
ring. The text of these nodes is that of ``format/hashing_metadata.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from bucketlake.errors import FormatError, UnsupportedFeatureError
from bucketlake.format.avro.timeline_records import Record, decode_record, encode_record
from bucketlake.format.planned_slice import planned_slice
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
    address = f"file:{root}" if root.startswith("/") else root
    missing = plan.missing_partitions
    return encode_record(
        _REQUEST,
        {
            "operationType": _OPERATION,
            "clusteringPlan": {
                "inputGroups": [_group_record(group, address) for group in plan.groups],
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


def _group_record(group: ClusteringGroup, address: str) -> Record:
    return {
        "slices": [_slice_record(planned, address) for planned in group.slices],
        "metrics": dict(group.metrics),
        "numOutputFileGroups": group.output_count,
        "extraMetadata": dict(group.extra),
        "version": _VERSION,
    }


def _slice_record(planned: FileSlice, address: str) -> Record:
    def address_of(file: DataFile) -> str:
        return f"{address.rstrip('/')}/{file.path}"

    base = planned.base_file
    return {
        "dataFilePath": "" if base is None else address_of(base),
        "deltaFilePaths": [address_of(file) for file in planned.log_files],
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
