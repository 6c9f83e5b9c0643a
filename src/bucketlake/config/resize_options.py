"""The options by which a Hudi job resizes the buckets of hash rings after its write (RFC-42).

Hudi resizes by its clustering service, so these are options of clustering. They are followed for
the bucket engines ``CONSISTENT_HASHING`` and ``EXTENDIBLE_HASHING`` alone: bucketlake has no other
clustering.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bucketlake.config.entries import ConfigEntries
from bucketlake.config.record_options import MAX_FILE_SIZE
from bucketlake.errors import ConfigError

ENGINE_OPTION = "hoodie.index.bucket.engine"
ENGINE = "CONSISTENT_HASHING"
EXTENDIBLE_ENGINE = "EXTENDIBLE_HASHING"
EXTENSION_ENGINE = "hoodie.bucket.index.ext.engine"
MAX_DEPTH = "hoodie.bucket.index.ext.extendible.max.depth"
MAX_DEPTH_DEFAULT = 20

MIN_COUNT = "hoodie.bucket.index.min.num.buckets"
MAX_COUNT = "hoodie.bucket.index.max.num.buckets"
INLINE = "hoodie.clustering.inline"
SCHEDULE = "hoodie.clustering.schedule.inline"
SERVICE = "hoodie.clustering.async.enabled"
SWITCHES = (INLINE, SCHEDULE, SERVICE)
_INLINE_AFTER = "hoodie.clustering.inline.max.commits"
_SCHEDULE_AFTER = "hoodie.clustering.async.max.commits"  # As in Hudi, also for SCHEDULE.
_AFTER_DEFAULT = 4
_SPLIT_THRESHOLD = "hoodie.bucket.index.split.threshold"
_MERGE_THRESHOLD = "hoodie.bucket.index.merge.threshold"
_MAX_GROUPS = "hoodie.clustering.plan.strategy.max.num.groups"
_SPLIT_POLICY = "hoodie.bucket.index.ext.split.policy"
_MAX_BYTES = "hoodie.bucket.index.ext.resize.max.bytes"
_MAX_PARTITIONS = "hoodie.bucket.index.ext.resize.max.partitions"
_DIGITS_OF_LONG = 18

CHECKED = {
    "hoodie.clustering.updates.strategy": ("SparkConsistentBucketDuplicateUpdateStrategy",),
    "hoodie.clustering.plan.strategy.class": ("SparkConsistentBucketClusteringPlanStrategy",),
    "hoodie.clustering.execution.strategy.class": (
        "SingleSparkJobConsistentHashingExecutionStrategy",
        "SparkConsistentBucketClusteringExecutionStrategy",
    ),
}
"""Options that name a class of Hudi, and the classes of this engine."""


_OF_RINGS = (MIN_COUNT, MAX_COUNT, _SPLIT_POLICY)
_OF_DIRECTORIES = (EXTENSION_ENGINE, MAX_DEPTH)
_OF_ENGINES = (
    *_OF_RINGS,
    *_OF_DIRECTORIES,
    _INLINE_AFTER,
    _SCHEDULE_AFTER,
    _SPLIT_THRESHOLD,
    _MERGE_THRESHOLD,
    _MAX_GROUPS,
    _MAX_BYTES,
    _MAX_PARTITIONS,
)


@dataclass(frozen=True, slots=True)
class ResizeOptions:
    """The resize that follows a write.

    Attributes
    ----------
    limits : mapping of str to value
        Arguments of ``Table.resize`` that the job gives.
    schedule_only : bool
        Whether another process executes the plan.
    """

    limits: Mapping[str, Any]
    schedule_only: bool


def names_rings(given: Mapping[str, str]) -> bool:
    """Return whether the options name the engine of hash rings."""
    return given.get(ENGINE_OPTION, "").strip().upper() == ENGINE and not names_directory(given)


def names_directory(given: Mapping[str, str]) -> bool:
    """Return whether the options name the engine of extendible hashing."""
    engine = given.get(EXTENSION_ENGINE, "").strip() or given.get(ENGINE_OPTION, "").strip()
    return engine.upper() == EXTENDIBLE_ENGINE


def resizes(given: Mapping[str, str]) -> bool:
    """Return whether the options name an engine whose buckets split and merge."""
    return names_rings(given) or names_directory(given)


def is_without_effect(key: str, given: Mapping[str, str]) -> bool:
    """Return whether an option belongs to a bucket engine that the options do not name."""
    if names_directory(given):
        return key in _OF_RINGS or key in CHECKED
    if names_rings(given):
        return key in _OF_DIRECTORIES
    return key in _OF_ENGINES or key in CHECKED


def resize_options(given: Mapping[str, str]) -> ResizeOptions | None:
    """Return the resize that a job asks for; None if it asks for none.

    Raises
    ------
    ConfigError
        If an option cannot be followed.
    """
    entries = ConfigEntries(given)
    inline, schedule, service = map(entries.boolean, SWITCHES)
    after_inline, after_schedule = (
        entries.option(key, _AFTER_DEFAULT) for key in (_INLINE_AFTER, _SCHEDULE_AFTER)
    )
    if not resizes(given):
        for key in SWITCHES:
            if entries.boolean(key):
                raise ConfigError(
                    key,
                    given[key],
                    f"only buckets of the engines {ENGINE} and {EXTENDIBLE_ENGINE} split and "
                    "merge; leave it out, or set false",
                )
        return None
    if service:
        raise ConfigError(
            SERVICE,
            given[SERVICE],
            f"save starts no service: leave it out and call table.resize() (bucketlake resize "
            f"--run) in a job of its own, or set {INLINE}=true",
        )
    if inline and schedule:
        raise ConfigError(SCHEDULE, given[SCHEDULE], f"only one of it and {INLINE} can be true")
    _check_classes(given)
    limits = _limits(entries, given)
    if not inline and not schedule:
        return None
    after = after_inline if inline else after_schedule
    return ResizeOptions({**limits, "after_commits": after}, schedule)


def _check_classes(given: Mapping[str, str]) -> None:
    for key, allowed in CHECKED.items():
        name = given.get(key, "").strip().rpartition(".")[2]
        if name and name not in allowed:
            raise ConfigError(key, given[key], f"for {ENGINE} leave it out, or name {allowed[0]}")


def _limits(entries: ConfigEntries, given: Mapping[str, str]) -> dict[str, Any]:
    numbers = {
        "max_file_size": MAX_FILE_SIZE,
        "max_groups": _MAX_GROUPS,
        "max_bytes": _MAX_BYTES,
        "max_partitions": _MAX_PARTITIONS,
    }
    limits: dict[str, Any] = {
        name: entries.option(key, 0, least=1, digits_max=_DIGITS_OF_LONG)
        for name, key in numbers.items()
        if key in given
    }
    thresholds = {"split_threshold": _SPLIT_THRESHOLD, "merge_threshold": _MERGE_THRESHOLD}
    limits |= {name: entries.factor(key) for name, key in thresholds.items() if key in given}
    if _SPLIT_POLICY in given and names_rings(given):
        limits["split_at"] = entries.one_of(_SPLIT_POLICY, ("MIDDLE", "BALANCED")).lower()
    return limits
