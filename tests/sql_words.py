"""The words of Spark's SQL, as names of columns, and conditions in which Spark takes them so."""

from __future__ import annotations

from pathlib import Path

LITERALS = {"true", "false", "null"}
"""Words that are values, unless they are in backquotes."""

_FILE = Path(__file__).parent / "golden" / "spark_words" / "keywords.tsv"
WORDS = [line.split("\t")[0].lower() for line in _FILE.read_text().splitlines()[1:]]
NAMES = [word for word in WORDS if word not in LITERALS]
HARD = ["case", "when", "then", "else", "end", "and", "or", "in", "is", "like", "between", "div",
        "as", "from", "for", "interval", "date", "timestamp", "exists", "distinct", "all", "any",
        "array", "map", "struct", "current_date", "user", "select", "if", "left", "order", "show",
        "set", "where", "values", "matched", "using", "on", "table", "update"]  # fmt: skip
"""Words that begin or end something in the statements that are taken."""

CONDITIONS = (
    "{n} = 5 OR zz = 1",
    "zz = 1 AND t.{n} > 2",
    "{n} IS NULL",
    "{n} IS NOT NULL AND zz = 1",
    "NOT {n} = 1",
    "{n} IN (1, 2)",
    "{n} NOT IN (1, 5)",
    "{n} + 1 > {n}",
    "{n} BETWEEN 1 AND 2 OR {n} NOT BETWEEN 0 AND 9",
    "-{n} = -1 AND zz < {n}",
    "({n}) = 1 AND {n} * {n} >= {n}",
    "NOT {n} IS NULL",
    "coalesce({n}, 1) = 1",
    "{n} <=> 1 AND {n} = {n}",
    "NOT (NOT {n} = 1)",
    "zz = {n} AND CAST({n} AS bigint) = 1",
    "zz IS DISTINCT FROM {n}",
    "CASE WHEN {n} = 1 THEN {n} ELSE zz END = 1",
    "CASE WHEN NOT {n} = 1 THEN 0 END = zz AND {n} = 2",
)
