"""What bucketlake makes of ``where`` against what Spark makes of it.

Spark evaluates many conditions as columns of one query, over a Parquet file of odd values. The
claims hold with and without ANSI mode, so for Spark 3 and 4 alike.
"""

from __future__ import annotations

import itertools
import os
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketlake.config.table_config import TableConfig
from bucketlake.index.bucket_hash import assign_buckets
from bucketlake.model.keys import KeyGenerator, KeySpec, record_keys
from bucketlake.model.table_type import MergeMode, TableType
from bucketlake.read.pruning.key_candidates import find_hash_keys
from bucketlake.spark.read import SPARK_SETTINGS
from bucketlake.where.arrow_filter import truth_of
from bucketlake.where.parser import parse_where
from bucketlake.where.predicate import Opaque, Predicate, leaves
from bucketlake.where.sql_literal import decode_string

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NAN, INF = float("nan"), float("inf")
TIME_ZONE = "America/New_York"  # It has gaps; the session's is UTC elsewhere.

COLUMNS: dict[str, tuple[pa.DataType, list[object]]] = {
    "s": (pa.string(), ["5", "05", " 5", "5.0", "a", "A", "a'b", "", "5 ", "true", "é", "😀"]),
    "i": (pa.int32(), [5, 0, -5, 6, 2**31 - 1, -(2**31)]),
    "l": (pa.int64(), [5, 0, -6, 2**53 + 1, 2**63 - 1, -(2**63)]),
    "f": (pa.float32(), [0.1, 5.0, -0.0, 0.0, 16777216.0, NAN, INF, -INF, 1.5]),
    "d": (pa.float64(), [0.1, 5.0, -0.0, 0.0, 2.0**53, NAN, INF, -INF, 0.30000000000000004]),
    "x": (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("5.00"), Decimal("-0.01"), Decimal(0)]),
    "w": (pa.decimal128(38, 18), [Decimal("5"), Decimal("0.000000000000000001")]),
    "b": (pa.bool_(), [True, False]),
    "t": (pa.date32(), [date(2024, 1, 1), date(2024, 2, 29), date(1969, 12, 31), date(1700, 1, 1)]),
    "z": (
        pa.timestamp("us", "UTC"),
        [
            datetime(2024, 1, 1, 5, tzinfo=UTC),
            datetime(2024, 1, 1, tzinfo=UTC),
            datetime(2024, 3, 10, 7, 30, tzinfo=UTC),
            datetime(2024, 11, 3, 5, 30, tzinfo=UTC),
            datetime(2024, 1, 1, 0, 0, 0, 123456, tzinfo=UTC),
        ],
    ),
    "y": (pa.timestamp("us"), [datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 1)]),
}
SCHEMA = pa.schema([(name, data_type) for name, (data_type, _) in COLUMNS.items()])
ROWS = max(len(values) for _, values in COLUMNS.values()) + 1  # One more for a null.
TABLE = pa.table(
    [
        pa.array([*values, *[None] * (ROWS - len(values))], data_type)
        for data_type, values in COLUMNS.values()
    ],
    schema=SCHEMA,
)

LITERALS = """
    5|05|-5|+5|0|5L|5Y|5S|6|5.0|5.|5.5|-5.50|.1|0.1|1e0|5e0|0.1e0|5D|5.5D|0.1D|0.1F|1.5F|5BD|1.50BD
    |16777217|3000000000|-3000000000|2147483648.5|9007199254740993|9007199254740992|9007199254740993D|9223372036854775807
    |9223372036854775808|-9223372036854775808|99999999999999999999|1e40
    |0.000000000000000001|12345678901234567890.123456789012345678|0.30000000000000004D
    |'5'|'05'|' 5'|'5.0'|'-5'|'+5'|'a'|'A'|''|'5 '|"5"|'true'|'TRUE'|'t'|'1'|'é'|'😀'|r'a'|'0.1'
    |'a\\'b'|'a''b'|'a' 'b'|'\\065'|'\\u0061'|'\\x61'|'NaN'|'nan'|'Infinity'|'-Infinity'|'1e0'|'5D'
    |'2147483647'|'2147483648'|'9223372036854775807'|'99999999999999999999'|'16777217'
    |+'5'|-'5'|+(5)|-(5)|(5)|- -5|~5
    |'2024-01-01'|'2024-1-1'|'2024'|'2024-01'|'2024-01-01 '|'2024-02-30'|'1969-12-31'|'1700-01-01'
    |'2024-01-01 00:00:00'|'2024-01-01T05:00:00Z'|'2024-01-01 00:00:00.123456'|'2024-03-10 02:30:00'
    |'2024-11-03 01:30:00'|'2024-01-01 00:00:00 UTC'|'2024-01-01 00:00:00+05:00'
    |DATE '2024-01-01'|DATE '2024-1-1'|DATE '2024-02-29'|date('2024-01-01')
    |TIMESTAMP '2024-01-01 00:00:00'|TIMESTAMP '2024-01-01 05:00:00Z'|TIMESTAMP '2024-01-01'
    |TIMESTAMP '2024-01-01 00:00:00 UTC'|TIMESTAMP '2024-01-01 00:00:00 Europe/Berlin'
    |TIMESTAMP_NTZ '2024-01-01 00:00:00'|TIMESTAMP_LTZ '2024-01-01 00:00:00'
    |TIMESTAMP_NTZ '2024-01-01 00:00:00.000001'
    |TRUE|FALSE|NULL|CAST(NULL AS INT)|CAST('5' AS INT)|CAST(' 5' AS INT)|CAST(5.5 AS INT)
    |CAST(5 AS STRING)|CAST('05' AS STRING)|CAST(1.5 AS DECIMAL(2,1))|CAST(1.55 AS DECIMAL(2,1))
    |CAST('NaN' AS DOUBLE)|CAST('NaN' AS FLOAT)|CAST('Infinity' AS DOUBLE)|CAST(5 AS DOUBLE)
    |CAST('2024-01-01' AS DATE)|CAST('2024-01-01' AS TIMESTAMP)|CAST('true' AS BOOLEAN)
    |CAST('5' AS CHAR(1))|X'35'|DATE '2024-01-01' + 1|INTERVAL '1' DAY
"""
LITERAL_TEXTS = [text.strip() for text in LITERALS.replace("\n", "").split("|")]
OPERATORS = ["=", "<>", "<", "<=", ">", ">=", "<=>"]


@pytest.fixture(scope="module")
def rows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataFrame]:
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(TABLE, path)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", TIME_ZONE)
    yield spark.read.parquet(str(path))
    spark.conf.set("spark.sql.session.timeZone", zone)


@contextmanager
def ansi(spark: SparkSession, enabled: bool) -> Iterator[None]:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", str(enabled).lower())
    yield
    spark.conf.set("spark.sql.ansi.enabled", before)


def in_parts(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    return (texts[i : i + 300] for i in range(0, len(texts), 300))


def spark_results(rows: DataFrame, texts: Sequence[str]) -> dict[str, list[bool | None]]:
    """Evaluate conditions, by text, over all rows; some hundreds a query."""
    results: dict[str, list[bool | None]] = {}
    for part in in_parts(texts):
        answer = rows.selectExpr(*(f"({text}) AS c{i}" for i, text in enumerate(part))).collect()
        assert len(answer) == ROWS
        results.update((text, [row[i] for row in answer]) for i, text in enumerate(part))
    return results


def accepted_by_spark(rows: DataFrame, texts: Sequence[str]) -> list[str]:
    """Keep the conditions that Spark takes, which it decides before it reads any data."""
    from pyspark.errors import AnalysisException, ParseException

    try:
        rows.selectExpr(*texts)
    except (AnalysisException, ParseException):
        half = len(texts) // 2
        parts = (texts[:half], texts[half:]) if half else ()
        return [text for part in parts for text in accepted_by_spark(rows, part)]
    return list(texts)


def arrow_results(predicate: Predicate) -> list[bool | None]:
    found: list[bool | None] = truth_of(predicate, TABLE).to_pylist()
    return found


@cache
def parsed(text: str) -> Predicate:
    return parse_where(text, SCHEMA, time_zone=TIME_ZONE)


def some(texts: Sequence[str], count: int, seed: int) -> list[str]:
    """Take some texts of a long list by day, and all at night."""
    deep = os.environ.get("BUCKETLAKE_DEEP") == "1"
    return list(texts) if deep else random.Random(seed).sample(texts, min(count, len(texts)))


def is_plain(predicate: Predicate) -> bool:
    return not any(isinstance(leaf, Opaque) for leaf in leaves(predicate))


def simple_conditions() -> list[str]:
    """Compare every column with every literal."""
    conditions = [
        f"{column} {operator} {literal}"
        for column in COLUMNS
        for literal in LITERAL_TEXTS
        for operator in OPERATORS
    ]
    conditions += [
        f"{column} IN ({first}, {second})"
        for column in COLUMNS
        for first, second in itertools.pairwise(LITERAL_TEXTS)
    ]
    conditions += [
        f"{column} BETWEEN {low} AND {high}"
        for column in COLUMNS
        for low, high in itertools.pairwise(LITERAL_TEXTS)
    ]
    conditions += [f"{column} IS NULL" for column in COLUMNS]
    patterns = ["%", "_", "5%", "%5", "%5%", "_5", "", "a_b", "5", "%'%"]
    return conditions + [f's LIKE "{pattern}"' for pattern in patterns]


def plain_conditions(count: int, seed: int) -> list[str]:
    """Take conditions that are plain, as about each fourth is."""
    chosen = some(simple_conditions(), 4 * count, seed)
    plain = [text for text in chosen if is_plain(parsed(text))]
    assert len(plain) > count / 2, "the rest would test too little"
    return plain


def compound_conditions(count: int) -> list[str]:
    """Combine plain conditions at random, without the parentheses that would hide precedence."""
    choose = random.Random(7)
    simple = plain_conditions(200, 2)
    simple += ["b", "true", "NULL", "b IS TRUE", "b IS NOT FALSE", "i IS NOT NULL"]

    def condition(depth: int) -> str:
        if depth == 0:
            return choose.choice(simple)
        parts = [condition(depth - 1) for _ in range(choose.randint(1, 3))]
        text = f" {choose.choice(['AND', 'OR'])} ".join(parts)
        return choose.choice(["{}", "({})", "NOT {}", "NOT ({})", "! {}"]).format(text)

    return [condition(choose.randint(1, 3)) for _ in range(count)]


def assert_same_results(rows: DataFrame, texts: Sequence[str]) -> None:
    expected = spark_results(rows, texts)
    wrong = {
        text: {"bucketlake": found, "Spark": expected[text]}
        for text in texts
        if (found := arrow_results(parsed(text))) != expected[text]
    }
    assert not wrong


@pytest.mark.parametrize(("ansi_enabled", "seed"), [(True, 0), (False, 1)])
def test_plain_comparisons_give_spark_results_row_by_row(
    spark: SparkSession, rows: DataFrame, ansi_enabled: bool, seed: int
) -> None:
    with ansi(spark, ansi_enabled):
        assert_same_results(rows, plain_conditions(400, seed))


def test_plain_conditions_combine_as_in_spark(rows: DataFrame) -> None:
    assert_same_results(rows, compound_conditions(100))


def test_long_lists_give_spark_results(rows: DataFrame) -> None:
    """From eleven literals on Spark takes another path."""
    numbers = ", ".join(map(str, range(-6, 7)))
    texts = [
        f"{column} {negation} IN ({numbers}{more})"
        for column in ("i", "l", "f", "d", "x")
        for negation in ("", "NOT")
        for more in ("", ", NULL", ", 0.5")
    ]
    texts.append("s IN (" + ", ".join(f"'{text}'" for text in "abcdefghijklm5") + ")")
    assert all(is_plain(parsed(text)) for text in texts)
    assert_same_results(rows, texts)


KEY_COLUMNS = ["s", "i", "l", "b", "t"]
BUCKETS = 64


def config_of(spec: KeySpec) -> TableConfig:
    return TableConfig("t", TableType.COPY_ON_WRITE, spec, MergeMode.COMMIT_TIME)


def buckets_of_rows(column: str, spec: KeySpec) -> dict[int, int]:
    """Return the bucket of each row that has a key."""
    texts = TABLE[column].cast(pa.string()).to_pylist()
    places = [row for row, text in enumerate(texts) if text]
    keys = record_keys(TABLE.select([column]).take(places), spec)
    return dict(zip(places, assign_buckets(keys, BUCKETS).tolist(), strict=True))


def test_buckets_hold_every_row_that_spark_keeps(spark: SparkSession, rows: DataFrame) -> None:
    """Without ANSI mode, where casts do not fail, and so a condition matches more rows."""
    equality = re.compile(rf"[{''.join(KEY_COLUMNS)}] (=|<=>|IN) ")
    texts = [text for text in simple_conditions() if equality.match(text)]
    texts += [f"+{column} = '5'" for column in KEY_COLUMNS]
    texts += [f"{column} = '5' OR true -- \\\n AND {column} = '5'" for column in KEY_COLUMNS]
    specs = {name: KeySpec((name,), (), KeyGenerator.NON_PARTITION) for name in KEY_COLUMNS}
    pruned: dict[str, tuple[str, frozenset[int]]] = {}
    for text in texts:
        column = text.lstrip("+")[0]
        keys = find_hash_keys(parsed(text), config_of(specs[column]), (), SCHEMA).keys
        if keys is not None:
            pruned[text] = (column, frozenset(assign_buckets(list(keys), BUCKETS).tolist()))
    homes = {name: buckets_of_rows(name, spec) for name, spec in specs.items()}
    with ansi(spark, False):
        taken = accepted_by_spark(rows, list(pruned))
        kept = spark_results(rows, taken)
    assert len(taken) > 100, "too few conditions prune to say anything"
    lost = [
        (text, row)
        for text in taken
        for row, bucket in homes[pruned[text][0]].items()
        if kept[text][row] and bucket not in pruned[text][1]
    ]
    assert not lost


def test_session_with_a_setting_that_changes_what_sql_means_is_told_apart(
    spark: SparkSession,
) -> None:
    from bucketlake.spark.read import has_usual_settings

    assert has_usual_settings(spark)
    for key, usual in SPARK_SETTINGS.items():
        other = {"true": "false", "false": "true"}.get(usual, "TIMESTAMP_NTZ")
        spark.conf.set(key, other)
        try:
            assert not has_usual_settings(spark), f"{key} makes no difference"
        finally:
            spark.conf.unset(key)


def test_strings_are_decoded_as_spark_decodes_them(spark: SparkSession) -> None:
    choose = random.Random(3)
    pieces = ["a", "\\", "\\\\", "\\'", "'", '"', "u", "U", "0", "1", "7", "8", "41", "0041",
              "0001F600", "n", "Z", "%", "_", "é", "\n", "😀", "x"]  # fmt: skip
    raws = {"'" + "".join(choose.choices(pieces, k=choose.randint(0, 8))) + "'" for _ in range(600)}
    decoded = {raw: text for raw in raws if (text := decode_string(raw)) is not None}
    assert len(decoded) > 200
    found = spark.range(1).selectExpr(*(f"{raw} AS c{i}" for i, raw in enumerate(decoded))).first()
    assert found is not None
    wrong = {
        raw: (text, found[i]) for i, (raw, text) in enumerate(decoded.items()) if text != found[i]
    }
    assert not wrong
