"""What every contender knows of the rows: their folder, their columns, and how a table is summed.

Standard library only, since contenders run on interpreters of their own (PySpark 3.5 for the
peers). The rows themselves are made in `data.py`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

KEY, PARTITION, ORDERING = "order_id", "region", "updated_at"
KEY_PREFIX = "ord-"
EPOCH_MS = 1_640_995_200_000  # 2022-01-01; times are summed from here, so that 50 M of them fit.
PAIR_MODULUS = 1_009
REGIONS = tuple(
    "eu-west eu-north us-east us-west ap-south ap-east sa-east af-south "
    "me-south ca-central cn-north jp-east in-west au-south nz-north ru-west".split()
)

CHOSEN = REGIONS[0]
"""The partition that is rescaled alone."""

CHOSEN_PATTERN = f"^{CHOSEN}$"
"""The rule's pattern for it."""

NUMBER_SQL = f"cast(translate(substring(order_id, {len(KEY_PREFIX) + 1}), '-', '') as bigint)"
"""The digits of a key as a number."""

# Count and one whole-number sum for each column: a full scan that no reader can prune, and exact
# on every system. `pairing` moves when values of one row end up in another.
CHECKSUM_SQL = {
    "rows": "count(*)",
    "order_id": f"sum({NUMBER_SQL})",
    "region": "sum(cast(length(region) as bigint))",
    "customer_id": "sum(customer_id)",
    "status": "sum(cast(length(status) as bigint))",
    "quantity": "sum(cast(quantity as bigint))",
    "amount": "sum(cast(round(amount * 100) as bigint))",
    "note": "sum(cast(length(note) as bigint))",
    "created": "sum(cast(datediff(created, date'1970-01-01') as bigint))",
    "updated_at": f"sum(updated_at - {EPOCH_MS})",
    "pairing": f"sum({NUMBER_SQL} % {PAIR_MODULUS} * quantity)",
}


@dataclass(frozen=True)
class DataSet:
    """One folder of generated rows: the load, the changes, and what they must add up to."""

    path: Path

    @property
    def load(self) -> Path:
        return self.path / "load"

    @property
    def changes(self) -> Path:
        return self.path / "changes"

    @property
    def facts_path(self) -> Path:
        return self.path / "facts.json"

    @cached_property
    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.facts_path.read_text())
        return found
