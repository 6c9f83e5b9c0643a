"""What a task put into a log file of a shard, noted for the lookups of the next write.

A task that writes a log file has its keys at hand. It notes them in the folder of the shard, so
that the next lookup on this host need not read the log file. A note has the name and the size of
its file. It counts only once a pinned slice has that file, so notes of writes that were rolled back
are never read. Notes without a reader are deleted with their shard, or some minutes later when the
shard changes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from bucketlake.metadata.location_cache.key_codes import (
    GroupNumbers,
    KeyCodes,
    ShardChanges,
)
from bucketlake.metadata.location_cache.part_file import write_whole
from bucketlake.metadata.location_cache.shard_folder import ShardFolder
from bucketlake.metadata.slices.log_files import GroupEntries, is_birth_log
from bucketlake.model.file_name import FileId, Group
from bucketlake.model.file_slice import DataFile

_SUFFIX = ".note"
_VERSION = "1"
_REMOVED = -1
_HEADER_BYTES = 64


def note_log(
    folder: ShardFolder, name: str, size_bytes: int, entries: GroupEntries, groups: Sequence[Group]
) -> int:
    """Note the entries of a log file; return the size of the note.

    Parameters
    ----------
    folder : ShardFolder
        Folder of the shard.
    name, size_bytes
        Name and size of the log file.
    entries : GroupEntries
        What it has; the values are a dictionary with one value for each group.
    groups : sequence of (str, FileId)
        The file groups of the values.

    Raises
    ------
    OSError
        If the note cannot be written.
    """
    facts = {"version": _VERSION, "size_bytes": str(size_bytes), "groups": json.dumps(groups)}
    schema = pa.schema([("key", pa.string()), ("group", pa.int32())], facts)
    gone = pa.repeat(pa.scalar(_REMOVED, pa.int32()), len(entries.removed))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        for columns in ([entries.keys, entries.values.indices], [entries.removed, gone]):
            stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    content = memoryview(sink.getvalue())
    folder.path.mkdir(parents=True, exist_ok=True)
    header = isal_zlib.crc32(content).to_bytes(_HEADER_BYTES, "little")
    return write_whole(folder.path / (name + _SUFFIX), [header, content])


def noted_changes(
    folder: ShardFolder, logs: Sequence[DataFile], numbers: GroupNumbers
) -> ShardChanges | None:
    """Return what log files change in a shard, if all of them are noted; else None."""
    logs = [log for log in logs if not is_birth_log(log.name)]
    if len(logs) != 1:  # Several would have to be merged; this is rare.
        return None
    (log,) = logs
    try:
        content = (folder.path / (log.name.to_file_name() + _SUFFIX)).read_bytes()
    except OSError:
        return None
    found = _intact(content, log.size_bytes)
    if found is None:
        return None
    groups = json.loads(found.schema.metadata[b"groups"])
    own = numbers.of_groups((path, FileId(file_id)) for path, file_id in groups)
    keys, codes = found["key"].cast(pa.large_string()).combine_chunks(), found["group"].to_numpy()
    put = len(codes) - int(np.count_nonzero(codes == _REMOVED))
    return ShardChanges(KeyCodes(keys[:put], own[codes[:put]].astype(np.uint32)), keys[put:], False)


def forget_logs(folder: ShardFolder, logs: Sequence[DataFile]) -> None:
    """Delete the notes of log files whose entries are cached."""
    for log in logs:
        with suppress(OSError):
            (folder.path / (log.name.to_file_name() + _SUFFIX)).unlink()


def _intact(content: bytes, size_bytes: int) -> pa.Table | None:
    """Return a note; None if it is damaged, or of another file."""
    whole = memoryview(content)[_HEADER_BYTES:]
    if isal_zlib.crc32(whole) != int.from_bytes(content[:_HEADER_BYTES], "little"):
        return None
    found = pa.ipc.open_stream(pa.py_buffer(whole)).read_all()
    facts = found.schema.metadata
    is_own = facts[b"version"] == _VERSION.encode() and facts[b"size_bytes"] == b"%d" % size_bytes
    return found if is_own else None
