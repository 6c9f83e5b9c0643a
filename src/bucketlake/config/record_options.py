"""The options by which a Hudi job names the record-level index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bucketlake.config.entries import is_number
from bucketlake.errors import ConfigError

INDEX_TYPE: Final = "hoodie.index.type"
BUCKET_TYPE: Final = "BUCKET"
BUCKET_OPTIONS: Final = "hoodie.bucket.index."
PARTITIONED_TYPE: Final = "RECORD_LEVEL_INDEX"
GLOBAL_TYPES: Final = ("GLOBAL_RECORD_LEVEL_INDEX", "RECORD_INDEX")
PARTITIONED_ENABLE: Final = "hoodie.metadata.record.level.index.enable"
GLOBAL_ENABLE: Final = (
    "hoodie.metadata.global.record.level.index.enable",
    "hoodie.metadata.record.index.enable",
)
ENABLE: Final = (PARTITIONED_ENABLE, *GLOBAL_ENABLE)
MOVES: Final = "hoodie.record.index.update.partition.path"
MAX_FILE_SIZE: Final = "hoodie.parquet.max.file.size"
SMALL_FILE_LIMIT: Final = "hoodie.parquet.small.file.limit"
SIZES: Final = (MAX_FILE_SIZE, SMALL_FILE_LIMIT)
SHARDS_MIN: Final = "hoodie.metadata.record.level.index.min.filegroup.count"
SHARDS_MAX: Final = "hoodie.metadata.record.level.index.max.filegroup.count"
ASSIGNERS: Final = "hoodie.bucket.index.dynamic.assigners"
BY_SIZE: Final = "by_size"
MAX_RECORDS: Final = "hoodie.bucket.index.dynamic.max.records"
DYNAMIC: Final = (ASSIGNERS, MAX_RECORDS)

RECORD_TYPES: Final = (PARTITIONED_TYPE, *GLOBAL_TYPES)
INDEX_TYPES: Final = (BUCKET_TYPE, *RECORD_TYPES)
"""The index types of Hudi that bucketlake writes."""


def names_record_index(given: Mapping[str, str]) -> bool:
    """Return whether the options name a record-level index."""
    return index_type(given) in RECORD_TYPES


def names_dynamic(given: Mapping[str, str]) -> bool:
    """Return whether the options name a dynamic bucket index."""
    return any(given.get(key, "").strip() for key in DYNAMIC)


def require_record_index(given: Mapping[str, str], *, partitioned: bool | None = None) -> bool:
    """Return whether the options name a partitioned index; False for a global one.

    Raises
    ------
    ConfigError
        If they name another index than asked for, or disable it.
    """
    kind = index_type(given)
    is_partitioned = kind == PARTITIONED_TYPE
    if not names_record_index(given) or (partitioned is not None and is_partitioned != partitioned):
        kinds = [PARTITIONED_TYPE] * (partitioned is not False)
        kinds += [GLOBAL_TYPES[0]] * (partitioned is not True)
        raise ConfigError(INDEX_TYPE, given.get(INDEX_TYPE), f"give {' or '.join(kinds)}")
    own = (PARTITIONED_ENABLE,) if is_partitioned else GLOBAL_ENABLE
    for key in ENABLE:
        is_own = key in own
        if given.get(key, str(is_own)).strip().lower() != str(is_own).lower():
            allowed = f"{str(is_own).lower()!r}, for {INDEX_TYPE}={kind}"
            raise ConfigError(key, given[key], allowed)
    return is_partitioned


def number_option(given: Mapping[str, str], key: str) -> int | None:
    """Return the number that an option gives, or None; raise ConfigError for other text."""
    text = given.get(key, "").strip()
    if not text:
        return None
    if not is_number(text):
        raise ConfigError(key, given[key][:80], "give a number of at most 18 digits")
    return int(text)


def index_type(given: Mapping[str, str]) -> str:
    """Return the index type that the options name, in upper case; empty if they name none."""
    return given.get(INDEX_TYPE, "").strip().upper()
