"""Topics by positions in the commit: each message once, or an error that names what is gone."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

import bucketlake as bl
from bucketlake.cdc.envelope import MESSAGE
from bucketlake.cdc.message_settings import PLACEHOLDER
from bucketlake.errors import ConfigError, InputError
from bucketlake.intake import topics
from bucketlake.intake.dead_letters import LETTERS
from bucketlake.intake.ingesting import IngestOptions, topics_of
from bucketlake.intake.job import Job, JobRules
from bucketlake.intake.metrics import IngestReport
from bucketlake.storage.memory import forget
from tests.bounds import set_bounds
from tests.broker import Broker, encoded, job_of
from tests.cdc_streams import as_texts, kinds_of, messages, rows_at_end
from tests.meanwhile import PUTS, meanwhile
from tests.spies import spy

_NUMBERS = itertools.count()
SCHEMA = "id string, n bigint"


def row(key: str, n: Any = 1, **more: Any) -> dict[str, Any]:
    return {"id": key, "n": n, **more}


@pytest.fixture
def root() -> Iterator[str]:
    name = f"topics{next(_NUMBERS)}"
    yield f"memory://{name}"
    for one in ("orders", "clicks", "orders_dead_letters", "clicks_dead_letters"):
        forget(f"{name}/{one}")


def job(broker: Broker, table: Any, **options: Any) -> Job:
    messages = {"envelope": "row", "schema": SCHEMA} | options.pop("messages", {})
    bad = options.pop("on_bad_row", "dead_letter")
    return job_of(broker, table, messages, keeps_bad=bad != "fail", **options)


def take(broker: Broker, root: str, **options: Any) -> IngestReport:
    return job(broker, f"{root}/{{topic}}", **options).run(None)


def rows_of(table: str) -> dict[str, Any]:
    return {row["id"]: row["n"] for row in bl.open_table(table).to_arrow().to_pylist()}


def last(table: str, source: str = "orders") -> dict[str, int] | None:
    found = bl.open_table(table).position(source)
    return None if found is None else dict(found.last)


def test_topics_become_tables_with_the_key_of_the_messages_and_go_on_after_the_position(
    root: str,
) -> None:
    broker = Broker()
    broker.send("orders", row("a"), row("b"))
    broker.send("orders", row("c"), partition=1)
    broker.send("clicks", row("x", 7))
    first = take(broker, root)
    assert (first.batches, first.rows, first.lag) == (2, 4, 0)
    sent = [len(k) + len(v) for topic in broker.topics.values() for p in topic for k, v, _ in p]
    assert sum(sent) <= first.bytes < 8 * sum(sent), "with the offsets and names around them"
    assert rows_of(f"{root}/orders") == {"a": 1, "b": 1, "c": 1}
    assert rows_of(f"{root}/clicks") == {"x": 7}
    assert last(f"{root}/orders") == {"0": 1, "1": 0}
    config = bl.open_table(f"{root}/orders").config()
    assert config.key_spec.record_key_fields == ("id",)
    assert config.ordering_fields == ("_position",)
    assert take(broker, root).batches == 0
    broker.send("orders", row("a", 5), ({"id": "b"}, None))
    broker.reads.clear()
    assert take(broker, root).batches == 1
    assert broker.reads == [("orders", {0: 2, 1: 1}, {0: 4, 1: 1})]
    assert rows_of(f"{root}/orders") == {"a": 5, "c": 1}
    assert last(f"{root}/orders") == {"0": 3, "1": 0}


def test_a_round_after_a_whole_one_reads_what_came_since_and_looks_at_no_ends(
    root: str,
) -> None:
    broker = Broker()
    broker.send("orders", row("a"))
    broker.send("clicks", row("x"))
    made = job(broker, f"{root}/{{topic}}", max_rows=3)
    made.run(None)

    def after(*, looked: bool) -> int:
        looks, batches = broker.looks, made.metrics.total().batches
        made.run(None)
        assert (broker.looks > looks) == looked
        return made.metrics.total().batches - batches

    assert after(looked=False) == 0
    broker.send("orders", row("b"), row("b", 2))
    broker.send("clicks", ({"id": "x"}, None))
    assert after(looked=False) == 2
    assert (rows_of(f"{root}/orders"), rows_of(f"{root}/clicks")) == ({"a": 1, "b": 2}, {})
    assert last(f"{root}/orders") == {"0": 2}
    broker.send("orders", *[row(f"k{n}") for n in range(4)])  # More than a batch.
    assert after(looked=True) == 2
    broker.send("views", row("a"))  # Another topic.
    broker.topics["orders"].append([])
    broker.send("orders", row("c"), partition=2)  # Another partition.
    assert after(looked=True) == 2
    table = bl.open_table(f"{root}/orders")
    table.rollback(table.timeline()[-1].requested_at)
    assert after(looked=False) == 1
    assert last(f"{root}/orders") == {"0": 6, "2": 0}
    broker.send("orders", row("d"), row("e"))
    broker.begins["orders", 0] = 8
    with pytest.raises(InputError, match=r"orders, partition 0: records 7 to 7 are gone"):
        made.run(None)
    broker.begins.clear()
    broker.topics["orders"][0] = []
    with pytest.raises(InputError, match="partition 0: it ends at -1, and 6 is stored"):
        made.run(None)


def test_the_beginnings_of_all_topics_are_looked_for_once_a_round(root: str) -> None:
    broker = Broker()
    for topic in ("orders", "clicks"):
        broker.send(topic, *[row(f"k{n}") for n in range(6)])  # The other partition is empty.
    made = job(broker, f"{root}/{{topic}}", max_rows=2)
    assert made.run(None).batches == 6
    assert broker.searches == 1
    broker.send("orders", *[row(f"m{n}") for n in range(6)])
    assert made.run(None).batches == 9
    assert broker.searches == 2


def test_batches_have_a_limit_and_tell_what_is_left(root: str) -> None:
    broker = Broker()
    broker.send("orders", *[row(f"k{n}", n) for n in range(10)])
    broker.begins["orders", 0] = 0
    report = take(broker, root, max_rows=4)
    assert (report.batches, report.rows, report.lag) == (3, 10, 0)
    assert last(f"{root}/orders") == {"0": 9}
    assert [entry.written for entry in bl.open_table(f"{root}/orders").timeline()] == [4, 4, 2]


def test_a_topic_goes_to_the_table_that_is_named_for_it(root: str) -> None:
    broker = Broker()
    broker.send("orders", row("a"))
    broker.send("clicks", row("x"))
    with pytest.raises(ConfigError, match="name the table of topic 'clicks'"):
        job(broker, {"orders": f"{root}/orders"}).run(None)
    with pytest.raises(InputError, match=r"topic order: there is no such topic.*orders"):
        job(broker, {"order": f"{root}/orders"}).run(None)
    both = {"orders": f"{root}/orders", "clicks": f"{root}/orders"}
    job(broker, both, name="east", new_table={"ordering": "n"}).run(None)
    assert rows_of(f"{root}/orders") == {"a": 1, "x": 1}
    assert last(f"{root}/orders", "east/clicks") == {"0": 0}


def test_offsets_of_two_topics_do_not_order_one_table(root: str) -> None:
    broker, table = Broker(), f"{root}/orders"
    broker.send("orders", row("a"))
    take(broker, root)
    broker.send("clicks", row("x"))
    told = r"topic clicks into .*topic orders fills it, too; .*own table.*ordering="
    for path in ({"orders": table, "clicks": table}, table):
        with pytest.raises(InputError, match=told):
            job(broker, path).run(None)
    del broker.topics["orders"]
    with pytest.raises(InputError, match=told):  # The topic of another job.
        job(broker, table, name="west").run(None)
    broker.send("orders", row("a"))
    with pytest.raises(InputError, match=r"topic (clicks|orders) into memory.*/new: offsets order"):
        job(broker, f"{root}/new").run(None)
    with pytest.raises(bl.TableNotFoundError):
        bl.open_table(f"{root}/new")
    assert rows_of(table) == {"a": 1}
    assert bl.open_table(table).position("clicks") is None


def too_much() -> InputError:
    """Return the error of a DataFrame with more bytes than Spark hands over."""
    error = InputError("messages", "too many bytes", "raise spark.driver.maxResultSize")
    error.is_too_much = True
    return error


def hand_over(monkeypatch: pytest.MonkeyPatch, rows_max: int) -> None:
    """Let reads of messages give up to so many rows, and fail as Spark does with more."""

    def some(rows: pa.Table, wanted: int | None, _role: str = "") -> pa.Table:
        rows = rows.slice(0, wanted)
        if len(rows) > rows_max:
            raise too_much()
        return rows

    monkeypatch.setattr(topics, "sample_rows", some)


def test_messages_that_are_too_many_for_the_driver_are_left_to_tasks_and_then_fewer_are_fetched(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_bounds(monkeypatch, topics, MEASURED_ROWS=2)
    hand_over(monkeypatch, 5)
    broker = Broker()
    broker.send("orders", *[row(f"k{n}", n) for n in range(40)])
    made = job(broker, f"{root}/orders", max_rows=10)
    fetched = spy(monkeypatch, topics.Topics, "_fetch", lambda *given: given[-2])
    assert made.run(None).rows == 40
    assert fetched == [{0: 10, 1: 0}], "one failed, and no more were as large"
    assert rows_of(f"{root}/orders") == {f"k{n}": n for n in range(40)}


def test_a_batch_that_was_fetched_ahead_is_left_if_another_job_moved_the_position(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, path = Broker(), f"{root}/orders"
    broker.send("orders", *[row(f"k{n}", n) for n in range(40)])
    made = job(broker, path, max_rows=10)

    def note(rows: pa.Table, *_: object) -> tuple[int, bool]:
        return len(rows), "value" in rows.column_names

    fetched = spy(monkeypatch, topics, "sample_rows", note)
    batches = made.source.batches(made.rules.opened)
    made.take(next(batches))
    assert broker.reads[-1] == ("orders", {0: 10, 1: 0}, {0: 20, 1: 0}), "ahead of its turn"
    other = job(broker, path, max_rows=5)
    other.take(next(other.source.batches(other.rules.opened)))
    for batch in batches:
        made.take(batch)
    assert fetched.count((10, True)) == 4, "from 0; from 10 in vain; from 15; from 25"
    assert bl.open_table(path).position("orders").last["0"] == 39
    assert rows_of(path) == {f"k{n}": n for n in range(40)}


def test_letters_that_are_too_many_for_the_driver_are_looked_for_in_smaller_batches(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker()
    broker.send("orders", row("a"))
    take(broker, root)
    broker.send("orders", *[row(f"k{n}") for n in range(9)], ({}, {"n": 4}), row("z"))
    hand_over(monkeypatch, 4)
    report = take(broker, root)
    assert (report.rows, report.dead_letters) == (10, 1)
    assert len(rows_of(f"{root}/orders")) == 11
    broker.send("orders", ({}, {"n": 4}))
    hand_over(monkeypatch, 0)
    with pytest.raises(InputError, match=r"orders: a message of 1 cannot .*raise spark.driver."):
        take(broker, root)
    assert last(f"{root}/orders") == {"0": 11}


def test_a_topic_of_bad_messages_is_an_error_of_the_settings(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker()
    broker.send("orders", *[row(f"k{n}", "text") for n in range(4)])
    for module in ("job", "dead_letters", "topics"):
        set_bounds(monkeypatch, f"bucketlake.intake.{module}", BAD_ROWS_MAX=3)
    with pytest.raises(InputError, match=r"more than 3 rows of one batch .*: it cannot be read"):
        take(broker, root)
    for path in ("orders", "orders_dead_letters"):
        with pytest.raises(bl.TableNotFoundError):
            bl.open_table(f"{root}/{path}")


def test_the_key_of_a_new_table_is_that_of_the_first_message_with_one(root: str) -> None:
    broker = Broker()
    broker.send("orders", (None, row("x")), ("7", row("y")), row("a"))
    assert take(broker, root).dead_letters == 1
    assert bl.open_table(f"{root}/orders").config().key_spec.record_key_fields == ("id",)


def change(op: str, key: str | None, lsn: int, before: Any, after: Any) -> tuple[Any, Any]:
    source = {"connector": "postgresql", "lsn": lsn, "sequence": f'["{lsn}","{lsn}"]'}
    return {"id": key}, {"before": before, "after": after, "op": op, "source": source}


def test_a_bad_row_beside_a_row_whose_key_changed_takes_no_header_from_it(root: str) -> None:
    """The row lacks a value, and its header names the key of the row that has it."""
    broker, held = Broker(), {"envelope": "debezium", "schema": "id string, note string"}
    broker.send("orders", change("c", "a", 5, None, {"id": "a", "note": "long"}))
    take(broker, root, messages=held)
    moved = {"id": "b", "note": PLACEHOLDER}
    told = {"__debezium.oldkey": b'{"id": "a"}'}
    broker.send("orders", change("d", "a", 6, {"id": "a", "note": None}, None))
    broker.send("orders", (*change("c", "b", 6, None, moved), told))
    broker.send("orders", change("c", None, 7, None, {"id": None, "note": "x"}))
    assert take(broker, root, messages=held).dead_letters == 1
    rows = bl.open_table(f"{root}/orders").to_arrow().to_pylist()
    assert [(row["id"], row["note"]) for row in rows] == [("b", "long")]


def test_declared_columns_that_contradict_the_table_are_an_error_and_no_dead_letters(
    root: str,
) -> None:
    bl.create_table(f"{root}/orders", schema="id string, n string", record_key="id")
    broker = Broker()
    broker.send("orders", row("a"), row("b"))
    with pytest.raises(InputError, match="column n: the table holds string, the batch bigint"):
        take(broker, root)
    with pytest.raises(bl.TableNotFoundError):
        bl.open_table(f"{root}/orders_dead_letters")
    assert take(broker, root, messages={"schema": "id string, n string"}).rows == 2


def test_records_that_expired_are_an_error_that_names_the_range(root: str) -> None:
    """They are skipped without a word elsewhere (hudi#5400)."""
    broker = Broker()
    broker.send("orders", row("a"), row("b"))
    take(broker, root)
    broker.send("orders", *[row(f"k{n}") for n in range(8)])
    broker.begins["orders", 0] = 6
    with pytest.raises(InputError, match=r"orders, partition 0: records 2 to 5 are gone"):
        take(broker, root)
    assert rows_of(f"{root}/orders") == {"a": 1, "b": 1}
    broker.begins["orders", 0] = 10
    with pytest.raises(InputError, match=r"orders, partition 0: records 2 to 8 are gone"):
        take(broker, root)
    broker.begins["orders", 0] = 2
    take(broker, root)
    assert last(f"{root}/orders") == {"0": 9}


@pytest.mark.parametrize("begin", [None, 0])
def test_a_topic_that_was_made_anew_is_an_error(root: str, begin: int | None) -> None:
    """Its records are skipped elsewhere up to the stored offset (hudi#5823)."""
    broker = Broker()
    broker.send("orders", row("a"), row("b"))
    take(broker, root)
    broker.topics.clear()
    broker.send("orders", row("z"))
    with pytest.raises(InputError, match="partition 0: it ends at 0, and 1 is stored as written"):
        take(broker, root)
    broker.topics["orders"] = []
    with pytest.raises(InputError, match="partition 0: it is gone, and 1 is stored"):
        take(broker, root)


def test_a_position_of_another_job_is_an_error_that_names_it(root: str) -> None:
    broker = Broker()
    broker.send("orders", row("a"))
    take(broker, root)
    table = bl.open_table(f"{root}/orders")
    rows = table.to_arrow(columns=["id", "n", "_position"])
    table.upsert(rows, position=bl.Position("orders", {"chunk": 5}))
    with pytest.raises(InputError, match=r"topic orders: .* partition 'chunk'.* name="):
        take(broker, root)


def test_a_new_partition_is_read_from_its_beginning(root: str) -> None:
    broker = Broker()
    broker.send("orders", row("a"))
    take(broker, root)
    broker.topics["orders"].append([])
    broker.send("orders", row("b"), partition=2)
    take(broker, root)
    assert rows_of(f"{root}/orders") == {"a": 1, "b": 1}
    assert last(f"{root}/orders") == {"0": 0, "2": 0}


def test_a_topic_can_begin_with_what_comes_next(root: str) -> None:
    broker = Broker()
    broker.send("orders", row("old"))
    made = job(broker, f"{root}/{{topic}}", from_end=True)
    assert made.run(None).batches == 0
    broker.send("orders", row("new"))
    assert made.run(None).batches == 1
    broker.send("orders", row("other"), partition=1)
    again = job(broker, f"{root}/{{topic}}", from_end=True)
    assert again.run(None).batches == 1
    assert rows_of(f"{root}/orders") == {"new": 1, "other": 1}


def test_what_is_no_row_is_a_dead_letter_before_the_position_passes_it(root: str) -> None:
    """One bad record stops everything elsewhere (hudi#18458)."""
    broker = Broker()
    broker.send("orders", row("a"), ({"id": "b"}, b"{broken"), row("c", "text"), ({}, {"n": 4}))
    broker.send("orders", row("d"))
    report = take(broker, root)
    assert (report.rows, report.dead_letters) == (2, 3)
    assert rows_of(f"{root}/orders") == {"a": 1, "d": 1}
    assert last(f"{root}/orders") == {"0": 4}
    found = bl.open_table(f"{root}/orders_dead_letters").to_arrow().to_pylist()
    assert [(x["source"], x["partition"], x["offset"]) for x in found] == [
        ("orders", "0", 1), ("orders", "0", 2), ("orders", "0", 3),
    ]  # fmt: skip
    assert [x["value"] for x in found] == [b"{broken", encoded(row("c", "text")), b'{"n": 4}']
    assert [x["key"] for x in found] == [b'{"id": "b"}', b'{"id": "c"}', b"{}"]
    assert all(x["reason"] and x["at"] for x in found)
    again = job(broker, f"{root}/{{topic}}").replay()
    assert (again.rows, again.dead_letters) == (0, 3)
    table = bl.open_table(f"{root}/orders_dead_letters")
    corrected = [{**x, "value": encoded(row("c", 3))} for x in found if x["offset"] == 2]
    table.upsert(pa.Table.from_pylist(corrected, table.schema()))
    again = job(broker, f"{root}/{{topic}}").replay()
    assert (again.rows, again.dead_letters) == (1, 2)
    assert rows_of(f"{root}/orders") == {"a": 1, "d": 1, "c": 3}


def test_a_replayed_letter_does_not_replace_a_newer_row(root: str) -> None:
    broker = Broker()
    broker.send("orders", row("a", "text"), row("a", 2))
    take(broker, root)
    table = bl.open_table(f"{root}/orders_dead_letters")
    [letter] = table.to_arrow().to_pylist()
    corrected = [{**letter, "value": encoded(row("a", 1))}]
    table.upsert(pa.Table.from_pylist(corrected, table.schema()))
    job(broker, f"{root}/{{topic}}").replay()
    assert rows_of(f"{root}/orders") == {"a": 2}
    assert table.count() == 0


def test_a_bad_message_stops_a_job_that_shall(root: str) -> None:
    broker = Broker()
    broker.send("orders", row("a"))
    take(broker, root)
    broker.send("orders", row("b"), ({"id": "b"}, b"{broken"))
    with pytest.raises(InputError, match=r"orders, 0, 2: it cannot be read"):
        take(broker, root, on_bad_row="fail")
    assert last(f"{root}/orders") == {"0": 0}
    assert rows_of(f"{root}/orders") == {"a": 1}


def test_a_batch_of_bad_messages_alone_moves_the_position(root: str) -> None:
    broker = Broker()
    broker.send("orders", row("a"))
    take(broker, root)
    broker.send("orders", ({"id": "b"}, b"{broken"))
    assert take(broker, root).dead_letters == 1
    assert last(f"{root}/orders") == {"0": 1}
    assert take(broker, root).batches == 0


def test_bad_messages_alone_make_a_table_with_declared_columns_and_are_taken_once(
    root: str,
) -> None:
    broker = Broker()
    broker.send("orders", ({"id": "b"}, b"{broken"))
    assert take(broker, root).dead_letters == 1
    assert (rows_of(f"{root}/orders"), last(f"{root}/orders")) == ({}, {"0": 0})
    assert take(broker, root).batches == 0


def test_of_two_jobs_at_once_each_message_is_written_by_one(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker()
    broker.send("orders", row("a"))
    take(broker, root)
    broker.send("orders", row("b"))
    meanwhile(monkeypatch, lambda: more(broker, root), PUTS, "timeline")
    take(broker, root)
    assert rows_of(f"{root}/orders") == {"a": 1, "b": 1, "c": 1}
    assert sum(entry.written or 0 for entry in bl.open_table(f"{root}/orders").timeline()) == 3


def more(broker: Broker, root: str) -> None:
    broker.send("orders", row("c"))
    take(broker, root)


def test_after_a_rollback_the_messages_come_again(root: str) -> None:
    """A job that goes on from an older state skips commits elsewhere (apache/iceberg#10892)."""
    broker = Broker()
    broker.send("orders", row("a"))
    take(broker, root)
    broker.send("orders", row("b"))
    take(broker, root)
    table = bl.open_table(f"{root}/orders")
    table.rollback(table.timeline()[-1].requested_at)
    assert rows_of(f"{root}/orders") == {"a": 1}
    take(broker, root)
    assert rows_of(f"{root}/orders") == {"a": 1, "b": 1}


def test_a_dry_run_shows_rows_and_bad_messages(root: str) -> None:
    broker = Broker()
    broker.send("orders", row("a"), ({"id": "b"}, b"{broken"))
    report = job(broker, f"{root}/{{topic}}").preview()
    assert report.preview["id"].to_pylist() == ["a"]
    assert report.dead_letters == 1
    with pytest.raises(bl.TableNotFoundError):
        bl.open_table(f"{root}/orders")


@dataclass
class Recording(Broker):
    """A recorded topic, as Debezium sent it, with its headers."""

    held: pa.Table = field(default_factory=lambda: MESSAGE.empty_table())

    def ends(self) -> Mapping[str, dict[int, int]]:
        return {"orders": {0: len(self.held)}}

    def beginnings(self, ends: Mapping[str, Mapping[int, int]]) -> dict[str, dict[int, int]]:
        return {"orders": {0: 0}}

    def messages(self, topic: str, starts: Mapping[int, int], ends: Mapping[int, int]) -> pa.Table:
        return self.held.slice(starts[0], ends[0] - starts[0])

    def following(self, starts: Mapping[str, dict[int, int]], rows_max: int) -> pa.Table | None:
        return None


@pytest.mark.filterwarnings("ignore:columns .* have a default:UserWarning")
@pytest.mark.parametrize("max_rows", [7, 1_000])
def test_a_recorded_database_becomes_a_table_with_its_rows(root: str, max_rows: int) -> None:
    held = messages("lifecycle", "keep-nulls", "public.orders")
    options = IngestOptions(max_rows=max_rows)
    made = topics_of(Recording(held=held), f"{root}/{{topic}}", options, {})
    report = Job(made, JobRules({"index": bl.SimpleBucket(1)})).run(None)
    assert report.dead_letters == 0
    kinds = kinds_of("lifecycle", "public.orders")
    rows = bl.open_table(f"{root}/orders").to_arrow()
    assert as_texts(rows, [*kinds], kinds) == rows_at_end("lifecycle", "public.orders")


def test_the_row_of_an_old_key_is_found_behind_a_planned_compaction(root: str) -> None:
    broker, held = Broker(), {"envelope": "debezium", "schema": "id string, note string"}
    given = {"messages": held, "new_table": {"table_type": "merge_on_read"}, "max_rows": 1}
    for n, note in enumerate(["short", "long"]):
        broker.send("orders", change("u", "a", 4 + n, None, {"id": "a", "note": note}))
    take(broker, root, **given)
    bl.open_table(f"{root}/orders").compact(schedule_only=True)
    broker.send("orders", change("d", "a", 6, {"id": "a", "note": None}, None))
    told = {"__debezium.oldkey": b'{"id": "a"}'}
    broker.send("orders", (*change("c", "b", 6, None, {"id": "b", "note": PLACEHOLDER}), told))
    assert take(broker, root, **given).dead_letters == 0
    rows = bl.open_table(f"{root}/orders").to_arrow().to_pylist()
    assert [(row["id"], row["note"]) for row in rows] == [("b", "long")]


def test_text_that_is_no_utf8_and_a_damaged_truncate_are_dead_letters(root: str) -> None:
    broker, held = Broker(), {"schema": "id string, note string", "on_truncate": "delete"}
    for n, note in enumerate(["x", "broken", "y"]):
        key, value = change("c", f"k{n}", 5 + n, None, {"id": f"k{n}", "note": note})
        broker.send("orders", (key, (encoded(value) or b"").replace(b"broken", b"\xff")))
    broker.send("orders", ({"id": "a"}, b'{"op":"t",'))
    report = take(broker, root, messages={**held, "envelope": "debezium"})
    assert (report.rows, report.dead_letters) == (2, 2)
    found = bl.open_table(f"{root}/orders_dead_letters").to_arrow()
    assert found["offset"].to_pylist() == [1, 3]


def test_two_jobs_at_once_may_make_the_table_of_dead_letters(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker()
    broker.send("orders", row("a"), ({"id": "b"}, b"{broken"))
    meanwhile(monkeypatch, lambda: take(broker, root), PUTS, "orders_dead_letters")
    take(broker, root)
    assert rows_of(f"{root}/orders") == {"a": 1}
    assert bl.open_table(f"{root}/orders_dead_letters").count() == 1


def test_headers_are_added_to_an_old_table_of_dead_letters(root: str) -> None:
    broker = Broker()
    columns = [field for field in LETTERS if field.name != "headers"]
    old = bl.create_table(
        f"{root}/orders_dead_letters", schema=pa.schema(columns),
        record_key=["table", "source", "partition", "offset"], index=bl.SimpleBucket(1),
    )  # fmt: skip
    one = {"table": f"{root}/orders", "source": "orders", "partition": "0", "offset": 70}
    sent = {"key": encoded({"id": "z"}), "value": encoded(row("z"))}
    old.upsert(pa.Table.from_pylist([{**one, **sent}], pa.schema(columns)))
    broker.send("orders", row("a"))
    take(broker, root)
    assert job(broker, f"{root}/{{topic}}").replay().rows == 1
    broker.send("orders", ({"id": "b"}, b"{broken", {"h": b"1"}))
    assert take(broker, root).dead_letters == 1
    [letter] = bl.open_table(f"{root}/orders_dead_letters").to_arrow().to_pylist()
    assert letter["headers"] == [{"key": "h", "value": b"1"}]
    assert job(broker, f"{root}/{{topic}}").replay().dead_letters == 1


def test_a_look_up_of_old_keys_that_is_too_large_for_the_driver_makes_batches_smaller(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker()
    broker.send("orders", *[row(f"k{n}", n) for n in range(9)])
    made, most = job(broker, f"{root}/orders"), [2]
    real = type(made.source.decoder).decode  # type: ignore[attr-defined]

    def decode(self: Any, messages: pa.Table, *given: Any) -> Any:
        if len(messages) > most[0]:
            raise too_much()
        return real(self, messages, *given)

    monkeypatch.setattr("bucketlake.intake.topics.Decoder.decode", decode)
    report = made.run(None)
    assert (report.batches, report.rows) == (5, 9)
    assert rows_of(f"{root}/orders") == {f"k{n}": n for n in range(9)}
    broker.send("orders", row("z"))
    most[0] = 0
    with pytest.raises(InputError, match=r"too many bytes; raise spark.driver.maxResultSize"):
        job(broker, f"{root}/orders").run(None)
    assert last(f"{root}/orders") == {"0": 8}


LOGGED: dict[str, Any] = {"envelope": "debezium", "schema": SCHEMA}


@pytest.mark.parametrize("begins", ["row", "debezium"])
@pytest.mark.parametrize("is_same_topic", [True, False])
def test_offsets_and_positions_in_a_log_do_not_order_one_table(
    root: str, begins: str, is_same_topic: bool
) -> None:
    """One of the two would win for ever, whichever change is newer."""
    broker, table, other = Broker(), f"{root}/orders", "debezium" if begins == "row" else "row"
    topic = "orders" if is_same_topic else "clicks"
    sent = {"row": row("a", 2), "debezium": change("u", "a", 50, None, row("a", 1))}
    broker.send("orders", sent[begins])
    job(broker, table, messages={**LOGGED, "envelope": begins}).run(None)
    before = bl.open_table(table).to_arrow()
    broker.send(topic, sent[other])
    if not is_same_topic:
        del broker.topics["orders"]
    told = rf"topic {topic} into .*positions of its rows are .*an older change could replace"
    with pytest.raises(InputError, match=told):
        job(broker, table, messages={**LOGGED, "envelope": other}).run(None)
    assert bl.open_table(table).to_arrow().equals(before)
    with pytest.raises(bl.TableNotFoundError):
        bl.open_table(f"{root}/orders_dead_letters")


def test_a_letter_whose_place_is_not_told_is_not_replayed_by_its_offset(root: str) -> None:
    broker, held = Broker(), {"envelope": "unwrapped", "schema": SCHEMA}
    told = {"__op": "u", "__lsn": 9}
    broker.send("orders", row("a", 1, **told), row("a", 0, __op="u"))
    assert take(broker, root, messages=held).dead_letters == 1
    again = job(broker, f"{root}/{{topic}}", messages=held).replay()
    assert (again.rows, again.dead_letters) == (0, 1)
    assert rows_of(f"{root}/orders") == {"a": 1}


def test_a_topic_without_rows_is_passed_over_until_one_comes(root: str) -> None:
    """A pattern may also name the topic of transactions, and a topic may begin with tombstones."""
    broker, kinds = Broker(), {"id": "string", "status": "string"}
    fields = [{"field": name, "type": kind} for name, kind in kinds.items()]
    status = {"schema": {"type": "struct", "fields": fields}, "payload": {"status": "BEGIN"}}
    broker.send("db.transaction", ({"id": "5"}, status))
    broker.send("orders", ({"id": "a"}, None), ({"id": "b"}, None))
    made = job(broker, f"{root}/{{topic}}", max_rows=1, messages={"schema": None} | HELD)
    assert made.run(None).batches == 0
    broker.send("orders", with_schema("c", 7, row("a", 1)))
    broker.send("db.transaction", ({"id": "5"}, status))
    assert made.run(None).rows == 1
    assert rows_of(f"{root}/orders") == {"a": 1}
    assert last(f"{root}/orders") == {"0": 2}
    again = job(broker, f"{root}/{{topic}}", messages={"schema": None} | HELD)
    assert again.run(None).batches == 0
    with pytest.raises(bl.TableNotFoundError):
        bl.open_table(f"{root}/db.transaction")


HELD = {"envelope": "debezium"}


def with_schema(op: str, lsn: int, after: dict[str, Any]) -> tuple[Any, Any]:
    """Return a message with its schema, close together as Connect writes it."""
    kinds = {"id": "string", "n": "int64"}
    row = [{"field": name, "type": kind, "optional": True} for name, kind in kinds.items()]
    source = [{"field": "connector", "type": "string"}, {"field": "lsn", "type": "int64"}]
    fields = [
        {"field": "after", "type": "struct", "fields": row},
        {"field": "source", "type": "struct", "fields": source},
        {"field": "op", "type": "string"},
    ]
    key, value = change(op, after["id"], lsn, None, after)
    told = {"schema": {"type": "struct", "fields": fields}, "payload": value}
    return key, json.dumps(told, separators=(",", ":")).encode()


@pytest.mark.parametrize("envelope", ["debezium", "unwrapped", "row"])
def test_a_table_may_be_named_transaction(root: str, envelope: str) -> None:
    """Its topic ends as the one in which Debezium tells of transactions."""
    broker, topic = Broker(), "db.public.transaction"
    told = {
        "debezium": change("c", "a", 5, None, row("a")),
        "unwrapped": row("a", __op="c", __lsn=5),
        "row": row("a"),
    }
    broker.send(topic, told[envelope])
    if envelope != "row":
        broker.send(topic, ({"id": "7"}, {"status": "BEGIN", "id": "7:8"}))
    report = job(broker, f"{root}/orders", messages={"envelope": envelope}).run(None)
    assert (report.rows, report.dead_letters) == (1, 0)
    assert rows_of(f"{root}/orders") == {"a": 1}
    assert last(f"{root}/orders", topic) == {"0": len(broker.topics[topic][0]) - 1}


def test_the_table_of_dead_letters_is_not_the_table(root: str) -> None:
    broker, table = Broker(), f"{root}/orders"
    broker.send("orders", row("a"), row("b", "text"))
    made = job(broker, table)
    made.rules = replace(made.rules, dead_letters=table)
    with pytest.raises(ConfigError, match=r"dead_letters = .*another path than that of the table"):
        made.run(None)


def test_a_dropped_column_becomes_null_and_a_renamed_one_is_new(root: str) -> None:
    """A dropped column breaks the job elsewhere (iceberg-kafka-connect#261, hudi#7219)."""
    broker, given = Broker(), {"messages": {"schema": None} | HELD}
    broker.send("orders", with_schema("c", 5, row("a", 1)))
    take(broker, root, **given)
    key, value = with_schema("c", 6, row("b", 2))
    broker.send("orders", (key, value.replace(b'"n"', b'"m"')))
    broker.send("orders", with_schema("u", 7, row("a", 3)))
    report = take(broker, root, **given)
    assert (report.rows, report.dead_letters) == (2, 0)
    table = bl.open_table(f"{root}/orders").to_arrow(columns=["id", "n", "m"])
    assert sorted(table.to_pylist(), key=str) == [row("a", 3, m=None), row("b", None, m=2)]
