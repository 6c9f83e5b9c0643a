"""The index of a table, from the stored setting and the caller's value.

Hudi stores no bucket setting in a table. So every Hudi job must name it, and a wrong count silently
puts a key into a second file group. The first write of bucketlake stores bucket count and hash
fields. Later writes read them and raise an error for other values. A table with a hashing config is
partition-level: its newest committed version (``index/hashing_config.py``) gives the count of each
partition that has no recorded count (``index/recorded_counts.py``); the stored count is valid for
the time before the first version. The maximum file size has versions too
(``index/group_sizes.py``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from bucketlake.config.layout import EXTENSION_FOLDER, HOODIE_FOLDER
from bucketlake.errors import (
    AlreadyExistsError,
    ConfigError,
    FormatError,
    IndexStateError,
    ObjectNotFoundError,
    UnsupportedFeatureError,
)
from bucketlake.index.group_sizes import latest_size
from bucketlake.index.hashing_config import (
    INITIAL_INSTANT,
    HashingConfig,
    is_partition_level,
    latest_config,
    save_config,
)
from bucketlake.index.partition import EXPRESSIONS_OPTION, PartitionBucket
from bucketlake.index.partition_rules import RuleCompiler, split_expressions
from bucketlake.index.recorded_counts import recorded_counts, with_recorded
from bucketlake.index.simple import SimpleBucket
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline

TableIndex: TypeAlias = SimpleBucket | PartitionBucket

SETTINGS_FILE = f"{EXTENSION_FOLDER}/engine.json"

_WITHOUT_SIZE, _WITH_SIZE = 1, 2  # Versions of the settings file.

_OTHER_KINDS = {
    f"{HOODIE_FOLDER}/.bucket_index/consistent_hashing_metadata": "consistent hashing bucket",
}


def index_from_options(options: Mapping[str, str]) -> TableIndex:
    """Read the index from ``hoodie.*`` options of a Hudi job; ConfigError if they are invalid."""
    if options.get(EXPRESSIONS_OPTION, "").strip():
        return PartitionBucket.from_options(options)
    return SimpleBucket.from_options(options)


@dataclass(frozen=True, slots=True)
class StoredSetting:
    """The setting that the first write of bucketlake stored.

    Attributes
    ----------
    index : SimpleBucket
        Bucket count, hash fields and maximum file size before the first version.
    has_versions : bool
        Whether the maximum file size may have versions (``index/group_sizes.py``).
    """

    index: SimpleBucket
    has_versions: bool = False


def read_stored(storage: Storage) -> StoredSetting | None:
    """Return the stored setting; None if no write of bucketlake stored one."""
    try:
        data = storage.read(SETTINGS_FILE)
    except ObjectNotFoundError:
        return None
    try:
        stored = json.loads(data)
        engine, version = stored["engine"], stored["version"]
        size = stored["maxFileSize"] if version == _WITH_SIZE else None
        index = SimpleBucket(stored["bucketCount"], tuple(stored["hashFields"]) or None, size)
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            SETTINGS_FILE,
            "a JSON object with engine, version, bucketCount and hashFields",
            f"{data[:80]!r} ({error!r})",
        ) from None
    if engine != "SIMPLE" or version not in (_WITHOUT_SIZE, _WITH_SIZE):
        raise UnsupportedFeatureError(
            f"bucket index engine {engine!r} of version {version}",
            storage.root,
            "use a newer bucketlake",
        )
    return StoredSetting(index, version == _WITH_SIZE)


def store_index(storage: Storage, index: TableIndex) -> None:
    """Store the index of a table; raise IndexStateError if another index is stored.

    A partition-level index is also saved as the initial hashing config, if the table has none.
    """
    if isinstance(index, PartitionBucket) and not is_partition_level(storage):
        # Save the rules first: a table that stores only a count would be read as a simple index.
        initial = HashingConfig(index.expressions, index.default, index.rule_name, INITIAL_INSTANT)
        save_config(storage, initial)
    simple = _as_simple(index)
    try:
        storage.put_if_absent(SETTINGS_FILE, _encode(simple, simple.max_file_size is not None))
    except AlreadyExistsError:
        stored = read_stored(storage)
        require_given(storage, simple, stored.index if stored is not None else None)


def keep_versions(storage: Storage) -> None:
    """Store that the maximum file size may have versions; call this before saving the first.

    Releases of bucketlake that do not support versions raise an error for the table afterwards.
    """
    stored = read_stored(storage)
    if stored is not None and not stored.has_versions:
        storage.put(SETTINGS_FILE, _encode(stored.index, with_size=True))


def _as_simple(index: TableIndex) -> SimpleBucket:
    if isinstance(index, SimpleBucket):
        return index
    return SimpleBucket(index.default, index.hash_fields, index.max_file_size)


def _encode(index: SimpleBucket, with_size: bool) -> bytes:
    entries: dict[str, object] = {
        "engine": "SIMPLE",
        "version": _WITH_SIZE if with_size else _WITHOUT_SIZE,
        "bucketCount": index.count,
        "hashFields": list(index.hash_fields or ()),
    }
    if with_size:
        entries["maxFileSize"] = index.max_file_size
    return json.dumps(entries, indent=2).encode()


def resolve_index(
    storage: Storage,
    timeline: Timeline,
    given: TableIndex | None,
    stored: StoredSetting | None = None,
) -> TableIndex | None:
    """Return the index of a table at a point of its timeline.

    Parameters
    ----------
    storage : Storage
        The table's storage.
    timeline : Timeline
        The table's timeline; restrict it to a time for the index at that time.
    given : SimpleBucket, PartitionBucket or None
        The index that the caller passed: used if the table stores none, and for a custom rule.
    stored : StoredSetting, optional
        The stored setting, if the caller has read it.

    Returns
    -------
    SimpleBucket, PartitionBucket or None
        None if neither the table nor the caller has an index.

    Raises
    ------
    UnsupportedFeatureError
        If the table's rules cannot be evaluated.
    """
    stored = stored or read_stored(storage)
    config = latest_config(storage, timeline)
    known = _stored_index(storage, timeline, stored)
    if config is None:
        # Rules that were added later are not valid for the time before.
        is_later = isinstance(given, PartitionBucket) and is_partition_level(storage)
        return known or (None if is_later else given)
    basis = known or given
    hash_fields = basis.hash_fields if basis is not None else None
    size = basis.max_file_size if basis is not None else None
    rule: str | RuleCompiler = config.rule
    if isinstance(given, PartitionBucket) and given.rule_name == config.rule:
        rule = given.rule
    try:
        rules = split_expressions(config.expressions)
        index = PartitionBucket(rules, config.default_count, rule, hash_fields, size)
    except ConfigError as error:
        raise UnsupportedFeatureError(
            f"partition rules of instant {config.instant} ({error})",
            storage.root,
            "open the table with index= and the rule (Python only), or write to it with Hudi",
        ) from error
    return with_recorded(index, config, storage, timeline)


def _stored_index(
    storage: Storage, timeline: Timeline, stored: StoredSetting | None
) -> SimpleBucket | None:
    """Return the stored index at a point of the timeline."""
    if stored is None:
        return None
    newest = latest_size(storage, timeline) if stored.has_versions else None
    if newest is None:
        return stored.index
    return stored.index.with_max_file_size(newest.max_file_size)


def setting_origin(storage: Storage, timeline: Timeline, partition_path: str) -> str:
    """Return in words which instant set the index setting of a partition."""
    config, size = latest_config(storage, timeline), latest_size(storage, timeline)
    if size is not None and (config is None or config.instant < size.instant):
        return f"the conversion of instant {size.instant}"
    recorded = recorded_counts(storage, timeline).get(partition_path)
    if recorded is not None and (config is None or recorded.instant >= config.instant):
        return f"the record of instant {recorded.instant}"
    return f"the hashing config of instant {config.instant if config else None}"


def has_rules(index: TableIndex | None) -> bool:
    """Return whether rules of the table give partitions their bucket counts (RFC-89)."""
    return isinstance(index, PartitionBucket)


def without_records(index: TableIndex) -> TableIndex:
    """Return the index without recorded counts, as Hudi sees it."""
    return index.with_recorded({}) if isinstance(index, PartitionBucket) else index


def require_given(storage: Storage, given: TableIndex | None, found: TableIndex | None) -> None:
    """Raise IndexStateError if the caller passed another index than the table's."""
    if given is not None and found != given:
        raise IndexStateError(
            f"index={given!r} was asked for",
            f"{storage.root} holds {found!r}",
            "open it without index=; to change the count use Table.rescale (bucketlake rescale), "
            "to change max_file_size use bucketlake.convert",
        )


def other_index_kind(storage: Storage) -> str | None:
    """Return the name of an index kind that bucketlake does not support; None if there is none."""
    for folder, kind in _OTHER_KINDS.items():
        if next(iter(storage.list(folder)), None) is not None:
            return kind
    return None


def require_index(
    storage: Storage,
    timeline: Timeline,
    given: TableIndex | None,
    stored: StoredSetting | None = None,
) -> TableIndex:
    """Return the index for a write; raise an error if it is unknown or not supported."""
    kind = other_index_kind(storage)
    if kind is not None:
        raise UnsupportedFeatureError(
            f"writing to a table with a {kind} index", storage.root, "write to it with Hudi"
        )
    index = resolve_index(storage, timeline, given, stored)
    if index is None:
        raise ConfigError(
            "index",
            None,
            "the table stores no bucket setting; open it with "
            "open_table(path, index=SimpleBucket(count)), on the command line with --buckets; the "
            "count is that of the table's Hudi writers (hoodie.bucket.index.num.buckets)",
        )
    return index
