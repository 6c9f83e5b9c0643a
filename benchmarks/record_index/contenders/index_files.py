"""The size of an index on disk."""

from __future__ import annotations

from pathlib import Path

_INDEX = ".hoodie/metadata/record_index"


def index_facts(table: Path) -> dict[str, int]:
    """Return number and bytes of the index's base files."""
    sizes = [path.stat().st_size for path in (table / _INDEX).glob("*.hfile")]
    return {"index_files": len(sizes), "index_bytes": sum(sizes)}
