"""Measure what Hudi's Spark SQL does to tables of bucketlake, for docs/how-to/hudi-sql.md.

    scripts/setup spark35
    uv run python -m tests.interop.measure_hudi_sql RESULTS.json [WORD ...]
    uv run python -m tests.interop.measure_hudi_sql RESULTS.json --table

Each measurement has a table of its own, which bucketlake makes in two commits. Then real Hudi runs
one statement, and bucketlake reads the rows, runs the doctor and upserts once more. Results are
added to the file, so that a run may be stopped and continued. Words choose measurements whose name
contains all of them. ``--table`` prints the table of the page instead.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import bucketlake as bl
from bucketlake.index.setting import TableIndex
from tests.interop.peer.client import HudiPeer, PeerError

Row = dict[str, Any]
Rows = Mapping[str, Row]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("region", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("qty", pa.int32()),
        pa.field("note", pa.string()),
    ]
)

KINDS: dict[str, TableIndex] = {
    "simple": bl.SimpleBucket(2),
    "rules": bl.PartitionBucket((("^eu$", 3),), 2),
    "consistent": bl.ConsistentBucket(2),
    "extendible": bl.ExtendibleBucket(2),
    "dynamic": bl.DynamicBucket(),
    "record": bl.RecordIndex(partitioned=True),
    "global": bl.RecordIndex(partitioned=False),
}
TYPES = {"cow": "copy_on_write", "mor": "merge_on_read"}

SAFE_SQL = {
    "hoodie.spark.sql.insert.into.operation": "upsert",
    "hoodie.spark.sql.merge.into.partial.updates": "false",
}
"""Options beside those of the index."""

CHEAP = {
    "hoodie.index.bloom.num_entries": "10",
    "hoodie.bloom.index.filter.dynamic.max.entries": "10",
}
"""Options that change the price of a write alone; without a timeline server more is refused."""


def event(number: int, ts: int = 1, qty: int | None = None, note: str | None = "first") -> Row:
    """Make a row."""
    region = ("eu", "us")[number % 2]
    amount = number if qty is None else qty
    return {"id": f"e{number}", "region": region, "ts": ts, "qty": amount, "note": note}


def begun() -> dict[str, Row]:
    """Return the rows of a table before its statement."""
    first = [event(number) for number in range(8)]
    second = [event(number, 2, note="second") for number in range(4, 10)]
    return {row["id"]: row for row in first + second}


def _with(*rows: Row) -> Callable[[Rows], dict[str, Row]]:
    return lambda held: {**held, **{row["id"]: row for row in rows}}


def _without(*regions: str) -> Callable[[Rows], dict[str, Row]]:
    return lambda held: {key: row for key, row in held.items() if row["region"] not in regions}


@dataclass(frozen=True)
class Statement:
    """A statement, and what it should make of the rows."""

    name: str
    shown: str
    texts: tuple[str, ...]
    effect: Callable[[Rows], dict[str, Row]] = dict
    only: str = ""  # The table type.


_SOURCE = (
    "(SELECT 'e4' id, 'eu' region, 3L ts, 40 qty, 'third' note "
    "UNION ALL SELECT 'e20', 'eu', 3L, 41, 'third')"
)
_MERGE = f"MERGE INTO {{t}} t USING {_SOURCE} s ON t.id = s.id AND t.region = s.region"
_NEW, _CHANGED = event(20, 3, 41, "third"), event(4, 3, 40, "third")

STATEMENTS = (
    Statement(
        "insert-new",
        "`INSERT INTO`, new keys",
        ("INSERT INTO {t} (id, ts, qty, note, region) VALUES ('e20', 3, 41, 'third', 'eu')",),
        _with(_NEW),
    ),
    Statement(
        "insert-stored",
        "`INSERT INTO`, stored keys",
        ("INSERT INTO {t} (id, ts, qty, note, region) VALUES ('e4', 3, 40, 'third', 'eu')",),
        _with(_CHANGED),
    ),
    Statement(
        "update",
        "`UPDATE`",
        ("UPDATE {t} SET qty = 40, ts = 3, note = 'third' WHERE id = 'e4'",),
        _with(_CHANGED),
    ),
    Statement(
        "delete",
        "`DELETE`",
        ("DELETE FROM {t} WHERE id = 'e4'",),
        lambda held: {key: row for key, row in held.items() if key != "e4"},
    ),
    Statement(
        "merge-all",
        "`MERGE` with `UPDATE SET *` and `INSERT *`",
        (f"{_MERGE} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",),
        _with(_NEW, _CHANGED),
    ),
    Statement(
        "merge-some",
        "`MERGE` with `UPDATE SET` of some columns and `INSERT *`",
        (
            f"{_MERGE} WHEN MATCHED THEN UPDATE SET qty = s.qty, ts = s.ts "
            "WHEN NOT MATCHED THEN INSERT *",
        ),
        _with(_NEW, event(4, 3, 40, "second")),
    ),
    Statement(
        "merge-delete",
        "`MERGE` with `DELETE`",
        (f"{_MERGE} WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *",),
        lambda held: {**{k: row for k, row in held.items() if k != "e4"}, "e20": _NEW},
    ),
    Statement(
        "overwrite-partition",
        "`INSERT OVERWRITE … PARTITION`",
        (
            "INSERT OVERWRITE {t} PARTITION (region = 'eu') "
            "SELECT 'e20' id, 3L ts, 41 qty, 'third' note",
        ),
        lambda held: {**_without("eu")(held), "e20": _NEW},
    ),
    Statement(
        "overwrite-table",
        "`INSERT OVERWRITE`, the whole table",
        ("INSERT OVERWRITE {t} SELECT 'e20' id, 3L ts, 41 qty, 'third' note, 'eu' region",),
        lambda held: {"e20": _NEW},
    ),
    Statement("truncate", "`TRUNCATE TABLE`", ("TRUNCATE TABLE {t}",), lambda held: {}),
    Statement(
        "drop-partition",
        "`ALTER TABLE … DROP PARTITION`",
        ("ALTER TABLE {t} DROP PARTITION (region = 'eu')",),
        _without("eu"),
    ),
    Statement(
        "add-column",
        "`ALTER TABLE … ADD COLUMNS`",
        ("ALTER TABLE {t} ADD COLUMNS (more INT)",),
        lambda held: {key: {**row, "more": None} for key, row in held.items()},
    ),
    Statement(
        "rename-column",
        "`ALTER TABLE … RENAME COLUMN`",
        (
            "SET hoodie.schema.on.read.enable=true",
            "ALTER TABLE {t} RENAME COLUMN note TO remark",
        ),
        lambda held: {
            key: {("remark" if name == "note" else name): v for name, v in row.items()}
            for key, row in held.items()
        },
    ),
    Statement(
        "drop-column",
        "`ALTER TABLE … DROP COLUMN`",
        ("SET hoodie.schema.on.read.enable=true", "ALTER TABLE {t} DROP COLUMN note"),
        lambda held: {
            key: {name: v for name, v in row.items() if name != "note"} for key, row in held.items()
        },
    ),
    Statement(
        "compaction",
        "`CALL run_compaction`",
        (
            "CALL run_compaction(op => 'schedule', table => '{t}')",
            "CALL run_compaction(op => 'run', table => '{t}')",
        ),
        only="mor",
    ),
    Statement("clustering", "`CALL run_clustering`", ("CALL run_clustering(table => '{t}')",)),
    Statement(
        "clean", "`CALL run_clean`", ("CALL run_clean(table => '{t}', retain_commits => 1)",)
    ),
    Statement(
        "rollback",
        "`CALL rollback_to_instant`",
        ("CALL rollback_to_instant(table => '{t}', instant_time => '{newest}')",),
        lambda held: {row["id"]: row for row in map(event, range(8)) if row["id"] in held},
    ),
)

SAFE, SILENT, REFUSED = "safe", "silent", "refused"


def measure(peer: HudiPeer, path: Path, name: str) -> dict[str, str]:
    """Run one statement on a new table; say what came of it."""
    kind, table_type, options, what = name.split("/")
    statement = next(one for one in STATEMENTS if one.name == what)
    index = KINDS[kind]
    table = bl.create_table(
        str(path),
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        index=index,
        table_type=TYPES[table_type],
    )
    table.upsert(pa.Table.from_pylist([event(number) for number in range(8)], SCHEMA))
    later = [event(number, 2, note="second") for number in range(4, 10)]
    newest = table.upsert(pa.Table.from_pylist(later, SCHEMA)).instant
    given = index.to_options() | SAFE_SQL if options == "with" else {}
    sql_name = name.replace("/", "_").replace("-", "_")
    try:
        for key, value in (CHEAP | given).items():
            peer.sql(f"SET {key}={value}")
        peer.sql(f"CREATE TABLE {sql_name} USING hudi LOCATION '{path}'")
        for text in statement.texts:
            peer.sql(text.format(t=sql_name, newest=newest))
        error = ""
    except PeerError as failed:
        error = " ".join(str(failed).partition("\n(log")[0].split())[:300]
    finally:
        peer.sql("RESET")
        peer.sql(f"DROP TABLE IF EXISTS {sql_name}")
    wrong, note = _what_is_wrong(path, index, begun() if error else statement.effect(begun()))
    if error:
        return {"outcome": REFUSED, "error": error, "left": wrong}
    return {"outcome": SILENT if wrong else SAFE, "wrong": wrong, "note": note}


def _what_is_wrong(path: Path, index: TableIndex, expected: Rows) -> tuple[str, str]:
    """Compare the rows, ask the doctor, and write once more; return what is wrong, and a note."""
    table = bl.open_table(str(path))
    lost = any(one.kind.value == "index_missing" for one in table.doctor())
    wrong = _found_wrong(table, expected)
    if wrong.startswith("ConfigError"):
        return _found_wrong(bl.open_table(str(path), index), expected), "index setting gone"
    return wrong, "index gone" if lost else ""  # The next write builds it again.


def _found_wrong(table: bl.Table, expected: Rows) -> str:
    try:
        found = table.to_arrow().to_pylist()
        in_order = sorted(map(_plain, found))
        if in_order != sorted(map(_plain, expected.values())):
            return _difference(found, expected)
        for one in table.doctor(check_keys=True):
            if one.severity.value == "error" and one.kind.value != "index_missing":
                return f"doctor: {one.kind.value}"
        batch = pa.Table.from_pylist([event(4, 9), event(30, 9)], SCHEMA)
        table.upsert(batch, merge_schema="fill_missing")
        count = len({*expected, "e4", "e30"})
        return "" if table.to_arrow().num_rows == count else "the next upsert doubles or loses rows"
    except bl.errors.BucketLakeError as error:
        return f"{type(error).__name__}: {str(error)[:200]}"


def _plain(row: Row) -> str:
    return json.dumps(row, sort_keys=True)


def _difference(found: list[Row], expected: Rows) -> str:
    keys = [row.get("id") for row in found]
    if None in keys or any(key not in expected for key in keys):
        return "rows without their key, or too many rows"
    if len(set(keys)) < len(keys):
        return "keys stored twice"
    return "rows are missing" if len(keys) < len(expected) else "rows have old or wrong values"


def names() -> list[str]:
    """Return all measurements, the most important first."""
    return [
        f"{kind}/{table_type}/{options}/{one.name}"
        for options in ("with", "without")
        for one in STATEMENTS
        for kind in KINDS
        for table_type in TYPES
        if one.only in ("", table_type)
    ]


def main(results: Path, words: list[str]) -> None:
    """Measure what is not measured yet."""
    held: dict[str, dict[str, str]] = json.loads(results.read_text()) if results.exists() else {}
    wanted = [name for name in names() if name not in held and all(w in name for w in words)]
    with tempfile.TemporaryDirectory(prefix="hudi-sql-") as work, HudiPeer() as peer:
        for number, name in enumerate(wanted):
            held[name] = measure(peer, Path(work) / f"t{number}", name)
            results.write_text(json.dumps(held, indent=1) + "\n")
            print(name, held[name], flush=True)


def print_table(results: Path) -> None:
    """Print rows of Markdown: of a statement, the outcome for each kind (copy / merge)."""
    held = json.loads(results.read_text())
    for options in ("with", "without"):
        print(f"\n### {options}\n\n| statement | {' | '.join(KINDS)} |")
        print("|---|" + "---|" * len(KINDS))
        for one in STATEMENTS:
            cells = []
            for kind in KINDS:
                found = [_cell(held.get(f"{kind}/{t}/{options}/{one.name}")) for t in TYPES]
                cells.append(found[0] if found[0] == found[1] else " / ".join(found))
            print(f"| {one.shown} | {' | '.join(cells)} |")


def _cell(result: Mapping[str, str] | None) -> str:
    if result is None:
        return "–"
    outcome = f"**{SILENT}**" if result["outcome"] == SILENT else result["outcome"]
    note = result.get("note") or ("plan left" if result.get("left") else "")
    return f"{outcome}, {note}" if note else outcome


if __name__ == "__main__":
    if "--table" in sys.argv:
        print_table(Path(sys.argv[1]))
    else:
        main(Path(sys.argv[1]), sys.argv[2:])
