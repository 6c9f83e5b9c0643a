"""The ledger of a landing zone: which versions of which files a table has taken.

The ledger is a few immutable Parquet files in the extension folder of the table. The position in a
commit names them (``Position.state``). So the ledger counts from the commit on that wrote the rows
of the files, and goes back with it in a rollback or a restore. Parts that no commit names are
deleted by a clean.

A commit adds a part with its files, and merges parts that are not much larger. So there are few
parts, and each entry is written a few times at most.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bucketlake.config.paths_of_table import LEDGER_FOLDER
from bucketlake.errors import FormatError, ObjectNotFoundError
from bucketlake.storage.base import Storage
from bucketlake.write.input_files.files import InputFile

_NAME = re.compile(r"(?P<rows>\d{1,15})-[0-9a-f]{32}\.parquet")
_TIMES = ["path", "size", "changed"]
_VERSION = [*_TIMES, "etag"]
_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("changed", pa.int64()),
        ("taken", pa.int64()),
        ("etag", pa.string()),  # Empty where the storage gives none; parts of old jobs lack it.
    ]
)
FORGET_AFTER_MS = 7 * 24 * 3_600_000
"""A file that is gone from its folder is forgotten so long after it was taken."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The files that a table has taken, as one commit says it.

    Attributes
    ----------
    storage : Storage
        The table's storage.
    parts : tuple of str
        Names of the files of the ledger, largest first.
    known : dict of str to pa.Table
        Parts that were read; a part never changes.
    """

    storage: Storage
    parts: tuple[str, ...] = ()
    known: dict[str, pa.Table] = field(default_factory=dict, repr=False, compare=False)

    def at(self, storage: Storage, state: str | None, where: str) -> Ledger:
        """Return the ledger that a position names; parts that both have are not read again.

        Raises
        ------
        FormatError
            If the position names other things than parts.
        """
        parts = tuple((state or "").split())
        if not all(map(_NAME.fullmatch, parts)):
            raise FormatError(where, "names of parts of a ledger", (state or "")[:80])
        known = {name: rows for name, rows in self.known.items() if name in parts}
        return Ledger(storage, parts, known)

    @property
    def state(self) -> str:
        """What the position of a commit says of the ledger."""
        return " ".join(self.parts)

    def unseen(self, files: Sequence[InputFile]) -> list[InputFile]:
        """Return the files whose version is not in the ledger, in the order given."""
        if not self.parts:
            return [*files]
        given = _rows(files, 0).append_column("at", pa.array(range(len(files)), pa.int64()))
        taken = pa.concat_tables(self._read(name) for name in self.parts).select(_VERSION)
        new = given.join(taken, keys=_VERSION, join_type="left anti")
        by_time = taken.filter(pc.equal(taken["etag"], "")).select(_TIMES)
        new = new.join(by_time, keys=_TIMES, join_type="left anti")
        return [files[at] for at in sorted(new["at"].to_pylist())]

    def with_taken(
        self, files: Sequence[InputFile], listed: Sequence[InputFile], now_ms: int
    ) -> Ledger:
        """Write a part for some files; return the ledger that has them, too.

        ``listed`` are all files that are there: others that were taken long ago are forgotten.
        """
        rows, kept = _rows(files, now_ms), [*self.parts]
        while kept and _count(kept[-1]) <= 2 * len(rows):
            rows = pa.concat_tables([rows, self._read(kept.pop())])
        if not kept:
            is_young = pc.greater(rows["taken"], now_ms - FORGET_AFTER_MS)
            there = pa.array([file.shown for file in listed], pa.string())
            rows = rows.filter(pc.or_(is_young, pc.is_in(rows["path"], there)))
        rows = rows.sort_by("path").combine_chunks()
        name = f"{len(rows)}-{uuid.uuid4().hex}.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd")
        self.storage.put(f"{LEDGER_FOLDER}/{name}", sink.getvalue())
        return Ledger(self.storage, (*kept, name), {**self.known, name: rows})

    def _read(self, name: str) -> pa.Table:
        if name not in self.known:
            path = f"{LEDGER_FOLDER}/{name}"
            try:
                data = self.storage.read(path)
                rows = pq.read_table(pa.BufferReader(data), schema=_SCHEMA)
                at, etags = _SCHEMA.get_field_index("etag"), pc.fill_null(rows["etag"], "")
                self.known[name] = rows.set_column(at, "etag", etags)
            except (ObjectNotFoundError, pa.ArrowException) as error:
                raise FormatError(
                    f"{self.storage.root}/{path}",
                    "a part of the ledger of taken files, which the newest commit names; without "
                    "it every file would be taken again (take them with another name=)",
                    str(error),
                ) from error
        return self.known[name]


def _count(name: str) -> int:
    found = _NAME.fullmatch(name)
    assert found is not None, "names are checked"
    return int(found["rows"])


def _rows(files: Sequence[InputFile], taken_ms: int) -> pa.Table:
    stored = [file.stored for file in files]
    columns = [
        [file.shown for file in files],
        [held.size_bytes for held in stored],
        [held.modified_at_ms for held in stored],
        [taken_ms] * len(files),
        [held.etag for held in stored],
    ]
    return pa.table(columns, schema=_SCHEMA)
