"""Locating the records of a batch: the first stage of a write under a record-level index.

The task of a lookup reduces the records with one key to one record, looks their keys up, and adds
to each record the place of its key. A delete of a key that the
index does not have is dropped. The rows depend on the records and on the pinned index alone, so a
repeated task returns the same rows. Only the number of keys that the cache of the host answered may
differ.

In a global index a key may be stored in another partition than its record. Then the key moves: one
row deletes it there, and another inserts it here. The rows of a moved key are in two file groups,
so the task compares the ordering values: it reads those of stored rows, which other lookups do not
need to read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.flow.stage import NO_TASK, NumberedRows, Rows, in_task_order
from bucketlake.flow.stage import Int32Array as TaskArray
from bucketlake.index.layout import SlotPlan
from bucketlake.merge.combining import joined, meet
from bucketlake.merge.group_merge import group_in_words
from bucketlake.merge.incoming import BoolArray, IntArray, codes_of_repeated_keys, key_order
from bucketlake.metadata.record_index.locations import NOT_FOUND, RecordIndexReader
from bucketlake.model.field_path import roots_of
from bucketlake.model.file_name import FileId, Group
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.grouping import grouped
from bucketlake.model.schema import RECORD_KEY, with_meta
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import Snapshot
from bucketlake.write.batch_reader import BatchReader
from bucketlake.write.record_index.lookups import LookupPlacement
from bucketlake.write.slot_stage import RECORDS
from bucketlake.write.tag import (
    KEY,
    MOVED,
    PARTITION,
    SLOT,
    TaggedRecords,
    Tagger,
    input_changed,
    positions_of,
    without_tags,
)

if TYPE_CHECKING:
    from bucketlake.metadata.location_cache.cache import Checkpoint, LocationCache


# ---- Located records: rows of a batch with the place of their key in the index -------------------
#
# The task of a lookup adds these columns. The driver then knows how many records each
# file group gets and how many keys are new, and decides where new keys go. Its decision is a list
# of cuts: the new keys of a lookup and partition, sorted, have ranks, and from some rank on they
# go into the next group. So :class:`Routes`, a few numbers, gives each record its slot.


LOCATED, ENTRIES = "located", "entries"
"""The channels of located records, and of keys whose entries in the index change."""

LOOKUP = "_bucketlake_lookup"
"""Number of the lookup that located a record."""

PLACE = "_bucketlake_place"
"""Position among the groups that the lookup found; for a new key ``-1 - partition``."""

RANK = "_bucketlake_rank"
"""Rank of a new key among the sorted new keys of its lookup and partition; else -1."""

NO_RANK = -1

_RANK_BITS = np.int64(32)

ENTRY_ROWS = pa.schema(
    [(KEY, pa.string()), (LOOKUP, pa.int32()), (PLACE, pa.int32()), (RANK, pa.int32())]
)
"""Keys whose entries in the index a write changes: new keys by rank, and gone keys, without one."""


@dataclass(frozen=True, slots=True)
class LookupResult:
    """What a lookup found; sent to the driver.

    Attributes
    ----------
    number : int
        Position of the lookup in the plan; of a shard that its task writes (``by_shard.py``), the
        position of its slot.
    records : int
        Number of records that the task received for it.
    groups : tuple of (str, FileId, int)
        Stored groups of the records: partition path, file id, number of records. A task that
        writes its shard names only a group of another shard, and then it has written nothing.
    new : tuple of (int, int)
        New keys: position of the partition in the plan, number of keys.
    gone : int
        Keys that are certain to be gone after the write.
    unknown : int
        Deletes that were dropped, because the index does not have their keys.
    looked_up : int
        Keys that were looked up in the index; 0 if the index has no shard for them yet.
    from_cache : int
        Those of them that the cache of the host answered. It differs between two attempts of a
        task, so nothing that is written may follow from it.
    ignored : int
        Records that lost to a stored row of another partition by their ordering value.
    moved : int
        Records whose key leaves another partition.
    """

    number: int
    records: int
    groups: tuple[tuple[str, FileId, int], ...] = ()
    new: tuple[tuple[int, int], ...] = ()
    gone: int = 0
    unknown: int = 0
    looked_up: int = 0
    from_cache: int = 0
    ignored: int = 0
    moved: int = 0

    @property
    def inserted(self) -> int:
        """Number of new keys."""
        return sum(count for _, count in self.new)


Cut: TypeAlias = tuple[int, int, int, int]
"""Lookup, partition and rank from which on the new keys go into a slot, and this slot.

They are positions in the plan of lookups, and in the plan of the write.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """Gives each located record its slot, and each changed key its shard.

    It is small enough to travel with the task's code.

    Attributes
    ----------
    first_place : ndarray of int32, shape (n_lookups,)
        Where the groups of each lookup begin in ``slot_of_place``.
    slot_of_place : ndarray of int32
        The slot of each group of each lookup.
    partition_count : int
        Number of partitions in the plan of lookups.
    cut_codes : ndarray of int64, ascending
        Lookup, partition and rank of each cut as one number.
    cut_slots : ndarray of int32
        The slot of each cut.
    shard_of_lookup : ndarray of int32
        For each lookup, the position of its shard in the plan; -1 if no entry changes.
    """

    first_place: npt.NDArray[np.int32]
    slot_of_place: npt.NDArray[np.int32]
    partition_count: int
    cut_codes: npt.NDArray[np.int64]
    cut_slots: npt.NDArray[np.int32]
    shard_of_lookup: npt.NDArray[np.int32]

    @classmethod
    def of(
        cls,
        slots_of_lookups: Sequence[Sequence[int]],
        partition_count: int,
        cuts: Sequence[Cut],
        shard_of_lookup: Sequence[int],
    ) -> Self:
        """Return routes.

        Parameters
        ----------
        slots_of_lookups : sequence of sequence of int
            For each lookup, the slot of each group that it found.
        partition_count : int
            Number of partitions in the plan of lookups.
        cuts : sequence of Cut
            The cuts, in any order.
        shard_of_lookup : sequence of int
            For each lookup, the position of its shard in the plan; -1 if no entry changes.
        """
        sizes = np.array([len(slots) for slots in slots_of_lookups], np.int32)
        flat = [slot for slots in slots_of_lookups for slot in slots]
        lookups, places, ranks, slots = np.array(sorted(cuts), np.int64).reshape(-1, 4).T
        return cls(
            (np.cumsum(sizes) - sizes).astype(np.int32),
            np.array(flat, np.int32),
            partition_count,
            (lookups * partition_count + places << _RANK_BITS) | ranks,
            slots.astype(np.int32),
            np.array(shard_of_lookup, np.int32),
        )

    def slots(self, located: pa.Table) -> npt.NDArray[np.int32]:
        """Return the slot of each row that has ``LOOKUP``, ``PLACE`` and ``RANK``."""
        lookups, places, ranks = (located[name].to_numpy() for name in (LOOKUP, PLACE, RANK))
        slots = np.empty(len(lookups), np.int32)
        stored = np.flatnonzero(places >= 0)
        slots[stored] = self.slot_of_place[self.first_place[lookups[stored]] + places[stored]]
        new = np.flatnonzero(places < 0)
        if len(new):
            pools = lookups[new].astype(np.int64) * self.partition_count - 1 - places[new]
            codes = (pools << _RANK_BITS) | ranks[new]
            slots[new] = self.cut_slots[np.searchsorted(self.cut_codes, codes, side="right") - 1]
        return slots


# ---- Locating the records of a batch: the first stage --------------------------------------------

_PARTITION = "_bucketlake_partition_code"  # Position of the partition in the plan.

PlaceArray = npt.NDArray[np.int32]


def _winners(
    snapshot: Snapshot, reader: BatchReader, rows: pa.Table, keys: pa.Array, stored: Sequence[Group]
) -> tuple[BoolArray, BoolArray, pa.Table | None]:
    """Return which records win over the row of their key in another partition, and what to insert.

    The second value tells which keys have a stored row: an entry may outlive its row. Without
    ordering values nothing is read, and all have one. The last value are the rows to insert; None
    if they are those of the batch.

    Parameters
    ----------
    snapshot : Snapshot
        The pinned table.
    reader : BatchReader
        Makes incoming records of the rows, and says how they are combined with stored rows.
    rows : pa.Table
        The rows.
    keys : pa.StringArray
        Their keys.
    stored : sequence of (str, FileId)
        The group that has the key of each row.
    """
    wins = np.ones(len(keys), np.bool_)
    combining, fields = reader.combining, reader.rule.compared
    if not fields and combining is None:
        return wins, wins, None
    is_held = np.zeros(len(keys), np.bool_)
    incoming = reader.read(rows, keys)
    of_group = grouped((group, row) for row, group in enumerate(stored))
    held_slices = snapshot.partition_slices(sorted({path for path, _ in of_group}))
    slices = {found.group: found for found in held_slices}
    slice_reader = SliceReader.of_snapshot(snapshot)
    columns = [RECORD_KEY, *roots_of(fields, snapshot.schema.names)]
    if combining is not None:
        columns = [RECORD_KEY, *reader.schema.names]
        slice_reader = replace(slice_reader, schema=with_meta(reader.schema))
    source, parts = np.arange(len(keys)), [incoming.columns]
    for group, numbers in sorted(of_group.items()):
        held = slices.get(group)
        own = np.array(numbers, np.int64)
        if held is None:  # The driver finds that the group is gone.
            is_held[own] = True
            continue
        records = incoming.take(own)
        for chunk in slice_reader.read(held, columns):
            met = meet(records, chunk, fields, combining, group_in_words(*group))
            positions = own[met.positions]
            wins[positions], is_held[positions] = met.wins, True
            if met.made_rows is not None:  # A late record meets the row again where it is.
                won = met.wins[met.made]
                count = sum(part.num_rows for part in parts)
                source[positions[met.made[won]]] = count + np.arange(int(won.sum()))
                parts.append(met.made_rows.filter(pa.array(won)))
    if combining is None:
        return wins, is_held, None
    columns_of_rows = joined(*parts).take(pa.array(source))
    return wins, is_held, reader.rows_of(replace(incoming, columns=columns_of_rows))


@dataclass(frozen=True, slots=True)
class KeyFinder:
    """Finds the file groups of keys; a picklable value that all tasks of a write share.

    Attributes
    ----------
    index : RecordIndexReader
        The pinned index.
    cache : LocationCache or None
        The cache of shards on the host of the task.
    checkpoint : Checkpoint or None
        The batch of a stream that the records are, for the cache.
    """

    index: RecordIndexReader
    cache: LocationCache | None = None
    checkpoint: Checkpoint | None = None

    def find(
        self, held: FileSlice | None, keys: pa.Array
    ) -> tuple[PlaceArray, Sequence[Group], int]:
        """Find keys in a stored shard; None is a shard without entries.

        Returns
        -------
        ndarray of int32, shape (n_keys,)
            For each key, the position of its group; or ``NOT_FOUND``.
        sequence of (str, FileId)
            The groups.
        int
            Number of keys that the cache answered.
        """
        if held is None or len(keys) == 0:
            return np.full(len(keys), NOT_FOUND, np.int32), [], 0
        if self.cache is not None:
            cached = self.cache.find(self.index, held, keys, self.checkpoint)
            return cached.codes, cached.groups, len(keys) if cached.served.is_from_cache else 0
        found = self.index.find_in(held, keys)
        return found.codes, [(held.partition_path, held.file_id) for held in found.locations], 0


@dataclass(frozen=True, slots=True)
class LocateStage:
    """The stage that locates records; a picklable value that all tasks of a write share.

    Attributes
    ----------
    tagger : Tagger
        Finds key and partition of each row.
    placement : LookupPlacement
        Finds the lookup of each row.
    finder : KeyFinder
        Looks keys up.
    reader : BatchReader
        Makes incoming records of rows.
    columns : pa.Schema
        Columns of the records, without tags.
    replaced : set of str
        Partitions whose stored rows the write replaces; only of a global index.
    dead : set of (str, FileId)
        File groups that are no longer live, though the index has entries with them.
    removes_entries : bool
        Whether deletes that are certain to win remove the entry of their key.
    moving : Snapshot or None
        For a global index, the pinned table: its rows in other partitions meet the records.
    """

    tagger: Tagger
    placement: LookupPlacement
    finder: KeyFinder
    reader: BatchReader
    columns: pa.Schema
    replaced: frozenset[str] = frozenset()
    dead: frozenset[Group] = frozenset()
    removes_entries: bool = False
    moving: Snapshot | None = None

    def route(self, rows: Rows) -> tuple[TaskArray, pa.Table]:
        """Send each record to the task of its lookup, with the numbers of lookup and partition."""
        tagged = self.tagger.tags_of(rows.table)
        numbers = self.placement.numbers(tagged)
        strayed = numbers == NO_TASK
        if strayed.any():
            arrived = f"{strayed.sum()} records are of other partitions"
            raise input_changed("the records of every partition", arrived)
        table = rows.table.drop_columns([PARTITION, SLOT])
        table = table.append_column(LOOKUP, pa.array(numbers))
        table = table.append_column(_PARTITION, pa.array(self.placement.partition_codes(tagged)))
        return in_task_order(self.placement.place(numbers), numbers, table)

    def run(
        self, plans: Sequence[SlotPlan], received: Mapping[str, pa.Table]
    ) -> Iterator[LookupResult | Rows]:
        """Locate the records of some lookups; yield them and the result of each lookup.

        Parameters
        ----------
        plans : sequence of SlotPlan
            The lookups of the task.
        received : mapping of str to pa.Table
            Their records, in any order.
        """
        rows = received.get(RECORDS)
        if rows is None:
            _, rows = self.route(Rows(RECORDS, self.tagger.no_rows(self.columns)))
        numbered = NumberedRows.of(rows, LOOKUP)
        for lookup in plans:
            yield from self._locate(lookup, numbered.take(lookup.number))

    def _locate(self, lookup: SlotPlan, rows: pa.Table) -> Iterator[LookupResult | Rows]:
        received = rows.num_rows
        positions = positions_of(rows)
        keys = self.tagger.keys_of(rows)
        codes = rows[_PARTITION].to_numpy()
        tagged = TaggedRecords(
            keys, [*self.placement.partitions], codes, np.zeros(len(codes), np.int32)
        )
        has_keys = KEY in rows.column_names
        rows = without_tags(rows.drop_columns([LOOKUP, _PARTITION]))
        rows, tagged = self._distinct(rows, tagged, positions)
        places, groups, from_cache = self._find(lookup, tagged.keys)
        looked_up = len(places) if lookup.slices else 0
        deleted = self.reader.delete_flags(rows)
        unknown = deleted & (places == NOT_FOUND)
        if unknown.any():
            kept = np.flatnonzero(~unknown)
            rows, tagged = _taken(rows, tagged, kept)
            places, deleted = places[kept], deleted[kept]
        moved: BoolArray | None = None
        ignored = 0
        if self.moving is not None:
            rows, tagged, places, moved, ignored = self._move(rows, tagged, places, deleted, groups)
            deleted = self.reader.delete_flags(rows) | moved
        new = np.flatnonzero(places == NOT_FOUND)
        places[new] = -1 - tagged.partition_codes[new]
        ranks = np.full(len(places), NO_RANK, np.int32)
        ranks[new] = _ranks(tagged.keys.take(pa.array(new)), places[new])
        gone = self._gone(rows, tagged.keys, deleted if moved is None else deleted & ~moved)
        counts = np.bincount(places[places >= 0], minlength=len(groups)).tolist()
        opened, new_counts = np.unique(places[new], return_counts=True)
        result = LookupResult(
            lookup.number,
            received,
            tuple((*group, count) for group, count in zip(groups, counts, strict=True)),
            tuple(zip((-1 - opened).tolist(), new_counts.tolist(), strict=True)),
            len(gone),
            int(unknown.sum()),
            looked_up,
            from_cache,
            ignored,
            0 if moved is None else int(moved.sum()),
        )
        rows = rows.append_column(LOOKUP, pa.array(np.full(len(places), lookup.number, np.int32)))
        rows = rows.append_column(PLACE, pa.array(places)).append_column(RANK, pa.array(ranks))
        if has_keys:
            rows = rows.append_column(KEY, tagged.keys)
        if moved is not None:
            rows = rows.append_column(MOVED, pa.array(moved))
        chosen = np.concatenate([new, gone])
        yield Rows(LOCATED, rows)
        yield Rows(ENTRIES, _entries(lookup.number, tagged.keys, places, ranks, chosen))
        yield result

    def _distinct(
        self, rows: pa.Table, tagged: TaggedRecords, positions: IntArray | None
    ) -> tuple[pa.Table, TaggedRecords]:
        """Return one row for each key.

        Rows that are combined with others get the columns of the table, in each task of the write.
        """
        reader = self.reader
        if reader.combining is None and codes_of_repeated_keys(tagged.keys) is None:
            return reader.with_resets(rows, None), tagged
        records, last = reader.distinct(reader.read(rows, tagged.keys), positions)
        if reader.combining is not None:
            return reader.rows_of(records), tagged.take(last)
        rows, tagged = _taken(rows, tagged, last)
        return reader.with_resets(rows, records), tagged

    def _find(self, lookup: SlotPlan, keys: pa.Array) -> tuple[PlaceArray, list[Group], int]:
        """Find the place of each key among the groups of all keys.

        A lost task must find the same places again, with or without the cache. The last value is
        the number of keys that the cache answered.
        """
        codes, known, from_cache = self.finder.find(next(iter(lookup.slices), None), keys)
        wanted = {
            code: known[code]
            for code in np.unique(codes[codes != NOT_FOUND]).tolist()
            if known[code][0] not in self.replaced and known[code] not in self.dead
        }
        groups = sorted({*wanted.values()})
        numbers = {group: place for place, group in enumerate(groups)}
        places = np.full(len(known) + 1, NOT_FOUND, np.int32)  # The last is for NOT_FOUND, -1.
        for code, group in wanted.items():  # Entries of several instants may name one group.
            places[code] = numbers[group]
        return places[codes], groups, from_cache

    def _move(
        self,
        rows: pa.Table,
        tagged: TaggedRecords,
        places: PlaceArray,
        deleted: BoolArray,
        groups: Sequence[Group],
    ) -> tuple[pa.Table, TaggedRecords, PlaceArray, BoolArray, int]:
        """Replace each record whose key is stored in another partition by a delete and an insert.

        The last value is the number of dropped records, which lost by their ordering value. A
        delete goes to the stored row, whatever its own partition columns say. A key without a
        stored row is new, though the index has an entry for it.
        """
        assert self.moving is not None
        numbers: dict[str, int] = {path: n for n, path in enumerate(tagged.partitions)}
        held = [numbers.setdefault(path, len(numbers)) for path, _ in groups]
        stored = np.array([*held, NOT_FOUND], np.int32)[places]
        moving = np.flatnonzero(
            (places != NOT_FOUND) & ~deleted & (stored != tagged.partition_codes)
        )
        if len(moving) == 0:
            return rows, tagged, places, np.zeros(len(places), np.bool_), 0
        own_rows, own = _taken(rows, tagged, moving)
        of_rows = [groups[place] for place in places[moving].tolist()]
        wins, is_held, moved_rows = _winners(self.moving, self.reader, own_rows, own.keys, of_rows)
        kept = np.ones(len(places), np.bool_)
        kept[moving[~wins]] = False
        inserted = places.copy()
        inserted[moving] = NOT_FOUND
        order = np.concatenate([np.flatnonzero(kept), moving[wins & is_held]])
        moved = np.zeros(len(order), np.bool_)
        moved[int(kept.sum()) :] = True
        if moved_rows is not None:
            source = np.arange(len(places))
            source[moving] = len(places) + np.arange(len(moving))
            rows = pa.concat_tables([rows, moved_rows]).take(pa.array(source))
        rows, tagged = _taken(rows, tagged, order)
        places = np.where(moved, places[order], inserted[order])
        return rows, tagged, places, moved, int((~wins).sum())

    def _gone(self, rows: pa.Table, keys: pa.Array, deleted: BoolArray) -> IntArray:
        """Return the rows whose keys are certain to be gone after the write."""
        certain = np.flatnonzero(deleted) if self.removes_entries else np.empty(0, np.int64)
        if len(certain) == 0 or self.reader.deletes_by_key or not self.reader.rule.compares:
            return certain
        indices = pa.array(certain)
        return certain[self.reader.read(rows.take(indices), keys.take(indices)).is_reset]


def _taken(
    rows: pa.Table, tagged: TaggedRecords, chosen: IntArray
) -> tuple[pa.Table, TaggedRecords]:
    return rows.take(pa.array(chosen)), tagged.take(chosen)


def _ranks(keys: pa.Array, places: PlaceArray) -> PlaceArray:
    """Return the rank of each key among the sorted keys of its partition."""
    ranks = np.empty(len(keys), np.int32)
    for place in np.unique(places):
        own = np.flatnonzero(places == place)
        ordered = own[key_order(keys.take(pa.array(own)))]
        ranks[ordered] = np.arange(len(own), dtype=np.int32)
    return ranks


def _entries(
    number: int, keys: pa.Array, places: PlaceArray, ranks: PlaceArray, chosen: IntArray
) -> pa.Table:
    columns = [
        keys.take(pa.array(chosen)),
        pa.array(np.full(len(chosen), number, np.int32)),
        pa.array(places[chosen]),
        pa.array(ranks[chosen]),
    ]
    return pa.Table.from_arrays(columns, schema=ENTRY_ROWS)
