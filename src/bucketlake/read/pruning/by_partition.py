"""Pruning by partition: which partitions can hold a row that matches a predicate.

A partition path contains the values of its partition fields as text. If the text stands for one
value, the predicate is evaluated on it, for all partitions at once. If it may stand for several
values, as a formatted timestamp or the default partition of a text column, the partition is kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import InputError
from bucketlake.model.arrays import Mask, mask_of
from bucketlake.model.field_path import field_at, known_field
from bucketlake.model.keys import KeyGenerator, KeySpec
from bucketlake.model.partition_path import DEFAULT_PARTITION, decode_segment, partition_paths
from bucketlake.read.pruning.key_candidates import possible_values, records_of
from bucketlake.where.arrow_filter import truth_of
from bucketlake.where.predicate import (
    Among,
    ColumnTest,
    Predicate,
    Satisfaction,
    evaluate,
    tested_columns,
)

PINNED_MAX = 64
"""Largest number of partitions to list one by one; for more, the whole table is listed."""

# One spelling per value: only what a writer prints, although a cast would accept more.
_SPELLINGS = (
    (pa.types.is_signed_integer, r"^-?(0|[1-9][0-9]{0,17})$"),
    (pa.types.is_boolean, r"^(true|false)$"),
    (pa.types.is_date32, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
)


def partitions_that_may_match(
    predicate: Predicate, partition_paths: Sequence[str], key_spec: KeySpec, schema: pa.Schema
) -> Mask:
    """Find the partitions that can hold a row that matches a predicate.

    Parameters
    ----------
    predicate : Predicate
        The result of ``parse_where`` for ``schema``.
    partition_paths : sequence of str, length n_partitions
        Stored partition paths.
    key_spec : KeySpec
        How the table makes partition paths.
    schema : pyarrow.Schema
        Types of the table's columns.

    Returns
    -------
    ndarray of bool, shape (n_partitions,)
        False if no row of the partition can match.
    """
    tested = tested_columns(predicate)
    used = [name for name in readable_fields(key_spec, schema) if name in tested]
    values = _partition_values(partition_paths, key_spec, used, schema)

    def answer(test: ColumnTest | Among) -> Satisfaction | None:
        if isinstance(test, Among):
            names = [name for name in test.columns if name in values]
            return _test(test.of(names), {name: values[name] for name in names}) if names else None
        return _test(test, {test.column: values[test.column]}) if test.column in values else None

    return evaluate(predicate, answer, len(partition_paths)).can_be_true


def pinned_partitions(
    predicate: Predicate, key_spec: KeySpec, schema: pa.Schema
) -> list[str] | None:
    """Return the paths of all partitions that can hold a matching row, if these are few.

    Parameters
    ----------
    predicate : Predicate
        The result of ``parse_where`` for ``schema``.
    key_spec : KeySpec
        How the table makes partition paths.
    schema : pyarrow.Schema
        Types of the table's columns.

    Returns
    -------
    list of str or None
        Paths as a writer spells them; the table may lack some of these partitions. None if the
        predicate does not limit each partition field to a few values.
    """
    fields = key_spec.partition_fields
    if not fields or readable_fields(key_spec, schema) != fields:
        return None
    possible = possible_values(predicate, schema, PINNED_MAX)
    if possible is None:
        return []
    if any(name not in possible for name in fields):
        return None
    # The path of a null, or of a text that stands for a null, may also belong to another value.
    choices = {name: possible[name] for name in fields}
    unclear = any(v in (None, "", DEFAULT_PARTITION) for held in choices.values() for v in held)
    if unclear or math.prod(map(len, choices.values())) > PINNED_MAX:
        return None
    try:
        paths = partition_paths(records_of(choices, schema), key_spec)
    except InputError:  # No writer can make such a path.
        return None
    return sorted(set(paths.to_pylist()))


def readable_fields(key_spec: KeySpec, schema: pa.Schema) -> tuple[str, ...]:
    """Return the partition fields whose values can be read from a path: those of simple types."""
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
    field = field_at(schema, name)
    return field is not None and (pa.types.is_string(field.type) or _spelling(field.type) != "")


def _spelling(data_type: pa.DataType) -> str:
    return next((pattern for is_kind, pattern in _SPELLINGS if is_kind(data_type)), "")


@dataclass(frozen=True, slots=True)
class _Values:
    """The value of a column in each partition, and whether the value is known."""

    values: pa.Array
    known: Mask


def _partition_values(
    paths: Sequence[str], key_spec: KeySpec, used: Sequence[str], schema: pa.Schema
) -> dict[str, _Values]:
    if not used or not paths:
        return {}
    names = key_spec.partition_fields
    segments = pc.split_pattern(pa.array(paths, pa.string()), "/")
    # With slashes in values or dates split into folders, fields cannot be assigned to segments.
    regular = pc.equal(pc.list_value_length(segments), len(names))
    held = segments.filter(regular).flatten()
    at = np.flatnonzero(regular.to_numpy(zero_copy_only=False))
    found = {}
    for name in used:
        position = names.index(name)
        texts = held.take(np.arange(position, len(held), len(names)))
        parsed = _parse(texts, name, key_spec, known_field(schema, name).type)
        found[name] = _scatter(parsed, at, len(paths))
    return found


def _scatter(held: _Values, at: npt.NDArray[np.int64], length: int) -> _Values:
    """Place the values of some partitions in an array for all partitions."""
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
        # Null, an empty text and the name itself all have the default partition's path.
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
    """Cast texts; a text without a valid value, such as 2024-02-30, becomes null."""
    try:
        return texts.cast(data_type)
    except pa.ArrowInvalid:
        pass
    if len(texts) == 1:
        return pa.nulls(1, data_type)
    half = len(texts) // 2
    return pa.concat_arrays([_cast(texts[:half], data_type), _cast(texts[half:], data_type)])


def _test(test: ColumnTest | Among, columns: dict[str, _Values]) -> Satisfaction:
    held = columns.values()
    rows = pa.RecordBatch.from_arrays([each.values for each in held], names=list(columns))
    result = truth_of(test, rows)
    true, false = mask_of(result), mask_of(pc.invert(result))
    unknown = ~np.logical_and.reduce([each.known for each in held])
    return Satisfaction(true | unknown, false | unknown)
