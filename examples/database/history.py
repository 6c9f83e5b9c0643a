"""A random history of a shop's orders, as SQL for Postgres or MariaDB.

Inserts, updates, deletes, changes of keys and of the partition column, large values that stay as
they are, transactions that are rolled back, columns that are added and dropped. One seed gives one
history.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

TABLE = "orders"
KEY = "id"
REGIONS = ("north", "south", "ost-see", "Übersee")
STATES = ("new", "sent", "paid", "O''Hara", "ж", "")
COLUMNS = {
    "postgres": (
        "id int primary key, region text not null, state varchar(10), total numeric(10,2), "
        "paid boolean, at timestamp(6), day date, note text"
    ),
    "mariadb": (
        "id int primary key, region varchar(20) not null, state varchar(10), total decimal(10,2), "
        "paid smallint, at datetime(6), day date, note text"
    ),
}


@dataclass
class History:
    """Statements that change a table, and the keys that are there.

    Parameters
    ----------
    database : str
        ``postgres`` or ``mariadb``.
    seed : int
        What the history follows from.
    table : str
        The table's name as SQL writes it.
    weights : sequence of int
        How often rows are inserted, updated, deleted, moved and renamed.
    columns_every : int
        Transactions between two changes of columns.
    """

    database: str
    seed: int = 0
    table: str = TABLE
    weights: Sequence[int] = (40, 40, 10, 6, 4)
    columns_every: int = 40
    keys: list[int] = field(default_factory=list)
    added: str | None = None  # A column that is there for a while.

    def __post_init__(self) -> None:
        """Begin at the seed."""
        self.random = random.Random(self.seed)
        self.last_key = self.last_column = 0

    def begin(self, rows: int) -> str:
        """Return what makes the table, with rows that a snapshot finds."""
        create = f"create table {self.table} ({COLUMNS[self.database]});"
        if self.database == "postgres":
            # Out of the row, so that an update of other columns does not send it again.
            create += f"alter table {self.table} alter column note set storage external;"
        return create + "".join(self._insert() for _ in range(rows))

    def transactions(self, count: int) -> Iterator[str]:
        """Yield transactions, each as one text."""
        for number in range(1, count + 1):
            # Debezium's connector for MySQL that is killed after a change of columns, before it
            # saves its place, reads older rows by the newer columns and fails for good.
            if number % self.columns_every == 0 and self.database == "postgres":
                yield self._other_columns()
            keys, last = self.keys.copy(), self.last_key
            statements = [self._statement() for _ in range(self.random.randint(1, 8))]
            end = "commit;"
            if self.random.random() < 0.1:
                self.keys, self.last_key, end = keys, last, "rollback;"
            yield "begin;" + "".join(statements) + end

    def _statement(self) -> str:
        kinds = [self._insert, self._update, self._delete, self._move, self._rename]
        [make] = self.random.choices(kinds, self.weights)
        return make() if self.keys else self._insert()

    def _insert(self) -> str:
        self.last_key += 1
        self.keys.append(self.last_key)
        values = [str(self.last_key), self._region(), *self._values().values(), self._note()]
        names = "id, region, state, total, paid, at, day, note"
        return f"insert into {self.table} ({names}) values ({', '.join(values)});"

    def _update(self) -> str:
        values = self._values()
        chosen = self.random.sample(sorted(values), self.random.randint(1, len(values)))
        changed = {name: values[name] for name in chosen}
        if self.added is not None and self.random.random() < 0.5:
            changed[self.added] = str(self.random.randint(0, 99))
        if self.random.random() < 0.1:
            changed["note"] = self._note()
        return self._set(self._key(), changed)

    def _delete(self) -> str:
        key = self._taken_key()
        return f"delete from {self.table} where id = {key};"

    def _move(self) -> str:
        """Change the partition, with the large value in sight: it must go along."""
        return self._set(self._key(), {"region": self._region()})

    def _rename(self) -> str:
        old = self._taken_key()
        self.last_key += 1
        self.keys.append(self.last_key)
        return self._set(old, {"id": str(self.last_key), "note": self._note()})

    def _set(self, key: int, values: dict[str, str]) -> str:
        changes = ", ".join(f"{name} = {value}" for name, value in values.items())
        return f"update {self.table} set {changes} where id = {key};"

    def _other_columns(self) -> str:
        """Add a column, or drop the one that was added."""
        if self.added is None:
            self.last_column += 1
            self.added = f"extra{self.last_column}"
            return f"alter table {self.table} add column {self.added} int;"
        dropped, self.added = self.added, None
        return f"alter table {self.table} drop column {dropped};"

    def _key(self) -> int:
        return self.random.choice(self.keys)

    def _taken_key(self) -> int:
        """Take a key out; the order of the others does not matter."""
        place = self.random.randrange(len(self.keys))
        self.keys[place], self.keys[-1] = self.keys[-1], self.keys[place]
        return self.keys.pop()

    def _region(self) -> str:
        return f"'{self.random.choice(REGIONS)}'"

    def _values(self) -> dict[str, str]:
        draw = self.random
        cents, second = draw.randint(-99_999_999, 99_999_999), draw.randint(0, 59)
        true = "true" if self.database == "postgres" else "1"
        false = "false" if self.database == "postgres" else "0"
        day = f"{draw.randint(1990, 2037)}-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}"
        values = {
            "state": f"'{draw.choice(STATES)}'",
            "total": f"{cents / 100:.2f}",
            "paid": draw.choice((true, false)),
            "at": f"'{day} 23:59:{second:02}.{draw.randint(0, 999_999):06}'",
            "day": f"'{day}'",
        }
        return {name: "null" if draw.random() < 0.1 else v for name, v in values.items()}

    def _note(self) -> str:
        draw = self.random
        if draw.random() < 0.4:
            return draw.choice(("null", "''", "'short'"))
        return (
            f"'{draw.randbytes(draw.randint(1_500, 3_000)).hex()}'"  # Larger than a page's share.
        )
