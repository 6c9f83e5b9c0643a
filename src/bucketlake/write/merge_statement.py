"""A merge as the user states it: its clauses, in order.

``write/merge_binding.py`` checks a statement against a table and a source, ``write/merge_write.py``
finds the rows that it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import TYPE_CHECKING

from bucketlake.model.arguments import check_expressions, check_optional_texts
from bucketlake.model.position import UNKNOWN_ORIGIN, Origin
from bucketlake.model.result import WriteResult
from bucketlake.model.words_of_others import attribute_error, methods_in_our_words


class Match(Enum):
    """Which rows a clause is for; the value is SQL's spelling."""

    MATCHED = "WHEN MATCHED"
    NOT_MATCHED = "WHEN NOT MATCHED"
    BY_SOURCE = "WHEN NOT MATCHED BY SOURCE"


class Effect(IntEnum):
    """What a merge does with a row; the numbers are values of a hidden column."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    IGNORE = 3
    """An update that loses to the stored row by its ordering value."""
    NONE = 4
    """An insert of a row that is marked as deleted."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One ``WHEN`` of a merge.

    Attributes
    ----------
    match : Match
        The rows that the clause is for.
    effect : Effect
        What is done with them.
    condition : str or None
        SQL condition; None for all of them.
    values : mapping of str to str or None
        New values by column; None for the columns of the source, and for a delete.
    """

    match: Match
    effect: Effect
    condition: str | None = None
    values: Mapping[str, str] | None = None

    @property
    def role(self) -> str:
        """The clause in words, for errors."""
        all_of_them = self.values is None and self.effect is not Effect.DELETE
        condition = "" if self.condition is None else f" AND {self.condition}"
        return f"{self.match.value}{condition} THEN {self.effect.name}{' *' * all_of_them}"


@dataclass(frozen=True, slots=True)
class MergeStatement:
    """What a merge does.

    Attributes
    ----------
    on : str
        The condition under which a row of the source and a row of the table match.
    alias, source_alias : str
        The names of table and source in conditions and expressions.
    clauses : tuple of Clause
        For each row the first clause whose condition is true.
    origin : Origin
        Where the rows of the source come from.
    """

    on: str
    alias: str
    source_alias: str
    clauses: tuple[Clause, ...] = ()
    origin: Origin = UNKNOWN_ORIGIN


@methods_in_our_words
@dataclass(frozen=True, slots=True)
class Merge:
    """A merge that is not executed yet; :meth:`Table.merge` returns it.

    Each method returns a new merge with one more clause. The clauses are tried in order, and the
    first whose condition is true applies to a row; a null is not true. Only the last clause of its
    kind can have no condition. Rows for which no clause applies stay as they are.

    Attributes
    ----------
    statement : MergeStatement
        What the merge does.
    """

    statement: MergeStatement
    _run: Callable[[MergeStatement], WriteResult] = field(repr=False)

    if not TYPE_CHECKING:  # A checker of types shall not take any name for an attribute.

        def __getattr__(self, name):
            """Raise AttributeError; for a name in camel case with ours."""
            raise attribute_error(name, self, "merge", Merge)

    def when_matched_update(self, set: Mapping[str, str], condition: str | None = None) -> Merge:  # noqa: A002
        """Change columns of rows of the table that match a row of the source.

        Parameters
        ----------
        set : dict of str to str
            New values by column: SQL expressions of the columns of both sides, such as
            ``"t.n + s.n"``; a text needs quotes of its own. Columns of the record key and the
            partition keep their values, so that only what ``on`` equates can be assigned to them.
        condition : str, optional
            SQL condition on the columns of both sides.

        Returns
        -------
        Merge
        """
        check_expressions(set=set)
        return self._with(Match.MATCHED, Effect.UPDATE, condition, set)

    def when_matched_update_all(self, condition: str | None = None) -> Merge:
        """Set all columns of matching rows to the columns of the source with the same names.

        A row that the source flags in ``_hoodie_is_deleted`` is deleted.

        Parameters
        ----------
        condition : str, optional
            SQL condition on the columns of both sides.

        Returns
        -------
        Merge
        """
        return self._with(Match.MATCHED, Effect.UPDATE, condition)

    def when_matched_delete(self, condition: str | None = None) -> Merge:
        """Delete rows of the table that match a row of the source.

        Parameters
        ----------
        condition : str, optional
            SQL condition on the columns of both sides.

        Returns
        -------
        Merge
        """
        return self._with(Match.MATCHED, Effect.DELETE, condition)

    def when_not_matched_insert(
        self, values: Mapping[str, str], condition: str | None = None
    ) -> Merge:
        """Insert rows of the source that match no row of the table.

        Parameters
        ----------
        values : dict of str to str
            Values by column: SQL expressions of the columns of the source. Columns of the record
            key and the partition are needed; the others are null if they are not named.
        condition : str, optional
            SQL condition on the columns of the source.

        Returns
        -------
        Merge
        """
        check_expressions(values=values)
        return self._with(Match.NOT_MATCHED, Effect.INSERT, condition, values)

    def when_not_matched_insert_all(self, condition: str | None = None) -> Merge:
        """Insert rows of the source that match no row of the table, with all columns of the table.

        Parameters
        ----------
        condition : str, optional
            SQL condition on the columns of the source.

        Returns
        -------
        Merge
        """
        return self._with(Match.NOT_MATCHED, Effect.INSERT, condition)

    def when_not_matched_by_source_update(
        self,
        set: Mapping[str, str],  # noqa: A002 -- the word of SQL.
        condition: str | None = None,
    ) -> Merge:
        """Change columns of rows of the table that match no row of the source.

        Parameters
        ----------
        set : dict of str to str
            New values by column: SQL expressions of the columns of the table.
        condition : str, optional
            SQL condition on the columns of the table. Without one, the whole table is read.

        Returns
        -------
        Merge
        """
        check_expressions(set=set)
        return self._with(Match.BY_SOURCE, Effect.UPDATE, condition, set)

    def when_not_matched_by_source_delete(self, condition: str | None = None) -> Merge:
        """Delete rows of the table that match no row of the source.

        Parameters
        ----------
        condition : str, optional
            SQL condition on the columns of the table. Without one, the whole table is read.

        Returns
        -------
        Merge
        """
        return self._with(Match.BY_SOURCE, Effect.DELETE, condition)

    def execute(self) -> WriteResult:
        """Run the merge; all its changes are one commit.

        Returns
        -------
        WriteResult
            Without an instant if nothing changed.

        Raises
        ------
        InputError
            If a text is wrong, names a column that does not exist, or two rows of the source
            would change one row of the table or insert one key; nothing is written.
        ConfigError
            If there is no clause, or one without a condition is not the last of its kind.
        UnsupportedFeatureError
            If only Spark can evaluate a text, and there is no session.
        CommitConflictError
            If in each attempt another writer changed a partition in which rows can match. The
            other errors are those of :meth:`Table.upsert`.
        """
        return self._run(self.statement)

    def _with(
        self,
        match: Match,
        effect: Effect,
        condition: str | None,
        values: Mapping[str, str] | None = None,
    ) -> Merge:
        check_optional_texts(condition=condition)
        kept = None if values is None else dict(values)  # The caller may change its own.
        clauses = (*self.statement.clauses, Clause(match, effect, condition, kept))
        return replace(self, statement=replace(self.statement, clauses=clauses))
