"""The options by which a Hudi job names the record-level index as its index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

INDEX_TYPE: Final = "hoodie.index.type"
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

_TYPES = f"`{PARTITIONED_TYPE}`, `{GLOBAL_TYPES[0]}`"

USED = {
    PARTITIONED_ENABLE: f"`true` for index type `{PARTITIONED_TYPE}`, else `false`. Default: as "
    "the index type needs it.",
    GLOBAL_ENABLE[0]: f"`true` for index type `{GLOBAL_TYPES[0]}`, else `false`. Default: as the "
    "index type needs it.",
    GLOBAL_ENABLE[1]: "The same, in an older spelling.",
    MOVES: f"Index type `{GLOBAL_TYPES[0]}`: must be `true`, the default; a key moves to the "
    "partition of its newest record. (Hudi's default is `false`: the record stays in the old "
    "partition, with columns that name the new one.)",
    SMALL_FILE_LIMIT: f"Index types {_TYPES}: bytes below which a file group gets new keys. "
    "Default: 100 MiB.",
}
"""What each option means; docs/reference.md shows the texts."""


def names_record_index(given: Mapping[str, str]) -> bool:
    """Return whether the options name a record-level index."""
    return index_type(given) in (PARTITIONED_TYPE, *GLOBAL_TYPES)


def index_type(given: Mapping[str, str]) -> str:
    """Return the index type that the options name, in upper case; empty if they name none."""
    return given.get(INDEX_TYPE, "").strip().upper()
