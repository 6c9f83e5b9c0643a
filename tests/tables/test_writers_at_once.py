"""Several writers on one table at once: whoever comes second retries, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.actions import commit
from bucketlake.config.paths_of_table import COMMIT_ORDER_FOLDER, OUTCOME_FOLDER
from bucketlake.errors import CommitConflictError, InputError, TimelineError
from bucketlake.model.file_name import InstantTime
from bucketlake.model.table_type import Operation
from bucketlake.timeline.commit_order import last_turn
from bucketlake.timeline.instant import State
from bucketlake.timeline.open_table import opened_table
from bucketlake.timeline.outcome import read_outcome
from bucketlake.timeline.table_properties import read_table_config
from bucketlake.write import transaction
from bucketlake.write.ingest import delete_partitions, write_records
from bucketlake.write.pack import ArrowSource
from bucketlake.write.target import open_target
from tests.inside import storage_of, upsert_once
from tests.meanwhile import PUTS, dying, meanwhile
from tests.spies import spy

SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
INDEX = bl.PartitionBucket({"a": 3}, default=2)


@pytest.fixture
def table(new_path: Callable[[], str]) -> bl.Table:
    made = bl.create_table(
        new_path(), schema=SCHEMA, record_key=["id"], partition_by=["day"], index=INDEX
    )
    made.upsert(rows("first", range(10)))
    return made


def rows(writer: str, numbers: range, v: int = 0) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": f"{writer}-{n}", "day": "ab"[n % 2], "v": v} for n in numbers], SCHEMA
    )


def persistently(write: Callable[[], object]) -> None:
    for _ in range(200):
        try:
            write()
        except CommitConflictError:
            continue
        return
    raise AssertionError("every attempt met another writer")


def test_writers_and_a_rescale_at_once_lose_and_double_nothing(table: bl.Table) -> None:
    def upsert(writer: str) -> None:
        for batch in range(6):
            records = rows(writer, range(4 * batch, 4 * batch + 4), batch)
            persistently(partial(table.upsert, records))

    def rescale() -> None:
        for buckets in (5, 1, 4):
            rules = {"a": buckets, "b": 6 - buckets}
            persistently(partial(table.rescale, rules, dry_run=False))

    with ThreadPoolExecutor(4) as pool:
        for job in [
            *(pool.submit(upsert, writer) for writer in ("one", "two", "three")),
            pool.submit(rescale),
        ]:
            job.result()
    found = table.to_arrow()
    expected = [("first", n, 0) for n in range(10)]
    expected += [(w, n, n // 4) for w in ("one", "two", "three") for n in range(24)]
    assert sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == sorted(
        (f"{writer}-{n}", v) for writer, n, v in expected
    )
    assert bl.open_table(table.path).index == bl.PartitionBucket({"a": 4, "b": 2}, 2)
    for key, day in zip(found["id"].to_pylist(), found["day"].to_pylist(), strict=True):
        assert len(table.locate(key, day)) == 1
    assert all(i.state is State.COMPLETED for i in table.timeline())
    times = [i.completed_at for i in table.timeline()]
    assert len(set(times)) == len(times)


def test_the_second_of_two_writers_of_one_bucket_is_refused_and_both_instants_are_named(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = []
    meanwhile(monkeypatch, lambda: others.append(table.upsert(rows("first", range(10), 1))))
    with pytest.raises(CommitConflictError, match="changed bucket") as caught:
        upsert_once(table, rows("first", range(10), 2))
    assert others[0].instant in str(caught.value)
    assert caught.value.instant < others[0].instant
    assert set(table.to_arrow()["v"].to_pylist()) == {1}


def test_a_delete_is_refused_where_a_key_came_meanwhile_that_it_had_not_found(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit would say that the key is absent, though it wrote nothing to that bucket."""
    absent, others = rows("new", range(1, 2)), []
    keys = pa.concat_tables([rows("first", range(1)), absent]).select(["id", "day"])
    target = open_target(
        opened_table(storage_of(table), read_table_config(storage_of(table))), None
    )
    meanwhile(monkeypatch, lambda: others.append(table.upsert(absent)))
    with pytest.raises(CommitConflictError, match=r"changed bucket .* of partition 'b'") as caught:
        write_records(target, Operation.DELETE, ArrowSource(keys))
    assert others[0].instant in str(caught.value)
    assert table.delete(keys).deleted == 2


def test_a_writer_by_another_spelling_of_the_path_leaves_one_at_work_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    table = bl.create_table(
        str(tmp_path / "real/t"), schema=SCHEMA, record_key=["id"], partition_by=["day"],
        index=INDEX,
    )  # fmt: skip
    other = bl.open_table(str(tmp_path / "link/t"))
    meanwhile(monkeypatch, lambda: other.upsert(rows("a", range(0, 10, 2))))
    upsert_once(table, rows("b", range(1, 10, 2)))
    assert table.to_arrow().num_rows == 10


def test_a_rescale_meanwhile_makes_the_upsert_retry(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(monkeypatch, lambda: table.rescale({"a": 7}, dry_run=False))
    assert table.upsert(rows("first", range(30), 2)).inserted == 20
    assert table.to_arrow().num_rows == 30


def in_new_partition(numbers: range) -> pa.Table:
    return rows("new", numbers).set_column(1, SCHEMA.field(1), pa.array(["c"] * len(numbers)))


def upsert_between_two_rescales(table: bl.Table, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Pin the table; rescale to one bucket; begin to write; rescale to two again; commit.

    Returns the instants of what came between begin and commit: another upsert, and the rescale.
    """
    others: list[str] = []

    def other() -> None:
        others.append(str(table.upsert(rows("other", range(1, 4, 2))).instant))
        others.append(str(table.rescale({"a": 3}, default=2, dry_run=False).instant))

    target = open_target(
        opened_table(storage_of(table), read_table_config(storage_of(table))), None
    )
    table.rescale({"a": 3}, default=1, dry_run=False)
    meanwhile(monkeypatch, other)
    write_records(target, Operation.UPSERT, ArrowSource(in_new_partition(range(8))))
    return others


def test_a_write_does_not_commit_by_rules_that_began_after_it(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of its time, and after a restore, its rows would lie where the rules do not lead."""
    with pytest.raises(CommitConflictError, match=r"'c', which has 1 bucket from .*retry it"):
        upsert_between_two_rescales(table, monkeypatch)
    assert_each_row_is_in_its_bucket(table)


def test_a_commit_that_began_before_a_rescale_and_completed_after_it_goes_with_it(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is Hudi's, say, which does not look at the times of rules."""
    with mock.patch.object(transaction, "require_same_settings"):
        upserted, rescaled = upsert_between_two_rescales(table, monkeypatch)
    late = table.timeline()[2].requested_at
    assert late < upserted
    with pytest.raises(TimelineError, match=f"1 later commits .*{late}"):
        table.rollback(rescaled)
    gone = table.rollback(upserted, cascade=True).commits
    assert [one.instant for one in gone] == [late, rescaled, upserted]
    assert_each_row_is_in_its_bucket(table)


def assert_each_row_is_in_its_bucket(table: bl.Table) -> None:
    """The next write finds all rows where they are."""
    found = bl.open_table(table.path).to_arrow()
    assert table.upsert(found).updated == found.num_rows
    assert table.to_arrow().num_rows == found.num_rows


@pytest.mark.parametrize("decided", [True, False], ids=["decided", "undecided"])
def test_a_commit_that_died_after_it_took_its_turn_is_finished_or_passed_over(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch, decided: bool
) -> None:
    """And where it is finished, it counts in the check for conflicts."""
    storage = storage_of(table)
    died: list[InstantTime] = []

    def other_dies() -> None:
        with dying(PUTS, OUTCOME_FOLDER, after=decided):
            upsert_once(table, rows("first", range(10), 1))
        turn = last_turn(storage)
        assert turn is not None
        died.append(turn.instant)

    meanwhile(monkeypatch, other_dies)
    if decided:
        with pytest.raises(CommitConflictError, match=r"changed bucket"):
            upsert_once(table, rows("first", range(10), 2))
    else:
        upsert_once(table, rows("first", range(10), 2))
    outcome = read_outcome(storage, died[0])
    assert outcome is not None
    assert outcome.is_rollback is not decided
    assert set(table.to_arrow()["v"].to_pylist()) == {1 if decided else 2}
    table.upsert(rows("first", range(10), 3))
    assert set(table.to_arrow()["v"].to_pylist()) == {3}
    assert all(i.state is State.COMPLETED for i in table.timeline())


def test_a_turn_that_is_taken_between_look_and_put_makes_the_commit_look_again(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(
        monkeypatch, lambda: table.upsert(rows("first", range(10), 1)), PUTS, COMMIT_ORDER_FOLDER
    )
    with pytest.raises(CommitConflictError, match="changed bucket"):
        upsert_once(table, rows("first", range(10), 2))
    assert set(table.to_arrow()["v"].to_pylist()) == {1}


def test_the_metadata_of_a_commit_are_made_before_its_turn(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many files it takes seconds, and others wait for whoever has a turn only so long."""
    storage = storage_of(table)
    turns = spy(monkeypatch, commit, "encode_commit_metadata", lambda *_: last_turn(storage))
    before = last_turn(storage_of(table))
    table.upsert(rows("first", range(10), 1))
    assert turns == [before]


WIDER = SCHEMA.append(pa.field("note", pa.string()))


def noted(writer: str, numbers: range) -> pa.Table:
    batch = rows(writer, numbers)
    return batch.append_column(WIDER.field("note"), pa.array(["new"] * batch.num_rows, pa.string()))


def test_a_column_is_kept_that_is_added_while_a_later_write_of_other_buckets_commits(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest commit tells the schema, by requested times, and that one knows nothing of it."""
    meanwhile(monkeypatch, lambda: table.upsert(rows("first", range(1, 10, 2), 1)))
    added = table.upsert(noted("first", range(0, 10, 2)), merge_schema="add_columns")
    assert added.instant == table.timeline()[-1].requested_at  # It was retried.
    assert table.schema() == WIDER
    assert table.to_arrow()["note"].to_pylist().count("new") == 5


@pytest.mark.parametrize("late", ["delete", "drop"])
def test_a_column_is_kept_that_is_added_before_a_write_that_knows_nothing_of_it_commits(
    table: bl.Table, late: str
) -> None:
    target = open_target(
        opened_table(storage_of(table), read_table_config(storage_of(table))), None
    )
    table.upsert(noted("first", range(0, 10, 2)), merge_schema="add_columns")
    keys = ArrowSource(rows("first", range(1, 3, 2)).select(["id", "day"]))
    write = {
        "delete": lambda: write_records(target, Operation.DELETE, keys),
        "drop": lambda: delete_partitions(target, ["b"]),
    }[late]
    with pytest.raises(CommitConflictError, match="changed the table's schema meanwhile"):
        write()
    assert table.schema() == WIDER
    assert table.to_arrow()["note"].to_pylist().count("new") == 5


def test_of_two_writers_who_add_a_column_in_two_types_the_second_is_told(
    table: bl.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = pa.field("note", pa.int64())
    other = rows("first", range(1, 10, 2)).append_column(number, pa.array([1] * 5))
    meanwhile(monkeypatch, lambda: table.upsert(other, merge_schema="add_columns"))
    with pytest.raises(InputError, match="column note"):
        table.upsert(noted("first", range(0, 10, 2)), merge_schema="add_columns")
    assert table.schema().field("note") == number
    assert table.to_arrow()["note"].to_pylist().count(1) == 5
