"""Whether a table holds what the database holds, row by row."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

import bucketlake as bl

KEY = "id"
TRUTH = {"t": "true", "f": "false"}  # Postgres's words.


def differences(rows: Sequence[dict[str, str | None]], table: bl.Table) -> list[str]:
    """Return how a table differs from the rows of a database, in words; empty if it does not.

    Parameters
    ----------
    rows : sequence of dict
        All rows of the database, each value as its text.
    table : Table
        The table. Columns that the database has no more are not looked at.
    """
    stored = table.to_arrow().sort_by(KEY)
    by_key = sorted(rows, key=lambda row: int(row[KEY] or 0))
    found = []
    keys = [int(row[KEY] or 0) for row in by_key]
    if stored[KEY].to_pylist() != keys:
        held = stored[KEY].to_pylist()
        found.append(
            f"{len(held)} rows in place of {len(keys)}; missing keys "
            f"{sorted({*keys} - {*held})[:5]}, others {sorted({*held} - {*keys})[:5]}, "
            f"doubled {len(held) - len({*held})}"
        )
        return found
    for name in by_key[0] if by_key else ():
        texts = pa.array([row[name] for row in by_key], pa.string())
        if name not in stored.column_names:
            if texts.null_count < len(texts):
                found.append(f"column {name} is not there")
            continue
        kind = stored.schema.field(name).type
        if pa.types.is_boolean(kind):
            texts = pa.array(
                [TRUTH.get(text or "", text) for text in texts.to_pylist()], pa.string()
            )
        wanted = pc.cast(texts, _without_zone(kind))
        given = stored[name].cast(_without_zone(kind))
        for key, value, other in zip(keys, wanted.to_pylist(), given.to_pylist(), strict=True):
            if value != other:
                found.append(f"{name} of key {key} is {str(other)[:60]!r}, not {str(value)[:60]!r}")
                break
    return found


def _without_zone(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit) if pa.types.is_timestamp(kind) else kind
