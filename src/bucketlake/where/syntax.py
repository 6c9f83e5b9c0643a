"""The syntax of ``where``: text to tokens and to sqlglot's tree, or an error with its position.

sqlglot mixes the string rules of several Spark versions, and drops comments and plus signs, though
both can change the meaning in Spark. So strings are decoded here, and :func:`find_doubt` finds
texts whose tree may differ from Spark's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType, exp
from sqlglot.errors import ParseError, SqlglotError

from bucketlake.errors import InputError
from bucketlake.where.sql_literal import LiteralKind, decode_string
from bucketlake.where.words import Words, with_names

_DIALECT = Words()
_CORRECT = "correct the condition; put a name that is an SQL keyword in backquotes"
_OPERAND_ENDS = frozenset(
    {"VAR", "IDENTIFIER", "NUMBER", "STRING", "RAW_STRING", "R_PAREN", "R_BRACKET"}
)

_TEXTS = frozenset({"STRING", "NATIONAL_STRING", "RAW_STRING"})


def tokenize(text: str) -> list[Token]:
    """Split a condition or an expression into tokens; words that Spark takes for names are names.

    The errors are those of :func:`words_of`.
    """
    return with_names(text, words_of(text))


def words_of(text: str) -> list[Token]:
    """Split a text into tokens; strings have the text that Spark reads.

    If Spark versions read a string differently, its token has another type, which no literal has.
    Raises InputError if the text cannot be split.
    """
    if not text.isascii() and re.search("[\ud800-\udfff]", text):
        raise refused(text, "it contains half a character (a lone surrogate)", "correct the text")
    try:
        tokens = _DIALECT.tokenize(text)
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


def find_regrouping(tree: exp.Expr, tokens: Sequence[Token]) -> str | None:
    """Return why Spark may group a text in another way than sqlglot; None if it cannot.

    In Spark, all comparisons bind alike, from left to right, and tighter than ``IN``, ``IS``,
    ``LIKE`` and ``BETWEEN``; ``||`` binds as ``+`` does. A tree that fits these rules is the only
    one that does, so Spark has the same. sqlglot adds parentheses around some operands.
    """
    opened = sum(token.token_type is TokenType.L_PAREN for token in tokens)
    if sum(isinstance(node, _WITH_PARENTHESES) for node in tree.walk()) > opened:
        return "Spark may group it in another way; put parentheses around each operand"
    for node in tree.walk():
        level = _LEVELS.get(type(node))
        if level is None:
            is_operator = isinstance(node, exp.Binary | exp.Unary)
            if is_operator and not isinstance(node, exp.Func | exp.Paren | exp.Dot):
                return f"the operator {type(node).__name__.lower()}"
            continue
        for name, least in _operands(type(node), level):
            part = node.args.get(name)
            if isinstance(part, exp.Expr) and _LEVELS.get(type(part), least) < least:
                return (
                    "Spark may group it in another way; put parentheses around "
                    f"{part.sql(dialect='spark', comments=False)}"
                )
    return None


def _operands(kind: type[exp.Expr], level: int) -> list[tuple[str, int]]:
    """Return the arguments of an operator, with the least level without parentheses."""
    if kind in (exp.NullSafeEQ, exp.NullSafeNEQ):  # ``<=>``, or IS NOT DISTINCT FROM.
        return [("this", _COMPARISON + 1), ("expression", _COMPARISON + 1)]
    if kind is exp.Is:  # What follows IS is one word.
        return [("this", _COMPARISON), ("expression", len(_LEVELS))]
    if level == _PREDICATE:
        return [(name, _COMPARISON) for name in ("this", "expression", "low", "high")]
    return [("this", level), ("expression", level + 1)]


_WITH_PARENTHESES = (exp.Paren, exp.In, exp.Upper, exp.Lower, exp.Coalesce, exp.Anonymous)
# How tightly operators bind, by Spark's grammar (SqlBaseParser.g4).
_PREDICATE, _COMPARISON = 4, 5
_LEVELS: dict[type[exp.Expr], int] = {
    kind: level
    for level, kinds in enumerate(
        [
            (exp.Or,),
            (exp.And,),
            (exp.Not,),
            (exp.In, exp.Is, exp.Between, exp.Like, exp.ILike, exp.Escape, exp.RegexpLike,
             exp.NullSafeEQ, exp.NullSafeNEQ),
            (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE),
            (exp.BitwiseOr,),
            (exp.BitwiseXor,),
            (exp.BitwiseAnd,),
            (exp.BitwiseLeftShift, exp.BitwiseRightShift),
            (exp.Add, exp.Sub, exp.DPipe),
            (exp.Mul, exp.Div, exp.IntDiv, exp.Mod),
            (exp.Neg, exp.BitwiseNot),
        ],
        1,
    )
    for kind in kinds
}  # fmt: skip


def parse_tokens(text: str, tokens: list[Token]) -> exp.Expr:
    """Parse a condition; raise InputError with the position if it is not valid."""
    try:
        parsed = _DIALECT.parser().parse_into(exp.Condition, tokens, text)
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


# ---- Long lists, which are read without the parser -----------------------------------------------
#
# The parser makes several objects of each literal. So the text of a long list of integers or of
# simple texts is replaced by one literal, its stand-in, before the condition is parsed. A text
# whose quotes are not certain keeps its lists.

_LONG_CHARACTERS = 200  # Of the members; the parser reads shorter lists as fast.
_PLAIN_TEXT = "'[^'\\\\\ud800-\udfff]*+'"  # Without an escape, and without half a character.
_INTEGER = r"-?[0-9]{1,18}"
_LIST = re.compile(
    rf"{_PLAIN_TEXT}|\"[^\"]*+\"|`[^`]*+`|\bIN\s*+\(\s*+(?:(?P<integers>{_INTEGER}(?:\s*+,\s*+{_INTEGER})++)"
    rf"|(?P<texts>{_PLAIN_TEXT}(?:\s*+,\s*+{_PLAIN_TEXT})++))\s*+\)",
    re.IGNORECASE | re.ASCII,
)
# Where quotes begin or end elsewhere than the expression thinks, or a stand-in could be meant.
_UNSURE = re.compile(r"\\|--|/\*|\?")


@dataclass(frozen=True, slots=True)
class LongList:
    """A list as it was written.

    Attributes
    ----------
    kind : LiteralKind
        Integers of 64 bits, or strings.
    text : str
        The literals, with commas.
    """

    kind: LiteralKind
    text: str

    def values(self) -> Sequence[int] | Sequence[str]:
        """Return the values of the literals."""
        if self.kind is LiteralKind.INTEGER:
            return [*map(int, self.text.split(","))]
        return [text[1:-1] for text in re.findall(_PLAIN_TEXT, self.text)]


def without_long_lists(text: str) -> tuple[str, dict[str, LongList]]:
    """Return a condition with stand-ins for its long lists, and the lists by their stand-in.

    Examples
    --------
    >>> numbers = ", ".join(map(str, range(1_000)))
    >>> short, lists = without_long_lists(f"a = 'IN (1)' AND n IN ({numbers})")
    >>> short, len(lists["?0"].values())
    ("a = 'IN (1)' AND n IN ('?0')", 1000)
    """
    lists: dict[str, LongList] = {}

    def stand_in(found: re.Match[str]) -> str:
        name = found.lastgroup
        if name is None or len(found[name]) < _LONG_CHARACTERS:
            return found[0]
        kind = LiteralKind.INTEGER if name == "integers" else LiteralKind.STRING
        word = f"?{len(lists)}"
        lists[word] = LongList(kind, found[name])
        return f"{found[0][: found.start(name) - found.start()]}'{word}')"

    if len(text) < _LONG_CHARACTERS:
        return text, {}
    short = _LIST.sub(stand_in, text)
    rest, stand_ins = re.subn(r"'\?[0-9]+'", "", short)
    is_sure = stand_ins == len(lists) and not _UNSURE.search(rest)
    return (short, lists) if is_sure else (text, {})
