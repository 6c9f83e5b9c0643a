"""Advice about a table, and about a sample before there is a table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from bucketlake.index.setting import TableIndex
from bucketlake.model.keys import KeySpec
from bucketlake.read.snapshot import Snapshot
from bucketlake.services.advice.advice import AdviceList
from bucketlake.services.advice.facts_of_sample import workload_of_sample
from bucketlake.services.advice.facts_of_table import conditions_of_table, workload_of_table
from bucketlake.services.advice.rules import advise
from bucketlake.services.advice.workload import Conditions


def advise_table(
    snapshot: Snapshot,
    address: str,
    index: TableIndex | None,
    given: TableIndex | None,
    target_bytes: int,
) -> AdviceList:
    """Return the advice about a pinned table; no data file is read.

    Parameters
    ----------
    snapshot : Snapshot
        The table.
    address : str
        Its address as the user knows it, for the commands.
    index : TableIndex or None
        Its index, if it is known.
    given : TableIndex or None
        What the caller knows of the index.
    target_bytes : int
        Bytes that a file should have.
    """
    work = workload_of_table(snapshot, index)
    conditions = conditions_of_table(snapshot, address, index, given, target_bytes)
    return AdviceList(advise(work, conditions), work)


def advise_sample(
    rows: pa.Table,
    schema: pa.Schema,
    spec: KeySpec,
    conditions: Conditions,
    *,
    rows_expected: int | None,
    partitions_expected: int | None,
) -> AdviceList:
    """Return the advice about a table for records like those of a sample.

    Parameters
    ----------
    rows, schema, spec, rows_expected, partitions_expected
        As for ``workload_of_sample``.
    conditions : Conditions
        What the advice must keep to.
    """
    hash_fields: Sequence[str] = conditions.hash_fields or ()
    work = workload_of_sample(
        rows,
        schema,
        spec,
        hash_fields=hash_fields,
        rows_expected=rows_expected,
        partitions_expected=partitions_expected,
    )
    return AdviceList(advise(work, conditions), work)
