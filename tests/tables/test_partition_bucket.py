"""A table whose bucket counts follow from the partition, written and read without Spark."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions.commit import CommitPlan, PendingWrite, begin_write, commit_write
from bucketlake.errors import BucketLakeError, CommitConflictError, ConfigError, IndexStateError
from bucketlake.index.hashing_config import (
    CONFIGS_FOLDER,
    HASHING_ARCHIVE_FOLDER,
    INITIAL_INSTANT,
    HashingConfig,
    config_path,
    save_config,
)
from bucketlake.model.table_type import Operation
from bucketlake.read.snapshot import load_snapshot
from bucketlake.storage.local import LocalStorage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.archive_reader import Manifest
from bucketlake.timeline.archive_writer import (
    Appended,
    append,
    encode_instants,
    instant_files,
    remove_archived,
)
from bucketlake.timeline.instant import InstantClock
from bucketlake.timeline.locks import NO_LOCK
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.timeline.table_properties import table_at
from bucketlake.write.ingest import write_records
from bucketlake.write.pack import ArrowSource
from bucketlake.write.target import open_target
from tests.faulty_storage import FaultyStorage, SimulatedCrash, crash_points
from tests.meanwhile import meanwhile

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
RULES = {"2024-06-0[1-2]": 8, "2024": 3}
INDEX = bl.PartitionBucket(RULES, default=2)
DAYS = {"2024-06-01": 8, "2024-06-02": 8, "2024-06-03": 3, "2023-01-01": 2}


def rows(start: int, stop: int) -> pa.Table:
    days = list(DAYS)
    numbers = range(start, stop)
    columns = [[f"k{n}" for n in numbers], [days[n % 4] for n in numbers], list(numbers)]
    return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)


@pytest.fixture
def table(table_path: Path) -> bl.Table:
    table = bl.create_table(
        str(table_path), schema=SCHEMA, record_key=["id"], partition_by=["day"], index=INDEX
    )
    table.upsert(rows(0, 400))
    return table


def buckets_of(table: bl.Table) -> dict[str, set[int | None]]:
    found: dict[str, set[int | None]] = {}
    for bucket in table.buckets():
        found.setdefault(bucket.partition_path, set()).add(bucket.bucket_id)
    return found


def test_each_partition_has_the_buckets_that_its_rule_gives_it(table: bl.Table) -> None:
    assert buckets_of(table) == {day: set(range(count)) for day, count in DAYS.items()}
    result = table.upsert(rows(300, 500))
    assert (result.inserted, result.updated) == (100, 100)
    assert sorted(table.to_arrow()["v"].to_pylist()) == list(range(500))
    assert buckets_of(table) == {day: set(range(count)) for day, count in DAYS.items()}


def test_rules_are_stored_as_the_initial_version_and_found_again(table: bl.Table) -> None:
    stored = (Path(table.path) / config_path(INITIAL_INSTANT)).read_bytes()
    assert stored == HashingConfig(INDEX.expressions, 2, "regex", INITIAL_INSTANT).to_json()
    assert bl.open_table(table.path).index == INDEX
    assert bl.open_table(table.path, index=INDEX).index == INDEX


@pytest.mark.parametrize("other", [bl.SimpleBucket(2), bl.PartitionBucket(RULES, default=3)])
def test_another_index_is_refused(table: bl.Table, other: Any) -> None:
    with pytest.raises(IndexStateError, match="was asked for"):
        bl.open_table(table.path, index=other)


@pytest.mark.parametrize(
    ("where", "partitions", "groups"),
    [
        ("id = 'k1'", 4, 4),
        ("id = 'k1' AND day = '2024-06-01'", 1, 1),
        ("v >= 0", 4, 21),  # Real Hudi 1.2.0 returns no rows here.
        ("day = '2024-06-03'", 1, 3),
    ],
)
def test_reads_look_at_one_bucket_of_each_partition_that_can_hold_the_key(
    table: bl.Table, where: str, partitions: int, groups: int
) -> None:
    table.drop_metadata_table()  # Statistics skip more.
    report = table.explain(where)
    assert (report.partitions_kept, report.file_groups_kept) == (partitions, groups)
    assert table.to_arrow(where=where).num_rows > 0 or "2024-06-01" in where


def test_every_key_is_found_by_its_bucket(table: bl.Table) -> None:
    for number in range(0, 400, 7):
        assert table.to_arrow(where=f"id = 'k{number}'")["v"].to_pylist() == [number]
        [location] = table.locate(f"k{number}")
        assert location.partition_path == list(DAYS)[number % 4]


def begin_rescale(table: bl.Table, index: bl.PartitionBucket) -> PendingWrite:
    """Do what a rescale does before it writes data, and die."""
    storage, config = LocalStorage(table.path), table.config()
    timeline, clock = (
        load_timeline(opened_table(storage, config)),
        InstantClock(config.timeline_timezone),
    )
    with begin_write(
        OpenTable(storage, config, clock, NO_LOCK), timeline, Operation.INSERT_OVERWRITE
    ) as write:
        rules = HashingConfig(index.expressions, index.default, index.rule_name, write.instant)
        save_config(storage, rules)
    return write


def change_rules(table: bl.Table, index: bl.PartitionBucket) -> str:
    """Change the rules without writing any partition anew."""
    write = begin_rescale(table, index)
    text = load_snapshot(write.table).schema_text
    commit_write(write, CommitPlan(extra={"schema": text or ""}))
    return write.instant


LATER = bl.PartitionBucket({"2022": 16}, default=2)


def test_a_read_of_an_earlier_time_prunes_by_the_rules_of_that_time(table: bl.Table) -> None:
    before = table.timeline()[-1].requested_at
    change_rules(table, LATER)
    assert bl.open_table(table.path).index == LATER
    for number in range(20):
        found = table.to_arrow(where=f"id = 'k{number}'", as_of=before)
        assert found["v"].to_pylist() == [number]


def test_files_that_newer_rules_do_not_allow_prune_nothing_and_are_not_written_to(
    table: bl.Table,
) -> None:
    change_rules(table, LATER)
    assert table.to_arrow(where="id = 'k1'")["v"].to_pylist() == [1]
    with pytest.raises(IndexStateError):
        table.upsert(rows(0, 10))


def test_a_write_counted_by_rules_that_changed_meanwhile_is_refused(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules, changed = bl.PartitionBucket({"2023": 9}, default=8), []
    meanwhile(monkeypatch, lambda: changed.append(change_rules(table, rules)))
    storage = LocalStorage(table.path)
    target = open_target(opened_table(storage, table.config()), None)
    with pytest.raises(CommitConflictError, match=r"2 buckets.* has 9 ") as caught:
        write_records(target, Operation.UPSERT, ArrowSource(rows(400, 500)))
    assert changed[0] in str(caught.value)
    monkeypatch.undo()
    assert table.to_arrow().num_rows == 400
    assert all(instant.state.name == "COMPLETED" for instant in table.timeline())


def test_the_rules_of_a_rescale_that_failed_are_rolled_back_with_it(table: bl.Table) -> None:
    write = begin_rescale(table, LATER)
    assert bl.open_table(table.path).index == INDEX  # While it is pending it does not count.
    assert table.upsert(rows(0, 40)).updated == 40
    assert not (Path(table.path) / config_path(write.instant)).exists()
    assert bl.open_table(table.path).index == INDEX


def test_a_rule_of_the_users_own_has_to_be_brought_along(table_path: Path) -> None:
    def by_year(expressions: tuple[tuple[str, int], ...]) -> Any:
        return lambda path: dict(expressions).get(path[:4])

    index = bl.PartitionBucket({"2024": 5}, default=1, rule=by_year)
    table = bl.create_table(
        str(table_path), schema=SCHEMA, record_key=["id"], partition_by=["day"], index=index
    )
    table.upsert(rows(0, 100))
    assert buckets_of(table)["2024-06-03"] <= set(range(5))
    assert buckets_of(table)["2023-01-01"] == {0}
    assert bl.open_table(str(table_path), index=index).upsert(rows(50, 60)).updated == 10
    with pytest.raises(BucketLakeError, match="by_year"):
        bl.open_table(str(table_path)).upsert(rows(0, 1))
    assert bl.open_table(str(table_path)).to_arrow(where="id = 'k7'").num_rows == 1


@pytest.mark.parametrize(
    ("rules", "default"),
    [({}, 1), ({"a": 0}, 1), ({"a": 1}, 0), ({"a,b": 1}, 1), ({"a;b": 1}, 1), ({"(": 1}, 1)],
)
def test_rules_that_are_none_are_refused_when_the_index_is_named(
    rules: dict[str, int], default: int
) -> None:
    with pytest.raises(ConfigError):
        bl.PartitionBucket(rules, default)


OPTIONS = {
    "hoodie.table.name": "days",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "day",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.bucket.index.partition.expressions": INDEX.expressions,
}


def test_options_of_a_hudi_job_name_the_rules_and_the_tables_own_outweigh_them(
    table_path: Path,
) -> None:
    bl.save(rows(0, 100), str(table_path), options=OPTIONS)
    assert bl.open_table(str(table_path)).index == INDEX
    others = OPTIONS | {"hoodie.bucket.index.partition.expressions": "2024,7"}
    with pytest.warns(UserWarning, match="the table stores other rules"):
        bl.save(rows(0, 100), str(table_path), options=others)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bl.save(rows(0, 100), str(table_path), options=OPTIONS).updated == 100
    assert max(b.bucket_id or 0 for b in bl.open_table(str(table_path)).buckets()) <= 7


def test_the_draft_name_of_the_rule_option_is_understood(table_path: Path) -> None:
    expressions = {"hoodie.bucket.index.partition.expressions": "2024..2025,4"}
    rule = {"hoodie.bucket.index.partition.rule": "range"}
    bl.save(rows(0, 100), str(table_path), options=OPTIONS | expressions | rule)
    index = bl.open_table(str(table_path)).index
    assert index == bl.PartitionBucket({"2024..2025": 4}, 2, rule="range")


@pytest.mark.parametrize("other", [bl.PartitionBucket({"2024": 5}, default=2), bl.SimpleBucket(2)])
def test_rules_of_a_table_that_was_not_made_to_its_end_are_not_taken_for_others(
    table_path: Path, other: bl.PartitionBucket | bl.SimpleBucket
) -> None:
    table_path.mkdir(parents=True)
    config = HashingConfig(INDEX.expressions, INDEX.default, INDEX.rule_name, INITIAL_INSTANT)
    save_config(LocalStorage(str(table_path)), config)

    def create(index: bl.PartitionBucket | bl.SimpleBucket) -> bl.Table:
        return bl.create_table(str(table_path), schema=SCHEMA, record_key="id", index=index)

    with pytest.raises(IndexStateError, match="was asked for"):
        create(other)
    assert not (table_path / ".hoodie" / "hoodie.properties").exists()
    (table_path / ".hoodie/.bucket_index/ext/index.json").unlink()
    assert create(INDEX).index == INDEX


def test_death_while_a_table_of_hudi_is_taken_up_leaves_no_count_without_its_rules(
    golden_table: Callable[[str], Path], tmp_path: Path
) -> None:
    """Hudi's Spark writer stores no rules; our first write does, beside count and hash fields."""
    path = golden_table("cow_partition_level")
    index = bl.PartitionBucket({"eu": 5, "us": 2}, 3)
    bl.open_table(str(path)).drop_metadata_table()
    batch = bl.open_table(str(path)).to_arrow()

    def upsert(storage: FaultyStorage) -> None:
        target = open_target(table_at(storage), index)
        write_records(target, Operation.UPSERT, ArrowSource(batch))

    for number, fault in enumerate(crash_points(6)):
        copy = shutil.copytree(path, tmp_path / f"copy{number}")
        storage = FaultyStorage(LocalStorage(str(copy)), [fault], reads_count=False)
        with pytest.raises(SimulatedCrash):
            upsert(storage)
        table = bl.open_table(str(copy), index=index)
        assert table.index == index, storage.replay()
        assert table.upsert(batch).updated == batch.num_rows, storage.replay()
        assert bl.open_table(str(copy)).index == index, storage.replay()
        assert table.to_arrow().num_rows == batch.num_rows, storage.replay()


# ---- rescale ------------------------------------------------------------------------------------


def files_of(table: bl.Table) -> dict[str, bytes]:
    root = Path(table.path)
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def changes_of(report: Any) -> dict[str, tuple[int, int, int]]:
    return {p.partition_path: (p.old_count, p.new_count, p.file_groups) for p in report.partitions}


def test_a_dry_run_tells_partitions_files_and_bytes_and_changes_nothing(table: bl.Table) -> None:
    begin_rescale(table, LATER)  # Nor does it roll back what is pending.
    before = files_of(table)
    report = table.rescale({"2024-06-0[1-2]": 8, "2023": 5}, dry_run=True)
    assert changes_of(report) == {"2023-01-01": (2, 5, 2), "2024-06-03": (3, 2, 3)}
    sizes = [b.size_bytes for b in table.buckets() if b.partition_path == "2023-01-01"]
    assert report.partitions[0].size_bytes == sum(sizes)
    assert report.instant is None
    assert files_of(table) == before


def test_a_rescale_moves_the_rows_of_the_partitions_that_change_and_no_others(
    table: bl.Table,
) -> None:
    held = {b.file_id for b in table.buckets() if b.partition_path.startswith("2024-06-0")}
    report = table.rescale({**RULES, "2023": 5}, dry_run=False)
    assert changes_of(report) == {"2023-01-01": (2, 5, 2)}
    assert buckets_of(table) == {
        day: set(range(n)) for day, n in (DAYS | {"2023-01-01": 5}).items()
    }
    assert held <= {b.file_id for b in table.buckets()}
    assert sorted(table.to_arrow()["v"].to_pylist()) == list(range(400))
    assert table.upsert(rows(300, 500)).updated == 100
    assert sorted(table.to_arrow()["v"].to_pylist()) == list(range(500))
    for number in range(0, 500, 9):
        assert table.to_arrow(where=f"id = 'k{number}'")["v"].to_pylist() == [number]


def test_rules_that_are_added_come_first_and_the_default_stays(table: bl.Table) -> None:
    report = table.rescale(add={"2024-06-01": 1, "2030": 64}, dry_run=False)
    assert changes_of(report) == {"2024-06-01": (8, 1, 8)}
    index = bl.open_table(table.path).index
    assert index == bl.PartitionBucket({"2024-06-01": 1, "2030": 64, **RULES}, default=2)


def test_rules_for_partitions_to_come_are_saved_without_writing_any(table: bl.Table) -> None:
    held = {b.file_id for b in table.buckets()}
    report = table.rescale(add={"2030": 64}, dry_run=False)
    assert report.partitions == ()
    assert report.instant is not None
    assert {b.file_id for b in table.buckets()} == held
    assert bl.open_table(table.path).index != INDEX


def test_a_simple_bucket_table_becomes_a_partition_level_one(table_path: Path) -> None:
    table = bl.create_table(
        str(table_path), schema=SCHEMA, record_key=["id"], partition_by=["day"],
        index=bl.SimpleBucket(4),
    )  # fmt: skip
    before = table.upsert(rows(0, 200)).instant
    report = table.rescale({"2024": 9}, dry_run=False)
    assert set(changes_of(report)) == {"2024-06-01", "2024-06-02", "2024-06-03"}
    assert bl.open_table(table.path).index == bl.PartitionBucket({"2024": 9}, default=4)
    assert table.upsert(rows(100, 300)).updated == 100  # By a handle from before the rescale, too.
    assert sorted(table.to_arrow()["v"].to_pylist()) == list(range(300))
    for number in range(0, 200, 7):  # The time before the rules has the count of then.
        where = f"id = 'k{number}'"
        assert table.to_arrow(where=where, as_of=before)["v"].to_pylist() == [number]
        assert table.to_arrow(where=where)["v"].to_pylist() == [number]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, ConfigError),
        ({"rules": {"a": 1}, "add": {"a": 1}}, ConfigError),
        ({"rules": {"a": 0}}, ConfigError),
        ({"rules": {}}, ConfigError),
        ({"rules": {"[[": 1}}, ConfigError),
        ({"rules": {"a": 1}, "default": 0}, ConfigError),
        ({"rules": {"a": 1}, "rule": "hybrid"}, ConfigError),
        ({"add": {"a..b": 1}, "rule": "range"}, ConfigError),
    ],
)
def test_bad_arguments_of_a_rescale_are_refused_before_anything_is_written(
    table: bl.Table, arguments: dict[str, Any], error: type[BucketLakeError]
) -> None:
    before = files_of(table)
    for dry_run in (True, False):
        with pytest.raises(error):
            table.rescale(**arguments, dry_run=dry_run)
    assert files_of(table) == before


def test_a_rescale_whose_partition_changed_meanwhile_is_refused_and_rolled_back(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overwrite() -> None:
        storage, config = LocalStorage(table.path), table.config()
        timeline, clock = (
            load_timeline(opened_table(storage, config)),
            InstantClock(config.timeline_timezone),
        )
        gone = {"2023-01-01": tuple(b.file_id for b in table.buckets() if "2023" in b.path)}
        text = load_snapshot(opened_table(storage, config)).schema_text
        with begin_write(
            OpenTable(storage, config, clock, NO_LOCK), timeline, Operation.INSERT_OVERWRITE
        ) as other:
            commit_write(other, CommitPlan(replaced=gone, extra={"schema": text or ""}))

    meanwhile(monkeypatch, overwrite)
    with pytest.raises(CommitConflictError, match="'2023-01-01'"):
        table.rescale({"2023": 5}, dry_run=False)
    assert bl.open_table(table.path).index == INDEX
    assert set(buckets_of(table)) == set(DAYS) - {"2023-01-01"}
    assert table.upsert(rows(0, 400)).inserted == 100


def test_old_versions_are_archived_once_the_timeline_has_passed_them(table: bl.Table) -> None:
    instants = [table.rescale(add={f"20{n}": 2}, dry_run=False).instant for n in (30, 31, 32)]
    storage, config = LocalStorage(table.path), table.config()
    # As archival does where cleans took the replaced files: all but the newest two.
    gone = [
        i
        for i in load_timeline(opened_table(storage, config)).completed()
        if i.requested_at < instants[1]
    ]
    opened = opened_table(storage, config)
    entries = encode_instants(opened, instant_files(opened), gone, {})
    assert append(opened, Manifest(), gone, entries) is Appended.DONE
    remove_archived(opened)
    table.rescale(add={"2033": 2}, dry_run=False)
    active = sorted(p.name[:17] for p in Path(table.path, CONFIGS_FOLDER).iterdir())
    archived = sorted(p.name[:17] for p in Path(table.path, HASHING_ARCHIVE_FOLDER).iterdir())
    assert archived == [f"{INITIAL_INSTANT}.ha"]
    assert active[0] == instants[0]
    assert len(active) == 4
    assert sorted(table.to_arrow()["v"].to_pylist()) == list(range(400))


def test_rescale_says_which_rules_match_nothing_and_what_shrinks_without_a_rule(
    table: bl.Table, caplog: pytest.LogCaptureFixture
) -> None:
    asked = {"2023": 5, "2030": 64, "mispelled": 2}
    planned = table.rescale(asked, default=1, dry_run=True)
    assert planned.unused_rules == ("2030", "mispelled")
    assert planned.shrunk_by_default == tuple(day for day in sorted(DAYS) if "2023" not in day)
    assert "unused_rules" in str(planned)
    assert caplog.records == []

    def run(*_: object, **__: object) -> None:
        assert "no partition matches '2030', 'mispelled'" in caplog.text
        assert "no rule matches '2024-06-01'" in caplog.text
        raise InterruptedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bucketlake.services.rebucket.rescale.run_rescale", run)
        with pytest.raises(InterruptedError):
            table.rescale(asked, default=1)
    done = table.rescale(asked, default=1)
    assert replace(done, instant=None) == planned


def test_rescale_that_fits_its_table_warns_of_nothing(
    table: bl.Table, caplog: pytest.LogCaptureFixture
) -> None:
    report = table.rescale(add={"2023": 5})
    assert (report.unused_rules, report.shrunk_by_default) == ((), ())
    assert caplog.records == []
