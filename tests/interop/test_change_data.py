"""Change data: Hudi's query on tables of ours, ours on tables of Hudi, and both write in turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.config.paths_of_table import COMMIT_ORDER_FOLDER
from tests.interop.peer.client import HudiPeer
from tests.meanwhile import PUTS, dying

pytestmark = pytest.mark.interop

SCHEMA = pa.schema(
    [("id", pa.string()), ("day", pa.string()), ("ts", pa.int64()), ("qty", pa.int32()),
     ("price", pa.decimal128(10, 2)), ("tags", pa.list_(pa.string()))]
)  # fmt: skip
CDC_QUERY = {
    "hoodie.datasource.query.type": "incremental",
    "hoodie.datasource.query.incremental.format": "cdc",
    "hoodie.datasource.read.begin.instanttime": "000",
}
MODES = ["op_key_only", "data_before", "data_before_after"]
TABLES = [("copy_on_write", mode) for mode in MODES] + [("merge_on_read", MODES[1])]

Change = tuple[str, str, Any, Any]


def rows(numbers: list[int], ts: int) -> pa.Table:
    made = [
        {"id": f"k{n}", "day": "ab"[n % 2], "ts": ts, "qty": n + 100 * ts, "tags": [f"t{n}"]}
        for n in numbers
    ]
    return pa.Table.from_pylist(made, SCHEMA)


def options(table_type: str, mode: str) -> dict[str, str]:
    return {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.table.type": table_type.upper(),
        "hoodie.table.cdc.enabled": "true",
        "hoodie.table.cdc.supplemental.logging.mode": mode.upper(),
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "2",
        "hoodie.compact.inline": "false",
        "hoodie.clean.automatic": "false",
    }


def hudi_changes(hudi: HudiPeer, path: Path) -> list[Change]:
    """Return the changes that Hudi finds."""
    return in_order(
        (row["op"], row["ts_ms"], image(row["before"]), image(row["after"]))
        for row in hudi.read(path, CDC_QUERY).to_pylist()
    )


def image(text: str | None) -> Any:
    row = json.loads(text or "null")
    return row and (row["id"], row["day"], row["ts"], row["qty"], row["tags"])


def our_changes(path: Path, **arguments: Any) -> list[Change]:
    """Return the changes that bucketlake finds without these files."""
    found = bl.open_table(str(path)).changes_to_arrow(**arguments).to_pylist()
    return in_order(
        (row["op"], row["instant"], own_image(row["before"]), own_image(row["after"]))
        for row in found
    )


def own_image(row: Any) -> Any:
    return row and (row["id"], row["day"], row["ts"], row["qty"], row["tags"])


def without_lists(changes: list[Change]) -> list[Change]:
    """Leave out the column that Hudi 0.15 shows as the fields of a Java object."""
    return in_order(
        (op, at, before and before[:-1], after and after[:-1]) for op, at, before, after in changes
    )


def in_order(changes: Any) -> list[Change]:
    return sorted(changes, key=str)


def letters(changes: list[Change]) -> str:
    return "".join(sorted(change[0] for change in changes))


@pytest.mark.parametrize(("table_type", "mode"), TABLES)
def test_hudi_finds_the_changes_of_our_table(
    hudi: HudiPeer, tmp_path: Path, table_type: str, mode: str
) -> None:
    path = tmp_path / "t"
    given = options(table_type, mode)
    bl.save(rows([0, 1, 2, 3, 4, 5], 1), str(path), options=given)
    table = bl.open_table(str(path))
    table.upsert(rows([0, 1, 7], 2))
    table.upsert(rows([2], 0))  # Its row loses.
    table.delete(rows([3, 4], 1))
    if table_type == "merge_on_read":
        table.compact()
    table.update({"qty": "qty + 1"}, where="id = 'k5'")
    table.insert_overwrite(rows([8, 10], 4))
    table.delete_partitions(["b"])
    found = our_changes(path)
    assert letters(found) == "d" * 7 + "i" * 9 + "u" * 3
    assert hudi_changes(hudi, path) == found
    assert [*path.glob("*/.*.cdc")] or table_type == "merge_on_read"


@pytest.mark.parametrize(("table_type", "mode"), TABLES)
def test_both_write_a_table_of_hudi_in_turn(
    hudi: HudiPeer, tmp_path: Path, table_type: str, mode: str
) -> None:
    path, given = tmp_path / "t", options(table_type, mode)
    hudi.write(path, rows([0, 1, 2, 3, 4, 5], 1), given, "overwrite")
    hudi.write(path, rows([0, 1, 7], 2), given)
    bl.save(rows([0, 2, 9], 3), str(path), options=given)
    hudi.write(path, rows([0, 9], 4), given)
    deleting = given | {"hoodie.datasource.write.operation": "delete"}
    hudi.write(path, rows([1, 2], 4), deleting)
    bl.save(rows([0, 3], 5), str(path), options=deleting)
    found = our_changes(path)
    assert letters(found) == "d" * 4 + "i" * 8 + "u" * 6
    assert hudi_changes(hudi, path) == found


def test_cleans_of_both_delete_the_files_of_changes(hudi: HudiPeer, tmp_path: Path) -> None:
    for cleaner in ("ours", "hudi"):
        path, given = tmp_path / cleaner, options("copy_on_write", MODES[2])
        for ts in range(1, 5):
            bl.save(rows([0, 1, 2, 3], ts), str(path), options=given)
        held = {*path.glob("*/.*.cdc")}
        if cleaner == "ours":
            bl.open_table(str(path)).clean(retain_commits=1)
        else:
            hudi.sql(f"CREATE TABLE captured USING hudi LOCATION '{path}'")
            hudi.sql("CALL run_clean(table => 'captured', retain_commits => 1)")
        left = {*path.glob("*/.*.cdc")}
        assert left
        assert len(held) > len(left)
        table = bl.open_table(str(path))
        assert not [f for f in table.doctor(min_age_seconds=0) if f.severity.name != "NOTE"]
        table.upsert(rows([0], 9))
        newest = table.timeline()[-1]
        assert letters(our_changes(path, since=table.timeline()[-2].completed_at)) == "u"
        assert newest.operation == "UPSERT"


def test_a_rollback_by_hudi_takes_our_files_of_changes_away(hudi: HudiPeer, tmp_path: Path) -> None:
    path, given = tmp_path / "t", options("copy_on_write", MODES[2])
    given |= {"hoodie.metadata.enable": "false"}
    bl.save(rows([0, 1, 2], 1), str(path), options=given)

    with dying(PUTS, COMMIT_ORDER_FOLDER):
        bl.save(rows([0, 1], 2), str(path), options=given)
    left = {*path.glob("*/.*.cdc")}
    assert len(left) == 2
    hudi.write(path, rows([2], 3), given | {"hoodie.clean.failed.writes.policy": "EAGER"})
    assert not left & {*path.glob("*/.*.cdc")}
    found = our_changes(path)
    assert letters(found) == "iiiu"
    assert hudi_changes(hudi, path) == found


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_changes_are_found_before_and_after_a_change_of_version(
    hudi: HudiPeer, hudi_0_15: HudiPeer, tmp_path: Path, table_type: str
) -> None:
    path = tmp_path / "t"
    given = options(table_type, MODES[2]) | {
        "hoodie.write.table.version": "6",
        "hoodie.metadata.enable": "false",
    }
    bl.save(rows([0, 1, 2, 3], 1), str(path), options=given)
    table = bl.open_table(str(path))
    table.upsert(rows([0, 1, 7], 2))
    table.delete(rows([3], 2))
    found = our_changes(path)
    assert letters(found) == "d" + "i" * 5 + "uu"
    assert without_lists(hudi_changes(hudi_0_15, path)) == without_lists(found)
    table.upgrade(to=9, dry_run=False)
    assert our_changes(path) == found
    assert hudi_changes(hudi, path) == found
    table.upsert(rows([0, 8], 3))
    table.downgrade(to=6, dry_run=False)
    found = our_changes(path)
    assert letters(found) == "d" + "i" * 6 + "uuu"
    assert without_lists(hudi_changes(hudi_0_15, path)) == without_lists(found)
