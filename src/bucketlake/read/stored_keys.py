"""Reads the keys of stored file groups, and what a footer says about them.

A layout uses this reader if a slot has several file groups (``index/layout.py``, ``StoredKeys``).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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
    """

    storage: Storage
    timeline: Timeline | None

    @contextmanager
    def open_base(self, file_slice: FileSlice) -> Iterator[tuple[GroupFacts, Iterator[pa.Array]]]:
        """Open the slice's base file; give the facts of its footer, and an iterator of its keys."""
        base = file_slice.base_file
        if base is None:
            yield GroupFacts(0), iter(())
            return
        with BaseFileReader(self.storage, base.path, base.size_bytes) as reader:
            yield _facts(reader, base.path), _keys(reader)

    def log_keys(self, file_slice: FileSlice) -> Iterator[pa.Array]:
        """Yield the keys in the log files, including those of deletes."""
        assert self.timeline is not None, "only layouts that look keys up read logs"
        for block in counted_blocks(self.storage, file_slice, self.timeline):
            if block.kind is BlockKind.DELETE:
                yield decode_delete_block(block).record_keys
            else:
                yield decode_data_block(block, [RECORD_KEY])[RECORD_KEY].combine_chunks()


def _facts(reader: BaseFileReader, path: str) -> GroupFacts:
    values = reader.key_values
    key_range = (values[KEY_MIN], values[KEY_MAX]) if KEY_MIN in values else None
    text = values.get(KEY_FILTER)
    try:
        key_filter = None if text is None else base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise FormatError(path, f"base64 text in {KEY_FILTER}", str(error)) from error
    return GroupFacts(reader.row_count, key_range, key_filter or None)


def _keys(reader: BaseFileReader) -> Iterator[pa.Array]:
    for chunk in reader.iter_chunks([RECORD_KEY], rows_max=_ROWS_AT_ONCE):
        yield chunk[RECORD_KEY].combine_chunks()
