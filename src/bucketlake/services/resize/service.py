"""What all steps of a resize share, its limits, and its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bucketlake.errors import ConfigError
from bucketlake.flow.stage import Engine
from bucketlake.index.dynamic import MAX_FILE_SIZE_DEFAULT
from bucketlake.index.setting import TableIndex, require_rings
from bucketlake.model.arguments import check_integers, check_texts, names_of
from bucketlake.model.file_name import InstantTime
from bucketlake.model.names import one_of
from bucketlake.model.result import Shown
from bucketlake.model.table_type import TableType
from bucketlake.timeline.active import Timeline
from bucketlake.timeline.open_table import OpenTable

if TYPE_CHECKING:  # A table has the default limits in the signatures of its methods.
    from bucketlake.index.ring_layout import RingLayout

# ---- Which buckets of a hash ring a resize splits and merges, and how much it does (RFC-42) ------

MAX_BYTES_DEFAULT = 2 << 30  # The example of RFC-42.
MAX_GROUPS_DEFAULT = 30  # As Hudi's hoodie.clustering.plan.strategy.max.num.groups.
SPLIT_POLICIES = ("middle", "balanced")
_MAY_BE_NONE = ("max_bytes", "max_partitions", "max_groups")


@dataclass(frozen=True, slots=True)
class ResizeLimits:
    """Which buckets to split and merge, and how much to do at once.

    Attributes
    ----------
    max_file_size : int
        Bytes that a bucket should have. Base file and log files count as they are.
    split_threshold : float
        A bucket of more than ``max_file_size`` times this is split.
    merge_threshold : float
        Neighbours of at most ``max_file_size`` times this are merged.
    split_into : int
        Parts that a split makes at most; it makes as many as the size of the bucket asks for.
    split_at : {"middle", "balanced"}
        Where a range is split: at equal parts of the range, or so that the parts have equal numbers
        of keys. For that the keys are read, unless an earlier resize counted them.
    max_bytes : int or None
        Bytes that one resize reads. One group is always taken, whatever its size.
    max_partitions, max_groups : int or None
        Partitions, and splits and merges, of one resize. Bytes are looked at first.
    partitions : tuple of str or None
        Partitions to look at; None for all.
    after_commits : int
        Smallest number of commits since the last resize; before that nothing is planned.
    """

    max_file_size: int = MAX_FILE_SIZE_DEFAULT
    split_threshold: float = 2.0
    merge_threshold: float = 0.2
    split_into: int = 2
    split_at: str = "middle"
    max_bytes: int | None = MAX_BYTES_DEFAULT
    max_partitions: int | None = None
    max_groups: int | None = MAX_GROUPS_DEFAULT
    partitions: Sequence[str] | None = None
    after_commits: int = 0

    def __post_init__(self) -> None:
        limits = {name: getattr(self, name) for name in _MAY_BE_NONE}
        given = {name: value for name, value in limits.items() if value is not None}
        check_integers(1, max_file_size=self.max_file_size, **given)
        check_integers(2, split_into=self.split_into)
        check_integers(0, after_commits=self.after_commits)
        for name in ("split_threshold", "merge_threshold"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 <= value < float("inf"):
                raise ConfigError(name, value, "give a number of at least 0")
        if self.split_threshold < 2 * self.merge_threshold:
            # Otherwise a split could make parts that the next resize merges again.
            raise ConfigError(
                "merge_threshold",
                self.merge_threshold,
                f"give at most half of split_threshold, which is {self.split_threshold}",
            )
        check_texts(split_at=self.split_at)
        if self.split_at not in SPLIT_POLICIES:
            raise ConfigError("split_at", self.split_at, one_of(self.split_at, SPLIT_POLICIES))
        if self.partitions is not None:
            object.__setattr__(
                self, "partitions", names_of(self.partitions, "partitions", in_order=False)
            )

    @property
    def split_bytes(self) -> int:
        """A bucket of more bytes is split."""
        return int(self.max_file_size * self.split_threshold)

    @property
    def merge_bytes(self) -> int:
        """Buckets of at most so many bytes are merged."""
        return int(self.max_file_size * self.merge_threshold)


@dataclass(frozen=True, slots=True)
class ResizedBuckets:
    """A split or a merge.

    Attributes
    ----------
    partition_path : str
        The partition.
    action : {"split", "merge"}
        What is done.
    file_ids : tuple of str
        The file groups that are rewritten.
    size_bytes : int
        Their bytes.
    old_ranges, new_ranges : tuple of (int, int)
        Ranges of hash values before and after: start, which is excluded, and end; none for a
        directory.
    old_suffixes, new_suffixes : tuple of str
        For a directory, the last bits of the hash values before and after; ``*`` for all hashes.
    """

    partition_path: str
    action: str
    file_ids: tuple[str, ...]
    size_bytes: int
    old_ranges: tuple[tuple[int, int], ...]
    new_ranges: tuple[tuple[int, int], ...]
    old_suffixes: tuple[str, ...] = ()
    new_suffixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResizeReport(Shown):
    """What a resize does, or has done.

    Attributes
    ----------
    buckets : tuple of ResizedBuckets
        Splits and merges of the new plan; none if the table is in balance.
    left : int
        Further splits and merges that the limits leave to the next resize.
    instants : tuple of InstantTime
        Resizes that were completed, also those that were planned before; none for a dry run.
    scheduled : InstantTime or None
        The plan that was put on the timeline; None if there was nothing to do.
    """

    buckets: tuple[ResizedBuckets, ...]
    left: int = 0
    instants: tuple[InstantTime, ...] = ()
    scheduled: InstantTime | None = None


class OvertakenError(Exception):
    """Writers changed what a plan names; the plan is withdrawn, and made again."""


@dataclass(frozen=True, slots=True)
class ResizeService:
    """What all steps of a resize share."""

    table: OpenTable
    given: TableIndex | None
    limits: ResizeLimits
    engine: Engine

    @property
    def appends(self) -> bool:
        """Whether writes append log files."""
        return self.table.config.table_type is TableType.MERGE_ON_READ


def rings_of(service: ResizeService, timeline: Timeline) -> RingLayout:
    """Return the rings of the table at a point of its timeline."""
    return require_rings(service.table, timeline, service.given).layout()
