"""``ingest(...)``: from a landing zone, topics of Kafka or a stream of Spark to tables."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from bucketlake.cdc.envelope import PLACE_COLUMN
from bucketlake.cdc.programs import DMS_MARKER
from bucketlake.creating import create_table
from bucketlake.engine import arrow_schema, require_session
from bucketlake.errors import ConfigError
from bucketlake.following import debezium, reading_of
from bucketlake.intake.job import Job, JobRules
from bucketlake.intake.landing import LandingZone
from bucketlake.intake.metrics import IngestReport, Metrics
from bucketlake.intake.source_batch import Limits, Source
from bucketlake.intake.streams import BatchesOfStream
from bucketlake.intake.topics import Decoder, Topics
from bucketlake.model.arguments import (
    check_flags,
    check_integers,
    check_optional_texts,
    check_seconds,
    check_texts,
    items_of,
    names_of,
    options_of,
    path_of,
)
from bucketlake.model.names import one_of
from bucketlake.write.input_files.files import InputFiles, files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from bucketlake.intake.topics import TopicReader

_USUAL = Limits()
_SECONDS_MAX = 7 * 24 * 3600.0
_OF_TABLE = {*inspect.signature(create_table).parameters} - {"path", "data", "storage_options"}
_OF_MESSAGES = {*inspect.signature(debezium).parameters} - {"data", "table"}


@dataclass(frozen=True)
class IngestOptions:
    """The options of ``ingest`` that are not those of a new table or of messages.

    Attributes
    ----------
    name : str or None
        Name of the source in positions.
    every : float or None
        Seconds from the end of a round to the next; None for one round.
    dead_letters : str or None
        Path of the table of dead letters.
    max_rows, max_files, max_bytes : int
        Limits of a batch.
    metrics : sequence of str
        Files for metrics.
    checkpoint : str or None
        Folder of Spark's checkpoint, for a streaming DataFrame.
    """

    name: str | None = None
    every: float | None = None
    dead_letters: str | None = None
    max_rows: int = _USUAL.rows
    max_files: int = _USUAL.files
    max_bytes: int = _USUAL.bytes
    metrics: Sequence[str] = field(default=())
    checkpoint: str | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError for a value that cannot be used."""
        check_optional_texts(
            name=self.name, dead_letters=self.dead_letters, checkpoint=self.checkpoint
        )
        limits = {"max_rows": self.max_rows, "max_files": self.max_files}
        check_integers(1, **limits, max_bytes=self.max_bytes)
        if self.every is not None:
            check_seconds(_SECONDS_MAX, every=self.every)

    @property
    def limits(self) -> Limits:
        """Limits of a batch."""
        return Limits(self.max_rows, self.max_files, self.max_bytes)

    def metrics_of_job(self) -> Metrics:
        """Return what counts the batches."""
        given = self.metrics
        paths = [given] if isinstance(given, str) else items_of(given, "metrics", "give paths")
        return Metrics([path_of(path) for path in paths])


_OF_JOB = {held.name for held in fields(IngestOptions)}
KNOWN_OPTIONS = frozenset({"on_bad_row"} | _OF_JOB | _OF_TABLE | _OF_MESSAGES)
"""The options of ``ingest``."""

_OF_SOURCE = {
    "topics": _OF_MESSAGES | {"max_rows"},
    "files": {"schema", "record_key", "max_files", "max_bytes"},
    "streams": {"record_key", "checkpoint"},
}
"""Options that only some kinds of sources have."""


def ingest(
    source: InputFiles | str | os.PathLike[str] | Mapping[str, str] | DataFrame,
    table: str | os.PathLike[str] | Mapping[str, str],
    *,
    on_bad_row: Literal["dead_letter", "fail"] = "dead_letter",
    dry_run: bool = False,
    replay: bool = False,
    storage_options: Mapping[str, str] | None = None,
    **options: Any,
) -> IngestReport:
    """Write what is new in a source into tables, batch by batch, each row exactly once.

    How far the source is read stands in the commit that writes its rows. So a job can be killed at
    any time and started again; it needs no checkpoint. Examples: ``docs/how-to/ingest.md``.

    Parameters
    ----------
    source : str, Path, InputFiles, dict of str to str, or DataFrame
        A folder or pattern of files, whose new or changed files are taken; :func:`files` says how
        they are read. Or the options of Spark's Kafka source, such as
        ``{"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders"}``. Or a streaming
        DataFrame, which needs ``checkpoint``.
    table : str, Path or dict of str to str
        Path of the table, which is made with the first rows if it is not there. ``{topic}`` in it
        stands for the topic; or the paths by topic.
    on_bad_row : {"dead_letter", "fail"}
        Whether a row that cannot be taken becomes a dead letter, with its reason and its bytes, and
        the job goes on; or stops the job before its batch is written. Rows before its batch stay.
    dry_run : bool
        Whether to return only what the first hundred rows become.
    replay : bool
        Whether to take the dead letters again, in place of the source. Those that are taken leave
        the table of dead letters. A row counts as written now: only an ordering column keeps it
        from replacing a newer row.
    storage_options : mapping of str to str, optional
        Credentials and settings of the object store of the tables, and of a folder given as text.
    **options
        Of the job: ``name`` of the source, if several sources have the same topics, or folders
        that are taken independently; ``every`` so many seconds it looks again, until SIGTERM ends
        it after a batch (by default it looks once); ``dead_letters``, the path of their table, by
        default ``<table>_dead_letters``; ``max_rows`` of a batch of a topic, ``max_files`` and
        ``max_bytes`` of files; ``metrics``, files that end with ``.jsonl`` or ``.prom``;
        ``checkpoint`` of a streaming DataFrame. Of messages, those of :func:`debezium`;
        ``envelope="dms"`` is also for files that AWS DMS wrote. Of a new table, those of
        :func:`create_table`; by default the key is that of the messages, and ``_position`` orders
        them.

    Returns
    -------
    IngestReport
        Counts of batches, rows and dead letters; with ``dry_run`` the rows in ``preview``.

    Raises
    ------
    ConfigError
        If an option is unknown or has no use for the source.
    InputError
        If a batch cannot be taken and the reason is not a single row, a bad row stops the job, or
        records after the position are gone.

    Examples
    --------
    >>> import bucketlake as bl
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as landing:
    ...     _ = Path(landing, "1.jsonl").write_text('{"id": "a", "n": 1}')
    ...     first = ingest(landing, "memory://docs/taken", record_key="id")
    ...     again = ingest(landing, "memory://docs/taken", record_key="id")
    >>> first.rows, again.rows
    (1, 0)
    """
    check_flags(dry_run=dry_run, replay=replay)
    options = {name: _text_of(value) for name, value in options.items()}
    source, table = _text_of(source), _text_of(table)
    if dry_run and replay:
        raise ConfigError("replay", replay, "leave out dry_run: a replay cannot be tried")
    if not isinstance(on_bad_row, str) or on_bad_row not in ("dead_letter", "fail"):
        raise ConfigError("on_bad_row", on_bad_row, "give 'dead_letter' or 'fail'")
    for given in options:
        if given not in KNOWN_OPTIONS:
            raise ConfigError(given, options[given], one_of(given, KNOWN_OPTIONS))
    job_options = IngestOptions(**{k: v for k, v in options.items() if k in _OF_JOB})
    new_table = {k: v for k, v in options.items() if k in _OF_TABLE - {"name", "schema"}}
    is_stream = hasattr(type(source), "writeStream")
    kind = "streams" if is_stream else "topics" if isinstance(source, Mapping) else "files"
    _require_options_of(kind, options)
    store = options_of(storage_options, "storage_options")
    rules = JobRules(new_table, on_bad_row != "fail", job_options.dead_letters, store)
    if is_stream:
        check_texts(table=table)
        assert isinstance(table, str), "checked"
        metrics = job_options.metrics_of_job()
        stream = BatchesOfStream(table, job_options.name or "stream", rules, metrics)
        if replay:
            return Job(stream, rules, metrics).replay()
        if dry_run or job_options.checkpoint is None:
            wanted = "give the folder of Spark's checkpoint; a stream cannot be tried with dry_run"
            raise ConfigError("checkpoint", job_options.checkpoint, wanted)
        return stream.run(source, job_options.checkpoint, job_options.every)
    messages = {k: v for k, v in options.items() if k in _OF_MESSAGES}
    if not isinstance(source, Mapping) and messages.get("envelope") == "dms":
        new_table.setdefault("delete_marker", DMS_MARKER)
    made = _source_of(source, table, job_options, messages, store, new_table)
    job = Job(made, rules, job_options.metrics_of_job())
    if replay:
        return job.replay()
    return job.preview() if dry_run else job.run(job_options.every)


def _text_of(given: Any) -> Any:
    """Return a local path as text, and all else as it is."""
    return path_of(given) if isinstance(given, os.PathLike) else given


def _require_options_of(kind: str, options: Mapping[str, Any]) -> None:
    """Raise ConfigError for an option that a kind of source does not have."""
    is_of_dms = kind == "files" and options.get("envelope") == "dms"
    known = _OF_SOURCE[kind] | ({"envelope"} if is_of_dms else set())
    for given, value in options.items():
        owners = [other for other, own in _OF_SOURCE.items() if given in own]
        if owners and given not in known:
            wanted = f"it is an option of {' and '.join(owners)}; leave it out"
            raise ConfigError(given, value, wanted)


def _source_of(
    source: Any,
    table: Any,
    options: IngestOptions,
    messages: Mapping[str, Any],
    store: Mapping[str, str],
    new_table: Mapping[str, Any],
) -> Source:
    if isinstance(source, Mapping):
        from bucketlake.spark.topic_reader import KafkaReader

        given = options_of(source, "source")
        reader = KafkaReader(require_session(None), given)
        begin = given.get("startingOffsets", "earliest")
        if begin not in ("earliest", "latest"):
            wanted = "give 'earliest' or 'latest'; a stored position is followed in any case"
            raise ConfigError("startingOffsets", begin, wanted)
        ordering, from_end = new_table.get("ordering", PLACE_COLUMN), begin == "latest"
        return topics_of(reader, table, options, messages, from_end=from_end, ordering=ordering)
    is_of_dms = messages.get("envelope") == "dms"
    if isinstance(source, str):
        source = files(source, folder_columns=True, storage_options=store)
    if not isinstance(source, InputFiles):
        wanted = "give a folder, bl.files(...), options of Spark's Kafka source, or a stream"
        raise ConfigError("source", type(source), wanted)
    if not len(source.reading.schema) and "schema" in messages:
        named = replace(source.reading, schema=arrow_schema(messages["schema"]))
        source = replace(source, reading=named)
    check_texts(table=table)
    dms = names_of(new_table.get("ordering") or (), "ordering") if is_of_dms else None
    return LandingZone(source, table, options.name or "files", options.limits, dms)


def topics_of(
    reader: TopicReader,
    table: str | Mapping[str, str],
    options: IngestOptions,
    messages: Mapping[str, Any],
    *,
    from_end: bool = False,
    ordering: str | Sequence[str] = PLACE_COLUMN,
) -> Topics:
    """Return topics that a reader reads."""
    reading_of(**messages)  # Raises ConfigError before anything is read.
    return Topics(
        reader, table, Decoder(messages), options.name, options.limits, from_end, ordering
    )
