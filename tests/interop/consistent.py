"""Tables with consistent hashing (RFC-42): written, resized and checked by Hudi and bucketlake.

No writer needs to be told more than :class:`ConsistentKind` and :class:`ConsistentTable` tell it.
Hudi stores no bucket setting in its tables, and its clustering procedure does not look for one: a
resize that is executed without the index options destroys the index. So every call here names all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import bucketlake as bl
from bucketlake.format.clustering_plan import ClusteringPlan, decode_clustering_plan
from bucketlake.read.snapshot import load_snapshot
from bucketlake.services.resize.service import ResizeReport
from bucketlake.storage.local import LocalStorage
from bucketlake.timeline.archive_reader import read_archive
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.table_properties import table_at
from tests.interop.peer.client import HudiPeer
from tests.interop.shared_table import HUDI, SharedTable, Writer
from tests.interop.table_kind import METADATA_ENABLE, TableKind

METADATA_FOLDER = ".hoodie/.bucket_index/consistent_hashing_metadata"
INITIAL = "00000000000000"
_CLUSTERING = "org.apache.hudi.client.clustering"
PLAN_STRATEGY = f"{_CLUSTERING}.plan.strategy.SparkConsistentBucketClusteringPlanStrategy"
EXECUTION_STRATEGY = f"{_CLUSTERING}.run.strategy.SparkConsistentBucketClusteringExecutionStrategy"
"""Keeps the times of the rows. Hudi goes by the option, whatever the plan says."""

DEFAULT_EXECUTION_STRATEGY = (
    f"{_CLUSTERING}.run.strategy.SingleSparkJobConsistentHashingExecutionStrategy"
)
"""Gives every row the time of the resize, also where the plan asks to keep its own."""

DUAL_WRITE = f"{_CLUSTERING}.update.strategy.SparkConsistentBucketDuplicateUpdateStrategy"
SPLIT_ALL = {"hoodie.bucket.index.split.threshold": "0"}
MERGE_ALL = {
    "hoodie.bucket.index.split.threshold": "1e9",
    "hoodie.bucket.index.merge.threshold": "1e8",
}
SORT_ALL = {
    "hoodie.bucket.index.split.threshold": "1e9",
    "hoodie.bucket.index.merge.threshold": "0",
}
"""What a planned resize does with every file group: by size nothing else can be chosen for it."""


class Change(Enum):
    """What a resize does to every ring; Hudi's options and ours that have it done."""

    SPLIT = "split"
    MERGE = "merge"

    @property
    def hudi_options(self) -> dict[str, str]:
        """Options of Hudi's planner."""
        return SPLIT_ALL if self is Change.SPLIT else MERGE_ALL

    @property
    def max_file_size(self) -> int:
        """Bytes a bucket should have, for our planner."""
        return 1 if self is Change.SPLIT else 1 << 30


SPLIT, MERGE = Change.SPLIT, Change.MERGE


@dataclass(frozen=True)
class ConsistentKind(TableKind):
    """A merge-on-read table whose partitions have rings of hash ranges.

    Attributes
    ----------
    initial, least, most : int
        Bucket counts: of a new partition, and the bounds of resizes.
    """

    merge_on_read: bool = True
    initial: int = 2
    least: int = 1
    most: int = 16

    @property
    def index(self) -> bl.ConsistentBucket:  # type: ignore[override]
        """The index of both writers."""
        return bl.ConsistentBucket(self.initial, self.least, self.most, self.hash_fields)

    def open(self, path: Path) -> bl.Table:
        """Open a table to write to it, whoever began it."""
        return bl.open_table(str(path), index=self.index)

    def bucket_options(self) -> dict[str, str]:
        """Tell Hudi all of the index, so that a write during a resize goes to both layouts."""
        return {
            "hoodie.index.type": "BUCKET",
            "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
            "hoodie.bucket.index.num.buckets": str(self.initial),
            "hoodie.bucket.index.min.num.buckets": str(self.least),
            "hoodie.bucket.index.max.num.buckets": str(self.most),
            "hoodie.bucket.index.hash.field": ",".join(self.hash_fields or self.record_key),
            "hoodie.clustering.updates.strategy": DUAL_WRITE,
        }

    def clustering_options(self) -> dict[str, str]:
        """Tell the clustering procedure what it does not learn from the table."""
        return self.bucket_options() | {
            "hoodie.datasource.write.recordkey.field": ",".join(self.record_key),
            METADATA_ENABLE: "false",
            "hoodie.clustering.plan.strategy.class": PLAN_STRATEGY,
            "hoodie.clustering.execution.strategy.class": EXECUTION_STRATEGY,
        }


@dataclass(frozen=True)
class Ring:
    """One version of the hashing metadata of a partition, in its file's words.

    Attributes
    ----------
    version : str
        The instant in the name of the file.
    sequence : int
        How many versions came before.
    initial : int
        Number of nodes of the first version.
    nodes : mapping of int to str
        Prefix of file ids, by the inclusive end of the hash range.
    """

    version: str
    sequence: int
    initial: int
    nodes: Mapping[int, str] = field(default_factory=dict)

    @property
    def file_ids(self) -> set[str]:
        """File ids of the nodes."""
        return {f"{prefix}-0" for prefix in self.nodes.values()}


class ConsistentTable(SharedTable):
    """A table with consistent hashing that either writes and resizes, and what it must hold."""

    def __init__(self, hudi: HudiPeer, path: Path, kind: ConsistentKind | None = None) -> None:
        self.consistent = kind or ConsistentKind()
        super().__init__(hudi, path, self.consistent)

    def plan_resize(self, writer: Writer, change: Change = SPLIT) -> Instant:
        """Have either put a plan on the timeline; return its pending instant."""
        if writer is HUDI:
            planned = self.schedule_resize(change.hudi_options)
        else:
            known = self._known_resizes()
            report = self.resize_by_us(change, schedule_only=True)
            planned = self._planned_since(known)
            assert planned is None or planned.requested_at == report.scheduled
        assert planned is not None, "nothing was planned"
        return planned

    def execute(self, writer: Writer) -> None:
        """Have either execute the one pending resize; check that it completed."""
        [pending] = self.pending_resizes()
        if writer is HUDI:
            self.execute_resizes()
        else:
            # A table in balance, as these sizes have it, has nothing else planned.
            report = self.ours.resize(max_file_size=1 << 30, merge_threshold=0)
            assert report.instants == (pending.requested_at,)
        assert not self.pending_resizes()
        assert self.completed_resizes()[-1].requested_at == pending.requested_at

    def resize_by_us(self, change: Change, *, schedule_only: bool = False) -> ResizeReport:
        """Have bucketlake resize what it can, and be done in one call."""
        return self.ours.resize(max_file_size=change.max_file_size, schedule_only=schedule_only)

    def schedule_resize(self, options: Mapping[str, str] | None = None) -> Instant | None:
        """Have Hudi plan a resize; return its pending instant, None where nothing was planned."""
        known = self._known_resizes()
        self._run_clustering("schedule", {**SPLIT_ALL, **(options or {})})
        return self._planned_since(known)

    def execute_resizes(self, options: Mapping[str, str] | None = None) -> None:
        """Have Hudi execute every pending resize, whoever planned it."""
        self._run_clustering("execute", options or {})

    def resize(self, options: Mapping[str, str] | None = None) -> None:
        """Have Hudi plan a resize and execute it."""
        planned = self.schedule_resize(options)
        assert planned is not None, "nothing was planned"
        self.execute_resizes(options)

    def pending_resizes(self) -> list[Instant]:
        """Return the pending clusterings."""
        return [one for one in self.ours.timeline() if one.action is Action.CLUSTERING]

    def completed_resizes(self) -> list[Instant]:
        """Return the completed replace commits that had a plan of a clustering."""
        folder = self.path / ".hoodie" / "timeline"
        return [
            one
            for one in self._completed_replacements()
            if (folder / f"{one.requested_at}.clustering.requested").exists()
        ]

    def plan_of(self, resize: Instant) -> ClusteringPlan:
        """Return the plan of a resize, pending or completed."""
        path = self.path / ".hoodie" / "timeline" / f"{resize.requested_at}.clustering.requested"
        return decode_clustering_plan(path.read_bytes(), path.name)

    def copies(self, resize: Instant) -> list[str]:
        """Return the names of the log files that writers made for a pending resize."""
        found = self.path.rglob(f".*_{resize.requested_at}.log.*")
        found = (path for path in found if ".hoodie" not in path.parts and path.suffix != ".crc")
        return [path.name for path in found]

    def rings(self, partition: str) -> list[Ring]:
        """Return every version of a partition's ring, oldest first, published or not."""
        folder = self.path / METADATA_FOLDER / partition
        return [_ring(path) for path in sorted(folder.glob("*.hashing_meta"))]

    def ring(self, partition: str) -> Ring:
        """Return the newest version of a partition's ring whose instant is completed."""
        done = {one.requested_at for one in self._completed_replacements()} | {INITIAL}
        entries = read_archive(opened_table(LocalStorage(str(self.path)), self.ours.config()))
        done |= {one.requested_at for one in entries if one.action == "replacecommit"}
        return [ring for ring in self.rings(partition) if ring.version in done][-1]

    def file_groups(self) -> set[tuple[str, str]]:
        """Return the live file groups: each is a node of its partition's ring."""
        storage = LocalStorage(str(self.path))
        slices = load_snapshot(table_at(storage)).all_slices()
        found = {(one.partition_path, str(one.file_id)) for one in slices}
        for partition in {path for path, _ in found}:
            held = {file_id for path, file_id in found if path == partition}
            assert held <= self.ring(partition).file_ids, partition
        return found

    def assert_healthy(self) -> None:
        """Have bucketlake look at every key of every bucket."""
        found = self.ours.doctor(check_keys=True)
        wrong = [finding for finding in found if not finding.kind.value.startswith("leftover")]
        assert not wrong, wrong

    def _known_resizes(self) -> set[str]:
        return {one.requested_at for one in self.pending_resizes()}

    def _planned_since(self, known: set[str]) -> Instant | None:
        planned = [one for one in self.pending_resizes() if one.requested_at not in known]
        assert len(planned) <= 1, planned
        return planned[0] if planned else None

    def _completed_replacements(self) -> list[Instant]:
        return [
            one
            for one in self.ours.timeline()
            if one.action is Action.REPLACE_COMMIT and one.state is State.COMPLETED
        ]

    def _run_clustering(self, op: str, options: Mapping[str, str]) -> None:
        # The procedure splits its options at commas; SET carries values that hold some.
        given = self.consistent.clustering_options() | dict(options)
        for key in [key for key, value in given.items() if "," in value]:
            self.hudi.sql(f"SET {key}={given.pop(key)}")
        self.hudi.sql("SET hoodie.metadata.enable=false")
        text = ",".join(f"{key}={value}" for key, value in given.items())
        self.hudi.sql(
            f"CALL run_clustering(path => '{self.path}', op => '{op}', options => '{text}')"
        )


def children(plan: ClusteringPlan, partition: str) -> list[tuple[int, str | None]]:
    """Return what a plan does to the ring of a partition: values, and new prefixes or None."""
    facts = [group.resize for group in plan.groups]
    nodes = [
        node
        for fact in facts
        if fact is not None and fact.partition_path == partition
        for node in json.loads(fact.child_nodes)
    ]
    assert nodes, f"the plan does not resize partition {partition}"
    for node in nodes:
        assert (node["tag"] == "REPLACE") == (node["fileIdPrefix"] is not None)
    return [(node["value"], node["fileIdPrefix"]) for node in nodes]


def _ring(path: Path) -> Ring:
    held = json.loads(path.read_text())
    version = path.name.removesuffix(".hashing_meta")
    assert held["instant"] == version
    assert {node["tag"] for node in held["nodes"]} == {"NORMAL"}
    nodes = {node["value"]: node["fileIdPrefix"] for node in held["nodes"]}
    assert list(nodes) == sorted(nodes)
    return Ring(version, held["seqNo"], held["numBuckets"], nodes)
