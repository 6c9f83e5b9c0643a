"""Topics of Kafka, read from the position in the table's commit up to their ends.

The position is the checkpoint: a job without any other memory goes on after it. Each batch is a
batch read of Spark's Kafka source, or of another reader, from one offset of each partition to
another (``docs/decisions/0044-ingest-by-positions.md``).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.actions.progress import LOGGER
from bucketlake.actions.stream_batches import ends_of_sources
from bucketlake.cdc.batch import read_messages
from bucketlake.cdc.envelope import ENVELOPES, NO_ROWS, OFFSET_DIGITS, PLACE_COLUMN
from bucketlake.engine import sample_rows
from bucketlake.errors import ConfigError, InputError
from bucketlake.following import StoredRows, reading_of
from bucketlake.intake.dead_letters import BAD_ROWS_MAX, LETTERS, checks_of, letters_with
from bucketlake.intake.source_batch import Limits, SourceBatch
from bucketlake.model.arguments import names_of
from bucketlake.model.arrays import one_array
from bucketlake.model.names import did_you_mean
from bucketlake.model.position import Origin, Position
from bucketlake.table import Table, handle_of
from bucketlake.timeline.active import load_timeline

if TYPE_CHECKING:
    from bucketlake.engine import Records

EARLIEST = -2  # Kafka's word for the first offset that is there.
TopicOffsets = Mapping[int, int]
"""An offset for each partition of a topic."""


class TopicReader(Protocol):
    """What reads topics: Spark's Kafka source, or a twin of it in tests."""

    def ends(self) -> Mapping[str, TopicOffsets]:
        """Return the offset after the last record of each partition of each topic."""
        ...

    def beginnings(self, ends: Mapping[str, TopicOffsets]) -> Mapping[str, TopicOffsets]:
        """Return the first offset of each partition of the topics that have these ends.

        :data:`EARLIEST` if it is at the end, or next to it.
        """
        ...

    def messages(self, topic: str, starts: TopicOffsets, ends: TopicOffsets) -> Records:
        """Return the messages from starts up to and without ends, as Kafka's source has them."""
        ...

    def following(self, starts: Mapping[str, TopicOffsets], rows_max: int) -> pa.Table | None:
        """Return all messages from starts on, of all topics; None if the ends must be looked at.

        They must if there are more, a start is not there, or topics or partitions are others.
        """
        ...


@dataclass(slots=True)
class Topics:
    """Topics, each for a table.

    Parameters
    ----------
    reader : TopicReader
        Reads the topics.
    table : str or mapping of str to str
        Path of the table; ``{topic}`` in it stands for the topic. Or paths by topic.
    decoder : Decoder
        Makes records of messages.
    name : str or None
        Names the cluster: the name of a source is then ``name/topic``, else the topic.
    limits : Limits
        Of a batch.
    from_end : bool
        Whether a topic without a position begins with what comes next.
    ordering : str or sequence of str
        What orders the rows of a new table.
    bytes_here : int
        Messages of so many bytes are decoded in this process; more by tasks of Spark. It follows
        from an average size, so where it was missed by far, fewer messages are taken afterwards.
        Up to three batches are in memory: one that is written, the next one, and what is decoded.
    """

    reader: TopicReader
    table: str | Mapping[str, str]
    decoder: Decoder
    name: str | None = None
    limits: Limits = field(default_factory=Limits)
    from_end: bool = False
    ordering: Any = PLACE_COLUMN
    bytes_here: int = 128 << 20
    _beginnings: Callable[[], Mapping[str, TopicOffsets]] = dict  # Looked for once a round.
    _first: dict[str, TopicOffsets] = field(default_factory=dict)  # Where a new table begins.
    _taken: Mapping[str, TopicOffsets] = field(default_factory=dict)  # If the last round was whole.
    _bytes: dict[str, float] = field(default_factory=dict)  # Of a message, as last seen, by topic.
    _most: dict[str, int] = field(default_factory=dict)  # Messages here, by topic, if known.
    _topics: Sequence[str] = ()
    _coming: tuple[str, object, Future[pa.Table]] | None = None  # The batch that is fetched ahead.
    _fits: set[str] = field(default_factory=set)  # Tables that take the declared columns.
    _forms: dict[str, frozenset[int] | None] = field(default_factory=dict)  # Of positions, by path.

    def tables(self) -> list[str]:
        """Return the paths of the tables of the topics that are there."""
        return [*dict.fromkeys(self._table_of(topic) for topic in self.reader.ends())]

    def batches(self, opened: Callable[[str], Table | None]) -> Iterator[SourceBatch]:
        """Yield what the topics have, in turns of one batch each, so that none waits for others.

        After a round that took everything, what came since is probably little: one read gets it.
        Otherwise the ends of the topics are looked at first.
        """
        taken, self._taken = self._taken, {}
        found = self._recent(taken, opened) if taken else None
        if found is not None:
            yield from found
            self._taken = taken
            return
        every = self._ends()
        self._topics = [*every]
        self._beginnings = cache(partial(self.reader.beginnings, every))
        waiting = [self._of_topic(topic, ends, opened) for topic, ends in every.items()]
        while waiting:
            for batches in [*waiting]:
                batch = next(batches, None)
                if batch is None:
                    waiting.remove(batches)
                else:
                    yield batch
        self._taken, self._coming = every, None

    def decode(self, letters: pa.Table, table: Table | None) -> Records:
        """Decode letters again; InputError has the reason of the first that is still bad."""
        messages = letters.select(["partition", "offset", "key", "value", "headers"])
        topics = pa.array([name.rpartition("/")[2] for name in letters["source"].to_pylist()])
        messages = messages.append_column("topic", topics)
        partitions = messages["partition"].cast(pa.int32())
        rows, bad = self.decoder.decode(messages.set_column(0, "partition", partitions), table)
        for reason in sample_rows(bad, 1)["reason"].to_pylist():
            raise InputError("message", reason, "correct the source, or leave the letter")
        self._require_one_form("message", rows, table)
        return rows

    def _ends(self) -> Mapping[str, TopicOffsets]:
        ends = self.reader.ends()
        if not isinstance(self.table, str):
            for topic in self.table:
                if topic not in ends:
                    raise InputError(
                        f"topic {topic}",
                        f"there is no such topic{did_you_mean(topic, ends)}",
                        "create it, or correct the names of the topics",
                    )
        return ends

    def _table_of(self, topic: str) -> str:
        if isinstance(self.table, str):
            return self.table.replace("{topic}", topic)
        if topic not in self.table:
            wanted = f"name the table of topic {topic!r}, or give a path with {{topic}}"
            raise ConfigError("table", dict(self.table), wanted)
        return self.table[topic]

    def _source_of(self, topic: str) -> str:
        return f"{self.name}/{topic}" if self.name else topic

    def _recent(
        self, known: Mapping[str, TopicOffsets], opened: Callable[[str], Table | None]
    ) -> Iterator[SourceBatch] | None:
        """Return what came since the last round; None if it is to be planned by the ends."""
        tables = {topic: opened(self._table_of(topic)) for topic in known}
        stored = {
            topic: None if table is None else table.position(self._source_of(topic))
            for topic, table in tables.items()
        }
        starts = {topic: self._next(topic, known[topic], stored[topic]) for topic in known}
        if any(held and len(held.last) > len(known[topic]) for topic, held in stored.items()):
            return None
        rows = self.reader.following(starts, min(self._rows_here(*known), self.limits.rows))
        if rows is None:
            return None
        batches = []
        for topic in pc.unique(rows["topic"]).to_pylist():
            own = rows.filter(pc.equal(rows["topic"], topic))
            ends = own.group_by("partition").aggregate([("offset", "max")])
            seen = zip(ends["partition"].to_pylist(), ends["offset_max"].to_pylist(), strict=True)
            self._measured(topic, own)
            upto = {**starts[topic], **{partition: last + 1 for partition, last in seen}}
            span = (starts[topic], upto, upto)
            batches.append(self._batch(topic, own, span, stored[topic], tables[topic]))
        return filter(None, batches)

    def _of_topic(
        self, topic: str, ends: TopicOffsets, opened: Callable[[str], Table | None]
    ) -> Iterator[SourceBatch]:
        path, source = self._table_of(topic), self._source_of(topic)
        while True:
            table = opened(path)
            stored = None if table is None else table.position(source)
            starts = self._starts(topic, ends, stored)
            upto = self._limited(starts, ends)
            if not upto:
                return
            if table is not None and "schema" in self.decoder.options and path not in self._fits:
                check = checks_of(table, partial(self.decode, table=table), lambda _: {})
                check(LETTERS.empty_table())
                self._fits.add(path)  # What is refused without a row is the schema.
            messages, count = self.reader.messages(topic, starts, upto), _count(starts, upto)
            if count > self._rows_here(topic):
                self._fetched(topic, partial(sample_rows, messages, MEASURED_ROWS, _ROLE), count)
            here = None
            if count <= self._rows_here(topic):
                here = self._fetched(topic, self._fetch(topic, starts, upto, messages), count)
                self._fetch_ahead(topic, {**starts, **upto}, ends)
            with ExitStack() as kept:
                messages = _kept(messages, kept) if here is None else here
                try:
                    batch = self._batch(topic, messages, (starts, upto, ends), stored, table, kept)
                except InputError as error:
                    if not error.is_too_much or not self._take_fewer(count):
                        raise
                    continue
                if batch is not None:
                    yield batch

    def _fetch(
        self, topic: str, starts: TopicOffsets, upto: TopicOffsets, messages: Records
    ) -> Callable[[], pa.Table]:
        """Return what fetches all messages of a span, or waits for those that come already."""
        if self._coming is not None and self._coming[0] == topic:
            _, span, rows = self._coming
            self._coming = None
            if span == _span(starts, upto):
                return rows.result
        return partial(sample_rows, messages, None, _ROLE)

    def _fetch_ahead(self, topic: str, starts: TopicOffsets, ends: TopicOffsets) -> None:
        """Begin to fetch what probably comes next, while a batch is decoded and written.

        Only one batch is ahead, whatever the number of topics, since it takes memory.
        """
        upto = self._limited(starts, ends)
        if self._coming is None and 0 < _count(starts, upto) <= self._rows_here(topic):
            messages, rows = self.reader.messages(topic, starts, upto), Future[pa.Table]()
            self._coming = topic, _span(starts, upto), rows

            def run() -> None:
                try:
                    rows.set_result(sample_rows(messages, None, _ROLE))
                except BaseException as error:  # Raised where the rows are asked for.
                    rows.set_exception(error)

            # Who stops does not wait for it.
            threading.Thread(target=run, name="ingest-ahead", daemon=True).start()

    def _fetched(self, topic: str, fetch: Callable[[], pa.Table], count: int) -> pa.Table | None:
        """Return messages, measured; None if Spark hands over fewer bytes."""
        try:
            rows = fetch()
        except InputError as error:
            if not error.is_too_much:
                raise
            LOGGER.info("ingest: %s messages of topic %s are left to tasks", f"{count:,}", topic)
            self._most[topic] = count // 2
            return None
        self._measured(topic, rows)
        return rows

    def _rows_here(self, *topics: str) -> int:
        """Return how many messages this process takes at once, by the sizes of those before."""
        size = max((self._bytes.get(topic, MESSAGE_BYTES_MAX) for topic in topics), default=1)
        known = (self._most[topic] for topic in topics if topic in self._most)
        return min([int(self.bytes_here / size), *known])

    def _measured(self, topic: str, messages: pa.Table) -> None:
        if len(messages):
            self._bytes[topic] = max(1.0, messages.nbytes / len(messages))
        if messages.nbytes > 2 * self.bytes_here:
            self._most[topic] = len(messages) // 2

    def _next(
        self, topic: str, partitions: Iterable[int], stored: Position | None
    ) -> dict[int, int]:
        """Return where each partition goes on by the stored position."""
        last = _offsets_of(stored, topic)
        first = self._first.get(topic, {}) if stored is None else {}
        return {p: last[p] + 1 if p in last else first.get(p, EARLIEST) for p in partitions}

    def _starts(self, topic: str, ends: TopicOffsets, stored: Position | None) -> dict[int, int]:
        """Return where each partition goes on.

        Raises
        ------
        InputError
            If a partition was made anew, or records after the position are gone.
        """
        if self.from_end:
            self._first.setdefault(topic, ends)
        starts = self._next(topic, ends, stored)
        for partition, old in _offsets_of(stored, topic).items():
            end = ends.get(partition)
            if end is None or end < old + 1:
                told = "is gone" if end is None else f"ends at {end - 1}"
                raise _lost(topic, partition, f"it {told}, and {old} is stored as written")
        there = self._beginnings().get(topic, {})
        for partition, start in starts.items():
            begin = there.get(partition, EARLIEST)
            if begin == EARLIEST and EARLIEST < start < ends[partition] - 1:
                begin = ends[partition] - 1  # It is there or at the end.
            if begin > start != EARLIEST:
                raise _lost(topic, partition, f"records {start} to {begin - 1} are gone")
            starts[partition] = max(start, begin)
        return starts

    def _limited(self, starts: TopicOffsets, ends: TopicOffsets) -> dict[int, int]:
        """Return up to where a batch goes; empty if there is nothing."""
        left = {p: ends[p] - max(start, 0) for p, start in starts.items() if ends[p] > start}
        left = {p: count for p, count in left.items() if count > 0}
        if not left:
            return {}
        share = max(1, self.limits.rows // len(left))
        # A beginning that is unknown is close to the end.
        return {
            p: end if starts[p] == EARLIEST else min(end, starts[p] + share) if p in left else end
            for p, end in ends.items()
        }

    def _batch(
        self,
        topic: str,
        messages: Records,
        span: tuple[TopicOffsets, TopicOffsets, TopicOffsets],
        stored: Position | None,
        table: Table | None,
        kept: ExitStack | None = None,
    ) -> SourceBatch | None:
        """Return the batch of some messages; None if they show no row, and there is no table."""
        starts, upto, ends = span
        path, source = self._table_of(topic), self._source_of(topic)
        if table is None:
            self._forms.clear()  # It may have been dropped, and the next one has another form.
        try:
            rows, bad = self.decoder.decode(messages, table, kept)
        except InputError as error:
            if table is not None or error.problem != NO_ROWS:
                raise
            LOGGER.info("ingest: topic %s has no row yet", topic)
            self._first[topic] = upto
            return None
        if stored is None or isinstance(rows, pa.Table) or path not in self._forms:
            self._require_one_form(f"topic {topic} into {path}", rows, table)
        if stored is None:
            self._require_one_order(topic, rows, table)
        # The first position has all partitions of a topic that begins with what comes next.
        begun = {p for p, start in starts.items() if stored is None and start > 0}
        moved = {p: end for p, end in upto.items() if p in begun or end > max(starts[p], 0)}
        position = Position(
            source,
            {str(p): end - 1 for p, end in moved.items()},
            {str(p): starts[p] for p in moved if starts[p] != EARLIEST},
        )

        limits, count = self.limits, _count(starts, moved)
        return SourceBatch(
            path,
            source,
            rows,
            lambda _: Origin(position=position),
            lambda: self._letters(source, messages, None, count),
            bad=lambda: self._letters(source, bad, BAD_ROWS_MAX + 1, count),
            is_stale=lambda: self.limits != limits,
            stored=stored,
            keys=() if table is not None or not self.decoder.has_keys else key_names(messages),
            facts={
                "lag": sum(ends[p] - end for p, end in upto.items()),
                "bytes": messages.nbytes
                if isinstance(messages, pa.Table)
                else int(self._bytes.get(topic, 0) * count),
            },
        )

    def _letters(
        self, source: str, messages: Records, rows_max: int | None, count: int
    ) -> pa.Table:
        """Return messages of a batch as letters; if they are too many, next batches have fewer."""
        try:
            return letters_of(source, messages, rows_max)
        except InputError as error:
            if not error.is_too_much:
                raise
            self._take_fewer(count)
            raise InputError(
                f"source {source}",
                f"a message of {count:,} cannot be taken, and to find it the driver needs more "
                f"bytes than Spark hands over ({_TOO_MUCH})",
                f"raise {_TOO_MUCH}, or set max_rows= (--set max_rows=...) below {count:,}",
            ) from error

    def _take_fewer(self, count: int) -> bool:
        """Let batches have half as many messages as one had; return whether that is fewer."""
        before, fewer = self.limits.rows, max(1, min(self.limits.rows, count) // 2)
        self.limits = replace(self.limits, rows=fewer)
        return fewer < before

    def _require_one_form(self, where: str, rows: Records, table: Table | None) -> None:
        """Raise InputError if the positions of rows and of the table have more than one form."""
        known = self._forms_in(table)
        if known is None or len(known | (forms := _forms_of(rows))) < 2:
            return
        told, stored = (
            " and ".join("offsets" if n == OFFSET_DIGITS else f"{n} digits of a log" for n in some)
            for some in (sorted(forms), sorted(known or forms))
        )
        problem = f"the positions of its rows are {told}, those of the table {stored}; {_NO_ORDER}"
        step = "or read it as before, if envelope= or fields of its messages (add.fields) changed"
        raise InputError(where, problem, f"{_OWN_TABLE}; {step}")

    def _forms_in(self, table: Table | None) -> frozenset[int] | None:
        """Return the form of the positions of a table's rows; None if they do not order them."""
        path = "" if table is None else table.path
        known = self._forms.get(path, _NO_FORM)
        if known == _NO_FORM:
            new = names_of(self.ordering or (), "ordering")
            ordered = new if table is None else table.config().ordering_fields
            if ordered[:1] != (PLACE_COLUMN,):
                known = None
            elif table is not None:
                scan = table.scan(where=f"{PLACE_COLUMN} > '0'", columns=[PLACE_COLUMN])
                rows = scan.to_batches()
                known = _forms_of(pa.Table.from_batches(islice(filter(len, rows), 1), rows.schema))
            self._forms[path] = known
        return known

    def _require_one_order(self, topic: str, rows: Records, table: Table | None) -> None:
        """Raise InputError if a topic begins in a table where offsets would order two topics."""
        path = self._table_of(topic)
        others = {name for name in self._topics if self._table_of(name) == path}
        if table is not None:
            opened = handle_of(table).open()
            ends = ends_of_sources(opened, load_timeline(opened))
            numbered = [name for name, last in ends.items() if all(map(str.isdecimal, last))]
            others |= {name.rpartition("/")[2] for name in numbered}
        others -= {topic}
        if others and self._forms_in(table) is not None and OFFSET_DIGITS in _forms_of(rows):
            problem = f"offsets order the rows of this table, and topic {min(others)} fills it, too"
            step = f"{_OWN_TABLE}, or let a column order a new table: ordering=... (--ordering)"
            raise InputError(f"topic {topic} into {path}", f"{problem}; {_NO_ORDER}", step)


_NO_FORM = frozenset[int]()
_NO_ORDER = "the two have no order, so an older change could replace a newer one"
_OWN_TABLE = "give each topic its own table, such as lake/{topic}"


def _offsets_of(stored: Position | None, topic: str) -> dict[int, int]:
    """Return the last offset of each partition by the stored position."""
    last = {} if stored is None else stored.last
    for name in last:
        if not name.isdecimal():
            raise InputError(
                f"topic {topic}",
                f"the position that is stored for it has the partition {name!r}, not a number of "
                "Kafka: another job stored it",
                "give this source another name=...",
            )
    return {int(name): end for name, end in last.items()}


def _span(starts: TopicOffsets, ends: TopicOffsets) -> dict[int, tuple[int, int]]:
    """Return the offsets of each partition; a start that is unknown is 0."""
    return {p: (max(starts[p], 0), end) for p, end in ends.items()}


def _count(starts: TopicOffsets, ends: TopicOffsets) -> int:
    """Return how many offsets there are; an unknown start counts as 0."""
    return sum(end - max(starts[p], 0) for p, end in ends.items())


def _forms_of(rows: Any) -> frozenset[int]:
    """Return how long the positions of rows are; a row of a snapshot may have none, but "0"."""
    if isinstance(rows, pa.Table):
        lengths = pc.binary_length(rows[PLACE_COLUMN])
    else:
        lengths = sample_rows(rows.selectExpr(f"length({PLACE_COLUMN})").distinct(), None)[0]
    return frozenset(n for n in pc.unique(lengths).to_pylist() if n and n > 1)


def _lost(topic: str, partition: int, problem: str) -> InputError:
    return InputError(
        f"topic {topic}, partition {partition}",
        problem,
        "restore the topic, or read what is there by another name=; into a new table, if offsets "
        "order the rows and they began anew",
    )


# ---- Messages: decoded, as letters, and the names in their keys ----------------------------------

MESSAGE_BYTES_MAX, MEASURED_ROWS = 1 << 20, 100
"""The largest message that a broker takes, unless told otherwise; and so many show a usual one."""

_ROLE, _TOO_MUCH = "messages of a topic", "spark.driver.maxResultSize"


@dataclass(frozen=True, slots=True)
class Decoder:
    """Makes records of messages.

    Attributes
    ----------
    options : mapping of str to object
        How messages are read, the options of ``debezium``.
    """

    options: Mapping[str, Any]

    @property
    def has_keys(self) -> bool:
        """Whether the key of a message is that of its row."""
        return ENVELOPES[self.options.get("envelope", "debezium")].has_keys

    def decode(
        self, messages: Records, table: Table | None, kept: ExitStack | None = None
    ) -> tuple[Records, Records]:
        """Return the records of messages, and the messages that cannot be read.

        Those of a DataFrame are kept by Spark, so that messages are decoded once, until ``kept``
        ends.

        Raises
        ------
        InputError
            If no columns are known: messages have no schemas, and there is no table.
        """
        reading = reading_of(**{**self.options, **({} if table is None else {"table": table})})
        stored = None if table is None else StoredRows(table)
        if not isinstance(messages, pa.Table):
            from bucketlake.spark.debezium import decoded

            frame: Any = messages
            both = decoded(frame, reading, stored)
            if kept is not None:
                _kept(both.both, kept)
            return both.rows, both.bad
        found = read_messages(messages, reading, stored)
        return found.rows, found.bad


def _kept(rows: Any, kept: ExitStack) -> Any:
    """Let Spark keep the rows of a DataFrame until a stack ends; Arrow tables are there anyway."""
    if isinstance(rows, pa.Table):
        return rows
    kept.callback(rows.unpersist)
    return rows.persist()


def letters_of(source: str, messages: Records, rows_max: int | None = None) -> pa.Table:
    """Return messages as letters, up to so many of a DataFrame; bad ones have a reason."""
    rows = sample_rows(messages, rows_max, _ROLE)
    given = {*LETTERS.names}.intersection(rows.column_names)
    columns = {name: one_array(rows[name]) for name in given}
    return letters_with(source=[source] * len(rows), **columns)


def key_names(messages: Any) -> tuple[str, ...]:
    """Return the names in the key of the first messages that have some; none if none has."""
    keys = sample_rows(messages.select(["key"]), MEASURED_ROWS, _ROLE)["key"]
    for key in keys.slice(0, MEASURED_ROWS):
        try:
            held = json.loads(key.as_py() or b"null")
        except ValueError:
            continue
        if isinstance(held, dict) and held.keys() == {"schema", "payload"}:
            held = held["payload"]
        if isinstance(held, dict) and held:
            return tuple(held)
    return ()
