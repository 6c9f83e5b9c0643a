"""Rows that a table cannot take: kept in a table of their own, with reason and original bytes.

A *letter* is a row of the source before anything was made of it: where it stands, its key and its
value as bytes. If a batch is refused, the letters that cause it are found by halves
(:func:`sift`). They are written to the table of dead letters before the commit whose position
passes them. Their key is their place in the source, so a batch that comes again writes them again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.cdc.envelope import MESSAGE
from bucketlake.creating import create_table
from bucketlake.engine import source_of
from bucketlake.errors import AlreadyExistsError, InputError, TableNotFoundError
from bucketlake.flow.threads import HERE
from bucketlake.index.simple import SimpleBucket
from bucketlake.model.arguments import names_of
from bucketlake.model.row_merge import SchemaMerge
from bucketlake.model.table_type import Operation
from bucketlake.opening import open_table
from bucketlake.table import Table, handle_of
from bucketlake.write.batch_schema import schema_after
from bucketlake.write.target import target_of

if TYPE_CHECKING:
    from bucketlake.engine import Records

LETTERS = pa.schema(
    [
        ("table", pa.string()),
        ("source", pa.string()),
        ("partition", pa.string()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("reason", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("headers", MESSAGE.field("headers").type),  # Tables of old jobs lack it.
    ]
)
"""Columns of the table of dead letters."""

LETTER_PLACE = ("source", "partition", "offset")
_KEY = ("table", *LETTER_PLACE)
_REASON = LETTERS.names.index("reason")
BAD_ROWS_MAX = 10_000
"""So many bad rows of one batch are kept; more mean that the settings are wrong."""

EVERY_CHANGE = SchemaMerge(add_columns=True, widen_types=True, fill_missing=True)
Decode = Callable[[pa.Table], "Records"]


def letters_with(**columns: Any) -> pa.Table:
    """Return letters with some columns; the others are null."""
    count = len(columns["value"])
    held = {name: columns.get(name, pa.nulls(count)) for name in LETTERS.names}
    return pa.table(held).cast(LETTERS)


def opened(path: str, storage_options: Mapping[str, str]) -> Table | None:
    """Return a table; None if it is not there yet."""
    try:
        return open_table(path, storage_options=storage_options)
    except TableNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The table of dead letters; it is made when the first one comes.

    Attributes
    ----------
    path : str
        Its folder.
    storage_options : mapping of str to str
        Settings of its object store.
    """

    path: str
    storage_options: Mapping[str, str]

    def put(self, letters: pa.Table, into: str) -> None:
        """Write letters for a table with their reasons; one that is there is replaced."""
        table = opened(self.path, self.storage_options) or self._made()
        columns = dict(zip(letters.column_names, letters.columns, strict=True))
        values = {"table": into, "at": time.time_ns() // 1000}
        for name, value in values.items():
            scalar = pa.scalar(value, LETTERS.field(name).type)
            columns[name] = pa.repeat(scalar, len(letters))
        table.upsert(pa.table(columns, schema=LETTERS), merge_schema=True)

    def _made(self) -> Table:
        try:
            return create_table(
                self.path,
                schema=LETTERS,
                record_key=list(_KEY),
                index=SimpleBucket(1),
                storage_options=self.storage_options,
            )
        except AlreadyExistsError:  # Another job made it.
            return open_table(self.path, storage_options=self.storage_options)

    def drop(self, letters: pa.Table) -> None:
        """Delete letters that are taken."""
        table = opened(self.path, self.storage_options)
        if table is not None and len(letters):
            table.delete(letters.select(_KEY))

    def of_table(self, into: str) -> pa.Table:
        """Return the letters for a table in their order."""
        table = opened(self.path, self.storage_options)
        if table is None:
            return LETTERS.empty_table()
        known = {*table.schema().names}.intersection(LETTERS.names)
        rows = table.to_arrow(columns=[*known])
        rows = rows.filter(pc.equal(rows["table"], into))
        rows = rows.sort_by([(name, "ascending") for name in LETTER_PLACE])
        return letters_with(**{name: rows[name] for name in known})


def sift(letters: pa.Table, check: Callable[[pa.Table], object]) -> pa.Table:
    """Return the letters that a check refuses one by one, with the reasons.

    Raises
    ------
    InputError
        If there are more than :data:`BAD_ROWS_MAX`.
    """
    bad: list[pa.Table] = []
    waiting = [letters] if len(letters) else []
    while waiting:
        some = waiting.pop()
        try:
            check(some)
        except InputError as error:
            half = len(some) // 2
            if half:
                waiting += [some.slice(half), some.slice(0, half)]
                continue
            reasons = pa.repeat(pa.scalar(_reason(error), pa.string()), len(some))
            bad.append(some.set_column(_REASON, "reason", reasons))
            if len(bad) > BAD_ROWS_MAX:
                raise too_many_bad(error.problem) from error
    return pa.concat_tables([LETTERS.empty_table(), *bad])


def too_many_bad(reason: str) -> InputError:
    """Return the error of a batch with more bad rows than are kept, with the reason of one."""
    return InputError(
        "rows of the source",
        f"more than {BAD_ROWS_MAX:,} rows of one batch cannot be taken, such as: {reason}",
        "correct the settings, such as schema=, envelope= or format=, or if the rows are truly bad "
        "take fewer at once: max_rows=, max_files=; no row of the batch is in the table",
    )


def _reason(error: InputError) -> str:
    """Return what is wrong with a row, without the place in the text that was made of it."""
    _, is_there, column = error.where.partition(", column ")
    return f"column {column}: {error.problem}" if is_there else error.problem


def without(letters: pa.Table, bad: pa.Table) -> pa.Table:
    """Return the letters whose places are not those of others, in their order."""
    if not len(bad):
        return letters
    numbered = letters.append_column("at_row", pa.array(range(len(letters)), pa.int64()))
    names = [*LETTER_PLACE, "at_row"]
    good = numbered.select(names).join(
        bad.select(LETTER_PLACE), keys=[*LETTER_PLACE], join_type="left anti"
    )
    return letters.take(good["at_row"].combine_chunks().sort())


def known_columns(table: Table | None) -> pa.Schema | None:
    """Return the columns of a table; None if it is not there or has none."""
    return None if table is None else handle_of(table).snapshot().schema_or_none


def checks_of(
    table: Table | None, decode: Decode, new_table: Callable[[list[str]], dict[str, Any]]
) -> Callable[[pa.Table], None]:
    """Return what raises InputError for letters that a table cannot take; nothing is written.

    Parameters
    ----------
    table : Table or None
        The table; None if it is not there yet: then one in memory has to take them.
    decode : callable
        Makes records of letters.
    new_table : callable
        Returns how the table would be made for some columns, for ``create_table``.
    """
    if table is None:
        return partial(_check_new, decode, new_table)
    handle = handle_of(table)
    target = target_of(handle, handle.open(), HERE)
    known = target.snapshot.schema_or_none

    def check(letters: pa.Table) -> None:
        source = source_of(
            decode(letters), handle.storage, handle.path, lambda: known, merge=EVERY_CHANGE
        )
        try:
            schema = schema_after(target, Operation.UPSERT, source, EVERY_CHANGE)
            tombstones = target.tombstones(schema, Operation.UPSERT)
            packed = source.pack(target.tagger(schema, tombstones))
            _ = packed.counts
        finally:
            source.close()

    return check


def _check_new(
    decode: Decode, new_table: Callable[[list[str]], dict[str, Any]], letters: pa.Table
) -> None:
    rows: Any = decode(letters)
    held = rows.column_names
    for name in names_of(new_table(held)["record_key"], "record_key"):
        root = name.partition(".")[0]
        if root not in held or rows[root].null_count:
            step = "give each row its key, or name another one: record_key=... (--key)"
            raise InputError("row", f"it has no value of the key column {root}", step)
