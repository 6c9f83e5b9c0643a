"""Which buckets of a hash ring a resize splits and merges, and how much it does (RFC-42)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bucketlake.errors import ConfigError
from bucketlake.model.arguments import check_integers, check_texts, names_of
from bucketlake.model.names import one_of

MAX_FILE_SIZE_DEFAULT = 120 << 20  # As Hudi's hoodie.parquet.max.file.size.
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
        for name, least in (
            ("max_file_size", 1),
            ("split_into", 2),
            ("max_bytes", 1),
            ("max_partitions", 1),
            ("max_groups", 1),
            ("after_commits", 0),
        ):
            value = getattr(self, name)
            if value is not None or name not in _MAY_BE_NONE:
                check_integers(least, **{name: value})
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
