"""Which changes of a table's schema a write may make: the argument ``merge_schema``.

By default a write changes no schema, and a batch has all columns of the table. Each of three
changes is asked for: new columns, wider types, and nulls for columns that the batch lacks.
:mod:`bucketlake.model.evolution` finds the changes that a batch needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

from bucketlake.errors import ConfigError
from bucketlake.model.arguments import items_of
from bucketlake.model.names import did_you_mean

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
        return SchemaMerge(
            self.add_columns or other.add_columns,
            self.widen_types or other.widen_types,
            self.fill_missing or other.fill_missing,
        )


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
