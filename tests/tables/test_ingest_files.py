"""Landing zones: each version of each file is taken once, whatever happens to the job."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bucketlake as bl
from bucketlake.config.paths_of_table import LEDGER_FOLDER
from bucketlake.errors import ConfigError, FormatError, InputError
from bucketlake.intake import dead_letters, ledger
from bucketlake.intake.job import Job, JobRules
from bucketlake.intake.landing import LandingZone
from bucketlake.intake.ledger import Ledger
from bucketlake.intake.source_batch import Limits
from bucketlake.intake.streams import BatchesOfStream
from bucketlake.model.retention import CleanPolicy, Retention
from bucketlake.services.cleaning import clean
from bucketlake.storage.memory import MemoryStorage, forget
from bucketlake.table import handle_of
from bucketlake.timeline.instant import InstantClock
from bucketlake.write.input_files.files import InputFile, StoredObject
from bucketlake.write.input_files.reading import FileFormat
from tests.meanwhile import PUTS, dying_at, meanwhile
from tests.waiting import wait_until

_NUMBERS = itertools.count()


@pytest.fixture
def table(tmp_path: Path) -> Iterator[str]:
    name = f"ingested-{next(_NUMBERS)}"
    yield f"memory://{name}"
    forget(name)
    forget(f"{name}_dead_letters")


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    folder = tmp_path / "landing"
    folder.mkdir()
    return folder


def put(folder: Path, name: str, *rows: dict[str, Any] | str, at: int | None = None) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{text}\n" for text in texts))
    if at is not None:
        os.utime(path, (at, at))
    return path


def row(key: str, n: Any = 1, **more: Any) -> dict[str, Any]:
    return {"id": key, "n": n, **more}


def take(landing: Path, table: str, **options: Any) -> Any:
    return bl.ingest(landing, table, record_key="id", index=bl.SimpleBucket(1), **options)


def rows_of(table: str) -> dict[str, Any]:
    found = bl.open_table(table).to_arrow().to_pylist()
    return {row["id"]: row["n"] for row in found}


def written(table: str) -> int:
    """Return how many rows all commits wrote: more than there are if one was taken twice."""
    return sum(entry.written or 0 for entry in bl.open_table(table).timeline())


def letters(table: str) -> list[dict[str, Any]]:
    return bl.open_table(f"{table}_dead_letters").to_arrow().to_pylist()


def test_each_version_of_a_file_is_taken_once_late_rewritten_or_of_one_time(
    landing: Path, table: str
) -> None:
    """Files of one time are skipped elsewhere (hudi#2845, hudi#2850)."""
    put(landing, "b.jsonl", row("a"), row("b"), at=1000)
    first = take(landing, table)
    assert (first.batches, first.rows, first.files, first.lag) == (1, 2, 1, 0)
    assert take(landing, table).batches == 0
    put(landing, "a.jsonl", row("c"), at=900)  # Late, and first by name.
    put(landing, "c.jsonl", row("d"), at=1000)  # Of the same time.
    assert take(landing, table).files == 2
    put(landing, "b.jsonl", row("a", 5), row("b", 6), at=1001)  # Written again, of the same size.
    assert take(landing, table).rows == 2
    assert take(landing, table).batches == 0
    assert rows_of(table) == {"a": 5, "b": 6, "c": 1, "d": 1}
    assert written(table) == 6


def test_an_empty_folder_is_no_error_and_makes_no_table(landing: Path, table: str) -> None:
    assert take(landing, table).batches == 0
    with pytest.raises(bl.TableNotFoundError):
        bl.open_table(table)


def test_folders_give_columns_and_limits_cut_batches(landing: Path, table: str) -> None:
    for n in range(5):
        put(landing, f"day=2026-01-0{n}/hour=__HIVE_DEFAULT_PARTITION__/x.jsonl", row(f"k{n}", n))
    report = take(landing, table, max_files=2, partition_by="day")
    assert (report.batches, report.rows) == (3, 5)
    found = bl.open_table(table).to_arrow().to_pylist()
    assert {r["id"]: (r["day"], r["hour"]) for r in found} == {
        f"k{n}": (f"2026-01-0{n}", None) for n in range(5)
    }
    put(landing, "day=2026-01-09/big.jsonl", row("z"))
    put(landing, "day=2026-01-09/bigger.jsonl", row("y"))
    assert take(landing, table, max_bytes=1).batches == 2


def test_columns_of_csv_and_types_are_those_that_the_caller_names(
    landing: Path, table: str
) -> None:
    put(landing, "day=3/a.csv", "a;1,5", "b;2,5")
    given = bl.files(
        str(landing), separator=";", decimal=",", header=False, columns=["id", "n"],
        folder_columns=True,
    )  # fmt: skip
    bl.ingest(given, table, record_key="id", schema="id string, n double, day int")
    found = bl.open_table(table).to_arrow(columns=["id", "n", "day"]).to_pylist()
    assert sorted(map(tuple, map(dict.values, found))) == [("a", 1.5, 3), ("b", 2.5, 3)]


def test_the_ledger_goes_back_with_a_rollback_and_a_restore(landing: Path, table: str) -> None:
    put(landing, "1.jsonl", row("a"))
    take(landing, table)
    made = bl.open_table(table)
    point = made.savepoint()
    put(landing, "2.jsonl", row("b"))
    take(landing, table)
    made.rollback(made.timeline()[-1].requested_at)
    assert rows_of(table) == {"a": 1}
    assert take(landing, table).files == 1
    put(landing, "3.jsonl", row("c"))
    take(landing, table)
    made.restore(point)
    assert take(landing, table).files == 2
    assert rows_of(table) == {"a": 1, "b": 1, "c": 1}


def test_the_ledger_is_carried_on_by_other_writes_and_archived_commits(
    landing: Path, table: str
) -> None:
    put(landing, "1.jsonl", row("a"))
    take(landing, table)
    made = bl.open_table(table)
    for n in range(6):
        made.upsert([row("other", n)])
    made.archive(keep_min=1, keep_max=2)
    made.clean(retain_commits=1)
    assert take(landing, table).batches == 0
    assert made.position("files").last == {"batch": 0}


def test_a_ledger_of_many_batches_has_few_parts_and_a_clean_deletes_the_others(
    landing: Path, table: str
) -> None:
    for n in range(20):
        put(landing, f"{n:02}.jsonl", row(f"k{n}"))
    take(landing, table, max_files=1)
    made = bl.open_table(table)
    parts = (made.position("files").state or "").split()
    assert 1 <= len(parts) <= 5
    storage = handle_of(made).storage
    made.archive(keep_min=1, keep_max=2)
    listed = [*storage.list(LEDGER_FOLDER)]
    assert len(listed) == 20
    old = max(part.modified_at_ms for part in listed) + 24 * 3_600_000
    opened = replace(handle_of(made).open(), clock=InstantClock("UTC", lambda: old))
    clean(opened, Retention(CleanPolicy.COMMITS, 1))
    assert {part.name for part in storage.list(LEDGER_FOLDER)} >= {*parts}
    assert len([*storage.list(LEDGER_FOLDER)]) <= 5
    assert take(landing, table).batches == 0


ZONE = MemoryStorage.fresh()


def entry(path: str, size: int = 1, changed: int = 1) -> InputFile:
    return InputFile(ZONE, StoredObject(path, size, changed), FileFormat.JSONL)


def test_a_version_is_known_by_its_etag_where_the_storage_gives_one() -> None:
    """Object stores have times of whole seconds; a part of an old job has no etags."""
    storage = MemoryStorage.fresh()
    old = entry("a")
    one, two = (replace(old, stored=replace(old.stored, etag=etag)) for etag in ("one", "two"))
    known = Ledger(storage).with_taken([one], [one], now_ms=0)
    assert known.unseen([one, two]) == [two]
    known = known.with_taken([two], [two], now_ms=0)
    assert Ledger(storage).at(storage, known.state, "here").unseen([one, two]) == []
    known = Ledger(storage).with_taken([old], [old], now_ms=0)
    path = f"{LEDGER_FOLDER}/{known.parts[0]}"
    rows = pq.read_table(pa.BufferReader(storage.read(path)))
    sink = pa.BufferOutputStream()
    pq.write_table(rows.drop_columns(["etag"]), sink)
    storage.put(path, sink.getvalue())
    assert Ledger(storage).at(storage, known.state, "here").unseen([one, two]) == []


def test_files_of_a_list_are_taken_once_whichever_list_names_them(
    landing: Path, table: str
) -> None:
    one, two = landing / "1.jsonl", landing / "2.jsonl"
    one.write_text('{"id": "a"}\n')
    two.write_text('{"id": "b"}\n')
    lists = [[one], [one, two, one], [two], [one, landing / "gone.jsonl"]]
    files = [bl.files([str(path) for path in paths]) for paths in lists]
    assert [bl.ingest(given, table, record_key="id").rows for given in files] == [1, 1, 0, 0]


def test_a_file_that_is_gone_is_forgotten_after_days_when_all_parts_are_merged() -> None:
    storage = MemoryStorage.fresh()
    one, two = entry("a"), entry("b")
    known = Ledger(storage).with_taken([one, two], [one, two], now_ms=0)
    later = known.with_taken([entry("c")], [two, entry("c")], now_ms=ledger.FORGET_AFTER_MS - 1)
    assert later.unseen([one, two]) == []
    more = [entry("d"), entry("e")]
    last = later.with_taken(more, [two, *more], now_ms=ledger.FORGET_AFTER_MS + 5)
    assert last.unseen([one, two, entry("c")]) == [one]
    again = Ledger(storage).at(storage, last.state, "here")
    assert again.unseen([entry("b", size=2), entry("b", changed=2), two]) == [
        entry("b", size=2), entry("b", changed=2),
    ]  # fmt: skip


@pytest.mark.parametrize("state", ["../x", "1-zz.parquet", "5"])
def test_a_position_that_names_no_part_is_refused(state: str) -> None:
    storage = MemoryStorage.fresh()
    with pytest.raises(FormatError, match="names of parts of a ledger"):
        Ledger(storage).at(storage, state, "commit 1")


def test_a_lost_part_of_the_ledger_is_an_error_that_names_it(landing: Path, table: str) -> None:
    put(landing, "1.jsonl", row("a"))
    take(landing, table)
    storage = handle_of(bl.open_table(table)).storage
    for part in storage.list(LEDGER_FOLDER):
        storage.delete(part.path)
    put(landing, "2.jsonl", row("b"))
    with pytest.raises(FormatError, match=r"ledgers/1-\w+\.parquet: expected a part of the ledger"):
        take(landing, table)
    assert rows_of(table) == {"a": 1}


@pytest.mark.parametrize("part", range(10))
def test_killed_at_a_change_of_storage_a_job_takes_each_file_once(landing: Path, part: int) -> None:
    """The job starts again after each death, and then a round finds nothing more."""
    for name in "12":
        put(landing, f"{name}.jsonl", row(name), row("x", 0), f'{{"id": null, "n": {name}}}')
    name = f"killed-{next(_NUMBERS)}"
    table = f"memory://{name}"
    with dying_at(1_000_000) as steps:
        take(landing, table, max_files=1)
    last = steps.count
    forget(name)
    forget(f"{name}_dead_letters")
    with dying_at(1 + part * last // 10 + part % 3) as steps:
        take(landing, table, max_files=1)
    assert steps.reached
    take(landing, table, max_files=1)
    assert take(landing, table).batches == 0
    assert rows_of(table) == {"1": 1, "2": 1, "x": 0}
    assert written(table) == 4
    assert [letter["value"] for letter in letters(table)] == [
        b'{"id": null, "n": 1}', b'{"id": null, "n": 2}',
    ]  # fmt: skip
    assert bl.open_table(table).position("files").last == {"batch": 1}
    forget(name)
    forget(f"{name}_dead_letters")


def test_of_two_jobs_at_once_one_takes_a_file_and_the_other_goes_on_after_it(
    landing: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(landing, "1.jsonl", row("a"))
    take(landing, table)
    put(landing, "2.jsonl", row("b"))
    put(landing, "3.jsonl", row("c"))
    meanwhile(monkeypatch, lambda: take(landing, table, max_files=1), PUTS, LEDGER_FOLDER)
    take(landing, table)
    assert rows_of(table) == {"a": 1, "b": 1, "c": 1}
    assert written(table) == 3
    assert take(landing, table).batches == 0


def test_a_file_that_changes_between_listing_and_reading_is_taken_in_its_new_version(
    landing: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(landing, "1.jsonl", row("a"))
    take(landing, table)
    put(landing, "2.jsonl", row("b"))
    meanwhile(
        monkeypatch, lambda: put(landing, "2.jsonl", row("b", 77)), PUTS, LEDGER_FOLDER, after=True
    )
    take(landing, table)
    assert rows_of(table) == {"a": 1, "b": 77}
    assert take(landing, table).batches == 0


BAD = ['{"id": "x", "n": "text"}', '{"id": null, "n": 3}', "{broken", '{"id": "y", "n": 9e99}']


def test_a_row_that_cannot_be_taken_is_a_dead_letter_with_reason_and_bytes(
    landing: Path, table: str
) -> None:
    put(landing, "1.jsonl", row("a"))
    take(landing, table)
    put(landing, "2.jsonl", row("b"), *BAD[:3], row("c"))
    put(landing, "3.parquet", "no Parquet")
    report = take(landing, table)
    assert (report.rows, report.dead_letters) == (2, 4)
    assert rows_of(table) == {"a": 1, "b": 1, "c": 1}
    found = {letter["value"]: letter for letter in letters(table)}
    assert found.keys() == {*(text.encode() for text in BAD[:3]), b"no Parquet\n"}
    assert "column n" in found[BAD[0].encode()]["reason"]
    assert "null or empty key" in found[BAD[1].encode()]["reason"]
    assert "Parquet" in found[b"no Parquet\n"]["reason"]
    letter = found[BAD[1].encode()]
    assert (letter["table"], letter["source"], letter["offset"]) == (table, "files", 2)
    assert str(landing) in letter["partition"]
    assert letter["at"] is not None
    position = bl.open_table(table).position("files")
    assert position is not None
    counts = [int(part.partition("-")[0]) for part in (position.state or "").split()]
    assert sum(counts) == 3  # Each file once, though the batch was refused before.
    assert take(landing, table).batches == 0


def test_rows_of_csv_are_letters_with_the_header_as_key(landing: Path, table: str) -> None:
    put(landing, "1.csv", "id,n", "a,1", "b,2")
    take(landing, table)
    put(landing, "2.csv", "id,n", "c,3", "d,x", ",5")
    put(landing, "3.csv", "id,n", '"e",x')  # With a quote: lines may be parts of rows.
    assert take(landing, table).dead_letters == 3
    assert rows_of(table) == {"a": 1, "b": 2, "c": 3}
    found = {(x["key"], x["value"], x["offset"]) for x in letters(table)}
    assert found == {
        (b"id,n", b"d,x", 2), (b"id,n", b",5", 3), (None, b'id,n\n"e",x\n', -1),
    }  # fmt: skip


def test_replay_takes_corrected_letters_and_keeps_the_others(landing: Path, table: str) -> None:
    put(landing, "1.csv", "id,n", "a,1")
    take(landing, table)
    put(landing, "day=4/2.csv", "id,n", "d,x", ",5")
    put(landing, "day=4/3.jsonl", row("z", "x"))
    take(landing, table)
    same = take(landing, table, replay=True)
    assert (same.rows, same.dead_letters) == (0, 3)
    dead = bl.open_table(f"{table}_dead_letters")
    [letter] = [found for found in letters(table) if found["value"] == b"d,x"]
    dead.upsert(pa.Table.from_pylist([{**letter, "value": b"d,7"}], dead_letters.LETTERS))
    again = take(landing, table, replay=True)
    assert (again.rows, again.dead_letters) == (1, 2)
    found = bl.open_table(table).to_arrow().to_pylist()
    assert {r["id"]: (r["n"], r["day"]) for r in found} == {"a": (1, None), "d": (7, "4")}
    assert len(letters(table)) == 2


def test_a_bad_row_stops_a_job_that_shall_and_nothing_is_written(landing: Path, table: str) -> None:
    put(landing, "1.jsonl", row("a"))
    take(landing, table)
    put(landing, "2.jsonl", row("b"), BAD[0])
    with pytest.raises(InputError, match=r"2\.jsonl.* 1: column n.*on_bad_row='dead_letter'"):
        take(landing, table, on_bad_row="fail")
    assert rows_of(table) == {"a": 1}
    assert bl.open_table(table).position("files").last == {"batch": 0}
    with pytest.raises(bl.TableNotFoundError):
        letters(table)


def test_bad_rows_of_the_first_file_do_not_keep_the_table_from_being_made(
    landing: Path, table: str
) -> None:
    put(landing, "1.jsonl", "{broken", row("a"), '{"id": null, "n": 2}')
    assert take(landing, table).dead_letters == 2
    assert rows_of(table) == {"a": 1}


def test_columns_that_come_are_added_wider_types_widen_and_lacking_ones_are_null(
    landing: Path, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    bl.create_table(table, schema="id string, n int, old string", record_key="id")
    put(landing, "1.jsonl", row("a", 1, old="x"))
    take(landing, table)
    put(landing, "2.jsonl", row("b", 3_000_000_000, old="y", new="z"))
    take(landing, table)
    put(landing, "3.csv", "id,n,new", "c,1,w")
    with caplog.at_level("WARNING", "bucketlake"):
        take(landing, table)
    assert "nulls are written" in caplog.text
    found = {
        r["id"]: (r["n"], r["old"], r["new"]) for r in bl.open_table(table).to_arrow().to_pylist()
    }
    assert found == {"a": (1, "x", None), "b": (3_000_000_000, "y", "z"), "c": (1, None, "w")}


def test_the_first_files_may_have_different_columns(landing: Path, table: str) -> None:
    put(landing, "1.csv", "id,n", "a,1")
    put(landing, "2.csv", "id,n,city", "b,2,Rome")
    assert take(landing, table).rows == 2
    found = {row["id"]: row["city"] for row in bl.open_table(table).to_arrow().to_pylist()}
    assert found == {"a": None, "b": "Rome"}


def test_files_that_make_no_table_leave_no_dead_letters(landing: Path, table: str) -> None:
    put(landing, "1.jsonl", row("a"), row("b", "text"), '{"n": 2}')
    for way in ({}, {"dry_run": True}):
        with pytest.raises(InputError, match=r"1\.jsonl, row 2, column n.*--set schema="):
            take(landing, table, **way)
    for path in (table, f"{table}_dead_letters"):
        with pytest.raises(bl.TableNotFoundError):
            bl.open_table(path)


def test_a_dry_run_shows_rows_and_writes_nothing(landing: Path, table: str) -> None:
    put(landing, "1.jsonl", *[row(f"k{n}", n) for n in range(150)], BAD[2])
    report = take(landing, table, dry_run=True)
    assert report.preview.num_rows == 100
    assert report.preview["n"].to_pylist() == [*range(100)]
    with pytest.raises(bl.TableNotFoundError):
        bl.open_table(table)


def test_metrics_are_lines_of_json_and_a_text_for_prometheus(
    landing: Path, table: str, tmp_path: Path
) -> None:
    lines, text = tmp_path / "m.jsonl", tmp_path / "m.prom"
    for n in range(3):
        put(landing, f"{n}.jsonl", row(f"k{n}"))
    take(landing, table, max_files=2, metrics=[lines, text], dead_letters=tmp_path)
    told = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [(t["rows"], t["files"], t["lag"]) for t in told] == [(2, 2, 1), (1, 1, 0)]
    assert f'bucketlake_ingest_rows_total{{table="{table}"}} 3\n' in text.read_text()
    assert f'bucketlake_ingest_lag{{table="{table}"}} 0\n' in text.read_text()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"metrics": "m.txt"}, "metrics"),
        ({"on_bad_row": "drop"}, "give 'dead_letter' or 'fail'"),
        ({"on_bad_row": None}, "give 'dead_letter' or 'fail'"),
        ({"max_files": 0}, "max_files"),
        ({"every": -1}, "every"),
        ({"dry_run": True, "replay": True}, "leave out dry_run"),
        ({"orderin": "n"}, "ordering"),
        ({"envelope": "row"}, "option of topics"),
        ({"max_rows": 10}, "option of topics; leave it out"),
        ({"checkpoint": "here"}, "option of streams; leave it out"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused(
    options: dict[str, Any], told: str, landing: Path, table: str
) -> None:
    put(landing, "1.jsonl", row("a"))
    with pytest.raises(ConfigError, match=told):
        take(landing, table, **options)


def test_a_new_table_needs_the_name_of_its_key(landing: Path, table: str) -> None:
    put(landing, "1.jsonl", row("a"))
    with pytest.raises(ConfigError, match="record_key"):
        bl.ingest(str(landing), table)
    with suppress(bl.TableNotFoundError):
        assert bl.open_table(table).count() == 0


def test_a_job_without_end_stops_at_sigterm_after_its_batch(
    landing: Path, table: str, tmp_path: Path
) -> None:
    put(landing, "1.jsonl", row("a"))
    lines = tmp_path / "m.jsonl"

    ended = threading.Event()

    def stop_after_a_batch() -> None:
        wait_until(lambda: lines.exists() or ended.is_set())
        if not ended.is_set():  # A signal to a job that failed would end the tests.
            os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=stop_after_a_batch)
    watcher.start()
    try:
        report = take(landing, table, every=60, metrics=lines)
    finally:
        ended.set()
        watcher.join()
    assert report.batches == 1
    assert rows_of(table) == {"a": 1}


def test_files_that_are_begun_wait_and_blank_ones_are_dead_letters(
    landing: Path, table: str
) -> None:
    empty = [landing / name for name in ("0.csv", "0.parquet", "0.jsonl.gz")]
    for path in empty:
        path.touch()
    assert take(landing, table).batches == 0
    put(landing, "1.jsonl", row("a"))
    assert take(landing, table).files == 1
    (landing / "2.csv").write_text("\n\n")
    report = take(landing, table)
    assert (report.files, report.rows, report.dead_letters) == (1, 0, 1)
    [letter] = letters(table)
    assert (letter["value"], letter["offset"]) == (b"\n\n", -1)
    empty[0].write_text("id,n\nb,2\n")
    assert take(landing, table).files == 1
    assert rows_of(table) == {"a": 1, "b": 2}


@pytest.mark.parametrize("of_dms", [False, True])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_file_that_is_moved_between_listing_and_reading_is_taken_where_it_is(
    landing: Path, table: str, monkeypatch: pytest.MonkeyPatch, of_dms: bool, is_first: bool
) -> None:
    given: dict[str, Any] = {"envelope": "dms", "ordering": "n"} if of_dms else {}
    if not is_first:
        put(landing, "1.jsonl", row("a", Op="I"))
        take(landing, table, **given)
    moved, kept = put(landing, "2.jsonl", row("b", Op="I")), put(landing, "3.jsonl", row("c"))
    real = LandingZone._listed

    def listed(zone: LandingZone) -> list[InputFile]:
        found = real(zone)
        if moved.exists():
            moved.rename(landing / "9.jsonl")
        return found

    monkeypatch.setattr(LandingZone, "_listed", listed)
    assert take(landing, table, **given).files == 2
    assert kept.exists()
    assert [*sorted(rows_of(table))] == (["b", "c"] if is_first else ["a", "b", "c"])
    assert take(landing, table, **given).batches == 0


def test_a_name_that_is_no_utf8_is_an_error_that_names_the_file(landing: Path, table: str) -> None:
    put(landing, "1.jsonl", row("a"))
    for name in (b"caf\xe9.jsonl", b"day=\xe9/a.jsonl"):
        path = landing / os.fsdecode(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text('{"id": "b"}')
        with pytest.raises(InputError, match=r"(caf|day=)\?.*: the name of the file is not UTF-8"):
            take(landing, table)
        path.unlink()
    put(landing, "caf\u00e9.jsonl", row("b"))
    assert take(landing, table).files == 2


def test_a_job_takes_all_files_again_after_its_table_is_dropped(
    landing: Path, tmp_path: Path
) -> None:
    table = str(tmp_path / "table")
    rules = JobRules({"record_key": "id", "index": bl.SimpleBucket(1)})
    job = Job(LandingZone(bl.files(str(landing)), table, "files", Limits()), rules)
    put(landing, "1.jsonl", row("a"))
    job.run(None)
    shutil.rmtree(table)
    put(landing, "2.jsonl", row("b"))
    job.run(None)
    assert rows_of(table) == {"a": 1, "b": 1}


def test_a_row_of_a_stream_that_cannot_be_taken_leaves_those_with_maps(table: str) -> None:
    """It is looked for in the rows as JSON, and kept so."""
    rules = JobRules({"record_key": "id", "index": bl.SimpleBucket(1)})
    stream, kinds = BatchesOfStream(table, "s", rules), {"id": "string", "m": "map<string,bigint>"}
    columns = pa.schema([("id", pa.string()), ("m", pa.map_(pa.string(), pa.int64()))])
    rows = [{"id": key, "m": [("k", 5)]} for key in ("a", None)]
    stream(pa.Table.from_pylist(rows, columns), 0)
    assert bl.open_table(table).to_arrow(columns=[*kinds]).to_pylist() == rows[:1]
    [letter] = letters(table)
    assert json.loads(letter["value"]) == {"id": None, "m": {"k": 5}}
    corrected = [{**letter, "value": b'{"id": "b", "m": {"k": 6}}'}]
    dead = bl.open_table(f"{table}_dead_letters")
    dead.upsert(pa.Table.from_pylist(corrected, dead.schema()))
    assert Job(stream, rules).replay().rows == 1
