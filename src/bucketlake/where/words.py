"""Which words of an SQL text are names, as Spark reads them: all that stand where a value does.

Spark has no reserved words unless a session asks for them: ``end = 5 OR case > 1`` compares two
columns. sqlglot takes such words for keywords. So its tokens are gone through from left to right,
and a word in the place of a value becomes a name, unless a construct begins with it there, such as
``CASE WHEN`` or ``DATE '2026-01-01'``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark

_WORD = re.compile(r"[^\W\d]\w*")
_LITERALS = frozenset({"NULL", "TRUE", "FALSE"})
_INFIX = frozenset({"AND", "OR", "IN", "IS", "LIKE", "RLIKE", "ILIKE", "REGEXP", "BETWEEN", "DIV",
                    "NOT", "WHEN", "THEN", "ELSE", "END", "AS", "FROM", "FOR",
                    "ESCAPE"})  # fmt: skip
"""Words that follow a value."""
_AFTER_NOT = frozenset({"IN", "LIKE", "RLIKE", "ILIKE", "REGEXP", "BETWEEN"})
_AFTER_IS = frozenset({"NOT", "DISTINCT", "UNKNOWN"})
FUNCTIONS = frozenset({"current_catalog", "current_database", "current_date", "current_schema",
                       "current_time", "current_timestamp", "current_user", "localtime",
                       "localtimestamp", "session_user", "user"})  # fmt: skip
"""Functions without parentheses; a column with the name of one goes before it."""
_VALUES = frozenset({TokenType.NUMBER, TokenType.STRING, TokenType.NATIONAL_STRING,
                     TokenType.RAW_STRING, TokenType.HEX_STRING, TokenType.IDENTIFIER,
                     TokenType.TILDE})  # fmt: skip
"""What only begins a value."""
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET})
_INNER = frozenset({TokenType.DOT, TokenType.COLON})
_BY_TEXT = frozenset({"ANY", "CASE", "CONNECT_BY_ROOT", "IF", "NEXT", "TRANSFORM"})
"""Names that sqlglot parses by their text."""


class Words(Spark):
    """Spark's dialect of sqlglot, in which no word takes the rest of a text, or two words."""

    class Tokenizer(Spark.Tokenizer):
        """The words that are tokens of their own."""

        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            word: kind
            for word, kind in Spark.Tokenizer.KEYWORDS.items()
            if " " not in word and "{" not in word
        }

    class Parser(Spark.Parser):  # type: ignore[misc, valid-type]
        """Reads ``array[0]`` as the element of a column."""

        ARRAY_CONSTRUCTORS: ClassVar[dict[str, type]] = {}


def with_names(text: str, tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens of an expression, or of several, with its names as names.

    Examples
    --------
    >>> text = "end = 5 AND case.when > 1 OR CASE WHEN end IS NULL THEN 1 END = date"
    >>> found = with_names(text, Words().tokenize(text))
    >>> [each.text for each in found if each.token_type is TokenType.IDENTIFIER]
    ['end', 'case', 'when', 'end', 'date']
    """
    return _Reader(text, tokens).read()


class _Reader:
    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        pieces = [text[token.start : token.end + 1] for token in tokens]
        self._words = [p.upper() if _WORD.fullmatch(p) else "" for p in pieces] + ["", "", ""]
        self._is_name: list[bool] = []
        self._kinds = [*(token.token_type for token in tokens), None, None, None]

    def read(self) -> list[Token]:
        found, wants_value = [], True
        for at, token in enumerate(self._tokens):
            is_name, wants_value = self._step(at, wants_value)
            self._is_name.append(is_name)
            found.append(self._named(at, token) if is_name else token)
        return found

    def _step(self, at: int, wants_value: bool) -> tuple[bool, bool]:
        """Return whether a token is a name, and whether a value comes next."""
        word, kind, before = self._words[at], self._kinds[at], self._kinds[at - 1] if at else None
        if before is TokenType.DCOLON:
            return False, False  # A type, perhaps that of a literal such as 5Y.
        if not word:
            ends = kind in _VALUES or kind in _CLOSING or (kind is TokenType.STAR and wants_value)
            return False, not ends or kind is TokenType.TILDE
        if before in _INNER:
            return True, False
        if self._was(at - 1, "AS"):
            return False, False  # A type.
        if self._was(at - 1, "IS") or (self._was(at - 1, "NOT") and self._was(at - 2, "IS")):
            is_test = word in _AFTER_IS or word in _LITERALS
            return not is_test, False
        if not wants_value:
            is_inner = word == "NOT" and self._words[at + 1] in _AFTER_NOT
            return False, word in _INFIX and word != "END" and not is_inner
        if self._kinds[at + 1] is TokenType.L_PAREN or self._begins(at):
            return False, True
        is_literal = word in _LITERALS and self._kinds[at + 1] is not TokenType.DOT
        return not is_literal, False

    def _was(self, at: int, word: str) -> bool:
        """Return whether a word was read that is no name."""
        return at >= 0 and self._words[at] == word and not self._is_name[at]

    def _begins(self, at: int) -> bool:
        """Return whether a word in the place of a value begins a construct."""
        word, following, kind = self._words[at], self._words[at + 1], self._kinds[at + 1]
        if self._was(at - 1, "CASE") and word == "WHEN":
            return bool(following) or kind in _VALUES or not self._goes_on(at + 1)
        if kind in _VALUES:
            return True
        if word == "NOT" or (word == "CASE" and self._has_when(at)):
            return self._begins_before(at + 1)
        return bool(following) and following not in _INFIX

    def _begins_before(self, at: int) -> bool:
        """Return whether a value stands after ``NOT`` or ``CASE``, which may be names, too."""
        word = self._words[at]
        is_not = self._words[at - 1] == "NOT"
        if not word:
            kind = self._kinds[at]
            begins = kind in (TokenType.DASH, TokenType.NOT)  # An exclamation mark is a NOT, too.
            return begins or (kind is TokenType.PLUS and is_not)
        if word == "NOT":
            return is_not or self._words[at + 1] not in _AFTER_NOT
        # Spark reads `not IN (1)` as the opposite of a function of this name.
        if word == "WHEN" or (is_not and word in _AFTER_NOT - {"BETWEEN"}):
            return True
        if word == "IS" and self._words[at + 1] in _AFTER_IS | _LITERALS:
            return False
        return word not in _INFIX or self._goes_on(at + 1)

    def _goes_on(self, at: int) -> bool:
        """Return whether what stands at a place follows a value."""
        kind, word = self._kinds[at], self._words[at]
        if word == "NOT":
            return self._words[at + 1] in _AFTER_NOT
        return word in _INFIX if word else kind not in _VALUES and kind is not TokenType.L_PAREN

    def _has_when(self, at: int) -> bool:
        """Return whether a ``WHEN`` follows in the same parentheses."""
        depth = 0
        for kind, word in zip(self._kinds[at + 1 :], self._words[at + 1 :], strict=True):
            depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
            if depth < 0:
                return False
            if word == "WHEN" and depth == 0:
                return True
        return False

    def _named(self, at: int, token: Token) -> Token:
        """Return a name's token; only names that the parser would not take for one change."""
        is_function = self._words[at].lower() in FUNCTIONS
        if token.token_type is TokenType.VAR and (is_function or self._words[at] not in _BY_TEXT):
            return token
        kind = TokenType.VAR if is_function else TokenType.IDENTIFIER
        return Token(kind, token.text, token.line, token.col, token.start, token.end)
