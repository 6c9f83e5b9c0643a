"""The index of a table, from the stored setting and the caller's value.

Hudi stores no bucket setting in a table. So every Hudi job must name it, and a wrong count silently
puts a key into a second file group. The first write of bucketlake stores bucket count and hash
fields. Later writes read them and raise an error for other values. A table with a hashing config is
partition-level: its newest committed version (``index/hashing_config.py``) gives the count of each
partition that has no recorded count (``index/recorded_counts.py``); the stored count is valid for
the time before the first version. The stored setting has versions too: a conversion changes the
maximum file size, or the kind (``index/stored_setting.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from bucketlake.config.record_options import (
    BUCKET_OPTIONS,
    BUCKET_TYPE,
    index_type,
    names_dynamic,
    names_record_index,
)
from bucketlake.config.resize_options import ENGINE_OPTION, names_directory, names_rings
from bucketlake.config.table_keys import TIMELINE_MOVED
from bucketlake.config.table_version import LAYOUT_1, TimelineLayout
from bucketlake.errors import (
    AlreadyExistsError,
    ConfigError,
    IndexStateError,
    UnsupportedFeatureError,
)
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.index.dynamic import DynamicBucket, RecordIndex
from bucketlake.index.hashing_config import (
    INITIAL_INSTANT,
    is_partition_level,
    latest_config,
    save_config,
)
from bucketlake.index.key_rule import KeyRule
from bucketlake.index.partition import EXPRESSIONS_OPTION, PartitionBucket, config_of
from bucketlake.index.partition_rules import RuleCompiler, split_expressions
from bucketlake.index.recorded_counts import recorded_counts, with_recorded
from bucketlake.index.ring_engine import CONSISTENT
from bucketlake.index.ring_kind import ConsistentBucket, ExtendibleBucket, RingKind
from bucketlake.index.rings import engines_of
from bucketlake.index.simple import SimpleBucket
from bucketlake.index.stored_setting import (
    SETTING_FILE,
    StoredKind,
    StoredSetting,
    latest_version,
    read_stored,
)
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.open_table import OpenTable
from bucketlake.timeline.table_properties import read_table_config

IndexedKind: TypeAlias = RecordIndex | DynamicBucket
"""Kinds that find keys in the record-level index of the metadata table."""

ResizedKind: TypeAlias = RingKind
"""Kinds whose buckets split and merge."""

TableIndex: TypeAlias = SimpleBucket | PartitionBucket | ResizedKind | IndexedKind

INDEXED_KINDS = (RecordIndex, DynamicBucket)
TWO_RULE_KINDS = (SimpleBucket, ConsistentBucket)
"""Kinds of which two rules are known (``index/key_rule.py``)."""
INDEX_KINDS = (SimpleBucket, PartitionBucket, ConsistentBucket, ExtendibleBucket, *INDEXED_KINDS)


def index_from_options(options: Mapping[str, str]) -> TableIndex | None:
    """Read the index from ``hoodie.*`` options of a Hudi job; None if they leave the kind open.

    They do so without an index type, or with type ``BUCKET`` and nothing else of that index: Hudi's
    engines have different default counts.

    Raises
    ------
    ConfigError
        If the options are invalid.
    """
    if _leave_the_kind_open(options):
        return None
    if names_dynamic(options):
        return DynamicBucket.from_options(options)
    if names_record_index(options):
        return RecordIndex.from_options(options)
    if names_directory(options):
        return ExtendibleBucket.from_options(options)
    if names_rings(options):
        return ConsistentBucket.from_options(options)
    if options.get(EXPRESSIONS_OPTION, "").strip():
        return PartitionBucket.from_options(options)
    return SimpleBucket.from_options(options)


def _leave_the_kind_open(options: Mapping[str, str]) -> bool:
    engine = options.get(ENGINE_OPTION, "").strip().upper()
    said = (key for key, text in options.items() if key.startswith(BUCKET_OPTIONS) and text.strip())
    return index_type(options) in ("", BUCKET_TYPE) and engine in ("", "SIMPLE") and not any(said)


def setting_at(
    storage: Storage, timeline: Timeline, stored: StoredSetting | None = None
) -> StoredSetting | None:
    """Return the setting that a table stores for a point of its timeline.

    Its index is None if the table was converted later, and had no setting before. ``stored`` is
    the setting, if the caller has read it.
    """
    stored = stored or read_stored(storage)
    if stored is None or not stored.has_versions:
        return stored
    version = latest_version(storage, timeline)
    return stored if version is None else replace(stored, index=version[1])


def needed_index(storage: Storage, timeline: Timeline) -> IndexedKind | None:
    """Return the kind that a table stores, if writes need a record-level index; else None."""
    stored = setting_at(storage, timeline)
    return stored.index if stored is not None and isinstance(stored.index, INDEXED_KINDS) else None


def is_stored(storage: Storage, timeline: Timeline, stored: StoredSetting | None) -> bool:
    """Return whether a table says which index it has at a point of its timeline."""
    if stored is None or stored.index is not None:
        return stored is not None
    now = setting_at(storage, timeline, stored)
    return now is not None and now.index is not None


def store_index(storage: Storage, index: TableIndex) -> None:
    """Store the index of a table; raise IndexStateError if another index is stored.

    The decided rule of its keys is stored with it. A partition-level index is also saved as the
    initial hashing config, if the table has none.
    """
    if isinstance(index, PartitionBucket) and not is_partition_level(storage):
        # Save the rules first: a table that stores only a count would be read as a simple index.
        save_config(storage, config_of(index, INITIAL_INSTANT))
    basis = stored_form(index)
    splits = index.split_keys if isinstance(index, TWO_RULE_KINDS) else None
    setting = StoredSetting(basis, split_keys=splits)
    try:
        storage.put_if_absent(SETTING_FILE, setting.to_json())
    except AlreadyExistsError:
        stored = read_stored(storage)
        if stored is not None and stored.has_versions and stored.index is None:
            # A conversion began before the table had a setting, and did not complete.
            storage.put(SETTING_FILE, replace(setting, has_versions=True).to_json())
            return
        require_given(storage, basis, stored.index if stored is not None else None)


def stored_form(index: TableIndex) -> StoredKind:
    """Return the index as a table stores it, without rules, which have files of their own."""
    if isinstance(index, PartitionBucket):
        return SimpleBucket(index.default, index.hash_fields, index.max_file_size)
    return index


def resolve_index(
    table: OpenTable,
    timeline: Timeline,
    given: TableIndex | None,
    stored: StoredSetting | None = None,
) -> TableIndex | None:
    """Return the index of a table at a point of its timeline, with the rule of its keys.

    See :func:`found_index`.

    Raises
    ------
    IndexStateError
        If the caller states another rule than the table.
    """
    stored = stored or read_stored(table.storage)
    index = found_index(table.storage, timeline, given, stored)
    if index is None:
        return None
    # Hudi hashes by names: one key field is one, too.
    rule = KeyRule(tuple(index.hash_fields or table.config.key_spec.record_key_fields))
    if timeline.layout is LAYOUT_1 and isinstance(index, TWO_RULE_KINDS):
        rule = _one_of_two_rules(table, rule, given, stored)
    return index.with_key_rule(rule)


def _one_of_two_rules(
    table: OpenTable, rule: KeyRule, given: TableIndex | None, stored: StoredSetting | None
) -> KeyRule:
    """Return the rule of a table that Hudi before 1 may write (``index/key_rule.py``)."""
    asked = given.split_keys if isinstance(given, TWO_RULE_KINDS) else None
    config, known = table.config, None if stored is None else stored.split_keys
    if asked is not None and known not in (None, asked):
        raise IndexStateError(
            f"index={given!r} with split_keys={asked} was asked for",
            f"{table.storage.root} has split_keys={known}",
            "open it without an index (without --index and --buckets)",
        )
    splits = asked if known is None else known
    # Hudi 1 has the archive elsewhere, and releases of bucketlake that stored no rule, or brought
    # the table from a newer version, split no key.
    is_made_by_hudi_0 = config.archive_folder == LAYOUT_1.archive_folder
    is_made_by_hudi_0 &= stored is None and TIMELINE_MOVED not in config.extra
    is_split = is_made_by_hudi_0 if splits is None else splits
    return replace(rule, splits=is_split, has_other=True, is_decided=splits is not None)


def with_rule_of_new_table(index: TableIndex, layout: TimelineLayout, where: str) -> TableIndex:
    """Return the index of a new table with its rule: in version 6, keys are split.

    Raises
    ------
    ConfigError
        If keys should be split in a table where no writer does so.
    """
    if not isinstance(index, TWO_RULE_KINDS):
        return index
    if layout is not LAYOUT_1:
        if index.split_keys:
            raise ConfigError(
                "split_keys",
                True,
                f"only Hudi 0.14 and 0.15 split keys, and they cannot write {where}: leave it out, "
                "or create a table with version=6 (--table-version 6)",
            )
        return replace(index, split_keys=None)
    return index if index.split_keys is not None else replace(index, split_keys=True)


def with_whole_keys(index: TableIndex) -> TableIndex:
    """Return the index of a new table that hashes keys whole, whatever its version is."""
    return replace(index, split_keys=False) if isinstance(index, TWO_RULE_KINDS) else index


def found_index(
    storage: Storage,
    timeline: Timeline,
    given: TableIndex | None,
    stored: StoredSetting | None = None,
) -> TableIndex | None:
    """Return the index of a table at a point of its timeline, without the rule of its keys.

    Parameters
    ----------
    storage : Storage
        The table's storage.
    timeline : Timeline
        The table's timeline; restrict it to a time for the index at that time.
    given : TableIndex or None
        The index that the caller passed: used if the table stores none, and for a custom rule.
    stored : StoredSetting, optional
        The stored setting, if the caller has read it.

    Returns
    -------
    TableIndex or None
        None if neither the table nor the caller has an index. A consistent hashing index has the
        table's rings at that point.

    Raises
    ------
    UnsupportedFeatureError
        If the table's rules cannot be evaluated.
    """
    stored = setting_at(storage, timeline, stored)
    if stored is not None and stored.index is None:
        # Only the caller knows the index before the conversion, and may state the later one.
        stored, given = None, None if isinstance(given, DynamicBucket) else given
    basis = given if stored is None else stored.index
    if isinstance(basis, RecordIndex) and isinstance(given, RecordIndex):
        # Each write may fill file groups to another size.
        basis = given if given.partitioned == basis.partitioned else basis
    if isinstance(basis, DynamicBucket) and isinstance(given, DynamicBucket):
        basis = basis.with_limits_of(given)
    if isinstance(basis, RingKind):
        return basis.bound(storage, timeline)
    if isinstance(basis, INDEXED_KINDS):
        return basis
    if stored is None and engines_of(storage):
        return None  # Only Hudi's writers know their settings, and those given are of another kind.
    config = latest_config(storage, timeline)
    known = None if stored is None else stored.index
    assert known is None or isinstance(known, SimpleBucket), "the other kinds are bound"
    if config is None:
        # Rules that were added later are not valid for the time before.
        is_later = isinstance(given, PartitionBucket) and is_partition_level(storage)
        return known or (None if is_later else given)
    other = known or given
    hash_fields = other.hash_fields if other is not None else None
    size = other.max_file_size if other is not None else None
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


def setting_origin(
    index: TableIndex, storage: Storage, timeline: Timeline, partition_path: str
) -> str:
    """Return in words which instant set the index setting of a partition."""
    if isinstance(index, RingKind):
        return "a resize or an overwrite"
    version = latest_version(storage, timeline)
    converted_at = None if version is None else version[0]
    conversion = f"the conversion of instant {converted_at}"
    if isinstance(index, INDEXED_KINDS):
        return "its creation" if converted_at is None else conversion
    config = latest_config(storage, timeline)
    if converted_at is not None and (config is None or config.instant < converted_at):
        return conversion
    recorded = recorded_counts(storage, timeline).get(partition_path)
    if recorded is not None and (config is None or recorded.instant >= config.instant):
        return f"the record of instant {recorded.instant}"
    return f"the hashing config of instant {config.instant if config else None}"


def without_state(index: TableIndex) -> TableIndex:
    """Return the settings of an index alone, as a user passes them."""
    return replace(index) if isinstance(index, RingKind) else index


def has_rules(index: TableIndex | None) -> bool:
    """Return whether rules of the table give partitions their bucket counts (RFC-89)."""
    return isinstance(index, PartitionBucket)


def without_records(index: TableIndex) -> TableIndex:
    """Return the index without recorded counts, as Hudi sees it."""
    return index.with_recorded({}) if isinstance(index, PartitionBucket) else index


def require_known_index(index: TableIndex, version: int, where: str) -> None:
    """Raise ConfigError if Hudi's writers of a table version do not know an index."""
    if index.first_version <= version:
        return
    first = index.first_version
    raise ConfigError(
        "index",
        index,
        f"{where} has table version {version}, and its readers know this index since version "
        f"{first}; upgrade the table with table.upgrade(to={first}) (bucketlake upgrade --run), "
        f"create it with version={first} (--table-version {first}), or choose another index such "
        "as SimpleBucket(4) or ConsistentBucket(4)",
    )


def require_given(storage: Storage, given: TableIndex | None, found: TableIndex | None) -> None:
    """Raise IndexStateError if the caller passed another index than the table's."""
    if isinstance(given, DynamicBucket) and isinstance(found, DynamicBucket):
        given = given.with_assigners_of(found)
    if given is not None and found != given:
        raise IndexStateError(
            f"index={given!r} was asked for",
            f"{storage.root} holds {found!r}",
            "open it without an index (without --index and --buckets); to change the count use "
            "table.rescale(...) (bucketlake rescale --run), to change max_file_size use "
            "table.convert(...) (bucketlake convert --run), to split or merge the buckets of a "
            "ConsistentBucket or ExtendibleBucket use table.resize() (bucketlake resize --run); "
            "the kind of a RecordIndex and the assigners of a DynamicBucket cannot be changed",
        )


def require_index(
    table: OpenTable,
    timeline: Timeline,
    given: TableIndex | None,
    stored: StoredSetting | None = None,
) -> TableIndex:
    """Return the index for a write; raise an error if it is unknown or not supported."""
    index, storage = resolve_index(table, timeline, given, stored), table.storage
    if index is None:
        stored = stored or read_stored(storage)
        begun = (
            "a conversion of the table to a DynamicBucket did not complete: repeat it with "
            "table.convert(...) (bucketlake convert --dynamic --run); or "
            if stored is not None and stored.has_versions
            else ""
        )
        kind, option = _ways_to_open(storage)
        raise ConfigError(
            "index",
            None,
            f"{begun}the table stores no bucket setting; open it with "
            f"open_table(path, index={kind}) ({option} COUNT); the count "
            "is that of the table's Hudi writers "
            f"(hoodie.bucket.index.num.buckets){_record_index_of(storage)}",
        )
    return index


def require_rings(table: OpenTable, timeline: Timeline, given: TableIndex | None) -> ResizedKind:
    """Return the index of a table whose buckets are resized; raise ConfigError for another."""
    index = require_index(table, timeline, given)
    if not isinstance(index, RingKind):
        raise ConfigError(
            "index",
            index,
            "only the buckets of a ConsistentBucket or an ExtendibleBucket split and merge"
            + (
                "; the buckets of a DynamicBucket are opened as they are needed"
                if isinstance(index, INDEXED_KINDS)
                else "; to change the count use table.rescale(...) (bucketlake rescale --run)"
            ),
            "resized",
        )
    return index


def _record_index_of(storage: Storage) -> str:
    """Return what to do if the writers of a table use its record-level index."""
    if MetadataPartition.RECORD_INDEX not in read_table_config(storage).metadata_partitions:
        return ""
    return (
        "; the table has a record-level index: if its writers use it (hoodie.index.type), open it "
        "with index=RecordIndex(partitioned=True) (--index record) or "
        "index=RecordIndex(partitioned=False) (--index global-record)"
    )


def _ways_to_open(storage: Storage) -> tuple[str, str]:
    """Return the kind of bucket index that a table may have, as a value and as options."""
    engines = engines_of(storage)
    if not engines:
        return "SimpleBucket(count)", "--buckets"
    if CONSISTENT in engines:
        return "ConsistentBucket(count)", "--index consistent --buckets"
    return "ExtendibleBucket(count)", "--index extendible --buckets"
