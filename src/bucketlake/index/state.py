"""Saves and undoes the index state of a commit: setting, rules, recorded counts and rings.

The index setting (``index/stored_setting.py``), partition rules (``index/hashing_config.py``),
recorded counts (``index/recorded_counts.py``) and rings (``index/rings.py``) are each stored in a
file per commit. Writers, rollbacks and archivals call these functions and do not know the files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from bucketlake.index.hashing_config import (
    HashingConfig,
    committed_configs,
    config_path,
    instants_in,
    latest_config,
    save_config,
)
from bucketlake.index.layout import Layout
from bucketlake.index.partition import PartitionBucket, config_of
from bucketlake.index.recorded_counts import RECORD_FOLDER, record_counts, record_path
from bucketlake.index.ring_layout import RingLayout
from bucketlake.index.rings import (
    forget_notes,
    forget_old_rings,
    noted_instants,
    publish_before_archival,
    save_rings,
    undo_rings,
)
from bucketlake.index.setting import TableIndex, stored_form
from bucketlake.index.stored_setting import (
    VERSIONS_FOLDER,
    SettingVersion,
    allow_versions,
    committed_versions,
    latest_version,
    save_version,
    version_path,
)
from bucketlake.model.file_name import InstantTime
from bucketlake.storage.base import Storage
from bucketlake.timeline.active import Timeline

NewestVersions: TypeAlias = tuple[HashingConfig | None, SettingVersion | None]
"""The newest versions of the hashing config and of the index setting."""


def newest_versions(storage: Storage, timeline: Timeline) -> NewestVersions:
    """Return the newest versions that are valid on a timeline."""
    return latest_config(storage, timeline), latest_version(storage, timeline)


def setting_instants(storage: Storage, timeline: Timeline) -> set[InstantTime]:
    """Return the commits that saved a version of the setting, or of rings."""
    rings = {instant for instant in noted_instants(storage) if timeline.is_completed(instant)}
    configs = {config.instant for config in committed_configs(storage, timeline)}
    return rings | configs | {*committed_versions(storage, timeline)}


def save_setting(storage: Storage, held: TableIndex, new: TableIndex, instant: InstantTime) -> None:
    """Save the setting that a commit changes; it is valid when the commit is completed."""
    resized = held.max_file_size != new.max_file_size
    if resized:
        allow_versions(storage)
        save_version(storage, instant, stored_form(new))
    if isinstance(new, PartitionBucket):
        config = config_of(new, instant)
        is_same = isinstance(held, PartitionBucket) and config_of(held, instant) == config
        if not (resized and is_same):
            save_config(storage, config)


def record_written(
    index: TableIndex,
    layout: Layout,
    storage: Storage,
    timeline: Timeline,
    instant: InstantTime,
    partitions: Collection[str],
) -> None:
    """Save the index state that a commit brings: bucket counts, and rings of an overwrite."""
    if isinstance(layout, RingLayout):
        save_rings(storage, instant, layout.renewals)
    if isinstance(index, PartitionBucket):
        counts = {path: index.count_of(path) for path in partitions}
        record_counts(storage, timeline, instant, counts)


def undo_state(storage: Storage, instant: InstantTime, partitions: Collection[str] = ()) -> None:
    """Delete the index state of a rolled-back commit.

    ``partitions`` are those of a clustering, whose rings may be Hudi's.

    It would become valid when its instant is older than the active timeline (RFC-89, "Loading").
    """
    for path in (config_path(instant), record_path(instant), version_path(instant)):
        storage.delete(path)
    undo_rings(storage, instant, partitions)


def forget_state(storage: Storage, instants: Callable[[InstantTime], bool]) -> None:
    """Delete the index state of bucketlake's commits that another program rolled back."""
    for folder, path_of in ((RECORD_FOLDER, record_path), (VERSIONS_FOLDER, version_path)):
        for instant in instants_in(storage, folder, ".json"):
            if instants(instant):
                storage.delete(path_of(instant))
    for instant in noted_instants(storage):
        if instants(instant):
            undo_rings(storage, instant)


def keep_archived_state(storage: Storage, commits: Mapping[InstantTime, Collection[str]]) -> None:
    """Make the index state of commits independent of the timeline, which they leave.

    ``commits`` are those that replaced file groups, with their partitions.
    """
    if commits:
        publish_before_archival(storage, commits)


def forget_archived_state(storage: Storage, before: InstantTime) -> None:
    """Delete what only a rollback of commits before the active timeline would need."""
    forget_notes(storage, [instant for instant in noted_instants(storage) if instant < before])


def forget_replaced_state(
    storage: Storage, timeline: Timeline, partitions: Collection[str], earliest: InstantTime
) -> None:
    """Delete the index state that describes file groups which a clean has deleted.

    ``partitions`` had file groups that were replaced before ``earliest``, the earliest commit that
    readers may ask for.
    """
    if partitions:
        forget_old_rings(storage, timeline, partitions, earliest)
