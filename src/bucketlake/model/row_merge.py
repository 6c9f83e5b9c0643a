"""How a write combines the columns of a record with the stored row of its key: three arguments.

By default a record replaces the whole row. ``missing="keep"`` and ``nulls="keep"`` take stored
values where a batch has none; ``merge`` has a rule for each column, or a function of the caller.
:mod:`bucketlake.merge.combining` does it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, Self, TypeAlias

import pyarrow as pa

from bucketlake.errors import ConfigError
from bucketlake.model.names import did_you_mean

Keep: TypeAlias = Literal["keep"] | None
"""``"keep"``: the stored value stays; None: it is replaced."""

MergeFunction: TypeAlias = Callable[[pa.Table, pa.Table], pa.Table]
"""Takes stored and new rows of the same keys, in the same order; returns the rows to store."""

MergeRules: TypeAlias = Mapping[str, str] | MergeFunction | None
"""A rule for each column, or a function of rows."""


class ColumnRule(Enum):
    """How a column gets its value from a stored value and a new one; the value is the argument."""

    REPLACE = "replace"  # The new value.
    KEEP = "keep"  # The stored value, unless it is null.
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    UNION = "union"  # Of lists: the stored elements, then those that are new.


ACCUMULATING = frozenset({ColumnRule.SUM, ColumnRule.MIN, ColumnRule.MAX, ColumnRule.UNION})
"""Rules whose value does not depend on which of two rows is newer: late rows count, too."""


@dataclass(frozen=True, slots=True)
class RowMerge:
    """The three arguments, checked.

    Attributes
    ----------
    keeps_missing : bool
        Whether columns that the batch lacks keep their stored values.
    keeps_nulls : bool
        Whether a null in the batch keeps the stored value.
    rules : mapping of str to ColumnRule
        By column; the other columns are replaced.
    function : callable or None
        Makes the rows to store, in place of rules.
    """

    keeps_missing: bool = False
    keeps_nulls: bool = False
    rules: Mapping[str, ColumnRule] = field(default_factory=dict)
    function: MergeFunction | None = None

    @classmethod
    def of(cls, missing: object, nulls: object, merge: object) -> Self:
        """Check the arguments of a write.

        Raises
        ------
        ConfigError
            If one has none of its values.

        Examples
        --------
        >>> RowMerge.of("keep", None, {"n": "sum"}).rules
        {'n': <ColumnRule.SUM: 'sum'>}
        """
        for name, value in (("missing", missing), ("nulls", nulls)):
            if value is not None and not (isinstance(value, str) and value == "keep"):
                raise ConfigError(name, value, "give 'keep' or None")
        keeps = missing is not None, nulls is not None
        if merge is None:
            return cls(*keeps)
        if isinstance(merge, Mapping) and merge:
            return cls(*keeps, {_name(name): _rule(name, rule) for name, rule in merge.items()})
        if callable(merge) and not isinstance(merge, type):
            return cls(*keeps, function=merge)
        allowed = "give a dict of columns and rules, or a function of stored and new rows"
        raise ConfigError("merge", merge, allowed)

    def __bool__(self) -> bool:
        """Whether stored rows have a say in the new rows."""
        has_rules = bool(self.rules) or self.function is not None
        return self.keeps_missing or self.keeps_nulls or has_rules


WHOLE_ROWS = RowMerge()
"""Records replace whole rows."""


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise ConfigError("merge", name, "name columns by text")
    return name


def _rule(name: str, rule: object) -> ColumnRule:
    known = [rule.value for rule in ColumnRule]
    if not isinstance(rule, str) or rule not in known:
        hint = did_you_mean(rule, known) if isinstance(rule, str) else ""
        allowed = f"give one of the rules {', '.join(known)}{hint}"
        raise ConfigError("merge", {name: rule}, allowed)
    return ColumnRule(rule)
