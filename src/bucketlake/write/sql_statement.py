"""The statements ``MERGE INTO``, ``UPDATE``, ``DELETE FROM``, ``INSERT INTO``: text to values.

Only the frame of a statement is parsed here. Conditions and expressions stay the texts that they
were, for the functions that evaluate them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import Token, TokenType

from bucketlake.errors import InputError, UnsupportedFeatureError
from bucketlake.where.sides import outer
from bucketlake.where.syntax import words_of
from bucketlake.where.words import with_names
from bucketlake.write.merge_statement import Clause, Effect, Match, MergeStatement

_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NAME_TOKENS = frozenset({TokenType.VAR, TokenType.IDENTIFIER})


_TAKEN = "it runs MERGE INTO, UPDATE, DELETE FROM and INSERT INTO"
_INSTEAD = {
    "ALTER": "write with merge_schema=True to add columns",
    "CREATE": "call bl.create_table(path, schema=…, record_key=…)",
    "DESCRIBE": "print the table, or call table.schema()",
    "OPTIMIZE": "call table.compact() (bucketlake compact --run)",
    "SHOW": "call table.show() (bucketlake show) or table.timeline() (bucketlake timeline)",
    "TRUNCATE": "write DELETE FROM without a condition",
    "VACUUM": "call table.clean() (bucketlake clean --run)",
}
_QUERY = (
    "for a query, call table.read(spark, where=…) (bucketlake read) or table.to_arrow(where=…); "
    "for SQL, make a view of table.read(spark) (bucketlake read) with "
    "createOrReplaceTempView('name'), and call spark.sql(…)"
)


TableName: TypeAlias = tuple[str, ...]
"""A table in a statement: the parts of its name."""


@dataclass(frozen=True, slots=True)
class MergeText:
    """``MERGE INTO``: the table, the source (a text is a query), and the merge."""

    table: TableName
    source: TableName | str
    merge: MergeStatement


@dataclass(frozen=True, slots=True)
class ChangeText:
    """``UPDATE`` or ``DELETE FROM``: the table and its alias, the condition, and new values.

    ``values`` are by column; None of a delete.
    """

    table: TableName
    alias: str
    where: str | None
    values: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class InsertText:
    """``INSERT INTO``: the table, the columns that are named, and the rows.

    Attributes
    ----------
    table : TableName
        The table.
    columns : tuple of str or None
        The columns; None for all of the table.
    query : str
        The query or ``VALUES`` of the rows.
    values : tuple of tuple of str or None
        The expressions of each row; None of a query.
    """

    table: TableName
    columns: tuple[str, ...] | None
    query: str
    values: tuple[tuple[str, ...], ...] | None


StatementText: TypeAlias = MergeText | ChangeText | InsertText


def parse_statement(text: str) -> StatementText:
    """Parse a statement.

    Raises
    ------
    InputError
        If the text is no statement; the error has the position.
    UnsupportedFeatureError
        If it is another statement than these; the error names the call for it.

    Examples
    --------
    >>> parse_statement("DELETE FROM bucketlake.`/lake/orders` AS o WHERE o.n > 3")
    ChangeText(table=(...), alias='o', where='o.n > 3', values=None)
    """
    reader = _Reader(text)
    forms: dict[str, Callable[[], StatementText]] = {
        "MERGE": reader.merge,
        "UPDATE": reader.update,
        "DELETE": reader.delete,
        "INSERT": reader.insert,
    }
    first = reader.word
    if first not in forms:
        instead = _INSTEAD.get(first, _QUERY)
        what = f"the statement {first or text!r}"
        raise UnsupportedFeatureError(what, "bl.sql()", f"{_TAKEN}; {instead}")
    found = forms[first]()
    reader.end()
    return found


class _Reader:
    """Reads the tokens of a statement from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        try:
            self._tokens = words_of(text)
        except InputError as error:
            raise InputError("the statement", error.problem, error.next_step) from None
        while self._tokens and self._tokens[-1].token_type is TokenType.SEMICOLON:
            self._tokens.pop()
        self._at = 0

    @property
    def word(self) -> str:
        """The next token in capitals; empty at the end and for quoted names."""
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        if token is None or token.token_type in (TokenType.IDENTIFIER, TokenType.STRING):
            return ""
        return token.text.upper()

    def merge(self) -> MergeText:
        self._take("MERGE", "INTO")
        table = self._table()
        alias = self._alias(("USING",)) or _usual_alias(table, "t")
        self._take("USING")
        source = self._source()
        source_alias = self._alias(("ON",)) or _usual_alias(source, "s")
        self._take("ON")
        on = self._until("WHEN")
        clauses = []
        while self.word == "WHEN":
            clauses.append(self._clause())
        return MergeText(table, source, MergeStatement(on, alias, source_alias, tuple(clauses)))

    def update(self) -> ChangeText:
        self._take("UPDATE")
        table = self._table()
        alias = self._alias(("SET",)) or _usual_alias(table, "t")
        self._take("SET")
        values = self._assignments("WHERE")
        return ChangeText(table, alias, self._where(), values)

    def delete(self) -> ChangeText:
        self._take("DELETE", "FROM")
        table = self._table()
        alias = self._alias(("WHERE",)) or _usual_alias(table, "t")
        return ChangeText(table, alias, self._where())

    def insert(self) -> InsertText:
        self._take("INSERT")
        if self.word == "OVERWRITE":
            what, step = "the statement INSERT OVERWRITE", "call table.insert_overwrite(rows)"
            raise UnsupportedFeatureError(what, "bl.sql()", f"{_TAKEN}; {step}")
        self._take("INTO")
        self._takes("TABLE")
        table = self._table()
        columns = tuple(self._named_columns()) if self.word == "(" else None
        at = self._at
        values = self._rows_of_values() if self._takes("VALUES") else None
        if values is None and self.word not in ("SELECT", "WITH", "TABLE", "FROM"):
            raise self._unexpected("VALUES or SELECT")
        query = self._text_of(self._tokens[at:])
        self._at = len(self._tokens) if values is None else self._at
        return InsertText(table, columns, query, values)

    def _rows_of_values(self) -> tuple[tuple[str, ...], ...]:
        found = [self._row_of_values()]
        while self._takes(","):
            found.append(self._row_of_values())
        return tuple(found)

    def _row_of_values(self) -> tuple[str, ...]:
        return tuple(self._text_of(part) for part in self._list())

    def _named_columns(self) -> list[str]:
        """Take a list of columns."""
        at = self._at
        found = [_name_of(part) for part in self._list()]
        if not all(found):
            raise InputError("the statement", f"a column has no name {self._place(at)}", "name it")
        return found

    def end(self) -> None:
        """Raise InputError if there is more."""
        if self._at < len(self._tokens):
            raise self._unexpected("the end")

    def _clause(self) -> Clause:
        self._take("WHEN")
        match = Match.MATCHED
        if self._takes("NOT"):
            match = Match.NOT_MATCHED
        self._take("MATCHED")
        if match is Match.NOT_MATCHED and self._takes("BY"):
            if self._takes("SOURCE"):
                match = Match.BY_SOURCE
            else:
                self._take("TARGET")
        condition = self._until("THEN") if self._takes("AND") else None
        self._take("THEN")
        if match is Match.NOT_MATCHED:
            self._take("INSERT")
            return Clause(match, Effect.INSERT, condition, self._inserted())
        if self._takes("DELETE"):
            return Clause(match, Effect.DELETE, condition)
        self._take("UPDATE", "SET")
        if match is Match.MATCHED and self._takes("*"):
            return Clause(match, Effect.UPDATE, condition)
        return Clause(match, Effect.UPDATE, condition, self._assignments("WHEN"))

    def _inserted(self) -> Mapping[str, str] | None:
        if self._takes("*"):
            return None
        names = self._named_columns()
        self._take("VALUES")
        at = self._at
        texts = self._row_of_values()
        if len(names) != len(texts):
            problem = f"{len(names)} columns have {len(texts)} values {self._place(at)}"
            raise InputError("INSERT of the statement", problem, "give each column one value")
        return self._by_name(zip(names, texts, strict=True))

    def _assignments(self, end: str) -> dict[str, str]:
        """Return the assignments up to a word, or to the end."""
        return self._by_name(self._assignment(part) for part in _split(self._before(end)))

    def _assignment(self, tokens: Sequence[Token]) -> tuple[str, str]:
        signs = [n for n, token in enumerate(tokens) if token.token_type is TokenType.EQ]
        if not signs or signs[0] in (0, len(tokens) - 1):
            starts = [token.start for token in self._tokens]
            place = self._place(starts.index(tokens[0].start) if tokens else self._at)
            problem = f"expected column = value {place}"
            raise InputError("SET of the statement", problem, "write SET n = n + 1, m = 0")
        name, text = tokens[: signs[0]], tokens[signs[0] + 1 :]
        return _name_of(name), self._text_of(text)

    def _by_name(self, pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, text in pairs:
            if name in found:
                raise InputError("the statement", f"column {name!r} is named twice", "name it once")
            found[name] = text
        return found

    def _where(self) -> str | None:
        if not self._takes("WHERE"):
            return None
        start = self._at
        self._at = len(self._tokens)
        if start == self._at:
            raise self._unexpected("a condition")
        return self._text_of(self._tokens[start:])

    def _table(self) -> TableName:
        parts = [self._name("the name of a table")]
        while self._takes("."):
            parts.append(self._name("the rest of the name"))
        return tuple(parts)

    def _source(self) -> TableName | str:
        if self.word != "(":
            return self._table()
        return self._text_of(self._parenthesized())

    def _name(self, what: str) -> str:
        if self._at >= len(self._tokens):
            raise self._unexpected(what)
        token = self._tokens[self._at]
        if token.token_type not in _NAME_TOKENS and not _WORD.fullmatch(token.text):
            raise self._unexpected(what)
        self._at += 1
        return token.text

    def _alias(self, ends: Sequence[str]) -> str | None:
        if self._takes("AS"):
            return self._name("an alias")
        if self._at < len(self._tokens) and self.word not in ends:
            return self._name(" or ".join(ends))
        return None

    def _list(self) -> list[list[Token]]:
        return _split(with_names(self._text, self._parenthesized()))

    def _parenthesized(self) -> list[Token]:
        """Take what is in parentheses."""
        opens = self._at
        self._take("(")
        depth = 1
        while depth:
            if self._at >= len(self._tokens):
                problem = f"the parenthesis {self._place(opens)} is not closed"
                raise InputError("the statement", problem, "close it")
            kind = self._tokens[self._at].token_type
            depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
            self._at += 1
        return self._tokens[opens + 1 : self._at - 1]

    def _until(self, end: str) -> str:
        """Take the tokens before a word; return their text."""
        return self._text_of(self._before(end))

    def _before(self, end: str) -> list[Token]:
        """Take the tokens of expressions before a word that is no name, or all that are left."""
        rest = with_names(self._text, self._tokens[self._at :])
        stop = next((token for token in outer(rest) if token.text.upper() == end
                     and token.token_type is not TokenType.IDENTIFIER
                     and token.token_type is not TokenType.STRING), None)  # fmt: skip
        found = rest if stop is None else rest[: rest.index(stop)]
        if not found:
            raise self._unexpected("an expression")
        self._at += len(found)
        return found

    def _takes(self, word: str) -> bool:
        found = self.word == word
        self._at += found
        return found

    def _take(self, *words: str) -> None:
        for word in words:
            if not self._takes(word):
                raise self._unexpected(word)

    def _unexpected(self, expected: str) -> InputError:
        return InputError(
            "the statement",
            f"expected {expected} {self._place(self._at)}",
            "write MERGE INTO table t USING source s ON … WHEN MATCHED THEN …, or UPDATE table SET "
            "… WHERE …, or DELETE FROM table WHERE …, or INSERT INTO table (…) VALUES (…)",
        )

    def _place(self, at: int) -> str:
        if at >= len(self._tokens):
            return "at the end"
        token = self._tokens[at]
        found = self._text[token.start : token.end + 1]
        line = self._text.count("\n", 0, token.start) + 1
        column = token.start - self._text.rfind("\n", 0, token.start)
        return f"at line {line}, position {column}, found {found!r}"

    def _text_of(self, tokens: Sequence[Token]) -> str:
        return self._text[tokens[0].start : tokens[-1].end + 1] if tokens else ""


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    """Split tokens at the commas outside of parentheses."""
    commas = [id(token) for token in outer(tokens) if token.token_type is TokenType.COMMA]
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if id(token) in commas:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _usual_alias(table: TableName | str, usual: str) -> str:
    """Return the alias of a table without one: its name, unless that is a path."""
    name = usual if isinstance(table, str) else table[-1]
    return name if _WORD.fullmatch(name) else usual


def _name_of(tokens: Sequence[Token]) -> str:
    """Return the name of a column, or of a field inside one, without backquotes."""
    return "".join(token.text for token in tokens)
