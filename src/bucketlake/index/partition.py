"""The partition-level bucket index: rules give each partition its bucket count (RFC-89).

This module holds the index value. The versions of a table's rules are in
``index/hashing_config.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from bucketlake.config.table_version import PARTITION_RULES_VERSION
from bucketlake.errors import ConfigError
from bucketlake.index.hashing_config import HashingConfig
from bucketlake.index.kinds import IndexKind
from bucketlake.index.partition_rules import (
    Expressions,
    RuleCompiler,
    bucket_count_of,
    check_count,
    check_rule,
    compile_rule,
    join_expressions,
    rule_named,
    split_expressions,
)
from bucketlake.index.simple import SimpleBucket, group_facts
from bucketlake.model.arguments import pairs_of
from bucketlake.model.file_name import InstantTime

if TYPE_CHECKING:
    from bucketlake.index.bucket_layout import BucketLayout

EXPRESSIONS_OPTION = "hoodie.bucket.index.partition.expressions"
RULE_OPTION = "hoodie.bucket.index.partition.rule.type"
DRAFT_RULE_OPTION = "hoodie.bucket.index.partition.rule"  # Its name in the RFC's draft.


@dataclass(frozen=True)
class PartitionBucket(IndexKind):
    """A bucket count for each partition, by rules; compatible with Hudi's ``BUCKET`` index.

    Parameters
    ----------
    rules : mapping of str to int
        Bucket count by expression; the first expression that matches a partition path is used.
    default : int
        Bucket count of partitions that match no expression.
    rule : str or callable
        ``regex``: expressions are Java patterns, found anywhere in the path; Hudi knows only this
        rule. ``range``: expressions are ``from..to``; paths are compared as text, ``from`` is
        included and ``to`` is not. Or a function that takes the rules as pairs and returns a
        function from partition path to bucket count or None.
    hash_fields : sequence of str, optional
        Record key fields that choose the bucket; None for all of them.
    max_file_size : int, optional
        Bytes of a file group at which the next one of its bucket is opened; see
        :class:`SimpleBucket`.

    Raises
    ------
    ConfigError
        If a count is out of range, or the rule cannot read its expressions.

    Examples
    --------
    >>> index = PartitionBucket({"dt=2024-06-0[1-5]": 8, "dt=2024-": 16}, default=4)
    >>> [index.count_of(path) for path in ("dt=2024-06-03", "dt=2024-07-01", "dt=2023-01-01")]
    [8, 16, 4]
    """

    rules: Mapping[str, int] | Expressions
    default: int
    rule: str | RuleCompiler = "regex"
    hash_fields: Sequence[str] | None = None
    max_file_size: int | None = None
    # Recorded counts come from the table, not from the user, so they are no part of the value.
    _recorded: Mapping[str, int] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        pairs = pairs_of(self.rules, "rules")
        rules = tuple((pattern, check_count(count, repr(pattern))) for pattern, count in pairs)
        object.__setattr__(self, "rules", rules)
        check_count(self.default, "default")
        check_rule(self.rule)
        checked = self._simple
        object.__setattr__(self, "hash_fields", checked.hash_fields)
        if not rules:
            raise ConfigError("rules", rules, "give at least one rule, or use SimpleBucket")
        join_expressions(rules)
        compile_rule(self._compiler, rules)

    @property
    def expressions(self) -> str:
        """The rules in the form of Hudi's options: ``pattern,count;pattern,count``."""
        return join_expressions(self._pairs)

    @property
    def rule_name(self) -> str:
        """Name of the rule, as stored in the table."""
        if isinstance(self.rule, str):
            return self.rule.lower()
        return f"{self.rule.__module__}:{self.rule.__qualname__}"

    @property
    def counted(self) -> Self:
        """The index itself: each partition has a number of buckets."""
        return self

    def count_of(self, partition_path: str) -> int:
        """Return the bucket count of a partition."""
        recorded = self._recorded.get(partition_path)
        if recorded is not None:
            return recorded
        return bucket_count_of(self._compiler, self._pairs, self.default, partition_path)

    def names(self, partition_path: str) -> bool:
        """Return whether a rule gives a partition its count, not the default."""
        return compile_rule(self._compiler, self._pairs)(partition_path) is not None

    def unused_rules(self, partitions: Collection[str]) -> tuple[str, ...]:
        """Return the expressions that match no partition; none for a rule of the caller.

        A function of the caller need not read an expression alone.
        """
        if not isinstance(self.rule, str):
            return ()
        alone = {pair[0]: compile_rule(self._compiler, (pair,)) for pair in self._pairs}
        return tuple(
            expression
            for expression, rule in alone.items()
            if all(rule(path) is None for path in partitions)
        )

    @property
    def first_version(self) -> int:
        """The first table version whose Hudi writers know this index."""
        return PARTITION_RULES_VERSION

    def layout(self) -> BucketLayout:
        """Return the layout, which tells how keys find their bucket."""
        from bucketlake.index.bucket_layout import BucketLayout

        return BucketLayout(self, key_rule=self.key_rule)

    def facts(self) -> dict[str, object]:
        """Return the settings as a dict of simple values, ready to be shown."""
        rules = {"index": "partition_bucket", "rule": self.rule_name, "rules": self.expressions}
        return {**rules, "buckets": self.default} | group_facts(self)

    def with_recorded(self, counts: Mapping[str, int]) -> Self:
        """Return the index with recorded counts, which are used instead of the rules."""
        index = copy(self)
        object.__setattr__(index, "_recorded", dict(counts))
        return index

    def with_max_file_size(self, max_file_size: int | None) -> Self:
        """Return the same index and recorded counts with another maximum file size."""
        index = replace(self, max_file_size=max_file_size).with_recorded(self._recorded)
        return index.with_key_rule(self.key_rule)

    def to_options(self) -> dict[str, str]:
        """Return the ``hoodie.*`` options of this index, for a Hudi job."""
        options = self._simple.to_options()
        return options | {EXPRESSIONS_OPTION: self.expressions, RULE_OPTION: self.rule_name}

    def to_command(self) -> dict[str, object]:
        """Return the options of a command that name this index."""
        return {**self._simple.to_command(), "--rules": self.expressions}

    @property
    def own_rule(self) -> str | None:
        """Name of the rule; None for ``regex``, which commands have."""
        return None if self.rule_name == "regex" else self.rule_name

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Read the index from the ``hoodie.*`` options of a Hudi job.

        Raises
        ------
        ConfigError
            If the options name another index, no default count, or invalid expressions.
        """
        simple = SimpleBucket.from_options(options)
        rule = options.get(RULE_OPTION) or options.get(DRAFT_RULE_OPTION) or "regex"
        expressions = split_expressions(options.get(EXPRESSIONS_OPTION, ""))
        return cls(expressions, simple.count, rule, simple.hash_fields, simple.max_file_size)

    @property
    def _simple(self) -> SimpleBucket:
        """The index of a partition that matches no rule."""
        return SimpleBucket(self.default, self.hash_fields, self.max_file_size)

    @property
    def _compiler(self) -> RuleCompiler:
        return rule_named(self.rule) if isinstance(self.rule, str) else self.rule

    @property
    def _pairs(self) -> Expressions:
        assert isinstance(self.rules, tuple)
        return self.rules


def with_rules(index: SimpleBucket | PartitionBucket, expressions: str) -> PartitionBucket:
    """Return an index with rules in the form of Hudi's options; its count is their default."""
    default = index.count_of("")
    return PartitionBucket(split_expressions(expressions), default, "regex", index.hash_fields)


def config_of(index: PartitionBucket, instant: InstantTime) -> HashingConfig:
    """Return the rules of an index as a version of the hashing config."""
    return HashingConfig(index.expressions, index.default, index.rule_name, instant)
