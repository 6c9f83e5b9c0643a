"""JSON of others: parsed within bounds, or refused with a ValueError."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.model.bounded_json import NESTING_MAX, nesting_of, parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, width=32),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def depth_of(value: object) -> int:
    held = [*value.values()] if isinstance(value, dict) else value
    return 1 + max(map(depth_of, held), default=0) if isinstance(held, list) else 0


@given(value=VALUES.filter(lambda value: "Infinity" not in json.dumps(value)))
def test_json_is_parsed_as_by_the_usual_parser_and_its_depth_is_known(value: object) -> None:
    text = json.dumps(value)
    assert parse_json(text) == parse_json(text.encode()) == value
    assert nesting_of(text.encode()) == depth_of(value)


def test_json_of_the_greatest_depth_is_parsed() -> None:
    assert depth_of(parse_json("[" * NESTING_MAX + "]" * NESTING_MAX)) == NESTING_MAX


@pytest.mark.parametrize(
    "text",
    [
        "[" * (NESTING_MAX + 1) + "]" * (NESTING_MAX + 1),
        "[" * 10**6,
        '{"a":' * 10**5,
        '{"a": "\\"[", "b": ' + "[" * 10**5,
        "Infinity",
        '{"a": -Infinity}',
        "[NaN]",
        "[1e999]",
        f"[{'9' * 4301}]",
        "",
        "[",
    ],
)
def test_json_beyond_the_bounds_is_refused(text: str) -> None:
    for given_text in (text, text.encode()):
        with pytest.raises(ValueError, match=r".") as caught:
            parse_json(given_text)
        assert len(str(caught.value)) < 300
