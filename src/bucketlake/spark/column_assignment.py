"""Assigning computed values to columns on Spark; see ``model/cast.py``."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 -- the names that PySpark's users know.

from bucketlake.spark.spark_schema import spark_type

_EXACT_MAX = 2**53  # Larger doubles may have lost digits.


def single(text: str) -> Column:
    """Return an expression that gives one value a row: inside another one, Spark refuses others."""
    return F.coalesce(F.expr(text))


def assigned_column(value: Column, held: pa.DataType, to: pa.DataType) -> Column:
    """Return numbers rounded to the digits of a column; other values as they are."""
    is_exact = pa.types.is_integer(held) or pa.types.is_decimal128(held)
    if pa.types.is_floating(to) and is_exact:
        return value.cast(spark_type(to))
    if pa.types.is_decimal128(to) and pa.types.is_floating(held):
        return F.round(value.cast("double"), to.scale)
    if pa.types.is_decimal128(to) and pa.types.is_decimal128(held) and held.scale > to.scale:
        return F.round(value, to.scale)
    return value


def exactly(value: Column, held: pa.DataType, to: pa.DataType) -> tuple[Column, Column | None]:
    """Return an assigned value in the exact type of a column, and its text where it is unfit.

    Spark makes doubles of all values of a CASE of which one is a double.
    """
    fits: Column | None = None
    if pa.types.is_floating(held) and pa.types.is_integer(to):
        fits = (F.abs(value) <= _EXACT_MAX) & (value == F.rint(value))
    elif pa.types.is_floating(held) and pa.types.is_decimal128(to):
        fits = F.abs(value) < float(10 ** (to.precision - to.scale))
    if fits is None:
        return value, None
    exact = pa.int64() if pa.types.is_integer(to) else pa.decimal128(38, to.scale)
    found = F.when(fits, value.cast(spark_type(exact)))
    return found, F.when(value.isNotNull() & ~fits, value.cast("string"))
