"""Long IN lists, which are read without the parser."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from bucketlake.errors import InputError
from bucketlake.where.parser import parse_where
from bucketlake.where.predicate import And, Comparison, In, Not, Opaque, Operator, Or, Predicate
from bucketlake.where.syntax import tokenize, without_long_lists

SCHEMA = pa.schema(
    {"n": pa.int64(), "i": pa.int32(), "s": pa.string(), "t": pa.date32(), "x": pa.float64()}
)
NUMBERS = tuple(range(-50, 150))
TEXTS = tuple(f"key {i}, of (many)" for i in range(100))
LISTED = ", ".join(map(str, NUMBERS))
QUOTED = ",\n ".join(f"'{text}'" for text in TEXTS)


@pytest.mark.parametrize(
    ("where", "parsed"),
    [
        (f"n IN ({LISTED})", In("n", NUMBERS)),
        (f"N in( {LISTED} )", In("n", NUMBERS)),
        (f"n NOT IN ({LISTED})", Not(In("n", NUMBERS))),
        (f"s IN ({QUOTED})", In("s", TEXTS)),
        (f"x IN ({LISTED})", In("x", tuple(map(float, NUMBERS)))),
        (f"t IN ({', '.join(['DATE', *()] and [repr('2024-01-01')] * 99)})",
         In("t", (date(2024, 1, 1),))),
        (f"n IN ({LISTED}) OR s IN ({QUOTED})", Or((In("n", NUMBERS), In("s", TEXTS)))),
        # The parser reads lists that are not plain.
        (f"n IN (1, 2.0, {LISTED})", In("n", tuple(dict.fromkeys((1, 2, *NUMBERS))))),
        (f"n IN ({LISTED}, NULL)", In("n", (*NUMBERS, None))),
        (f"s IN ({QUOTED}, 'it\\'s')", In("s", (*TEXTS, "it's"))),
        # What looks like a list in a text is none; nor is what looks like a stand-in.
        (f"s = 'n IN ({LISTED})'", Comparison("s", Operator.EQUAL, f"n IN ({LISTED})")),
        (f"s = '?0' AND n IN ({LISTED})",
         And((Comparison("s", Operator.EQUAL, "?0"), In("n", NUMBERS)))),
        (f"s IN ('?0') AND n IN ({LISTED})", And((In("s", ("?0",)), In("n", NUMBERS)))),
    ],
)  # fmt: skip
def test_long_list_has_the_values_that_the_parser_reads(where: str, parsed: Predicate) -> None:
    assert parse_where(where, SCHEMA) == parsed


@pytest.mark.parametrize(
    "where",
    [
        f"upper(s) IN ({QUOTED})",
        f"n IN ({QUOTED})",
        f"n IN ({LISTED}) -- comment",
        f"CASE WHEN n IN ({LISTED}) THEN true END",
    ],
)
def test_list_that_only_spark_understands_keeps_its_text(where: str) -> None:
    found = parse_where(where, SCHEMA)
    assert isinstance(found, Opaque)
    assert "?" not in found.text
    assert len(found.text) > 800


def test_error_beside_a_long_list_names_the_position_in_the_text() -> None:
    with pytest.raises(InputError, match=f"position {len(LISTED) + 15}"):
        parse_where(f"n IN ({LISTED}) AND = 4", SCHEMA)
    with pytest.raises(InputError, match="lone surrogate"):
        parse_where(f"s IN ({QUOTED}, 'a\ud800')", SCHEMA)


def test_parser_sees_as_many_words_however_long_a_list_is() -> None:
    def words(count: int) -> int:
        text = f"n IN ({', '.join(map(str, range(count)))}) AND s = 'a'"
        return len(tokenize(without_long_lists(text)[0]))

    assert words(1_000) == words(4_000) == 9
