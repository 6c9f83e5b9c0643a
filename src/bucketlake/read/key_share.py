"""Shares of the keys of file slices, so that memory holds the rows of one share at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bucketlake.hashing.index_key import hash_index_keys
from bucketlake.merge.incoming import BoolArray
from bucketlake.merge.log_records import LogEntries
from bucketlake.model.schema import RECORD_KEY

_MIX = np.uint32(0x9E3779B1)  # Mix: keys of a bucket have equal hashes modulo the bucket count.


@dataclass(frozen=True, slots=True)
class KeyShare:
    """One of several shares of the keys, by their hash."""

    number: int = 0
    count: int = 1

    def entries_of(self, entries: LogEntries) -> LogEntries:
        """Return the log entries whose keys belong to the share."""
        if self.count == 1:
            return entries
        inside = self._has(entries.keys)
        chosen = pa.array(np.flatnonzero(inside))
        return LogEntries(
            entries.keys.take(chosen),
            tuple(values.take(chosen) for values in entries.ordering),
            entries.deleted[inside],
            entries.is_reset[inside],
            None if entries.columns is None else entries.columns.take(chosen),
            entries.partial,
        )

    def rows_of(self, chunks: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Return the rows whose keys belong to the share."""
        if self.count == 1:
            return chunks
        return (
            chunk.filter(pa.array(self._has(chunk[RECORD_KEY].combine_chunks())))
            for chunk in chunks
        )

    def _has(self, keys: pa.Array) -> BoolArray:
        hashes = hash_index_keys(keys, ()).view(np.uint32) * _MIX
        share: BoolArray = (hashes >> np.uint32(16)) % np.uint32(self.count) == self.number
        return share


ALL_KEYS = KeyShare()


def shares_of(size_bytes: int, bytes_per_share: int) -> list[KeyShare]:
    """Return as many shares as a size needs, at least one."""
    count = max(1, -(-size_bytes // bytes_per_share))
    return [KeyShare(number, count) for number in range(count)]
