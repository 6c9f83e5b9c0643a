"""Files of the archived timeline: Parquet files of instants, and the manifests that name them.

A file's name tells the first and the last instant in it and its layer; files of layer 0 are written
by archivals, those of a later layer are merged from the one before. A manifest lists the files that
count. Which manifest counts is ``timeline/archive_reader.py``'s business.
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
from bucketlake.format.avro.records import avro_schema
from bucketlake.model.file_name import InstantTime

CONTENT = ("metadata", "plan")
"""Columns that hold what files of the active timeline held, which is most of an archive."""

_KEYS = ("instantTime", "completionTime", "action")
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in _KEYS),
        *((name, pa.binary()) for name in CONTENT),
        pa.field("version", pa.int32(), nullable=False),
    ]
)
_ENTRY_VERSION = 1
_AVRO_SCHEMA_KEY = "parquet.avro.schema"  # Where Hudi's reader looks for the names of fields.
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
        Content of the completed file; None where it is not asked for or not kept.
    plan : bytes or None
        Content of the requested file, where it is a plan; None likewise.
    """

    requested_at: InstantTime
    completed_at: InstantTime
    action: str
    metadata: bytes | None = None
    plan: bytes | None = None

    @property
    def order(self) -> tuple[str, str]:
        """Sort key, and what tells instants apart."""
        return self.requested_at, self.action


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A Parquet file of the archive, as a manifest lists it.

    Attributes
    ----------
    name : str
        Its name, without a folder.
    size_bytes : int
        Its size.
    """

    name: str
    size_bytes: int

    @classmethod
    def name_of(cls, first: str, last: str, layer: int) -> str:
        """Return the name of the file with the instants from the first to the last.

        Examples
        --------
        >>> ArchiveFile.name_of("20260101000000000", "20260102000000000", 0)
        '20260101000000000_20260102000000000_0.parquet'
        """
        return f"{first}_{last}_{layer}.parquet"

    @property
    def first(self) -> str:
        """Requested time of the first instant; of a name that tells none, before all."""
        match = _NAME.fullmatch(self.name)
        return match[1] if match else ""

    @property
    def last(self) -> str:
        """Requested time of the last instant; of a name that tells none, after all."""
        match = _NAME.fullmatch(self.name)
        return match[2] if match else "9" * 17

    @property
    def layer(self) -> int | None:
        """Its layer; None of a name that tells none."""
        match = _NAME.fullmatch(self.name)
        return int(match[3]) if match else None

    def may_hold(self, since: str, until: str | None) -> bool:
        """Tell whether an instant of the range, both ends included, may be in it."""
        return self.last >= since and (until is None or self.first <= until)


def encode_manifest(files: Iterable[ArchiveFile]) -> bytes:
    """Write the list of files that count."""
    entries = [{"fileName": file.name, "fileLen": file.size_bytes} for file in files]
    return json.dumps({"files": entries}).encode()


def decode_manifest(data: bytes, path: str) -> tuple[ArchiveFile, ...]:
    """Read the list of files that count; FormatError where it is none."""
    try:
        entries = json.loads(data)["files"]
        files = tuple(ArchiveFile(str(one["fileName"]), int(one["fileLen"])) for one in entries)
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(path, "a JSON manifest of the archive", repr(data[:32])) from error
    for file in files:
        require_inner_name(file.name, path, "the name of a file of the archive")
    return files


def encode_archive_file(entries: Sequence[ArchivedInstant]) -> bytes:
    """Write a file of instants, in the order given; the same ones give the same bytes."""
    columns = [
        pa.array([one.requested_at for one in entries], pa.string()),
        pa.array([one.completed_at for one in entries], pa.string()),
        pa.array([one.action for one in entries], pa.string()),
        pa.array([one.metadata for one in entries], pa.binary()),
        pa.array([one.plan for one in entries], pa.binary()),
        pa.array([_ENTRY_VERSION] * len(entries), pa.int32()),
    ]
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        _SCHEMA,
        compression="zstd",
        use_dictionary=["action"],
        write_statistics=list(_KEYS),
        store_schema=False,
    ) as writer:
        writer.write_table(pa.Table.from_arrays(columns, schema=_SCHEMA))
        schema = json.dumps(avro_schema("HoodieLSMTimelineInstant"))
        writer.add_key_value_metadata({_AVRO_SCHEMA_KEY: schema})
    return sink.getvalue()


def decode_archive_file(
    data: bytes, path: str, content: Sequence[str] = CONTENT, action: str | None = None
) -> list[ArchivedInstant]:
    """Read a file of instants.

    Parameters
    ----------
    data : bytes
        The whole file.
    path : str
        Its name, for the error.
    content : sequence of str
        Which of ``CONTENT`` to read.
    action : str, optional
        The one whose instants are wanted; None for all.

    Raises
    ------
    FormatError
        If it is not such a file.
    """
    columns = [*_KEYS, *content]
    wanted = None if action is None else [("action", "=", action)]
    try:
        table = pq.read_table(pa.BufferReader(data), columns=columns, filters=wanted)
        rows = table.select(columns).to_pylist()  # A few thousand small rows at the most.
    except Exception as error:  # Broken bytes make Arrow raise any exception at all.
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
