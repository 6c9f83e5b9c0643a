"""Java properties text."""

from __future__ import annotations

import pytest

from bucketlake.format.properties import java_date, parse_properties, render_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"a=b", {"a": "b"}),
        (b"a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        (b"a = b ", {"a": "b "}),
        (b"a:b\nc d\ne\t:\tf", {"a": "b", "c": "d", "e": "f"}),
        (b"a==b", {"a": "=b"}),
        (b"a", {"a": ""}),
        (b"a=", {"a": ""}),
        (b"=a", {"": "a"}),
        (b"", {}),
        (b"#a=b\n!c=d\n  # e=f\n\n  \n", {}),
        (b"a=1\na=2", {"a": "2"}),
        (b"a=b\\\n   c\\\n#d", {"a": "bc#d"}),
        (b"a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        (b"a=b\\", {"a": "b"}),
        (b"a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        (b"a\\=\\:\\ b=c", {"a=: b": "c"}),
        (b"a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        (b"a=\\u00e4\\u65E5", {"a": "ä日"}),
        (b"a=\\uD83D\\uDE42", {"a": "🙂"}),
        (b"a=\\u12", {"a": "u12"}),
        (b"a=\xe4", {"a": "ä"}),
        (b'schema={"type"\\:"record"}', {"schema": '{"type":"record"}'}),
        (b'schema={"type":"record"}', {"schema": '{"type":"record"}'}),
    ],
)
def test_text_parses_as_java_reads_it(text: bytes, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"a": "b c"}, b"a=b c\n"),
        ({"a": "  b"}, b"a=\\ \\ b\n"),
        ({"a b": "c"}, b"a\\ b=c\n"),
        ({"a": "#!=:\\"}, b"a=\\#\\!\\=\\:\\\\\n"),
        ({"a": "\t\n\r\f"}, b"a=\\t\\n\\r\\f\n"),
        ({"a": "ä日"}, b"a=\\u00E4\\u65E5\n"),
        ({"a": "🙂"}, b"a=\\uD83D\\uDE42\n"),
        ({"b": "1", "a": "2"}, b"b=1\na=2\n"),
        ({}, b""),
    ],
)
def test_entries_render_as_java_writes_them(properties: dict[str, str], text: bytes) -> None:
    assert render_properties(properties) == text


def test_comment_lines_stand_on_top() -> None:
    assert render_properties({"a": "b"}, "one\ntwo") == b"#one\n#two\na=b\n"


def test_java_date_pads_the_day_and_names_no_locale() -> None:
    assert java_date(1_709_600_000_999) == "Tue Mar 05 00:53:20 UTC 2024"
