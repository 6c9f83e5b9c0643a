"""The index that a rescale asks for: the rules of the table, and those of the caller (RFC-89)."""

from __future__ import annotations

from collections.abc import Mapping

from bucketlake.errors import ConfigError
from bucketlake.index.partition import PartitionBucket
from bucketlake.index.partition_rules import Expressions, RuleCompiler
from bucketlake.index.settings import TableIndex
from bucketlake.index.simple import SimpleBucket

Rules = Mapping[str, int] | Expressions


def rescaled_index(
    held: TableIndex,
    rules: Rules | None,
    add: Rules | None,
    default: int | None,
    rule: str | RuleCompiler | None,
) -> PartitionBucket:
    """Return the index that is asked for.

    Parameters
    ----------
    held : SimpleBucket or PartitionBucket
        What the table has.
    rules : mapping of str to int, optional
        All rules of the new index.
    add : mapping of str to int, optional
        Rules to put before those that the table has.
    default : int, optional
        Count where no rule fits; by default the last one.
    rule : str or callable, optional
        Kind of the rules; by default the last one.

    Raises
    ------
    ConfigError
        If not exactly one of ``rules`` and ``add`` is given, or they are none.
    """
    if (rules is None) == (add is None):
        raise ConfigError("rescale", None, "give rules= for a new list, or add= for further rules")
    pairs = _pairs(rules if rules is not None else add or ())
    if isinstance(held, SimpleBucket):
        default = held.count if default is None else default
        fields, size = held.hash_fields, held.max_file_size
        return PartitionBucket(pairs, default, rule or "regex", fields, size)
    if add is not None:
        if rule is not None and rule != held.rule:
            raise ConfigError("rule", rule, f"the rules that are there are {held.rule_name!r}")
        pairs += _pairs(held.rules)
    default = held.default if default is None else default
    return PartitionBucket(pairs, default, rule or held.rule, held.hash_fields, held.max_file_size)


def _pairs(rules: Rules) -> Expressions:
    return tuple(rules.items()) if isinstance(rules, Mapping) else tuple(rules)
