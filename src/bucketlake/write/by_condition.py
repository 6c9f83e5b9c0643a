"""Updates and deletes by condition: the rows that match become the records of a write.

The rows are read from a pinned state of the table and written as an upsert or a delete by key. A
commit that another writer makes meanwhile may bring rows that match, or change rows that matched.
So the write is in conflict with every such commit to a partition in which rows can match, and is
planned again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from bucketlake.actions.commit import CommitView
from bucketlake.actions.conflict import commits_since, require_kept
from bucketlake.config.table_config import TableConfig
from bucketlake.errors import CommitConflictError, InputError
from bucketlake.model.arguments import check_expressions
from bucketlake.model.cast import assigned
from bucketlake.model.evolution import evolve
from bucketlake.model.field_path import roots_of, table_column
from bucketlake.model.schema import META_NAMES, normalise_schema, with_flag_of
from bucketlake.read.pruning.by_partition import partitions_that_may_match
from bucketlake.read.snapshot import Snapshot
from bucketlake.where.expression import Expression
from bucketlake.where.predicate import Predicate

Assignments: TypeAlias = Mapping[str, Expression]
"""New values of columns."""


def checked_assignments(
    given: Mapping[str, str], schema: pa.Schema, config: TableConfig
) -> Assignments:
    """Check assignments to the columns of a table.

    Raises
    ------
    ConfigError
        If they are no mapping of texts.
    InputError
        If there is no such column, a column may not be updated, or a text is no expression.
    """
    check_expressions(set=given)
    checked: dict[str, Expression] = {}
    for name, text in given.items():
        column = table_column(schema, name, f"update of {name!r}")
        require_free(column, schema, config)
        if column in checked:
            raise InputError(f"update of {name!r}", "it is named twice", "name it once")
        checked[column] = Expression(text, schema, f"update {column} = {text!r}")
    return checked


def with_assigned(rows: pa.Table, assignments: Assignments) -> pa.Table:
    """Return rows with their new values.

    Raises
    ------
    InputError
        If the type of a value does not fit its column.
    """
    changed = rows
    for name, expression in assignments.items():
        at = rows.schema.get_field_index(name)
        values = assigned(expression.values(rows), rows.schema.field(at).type)
        changed = changed.set_column(at, name, values)
    require_assigned_types(assignments, rows.schema, changed.schema)
    return changed


def require_assigned_types(
    assignments: Assignments, stored: pa.Schema, computed: pa.Schema
) -> None:
    """Raise InputError if the type of a new value does not fit its column."""
    for name, expression in assignments.items():
        own, new = (pa.schema([schema.field(name)]) for schema in (stored, computed))
        require_assignable(own, new, expression.role)


def require_assignable(
    held: pa.Schema, given: pa.Schema, role: str, keys: Sequence[str] = ()
) -> None:
    """Raise InputError if the type of a computed value does not fit its column."""
    batch = with_flag_of(held, normalise_schema(given, role))
    try:
        evolve(held, batch, where=role, keys=keys)
    except InputError as error:
        problem = error.problem.replace("the batch", "the value")
        step = "cast the value to the type of the column"
        raise InputError(error.where, problem, step) from None


def require_free(
    column: str, schema: pa.Schema, config: TableConfig, given: Collection[str] = ()
) -> None:
    """Raise InputError for a column that an update may not change.

    ``given`` has the key, partition and ordering fields that this update may set.
    """
    spec = config.key_spec
    roles = {
        "a record key": (spec.record_key_fields, "a row with another key is another row"),
        "a partition": (spec.partition_fields, "the row would move to another partition"),
        "an ordering": (
            (*config.ordering_fields, *config.ordering_groups.values()),
            "it decides which of two rows is newer",
        ),
    }
    where = f"update of {column!r}"
    for role, (fields, why) in roles.items():
        if column in roots_of([each for each in fields if each not in given], ()):
            raise InputError(where, f"it is {role} column: {why}", "upsert the rows instead")
    if column in META_NAMES:
        raise InputError(where, "it is a meta column of Hudi", "name a column of the table")
    if schema.get_field_index(column) < 0:
        raise InputError(
            where,
            "it is a field inside a column",
            f"update the whole column {column.partition('.')[0]!r}",
        )


def require_same_matches(read: Snapshot, predicate: Predicate | None, view: CommitView) -> None:
    """Raise CommitConflictError if a commit may have changed which rows match, or their values.

    Parameters
    ----------
    read : Snapshot
        The state of the table whose rows matched.
    predicate : Predicate or None
        The condition; None for all rows, or if it cannot be evaluated here.
    view : CommitView
        The table right before the write commits.
    """
    table, instant = view.write.table, view.write.instant
    require_kept(table, instant, read.timeline, view.timeline)
    for other, commit in commits_since(table, read.timeline, view.timeline):
        if other == instant or commit.compacted or commit.resizes:  # Those move rows only.
            continue
        changed = sorted(commit.partitions)
        if predicate is not None:
            spec, schema = read.config.key_spec, read.schema
            may_match = partitions_that_may_match(predicate, changed, spec, schema)
            changed = [path for path, may in zip(changed, may_match, strict=True) if may]
        if changed:
            raise CommitConflictError(
                instant,
                f"instant {other} changed partition {changed[0]!r} after the matching rows were "
                "read; retry it",
            )
