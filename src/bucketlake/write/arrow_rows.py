"""Rows of the caller, in any of the forms that a write takes, as one Arrow table.

pandas and polars are not imported: a data frame of either exists only where its library is loaded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from itertools import chain
from typing import Any

import pyarrow as pa

from bucketlake.errors import InputError

TAKEN = (
    "pass a DataFrame of Spark, pandas or polars (also lazy), a pyarrow Table, RecordBatch, "
    "RecordBatchReader, Dataset or Scanner, a list of RecordBatches or of dicts, an object with "
    "the Arrow PyCapsule interface, or bl.files(...)"
)
"""What a write takes, for messages."""

KEEP_NULLS = (
    "give nulls='keep' too, so that a lacking value keeps the stored one; or write the rows with "
    "the same names together"
)
"""What to do where some rows lack a name that others have, for messages."""

_CONVERSION_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def arrow_rows(data: object, where: str) -> pa.Table:
    """Return rows as an Arrow table.

    Parameters
    ----------
    data : object
        What :data:`TAKEN` lists, except a DataFrame of Spark.
    where : str
        The write, for messages.

    Raises
    ------
    InputError
        If the data is of another type, or a column has values without an Arrow type. An error of a
        reader, such as a file that cannot be read, is raised as it is.
    """
    if isinstance(data, pa.Table):
        return data
    if _is_of(data, "pandas", "DataFrame"):
        return _from_pandas(data, where)
    if _is_of(data, "polars", "LazyFrame"):
        data = data.collect()  # type: ignore[attr-defined]
    if _is_of(data, "polars", "DataFrame"):
        return _from_polars(data, where)
    if _is_of(data, "pyarrow.dataset", "Dataset") or _is_of(data, "pyarrow.dataset", "Scanner"):
        return data.to_table()  # type: ignore[attr-defined]
    if isinstance(data, list | tuple):
        return _from_list(data, where)
    return _reader(data, where).read_all()


def schema_of_rows(data: object, where: str) -> pa.Schema | None:
    """Return the schema of rows, reading them only if they have none; None for other data."""
    if _is_of(data, "polars", "LazyFrame"):
        data = sys.modules["polars"].DataFrame(schema=data.collect_schema())  # type: ignore[attr-defined]
    for name in ("schema", "projected_schema"):
        if isinstance(given := getattr(data, name, None), pa.Schema):
            return given
    is_known = isinstance(data, list | tuple) or _is_of(data, "pandas", "DataFrame")
    if is_known or hasattr(type(data), "__arrow_c_stream__"):
        return arrow_rows(data, where).schema
    return None


def require_same_names(data: object, where: str) -> None:
    """Raise InputError for a list of dicts of which some lack a name.

    They have a null there in the batch, which would replace the stored value.
    """
    if not (isinstance(data, list | tuple) and all(isinstance(row, dict) for row in data)):
        return
    names = dict.fromkeys(chain.from_iterable(data))
    for number, row in enumerate(data):
        lacking = [name for name in names if name not in row]
        if lacking:
            raise InputError(
                where,
                f"row {number} lacks {lacking[0]!r}, which another row has",
                KEEP_NULLS,
            )


def _is_of(data: object, module: str, name: str) -> bool:
    known = getattr(sys.modules.get(module), name, None)
    return known is not None and isinstance(data, known)


def _reader(data: object, where: str) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    problem = f"data of type {type(data).__name__} cannot be written"
    if hasattr(type(data), "__arrow_c_stream__"):
        try:
            return pa.RecordBatchReader.from_stream(data)
        except _CONVERSION_ERRORS as error:
            problem = f"{problem}: {error}"
    if isinstance(data, str | os.PathLike):
        problem = f"a text is no rows ({data!r})"
        step = "name files with bl.files(...), and give a condition as where=..."
        raise InputError(where, problem, step)
    raise InputError(where, problem, TAKEN)


def _from_pandas(frame: Any, where: str) -> pa.Table:
    # A level without a name is never written. One with a name may be a column of the table.
    is_named = any(name is not None for name in frame.index.names)
    try:
        table = pa.Table.from_pandas(frame, preserve_index=is_named)
    except _CONVERSION_ERRORS as error:
        for place, name in enumerate(frame.columns):
            column = frame.iloc[:, place]
            _array(column, f"{where}, column {name}", f"pandas type {column.dtype}")
        problem = f"the pandas data frame has no Arrow form: {error}"
        raise InputError(where, problem, "reset its index, and rename equal columns") from error
    for place, name in enumerate(frame.columns):
        if frame.dtypes.iloc[place].kind == "O":
            _require_times_alike(
                frame.iloc[:, place], table.schema.field(place).type, f"{where}, column {name}"
            )
    return table


def _array(values: Any, where: str, held: str) -> pa.Array:
    """Return values of Python as an array; raise InputError if they have no common type."""
    try:
        array = pa.array(values)
    except _CONVERSION_ERRORS as error:
        raise InputError(
            where,
            f"{held} has values without a common Arrow type: {error}",
            "convert the values of the column to one type first",
        ) from error
    _require_times_alike(values, array.type, where)
    return array


def _require_times_alike(values: Iterable[Any], held: pa.DataType, where: str) -> None:
    """Raise InputError for times of which some have a zone, or a date and a time of day.

    PyArrow takes a time without a zone as UTC beside others, and drops the time of day of a date.
    """
    if pa.types.is_date(held) or pa.types.is_timestamp(held):
        times = (value for value in values if isinstance(value, date) and value == value)
        kinds = {_time_kind(value): value for value in times}  # NaT of pandas equals nothing.
        if len(kinds) > 1:
            raise InputError(
                where,
                "it mixes times of several kinds: "
                + ", ".join(f"{value} {kind}" for kind, value in kinds.items()),
                "give all times a zone, or none, and no dates beside them",
            )
    elif pa.types.is_list(held):
        items = chain.from_iterable(value for value in values if value is not None)
        _require_times_alike(items, held.value_type, where)
    elif pa.types.is_struct(held):
        rows = [value for value in values if isinstance(value, Mapping)]
        for field in held:
            inner = [row.get(field.name) for row in rows]
            _require_times_alike(inner, field.type, f"{where}.{field.name}")


def _time_kind(value: date) -> str:
    if not isinstance(value, datetime):
        return "(a date)"
    return "(without a zone)" if value.tzinfo is None else "(with a zone)"


def _from_polars(frame: Any, where: str) -> pa.Table:
    for name, dtype in frame.schema.items():
        problem = f"polars type {dtype} has no Arrow type"
        if dtype == sys.modules["polars"].Object:  # polars would give their addresses in memory.
            held = next((value for value in frame[name] if value is not None), None)
            problem += "" if held is None else f", its values are of type {type(held).__name__}"
        else:
            try:
                pa.table(frame.select(name).clear())
                continue
            except _CONVERSION_ERRORS as error:
                problem += f": {error}"
        next_step = "convert the values of the column first, for example to text"
        raise InputError(f"{where}, column {name}", problem, next_step)
    return pa.table(frame)


def _from_list(items: Sequence[Any], where: str) -> pa.Table:
    if all(isinstance(item, dict) for item in items):
        return _from_dicts(items, where)
    if not all(isinstance(item, pa.RecordBatch | pa.Table) for item in items):
        kinds = ", ".join(sorted({type(item).__name__ for item in items}))
        raise InputError(where, f"a list of {kinds} cannot be written", TAKEN)
    names = {frozenset(item.schema.names) for item in items}
    try:
        if len(names) > 1:  # Nulls for a column that a batch lacks would replace stored values.
            raise pa.ArrowInvalid("some lack a column that another one has")
        return pa.concat_tables(map(_as_table, items), promote_options="permissive")
    except pa.ArrowException as error:
        problem = f"the batches of the list do not fit together: {error}"
        raise InputError(where, problem, "give them the same columns and types") from error


def _as_table(batch: pa.RecordBatch | pa.Table) -> pa.Table:
    return batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])


def _from_dicts(rows: Sequence[dict[Any, Any]], where: str) -> pa.Table:
    """Return rows with the names of all rows; a row without a name has a null there."""
    names = dict.fromkeys(chain.from_iterable(rows))
    for name in names:
        if not isinstance(name, str):
            raise InputError(where, f"the column name {name!r} is no text", "name columns by text")
    if rows and not names:
        raise InputError(where, "there are no columns", "give data with columns")
    columns = {
        name: _array([row.get(name) for row in rows], f"{where}, column {name}", "the column")
        for name in names
    }
    return pa.table(columns)
