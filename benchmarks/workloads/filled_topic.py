"""A topic of real messages of Debezium, and the rows that they add up to.

Half of the messages are inserts, of which a snapshot made rows; then come updates of four rows in
five, and deletes of the fifth. Postgres and the connector end when the topic is full; the broker
stays until the process ends. Messages have no schemas, so that both sides declare the columns.
"""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common.process import REPOSITORY
from benchmarks.common.rows import DataSet
from benchmarks.systems.engine_free import EngineFree
from benchmarks.workloads.topic_ends import topic_end
from examples.database.stack import DEBEZIUM, KAFKA, Stack

JARS = REPOSITORY / ".uv" / "change-stream"
WARM, WHOLE = "shop.public.warm", "shop.public.whole"
WARM_CHANGES_MAX = 20_000
FILL_SECONDS_MAX = 900
COLUMNS = {
    "id": "bigint",
    "region": "text",
    "customer": "int",
    "state": "text",
    "total": "double precision",
    "paid": "boolean",
    "at": "timestamptz",
    "note": "text",
}
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("region", pa.string()),
        ("customer", pa.int32()),
        ("state", pa.string()),
        ("total", pa.float64()),
        ("paid", pa.bool_()),
        ("at", pa.timestamp("us", "UTC")),
        ("note", pa.string()),
    ]
)


class FilledTopic(EngineFree):
    """Start the parts, and fill the topics.

    Parameters
    ----------
    settings : mapping
        ``rows``, the number of changes, and ``work``, where other contenders find the topic.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(kafka=KAFKA, debezium=DEBEZIUM, messages="JSON without schemas")
        self._changes, self._work = settings["rows"], Path(settings["work"])

    def fill(self, _data: DataSet, _table: Path) -> None:
        """Fill a small topic and the whole one; say where they are."""
        # The database runs as a user of its own, which may not look into every folder.
        stack = Stack(Path(tempfile.mkdtemp(prefix="topic-")), JARS)
        atexit.register(_end, stack)
        stack.start("postgres", "kafka", "connect")
        sizes = {WARM: min(WARM_CHANGES_MAX, self._changes), WHOLE: self._changes}
        for topic, changes in sizes.items():
            stack.sql("postgres", _made(topic.removeprefix("shop."), changes // 2))
        names = ",".join(topic.removeprefix("shop.") for topic in sizes)
        converters = {
            f"{part}.converter{more}": value
            for part in ("key", "value")
            for more, value in (
                ("", "org.apache.kafka.connect.json.JsonConverter"),
                (".schemas.enable", "false"),
            )
        }
        stack.connector("shop", "postgres", **{"table.include.list": names}, **converters)
        _reach(stack, {topic: changes // 2 for topic, changes in sizes.items()})
        for topic in sizes:
            for statement in _changed(topic.removeprefix("shop.")):
                stack.sql("postgres", statement)
        # A delete is followed by a message without a value.
        ends = {topic: changes // 2 + 6 * (changes // 10) for topic, changes in sizes.items()}
        _reach(stack, ends)
        for topic in sizes:
            self._keep_rows(stack, topic)
        stack.stop("connect", "postgres")
        told = {"brokers": stack.brokers, "ends": ends}
        (self._work / "topic.json").write_text(json.dumps(told))
        self.seen = {"messages": ends[WHOLE]}

    def _keep_rows(self, stack: Stack, topic: str) -> None:
        table = topic.removeprefix("shop.")
        micros = "(extract(epoch from at) * 1000000)::bigint as at"
        names = ", ".join(micros if name == "at" else name for name in COLUMNS)
        rows = stack.sql("postgres", f"select {names} from {table} order by id")
        texts = pa.table({name: [row[name] for row in rows] for name in COLUMNS})
        columns = {}
        for held in SCHEMA:
            text = texts[held.name]
            if pa.types.is_boolean(held.type):
                columns[held.name] = pa.array([value == "t" for value in text.to_pylist()])
            elif pa.types.is_timestamp(held.type):
                columns[held.name] = text.cast(pa.int64()).cast(held.type)
            else:
                columns[held.name] = text.cast(held.type)
        pq.write_table(pa.table(columns, schema=SCHEMA), rows_of(self._work, topic))


def rows_of(work: Path, topic: str) -> Path:
    """Return the file with the rows that the messages of a topic add up to, by key."""
    return work / f"{topic}.parquet"


def _made(table: str, rows: int) -> str:
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    return (
        f"create table {table} ({columns}, primary key (id));"
        f"alter table {table} replica identity full;"
        f"insert into {table} select n, 'region ' || n % 8, n % 9973, 'placed', n / 7.0, n % 3 = 0,"
        " timestamptz '2026-01-01 00:00:00+00' + n * interval '1 second',"
        f" repeat(md5(n::text), 3) from generate_series(1, {rows}) n"
    )


def _changed(table: str) -> list[str]:
    """Return four updates of a fifth of the rows each, and a delete of the last fifth."""
    updates = [
        f"update {table} set state = 'step {part}', total = total + 1, "
        f"at = at + interval '1 hour' where id % 5 = {part}"
        for part in range(4)
    ]
    return [*updates, f"delete from {table} where id % 5 = 4"]


def _reach(stack: Stack, ends: Mapping[str, int]) -> None:
    """Wait until the topics have so many messages."""
    until = time.monotonic() + FILL_SECONDS_MAX
    found: dict[str, int] = {}
    while time.monotonic() < until:
        try:
            found = {topic: topic_end(stack.ports["kafka"], topic) for topic in ends}
        except OSError:  # There is no such topic yet.
            found = {}
        if found and all(found[topic] >= end for topic, end in ends.items()):
            return
        stack.restart_failed("shop")
        time.sleep(0.5)
    raise TimeoutError(f"the topics have {found} messages, expected {ends}")


def _end(stack: Stack) -> None:
    stack.stop()
    shutil.rmtree(stack.folder, ignore_errors=True)
