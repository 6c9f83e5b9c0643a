"""Commit metadata: the files that a completed commit, delta commit or replace commit wrote.

Since table version 8 it is an Avro container, before that JSON (also for instants written before an
upgrade). Both decode to :class:`~bucketlake.model.write_stat.CommitMetadata`. ``timeline`` reads
the files and knows their instants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bucketlake.config.paths_of_table import (
    require_data_names,
    require_data_partition,
    require_data_place,
)
from bucketlake.config.table_version import LAYOUT_2, TimelineLayout
from bucketlake.errors import FormatError
from bucketlake.format.avro.timeline_records import (
    CONTAINER_MAGIC,
    Record,
    decode_record,
    encode_record,
)
from bucketlake.format.json_fields import render_json
from bucketlake.model.bounded_json import parse_json
from bucketlake.model.file_name import FileId, LogFileName
from bucketlake.model.write_stat import NO_PREVIOUS_COMMIT, CommitMetadata, WriteStat

UNKNOWN_OPERATION = "UNKNOWN"  # Hudi's value for a commit without an operation.

_COMMIT = "HoodieCommitMetadata"
_REPLACE_COMMIT = "HoodieReplaceCommitMetadata"

_REPLACING_OPERATIONS = frozenset(
    {"INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE", "DELETE_PARTITION", "CLUSTER", "BUCKET_RESCALE"}
)

_SERVICE_OPERATIONS = frozenset({"CLUSTER", "COMPACT", "INDEX", "LOG_COMPACT"})


def is_service(operation: str) -> bool:
    """Return whether an operation is a table service, which changes no row."""
    return operation in _SERVICE_OPERATIONS


def changes_rows(metadata: CommitMetadata) -> bool:
    """Return whether the commit may change rows, or the schema; table services do neither."""
    return not is_service(metadata.operation)


def stamps_rows(metadata: CommitMetadata) -> bool:
    """Return whether the rows that the commit wrote have its time.

    Rows of table services keep the time of their original commit. But Hudi's log compaction, and
    the usual clustering of its hash rings, give rows their own time.
    """
    return metadata.operation not in _SERVICE_OPERATIONS - {"LOG_COMPACT", "CLUSTER"}


def encode_commit_metadata(metadata: CommitMetadata, layout: TimelineLayout = LAYOUT_2) -> bytes:
    """Encode commit metadata in the form of a timeline layout.

    A write that replaces file groups, or whose operation could, becomes a replace commit record,
    because readers expect that record for its action.
    """
    record = _to_record(metadata)
    if layout.has_json_commits:
        return _to_json(record)
    is_replacing = "partitionToReplaceFileIds" in record
    return encode_record(_REPLACE_COMMIT if is_replacing else _COMMIT, record)


def _to_record(metadata: CommitMetadata) -> Record:
    record: Record = {
        "partitionToWriteStats": {
            partition: [_encode_stat(stat) for stat in stats]
            for partition, stats in metadata.write_stats.items()
        },
        "compacted": metadata.compacted,
        "extraMetadata": dict(metadata.extra),
        "version": None,  # Hudi writes null here, although the default of the field is 1.
        "operationType": metadata.operation,
    }
    if not metadata.replaced_file_ids and metadata.operation not in _REPLACING_OPERATIONS:
        return record
    replaced = {partition: list(ids) for partition, ids in metadata.replaced_file_ids.items()}
    return {**record, "partitionToReplaceFileIds": replaced}


def _to_json(record: Record) -> bytes:
    """Print a record in the form of Hudi, which has no version there."""
    return render_json({key: held for key, held in record.items() if key != "version"}).encode()


def recode_commit(
    data: bytes, path: str, layout: TimelineLayout, *, replaces_groups: bool
) -> bytes:
    """Return commit metadata in the form of a timeline layout, with all its fields.

    Parameters
    ----------
    data : bytes
        Content of a completed file, or of the inflight file of a write; empty content stays empty.
    path : str
        Name of the file, for the error.
    layout : TimelineLayout
        The layout.
    replaces_groups : bool
        Whether it is the record of a completed replace commit.

    Raises
    ------
    FormatError
        As :func:`decode_commit_metadata`.
    """
    if not data:
        return data
    record = _record_of(data, path)
    if layout.has_json_commits:
        return _to_json(record)
    try:
        return encode_record(
            _REPLACE_COMMIT if replaces_groups else _COMMIT, {"version": None, **record}
        )
    except Exception as error:  # For other JSON, the encoder may raise any exception.
        raise _no_commit(data, path, error) from error


def _record_of(data: bytes, path: str) -> Record:
    if not data or data.startswith(CONTAINER_MAGIC):
        return decode_record(data, path, _COMMIT, _REPLACE_COMMIT)
    try:
        record = parse_json(data)
        if isinstance(record, dict):
            return record
        raise TypeError(type(record).__name__)
    except (ValueError, TypeError) as error:
        raise _no_commit(data, path, error) from error


def _no_commit(data: bytes, path: str, error: Exception) -> FormatError:
    found = f"{type(error).__name__} ({error}) in bytes {data[:16]!r}"
    return FormatError(path, "commit metadata, as an Avro container or JSON", found)


def decode_commit_metadata(data: bytes, path: str) -> CommitMetadata:
    """Decode the commit metadata of any table version.

    Parameters
    ----------
    data : bytes
        Content of the completed file. Empty content means default values: some file systems leave
        empty files after a crash.
    path : str
        Name of the file, for the error.

    Raises
    ------
    FormatError
        If the bytes are not commit metadata, as an Avro container or JSON, or name something that
        is no data file of the table.
    """
    record = _record_of(data, path)
    try:
        found = _from_record(record)
        _require_inside(found, path)
        return found
    except (ValueError, TypeError, AttributeError) as error:
        raise _no_commit(data, path, error) from error


def _require_inside(commit: CommitMetadata, path: str) -> None:
    for named, stats in commit.write_stats.items():
        require_data_names({named: ()}, path)
        for stat in stats:
            require_data_partition(stat.partition_path, path)
            for text in stat.file_sizes:
                folder, _, name = text.rpartition("/")
                require_data_place(folder, name, path)
    require_data_names(commit.replaced_file_ids, path)


def _from_record(record: Mapping[str, Any]) -> CommitMetadata:
    stats: Mapping[str, Iterable[Mapping[str, Any]]] = record.get("partitionToWriteStats") or {}
    replaced: Mapping[str, Iterable[str]] = record.get("partitionToReplaceFileIds") or {}
    return CommitMetadata(
        operation=record.get("operationType") or UNKNOWN_OPERATION,
        write_stats={
            partition: tuple(_decode_stat(stat, partition) for stat in of_partition)
            for partition, of_partition in stats.items()
        },
        extra=dict(record.get("extraMetadata") or {}),
        replaced_file_ids={
            partition: tuple(FileId(file_id) for file_id in ids)
            for partition, ids in replaced.items()
        },
        compacted=bool(record.get("compacted")),
    )


def _decode_stat(stat: Mapping[str, Any], partition: str) -> WriteStat:
    """Decode a write stat; in the workload profile of an inflight file most fields are null."""
    previous_commit = stat.get("prevCommit") or NO_PREVIOUS_COMMIT
    return WriteStat(
        file_id=FileId(stat.get("fileId") or ""),
        path=stat.get("path") or "",
        partition_path=stat.get("partitionPath") or partition,
        previous_commit=previous_commit,
        previous_base_file=stat.get("prevBaseFile"),
        record_count=int(stat.get("numWrites") or 0),
        insert_count=int(stat.get("numInserts") or 0),
        update_count=int(stat.get("numUpdateWrites") or 0),
        delete_count=int(stat.get("numDeletes") or 0),
        file_size_bytes=int(stat.get("fileSizeInBytes") or 0),
        opens_group=previous_commit == NO_PREVIOUS_COMMIT,
        change_files=tuple(sorted((stat.get("cdcStats") or {}).items())),
    )


def _encode_stat(stat: WriteStat) -> Record:
    return {
        "fileId": stat.file_id,
        "path": stat.path,
        "prevCommit": stat.previous_commit,
        "numWrites": stat.record_count,
        "numDeletes": stat.delete_count,
        "numUpdateWrites": stat.update_count,
        "totalWriteBytes": stat.file_size_bytes,
        "totalWriteErrors": 0,
        "partitionPath": stat.partition_path,
        "numInserts": stat.insert_count,
        "fileSizeInBytes": stat.file_size_bytes,
        "prevBaseFile": stat.previous_base_file,
        "cdcStats": dict(stat.change_files) or None,
        **_UNCOUNTED,
        **_log_fields(stat),
    }


# Counters that bucketlake does not have. They are 0, because Hudi reads them as primitive longs.
_UNCOUNTED: Mapping[str, int] = dict.fromkeys(
    (
        "totalLogRecords",
        "totalUpdatedRecordsCompacted",
        "totalLogBlocks",
        "totalCorruptLogBlock",
        "totalRollbackBlocks",
        "totalLogFilesCompacted",
        "totalLogReadTimeMs",
        "totalLogSizeCompacted",
        "numUpdates",
    ),
    0,
)


def _log_fields(stat: WriteStat) -> Record:
    """Return the fields that Hudi stores for log files; their values come from file names."""
    file_name = stat.path.rpartition("/")[2]
    log = LogFileName.from_file_name(file_name)
    if log is None:
        return {}
    earlier = [name for name in stat.slice_files if LogFileName.from_file_name(name)]
    base = next((name for name in stat.slice_files if name not in earlier), "")
    files = [*earlier, file_name]
    return {"logVersion": log.version, "logOffset": 0, "baseFile": base, "logFiles": files}
