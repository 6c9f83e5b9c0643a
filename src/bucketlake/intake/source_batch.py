"""What a source gives to the job: one batch after another, each for one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from bucketlake.model.position import Origin, Position
from bucketlake.table import Table

if TYPE_CHECKING:
    from bucketlake.engine import Records


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one batch takes.

    Attributes
    ----------
    rows, files, bytes : int
        Rows of a topic; files of a landing zone, and their bytes.
    """

    rows: int = 1_000_000
    files: int = 1_000
    bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """Records to write by one commit, and how to take them one by one if they are refused.

    Attributes
    ----------
    table : str
        Path of the table.
    source : str
        Name of the source.
    rows : Records
        The records.
    origin : callable
        Returns the origin of the records for the table, which is there by then.
    letters : callable
        Returns the rows of the source as letters.
    bad : callable
        Returns the letters that are known to be bad.
    is_stale : callable
        Returns whether what the source has changed since the batch was planned, so that it must be
        planned again.
    stored : Position or None
        The position of the source from which the batch goes on.
    keys : tuple of str
        Columns of the messages' keys; empty if the source has none.
    facts : mapping of str to int
        What it is made of: ``files``, ``bytes``, ``lag`` (what of the source is left after it).
    """

    table: str
    source: str
    rows: Records
    origin: Callable[[Table], Origin]
    letters: Callable[[], pa.Table]
    bad: Callable[[], pa.Table | None] = lambda: None
    is_stale: Callable[[], bool] = lambda: False
    stored: Position | None = None
    keys: tuple[str, ...] = ()
    facts: Mapping[str, int] = field(default_factory=dict)


class Source(Protocol):
    """Where batches come from."""

    def tables(self) -> list[str]:
        """Return the paths of the tables."""
        ...

    def batches(self, opened: Callable[[str], Table | None]) -> Iterator[SourceBatch]:
        """Yield what is there now, in batches; each is written before the next is asked for."""
        ...

    def decode(self, letters: pa.Table, table: Table | None) -> Records:
        """Make records of letters, such as dead ones; columns of texts have those of the table."""
        ...
