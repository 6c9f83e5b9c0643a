"""Words of SQL as names of columns: the parser's tree is that of any other name."""

from __future__ import annotations

import pytest

from bucketlake.where.syntax import parse_tokens, tokenize
from tests.sql_words import CONDITIONS, HARD, LITERALS, NAMES


def tree(text: str) -> str:
    return parse_tokens(text, tokenize(text)).sql(dialect="spark", identify=True)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_word_of_sql_is_a_name_where_a_value_stands(condition: str) -> None:
    wanted = tree(condition.format(n="qqq"))
    # All of them would take seconds. Spark reads `not IN (1)` otherwise.
    for name in {*HARD, *NAMES[len(condition) % 5 :: 5]} - {"not"}:
        found = tree(condition.format(n=name))
        assert found.replace(f"`{name}`", "`qqq`") == wanted.replace(f"`{name}`", "`qqq`"), name


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("end = 5 OR case = 1", "`end` = 5 OR `case` = 1"),
        ("CASE end WHEN 1 THEN case ELSE b END", "CASE `end` WHEN 1 THEN `case` ELSE `b` END"),
        ("NOT end OR NOT not", "NOT `end` OR NOT `not`"),
        (
            "not = 1 AND NOT (not > 2) OR in IN (not)",
            "`not` = 1 AND NOT (`not` > 2) OR `in` IN (`not`)",
        ),
        ("date = DATE '2026-01-01'", "`date` = CAST('2026-01-01' AS DATE)"),
        ("interval + INTERVAL '1' DAY > b", "`interval` + INTERVAL '1' DAY > `b`"),
        ("map['a'] = array[0]", "`map`['a'] = `array`[0]"),
        ("order.by.end = left(right, 2)", "`order`.`by`.`end` = LEFT(`right`, 2)"),
        ("show = 1", "`show` = 1"),
        ("d = 5Y AND NOT ! i > 1", "`d` = CAST(5 AS TINYINT) AND NOT NOT `i` > 1"),
        ("`end` = t.`case`", "`end` = `t`.`case`"),
        ("größe = 1 AND `a b` = `c``d`", "`größe` = 1 AND `a b` = `c``d`"),
        ("a IS NOT TRUE AND b IS NULL", "NOT `a` IS TRUE AND `b` IS NULL"),
        *[(f"{word} IS NULL", f"{word.upper()} IS NULL") for word in sorted(LITERALS)],
    ],
)
def test_a_text_is_read_as_spark_reads_it(text: str, wanted: str) -> None:
    assert tree(text) == wanted
