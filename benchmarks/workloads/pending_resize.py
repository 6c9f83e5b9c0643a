"""Upserts into a table on Spark: with no resize, and while a resize of all buckets is pending."""

from __future__ import annotations

from pathlib import Path

import bucketlake as bl
from benchmarks.common.turn import Measured, Turn
from benchmarks.systems.order_tables import disk_usage, growth
from bucketlake.errors import BucketLakeError

OURS_CONSISTENT, HUDI_CONSISTENT = "bucketlake-consistent", "hudi-consistent"
WRITES = ("load", "upsert", "read")
PENDING = {OURS_CONSISTENT: ("upsert_linked", "upsert_twice"), HUDI_CONSISTENT: ("upsert_twice",)}
"""Upserts while a resize of all buckets is pending."""


def write(turn: Turn) -> dict[str, Measured]:
    """Load, and upsert into copies of the loaded table: with no resize, and during one."""
    original = turn.fresh("loaded")
    measured = {"load": turn.step("load", original)}
    table = turn.fresh("changed", copy_of=original)
    measured["upsert"] = _upsert(turn, "upsert", table)
    measured["read"] = turn.check(turn.step("read", table))
    for upsert in PENDING.get(turn.contender, ()):
        table = turn.fresh("changed", copy_of=original)
        measured["schedule"] = turn.step("schedule", table)
        before = group_count(turn, table)
        measured[upsert] = _upsert(turn, upsert, table)
        turn.check(turn.step("read", table))
        measured["complete"] = turn.step("complete", table)
        turn.check(turn.step("read", table))
        check_split(turn, before, group_count(turn, table))
    return measured


def _upsert(turn: Turn, step: str, table: Path) -> Measured:
    before = disk_usage(table)
    return turn.step(step, table) | growth(before, disk_usage(table))


def group_count(turn: Turn, table: Path) -> int:
    """Return the number of buckets that a table has."""
    try:
        return len(bl.open_table(str(table)).buckets())
    except BucketLakeError as error:
        turn.refuse(f"has an unreadable table: {error}")


def check_split(turn: Turn, before: int, after: int) -> None:
    """Refuse a table whose buckets were not all split."""
    if after != 2 * before:
        turn.refuse(f"has {after} buckets after its resize, and had {before}")
