"""Pruning by partition: which partition paths can hold a row that a predicate keeps.

A path tells the values of its partition fields as text. Where the text has one reading the
predicate is evaluated on it, for all partitions at once; where it has several, as a formatted
timestamp or the default partition of a text column, the partition stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import InputError
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.partition_path import DEFAULT_PARTITION, decode_segment, partition_paths
from bucketlake.read.pruning.buckets import possible_values
from bucketlake.where.arrow_filter import apply_test
from bucketlake.where.predicate import (
    COLUMN_TESTS,
    And,
    ColumnTest,
    Constant,
    Not,
    Or,
    Predicate,
    leaves,
)

PINNED_MAX = 64
"""Partitions that are listed one by one; for more of them the table is listed."""

Mask = npt.NDArray[np.bool_]

# One spelling a value: what a writer prints, and nothing else that a cast would take.
_SPELLINGS = (
    (pa.types.is_signed_integer, r"^-?(0|[1-9][0-9]{0,17})$"),
    (pa.types.is_boolean, r"^(true|false)$"),
    (pa.types.is_date32, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
)


def partition_may_match(
    predicate: Predicate, partition_path: str, key_spec: KeySpec, schema: pa.Schema
) -> bool:
    """Whether a partition can hold a row that a predicate keeps; True where that is unsure."""
    return bool(partitions_that_may_match(predicate, [partition_path], key_spec, schema)[0])


def partitions_that_may_match(
    predicate: Predicate, partition_paths: Sequence[str], key_spec: KeySpec, schema: pa.Schema
) -> Mask:
    """Find the partitions that can hold a row that a predicate keeps.

    Parameters
    ----------
    predicate : Predicate
        As ``parse_where`` returns it for ``schema``.
    partition_paths : sequence of str, length n_partitions
        Paths as stored.
    key_spec : KeySpec
        How the table makes partition paths.
    schema : pyarrow.Schema
        Types of the table's columns.

    Returns
    -------
    ndarray of bool, shape (n_partitions,)
        False where no row of the partition can match.
    """
    fields = readable_fields(key_spec, schema)
    tests = [leaf for leaf in leaves(predicate) if isinstance(leaf, COLUMN_TESTS)]
    used = [name for name in fields if any(test.column == name for test in tests)]
    values = _partition_values(partition_paths, key_spec, used, schema)
    return _evaluate(predicate, values, len(partition_paths)).can_be_true


def pinned_partitions(
    predicate: Predicate, key_spec: KeySpec, schema: pa.Schema
) -> list[str] | None:
    """Return the paths of the only partitions that can hold rows which a predicate keeps.

    Parameters
    ----------
    predicate : Predicate
        As ``parse_where`` returns it for ``schema``.
    key_spec : KeySpec
        How the table makes partition paths.
    schema : pyarrow.Schema
        Types of the table's columns.

    Returns
    -------
    list of str or None
        Paths as a writer spells them, whether or not the table has such partitions. None where the
        predicate does not name a few values of each partition field.
    """
    fields = key_spec.partition_fields
    if not fields or readable_fields(key_spec, schema) != fields:
        return None
    possible = possible_values(predicate, schema)
    if possible is None:
        return []
    if any(name not in possible for name in fields):
        return None
    # Nulls, and texts that stand for a null in a path, lie where other partitions may lie, too.
    choices = [sorted(possible[name], key=repr) for name in fields]
    unclear = any(v in (None, "", DEFAULT_PARTITION) for held in choices for v in held)
    if unclear or math.prod(map(len, choices)) > PINNED_MAX:
        return None
    records = list(product(*choices))
    columns = [
        pa.array([record[i] for record in records], schema.field(name).type)
        for i, name in enumerate(fields)
    ]
    try:
        paths = partition_paths(pa.table(columns, names=list(fields)), key_spec)
    except InputError:  # No writer makes such a path.
        return None
    return sorted(set(paths.to_pylist()))


def readable_fields(key_spec: KeySpec, schema: pa.Schema) -> tuple[str, ...]:
    """Return the partition fields whose values a path tells, as plain text of a simple type."""
    if key_spec.generator is KeyGenerator.NON_PARTITION:
        return ()
    formatted = key_spec.generator is KeyGenerator.TIMESTAMP
    kinds = key_spec.partition_field_kinds or ("SIMPLE",) * len(key_spec.partition_fields)
    return tuple(
        name
        for name, kind in zip(key_spec.partition_fields, kinds, strict=True)
        if not formatted and kind.upper() == "SIMPLE" and _is_readable(schema, name)
    )


def _is_readable(schema: pa.Schema, name: str) -> bool:
    index = schema.get_field_index(name)
    return index >= 0 and (
        pa.types.is_string(schema.field(index).type) or _spelling(schema.field(index).type) != ""
    )


def _spelling(data_type: pa.DataType) -> str:
    return next((pattern for is_kind, pattern in _SPELLINGS if is_kind(data_type)), "")


@dataclass(frozen=True, slots=True)
class _Values:
    """One column's value in each partition, and whether it is known."""

    values: pa.Array
    known: Mask


def _partition_values(
    paths: Sequence[str], key_spec: KeySpec, used: Sequence[str], schema: pa.Schema
) -> dict[str, _Values]:
    if not used or not paths:
        return {}
    names = key_spec.partition_fields
    segments = pc.split_pattern(pa.array(paths, pa.string()), "/")
    # Raw slashes in values, or dates in folders of their own: which field is which is unsure.
    regular = pc.equal(pc.list_value_length(segments), len(names))
    held = segments.filter(regular).flatten()
    at = np.flatnonzero(regular.to_numpy(zero_copy_only=False))
    found = {}
    for name in used:
        position = names.index(name)
        texts = held.take(np.arange(position, len(held), len(names)))
        parsed = _parse(texts, name, key_spec, schema.field(name).type)
        found[name] = _scatter(parsed, at, len(paths))
    return found


def _scatter(held: _Values, at: npt.NDArray[np.int64], length: int) -> _Values:
    """Spread the values of some partitions over all."""
    source = np.full(length, -1)
    source[at] = np.arange(len(at))
    known = np.zeros(length, np.bool_)
    known[at] = held.known
    indices = pa.array(source, mask=source < 0)
    return _Values(held.values.take(indices), known)


def _parse(texts: pa.Array, name: str, key_spec: KeySpec, data_type: pa.DataType) -> _Values:
    known = pc.not_equal(texts, "")
    if key_spec.hive_style:
        prefix = f"{name}="
        known = pc.and_(known, pc.starts_with(texts, prefix))
        texts = pc.utf8_slice_codeunits(texts, len(prefix))
    if key_spec.url_encode:
        texts = _decode(texts)
    is_default = pc.equal(texts, DEFAULT_PARTITION)
    if pa.types.is_string(data_type):
        # Null, an empty text and the name itself all come to lie there.
        known = pc.and_(known, pc.invert(is_default))
        return _Values(texts, known.to_numpy(zero_copy_only=False))
    spelled = pc.match_substring_regex(texts, _spelling(data_type))
    values = _cast(pc.if_else(spelled, texts, None), data_type)
    known = pc.and_(known, pc.or_(values.is_valid(), is_default))
    return _Values(values, known.to_numpy(zero_copy_only=False))


def _decode(texts: pa.Array) -> pa.Array:
    encoded = texts.dictionary_encode()
    plain = [decode_segment(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(plain, pa.string()).take(encoded.indices)


def _cast(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Cast texts; what is spelled as a value and is none, as 2024-02-30, becomes null."""
    try:
        return texts.cast(data_type)
    except pa.ArrowInvalid:
        pass
    if len(texts) == 1:
        return pa.nulls(1, data_type)
    half = len(texts) // 2
    return pa.concat_arrays([_cast(texts[:half], data_type), _cast(texts[half:], data_type)])


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Which results a predicate can have for the rows of each partition, NULL aside."""

    can_be_true: Mask
    can_be_false: Mask


def _evaluate(predicate: Predicate, values: dict[str, _Values], length: int) -> _Outcome:
    if isinstance(predicate, And | Or):
        parts = [_evaluate(operand, values, length) for operand in predicate.operands]
        all_of, any_of = np.logical_and.reduce, np.logical_or.reduce
        true, false = (all_of, any_of) if isinstance(predicate, And) else (any_of, all_of)
        return _Outcome(
            true([part.can_be_true for part in parts]), false([part.can_be_false for part in parts])
        )
    if isinstance(predicate, Not):
        inner = _evaluate(predicate.operand, values, length)
        return _Outcome(inner.can_be_false, inner.can_be_true)
    if isinstance(predicate, Constant):
        return _Outcome(*(np.full(length, predicate.value is found) for found in (True, False)))
    if isinstance(predicate, COLUMN_TESTS) and predicate.column in values:
        return _test(predicate, values[predicate.column])
    return _Outcome(np.ones(length, np.bool_), np.ones(length, np.bool_))


def _test(test: ColumnTest, column: _Values) -> _Outcome:
    result = apply_test(test, column.values)
    true = pc.fill_null(result, False).to_numpy(zero_copy_only=False)
    false = pc.fill_null(pc.invert(result), False).to_numpy(zero_copy_only=False)
    return _Outcome(true | ~column.known, false | ~column.known)
