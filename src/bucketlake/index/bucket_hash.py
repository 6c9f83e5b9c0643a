"""From a record key to its bucket, and from a bucket to the file ids of its groups (RFC-29).

A record's bucket is a hash of its key, modulo the bucket count of its partition. The first eight
digits of a file id are the bucket of the file group. Which groups a bucket may have is decided in
``index/bucket_layout.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.hashing.index_key import hash_index_keys
from bucketlake.model.file_name import FileId, InstantTime, derived_uuid

BUCKET_COUNT_MAX = 99_999_999  # A bucket id is eight digits of a file id.
ORDINALS_MAX = 10_000  # An ordinal is four digits of a file id.

_BUCKET_DIGITS = 8
_NUMBERED = "8"  # Version digit of a UUID whose second part is an ordinal (RFC 9562: custom).


def assign_buckets(
    record_keys: pa.Array | pa.ChunkedArray | Sequence[str],
    bucket_count: int | npt.NDArray[np.int32],
    hash_fields: Sequence[str] = (),
) -> npt.NDArray[np.int32]:
    """Compute the bucket of each record key.

    Parameters
    ----------
    record_keys : Array or ChunkedArray of string type, or sequence of str
        Keys as ``_hoodie_record_key`` stores them.
    bucket_count : int or ndarray of int32, shape (n_keys,)
        Bucket count of the partition, for all keys or for each key.
    hash_fields : sequence of str
        Record key fields that choose the bucket; without a name, each key is one value.

    Returns
    -------
    ndarray of int32, shape (n_keys,)
        Bucket ids, each in ``[0, bucket_count)``.

    Examples
    --------
    >>> assign_buckets(["k1", "", "f1:a,f2:b"], bucket_count=8, hash_fields=["f1", "f2"])
    array([5, 7, 2], dtype=int32)
    """
    if not isinstance(record_keys, pa.Array | pa.ChunkedArray):
        record_keys = pa.array(record_keys, pa.string())
    hashes = hash_index_keys(record_keys, hash_fields)
    # Mask the sign bit before the modulo, as Hudi does (RFC-29).
    return (hashes & np.int32(0x7FFFFFFF)) % np.asarray(bucket_count, np.int32)


def bucket_of_file_id(file_id: str) -> int | None:
    """Return the bucket in a file id.

    None if the id does not begin with eight digits; then no bucket index made the file group.

    Examples
    --------
    >>> bucket_of_file_id("00000042-ca8d-4a92-850d-ced6e95dfe29-0")
    42
    """
    digits = file_id[:_BUCKET_DIGITS]
    is_number = len(digits) == _BUCKET_DIGITS and digits.isascii() and digits.isdigit()
    return int(digits) if is_number else None


def bucket_text(bucket_id: int) -> str:
    """Return a bucket id as eight digits, as in file ids."""
    assert 0 <= bucket_id < BUCKET_COUNT_MAX, bucket_id
    return f"{bucket_id:0{_BUCKET_DIGITS}d}"


def file_id_prefix(bucket_id: int, unique: uuid.UUID | str) -> str:
    """Return a file id's first 36 characters: a UUID whose first eight digits are the bucket.

    Examples
    --------
    >>> file_id_prefix(7, "29f6ac4b-8140-4eac-898c-84d0e5fece73")
    '00000007-8140-4eac-898c-84d0e5fece73'
    """
    return bucket_text(bucket_id) + str(unique)[_BUCKET_DIGITS:]


def new_file_id(
    instant: InstantTime, partition_path: str, bucket_id: int, ordinal: int | None = None
) -> FileId:
    """Derive the id of a new file group of a bucket.

    Hudi draws a random id. Here the id is derived from the instant, partition, bucket and ordinal,
    so that two attempts of a task write to the same file name, and the groups of an overwrite get
    new ids.

    Parameters
    ----------
    instant : InstantTime
        The write that creates the group.
    partition_path : str
        The group's partition.
    bucket_id : int
        The group's bucket.
    ordinal : int, optional
        Number of the group in a bucket with several groups; it becomes the second part of the id
        (RFC-29, "usage patterns": bucket, file group number, UUID).

    Examples
    --------
    >>> new_file_id("20240101120000000", "region=eu", 3)
    '00000003-40ff-474c-a2dc-4dbcb6fd150c-0'
    >>> new_file_id("20240101120000000", "region=eu", 3, ordinal=12)
    '00000003-0012-8254-9fef-d9a6706a0bd0-0'
    """
    names = [instant, partition_path, str(bucket_id)]
    names += [] if ordinal is None else [str(ordinal)]
    unique = derived_uuid(*names)
    text = file_id_prefix(bucket_id, unique)
    if ordinal is not None:
        assert 0 <= ordinal < ORDINALS_MAX, ordinal
        text = f"{bucket_text(bucket_id)}-{ordinal:04d}-{_NUMBERED}{unique[15:]}"
    return FileId(f"{text}-0")


def ordinal_of_file_id(file_id: str) -> int | None:
    """Return the number of a file group in its bucket; None if the file id has none.

    Examples
    --------
    >>> ordinal_of_file_id("00000003-0012-8254-9fef-d9a6706a0bd0-0")
    12
    """
    parts = file_id.split("-")
    if len(parts) < 3 or not parts[2].startswith(_NUMBERED):
        return None
    return int(parts[1]) if len(parts[1]) == 4 and parts[1].isdecimal() else None
