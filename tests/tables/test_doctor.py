"""Tables broken on purpose, one way a test: the doctor finds it, names it, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.config.paths_of_table import (
    COMMIT_ORDER_FOLDER,
    PROPERTIES_BACKUP_FILE,
    PROPERTIES_FILE,
)
from bucketlake.errors import TableNotFoundError
from bucketlake.format.clustering_plan import (
    ClusteringGroup,
    ClusteringPlan,
    encode_clustering_plan,
)
from bucketlake.index.hashing_config import HashingConfig, config_path, save_config
from bucketlake.model.file_name import BaseFileName, InstantTime
from bucketlake.model.write_stat import CommitMetadata
from bucketlake.services.check import examination
from bucketlake.services.check.findings import Finding, FindingKind, Remedy, Severity
from bucketlake.timeline.heartbeat import beating
from bucketlake.timeline.instant import Action
from bucketlake.timeline.locks import FILE_LOCK, STORAGE_LOCK
from bucketlake.timeline.outcome import Publication, claim_commit, claim_rollback, outcome_path
from tests.bounds import set_bounds
from tests.broken_tables import (
    base_file,
    commit_by_hand,
    complete_by_hand,
    copied,
    double_a_bucket,
    later,
    newest,
    objects,
    rows,
    sound_table,
    storage_of,
    write_with_other_count,
)
from tests.edited_json import edited_json
from tests.spies import overtake

NOW = 0  # Age from which on things count, in seconds: all that is there.


@pytest.fixture(params=["copy_on_write", "merge_on_read"])
def table(request: pytest.FixtureRequest) -> Iterator[bl.Table]:
    """A sound table of either type."""
    with sound_table(request.param) as made:
        yield made


def found_in(table: bl.Table, *, keys: bool = False, files: bool = False) -> list[Finding]:
    before = objects(table)
    found = table.doctor(check_keys=keys, check_files=files, min_age_seconds=NOW)
    assert objects(table) == before, "the doctor changed something"
    return found


def only_finding(table: bl.Table, kind: FindingKind, **options: bool) -> Finding:
    [found] = found_in(table, **options)
    assert found.kind is kind
    assert found.meaning
    assert found.repair
    return found


def test_a_sound_table_has_no_finding(table: bl.Table) -> None:
    assert found_in(table, keys=True, files=True) == []


def test_a_table_after_all_kinds_of_writes_has_no_finding(table: bl.Table) -> None:
    table.delete(rows(range(3)))
    table.insert_overwrite(rows(range(0, 30, 2), 2))
    mistaken = table.upsert(rows(range(5), 3)).instant
    assert mistaken is not None
    table.rollback(mistaken)
    table.delete_partitions(["b"])
    table.rescale({"a": 3}, dry_run=False)
    table.upsert(rows(range(30), 4))
    assert found_in(table, keys=True, files=True) == []


def test_a_table_that_was_cleaned_archived_and_restored_has_no_finding(table: bl.Table) -> None:
    for at in range(2, 9):
        table.upsert(rows(range(at), at))
        if at == 5:
            table.insert_overwrite(rows(range(0, 30, 2), at))
    table.clean(retain_commits=1)
    assert found_in(table, keys=True, files=True) == []
    count = len(table.timeline())
    table.archive(keep_min=2, keep_max=3)
    assert len(table.timeline()) < count
    assert found_in(table, keys=True, files=True) == []
    saved = table.savepoint()
    table.upsert(rows(range(60), 20))
    table.restore(saved)
    assert found_in(table, keys=True, files=True) == []
    table.upsert(rows(range(60), 21))
    assert found_in(table, keys=True, files=True) == []


def test_what_is_no_table_is_an_error() -> None:
    with pytest.raises(TableNotFoundError):
        bl.Table("memory://nothing-here").doctor()


def _roll_back_newest(table: bl.Table) -> None:
    table.rollback(newest(table))


@pytest.mark.parametrize(
    "write",
    [
        lambda table: table.upsert(rows(range(50), 5)),
        lambda table: table.insert_overwrite(rows(range(0, 10, 2), 5)),
        lambda table: table.delete_partitions(["b"]),
        lambda table: table.rescale({"a": 7}, dry_run=False),
        lambda table: _roll_back_newest(table),
    ],
    ids=["upsert", "overwrite", "delete_partitions", "rescale", "rollback"],
)
def test_a_write_that_ends_between_two_looks_is_no_finding(
    table: bl.Table, write: Callable[[bl.Table], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = overtake(monkeypatch, examination, "load_timeline", lambda: write(table))
    assert table.doctor(check_keys=True, check_files=True, min_age_seconds=NOW) == []
    assert not waiting


# ---- Files ------------------------------------------------------------------------------------


def test_a_file_of_no_commit_is_an_orphan(table: bl.Table) -> None:
    path, _ = copied(table, base_file(table), instant=later(newest(table)))
    found = only_finding(table, FindingKind.ORPHAN_FILE)
    assert (found.partition, found.files) == ("a", (path,))
    assert (found.severity, found.remedy) == (Severity.WARNING, Remedy.QUARANTINE)


def test_an_orphan_in_a_folder_that_is_no_partition_is_nobodys_business(table: bl.Table) -> None:
    held = base_file(table)
    storage_of(table).put(f"backup/{held}", storage_of(table).read(held))
    assert found_in(table) == []


def test_what_is_young_may_be_of_a_writer_at_work(tmp_path: Path) -> None:
    with sound_table("merge_on_read", path=str(tmp_path / "t")) as table:
        storage, instant = storage_of(table), later(newest(table))
        copied(table, base_file(table), instant=instant)
        storage.put(FILE_LOCK, b"")
        storage.put(PROPERTIES_BACKUP_FILE, storage.read(PROPERTIES_FILE))
        storage.put(f".hoodie/.temp/{instant}/a/x_0-0-0_1.parquet.marker.CREATE", b"")
        storage.put(f".hoodie/timeline/{later(instant)}.deltacommit.requested", b"")
        assert table.doctor() == []
        assert {one.kind for one in found_in(table)} == {
            FindingKind.ORPHAN_FILE,
            FindingKind.LEFTOVER_LOCK,
            FindingKind.PROPERTIES_BACKUP,
            FindingKind.LEFTOVER_MARKERS,
            FindingKind.PENDING_DEAD,
        }


def test_a_file_older_than_the_timeline_that_nobody_archived_is_shown(table: bl.Table) -> None:
    path, _ = copied(table, base_file(table), instant=InstantTime("20200101000000000"))
    assert only_finding(table, FindingKind.ORPHAN_SHOWN).files == (path,)


def test_a_file_that_its_commit_does_not_name_is_found(table: bl.Table) -> None:
    held = base_file(table)
    file_id = "00000000-0000-4000-8000-00000000000a-0"
    instant = min(i.requested_at for i in table.timeline())
    path, _ = copied(table, held, instant=instant, file_id=file_id)
    found = found_in(table)
    assert FindingKind.FILE_NOT_COMMITTED in {one.kind for one in found}
    assert {one.kind for one in found} <= {
        FindingKind.FILE_NOT_COMMITTED,
        FindingKind.BUCKET_TWICE,
    }
    assert [one.files for one in found if one.kind is FindingKind.FILE_NOT_COMMITTED] == [(path,)]


def test_a_partition_without_its_marker_is_found(table: bl.Table) -> None:
    storage_of(table).delete("a/.hoodie_partition_metadata")
    found = only_finding(table, FindingKind.PARTITION_NOT_MARKED, keys=True)
    assert found.partition == "a"
    assert found.severity is Severity.ERROR


def test_a_file_that_is_gone_is_found(table: bl.Table) -> None:
    path = base_file(table)
    storage_of(table).delete(path)
    found = only_finding(table, FindingKind.FILE_MISSING)
    assert (found.partition, found.files, found.remedy) == ("a", (path,), Remedy.NOTHING)


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_file_that_only_storage_or_only_the_metadata_table_has_is_found(
    table: bl.Table, is_stored: bool
) -> None:
    instant = later(newest(table), 10)
    path, stat = copied(table, base_file(table), instant=instant)
    action = "commit" if "COPY" in table.config().table_type.value else "deltacommit"
    with_file, without = (CommitMetadata("UPSERT", s, {}) for s in ({"a": (stat,)}, {"a": ()}))
    if is_stored:
        complete_by_hand(table, instant, action, with_file, listed=without)
    else:
        storage_of(table).delete(path)
        complete_by_hand(table, instant, action, without, listed=with_file)
    found = only_finding(table, FindingKind.METADATA_TABLE_BROKEN)
    assert (found.files, found.remedy) == ((path,), Remedy.DROP_METADATA)
    assert "either in storage or in the list" in found.meaning


def test_a_missing_file_of_an_archived_commit_is_found_by_the_metadata_table() -> None:
    with sound_table("copy_on_write") as table:
        for at in range(2, 8):
            table.upsert(rows(range(0, 20, 2), at))
        table.clean(retain_versions=1)
        table.archive(keep_min=2, keep_max=3)
        path = base_file(table, "b")
        assert BaseFileName.from_file_name(path.rpartition("/")[2]).instant not in {
            i.requested_at for i in table.timeline()
        }
        storage_of(table).delete(path)
        found = only_finding(table, FindingKind.FILE_MISSING)
        assert (found.partition, found.files, found.remedy) == ("b", (path,), Remedy.NOTHING)


def test_a_log_file_that_is_gone_is_found() -> None:
    with sound_table("merge_on_read") as table:
        [path] = [p for p in objects(table) if ".log." in p and p.startswith("a/")][:1]
        storage_of(table).delete(path)
        assert only_finding(table, FindingKind.FILE_MISSING).files == (path,)


def test_an_old_file_that_was_cleaned_is_not_missing() -> None:
    with sound_table("copy_on_write") as table:
        table.drop_metadata_table()  # It would list the files still.
        live = {b.path for b in table.buckets()}
        for path in [p for p in objects(table) if p.endswith(".parquet") and p not in live]:
            storage_of(table).delete(path)
        assert found_in(table, keys=True, files=True) == []


def test_a_file_that_was_cut_off_is_found(table: bl.Table) -> None:
    path = base_file(table)
    storage_of(table).put(path, storage_of(table).read(path)[:-100])
    assert only_finding(table, FindingKind.FILE_SIZE_DIFFERS).files == (path,)
    kinds = {one.kind for one in found_in(table, files=True)}
    assert kinds == {FindingKind.FILE_SIZE_DIFFERS, FindingKind.FILE_CORRUPT}


@pytest.mark.parametrize("end", [".parquet", ".log."])
def test_a_damaged_file_is_found_where_files_are_read(end: str) -> None:
    with sound_table("merge_on_read") as table:
        path = next(p for p in objects(table) if end in p and p.startswith("a/"))
        data = storage_of(table).read(path)
        storage_of(table).put(path, b"\0" * len(data))
        assert found_in(table) == []
        assert only_finding(table, FindingKind.FILE_CORRUPT, files=True).files == (path,)


def test_a_schema_that_the_files_do_not_fit_is_found(table: bl.Table) -> None:
    schema = table.schema().set(2, pa.field("v", pa.list_(pa.int64())))
    name = f"{table.path}-other"
    other = bl.create_table(name, schema=schema, record_key=["id"], index=bl.SimpleBucket(1))
    text = other.config().create_schema
    instant = later(newest(table), 10)
    commit_by_hand(table, instant, extra={"schema": text or ""})
    found = found_in(table, files=True)
    assert {one.kind for one in found} == {FindingKind.SCHEMA_UNFIT}


# ---- Buckets and keys -------------------------------------------------------------------------


def test_a_bucket_with_two_file_groups_is_found(table: bl.Table) -> None:
    both = double_a_bucket(table)
    found = only_finding(table, FindingKind.BUCKET_TWICE)
    assert found.partition == "a"
    assert {path for path in found.files if path.endswith(".parquet")} == set(both)
    kinds = {one.kind for one in found_in(table, keys=True)}
    assert kinds == {FindingKind.BUCKET_TWICE, FindingKind.KEYS_TWICE}


def test_a_bucket_beyond_the_count_is_found(table: bl.Table) -> None:
    write_with_other_count(table, 16)
    found = found_in(table)
    assert {one.kind for one in found} == {FindingKind.BUCKET_UNKNOWN}
    assert {one.partition for one in found} == {"a", "b"}


def test_keys_of_a_writer_with_another_count_are_found_where_keys_are_read(
    table: bl.Table,
) -> None:
    write_with_other_count(table, 7, below=4)
    assert found_in(table) == []
    found = found_in(table, keys=True)
    assert {one.kind for one in found} == {
        FindingKind.KEYS_IN_WRONG_BUCKET,
        FindingKind.KEYS_TWICE,
    }
    assert {one.partition for one in found} == {"a", "b"}
    assert {one.remedy for one in found} == {Remedy.REWRITE}


def test_a_recorded_count_that_the_rules_do_not_give_is_found(table: bl.Table) -> None:
    table.rescale({"a": 3}, dry_run=False)
    table.upsert(rows(range(40), 2))
    storage = storage_of(table)
    rescaled = table.rule_versions()[-1].instant
    path = config_path(rescaled)
    storage.put(path, edited_json(storage.read(path), expressions="a,5"))
    found = only_finding(table, FindingKind.COUNT_OUT_OF_STEP)
    assert found.partition == "a"
    assert "3 buckets" in found.meaning


def test_rules_of_no_commit_are_found(table: bl.Table) -> None:
    instant = later(newest(table))
    save_config(storage_of(table), HashingConfig("c,9", 4, "regex", instant))
    table.upsert(rows(range(2), 3))  # Makes the timeline newer than the version.
    found = only_finding(table, FindingKind.RULES_OUT_OF_STEP)
    assert found.files == (config_path(instant),)


def test_rules_that_cannot_be_parsed_are_found_and_the_other_checks_go_on(
    table: bl.Table,
) -> None:
    table.rescale({"a": 3}, dry_run=False)
    path = config_path(table.rule_versions()[-1].instant)
    storage_of(table).put(path, b"{")
    storage_of(table).delete("b/.hoodie_partition_metadata")
    found = found_in(table)
    assert {one.kind for one in found} == {
        FindingKind.UNREADABLE,
        FindingKind.PARTITION_NOT_MARKED,
    }
    assert (path,) in {one.files for one in found}


# ---- What was left behind ---------------------------------------------------------------------


def test_a_write_whose_writer_is_dead_is_found(table: bl.Table) -> None:
    instant = later(newest(table))
    is_merged = "merge" in table.config().table_type.value.lower()
    name = f"{instant}.{'deltacommit' if is_merged else 'commit'}.requested"
    storage_of(table).put(f".hoodie/timeline/{name}", b"")
    found = only_finding(table, FindingKind.PENDING_DEAD)
    assert instant in found.meaning
    assert table.doctor() == []  # It may live, as young as it is.


def test_a_pending_clustering_is_found(table: bl.Table) -> None:
    instant = later(newest(table))
    plan = ClusteringPlan((ClusteringGroup((), 1),), "org.example.Sort")
    content = encode_clustering_plan(plan, table.path)
    storage_of(table).put(f".hoodie/timeline/{instant}.clustering.requested", content)
    assert only_finding(table, FindingKind.PENDING_OF_HUDI).remedy is Remedy.NOTHING


def test_a_clustering_plan_that_cannot_be_read_is_found(table: bl.Table) -> None:
    path = f".hoodie/timeline/{later(newest(table))}.clustering.requested"
    storage_of(table).put(path, b"Obj")
    assert only_finding(table, FindingKind.UNREADABLE).files == (path,)


def test_markers_of_an_instant_that_has_ended_are_found(table: bl.Table) -> None:
    folder = f".hoodie/.temp/{newest(table)}"
    storage_of(table).put(f"{folder}/a/x_0-0-0_1.parquet.marker.CREATE", b"")
    assert only_finding(table, FindingKind.LEFTOVER_MARKERS).files == (folder,)


def test_a_heartbeat_of_an_instant_that_has_ended_is_found(table: bl.Table) -> None:
    path = f".hoodie/.heartbeat/{newest(table)}"
    dead = b'{"process": "p", "machine": "", "pid": 1, "started": "1"}'
    storage_of(table).put(path, dead)
    assert only_finding(table, FindingKind.LEFTOVER_HEARTBEAT).files == (path,)


def test_a_lock_that_is_older_than_any_commit_is_found(table: bl.Table) -> None:
    storage_of(table).put(FILE_LOCK, b"")
    assert only_finding(table, FindingKind.LEFTOVER_LOCK).files == (FILE_LOCK,)


def test_a_lock_may_be_of_a_writer_that_is_at_work(table: bl.Table) -> None:
    storage, instant = storage_of(table), later(newest(table))
    storage.put(FILE_LOCK, b"")
    with beating(storage, instant):
        storage.put(f".hoodie/timeline/{instant}.replacecommit.requested", b"")
        assert FindingKind.LEFTOVER_LOCK not in {one.kind for one in found_in(table)}
    assert FindingKind.LEFTOVER_LOCK in {one.kind for one in found_in(table)}


def test_a_compaction_that_is_planned_for_a_file_that_is_gone_is_found() -> None:
    with sound_table("merge_on_read") as table:
        table.compact(schedule_only=True)
        assert found_in(table, keys=True, files=True) == []
        path = next(p for p in objects(table) if ".log." in p and p.startswith("b/"))
        storage_of(table).delete(path)
        found = {one.kind: one for one in found_in(table)}
        assert found.keys() == {FindingKind.PLAN_BROKEN, FindingKind.FILE_MISSING}
        assert found[FindingKind.PLAN_BROKEN].files == (path,)


def test_a_storage_lock_is_found_only_where_it_does_not_say_when_it_ends(table: bl.Table) -> None:
    held = b'{"expired": false, "validUntil": 1, "owner": "x"}'
    storage_of(table).put(STORAGE_LOCK, held)
    assert found_in(table) == []  # The next writer takes it over.
    storage_of(table).put(STORAGE_LOCK, held[:20])
    assert only_finding(table, FindingKind.UNREADABLE).files == (STORAGE_LOCK,)


def test_an_outcome_of_a_commit_older_than_the_timeline_is_found(table: bl.Table) -> None:
    instant = InstantTime("20200101000000000")
    publication = Publication(later(instant), Action.COMMIT, b"")
    claim_commit(storage_of(table), instant, publication)
    found = only_finding(table, FindingKind.LEFTOVER_OUTCOME)
    assert found.files == (outcome_path(instant),)


def test_an_outcome_of_a_rollback_stays_for_those_who_sleep(table: bl.Table) -> None:
    claim_rollback(storage_of(table), InstantTime("20200101000000000"))
    assert found_in(table) == []


def test_turns_that_should_have_been_dropped_are_found(table: bl.Table) -> None:
    for n in range(10):
        table.upsert(rows(range(1), n + 2))
    assert found_in(table) == []
    storage_of(table).put(f"{COMMIT_ORDER_FOLDER}/{1:012d}", b"1 x")
    storage_of(table).put(f"{COMMIT_ORDER_FOLDER}/{2:012d}", b"2 x")
    found = only_finding(table, FindingKind.LEFTOVER_TURN)
    assert len(found.files) == 2


def test_a_turn_that_cannot_be_read_is_found(table: bl.Table) -> None:
    path = f"{COMMIT_ORDER_FOLDER}/{999:012d}"
    storage_of(table).put(path, b"")
    assert only_finding(table, FindingKind.UNREADABLE).files == (path,)


# ---- The table's own files --------------------------------------------------------------------


def test_a_backup_of_the_properties_is_found(table: bl.Table) -> None:
    storage = storage_of(table)
    storage.put(PROPERTIES_BACKUP_FILE, storage.read(PROPERTIES_FILE))
    storage.delete(PROPERTIES_FILE)
    assert only_finding(table, FindingKind.PROPERTIES_BACKUP).remedy is Remedy.RECOVER


def test_properties_with_a_wrong_checksum_are_found(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, "bucketlake.timeline.table_properties", _READ_SECONDS_MAX=0)
    storage = storage_of(table)
    text = storage.read(PROPERTIES_FILE).replace(b"checksum=", b"checksum=1")
    storage.put(PROPERTIES_FILE, text)
    found = only_finding(table, FindingKind.PROPERTIES_BROKEN)
    assert found.files == (PROPERTIES_FILE,)


def test_a_commit_that_cannot_be_read_is_found_once(table: bl.Table) -> None:
    [path] = [p for p in objects(table) if p.startswith(f".hoodie/timeline/{newest(table)}_")]
    storage_of(table).put(path, b"Obj")
    assert only_finding(table, FindingKind.UNREADABLE).files == (path,)
