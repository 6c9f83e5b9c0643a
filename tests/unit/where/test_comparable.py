"""Which columns a literal can be compared with."""

import math
import random
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from sqlglot import TokenType

from bucketlake.errors import InputError
from bucketlake.where.comparable import comparable_value, plain_condition
from bucketlake.where.parser import parse_where
from bucketlake.where.sql_literal import LiteralKind, NotUnderstood, SqlLiteral

UTC_TIME = pa.timestamp("us", "UTC")
INTEGER, DECIMAL, STRING = LiteralKind.INTEGER, LiteralKind.DECIMAL, LiteralKind.STRING


@pytest.mark.parametrize(
    ("kind", "value", "data_type", "expected"),
    [
        (STRING, "05", pa.string(), "05"),
        (STRING, "5 ", pa.large_string(), "5 "),
        (INTEGER, 5, pa.int32(), 5),
        (INTEGER, 5_000_000_000, pa.int32(), 5_000_000_000),
        (DECIMAL, Decimal("5.00"), pa.int64(), 5),
        (DECIMAL, Decimal("-5.25"), pa.int64(), Decimal("-5.5")),
        (DECIMAL, Decimal(2**63) - Decimal("0.1"), pa.int64(), Decimal(2**63) - Decimal("0.5")),
        (LiteralKind.DOUBLE, 5.0, pa.int64(), 5),
        (LiteralKind.DOUBLE, 0.1, pa.int64(), Decimal("0.5")),
        (STRING, "-5", pa.int32(), -5),
        (INTEGER, 5, pa.decimal128(10, 2), Decimal(5)),
        (DECIMAL, Decimal("1.555"), pa.decimal128(10, 2), Decimal("1.555")),
        (INTEGER, 2**53, pa.float64(), float(2**53)),
        (DECIMAL, Decimal("0.1"), pa.float32(), 0.1),
        (STRING, "-Infinity", pa.float64(), -math.inf),
        (LiteralKind.BOOLEAN, True, pa.bool_(), True),
        (STRING, "false", pa.bool_(), False),
        (LiteralKind.DATE, date(2024, 1, 1), pa.date32(), date(2024, 1, 1)),
        (STRING, "2024-01-01", pa.date32(), date(2024, 1, 1)),
        (STRING, "2024-01-01 01:00:00Z", UTC_TIME, datetime(2024, 1, 1, 1, tzinfo=UTC)),
        (STRING, "2024-01-01", pa.timestamp("us"), datetime(2024, 1, 1)),
        (LiteralKind.DATE, date(2024, 1, 1), pa.timestamp("us"), datetime(2024, 1, 1)),
        (LiteralKind.NULL, None, pa.list_(pa.string()), None),
    ],
)
def test_literal_compares_with_a_column_by_a_plain_value(
    kind: LiteralKind, value: object, data_type: pa.DataType, expected: object
) -> None:
    found = comparable_value(SqlLiteral(kind, value), data_type)  # type: ignore[arg-type]
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("kind", "value", "data_type"),
    [
        # Spark casts the column: '05' equals 5 too.
        (INTEGER, 5, pa.string()),
        (LiteralKind.BOOLEAN, True, pa.string()),
        (LiteralKind.DATE, date(2024, 1, 1), pa.string()),
        # Spark 3 and 4, or their settings, differ.
        (STRING, "05", pa.int32()),
        (STRING, "-0", pa.int32()),
        (STRING, "5_000", pa.int32()),
        (STRING, "3000000000", pa.int32()),
        (STRING, "1.5", pa.decimal128(10, 2)),
        (STRING, "0.1", pa.float32()),
        (STRING, "yes", pa.bool_()),
        (INTEGER, 1, pa.bool_()),
        (LiteralKind.FLOAT, 0.5, pa.int32()),
        # One side would be rounded.
        (LiteralKind.DOUBLE, float(2**53), pa.int64()),
        (LiteralKind.DOUBLE, math.nan, pa.int64()),
        (INTEGER, 2**53 + 1, pa.float64()),
        (INTEGER, 2**24 + 1, pa.float32()),
        (DECIMAL, Decimal("0." + "1" * 30), pa.decimal128(20, 2)),
        (DECIMAL, Decimal("0." + "1" * 30), pa.int64()),
        (LiteralKind.DOUBLE, 1.5, pa.decimal128(10, 2)),
        # Spark's optimiser takes the comparison for true, also of NULL.
        (INTEGER, 2**63, pa.int32()),
        (DECIMAL, Decimal(-(2**63)) - 1, pa.int64()),
        # The session's time zone decides.
        (STRING, "2024-01-01 00:00:00", UTC_TIME),
        (LiteralKind.DATE, date(2024, 1, 1), UTC_TIME),
        (LiteralKind.LOCAL_TIMESTAMP, datetime(2024, 1, 1), UTC_TIME),
        (LiteralKind.TIMESTAMP, datetime(2024, 1, 1, tzinfo=UTC), pa.timestamp("us")),
        (LiteralKind.TIMESTAMP, datetime(2024, 1, 1, tzinfo=UTC), pa.date32()),
        (STRING, "x", pa.binary()),
        (STRING, "x", pa.struct({"a": pa.string()})),
    ],
)
def test_literal_that_spark_compares_after_a_cast_is_not_understood(
    kind: LiteralKind, value: object, data_type: pa.DataType
) -> None:
    with pytest.raises(NotUnderstood):
        comparable_value(SqlLiteral(kind, value), data_type)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "data_type"), [("1.5", pa.float64()), ("2024-01-01", pa.timestamp("us"))]
)
def test_text_in_a_list_is_not_understood_where_spark_3_casts_the_column_to_text(
    text: str, data_type: pa.DataType
) -> None:
    literal = SqlLiteral(STRING, text)
    assert comparable_value(literal, data_type) is not None
    with pytest.raises(NotUnderstood):
        comparable_value(literal, data_type, in_list=True)


def test_timestamp_column_takes_text_in_the_session_time_zone() -> None:
    literal = SqlLiteral(STRING, "2024-01-01 00:00:00")
    value = comparable_value(literal, UTC_TIME, time_zone="+01:00")
    assert value == datetime(2023, 12, 31, 23, tzinfo=UTC)


# Conditions that are read without the parser.

TYPES = [pa.string(), pa.int32(), pa.int64(), pa.float64(), pa.decimal128(9, 2), pa.date32(),
         UTC_TIME, pa.timestamp("us"), pa.bool_(), pa.binary()]  # fmt: skip
# The first five of each are plain.
LITERALS = ["'a'", "5", "'5'", "'2024-01-01'", "0", "007", "9" * 18, "'2024-01-01 10:00:00'",
            "'true'", "''", "'it''s'", "'\\\\n'", "'--'", "'/*'", "'\n'", "'日本'", "'${x}'",
            "'{{x}}'", '"a"', "5L", "-5", "1.5", "1e3", "NULL", "id", "'AND'", "'a' 'b'",
            "x'00'"]  # fmt: skip
OPERATORS = ["=", "<", "<=", " = ", "\n<>\n", ">", ">=", "!=", "==", "<=>", " LIKE ", " IS "]
JOINTS = [" AND ", " and ", "\nAnd\n", " And ", " AND\n", " OR ", "AND", " AND NOT ",
          " -- x\nAND ", " && "]  # fmt: skip
ENDS = ["", " ", "\n", "", "", " AND", ";", " -- x"]


def test_a_plain_condition_is_what_the_parser_makes_of_it() -> None:
    draw = random.Random(5)
    words = sorted({kind.name.lower() for kind in TokenType} | {"id", "ID", "_n", "n9", "x", "r"})
    known = 0
    for _ in range(6_000):
        names = draw.sample(words, 3)
        schema = pa.schema([(name, draw.choice(TYPES)) for name in names])

        def drawn(choices: list[str]) -> str:
            return draw.choice(choices[: draw.choice([5, 5, len(choices)])])

        text = ""
        for joint in ["", *(drawn(JOINTS) for _ in range(draw.randint(0, 2)))]:
            text += joint + drawn([*names, names[0].upper()]) + drawn(OPERATORS) + drawn(LITERALS)
        text += drawn(ENDS)
        zone = draw.choice([None, "UTC"])
        found = plain_condition(text, schema, zone)
        if found is None:
            continue
        known += 1
        assert found == parse_where(text, schema, time_zone=zone), (text, schema)
    assert known > 400


@pytest.mark.parametrize("text", ["m = 1", "A = 1", "", "a", "a = ", "a = 1 AND", "true = 1"])
def test_what_is_no_plain_condition_is_left_to_the_parser(text: str) -> None:
    schema = pa.schema([("a", pa.int64()), ("B", pa.int64()), ("b", pa.int64())])
    assert plain_condition(text.replace("A", "Bb"), schema, None) is None
    assert plain_condition("b = 1", schema, None) is not None
    twice = pa.schema([("N", pa.int64()), ("n", pa.int64())])
    assert plain_condition("n = 1", twice, None) == parse_where("n = 1", twice)
    mixed = pa.schema([("aB", pa.int64()), ("Ab", pa.int64())])
    assert plain_condition("ab = 1", mixed, None) is None
    with pytest.raises(InputError, match="ambiguous"):
        parse_where("ab = 1", mixed)


def test_the_condition_of_a_point_read_needs_no_parser() -> None:
    code = (
        "import sys, pyarrow as pa\n"
        "from bucketlake.read.read_plan import parsed_condition\n"
        "schema = pa.schema({'id': pa.string(), 'day': pa.date32()})\n"
        "parsed_condition(\"id = 'a' AND day = '2024-01-01'\", schema, None)\n"
        "assert 'sqlglot' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
