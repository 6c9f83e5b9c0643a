"""The layout of a hash ring: a key's slot is the node whose range holds its hash (RFC-42).

A node is one file group. The ring of a partition is its state (``index/rings.py``): tasks that
count records load the rings of their own rows, tasks that write get them with the plan.

While a resize is pending, a slot stays a node of the ring as it was, and so do conflicts: equal
keys are in one node, before and after. On merge-on-read tables the records of a node that is
resized go into a log file for each new node that takes them over; the commit repeats these files in
the new file groups (``actions/log_copies.py``). So the write serves the ring before the resize and
the ring after it. On copy-on-write tables a write knows nothing of a pending resize, which looks
for changed nodes when it completes (``services/resize/``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.errors import CommitConflictError, IndexStateError
from bucketlake.format.hashing_metadata import HashingMetadata
from bucketlake.hashing.directory import Directory, Suffix
from bucketlake.hashing.ring import RingHashes
from bucketlake.index.conflict_keys import ConflictKey, key_of_group
from bucketlake.index.layout import (
    DamagedGroups,
    GroupChoice,
    Layout,
    Slot,
    SlotArray,
    SlotPlan,
)
from bucketlake.index.ring_engine import RingEngine, engine_of_ring, new_prefix
from bucketlake.index.ring_state import ResizeGroup, RingSource, RingState, file_id_of_node
from bucketlake.index.rings import create_ring, publish_rings
from bucketlake.merge.incoming import IncomingRecords
from bucketlake.model.file_name import FileId, InstantTime
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.write_stat import LogCopy
from bucketlake.storage.base import at_once

if TYPE_CHECKING:
    from bucketlake.slices.stored_keys import StoredKeyReader


@dataclass(frozen=True, slots=True)
class RingLayout(Layout):
    """Hash rings at a pinned instant; see :class:`bucketlake.index.layout.Layout`.

    Attributes
    ----------
    source : RingSource
        Loads the rings of partitions.
    states : mapping of str to RingState
        Rings of the partitions that a write touches, by partition path.
    renewals : mapping of str to HashingMetadata
        Rings that an overwrite brings, by partition path.
    """

    source: RingSource
    states: Mapping[str, RingState] = field(default_factory=dict)
    renewals: Mapping[str, HashingMetadata] = field(default_factory=dict)

    def pinned(self, partitions: Collection[str], *, creates: bool) -> RingLayout:
        """Return the layout with the rings of some partitions; store first rings."""
        states = self.source.load(partitions)
        for state in states.values():
            _require_one_resize(state)
            if creates and not state.is_published:  # A process died after the resize.
                metadata = state.metadata
                paths = [metadata.partition_path]
                publish_rings(self.source.storage, metadata.instant, paths, self.engine)
        if creates:
            new = [state.metadata for state in states.values() if not state.is_stored]
            made = at_once(
                self.source.storage, lambda ring: create_ring(self.source.storage, ring), new
            )
            for ring, is_own in zip(new, made, strict=True):
                if not is_own:
                    raise CommitConflictError(
                        ring.instant,
                        f"another writer made the {self.engine.ring_word} of partition "
                        f"{ring.partition_path!r} meanwhile, with another number of buckets; "
                        "retry it",
                    )
        return replace(self, states=states)

    def renewed(self, partitions: Collection[str], instant: InstantTime) -> RingLayout:
        """Return the layout with rings of the same values and new file groups."""
        renewals = {
            path: _with_new_groups(self.state(path).metadata, instant) for path in partitions
        }
        states = {path: RingState(metadata) for path, metadata in renewals.items()}
        return replace(self, states={**self.states, **states}, renewals=renewals)

    def fixed_groups(self, partitions: Collection[str]) -> Collection[tuple[str, FileId]]:
        """Return the file groups of all nodes."""
        states = self._states_of(partitions)
        return [(path, file_id) for path in partitions for file_id in states[path].positions]

    @property
    def engine(self) -> RingEngine:
        """The engine of the rings."""
        return self.source.engine

    def _hashes(self, keys: pa.Array | pa.ChunkedArray) -> RingHashes:
        """Return the places of keys on the rings."""
        return self.engine.hash_keys(keys, self.hash_fields)

    def state(self, partition_path: str) -> RingState:
        """Return the ring of a partition."""
        known = self.states.get(partition_path)
        return known or self.source.state(partition_path)

    def slots_of_keys(
        self, keys: pa.Array, partitions: Sequence[str], codes: npt.NDArray[np.int32]
    ) -> SlotArray:
        """Return the node of each key."""
        hashes = self._hashes(keys)
        if len(partitions) == 1:
            return self.state(partitions[0]).ring.locate(hashes)
        slots = np.empty(len(hashes), np.int32)
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(partitions) + 1))
        for place, path in enumerate(partitions):
            rows = order[bounds[place] : bounds[place + 1]]
            if len(rows):
                slots[rows] = self.state(path).ring.locate(hashes[rows])
        return slots

    def slots_of_literals(
        self, partitions: Collection[str], keys: Sequence[str]
    ) -> dict[str, frozenset[int]]:
        """Return the nodes that can hold any of some record keys, by partition."""
        texts = pa.array(keys, pa.string())
        hashes = self._hashes(texts)
        if self.two_rules is not None:
            hashes = np.concatenate([hashes, self.by_other_rule()._hashes(texts)])
        states = self._states_of(partitions)
        return {path: frozenset(states[path].ring.locate(hashes).tolist()) for path in partitions}

    def slot_count(self, partition_path: str) -> int:
        """Return the number of nodes of a partition."""
        return len(self.state(partition_path).ring)

    def slot_of_group(self, partition_path: str, file_id: FileId) -> int | None:
        """Return the node of a file group; None if the group is not on the ring."""
        return self.state(partition_path).positions.get(file_id)

    bucket_number = slot_of_group

    def slot_text(self, slot: int) -> str:
        """Return a node in words."""
        return f"{self.engine.slot_word} {slot}"

    @property
    def slots_text(self) -> str:
        """What slots are: ``ring nodes``."""
        return f"{self.engine.slot_word}s"

    def hash_range(self, partition_path: str, slot: int) -> tuple[int, int] | None:
        """Return the hash range of a node: its start, which is excluded, and its end."""
        state = self.state(partition_path)
        return None if isinstance(state.ring, Directory) else state.hash_range(slot)

    def hash_suffix(self, partition_path: str, slot: int) -> Suffix | None:
        """Return the last bits of the hashes of a bucket of a directory."""
        ring = self.state(partition_path).ring
        return ring.suffix_at(slot) if isinstance(ring, Directory) else None

    def conflict_key(self, partition_path: str, slot: int) -> ConflictKey:
        """Return the key of a node: that of its file group."""
        return key_of_group(partition_path, self.state(partition_path).file_id(slot))

    def is_kept_by(
        self, newer: Layout, partition_path: str, slots: Collection[int], *, appends: bool
    ) -> bool:
        """Return whether the nodes are on the later ring, or the write serves the resize."""
        if not isinstance(newer, RingLayout):
            return False
        if self.source.changes == newer.source.changes:
            return True  # Usually so, and then no ring is loaded again.
        own, now = self.state(partition_path), newer.state(partition_path)
        if partition_path in self.renewals:
            before = own.metadata.sequence_number - 1
            return now.metadata.sequence_number == before
        return all(self._is_kept(own, now, newer, slot, appends=appends) for slot in slots)

    def _is_kept(
        self, own: RingState, now: RingState, newer: RingLayout, slot: int, *, appends: bool
    ) -> bool:
        file_id, served = own.file_id(slot), own.resizes if appends else ()
        position = now.positions.get(file_id)
        if position is not None:
            found = now.resize_of(file_id) if appends else None
            is_served = found is None or found[0] in served
            return is_served and own.hash_range(slot) == now.hash_range(position)
        for resize in served:
            group = resize.find(file_id)
            if group is not None and newer.source.timeline.is_completed(resize.instant):
                # The next resize may have begun, of which the write knows nothing.
                return all(
                    new in now.positions and now.resize_of(new) is None
                    for new in group.new_file_ids
                )
        return False

    def served_resizes(
        self, slots: Mapping[str, Collection[int]]
    ) -> dict[InstantTime, set[ConflictKey]]:
        """Return the pending resizes of the partitions, with the new nodes of some nodes."""
        served: dict[InstantTime, set[ConflictKey]] = {}
        for path, positions in slots.items():
            state = self.state(path)
            own = {state.file_id(position) for position in positions}
            for resize in state.resizes:
                keys = served.setdefault(resize.instant, set())
                for group in resize.groups:
                    if own.intersection(group.file_ids):
                        keys.update(key_of_group(path, new) for new in group.new_file_ids)
        return served

    def setting_of(self, partition_path: str) -> str:
        """Return how many nodes the ring has, and its version."""
        metadata, engine = self.state(partition_path).metadata, self.engine
        count = f"{len(metadata.ring)} {engine.bucket_word}s"
        return f"a {engine.ring_word} of {count} (version {metadata.instant})"

    def live_slots(self, slices: Collection[FileSlice]) -> dict[Slot, tuple[FileSlice, ...]]:
        """Return the slice of each node; raise IndexStateError for a group that is not on it."""
        states = self._states_of({found.partition_path for found in slices})
        found: dict[Slot, tuple[FileSlice, ...]] = {}
        for file_slice in slices:
            partition = file_slice.partition_path
            position = states[partition].positions.get(file_slice.file_id)
            if position is None:
                raise IndexStateError(
                    f"each file group of partition {partition!r} is on its {self.engine.ring_word}",
                    f"file group {file_slice.file_id} (instant {file_slice.instant}) is not on "
                    f"{self.setting_of(partition)}",
                    "a clustering without the index options of the table, or an overwrite by "
                    "Hudi, makes such groups: rewrite the partition with table.repair() "
                    "(bucketlake repair --run)",
                )
            found[partition, position] = (file_slice,)
        return found

    def damaged_groups(self, slices: Collection[FileSlice]) -> Iterator[DamagedGroups]:
        """Find groups that are not on the ring."""
        states = self._states_of({found.partition_path for found in slices})
        for file_slice in slices:
            partition = file_slice.partition_path
            if file_slice.file_id not in states[partition].positions:
                problem = (
                    f"file group {file_slice.file_id} is not on {self.setting_of(partition)}, and "
                    "writes to the partition fail"
                )
                yield DamagedGroups(partition, (file_slice,), problem)

    def choose(
        self,
        plan: SlotPlan,
        incoming: IncomingRecords,
        instant: InstantTime,
        stored: StoredKeyReader,
        *,
        appends: bool,
    ) -> list[GroupChoice]:
        """Choose the file group of a node; its records are split where the node is resized."""
        assert not plan.is_cut, "a node has one file group, and is not cut"
        state = self.state(plan.partition_path)
        file_id = state.file_id(plan.slot)
        held = plan.slices[0] if plan.slices else None
        found = state.resize_of(file_id) if appends else None
        if found is None:
            return [GroupChoice(file_id, held)]
        hashes = self._hashes(incoming.keys)
        shares = _shares(found[1], found[0].instant, file_id, hashes)
        return [
            GroupChoice(file_id, held, rows, version, copy)
            for version, (rows, copy) in enumerate(shares, 1)
        ]

    def _states_of(self, partitions: Collection[str]) -> dict[str, RingState]:
        left = [path for path in partitions if path not in self.states]
        return {**self.states, **self.source.load(left)}


def _require_one_resize(state: RingState) -> None:
    """Raise CommitConflictError if two pending resizes rewrite one file group."""
    rewritten: dict[FileId, InstantTime] = {}
    for resize in state.resizes:
        for file_id in (one for group in resize.groups for one in group.file_ids):
            other = rewritten.setdefault(file_id, resize.instant)
            if other != resize.instant:
                raise CommitConflictError(
                    resize.instant,
                    f"this resize and that of instant {other} are both pending, and both rewrite "
                    f"file group {file_id} of partition {resize.partition_path!r}; if neither "
                    "process is running, withdraw one with table.rollback(instant) (bucketlake "
                    "rollback PATH INSTANT --run)",
                )


def _shares(
    group: ResizeGroup, resize: InstantTime, file_id: FileId, hashes: npt.NDArray[np.int32]
) -> Iterator[tuple[npt.NDArray[np.int64], LogCopy]]:
    """Yield the records of each new node, and where their log file is repeated."""
    ring = group.new_ring
    positions = ring.locate(hashes)
    number = group.file_ids.index(file_id)
    for position, prefix in enumerate(ring.prefixes):
        rows = np.flatnonzero(positions == position)
        if len(rows):
            yield rows, LogCopy(file_id_of_node(prefix), resize, number)


def _with_new_groups(metadata: HashingMetadata, instant: InstantTime) -> HashingMetadata:
    """Return the next version of a ring, with the same values and new file groups."""
    ring, path = metadata.ring, metadata.partition_path
    engine = engine_of_ring(ring)
    prefixes = tuple(new_prefix(instant, path, value, engine) for value in ring.values.tolist())
    return replace(
        metadata,
        instant=instant,
        sequence_number=metadata.sequence_number + 1,
        ring=replace(ring, prefixes=prefixes),
        stats={},
    )
