"""Building a record-level index from the keys of a table.

The entries come from the live file slices: of base files only the key column is read, and log files
are merged. A key that only log files delete has an entry, too, as in an index that writes maintain:
an older record must find the delete. An entry has the time of its slice, as in Hudi. Each shard
gets one base file, unless it has no keys. Memory holds the keys of a few shards.
The caller completes the instant of the build, and lists the index in the properties of the table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.actions.progress import telling_progress
from bucketlake.config.table_config import TimelineTimezone
from bucketlake.errors import InputError, KeyTwiceError
from bucketlake.flow.stage import (
    NO_TASK,
    Engine,
    Int32Array,
    NumberedRows,
    Rows,
    in_task_order,
    spread,
)
from bucketlake.format.base_file import BaseFileReader
from bucketlake.format.hfile.reader import HFileReader
from bucketlake.format.hfile.writer import FILE_BYTES_MAX
from bucketlake.format.metadata_record.file_ids import MetadataFileId, MetadataPartition
from bucketlake.format.metadata_record.record_schema import (
    IndexedLocation,
    decode_locations,
    encode_locations,
)
from bucketlake.merge.incoming import key_order
from bucketlake.metadata.creation import begin_initialisation, built_slice
from bucketlake.metadata.log_files import EntryEncoder, base_file_name, base_file_stat
from bucketlake.metadata.metadata_table import list_files_of
from bucketlake.metadata.record_index.shards import (
    GLOBAL_LIMITS,
    PARTITIONED_LIMITS,
    IndexShards,
    Shard,
    ShardLimits,
    ShardRule,
)
from bucketlake.model.arrays import is_everything, number_order
from bucketlake.model.file_name import BaseFileName, FileId, InstantTime
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.grouping import grouped
from bucketlake.model.write_stat import WriteStat
from bucketlake.read.clean_guard import telling_what_is_gone
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import Snapshot
from bucketlake.storage.base import Storage, at_once
from bucketlake.timeline.data_file import put_data_files
from bucketlake.timeline.instant import instant_to_ms
from bucketlake.timeline.markers import Marker, MarkerType
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import read_outcome
from bucketlake.write.record_index.index_writer import ShardPlan

_KEYS_PER_PASS = 8_000_000
_TASK_KEYS = 2_000_000  # A larger shard has a task of its own.
_TASKS_LEAST = 8  # Fewer only if there are fewer shards.


_KEYS = "keys"
_KEY_ROWS = pa.schema(
    [
        ("key", pa.string()),
        ("shard", pa.int32()),  # Position among the shards of the pass.
        ("value", pa.dictionary(pa.int32(), pa.binary())),
        ("deleted", pa.bool_()),  # Such an entry gives way to one of a stored record.
    ]
)


@dataclass(frozen=True, slots=True, eq=False)
class IndexBuilder:
    """The stage that writes the base files of shards; a picklable value that tasks share.

    Attributes
    ----------
    reader : SliceReader
        Merges slices.
    metadata : Storage
        Storage of the metadata table.
    encoder : EntryEncoder
        Of the instant of the metadata table that builds the index.
    inflight : str
        Path of its inflight file, which exists while the build is pending.
    slice_instant : InstantTime
        The instant in the names of base files (``built_slice``).
    shards : IndexShards
        The shards of the index.
    timezone : {"UTC", "LOCAL"}
        Zone of the table's timeline.
    keeps_one : bool
        Whether a key that is stored twice gets the place of one of its rows; else it is an error.
    is_needed : bool
        Whether the kind of the table needs this index.
    tasks : ndarray of int32, shape (n_shards,)
        The tasks of the shards of a pass.
    """

    reader: SliceReader
    metadata: Storage
    encoder: EntryEncoder
    inflight: str
    slice_instant: InstantTime
    shards: IndexShards
    timezone: TimelineTimezone
    keeps_one: bool = False
    is_needed: bool = False
    tasks: Int32Array = field(default_factory=lambda: np.empty(0, np.int32))

    def read_keys(self, numbers: Mapping[Shard, int], file_slice: FileSlice) -> Iterator[Rows]:
        """Read the keys of a slice: those of its rows, and those of its deletes.

        ``numbers`` are those of the shards in this pass; keys of other shards are dropped.
        """
        partition = file_slice.partition_path
        at_ms = instant_to_ms(file_slice.instant, self.timezone)
        location = IndexedLocation(partition, file_slice.file_id, at_ms)
        value = encode_locations([location])
        shards = (self.shards.shard(n, partition) for n in range(self.shards.count(partition)))
        known = np.array([numbers.get(shard, NO_TASK) for shard in shards], np.int32)
        for keys, is_deleted in self.reader.keys(file_slice):
            of_key = np.full(len(keys), known[0])
            if len(known) > 1:
                of_key = known[self.shards.numbers_of(keys, partition)]
            wanted = np.flatnonzero(of_key != NO_TASK)
            if not is_everything(wanted, len(keys)):
                keys, of_key = keys.take(pa.array(wanted)), of_key[wanted]
            codes = pa.array(np.zeros(len(keys), np.int32))
            values = pa.DictionaryArray.from_arrays(codes, value)
            columns = [keys, pa.array(of_key), values, pa.repeat(is_deleted, len(keys))]
            yield Rows(_KEYS, pa.Table.from_arrays(columns, schema=_KEY_ROWS))

    def route(self, rows: Rows) -> tuple[Int32Array, pa.Table]:
        """Send keys to the tasks of their shards."""
        numbers = rows.table["shard"].to_numpy()
        return in_task_order(self.tasks[numbers], numbers, rows.table)

    def run(
        self, plans: Sequence[ShardPlan], received: Mapping[str, pa.Table]
    ) -> Iterator[WriteStat]:
        """Build the shards of a task that have keys."""
        numbered = NumberedRows.of(received.get(_KEYS, _KEY_ROWS.empty_table()), "shard")
        for plan in sorted(plans, key=lambda plan: plan.number):
            if numbered.count(plan.number):
                yield self.build_shard(plan.shard, numbered.take(plan.number))

    def build_shard(self, shard: Shard, rows: pa.Table) -> WriteStat:
        """Write the base file of a shard that has keys, unless it exists.

        Raises
        ------
        KeyTwiceError
            If a key is stored twice.
        InputError
            If a shard would be too large for one file.
        """
        name = base_file_name(shard.file_id, self.slice_instant)
        marker = Marker(RECORD_INDEX, name.to_file_name(), MarkerType.CREATE)
        stored = self.metadata.stat(marker.data_path)
        if stored is not None:
            return _stat_of_stored(self.metadata, DataFile(RECORD_INDEX, name, stored.size_bytes))
        keys, values = _sorted_entries(shard, rows)
        repeated = pc.equal(keys[1:], keys[:-1])
        row = pc.index(repeated, True).as_py()
        if row >= 0 and not self.keeps_one:
            key, places = keys[row].as_py(), values.slice(row, 2)
            raise _stored_twice(key, places, self.reader.storage.root, is_needed=self.is_needed)
        if row >= 0:
            is_first = pa.concat_arrays([pa.array([True]), pc.invert(repeated)])
            keys, values = keys.filter(is_first), values.filter(is_first)
        data = self.encoder.base_file(RECORD_INDEX, keys, values)
        put_data_files(self.metadata, self.encoder.instant, self.inflight, [(marker, data)])
        return base_file_stat(name, RECORD_INDEX, len(keys), len(data))


def build_index(
    snapshot: Snapshot,
    table: OpenTable,
    plan: IndexBuildPlan,
    engine: Engine,
    *,
    keeps_one: bool = False,
    is_needed: bool = False,
) -> list[WriteStat]:
    """Write the files of an index; the instant is inflight afterwards.

    Parameters
    ----------
    snapshot : Snapshot
        The table, as for the plan.
    table : OpenTable
        Its metadata table.
    plan : IndexBuildPlan
        The plan.
    engine : Engine
        Builds the shards.
    keeps_one, is_needed : bool
        As for :class:`IndexBuilder`.

    Returns
    -------
    list of WriteStat
        The base files, including those of earlier attempts, for ``complete_initialisation``. Empty
        if an earlier attempt has decided the instant.

    Raises
    ------
    KeyTwiceError
        If a key is stored twice.
    InputError
        If a shard would be too large for one file.
    CommitConflictError
        If another process withdrew the build.
    """
    storage, instant = table.storage, plan.instant
    inflight = begin_initialisation(table, RECORD_INDEX, plan.file_ids, instant)
    if read_outcome(storage, instant) is not None:
        return []
    built: list[WriteStat] = []
    if plan.slices:
        build = EntryEncoder.of(table.config, instant), inflight, plan.slice_instant, plan.shards
        rules = table.config.timeline_timezone, keeps_one, is_needed
        builder = IndexBuilder(SliceReader.of_snapshot(snapshot), storage, *build, *rules)
        shard_count = len(plan.written) + len(plan.missing)
        with telling_progress(storage, instant, "record index", shard_count):
            built = _build(engine, builder, plan)
    return sorted([*plan.written, *built], key=lambda stat: stat.file_id)


def _build(engine: Engine, builder: IndexBuilder, plan: IndexBuildPlan) -> list[WriteStat]:
    """Build the missing shards; where memory holds all keys, some shards in each pass."""
    passes = _passes(plan) if engine.in_memory else [([*plan.missing], [*plan.slices])]
    counts = dict(zip(plan.missing, plan.key_counts, strict=True))
    stats: list[WriteStat] = []
    for shards, slices in passes:
        keys = [counts[shard] for shard in shards]
        wanted = -(-sum(keys) // _TASK_KEYS)
        task_count = max(1, min(len(shards), max(_TASKS_LEAST, wanted)))
        tasks = spread(keys, task_count)
        numbers = {shard: number for number, shard in enumerate(shards)}
        builds = [ShardPlan(n, shard, task=tasks[n]) for shard, n in numbers.items()]
        building = replace(builder, tasks=np.array(tasks, np.int32))
        sizes = [held.size_bytes for held in slices]
        read = engine.start(partial(builder.read_keys, numbers), slices, sizes)
        stats += read.then(building, builds, task_count).results()
    return stats


def _passes(plan: IndexBuildPlan) -> Iterator[tuple[list[Shard], list[FileSlice]]]:
    """Yield shards whose keys fit into memory together, and the slices that have their keys."""
    of_partition = grouped(
        (held.partition_path if plan.shards.is_partitioned else None, held) for held in plan.slices
    )
    shards: list[Shard] = []
    key_count = 0
    for shard, count in zip(plan.missing, plan.key_counts, strict=True):
        if shards and key_count + count > _KEYS_PER_PASS:
            yield shards, _slices_of(shards, of_partition)
            shards, key_count = [], 0
        shards.append(shard)
        key_count += count
    if shards:
        yield shards, _slices_of(shards, of_partition)


def _slices_of(
    shards: Sequence[Shard], of_partition: Mapping[str | None, list[FileSlice]]
) -> list[FileSlice]:
    paths = dict.fromkeys(shard.data_partition for shard in shards)
    return [file_slice for path in paths for file_slice in of_partition.get(path, [])]


def _sorted_entries(shard: Shard, rows: pa.Table) -> tuple[pa.Array, pa.DictionaryArray]:
    """Return keys in order, and their values; the values of one key are in order, too.

    A deleted key has one entry, that with the least value, and none if the key is stored.
    """
    keys, values = rows["key"].combine_chunks(), rows["value"].combine_chunks()
    if keys.nbytes > FILE_BYTES_MAX:
        problem = f"the keys of shard {shard.file_id} have more than {FILE_BYTES_MAX} bytes"
        raise InputError("record-level index", problem, "give it more shards")
    by_value = pc.array_sort_indices(values.dictionary)
    ranks = np.empty(len(by_value), np.int32)
    ranks[by_value.to_numpy()] = np.arange(len(by_value), dtype=np.int32)
    codes, deleted = ranks[values.indices.to_numpy()], rows["deleted"].to_numpy()
    rows_of_keys = number_order(codes + deleted * np.int64(len(ranks)))
    order = rows_of_keys[key_order(keys.take(pa.array(rows_of_keys)))]
    keys, codes, deleted = keys.take(pa.array(order)), codes[order], deleted[order]
    values = pa.DictionaryArray.from_arrays(pa.array(codes), values.dictionary.take(by_value))
    if not deleted.any():
        return keys, values
    is_first = np.append(True, pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False))
    kept = pa.array(is_first | ~deleted)
    return keys.filter(kept), values.filter(kept)


def _stored_twice(
    key: str, values: pa.DictionaryArray, table: str, *, is_needed: bool
) -> KeyTwiceError:
    decoded = decode_locations(values, table)
    first, second = (decoded.locations[i] for i in decoded.indices.to_pylist())
    next_step = "run table.repair(check_keys=True) (bucketlake repair --check-keys --run)"
    if first == second:
        places = f"file group {first.file_id} of {first.partition_path!r} twice"
    elif first.partition_path == second.partition_path:
        places = f"file groups {first.file_id} and {second.file_id} of {first.partition_path!r}"
    else:
        places = f"data partitions {first.partition_path!r} and {second.partition_path!r}"
        if not is_needed:
            next_step = (
                "build a partitioned index: table.rebuild_metadata_table(['record_index'], "
                "partitioned=True)"
            )
    return KeyTwiceError(table, key, places, next_step)


# ---- Planning the build of a record-level index: how many shards, and which of them are missing --
#
# An attempt that was interrupted is continued: shards whose base file exists are not built again,
# and its shards keep their number. The attempts may see different states of the table. Writers
# maintain the index since before the first attempt, and their entries are newer than the base
# files.

RECORD_INDEX = MetadataPartition.RECORD_INDEX

_SAMPLED_FILES = 256
_ROW_BYTES = 100  # Of a table without base files.


@dataclass(frozen=True, slots=True)
class IndexBuildPlan:
    """What has to be built.

    Attributes
    ----------
    instant : InstantTime
        Instant of the metadata table that builds the index.
    slice_instant : InstantTime
        The instant in the names of base files (``built_slice``).
    shards : IndexShards
        All shards of the index.
    missing : tuple of Shard
        Shards without a base file of the instant.
    key_counts : tuple of int
        Number of keys of each missing shard, estimated.
    slices : tuple of FileSlice
        Live slices that may have keys of missing shards.
    written : tuple of WriteStat
        Base files of an earlier attempt.
    """

    instant: InstantTime
    slice_instant: InstantTime
    shards: IndexShards
    missing: tuple[Shard, ...]
    key_counts: tuple[int, ...]
    slices: tuple[FileSlice, ...]
    written: tuple[WriteStat, ...] = ()

    @property
    def file_ids(self) -> list[FileId]:
        """The file groups of the index."""
        return [shard.file_id for shard in self.shards.shards()]


def plan_index(
    snapshot: Snapshot,
    table: OpenTable,
    instant: InstantTime,
    *,
    is_partitioned: bool,
    limits: ShardRule | None = None,
    opened: IndexShards | None = None,
) -> IndexBuildPlan:
    """Plan the build of an index; the cost is that of listing the table, and of some footers.

    Parameters
    ----------
    snapshot : Snapshot
        The table.
    table : OpenTable
        Its metadata table.
    instant : InstantTime
        Instant of the metadata table that builds the index.
    is_partitioned : bool
        Whether each data partition gets shards of its own.
    limits : ShardRule, optional
        Number of shards; by default as in Hudi.
    opened : IndexShards, optional
        Shards that writers use already, because the index is listed as being built. Data partitions
        without shards get as many as a writer would open.

    Raises
    ------
    InputError
        If a partitioned index cannot name the shards of a data partition, because its path has a
        dot.
    """
    slices = snapshot.all_slices()
    set_of = [file_slice.partition_path if is_partitioned else "" for file_slice in slices]
    key_counts = _key_counts(snapshot.storage, slices, set_of)
    if is_partitioned and opened is not None:
        # Partitions without shards are newer than the first step of the build. A writer that opens
        # their shards at the same time opens the least number.
        limits = ShardLimits(PARTITIONED_LIMITS.least, PARTITIONED_LIMITS.least)
    elif limits is None:
        limits = PARTITIONED_LIMITS if is_partitioned else GLOBAL_LIMITS
    named = built_slice(table, RECORD_INDEX, instant)
    opened_before, written = _earlier_attempt(table.storage, named)
    done = {stat.file_id for stat in written}
    facts = map(MetadataFileId.from_file_id, done)
    begun = {fact.data_partition or "" for fact in facts if fact is not None}
    counts = {} if is_partitioned else {"": 0}
    for path, key_count in sorted({**counts, **key_counts}.items()):
        before = opened_before.count(path)
        if path not in begun:  # An attempt opens all shards before it writes a base file.
            before = max(before, limits.shard_count(key_count))
        counts[path] = (opened.count(path) if opened else 0) or before
    shards = IndexShards(None, counts) if is_partitioned else IndexShards(counts[""])
    missing = [shard for shard in shards.shards() if shard.file_id not in done]
    incomplete = {shard.data_partition or "" for shard in missing}
    return IndexBuildPlan(
        instant,
        named,
        shards,
        tuple(missing),
        tuple(
            key_counts.get(shard.data_partition or "", 0)
            // shards.count(shard.data_partition or "")
            for shard in missing
        ),
        tuple(s for s, path in zip(slices, set_of, strict=True) if path in incomplete),
        written,
    )


def _stat_of_stored(storage: Storage, file: DataFile) -> WriteStat:
    """Return what the commit of a build says about a base file of an earlier attempt."""
    assert isinstance(file.name, BaseFileName), file
    reader = HFileReader.open(storage, file.path, file.size_bytes)
    return base_file_stat(file.name, RECORD_INDEX, reader.entry_count, file.size_bytes)


def _earlier_attempt(
    storage: Storage, instant: InstantTime
) -> tuple[IndexShards, tuple[WriteStat, ...]]:
    """Return the shards that an earlier attempt opened, and the base files that it wrote."""
    files = [f for f in list_files_of(storage, RECORD_INDEX) if f.name.instant == instant]
    written = [file for file in files if isinstance(file.name, BaseFileName)]
    stats = at_once(storage, partial(_stat_of_stored, storage), written)
    opened = IndexShards.of_file_ids((file.name.file_id for file in files), storage.root)
    return opened, tuple(stats)


def estimated_keys(storage: Storage, slices: Sequence[FileSlice]) -> int:
    """Estimate the number of keys of some slices; the cost is that of some footers."""
    return sum(_key_counts(storage, slices, [""] * len(slices)).values())


def _key_counts(
    storage: Storage, slices: Sequence[FileSlice], set_of: Sequence[str]
) -> dict[str, int]:
    """Estimate the number of keys of each data partition, or of the table.

    Footers have the rows of base files. If there are many files, some are sampled; log files are
    assumed to have rows as large as those of base files.
    """
    bases = [file_slice.base_file for file_slice in slices if file_slice.base_file is not None]
    sampled = bases[:: -(-len(bases) // _SAMPLED_FILES) or 1]

    def rows_of(path: str) -> int:
        with telling_what_is_gone(storage), BaseFileReader(storage, path) as reader:
            return reader.row_count

    paths = [file.path for file in sampled]
    rows = dict(zip(paths, at_once(storage, rows_of, paths), strict=True))
    row_bytes = sum(file.size_bytes for file in sampled) / max(sum(rows.values()), 1)
    counts: dict[str, float] = defaultdict(float)
    for file_slice, path in zip(slices, set_of, strict=True):
        for file in file_slice.files:
            estimated = file.size_bytes / (row_bytes or _ROW_BYTES)
            counts[path] += rows.get(file.path, estimated)
    return {path: int(count) for path, count in counts.items()}
