"""Checks of the columns of a batch before a write."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from bucketlake.errors import InputError
from bucketlake.model.field_path import field_at, roots_of, why_missing
from bucketlake.model.names import did_you_mean
from bucketlake.write.pack import RecordSource


def require_columns(source: RecordSource, paths: tuple[str, ...], table: str, role: str) -> None:
    """Raise InputError if the batch lacks a required column, or has it several times.

    The fields inside a column are checked by :func:`require_fields`.
    """
    where = f"write to {table}"
    for name in roots_of(paths, source.names):
        if name not in source.names:
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


def require_fields(schema: pa.Schema, paths: Iterable[str], table: str) -> None:
    """Raise InputError if a batch with the required columns lacks a field inside a column."""
    for path in paths:
        if field_at(schema, path) is None:
            raise InputError(
                f"write to {table}",
                f"the field {path!r} is missing; the batch {why_missing(schema, path)}",
                "add the field to the batch",
            )
