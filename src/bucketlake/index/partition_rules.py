"""Rules that give each partition its bucket count (RFC-89).

A rule reads its expressions once. Then it returns the bucket count of each stored partition path:
the count of the first expression that matches, or the default if none matches. ``regex`` is Hudi's
rule, and the only rule that Hudi knows; ``range`` compares paths as text. A custom rule is a
function that the caller passes; a name in a table's files is never imported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from functools import lru_cache

from bucketlake.errors import BucketLakeError, ConfigError
from bucketlake.index.bucket_hash import BUCKET_COUNT_MAX
from bucketlake.index.java_regex import JavaPattern
from bucketlake.model.names import one_of

PartitionRule = Callable[[str], int | None]
"""Returns the bucket count of a partition path, or None for the default."""

Expressions = tuple[tuple[str, int], ...]
"""Expressions, such as patterns, and the bucket count of each, in order of priority."""

RuleCompiler = Callable[[Expressions], PartitionRule]
"""Reads expressions; raises ConfigError if an expression is invalid."""

PATHS_REMEMBERED = 500_000  # RFC-89: about 200 MB.

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")


@lru_cache(maxsize=PATHS_REMEMBERED)
def bucket_count_of(
    rule: RuleCompiler, expressions: Expressions, default: int, partition_path: str
) -> int:
    """Return the bucket count of a partition.

    Parameters
    ----------
    rule : RuleCompiler
        A result of :func:`rule_named`, or a custom rule.
    expressions : tuple of (str, int)
        Expressions of the rule.
    default : int
        Count if no expression matches.
    partition_path : str
        Relative path of the partition, as stored.

    Examples
    --------
    >>> expressions = (("dt=2024-06-0[1-5]", 8), ("dt=2024-.*", 16))
    >>> bucket_count_of(rule_named("regex"), expressions, 4, "dt=2024-06-09")
    16
    """
    try:
        count = compile_rule(rule, expressions)(partition_path)
    except BucketLakeError:
        raise
    except Exception as error:  # The caller wrote the rule.
        failed = f"it must give partition {partition_path!r} a count; it raised {error!r}"
        raise ConfigError("rule", rule, failed) from error
    return default if count is None else check_count(count, f"partition {partition_path!r}")


@lru_cache(maxsize=64)
def compile_rule(rule: RuleCompiler, expressions: Expressions) -> PartitionRule:
    """Let a rule read its expressions; raise ConfigError if an expression is invalid."""
    try:
        compiled = rule(expressions)
    except BucketLakeError:
        raise
    except Exception as error:  # The caller wrote the rule.
        failed = f"it must read the expressions; it raised {error!r}"
        raise ConfigError("rule", rule, failed) from error
    if not callable(compiled):
        raise ConfigError("rule", rule, f"it must return a function, not {compiled!r}")
    return compiled


def check_rule(rule: object) -> None:
    """Raise ConfigError for a rule that is neither a name nor a function."""
    if not isinstance(rule, str) and not (callable(rule) and isinstance(rule, Hashable)):
        raise ConfigError("rule", rule, f"give one of {', '.join(_RULES)}, or a function")


def rule_named(name: str) -> RuleCompiler:
    """Return the rule with a name, case-insensitive; raise ConfigError if there is none."""
    rule = _RULES.get(name.lower())
    if rule is None:
        raise ConfigError("partition rule", name, f"use {one_of(name, _RULES)}")
    return rule


def split_expressions(expressions: str) -> Expressions:
    """Split ``pattern,count;pattern,count`` into pairs, as Java's ``split`` does.

    Raises
    ------
    ConfigError
        If an expression is not a pattern and a count, or the count is out of range.

    Examples
    --------
    >>> split_expressions("a,1; b ,2;")
    (('a', 1), ('b', 2))
    """
    found = []
    for text in _java_split(expressions, ";"):
        parts = _java_split(text.strip(), ",")
        if len(parts) != 2:
            raise ConfigError(
                "partition expressions",
                expressions,
                f"write pattern,count;pattern,count … with no comma in a pattern, not {text!r}",
            )
        pattern, count = parts[0].strip(), parts[1].strip()
        if not _WHOLE_NUMBER.fullmatch(count):
            raise ConfigError(
                "partition expressions", expressions, f"{count!r} is not a bucket count"
            )
        found.append((pattern, check_count(int(count), f"expression {text.strip()!r}")))
    return tuple(found)


def join_expressions(expressions: Expressions) -> str:
    """Join expressions to text, the reverse of :func:`split_expressions`.

    Raises
    ------
    ConfigError
        If a pattern contains a comma or a semicolon, which would end the pattern.
    """
    for pattern, _ in expressions:
        if "," in pattern or ";" in pattern:
            raise ConfigError("pattern", pattern, "give a pattern without comma and semicolon")
    return ";".join(f"{pattern},{count}" for pattern, count in expressions)


def _java_split(text: str, separator: str) -> list[str]:
    """Split; empty parts at the end are dropped, and a text without separator is one part."""
    parts = text.split(separator)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def check_count(count: int, where: str) -> int:
    """Return a bucket count; raise ConfigError if it is out of range."""
    if type(count) is not int or not 1 <= count <= BUCKET_COUNT_MAX:
        raise ConfigError(
            f"bucket count of {where}", count, f"give an integer from 1 to {BUCKET_COUNT_MAX}"
        )
    return count


def _regex(expressions: Expressions) -> PartitionRule:
    """Hudi's rule: use the first pattern that is found anywhere in the path."""
    patterns = [(JavaPattern(pattern), count) for pattern, count in expressions]

    def count_of(partition_path: str) -> int | None:
        return next((count for found, count in patterns if found.search(partition_path)), None)

    return count_of


def _range(expressions: Expressions) -> PartitionRule:
    """Ranges of paths, ``from..to``: from is included, to is not; each may be left out."""
    ranges = []
    for text, count in expressions:
        low, separator, high = text.partition("..")
        if not separator or (high and low >= high):
            raise ConfigError(
                "partition expressions",
                expressions,
                f"write from..to,count with from < to, not {text!r}",
            )
        ranges.append((low, high, count))

    def count_of(partition_path: str) -> int | None:
        return next(
            (
                n
                for low, high, n in ranges
                if low <= partition_path and (not high or partition_path < high)
            ),
            None,
        )

    return count_of


_RULES: dict[str, RuleCompiler] = {"regex": _regex, "range": _range}
