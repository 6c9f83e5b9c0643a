"""Building a record-level index from the keys of a table.

The entries come from the live file slices: of base files only the key column is read, and log files
are merged. A key that only log files delete has an entry, too, as in an index that writes maintain:
an older record must find the delete. An entry has the time of its slice, as in Hudi. Each shard
gets one base file, unless it has no keys. Memory holds the keys of a few shards.
``services/metadata/index_plan.py`` plans the build; the caller completes its instant, and lists the
index in the properties of the table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.actions.progress import telling_progress
from bucketlake.config.table_config import TimelineTimezone
from bucketlake.errors import InputError, KeyTwiceError
from bucketlake.flow.numbered_rows import NumberedRows, in_task_order
from bucketlake.flow.spread import spread
from bucketlake.flow.stage import Engine, IntArray, JobStage, Rows
from bucketlake.format.hfile.writer import FILE_BYTES_MAX, encode_hfile
from bucketlake.format.metadata_record.record_index import (
    IndexedLocation,
    decode_locations,
    encode_locations,
)
from bucketlake.format.metadata_record.record_schema import record_schema_json
from bucketlake.merge.incoming import key_order
from bucketlake.metadata.creation import base_file_name, begin_initialisation
from bucketlake.metadata.record_index.shards import IndexShards, Shard, rows_by_number
from bucketlake.metadata.slices.log_files import created_ms
from bucketlake.model.file_name import InstantTime, file_path
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.write_stat import WriteStat
from bucketlake.read.slice_reader import SliceReader
from bucketlake.read.snapshot import Snapshot
from bucketlake.services.metadata.index_plan import (
    RECORD_INDEX,
    IndexBuildPlan,
    stat_of_base_file,
    stat_of_stored,
)
from bucketlake.storage.base import Storage
from bucketlake.timeline.data_file import put_data_file
from bucketlake.timeline.instant import instant_to_ms
from bucketlake.timeline.markers import Marker, MarkerType
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.outcome import read_outcome

_KEYS_PER_PASS = 8_000_000
_TASK_KEYS = 2_000_000  # A larger shard has a task of its own.
_TASKS_LEAST = 8  # Fewer only if there are fewer shards.


@dataclass(frozen=True, slots=True, eq=False)
class KeyBatch:
    """Keys of one file slice.

    Attributes
    ----------
    keys : pa.StringArray
        Record keys.
    value : bytes
        Their value in the index.
    deleted : bool
        Whether log files delete the keys. Such an entry gives way to one of a stored record.
    """

    keys: pa.Array
    value: bytes
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class IndexBuilder:
    """The values that all tasks of one build share; small and picklable.

    Attributes
    ----------
    reader : SliceReader
        Merges slices.
    metadata : Storage
        Storage of the metadata table.
    instant : InstantTime
        Instant of the metadata table that builds the index.
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
    has_value_types : bool
        As for ``TableVersion``.
    """

    reader: SliceReader
    metadata: Storage
    instant: InstantTime
    inflight: str
    slice_instant: InstantTime
    shards: IndexShards
    timezone: TimelineTimezone
    keeps_one: bool = False
    is_needed: bool = False
    has_value_types: bool = True

    def keys_by_shard(self, file_slice: FileSlice) -> Iterator[tuple[Shard, KeyBatch]]:
        """Yield the keys of a slice by shard, in batches: of its rows, and of its deletes."""
        partition = file_slice.partition_path
        at_ms = instant_to_ms(file_slice.instant, self.timezone)
        location = IndexedLocation(partition, file_slice.file_id, at_ms)
        (value,) = encode_locations([location]).to_pylist()
        for keys, deleted in self.reader.keys(file_slice):
            yield from self._split(KeyBatch(keys, value, deleted), partition)

    def _split(self, batch: KeyBatch, partition: str) -> Iterator[tuple[Shard, KeyBatch]]:
        if self.shards.count(partition) == 1:
            yield self.shards.shard(0, partition), batch
            return
        for number, rows in rows_by_number(self.shards.numbers_of(batch.keys, partition)):
            own = replace(batch, keys=batch.keys.take(pa.array(rows)))
            yield self.shards.shard(number, partition), own

    def build_shard(self, shard: Shard, batches: Sequence[KeyBatch]) -> WriteStat | None:
        """Write the base file of a shard, unless it exists; None if the shard has no keys.

        Raises
        ------
        KeyTwiceError
            If a key is stored twice.
        InputError
            If a shard would be too large for one file.
        """
        batches = [batch for batch in batches if len(batch.keys)]
        if not batches:
            return None
        name = base_file_name(shard.file_id, self.slice_instant).to_file_name()
        path = file_path(RECORD_INDEX, name)
        stored = self.metadata.stat(path)
        if stored is not None:
            return stat_of_stored(self.metadata, stored)
        keys, values = _sorted_entries(shard, batches)
        repeated = pc.equal(keys[1:], keys[:-1])
        row = pc.index(repeated, True).as_py()
        if row >= 0 and not self.keeps_one:
            key, places = keys[row].as_py(), values.slice(row, 2)
            raise _stored_twice(key, places, self.reader.storage.root, is_needed=self.is_needed)
        if row >= 0:
            is_first = pa.concat_arrays([pa.array([True]), pc.invert(repeated)])
            keys, values = keys.filter(is_first), values.filter(is_first)
        at_ms = created_ms(self.instant, self.timezone)
        data = encode_hfile(
            keys,
            values,
            record_schema_json(has_value_types=self.has_value_types),
            created_at_ms=at_ms,
        )
        marker = Marker(RECORD_INDEX, name, MarkerType.CREATE)
        put_data_file(self.metadata, self.instant, self.inflight, marker, data)
        return stat_of_base_file(path, len(keys), len(data))


_KEYS = "keys"
_KEY_BATCHES = pa.schema(
    [
        ("key", pa.string()),
        ("shard", pa.int32()),  # Position among the shards of the build.
        ("value", pa.dictionary(pa.int32(), pa.binary())),
        ("deleted", pa.bool_()),
    ]
)


@dataclass(frozen=True, slots=True)
class _ReadKeys(JobStage):
    """Reads the keys of slices; keys of other shards are dropped."""

    builder: IndexBuilder
    numbers: Mapping[Shard, int]

    def run(self, plans: Sequence[FileSlice], _: object) -> Iterator[Rows]:
        for file_slice in plans:
            for shard, batch in self.builder.keys_by_shard(file_slice):
                number = self.numbers.get(shard)
                if number is not None:
                    yield Rows(_KEYS, _key_batch(batch, number))


@dataclass(frozen=True, slots=True)
class _ShardBuild:
    """A shard to build."""

    number: int
    shard: Shard
    task: int


@dataclass(frozen=True, slots=True)
class _BuildShards:
    """Writes the base files of shards."""

    builder: IndexBuilder
    tasks: IntArray

    def route(self, rows: Rows) -> tuple[IntArray, pa.Table]:
        """Send keys to the tasks of their shards."""
        numbers = rows.table["shard"].to_numpy()
        return in_task_order(self.tasks[numbers], numbers, rows.table)

    def run(
        self, plans: Sequence[_ShardBuild], received: Mapping[str, pa.Table]
    ) -> Iterator[WriteStat]:
        """Build the shards of a task."""
        keys = received.get(_KEYS, _KEY_BATCHES.empty_table())
        numbered = NumberedRows.of(keys, "shard")
        for plan in sorted(plans, key=lambda plan: plan.number):
            own = numbered.take(plan.number)
            stat = self.builder.build_shard(plan.shard, _batches_of(own)) if len(own) else None
            if stat is not None:
                yield stat


def _key_batch(batch: KeyBatch, shard: int) -> pa.Table:
    count = len(batch.keys)
    values = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(count, np.int32)), pa.array([batch.value], pa.binary())
    )
    shards = pa.array(np.full(count, shard, np.int32))
    columns = [batch.keys, shards, values, pa.repeat(batch.deleted, count)]
    return pa.Table.from_arrays(columns, schema=_KEY_BATCHES)


def _batches_of(keys: pa.Table) -> list[KeyBatch]:
    """Divide the keys of a shard by their value, and by whether they are deleted."""
    values = keys["value"].combine_chunks()
    deleted = keys["deleted"].to_numpy()
    codes = values.indices.to_numpy() * 2 + deleted
    texts = keys["key"].combine_chunks()
    return [
        KeyBatch(texts.take(pa.array(rows)), values.dictionary[code // 2].as_py(), bool(code % 2))
        for code, rows in rows_by_number(codes)
    ]


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
        reader, timezone = SliceReader.of_snapshot(snapshot), table.config.timeline_timezone
        builder = IndexBuilder(
            reader,
            storage,
            instant,
            inflight,
            plan.slice_instant,
            plan.shards,
            timezone,
            keeps_one,
            is_needed,
            table.config.rules.has_value_types,
        )
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
        builds = [_ShardBuild(n, *own) for n, own in enumerate(zip(shards, tasks, strict=True))]
        reading = _ReadKeys(builder, {shard: number for number, shard in enumerate(shards)})
        building = _BuildShards(builder, np.array(tasks, np.int32))
        read = engine.start(reading, slices, [held.size_bytes for held in slices])
        stats += read.then(building, builds, task_count).results()
    return stats


def _passes(plan: IndexBuildPlan) -> Iterator[tuple[list[Shard], list[FileSlice]]]:
    """Yield shards whose keys fit into memory together, and the slices that have their keys."""
    of_partition: dict[str | None, list[FileSlice]] = defaultdict(list)
    for file_slice in plan.slices:
        path = file_slice.partition_path if plan.shards.is_partitioned else None
        of_partition[path].append(file_slice)
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


def _sorted_entries(
    shard: Shard, batches: Sequence[KeyBatch]
) -> tuple[pa.Array, pa.DictionaryArray]:
    """Return keys in order, and their values; the values of one key are in order, too."""
    if sum(batch.keys.nbytes for batch in batches) > FILE_BYTES_MAX:
        problem = f"the keys of shard {shard.file_id} have more than {FILE_BYTES_MAX} bytes"
        raise InputError("record-level index", problem, "give it more shards")
    batches = sorted(_without_surpassed_deletes(batches), key=lambda batch: batch.value)
    keys = pa.concat_arrays([batch.keys for batch in batches])
    distinct: dict[bytes, int] = {}
    codes = [distinct.setdefault(batch.value, len(distinct)) for batch in batches]
    code_of_key = np.repeat(np.array(codes, np.int32), [len(batch.keys) for batch in batches])
    order = key_order(keys)
    keys = keys.take(pa.array(order))
    values = pa.DictionaryArray.from_arrays(
        pa.array(code_of_key[order]), pa.array(list(distinct), pa.binary())
    )
    return keys, values


def _without_surpassed_deletes(batches: Sequence[KeyBatch]) -> list[KeyBatch]:
    """Return the batches with one entry for each deleted key, and none if the key is stored."""
    kept = [batch for batch in batches if not batch.deleted]
    deletes = [batch for batch in batches if batch.deleted]
    if not deletes:
        return kept
    known = pa.concat_arrays([*(batch.keys for batch in kept), pa.array([], pa.string())])
    for batch in sorted(deletes, key=lambda batch: batch.value):
        unique = batch.keys.unique()
        own = unique.filter(pc.invert(pc.is_in(unique, value_set=known)))
        kept.append(replace(batch, keys=own))
        known = pa.concat_arrays([known, own])
    return kept


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
