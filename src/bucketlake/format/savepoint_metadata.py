"""Metadata of savepoints: the files that a savepoint holds, as Hudi stores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bucketlake.format.avro.timeline_records import decode_record, encode_record

_METADATA = "HoodieSavepointMetadata"


def encode_savepoint(files: Mapping[str, Sequence[str]], *, at_ms: int, comment: str) -> bytes:
    """Encode the metadata of a savepoint.

    Parameters
    ----------
    files : mapping of str to sequence of str
        Names of the files that the savepoint holds, by partition path.
    at_ms : int
        When it was made, in milliseconds since 1970 UTC.
    comment : str
        Its purpose.
    """
    partitions = {
        partition: {"partitionPath": partition, "savepointDataFile": list(names)}
        for partition, names in files.items()
    }
    return encode_record(
        _METADATA,
        {
            "savepointedBy": "",
            "savepointedAt": at_ms,
            "comments": comment,
            "partitionMetadata": partitions,
            "version": 1,
        },
    )


def decode_savepoint(data: bytes, path: str) -> dict[str, tuple[str, ...]]:
    """Decode the names of the files that a savepoint holds, by partition path.

    Raises
    ------
    FormatError
        If the bytes are not a savepoint's metadata.
    """
    record = decode_record(data, path, _METADATA)
    return {
        partition: tuple(name.rpartition("/")[2] for name in held["savepointDataFile"])
        for partition, held in (record["partitionMetadata"] or {}).items()
    }
