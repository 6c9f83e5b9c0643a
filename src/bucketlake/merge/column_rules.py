"""Rules that make the value of a column from the values of an older and a newer row of one key.

A null counts as no value: the other value stays. Each rule is associative, so that rows of one key
can be combined in pairs, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import InputError
from bucketlake.merge.incoming import BoolArray, IntArray, comparable
from bucketlake.model.arrays import one_array
from bucketlake.model.column_type import type_name
from bucketlake.model.row_merge import ColumnRule
from bucketlake.model.schema import UNAVAILABLE, UNAVAILABLE_TYPE

_NUMBERS = "a number"
_ORDERED = "a number, text, boolean, date or time"
_LISTS = "an array of simple values"


def require_rule_fits(rule: ColumnRule, field: pa.Field, where: str) -> None:
    """Raise InputError if a column of this type cannot have a rule."""
    nested, kind = pa.types.is_nested(field.type), field.type
    fits, needs = True, ""
    match rule:
        case ColumnRule.SUM:
            is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
            fits, needs = is_number or pa.types.is_decimal(kind), _NUMBERS
        case ColumnRule.MIN | ColumnRule.MAX:
            fits, needs = not nested and not pa.types.is_binary(kind), _ORDERED
        case ColumnRule.UNION:
            is_list = pa.types.is_list(kind)
            fits, needs = is_list and not pa.types.is_nested(kind.value_type), _LISTS
    if not fits:
        raise InputError(
            f"{where}, column {field.name}",
            f"the rule {rule.value!r} needs {needs}, the column is {type_name(kind)}",
            "give it another rule",
        )


def combined_values(
    rule: ColumnRule, older: pa.Array, newer: pa.Array, column: str, where: str
) -> pa.Array:
    """Return the values of a column, from older and newer values of the same keys.

    Raises
    ------
    InputError
        If the column cannot hold a sum.
    """
    if rule is ColumnRule.SUM:
        return _sums(older, newer, f"{where}, column {column}")
    if rule is ColumnRule.UNION:
        return _unions(older, newer)
    return chosen(_takes_newer(rule, older, newer), newer, older)


def chosen(mask: BoolArray, if_true: pa.Array, if_false: pa.Array) -> pa.Array:
    """Return values of two columns of any type, chosen row by row."""
    if mask.all():
        return if_true
    count = len(mask)
    rows = np.where(mask, np.arange(count), np.arange(count) + count)
    return pa.concat_arrays([if_true, if_false]).take(pa.array(rows))


# ---- Values that the newest change of a row did not show, from the change that showed them last --
#
# A database may leave large values out of its log if an update did not change them. A row that
# lacks a value names its column in a map, with the position of the change from which the value is.
# So of two rows of a key the value with the later source stays, whichever of them comes first.


def with_late_values(older: pa.Table, newer: pa.Table, ordering: str) -> pa.Table:
    """Return newer rows with values of the older ones where those have a later source.

    Parameters
    ----------
    older, newer : pa.Table, shape (n_pairs, n_columns)
        Rows of the same keys, in the same order.
    ordering : str
        Column of their positions.
    """
    lacking = one_array(newer[UNAVAILABLE])
    named = pc.unique(lacking.keys).to_pylist() if lacking.null_count < len(lacking) else []
    held = frozenset(newer.column_names)
    names = [name for name in named if name in held]
    if not names:
        return newer
    known, sources = one_array(older[UNAVAILABLE]), []
    for name in names:
        own = pc.map_lookup(lacking, name, "first")
        other = pc.coalesce(pc.map_lookup(known, name, "first"), one_array(older[ordering]))
        later = pc.fill_null(pc.greater(other, own), False)
        mask = later.to_numpy(zero_copy_only=False)
        at = newer.column_names.index(name)
        values = chosen(~mask, one_array(newer[name]), one_array(older[name]))
        newer = newer.set_column(at, newer.schema.field(at), values)
        sources.append(pc.if_else(later, other, own))
    at = newer.column_names.index(UNAVAILABLE)
    return newer.set_column(at, newer.schema.field(at), sources_of(names, sources))


def sources_of(names: Sequence[str], sources: Sequence[pa.Array]) -> pa.MapArray:
    """Return the map of each row: of each name its source, unless that is null."""
    has = np.column_stack([s.is_valid().to_numpy(zero_copy_only=False) for s in sources])
    counts = has.sum(axis=1)
    rows, columns = np.nonzero(has)
    items = pa.concat_arrays(sources).take(pa.array(columns * len(has) + rows))
    keys = pa.array(names, pa.string()).take(pa.array(columns))
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
    mask = pa.array(counts == 0)
    return pa.MapArray.from_arrays(offsets, keys, items, type=UNAVAILABLE_TYPE, mask=mask)


def _takes_newer(rule: ColumnRule, older: pa.Array, newer: pa.Array) -> BoolArray:
    no_older, no_newer = _mask(older.is_null()), _mask(newer.is_null())
    match rule:
        case ColumnRule.KEEP:
            return no_older
        case ColumnRule.MAX:
            return no_older | (~no_newer & _compared(pc.greater, older, newer))
        case ColumnRule.MIN:
            return no_older | (~no_newer & _compared(pc.less, older, newer))
    return np.ones(len(newer), np.bool_)


def _compared(
    compare: Callable[[pa.Array, pa.Array], pa.Array], older: pa.Array, newer: pa.Array
) -> BoolArray:
    return _mask(compare(comparable(newer), comparable(older)).fill_null(False))


def _sums(older: pa.Array, newer: pa.Array, where: str) -> pa.Array:
    try:
        sums = pc.add_checked(older, newer).cast(newer.type)
    except pa.ArrowInvalid as error:
        raise InputError(
            where,
            f"a sum of stored and new values does not fit {type_name(newer.type)}: {error}",
            "widen the column first (merge_schema='widen_types'), or correct the values",
        ) from error
    return pc.coalesce(sums, newer, older)


def _unions(older: pa.ListArray, newer: pa.ListArray) -> pa.Array:
    """Return lists with each element once: those of the older list, then those of the newer.

    Where one list is null, the other one stays as it is, however rows are paired.
    """
    count = len(newer)
    rows = np.concatenate([_rows_of_elements(older), _rows_of_elements(newer)])
    elements = pa.concat_arrays([older.flatten(), newer.flatten()])
    codes = elements.dictionary_encode(null_encoding="encode").indices.to_numpy(
        zero_copy_only=False
    )
    pairs = rows.astype(np.int64) * (len(elements) + 1) + codes
    first = np.unique(pairs, return_index=True)[1]
    kept = first[np.lexsort((first, rows[first]))]
    lengths = np.bincount(rows[kept], minlength=count)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    unions = pa.ListArray.from_arrays(
        pa.array(offsets), elements.take(pa.array(kept)), type=newer.type
    )
    has_older, has_newer = _mask(older.is_valid()), _mask(newer.is_valid())
    return chosen(has_older & has_newer, unions, chosen(has_newer, newer, older))


def _rows_of_elements(lists: pa.ListArray) -> IntArray:
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    rows: IntArray = np.repeat(np.arange(len(lists)), lengths)
    return rows


def _mask(values: pa.Array) -> BoolArray:
    mask: BoolArray = values.to_numpy(zero_copy_only=False)
    return mask
