"""Which bucket count a rule gives a partition."""

from __future__ import annotations

import pickle
import time
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.errors import ConfigError
from bucketlake.index.java_regex import JavaPattern
from bucketlake.index.partition import PartitionBucket
from bucketlake.index.partition_rules import (
    Expressions,
    PartitionRule,
    bucket_count_of,
    rule_named,
    split_expressions,
)


def count(expressions: str, path: str, rule: str = "regex", default: int = 7) -> int:
    return bucket_count_of(rule_named(rule), split_expressions(expressions), default, path)


def test_first_expression_that_fits_counts_and_none_leaves_the_default() -> None:
    expressions = "2024,3;2024-06,5;us,9"
    assert [count(expressions, path) for path in ("2024-06-01", "us", "2023")] == [3, 9, 7]


def test_same_expressions_with_another_default_are_kept_apart() -> None:
    assert [count("x,1", "y", default=n) for n in (4, 8, 4)] == [4, 8, 4]


@pytest.mark.parametrize(
    ("path", "expected"),
    [("d=2023-12", 7), ("d=2024-01", 8), ("d=2024-06-30", 8), ("d=2024-07", 16), ("e", 16)],
)
def test_ranges_take_their_lower_end_and_leave_their_upper(path: str, expected: int) -> None:
    assert count("d=2024-01..d=2024-07,8;d=2024-07..,16", path, "RANGE") == expected


@pytest.mark.parametrize("expressions", ["a,1", "b..a,1", "a..a,1", "a..b", "..,0"])
def test_range_that_is_none_is_refused(expressions: str) -> None:
    with pytest.raises(ConfigError):
        count(expressions, "a", "range")


def test_everything_is_in_a_range_without_ends() -> None:
    assert count("..,5", "", "range") == count("..,5", "z", "range") == 5


def test_rule_of_the_users_own_may_be_any_function() -> None:
    def by_length(expressions: Expressions) -> PartitionRule:
        return lambda path: expressions[0][1] * len(path) or None

    assert bucket_count_of(by_length, (("", 2),), 9, "abc") == 6
    assert bucket_count_of(by_length, (("", 2),), 9, "") == 9


@pytest.mark.parametrize("given", [0, -1, 100_000_000, 1.5, True])
def test_count_out_of_range_of_the_users_own_rule_is_refused(given: object) -> None:
    def fixed(expressions: Expressions) -> PartitionRule:
        return lambda path: given  # type: ignore[return-value]

    with pytest.raises(ConfigError, match="'p'"):
        bucket_count_of(fixed, (), 9, "p")


@pytest.mark.parametrize("name", ["regexp", "", "os:getcwd"])
def test_unknown_rule_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match="regex, range"):
        rule_named(name)


@pytest.mark.parametrize(
    "expressions", ["", " ", "a", "a,b", "a,1,2", ";a,1", "a,2;;b,3", "a,0", "a,-3", "a,1.5", "a,"]
)
def test_expressions_that_are_none_are_refused_with_their_text(expressions: str) -> None:
    with pytest.raises(ConfigError, match=r"bucket count|partition expressions"):
        split_expressions(expressions)


def test_empty_ends_of_expressions_are_dropped_as_java_drops_them() -> None:
    assert split_expressions("a,1;;") == (("a", 1),)
    assert split_expressions("a,1,") == (("a", 1),)
    assert split_expressions(",+4") == (("", 4),)


@pytest.mark.parametrize(
    ("pattern", "found", "missed"),
    [
        (r"\d", "7", "\u0667"),
        (r"(?i)k", "K", "\u212a"),
        (r"a.b", "a\u000bb", "a\u2028b"),
        (r"a$", "a\r\n", "a\n\n"),
        (r"a\z", "a", "a\n"),
        (r"a\Z", "a\n", "a b"),
        (r"\Qa.b[\E+", "a.b[[", "axb["),
        (r"\Qa.b", "a.b", "axb"),
        (r"(?<y>\d)-\k<y>", "1-1", "1-2"),
        (r"(a|b)\1", "bb", "ab"),
        (r"(?>a+)b", "aab", "aa"),
        (r"a++b", "aab", "aa"),
        (r"\p{Upper}[\p{Digit}_]", "A_", "a1"),
        (r"[^a&|~-]x", "bx", "&x"),
        (r"x{2}", "xx", "x"),
        (r"A\x2f\u0042", "A/B", "AB"),
        (r"p\=1\/", "p=1/", "p1"),
    ],
)
def test_pattern_of_java_finds_what_it_finds_there(pattern: str, found: str, missed: str) -> None:
    compiled = JavaPattern(pattern)
    assert compiled.search(found)
    assert not compiled.search(missed)


@pytest.mark.parametrize(
    "pattern",
    [
        r"[a-z&&[^b]]", r"[a[b]]", r"[]a]", r"[a", r"\p{L}", r"\p{javaLowerCase}", r"\P{Lower}",
        r"\bx", r"\R", r"\h", r"\0101", r"\x{41}", r"\cA", r"\G", r"(?x)a b", r"a(?i)b", r"(?i:a)",
        r"(?P<n>a)", r"(?#c)", r"a{,2}", r"{2}", r"a{", r"(a", r"a)", r"*a", r"(a)\11", r"(?<=a+)b",
        "a\\",
    ],
)  # fmt: skip
def test_pattern_that_python_reads_otherwise_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="pattern"):
        JavaPattern(pattern)


@given(st.text())
def test_any_text_compiles_or_is_refused(pattern: str) -> None:
    with suppress(ConfigError):
        JavaPattern(pattern)


@given(st.text(alphabet="ab-=/2", max_size=6), st.text(alphabet="ab-=/2", max_size=8))
def test_text_without_syntax_finds_itself(pattern: str, path: str) -> None:
    assert bool(JavaPattern(pattern).search(path)) == (pattern in path)


A_LONG_PATH = "day=" + "a" * 3_000 + "!"
"""Python needs longer than the universe for ``(a+)+$`` here."""


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+$", r"(a|aa)+$", r"(a*)*b", r"(a?){30}a{30}b", r"((a+)b?)+c", r"(?:a+){20}$",
        r"a*a*a*a*a*b", r"(\w+\s?)+$", r"(?i)(A+)+$", r"([a]+)*b", r"(?<n>a+)+$", r"(a|b|aa)+\Z",
    ],
)  # fmt: skip
def test_pattern_that_repeats_repetitions_is_searched_in_time(pattern: str) -> None:
    index = PartitionBucket({pattern: 8}, 3)
    begun = time.process_time()
    assert index.count_of(A_LONG_PATH) == 3
    assert index.count_of(f"ü={A_LONG_PATH[4:]}") == 3 if "(?i)" not in pattern else True
    assert time.process_time() - begun < 5
    assert pickle.loads(pickle.dumps(index)).count_of("aaaa") in (3, 8)


@pytest.mark.parametrize(
    "pattern", [r"(?=(a+)+$)x", r"(?!(a+)+$)x", r"((a+)\2)+$", r"(a++b?)+$", r"(?<=a)(a|aa)+$"]
)
def test_pattern_that_only_python_can_search_is_refused_if_it_may_never_end(pattern: str) -> None:
    with pytest.raises(ConfigError, match="may never end"):
        PartitionBucket({pattern: 8}, 3).count_of(A_LONG_PATH)


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(?i)(a+)+$"])
def test_path_with_a_line_end_is_searched_in_time_or_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="may never end"):
        PartitionBucket({pattern: 8}, 3).count_of("a" * 50 + "!\n")


PIECES = [
    "a", "b", "-", ".", "(", ")", "|", "*", "+", "?", "[ab]", "[^a]", r"\d", r"\w", r"\s", r"\S",
    r"[\s]", r"[^\S]", "{2}", "{1,3}", "^", "$", r"\z", r"\Z", r"\x61", r"\u0062", "(?:", "(?<n>",
    r"\Qa.\E", "(?i)",
]  # fmt: skip


@given(
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join),
    st.text(alphabet="abA1- \x0b\tüß", max_size=8),
)
def test_both_engines_find_the_same(pattern: str, text: str) -> None:
    with suppress(ConfigError):
        compiled = JavaPattern(pattern)
        if compiled.linear is not None and compiled._is_same_in_linear(text):
            found = pc.match_substring_regex(pa.array([text]), compiled.linear)[0].as_py()
            assert found == (compiled.python.search(text) is not None)
