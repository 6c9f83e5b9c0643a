"""The steps of a turn, in their order, and which columns the read of a few is about.

Standard library only, since contenders run on interpreters of their own.
"""

from __future__ import annotations

LOAD, UPSERT, COMPACT = "load", "upsert", "compact"
READ_ALL, READ_FEW, READ_AFTER = "read_all", "read_few", "read_after"
STEPS = (LOAD, UPSERT, READ_ALL, READ_FEW, COMPACT, READ_AFTER)

FEW_COLUMNS = ("quantity",)
FEW_SUMS = ("rows", *FEW_COLUMNS)
"""What a read of them tells: a part of `rows.CHECKSUM_SQL`."""
