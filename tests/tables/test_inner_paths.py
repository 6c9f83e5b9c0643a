"""No text in a table's files leads out of it: each place that could is tried with hostile text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.config.paths_of_table import PROPERTIES_FILE
from bucketlake.errors import BucketLakeError, FormatError
from bucketlake.format.commit_metadata import encode_commit_metadata
from bucketlake.format.compaction_plan import encode_compaction_plan
from bucketlake.format.rollback_metadata import RollbackPlan, encode_rollback_plan
from bucketlake.model.file_name import FileId, InstantTime, LogFileName
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.write_stat import CommitMetadata, WriteStat
from bucketlake.storage.base import Storage
from bucketlake.storage.location import open_storage
from tests.storages import objects_of

T = InstantTime("20991231235959999")  # Later than every write of these tests.
DONE_AT = InstantTime("20991231235959999")
TIMELINE = ".hoodie/timeline"
FILE = f"00000001-aaaa-0_1-0-1_{T}.parquet"
ROWS = pa.table({"id": ["a", "b"], "p": ["x", "x"]})

OUTSIDE = ["../outside", "/outside", "x/../../outside", "./x", "x//y", "..", "s3://lake/outside"]
NOT_DATA = [".hoodie", ".hoodie/timeline"]


@pytest.fixture
def table(tmp_path: Path) -> bl.Table:
    """A table beside a folder that is not its own."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / FILE).write_bytes(b"not ours")
    made = bl.create_table(
        str(tmp_path / "t"), schema=ROWS.schema, record_key=["id"], partition_by=["p"],
        index=bl.SimpleBucket(2), table_type="merge_on_read",
    )  # fmt: skip
    made.upsert(ROWS)
    return made


def storage_of(table: bl.Table) -> Storage:
    return open_storage(table.path)


def require_refused(
    table: bl.Table, said_by: str, act: Callable[[bl.Table], object], *, changed: str = ""
) -> None:
    """Do something: it is refused by the file that leads astray, and all is as it was."""
    before = objects_of(storage_of(table))
    with pytest.raises(FormatError, match=r"expected .*found ") as caught:
        act(table)
    assert said_by in caught.value.path
    after = objects_of(storage_of(table))
    assert {path for path in {*before, *after} if before.get(path) != after.get(path)} <= {changed}
    outside = Path(table.path).parent / "outside"
    assert [(path.name, path.read_bytes()) for path in outside.iterdir()] == [(FILE, b"not ours")]


def upsert(table: bl.Table) -> object:
    return table.upsert(ROWS)


def begin(table: bl.Table, action: str, plan: bytes = b"") -> None:
    """Put a pending instant on the timeline."""
    storage = storage_of(table)
    storage.put(f"{TIMELINE}/{T}.{action}.requested", plan)
    storage.put(f"{TIMELINE}/{T}.{action}.inflight", b"")


@pytest.mark.parametrize("partition", [*OUTSIDE, *NOT_DATA])
def test_partition_of_a_rollback_plan_is_inside(table: bl.Table, partition: str) -> None:
    plan = RollbackPlan(InstantTime("1"), "deltacommit", {"x": (FILE,), partition: (FILE,)})
    begin(table, "rollback", encode_rollback_plan(plan, table.path))
    require_refused(table, f"{T}.rollback.requested", upsert)


@pytest.mark.parametrize("name", ["..", "."])
def test_file_of_a_rollback_plan_is_inside(table: bl.Table, name: str) -> None:
    plan = RollbackPlan(InstantTime("1"), "deltacommit", {"x": (name,)})
    begin(table, "rollback", encode_rollback_plan(plan, table.path))
    require_refused(table, f"{T}.rollback.requested", upsert)


@pytest.mark.parametrize("instant", [*OUTSIDE, "", "1 ", "１"])
def test_instant_of_a_rollback_plan_is_digits(table: bl.Table, instant: str) -> None:
    plan = RollbackPlan(InstantTime(instant), "deltacommit", {"x": (FILE,)})
    begin(table, "rollback", encode_rollback_plan(plan, table.path))
    require_refused(table, f"{T}.rollback.requested", upsert)


@pytest.mark.parametrize("partition", [*OUTSIDE, *NOT_DATA])
def test_partition_of_a_compaction_plan_is_inside(table: bl.Table, partition: str) -> None:
    log = DataFile(partition, LogFileName(FileId("00000001-aaaa-0"), T, 1, "1-0-1"), 0)
    plan = encode_compaction_plan([FileSlice(partition, FileId("f"), T, None, (log,))])
    begin(table, "compaction", plan)
    require_refused(table, f"{T}.compaction.requested", bl.Table.compact)


@pytest.mark.parametrize("file_id", [*OUTSIDE, ""])
def test_file_id_of_a_compaction_plan_is_inside(table: bl.Table, file_id: str) -> None:
    plan = encode_compaction_plan([FileSlice("x", FileId(file_id), T, None, ())])
    begin(table, "compaction", plan)
    require_refused(table, f"{T}.compaction.requested", bl.Table.compact)


@pytest.mark.parametrize("partition", [*OUTSIDE, *NOT_DATA])
def test_marker_in_a_list_is_inside(table: bl.Table, partition: str) -> None:
    begin(table, "deltacommit")
    listed = f"x/{FILE}.marker.CREATE\n{partition}/{FILE}.marker.CREATE\n"
    storage_of(table).put(f".hoodie/.temp/{T}/MARKERS0", listed.encode())
    # The instant is forbidden to commit before its files are looked for.
    outcome = f".hoodie/.bucket_index/ext/outcome/{T}.json"
    require_refused(table, f".hoodie/.temp/{T}", upsert, changed=outcome)


def test_marker_file_of_what_is_no_data_is_refused(table: bl.Table) -> None:
    begin(table, "deltacommit")
    storage_of(table).put(f".hoodie/.temp/{T}/.hoodie/hoodie.properties.marker.CREATE", b"")
    outcome = f".hoodie/.bucket_index/ext/outcome/{T}.json"
    require_refused(table, f".hoodie/.temp/{T}", upsert, changed=outcome)


@pytest.mark.parametrize("at", [*OUTSIDE, ""])
def test_completion_time_of_an_outcome_is_digits(table: bl.Table, at: str) -> None:
    begin(table, "deltacommit")
    fields = {"outcome": "commit", "completedAt": at, "action": "deltacommit", "metadata": ""}
    path = f".hoodie/.bucket_index/ext/outcome/{T}.json"
    storage_of(table).put(path, json.dumps(fields | {"claim": "c"}).encode())
    require_refused(table, path, upsert)


@pytest.mark.parametrize("instant", OUTSIDE)
def test_instant_of_a_turn_is_digits(table: bl.Table, instant: str) -> None:
    path = ".hoodie/.bucket_index/ext/commit_order/000000000099"
    storage_of(table).put(path, f"{instant} claim".encode())
    with pytest.raises(FormatError, match=path):
        table.upsert(ROWS)
    assert table.to_arrow().num_rows == 2


@pytest.mark.parametrize("key", ["hoodie.timeline.path", "hoodie.timeline.history.path"])
@pytest.mark.parametrize("folder", OUTSIDE)
def test_folders_of_the_properties_are_inside(table: bl.Table, key: str, folder: str) -> None:
    storage = storage_of(table)
    lines = storage.read(PROPERTIES_FILE).decode().splitlines()
    kept = [line for line in lines if not line.startswith(f"{key}=")]
    storage.put(PROPERTIES_FILE, "\n".join([*kept, f"{key}={folder}"]).encode())
    for act in (upsert, bl.Table.to_arrow, bl.Table.buckets):
        require_refused(table, PROPERTIES_FILE, act)


@pytest.mark.parametrize("name", [*OUTSIDE, "x/y.parquet", ""])
def test_file_of_the_archive_lies_in_its_folder(table: bl.Table, name: str) -> None:
    storage = storage_of(table)
    manifest = f"{TIMELINE}/history/manifest_1"
    storage.put(f"{TIMELINE}/history/_version_", b"1")
    storage.put(manifest, json.dumps({"files": [{"fileName": name}]}).encode())
    require_refused(table, manifest, lambda t: t.to_arrow(since="20000101000000000"))


@pytest.mark.parametrize("partition", [*OUTSIDE, *NOT_DATA])
def test_metadata_of_a_commit_to_undo_name_files_inside(table: bl.Table, partition: str) -> None:
    stat = WriteStat(FileId("00000001-aaaa-0"), f"{partition}/{FILE}", partition, InstantTime("0"))
    metadata = encode_commit_metadata(CommitMetadata("UPSERT", {partition: (stat,)}, {}, {}))
    storage_of(table).put(f"{TIMELINE}/{T}_{DONE_AT}.deltacommit", metadata)
    require_refused(table, f"commit {T}", lambda t: t.rollback(T))


def test_nothing_is_decoded_on_the_way_to_a_path(table: bl.Table) -> None:
    tricks = ["%2e%2e", "%2e%2e%2foutside", "..%2foutside", "..;", "～", "..\\outside", "file:"]
    table.upsert(pa.table({"id": tricks, "p": ["x"] * len(tricks)}))
    plan = RollbackPlan(InstantTime("1"), "deltacommit", dict.fromkeys(tricks, (FILE,)))
    storage = storage_of(table)
    for trick in tricks:
        storage.put(f"{trick}/{FILE}", b"of the data")
    begin(table, "rollback", encode_rollback_plan(plan, table.path))
    table.upsert(ROWS)
    assert all(storage.stat(f"{trick}/{FILE}") is None for trick in tricks)
    assert (Path(table.path).parent / "outside" / FILE).exists()


@pytest.mark.parametrize("partition", OUTSIDE)
def test_partition_that_a_caller_names_is_inside(table: bl.Table, partition: str) -> None:
    for act in (
        lambda: table.locate("a", partition),
        lambda: table.delete_partitions([partition]),
        lambda: table.insert_overwrite(pa.table({"id": ["a"], "p": [partition]})),
    ):
        with pytest.raises(BucketLakeError):
            act()
    assert table.to_arrow().num_rows == 2
