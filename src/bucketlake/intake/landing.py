"""Files of a landing zone, each version taken once, by the ledger of the table.

No time and no order of names decides what is new: files of one time, late files and files that were
written again are each taken once. Two versions of a file differ in size, time of change or etag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pyarrow as pa

from bucketlake.cdc.programs import DMS_MARKER, is_full_load, rows_of_dms_files
from bucketlake.errors import ConfigError, InputError, ObjectNotFoundError
from bucketlake.flow.threads import HERE
from bucketlake.intake.dead_letters import (
    EVERY_CHANGE,
    LETTERS,
    known_columns,
    letters_with,
    sift,
    without,
)
from bucketlake.intake.ledger import Ledger
from bucketlake.intake.source_batch import Limits, SourceBatch
from bucketlake.model.position import Origin, Position
from bucketlake.model.row_merge import WHOLE_ROWS
from bucketlake.model.table_type import MergeMode
from bucketlake.storage.base import at_once
from bucketlake.storage.memory import MemoryStorage
from bucketlake.table import Table, handle_of
from bucketlake.timeline.instant import system_now_ms
from bucketlake.write.input_files.file_source import FileSource
from bucketlake.write.input_files.files import (
    COMPRESSIONS,
    InputFile,
    InputFiles,
    input_file,
    listed,
    open_bytes,
    open_text,
)
from bucketlake.write.input_files.reading import BYTE_ORDER_MARK, FileFormat

if TYPE_CHECKING:
    from bucketlake.engine import Records

_BATCH = "batch"  # The only partition of the position of a landing zone: batches are counted.
_WHOLE = -1  # The number of a letter that is a whole file.
_KEPT_BYTES_MAX = 64 << 20  # Of a whole file.


@dataclass(slots=True)
class LandingZone:
    """Folders of files, for one table.

    Parameters
    ----------
    given : InputFiles
        The files, folders and patterns.
    table : str
        Path of the table.
    name : str
        Name of the source in the position: each has a ledger of its own.
    limits : Limits
        Of a batch.
    dms : sequence of str or None
        If the files are of AWS DMS: the ordering columns of a new table.
    """

    given: InputFiles
    table: str
    name: str
    limits: Limits
    dms: Sequence[str] | None = None
    _ledger: Ledger | None = None

    def tables(self) -> list[str]:
        """Return the table."""
        return [self.table]

    def batches(self, opened: Callable[[str], Table | None]) -> Iterator[SourceBatch]:
        """Yield the files that are there and not in the ledger, in order of their paths."""
        there = self._listed()
        while True:
            table = opened(self.table)
            stored = None if table is None else table.position(self.name)
            self._ledger = None if table is None else self._ledger_of(table, stored)
            new = there if self._ledger is None else self._ledger.unseen(there)
            if not new:
                return
            chosen = self._limited(new)
            try:
                batch = self._batch(chosen, there, table, stored, len(new) - len(chosen))
            except (InputError, ObjectNotFoundError):  # Of files of AWS DMS, which are read here.
                if not _changed(chosen):
                    raise
                there = self._listed()
                continue
            yield batch

    def decode(self, letters: pa.Table, table: Table | None) -> Records:
        """Read letters as the files that they come from."""
        storage = MemoryStorage.fresh()
        files: list[InputFile] = []
        places = (letters[name].to_pylist() for name in ("partition", "offset", "key", "value"))
        rows = zip(*places, strict=True)
        for (partition, key, is_whole), group in groupby(rows, _file_of):
            lines = [value for _, _, _, value in group]
            if is_whole and lines[0] is None:
                raise InputError(partition, "its bytes were not kept", "put the file there again")
            path = f"{len(files)}/{partition.rpartition('#')[0].rpartition('//')[2]}"
            suffix = PurePosixPath(path).suffix.lower()
            if not is_whole:
                path = path[: -len(suffix)] if suffix in COMPRESSIONS else path  # Plain text.
                lines = [b"\n".join([*([] if key is None else [key]), *lines, b""])]
            storage.put(path, lines[0])
            stored = storage.stat(path)
            assert stored is not None, "it was just put there"
            files.append(input_file(storage, stored, self.given, partition))
        return self._read(files, table)

    def _read(self, files: Sequence[InputFile], table: Table | None) -> pa.Table:
        given = self.given.to_write(EVERY_CHANGE, WHOLE_ROWS, keys_only=False)
        known = known_columns(table)

        def rows(held: Sequence[InputFile]) -> pa.Table:
            return FileSource(replace(given, held=tuple(held)), HERE, lambda: known).some_rows(None)

        if self.dms is None:
            return rows(files)
        ordering, parts = _ordering_of(table, self.dms), []
        for are_loaded in (True, False):
            held = [file for file in files if is_full_load(file.shown) == are_loaded]
            if held:
                parts.append(rows_of_dms_files(rows(held), ordering, are_loaded=are_loaded))
        return pa.concat_tables(parts, promote_options="permissive")

    def _changes(
        self, files: Sequence[InputFile], table: Table | None
    ) -> tuple[pa.Table, pa.Table | None]:
        """Return the changes in files of AWS DMS, and the letters that are none."""
        try:
            return self._read(files, table), None
        except InputError:
            letters = self._letters(files)
            bad = sift(letters, partial(self.decode, table=table))
            good = without(letters, bad)
            if not len(bad) or (table is None and not len(good)):
                raise
            if not len(good):
                known = known_columns(table)
                return (known or pa.schema([])).empty_table(), bad
            return self.decode(good, table), bad

    def _listed(self) -> list[InputFile]:
        """Return the files that are there; none is no error."""
        found: list[InputFile] = []
        for path in self.given.paths:
            try:
                found += listed(replace(self.given, paths=(path,)))
            except InputError as error:
                if "there is no such file" not in error.problem:
                    raise
        begun = [file for file in found if file.stored.size_bytes]  # Others have no rows yet.
        return [*{file.shown: file for file in sorted(begun, key=lambda file: file.shown)}.values()]

    def _ledger_of(self, table: Table, stored: Position | None) -> Ledger:
        storage = handle_of(table).storage
        before = self._ledger or Ledger(storage)
        state = None if stored is None else stored.state
        return before.at(storage, state, f"{table.path}, position of {self.name!r}")

    def _limited(self, new: Sequence[InputFile]) -> list[InputFile]:
        """Return the first files within the limits, at least one."""
        chosen: list[InputFile] = []
        size = 0
        for file in new[: self.limits.files]:
            size += file.stored.size_bytes
            if chosen and size > self.limits.bytes:
                break
            chosen.append(file)
        return chosen

    def _batch(
        self,
        files: list[InputFile],
        there: Sequence[InputFile],
        table: Table | None,
        stored: Position | None,
        left: int,
    ) -> SourceBatch:
        number = 1 + (-1 if stored is None else stored.last.get(_BATCH, -1))
        before = self._ledger

        def origin(table: Table) -> Origin:
            ledger = before or self._ledger_of(table, stored)  # A refused batch asks twice.
            self._ledger = ledger.with_taken(files, there, system_now_ms())
            at, state = {_BATCH: number}, self._ledger.state
            return Origin(position=Position(self.name, at, at, state=state))

        rows: Records = replace(self.given, held=tuple(files))
        bad: pa.Table | None = None
        if self.dms is not None:
            rows, bad = self._changes(files, table)
        return SourceBatch(
            self.table,
            self.name,
            rows,
            origin,
            partial(self._letters, files),
            lambda: bad,
            is_stale=partial(_changed, files),
            stored=stored,
            facts={
                "files": len(files),
                "bytes": sum(file.stored.size_bytes for file in files),
                "lag": left,
            },
        )

    def _letters(self, files: Sequence[InputFile]) -> pa.Table:
        """Return the lines of the files as letters; of other than plain text, the whole files."""
        tables = [LETTERS.empty_table()]
        for file in files:
            place = f"{file.storage.root.rstrip('/')}//{file.stored.path}"
            stored = file.stored
            version = (stored.size_bytes, stored.modified_at_ms, stored.etag)
            place += "#" + "-".join(str(part) for part in version if part != "")
            key, lines = self._lines(file)
            some = letters_with(
                source=[self.name] * len(lines),
                partition=[place] * len(lines),
                offset=[number for number, _ in lines],
                key=[key] * len(lines),
                value=[line for _, line in lines],
            )
            tables.append(some)
        return pa.concat_tables(tables)

    def _lines(self, file: InputFile) -> tuple[bytes | None, list[tuple[int, bytes | None]]]:
        """Return the header of CSV, and the numbered lines with rows."""
        try:
            if not file.is_parquet:
                with open_text(file) as source:
                    text = source.read().removeprefix(BYTE_ORDER_MARK)
                is_json = file.file_format is FileFormat.JSONL
                is_cut = text.lstrip()[:1] != b"[" if is_json else b'"' not in text
                lines = [(n, line) for n, line in enumerate(text.splitlines()) if line.strip()]
                if is_cut and lines:
                    has_header = not is_json and self.given.reading.header
                    return (lines[0][1], [*lines[1:]]) if has_header else (None, [*lines])
        except (InputError, pa.ArrowException, OSError):
            pass  # Its text is damaged.
        if file.stored.size_bytes > _KEPT_BYTES_MAX:
            return None, [(_WHOLE, None)]
        with open_bytes(file) as whole:
            return None, [(_WHOLE, whole.read())]


def _ordering_of(table: Table | None, new: Sequence[str]) -> Sequence[str]:
    """Return the ordering columns for files of AWS DMS: of the table, or of one to be made."""
    config = None if table is None else table.config()
    if config is not None and config.custom_marker != DMS_MARKER:
        wanted = f"the table has the delete marker {config.custom_marker}; make one with"
        raise ConfigError("envelope", "dms", f"{wanted} delete_marker={DMS_MARKER}")
    found = new if config is None else config.ordering_fields
    if not found or (config is not None and config.merge_mode is not MergeMode.EVENT_TIME):
        wanted = "make a table that the column of the endpoint's TimestampColumnName orders"
        raise ConfigError("ordering", None, f"{wanted}: ordering=... (--ordering)")
    return found


def _file_of(row: tuple[str, int, bytes | None, bytes | None]) -> tuple[str, bytes | None, bool]:
    return row[0], row[2], row[1] == _WHOLE


def _changed(files: Sequence[InputFile]) -> bool:
    """Return whether a file is gone, or has another version by now."""
    at = at_once(files[0].storage, lambda file: file.storage.stat(file.stored.path), files)
    return any(found != file.stored for found, file in zip(at, files, strict=True))
