"""Writing the entries of one shard of the record-level index, in a task.

A write puts an entry for each new key, and removes the entries of keys that are certain to be gone:
those of deletes that no ordering value can reject, and of overwritten partitions. All changes of a
shard are in one log file. As for data files (``write/group_writer.py``), its name and its bytes
follow from the plan and the keys, a marker is written before it, and it is published only while the
instant is pending.

A write under a record-level index has looked its keys up before. A write under another kind of
index sends changed keys (``write/record_index/key_changes.py``), of which it may not know whether
they are new; such keys are looked up here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import CommitConflictError, KeyTwiceError
from bucketlake.flow.stage import Flow, Int32Array, NumberedRows, Rows, in_task_order
from bucketlake.format.log_deletes import encode_birth_block
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.index.layout import SlotPlan
from bucketlake.metadata.log_files import (
    TASK_TOKEN,
    EntryEncoder,
    GroupEntries,
    base_file_name,
    base_file_stat,
    birth_file_name,
    log_file_name,
    log_file_stat,
)
from bucketlake.metadata.record_index.entries_of_write import (
    NewKeys,
    Noted,
    entries_of_shard,
    entries_of_shards,
)
from bucketlake.metadata.record_index.locations import NOT_FOUND, KeyLocations, RecordIndexReader
from bucketlake.metadata.record_index.shards import IndexShards, Shard, rows_by_number
from bucketlake.model.file_name import FileId, Group, LogFileName
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.write_stat import WriteStat
from bucketlake.storage.base import Storage, at_once
from bucketlake.timeline.data_file import DataFiles
from bucketlake.timeline.markers import Marker, MarkerType
from bucketlake.write.record_index.key_changes import (
    CHANGE,
    CHANGES,
    GROUP,
    KEY_CHANGES,
    SHARD,
    Change,
    ChangedKeys,
    parse_group,
)
from bucketlake.write.record_index.locate import NO_RANK, RANK, Routes
from bucketlake.write.record_index.lookups import StoredShards
from bucketlake.write.tag import KEY, SLOT, UNCOUNTED, input_changed

if TYPE_CHECKING:
    from bucketlake.metadata.location_cache.cache import LocationCache


_PARTITION = MetadataPartition.RECORD_INDEX

GONE = -1
"""In place of the slot of a key whose entry is removed."""

PLACED_ENTRIES = pa.schema([(KEY, pa.string()), (SLOT, pa.int32()), (SHARD, pa.int32())])
"""Keys whose entries change, on the way to the tasks of their shards."""


Removal: TypeAlias = tuple[str, ...] | None
"""Partitions whose entries go, because the write replaces their file groups; None for all."""


def is_removed(removal: Removal, path: str | None) -> bool:
    """Return whether all entries of a partition go; of a global index, where path is None."""
    return removal is None or path in removal


def removed_shards(removal: Removal, stored: StoredShards) -> Iterator[tuple[Shard, FileSlice]]:
    """Yield the shards that may have entries that go, with their slices."""
    if removal == ():
        return
    for path, slices in stored.items():
        if path is None or is_removed(removal, path):
            for number, held in enumerate(slices):
                yield Shard(number, path), held


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """How a write changes one shard; sent to the task that writes its log file.

    Attributes
    ----------
    number : int
        Position among the plans of shards.
    shard : Shard
        The shard.
    groups : mapping of int to (str, FileId)
        The file groups that may get new keys of the shard, by slot; empty for keys that name their
        group.
    new, gone : int
        Number of new keys, and of keys that a delete removes, or ``UNCOUNTED``.
    opens : bool
        Whether the shard is new.
    stored : FileSlice or None
        The entries of the shard, if some are removed with their partition, or if keys are looked up
        in it.
    replaced : tuple of str, or None
        Partitions whose entries go, a ``Removal``.
    left : tuple of (str, FileId)
        File groups whose rows moved; entries that the write does not replace are removed.
    task : int
        The task that writes the log file.
    slot : SlotPlan or None
        The records and the live buckets of the shard, if the same task writes both
        (``by_shard.py``).
    used : tuple of FileId
        With a slot: the bucket with the highest number that the shard ever had, if it is not live.
    """

    number: int
    shard: Shard
    groups: Mapping[int, Group] = field(default_factory=dict)
    new: int = UNCOUNTED
    gone: int = UNCOUNTED
    opens: bool = False
    stored: FileSlice | None = None
    replaced: Removal = ()
    left: tuple[Group, ...] = ()
    task: int = 0
    slot: SlotPlan | None = None
    used: tuple[FileId, ...] = ()

    @property
    def looked_up(self) -> FileSlice | None:
        """The entries in which keys are looked up: those that do not go with their partition."""
        return self.stored if self.replaced == () else None


@dataclass(frozen=True, slots=True)
class ShardResult:
    """What a task did to a shard; sent to the driver.

    Attributes
    ----------
    number : int
        Position among the plans of shards.
    stat : WriteStat or None
        The log file, relative to the metadata table; None if no entry changed.
    elsewhere : tuple of (str, str, FileId)
        Written keys with an entry in another data partition: one key for each file group there,
        with data partition and file id. Only in a global index.
    """

    number: int
    stat: WriteStat | None
    elsewhere: tuple[tuple[str, str, FileId], ...] = ()


KnownKeys: TypeAlias = tuple[ShardPlan, Sequence[NewKeys], pa.Array]
"""A shard, its new keys (for each file group some), and its gone keys."""


def placed_entries(entries: pa.Table, routes: Routes, shards: npt.NDArray[np.int32]) -> pa.Table:
    """Return changed keys with their shards and the slots of new keys: ``PLACED_ENTRIES``."""
    ranks = entries[RANK].to_numpy()
    slots = np.where(ranks == NO_RANK, np.int32(GONE), routes.slots(entries))
    columns = [entries[KEY], pa.array(slots), pa.array(shards)]
    return pa.Table.from_arrays(columns, schema=PLACED_ENTRIES)


@dataclass(frozen=True, slots=True)
class IndexWriter:
    """Writes log files of shards; a picklable value that all tasks of a write share.

    Attributes
    ----------
    index : RecordIndexReader
        The pinned index.
    storage : Storage
        The data table's storage.
    encoder : EntryEncoder
        Encodes the entries of the write.
    inflight : str
        Path of the inflight file in the data table, which exists while the write is pending.
    cache : LocationCache or None
        The cache of the host, which gets what the task writes.
    names : mapping of FileId to LogFileName
        Names of the log files of shards, where they depend on the slices; see
        ``metadata/own_logs.py``.
    """

    index: RecordIndexReader
    storage: Storage
    encoder: EntryEncoder
    inflight: str
    cache: LocationCache | None = None
    names: Mapping[FileId, LogFileName] = field(default_factory=dict)

    @property
    def metadata(self) -> Storage:
        """The metadata table's storage."""
        return self.index.table.storage

    def write(self, plans: Iterable[ShardPlan], entries: pa.Table) -> Iterator[ShardResult]:
        """Write the log files of a task's shards; yield the result of each shard.

        Parameters
        ----------
        plans : iterable of ShardPlan
            The shards that the task owns.
        entries : pa.Table
            Their changed keys, in any order, in columns ``PLACED_ENTRIES``.
        """
        return self._each(plans, entries, self._write)

    def write_changes(self, plans: Iterable[ShardPlan], changes: pa.Table) -> Iterator[ShardResult]:
        """Write the log files of a task's shards; yield the result of each shard.

        Parameters
        ----------
        plans : iterable of ShardPlan
            The shards that the task owns.
        changes : pa.Table
            Their keys, in any order, in columns ``KEY_CHANGES``.
        """
        return self._each(plans, changes, self._write_changes)

    def _each(
        self,
        plans: Iterable[ShardPlan],
        rows: pa.Table,
        write: Callable[[ShardPlan, pa.Table, DataFiles], ShardResult],
    ) -> Iterator[ShardResult]:
        numbered, files = NumberedRows.of(rows, SHARD), self.files()
        for plan in sorted(plans, key=lambda plan: plan.number):
            yield write(plan, numbered.take(plan.number), files)
        files.publish()

    def _write_changes(self, plan: ShardPlan, changes: pa.Table, files: DataFiles) -> ShardResult:
        keys, kinds = changes[KEY].combine_chunks(), changes[CHANGE].to_numpy()
        groups = changes[GROUP].combine_chunks()
        codes = groups.indices.to_numpy()
        places = [parse_group(text) for text in groups.dictionary.to_pylist()]
        is_put = kinds <= Change.WRITTEN
        keeps = np.ones(len(keys), np.bool_)
        elsewhere: dict[Group, str] = {}
        if plan.stored is not None:
            found = self._find(plan, keys, kinds)
            is_found, is_same, is_here = _compared(found, places, codes)
            is_away = is_found & ~is_here
            keeps = np.where(is_put, ~is_same, is_found & is_here)
            keeps |= (kinds == Change.GONE) & ~is_away
            away = np.flatnonzero(is_put & is_away)
            for code, rows in rows_by_number(found.codes[away]):
                location = found.locations[code]
                group = location.partition_path, location.file_id
                if not is_removed(plan.replaced, group[0]):
                    # Keys come in any order, and each attempt must name the same.
                    key = pc.min(keys.take(pa.array(away[rows]))).as_py()
                    elsewhere[group] = min(key, elsewhere.get(group, key))
        put = np.flatnonzero(is_put & keeps)
        new = [
            NewKeys(keys.take(pa.array(put[rows])), *places[code])
            for code, rows in rows_by_number(codes[put])
        ]
        gone = keys.take(pa.array(np.flatnonzero(~is_put & keeps)))
        return ShardResult(
            plan.number,
            self._log(plan, new, gone, files),
            tuple((key, *group) for group, key in sorted(elsewhere.items())),
        )

    def _find(self, plan: ShardPlan, keys: pa.Array, kinds: npt.NDArray[np.int8]) -> KeyLocations:
        """Look up the keys of which the task of their slot does not know enough."""
        wanted = np.isin(kinds, (Change.WRITTEN, Change.DELETED))
        if plan.shard.data_partition is None:  # The key may be in another partition.
            wanted[:] = True
        rows = np.flatnonzero(wanted)
        chosen = keys.take(pa.array(rows))
        found = self._read(plan, lambda index, held: index.find_in(held, chosen))
        codes = np.full(len(keys), NOT_FOUND, np.int32)
        codes[rows] = found.codes
        return KeyLocations(keys, codes, found.locations)

    def _read(
        self, plan: ShardPlan, read: Callable[[RecordIndexReader, FileSlice], KeyLocations]
    ) -> KeyLocations:
        """Read the pinned slice of a shard, or the newest if a clean deleted the files meanwhile.

        Entries of the write's own keys are the same in both: another write to their file groups
        would conflict.
        """
        assert plan.stored is not None
        try:
            return read(self.index, plan.stored)
        except CommitConflictError:
            newest = self.index.newest()
            shards = newest.slices.get(plan.shard.data_partition, [])
            if plan.shard.number >= len(shards):
                raise  # The index was taken off, or is built again with other shards.
            return read(newest, shards[plan.shard.number])

    def _write(self, plan: ShardPlan, entries: pa.Table, files: DataFiles) -> ShardResult:
        keys, slots = entries[KEY].combine_chunks(), entries[SLOT].to_numpy()
        gone = keys.take(pa.array(np.flatnonzero(slots == GONE)))
        _require_counted(plan, len(keys) - len(gone), len(gone))
        new = [
            NewKeys(keys.take(pa.array(np.flatnonzero(slots == slot))), *group)
            for slot, group in plan.groups.items()
        ]
        return ShardResult(plan.number, self._log(plan, new, gone, files))

    def write_known(self, known: Sequence[KnownKeys], files: DataFiles) -> Iterator[ShardResult]:
        """Write the entries of shards whose new and gone keys are known.

        The first entries of all new shards are made together.
        """
        begun: list[KnownKeys] = []
        # In timeline layout 1, a shard begins with a log file.
        may_begin = not self.index.table.timeline.layout.logs_name_slices
        for plan, new, gone in known:
            if plan.opens and new and not len(gone) and may_begin:
                begun.append((plan, new, gone))
            else:
                yield ShardResult(plan.number, self._log(plan, new, gone, files))
        if begun:
            stats = self.begin([(plan.shard, new) for plan, new, _ in begun], files)
            for (plan, _, _), stat in zip(begun, stats, strict=True):
                yield ShardResult(plan.number, stat)

    def _log(
        self, plan: ShardPlan, new: Sequence[NewKeys], gone: pa.Array, files: DataFiles
    ) -> WriteStat | None:
        if plan.opens:  # An empty log file opens the shard.
            name = birth_file_name(plan.shard.file_id, self.encoder.instant).to_file_name()
            files.add(_marker(name), encode_birth_block(self.encoder.instant))
        return self.write_log(plan.shard, new, [gone, self._replaced(plan)], files)

    def _replaced(self, plan: ShardPlan) -> pa.Array:
        """Return the keys whose entries go with their rows, unless the write puts them."""
        if plan.stored is None or (plan.replaced == () and not plan.left):
            return pa.array([], pa.string())
        held = self._read(plan, lambda index, held: index.read_slice(held))
        left = {*plan.left}
        is_gone = [
            is_removed(plan.replaced, location.partition_path)
            or (location.partition_path, location.file_id) in left
            for location in held.locations
        ]
        rows = np.flatnonzero(np.array([*is_gone, False])[held.codes])
        return held.keys.take(pa.array(rows))

    # ---- The files: a task may run twice or late
    #
    # The same keys give the same bytes, so a repeated task finds its files. The markers are in the
    # metadata table; whether the write is still pending is known from the data table.

    def files(self) -> DataFiles:
        """Return what collects the log files of a task."""
        pinned = self.storage, self.encoder.instant, self.inflight
        return DataFiles(*pinned, place=self.metadata, written=self._note)

    def begin(
        self, shards: Sequence[tuple[Shard, Sequence[NewKeys]]], files: DataFiles
    ) -> Iterator[WriteStat]:
        """Write the entries of new shards as base files, which no compaction need write again.

        Yields their statistics. Only a write that conflicts with any other to these shards may do
        this: of two base files, one counts.
        """
        every = [new for _, new in shards]
        entries, bounds = entries_of_shards(every, self.encoder.created_at_ms)
        _require_one_place(entries, self.storage.root, bounds)
        made = self.encoder.base_files(_PARTITION, entries.keys, entries.values, bounds)
        codes, first_code = entries.values.indices.to_numpy(), 0
        for (shard, new), data, (first, end) in zip(shards, made, pairwise(bounds), strict=True):
            name = base_file_name(shard.file_id, self.encoder.instant, TASK_TOKEN)
            marker = _marker(name.to_file_name())
            stat = base_file_stat(name, _PARTITION, end - first, self._size_bytes(marker, data))
            own = entries.keys.slice(first, end - first), codes[first:end] - first_code
            files.add(marker, data, Noted(stat, *own, _groups(new)))
            first_code += len(new)
            yield stat

    def write_log(
        self, shard: Shard, new: Sequence[NewKeys], gone: Sequence[pa.Array], files: DataFiles
    ) -> WriteStat | None:
        """Write the log file of a shard, or none if no entry changes; return its statistics.

        Parameters
        ----------
        shard : Shard
            The shard.
        new, gone
            See :func:`entries_of_shard`.
        files : DataFiles
            Gets the log file; the caller publishes it.

        Raises
        ------
        CommitConflictError
            If the write was rolled back meanwhile.
        InputError
            If a key is too long for an entry.
        KeyTwiceError
            If a key is in two data partitions, and the index is one for the whole table.
        """
        entries = entries_of_shard(new, gone, self.encoder.created_at_ms)
        if not len(entries):
            return None
        _require_one_place(entries, self.storage.root)
        usual = log_file_name(shard.file_id, self.encoder.instant, TASK_TOKEN)
        name = self.names.get(shard.file_id, usual)
        data = self.encoder.log_file(_PARTITION, entries)
        marker = _marker(name.to_file_name())
        stat = log_file_stat(name, _PARTITION, entries, self._size_bytes(marker, data))
        codes = entries.values.indices.to_numpy()
        files.add(marker, data, Noted(stat, entries.keys, codes, _groups(new), entries.removed))
        return stat

    def _size_bytes(self, marker: Marker, data: bytes) -> int:
        """Return the size of a file: a resize that died may have seen other dead entries."""
        stored = self.metadata.stat(marker.data_path)
        return len(data) if stored is None else stored.size_bytes

    def _note(self, written: Sequence[Noted]) -> None:
        """Give the cache the entries that were written: a note has what the stored files have."""
        if self.cache is not None and written:
            self.cache.note(self.storage.root, self.encoder.instant, written)


@dataclass(frozen=True, slots=True)
class IndexTask:
    """What the tasks of a write need to maintain the index; a picklable value that they share.

    Attributes
    ----------
    shards : IndexShards
        The shards of the index.
    first : mapping of str to int
        Position of the plan of each data partition's first shard; in a global index that of shard 0
        under the empty path.
    tasks : ndarray of int32, shape (n_shards,)
        Tasks of the plans.
    writer : IndexWriter
        Writes the entries of shards.
    """

    shards: IndexShards
    first: Mapping[str, int]
    tasks: Int32Array
    writer: IndexWriter

    @property
    def task_count(self) -> int:
        """Number of tasks that write shards."""
        return int(self.tasks.max(initial=0)) + 1

    def route(self, rows: Rows) -> tuple[Int32Array, pa.Table]:
        """Send changed keys to the tasks of their shards."""
        shards = rows.table[SHARD].to_numpy()
        return in_task_order(self.tasks[shards], shards, rows.table)

    def run(
        self, plans: Sequence[ShardPlan], received: Mapping[str, pa.Table]
    ) -> Iterator[ShardResult]:
        """Write the shards of a task."""
        changes = received.get(CHANGES, KEY_CHANGES.empty_table())
        return self.writer.write_changes(plans, changes)

    def numbers(self, keys: pa.Array, data_partition: str) -> Int32Array:
        """Return the position of the plan of each key's shard."""
        first = self.first[data_partition if self.shards.is_partitioned else ""]
        return self.shards.numbers_of(keys, data_partition) + np.int32(first)

    def collector(self) -> ChangedKeys:
        """Return what collects the changed keys of a task."""
        return ChangedKeys(self.numbers)

    def write_shards_here(self, plans: Sequence[ShardPlan]) -> list[ShardResult]:
        """Write shards in this process: their plans alone tell what changes."""
        none, storage = KEY_CHANGES.empty_table(), self.writer.metadata
        written = at_once(
            storage, lambda plan: list(self.writer.write_changes([plan], none)), plans
        )
        return [result for results in written for result in results]


def with_index(flow: Flow, index: IndexTask | None, plans: Sequence[ShardPlan]) -> Flow:
    """Send the changed keys of a flow to the shards of the index, if there is one to maintain."""
    return flow if index is None else flow.then(index, plans, index.task_count)


def _compared(
    found: KeyLocations, places: Sequence[Group], codes: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Compare the entries of keys with the file groups of their records.

    Returns
    -------
    tuple of ndarray of bool
        Whether there is an entry, whether it names the file group, and whether its partition.
    """
    stored = [(location.partition_path, location.file_id) for location in found.locations]
    groups = _numbered([*places, *stored])
    paths = _numbered([path for path, _ in [*places, *stored]])
    is_found = found.codes != NOT_FOUND
    own, other = codes[is_found], found.codes[is_found] + len(places)
    is_same, is_here = is_found.copy(), is_found.copy()
    is_same[is_found] = groups[own] == groups[other]
    is_here[is_found] = paths[own] == paths[other]
    return is_found, is_same, is_here


def _numbered(values: Sequence[object]) -> npt.NDArray[np.int64]:
    """Return equal numbers for equal values."""
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)


def _require_counted(plan: ShardPlan, new: int, gone: int) -> None:
    if (new, gone) != (plan.new, plan.gone):
        counted = f"{plan.new} new and {plan.gone} deleted keys of shard {plan.shard.file_id}"
        raise input_changed(counted, f"{new} and {gone} arrived")


def _groups(new: Sequence[NewKeys]) -> list[Group]:
    return [(group.partition_path, group.file_id) for group in new]


def _marker(file_name: str) -> Marker:
    return Marker(_PARTITION, file_name, MarkerType.CREATE)


def _require_one_place(entries: GroupEntries, root: str, bounds: Sequence[int] = ()) -> None:
    """Raise an error for a key with two entries; only a table of another kind can have such.

    A key may be in several shards; ``bounds`` are those of shards.
    """
    keys = entries.keys
    if len(keys) < 2 or len(entries.values.dictionary) < 2:  # Keys of one group are distinct.
        return
    is_repeated = np.append(pc.equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False), False)
    is_repeated[[end - 1 for end in bounds if end]] = False
    for row in np.flatnonzero(is_repeated).tolist():
        raise KeyTwiceError(
            root,
            str(keys[row].as_py()),
            "two data partitions",
            "drop the index with table.drop_metadata_table() (bucketlake metadata --drop --run); "
            "table.rebuild_metadata_table() (bucketlake metadata --rebuild --run) then builds the "
            "others",
        )
