"""Which bucket counts the table begins with, and which it has after each step.

Standard library only, since contenders run on interpreters of their own.
"""

from __future__ import annotations

from benchmarks.common.rows import REGIONS

ONE, ALL = "rescale_partition", "rescale_table"
STEPS = (ONE, ALL)

CHOSEN = REGIONS[0]
"""The partition that is rescaled alone."""

CHOSEN_PATTERN = f"^{CHOSEN}$"
"""The rule's pattern for it; the table begins with such a rule, so that it is partition-level."""

ANY_PATTERN = ".*"


def counts_after(step: str, *, partitions: int, old: int, new: int) -> dict[str, int]:
    """Return the bucket count of each partition after a step.

    Examples
    --------
    >>> counts_after(ONE, partitions=3, old=4, new=8)
    {'eu-west': 8, 'eu-north': 4, 'us-east': 4}
    """
    return {
        region: new if step == ALL or region == CHOSEN else old for region in REGIONS[:partitions]
    }
