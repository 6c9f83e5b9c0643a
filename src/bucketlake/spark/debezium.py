"""Messages of Kafka in a DataFrame: one small job finds their schemas, tasks read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, functions

from bucketlake.cdc.batch import SEEN, BatchPlan, plan_of, schemas_in
from bucketlake.cdc.change_rows import Bools
from bucketlake.cdc.envelope import (
    BAD_ROWS,
    MESSAGE,
    PLACE_COLUMN,
    Decoded,
    messages_of,
    moved,
)
from bucketlake.cdc.message_settings import MessageSettings
from bucketlake.cdc.moved import Stored, moved_and_lacking, old_keys, with_keys
from bucketlake.model.schema import IS_DELETED, UNAVAILABLE
from bucketlake.spark.arrow_tasks import each_batch
from bucketlake.spark.read import first_rows
from bucketlake.spark.reports import collect_noted
from bucketlake.spark.spark_schema import columns_named

BAD = "_bad"


@dataclass(frozen=True)
class DecodedFrame:
    """Messages in a DataFrame as a batch.

    Attributes
    ----------
    plan : BatchPlan
        How they are read.
    both : DataFrame
        The rows of the batch and, with the column ``_bad``, messages that cannot be read; to be
        persisted where both are wanted, so that messages are decoded once.
    """

    plan: BatchPlan
    both: DataFrame

    @property
    def rows(self) -> DataFrame:
        """The batch."""
        return _told(self.both.where(functions.col(BAD).isNull()).drop(BAD), self.plan)

    @property
    def bad(self) -> DataFrame:
        """Messages that cannot be read: reason, topic, partition, offset, key and value."""
        return self.both.where(functions.col(BAD).isNotNull()).select(f"{BAD}.*")


def planned(df: DataFrame, reading: MessageSettings, stored: Stored | None = None) -> BatchPlan:
    """Return how the messages of a DataFrame are read, by a job that finds their schemas.

    If keys of rows changed that lack values, a second job gets the messages with such headers.
    """
    facts = [functions.max(name).alias(name) for name in SEEN.names[1:]]
    found = each_batch(_messages(df), partial(schemas_in, reading=reading), SEEN)
    found = found.groupBy("schema").agg(*facts)
    rows = [row.asDict() for row in collect_noted(found)]
    plan = plan_of(rows, reading)
    if not (plan.reading.tracks and any(row["moves"] for row in rows)):
        return plan
    moves = _some(df, partial(moved_and_lacking, reading=reading))
    keys = old_keys(moves)
    held = moves
    while keys:
        more = _some(df, partial(with_keys, keys=keys))
        held = pa.concat_tables([held, more])
        keys = [key for key in old_keys(more.filter(pa.array(moved(more)))) if key not in keys]
    return plan.completing(held, stored)


def _some(df: DataFrame, wanted: Callable[[pa.Table], Bools]) -> pa.Table:
    """Return the messages that a function wants; they are few."""

    def chosen(rows: pa.Table) -> pa.Table:
        messages = messages_of(rows)
        return messages.filter(pa.array(wanted(messages)))

    return first_rows(each_batch(_messages(df), chosen, MESSAGE), None).cast(MESSAGE)


def decoded(df: DataFrame, reading: MessageSettings, stored: Stored | None = None) -> DecodedFrame:
    """Return the batch of messages in a DataFrame, and those that cannot be read.

    Raises
    ------
    InputError
        If the columns of the batch are not known.
    """
    plan = planned(df, reading, stored)
    bad = pa.struct(list(BAD_ROWS))
    schema = plan.schema.append(pa.field(BAD, bad))
    both = each_batch(_messages(df), lambda rows: _with_bad(plan.decode(rows), bad), schema)
    return DecodedFrame(plan, _with_deletes(both, plan, stored))


def batch_of(df: DataFrame, reading: MessageSettings, stored: Stored | None = None) -> DataFrame:
    """Return the batch of messages in a DataFrame; a task fails at one that cannot be read."""
    plan = planned(df, reading, stored)
    rows = each_batch(_messages(df), lambda rows: plan.decode(rows).required(), plan.schema)
    return _told(_with_deletes(rows, plan, stored), plan)


def _with_deletes(rows: DataFrame, plan: BatchPlan, stored: Stored | None) -> DataFrame:
    """Add deletes of the stored rows before the last truncate."""
    if not plan.truncated or stored is None:
        return rows
    told = {IS_DELETED: functions.lit(True), PLACE_COLUMN: functions.lit(plan.truncated)}
    gone = stored.before(plan.truncated).to_spark().withColumns(told)
    return rows.unionByName(gone, allowMissingColumns=True)


def _told(rows: DataFrame, plan: BatchPlan) -> DataFrame:
    told = {key.decode(): value.decode() for key, value in plan.told.items()}
    return rows.withMetadata(UNAVAILABLE, told) if told else rows


def _messages(df: DataFrame) -> DataFrame:
    wanted = [*MESSAGE.names, "timestamp"]
    return df.select(columns_named([name for name in df.columns if name in wanted]))


def _with_bad(found: Decoded, kind: pa.DataType) -> pa.Table:
    good = found.rows.append_column(BAD, pa.nulls(len(found.rows), kind))
    if len(found.bad) == 0:
        return good
    bad = pa.chunked_array([found.bad.to_struct_array().combine_chunks()]).cast(kind)
    columns = [pa.nulls(len(found.bad), field.type) for field in found.rows.schema]
    return pa.concat_tables([good, pa.Table.from_arrays([*columns, bad], schema=good.schema)])
