"""For all rows: keys and paths made of columns equal those made row by row, and paths read back."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.model.field_path import column_of
from bucketlake.model.keys import KeyGenerator, KeySpec, record_keys
from bucketlake.model.partition_path import (
    DEFAULT_PARTITION,
    decode_segment,
    encode_segment,
    partition_paths,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
VALUES = st.one_of(st.none(), st.sampled_from(["", "a", "a/b", "x=y", "%41"]), TEXTS)
ROWS = st.lists(st.tuples(VALUES, VALUES), max_size=12)
ENCODED = st.builds(
    KeySpec,
    st.just(("a", "b")),
    st.just(("a", "b")),
    st.just(KeyGenerator.COMPLEX),
    hive_style=st.booleans(),
    url_encode=st.just(True),
)
RESERVED = {".", "..", ".hoodie"}


# Structs in structs, each of which may be null; a null struct of Arrow may hide a value.
LEAVES = st.lists(st.tuples(st.booleans(), st.booleans(), VALUES), max_size=12)


@given(leaves=LEAVES, start=st.integers(0, 12))
def test_values_at_a_path_are_those_of_a_walk_through_the_rows(
    leaves: list[tuple[bool, bool, str | None]], start: int
) -> None:
    outer_null, inner_null, values = ([leaf[i] for leaf in leaves] for i in range(3))
    inner = pa.StructArray.from_arrays(
        [pa.array(values, pa.string())], ["x"], mask=pa.array(inner_null, pa.bool_())
    )
    outer = pa.StructArray.from_arrays([inner], ["in"], mask=pa.array(outer_null, pa.bool_()))
    table = pa.table({"a": pa.chunked_array([outer.slice(0, start), outer.slice(start)])})
    walked = [((row or {}).get("in") or {}).get("x") for row in outer.to_pylist()]
    assert column_of(table, "a.in.x", "key").to_pylist() == walked


def _table(rows: list[tuple[str | None, str | None]], cuts: list[int]) -> pa.Table:
    """Hold the rows in columns whose chunks end in different places."""
    first, second = (pa.array([row[i] for row in rows], pa.string()) for i in (0, 1))
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    chunks = [first.slice(start, end - start) for start, end in pairwise(edges)]
    return pa.table({"a": pa.chunked_array(chunks, pa.string()), "b": second})


def _element(value: str | None) -> str:
    return {None: "__null__", "": "__empty__"}.get(value, value or "")


@given(rows=ROWS, cuts=st.lists(st.integers(0, 12), max_size=3))
def test_composite_keys_equal_those_made_row_by_row(
    rows: list[tuple[str | None, str | None]], cuts: list[int]
) -> None:
    rows = [row for row in rows if any(row)]
    spec = KeySpec(("a", "b"), (), KeyGenerator.NON_PARTITION)
    expected = [f"a:{_element(a)},b:{_element(b)}" for a, b in rows]
    assert record_keys(_table(rows, cuts), spec).to_pylist() == expected


@given(rows=ROWS, cuts=st.lists(st.integers(0, 12), max_size=3), spec=ENCODED)
def test_paths_equal_those_made_row_by_row_and_read_back(
    rows: list[tuple[str | None, str | None]], cuts: list[int], spec: KeySpec
) -> None:
    rows = [row for row in rows if not RESERVED.intersection(row)]
    marks = [f"{name}=" if spec.hive_style else "" for name in ("a", "b")]
    expected = [
        "/".join(
            mark + encode_segment(value or DEFAULT_PARTITION)
            for mark, value in zip(marks, row, strict=True)
        )
        for row in rows
    ]
    paths = partition_paths(_table(rows, cuts), spec)
    assert paths.to_pylist() == expected
    assert len(paths.dictionary) == len(set(expected))
    for row, path in zip(rows, expected, strict=True):
        parts = zip(marks, path.split("/"), strict=True)
        read = [decode_segment(part.removeprefix(mark)) for mark, part in parts]
        assert read == [value or DEFAULT_PARTITION for value in row]


@given(text=st.text())
def test_decoding_undoes_encoding(text: str) -> None:
    encoded = encode_segment(text)
    assert decode_segment(encoded) == text
    assert not set(encoded) & set("/:=\0")
