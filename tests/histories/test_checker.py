"""The checker names each anomaly, finds none in a sound history, and knows nothing of the code."""

from __future__ import annotations

import ast
import json
import random
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.histories import checker
from tests.histories.checker import Anomaly, History, check, noted_in

Row = tuple[str, int, str]
Line = dict[str, Any]


class Noted:
    """A history by hand; times are given, and operations get the next number of their process."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def write(
        self,
        process: str,
        begin: int,
        end: int | None,
        puts: str,
        adds: str = "",
        deletes: str = "",
        ends: str = "ok",
    ) -> str:
        name = f"{process}/{begin}"
        told = {"puts": puts.split(), "adds": dict.fromkeys(adds.split(), 1)}
        line = {"process": process, "op": begin}
        begun = {"begins": "write", **told, "deletes": deletes.split()}
        self.lines.append(line | {"at": begin} | begun)
        if end is not None:
            self.lines.append(line | {"at": end, "ends": ends})
        return name

    def read(
        self,
        process: str,
        begin: int,
        end: int,
        rows: Iterable[Row],
        what: str = "read",
        **more: Any,
    ) -> None:
        line = {"process": process, "op": begin}
        self.lines.append(line | {"at": begin, "begins": what} | more)
        self.lines.append(line | {"at": end, "ends": "ok", "rows": [*rows]})

    def final(self, rows: Iterable[Row]) -> None:
        self.read("last", 1000, 1001, rows, final=True)

    def anomalies(self) -> list[Anomaly]:
        return [found.anomaly for found in check(History.of(self.lines))]


A: Row = ("a", 1, "w/10")
B: Row = ("b", 1, "v/30")


def two_writes(end: int | None = 20, **more: Any) -> Noted:
    """Return writes w/10 of the row a and v/30 of the row b; they add to the counters c and d."""
    noted = Noted()
    noted.write("w", 10, end, "a", "c", **more)
    noted.write("v", 30, 40, "b", "d")
    return noted


def test_a_sound_history_has_no_anomaly() -> None:
    noted = two_writes()
    noted.write("w", 50, 60, "e x", "c")
    noted.write("w", 70, 80, "f", "c", deletes="x")
    after: list[Row] = [A, B, ("d", 1, "v/30")]
    noted.read("r", 1, 2, [])
    noted.read("r", 15, 35, [A, ("c", 1, "w/10")])
    noted.read("r", 61, 62, [*after, ("c", 2, "w/50"), ("e", 1, "w/50"), ("x", 1, "w/50")])
    final: list[Row] = [*after, ("c", 3, "w/70"), ("e", 1, "w/50"), ("f", 1, "w/70")]
    noted.read("s", 90, 91, [*final, ("x", 1, "w/50")], "follow")  # It shows no deletes.
    noted.final(final)
    assert noted.anomalies() == []


@pytest.mark.parametrize("end", [None, 20])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_write_of_unknown_outcome_may_be_there_or_not(end: int | None, is_there: bool) -> None:
    noted = two_writes(end, ends="unknown")
    there: list[Row] = [A, ("c", 1, "w/10")] if is_there else []
    noted.read("r", 50, 51, [B, ("d", 1, "v/30")])  # It may take effect after its end.
    noted.final([B, ("d", 1, "v/30"), *there])
    assert noted.anomalies() == []


ROWS: list[Row] = [A, B, ("c", 1, "w/10"), ("d", 1, "v/30")]


def without(*keys: str) -> list[Row]:
    return [row for row in ROWS if row[0] not in keys]


@pytest.mark.parametrize(
    ("rows", "anomaly"),
    [
        ([*ROWS, A], Anomaly.DOUBLED_ROW),
        ([*ROWS, ("z", 1, "w/10")], Anomaly.UNWRITTEN_ROW),
        ([*without("a"), ("a", 1, "v/30")], Anomaly.UNWRITTEN_ROW),
        ([*without("a"), ("a", 2, "w/10")], Anomaly.DOUBLED_WRITE),
        ([*without("c"), ("c", 2, "w/10")], Anomaly.DOUBLED_WRITE),
        (without("c"), Anomaly.LOST_UPDATE),
        (without("a", "c"), Anomaly.LOST_WRITE),
    ],
)
def test_one_wrong_read_is_named(rows: list[Row], anomaly: Anomaly) -> None:
    noted = two_writes()
    noted.final(rows)
    assert noted.anomalies() == [anomaly]


def test_a_failed_write_that_is_visible_is_named() -> None:
    noted = two_writes(ends="failed")
    noted.final(ROWS)
    assert noted.anomalies() == [Anomaly.FAILED_WRITE_VISIBLE]


def test_a_lost_update_of_a_counter_that_two_writes_read_at_once_is_named() -> None:
    noted = Noted()
    noted.write("w", 10, 30, "a", "c")
    noted.write("v", 15, 35, "b", "c")
    noted.final([A, ("b", 1, "v/15"), ("c", 1, "v/15")])
    assert noted.anomalies() == [Anomaly.LOST_UPDATE]


@pytest.mark.parametrize("rows", [[A], [("g", 1, "w/10"), ("c", 1, "w/10")]])
def test_a_torn_write_is_named(rows: list[Row]) -> None:
    noted = Noted()
    noted.write("w", 10, None, "a g", "c")
    noted.final(rows)
    assert noted.anomalies() == [Anomaly.TORN_WRITE]


def test_a_row_of_a_write_that_is_not_visible_is_a_torn_write() -> None:
    noted = Noted()
    noted.write("w", 10, None, "a x")
    noted.write("w", 30, None, "b", deletes="x")
    noted.final([("x", 1, "w/10")])
    assert noted.anomalies() == [Anomaly.TORN_WRITE]


@pytest.mark.parametrize(
    ("ends", "rows", "anomaly"),
    [
        ("ok", [("b", 1, "w/30"), ("x", 1, "w/10")], Anomaly.RESURRECTED_ROW),
        ("failed", [], Anomaly.LOST_ROW),
    ],
)
def test_rows_that_come_back_or_go_are_named(ends: str, rows: list[Row], anomaly: Anomaly) -> None:
    noted = Noted()
    noted.write("w", 10, 20, "a x")
    noted.write("w", 30, 40, "b", deletes="x", ends=ends)
    noted.final([A, *rows])
    assert noted.anomalies() == [anomaly]


def test_a_write_that_is_seen_before_it_began_is_named() -> None:
    noted = two_writes()
    noted.read("r", 2, 3, [A, ("c", 1, "w/10")])
    noted.final(ROWS)
    assert noted.anomalies() == [Anomaly.WRITE_SEEN_EARLY]


def test_a_write_that_was_seen_and_is_not_there_at_the_end_is_a_dirty_read() -> None:
    noted = two_writes(None)
    noted.read("r", 15, 16, [A, ("c", 1, "w/10")])
    noted.final(without("a", "c"))
    assert noted.anomalies() == [Anomaly.DIRTY_READ]


@pytest.mark.parametrize(
    ("reader", "anomaly"), [("r", Anomaly.NON_MONOTONE_READ), ("s", Anomaly.STALE_READ)]
)
def test_a_read_that_shows_less_than_an_earlier_one_is_named(reader: str, anomaly: Anomaly) -> None:
    noted = two_writes(90)
    noted.read("r", 15, 16, [A, ("c", 1, "w/10")])
    noted.read(reader, 18, 19, [])
    noted.final(ROWS)
    assert noted.anomalies() == [anomaly]


def test_two_reads_at_once_that_show_different_writes_are_forked() -> None:
    noted = two_writes(90)
    noted.read("r", 35, 50, [A, ("c", 1, "w/10")])
    noted.read("s", 36, 51, [B, ("d", 1, "v/30")])
    noted.final(ROWS)
    assert noted.anomalies() == [Anomaly.FORKED_READS]


def test_a_write_that_is_seen_without_an_earlier_one_is_named() -> None:
    noted = two_writes()
    noted.read("r", 15, 50, [B, ("d", 1, "v/30")])  # It began before w/10 ended.
    noted.final(ROWS)
    assert noted.anomalies() == [Anomaly.SKIPPED_WRITE]


@pytest.mark.parametrize("second", [60, 15])
def test_a_row_of_an_earlier_writer_is_named(second: int) -> None:
    """By time, and by two counters whose last writers contradict each other."""
    noted = Noted()
    noted.write("w", 10, 40, "a", "c d")
    noted.write("v", second, 70, "b", "c d")
    other = f"v/{second}"
    last = "w/10" if second == 60 else other
    noted.final([A, ("b", 1, other), ("c", 2, "w/10"), ("d", 2, last)])
    assert noted.anomalies() == [Anomaly.NO_ORDER]


def test_a_row_whose_writer_changes_back_is_named() -> None:
    noted = Noted()
    noted.write("w", 10, 90, "a", "c")
    noted.write("v", 15, 90, "b", "c")
    noted.read("r", 50, 51, [A, ("c", 1, "w/10")])
    noted.final([A, ("b", 1, "v/15"), ("c", 2, "w/10")])
    assert noted.anomalies() == [Anomaly.NO_ORDER]


def test_an_error_that_is_not_promised_is_named() -> None:
    noted = two_writes()
    noted.lines += [
        {"process": "r", "op": 50, "at": 50, "begins": "read"},
        {"process": "r", "op": 50, "at": 51, "ends": "unexpected", "error": "KeyError: 'a'"},
    ]
    noted.final(ROWS)
    assert noted.anomalies() == [Anomaly.UNEXPECTED_ERROR]


def test_a_history_without_a_read_at_the_end_is_named() -> None:
    assert two_writes().anomalies() == [Anomaly.NO_FINAL_READ]


def test_each_anomaly_has_a_history_here() -> None:
    source = Path(__file__).read_text()
    assert [kind.name for kind in Anomaly if f"Anomaly.{kind.name}" not in source] == []


def test_a_half_line_at_the_end_of_a_killed_process_is_passed_over(tmp_path: Path) -> None:
    lines = [json.dumps(line) for line in two_writes().lines]
    (tmp_path / "w.jsonl").write_text("\n".join(lines) + '\n{"process": "w", "o')
    assert [*noted_in(tmp_path)] == two_writes().lines


@pytest.mark.parametrize("seed", range(20))
def test_histories_of_a_sound_table_have_no_anomaly_and_a_lost_commit_is_found(seed: int) -> None:
    """A table in memory, whose commits and reads happen at a moment inside of their operations."""
    chance = random.Random(seed)
    noted, commits = Noted(), list[tuple[float, Line]]()
    for n in range(60):
        begin = 10 + 10 * n
        end, at = begin + chance.randint(1, 80), chance.random()
        how = chance.choice(["ok", "ok", "ok", "failed", "unknown"])
        adds = " ".join(chance.sample("cde", 2))
        noted.write(f"w{n}", begin, end, f"k{n} l{n}", adds, ends=how)
        if how == "ok" or (how == "unknown" and chance.random() < 0.5):
            commits.append((begin + at * (end - begin), noted.lines[-2]))
    commits.sort(key=lambda commit: commit[0])

    def rows_at(moment: float, lost: Line | None = None) -> list[Row]:
        rows: dict[str, Row] = {}
        for at, line in commits:
            if at <= moment and line is not lost:
                by = f"{line['process']}/{line['op']}"
                rows |= {key: (key, 1, by) for key in line["puts"]}
                for key in line["adds"]:
                    rows[key] = (key, rows.get(key, (key, 0, by))[1] + 1, by)
        return [*rows.values()]

    lines = [*noted.lines]
    for lost in (None, chance.choice(commits)[1]):
        noted.lines = [*lines]
        for n in range(60):
            begin, end = 5 + 11 * n, 5 + 11 * n + chance.randint(1, 30)
            noted.read(f"r{n % 4}", begin, end, rows_at(chance.uniform(begin, end), lost))
        noted.final(rows_at(1000, lost))
        is_told = lost is not None and _ended(lines, lost) == "ok"
        assert bool(noted.anomalies()) == is_told


def _ended(lines: list[Line], write: Mapping[str, Any]) -> str:
    """Return how a write ended; one that nobody ever sees and that is unknown is no anomaly."""
    ends = {(line["process"], line["op"]): line["ends"] for line in lines if "ends" in line}
    return str(ends[write["process"], write["op"]])


def test_the_checker_imports_the_standard_library_alone() -> None:
    imported = set[str]()
    for node in ast.walk(ast.parse(Path(checker.__file__).read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module).partition(".")[0])
    assert imported <= sys.stdlib_module_names
