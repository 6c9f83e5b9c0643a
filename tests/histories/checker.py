"""Judges a history: what several processes noted of their writes and reads of one table.

This module knows nothing of the table's code; it imports the standard library only. Each process
appends lines of JSON to a file of its own, one before an operation and one after it:

``{"process": "a", "op": 1, "at": 17, "begins": "write", "puts": [...], "adds": {...}, "deletes":
[...]}``, then ``{"process": "a", "op": 1, "at": 19, "ends": "ok"}``

``at`` is in nanoseconds of a monotonic clock that all processes share. The id of a write is
``process/op``. A write does three things at once: it *puts* rows whose keys no other write puts
(with ``n`` = 1), *adds* numbers to the ``n`` of counters, and *deletes* rows that an earlier write
put. At least one row of each write is never deleted, so a read shows which writes it contains. Each
row names the write that wrote it last. The end of a write is ``ok``, ``failed`` or ``unknown``; an
operation without an end, such as that of a killed process, is ``unknown``, too.

A read ends with ``"rows": [[key, n, writer], ...]``. ``"begins": "read"`` is a read of the whole
table. A ``follow`` is the sum of what a process has read of consecutive changes, so deletes are not
judged. The last read has ``"final": true``. Reads and services that end as ``refused`` are passed
over. ``unexpected`` is an end that no operation may have.

What must hold: all writes have one order, in which a write that ended before another one began
comes first; each read shows the table after some write of this order; no read that begins after the
end of a write or of another read shows an earlier state.

example: python -m tests.histories.checker FOLDER
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import Any

NEVER = sys.maxsize


class Anomaly(Enum):
    """What is wrong with a history."""

    DOUBLED_ROW = "a key has two rows in one read"
    UNWRITTEN_ROW = "a row that no write wrote"
    FAILED_WRITE_VISIBLE = "a write that reported failure is in the table"
    WRITE_SEEN_EARLY = "a read shows a write that began after the read ended"
    TORN_WRITE = "a read shows a part of a write"
    LOST_UPDATE = "a counter lacks what a visible write added"
    DOUBLED_WRITE = "a write counted twice"
    LOST_ROW = "a row is gone that no visible write deleted"
    RESURRECTED_ROW = "a deleted row is there"
    LOST_WRITE = "a write that reported success before the read is not in it"
    DIRTY_READ = "a read shows a write that is not in the table at the end"
    NON_MONOTONE_READ = "a later read of one process shows less"
    STALE_READ = "a read shows less than one that ended before it began"
    FORKED_READS = "each of two reads shows a write that the other one lacks"
    SKIPPED_WRITE = "a read shows a write, but not one that ended before that write began"
    NO_ORDER = "no order of the writes explains who wrote rows last"
    UNEXPECTED_ERROR = "an operation ended with an error that it may not have"
    NO_FINAL_READ = "nobody read the table at the end"


@dataclass(frozen=True)
class Finding:
    """An anomaly, and where it is in the history."""

    anomaly: Anomaly
    words: str

    def __str__(self) -> str:
        return f"{self.anomaly.name} ({self.anomaly.value}): {self.words}"


@dataclass(frozen=True)
class Write:
    """A write of the history.

    Attributes
    ----------
    begin, end : int
        Nanoseconds; ``NEVER`` if the end is not known.
    puts, stays : set of str
        The keys that it puts, and those of them that no write deletes.
    """

    id: str
    begin: int
    end: int
    outcome: str
    puts: frozenset[str]
    stays: frozenset[str]
    adds: Mapping[str, int]
    deletes: frozenset[str]


@dataclass(frozen=True)
class Read:
    """A read of the history; ``rows`` holds key, n and id of the last writer."""

    id: str
    process: str
    begin: int
    end: int
    rows: tuple[tuple[str, int, str], ...]
    is_whole: bool
    is_final: bool


@dataclass(frozen=True)
class History:
    """The writes by id, the reads by begin, and the ends of all operations."""

    writes: Mapping[str, Write]
    reads: Sequence[Read]
    ends: Counter[tuple[str, str]]
    unexpected: Sequence[str]

    @classmethod
    def of(cls, lines: Iterable[Mapping[str, Any]]) -> History:
        """Build the history of what all processes noted, in any order of the processes."""
        begins: dict[str, Mapping[str, Any]] = {}
        ends: dict[str, Mapping[str, Any]] = {}
        for line in lines:
            noted = begins if "begins" in line else ends
            noted[f"{line['process']}/{line['op']}"] = line
        deleted = {key for line in begins.values() for key in line.get("deletes", ())}
        writes, reads, counts, unexpected = {}, [], Counter[tuple[str, str]](), []
        for name, begin in begins.items():
            end = ends.get(name, {"ends": "unknown", "at": NEVER})
            counts[begin["begins"], end["ends"]] += 1
            if end["ends"] == "unexpected":
                unexpected.append(f"{begin['begins']} {name}: {end.get('error')}")
            if begin["begins"] == "write":
                # Of an unknown outcome, the write may take effect after its end.
                at = end["at"] if end["ends"] == "ok" else NEVER
                puts = frozenset(begin["puts"])
                gone = frozenset(begin["deletes"])
                writes[name] = Write(
                    name, begin["at"], at, end["ends"], puts, puts - deleted, begin["adds"], gone
                )
                assert puts - deleted, f"{name} puts no row that stays"
            elif end["ends"] == "ok" and begin["begins"] in ("read", "follow"):
                rows = tuple((key, n, by) for key, n, by in end["rows"])
                whole, final = begin["begins"] == "read", bool(begin.get("final"))
                process = begin["process"]
                reads.append(Read(name, process, begin["at"], end["at"], rows, whole, final))
        return cls(writes, sorted(reads, key=lambda read: read.begin), counts, unexpected)


def noted_in(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of all history files of a folder.

    A killed process may have left a half line at its end.
    """
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)


def check(history: History) -> list[Finding]:
    """Return what is wrong with a history; empty if nothing is."""
    shown = {read.id: _shown(history, read) for read in history.reads}
    findings = [Finding(Anomaly.UNEXPECTED_ERROR, words) for words in history.unexpected]
    if not any(read.is_final for read in history.reads):
        findings.append(Finding(Anomaly.NO_FINAL_READ, f"of {len(history.reads)} reads"))
    for read in history.reads:
        findings += _check_rows(history, read, shown[read.id])
    # A failed write that is visible was told; it does not take part in the order.
    failed = {write.id for write in history.writes.values() if write.outcome == "failed"}
    for ids in shown.values():
        ids -= failed
    between = [*_check_times(history, shown), *_check_forks(history, shown)]
    return [*findings, *between, *([] if between else _check_order(history, shown))]


def _shown(history: History, read: Read) -> set[str]:
    """Return the writes that a read shows: those with a row that nobody deletes."""
    keys = {key for key, _, _ in read.rows}
    return {write.id for write in history.writes.values() if not keys.isdisjoint(write.stays)}


# ---- One read ------------------------------------------------------------------------------------


def _check_rows(history: History, read: Read, shown: set[str]) -> Iterator[Finding]:
    def found(anomaly: Anomaly, words: object) -> Finding:
        return Finding(anomaly, f"read {read.id}: {words}")

    keys = Counter(key for key, _, _ in read.rows)
    for key in (key for key, count in keys.items() if count > 1):
        yield found(Anomaly.DOUBLED_ROW, key)
    putters = {key: write for write in history.writes.values() for key in write.puts}
    for key, n, by in read.rows:
        putter, writer = putters.get(key), history.writes.get(by)
        if writer is None or (key not in writer.adds if putter is None else putter is not writer):
            yield found(Anomaly.UNWRITTEN_ROW, f"{key} by {by}")
        elif putter is not None and n != 1:
            yield found(Anomaly.DOUBLED_WRITE, f"{key} was put {n} times by {by}")
        if putter is not None and putter.id not in shown:
            yield found(Anomaly.TORN_WRITE, f"{key} of {putter.id}, without its other rows")
    is_torn = False
    for write in (history.writes[name] for name in sorted(shown)):
        if write.outcome == "failed":
            yield found(Anomaly.FAILED_WRITE_VISIBLE, write.id)
        if write.begin > read.end:
            yield found(Anomaly.WRITE_SEEN_EARLY, write.id)
        if missing := write.stays - keys.keys():
            is_torn = True
            yield found(Anomaly.TORN_WRITE, f"{write.id} without {sorted(missing)}")
    if is_torn:  # Its counters and deletes are torn, too.
        return
    if read.is_whole:
        yield from (found(*words) for words in _deletes(history, shown, keys.keys()))
    sums = Counter[str]()
    for name in shown:
        sums.update(history.writes[name].adds)
    counters = {key: n for key, n, _ in read.rows}
    for key in sorted({key for write in history.writes.values() for key in write.adds}):
        n, wanted = counters.get(key, 0), sums[key]
        if n != wanted:
            kind = Anomaly.LOST_UPDATE if n < wanted else Anomaly.DOUBLED_WRITE
            yield found(kind, f"{key} is {n}, its visible writes added {wanted}")


def _deletes(
    history: History, shown: set[str], keys: Iterable[str]
) -> Iterator[tuple[Anomaly, object]]:
    there, gone = set(keys), set[str]()
    for name in shown:
        gone |= history.writes[name].deletes
    for key in sorted(there & gone):
        yield Anomaly.RESURRECTED_ROW, key
    for name in sorted(shown):
        for key in sorted(history.writes[name].puts - gone - there):
            yield Anomaly.LOST_ROW, f"{key} of {name}"


# ---- Several reads -------------------------------------------------------------------------------


def _check_times(history: History, shown: Mapping[str, set[str]]) -> Iterator[Finding]:
    """Compare each read with the writes and reads that ended before it began."""
    final = set[str]().union(*(shown[read.id] for read in history.reads if read.is_final))
    by_end = sorted(history.reads, key=lambda read: read.end)
    written = sorted((write for write in history.writes.values()), key=lambda write: write.end)
    seen: dict[str, Read] = {}
    of_process: dict[str, set[str]] = defaultdict(set)
    succeeded, reads_ended, writes_ended = set[str](), 0, 0
    for read in history.reads:
        while reads_ended < len(by_end) and by_end[reads_ended].end < read.begin:
            earlier = by_end[reads_ended]
            reads_ended += 1
            of_process[earlier.process] |= shown[earlier.id]
            seen.update(dict.fromkeys(shown[earlier.id] - seen.keys(), earlier))
        while writes_ended < len(written) and written[writes_ended].end < read.begin:
            succeeded.add(written[writes_ended].id)
            writes_ended += 1
        here = shown[read.id]
        for name in sorted(succeeded - here):
            yield Finding(Anomaly.LOST_WRITE, f"{name} is not in read {read.id}")
        for name in sorted(seen.keys() - here - succeeded):
            kind = Anomaly.STALE_READ
            if final and name not in final:
                kind = Anomaly.DIRTY_READ
            elif name in of_process[read.process]:
                kind = Anomaly.NON_MONOTONE_READ
            yield Finding(kind, f"{name} is in read {seen[name].id}, and not in read {read.id}")
        newest = max((history.writes[name].begin for name in here), default=0)
        for write in written:
            if write.end < newest and write.id not in here | succeeded:
                yield Finding(Anomaly.SKIPPED_WRITE, f"{write.id} is not in read {read.id}")


def _check_forks(history: History, shown: Mapping[str, set[str]]) -> Iterator[Finding]:
    chain = sorted(history.reads, key=lambda read: len(shown[read.id]))
    for less, more in pairwise(chain):
        lacking = shown[less.id] - shown[more.id]
        if lacking and less.begin < more.end and more.begin < less.end:
            others = sorted(shown[more.id] - shown[less.id])
            words = f"read {less.id} shows {sorted(lacking)}, read {more.id} shows {others}"
            yield Finding(Anomaly.FORKED_READS, words)


def _check_order(history: History, shown: Mapping[str, set[str]]) -> Iterator[Finding]:
    """Look for an order of the writes in which the last writer of each counter is the last.

    The reads are a chain here. So the first of them that shows a write gives its rank, and only the
    order of writes with one rank is open.
    """
    chain = sorted(history.reads, key=lambda read: len(shown[read.id]))
    ranks: dict[str, int] = {}
    for rank, read in enumerate(chain):
        for name in shown[read.id]:
            ranks.setdefault(name, rank)
    before: dict[str, set[str]] = {name: set() for name in ranks}
    of_rank = defaultdict(list)
    for name, rank in ranks.items():
        of_rank[rank].append(history.writes[name])
    for together in of_rank.values():
        for later in together:
            before[later.id] |= {write.id for write in together if write.end < later.begin}
    for read in chain:
        writers: dict[str, set[str]] = defaultdict(set)
        for name in shown[read.id]:
            for key in history.writes[name].adds:
                writers[key].add(name)
        for key, _, last in read.rows:
            for name in writers.get(key, set()) - {last}:
                if last not in shown[read.id] or ranks[name] > ranks[last]:
                    words = f"read {read.id}: {key} is of {last}, and {name} was later"
                    yield Finding(Anomaly.NO_ORDER, words)
                elif ranks[name] == ranks[last]:
                    before[last].add(name)
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        yield Finding(Anomaly.NO_ORDER, f"each is before the next: {' '.join(error.args[1])}")


if __name__ == "__main__":
    judged = History.of(noted_in(Path(sys.argv[1])))
    for (operation, outcome), count in sorted(judged.ends.items()):
        print(f"{count:6} {operation} {outcome}")
    anomalies = check(judged)
    print(*anomalies, f"{len(anomalies)} anomalies", sep="\n")
    sys.exit(bool(anomalies))
