"""How the rows of a write are combined with stored rows: the arguments and the table's own rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from bucketlake.errors import InputError
from bucketlake.merge.column_rules import require_rule_fits
from bucketlake.merge.combining import Combining
from bucketlake.merge.gaps import Gaps
from bucketlake.merge.row_function import RowFunction
from bucketlake.model.field_path import roots_of, spelled, why_missing
from bucketlake.model.row_merge import ColumnRule, RowMerge
from bucketlake.model.schema import IS_DELETED
from bucketlake.model.table_type import Operation
from bucketlake.write.target import Target


@dataclass(frozen=True, slots=True)
class RowWriting:
    """How the columns of a record and of the stored row are combined.

    Attributes
    ----------
    combining : Combining or None
        None if a record replaces the row.
    reads_stored : bool
        Whether records in log files are whole rows, so that stored rows are read for them.
    """

    combining: Combining | None = None
    reads_stored: bool = False


ONE_ROW = RowWriting()
"""Records replace whole rows."""


def row_writing(
    target: Target, operation: Operation, schema: pa.Schema, given: Sequence[str], rows: RowMerge
) -> RowWriting:
    """Return how a write combines the columns of rows.

    Parameters
    ----------
    target : Target
        The table.
    operation : Operation
        Operation of the write.
    schema : pa.Schema
        The table's schema after the write.
    given : sequence of str
        Columns of the batch.
    rows : RowMerge
        The arguments of the write.

    Raises
    ------
    InputError
        If a column cannot have its rule.
    """
    own = Gaps.of_table(target.config)
    if operation is Operation.DELETE or not (rows or own):
        return ONE_ROW
    where = f"write to {target.storage.root}"
    roles = _fixed_columns(target, schema)
    rules = {}
    for name, rule in rows.rules.items():
        column, at = _column_of_rule(name, schema, given, where), f"{where}, merge rule of {name!r}"
        if column in roles and rule is not ColumnRule.REPLACE:
            problem = f"it is {roles[column]} column, which has no rule"
            raise InputError(at, problem, "leave the column out")
        if column in rules:
            raise InputError(
                f"{where}, merge rule of {name!r}", "it is named twice", "name it once"
            )
        require_rule_fits(rule, schema.field(column), where)
        rules[column] = rule
    missing = frozenset({*schema.names} - {*given, IS_DELETED}) if rows.keeps_missing else ()
    nulls = rows.keeps_nulls or (own is not None and own.nulls)
    function = None
    if rows.function is not None:
        function = RowFunction(rows.function, target.storage.root, tuple(roles))
    combining = Combining(
        target.storage.root,
        Gaps(missing, nulls, None if own is None else own.marker),
        rules,
        function,
        tuple(f.name for f in schema if not f.nullable and f.name not in roles),
        fills_late=own is not None,
    )
    has_rules = bool(rules) or function is not None
    # Readers of the table take stored values for nulls by its own rule.
    read_by_rule = own is not None and (own.nulls or not (missing or nulls))
    return RowWriting(combining, has_rules or not read_by_rule)


def _fixed_columns(target: Target, schema: pa.Schema) -> dict[str, str]:
    """Return the columns that decide where and when a row counts, and what they are."""
    spec = target.config.key_spec
    fields = {
        "a record key": spec.record_key_fields,
        "a partition": spec.partition_fields,
        "an ordering": target.config.ordering_fields,
    }
    return {name: role for role, own in fields.items() for name in roots_of(own, schema.names)}


def _column_of_rule(name: str, schema: pa.Schema, given: Sequence[str], where: str) -> str:
    column = spelled(schema, name)
    at = f"{where}, merge rule of {name!r}"
    if column is None:
        raise InputError(at, f"the table {why_missing(schema, name)}", "name a column of the table")
    if column not in schema.names:
        raise InputError(at, "it is a field inside a column", "a rule needs a whole column")
    if column not in given:
        raise InputError(
            at,
            f"the batch lacks the column; it has {[*given]}",
            "add the column to the batch, or leave the rule out",
        )
    return column
