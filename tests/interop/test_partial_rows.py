"""Columns of several records make one row by the same rule, whoever writes and whoever reads."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from tests.interop.peer.client import HudiPeer

pytestmark = pytest.mark.interop

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("n", pa.int32()),
        ("s", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
CHANGES = pa.schema(
    [
        ("id", pa.string()),
        ("_event_lsn", pa.int64()),
        ("_change_operation_type", pa.string()),
        ("n", pa.int32()),
        ("s", pa.string()),
    ]
)
NOT_READ = "__debezium_unavailable_value"
POSTGRES = "debezium.PostgresDebeziumAvroPayload"
NAMES = ("id", "ts", "n", "s", "tags")


def options_of(payload: str, table_type: str, ordering: str) -> dict[str, str]:
    return {
        "hoodie.table.name": "partial",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "",
        "hoodie.datasource.write.keygenerator.class": (
            "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
        ),
        "hoodie.datasource.write.precombine.field": ordering,
        "hoodie.datasource.write.table.type": table_type,
        "hoodie.datasource.write.payload.class": f"org.apache.hudi.common.model.{payload}",
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "2",
        "hoodie.compact.inline": "false",
    }


def batch(rng: random.Random, step: int, *, twice: bool) -> pa.Table:
    """Return rows with nulls, some late, some deletes; perhaps several rows of a key."""
    rows = []
    for key in rng.sample(range(10), 6) if step else range(8):
        times = rng.sample(range(1, 12), 2 if twice and rng.random() < 0.5 else 1)
        rows += [
            {
                "id": f"k{key}",
                "ts": ts + step,
                "n": rng.choice([None, rng.randrange(100)]),
                "s": rng.choice([None, f"s{rng.randrange(100)}"]),
                "tags": rng.choice([None, [f"t{rng.randrange(100)}"]]),
                "_hoodie_is_deleted": bool(step) and rng.random() < 0.2,
            }
            for ts in times
        ]
    return pa.Table.from_pylist(rows, SCHEMA)


def changes(rng: random.Random, step: int) -> pa.Table:
    """Return changes of a database, of which some lack values that it did not read."""
    rows = [
        {
            "id": f"k{key}",
            "_event_lsn": rng.randrange(1, 12) + step,
            "_change_operation_type": "d" if step and rng.random() < 0.2 else "u",
            "n": rng.choice([None, rng.randrange(100)]),
            "s": rng.choice([None, NOT_READ, f"s{rng.randrange(100)}"]),
        }
        for key in (rng.sample(range(10), 6) if step else range(8))
    ]
    return pa.Table.from_pylist(rows, CHANGES)


def plain(found: pa.Table) -> list[dict[str, Any]]:
    names = [name for name in found.column_names if not name.startswith("_hoodie_")]
    return sorted(found.select(names).to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize(
    "payload", ["PartialUpdateAvroPayload", "OverwriteNonDefaultsWithLatestAvroPayload", POSTGRES]
)
def test_both_writers_in_turns_make_the_rows_that_hudi_alone_makes(
    hudi: HudiPeer, tmp_path: Path, payload: str, table_type: str
) -> None:
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    rng = random.Random(f"{payload}{table_type}")
    options = options_of(payload, table_type, "_event_lsn" if payload == POSTGRES else "ts")
    for step in range(6):
        if payload == POSTGRES:
            rows = changes(rng, step)
        else:
            rows = batch(rng, step, twice=payload == "PartialUpdateAvroPayload")
        hudi.write(alone, rows, options)
        if step in (0, 2, 3):
            bl.save(rows, str(shared), options=options)
            if step == 0:  # Hudi alone remembers no delete.
                with (shared / ".hoodie/hoodie.properties").open("a") as properties:
                    properties.write("bucketlake.keep.deletes=0\n")
        else:
            hudi.write(shared, rows, options)
        expected = plain(hudi.read(alone))
        ours = bl.open_table(str(shared))
        assert plain(ours.to_arrow()) == expected, step
        if step > 2:
            assert plain(hudi.read(shared)) == expected, step
    if table_type == "MERGE_ON_READ":
        ours.compact()
        assert plain(ours.to_arrow()) == expected == plain(hudi.read(shared))


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_hudi_reads_what_was_combined_and_we_combine_with_what_it_wrote(
    hudi: HudiPeer, tmp_path: Path, table_type: str
) -> None:
    table = bl.create_table(
        str(tmp_path / "combined"),
        schema=SCHEMA.remove(SCHEMA.get_field_index("_hoodie_is_deleted")),
        record_key=["id"],
        ordering="ts",
        index=bl.SimpleBucket(2),
        table_type=table_type,
    )
    rng = random.Random(5)
    table.upsert(batch(rng, 0, twice=False))
    table.upsert(batch(rng, 3, twice=True).drop_columns(["s"]), missing="keep", nulls="keep")
    table.upsert(batch(rng, 6, twice=True), merge={"n": "sum", "s": "max", "tags": "union"})
    assert plain(hudi.read(table.path)) == plain(table.to_arrow())
    if table_type == "merge_on_read":  # Hudi writes a block of two columns.
        hudi.sql(f"CREATE TABLE combined USING hudi LOCATION '{table.path}'")
        hudi.sql("SET hoodie.spark.sql.merge.into.partial.updates=true")
        keys = [row["id"] for row in plain(table.to_arrow())[:3]]
        values = ", ".join(f"('{key}', 40L, 'by Hudi')" for key in keys)
        hudi.sql(
            f"MERGE INTO combined t USING (SELECT * FROM VALUES {values} AS v(id, ts, s)) s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET s = s.s, ts = s.ts"
        )
        assert {row["s"] for row in plain(table.to_arrow())[:3]} == {"by Hudi"}
        before = {row["id"]: row for row in plain(table.to_arrow())}
        few = [{"id": key, "ts": 41, "n": 1} for key in keys]
        table.upsert(
            pa.Table.from_pylist(few, pa.schema([SCHEMA.field(n) for n in ("id", "ts", "n")])),
            missing="keep",
            merge={"n": "sum"},
        )
        for row in few:
            held = before[row["id"]]
            before[row["id"]] = held | {"ts": 41, "n": (held["n"] or 0) + 1}
        assert plain(table.to_arrow()) == [before[key] for key in sorted(before)]
        assert plain(hudi.read(table.path)) == plain(table.to_arrow())
