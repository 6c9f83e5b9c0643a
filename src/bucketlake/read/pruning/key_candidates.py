"""Pruning by hash fields: the record keys that can satisfy a predicate, if they are few.

RFC-29, "Query Pruning". ``=``, ``<=>`` and ``IN`` on each hash field, under any ``AND`` and ``OR``,
leave a finite set of index keys. The other parts of the predicate could only make the set smaller,
so they are ignored. Writers render keys with the same function. The index finds the bucket of a
key, so every index kind can prune by these keys.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import product
from typing import TypeAlias

import pyarrow as pa

from bucketlake.config.table_config import TableConfig
from bucketlake.errors import InputError
from bucketlake.model.cast import cast_table
from bucketlake.model.field_path import field_at, fields_at, known_field
from bucketlake.model.keys import KeySpec, record_keys
from bucketlake.model.schema import RECORD_KEY
from bucketlake.where import predicate as nodes
from bucketlake.where.predicate import Operator, Predicate, leaves, negate
from bucketlake.where.sets import distinct
from bucketlake.where.sql_literal import LiteralValue

KEYS_MAX = 16_384
"""Largest number of keys for pruning; more keys would rarely exclude a bucket."""

_Values: TypeAlias = frozenset[LiteralValue]
Possible: TypeAlias = Mapping[str, _Values] | None
"""Possible values by column, all values for an absent column; None if no row can match."""


@dataclass(frozen=True, slots=True)
class HashKeys:
    """Keys of the rows that can match a predicate, or why any key may match.

    Attributes
    ----------
    keys : tuple of str or None
        Record keys that have the index keys of all matching rows; None if any key may match.
    reason : str or None
        Why any key may match.
    are_whole : bool
        Whether every matching row has one of these keys, not only the same hash fields.
    """

    keys: tuple[str, ...] | None
    reason: str | None = None
    are_whole: bool = False


def find_hash_keys(
    predicate: Predicate,
    config: TableConfig,
    hash_fields: Sequence[str],
    schema: pa.Schema,
    plain_fields: Collection[str] = (),
) -> HashKeys:
    """Find record keys whose buckets hold every row that a predicate keeps.

    Parameters
    ----------
    predicate : Predicate
        The result of ``parse_where`` for ``schema``.
    config : TableConfig
        How the table makes record keys. A COMPLEX key of one field may be stored as ``v`` instead
        of ``f:v``, as by some Hudi releases (0.14.1 to 1.0.2) before table version 9. If only Hudi
        can run the key generator, only conditions on the record key itself prune.
    hash_fields : sequence of str
        Record key fields that choose the bucket; empty if a key does not choose it.
    schema : pyarrow.Schema
        Types of the table's columns.
    plain_fields : collection of str
        Text columns that are known to contain no comma. A record key names its fields and does not
        escape values, so a value such as ``,a:b`` is read as hash field ``a``. If another field of
        the key may contain such a value, no bucket is certain.

    Returns
    -------
    HashKeys
        Keys for ``assign_buckets`` with the same hash fields, none if no row can match; or why any
        key may match.
    """
    possible = possible_values(predicate, schema)
    if possible is None:
        return HashKeys(())
    if RECORD_KEY in possible:
        stored = sorted(str(key) for key in possible[RECORD_KEY])
        return _limited(stored, are_whole=True)
    if config.foreign_key_generator is not None:
        return HashKeys(None, f"only {config.foreign_key_generator} can make keys")
    key_spec = config.key_spec
    fields = tuple(hash_fields) or key_spec.record_key_fields
    absent = [name for name in key_spec.record_key_fields if field_at(schema, name) is None]
    if absent:
        return HashKeys(None, f"the table has no key field {absent[0]}")
    free = [name for name in fields if name not in possible]
    if free:
        return HashKeys(None, _why_free(free[0], predicate, schema))
    named = [
        name
        for name in key_spec.record_key_fields
        if name in fields
        or (name not in plain_fields and _may_hold_comma(known_field(schema, name).type))
    ]
    unsure = [name for name in named if name not in possible]
    if unsure:
        return HashKeys(None, f"no = or IN on {unsure[0]}, whose text may look like a hash field")
    spellings = [key_spec]
    if config.may_have_bare_keys and len(key_spec.record_key_fields) == 1:
        # For a generator other than COMPLEX both spellings are the same.
        spellings.append(replace(key_spec, bare_keys=True))
    known = {name: possible[name] for name in named}
    records, count = None, math.prod(map(len, known.values()))
    for keys in _sets(predicate):
        if {*named} <= {*keys.schema.names} and len(keys) < count:
            records = pa.table(distinct(pa.table(keys).select(named)))
            count = len(records)
    if count > KEYS_MAX:
        return HashKeys(None, _TOO_MANY)
    records = records_of(known, schema) if records is None else records
    return _render(spellings, records, schema)


def records_of(values: Mapping[str, _Values], schema: pa.Schema) -> pa.Table:
    """Return records with all combinations of values."""
    records = [*product(*(sorted(held, key=repr) for held in values.values()))]
    fields = fields_at(schema, values)
    arrays = [
        pa.array([record[i] for record in records], field.type) for i, field in enumerate(fields)
    ]
    return pa.table(arrays, schema=fields)


def _render(specs: Sequence[KeySpec], records: pa.Table, schema: pa.Schema) -> HashKeys:
    """Make keys of records as a writer does; fields that are not known are null."""
    names = specs[0].record_key_fields
    types = [pa.field(name, known_field(schema, name).type) for name in names]
    table = cast_table(records, pa.schema(types))
    try:
        keys = [key for spec in specs for key in record_keys(table, spec).to_pylist()]
    except InputError as error:
        return HashKeys(None, f"the key cannot be written: {error.problem}")
    return _limited(keys, are_whole=records.num_columns == len(names))


def _limited(keys: Sequence[str], *, are_whole: bool) -> HashKeys:
    keys = tuple(dict.fromkeys(keys))
    if len(keys) > KEYS_MAX:
        return HashKeys(None, _TOO_MANY)
    return HashKeys(keys, are_whole=are_whole)


_TOO_MANY = f"the conditions leave more than {KEYS_MAX} keys"


def _sets(predicate: Predicate) -> Iterator[pa.RecordBatch]:
    """Yield sets of which each matching row has a member."""
    for part in predicate.operands if isinstance(predicate, nodes.And) else (predicate,):
        if isinstance(part, nodes.Among):
            yield part.keys
        elif isinstance(part, nodes.And):
            yield from _sets(part)


def possible_values(
    predicate: Predicate, schema: pa.Schema, values_max: int = KEYS_MAX
) -> Possible:
    """Return the possible column values of rows for which the predicate is true.

    Columns of sets with more than ``values_max`` values are left out.
    """
    if isinstance(predicate, nodes.And | nodes.Or):
        parts = [possible_values(operand, schema, values_max) for operand in predicate.operands]
        return _intersection(parts) if isinstance(predicate, nodes.And) else _union(parts)
    if isinstance(predicate, nodes.Not):
        opposite = negate(predicate.operand)
        is_stuck = isinstance(opposite, nodes.Not)
        return {} if is_stuck else possible_values(opposite, schema, values_max)
    if isinstance(predicate, nodes.Among):
        return _values_of_set(predicate.keys, schema, values_max)
    if isinstance(predicate, nodes.Constant):
        return {} if predicate.value else None
    if isinstance(predicate, nodes.Comparison | nodes.In):
        return _values_of(predicate, schema)
    if isinstance(predicate, nodes.IsNull):
        return {predicate.column: frozenset({None})}
    return {}


def _values_of(test: nodes.Comparison | nodes.In, schema: pa.Schema) -> Possible:
    values = test.values if isinstance(test, nodes.In) else (test.value,)
    if isinstance(test, nodes.Comparison) and test.operator not in _EQUALITIES:
        return {} if test.value is not None else None
    present = [value for value in values if value is not None]  # Nothing equals NULL.
    data_type = known_field(schema, test.column).type
    if not all(_is_exact(value, data_type) for value in present):
        return {}
    return {test.column: frozenset(present)} if present else None


def _values_of_set(keys: pa.RecordBatch, schema: pa.Schema, values_max: int) -> Possible:
    if not len(keys):
        return None
    found = {}
    for name, column in zip(keys.schema.names, keys.columns, strict=True):
        values = column if keys.num_columns == 1 else column.unique()
        if len(values) <= values_max and _has_one_spelling(known_field(schema, name).type):
            found[name] = frozenset(values.to_pylist())
    return found


_EQUALITIES = (Operator.EQUAL, Operator.NULL_SAFE_EQUAL)


def _intersection(parts: Sequence[Possible]) -> Possible:
    joined: dict[str, _Values] = {}
    for part in parts:
        if part is None:
            return None
        for name, values in part.items():
            joined[name] = joined[name] & values if name in joined else values
    return joined if all(joined.values()) else None


def _union(parts: Sequence[Possible]) -> Possible:
    able = [part for part in parts if part is not None]
    if not able:
        return None
    names = set(able[0]).intersection(*able[1:])
    return {name: frozenset().union(*(part[name] for part in able)) for name in names}


def _is_exact(value: LiteralValue, data_type: pa.DataType) -> bool:
    """Return whether a column can hold the value, and every writer spells it the same in a key.

    Hudi's engines spell timestamps differently. Decimals and floats have several spellings of a
    value, and a widened column may mix them.
    """
    if isinstance(value, Decimal | float) or not _has_one_spelling(data_type):
        return False
    try:
        pa.scalar(value, data_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return False
    return True


def _has_one_spelling(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_signed_integer(data_type)
        or pa.types.is_boolean(data_type)
        or pa.types.is_date32(data_type)
    )


def _may_hold_comma(data_type: pa.DataType) -> bool:
    """Return whether a value may contain ``,hash_field:``, which would be read as a hash field."""
    return not (pa.types.is_primitive(data_type) or pa.types.is_decimal(data_type))


def _why_free(name: str, predicate: Predicate, schema: pa.Schema) -> str:
    if not _has_one_spelling(known_field(schema, name).type):
        return f"keys of {name} (type {known_field(schema, name).type}) have several spellings"
    if any(keys.schema.get_field_index(name) >= 0 for keys in _sets(predicate)):
        return _TOO_MANY
    for leaf in leaves(predicate):
        if isinstance(leaf, nodes.Opaque):
            return f"no = or IN on {name} alone; {leaf.text!r} is left to Spark: {leaf.reason}"
    return f"no = or IN on {name} that holds for every row"
