"""The steps of each contender's turn, in their order, and what they are called.

Standard library only, since contenders run on interpreters of their own.
"""

from __future__ import annotations

LOAD, BUILD, UPSERT, UPSERT_ROW, READ = "load", "build", "upsert", "upsert_row", "read"
STEPS = (LOAD, BUILD, UPSERT, UPSERT_ROW, READ)
"""Steps of tables on Spark."""

HEX, UUID = "hex", "uuid"
KEY_KINDS = (HEX, UUID)
"""Kinds of random keys of which the size of the index is told."""

GROWTH, SCALE = "growth", "scale"
ENGINE_FREE = (GROWTH, SCALE)
"""Contenders without Spark, which answer questions of their own."""

MAKE = "make"
LOOKUP, LOCATE, INSERT_ROW = "lookup", "locate", "insert_row"
GROWTH_STEPS = (LOAD, BUILD, LOOKUP, LOCATE, UPSERT_ROW, INSERT_ROW)
"""Steps of a table of each size in the growth."""

LOOKED_UP, LOCATED = 10_000, 20
"""How many keys these steps find."""

SIMPLE, RECORD = "simple", "record"
KINDS = (SIMPLE, RECORD)
"""Kinds of index for which the plan of a write to a large table is measured."""

SPREAD, DENSE = "spread", "dense"
WRITES = (SPREAD, DENSE)
"""Where the changed file groups are: each in another partition, or all in one."""


def index_step(kind: str, count: int) -> str:
    """Name the build of the index for so many random keys of a kind."""
    return f"{kind}-{count}"


def growth_step(step: str, count: int) -> str:
    """Name a step at one size of the table."""
    return f"{step}-{count}"


def plan_step(kind: str, write: str) -> str:
    """Name the plan of a write with a kind of index."""
    return f"plan_{kind}_{write}"
