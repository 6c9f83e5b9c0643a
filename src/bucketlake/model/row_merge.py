"""How a write combines the columns of a record with the stored row of its key: four arguments.

By default a record replaces the whole row. ``missing="keep"`` and ``nulls="keep"`` take stored
values where a batch has none; ``merge`` has a rule for each column, or a function of the caller.
``on_tie="fail"`` refuses two rows of one key and ordering value that differ.
:mod:`bucketlake.merge.combining` does it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Literal, Self, TypeAlias

import pyarrow as pa

from bucketlake.errors import ConfigError
from bucketlake.model.arguments import items_of
from bucketlake.model.names import did_you_mean

Keep: TypeAlias = Literal["keep"] | None
"""``"keep"``: the stored value stays; None: it is replaced."""

OnTie: TypeAlias = Literal["fail"] | None
"""What two rows of a key with equal ordering values are: an error; None: the later one wins."""

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
    """The four arguments, checked.

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
    fails_on_tie : bool
        Whether it is an error if two rows of a key have equal ordering values, and differ.
    """

    keeps_missing: bool = False
    keeps_nulls: bool = False
    rules: Mapping[str, ColumnRule] = field(default_factory=dict)
    function: MergeFunction | None = None
    fails_on_tie: bool = False

    @classmethod
    def of(cls, missing: object, nulls: object, merge: object, on_tie: object = None) -> Self:
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
        given = ("missing", missing, "keep"), ("nulls", nulls, "keep"), ("on_tie", on_tie, "fail")
        for name, value, word in given:
            if value is not None and not (isinstance(value, str) and value == word):
                raise ConfigError(name, value, f"give {word!r} or None")
        keeps = missing is not None, nulls is not None
        if on_tie is not None:
            if merge is not None:
                raise ConfigError("on_tie", on_tie, "leave out merge, or on_tie")
            return cls(*keeps, fails_on_tie=True)
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
        return self.keeps_missing or self.keeps_nulls or has_rules or self.fails_on_tie


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


# ---- Which changes of a table's schema a write may make: the argument ``merge_schema`` -----------
#
# By default a write changes no schema, and a batch has all columns of the table. Each of three
# changes is asked for: new columns, wider types, and nulls for columns that the batch lacks.
# :mod:`bucketlake.model.evolution` finds the changes that a batch needs.

MergeSchema = bool | str | Sequence[str]
"""``False``: no change; ``True``: every change; or the words of the changes, one or several."""


@dataclass(frozen=True, slots=True)
class SchemaMerge:
    """Changes that a write may make.

    Attributes
    ----------
    add_columns : bool
        Whether columns of the batch that the table lacks are added to the table, also fields of
        structs.
    widen_types : bool
        Whether columns of the table become wider if the batch is wider: only to types that hold
        every value of both.
    fill_missing : bool
        Whether nullable columns that the batch lacks are null in its records.
    """

    add_columns: bool = False
    widen_types: bool = False
    fill_missing: bool = False

    @classmethod
    def of(cls, given: object) -> Self:
        """Return the changes of a ``merge_schema`` argument.

        Raises
        ------
        ConfigError
            If it is neither a boolean nor made of the three words.

        Examples
        --------
        >>> SchemaMerge.of("add_columns")
        SchemaMerge(add_columns=True, widen_types=False, fill_missing=False)
        >>> SchemaMerge.of(True) == SchemaMerge.of(["add_columns", "widen_types", "fill_missing"])
        True
        """
        known = [field.name for field in fields(cls)]
        if isinstance(given, bool):
            return cls(**dict.fromkeys(known, given))
        allowed = _ALLOWED.format(", ".join(known))
        asked = [given] if isinstance(given, str) else items_of(given, "merge_schema", allowed)
        unknown = [word for word in asked if not (isinstance(word, str) and word in known)]
        if unknown:
            raise ConfigError("merge_schema", given, allowed + did_you_mean(unknown[0], known))
        return cls(**dict.fromkeys(asked, True))

    @property
    def words(self) -> list[str]:
        """The words of the allowed changes."""
        return [field.name for field in fields(self) if getattr(self, field.name)]

    def __or__(self, other: SchemaMerge) -> SchemaMerge:
        """Return the changes that one of the two allows."""
        return SchemaMerge(**dict.fromkeys([*self.words, *other.words], True))


NO_CHANGE = SchemaMerge()
"""A write that changes no schema."""

_ALLOWED = "give True, False, or one or several of the words {}"


def how_to_allow(words: Sequence[str]) -> str:
    """Return what to give so that a write may make some changes.

    Examples
    --------
    >>> how_to_allow(["add_columns", "fill_missing"])
    "merge_schema=['add_columns', 'fill_missing'] (command line: --add-columns --fill-missing)"
    """
    flags = " ".join(f"--{word.replace('_', '-')}" for word in words)
    given = repr(words[0] if len(words) == 1 else [*words])
    return f"merge_schema={given} (command line: {flags})"
