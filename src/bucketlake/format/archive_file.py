"""Files of the archived timeline: Parquet files with instants, and the manifests that name them.

The name of a file contains its first and last instant and its layer. Archival writes files of layer
0; files of a later layer are merged from the layer before. A manifest lists the valid files.
``timeline/archive_reader.py`` chooses the valid manifest.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from bucketlake.config.inner_path import require_inner_name
from bucketlake.errors import FormatError
from bucketlake.format.avro.timeline_records import avro_schema
from bucketlake.format.checked_json import parse_checked, render_checked
from bucketlake.format.parquet_checksums import (
    CHECKSUMS,
    CheckedFooter,
    blank_checksums,
    fill_checksums,
)
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
_NAME = re.compile(r"(\d+)_(\d+)_(\d+)\.parquet", re.ASCII)


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
    try:
        entries = parse_checked(data, path)["files"]
        files = tuple(
            ArchiveFile(str(entry["fileName"]), int(entry["fileLen"])) for entry in entries
        )
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(path, "a JSON manifest of the archive", repr(data[:32])) from error
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
        If the bytes are not a file of instants, or do not have their checksums.
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
