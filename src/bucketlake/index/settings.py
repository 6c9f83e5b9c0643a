"""The index of a table: what it stores of it, and what a caller says, as one value.

Hudi stores no bucket setting in a table, so every writer has to be told it again, and a wrong count
silently puts a key into a second file group. The first write of bucketlake stores count and hash
fields; later ones read them, and refuse others. A table with a hashing config is partition-level:
there the newest committed version says the counts (``index/hashing_config.py``) of partitions
without a recorded one (``index/recorded_counts.py``), and the stored count is that of the time
before the first version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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

_OTHER_KINDS = {
    f"{HOODIE_FOLDER}/.bucket_index/consistent_hashing_metadata": "consistent hashing bucket",
}


def index_from_options(options: Mapping[str, str]) -> TableIndex:
    """Read the index from the ``hoodie.*`` options of a Hudi job; ConfigError where it is none."""
    if options.get(EXPRESSIONS_OPTION, "").strip():
        return PartitionBucket.from_options(options)
    return SimpleBucket.from_options(options)


def read_stored(storage: Storage) -> SimpleBucket | None:
    """Return the stored count and hash fields; None where no write of bucketlake stored any."""
    try:
        data = storage.read(SETTINGS_FILE)
    except ObjectNotFoundError:
        return None
    try:
        stored = json.loads(data)
        engine, version = stored["engine"], stored["version"]
        index = SimpleBucket(stored["bucketCount"], tuple(stored["hashFields"]) or None)
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            SETTINGS_FILE,
            "a JSON object with engine, version, bucketCount and hashFields",
            f"{data[:80]!r} ({error!r})",
        ) from None
    if (engine, version) != ("SIMPLE", 1):
        raise UnsupportedFeatureError(
            f"bucket index engine {engine!r} of version {version}",
            storage.root,
            "use a newer bucketlake",
        )
    return index


def store_index(storage: Storage, index: TableIndex) -> None:
    """Store the index of a table that has none; IndexStateError where another one is stored.

    A partition-level index without a version of its hashing config becomes the initial one.
    """
    if isinstance(index, PartitionBucket) and not is_partition_level(storage):
        # First: a table that stores a count and no rules would pass for one with a single count.
        initial = HashingConfig(index.expressions, index.default, index.rule_name, INITIAL_INSTANT)
        save_config(storage, initial)
    count = index.default if isinstance(index, PartitionBucket) else index.count
    data = json.dumps(
        {
            "engine": "SIMPLE",
            "version": 1,
            "bucketCount": count,
            "hashFields": list(index.hash_fields or ()),
        },
        indent=2,
    ).encode()
    try:
        storage.put_if_absent(SETTINGS_FILE, data)
    except AlreadyExistsError:
        require_given(storage, SimpleBucket(count, index.hash_fields), read_stored(storage))


def resolve_index(
    storage: Storage,
    timeline: Timeline,
    given: TableIndex | None,
    stored: SimpleBucket | None = None,
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
    stored : SimpleBucket, optional
        What the table stores, where the caller has read it: once stored, it stays.

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
    if config is None:
        # Rules that came later say nothing of the time before.
        is_later = isinstance(given, PartitionBucket) and is_partition_level(storage)
        return stored or (None if is_later else given)
    hash_fields = next((known.hash_fields for known in (stored, given) if known is not None), None)
    rule: str | RuleCompiler = config.rule
    if isinstance(given, PartitionBucket) and given.rule_name == config.rule:
        rule = given.rule
    try:
        rules = split_expressions(config.expressions)
        index = PartitionBucket(rules, config.default_count, rule, hash_fields)
    except ConfigError as error:
        raise UnsupportedFeatureError(
            f"partition rules of instant {config.instant} ({error})",
            storage.root,
            "open the table with index= and the rule (Python only), or write to it with Hudi",
        ) from error
    return with_recorded(index, config, storage, timeline)


def count_origin(storage: Storage, timeline: Timeline, partition_path: str) -> str:
    """Say which instant a partition-level table has the count of a partition from."""
    config = latest_config(storage, timeline)
    recorded = recorded_counts(storage, timeline).get(partition_path)
    if recorded is not None and (config is None or recorded.instant >= config.instant):
        return f"the record of instant {recorded.instant}"
    return f"the hashing config of instant {config.instant if config else None}"


def require_given(storage: Storage, given: TableIndex | None, found: TableIndex | None) -> None:
    """Refuse an index that a caller names where the table is under another one."""
    if given is not None and found != given:
        raise IndexStateError(
            f"index={given!r} was asked for",
            f"{storage.root} holds {found!r}",
            "open it without index=; to change the count use Table.rescale (bucketlake rescale)",
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
    stored: SimpleBucket | None = None,
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
