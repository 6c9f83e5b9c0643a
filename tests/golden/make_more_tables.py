"""Write the tables of tests/golden/tables/more with real Hudi, the peer of the interop tests.

    scripts/setup spark35
    uv run python -m tests.golden.make_more_tables [NAME ...]      # All of them: about two minutes.

``more_tables.py`` says which tables there are and how each comes to be; this module carries it out
and saves, for each, NAME.tar.gz (the table, without the local file system's checksum files),
NAME.expected.parquet (the rows of Hudi's own snapshot read, without meta columns) and NAME.json
(what was done, with all options). Instants differ from run to run, the rows do not.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.golden.more_tables import (
    BASE_OPTIONS,
    FAILING_CHECK,
    IS_DELETED,
    MORE_TABLES,
    OPERATION,
    MoreTable,
)
from tests.interop.peer.client import HudiPeer, PeerError

FOLDER = Path(__file__).parent / "tables" / "more"
ARCHIVE_BYTES_MAX = 60_000


class TableMaker:
    """One table in the making: the peer, the path, the options, and a record of what was done."""

    def __init__(self, peer: HudiPeer, path: Path, options: Mapping[str, str]) -> None:
        self.peer, self.path = peer, path
        self.options = {"hoodie.table.name": path.name, **BASE_OPTIONS, **options}
        self.steps: list[dict[str, Any]] = []

    def write(
        self, rows: pa.Table, operation: str = "upsert", options: Mapping[str, str] | None = None
    ) -> None:
        extra = dict(options or {})
        self.steps.append({"operation": operation, "rows": rows.num_rows, "options": extra})
        self.peer.write(self.path, rows, {**self.options, OPERATION: operation, **extra})

    def fail_to_write(self, rows: pa.Table) -> None:
        """Write data files and markers and fail before the commit, as a crash would."""
        with pytest.raises(PeerError, match="HoodieValidationException"):
            self.write(rows, options=FAILING_CHECK)
        self.steps[-1]["outcome"] = "failed before the commit"

    def call(self, procedure: str) -> list[dict[str, Any]]:
        """Run one of Hudi's procedures; ``{path}`` in it stands for the table's path."""
        self.steps.append({"call": procedure})
        return self.peer.sql("CALL " + procedure.format(path=self.path))

    def save(self) -> None:
        rows = _data_columns(self.peer.read(self.path))
        name = self.path.name
        pq.write_table(rows, FOLDER / f"{name}.expected.parquet", compression="zstd")
        description = {"options": self.options, "steps": self.steps, "rows": rows.num_rows}
        text = json.dumps(description, indent=1, ensure_ascii=False)
        (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        with tarfile.open(FOLDER / f"{name}.tar.gz", "w:gz") as packed:
            packed.add(self.path, arcname=name, filter=_without_checksums)


def _data_columns(rows: pa.Table) -> pa.Table:
    names = [n for n in rows.column_names if n == IS_DELETED or not n.startswith("_hoodie_")]
    return rows.select(names).sort_by([(name, "ascending") for name in names])


def _without_checksums(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if member.name.endswith(".crc") else member


def make(peer: HudiPeer, wanted: MoreTable, folder: Path) -> None:
    """Write one table, save it, and say what came out."""
    maker = TableMaker(peer, folder / wanted.name, wanted.options)
    wanted.steps(maker)
    maker.save()
    size_bytes = (FOLDER / f"{wanted.name}.tar.gz").stat().st_size
    rows = pq.read_metadata(FOLDER / f"{wanted.name}.expected.parquet").num_rows
    print(f"{wanted.name}: {rows} rows, {size_bytes:,} bytes", flush=True)
    assert size_bytes <= ARCHIVE_BYTES_MAX, f"{wanted.name} is too large to keep with the code"


def main(names: Iterable[str]) -> None:
    chosen = set(names) or {wanted.name for wanted in MORE_TABLES}
    unknown = chosen - {wanted.name for wanted in MORE_TABLES}
    assert not unknown, f"more_tables.py has no {', '.join(sorted(unknown))}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="more-tables-") as folder, HudiPeer() as peer:
        for wanted in MORE_TABLES:
            if wanted.name in chosen:
                make(peer, wanted, Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
