"""The index after a rescale: from the table's rules and the caller's rules (RFC-89)."""

from __future__ import annotations

from collections.abc import Mapping

from bucketlake.errors import ConfigError
from bucketlake.index.partition import PartitionBucket
from bucketlake.index.partition_rules import Expressions, RuleCompiler, check_count, check_rule
from bucketlake.index.ring_kind import RingKind
from bucketlake.index.setting import INDEXED_KINDS, TableIndex
from bucketlake.index.simple import SimpleBucket
from bucketlake.model.arguments import pairs_of

Rules = Mapping[str, int] | Expressions


def rescaled_index(
    held: TableIndex,
    rules: Rules | None,
    add: Rules | None,
    default: int | None,
    rule: str | RuleCompiler | None,
) -> PartitionBucket:
    """Return the index after a rescale.

    Parameters
    ----------
    held : TableIndex
        The index of the table.
    rules : mapping of str to int, optional
        All rules of the new index.
    add : mapping of str to int, optional
        Rules to put before the table's rules.
    default : int, optional
        Count if no rule matches; by default the table's default count.
    rule : str or callable, optional
        Kind of the rules; by default the table's kind of rules.

    Raises
    ------
    ConfigError
        If not exactly one of ``rules`` and ``add`` is given, or the rules are invalid; or if the
        table's buckets split and merge.
    """
    if (rules is None) == (add is None):
        both = None if rules is None else "rules and add"
        raise ConfigError("rules", both, "give rules= for a new list, or add= for further rules")
    if rule is not None:
        check_rule(rule)
    if default is not None:
        check_count(default, "default")
    if isinstance(held, (RingKind, *INDEXED_KINDS)):
        how = f"a {type(held).__name__} opens file groups as they are needed"
        if isinstance(held, RingKind):
            how = (
                f"the buckets of a {type(held).__name__} split and merge by table.resize() "
                "(bucketlake resize --run)"
            )
        reason = f"a rescale sets bucket counts by rules; {how}"
        raise ConfigError("index", held, reason, "rescaled")
    pairs = pairs_of(add if rules is None else rules, "add" if rules is None else "rules")
    if isinstance(held, SimpleBucket):
        known, usual = held.count, "regex" if rule is None else rule
    else:
        known, usual = held.default, held.rule if rule is None else rule
        if add is not None:
            if usual != held.rule:
                raise ConfigError("rule", rule, f"the table's rules are of kind {held.rule_name!r}")
            pairs += pairs_of(held.rules, "rules")
    count = known if default is None else default
    index = PartitionBucket(pairs, count, usual, held.hash_fields, held.max_file_size)
    return index.with_key_rule(held.key_rule)
