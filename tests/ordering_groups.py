"""Rows whose groups of columns have orderings of their own, and what a set of them means."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from bucketlake.model.schema import IS_DELETED

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("at", pa.int64()),
        ("n", pa.string()),
        ("street", pa.string()),
        ("city", pa.string()),
        ("address_at", pa.int64()),
        ("mail", pa.list_(pa.string())),
        ("mail_at", pa.int64()),
    ]
)
ORDERING = {"street": "address_at", "city": "address_at", "mail": "mail_at", "*": "at"}
GROUPS = {"address_at": ("street", "city", "address_at"), "mail_at": ("mail", "mail_at")}


class Event(NamedTuple):
    """A row, which brings an address, a mail, both or none of them; or a delete."""

    key: str
    at: Any
    address_at: Any = None
    mail_at: Any = None
    deletes: bool = False

    @property
    def row(self) -> dict[str, Any]:
        address, mail = self.address_at, self.mail_at
        return {
            "id": self.key,
            "part": "p",
            "at": self.at,
            "n": f"n {self.at}",
            "street": None if address is None or str(address)[-1] in "36" else f"street {address}",
            "city": None if address is None else f"city {address}",
            "address_at": address,
            "mail": None if mail is None else [f"mail {mail}"],
            "mail_at": mail,
        }


def expected(events: Sequence[Event]) -> dict[str, dict[str, Any]]:
    """Return what the set of events means: the plain rule.

    A row or a value of a group that is not newer than a delete does not count. Of the others, the
    newest row gives the columns without a group, and the newest value of a group the group.
    """
    found = {}
    for key in {event.key for event in events}:
        own = [event for event in events if event.key == key]
        deletes = [event.at for event in own if event.deletes]
        rows = [e for e in own if not e.deletes and all(e.at > at for at in deletes)]
        if not rows:
            continue
        row = Event(key, max(event.at for event in rows)).row
        for group, names in GROUPS.items():
            values = [value for event in rows if (value := getattr(event, group)) is not None]
            values = [value for value in values if all(value > at for at in deletes)]
            if values:
                source = Event(key, 0, **{group: max(values)}).row
                row |= {name: source[name] for name in names}
        found[key] = row
    return found


def batch_of(events: Sequence[Event], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Return events as rows; the columns of groups that none of them brings are left out."""
    rows = pa.Table.from_pylist([event.row for event in events], schema)
    for group, names in GROUPS.items():
        if all(getattr(event, group) is None for event in events):
            rows = rows.drop_columns([*names])
    deletes = pa.array([event.deletes for event in events])
    return rows.append_column(IS_DELETED, deletes)


SMALL = (
    Event("a", 3, address_at=3),
    Event("a", 6, address_at=5, mail_at=2),
    Event("a", 4, deletes=True),
    Event("a", 8),
)
EVENTS = (
    *SMALL,
    Event("b", 7, address_at=2, mail_at=7),
    Event("b", 5, mail_at=5),
    Event("b", 6, deletes=True),
    Event("b", 9, address_at=8),
    Event("c", 5, address_at=5),
    Event("c", 5, deletes=True),
)


def histories(seed: int, time: Callable[[int], Any] = int) -> list[Event]:
    """Return random events of many keys, some of them twice, in random order."""
    rng, events = random.Random(seed), []
    for key in range(60):
        for at in rng.sample(range(1, 10), rng.randint(1, 6)):
            deletes = rng.random() < 0.25
            groups = [None if rng.random() < 0.4 else time(rng.randint(0, at)) for _ in range(2)]
            events.append(
                Event(f"k{key}", time(at), *((None, None) if deletes else groups), deletes)
            )
    events += rng.sample(events, 40)
    rng.shuffle(events)
    return events
