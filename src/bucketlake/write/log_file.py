"""The log file that a write appends to a file group: one block of records, one block of deletes.

Readers and compactions merge the log file with stored records. So this module reads no stored
record, and the cost depends only on the batch. Records are sorted by key, so that two attempts of a
task write the same bytes.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from bucketlake.format.avro.table_schema import with_meta_fields
from bucketlake.format.log_data import encode_avro_block, encode_parquet_block
from bucketlake.format.log_deletes import Deletes, encode_delete_block
from bucketlake.merge.group_merge import MergeRule, Stamp
from bucketlake.merge.incoming import ORDERING, IncomingRecords, IntArray
from bucketlake.metadata.statistics.of_file import (
    FileStatistics,
    log_file_statistics,
    parquet_block_statistics,
    rows_statistics,
)
from bucketlake.model.field_path import column_of
from bucketlake.model.schema import META_NAMES
from bucketlake.model.table_type import LogFormat


def encode_log_file(
    incoming: IncomingRecords,
    rule: MergeRule,
    stamp: Stamp,
    schema: pa.Schema,
    schema_text: str,
    log_format: LogFormat,
    indexed: pa.Schema | None,
) -> tuple[bytes, FileStatistics | None]:
    """Write the log file of one file group; return its bytes, and the statistics, cut.

    Parameters
    ----------
    incoming : IncomingRecords
        Records with distinct keys; for deletes by key, without data columns.
    rule : MergeRule
        Rule that decides which record wins: with event-time ordering, a delete in the data keeps
        its ordering value.
    stamp : Stamp
        Meta columns of the records; the file group's id replaces the file name.
    schema : pa.Schema
        Data columns.
    schema_text : str
        The data columns as Avro JSON.
    log_format : LogFormat
        The type of the block of records.
    indexed : pa.Schema or None
        Columns of which statistics are wanted.
    """
    block_schema = with_meta_fields(schema_text)
    delete_block = partial(
        _delete_block, incoming, rule, stamp, schema_json=with_meta_fields(schema_text)
    )
    # A delete of the batch without an ordering value, before the row that follows it.
    before = incoming.is_reset & ~incoming.deleted & rule.compares
    blocks = [delete_block(_in_key_order(incoming, before))] if before.any() else []
    records = _in_key_order(incoming, ~incoming.deleted)
    statistics = None
    if len(records):
        table = _stamped(incoming, records, stamp, schema)
        if log_format is LogFormat.AVRO:
            blocks.append(encode_avro_block(table, block_schema, instant=stamp.instant))
            if indexed is not None:
                statistics = rows_statistics(table, indexed)
        else:
            encoded = encode_parquet_block(table, block_schema, instant=stamp.instant)
            blocks.append(encoded.block)
            if indexed is not None:
                statistics = parquet_block_statistics(encoded.content, indexed, stamp.file_name)
    deleted = _in_key_order(incoming, incoming.deleted)
    if len(deleted):
        blocks.append(delete_block(deleted))
    if indexed is not None and statistics is None:
        statistics = log_file_statistics((), indexed)  # There are only deletes.
    return b"".join(blocks), None if statistics is None else statistics.cut()


def _in_key_order(incoming: IncomingRecords, mask: np.ndarray) -> IntArray:
    return incoming.in_key_order(np.flatnonzero(mask))


def _stamped(
    incoming: IncomingRecords, positions: IntArray, stamp: Stamp, schema: pa.Schema
) -> pa.Table:
    indices = pa.array(positions)
    meta = stamp.meta_columns(incoming.keys.take(indices))
    rows = incoming.columns.select(schema.names).take(indices)
    return pa.Table.from_arrays([*meta, *rows.columns], names=[*META_NAMES, *schema.names])


def _delete_block(
    incoming: IncomingRecords,
    rule: MergeRule,
    stamp: Stamp,
    positions: IntArray,
    *,
    schema_json: str,
) -> bytes:
    indices, count = pa.array(positions), len(positions)
    columns = [column_of(incoming.columns, field, ORDERING) for field in rule.compared]
    orderings = tuple(column.take(indices).combine_chunks() for column in columns)
    deletes = Deletes(
        incoming.keys.take(indices),
        pa.repeat(stamp.partition_path, count),
        pa.array(incoming.is_reset[positions]),
        orderings,
    )
    return encode_delete_block(deletes, instant=stamp.instant, schema_json=schema_json)
