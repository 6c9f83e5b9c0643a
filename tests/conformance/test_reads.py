"""Reads: with a condition, of the location of a key, of earlier times, and of changes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.conformance.cases import Case, Checked, in_order, rows, rows_of
from tests.simulation.conditions import Conditions

CONDITIONS = 15


def test_a_condition_reads_the_rows_that_meet_it_and_no_others(table: Checked) -> None:
    values = {"id": [f"k{n}" for n in (0, 1, 5, 7, 40)], "day": ["a", "b"], "at": [0, 1]}
    conditions = Conditions(random.Random(str(table.case)), values)
    kept = 0
    for _ in range(CONDITIONS):
        text, holds = conditions.draw()
        expected = in_order(row for row in table.rows.values() if holds(row))
        assert rows_of(table.table.to_arrow(where=text)) == expected, text
        kept += bool(expected)
    assert kept >= 3, "too few conditions keep a row, so none could get lost"


def test_a_key_is_read_from_its_bucket_alone(table: Checked) -> None:
    groups = Counter((b.partition_path, b.bucket_id) for b in table.table.buckets())
    for row in in_order(table.rows.values())[::4]:
        place = table.locate(row)
        where = f"id = '{row['id']}' AND day = '{row['day']}'"
        report = table.table.explain(where)
        assert report.partitions_kept == 1
        assert 1 <= report.file_groups_kept <= groups[place]
        assert report.file_groups_total == groups.total()
        assert rows_of(table.table.to_arrow(where=where)) == [row]
        everywhere = table.table.explain(f"id IN ('{row['id']}')").file_groups_kept
        assert everywhere <= sum(max(_groups_of(groups, day).values()) for day in "ab")


def _groups_of(groups: Counter[tuple[str, int | None]], day: str) -> Counter[int | None]:
    return Counter({bucket: n for (path, bucket), n in groups.items() if path == day})


def test_a_partition_is_read_alone(table: Checked) -> None:
    report = table.table.explain("day = 'a'")
    held = [b for b in table.table.buckets() if b.partition_path == "a"]
    assert (report.partitions_total, report.partitions_kept) == (2, 1)
    assert report.file_groups_kept == len(held)
    expected = [row for row in in_order(table.rows.values()) if row["day"] == "a"]
    assert rows_of(table.table.to_arrow(where="day = 'a'")) == expected


def test_buckets_are_the_live_file_groups_and_hold_every_key(table: Checked) -> None:
    listed = table.table.buckets()
    assert len({(b.partition_path, b.file_id) for b in listed}) == len(listed)
    assert all(b.size_bytes > 0 for b in listed)
    assert all(b.log_files == 0 for b in listed) != table.case.merges_on_read
    places = {table.locate(row) for row in table.rows.values()}
    assert places == {(b.partition_path, b.bucket_id) for b in listed}
    missing = table.key_of({"id": "nobody", "day": "a"})
    assert table.table.locate(missing) == []


def test_a_key_stays_in_its_bucket_whoever_writes_it(table: Checked) -> None:
    chosen = [(row["day"], row["id"]) for row in rows(range(0, 12, 3))]
    before = {key: table.locate(table.rows[key]) for key in chosen}
    table.upsert(rows(range(20), 2))
    table.delete(rows(range(4)))
    table.upsert(rows(range(4), 3))
    assert {key: table.locate(table.rows[key]) for key in before} == before


def test_earlier_times_and_what_changed_since_are_read(
    case: Case, new_path: Callable[[], str]
) -> None:
    table = case.make(new_path())
    states = []
    for batch in (rows(range(6)), rows(range(4, 9), 1), rows(range(2), 2)):
        table.upsert(batch)
        states.append(in_order(table.rows.values()))
    first, second, third = table.table.timeline()
    for instant, state in zip((first, second, third), states, strict=True):
        assert rows_of(table.table.to_arrow(as_of=instant.requested_at)) == state
    late = rows_of(table.table.to_arrow(since=first.completed_at))
    assert late == in_order(row for row in table.rows.values() if row["at"] > 0)
    middle = table.table.to_arrow(since=first.completed_at, until=second.completed_at)
    assert rows_of(middle) == in_order(rows(range(4, 9), 1))
    where = table.table.to_arrow(since=first.completed_at, where="id = 'k1'")
    assert rows_of(where) == rows([1], 2)
    some = table.table.to_arrow(where="id = 'k1'", as_of=second.requested_at)
    assert rows_of(some) == rows([1])


def test_the_terminals_of_a_scan_agree_whatever_its_options_are(
    case: Case, new_path: Callable[[], str], capsys: pytest.CaptureFixture[str]
) -> None:
    made = case.make(new_path())
    for batch in (rows(range(6)), rows(range(4, 9), 1), rows(range(2), 2)):
        made.upsert(batch)
    table, (first, second, _) = made.table, made.table.timeline()
    asked: list[dict[str, Any]] = [
        {},
        {"where": "id = 'k1'"},
        {"where": "day = 'a' AND at > 0", "columns": ["id", "day", "at"]},
        {"where": "id = 'nobody'"},
        {"as_of": second.requested_at},
        {"since": first.completed_at},
        {"since": first.completed_at, "until": second.completed_at, "where": "at > 0"},
        {"read_optimized": True},
    ]
    for options in asked:
        scan = table.scan(**options)
        whole = scan.to_arrow()
        expected = _sorted(whole)
        streamed = [scan.to_batches().read_all(), pa.table(scan)]
        frames = [scan.to_polars().to_arrow(), pa.Table.from_pandas(scan.to_pandas())]
        for found in (*streamed, *(frame.cast(whole.schema) for frame in frames)):
            assert found.schema.equals(whole.schema)
            assert _sorted(found) == expected, options
        assert scan.count() == table.count(**options) == len(expected)
        scan.show(100)
        assert len(capsys.readouterr().out.splitlines()) == 2 + len(expected)
        report = scan.explain()
        assert (report.file_groups_kept > 0) >= bool(expected)
    assert rows_of(pa.table(table)) == in_order(made.rows.values())


def _sorted(found: pa.Table) -> list[dict[str, Any]]:
    return found.sort_by([("day", "ascending"), ("id", "ascending")]).to_pylist()
