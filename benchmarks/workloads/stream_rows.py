"""Rows of a stream as functions of their number, so that a repeated batch has the same rows.

Row ``v`` has a new key if ``v`` is even. Else it updates a key that an earlier row has: nine times
of ten one of the newest tenth of all keys, and else any of them. So half of the rows insert, and
the keys number ``v / 2``. Partitions are skewed: the first one has half of the keys, each further
one half of those of the one before. Keys are 16 random digits, so they arrive in no order.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from benchmarks.common.rows import REGIONS

KEY, PARTITION, ORDERING = "order_id", "region", "version"
PARTITIONS = 8
NEWEST_SHARE, NEWEST_PERCENT = 10, 90
_STATUSES = ("placed", "paid", "picked", "shipped", "delivered", "returned", "cancelled")


def stream_rows(numbers: DataFrame) -> DataFrame:
    """Return the rows with the numbers of the column ``value``."""
    return _rows(numbered_keys(numbers))


def loaded_rows(numbers: DataFrame) -> DataFrame:
    """Return a row for each key with a number of the column ``value``."""
    return _rows(numbers.select(f.col("value").alias("number"), f.col("value").alias(ORDERING)))


def mixed_rows(numbers: DataFrame, stored: int) -> DataFrame:
    """Return rows of which even ones have new keys, and odd ones any of so many stored keys.

    The numbers of new keys are greater than those of the stored ones.
    """
    value = f.col("value")
    old = f.pmod(f.xxhash64(value, f.lit(3)), f.lit(stored))
    number = f.when(value % 2 == 0, f.lit(stored) + value).otherwise(old)
    return _rows(numbers.select(number.alias("number"), (f.lit(stored) + value).alias(ORDERING)))


def numbered_keys(numbers: DataFrame) -> DataFrame:
    """Return the number of the key of each row, and its ordering value."""
    value = f.col("value")
    keys = f.expr("value div 2") + 1  # The keys that there are with this row.
    newest = f.greatest(f.expr(f"(value div 2 + 1) div {NEWEST_SHARE}"), f.lit(1))
    draw = f.xxhash64(value, f.lit(1))
    recent = keys - 1 - f.pmod(draw, newest)
    is_recent = f.pmod(f.xxhash64(value, f.lit(2)), f.lit(100)) < NEWEST_PERCENT
    old = f.when(is_recent, recent).otherwise(f.pmod(draw, keys))
    number = f.when(value % 2 == 0, keys - 1).otherwise(old)
    return numbers.select(number.alias("number"), value.alias(ORDERING))


def _rows(keys: DataFrame) -> DataFrame:
    number, version = f.col("number"), f.col(ORDERING)
    share = (f.pmod(f.xxhash64(number, f.lit(4)), f.lit(65_536)) + 1) / 65_536
    region = f.least(f.lit(PARTITIONS - 1), (-f.log2(share)).cast("int"))
    drawn = f.xxhash64(version, f.lit(5))
    return keys.select(
        f.lpad(f.lower(f.hex(f.xxhash64(number))), 16, "0").alias(KEY),
        _pick(REGIONS[:PARTITIONS], region).alias(PARTITION),
        f.pmod(f.xxhash64(number, f.lit(6)), f.lit(1_000_000)).alias("customer_id"),
        _pick(_STATUSES, f.pmod(drawn, f.lit(len(_STATUSES))).cast("int")).alias("status"),
        (f.pmod(drawn, f.lit(9)) + 1).cast("int").alias("quantity"),
        (f.pmod(drawn, f.lit(100_000)) / 100).alias("amount"),
        f.concat(f.lit("note #"), f.pmod(drawn, f.lit(20_000)).cast("string")).alias("note"),
        version.alias(ORDERING),
    )


def _pick(values: tuple[str, ...], position: Column) -> Column:
    return f.element_at(f.array(*map(f.lit, values)), position + 1)
