"""The simple bucket index: a record's bucket is a hash of its key, modulo a fixed count (RFC-29).

Nothing is looked up and nothing is stored per record; writing, pruning and checking all ask
:func:`assign_buckets`. A file group says its bucket in the first eight digits of its file id. Which
file groups exist, and whether a table's count is the one asked for, is left to the callers.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.errors import ConfigError, IndexStateError
from bucketlake.hashing.index_key import hash_index_keys
from bucketlake.model.file_name import FileId
from bucketlake.model.names import Names, names_of

BUCKET_COUNT_MAX = 99_999_999  # A bucket id is eight digits of a file id.
_BUCKET_DIGITS = 8

_INDEX_TYPE = "hoodie.index.type"
_ENGINE = "hoodie.index.bucket.engine"
_COUNT = "hoodie.bucket.index.num.buckets"
_HASH_FIELD = "hoodie.bucket.index.hash.field"


@dataclass(frozen=True)
class SimpleBucket:
    """A fixed number of buckets in each partition, compatible with Hudi's ``BUCKET`` index.

    Parameters
    ----------
    count : int
        Buckets of a partition, 1 to 99 999 999. A partition has file groups only for buckets that
        hold records.
    hash_fields : sequence of str, optional
        Record key fields that choose the bucket; None for all of them.

    Raises
    ------
    ConfigError
        If the count is out of range, or a hash field is empty, repeated, or holds a comma.

    Examples
    --------
    >>> SimpleBucket(16, ["device"])
    SimpleBucket(count=16, hash_fields=('device',))
    """

    count: int
    hash_fields: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if type(self.count) is not int or not 1 <= self.count <= BUCKET_COUNT_MAX:
            raise ConfigError(
                "bucket count", self.count, f"give an integer from 1 to {BUCKET_COUNT_MAX}"
            )
        if self.hash_fields is not None:
            object.__setattr__(self, "hash_fields", _checked_fields(self.hash_fields))

    def count_of(self, partition_path: str) -> int:  # noqa: ARG002 -- as other kinds have it.
        """Return the count, which all partitions have."""
        return self.count

    def check_hash_fields(self, record_key_fields: Sequence[str]) -> None:
        """Refuse hash fields that are no record key fields.

        Raises
        ------
        ConfigError
            If a hash field is not among ``record_key_fields``.
        """
        for name in self.hash_fields or ():
            if name not in record_key_fields:
                raise ConfigError(
                    "hash_fields",
                    tuple(self.hash_fields or ()),
                    f"{name!r} is no field of the record key, which is "
                    f"{', '.join(map(repr, record_key_fields))}",
                )

    def to_options(self) -> dict[str, str]:
        """Return the ``hoodie.*`` options that tell Hudi of this index."""
        options = {_INDEX_TYPE: "BUCKET", _ENGINE: "SIMPLE", _COUNT: str(self.count)}
        if self.hash_fields:
            options[_HASH_FIELD] = ",".join(self.hash_fields)
        return options

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Read the index from the ``hoodie.*`` options of a Hudi job.

        Raises
        ------
        ConfigError
            If the options name another index, or no bucket count. There is no default count:
            Hudi's engines have different ones.
        """
        _require_option(options, _INDEX_TYPE, "BUCKET", default="")
        _require_option(options, _ENGINE, "SIMPLE", default="SIMPLE")
        count = options.get(_COUNT, "").strip()
        if not (count.isascii() and count.isdigit()):
            raise ConfigError(_COUNT, options.get(_COUNT), "give the number of buckets")
        hash_fields = options.get(_HASH_FIELD, "")
        # Hudi does not trim the names either.
        return cls(int(count), tuple(hash_fields.split(",")) if hash_fields else None)


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
        Buckets of the partition, for all keys or for each.
    hash_fields : sequence of str
        Record key fields that choose the bucket; none for all of them.

    Returns
    -------
    ndarray of int32, shape (n_keys,)
        Bucket ids, each in ``[0, bucket_count)``.

    Examples
    --------
    >>> assign_buckets(["k1", "", "f1:a,f2:b"], bucket_count=8)
    array([5, 7, 2], dtype=int32)
    """
    if not isinstance(record_keys, pa.Array | pa.ChunkedArray):
        record_keys = pa.array(record_keys, pa.string())
    hashes = hash_index_keys(record_keys, hash_fields)
    # The sign bit is masked before the modulo, as Hudi does it (RFC-29).
    return (hashes & np.int32(0x7FFFFFFF)) % np.asarray(bucket_count, np.int32)


def buckets_for_literals(
    record_keys: Iterable[str], bucket_count: int, hash_fields: Sequence[str] = ()
) -> frozenset[int]:
    """Return the buckets that can hold any of some record keys; all others need not be read."""
    return frozenset(assign_buckets(list(record_keys), bucket_count, hash_fields).tolist())


def bucket_id_of_file_id(file_id: str) -> int:
    """Return the bucket that a file group's id names.

    Raises
    ------
    IndexStateError
        If the id does not begin with eight digits, so that another kind of index made it.

    Examples
    --------
    >>> bucket_id_of_file_id("00000042-ca8d-4a92-850d-ced6e95dfe29-0")
    42
    """
    digits = file_id[:_BUCKET_DIGITS]
    if len(digits) < _BUCKET_DIGITS or not (digits.isascii() and digits.isdigit()):
        raise IndexStateError(
            "the table is taken for one with a simple bucket index",
            f"the id of file group {file_id!r} does not begin with a bucket of eight digits",
            "check the table's index kind; a table of another kind cannot be written as this one",
        )
    return int(digits)


def bucket_text(bucket_id: int) -> str:
    """Return a bucket id as file ids spell it: eight digits."""
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


def new_file_id(instant: str, partition_path: str, bucket_id: int) -> FileId:
    """Derive the id of a bucket's new file group.

    Hudi draws a random one. Here it follows from the instant, the partition and the bucket, so
    that two attempts of one task name the same file, and an overwrite's groups get fresh ids.

    Examples
    --------
    >>> new_file_id("20240101120000000", "region=eu", 3)
    '00000003-40ff-474c-a2dc-4dbcb6fd150c-0'
    """
    name = "\0".join((instant, partition_path, str(bucket_id)))
    digest = hashlib.sha256(name.encode()).digest()
    unique = uuid.UUID(bytes=digest[:16], version=4)
    return FileId(f"{file_id_prefix(bucket_id, unique)}-0")


def _checked_fields(hash_fields: Names) -> tuple[str, ...] | None:
    names = names_of(hash_fields)
    for name in names:
        if not name or "," in name or names.count(name) > 1:
            raise ConfigError(
                "hash_fields", names, "name each field once; a name is not empty and has no comma"
            )
    return names or None


def _require_option(options: Mapping[str, str], key: str, value: str, *, default: str) -> None:
    if options.get(key, default).strip().upper() != value:
        raise ConfigError(key, options.get(key), f"a simple bucket index needs {value}")
