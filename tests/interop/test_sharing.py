"""What the guide on sharing a table with Hudi says, done with real Hudi."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions.commit import CommitPlan, begin_write, commit_write
from bucketlake.errors import CommitConflictError
from bucketlake.model.table_type import Operation
from bucketlake.storage.location import open_storage
from bucketlake.timeline.instant import Action
from bucketlake.timeline.locks import NO_LOCK
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.table_properties import table_at
from bucketlake.write.target import open_target
from tests.interop.peer.client import HudiPeer

pytestmark = pytest.mark.interop

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "share-a-table-with-hudi.md"
CLEAN, UNDO = re.findall(r"^```sql\n(.*?)^```", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
NO_FSYNC = {"fsync": "false"}


def rows(version: int) -> pa.Table:
    ids = [f"k{i}" for i in range(20)]
    return pa.table({"id": ids, "city": ["Bonn", "Kyiv"] * 10, "v": [version] * 20})


def table_of(path: Path, commits: int) -> bl.Table:
    table = bl.create_table(
        str(path),
        schema=rows(0).schema,
        record_key=["id"],
        partition_by=["city"],
        index=bl.SimpleBucket(2),
        storage_options=NO_FSYNC,
    )
    for version in range(commits):
        table.upsert(rows(version))
    return table


def options_for(path: Path) -> dict[str, str]:
    return {
        "hoodie.table.name": path.name,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "2",
    }


def base_files(path: Path) -> int:
    return len([*path.glob("*/*.parquet")])


def extension(path: Path) -> set[str]:
    folder = path / ".hoodie" / ".bucket_index" / "ext"
    return {str(p.relative_to(folder)) for p in folder.rglob("*.json")}


def versions(table: pa.Table) -> set[int]:
    assert table.num_rows == 20
    return set(table["v"].to_pylist())


def run(hudi: HudiPeer, statements: str, path: Path) -> None:
    for statement in filter(None, map(str.strip, statements.split(";"))):
        hudi.sql(statement.replace("/lake/trips", str(path)))


def test_hudi_cleans_and_archives_as_the_guide_says_and_bucketlake_goes_on(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    path = tmp_path / "trips"
    table = table_of(path, commits=32)
    files, ours = base_files(path), extension(path)
    run(hudi, CLEAN, path)
    assert base_files(path) < files
    active = [i for i in table.timeline() if i.action is Action.COMMIT]
    assert 20 <= len(active) < 32
    assert extension(path) == ours
    assert table.config().metadata_partitions == ()
    assert versions(table.to_arrow()) == {31}
    assert table.upsert(rows(32)).updated == 20
    assert versions(table.to_arrow()) == versions(hudi.read(path)) == {32}


def test_hudi_undoes_our_newest_commit_as_the_guide_says(hudi: HudiPeer, tmp_path: Path) -> None:
    path = tmp_path / "trips"
    table = table_of(path, commits=2)
    newest = table.upsert(rows(2)).instant
    run(hudi, re.sub(r"\d{17}", str(newest), UNDO), path)
    assert versions(table.to_arrow()) == versions(hudi.read(path)) == {1}
    assert table.upsert(rows(3)).updated == 20
    assert versions(hudi.read(path)) == {3}


def hudi_writes_while_ours_is_pending(
    hudi: HudiPeer, path: Path, policy: str
) -> tuple[bl.Table, Callable[[], object]]:
    """Begin a write, let Hudi make one of its own, and return how to commit ours."""
    table = table_of(path, commits=1)
    storage = open_storage(str(path), NO_FSYNC)
    target = open_target(table_at(storage), table.index)
    snapshot = target.snapshot
    off = {"hoodie.metadata.enable": "false", "hoodie.clean.failed.writes.policy": policy}
    with begin_write(
        OpenTable(storage, target.config, target.table.clock, NO_LOCK),
        snapshot.timeline,
        Operation.UPSERT,
    ) as pending:
        hudi.write(path, rows(1), options_for(path) | off)
    plan = CommitPlan(extra={"schema": snapshot.schema_text or ""})
    return table, partial(commit_write, pending, plan)


def test_hudi_rolls_back_our_pending_write_under_its_default_policy_and_we_notice(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    table, commit = hudi_writes_while_ours_is_pending(hudi, tmp_path / "pending", "EAGER")
    with pytest.raises(CommitConflictError, match="rolled it back"):
        commit()
    assert versions(table.to_arrow()) == versions(hudi.read(tmp_path / "pending")) == {1}


def test_hudi_leaves_our_pending_write_alone_under_its_lazy_policy_while_it_lives(
    hudi: HudiPeer, tmp_path: Path
) -> None:
    table, commit = hudi_writes_while_ours_is_pending(hudi, tmp_path / "pending", "LAZY")
    commit()
    assert versions(table.to_arrow()) == versions(hudi.read(tmp_path / "pending")) == {1}
    assert all(instant.completed_at for instant in table.timeline())
