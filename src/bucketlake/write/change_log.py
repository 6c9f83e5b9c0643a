"""The change data that Hudi's tables keep beside a base file, if their properties ask for it.

A merge of a base file writes one more file with the changes of its rows: a log file whose suffix is
``.cdc``, with one block of Avro records (``docs/spec/change-data.md``). Readers of rows ignore the
file; Hudi's query of change data needs it for each base file that has updates or deletes. The rows
are those that the write gave its time, and the rows that it deleted. Memory follows the batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.format.log_block import BlockKind
from bucketlake.format.log_data import encode_avro_block
from bucketlake.merge.row_changes import images, row_changes
from bucketlake.model.arrays import one_array
from bucketlake.model.bounded_json import parse_json
from bucketlake.model.file_name import InstantTime
from bucketlake.model.schema import COMMIT_TIME, RECORD_KEY
from bucketlake.model.table_type import ChangeLogMode

CHANGE_SUFFIX = ".cdc"

_KEY_ONLY = json.dumps(
    {
        "type": "record",
        "name": "Record",
        "fields": [{"name": name, "type": ["string", "null"]} for name in ("op", "record_key")],
    },
    separators=(",", ":"),
)
_COLUMNS = {
    ChangeLogMode.OP_KEY_ONLY: ("op", "record_key"),
    ChangeLogMode.DATA_BEFORE: ("op", "record_key", "before"),
    ChangeLogMode.DATA_BEFORE_AFTER: ("op", "ts_ms", "before", "after"),
}


def change_schema(mode: ChangeLogMode, schema_text: str) -> str:
    """Return the Avro schema of changes.

    Parameters
    ----------
    mode : ChangeLogMode
        What is kept of each change.
    schema_text : str
        The data schema as Avro JSON.
    """
    if mode is ChangeLogMode.OP_KEY_ONLY:
        return _KEY_ONLY
    record = parse_json(schema_text)
    types = {"before": record, "after": record["name"]}  # The second one only names the first.
    fields = [
        {"name": name, "type": ["null", types.get(name, "string")], "doc": "", "default": None}
        for name in _COLUMNS[mode]
    ]
    space = record.get("namespace", "")
    made = {"type": "record", "name": "CDC", "namespace": space, "doc": "", "fields": fields}
    return json.dumps(made, separators=(",", ":"), ensure_ascii=False)


@dataclass(slots=True)
class ChangeLog:
    """The changes of one merge: watches the rows that go in and those that come out.

    Parameters
    ----------
    mode : ChangeLogMode
        What is kept of each change.
    instant : InstantTime
        The write.
    schema : pa.Schema
        Data columns.
    """

    mode: ChangeLogMode
    instant: InstantTime
    schema: pa.Schema
    _before: list[pa.Table] = field(default_factory=list)
    _after: list[pa.Table] = field(default_factory=list)

    def watch_stored(self, chunks: Iterator[pa.Table], keys: pa.Array) -> Iterator[pa.Table]:
        """Yield the stored rows; keep those with some keys."""
        for chunk in chunks:
            self._before.append(self._kept(chunk, pc.is_in(chunk[RECORD_KEY], value_set=keys)))
            yield chunk

    def watch_merged(self, chunks: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Yield the rows of the new file; keep those that the write made."""
        for chunk in chunks:
            times = chunk[COMMIT_TIME].cast(pa.string())
            self._after.append(self._kept(chunk, pc.equal(times, str(self.instant))))
            yield chunk

    def encode(self, schema_text: str, gone: pa.Array) -> bytes:
        """Encode the changes, sorted by key, so that two attempts make the same bytes.

        Parameters
        ----------
        schema_text : str
            The data schema as Avro JSON.
        gone : pa.Array
            Keys of the rows that the merge deleted.
        """
        empty = pa.schema([(RECORD_KEY, pa.string()), *self.schema]).empty_table()
        before, after = (pa.concat_tables([empty, *held]) for held in (self._before, self._after))
        # Rows that an incoming record lost to did not change.
        of_changes = pa.concat_arrays([one_array(after[RECORD_KEY]), gone])
        before = before.filter(pc.is_in(before[RECORD_KEY], value_set=of_changes))
        keys = one_array(before[RECORD_KEY]), one_array(after[RECORD_KEY])
        changes = row_changes(*keys)
        columns = {
            "op": lambda: changes.operations,
            "record_key": lambda: changes.take(*keys),
            "ts_ms": lambda: pa.repeat(str(self.instant), len(changes)),
            "before": lambda: images(before.select(self.schema.names), changes.before),
            "after": lambda: images(after.select(self.schema.names), changes.after),
        }
        names = _COLUMNS[self.mode]
        table = pa.table([columns[name]() for name in names], names=names)
        text = change_schema(self.mode, schema_text)
        return encode_avro_block(table, text, instant=self.instant, kind=BlockKind.CDC_DATA)

    def _kept(self, chunk: pa.Table, which: pa.ChunkedArray) -> pa.Table:
        return chunk.select([RECORD_KEY, *self.schema.names]).filter(which)
