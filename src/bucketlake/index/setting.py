"""The index of a table, from the stored setting and the caller's value.

Hudi stores no bucket setting in a table. So every Hudi job must name it, and a wrong count silently
puts a key into a second file group. The first write of bucketlake stores bucket count and hash
fields. Later writes read them and raise an error for other values. A table with a hashing config is
partition-level: its newest committed version (``index/hashing_config.py``) gives the count of each
partition that has no recorded count (``index/recorded_counts.py``); the stored count is valid for
the time before the first version. The maximum file size has versions too
(``index/group_sizes.py``). The kind itself has versions since a conversion to another kind
(``index/kind_versions.py``); the stored setting is then valid for the time before the first one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from bucketlake.config.paths_of_table import EXTENSION_FOLDER
from bucketlake.config.record_options import names_dynamic, names_record_index
from bucketlake.config.resize_options import names_directory, names_rings
from bucketlake.errors import (
    AlreadyExistsError,
    ConfigError,
    FormatError,
    IndexStateError,
    ObjectNotFoundError,
    UnsupportedFeatureError,
)
from bucketlake.format.checked_json import parse_checked, render_checked
from bucketlake.format.metadata_record.file_ids import MetadataPartition
from bucketlake.index.consistent import ConsistentBucket
from bucketlake.index.dynamic import DynamicBucket
from bucketlake.index.extendible import ExtendibleBucket
from bucketlake.index.group_sizes import latest_size
from bucketlake.index.hashing_config import (
    INITIAL_INSTANT,
    HashingConfig,
    is_partition_level,
    latest_config,
    save_config,
)
from bucketlake.index.kind_versions import latest_kind
from bucketlake.index.partition import EXPRESSIONS_OPTION, PartitionBucket
from bucketlake.index.partition_rules import RuleCompiler, split_expressions
from bucketlake.index.record import RecordIndex
from bucketlake.index.recorded_counts import recorded_counts, with_recorded
from bucketlake.index.ring_engine import CONSISTENT
from bucketlake.index.ring_kind import RingKind
from bucketlake.index.rings import engines_of
from bucketlake.index.simple import SimpleBucket
from bucketlake.index.stored_kind import StoredKind, has_size, kind_entries, parse_kind
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.table_properties import read_table_config

IndexedKind: TypeAlias = RecordIndex | DynamicBucket
"""Kinds that find keys in the record-level index of the metadata table."""

ResizedKind: TypeAlias = ConsistentBucket | ExtendibleBucket
"""Kinds whose buckets split and merge."""

TableIndex: TypeAlias = SimpleBucket | PartitionBucket | ResizedKind | IndexedKind

INDEXED_KINDS = (RecordIndex, DynamicBucket)
INDEX_KINDS = (SimpleBucket, PartitionBucket, ConsistentBucket, ExtendibleBucket, *INDEXED_KINDS)

SETTINGS_FILE = f"{EXTENSION_FOLDER}/engine.json"

_VERSIONS_ENGINE, _VERSIONS = "VERSIONS", 1
"""Engine and version of the settings file once the kind has versions. Releases of bucketlake that
do not support versions then raise an error for the table."""


def index_from_options(options: Mapping[str, str]) -> TableIndex:
    """Read the index from ``hoodie.*`` options of a Hudi job; ConfigError if they are invalid."""
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


@dataclass(frozen=True, slots=True)
class StoredSetting:
    """The setting that the first write of bucketlake stored.

    Attributes
    ----------
    index : SimpleBucket, ConsistentBucket, ExtendibleBucket, RecordIndex, DynamicBucket or None
        Bucket count, hash fields and maximum file size before the first version; or the limits of
        the rings; or the sizes of file groups. None if the table was converted, or a conversion
        began, before it had a setting.
    has_versions : bool
        Whether the maximum file size may have versions (``index/group_sizes.py``).
    has_kinds : bool
        Whether the kind may have versions (``index/kind_versions.py``).
    """

    index: StoredKind | None
    has_versions: bool = False
    has_kinds: bool = False

    def to_json(self) -> bytes:
        """Print the settings file."""
        entries = None
        if self.index is not None:
            entries = kind_entries(self.index, with_size=self.has_versions)
        if self.has_kinds:
            entries = {"engine": _VERSIONS_ENGINE, "version": _VERSIONS, "before": entries}
        assert entries is not None, "a setting has a kind, or versions of it"
        return render_checked(entries, partial(json.dumps, indent=2))


def read_stored(storage: Storage) -> StoredSetting | None:
    """Return the stored setting; None if no write of bucketlake stored one."""
    try:
        data = storage.read(SETTINGS_FILE)
    except ObjectNotFoundError:
        return None
    try:
        entries = parse_checked(data, SETTINGS_FILE)
        has_kinds = (entries["engine"], entries["version"]) == (_VERSIONS_ENGINE, _VERSIONS)
        held = entries["before"] if has_kinds else entries
        if held is None:
            return StoredSetting(None, has_kinds=has_kinds)
        return StoredSetting(parse_kind(held, storage.root), has_size(held), has_kinds)
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            SETTINGS_FILE,
            "a JSON object with engine, version, bucketCount and hashFields",
            f"{data[:80]!r} ({error!r})",
        ) from None


def setting_at(
    storage: Storage, timeline: Timeline, stored: StoredSetting | None = None
) -> StoredSetting | None:
    """Return the setting that a table stores for a point of its timeline.

    Its index is None if the table was converted later, and had no setting before. ``stored`` is
    the setting, if the caller has read it.
    """
    stored = stored or read_stored(storage)
    if stored is None or not stored.has_kinds:
        return stored
    kind = latest_kind(storage, timeline)
    return stored if kind is None else StoredSetting(kind.index, has_kinds=True)


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

    A partition-level index is also saved as the initial hashing config, if the table has none.
    """
    if isinstance(index, PartitionBucket) and not is_partition_level(storage):
        # Save the rules first: a table that stores only a count would be read as a simple index.
        initial = HashingConfig(index.expressions, index.default, index.rule_name, INITIAL_INSTANT)
        save_config(storage, initial)
    basis = index if isinstance(index, _WITHOUT_VERSIONS) else _as_simple(index)
    setting = StoredSetting(basis, basis.max_file_size is not None)
    try:
        storage.put_if_absent(SETTINGS_FILE, setting.to_json())
    except AlreadyExistsError:
        stored = read_stored(storage)
        if stored is not None and stored.has_kinds and stored.index is None:
            # A conversion began before the table had a setting, and did not complete.
            storage.put(SETTINGS_FILE, replace(setting, has_kinds=True).to_json())
            return
        require_given(storage, basis, stored.index if stored is not None else None)


def keep_versions(storage: Storage) -> None:
    """Store that the maximum file size may have versions; call this before saving the first.

    Releases of bucketlake that do not support versions raise an error for the table afterwards.
    """
    stored = read_stored(storage)
    if stored is not None and not stored.has_versions:
        storage.put(SETTINGS_FILE, replace(stored, has_versions=True).to_json())


def keep_kinds(storage: Storage) -> None:
    """Store that the kind may have versions; call this before saving the first.

    The setting that is stored, if any, stays valid for the time before the first version. Releases
    of bucketlake that do not support versions raise an error for the table afterwards.
    """
    stored = read_stored(storage)
    if stored is None:
        try:
            storage.put_if_absent(SETTINGS_FILE, StoredSetting(None, has_kinds=True).to_json())
            return
        except AlreadyExistsError:  # The first write of bucketlake stored a setting meanwhile.
            stored = read_stored(storage)
            assert stored is not None, "a setting is never deleted"
    if not stored.has_kinds:
        storage.put(SETTINGS_FILE, replace(stored, has_kinds=True).to_json())


_WITHOUT_VERSIONS = (ConsistentBucket, ExtendibleBucket, RecordIndex, DynamicBucket)
"""Kinds that are bound to the state of a table, and whose settings do not change."""


def _as_simple(index: SimpleBucket | PartitionBucket) -> SimpleBucket:
    if isinstance(index, SimpleBucket):
        return index
    return SimpleBucket(index.default, index.hash_fields, index.max_file_size)


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
    if isinstance(basis, _WITHOUT_VERSIONS):
        return basis.bound(storage, timeline)
    if stored is None and engines_of(storage):
        return None  # Only Hudi's writers know their settings, and those given are of another kind.
    config = latest_config(storage, timeline)
    known = _stored_index(storage, timeline, stored)
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


def _stored_index(
    storage: Storage, timeline: Timeline, stored: StoredSetting | None
) -> SimpleBucket | None:
    """Return the stored index at a point of the timeline."""
    if stored is None:
        return None
    assert isinstance(stored.index, SimpleBucket), "rings are no hash buckets"
    newest = latest_size(storage, timeline) if stored.has_versions else None
    if newest is None:
        return stored.index
    return stored.index.with_max_file_size(newest.max_file_size)


def setting_origin(
    index: TableIndex, storage: Storage, timeline: Timeline, partition_path: str
) -> str:
    """Return in words which instant set the index setting of a partition."""
    if isinstance(index, RingKind):
        return "a resize or an overwrite"
    if isinstance(index, INDEXED_KINDS):
        kind = latest_kind(storage, timeline)
        return "its creation" if kind is None else f"the conversion of instant {kind.instant}"
    config, size = latest_config(storage, timeline), latest_size(storage, timeline)
    if size is not None and (config is None or config.instant < size.instant):
        return f"the conversion of instant {size.instant}"
    recorded = recorded_counts(storage, timeline).get(partition_path)
    if recorded is not None and (config is None or recorded.instant >= config.instant):
        return f"the record of instant {recorded.instant}"
    return f"the hashing config of instant {config.instant if config else None}"


def without_state(index: TableIndex) -> TableIndex:
    """Return the settings of an index alone, as a user passes them."""
    return replace(index) if isinstance(index, _WITHOUT_VERSIONS) else index


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
            "open it without an index (without --index and --buckets); to change the count use "
            "table.rescale(...) (bucketlake rescale --run), to change max_file_size use "
            "table.convert(...) (bucketlake convert --run), to split or merge the buckets of a "
            "ConsistentBucket or ExtendibleBucket use table.resize() (bucketlake resize --run); "
            "the kind of a RecordIndex and the assigners of a DynamicBucket cannot be changed",
        )


def require_index(
    storage: Storage,
    timeline: Timeline,
    given: TableIndex | None,
    stored: StoredSetting | None = None,
) -> TableIndex:
    """Return the index for a write; raise an error if it is unknown or not supported."""
    index = resolve_index(storage, timeline, given, stored)
    if index is None:
        stored = stored or read_stored(storage)
        begun = (
            "a conversion of the table to a DynamicBucket did not complete: repeat it with "
            "table.convert(...) (bucketlake convert --dynamic --run); or "
            if stored is not None and stored.has_kinds
            else ""
        )
        raise ConfigError(
            "index",
            None,
            f"{begun}the table stores no bucket setting; open it with "
            f"open_table(path, index={_kind_of(storage)}) ({_option_of(storage)} COUNT); the count "
            "is that of the table's Hudi writers "
            f"(hoodie.bucket.index.num.buckets){_record_index_of(storage)}",
        )
    return index


def require_rings(storage: Storage, timeline: Timeline, given: TableIndex | None) -> ResizedKind:
    """Return the index of a table whose buckets are resized; raise ConfigError for another."""
    index = require_index(storage, timeline, given)
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


def _kind_of(storage: Storage) -> str:
    engines = engines_of(storage)
    if not engines:
        return "SimpleBucket(count)"
    return "ConsistentBucket(count)" if CONSISTENT in engines else "ExtendibleBucket(count)"


def _option_of(storage: Storage) -> str:
    engines = engines_of(storage)
    if not engines:
        return "--buckets"
    return f"--index {'consistent' if CONSISTENT in engines else 'extendible'} --buckets"
