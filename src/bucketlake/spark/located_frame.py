"""Located records of a DataFrame: the two stages of a write under a record-level index.

The first job sends each record to the task of its lookup, which adds the place of its key. Its rows
are kept by Spark (``DataFrame.persist``), since the driver plans before the second job; a lost task
gives the same rows again. The second job sends each record to the task of its file group, and each
changed key to the task of its shard of the index.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- the names that PySpark's users know.

from bucketlake.errors import IndexStateError
from bucketlake.spark.arrow_tasks import map_in_arrow
from bucketlake.spark.facts import facts_in_tasks, facts_of
from bucketlake.spark.pieces import CHUNK_ROWS, chunks, pack, unpack
from bucketlake.spark.placement import values_for_tasks
from bucketlake.spark.reports import (
    REPORT_FIELD,
    Batches,
    BatchFunction,
    collect,
    noting,
    reporting,
)
from bucketlake.spark.sending import SENT, packing, received, sent_plans
from bucketlake.spark.session_settings import SHUFFLE_SETTINGS, changed_settings
from bucketlake.write.counted import INPUT_CHANGED, STABLE_INPUT
from bucketlake.write.record_index.group_plan import GroupPlan
from bucketlake.write.record_index.index_writer import (
    PLACED_ENTRIES,
    ShardPlan,
    ShardResult,
    placed_entries,
)
from bucketlake.write.record_index.locate import LocateTask
from bucketlake.write.record_index.located import SLOT, LookupResult, Routes, with_slots
from bucketlake.write.record_index.lookups import Lookup, LookupPlan
from bucketlake.write.record_index.placed import PlacedResults, PlacedTask
from bucketlake.write.write_plan import NO_TASK, SlotPlan, SlotResult

_LOCATED = pa.schema(
    [
        pa.field("piece", pa.binary()),  # Packed located records; null in other rows.
        pa.field("entries", pa.binary()),  # Packed keys whose entries in the index change.
        pa.field("lookup", pa.int32()),  # The lookup of these keys.
        pa.field("result", pa.string()),  # A LookupResult as text.
        REPORT_FIELD,
    ]
)
_PLACED = pa.schema(
    [
        pa.field("task", pa.int32()),
        pa.field("piece", pa.binary()),
        pa.field("entries", pa.binary()),
        pa.field("slots", pa.string()),  # SlotPlans as text.
        pa.field("shards", pa.string()),  # ShardPlans as text.
    ]
)
_RESULTS = pa.schema([pa.field("slot", pa.string()), pa.field("shard", pa.string()), REPORT_FIELD])
_ONE = np.zeros(1, np.int32)


class LocatedFrame:
    """The results of all lookups, as a persisted DataFrame.

    Parameters
    ----------
    df : DataFrame
        Rows of ``_LOCATED``.
    results : list of LookupResult
        What the lookups found, in the order of the plan.
    schema : pa.Schema
        The columns of the records before they were located.
    """

    def __init__(self, df: DataFrame, results: list[LookupResult], schema: pa.Schema) -> None:
        self._df = df
        self._results = results
        self._schema = schema

    @classmethod
    def of(
        cls, rows: DataFrame, schema: pa.Schema, plan: LookupPlan, task: LocateTask
    ) -> LocatedFrame:
        """Locate the rows of a DataFrame."""
        session = rows.sparkSession
        packed = map_in_arrow(rows, noting(_packing(plan, task)), SENT)
        sent = packed.union(sent_plans(session, plan.lookups, plan.task_count)).repartition(
            plan.task_count, "task"
        )
        located = map_in_arrow(sent, _locating(task, schema), _LOCATED)
        with changed_settings(session, SHUFFLE_SETTINGS):
            located = located.persist()
            try:
                told = located.where("result IS NOT NULL OR report IS NOT NULL")
                found = collect(told.select("result", REPORT_FIELD.name))
            except BaseException:
                located.unpersist()
                raise
        results = [LookupResult.from_text(row.result) for row in found]
        return cls(located, sorted(results, key=lambda result: result.number), schema)

    @property
    def results(self) -> list[LookupResult]:
        """What the lookups found."""
        return self._results

    def write(self, plan: GroupPlan, task: PlacedTask) -> PlacedResults:
        """Write every slot and every shard of the plan."""
        session, count = self._df.sparkSession, plan.write.task_count
        kept = self._df.where("piece IS NOT NULL OR entries IS NOT NULL")
        placed = map_in_arrow(
            kept.select("piece", "entries", "lookup"),
            noting(_placing(plan, values_for_tasks(count))),
            _PLACED,
        )
        sent = placed.union(_plans(session, plan)).repartition(count, "task")
        written = map_in_arrow(sent, _writing(task, self._schema), _RESULTS)
        with changed_settings(session, SHUFFLE_SETTINGS):
            results = collect(written)
        return PlacedResults(
            [SlotResult.from_text(row.slot) for row in results if row.slot is not None],
            [ShardResult.from_text(row.shard) for row in results if row.shard is not None],
        )

    def close(self) -> None:
        """Let Spark drop the rows."""
        self._df.unpersist()


def _packing(plan: LookupPlan, task: LocateTask) -> BatchFunction:
    """Pack the records for the tasks of their lookups."""
    placement, values = plan.placement, values_for_tasks(plan.task_count)

    def place(rows: pa.Table) -> npt.NDArray[np.int32]:
        places = placement.place(placement.numbers(task.tagger.tag(rows)))
        if (places == NO_TASK).any():
            raise IndexStateError(
                "the first pass over the input counted the records of every partition",
                f"{(places == NO_TASK).sum()} records are of other partitions: {INPUT_CHANGED}",
                STABLE_INPUT,
            )
        return places

    return packing(place, values)


def _locating(task: LocateTask, schema: pa.Schema) -> BatchFunction:
    def locate(batches: Batches) -> Batches:
        lookups, rows = received(batches, Lookup.from_text, schema)
        if not lookups:
            return
        for located in task.locate(lookups, rows, None):
            for start in range(0, located.rows.num_rows, CHUNK_ROWS):
                for piece in _pieces(located.rows.slice(start, CHUNK_ROWS)):
                    yield _located(piece=piece)
            for piece in _pieces(located.entries):
                yield _located(entries=piece, lookup=located.result.number)
            yield _located(result=located.result.to_text())

    return reporting(locate, _LOCATED)


def _pieces(rows: pa.Table) -> Sequence[bytes]:
    """Pack rows that go to one place."""
    if rows.num_rows == 0:
        return []
    _, pieces = pack(rows, np.broadcast_to(_ONE, rows.num_rows))
    return list(pieces)


def _located(**values: object) -> pa.RecordBatch:
    arrays = [pa.array([values.get(field.name)], field.type) for field in _LOCATED]
    return pa.RecordBatch.from_arrays(arrays, schema=_LOCATED)


def _placing(plan: GroupPlan, values: npt.NDArray[np.int32]) -> BatchFunction:
    """Pack located records for the tasks of their slots, and changed keys for those of shards."""
    slot_tasks = np.array([slot.task for slot in plan.write.slots], np.int32)
    shard_tasks = np.array([shard.task for shard in plan.shards], np.int32)
    routes, shard_of_lookup = plan.routes, plan.shard_of_lookup

    def place(batches: Batches) -> Batches:
        for batch in batches:
            yield from _placed_records(unpack(batch.column("piece")), routes, slot_tasks, values)
            held = batch.filter(batch.column("entries").is_valid())
            for number, piece in zip(
                held.column("lookup").to_pylist(), held.column("entries"), strict=True
            ):
                shard = shard_of_lookup[number]
                table = pa.Table.from_batches(unpack(pa.array([piece.as_py()], pa.binary())))
                for packed in _pieces(placed_entries(table, routes, shard)):
                    yield _placed(values[shard_tasks[shard]], entries=packed)

    return place


def _placed_records(
    records: Sequence[pa.RecordBatch],
    routes: Routes,
    tasks: npt.NDArray[np.int32],
    values: npt.NDArray[np.int32],
) -> Batches:
    for rows in chunks(iter(records)):
        slots = routes.slots(rows)
        owners, pieces = pack(with_slots(rows, slots), tasks[slots])
        nothing = pa.nulls(len(owners), pa.string())
        arrays = [
            pa.array(values[owners]),
            pieces,
            pa.nulls(len(owners), pa.binary()),
            nothing,
            nothing,
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=_PLACED)


def _placed(task: int, **values: object) -> pa.RecordBatch:
    arrays = [pa.array([int(task)], pa.int32())]
    arrays += [pa.array([values.get(field.name)], field.type) for field in list(_PLACED)[1:]]
    return pa.RecordBatch.from_arrays(arrays, schema=_PLACED)


def _plans(spark: SparkSession, plan: GroupPlan) -> DataFrame:
    """Return the plans of slots and shards, as rows that are sent to their tasks."""
    count = plan.write.task_count
    nothing = {
        name: F.lit(None).cast(kind).alias(name)
        for name, kind in (
            ("piece", "binary"),
            ("entries", "binary"),
            ("slots", "string"),
            ("shards", "string"),
        )
    }

    def facts(name: str, plans: Sequence[SlotPlan | ShardPlan]) -> DataFrame:
        texts, tasks = [held.to_text() for held in plans], [held.task for held in plans]
        held = facts_in_tasks(spark, texts, tasks, count)
        own = nothing | {name: F.col("facts").alias(name)}
        return held.select("task", *own.values())

    slots = facts("slots", plan.write.slots)
    return slots.union(facts("shards", plan.shards)) if plan.shards else slots


def _writing(task: PlacedTask, schema: pa.Schema) -> BatchFunction:
    nothing = schema.append(pa.field(SLOT, pa.int32())).empty_table()

    def write(batches: Batches) -> Batches:
        records: list[pa.RecordBatch] = []
        entries: list[pa.RecordBatch] = []
        slots: list[SlotPlan] = []
        shards: list[ShardPlan] = []
        for batch in batches:
            records += unpack(batch.column("piece"))
            entries += unpack(batch.column("entries"))
            slots += map(SlotPlan.from_text, facts_of(batch.column("slots")))
            shards += map(ShardPlan.from_text, facts_of(batch.column("shards")))
        if shards:
            changed = pa.Table.from_batches(entries, PLACED_ENTRIES)
            for shard in task.index_writer.write(shards, changed):
                yield _result(shard=shard.to_text())
        if slots:
            rows = pa.Table.from_batches(records) if records else nothing
            for slot in task.write(slots, rows):
                yield _result(slot=slot.to_text())

    return reporting(write, _RESULTS)


def _result(**values: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([values], _RESULTS)
