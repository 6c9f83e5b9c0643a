"""Topics by Spark's Kafka source, classic or on Spark Connect.

Spark hands offsets to Python in one place: the progress of a streaming query. So a query that
begins at the end, reads nothing and stops tells the ends of all partitions, also of empty ones.
Messages are read by batch reads between offsets.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bucketlake.actions.progress import LOGGER
from bucketlake.errors import InputError
from bucketlake.intake.topics import EARLIEST, TopicOffsets
from bucketlake.spark.read import first_rows

_OFFSETS = ("startingOffsets", "endingOffsets")
_TOPICS = ("subscribe", "subscribePattern", "assign")
_PARTED = ("minPartitions", "maxRecordsPerPartition")
_AT_ONCE = {"kafka.fetch.max.wait.ms": "20", "kafka.max.poll.records": "10000"}
"""Spark's reader asks for the ends of a partition while a fetch of it waits, by default 0.5 s."""

_WAIT_SECONDS = 120.0


def started_session(settings: Mapping[str, str]) -> SparkSession:
    """Return the session of this process with some settings, which a new one begins with."""
    builder: Any = SparkSession.builder
    session: SparkSession = builder.config(map=dict(settings)).getOrCreate()
    return session


@dataclass(frozen=True)
class KafkaReader:
    """Reads the topics that options of Spark's Kafka source name.

    Attributes
    ----------
    session : SparkSession
        Its Kafka source reads.
    options : mapping of str to str
        Options of the source.
    """

    session: SparkSession
    options: Mapping[str, str]

    def ends(self) -> Mapping[str, TopicOffsets]:
        """Return the offset after the last record of each partition of each topic."""
        return self._first_offsets("latest", {})

    def beginnings(self, ends: Mapping[str, TopicOffsets]) -> Mapping[str, TopicOffsets]:
        """Return the first offset of each partition; ``EARLIEST`` where it is close to the end.

        A query that may take one record of each partition goes from the beginning one further. It
        is the same one for all topics: to start it takes seconds.
        """
        limits = {"maxOffsetsPerTrigger": "1", "subscribe": ",".join(ends)}
        every = self._first_offsets("earliest", limits)
        return {
            topic: {p: EARLIEST if n == ends[topic].get(p) else n - 1 for p, n in after.items()}
            for topic, after in every.items()
        }

    def messages(self, topic: str, starts: TopicOffsets, ends: TopicOffsets) -> DataFrame:
        """Return the messages from starts up to and without ends."""
        given = {k: v for k, v in self.options.items() if k not in (*_OFFSETS, *_TOPICS)}
        spans = zip(_OFFSETS, (starts, ends), strict=True)
        offsets = {k: json.dumps({topic: {str(p): n for p, n in v.items()}}) for k, v in spans}
        options = {"includeHeaders": "true", **_AT_ONCE, **given, **offsets, "subscribe": topic}
        return self.session.read.format("kafka").options(**options).load()

    def following(self, starts: Mapping[str, TopicOffsets], rows_max: int) -> pa.Table | None:
        """Return all messages from starts on, of all topics, up to so many; else None."""
        given = {k: v for k, v in self.options.items() if k not in (*_OFFSETS, *_PARTED)}
        offsets = {t: {str(p): n for p, n in v.items()} for t, v in starts.items()}
        frame = self.session.read.format("kafka").options(
            **{"includeHeaders": "true", **_AT_ONCE, **given},
            startingOffsets=json.dumps(offsets),
            endingOffsets="latest",
        )

        try:
            rows = first_rows(frame.load(), None, each_max=rows_max + 1)
        except Exception as error:  # The look at the ends that follows tells what is wrong.
            LOGGER.debug("ingest: topics are looked at anew: %s", error)
            return None
        return rows if len(rows) <= rows_max else None

    def _first_offsets(self, start: str, more: Mapping[str, str]) -> dict[str, dict[int, int]]:
        """Return the offsets in the first progress of a query that writes nothing."""
        dropped = (*_OFFSETS, *(_TOPICS if "subscribe" in more else ()))
        given = {k: v for k, v in self.options.items() if k not in dropped}
        stream = self.session.readStream.format("kafka")
        stream = stream.options(**given, **more, startingOffsets=start)
        try:
            query = stream.load().writeStream.format("noop").start()
            try:
                offsets = self._end_offset(query)
            finally:
                query.stop()
        except Exception as error:
            raise self._unreadable(error) from error
        held = json.loads(offsets) if isinstance(offsets, str) else offsets
        return {t: {int(p): int(n) for p, n in parts.items()} for t, parts in held.items()}

    def _end_offset(self, query: StreamingQuery) -> Any:
        until = time.monotonic() + _WAIT_SECONDS
        while time.monotonic() < until:
            for progress in query.recentProgress:
                sources: Any = progress["sources"]
                if sources and sources[0]["endOffset"]:
                    return sources[0]["endOffset"]
            failed = query.exception()
            if failed is not None:
                raise failed
            time.sleep(0.02)
        raise TimeoutError(f"Kafka did not answer in {_WAIT_SECONDS:.0f} seconds")

    def _unreadable(self, error: Exception) -> InputError:
        lines = [line.strip() for line in str(error).splitlines()]
        known = (line for line in lines if "Unknown" in line or "Timeout" in line)
        told = next(known, lines[0] if lines else type(error).__name__)
        topics = ", ".join(self.options[name] for name in _TOPICS if name in self.options)
        return InputError(
            f"topics {topics or 'of the source'}",
            f"Spark's Kafka source cannot read them: {told}",
            "check the names of the topics and kafka.bootstrap.servers, and that the session has "
            "the package spark-sql-kafka-0-10",
        )
