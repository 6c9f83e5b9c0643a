"""Smallest and largest key, in Java's order."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bucketlake.format.key_range import key_range


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([], None),
        ([None], None),
        (["b", None, "a"], ("a", "b")),
        (["", "a"], ("", "a")),
        (["a", "aa", "ä"], ("a", "ä")),
        (["\uffff", "🙂"], ("🙂", "\uffff")),
        (["\ue000", "🙂", "z"], ("z", "\ue000")),
    ],
)
def test_range_of_keys(keys: list[str | None], expected: tuple[str, str] | None) -> None:
    assert key_range(pa.array(keys, pa.string())) == expected
    shifted = pa.array(["\uffff🙂", *keys], pa.string()).slice(1)
    assert key_range(shifted) == expected
