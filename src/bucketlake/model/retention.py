"""Retention: which file versions a clean keeps, and which commits an archival."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Self

from bucketlake.errors import ConfigError
from bucketlake.model.arguments import check_integers

COMMITS_DEFAULT = 10
_HOURS_MAX = 1_000_000  # The time so long ago must be a date.


class CleanPolicy(Enum):
    """The unit of retention; the value is Hudi's spelling."""

    COMMITS = "KEEP_LATEST_COMMITS"
    HOURS = "KEEP_LATEST_BY_HOURS"
    VERSIONS = "KEEP_LATEST_FILE_VERSIONS"


@dataclass(frozen=True, slots=True)
class Retention:
    """How many commits, hours, or versions of each file group stay."""

    policy: CleanPolicy = CleanPolicy.COMMITS
    count: int = COMMITS_DEFAULT

    def __post_init__(self) -> None:
        name = f"retain_{self.policy.name.lower()}"
        check_integers(1, **{name: self.count})
        if self.policy is CleanPolicy.HOURS and self.count > _HOURS_MAX:
            raise ConfigError(name, self.count, f"give at most {_HOURS_MAX} hours")

    @classmethod
    def of(cls, *, commits: int | None, hours: int | None, versions: int | None) -> Self:
        """Return the requested retention, ten commits by default; ConfigError for two requests.

        Examples
        --------
        >>> Retention.of(commits=None, hours=24, versions=None)
        Retention(policy=<CleanPolicy.HOURS: 'KEEP_LATEST_BY_HOURS'>, count=24)
        """
        asked = dict(zip(CleanPolicy, (commits, hours, versions), strict=True))
        given = {policy: count for policy, count in asked.items() if count is not None}
        if len(given) > 1:
            named = " and ".join(f"retain_{policy.name.lower()}" for policy in given)
            raise ConfigError(named, [*given.values()], "give only one of them")
        return cls(*next(iter(given.items()))) if given else cls()


@dataclass(frozen=True, slots=True)
class ArchivalLimits:
    """How many commits the active timeline holds.

    Attributes
    ----------
    keep_min : int
        Commits that stay, the newest ones.
    keep_max : int
        Commits up to which nothing is archived; more than ``keep_min``.
    """

    keep_min: int = 20
    keep_max: int = 30

    def __post_init__(self) -> None:
        check_integers(1, keep_min=self.keep_min)
        check_integers(2, keep_max=self.keep_max)
        if self.keep_max <= self.keep_min:
            raise ConfigError(
                "keep_max", self.keep_max, f"give more than keep_min, {self.keep_min}"
            )
