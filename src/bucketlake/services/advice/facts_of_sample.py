"""The facts of a sample of incoming records, before there is a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.format.base_file import encode_base_file
from bucketlake.merge.group_merge import Stamp
from bucketlake.model.arrays import one_array
from bucketlake.model.field_path import columns_at, fields_at
from bucketlake.model.file_name import InstantTime
from bucketlake.model.keys import KeySpec, record_keys
from bucketlake.model.partition_path import partition_paths
from bucketlake.model.schema import IS_DELETED, META_NAMES, cast_batch
from bucketlake.services.advice.workload import HotValue, PartitionFacts, Workload

ENCODED_ROWS_MAX = 65_536
"""Rows that are encoded to learn the bytes of a row: as many as Parquet needs to compress well."""

_STAMP = Stamp(InstantTime("20000101000000000"), 0, "", "00000000-0000-0000-0000-000000000000-0")


def workload_of_sample(
    rows: pa.Table,
    schema: pa.Schema,
    spec: KeySpec,
    *,
    hash_fields: Sequence[str] = (),
    rows_expected: int | None = None,
    partitions_expected: int | None = None,
) -> Workload:
    """Collect the facts of a sample.

    Parameters
    ----------
    rows : pyarrow.Table
        The sample, of one row at least.
    schema : pyarrow.Schema
        Columns of the table to be, in the types that it stores.
    spec : KeySpec
        How the table would make keys and partition paths.
    hash_fields : sequence of str
        Record key fields that shall choose the bucket.
    rows_expected : int, optional
        Rows that the table will have.
    partitions_expected : int, optional
        Partitions that the table will have; by default those of the sample.

    Raises
    ------
    InputError
        If a key is missing, or a value does not fit.
    """
    names = list(dict.fromkeys([*spec.record_key_fields, *spec.partition_fields]))
    columns = cast_batch(columns_at(rows, names), fields_at(schema, names))
    paths = one_array(partition_paths(columns, spec))
    keys = one_array(record_keys(columns, spec))
    rows_of_keys = pa.table({"key": keys, "partition": paths.indices})
    counts = rows_of_keys.group_by(["key", "partition"]).aggregate([([], "count_all")])
    stored = np.bincount(counts["partition"].to_numpy(), minlength=len(paths.dictionary))
    bytes_per_row = _bytes_per_row(rows, schema, keys)
    scale = 1.0
    if rows_expected is not None:
        in_table = len(stored) / max(partitions_expected or 0, len(stored))
        scale = rows_expected * in_table / counts.num_rows
    return Workload(
        tuple(
            PartitionFacts(path, int(count * scale * bytes_per_row))
            for path, count in sorted(
                zip(paths.dictionary.to_pylist(), stored.tolist(), strict=True)
            )
        ),
        is_full=rows_expected is not None,
        bytes_per_row=bytes_per_row,
        deletes=_deletes(rows),
        repeated=1 - counts.num_rows / rows.num_rows,
        hot_value=_hot_value(columns, hash_fields) if hash_fields else None,
    )


def _hot_value(columns: pa.Table, hash_fields: Sequence[str]) -> HotValue:
    fields = columns_at(columns, list(hash_fields))
    counts = fields.group_by(fields.column_names).aggregate([([], "count_all")])
    number = pc.max(counts["count_all"]).as_py()
    place = pc.index(counts["count_all"], number).as_py()
    texts = [f"{name}={counts[name][place].as_py()}" for name in fields.column_names]
    return HotValue(", ".join(texts), number / columns.num_rows)


def _deletes(rows: pa.Table) -> float | None:
    if IS_DELETED not in rows.column_names:
        return None
    deleted = pc.sum(rows[IS_DELETED].cast(pa.bool_())).as_py() or 0
    return float(deleted) / float(rows.num_rows)


def _bytes_per_row(rows: pa.Table, schema: pa.Schema, keys: pa.Array) -> float:
    """Return the bytes that a row takes in a base file, without those of an empty file."""
    chosen = _spread(rows.num_rows)
    chosen = chosen[pc.sort_indices(keys.take(pa.array(chosen))).to_numpy()]
    some = cast_batch(rows.select(schema.names).take(pa.array(chosen)), schema)
    meta = _STAMP.meta_columns(keys.take(pa.array(chosen)))
    whole = pa.Table.from_arrays([*meta, *some.columns], names=[*META_NAMES, *some.column_names])
    sizes = [len(encode_base_file([part], schema).data) for part in (whole, whole.slice(0, 0))]
    return max(sizes[0] - sizes[1], 1) / len(chosen)


def _spread(row_count: int) -> npt.NDArray[np.int64]:
    """Return the places of some rows: runs of neighbours, which may resemble each other."""
    runs = 16
    if row_count <= ENCODED_ROWS_MAX:
        return np.arange(row_count)
    length = ENCODED_ROWS_MAX // runs
    starts = np.linspace(0, row_count - length, runs).astype(np.int64)
    return (starts[:, None] + np.arange(length)).ravel()
