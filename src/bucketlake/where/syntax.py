"""The syntax of ``where``: text to tokens and to sqlglot's tree, or an error with its position.

sqlglot mixes the string rules of several Spark versions, and drops comments and plus signs, though
both can change the meaning in Spark. So strings are decoded here, and :func:`find_doubt` finds
texts whose tree may differ from Spark's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError

from bucketlake.errors import InputError
from bucketlake.where.sql_literal import decode_string

_CORRECT = "correct the condition; put a name that is an SQL keyword in backquotes"
_OPERAND_ENDS = frozenset(
    {"VAR", "IDENTIFIER", "NUMBER", "STRING", "RAW_STRING", "R_PAREN", "R_BRACKET"}
)

_TEXTS = frozenset({"STRING", "NATIONAL_STRING", "RAW_STRING"})


def tokenize(text: str) -> list[Token]:
    """Split a condition into tokens; strings have the text that Spark reads.

    If Spark versions read a string differently, its token has another type, which no literal has.
    Raises InputError if the text cannot be split.
    """
    if not text.isascii() and re.search("[\ud800-\udfff]", text):
        raise refused(text, "it contains half a character (a lone surrogate)", "correct the text")
    try:
        tokens = Dialect.get_or_raise("spark").tokenize(text)
    except SqlglotError:
        problem = f"it cannot be split into words{_unclosed_quote(text)}"
        raise refused(text, problem, "close every quote") from None
    return [_with_spark_text(token, text) for token in tokens]


def _with_spark_text(token: Token, text: str) -> Token:
    """Give a string token Spark's text; if the text is uncertain, give it another type."""
    if token.token_type is not TokenType.STRING:
        return token
    decoded = decode_string(text[token.start : token.end + 1])
    kind = TokenType.NATIONAL_STRING if decoded is None else TokenType.STRING
    content = token.text if decoded is None else decoded
    return Token(kind, content, token.line, token.col, token.start, token.end)


def _unclosed_quote(text: str) -> str:
    rest = re.sub(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`""",
                  lambda quoted: " " * len(quoted[0]), text, flags=re.DOTALL)  # fmt: skip
    match = re.search("['\"`]", rest)
    return f": the quote at position {match.start() + 1} is not closed" if match else ""


def find_doubt(text: str, tokens: Sequence[Token]) -> str | None:
    """Return why the parser's tree may differ from Spark's; None if it does not.

    The parser drops comments, which end elsewhere in Spark if the line ends in a backslash. It also
    drops plus signs, with which Spark casts a text to a number. A doubled quote is an escaped quote
    in Spark 4, and in Spark 3 the end of a text that the next one continues.
    """
    end, quote = 0, ""
    for token in tokens:
        if text[end : token.start].strip():
            return "it holds a comment"
        if quote and token.start == end and text[end] == quote:
            return (
                f"Spark 3 and Spark 4 read the doubled quote {quote * 2} differently; write "
                f"\\{quote} in the text, or put the text in the other kind of quotes"
            )
        quote = text[token.end] if token.token_type.name in _TEXTS else ""
        end = max(end, token.end + 1)
    if text[end:].strip():
        return "it holds a comment"
    types = ["", *(token.token_type.name for token in tokens), ""]
    for before, here, after in zip(types, types[1:], types[2:], strict=False):
        if here == "PLUS" and before not in _OPERAND_ENDS and after != "NUMBER":
            return "it holds a plus sign before a value"
    return None


def parse_tokens(text: str, tokens: list[Token]) -> exp.Expr:
    """Parse a condition; raise InputError with the position if it is not valid."""
    try:
        parsed = Dialect.get_or_raise("spark").parser().parse_into(exp.Condition, tokens, text)
    except ParseError as error:
        raise refused(text, _syntax_problem(error), _CORRECT) from None
    except RecursionError:
        raise refused(text, "it is nested too deeply", "use IN for long lists") from None
    if len(parsed) != 1 or parsed[0] is None or tokens[-1].token_type is TokenType.SEMICOLON:
        raise refused(text, "it is not one condition", "write one, such as id = 'a'")
    return parsed[0]


def _syntax_problem(error: ParseError) -> str:
    facts = error.errors[0] if error.errors else {}
    near, line, column_end = facts.get("highlight"), facts.get("line"), facts.get("col")
    if not near or line is None or column_end is None:
        return f"it is not valid SQL ({facts.get('description') or error})"
    return f"unexpected {near!r} at line {line}, position {column_end - len(near) + 1}"


def refused(text: str, problem: str, next_step: str) -> InputError:
    """Return the error that a condition cannot be used."""
    return InputError(f"where {text!r}", problem, next_step)
