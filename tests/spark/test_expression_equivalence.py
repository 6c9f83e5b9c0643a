"""What bucketlake evaluates without Spark against what Spark makes of the same texts.

Random expressions over all types, with a fixed seed, are columns of a few queries. An expression
that bucketlake leaves to Spark is no fault, but of the others each row must have Spark's value.
"""

from __future__ import annotations

import os
import random
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketlake.errors import InputError, UnsupportedFeatureError
from bucketlake.where.expression import Expression

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NAN, INF = float("nan"), float("inf")
COUNT = 20_000 if os.environ.get("BUCKETLAKE_DEEP") == "1" else 700
PER_QUERY = 100
ROWS = 40
VALUES: dict[str, tuple[pa.DataType, list[object]]] = {
    "s": (pa.string(), ["a", "A", "", " a", "straße", "ΟΔΟΣ", "İI", "ŉ", "ﬃ", "é", "e\u0301",
                        "😀", "a\nb", "a%b", "Σ", "αΣ.", "\U00010400", "ǅ"]),
    "i": (pa.int32(), [5, 0, -5, 7, 2**31 - 1, -(2**31), 1000]),
    "l": (pa.int64(), [5, 0, -6, 2**53 + 1, 2**31, -(2**40), 99]),
    "f": (pa.float32(), [0.1, 5.0, -0.0, 0.0, 16777216.0, NAN, INF, -INF, 3.3, 1e-40]),
    "d": (pa.float64(), [0.1, 5.0, -0.0, 0.0, 2.0**53, NAN, INF, -INF, 0.1 + 0.2, 1e300, 5e-324]),
    "x": (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("5.00"), Decimal("-0.01"), Decimal(0),
                                 Decimal("12345678.91")]),
    "w": (pa.decimal128(30, 10), [Decimal("5"), Decimal("0.0000000001"),
                                  Decimal("12345678901234567890.0123456789")]),
    "v": (pa.decimal128(20, 0), [Decimal(5), Decimal(-7), Decimal(2**63)]),
    "b": (pa.bool_(), [True, False]),
    "t": (pa.date32(), [date(2024, 2, 29), date(1969, 12, 31), date(1700, 1, 1)]),
    "z": (pa.timestamp("us", "UTC"), [datetime(2024, 1, 1, 5, tzinfo=UTC),
                                      datetime(1900, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]),
    "y": (pa.timestamp("us"), [datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 1)]),
    "h": (pa.binary(), [b"a", b"", b"\xff", b"ab"]),
}  # fmt: skip
LITERALS = {
    "s": ["'a'", "''", "'ß'", "'Σ'", "'a' 'b'", '"é"', "NULL"],
    "n": ["1", "0", "-5", "2147483648", "-2147483648", "-(7)", "0.1", "1.50", "-0.01", "5.", "1e0",
          "0.30000000000000004", "1e-3", "NULL", "123456789.123456789"],
    "b": ["true", "false", "NULL"],
}  # fmt: skip
NUMBERS = ["i", "l", "f", "d", "x", "w", "v"]


def made_table() -> pa.Table:
    """Return two columns of each type, whose values meet in changing pairs, with nulls."""
    choose = random.Random(1)
    columns = {}
    for name, (data_type, values) in VALUES.items():
        for each in (name, f"{name}2"):
            held = [*values, None]
            held += choose.choices(held, k=ROWS - len(held))
            choose.shuffle(held)
            columns[each] = pa.array(held, data_type)
    return pa.table(columns)


TABLE = made_table()


class Texts:
    """Makes random expressions, of all operators and functions, without needless parentheses."""

    def __init__(self, seed: int) -> None:
        self._choose = random.Random(seed)

    def any(self) -> str:
        kind = self._choose.choice([self.number, self.text, self.condition, self.condition])
        return kind(self._choose.randint(1, 3))

    def number(self, depth: int) -> str:
        of = self._choose
        if depth == 0 or of.random() < 0.1:
            return of.choice([*LITERALS["n"], *(self._column(NUMBERS) for _ in range(16))])
        return of.choice(
            [
                lambda: self._binary(["+", "-", "*"], self.number, depth),
                lambda: f"- {self._wrapped(self.number, depth)}",
                lambda: f"coalesce({self.number(depth - 1)}, {self.number(depth - 1)})",
                lambda: f"nvl({self.number(depth - 1)}, {self.number(0)})",
            ]
        )()

    def text(self, depth: int) -> str:
        of = self._choose
        if depth == 0:
            return of.choice([*LITERALS["s"], *(self._column(["s"]) for _ in range(9))])
        return of.choice(
            [
                lambda: f"upper({self.text(depth - 1)})",
                lambda: f"lower({self.text(depth - 1)})",
                lambda: f"concat({self.text(depth - 1)}, {self.text(0)}, {self.text(0)})",
                lambda: self._binary(["||"], self.text, depth),
                lambda: f"coalesce({self.text(depth - 1)}, {self.text(0)})",
                lambda: f"ifnull({self.text(0)}, {self.text(depth - 1)})",
            ]
        )()

    def condition(self, depth: int) -> str:
        of = self._choose
        if depth == 0:
            return of.choice([*LITERALS["b"], *(self._column(["b"]) for _ in range(6))])
        signs = ["=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>"]
        return of.choice(
            [
                lambda: self._binary(signs, self.number, depth),
                lambda: self._binary(signs, self.text, depth),
                lambda: self._binary(signs, self._other, 1),
                lambda: self._binary(signs, self.condition, depth),
                lambda: self._binary(["AND", "OR"], self.condition, depth),
                lambda: self._binary(["AND", "OR"], self.condition, depth),
                lambda: f"{of.choice(['NOT', '!'])} {self._wrapped(self.condition, depth)}",
                lambda: self._predicate(depth),
            ]
        )()

    def _predicate(self, depth: int) -> str:
        of, negated = self._choose, self._choose.choice(["", "NOT "])
        number, text = self._column(NUMBERS), self._column(["s"])
        left = of.choice([number, number, self._wrapped(self.number, depth)])
        low, high, third = (self.number(0) for _ in range(3))
        return of.choice(
            [
                f"{left} {negated}IN ({low}, {high}, {third})",
                f"{left} {negated}BETWEEN {low} AND {high}",
                f"{of.choice([*TABLE.column_names])} IS {negated}NULL",
                f"{self._column(['b'])} IS {negated}{of.choice(['TRUE', 'FALSE'])}",
                f"{text} {negated}LIKE {of.choice(PATTERNS)}",
                f"{text} {negated}IN ({self.text(0)}, {self.text(0)})",
            ]
        )

    def _other(self, depth: int) -> str:
        return self._column(["t", "z", "y", "h", "b", "s", "i", "d"])

    def _binary(self, signs: Sequence[str], part: Any, depth: int) -> str:
        left, right = self._wrapped(part, depth), self._wrapped(part, depth)
        return f"{left} {self._choose.choice(signs)} {right}"

    def _wrapped(self, part: Any, depth: int) -> str:
        made: str = part(depth - 1)
        return f"({made})" if self._choose.random() < 0.4 else made

    def _column(self, names: Sequence[str]) -> str:
        return self._choose.choice(names) + self._choose.choice(["", "2"])


PATTERNS = ["'%'", "'_'", "'a%'", "'%b'", "'a_b'", "'__'", "''", "'%Σ%'", "'a\\%b'", "'%\\n%'"]


@pytest.fixture(scope="module")
def rows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    path: Path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(TABLE, path)
    return spark.read.parquet(str(path))


def told(value: Any) -> Any:
    """Return a value that equals another one only if both are the same, also for NaN and zeros."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return bytes(value) if isinstance(value, bytearray) else value


def evaluated(texts: Sequence[str]) -> tuple[dict[str, list[Any]], list[str]]:
    """Return the values of the expressions that need no Spark, and those that overflow."""
    found, too_large = {}, []
    for text in dict.fromkeys(texts):
        try:
            values = Expression(text, TABLE.schema, "set").values(TABLE)
        except UnsupportedFeatureError:
            continue
        except InputError:
            too_large.append(text)
        else:
            found[text] = [told(value) for value in values.to_pylist()]
    return found, too_large


def spark_values(rows: DataFrame, texts: Sequence[str]) -> Iterator[tuple[str, list[Any]]]:
    for start in range(0, len(texts), PER_QUERY):
        yield from values_of_part(rows, texts[start : start + PER_QUERY])


def values_of_part(rows: DataFrame, part: Sequence[str]) -> Iterator[tuple[str, list[Any]]]:
    """Evaluate expressions in one query; leave out those that overflow in Spark alone.

    Spark's optimiser changes the order of factors, so that it multiplies by zero too late.
    """
    try:
        answer = rows.selectExpr(*(f"({text}) AS c{n}" for n, text in enumerate(part))).collect()
    except Exception as error:
        if "ARITHMETIC_OVERFLOW" not in str(error):
            raise
        half = len(part) // 2
        for half_part in (part[:half], part[half:]) if half else ():
            yield from values_of_part(rows, half_part)
        return
    for number, text in enumerate(part):
        yield text, [told(row[number]) for row in answer]


def test_random_expressions_give_spark_values_row_by_row(rows: DataFrame) -> None:
    made = Texts(seed=4)
    found, _ = evaluated([made.any() for _ in range(COUNT)])
    assert len(found) > COUNT / 4, "the rest would test too little"
    wrong = {
        text: [pair for pair in zip(found[text], expected, strict=True) if pair[0] != pair[1]][:3]
        for text, expected in spark_values(rows, [*found])
        if found[text] != expected
    }
    assert not wrong


@pytest.mark.parametrize("text", ["- i", "l * 9223372036854775807"])
def test_whole_numbers_that_do_not_fit_are_an_error_as_in_spark(rows: DataFrame, text: str) -> None:
    assert evaluated([text]) == ({}, [text])
    with pytest.raises(Exception, match=r"OVERFLOW"):
        rows.selectExpr(f"({text}) AS c").collect()


def test_letters_of_all_unicode_change_their_case_as_in_spark(spark: SparkSession) -> None:
    every = [chr(n) for n in range(0x80, sys.maxunicode) if not 0xD800 <= n < 0xE000]
    known = [c for c in every if unicodedata.category(c) not in ("Cn", "Co", "Lo")]
    texts = [f"a{'.'.join(known[n : n + 40])}" for n in range(0, len(known), 40)]
    choose = random.Random(2)
    sigmas = "ΣΣσAα.'· \u0301\u00ad\u02b01ßİ\U00010400"  # A last sigma has a form of its own.
    texts += ["".join(choose.choices(sigmas, k=choose.randint(1, 6))) for _ in range(400)]
    schema = pa.schema({"s": pa.string()})
    answer = spark.createDataFrame([(text,) for text in texts], "s string").selectExpr(
        "s", "upper(s) AS upper", "lower(s) AS lower"
    )
    wrong, refused = [], 0
    for row in answer.collect():
        for name in ("upper", "lower"):
            one = pa.table({"s": [row["s"]]}, schema=schema)
            try:
                found = Expression(f"{name}(s)", schema, "set").values(one)[0].as_py()
            except UnsupportedFeatureError:
                refused += 1
                continue
            if found != row[name]:
                wrong.append((name, row["s"], found, row[name]))
    assert not wrong
    assert refused < 20
