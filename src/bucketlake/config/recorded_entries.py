"""The table's properties as commits record them: to notice a file that was edited, and to mend it.

Hudi's checksum covers only the name of the table, so a changed key field does not contradict it.
Each commit of bucketlake has the properties that it was written with. The newest commit is read by
every read and write anyway, for the schema. A commit of Hudi records nothing, so a table that Hudi
wrote last is not checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache

from bucketlake.config import table_keys as keys
from bucketlake.config.paths_of_table import PROPERTIES_FILE
from bucketlake.config.table_config import TableConfig
from bucketlake.errors import BucketLakeError, FormatError
from bucketlake.model.bounded_json import parse_json

RECORDED = "bucketlake.properties"
"""Key of the record in the extra metadata of a commit."""

_NOT_RECORDED = frozenset(
    {
        keys.CHECKSUM,
        keys.CREATE_SCHEMA,
        keys.METADATA_PARTITIONS,
        keys.METADATA_PARTITIONS_INFLIGHT,
        keys.INDEX_DEFINITIONS_PATH,
        keys.UNBUILT_PARTITIONS,
        keys.TIMELINE_MOVED,
    }
)
"""Entries that change during the life of a table, and the schema, which each commit has."""

_LASTING: Mapping[str, Callable[[TableConfig], str]] = {
    keys.TABLE_TYPE: lambda config: config.table_type.value,
    keys.RECORD_KEY_FIELDS: lambda config: ",".join(config.key_spec.record_key_fields),
    # Before the partition fields, which follow from it.
    keys.KEY_GENERATOR_TYPE: lambda config: config.key_spec.generator.value,
    keys.PARTITION_FIELDS: lambda config: ",".join(config.key_spec.partition_fields),
    keys.HIVE_STYLE: lambda config: str(config.key_spec.hive_style).lower(),
    keys.URL_ENCODE: lambda config: str(config.key_spec.url_encode).lower(),
    keys.MERGE_MODE: lambda config: config.merge_mode.value,
    keys.ORDERING_FIELDS: lambda config: ",".join(config.ordering_fields),
    keys.STORED_DELETE_FIELD: lambda config: config.delete_field or "",
    keys.STORED_DELETE_MARKER: lambda config: config.delete_marker or "",
    keys.ORDERING_GROUPS: lambda config: json.dumps(config.ordering_groups, sort_keys=True),
}
"""Entries that nobody may change, also where they are inferred.

Stored keys, partition paths and winners follow from them.
"""

_OTHER_SPELLINGS = (keys.ORDERING_FIELDS_OLD, keys.KEY_GENERATOR_CLASS)


def recorded_entries(config: TableConfig) -> str:
    """Return what a commit records of its table's properties."""
    entries = config.to_properties().items()
    held = {key: text for key, text in entries if key not in _NOT_RECORDED}
    return json.dumps(held, sort_keys=True, separators=(",", ":"))


def parse_recorded(text: str | None) -> dict[str, str] | None:
    """Return recorded entries; None if there are none, or they are none of bucketlake's."""
    try:
        entries = parse_json(text or "null")
    except ValueError:
        return None
    are_texts = isinstance(entries, dict) and all(isinstance(v, str) for v in entries.values())
    return entries if are_texts else None


def require_recorded(config: TableConfig, extra: Mapping[str, str], root: str) -> None:
    """Raise an error if the properties contradict a commit.

    Parameters
    ----------
    config : TableConfig
        The properties.
    extra : mapping of str to str
        Extra metadata of the commit.
    root : str
        The table's address.

    Raises
    ------
    FormatError
        If an entry was changed on which stored rows depend.
    """
    expected = _recorded_facts(extra.get(RECORDED, ""))
    if expected is None or expected == (found := _facts(config)):
        return
    key, was, now = next(
        (key, was, now)
        for key, was, now in zip(_LASTING, expected, found, strict=True)
        if was != now
    )
    raise FormatError(
        f"{root}/{PROPERTIES_FILE}",
        f"{key} = {was!r}, as when the last commit was written",
        f"{now!r}",
    )


def mended(current: Mapping[str, str], recorded: Mapping[str, str]) -> dict[str, str]:
    """Return properties with recorded entries in place of lost and changed ones."""
    fixed = {*_LASTING, *_OTHER_SPELLINGS}
    kept = {key: text for key, text in current.items() if key not in fixed}
    return {**recorded, **kept}


@lru_cache(maxsize=64)
def _recorded_facts(text: str) -> tuple[str, ...] | None:
    entries = parse_recorded(text)
    try:
        return None if entries is None else _facts(TableConfig.from_properties(entries))
    except BucketLakeError:
        return None


def _facts(config: TableConfig) -> tuple[str, ...]:
    """Return the values of the lasting entries."""
    return tuple(value_in(config) for value_in in _LASTING.values())
