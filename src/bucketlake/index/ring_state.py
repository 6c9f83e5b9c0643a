"""The ring of a partition at a point of the timeline, and the resizes that are pending (RFC-42).

A value that is loaded when it is needed, and remembered: by tasks for the partitions of their rows,
by the driver for the partitions that a write touches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from bucketlake.errors import ObjectNotFoundError
from bucketlake.format.clustering_plan import ClusteringPlan
from bucketlake.format.hashing_metadata import HashingMetadata
from bucketlake.hashing.ring import ChildNode, Ring
from bucketlake.index.ring_engine import CONSISTENT, RingEngine, engine_of_plan
from bucketlake.index.rings import find_version, first_version, read_ring
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.grouping import grouped
from bucketlake.model.kept import fields_alone, kept_property
from bucketlake.storage.base import Storage, at_once
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.outcome import is_rolled_back


@dataclass(frozen=True, slots=True)
class ResizeGroup:
    """File groups of a ring that are rewritten together, and the nodes that take their place.

    Attributes
    ----------
    file_ids : tuple of FileId
        The file groups, in the order of the plan.
    children : tuple of ChildNode
        What happens to the ring.
    """

    file_ids: tuple[FileId, ...]
    children: tuple[ChildNode, ...]

    @property
    def new_ring(self) -> Ring:
        """The new nodes: a record of the group belongs to the one that holds its hash here."""
        return Ring.of({c.value: c.file_id_prefix for c in self.children if c.file_id_prefix})

    @property
    def new_file_ids(self) -> tuple[FileId, ...]:
        """The file groups of the new nodes."""
        return tuple(file_id_of_node(prefix) for prefix in self.new_ring.prefixes)


@dataclass(frozen=True, slots=True)
class PendingResize:
    """What a pending resize does to the ring of one partition.

    Attributes
    ----------
    instant : InstantTime
        The clustering on the timeline.
    partition_path : str
        The partition.
    groups : tuple of ResizeGroup
        The groups of the plan in this partition.
    sequence_number : int
        Number of changes of the ring that the plan was made from.
    """

    instant: InstantTime
    partition_path: str
    groups: tuple[ResizeGroup, ...]
    sequence_number: int

    @property
    def children(self) -> tuple[ChildNode, ...]:
        """What happens to the ring in all groups."""
        return tuple(child for group in self.groups for child in group.children)

    def find(self, file_id: FileId) -> ResizeGroup | None:
        """Return the group of the plan that rewrites a file group."""
        return next((group for group in self.groups if file_id in group.file_ids), None)


@dataclass(frozen=True)
class RingState:
    """The ring of a partition at a point of the timeline, and the resizes that are pending."""

    metadata: HashingMetadata
    resizes: tuple[PendingResize, ...] = ()
    is_stored: bool = True  # Otherwise it is the first version, which nobody has stored yet.
    is_published: bool = True  # Whether Hudi knows that it counts, whatever is archived later.

    @property
    def ring(self) -> Ring:
        """The nodes."""
        return self.metadata.ring

    @cached_property
    def positions(self) -> dict[FileId, int]:
        """Positions of the nodes by the ids of their file groups."""
        return {file_id_of_node(prefix): i for i, prefix in enumerate(self.ring.prefixes)}

    def file_id(self, position: int) -> FileId:
        """Return the file group of a node."""
        return file_id_of_node(self.ring.prefixes[position])

    def resize_of(self, file_id: FileId) -> tuple[PendingResize, ResizeGroup] | None:
        """Return the pending resize of a file group, and its group of the plan."""
        for resize in self.resizes:
            group = resize.find(file_id)
            if group is not None:
                return resize, group
        return None

    def hash_range(self, position: int) -> tuple[int, int]:
        """Return the range of a node: its start, which is excluded, and its end."""
        found = self.ring.range_of(int(self.ring.values[position]))
        return found.start, found.end

    # Without the positions, which are made again where they are asked for.
    __getstate__ = fields_alone


@dataclass(frozen=True)
class RingSource:
    """Loads rings as of a point of the timeline; a small picklable value that remembers them.

    A partition without a stored ring begins with ``initial_count`` buckets.
    """

    storage: Storage
    timeline: Timeline
    initial_count: int
    engine: RingEngine = CONSISTENT

    def state(self, partition_path: str) -> RingState:
        """Return the ring of a partition, and the pending resizes that concern it.

        Raises
        ------
        FormatError, HashingMetadataError
            If the stored ring cannot be used.
        """
        known = self._states.get(partition_path)
        if known is None:
            known = self._load(partition_path)
            self._states[partition_path] = known
        return known

    @cached_property
    def changes(self) -> frozenset[Instant]:
        """The instants that changed a ring, or are about to: no other instant can."""
        return frozenset(
            instant
            for instant in self.timeline.instants
            if instant.action is Action.CLUSTERING
            or (instant.action is Action.REPLACE_COMMIT and instant.state is State.COMPLETED)
        )

    def load(self, partitions: Iterable[str]) -> dict[str, RingState]:
        """Return the states of several partitions, some requests at once."""
        paths = sorted(set(partitions))
        if not self._states.keys() >= set(paths):
            _ = self.resizes  # Loaded once, before several threads need it.
        states = at_once(self.storage, self.state, paths)
        return dict(zip(paths, states, strict=True))

    @kept_property  # In Python 3.11 the lock of cached_property would have all tables wait.
    def resizes(self) -> Mapping[str, list[PendingResize]]:
        """The pending resizes, by partition path."""
        found = pending_resizes(self.storage, self.timeline)
        return grouped((resize.partition_path, resize) for resize in found)

    def _load(self, partition_path: str) -> RingState:
        found = find_version(self.storage, self.timeline, partition_path, self.engine)
        resizes = tuple(self.resizes.get(partition_path, ()))
        if found is None:
            first = first_version(partition_path, self.initial_count, self.engine)
            return RingState(first, resizes, False)
        metadata = read_ring(self.storage, partition_path, found[0], self.engine)
        return RingState(metadata, resizes, is_published=found[1])

    @cached_property
    def _states(self) -> dict[str, RingState]:
        return {}

    # Without what was loaded: a task loads the partitions of its own rows.
    __getstate__ = fields_alone


def file_id_of_node(prefix: str) -> FileId:
    """Return the file group of a node."""
    return FileId(f"{prefix}-0")


def pending_resizes(storage: Storage, timeline: Timeline) -> Iterator[PendingResize]:
    """Yield what the pending resizes of a timeline do, a value for each partition."""
    for instant in timeline.pending_clusterings():
        if is_rolled_back(storage, instant.requested_at):
            continue  # Its plan goes next.
        with suppress(ObjectNotFoundError):  # It was withdrawn since the listing.
            plan = timeline.read_clustering_plan(storage, instant)
            yield from resizes_of_plan(instant.requested_at, plan)


def resizes_of_plan(instant: InstantTime, plan: ClusteringPlan) -> Iterator[PendingResize]:
    """Yield what a plan does, a value for each partition."""
    engine = engine_of_plan(plan)
    groups: dict[str, list[ResizeGroup]] = defaultdict(list)
    numbers: dict[str, int] = {}
    for group in plan.groups:
        facts = group.resize
        if facts is None:
            continue
        children = engine.decode_children(facts.child_nodes, f"plan of clustering {instant}")
        ids = tuple(planned.file_id for planned in group.slices)
        groups[facts.partition_path].append(ResizeGroup(ids, children))
        numbers[facts.partition_path] = facts.sequence_number
    for path, found in groups.items():
        yield PendingResize(instant, path, tuple(found), numbers[path])
