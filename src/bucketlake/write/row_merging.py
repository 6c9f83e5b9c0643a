"""How the rows of a write are combined with stored rows: the arguments and the table's own rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import ConfigError, InputError, UnsupportedFeatureError
from bucketlake.index.setting import TableIndex
from bucketlake.merge.column_groups import ColumnGroups
from bucketlake.merge.column_rules import require_rule_fits
from bucketlake.merge.combining import Combining, Gaps, rows_of_function
from bucketlake.model.field_path import roots_of, table_column
from bucketlake.model.row_merge import ColumnRule, RowMerge
from bucketlake.model.schema import IS_DELETED, NONE_LACKS, SOME_LACK, UNAVAILABLE, UNAVAILABLE_TYPE
from bucketlake.model.table_type import MergeMode, Operation
from bucketlake.write.pack import RecordSource
from bucketlake.write.target import Target


def row_writing(
    target: Target, operation: Operation, schema: pa.Schema, source: RecordSource, rows: RowMerge
) -> Combining | None:
    """Return how a write combines the columns of rows; None if records replace whole rows.

    Parameters
    ----------
    target : Target
        The table.
    operation : Operation
        Operation of the write.
    schema : pa.Schema
        The table's schema after the write.
    source : RecordSource
        The batch.
    rows : RowMerge
        The arguments of the write.

    Raises
    ------
    InputError
        If a column cannot have its rule.
    """
    own, given = Gaps.of_table(target.config), source.names
    if target.config.ordering_groups:
        return _writing_of_groups(target, operation, schema, source, rows)
    sources = _sources(target, schema, given)
    where = f"write to {target.storage.root}"
    nulls = rows.keeps_nulls or (own is not None and own.nulls)
    keeps = sources is not None or nulls or UNAVAILABLE not in given
    if not keeps and source.schema.field(UNAVAILABLE).metadata == SOME_LACK:
        problem = "a row lacks a value that its change did not show, and a table keeps the stored "
        step = "make one with ordering='_position', let the database send all values (REPLICA "
        step += "IDENTITY FULL), or give unavailable='fail' to debezium or ingest"
        raise InputError(where, problem + "one only if _position alone orders it", step)
    if operation is Operation.DELETE or not (rows or own or sources):
        return None
    roles = _fixed_columns(target, schema)
    rules = {}
    for name, rule in rows.rules.items():
        column, at = _column_of_rule(name, schema, given, where), f"{where}, merge rule of {name!r}"
        if column in roles and rule is not ColumnRule.REPLACE:
            problem = f"it is {roles[column]} column, which has no rule"
            raise InputError(at, problem, "leave the column out")
        if column in rules:
            raise InputError(at, "it is named twice", "name it once")
        require_rule_fits(rule, schema.field(column), where)
        rules[column] = rule
    missing = frozenset({*schema.names} - {*given, IS_DELETED}) if rows.keeps_missing else ()
    function = None
    if rows.function is not None:
        function = partial(rows_of_function, rows.function, target.storage.root, tuple(roles))
    combining = Combining(
        target.storage.root,
        Gaps(missing, nulls, source.gaps, None if own is None else own.marker),
        rules,
        function,
        tuple(f.name for f in schema if not f.nullable and f.name not in roles),
        fills_late=own is not None or sources is not None,
        ties=_ordering_of_ties(target) if rows.fails_on_tie else (),
        sources=sources,
    )
    if not (rows or own):
        lacks = source.schema.field(UNAVAILABLE).metadata != NONE_LACKS
        return replace(combining, reads_stored=lacks)
    has_rules = bool(rules) or function is not None
    # Readers of the table take stored values for nulls by its own rule.
    read_by_rule = own is not None and (own.nulls or not (missing or nulls or source.gaps))
    return replace(combining, reads_stored=has_rules or not read_by_rule)


def _sources(target: Target, schema: pa.Schema, given: Sequence[str]) -> str | None:
    """Return the ordering field, if rows of table and batch name the columns that they lack."""
    names = target.config.ordering_fields
    if UNAVAILABLE not in given or UNAVAILABLE not in schema.names or len(names) != 1:
        return None
    fits = schema.field(UNAVAILABLE).type == UNAVAILABLE_TYPE
    return names[0] if fits and pa.types.is_string(schema.field(names[0]).type) else None


def _writing_of_groups(
    target: Target, operation: Operation, schema: pa.Schema, source: RecordSource, rows: RowMerge
) -> Combining | None:
    if operation is Operation.DELETE or target.refuses_repeats:  # The latter are rows as they are.
        return None
    where = f"write to {target.storage.root}"
    groups = groups_of_table(target.config, target.index, schema, where)
    assert groups is not None, "the table has groups"
    if UNAVAILABLE in source.names:
        step = "follow this database with one ordering, _position"
        raise UnsupportedFeatureError(f"orderings of columns beside {UNAVAILABLE}", where, step)
    refused = {"nulls": rows.keeps_nulls, "merge": rows.rules or rows.function}
    for name, given in refused.items():
        if given:
            step = "leave it out: a null ordering value leaves the columns of this ordering alone"
            raise ConfigError(name, given, f"columns have orderings of their own; {step}")
    for columns in (names := frozenset(source.names), names - source.gaps):
        groups.require_whole(schema.names, columns, may_lack=rows.keeps_missing, where=where)
    ties = _ordering_of_ties(target) if rows.fails_on_tie else ()
    return Combining(target.storage.root, Gaps(), ties=ties, groups=groups, reads_stored=True)


def groups_of_table(
    config: TableConfig, index: TableIndex, schema: pa.Schema, where: str
) -> ColumnGroups | None:
    """Return the columns with orderings of their own; raise an error if they cannot have them."""
    groups = ColumnGroups.of_table(config, schema, where)
    if groups is not None and index.has_global_keys and config.key_spec.partition_fields:
        what = "orderings of columns under an index in which keys move between partitions"
        step = "use another index: RecordIndex(), or one of buckets such as DynamicBucket()"
        raise UnsupportedFeatureError(what, where, step)
    return groups


def _ordering_of_ties(target: Target) -> tuple[str, ...]:
    fields = target.config.ordering_fields
    if not fields or target.config.merge_mode is not MergeMode.EVENT_TIME:
        step = "without an ordering column the later commit wins; leave on_tie out"
        raise ConfigError("on_tie", "fail", step)
    return fields


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
    at = f"{where}, merge rule of {name!r}"
    column = table_column(schema, name, at)
    if column not in schema.names:
        raise InputError(at, "it is a field inside a column", "a rule needs a whole column")
    if column not in given:
        raise InputError(
            at,
            f"the batch lacks the column; it has {[*given]}",
            "add the column to the batch, or leave the rule out",
        )
    return column
