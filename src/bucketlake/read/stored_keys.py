"""Reads the keys of stored file groups, and what a footer says about them.

A layout uses this reader if a slot has several file groups (``index/layout.py``, ``StoredKeys``).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from bucketlake.errors import FormatError
from bucketlake.format.base_file import KEY_FILTER, KEY_MAX, KEY_MIN, BaseFileReader
from bucketlake.format.log_block import BlockKind
from bucketlake.format.log_data import decode_data_block
from bucketlake.format.log_deletes import decode_delete_block
from bucketlake.index.layout import GroupFacts
from bucketlake.model.file_slice import FileSlice
from bucketlake.model.schema import RECORD_KEY
from bucketlake.read.slice_logs import counted_blocks
from bucketlake.read.snapshot import Snapshot
from bucketlake.read.virtual_keys import VirtualKeys
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline

_ROWS_AT_ONCE = 131_072


@dataclass(frozen=True, slots=True)
class StoredKeyReader:
    """Reads the keys of file groups of one table; a small picklable value.

    Attributes
    ----------
    storage : Storage
        The table's storage.
    timeline : Timeline or None
        Tells which log blocks are committed; None if the layout does not look up keys.
    virtual_keys : VirtualKeys or None
        How keys are made in a table without meta columns; None for other tables.
    """

    storage: Storage
    timeline: Timeline | None
    virtual_keys: VirtualKeys | None = None

    @classmethod
    def of_snapshot(cls, snapshot: Snapshot) -> Self:
        """Return a reader of a pinned table."""
        virtual = VirtualKeys.of_snapshot(snapshot)
        return cls(snapshot.storage, snapshot.timeline, virtual)

    @contextmanager
    def open_base(self, file_slice: FileSlice) -> Iterator[tuple[GroupFacts, Iterator[pa.Array]]]:
        """Open the slice's base file; give the facts of its footer, and an iterator of its keys."""
        base = file_slice.base_file
        if base is None:
            yield GroupFacts(0), iter(())
            return
        with BaseFileReader(self.storage, base.path, base.size_bytes) as reader:
            yield _facts(reader, base.path), self._keys(reader, base.path)

    def log_keys(self, file_slice: FileSlice) -> Iterator[pa.Array]:
        """Yield the keys in the log files, including those of deletes."""
        assert self.timeline is not None, "only layouts that look keys up read logs"
        for block in counted_blocks(self.storage, file_slice, self.timeline):
            if block.kind is BlockKind.DELETE:
                keys = decode_delete_block(block).record_keys
                yield keys if self.virtual_keys is None else self.virtual_keys.canonical(keys)
            else:
                yield self._keys_of(decode_data_block(block, self._columns), block.path)

    def _keys(self, reader: BaseFileReader, path: str) -> Iterator[pa.Array]:
        for chunk in reader.iter_chunks(self._columns, rows_max=_ROWS_AT_ONCE):
            yield self._keys_of(chunk, path)

    @property
    def _columns(self) -> list[str]:
        return [RECORD_KEY] if self.virtual_keys is None else self.virtual_keys.columns.names

    def _keys_of(self, rows: pa.Table, path: str) -> pa.Array:
        if self.virtual_keys is None:
            return rows[RECORD_KEY].combine_chunks()
        return self.virtual_keys.keys_of(rows, path)


def _facts(reader: BaseFileReader, path: str) -> GroupFacts:
    values = reader.key_values
    key_range = (values[KEY_MIN], values[KEY_MAX]) if KEY_MIN in values else None
    text = values.get(KEY_FILTER)
    try:
        key_filter = None if text is None else base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise FormatError(path, f"base64 text in {KEY_FILTER}", str(error)) from error
    return GroupFacts(reader.row_count, key_range, key_filter or None)
