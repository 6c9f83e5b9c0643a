"""JSON objects as Arrow columns, by Python's own parser: what PyArrow's reader does not take.

PyArrow reads ordinary lines. A column whose values are of several kinds, a number that needs the
rules of :mod:`bucketlake.model.text_values`, a map, and every error come here, because each value
keeps its text, its kind and its row.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import InputError
from bucketlake.model.column_type import type_name
from bucketlake.model.text_values import TextForm, type_of_texts, values_of_texts, why_no_value

_SPACE = " \t\r\n"
_SPECIAL = frozenset({"nan", "inf", "-inf", "infinity", "-infinity", "+infinity"})


class _Number(str):
    """The text of a number."""

    __slots__ = ()


class BadValueError(Exception):
    """A value that does not fit its column.

    ``args`` are the row, from 0, the column's path, the problem, and what to do.
    """


def objects_in(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a text, one after the other; raise ArrowInvalid if it holds others."""
    at = after_space(text, 0)
    count = 0
    while at < len(text):
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise pa.ArrowInvalid(f"row {count + 1}: {error}: {text[at : at + 60]}") from error
        if not isinstance(value, dict):
            raise pa.ArrowInvalid(f"row {count + 1} is no object: {text[at:end][:60]}")
        yield value
        count += 1
        at = after_space(text, end)


def after_space(text: str, at: int) -> int:
    """Return the place of the next character that is no space."""
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise ValueError(f"the name {twice!r} occurs twice in an object")
    return found


_DECODER = json.JSONDecoder(
    parse_int=_Number, parse_float=_Number, parse_constant=_Number, object_pairs_hook=_distinct
)


def objects_table(objects: Sequence[dict[str, Any]], types: pa.Schema, form: TextForm) -> pa.Table:
    """Return objects as a table of the columns that occur in them.

    Parameters
    ----------
    objects : sequence of dict
        From :func:`objects_in`.
    types : pyarrow.Schema
        Types of columns; other columns get the type of their values.
    form : TextForm
        How times are written.

    Raises
    ------
    BadValueError
        If a value does not fit.
    """
    columns = _of_objects(objects, range(len(objects)), types, "", form)
    if not columns:  # A table needs a column to have rows.
        return pa.table({"": pa.nulls(len(objects))}).select([])
    return pa.table(columns)


def _of_objects(
    objects: Sequence[dict[str, Any] | None],
    rows: Sequence[int],
    types: Iterable[pa.Field],
    prefix: str,
    form: TextForm,
) -> dict[str, pa.Array]:
    """Return a column for each name that occurs."""
    known = {field.name: field.type for field in types}
    columns = {}
    for name in dict.fromkeys(name for found in objects if found for name in found):
        values = [None if found is None else found.get(name) for found in objects]
        path = f"{prefix}{name}"
        to = known.get(name) or _type_of(values, rows, path, form)
        columns[name] = _array(values, rows, to, path, form)
    return columns


def _array(
    values: Sequence[Any], rows: Sequence[int], to: pa.DataType, path: str, form: TextForm
) -> pa.Array:
    for value, row in zip(values, rows, strict=True):
        if value is not None and not _is_kind_of(value, to):
            raise BadValueError(
                row, path, f"{_shown(value)} is {_kind(value)}, and no {type_name(to)}", _FIX
            )
    if pa.types.is_struct(to):
        known = {field.name: pa.nulls(len(values), field.type) for field in to}
        children = known | _of_objects(values, rows, to, f"{path}.", form)
        fields = [pa.field(name, child.type) for name, child in children.items()]
        return pa.StructArray.from_arrays(
            list(children.values()), fields=fields, mask=_mask(values)
        )
    if pa.types.is_list(to):
        child = _array(*_flat(values, rows), to.value_type, f"{path}[]", form)
        kind = pa.list_(to.value_field.with_type(child.type))
        return pa.ListArray.from_arrays(_offsets(values), child, type=kind, mask=_mask(values))
    if pa.types.is_map(to):
        keys = pa.array([key for value in values if value for key in value], pa.string())
        held = [None if value is None else list(value.values()) for value in values]
        child = _array(*_flat(held, rows), to.item_type, f"{path}{{}}", form)
        kind = pa.map_(pa.string(), to.item_field.with_type(child.type))
        return pa.MapArray.from_arrays(_offsets(values), keys, child, type=kind, mask=_mask(values))
    if pa.types.is_boolean(to):
        return pa.array(values, pa.bool_())
    return _leaves(values, rows, to, path, form)


def _leaves(
    values: Sequence[Any], rows: Sequence[int], to: pa.DataType, path: str, form: TextForm
) -> pa.Array:
    def cast(some: Sequence[Any]) -> pa.Array:
        return values_of_texts(pa.array(some, pa.string()), to, form)

    try:
        return cast(values)
    except (pa.ArrowInvalid, UnicodeEncodeError) as whole:
        for text, row in zip(values, rows, strict=True):
            try:
                cast([text])
            except UnicodeEncodeError as error:
                raise BadValueError(row, path, f"the text is not UTF-8: {error}", _FIX) from error
            except pa.ArrowInvalid as error:
                raise BadValueError(row, path, *why_no_value(text or "", to, form)) from error
        raise AssertionError("no value is wrong, and all together are") from whole


def _type_of(values: Sequence[Any], rows: Sequence[int], path: str, form: TextForm) -> pa.DataType:
    """Return the type of a new column: that of its values, which are of one kind."""
    held = [(value, row) for value, row in zip(values, rows, strict=True) if value is not None]
    if not held:
        return pa.null()
    some, own = [value for value, _ in held], [row for _, row in held]
    for value, row in held:
        if type(value) is not type(some[0]):
            problem = f"{_shown(value)} is {_kind(value)}, others are {_kind(some[0])}"
            raise BadValueError(row, path, problem, _FIX)
    if isinstance(some[0], bool):
        return pa.bool_()
    if isinstance(some[0], _Number):
        is_whole = all(number.lstrip("-").isdigit() for number in some)
        return pa.int64() if is_whole else pa.float64()
    if isinstance(some[0], str):
        return type_of_texts(pa.array(some, pa.string()), form, times_only=True)
    if isinstance(some[0], list):
        return pa.list_(_type_of(*_flat(some, own), f"{path}[]", form))
    names = dict.fromkeys(name for value in some for name in value)
    children = {name: [value.get(name) for value in some] for name in names}
    return pa.struct(
        [(name, _type_of(each, own, f"{path}.{name}", form)) for name, each in children.items()]
    )


_FIX = "give the values of the column one type"


def _flat(values: Sequence[Any], rows: Sequence[int]) -> tuple[list[Any], list[int]]:
    """Return the items of lists, each with its row."""
    pairs = [(item, row) for held, row in zip(values, rows, strict=True) for item in held or ()]
    return [item for item, _ in pairs], [row for _, row in pairs]


def _offsets(values: Sequence[Any]) -> pa.Array:
    return pc.cumulative_sum(pa.array([0, *(len(value or ()) for value in values)], pa.int32()))


def _mask(values: Sequence[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


def _is_kind_of(value: Any, to: pa.DataType) -> bool:
    """Return whether a value of JSON is of the kind in which JSON holds a type."""
    if pa.types.is_struct(to) or pa.types.is_map(to):
        return isinstance(value, dict)
    if pa.types.is_list(to) or pa.types.is_boolean(to):
        return isinstance(value, list if pa.types.is_list(to) else bool)
    if not isinstance(value, str) or pa.types.is_null(to):
        return False
    if pa.types.is_decimal(to):  # Its digits may stand in quotes, so that no reader loses one.
        return True
    is_special = pa.types.is_floating(to) and value.lower() in _SPECIAL
    is_number = pa.types.is_integer(to) or pa.types.is_floating(to)
    return is_special or isinstance(value, _Number) == is_number


def _shown(value: Any) -> str:
    text = value if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _kind(value: Any) -> str:
    words = {bool: "a boolean", _Number: "a number", str: "a text", list: "an array"}
    return words.get(type(value), "an object")


def where_of(error: BadValueError, where: str, first_row: int) -> InputError:
    """Return the error for the user."""
    row, path, problem, next_step = error.args
    return InputError(f"{where}, row {first_row + row + 1}, column {path}", problem, next_step)
