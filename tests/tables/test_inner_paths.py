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
from bucketlake.format.archive_file import (
    COMPLETED,
    ArchivedInstant,
    ArchivedState,
    decode_archive_file,
    decode_archive_log,
    encode_archive_file,
    encode_archive_log,
)
from bucketlake.format.clean_metadata import (
    CleanPlan,
    decode_clean,
    decode_clean_plan,
    encode_clean,
    encode_clean_plan,
)
from bucketlake.format.clustering_plan import (
    ClusteringGroup,
    ClusteringPlan,
    ResizeFacts,
    decode_clustering_plan,
    encode_clustering_plan,
    encode_compaction_plan,
)
from bucketlake.format.commit_metadata import decode_commit_metadata, encode_commit_metadata
from bucketlake.format.metadata_record.record_schema import (
    IndexedLocation,
    decode_locations,
    encode_locations,
)
from bucketlake.format.rollback_metadata import (
    RestorePlan,
    RollbackPlan,
    decode_restore_plan,
    decode_savepoint,
    encode_restore_plan,
    encode_rollback_plan,
    encode_savepoint,
)
from bucketlake.model.file_name import FileId, InstantTime, LogFileName
from bucketlake.model.file_slice import DataFile, FileSlice
from bucketlake.model.write_stat import CommitMetadata, WriteStat
from bucketlake.services.check.findings import Finding, FindingKind
from tests.inside import storage_of
from tests.listed_files import list_file
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
    path = f"{TIMELINE}/{T}_{DONE_AT}.deltacommit"
    for act in (lambda t: t.rollback(T), bl.Table.to_arrow, upsert):
        require_refused(table, path, act)


@pytest.mark.parametrize("path", [f"{folder}/{FILE}" for folder in (*OUTSIDE, *NOT_DATA)])
def test_path_of_a_write_in_a_commit_is_inside(path: str) -> None:
    stat = WriteStat(FileId("00000001-aaaa-0"), path, "x", InstantTime("0"))
    data = encode_commit_metadata(CommitMetadata("UPSERT", {"x": (stat,)}))
    with pytest.raises(FormatError, match="inside the table"):
        decode_commit_metadata(data, "c")


@pytest.mark.parametrize("partition", [*OUTSIDE, *NOT_DATA])
def test_partitions_of_the_timeline_are_inside(partition: str) -> None:
    names: dict[str, tuple[str, ...]] = {partition: (FILE,)}
    ids = {partition: (FileId("f"),)}
    resize = ResizeFacts(partition, "[]", 1)
    group = ClusteringGroup.of_resize((), 1, resize)
    plan, clean = ClusteringPlan((group,), "", {}), CleanPlan("KEEP_LATEST_COMMITS", names)
    location = [IndexedLocation(partition, FileId("f"), 0)]
    for decode in (
        lambda: decode_commit_metadata(
            encode_commit_metadata(CommitMetadata("U", {}, {}, ids)), "c"
        ),
        lambda: decode_clean_plan(encode_clean_plan(clean, "/t"), "c"),
        lambda: decode_clean(encode_clean(clean, started_at=T, duration_ms=1), "c"),
        lambda: decode_savepoint(encode_savepoint(names, at_ms=1, comment=""), "c"),
        lambda: decode_clustering_plan(encode_clustering_plan(plan, "/t"), "c"),
        lambda: decode_locations(encode_locations(location), "c"),
    ):
        with pytest.raises(FormatError, match="inside the table"):
            decode()


@pytest.mark.parametrize("name", ["..", ".", "a\0b"])
def test_names_of_files_on_the_timeline_are_inside(name: str) -> None:
    clean = CleanPlan("KEEP_LATEST_COMMITS", {"x": (name,)})
    location = [IndexedLocation("x", FileId(f"{name}/y"), 0)]
    for decode in (
        lambda: decode_clean_plan(encode_clean_plan(clean, "/t"), "c"),
        lambda: decode_savepoint(encode_savepoint(clean.files, at_ms=1, comment=""), "c"),
        lambda: decode_locations(encode_locations(location), "c"),
    ):
        with pytest.raises(FormatError, match="inside the table"):
            decode()


@pytest.mark.parametrize("instant", OUTSIDE)
def test_instants_of_restores_and_archives_are_digits(instant: str) -> None:
    at = InstantTime(instant)
    archived = [ArchivedInstant(at, T, "commit")]
    logged = [ArchivedState(at, "commit", COMPLETED, T, b"")]
    for decode in (
        lambda: decode_restore_plan(encode_restore_plan(RestorePlan(at, ())), "c"),
        lambda: decode_restore_plan(encode_restore_plan(RestorePlan(T, ((at, "commit"),))), "c"),
        lambda: decode_archive_file(encode_archive_file(archived), "c"),
        lambda: decode_archive_log(encode_archive_log(logged), "c"),
    ):
        with pytest.raises(FormatError, match="digits of an instant"):
            decode()


@pytest.mark.parametrize("partition", ["../outside", "/outside", "..", "files/../../x"])
def test_partitions_of_the_metadata_table_are_inside(table: bl.Table, partition: str) -> None:
    storage = storage_of(table)
    key = "hoodie.table.metadata.partitions"
    text = storage.read(PROPERTIES_FILE).decode()
    storage.put(PROPERTIES_FILE, text.replace(f"{key}=", f"{key}={partition},").encode())
    for act in (upsert, bl.Table.to_arrow, bl.Table.buckets):
        require_refused(table, PROPERTIES_FILE, act)


@pytest.mark.parametrize("partition", ["../outside", "x/../../outside", ".hoodie"])
def test_partition_that_the_metadata_table_lists_is_inside(table: bl.Table, partition: str) -> None:
    list_file(storage_of(table), partition, FILE)
    for act in (bl.Table.to_arrow, bl.Table.buckets, bl.Table.explain):
        require_refused(table, ".hoodie/metadata/files/", act)
    (finding,) = beside_the_clock(table)
    assert finding.kind is FindingKind.METADATA_TABLE_BROKEN
    assert "inside the table" in finding.meaning
    table.repair(dry_run=False)
    assert beside_the_clock(table) == []
    assert table.to_arrow().num_rows == 2


def beside_the_clock(table: bl.Table) -> list[Finding]:
    """Return the findings; the file that is listed has an instant of the far future."""
    return [found for found in table.doctor() if found.kind is not FindingKind.CLOCK_AHEAD]


def test_file_that_the_metadata_table_lists_is_in_its_partition(table: bl.Table) -> None:
    list_file(storage_of(table), "x", f"00/../../outside/{FILE}")
    for act in (bl.Table.to_arrow, bl.Table.buckets, upsert):
        require_refused(table, ".hoodie/metadata/files/", act)


@pytest.mark.filterwarnings("ignore::bucketlake.ClockWarning")  # A plan of the far future.
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
