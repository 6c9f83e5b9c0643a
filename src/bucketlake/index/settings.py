"""The index of a table: what it stores of it, and what a caller says, as one value.

Hudi stores no bucket setting in a table, so every writer has to be told it again, and a wrong count
silently puts a key into a second file group. The first write of bucketlake stores count and hash
fields; later ones read them, and refuse others. A table with a hashing config is partition-level:
there the newest committed version says the counts (``index/hashing_config.py``) of partitions
without a recorded one (``index/recorded_counts.py``), and the stored count is that of the time
before the first version. So it is with the file size (``index/group_sizes.py``).
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

_WITHOUT_SIZE, _WITH_SIZE = 1, 2  # Versions of that file.

_OTHER_KINDS = {
    f"{HOODIE_FOLDER}/.bucket_index/consistent_hashing_metadata": "consistent hashing bucket",
}


def index_from_options(options: Mapping[str, str]) -> TableIndex:
    """Read the index from the ``hoodie.*`` options of a Hudi job; ConfigError where it is none."""
    if options.get(EXPRESSIONS_OPTION, "").strip():
        return PartitionBucket.from_options(options)
    return SimpleBucket.from_options(options)


@dataclass(frozen=True, slots=True)
class StoredSetting:
    """The setting that the first write of bucketlake stored.

    Attributes
    ----------
    index : SimpleBucket
        Count, hash fields and file size of the time before any version of them.
    has_versions : bool
        Whether the file size may have versions (``index/group_sizes.py``).
    """

    index: SimpleBucket
    has_versions: bool = False


def read_stored(storage: Storage) -> StoredSetting | None:
    """Return the stored setting; None where no write of bucketlake stored one."""
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
    """Store the index of a table that has none; IndexStateError where another one is stored.

    A partition-level index without a version of its hashing config becomes the initial one.
    """
    if isinstance(index, PartitionBucket) and not is_partition_level(storage):
        # First: a table that stores a count and no rules would pass for one with a single count.
        initial = HashingConfig(index.expressions, index.default, index.rule_name, INITIAL_INSTANT)
        save_config(storage, initial)
    simple = _as_simple(index)
    try:
        storage.put_if_absent(SETTINGS_FILE, _encode(simple, simple.max_file_size is not None))
    except AlreadyExistsError:
        stored = read_stored(storage)
        require_given(storage, simple, stored.index if stored is not None else None)


def keep_versions(storage: Storage) -> None:
    """Note that the file size of a table may have versions; done before the first is saved.

    Releases that know no versions refuse the table from then on.
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
    """Return the index that a table is under at a point of its timeline.

    Parameters
    ----------
    storage : Storage
        The table's storage.
    timeline : Timeline
        Its timeline; restricted to a time, for the index of that time.
    given : SimpleBucket, PartitionBucket or None
        What the caller knows: counts and hash fields where the table stores none, and a rule of
        the user's own.
    stored : StoredSetting, optional
        What the table stores, where the caller has read it.

    Returns
    -------
    SimpleBucket, PartitionBucket or None
        None where neither the table nor the caller says one.

    Raises
    ------
    UnsupportedFeatureError
        If the table's rules cannot be followed.
    """
    stored = stored or read_stored(storage)
    config = latest_config(storage, timeline)
    known = _stored_index(storage, timeline, stored)
    if config is None:
        # Rules that came later say nothing of the time before.
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
    """Return the stored setting as of a point of the timeline."""
    if stored is None:
        return None
    newest = latest_size(storage, timeline) if stored.has_versions else None
    if newest is None:
        return stored.index
    return stored.index.with_max_file_size(newest.max_file_size)


def setting_origin(storage: Storage, timeline: Timeline, partition_path: str) -> str:
    """Say which instant a table has the setting of a partition from."""
    config, size = latest_config(storage, timeline), latest_size(storage, timeline)
    if size is not None and (config is None or config.instant < size.instant):
        return f"the conversion of instant {size.instant}"
    recorded = recorded_counts(storage, timeline).get(partition_path)
    if recorded is not None and (config is None or recorded.instant >= config.instant):
        return f"the record of instant {recorded.instant}"
    return f"the hashing config of instant {config.instant if config else None}"


def has_rules(index: TableIndex | None) -> bool:
    """Tell whether the table's own rules give partitions their counts (RFC-89)."""
    return isinstance(index, PartitionBucket)


def without_records(index: TableIndex) -> TableIndex:
    """Return the index by its rules alone, which are all that Hudi knows."""
    return index.with_recorded({}) if isinstance(index, PartitionBucket) else index


def require_given(storage: Storage, given: TableIndex | None, found: TableIndex | None) -> None:
    """Refuse an index that a caller names where the table is under another one."""
    if given is not None and found != given:
        raise IndexStateError(
            f"index={given!r} was asked for",
            f"{storage.root} holds {found!r}",
            "open it without index=; to change the count use Table.rescale (bucketlake rescale), "
            "to change max_file_size use bucketlake.convert",
        )


def other_index_kind(storage: Storage) -> str | None:
    """Name the index of a table that is none of ours; None where nothing tells of one."""
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
    """Return the index that a write uses; refuse a table whose index is unknown or another."""
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
            "open_table(path, index=SimpleBucket(count)), on the command line --buckets, and the "
            "count of its Hudi writers (hoodie.bucket.index.num.buckets)",
        )
    return index
