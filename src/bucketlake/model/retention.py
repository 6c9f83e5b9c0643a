"""Retention: which file versions a clean keeps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Self

from bucketlake.errors import ConfigError

COMMITS_DEFAULT = 10


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
        if type(self.count) is not int or self.count < 1:
            name = f"retain_{self.policy.name.lower()}"
            raise ConfigError(name, self.count, "give an integer of at least 1")

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
            raise ConfigError(
                "clean", [*given.values()], "give one of retain_commits, _hours and _versions"
            )
        return cls(*next(iter(given.items()))) if given else cls()
