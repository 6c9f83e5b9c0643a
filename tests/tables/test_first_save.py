"""First writes of ``save``: a refused one leaves nothing; a table without commits binds no job."""

from __future__ import annotations

import itertools
import os
import threading
import warnings
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake import hudi_job
from bucketlake.actions.commit import begin_write
from bucketlake.errors import (
    AlreadyExistsError,
    BucketLakeError,
    ConfigError,
    InputError,
    UnsupportedFeatureError,
)
from bucketlake.model.table_type import Operation
from bucketlake.storage.local import LocalStorage
from bucketlake.timeline.active import load_timeline
from bucketlake.timeline.instant import table_clock
from bucketlake.timeline.locks import NO_LOCK
from bucketlake.timeline.open_table import OpenTable, opened_table
from bucketlake.timeline.table_properties import read_table_config
from bucketlake.write.unwritten import claimed
from tests.spies import breaks, overtake

WRITE = "hoodie.datasource.write."
KEYGEN = f"{WRITE}keygenerator.class"
OPTIONS = {
    "hoodie.table.name": "trips",
    f"{WRITE}recordkey.field": "id",
    f"{WRITE}partitionpath.field": "city",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "4",
}
ROWS = pa.table({"id": ["a", "b"], "city": ["Bonn", "Kyiv"], "at": [1, 2]})
MODES = ("append", "overwrite", "errorifexists", "error", "ignore")


def changed(column: str, values: object) -> pa.Table:
    return ROWS.set_column(ROWS.column_names.index(column), column, values)


REFUSED = {
    "slash": (changed("city", pa.array(["a/b", "c"])), {}),
    "no key": (changed("id", pa.array(["a", None])), {}),
    "type": (changed("at", pa.array([{}, {}], pa.struct([]))), {}),
    "key type": (changed("id", pa.array([["a"], ["b"]])), {}),
    "no such column": (ROWS, {f"{WRITE}recordkey.field": "nothing"}),
    "no text": (changed("city", pa.array([b"\xff", b"x"]).cast(pa.string(), safe=False)), {}),
    "value": (changed("at", pa.array([b"\xff", b"x"]).cast(pa.string(), safe=False)), {}),
    "alike": (
        pa.table({"id": ["1,k:2", "1"], "k": ["3", "2,k:3"], "city": ["x", "x"], "at": [1, 1]}),
        {f"{WRITE}recordkey.field": "id,k"},
    ),
    "hash field": (ROWS, {"hoodie.bucket.index.hash.field": "at"}),
    "rules": (ROWS, {"hoodie.bucket.index.partition.expressions": "city=(,3"}),
    "custom": (ROWS, {KEYGEN: "org.apache.hudi.keygen.CustomKeyGenerator"}),
    "custom time": (
        ROWS,
        {
            KEYGEN: "org.apache.hudi.keygen.CustomKeyGenerator",
            f"{WRITE}partitionpath.field": "at:TIMESTAMP",
        },
    ),
    "simple": (
        ROWS,
        {
            KEYGEN: "org.apache.hudi.keygen.SimpleKeyGenerator",
            f"{WRITE}partitionpath.field": "city,at",
        },
    ),
    "time": (
        ROWS,
        {
            KEYGEN: "org.apache.hudi.keygen.TimestampBasedKeyGenerator",
            "hoodie.keygen.timebased.timestamp.type": "DATE_STRING",
            "hoodie.keygen.timebased.input.dateformat": "yyyy-MM-dd",
            "hoodie.keygen.timebased.output.dateformat": "yyyy",
        },
    ),
    "generator": (ROWS, {KEYGEN: "com.example.Mine"}),
    "index": (
        ROWS,
        {"hoodie.index.type": "RECORD_LEVEL_INDEX", "hoodie.metadata.enable": "false"},
    ),
}


@pytest.mark.parametrize(
    ("reason", "mode"),
    [*zip(REFUSED, itertools.cycle(MODES), strict=False), *(("slash", mode) for mode in MODES)],
)
def test_a_refused_first_write_leaves_nothing_in_each_mode(
    table_path: Path, reason: str, mode: str
) -> None:
    rows, options = REFUSED[reason]
    with pytest.raises((InputError, ConfigError, UnsupportedFeatureError)):
        bl.save(rows, str(table_path), mode=mode, options=OPTIONS | options)
    assert [*table_path.rglob("*")] == []
    bl.save(ROWS, str(table_path), mode=mode, options=OPTIONS)
    assert bl.open_table(str(table_path)).to_arrow().num_rows == 2


KINDS = {
    "rules": {"hoodie.bucket.index.partition.expressions": "Bonn,3"},
    "ring": {"hoodie.index.bucket.engine": "CONSISTENT_HASHING"},
    "directory": {"hoodie.index.bucket.engine": "EXTENDIBLE_HASHING"},
    "record": {"hoodie.index.type": "RECORD_LEVEL_INDEX"},
    "global": {"hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX"},
}


def as_first(path: Path, rows: pa.Table, options: dict[str, str]) -> bl.Table:
    """Return the table that a job makes where nothing is."""
    bl.save(rows, str(path), options=options)
    return bl.open_table(str(path))


OTHERS = {
    "mor": {f"{WRITE}table.type": "MERGE_ON_READ"},
    "key": {f"{WRITE}recordkey.field": "id,at"},
    "partitions": {f"{WRITE}partitionpath.field": ""},
    "ordering": {"hoodie.table.ordering.fields": "at"},
    "name": {"hoodie.table.name": "other"},
    "folders": {
        f"{WRITE}hive_style_partitioning": "true",
        f"{WRITE}partitionpath.urlencode": "true",
    },
    "count": {"hoodie.bucket.index.num.buckets": "8"},
    "no metadata": {"hoodie.metadata.enable": "false", f"{WRITE}recordkey.field": "at"},
    **KINDS,
}


def settings_of(table: bl.Table) -> tuple[object, ...]:
    config = table.config()
    return (
        config.name, config.table_type, config.key_spec, config.ordering_fields,
        config.metadata_partitions, table.index, table.schema(),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("left", "asked"),
    [*((name, "usual") for name in KINDS), *(("usual", name) for name in OTHERS),
     ("ring", "rules"), ("rules", "directory"), ("global", "record")],
)  # fmt: skip
def test_a_table_without_commits_binds_no_later_job(
    table_path: Path, left: str, asked: str
) -> None:
    options = OPTIONS | OTHERS.get(asked, {})
    wanted = as_first(table_path.with_name("wanted"), ROWS, options)
    leave_without_commits(table_path, OPTIONS | OTHERS.get(left, {}))
    bl.save(ROWS, str(table_path), options=options)
    found = bl.open_table(str(table_path))
    assert settings_of(found) == settings_of(wanted)
    assert found.to_arrow().num_rows == 2
    assert found.doctor(check_keys=True) == []


def leave_without_commits(path: Path, options: dict[str, str]) -> None:
    """Make a table as a job does that dies before its first commit."""

    with pytest.MonkeyPatch.context() as patch:
        breaks(patch, hudi_job, "write_records", KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            bl.save(ROWS, str(path), options=options)
    assert bl.open_table(str(path)).timeline() == []


def test_a_schema_of_a_table_without_commits_binds_no_later_job(table_path: Path) -> None:
    leave_without_commits(table_path, OPTIONS)
    rows = changed("at", pa.array(["x", "y"])).append_column("n", pa.array([1, 2]))
    bl.save(rows, str(table_path), options=OPTIONS)
    assert bl.open_table(str(table_path)).schema() == rows.schema


def test_a_table_that_was_created_and_does_not_contradict_the_job_is_kept(
    table_path: Path,
) -> None:
    schema = pa.schema([*ROWS.schema, pa.field("note", pa.string())])
    bl.create_table(
        str(table_path), schema=schema, record_key="id", partition_by="city", name="trips",
        index=bl.SimpleBucket(4), table_type="merge_on_read",
    )  # fmt: skip
    rows = ROWS.append_column("note", pa.array(["x", "y"]))
    bl.save(rows, str(table_path), options=OPTIONS)
    assert bl.open_table(str(table_path)).config().table_type.value == "MERGE_ON_READ"


def test_a_table_whose_only_commit_was_rolled_back_binds_no_later_job(table_path: Path) -> None:
    first = bl.save(ROWS, str(table_path), options=OPTIONS)
    assert first.instant is not None
    bl.open_table(str(table_path)).rollback(first.instant, dry_run=False)
    asked = OPTIONS | OTHERS["mor"] | OTHERS["count"]
    bl.save(ROWS, str(table_path), options=asked)
    table = bl.open_table(str(table_path))
    assert (table.index, table.to_arrow().num_rows) == (bl.SimpleBucket(8), 2)
    assert table.doctor(check_keys=True) == []


def test_a_first_write_that_fails_in_its_tasks_leaves_no_table(
    table_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bucketlake.write.group_writer import GroupWriter

    with monkeypatch.context() as patch:
        breaks(patch, GroupWriter, "write", ValueError("a task"))
        with pytest.raises(ValueError, match="a task"):
            bl.save(ROWS, str(table_path), options=OPTIONS)
    assert [path for path in table_path.rglob("*") if path.is_file()] == []
    bl.save(ROWS, str(table_path), options=OPTIONS | OTHERS["count"])
    assert bl.open_table(str(table_path)).to_arrow().num_rows == 2


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_table_with_data_files_but_no_timeline_is_never_made_anew(
    table_path: Path, mode: str
) -> None:
    bl.save(ROWS, str(table_path), options=OPTIONS)
    for file in (table_path / ".hoodie" / "timeline").glob("2*"):
        file.unlink()
    files = sorted(table_path.glob("*/*.parquet"))
    with pytest.raises(BucketLakeError):
        bl.save(ROWS, str(table_path), mode=mode, options=OPTIONS | OTHERS["key"])
    assert sorted(table_path.glob("*/*.parquet")) == files
    assert (table_path / ".hoodie" / "hoodie.properties").exists()


def test_a_table_to_which_another_writer_writes_now_binds_the_job(table_path: Path) -> None:
    leave_without_commits(table_path, OPTIONS)
    storage = LocalStorage(str(table_path))
    config = read_table_config(storage)
    clock = table_clock(storage.root, "UTC")
    timeline = load_timeline(opened_table(storage, config))
    with begin_write(OpenTable(storage, config, clock, NO_LOCK), timeline, Operation.UPSERT):
        with pytest.raises(ConfigError, match="recordkey"):
            bl.save(ROWS, str(table_path), options=OPTIONS | OTHERS["key"])
        with pytest.raises(AlreadyExistsError):
            bl.save(ROWS, str(table_path), mode="errorifexists", options=OPTIONS)
    bl.save(ROWS, str(table_path), options=OPTIONS | OTHERS["key"])
    assert bl.open_table(str(table_path)).config().key_spec.record_key_fields == ("id", "at")


def test_a_first_write_to_a_table_that_was_made_anew_meanwhile_begins_again(
    table_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = bl.create_table(
        str(table_path), schema=ROWS.schema, record_key="id", partition_by="city",
        index=bl.SimpleBucket(4), name="trips",
    )  # fmt: skip
    from bucketlake import writing as module

    asked = OPTIONS | OTHERS["key"]
    first = partial(bl.save, ROWS, str(table_path), options=asked)
    overtake(monkeypatch, module, "write_records", first)
    assert table.upsert(ROWS).updated == 2
    assert table.config().key_spec.record_key_fields == ("id", "at")
    assert table.to_arrow().num_rows == 2
    assert table.doctor(check_keys=True) == []


@pytest.mark.parametrize("alike", [True, False])
def test_first_saves_at_once_make_one_table_and_lose_no_committed_row(
    table_path: Path, alike: bool
) -> None:
    done: list[pa.Table] = []
    start = threading.Barrier(3)

    def job(number: int) -> None:
        rows = pa.table({"id": [f"k{number}"], "city": ["Bonn"], "at": [number]})
        options = OPTIONS | {"hoodie.bucket.index.num.buckets": "4" if alike else str(number + 1)}
        start.wait()
        try:
            bl.save(rows, str(table_path), options=options)
        except BucketLakeError:
            return
        done.append(rows)

    threads = [threading.Thread(target=job, args=(number,)) for number in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(done) == 3 or not alike
    if not done:  # Each undid the table of another, whose buckets it could not take.
        assert not [*table_path.rglob("*.parquet")]
        return
    table = bl.open_table(str(table_path))
    written = sorted(key for rows in done for key in rows["id"].to_pylist())
    assert sorted(table.to_arrow()["id"].to_pylist()) == written
    assert table.doctor(check_keys=True) == []


def test_a_claim_that_a_dead_process_left_stops_nobody(table_path: Path) -> None:
    storage = LocalStorage(str(table_path))
    storage.put(".hoodie/.heartbeat/creation", b'{"process": "x", "pid": 1, "machine": "y"}')
    os.utime(table_path / ".hoodie/.heartbeat/creation", (1, 1))
    bl.save(ROWS, str(table_path), options=OPTIONS)
    with claimed(storage):
        pass
    assert not (table_path / ".hoodie/.heartbeat/creation").exists()


HINTS = {
    "slash": f"url_encode=True ({WRITE}partitionpath.urlencode=true)",
    "no such column": f"record_key ({WRITE}recordkey.field) names",
    "index": "hoodie.metadata.enable",
    "custom": f"{WRITE}partitionpath.field",
    "custom time": "hoodie.keygen.timebased.timestamp.type",
}


@pytest.mark.parametrize("reason", HINTS)
def test_an_error_of_a_job_names_the_option_and_not_only_the_argument(
    table_path: Path, reason: str
) -> None:
    rows, options = REFUSED[reason]
    with pytest.raises(BucketLakeError) as raised:
        bl.save(rows, str(table_path), options=OPTIONS | options)
    assert HINTS[reason] in str(raised.value)


def test_an_error_about_a_schema_names_the_option_that_allows_the_change(table_path: Path) -> None:
    bl.save(ROWS, str(table_path), options=OPTIONS)
    wider = ROWS.append_column("n", pa.array([1, 2]))
    with pytest.raises(InputError, match=r"merge_schema='add_columns' \(mergeSchema=true\)"):
        bl.save(wider, str(table_path), options=OPTIONS)
