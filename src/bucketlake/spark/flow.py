"""The engine of Spark: the tasks of a flow are Python tasks over a DataFrame of messages.

A message is a piece of packed rows, the plans of a task, a result for the driver, or a report of
an error or warning. A stage is a shuffle of messages to the tasks that own them. Rows that are
kept for several flows are persisted by Spark; a lost task gives the same rows again.
"""

from __future__ import annotations

import json
import pickle
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- the names that PySpark's users know.
from pyspark.sql.types import StructType

from bucketlake.flow.stage import GroupName, Groups, Rows, Stage, TaskPlan
from bucketlake.model.arrays import number_order
from bucketlake.spark.arrow_tasks import map_in_arrow
from bucketlake.spark.facts import column_facts, facts_in_tasks, in_tasks, values_for_tasks
from bucketlake.spark.record_pieces import chunks, pack, unpack
from bucketlake.spark.reports import REPORT_FIELD, Batches, BatchFunction, collect, reporting

# ---- Settings of a Spark session that bucketlake changes during one step -------------------------

ADAPTIVE = "spark.sql.adaptive.enabled"
_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"

PIECE_SETTINGS = {
    # A task gets 32 MiB of pieces (``spark/record_pieces.py``) at once, instead of all.
    _BATCH_ROWS: "64",
    # With another limit Spark 4 adds up all buffers of a batch again for each row, which takes
    # more than half of the time that rows need on their way to Python.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    # The plan sets the number of tasks, and nothing is joined: replanning after the shuffle would
    # change nothing, and costs a job and another plan.
    ADAPTIVE: "false",
}
"""For jobs that read pieces only."""

_BINARY = re.compile(r"\bbinary\b(?!:)")  # The type, and no field of that name.
_ROW_SETTINGS = {**PIECE_SETTINGS, _BATCH_ROWS: "1024"}


def row_settings(schema: StructType) -> dict[str, str]:
    """Return the settings for a job that reads records; binary values may be large."""
    return PIECE_SETTINGS if _BINARY.search(schema.simpleString()) else _ROW_SETTINGS


_lock = Lock()
_changed: dict[tuple[int, str], tuple[int, str | None]] = {}
"""By session and key: the number of steps that changed it, and the value before the first."""


@contextmanager
def changed_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings while the body runs, and restore the earlier values afterwards.

    Threads that share the session see the change. Of overlapping steps the last one to begin sets
    the value, so results must not depend on it, and the last one to end restores it.
    """
    with _lock:
        for key, value in settings.items():
            count, before = _changed.get((id(spark), key), (0, spark.conf.get(key, None)))
            spark.conf.set(key, value)
            _changed[id(spark), key] = count + 1, before
    try:
        yield
    finally:
        with _lock:
            for key in settings:
                _restore(spark, key)


def _restore(spark: SparkSession, key: str) -> None:
    count, before = _changed.pop((id(spark), key))
    if count > 1:
        _changed[id(spark), key] = count - 1, before
    elif before is None:
        spark.conf.unset(key)
    else:
        spark.conf.set(key, before)


# ---- The engine of Spark: the tasks of a flow are Python tasks over a DataFrame of messages ------

_MESSAGES = pa.schema(
    [
        pa.field("task", pa.int32()),  # What sends a message to its task; see `values_for_tasks`.
        pa.field("group", pa.string()),  # Of kept rows, if a piece has rows of one group only.
        pa.field("channel", pa.string()),
        pa.field("piece", pa.binary()),  # Packed rows.
        pa.field("facts", pa.string()),  # The plans of a task; see `facts_in_tasks`.
        pa.field("result", pa.binary()),
        REPORT_FIELD,
    ]
)
_TOLD = pa.schema([pa.field("result", pa.binary()), REPORT_FIELD])

_TASKS_USUAL = 200
_DROPPED = -1  # In place of what sends a piece to a task.
_GROUPS_FEW = 64  # So many groups in rows that are packed together get pieces of their own,
_GROUP_ROWS = 256  # and more if they have so many rows on average.
_GROUPS_MAX = 4096  # Spark looks for the task of a piece among those of all groups.
_UNPACKED_BYTES = 8 << 20  # Rows that are routed together.

Work: TypeAlias = "Callable[[Batches], Iterator[Any]]"
"""What a task does: yields ``Rows``, results, and messages (batches) that it passes on."""


class SparkEngine:
    """Runs flows in tasks of a session.

    Parameters
    ----------
    session : SparkSession
        The session.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    in_memory = False  # Spark keeps rows in files of its shuffles.

    @property
    def tasks_wanted(self) -> int:
        """The session's number of shuffle partitions, or Spark's default if it is not a number."""
        text = self._session.conf.get("spark.sql.shuffle.partitions") or ""
        return int(text) if text.isdigit() else _TASKS_USUAL  # Some platforms allow "auto".

    def start(
        self, work: Callable[[Any], Iterable[Any]], plans: Sequence[Any], sizes: Sequence[int]
    ) -> SparkFlow:
        """Begin a flow without rows; see :class:`bucketlake.flow.stage.Engine`."""
        return SparkFlow(in_tasks(self._session, plans, sizes), _starting(work))


class SparkFlow:
    """The messages after a stage, which runs when its results are asked for.

    Parameters
    ----------
    frame : DataFrame
        What the tasks of the last stage get.
    work : callable
        What they do.
    settings : mapping of str to str, optional
        Settings of the session for a job that reads the DataFrame.
    """

    def __init__(
        self, frame: DataFrame, work: Work, settings: Mapping[str, str] = PIECE_SETTINGS
    ) -> None:
        self._frame, self._work, self._settings = frame, work, settings

    def then(
        self,
        stage: Stage,
        plans: Sequence[TaskPlan],
        task_count: int,
        tasks: Mapping[GroupName, int] | None = None,  # noqa: ARG002 -- only kept rows are grouped.
    ) -> SparkFlow:
        """Add a stage; see :class:`bucketlake.flow.stage.Flow`."""
        sent = _messages(self._frame, _sending(self._work, stage, task_count), raises=True)
        return _received(sent, stage, plans, task_count)

    def kept(self) -> KeptFlow:
        """Run the flow, and persist its messages."""
        kept = _messages(self._frame, _keeping(self._work), raises=False)
        with changed_settings(kept.sparkSession, self._settings):
            kept = kept.persist()
            try:
                told = kept.where("result IS NOT NULL OR report IS NOT NULL")
                # Only what is kept may be a join; replanning this query would cost a job.
                with changed_settings(kept.sparkSession, {ADAPTIVE: "false"}):
                    results = _results(told.select(*_TOLD.names))
            except BaseException:
                kept.unpersist()
                raise
        return KeptFlow(kept, results)

    def results(self) -> list[Any]:
        """Run the flow; return its results."""
        done = map_in_arrow(self._frame, reporting(_telling(self._work), _TOLD), _TOLD)
        with changed_settings(self._frame.sparkSession, self._settings):
            return _results(done)

    def close(self) -> None:
        """Do nothing: nothing is kept."""


class KeptFlow:
    """Messages that Spark persists.

    Parameters
    ----------
    frame : DataFrame
        The messages.
    results : list
        The results among them.
    """

    def __init__(self, frame: DataFrame, results: list[Any]) -> None:
        self._frame = frame
        self._results = [result for result in results if not isinstance(result, _Ungrouped)]
        self._is_grouped = len(self._results) == len(results)

    def then(
        self,
        stage: Stage,
        plans: Sequence[TaskPlan],
        task_count: int,
        tasks: Mapping[GroupName, int] | None = None,
    ) -> SparkFlow:
        """Add a stage; see :class:`bucketlake.flow.stage.Flow`."""
        if self._is_grouped and tasks is not None and len(tasks) <= _GROUPS_MAX:
            return _received(_sent(self._frame, tasks, task_count), stage, plans, task_count)
        rows = self._frame.where("piece IS NOT NULL").select("channel", "piece")
        mixed = SparkFlow(rows, _unpacked)
        return mixed.then(stage, plans, task_count)

    def kept(self) -> KeptFlow:
        """Return the flow, which is kept already."""
        return self

    def results(self) -> list[Any]:
        """Return the results."""
        return self._results

    def close(self) -> None:
        """Let Spark drop the messages."""
        self._frame.unpersist()


def _messages(frame: DataFrame, function: BatchFunction, *, raises: bool) -> DataFrame:
    return map_in_arrow(frame, reporting(function, _MESSAGES, raises=raises), _MESSAGES)


@dataclass(frozen=True, slots=True)
class _Ungrouped:
    """A result that says: some pieces have rows of several groups."""


def _received(
    sent: DataFrame, stage: Stage, plans: Sequence[TaskPlan], task_count: int
) -> SparkFlow:
    """Return the flow of tasks that get some messages and their plans."""
    tasks = [plan.task for plan in plans]
    facts = facts_in_tasks(sent.sparkSession, plans, tasks, task_count)
    messages = sent.unionByName(facts, allowMissingColumns=True)
    return SparkFlow(messages.repartition(task_count, "task"), _running(stage))


def _sent(kept: DataFrame, tasks: Mapping[GroupName, int], task_count: int) -> DataFrame:
    """Return the pieces among kept messages, of one group each, with the tasks of the groups."""
    values = [*values_for_tasks(task_count).tolist(), _DROPPED]  # ``NO_TASK`` is the last.
    sends = json.dumps({_name_of(group): values[task] for group, task in tasks.items()})
    known = F.try_element_at(F.from_json(F.lit(sends), "map<string,int>"), F.col("group"))
    task = F.coalesce(known, F.lit(values[0]))
    return kept.withColumn("task", task).where(f"piece IS NOT NULL AND task <> {_DROPPED}")


def _results(told: DataFrame) -> list[Any]:
    return [pickle.loads(row.result) for row in collect(told)]


def _starting(work: Callable[[Any], Iterable[Any]]) -> Work:
    def begin(batches: Batches) -> Iterator[Any]:
        for batch in batches:
            for plan in column_facts(batch.column("facts")):
                yield from work(plan)

    return begin


def _unpacked(batches: Batches) -> Iterator[Any]:
    """Yield the rows of kept messages in chunks, by channel."""
    held: dict[str, list[pa.RecordBatch]] = defaultdict(list)
    sizes: dict[str, int] = defaultdict(int)
    for batch in batches:
        for name, rows in _pieces_of(batch):
            held[name] += rows
            sizes[name] += sum(own.nbytes for own in rows)
            if sizes[name] >= _UNPACKED_BYTES:
                yield Rows(name, pa.Table.from_batches(held.pop(name)))
                sizes[name] = 0
    for name, rows in held.items():
        yield Rows(name, pa.Table.from_batches(rows))


def _pieces_of(batch: pa.RecordBatch) -> Iterator[tuple[str, list[pa.RecordBatch]]]:
    """Yield the rows of each piece of some messages."""
    for channel, piece in zip(batch.column("channel"), batch.column("piece"), strict=True):
        if piece.is_valid:
            yield channel.as_py(), unpack(piece)


def _running(stage: Stage) -> Work:
    def work(batches: Batches) -> Iterator[Any]:
        held: dict[str, list[pa.RecordBatch]] = defaultdict(list)
        plans: list[Any] = []
        for batch in batches:
            plans += column_facts(batch.column("facts"))
            for channel, rows in _pieces_of(batch):
                held[channel] += rows
                del rows
            told = pc.or_(batch.column("result").is_valid(), batch.column("report").is_valid())
            if told.true_count:
                yield batch.filter(told)
            del batch  # The stage lets the rows go when it has divided them.
        if plans:
            received = {channel: pa.Table.from_batches(held.pop(channel)) for channel in [*held]}
            yield from stage.run(plans, received)

    return work


def _sending(work: Work, stage: Stage, task_count: int) -> BatchFunction:
    """Send the rows of a task to the tasks of the next stage."""
    values = values_for_tasks(task_count)

    def send(batches: Batches) -> Batches:
        for item in work(batches):
            if isinstance(item, Rows):
                for chunk in chunks(item.table.to_batches()):
                    tasks, rows = stage.route(Rows(item.channel, chunk))
                    owners, pieces = pack(rows, tasks)
                    yield _piece_messages(item.channel, pieces, tasks=pa.array(values[owners]))
            else:
                yield _told(item)

    return send


def _keeping(work: Work) -> BatchFunction:
    """Keep the rows of a task, cut by group where the groups are known and not too small."""

    def keep(batches: Batches) -> Batches:
        is_grouped = True
        for item in work(batches):
            if not isinstance(item, Rows):
                yield _told(item)
            elif item.groups is not None and _is_worth_cutting(item.groups):
                order = number_order(item.groups.numbers)
                numbers, pieces = pack(item.table.take(pa.array(order)), item.groups.numbers[order])
                names = pa.array([_name_of(group) for group in item.groups.names], pa.string())
                yield _piece_messages(item.channel, pieces, groups=names.take(pa.array(numbers)))
            else:
                is_grouped = False
                _, pieces = pack(item.table, np.zeros(item.table.num_rows, np.int32))
                yield _piece_messages(item.channel, pieces)
        if not is_grouped:
            yield _told(_Ungrouped())

    return keep


def _is_worth_cutting(groups: Groups) -> bool:
    count = len(groups.names)
    return count <= _GROUPS_FEW or count * _GROUP_ROWS <= len(groups.numbers)


def _name_of(group: GroupName) -> str:
    return json.dumps(group)


def _telling(work: Work) -> BatchFunction:
    def tell(batches: Batches) -> Batches:
        for item in work(batches):
            if not isinstance(item, Rows):
                yield _told(item).select(_TOLD.names)

    return tell


def _piece_messages(
    channel: str,
    pieces: pa.BinaryArray,
    *,
    tasks: pa.Array | None = None,
    groups: pa.Array | None = None,
) -> pa.RecordBatch:
    given = {"task": tasks, "group": groups, "channel": channel, "piece": pieces}
    count = len(pieces)
    columns = []
    for field in _MESSAGES:
        value = given.get(field.name)
        is_whole = isinstance(value, pa.Array)
        columns.append(value if is_whole else pa.repeat(pa.scalar(value, field.type), count))
    return pa.RecordBatch.from_arrays(columns, schema=_MESSAGES)


def _told(item: Any) -> pa.RecordBatch:
    """Return a result as a message; messages are passed on."""
    if isinstance(item, pa.RecordBatch):
        return item
    return pa.RecordBatch.from_pylist([{"result": pickle.dumps(item)}], _MESSAGES)
