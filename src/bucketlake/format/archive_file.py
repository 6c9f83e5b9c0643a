"""Files of the archived timeline: Parquet with instants, manifests that name them, and log files.

The name of a file contains its first and last instant and its layer. Archival writes files of layer
0; files of a later layer are merged from the layer before. A manifest lists the valid files.
``timeline/archive_reader.py`` chooses the valid manifest.
"""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from bucketlake.config.paths_of_table import require_inner_name, require_instant
from bucketlake.errors import FormatError
from bucketlake.format.avro.timeline_records import (
    CONTAINER_MAGIC,
    Record,
    avro_schema,
    decode_record,
    encode_content,
    encode_record,
    schema_record_name,
    writer_schema,
)
from bucketlake.format.json_fields import parse_checked, parsing, render_checked
from bucketlake.format.log_block import (
    MAGIC,
    BlockKind,
    HeaderKey,
    LogBlock,
    encode_checked_block,
    log_blocks_of,
)
from bucketlake.format.parquet_checksums import (
    CHECKSUMS,
    CheckedFooter,
    blank_checksums,
    fill_checksums,
)
from bucketlake.model.bounded_json import parse_json
from bucketlake.model.file_name import InstantTime

CONTENT = ("metadata", "plan")
"""Columns with the content of files of the active timeline, which is most of an archive."""

_KEYS = ("instantTime", "completionTime", "action")
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in _KEYS),
        *((name, pa.binary()) for name in CONTENT),
        pa.field("version", pa.int32(), nullable=False),
    ]
)
_ENTRY_VERSION = 1
_AVRO_SCHEMA_KEY = "parquet.avro.schema"  # Hudi's reader takes the field names from here.
_NAME = re.compile(r"(\d+)_(\d+)_(\d{1,18})\.parquet", re.ASCII)


@dataclass(frozen=True, slots=True)
class ArchivedInstant:
    """A completed instant of the archive.

    Attributes
    ----------
    requested_at, completed_at : InstantTime
    action : str
        Action of the completed file, in Hudi's spelling.
    metadata : bytes or None
        Content of the completed file; None if it was not requested or is not stored.
    plan : bytes or None
        Content of the requested file, if it is a plan; else None.
    """

    requested_at: InstantTime
    completed_at: InstantTime
    action: str
    metadata: bytes | None = None
    plan: bytes | None = None

    @property
    def order(self) -> tuple[str, str]:
        """Sort key and identity of the instant."""
        return self.requested_at, self.action


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A Parquet file of the archive, as listed in a manifest.

    Attributes
    ----------
    name : str
        File name without a folder.
    size_bytes : int
        File size.
    """

    name: str
    size_bytes: int

    @classmethod
    def name_of(cls, first: str, last: str, layer: int) -> str:
        """Return the name of a file for its first and last instant and its layer.

        Examples
        --------
        >>> ArchiveFile.name_of("20260101000000000", "20260102000000000", 0)
        '20260101000000000_20260102000000000_0.parquet'
        """
        return f"{first}_{last}_{layer}.parquet"

    @property
    def first(self) -> str:
        """Requested time of the first instant; if the name has none, less than all times."""
        match = _NAME.fullmatch(self.name)
        return match[1] if match else ""

    @property
    def last(self) -> str:
        """Requested time of the last instant; if the name has none, greater than all times."""
        match = _NAME.fullmatch(self.name)
        return match[2] if match else "9" * 17

    @property
    def layer(self) -> int | None:
        """Layer of the file; None if the name has none."""
        match = _NAME.fullmatch(self.name)
        return int(match[3]) if match else None

    def may_hold(self, since: str, until: str | None) -> bool:
        """Return whether the file may hold an instant of the range, both ends included."""
        return self.last >= since and (until is None or self.first <= until)


def encode_manifest(files: Iterable[ArchiveFile]) -> bytes:
    """Encode a list of valid files."""
    entries = [{"fileName": file.name, "fileLen": file.size_bytes} for file in files]
    return render_checked({"files": entries})


def decode_manifest(data: bytes, path: str) -> tuple[ArchiveFile, ...]:
    """Decode a list of valid files; raise FormatError if it is no manifest."""
    with parsing(path, "a JSON manifest of the archive", data):
        entries = parse_checked(data, path)["files"]
        files = tuple(
            ArchiveFile(str(entry["fileName"]), int(entry["fileLen"])) for entry in entries
        )
    for file in files:
        require_inner_name(file.name, path, "the name of a file of the archive")
    return files


def encode_archive_file(entries: Sequence[ArchivedInstant]) -> bytes:
    """Encode a file of instants in the given order; equal instants give equal bytes."""
    columns = [
        pa.array([entry.requested_at for entry in entries], pa.string()),
        pa.array([entry.completed_at for entry in entries], pa.string()),
        pa.array([entry.action for entry in entries], pa.string()),
        pa.array([entry.metadata for entry in entries], pa.binary()),
        pa.array([entry.plan for entry in entries], pa.binary()),
        pa.array([_ENTRY_VERSION] * len(entries), pa.int32()),
    ]
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        _SCHEMA,
        compression="zstd",
        use_dictionary=["action"],
        write_statistics=list(_KEYS),
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        table = pa.Table.from_arrays(columns, schema=_SCHEMA)
        writer.write_table(table, row_group_size=max(len(entries), 1))
        schema = json.dumps(avro_schema("HoodieLSMTimelineInstant"))
        checksums = blank_checksums(_SCHEMA, 1)
        writer.add_key_value_metadata({_AVRO_SCHEMA_KEY: schema, CHECKSUMS: checksums})
    data = bytearray(sink.getvalue())
    fill_checksums(memoryview(data), pq.read_metadata(pa.BufferReader(data)))
    return bytes(data)


def decode_archive_file(
    data: bytes, path: str, content: Sequence[str] = CONTENT, action: str | None = None
) -> list[ArchivedInstant]:
    """Decode a file of instants.

    Parameters
    ----------
    data : bytes
        The whole file.
    path : str
        Name of the file, for the error.
    content : sequence of str
        Columns of ``CONTENT`` to read.
    action : str, optional
        Action of the wanted instants; None for all.

    Raises
    ------
    FormatError
        If the bytes are not a file of instants, or do not have their checksums, or a time is not
        the digits of an instant.
    """
    columns = [*_KEYS, *content]
    wanted = None if action is None else [("action", "=", action)]
    try:
        source = pa.BufferReader(data)
        footer = CheckedFooter(source)
        for group in range(footer.metadata.num_row_groups):
            footer.check_chunks(group, columns)
        table = pq.read_table(source, columns=columns, filters=wanted)
        rows = table.select(columns).to_pylist()  # At most a few thousand small rows.
    except Exception as error:  # For broken bytes, Arrow may raise any exception.
        raise FormatError(path, f"Parquet with columns {', '.join(columns)}", str(error)) from error
    for row in rows:
        for text in filter(None, (row["instantTime"], row["completionTime"])):
            require_instant(text, path)
    return [
        ArchivedInstant(
            requested_at := InstantTime(row["instantTime"] or ""),
            InstantTime(row["completionTime"] or requested_at),
            row["action"] or "",
            row.get("metadata"),
            row.get("plan"),
        )
        for row in rows
    ]


# ---- Archives up to table version 7: log files whose records are the states of instants ----------
#
# An archival of Hudi writes one log file, ``.commits_.archive.<number>_<token>``, with numbers that
# ascend. Its blocks hold Avro records ``HoodieArchivedMetaEntry``: one for each file of the active
# timeline, in the order requested, inflight, completed. Which field of a record has the content of
# the file follows from action and state; Hudi stores the content as a record, also if the file is
# JSON. The only header of a block is its schema.
#
# A file that Hudi wrote may end in the middle of a block, if its writer died. The instants of this
# block are still on the active timeline, so the block is ignored.

COMPLETED: Final = "COMPLETED"
"""Hudi's spelling of the last state of an instant."""

_ENTRY = "HoodieArchivedMetaEntry"
_COMMIT = ("hoodieCommitMetadata", "HoodieCommitMetadata")
_CLEAN_PLAN = ("hoodieCleanerPlan", "HoodieCleanerPlan")
_COMPACTION_PLAN = ("hoodieCompactionPlan", "HoodieCompactionPlan")
_REQUESTED, _INFLIGHT = "REQUESTED", "INFLIGHT"

_FIELDS: Mapping[tuple[str, str], tuple[str, str]] = {
    **{
        (action, state): _COMMIT
        for action in ("commit", "deltacommit")
        for state in (_REQUESTED, _INFLIGHT, COMPLETED)
    },
    ("replacecommit", _REQUESTED): (
        "hoodieRequestedReplaceMetadata",
        "HoodieRequestedReplaceMetadata",
    ),
    ("replacecommit", _INFLIGHT): ("HoodieInflightReplaceMetadata", "HoodieCommitMetadata"),
    ("replacecommit", COMPLETED): ("hoodieReplaceCommitMetadata", "HoodieReplaceCommitMetadata"),
    ("clean", _REQUESTED): _CLEAN_PLAN,
    ("clean", _INFLIGHT): _CLEAN_PLAN,
    ("clean", COMPLETED): ("hoodieCleanMetadata", "HoodieCleanMetadata"),
    ("rollback", COMPLETED): ("hoodieRollbackMetadata", "HoodieRollbackMetadata"),
    ("savepoint", COMPLETED): ("hoodieSavePointMetadata", "HoodieSavepointMetadata"),
    ("compaction", _REQUESTED): _COMPACTION_PLAN,
    ("logcompaction", _REQUESTED): _COMPACTION_PLAN,
    ("indexing", COMPLETED): ("hoodieIndexCommitMetadata", "HoodieIndexCommitMetadata"),
}
"""Field of an entry and its record, by action and state; Hudi archives no other content."""

_COMPLETES_AS = {
    "clean": "clean",
    "compaction": "commit",
    "logcompaction": "deltacommit",
    "replacecommit": "replacecommit",
}
"""Actions of pending instants that have a plan, and their actions when they are completed."""

_PLANNED_AS = {"commit": "compaction", "deltacommit": "logcompaction"}

_LOG_KEYS = frozenset({"commitTime", "actionType", "actionState"})
_CONTENT_VERSION = 3
_CONTENT_VERSIONS = (2, 3)  # Equal; Hudi 0.5 wrote another one.
_START = struct.Struct(">6sq")
_POINTER = struct.Struct(">q")
_TWO_INTS = struct.Struct(">ii")
_INT = struct.Struct(">i")

_LOG_NAME = re.compile(r"\.commits_?\.archive\.(\d{1,18})(?:_.*)?", re.ASCII)
_TOKEN = "1-0-1"


@dataclass(frozen=True, slots=True)
class ArchivedState:
    """A state of an instant: one file of the active timeline.

    Attributes
    ----------
    requested_at : InstantTime
    action : str
        As in the name of the file: a compaction until it is completed, then a commit.
    state : str
        In Hudi's spelling.
    changed_at : InstantTime
        When the file was written.
    content : bytes
        Content of the file.
    """

    requested_at: InstantTime
    action: str
    state: str
    changed_at: InstantTime
    content: bytes


def archive_log_name(number: int) -> str:
    """Return the name of a log file of an archive.

    Examples
    --------
    >>> archive_log_name(3)
    '.commits_.archive.3_1-0-1'
    """
    return f".commits_.archive.{number}_{_TOKEN}"


def archive_log_number(name: str) -> int | None:
    """Return the number of a log file of an archive; None for the name of another file."""
    match = _LOG_NAME.fullmatch(name)
    return int(match[1]) if match else None


def encode_archive_log(states: Sequence[ArchivedState]) -> bytes:
    """Encode a log file; equal states give equal bytes.

    Raises
    ------
    FormatError
        If the content of a state is not what its action has.
    """
    records = [encode_content(_ENTRY, _entry(state)) for state in states]
    content = [_TWO_INTS.pack(_CONTENT_VERSION, len(records))]
    for record in records:
        content += [_INT.pack(len(record)), record]
    headers = {HeaderKey.SCHEMA: json.dumps(avro_schema(_ENTRY))}
    return encode_checked_block(BlockKind.AVRO_DATA, headers, b"".join(content))


def decode_archive_log(
    data: bytes, path: str, content: Sequence[str] = CONTENT, action: str | None = None
) -> list[ArchivedInstant]:
    """Decode the completed instants of a log file, sorted by requested time.

    Parameters
    ----------
    data : bytes
        The whole file.
    path : str
        Name of the file, for the error.
    content : sequence of str
        Columns of ``CONTENT`` to read.
    action : str, optional
        Action of the wanted instants; None for all.

    Returns
    -------
    list of ArchivedInstant
        Content is encoded as since table version 8. The requested time stands for the completion
        time, as on the active timeline.

    Raises
    ------
    FormatError
        If the bytes are not a log file of an archive, or do not have their checksum, or a time is
        not the digits of an instant.
    """
    found: dict[tuple[str, str], ArchivedInstant] = {}
    plans: dict[tuple[str, str], bytes] = {}
    for block in log_blocks_of(data[: _end(data)], path, of_archive=True):
        block.require_whole()
        if block.kind is BlockKind.AVRO_DATA:
            for entry in _decode_block(block, bool(content)):
                if "plan" in content:
                    plans |= _plan(entry)
                instant = _instant(entry, "metadata" in content, action)
                if instant is not None:
                    require_instant(instant.requested_at, path)
                    found[instant.order] = replace(instant, plan=plans.get(instant.order))
    return [found[order] for order in sorted(found)]


def states_of(instant: ArchivedInstant) -> list[ArchivedState]:
    """Return the files of an archived instant as they were on the active timeline."""
    plan = instant.plan or b""
    name = schema_record_name(plan)
    planned_as = _PLANNED_AS.get(instant.action) if name == "HoodieCompactionPlan" else None
    pending = planned_as or instant.action
    # The plan of a replace commit is its inflight file, or the requested file.
    is_inflight = name == "HoodieCommitMetadata"
    contents = {
        (pending, _REQUESTED): b"" if is_inflight else plan,
        (pending, _INFLIGHT): plan if is_inflight or pending == "clean" else b"",
        (instant.action, COMPLETED): instant.metadata or b"",
    }
    return [
        ArchivedState(instant.requested_at, action, state, instant.completed_at, content)
        for (action, state), content in contents.items()
    ]


def _entry(state: ArchivedState) -> Record:
    entry: Record = {
        "commitTime": state.requested_at,
        "actionType": state.action,
        "actionState": state.state,
        "stateTransitionTime": state.changed_at,
        "version": None,  # As Hudi writes it.
    }
    found = _FIELDS.get((state.action, state.state))
    if found is not None and state.content:
        field, name = found
        entry[field] = _record(state, name)
    return entry


def _record(state: ArchivedState, name: str) -> Record:
    """Return the content of a file as a record."""
    where = f"{state.requested_at}.{state.action} ({state.state})"
    if state.content.startswith(CONTAINER_MAGIC):
        return decode_record(state.content, where, name)
    try:
        record = parse_json(state.content)
        encode_content(name, record)
    except Exception as error:  # For other JSON, the encoder may raise any exception.
        found = f"{type(error).__name__}: {error}"
        raise FormatError(where, f"{name}, as an Avro container or JSON", found) from error
    return dict(record)


def _end(data: bytes) -> int:
    """Return where the whole blocks end: before a last block whose writer died.

    A block repeats its size in its last bytes. So a block that is whole, and whose size is damaged,
    is not taken for one.
    """
    offset = 0
    while _START.size <= len(data) - offset:
        magic, size = _START.unpack_from(data, offset)
        if magic != MAGIC or size < 0:
            return len(data)
        following = offset + _START.size + size
        if following > len(data):
            pointer = _POINTER.pack(len(data) - offset - _POINTER.size)
            is_last = data.find(MAGIC, offset + len(MAGIC)) < 0
            return offset if is_last and not data.endswith(pointer) else len(data)
        offset = following
    return offset if (MAGIC + bytes(_POINTER.size)).startswith(data[offset:]) else len(data)


def _decode_block(block: LogBlock, with_content: bool) -> Iterator[Record]:
    expected = f"log block of {_ENTRY}"
    try:
        _, schema = writer_schema(block.headers[HeaderKey.SCHEMA].encode())
        reader_schema = None if with_content else _key_schema()
        stream = io.BytesIO(block.content)
        version, count = _TWO_INTS.unpack(stream.read(_TWO_INTS.size))
        if version not in _CONTENT_VERSIONS:
            raise block.malformed(f"{expected} of version {_CONTENT_VERSION}", version)
        for _ in range(count):
            (size,) = _INT.unpack(stream.read(_INT.size))
            record = stream.read(size)
            if len(record) != size:
                raise block.malformed(expected, "records that are cut", stream.tell())
            yield _read_record(record, schema, reader_schema)
    except FormatError:
        raise
    except Exception as error:  # For broken bytes, the decoder may raise any exception.
        raise block.malformed(expected, f"{type(error).__name__}: {error}") from error


def _read_record(record: bytes, schema: Any, reader_schema: Any) -> Record:
    import fastavro

    read: Any = fastavro.schemaless_reader(io.BytesIO(record), schema, reader_schema)
    return dict(read)


@cache
def _key_schema() -> Any:
    """Return the schema that reads entries without content."""
    import fastavro

    schema = avro_schema(_ENTRY)
    fields: Iterable[Mapping[str, Any]] = schema["fields"]
    return fastavro.parse_schema(
        {**schema, "fields": [field for field in fields if field["name"] in _LOG_KEYS]}
    )


def _instant(entry: Record, with_content: bool, action: str | None) -> ArchivedInstant | None:
    """Return the instant of an entry; None if the state is not the last or the action another."""
    # Hudi 0.5 archived nothing but completed files, and no states.
    is_completed = entry.get("actionState") in (None, COMPLETED)
    requested_at, found = entry.get("commitTime"), entry.get("actionType")
    if not is_completed or not requested_at or not found or action not in (None, found):
        return None
    return ArchivedInstant(
        InstantTime(requested_at),
        InstantTime(requested_at),
        found,
        _content(entry, found) if with_content else None,
    )


def _plan(entry: Record) -> dict[tuple[str, str], bytes]:
    """Return the plan in the entry of a pending state, by the instant that it becomes."""
    action, state = entry.get("actionType") or "", entry.get("actionState") or COMPLETED
    field, name = _FIELDS.get((action, state), ("", ""))
    record = entry.get(field)
    if state == COMPLETED or action not in _COMPLETES_AS or record is None:
        return {}
    return {(entry["commitTime"], _COMPLETES_AS[action]): encode_record(name, record)}


def _content(entry: Record, action: str) -> bytes | None:
    field, name = _FIELDS.get((action, COMPLETED), ("", ""))
    record = entry.get(field)
    if record is None:
        return None
    if "compacted" not in record and record.get("operationType") == "COMPACT":
        record["compacted"] = True  # Entries have no such field before Hudi 1.0.
    return encode_record(name, record)
