"""A streaming DataFrame as a source: each of its batches is written once, by its number.

Spark keeps where the stream is, in the checkpoint. Rows that cannot be taken are kept as JSON.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bucketlake.actions.stream_batches import commits_of_query
from bucketlake.engine import sample_rows
from bucketlake.errors import BucketLakeError
from bucketlake.flow.threads import HERE
from bucketlake.intake.dead_letters import LETTER_PLACE, known_columns, letters_with
from bucketlake.intake.job import Job, JobRules, stopped_by_signal
from bucketlake.intake.metrics import IngestReport, Metrics
from bucketlake.intake.source_batch import SourceBatch
from bucketlake.model import position
from bucketlake.model.position import Origin
from bucketlake.model.result import WriteResult
from bucketlake.model.text_table import plain_value
from bucketlake.storage.memory import MemoryStorage
from bucketlake.table import Table, handle_of
from bucketlake.timeline.active import load_timeline
from bucketlake.write.input_files.file_source import FileSource
from bucketlake.write.input_files.files import InputFile, InputFiles
from bucketlake.write.input_files.reading import FileFormat, Reading

if TYPE_CHECKING:
    from bucketlake.engine import Records

_POLL_SECONDS = 0.2


@dataclass(slots=True)
class BatchesOfStream:
    """Takes the batches of a streaming DataFrame; a function for ``foreachBatch``.

    Parameters
    ----------
    table : str
        Path of the table.
    name : str
        Name of the stream.
    rules : JobRules
        How batches are written.
    metrics : Metrics
        What counts them.
    """

    table: str
    name: str
    rules: JobRules
    metrics: Metrics = field(default_factory=Metrics)

    def tables(self) -> list[str]:
        """Return the table."""
        return [self.table]

    def batches(self, opened: Callable[[str], Table | None]) -> Iterator[SourceBatch]:
        """Return nothing: Spark hands the batches over."""
        _ = opened
        return iter(())

    def decode(self, letters: pa.Table, table: Table | None) -> Records:
        """Read rows from their JSON."""
        storage = MemoryStorage.fresh()
        storage.put("rows.jsonl", b"\n".join([*letters["value"].to_pylist(), b""]))
        stored = storage.stat("rows.jsonl")
        assert stored is not None, "it was just put there"
        files = (InputFile(storage, stored, FileFormat.JSONL),)
        given = InputFiles((), Reading(), held=files)
        return FileSource(given, HERE, lambda: known_columns(table)).some_rows(None)

    def __call__(self, rows: Any, number: int) -> None:
        """Write a batch, unless it was committed before."""
        batch = SourceBatch(
            self.table,
            self.name,
            rows,
            lambda _: Origin(batch=position.Batch(self.name, number)),
            lambda: self._letters(rows, number),
        )
        try:
            Job(self, self.rules, self.metrics).take(batch)
        except BucketLakeError as error:  # Spark quotes the traceback.
            raise error.with_traceback(None) from None

    def _letters(self, rows: Any, number: int) -> pa.Table:
        """Return the rows as letters; a digest of the row is its number in the batch."""
        values = [
            json.dumps(plain_value(row), ensure_ascii=False).encode()
            for row in sample_rows(rows, None, "batch of a stream").to_pylist(
                maps_as_pydicts="strict"
            )
        ]
        digests = [hashlib.sha256(value).digest()[:8] for value in values]
        return letters_with(
            source=[self.name] * len(values),
            partition=[str(number)] * len(values),
            offset=[int.from_bytes(digest, "big", signed=True) for digest in digests],
            value=values,
        )

    def run(self, df: Any, checkpoint: str, every_seconds: float | None) -> IngestReport:
        """Write the batches of a streaming DataFrame, until it ends or the process shall stop."""
        when: dict[str, Any] = {"processingTime": f"{every_seconds} seconds"}
        is_far = type(df).__module__.startswith("pyspark.sql.connect")
        # A worker of the server writes the batches of Spark Connect; they are counted here.
        taker = replace(self, metrics=Metrics()) if is_far else self
        seen, number = self._commits() if is_far else {}, -1
        writer = df.writeStream.foreachBatch(taker).option("checkpointLocation", checkpoint)
        writer = writer.trigger(**(when if every_seconds is not None else {"availableNow": True}))
        with stopped_by_signal() as stop:
            query = writer.queryName(self.name).start()
            while query.isActive:
                if stop.is_set() and not query.status["isTriggerActive"]:
                    query.stop()
                time.sleep(_POLL_SECONDS)
                told = query.lastProgress if is_far else None
                if told is not None and told["batchId"] > number:
                    seen, number = self._commits(seen), told["batchId"]
            query.awaitTermination()  # Raises the error of a batch.
        if is_far:
            self._commits(seen)
        return self.metrics.total()

    def _commits(self, seen: Mapping[str, int] | None = None) -> dict[str, int]:
        """Return the batches of the stream by their commits; count those that were not seen."""
        table = self.rules.opened(self.table)
        if table is None:
            return {}
        opened = handle_of(table).open()
        found = commits_of_query(opened, load_timeline(opened), self.name)
        entries = [] if seen is None else table.timeline()
        new = [entry for entry in entries if entry.requested_at in found.keys() - (seen or {})]
        if new:
            letters = self.rules.letters_of(self.table).of_table(self.table)
            dead = Counter(zip(*(letters[n].to_pylist() for n in LETTER_PLACE[:2]), strict=True))
            for entry in new:
                result = WriteResult(
                    entry.requested_at, written=entry.written or 0, deleted=entry.deleted
                )
                at = self.name, str(found[entry.requested_at])
                self.metrics.add(self.table, result, dead[at], entry.seconds or 0.0, {})
        return found
