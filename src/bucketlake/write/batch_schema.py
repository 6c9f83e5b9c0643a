"""The schema of a table after a write, and whether the records of the write fit it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa

from bucketlake.config.table_config import TableConfig
from bucketlake.config.table_version import NEWEST_VERSION, TableVersion
from bucketlake.errors import InputError
from bucketlake.format.avro.table_schema import avro_from_arrow
from bucketlake.merge.incoming import marker_field
from bucketlake.model.bounded_json import parse_json
from bucketlake.model.column_type import BLOB, TIMESTAMP_NTZ, type_name
from bucketlake.model.evolution import evolve, typed_schema
from bucketlake.model.field_path import field_at, fields_at, known_field, roots_of, why_missing
from bucketlake.model.names import did_you_mean
from bucketlake.model.row_merge import SchemaMerge
from bucketlake.model.schema import (
    META_NAMES,
    OPERATION_COLUMN,
    normalise_schema,
    with_flag_of,
    without_flag,
)
from bucketlake.model.table_type import Operation
from bucketlake.model.variant import is_variant
from bucketlake.model.vector import is_vector
from bucketlake.write.pack import RecordSource
from bucketlake.write.tag import EFFECT
from bucketlake.write.target import Target


def schema_after(
    target: Target,
    operation: Operation,
    source: RecordSource,
    merge: SchemaMerge,
    *,
    may_lack: bool = False,
) -> pa.Schema:
    """Return the table's schema after the write; raise InputError if the batch does not fit.

    ``may_lack`` says whether the batch may lack columns, because their stored values stay.
    """
    root, config = target.storage.root, target.config
    spec = config.key_spec
    _require_columns(source, spec.record_key_fields, root, "record key")
    _require_columns(source, spec.partition_fields, root, "partition")
    if operation is Operation.DELETE:
        paths = list(dict.fromkeys((*spec.record_key_fields, *spec.partition_fields)))
        source.keep(roots_of(paths, source.names))
        _require_fields(source.schema, paths, root)
        source.keep(paths)
        _require_key_types(target, source.schema, paths)
        return target.snapshot.schema
    _require_columns(source, config.ordering_fields, root, "ordering")
    current = target.snapshot.schema_or_none
    own = table_columns(source.schema, () if current is None else current.names)
    if len({*source.names}) == len(source.names) > len(own):  # Names that repeat are refused below.
        source.keep(own)
    where, given = f"write to {root}", source.schema
    if target.refuses_repeats and EFFECT in given.names:  # Rows of a merge.
        given = given.remove(given.names.index(EFFECT))
    incoming = normalise_schema(given, where)
    if target.marker is not None:
        marker_field(incoming, target.marker[0])  # Raises an error for a type without this rule.
    _require_fields(incoming, (*_key_columns(config), *config.ordering_fields), root)
    if current is None:
        after = typed_schema(without_flag(incoming), where)
    else:
        batch, keys = with_flag_of(current, incoming), _key_columns(config)
        after = evolve(current, batch, where=where, merge=merge, keys=keys, may_lack=may_lack)
    added = pa.schema([field for field in after if current is None or field not in [*current]])
    require_known_types(config.rules, added, where)
    schema_text(target, after)  # Raises an error for columns that nest too deeply.
    return after


def _require_key_types(target: Target, given: pa.Schema, paths: Sequence[str]) -> None:
    """Raise InputError for keys of another type: a cast could make them keys of other records."""
    where = f"delete from {target.storage.root}"
    for field in fields_at(given, paths):
        held = known_field(target.snapshot.schema, field.name)
        # Wider integers are taken: a delete changes no type. The leaf's name stands for its path,
        # because inside a struct no type may change.
        leaf = field.name.rpartition(".")[2]
        pair = (pa.schema([each.with_name(leaf)]) for each in (held, field))
        evolve(*pair, where=where, merge=SchemaMerge(widen_types=True), keys=(leaf,))


def _key_columns(config: TableConfig) -> tuple[str, ...]:
    return (*config.key_spec.record_key_fields, *config.key_spec.partition_fields)


def schema_text(target: Target, schema: pa.Schema) -> str:
    """Return the table's own text if nothing changed: Avro has types that Arrow does not have."""
    known = target.snapshot.schema_text
    if known is not None and schema == target.snapshot.schema:
        return known
    return avro_from_arrow(schema, target.config.name)


def require_known_types(rules: TableVersion, schema: pa.Schema, where: str) -> None:
    """Raise InputError for a column of a type that Hudi's writers of a version do not know."""
    for field in () if rules.has_newer_types else schema:
        if field.type == TIMESTAMP_NTZ:
            held, otherwise = "timestamp without a time zone", "give the column a time zone"
        elif is_vector(field.type):
            held, otherwise = type_name(field.type), "make the column a list of any length"
        elif field.type == BLOB or is_variant(field.type):
            held, otherwise = type_name(field.type), "make its fields nullable"
        else:
            continue
        raise InputError(
            f"{where}, column {field.name}",
            f"{rules.releases} cannot write a {held}, so table version {rules.number} does not "
            "hold it",
            f"{otherwise}, or choose version {NEWEST_VERSION}",
        )


def _require_columns(source: RecordSource, paths: tuple[str, ...], table: str, role: str) -> None:
    """Raise InputError if the batch lacks a required column, or has it several times.

    The fields inside a column are checked by :func:`_require_fields`.
    """
    where = f"write to {table}"
    for name in roots_of(paths, source.names):
        if source.names.count(name) == 0:
            raise InputError(
                where,
                f"the {role} column {name!r} is missing; the batch has {source.names}",
                f"add the column to the batch{did_you_mean(name, source.names)}",
            )
        # Spark ignores case, so the column name would be ambiguous.
        if sum(other.lower() == name.lower() for other in source.names) > 1:
            raise InputError(
                where,
                f"the {role} column {name!r} occurs more than once; the batch has {source.names}",
                "drop or rename the other columns",
            )


def _require_fields(schema: pa.Schema, paths: Iterable[str], table: str) -> None:
    """Raise InputError if a batch with the required columns lacks a field inside a column."""
    for path in paths:
        if field_at(schema, path) is None:
            raise InputError(
                f"write to {table}",
                f"the field {path!r} is missing; the batch {why_missing(schema, path)}",
                "add the field to the batch",
            )


# ---- Which columns of a batch, or of a given schema, are columns of a table ----------------------
#
# Two kinds are not: Hudi's meta columns, which each write makes anew, and the index of a pandas
# data frame. A level of the index is written only if the table has a column of its name.

_UNNAMED_LEVEL = re.compile(r"__index_level_\d+__")


def table_columns(given: pa.Schema, known: Collection[str]) -> list[str]:
    """Return the names of the given columns that are columns of a table, in their order.

    Parameters
    ----------
    given : pyarrow.Schema
        Columns of a batch or of a new table, perhaps with the metadata of pandas.
    known : collection of str
        Columns of the table; for a new table those of its keys, partitions and ordering.

    Examples
    --------
    >>> fields = ["_hoodie_commit_time", "id", "__index_level_0__"]
    >>> table_columns(pa.schema([(name, pa.string()) for name in fields]), ["id"])
    ['id']
    """
    levels = _named_levels(given)
    return [
        name
        for name in given.names
        if name not in META_NAMES
        and name != OPERATION_COLUMN
        and (name in known or not (name in levels or _UNNAMED_LEVEL.fullmatch(name)))
    ]


def _named_levels(given: pa.Schema) -> set[str]:
    """Return the columns that pandas made of its index, from the metadata that it leaves."""
    text = (given.metadata or {}).get(b"pandas")
    try:
        levels = parse_json(text)["index_columns"] if text else []
        return {level for level in levels if isinstance(level, str)}  # A range is no column.
    except (ValueError, TypeError, KeyError):  # Not from pandas, whatever its key says.
        return set()
