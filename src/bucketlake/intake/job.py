"""The loop of an ingest: batch after batch from a source to its tables, each exactly once.

The position of the source is in the commit that writes its rows (``model/position.py``). So there
is nothing else to keep: a job that starts again goes on after the newest commit. A batch that is
refused is looked at row by row; the rows that cannot be taken are dead letters, which are written
before the commit.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bucketlake.actions.progress import LOGGER
from bucketlake.cdc.envelope import PLACE_COLUMN
from bucketlake.creating import create_table
from bucketlake.engine import given_columns, sample_rows
from bucketlake.errors import (
    AlreadyExistsError,
    CommitConflictError,
    ConfigError,
    InputError,
    ObjectNotFoundError,
)
from bucketlake.intake.dead_letters import (
    BAD_ROWS_MAX,
    EVERY_CHANGE,
    DeadLetters,
    checks_of,
    opened,
    sift,
    too_many_bad,
    without,
)
from bucketlake.intake.metrics import IngestReport, Metrics
from bucketlake.intake.source_batch import Source, SourceBatch
from bucketlake.model.position import Origin
from bucketlake.model.result import WriteResult
from bucketlake.model.row_merge import WHOLE_ROWS, SchemaMerge
from bucketlake.model.table_type import Operation
from bucketlake.table import Table, handle_of
from bucketlake.write.input_files.files import InputFiles
from bucketlake.writing import write_data

if TYPE_CHECKING:
    from bucketlake.engine import Records

_STRICT = SchemaMerge(add_columns=True, widen_types=True)
_PREVIEW_ROWS = 100


@dataclass(frozen=True, slots=True)
class JobRules:
    """How a job writes.

    Attributes
    ----------
    new_table : mapping of str to object
        How a table is made that is not there, for ``create_table``.
    keeps_bad : bool
        Whether bad rows become dead letters; else they stop the job.
    dead_letters : str or None
        Path of the table of dead letters; None for one beside each table.
    storage_options : mapping of str to str
        Settings of the object store of the tables.
    """

    new_table: Mapping[str, Any] = field(default_factory=dict)
    keeps_bad: bool = True
    dead_letters: str | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict)

    def letters_of(self, table: str) -> DeadLetters:
        """Return the dead letters of a table."""
        path = self.dead_letters or f"{table.rstrip('/')}_dead_letters"
        if path == table:
            raise ConfigError("dead_letters", path, "give another path than that of the table")
        return DeadLetters(path, self.storage_options)

    def opened(self, path: str) -> Table | None:
        """Return a table; None if it is not there yet."""
        return opened(path, self.storage_options)

    def options_for(self, keys: tuple[str, ...], names: list[str]) -> dict[str, Any]:
        """Return how to make a table for rows with some columns."""
        options = {"storage_options": self.storage_options, **self.new_table}
        if PLACE_COLUMN in names:
            options.setdefault("ordering", PLACE_COLUMN)
        if keys:
            options.setdefault("record_key", [*keys])
        if "record_key" not in options:
            wanted = "name the columns of the key of the new table: record_key=... (--key)"
            raise ConfigError("record_key", None, wanted)
        return options


@dataclass(slots=True)
class Job:
    """Takes the batches of a source.

    Parameters
    ----------
    source : Source
        Where they come from.
    rules : JobRules
        How they are written.
    metrics : Metrics
        What counts them.
    """

    source: Source
    rules: JobRules
    metrics: Metrics = field(default_factory=Metrics)
    _lacking: set[str] = field(default_factory=set)

    def run(self, every_seconds: float | None) -> IngestReport:
        """Take what is there; then again every so many seconds, until the process is told to stop.

        None: take what is there, once.
        """
        with stopped_by_signal() as stop:
            while not stop.is_set():
                is_whole = self._round(stop)
                if every_seconds is None and is_whole:
                    break
                if is_whole:
                    stop.wait(every_seconds)
        return self.metrics.total()

    def _round(self, stop: threading.Event) -> bool:
        """Take what is there; return whether nothing must be planned again."""
        for batch in self.source.batches(self.rules.opened):
            try:
                self.take(batch)
            except CommitConflictError as error:
                LOGGER.info("ingest: another writer was faster; planning again: %s", error)
                return False
            except (InputError, AlreadyExistsError, ObjectNotFoundError):
                # Another job may have made the table, or somebody moved a file away.
                if not self._is_stale(batch):
                    raise
                LOGGER.info("ingest %s: the source changed; planning again", batch.table)
                return False
            if stop.is_set():
                break
        return True

    def take(self, batch: SourceBatch) -> WriteResult:
        """Write a batch by one commit, and before it the rows that cannot be taken.

        Raises
        ------
        InputError
            If a row cannot be taken and bad rows stop the job, or the error is not that of a row.
        """
        started, dead = time.monotonic(), 0
        bad = batch.bad()
        if bad is not None and len(bad):
            dead = self._keep(batch, bad)
        try:
            result = self._write(batch, batch.rows)
        except InputError as error:
            if self._is_stale(batch):
                raise
            letters = batch.letters() if bad is None else without(batch.letters(), bad)
            table = self.rules.opened(batch.table)
            found = sift(letters, self._check(batch, table))
            rows = self._rest(without(letters, found), table, error)
            if not len(found) or (table is None and rows is None):
                raise  # It is not a row, or there is no row of which a table could be made.
            dead += self._keep(batch, found, error)
            result = self._write(batch, rows)
        self.metrics.add(batch.table, result, dead, time.monotonic() - started, batch.facts)
        return result

    def _rest(self, letters: pa.Table, table: Table | None, refused: InputError) -> Records | None:
        """Return the records of letters that can be taken; None if there are none."""
        try:
            return self.source.decode(letters, table) if len(letters) else None
        except InputError:
            if table is not None:
                raise
            step = "say the types of the columns: schema=... (--set schema=...)"
            raise InputError(refused.where, refused.problem, step) from refused

    def _is_stale(self, batch: SourceBatch) -> bool:
        """Return whether a batch is to be planned again: its source or its position changed."""
        table = self.rules.opened(batch.table)
        moved = table is not None and table.position(batch.source) != batch.stored
        return moved or batch.is_stale()

    def _check(self, batch: SourceBatch, table: Table | None) -> Callable[[pa.Table], None]:
        decode = partial(self.source.decode, table=table)

        def options(names: list[str]) -> dict[str, Any]:
            return self.rules.options_for(batch.keys, names)

        return checks_of(table, decode, options)

    def _keep(self, batch: SourceBatch, bad: pa.Table, error: InputError | None = None) -> int:
        """Write dead letters; return their number."""
        first = bad.slice(0, 1).to_pylist()[0]
        place = f"{first['source']}, {first['partition']}, {first['offset']}"
        if not self.rules.keeps_bad:
            raise InputError(
                f"ingest to {batch.table}, {place}",
                first["reason"],
                "correct the source, or keep such rows: on_bad_row='dead_letter' "
                "(--on-bad-row dead_letter)",
            ) from error
        if len(bad) > BAD_ROWS_MAX:
            raise too_many_bad(first["reason"])
        self.rules.letters_of(batch.table).put(bad, batch.table)
        LOGGER.warning(
            "ingest %s: %s rows cannot be taken and are dead letters; the first, %s: %s",
            batch.table, f"{len(bad):,}", place, first["reason"],
        )  # fmt: skip
        return len(bad)

    def _write(self, batch: SourceBatch, rows: Records | None) -> WriteResult:
        """Write records; make the table for the first ones. None: only the position moves on."""
        table = self.rules.opened(batch.table)
        if table is None:
            assert rows is not None, "a table is made of rows"
            if isinstance(rows, InputFiles):  # One may lack a column of another.
                rows = rows.to_write(EVERY_CHANGE, WHOLE_ROWS, keys_only=False)
            names = given_columns(rows, batch.table).names
            options = self.rules.options_for(batch.keys, [*names])
            table = create_table(batch.table, schema=rows, **options)
        if rows is None:
            rows = handle_of(table).snapshot().schema.empty_table()
        return self.upsert(table, rows, batch.origin(table))

    def upsert(self, table: Table, rows: Records, origin: Origin) -> WriteResult:
        """Upsert records; columns that they lack become null, with a warning."""
        write = partial(write_data, handle_of(table), Operation.UPSERT, rows, origin=origin)
        with handle_of(table).at_work("ingest"):
            if table.path not in self._lacking:
                try:
                    return write(merge_schema=_STRICT.words)
                except InputError as error:
                    result = write(merge_schema=EVERY_CHANGE.words)
                    self._lacking.add(table.path)
                    LOGGER.warning("ingest: nulls are written: %s", error.problem)
                    return result
            return write(merge_schema=EVERY_CHANGE.words)

    # Other ways to run.

    def replay(self) -> IngestReport:
        """Take the dead letters of the tables again; those that still cannot be taken stay."""
        for path in self.source.tables():
            self._replay(path)
        return self.metrics.total()

    def _replay(self, path: str) -> None:
        started, dead = time.monotonic(), self.rules.letters_of(path)
        table = self.rules.opened(path)
        letters = dead.of_table(path)
        if table is None or not len(letters):
            return
        decode = partial(self.source.decode, table=table)
        found = sift(letters, checks_of(table, decode, lambda _: {}))
        good, result = without(letters, found), WriteResult(None)
        if len(good):
            result = self.upsert(table, decode(good), Origin())
        if len(found):
            dead.put(found, path)
        dead.drop(good)
        self.metrics.add(path, result, len(found), time.monotonic() - started, {})

    def preview(self) -> IngestReport:
        """Return what the first rows become; nothing is written."""
        for batch in self.source.batches(self.rules.opened):
            table, found = self.rules.opened(batch.table), batch.bad()
            rows: Records | None = batch.rows
            try:
                rows = sample_rows(rows, _PREVIEW_ROWS, "preview")
            except InputError as error:
                letters = batch.letters().slice(0, _PREVIEW_ROWS)
                found = sift(letters, self._check(batch, table))
                rows = self._rest(without(letters, found), table, error)
            some = None if rows is None else sample_rows(rows, _PREVIEW_ROWS, "preview")
            some = None if some is None else some.slice(0, _PREVIEW_ROWS)
            return IngestReport(dead_letters=0 if found is None else len(found), preview=some)
        return IngestReport()


@contextmanager
def stopped_by_signal() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM sets while the body runs; only the main thread gets signals."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)
