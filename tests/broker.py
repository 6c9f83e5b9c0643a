"""A twin of Spark's Kafka source: topics in memory, whose messages come as Arrow tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import bucketlake as bl
from bucketlake.cdc.envelope import MESSAGE
from bucketlake.intake.ingesting import IngestOptions, topics_of
from bucketlake.intake.job import Job, JobRules
from bucketlake.intake.topics import EARLIEST

Message = tuple[bytes | None, bytes | None, Mapping[str, bytes]]
"""Key, value and headers."""


@dataclass
class Broker:
    """Topics with partitions, whose oldest records may expire."""

    topics: dict[str, list[list[Message]]] = field(default_factory=dict)
    begins: dict[tuple[str, int], int] = field(default_factory=dict)
    reads: list[tuple[str, dict[int, int], dict[int, int]]] = field(default_factory=list)
    looks: int = 0
    searches: int = 0

    def send(self, topic: str, *rows: Any, partition: int = 0) -> None:
        """Append rows, with their id as key, or pairs of key and value, or those with headers."""
        parts = self.topics.setdefault(topic, [[], []])
        for row in rows:
            key, value, *more = row if isinstance(row, tuple) else ({"id": row["id"]}, row)
            parts[partition].append((encoded(key), encoded(value), more[0] if more else {}))

    def ends(self) -> Mapping[str, dict[int, int]]:
        self.looks += 1
        return self.there()

    def there(self) -> dict[str, dict[int, int]]:
        return {t: {p: len(held) for p, held in enumerate(ps)} for t, ps in self.topics.items()}

    def beginnings(self, ends: Mapping[str, Mapping[int, int]]) -> dict[str, dict[int, int]]:
        self.searches += 1
        begins = {t: {p: self.begins.get((t, p), 0) for p in held} for t, held in ends.items()}
        return {
            t: {p: EARLIEST if begin >= ends[t][p] - 1 else begin for p, begin in held.items()}
            for t, held in begins.items()
        }

    def messages(self, topic: str, starts: Mapping[int, int], ends: Mapping[int, int]) -> pa.Table:
        self.reads.append((topic, {**starts}, {**ends}))
        rows = [
            {"topic": topic, "partition": p, "offset": n, "key": key, "value": value,
             "headers": [{"key": name, "value": held} for name, held in headers.items()]}
            for p, held in enumerate(self.topics[topic])
            for n, (key, value, headers) in enumerate(held)
            if max(starts[p], 0) <= n < ends[p]
        ]  # fmt: skip
        return pa.Table.from_pylist(rows, MESSAGE)

    def following(self, starts: Mapping[str, dict[int, int]], rows_max: int) -> pa.Table | None:
        ends = self.there()
        gone = [
            self.begins.get((topic, p), 0) > max(start, 0) or start > ends[topic].get(p, -1)
            for topic, held in starts.items() if topic in ends
            for p, start in held.items()
        ]  # fmt: skip
        if any(gone) or {t: [*held] for t, held in starts.items()} != {t: [*ends[t]] for t in ends}:
            return None
        rows = pa.concat_tables(self.messages(t, held, ends[t]) for t, held in starts.items())
        return rows if len(rows) <= rows_max else None


def encoded(held: Any) -> bytes | None:
    if held is None or isinstance(held, bytes):
        return held
    return json.dumps(held).encode()


def job_of(
    broker: Broker, table: Any, messages: Mapping[str, Any], *, keeps_bad: bool = True,
    from_end: bool = False, new_table: Mapping[str, Any] | None = None, **options: Any,
) -> Job:  # fmt: skip
    """Return a job that takes the topics of a broker, into tables with one bucket."""
    given = {"index": bl.SimpleBucket(1), **(new_table or {})}
    told = {"ordering": given["ordering"]} if "ordering" in given else {}
    made = topics_of(broker, table, IngestOptions(**options), messages, from_end=from_end, **told)
    return Job(made, JobRules(given, keeps_bad))
