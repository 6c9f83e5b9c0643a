"""Avro records of the timeline: plans, commit metadata and the metadata of table services.

Each file holds one record in an Avro object container without compression. The schemas are facts
of Hudi's on-disk format. They are listed here in a short notation (see ``_parse_type``) and
converted to Avro at first use. Other modules interpret the fields:
``format/commit_metadata.py`` for commits, ``services`` for plans.

The functions import fastavro themselves: a Spark task imports this module and reads no record.
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

from bucketlake.errors import FormatError
from bucketlake.format.avro.bounded_schema import parse_avro_schema
from bucketlake.format.byte_slices import unpacked_bytes_max
from bucketlake.format.checksum import BLANK, is_sealed, seal

NAMESPACE = "org.apache.hudi.avro.model"
CONTAINER_MAGIC = b"Obj\x01"

Record = dict[str, Any]  # One Avro record in fastavro's form: field name to plain value.

# Notation: `T?` is a nullable field with default null, `?T` the same without a default, `T/null`
# is nullable with T first, `T|U?` is a nullable union. A default follows `=`; a field without one
# is required.
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

_PRIMITIVES: Mapping[str, Any] = {
    **{name: name for name in ("boolean", "int", "long", "float", "double", "bytes")},
    "string": {"type": "string", "avro.java.string": "String"},  # So that Java decodes to String.
    "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15},
    "time-micros": {"type": "long", "logicalType": "time-micros"},
}


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
    try:
        written = only_record(data)
        if written.name in names:
            return _decoded(written)
    except Exception as error:  # For broken bytes, the decoder may raise any exception.
        raise FormatError(path, expected, f"{type(error).__name__}: {error}") from error
    raise FormatError(path, expected, f"an Avro container of {written.name}")


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
    return avro_schema_of(name, _RECORDS)


def avro_schema_of(name: str, records: Mapping[str, str]) -> dict[str, Any]:
    """Return the Avro schema of one of some records, which are written as ``_RECORDS`` are."""
    schema = _record_schema(name, dict(records))
    return {"type": "record", "name": name, "namespace": NAMESPACE, "fields": schema["fields"]}


def _decoded(written: WrittenRecord) -> Record:
    """Decode a record; raises any error for broken bytes."""
    import fastavro

    stream = io.BytesIO(written.content)
    record: Any = fastavro.schemaless_reader(stream, written.schema, _parsed_schema(written.name))
    if stream.tell() != len(written.content) or not isinstance(record, dict):
        raise ValueError("a record of another size")
    return record


@cache
def _parsed_schema(name: str) -> Any:
    import fastavro

    return fastavro.parse_schema(avro_schema(name))


def _record_schema(name: str, undefined: dict[str, str]) -> dict[str, Any]:
    fields = [_field_schema(text, undefined) for text in undefined.pop(name).split(";")]
    return {"type": "record", "name": name, "fields": fields}


def _field_schema(text: str, undefined: dict[str, str]) -> dict[str, Any]:
    name, notation = text.split()
    notation, has_default, default = notation.partition("=")
    field = {"name": name, "type": _parse_type(notation, undefined)}
    if has_default:
        field["default"] = json.loads(default)
    elif notation.endswith("?"):
        field["default"] = None
    return field


def _parse_type(notation: str, undefined: dict[str, str]) -> Any:
    """Parse ``T?``, ``?T``, ``T|U?``, ``T/null``, ``array<T>``, ``map<T>`` or a type's name."""
    if notation.endswith("?") or notation.startswith("?"):
        return ["null", *_branches(notation.strip("?"), undefined)]
    if notation.endswith("/null"):
        return [_parse_type(notation.removesuffix("/null"), undefined), "null"]
    if notation.endswith(">"):
        kind, _, inner = notation[:-1].partition("<")
        return _collection_type(kind, _parse_type(inner, undefined))
    if notation in _PRIMITIVES:
        return deepcopy(_PRIMITIVES[notation])
    return _record_schema(notation, undefined) if notation in undefined else notation


def _branches(notation: str, undefined: dict[str, str]) -> list[Any]:
    texts = [notation] if notation.endswith(">") else notation.split("|")
    return [_parse_type(text, undefined) for text in texts]


def _collection_type(kind: str, inner: Any) -> dict[str, Any]:
    if kind == "array":
        return {"type": "array", "items": inner}
    return {"type": "map", "values": inner, "avro.java.string": "String"}


# ---- Avro object containers with one record, as in timelines: the schema of a writer is parsed
# once ----
#
# A timeline has many small files, and parsing the schema in their headers takes most of the time
# that it takes to read them. A writer puts the same schema text into all files of a kind.
#
# The container is taken apart here, and not by fastavro: it would follow any schema and any count
# (``format/avro/bounded_schema.py``), and unpack any block to whatever it holds.
#
# A container has a sync marker of 16 bytes in its header and after each block. Its writer may
# choose it freely. bucketlake's marker is the word ``checksum`` and the checksum of the file, in
# which both markers have zeros; other readers see nothing but a marker.

_MAGIC_SIZE_BYTES = 4
_SYNC_SIZE_BYTES = 16
_META = {"type": "map", "values": "bytes"}
_MARKED = b"checksum"
_XZ_MEMORY_BYTES = 1 << 27

BLANK_MARKER: Final = _MARKED + BLANK
"""The sync marker with which a container is written before :func:`seal_container`."""


@dataclass(frozen=True, slots=True)
class WrittenRecord:
    """The only record of a container.

    Attributes
    ----------
    name : str
        Name of the record, without its namespace.
    schema : Any
        The writer's schema, as fastavro parses it.
    content : bytes
        The encoded record.
    """

    name: str
    schema: Any
    content: bytes


def seal_container(data: bytes) -> bytes:
    """Put the checksum into the two blank markers of a container with one block."""
    return seal(data, *_digits(data, BLANK_MARKER))


def is_damaged(data: bytes) -> bool:
    """Return whether a container ends in a marker of bucketlake that is not its checksum."""
    marker = data[-_SYNC_SIZE_BYTES:]
    if not marker.startswith(_MARKED):
        return False  # Of another writer, or damaged: then it is not the marker in the header.
    header, end = _digits(data, marker)
    return header == end or not is_sealed(data, header, end)


def only_record(data: bytes) -> WrittenRecord:
    """Return the record of a container with one record.

    Raises
    ------
    Exception
        Any, for broken bytes, another number of records, and what is beyond the bounds.
    """
    import fastavro

    stream = io.BytesIO(data)
    stream.seek(_MAGIC_SIZE_BYTES)
    meta: Any = fastavro.schemaless_reader(stream, _META, None)
    sync = stream.read(_SYNC_SIZE_BYTES)
    count, content = 0, b""
    while stream.tell() < len(data):
        held, size = (_long(stream) for _ in range(2))
        block = stream.read(max(size, 0))
        if held < 0 or len(block) != size or stream.read(_SYNC_SIZE_BYTES) != sync:
            raise ValueError("a block that is cut or has no marker at its end")
        count += held
        content += _unpacked(block, meta.get("avro.codec", b"null")) if held == 1 == count else b""
    if count != 1 or len(sync) != _SYNC_SIZE_BYTES:
        raise ValueError(f"{'2 records or more' if count else '0 records'} instead of one record")
    name, schema = writer_schema(meta["avro.schema"])
    return WrittenRecord(name, schema, content)


def schema_record_name(data: bytes) -> str | None:
    """Return the name of the only record of a container; None for anything else."""
    try:
        return only_record(data).name
    except Exception:  # The decoder may raise any exception for broken bytes.
        return None


@lru_cache(maxsize=256)
def writer_schema(text: bytes) -> tuple[str, Any]:
    """Return the name of a record and its parsed schema; raises any error for other text."""
    import fastavro

    schema = parse_avro_schema(text)
    return str(schema["name"]).rpartition(".")[2], fastavro.parse_schema(schema)


def _long(stream: io.BytesIO) -> int:
    import fastavro

    value: Any = fastavro.schemaless_reader(stream, "long", None)
    return int(value)


def _unpacked(block: bytes, codec: bytes) -> bytes:
    """Unpack the content of a block; raise an error if it is much more than its bytes."""
    if codec == b"null":
        return block
    unpacker: Any
    match codec:
        case b"deflate":
            unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        case b"bzip2":
            unpacker = bz2.BZ2Decompressor()
        case b"xz":
            unpacker = lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES)
        case _:
            raise ValueError(f"blocks packed with {codec[:20]!r}")
    size_max = unpacked_bytes_max(len(block))
    data: bytes = unpacker.decompress(block, size_max)
    if not unpacker.eof:
        raise ValueError(f"a block that is cut, or unpacks to more than {size_max} bytes")
    return data


def _digits(data: bytes, marker: bytes) -> tuple[int, int]:
    """Return where the checksums of the first and the last marker begin."""
    return data.index(marker) + len(_MARKED), len(data) - len(BLANK)
