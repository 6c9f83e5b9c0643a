"""Literals of Spark SQL."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from bucketlake.where.sql_literal import (
    LiteralKind,
    NotUnderstood,
    SqlLiteral,
    cast_literal,
    decode_string,
    number_literal,
    parse_timestamp,
)

BACKSLASH = "\\"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("'plain'", "plain"),
        ('"double"', "double"),
        (r"'it\'s'", "it's"),
        (r"'a\nb\tc\Zd\0e'", "a\nb\tc\x1ad\0e"),
        (r"'\u0041\U0001F600'", "A😀"),
        (r"'\ud83d\ude00'", "😀"),
        (r"'\101\0777'", "A?7"),
        (r"'\q\5\x41\u12'", "q5x41u12"),
        (r"'100\% \_'", r"100\% \_"),
        (r"'\\'", BACKSLASH),
        ("'line\nbreak'", "line\nbreak"),
    ],
)
def test_string_is_decoded_as_spark_decodes_it(raw: str, text: str) -> None:
    assert decode_string(raw) == text


@pytest.mark.parametrize(
    "raw", ["'it''s'", '"a""b"', r"'\ud83d'", r"'\UFFFFFFFF'", "'open", "r'raw'"]
)
def test_string_of_unsure_text_is_not_decoded(raw: str) -> None:
    assert decode_string(raw) is None


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("5", LiteralKind.INTEGER, 5),
        ("007", LiteralKind.INTEGER, 7),
        ("5.", LiteralKind.DECIMAL, Decimal(5)),
        (".50", LiteralKind.DECIMAL, Decimal("0.50")),
        ("1e3", LiteralKind.DOUBLE, 1000.0),
        ("1.5E-1", LiteralKind.DOUBLE, 0.15),
    ],
)
def test_number_has_the_type_that_spark_gives_it(
    text: str, kind: LiteralKind, value: object
) -> None:
    literal = number_literal(text)
    assert (literal.kind, literal.value) == (kind, value)


@pytest.mark.parametrize("text", ["1e999", "0x1F", "1" * 5000, "1_000"])
def test_number_that_spark_would_read_otherwise_is_not_understood(text: str) -> None:
    with pytest.raises(NotUnderstood):
        number_literal(text)


def test_minus_before_a_long_decimal_keeps_all_of_its_digits() -> None:
    digits = "12345678901234567890123456789012345678"
    negated = SqlLiteral(LiteralKind.DECIMAL, Decimal(digits)).negated()
    assert str(negated.value) == f"-{digits}"


@pytest.mark.parametrize("value", [True, "5", None])
def test_minus_before_something_other_than_a_number_is_not_understood(value: object) -> None:
    with pytest.raises(NotUnderstood):
        SqlLiteral(LiteralKind.STRING, value).negated()  # type: ignore[arg-type]


TEXT, INTEGER = LiteralKind.STRING, LiteralKind.INTEGER


@pytest.mark.parametrize(
    ("literal", "type_name", "arguments", "expected"),
    [
        (SqlLiteral(INTEGER, 5), "BIGINT", [], (INTEGER, 5)),
        (SqlLiteral(TEXT, "-7"), "INT", [], (INTEGER, -7)),
        (SqlLiteral(TEXT, "1.50"), "DECIMAL", [3, 2], (LiteralKind.DECIMAL, Decimal("1.50"))),
        (SqlLiteral(INTEGER, 5), "DOUBLE", [], (LiteralKind.DOUBLE, 5.0)),
        (SqlLiteral(INTEGER, 5), "TEXT", [], (TEXT, "5")),
        (SqlLiteral(TEXT, "2024-02-29"), "DATE", [], (LiteralKind.DATE, date(2024, 2, 29))),
        (
            SqlLiteral(TEXT, "2024-01-01 00:00:00.5+01:00"),
            "TIMESTAMPTZ",
            [],
            (LiteralKind.TIMESTAMP, datetime(2023, 12, 31, 23, 0, 0, 500_000, UTC)),
        ),
        (
            SqlLiteral(TEXT, "2024-01-01"),
            "TIMESTAMPNTZ",
            [],
            (LiteralKind.LOCAL_TIMESTAMP, datetime(2024, 1, 1)),
        ),
    ],
)
def test_exact_cast_gives_the_value_in_its_new_type(
    literal: SqlLiteral, type_name: str, arguments: list[int], expected: tuple[object, object]
) -> None:
    cast = cast_literal(literal, type_name, arguments, None)
    assert (cast.kind, cast.value) == expected


@pytest.mark.parametrize(
    ("literal", "type_name", "arguments"),
    [
        (SqlLiteral(INTEGER, 300), "TINYINT", []),
        (SqlLiteral(LiteralKind.DECIMAL, Decimal("1.5")), "INT", []),
        (SqlLiteral(TEXT, " 5"), "INT", []),
        (SqlLiteral(TEXT, "5.0"), "INT", []),
        (SqlLiteral(TEXT, "1.555"), "DECIMAL", [3, 2]),
        (SqlLiteral(INTEGER, 5), "DECIMAL", []),
        (SqlLiteral(LiteralKind.DOUBLE, 0.1), "FLOAT", []),
        (SqlLiteral(TEXT, "2024-1-1"), "DATE", []),
        (SqlLiteral(TEXT, "2023-02-29"), "DATE", []),
        (SqlLiteral(TEXT, "2024-01-01 00:00:00"), "TIMESTAMP", []),
        (SqlLiteral(TEXT, "2024-01-01 25:00:00Z"), "TIMESTAMP", []),
        (SqlLiteral(TEXT, "2024-01-01 00:00:00Z"), "TIMESTAMPNTZ", []),
        (SqlLiteral(TEXT, "abc"), "VARCHAR", [2]),
        (SqlLiteral(LiteralKind.BOOLEAN, True), "INT", []),
        (SqlLiteral(LiteralKind.BOOLEAN, True), "TEXT", []),
        (SqlLiteral(TEXT, "yes"), "BOOLEAN", []),
        (SqlLiteral(LiteralKind.NULL, None), "INT", []),
    ],
)
def test_cast_that_may_change_the_value_is_not_understood(
    literal: SqlLiteral, type_name: str, arguments: list[int]
) -> None:
    with pytest.raises(NotUnderstood):
        cast_literal(literal, type_name, arguments, None)


def test_cast_of_nan_is_nan() -> None:
    value = cast_literal(SqlLiteral(TEXT, "NaN"), "DOUBLE", [], None).value
    assert isinstance(value, float)
    assert math.isnan(value)


@pytest.mark.parametrize(
    ("text", "zone", "utc"),
    [
        ("2024-07-01 12:00:00", "Europe/Berlin", datetime(2024, 7, 1, 10, tzinfo=UTC)),
        ("2024-07-01", "-05:30", datetime(2024, 7, 1, 5, 30, tzinfo=UTC)),
        # In the gap of spring, and the earlier one of autumn's two hours, as Java takes them.
        ("2024-03-31 02:30:00", "Europe/Berlin", datetime(2024, 3, 31, 1, 30, tzinfo=UTC)),
        ("2024-10-27 02:30:00", "Europe/Berlin", datetime(2024, 10, 27, 0, 30, tzinfo=UTC)),
        ("2024-07-01T12:00:00Z", "Europe/Berlin", datetime(2024, 7, 1, 12, tzinfo=UTC)),
    ],
)
def test_timestamp_without_zone_is_in_that_of_the_session(
    text: str, zone: str, utc: datetime
) -> None:
    assert parse_timestamp(text, zone) == utc


@pytest.mark.parametrize("zone", [None, "Mars/Olympus", "../etc/passwd", "+19:00", "+01:60", ""])
def test_timestamp_in_an_unknown_zone_is_not_understood(zone: str | None) -> None:
    with pytest.raises(NotUnderstood):
        parse_timestamp("2024-07-01 12:00:00", zone)
