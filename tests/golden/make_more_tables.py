"""Write tables of tests/golden/tables with real Hudi, the peer of the interop tests.

    scripts/setup spark35
    uv run python -m tests.golden.make_more_tables [NAME ...]      # All of them: some minutes.

``more_tables.py`` (folder ``more``), ``mor_tables.py`` (folder ``mor``, merge-on-read),
``virtual_tables.py`` (folder ``virtual``, without meta columns), ``older_tables.py`` (folder
``older``, of an older release) and ``damaged_tables.py`` (folder ``damaged``) say which tables
there are and how each comes to be; this module carries it out and saves, for each,
NAME.tar.gz (the table, without the local file system's checksum files), NAME.expected.parquet (the
rows of Hudi's own snapshot read, without meta columns), of some NAME.history.parquet (those of its
time travel to each commit), and NAME.json (what was done, with all options). Instants differ from
run to run, the rows do not.
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

from tests.golden.damaged_tables import DAMAGED_TABLES
from tests.golden.mor_tables import MOR_TABLES
from tests.golden.more_tables import (
    BASE_OPTIONS,
    FAILING_CHECK,
    IS_DELETED,
    MERGE_MODE,
    MORE_TABLES,
    OPERATION,
    MoreTable,
)
from tests.golden.older_tables import OLDER_TABLES
from tests.golden.virtual_tables import VIRTUAL_TABLES
from tests.interop.peer.client import HudiPeer, PeerError

TABLES = Path(__file__).parent / "tables"
WANTED = {
    wanted.name: (wanted, TABLES / folder)
    for folder, tables in (
        ("more", MORE_TABLES),
        ("mor", MOR_TABLES),
        ("virtual", VIRTUAL_TABLES),
        ("older", OLDER_TABLES),
        ("damaged", DAMAGED_TABLES),
    )
    for wanted in tables
}
ARCHIVE_BYTES_MAX = 64_000
STORED_IN_TABLE = ("hoodie.table.", "hoodie.datasource.", MERGE_MODE)


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

    def sql(self, statement: str) -> None:
        """Run a statement; ``{table}`` in it stands for the table's name in a catalog."""
        self.steps.append({"sql": statement})
        name = self.path.name
        # Statements take no options; what the table does not store comes from the session.
        told = {k: v for k, v in self.options.items() if not k.startswith(STORED_IN_TABLE)}
        try:
            for key, value in told.items():
                self.peer.sql(f"SET {key}={value}")
            self.peer.sql(f"CREATE TABLE IF NOT EXISTS {name} USING hudi LOCATION '{self.path}'")
            self.peer.sql(f"REFRESH TABLE {name}")
            self.peer.sql(statement.format(table=name))
        finally:
            for key in told:
                self.peer.sql(f"RESET {key}")

    def newest_commit(self) -> str:
        """Return the requested time of the newest completed commit."""
        return self.commits()[-1]

    def commits(self) -> list[str]:
        """Return the requested times of the completed commits in the active timeline."""
        names = [path.name for path in (self.path / ".hoodie").glob("**/*commit")]
        return sorted(name.partition(".")[0].partition("_")[0] for name in names)

    def save(self, folder: Path, *, is_readable: bool = True) -> None:
        name = self.path.name
        description: dict[str, Any] = {"options": self.options, "steps": self.steps}
        if is_readable:
            rows = _data_columns(self.peer.read(self.path))
            pq.write_table(rows, folder / f"{name}.expected.parquet", compression="zstd")
            description["rows"] = rows.num_rows
        text = json.dumps(description, indent=1, ensure_ascii=False)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as packed:
            packed.add(self.path, arcname=name, filter=_without_checksums)

    def save_history(self, folder: Path) -> None:
        """Save what Hudi reads as of each commit; column ``as_of`` says which."""
        parts = []
        for instant in self.commits():
            rows = _data_columns(self.peer.time_travel(self.path, instant))
            parts.append(rows.append_column("as_of", pa.repeat(instant, rows.num_rows)))
        path = folder / f"{self.path.name}.history.parquet"
        pq.write_table(pa.concat_tables(parts), path, compression="zstd")


def _data_columns(rows: pa.Table) -> pa.Table:
    names = [n for n in rows.column_names if n == IS_DELETED or not n.startswith("_hoodie_")]
    chosen = rows.select(names)
    sortable = [field.name for field in chosen.schema if not pa.types.is_nested(field.type)]
    return chosen.sort_by([(name, "ascending") for name in sortable])


def _without_checksums(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if member.name.endswith(".crc") else member


def make(peer: HudiPeer, wanted: MoreTable, work: Path, folder: Path) -> None:
    """Write one table, save it, and say what came out."""
    maker = TableMaker(peer, work / wanted.name, wanted.options)
    wanted.steps(maker)
    folder.mkdir(parents=True, exist_ok=True)
    maker.save(folder, is_readable=wanted.is_readable)
    if wanted.has_history:
        maker.save_history(folder)
    size_bytes = (folder / f"{wanted.name}.tar.gz").stat().st_size
    print(f"{wanted.name}: {size_bytes:,} bytes", flush=True)
    assert size_bytes <= ARCHIVE_BYTES_MAX, f"{wanted.name} is too large to keep with the code"


def main(names: Iterable[str]) -> None:
    chosen = set(names) or set(WANTED)
    unknown = chosen - set(WANTED)
    assert not unknown, f"no table is called {', '.join(sorted(unknown))}"
    for version in sorted({WANTED[name][0].version for name in chosen}):
        with (
            tempfile.TemporaryDirectory(prefix="more-tables-") as work,
            HudiPeer(version=version) as peer,
        ):
            for name, (wanted, folder) in WANTED.items():
                if name in chosen and wanted.version == version:
                    make(peer, wanted, Path(work), folder)


if __name__ == "__main__":
    main(sys.argv[1:])
