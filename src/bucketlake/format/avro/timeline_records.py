"""Avro records of the timeline: plans, commit metadata and the metadata of table services.

Each file holds one record in an Avro object container without compression. The schemas are facts
of Hudi's on-disk format. They are listed here in a short notation (see ``_parse_type``) and
converted to Avro at first use. Other modules interpret the fields:
``format/commit_metadata.py`` for commits, ``services`` for plans.

The functions import fastavro themselves: a Spark task imports this module and reads no record.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any

from bucketlake.errors import FormatError
from bucketlake.format.avro.container import (
    BLANK_MARKER,
    is_damaged,
    only_record,
    seal_container,
)

NAMESPACE = "org.apache.hudi.avro.model"
CONTAINER_MAGIC = b"Obj\x01"

Record = dict[str, Any]  # One Avro record in fastavro's form: field name to plain value.

# Notation: `T?` is a nullable field with default null, `?T` the same without a default, `T/null`
# is nullable with T first. A default follows `=`; a field without one is required.
_RECORDS: Mapping[str, str] = {
    "HoodieCommitMetadata": """
        partitionToWriteStats map<array<HoodieWriteStat>>?; compacted boolean?;
        extraMetadata map<string>?; version int/null=1; operationType string?
    """,
    "HoodieReplaceCommitMetadata": """
        partitionToWriteStats map<array<HoodieWriteStat>>?; compacted boolean?;
        extraMetadata map<string>?; version int/null=1; operationType string?;
        partitionToReplaceFileIds map<array<string>>?
    """,
    "HoodieWriteStat": """
        fileId string?; path string?; prevCommit string?; numWrites long?; numDeletes long?;
        numUpdateWrites long?; totalWriteBytes long?; totalWriteErrors long?; partitionPath string?;
        totalLogRecords long?; totalLogFiles long?; totalUpdatedRecordsCompacted long?;
        numInserts long?; totalLogBlocks long?; totalCorruptLogBlock long?;
        totalRollbackBlocks long?; fileSizeInBytes long?; logVersion int?; logOffset long?;
        baseFile string?; logFiles array<string>?; cdcStats map<long>?; prevBaseFile string?;
        minEventTime long?; maxEventTime long?; runtimeStats HoodieRuntimeStats?;
        totalLogFilesCompacted long?; totalLogReadTimeMs long?; totalLogSizeCompacted long?;
        tempPath string?; numUpdates long?
    """,
    "HoodieRuntimeStats": "totalScanTime long?; totalCreateTime long?; totalUpsertTime long?",
    "HoodieCompactionPlan": """
        operations array<HoodieCompactionOperation>?; extraMetadata map<string>?;
        version int/null=1; strategy HoodieCompactionStrategy?;
        preserveHoodieMetadata boolean/null=false; missingSchedulePartitions array<string>?
    """,
    "HoodieCompactionOperation": """
        baseInstantTime ?string; deltaFilePaths array<string>?; dataFilePath string?;
        fileId ?string; partitionPath string?; metrics map<double>?; bootstrapFilePath string?
    """,
    "HoodieCompactionStrategy": """
        compactorClassName string?; strategyParams map<string>?; version int/null=1
    """,
    "HoodieCleanerPlan": """
        earliestInstantToRetain HoodieActionInstant?; lastCompletedCommitTimestamp string="";
        policy string; filesToBeDeletedPerPartition map<array<string>>?; version int/null=1;
        filePathsToBeDeletedPerPartition map<array<HoodieCleanFileInfo>>?;
        partitionsToBeDeleted array<string>?; extraMetadata map<string>?
    """,
    "HoodieActionInstant": "timestamp string; action string; state string",
    "HoodieCleanFileInfo": "filePath string?; isBootstrapBaseFile boolean?",
    "HoodieCleanMetadata": """
        startCleanTime string; timeTakenInMillis long; totalFilesDeleted int;
        earliestCommitToRetain string; lastCompletedCommitTimestamp string="";
        partitionMetadata map<HoodieCleanPartitionMetadata>; version int/null=1;
        bootstrapPartitionMetadata map<HoodieCleanPartitionMetadata>?; extraMetadata map<string>?
    """,
    "HoodieCleanPartitionMetadata": """
        partitionPath string; policy string; deletePathPatterns array<string>;
        successDeleteFiles array<string>; failedDeleteFiles array<string>;
        isPartitionDeleted boolean?
    """,
    "HoodieRollbackPlan": """
        instantToRollback HoodieInstantInfo?; RollbackRequests array<HoodieRollbackRequest>?;
        version int/null=1
    """,
    "HoodieInstantInfo": "commitTime string; action string",
    "HoodieRollbackRequest": """
        partitionPath string; fileId string?; latestBaseInstant string?;
        filesToBeDeleted array<string>=[]; logBlocksToBeDeleted map<long>?
    """,
    "HoodieRollbackMetadata": """
        startRollbackTime string; timeTakenInMillis long; totalFilesDeleted int;
        commitsRollback array<string>; partitionMetadata map<HoodieRollbackPartitionMetadata>;
        version int/null=1; instantsRollback array<HoodieInstantInfo>=[]
    """,
    "HoodieRollbackPartitionMetadata": """
        partitionPath string; successDeleteFiles array<string>; failedDeleteFiles array<string>;
        rollbackLogFiles map<long>?; logFilesFromFailedCommit map<long>?
    """,
    "HoodieRestorePlan": """
        instantsToRollback array<HoodieInstantInfo>=[]; version int/null=2;
        savepointToRestoreTimestamp string?
    """,
    "HoodieRestoreMetadata": """
        startRestoreTime string; timeTakenInMillis long; instantsToRollback array<string>;
        hoodieRestoreMetadata map<array<?HoodieRollbackMetadata>>; version int/null=1;
        restoreInstantInfo array<HoodieInstantInfo>=[]
    """,
    "HoodieSavepointMetadata": """
        savepointedBy string; savepointedAt long; comments string;
        partitionMetadata map<HoodieSavepointPartitionMetadata>; version int/null=1
    """,
    "HoodieSavepointPartitionMetadata": "partitionPath string; savepointDataFile array<string>",
    "HoodieRequestedReplaceMetadata": """
        operationType string?; clusteringPlan HoodieClusteringPlan?; extraMetadata map<string>?;
        version int/null=1
    """,
    "HoodieClusteringPlan": """
        inputGroups array<HoodieClusteringGroup>?; strategy HoodieClusteringStrategy?;
        extraMetadata map<string>?; version int/null=1; preserveHoodieMetadata boolean?;
        missingSchedulePartitions array<string>?
    """,
    "HoodieClusteringGroup": """
        slices array<HoodieSliceInfo>?; metrics map<double>?; numOutputFileGroups int/null=1;
        extraMetadata map<string>?; version int/null=1
    """,
    "HoodieSliceInfo": """
        dataFilePath string?; deltaFilePaths array<string>?; fileId ?string; partitionPath string?;
        bootstrapFilePath string?; version int/null=1
    """,
    "HoodieClusteringStrategy": """
        strategyClassName string?; strategyParams map<string>?; version int/null=1
    """,
    "HoodieIndexPlan": "version int/null=1; indexPartitionInfos array<HoodieIndexPartitionInfo>?",
    "HoodieIndexPartitionInfo": """
        version int/null=1; metadataPartitionPath string?; indexUptoInstant string?;
        extraMetadata map<string>?
    """,
    "HoodieLSMTimelineInstant": """
        instantTime string?; completionTime string?; action string?; metadata bytes?; plan bytes?;
        version int=1
    """,
    "HoodieIndexCommitMetadata": """
        version int/null=1; operationType string?;
        indexPartitionInfos array<HoodieIndexPartitionInfo>?
    """,
    "HoodieArchivedMetaEntry": """
        hoodieCommitMetadata HoodieCommitMetadata?; hoodieCleanMetadata HoodieCleanMetadata?;
        hoodieRollbackMetadata HoodieRollbackMetadata?;
        hoodieSavePointMetadata HoodieSavepointMetadata?; commitTime string?; actionType string?;
        version int/null=1; hoodieCompactionPlan HoodieCompactionPlan?;
        hoodieCleanerPlan HoodieCleanerPlan?; actionState string?;
        hoodieReplaceCommitMetadata HoodieReplaceCommitMetadata?;
        hoodieRequestedReplaceMetadata HoodieRequestedReplaceMetadata?;
        HoodieInflightReplaceMetadata HoodieCommitMetadata?;
        hoodieIndexCommitMetadata HoodieIndexCommitMetadata?; stateTransitionTime string?
    """,
}

_PRIMITIVES = frozenset({"boolean", "int", "long", "double", "bytes", "string"})
_STRING = {"type": "string", "avro.java.string": "String"}  # So that Java decodes to String.


def encode_record(name: str, record: Mapping[str, Any]) -> bytes:
    """Encode a record as an Avro object container; equal records give equal bytes.

    Parameters
    ----------
    name : str
        Name of the record, such as ``HoodieRollbackPlan``.
    record : mapping
        Values by field name; fields with a default are optional.
    """
    import fastavro

    buffer = io.BytesIO()
    schema = _parsed_schema(name)
    fastavro.writer(buffer, schema, [record], codec="null", sync_marker=BLANK_MARKER)
    return seal_container(buffer.getvalue())


def decode_record(data: bytes, path: str, *names: str) -> Record:
    """Decode the record of an Avro object container.

    Parameters
    ----------
    data : bytes
        Content of the file. Empty content means a record of defaults: some file systems leave empty
        files after a crash, and Hudi reads them like this.
    path : str
        Name of the file, for the error.
    *names : str
        Allowed records; an empty file means the first.

    Raises
    ------
    FormatError
        If the bytes are not a container with such a record, or do not have their checksum.
    """
    if not data:
        return empty_record(names[0])
    expected = f"an Avro container of {' or '.join(names)}"
    if not data.startswith(CONTAINER_MAGIC):
        raise FormatError(path, expected, f"bytes {data[:16]!r}", 0)
    if is_damaged(data):
        raise FormatError(path, expected, "bytes without their checksum: the file is damaged")
    import fastavro

    fast = _only_record(data, names)
    if fast is not None:
        return fast
    # For broken bytes, the decoder may raise any exception.
    try:
        found = _written_name(data)
        if found not in names:
            raise FormatError(path, expected, f"an Avro container of {found}")
        read = fastavro.reader(io.BytesIO(data), reader_schema=_parsed_schema(found))
        records = list(islice(read, 2))  # A container may claim any number of empty records.
    except FormatError:
        raise
    except Exception as error:
        raise FormatError(path, expected, f"{type(error).__name__}: {error}") from error
    if len(records) != 1 or not isinstance(records[0], dict):
        count = "2 records or more" if records[1:] else f"{len(records)} records"
        raise FormatError(path, f"{expected} with one record", count)
    return records[0]


def encode_content(name: str, record: Mapping[str, Any]) -> bytes:
    """Encode a record without a container, as in a log block."""
    import fastavro

    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, _parsed_schema(name), record)
    return buffer.getvalue()


def empty_record(name: str) -> Record:
    """Return a record of defaults; a field without a default is null."""
    return {field["name"]: field.get("default") for field in avro_schema(name)["fields"]}


@cache
def avro_schema(name: str) -> dict[str, Any]:
    """Return the Avro schema of a record; a nested record is defined at its first use."""
    schema = _record_schema(name, set())
    return {"type": "record", "name": name, "namespace": NAMESPACE, "fields": schema["fields"]}


def _only_record(data: bytes, names: Sequence[str]) -> Record | None:
    """Return the record of a usual container; None if the slower way must read or reject it."""
    import fastavro

    written = only_record(data)
    if written is None or written.name not in names:
        return None
    stream = io.BytesIO(written.content)
    try:
        reader_schema = _parsed_schema(written.name)
        record: Any = fastavro.schemaless_reader(stream, written.schema, reader_schema)
    except Exception:  # The decoder may raise any exception for broken bytes.
        return None
    is_whole = stream.tell() == len(written.content) and isinstance(record, dict)
    return record if is_whole else None


def _written_name(data: bytes) -> str:
    import fastavro

    schema: Any = fastavro.reader(io.BytesIO(data)).writer_schema
    name = schema.get("name") if isinstance(schema, dict) else None
    return str(name or json.dumps(schema)).rpartition(".")[2]


@cache
def _parsed_schema(name: str) -> Any:
    import fastavro

    return fastavro.parse_schema(avro_schema(name))


def _record_schema(name: str, defined: set[str]) -> dict[str, Any]:
    defined.add(name)
    fields = [_field_schema(text, defined) for text in _RECORDS[name].split(";")]
    return {"type": "record", "name": name, "fields": fields}


def _field_schema(text: str, defined: set[str]) -> dict[str, Any]:
    name, notation = text.split()
    notation, has_default, default = notation.partition("=")
    field = {"name": name, "type": _parse_type(notation, defined)}
    if has_default:
        field["default"] = json.loads(default)
    elif notation.endswith("?"):
        field["default"] = None
    return field


def _parse_type(notation: str, defined: set[str]) -> Any:
    """Parse ``T?``, ``?T``, ``T/null``, ``array<T>``, ``map<T>``, a primitive or a record name."""
    if notation.endswith("?"):
        return ["null", _parse_type(notation[:-1], defined)]
    if notation.startswith("?"):
        return ["null", _parse_type(notation[1:], defined)]
    if notation.endswith("/null"):
        return [_parse_type(notation.removesuffix("/null"), defined), "null"]
    if notation.endswith(">"):
        kind, _, inner = notation[:-1].partition("<")
        return _collection_type(kind, _parse_type(inner, defined))
    if notation in _PRIMITIVES:
        return dict(_STRING) if notation == "string" else notation
    return notation if notation in defined else _record_schema(notation, defined)


def _collection_type(kind: str, inner: Any) -> dict[str, Any]:
    if kind == "array":
        return {"type": "array", "items": inner}
    return {"type": "map", "values": inner, "avro.java.string": "String"}
