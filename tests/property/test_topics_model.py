"""Random topics become tables that equal a dictionary, and each bad message is one dead letter.

A random program sends changes, messages that cannot be taken, others that are passed over, and
repeats; jobs take them in batches of all sizes, die at a change of storage, start anew, run two at
once, and take dead letters again; commits are rolled back. After each step the table has the rows
of the messages up to its position, and the dead letters are the bad ones of these. So no message is
in neither place, and none counts twice.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import bucketlake as bl
from bucketlake.cdc.message_settings import PLACEHOLDER
from bucketlake.errors import TimelineError
from bucketlake.intake.job import Job
from bucketlake.storage.memory import forget
from tests.broker import Broker, job_of
from tests.choices import DEEP
from tests.meanwhile import PUTS, dying_at, meanwhile

NUMBERS = itertools.count()
COLUMNS = ("id", "n", "op", "note")
SCHEMA = "id string, n bigint, op string, note string"
NOTES = ["x", "", None, '","op":"d"', "\u2028\\u00fc\0", PLACEHOLDER + "?"]

Row = dict[str, Any]
Place = tuple[int, ...]
Key = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True)
class Meaning:
    """What a message does to the rows; or why it is bad, as a pattern."""

    changes: Sequence[tuple[str, Place, Row | None]] = ()
    bad: str = ""


NOTHING = Meaning()
UNREAD, NULL_KEY = "cannot be read", "null or empty key"
NO_KEY = "has no key: the table has no primary key"
TEXT = {"id": "a", "n": "text"}
BAD_ROWS: list[tuple[Any, Any, str]] = [
    ({"id": "a"}, TEXT, UNREAD),
    ({"id": "a"}, {"id": "a", "n": 2**70}, UNREAD),
    ({"id": "a"}, {"id": "a", "n": 1.5}, UNREAD),
    ({"id": "a"}, {"id": "a", "n": True}, UNREAD),
    (None, {"id": "a", "n": 1}, NO_KEY),
    ({"id": None}, {"id": None, "n": 1}, NULL_KEY),
    ({"id": ""}, {"id": "", "n": 1}, NULL_KEY),
]
"""Key and row of changes that cannot be taken, in any envelope."""

BAD_TEXTS = [b'{"id": "a", ', b"[1]", b"7", b"text", b'{"id": "\xff"}', b"\xff\xfe", b"{}}", b""]


@dataclass
class World:
    """A topic with two partitions, what its messages mean, and a table."""

    envelope: str
    is_whole: bool  # Whether the database shows the row before a change.
    table_type: str
    path: str = ""
    broker: Broker = field(default_factory=Broker)
    meant: list[list[Meaning]] = field(default_factory=lambda: [[], []])
    database: dict[str, Row] = field(default_factory=dict)
    log: int = 1000
    job: Job | None = None

    def __post_init__(self) -> None:
        self.path = f"memory://topics-model-{next(NUMBERS)}/orders"

    # ---- What is sent.

    def put(self, key: str, n: int, flag: bool) -> None:
        """Insert or update a row; a large value that did not change may be left out."""
        old = self.database.get(key)
        row = {"id": key, "n": n, "op": "du"[n % 2], "note": NOTES[n % len(NOTES)]}
        if self.envelope == "row":
            held = {name: row[name] for name in COLUMNS if row[name] is not None or flag}
            self._send_row(key, held, row, n)
            return
        lacks = flag and old is not None and not self.is_whole
        row["note"] = old["note"] if lacks and old is not None else row["note"]
        self.database[key] = row
        after = {**row, **({"note": PLACEHOLDER} if lacks else {})}
        self._change("c" if old is None else "u", key, old, after, row, n)

    def delete(self, key: str, n: int, flag: bool) -> None:
        """Delete a row; a tombstone may follow."""
        old = self.database.pop(key, None)
        if self.envelope == "row":
            gone = {"id": key, "__deleted": "true"} if flag else None
            self._send_row(key, gone, None, n)
        elif old is not None:
            self._change("d", key, old, None, None, n)
            if flag:
                self._send(self.partition(key), {"id": key}, None, NOTHING)

    def move(self, key: str, n: int, flag: bool) -> None:
        """Change the key of a row: a delete and an insert, which may lack a large value."""
        new = f"k{n}"
        old = self.database.get(key)
        if self.envelope == "row" or old is None or new in self.database:
            return
        del self.database[key]
        row = self.database[new] = {**old, "id": new}
        lacks = flag and not self.is_whole and self.partition(key) == self.partition(new)
        after = {**row, **({"note": PLACEHOLDER} if lacks else {})}
        told = {"__debezium.newkey": json.dumps({"id": new}).encode()}
        self._change("d", key, old, None, None, n, told)
        self.log -= 1  # Both halves have one place.
        told = {"__debezium.oldkey": json.dumps({"id": key}).encode()}
        self._change("c", new, None, after, row, n, told)

    def bad(self, key: str, n: int, flag: bool) -> None:
        """Send what cannot be taken."""
        if n < len(BAD_TEXTS) and flag:
            self._send(n % 2, {"id": key}, BAD_TEXTS[n], Meaning(bad=UNREAD))
            return
        its_key, row, why = BAD_ROWS[n % len(BAD_ROWS)]
        if self.envelope == "row":
            if flag:
                self._send(n % 2, {"id": key}, {"id": key, "__deleted": "x"}, Meaning(bad="__del"))
            else:
                self._send(n % 2, its_key, row, Meaning(bad=why))
            return
        source, odd = self._source(), {"id": key, "n": 1}
        self.log += 1
        cases: list[tuple[Any, str]] = [
            ({"op": "u", "after": None, "source": source}, "has no row"),
            ({"op": "x", "after": odd, "source": source}, "operation 'x' is unknown"),
            ({"after": odd, "source": source}, "has no op"),
            ({"op": "u", "after": odd, "source": {}}, "no position in the log"),
            ({"op": "u", "after": odd, "source": {**source, "sequence": "[7]"}}, "source.sequence"),
            ({"op": "t", "source": source}, "the table was truncated"),
        ]
        if flag:
            value, why = cases[n % len(cases)]
            self._send(n % 2, {"id": key}, value, Meaning(bad=why))
        else:
            value = {"op": "c", "after": row, "source": source}
            self._send(n % 2, its_key, value, Meaning(bad=why))

    def other(self, key: str, n: int, flag: bool) -> None:
        """Send what is no change of a row."""
        if flag or self.envelope == "row":
            self._send(n % 2, None, None, NOTHING)
        elif n % 2:
            self._send(self.partition(key), {"id": key}, None, NOTHING)
        else:
            self._send(n % 2, {"prefix": "p"}, {"op": "m", "source": self._source()}, NOTHING)

    def repeat(self, key: str, n: int, flag: bool) -> None:
        """Send the last messages of a partition again, as a connector that was killed."""
        at = self.partition(key)
        sent = [*zip(self.broker.topics.get("orders", [[], []])[at], self.meant[at], strict=True)]
        for (sent_key, value, headers), meaning in sent[-1 - n :]:
            place = (len(self.meant[at]),)
            again = meaning
            if self.envelope == "row":
                again = Meaning([(k, place, row) for k, _, row in meaning.changes], meaning.bad)
            elif PLACEHOLDER.encode() in (value or b"") and headers:
                continue  # The row of its old key may be forgotten by now.
            self._send(at, sent_key, value, again, headers)

    def _send_row(self, key: str, held: Row | None, row: Row | None, n: int) -> None:
        at = self.partition(key)
        change = (key, (len(self.meant[at]),), row)
        self._send(at, {"id": key}, _written(held, n), Meaning([change]))

    def _change(
        self, op: str, key: str, old: Row | None, after: Row | None, row: Row | None, n: int,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:  # fmt: skip
        self.log += 1
        known = old if self.is_whole or old is None else dict.fromkeys(COLUMNS) | {"id": old["id"]}
        before = known if op == "d" or self.is_whole else None
        value = {"before": before, "after": after, "source": self._source(), "op": op}
        meaning = Meaning([(key, (self.log,), row)])
        self._send(self.partition(key), {"id": key}, _written(value, n), meaning, headers)

    def _source(self) -> Row:
        sequence = json.dumps([str(self.log - 1), str(self.log)])
        return {"connector": "postgresql", "lsn": self.log, "sequence": sequence, "snapshot": None}

    def _send(
        self, at: int, key: Any, value: Any, meaning: Meaning,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:  # fmt: skip
        self.broker.send("orders", (key, value, headers or {}), partition=at)
        self.meant[at].append(meaning)

    @staticmethod
    def partition(key: str) -> int:
        return crc32(key.encode()) % 2

    # ---- What jobs do.

    def take(self, _key: str, n: int, flag: bool) -> None:
        """Take what is there, by the same job as before or by a new one."""
        if flag or self.job is None:
            self.job = self._new_job(n)
        self.job.run(None)
        self.require(is_whole=True)

    def die(self, key: str, n: int, flag: bool) -> None:
        """Let the process of a job die at a change of storage."""
        with dying_at(1 + 7 * int(key[1:]) + n + 40 * flag) as steps:
            self._new_job(n).run(None)
        self.job = None
        self.require(is_whole=not steps.reached)

    def two(self, _key: str, n: int, flag: bool) -> None:
        """Let another job take the messages at a step of a job, once there are tables."""
        other, job = self._new_job(n + 1), self._new_job(n)
        with pytest.MonkeyPatch.context() as patch:
            if self.upto() and self.letters():
                folder = "timeline" if flag else "dead_letters"
                meanwhile(patch, lambda: other.run(None), PUTS, folder)
            job.run(None)
        self.require(is_whole=True)

    def rollback(self, _key: str, _n: int, _flag: bool) -> None:
        """Roll back the last commit, if there is one."""
        with suppress(bl.TableNotFoundError, TimelineError):  # It may be a rollback itself.
            table = bl.open_table(self.path)
            if found := table.timeline():
                table.rollback(found[-1].requested_at)
                self.require(is_whole=False)

    def replay(self, _key: str, n: int, _flag: bool) -> None:
        """Take the dead letters again: none can be taken."""
        if self.broker.topics:
            self._new_job(n).replay()
            self.require(is_whole=False)

    def _new_job(self, n: int) -> Job:
        self.broker.topics.setdefault("orders", [[], []])
        messages = {"envelope": self.envelope, "schema": SCHEMA}
        new_table = {"record_key": "id", "table_type": self.table_type}
        rows = [1000, 1, 3, 6][n % 4]
        return job_of(self.broker, self.path, messages, new_table=new_table, max_rows=rows)

    # ---- What must be true.

    def require(self, *, is_whole: bool) -> None:
        """Compare the table and its dead letters with the messages up to its position."""
        upto = self.upto() or [0, 0]
        if self.upto():
            table = bl.open_table(self.path)
            rows = [{name: row[name] for name in COLUMNS} for row in table.to_arrow().to_pylist()]
            assert sorted(rows, key=repr) == sorted(self.rows(upto), key=repr)
        bad = {
            (at, n): meaning.bad
            for at, held in enumerate(self.meant) for n, meaning in enumerate(held) if meaning.bad
        }  # fmt: skip
        letters = self.letters()
        wanted = {place for place in bad if place[1] < upto[place[0]]}
        assert wanted <= letters.keys() <= bad.keys()
        for (at, n), letter in letters.items():
            key, value, _ = self.broker.topics["orders"][at][n]
            assert (letter["key"], letter["value"]) == (key, value)
            assert re.search(bad[at, n], letter["reason"]), (value, letter["reason"])
        if is_whole:
            assert upto == [len(held) for held in self.meant]

    def upto(self) -> list[int]:
        """Return the offsets up to which the table has the partitions; empty without a table."""
        try:
            position = bl.open_table(self.path).position("orders")
        except bl.TableNotFoundError:
            return []
        last = {} if position is None else position.last
        return [last.get(str(at), -1) + 1 for at in range(2)]

    def rows(self, upto: Sequence[int]) -> list[Row]:
        """Return the rows of the messages up to some offsets."""
        newest: dict[str, tuple[Place, Row | None]] = {}
        for held, end in zip(self.meant, upto, strict=True):
            for key, place, row in itertools.chain(*(meaning.changes for meaning in held[:end])):
                if key not in newest or place >= newest[key][0]:
                    newest[key] = place, row
        return [row for _, row in newest.values() if row is not None]

    def letters(self) -> dict[Key, Row]:
        """Return the dead letters by place; each is there once."""
        try:
            rows = bl.open_table(f"{self.path}_dead_letters").to_arrow().to_pylist()
        except bl.TableNotFoundError:
            return {}
        found = {(int(row["partition"]), row["offset"]): row for row in rows}
        assert len(found) == len(rows)
        return found


def _written(value: Row | None, n: int) -> bytes | None:
    """Write a message close together, as Connect does, or with blanks."""
    if value is None:
        return None
    separators = (",", ":") if n % 3 else (" , ", " : ")
    return json.dumps(value, separators=separators, ensure_ascii=n % 2 == 0).encode()


SENDS = ["put", "put", "put", "put", "delete", "delete", "move", "bad", "bad", "other", "repeat"]
TURNS = ["take", "take", "take", "die", "die", "two", "rollback", "replay"]


def steps(names: list[str]) -> st.SearchStrategy[Any]:
    return st.tuples(st.sampled_from(names), st.integers(0, 5), st.integers(0, 9), st.booleans())


ROUNDS = st.lists(
    st.tuples(st.lists(steps(SENDS), min_size=1, max_size=8), steps(TURNS)), min_size=1, max_size=5
)


TAKE = ("take", 0, 0, True)
A_COLUMN_OP = [([("put", 0, 1, False)], TAKE), ([("put", 0, 2, False)], TAKE)]
A_MOVE_BESIDE_A_BAD_ROW = [
    ([("put", 0, 1, False), ("put", 0, 4, True)], TAKE),
    ([("move", 0, 3, True), ("bad", 0, 5, False)], TAKE),
]


@example(envelope="debezium", is_whole=True, table_type="copy_on_write", rounds=A_COLUMN_OP)
@example(
    envelope="debezium", is_whole=False, table_type="copy_on_write",
    rounds=A_MOVE_BESIDE_A_BAD_ROW,
)  # fmt: skip
@settings(max_examples=3_000 if DEEP else 14)
@given(
    envelope=st.sampled_from(["row", "debezium"]), is_whole=st.booleans(),
    table_type=st.sampled_from(["copy_on_write", "merge_on_read"]), rounds=ROUNDS,
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::bucketlake.errors.NullElementWarning")
def test_a_topic_becomes_its_rows_and_its_bad_messages_dead_letters(
    envelope: str, is_whole: bool, table_type: str, rounds: list[Any]
) -> None:
    world = World(envelope, is_whole, table_type)
    try:
        for sends, turn in rounds:
            for name, *given_ in [*sends, turn]:
                _do(world, name, *given_)
        world.job = None
        _do(world, "take", 0, 0, True)
    finally:
        name = world.path.removeprefix("memory://")
        forget(name)
        forget(f"{name}_dead_letters")


def _do(world: World, name: str, key: int, n: int, flag: bool) -> None:
    step: Callable[[str, int, bool], None] = getattr(world, name)
    step(f"k{key}", n, flag)
