"""Parsing ``where``."""

import re
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from bucketlake.errors import InputError
from bucketlake.where.parser import parse_where
from bucketlake.where.predicate import (
    And,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Not,
    Opaque,
    Operator,
    Or,
    Predicate,
)

SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "n": pa.int32(),
        "amount": pa.decimal128(10, 2),
        "ratio": pa.float64(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "active": pa.bool_(),
        "user": pa.string(),
        "date": pa.date32(),
        "nested": pa.struct(
            {"id": pa.string(), "In": pa.struct({"er": pa.struct({"n": pa.int32()})})}
        ),
        "list": pa.list_(pa.struct({"x": pa.int32()})),
        "Name": pa.string(),
    }
)
ID_IS_A = Comparison("id", Operator.EQUAL, "a")


def n(operator: str, value: object) -> Comparison:
    return Comparison("n", Operator(operator), value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id = 'a'", ID_IS_A),
        ("'a' = id", ID_IS_A),
        ("(id) = ('a')", ID_IS_A),
        ("ID == 'a'", ID_IS_A),
        ("`id` = 'a'", ID_IS_A),
        ('id = "a"', ID_IS_A),
        ("id = r'a'", ID_IS_A),
        ("id = cast('a' AS string)", ID_IS_A),
        ("name <> 'a'", Comparison("Name", Operator.NOT_EQUAL, "a")),
        ("n != 5", n("<>", 5)),
        ("n >= -5L", n(">=", -5)),
        ("n = +5", n("=", 5)),
        ("n = - -5", n("=", 5)),
        ("5 < n", n(">", 5)),
        ("5 >= n", n("<=", 5)),
        ("n <=> 5", n("<=>", 5)),
        ("n <=> NULL", IsNull("n")),
        ("n IS NOT DISTINCT FROM 5", n("<=>", 5)),
        ("n IS DISTINCT FROM 5", Not(n("<=>", 5))),
        ("n = NULL", n("=", None)),
        ("n IS NULL", IsNull("n")),
        ("n IS NOT NULL", Not(IsNull("n"))),
        ("n IN (1, 2.0, NULL, 1)", In("n", (1, 2, None))),
        ("n NOT IN (1)", Not(In("n", (1,)))),
        ("n BETWEEN 1 AND 5", And((n(">=", 1), n("<=", 5)))),
        ("n NOT BETWEEN 1 AND 5", Not(And((n(">=", 1), n("<=", 5))))),
        ("n BETWEEN 1 AND 5 AND id = 'a'", And((And((n(">=", 1), n("<=", 5))), ID_IS_A))),
        ("NOT n = 1 AND id = 'a'", And((Not(n("=", 1)), ID_IS_A))),
        ("! n = 1", Not(n("=", 1))),
        ("NOT NOT n = 1", Not(Not(n("=", 1)))),
        ("n = 1 OR n = 2 OR n = 3", Or((n("=", 1), n("=", 2), n("=", 3)))),
        ("n = 1 OR id = 'a' AND n = 2", Or((n("=", 1), And((ID_IS_A, n("=", 2)))))),
        ("(n = 1 OR id = 'a') AND n = 2", And((Or((n("=", 1), ID_IS_A)), n("=", 2)))),
        ("amount = 1.5", Comparison("amount", Operator.EQUAL, Decimal("1.5"))),
        ("ratio > 1.5D", Comparison("ratio", Operator.GREATER, 1.5)),
        ("day > DATE '2024-01-31'", Comparison("day", Operator.GREATER, date(2024, 1, 31))),
        ("day < '2024-01-31'", Comparison("day", Operator.LESS, date(2024, 1, 31))),
        ("date = '2024-01-31'", Comparison("date", Operator.EQUAL, date(2024, 1, 31))),
        ("user = 'a'", Comparison("user", Operator.EQUAL, "a")),
        ("active", Comparison("active", Operator.EQUAL, True)),
        ("NOT active", Not(Comparison("active", Operator.EQUAL, True))),
        ("active IS TRUE", Comparison("active", Operator.NULL_SAFE_EQUAL, True)),
        ("active IS NOT FALSE", Not(Comparison("active", Operator.NULL_SAFE_EQUAL, False))),
        ("nested IS NULL", IsNull("nested")),
        ("nested.id = 'a'", Comparison("nested.id", Operator.EQUAL, "a")),
        ("NESTED.`ID` = 'a'", Comparison("nested.id", Operator.EQUAL, "a")),
        ("5 > nested.in.ER.n", Comparison("nested.In.er.n", Operator.LESS, 5)),
        ("nested.in.er IS NULL", IsNull("nested.In.er")),
        ("id = 'a' 'b'", Comparison("id", Operator.EQUAL, "ab")),
        ("id LIKE 'a' \"%\"", Like("id", "a%")),
        ("id LIKE 'a%'", Like("id", "a%")),
        ("id NOT LIKE 'a%'", Not(Like("id", "a%"))),
        ("true", Constant(True)),
        ("NULL", Constant(None)),
    ],
)  # fmt: skip
def test_condition_becomes_the_predicate_it_states(text: str, expected: Predicate) -> None:
    assert parse_where(text, SCHEMA) == expected


@pytest.mark.parametrize(
    "text",
    [
        "id = 5",
        "id = -'5'",
        "id IN ('a', 5)",
        "n IN ('5', 6)",
        "n BETWEEN '1' AND 2",
        "id = 'it''s'",
        "id = n",
        "id = upper('a')",
        "id = concat_ws('-', 'a', 'b')",
        "upper(id) = 'A'",
        "id || 'x' = 'ax'",
        "- n = 5",
        "n + 1 = 5",
        "n = 1 + 1",
        "n = 5 = active",
        "n = 1 IS NULL",
        "n BETWEEN 1 AND 5 = active",
        "n IN (SELECT 1)",
        "exists(array(1), x -> x = 1)",
        "CASE WHEN n = 1 THEN id = 'a' ELSE active END",
        "if(n = 1, id = 'a', active)",
        "id = 'a' COLLATE UTF8_LCASE",
        "id COLLATE UTF8_LCASE = 'a'",
        "id LIKE 'a|%' ESCAPE '|'",
        r"id LIKE 'a\%'",
        "id RLIKE 'a'",
        "id ILIKE 'A'",
        "n LIKE '5%'",
        "nested['id'] = 'a'",
        "(nested).id = 'a'",
        "struct(id).nested = 'a'",
        "list[0].x = 1",
        "list.x = array(1)",
        "id.length = 1",
        "_metadata.file_path = 'a'",
        "current_date() = day",
        "current_date = day",
        "session_user = 'a'",
        "id = :parameter",
        "id",
        "n IS TRUE",
        "n = 0x1F",
        "id = X'41'",
        "at = TIMESTAMP '2024-01-01 00:00:00'",
        "1 = 1",
        "(id, n) = ('a', 1)",
        "(id, n) IN (('a', 1))",
    ],
)
def test_condition_that_is_not_plain_stays_with_spark(text: str) -> None:
    assert isinstance(parse_where(text, SCHEMA), Opaque)


@pytest.mark.parametrize("text", ["id = 'it''s'", 'id IN ("it""s")', "n = 1 AND id LIKE '''%'"])
def test_a_doubled_quote_stays_as_written_and_is_named(text: str) -> None:
    found = parse_where(text, SCHEMA)
    assert isinstance(found, Opaque)
    assert found.text == text
    assert re.search(r"the doubled quote .* differently; write \\", found.reason)


def test_part_that_is_not_plain_leaves_the_others_plain() -> None:
    predicate = parse_where("length(id) + 1 > 3 AND id = 'a'", SCHEMA)
    assert isinstance(predicate, And)
    opaque, plain = predicate.operands
    assert isinstance(opaque, Opaque)
    assert opaque.text == "LENGTH(id) + 1 > 3"
    assert plain == ID_IS_A


@pytest.mark.parametrize(
    "text",
    [
        # A plus casts the text to a number in Spark, and the parser drops it.
        "id = +'5'",
        "+id = '5'",
        "n = 1 OR id = (+'5')",
        "id IN (+'5')",
        # In Spark this comment goes on in the next line.
        "id = 'a' OR true -- \\\n AND n = 1",
        "id = 'a' /* n = 1 */",
        "/* c */ id = 'a'",
    ],
)
def test_text_that_the_parser_reads_otherwise_stays_with_spark_as_a_whole(text: str) -> None:
    predicate = parse_where(text, SCHEMA)
    assert isinstance(predicate, Opaque)
    assert predicate.text == text


def test_text_of_a_string_is_no_sign_of_a_comment() -> None:
    assert parse_where("id = '--' OR id = '+ /* ' ", SCHEMA) == Or(
        (
            Comparison("id", Operator.EQUAL, "--"),
            Comparison("id", Operator.EQUAL, "+ /* "),
        )
    )


def test_timestamp_without_zone_is_read_in_the_given_one() -> None:
    text = "at >= '2024-01-01 00:00:00'"
    with_zone = parse_where("at >= TIMESTAMP '2023-12-31 23:00:00Z'", SCHEMA)
    assert parse_where(text, SCHEMA, time_zone="+01:00") == with_zone
    assert isinstance(with_zone, Comparison)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not one condition"),
        ("   ", "not one condition"),
        ("n = 1; n = 2", "not one condition"),
        ("n = 1;", "not one condition"),
        ("n = = 1", "unexpected '=' at line 1, position 5"),
        ("n = 1 b", "unexpected 'b' at line 1, position 7"),
        ("n =", "unexpected '=' at line 1, position 3"),
        ("id = 'a' AND\n n n = 2", "unexpected 'n' at line 2, position 4"),
        ("id = 'a", "the quote at position 6 is not closed"),
        ("id = 'a' AND `n = 5", "the quote at position 14 is not closed"),
        ("SELECT 1", "unexpected 'SELECT' at line 1, position 1"),
        ("id = 'a' ORDER BY n", "unexpected 'ORDER' at line 1, position 10"),
        ("n IN ()", "IN () has no values"),
        ("nope = 1", "there is no column nope; the columns are id, n, amount"),
        ("other.id = 'a'", "there is no column other.id; the columns are id, n"),
        ("nested.nope = 'a'", "column nested has no field nope; its fields are id, In"),
        ("`nested.id` = 'a'", "there is no column nested.id"),
        ("`session_user` = 'a'", "there is no column session_user"),
        ("id = 'a' AND nope IS NULL", "there is no column nope"),
        ("id = '\ud800'", "lone surrogate"),
    ],
)
def test_text_that_is_no_condition_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_where(text, SCHEMA)
    assert message in str(refused.value)
    assert repr(text) in str(refused.value)


def test_column_whose_name_differs_from_two_by_case_is_refused() -> None:
    schema = pa.schema({"Id": pa.string(), "ID": pa.string()})
    assert parse_where("ID = 'a'", schema) == Comparison("ID", Operator.EQUAL, "a")
    with pytest.raises(InputError, match="column id is ambiguous; the columns are Id, ID"):
        parse_where("id = 'a'", schema)


def test_long_condition_is_parsed() -> None:
    many = parse_where(" OR ".join(f"n > {i}" for i in range(3000)), SCHEMA)
    assert isinstance(many, Or)
    assert len(many.operands) == 3000


def test_condition_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(InputError, match="nested too deeply"):
        parse_where("(" * 5000 + "n = 1" + ")" * 5000, SCHEMA)
