"""A table of bucketlake's with a history of every kind of commit, and the model of it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import bucketlake as bl
from tests.interop.model import Model, Row
from tests.interop.table_kind import REGIONS, TableKind

KEYS = 40


@dataclass(frozen=True)
class History:
    """A table, and its state after each of its commits."""

    kind: TableKind
    path: Path
    model: Model

    @property
    def table(self) -> bl.Table:
        """The table, opened anew."""
        return bl.open_table(str(self.path))


def make_history(path: Path, kind: TableKind) -> History:
    """Write inserts, late and repeated events, deletes, an overwritten and a deleted partition."""
    table, model, random_ = kind.create(path), Model(kind), random.Random(str(kind.ordering))

    def upsert(rows: list[Row]) -> None:
        model.upsert(rows)
        table.upsert(kind.rows(rows))
        model.commit(table)

    upsert([event(random_, n, 10) for n in range(30)])
    upsert(events(random_, 25, 20))

    gone = [event(random_, n, 0) for n in random_.sample(range(KEYS), 12)]
    model.delete(gone)
    table.delete(kind.rows(gone).select([*kind.record_key, *kind.partition_by]))
    model.commit(table)

    overwriting = [event(random_, n, 5) for n in range(1, 25, 3)]
    model.overwrite(overwriting)
    table.insert_overwrite(kind.rows(overwriting))
    model.commit(table)

    upsert(events(random_, 25, 30))

    model.delete_partitions([("日本",)])
    table.delete_partitions(["日本"])
    model.commit(table)

    upsert(events(random_, 20, 15))
    return History(kind, path, model)


def event(random_: random.Random, number: int, ts: int) -> Row:
    """Make an event; its partition follows from its number."""
    return {
        "id": f"k{number}",
        "region": REGIONS[number % len(REGIONS)],
        "ts": ts,
        "v": random_.randrange(1000),
        "note": random_.choice([None, "", "ä", "🙂", "plain"]),
    }


def events(random_: random.Random, count: int, ts: int) -> list[Row]:
    """Make events of random keys, some of them late, some of them twice or of one time."""
    late = [0, 0, 0, 12]
    numbers = [random_.randrange(KEYS) for _ in range(count)]
    return [event(random_, n, ts - random_.choice(late)) for n in numbers]
