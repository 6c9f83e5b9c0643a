"""``advise``: which table suits records, told from a sample of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bucketlake.config.merge_entries import MergeSettings
from bucketlake.config.table_version import NEWEST_VERSION, check_version
from bucketlake.engine import sample_rows
from bucketlake.errors import InputError
from bucketlake.index.simple import SimpleBucket
from bucketlake.model.arguments import check_flags, check_integers, names_of
from bucketlake.model.keys import KeySpec, inferred_generator
from bucketlake.model.names import Names
from bucketlake.model.schema import without_flag
from bucketlake.services.advice.advice import AdviceList
from bucketlake.services.advice.facts_of_sample import workload_of_sample
from bucketlake.services.advice.rules import advice_for
from bucketlake.services.advice.workload import TARGET_FILE_SIZE_DEFAULT, Conditions
from bucketlake.write.create import new_config, plan_table

if TYPE_CHECKING:
    from bucketlake.engine import Records

SAMPLE_ROWS_MAX = 1_000_000
"""Rows of a DataFrame of Spark, and of files, that are looked at."""

_WHERE = "sample"


def advise(
    sample: Records,
    *,
    record_key: Names,
    partition_by: Names = (),
    ordering: Names | None = None,
    hash_fields: Names | None = None,
    rows: int | None = None,
    partitions: int | None = None,
    version: int = NEWEST_VERSION,
    hudi_writers: bool = False,
    target_file_size: int = TARGET_FILE_SIZE_DEFAULT,
) -> AdviceList:
    """Advise which table suits records, from a sample of them.

    Nothing is written. The bytes of a row are those of the sample, written as base files are.

    Parameters
    ----------
    sample : DataFrame, pa.Table, ArrowData or InputFiles
        Records, in any form that :meth:`Table.upsert` takes. Of a DataFrame of Spark and of files,
        a million rows are looked at, of other data all rows.
    record_key, partition_by, ordering
        Columns of the table, as for :func:`create_table`.
    hash_fields : str or sequence of str, optional
        Record key fields by which rows are to be found together; the advice is against them if one
        value has too many rows.
    rows : int, optional
        Rows that the table will have. Without it, the size of full partitions is not known.
    partitions : int, optional
        Partitions that the table will have; by default those of the sample.
    version : {6, 8, 9}
        Table version that the table is to have.
    hudi_writers : bool
        Whether jobs of Hudi will write the table too, so that its index must be one of theirs.
    target_file_size : int
        Bytes that a file should have.

    Returns
    -------
    AdviceList
        One advice for each subject; all of their calls make the same table.

    Raises
    ------
    InputError
        If the sample has no rows, lacks a column, or has a column or key that cannot be stored.
    ConfigError
        If an argument is none of its values.

    Notes
    -----
    :meth:`Table.advise` advises about a table that exists. Examples: ``docs/how-to/advise.md``.

    Examples
    --------
    >>> import pyarrow as pa
    >>> orders = pa.table({"id": [f"order-{n}" for n in range(1000)], "amount": [1.5] * 1000})
    >>> print(advise(orders, record_key="id", rows=200_000)[0].advised)
    bl.SimpleBucket(1)
    >>> print(advise(orders, record_key="id")[0].advised)
    bl.DynamicBucket()
    """
    keys, by = names_of(record_key, "record_key"), names_of(partition_by, "partition_by")
    ordering_fields = () if ordering is None else names_of(ordering, "ordering")
    fields = None if hash_fields is None else names_of(hash_fields, "hash_fields")
    for name, value in (("rows", rows), ("partitions", partitions)):
        if value is not None:
            check_integers(1, **{name: value})
    check_version(version)
    check_flags(hudi_writers=hudi_writers)
    check_integers(1, target_file_size=target_file_size)
    found = sample_rows(sample, SAMPLE_ROWS_MAX)
    spec = KeySpec(keys, by, inferred_generator(keys, by))
    config = new_config(spec, MergeSettings(ordering_fields), version=version)
    index, columns = SimpleBucket(1, fields), without_flag(found.schema)
    planned = plan_table(_WHERE, columns, config, index, metadata_table=False)
    if not found.num_rows:
        raise InputError(_WHERE, "it has no rows", "give some of the records of the table")
    conditions = Conditions(
        None,
        keys,
        by,
        ordering_fields,
        version=version,
        hudi_writers=hudi_writers,
        hash_fields=fields,
        target_bytes=target_file_size,
    )
    work = workload_of_sample(
        found,
        planned.schema,
        spec,
        hash_fields=fields or (),
        rows_expected=rows,
        partitions_expected=partitions,
    )
    return AdviceList(advice_for(work, conditions), work)
