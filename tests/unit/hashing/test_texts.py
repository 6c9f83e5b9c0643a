"""Texts as words: one hash for one text wherever it lies, and an exact comparison."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.errors import InputError
from bucketlake.hashing import texts as texts_module
from bucketlake.hashing.texts import TextHashes, Texts, TextTable, hash_texts, same_texts

texts = st.text(max_size=12) | st.sampled_from(["x" * size for size in (7, 8, 9, 63, 64, 65, 200)])


def texts_of(values: list[str]) -> Texts:
    return Texts.of_array(pa.array(values, pa.string()))


@given(st.lists(texts, max_size=30))
def test_hash_of_a_text_does_not_depend_on_the_texts_around_it(values: list[str]) -> None:
    alone = [int(hash_texts(texts_of([value]))[0]) for value in values]
    assert hash_texts(texts_of(values)).tolist() == alone
    column = pa.array(["before", *values, "after"], pa.large_string()).slice(1, len(values))
    assert hash_texts(Texts.of_array(column)).tolist() == alone


@given(st.lists(st.tuples(texts, texts), max_size=30), st.randoms())
def test_comparison_equals_that_of_python(pairs: list[tuple[str, str]], random: object) -> None:
    pairs = pairs + [(left, left) for left, _ in pairs]
    left, right = texts_of([a for a, _ in pairs]), texts_of([b for _, b in pairs])
    assert same_texts(left, right).tolist() == [a == b for a, b in pairs]
    order = np.array(random.sample(range(len(pairs)), len(pairs)), np.int64)  # type: ignore[attr-defined]
    expected = [pairs[n][0] == pairs[n][1] for n in order.tolist()]
    assert same_texts(left.take(order), right.take(order)).tolist() == expected


@pytest.mark.parametrize("size", [1, 8, 15, 64, 100])
def test_texts_of_one_length_that_differ_in_any_byte_differ_in_hash_and_comparison(
    size: int,
) -> None:
    values = ["a" * at + "b" + "a" * (size - at - 1) for at in range(size)] + ["a" * size]
    column = texts_of(values)
    assert column.lengths == size
    assert len(set(hash_texts(column).tolist())) == len(values)
    first = column.take(np.zeros(len(values), np.int64))
    assert same_texts(first, column).tolist() == [True] + [False] * size


def test_hashes_of_numbered_keys_fill_all_cells_evenly() -> None:
    hashes = hash_texts(texts_of([f"order-{number:09d}" for number in range(100_000)]))
    assert len(np.unique(hashes)) == 100_000
    for shift in (0, 16, 32, 48):
        counts = np.bincount((hashes >> np.uint64(shift)).astype(np.uint16) >> 8)
        assert counts.min() > 300  # Of 390 on average.
        assert counts.max() < 480


def test_column_that_is_not_text_is_refused() -> None:
    with pytest.raises(InputError, match="int64"):
        Texts.of_array(pa.array([1]))


keys = texts | st.builds("a:{},b:{}".format, texts, texts)


@given(
    st.lists(keys, unique=True, max_size=30),
    st.lists(st.lists(keys, max_size=30), max_size=3),
    st.sampled_from([0, 3, 3 << 62, 2**64 - 1]),
    st.data(),
)
def test_table_finds_what_a_dict_finds_whatever_the_hash(
    held: list[str], lookups: list[list[str]], mask: int, data: st.DataObject
) -> None:
    def weak(texts: Texts) -> TextHashes:
        return hash_texts(texts) & np.uint64(mask)

    if held:  # Most drawn keys are not there; these are, some of them several times.
        lookups = [*lookups, data.draw(st.lists(st.sampled_from(held) | keys, max_size=30))]
    model = {key: place for place, key in enumerate(held)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts_module, "hash_texts", weak)
        table = TextTable.of_array(pa.array(["before", *held], pa.string()).slice(1))
        for sought in lookups:
            rows, places = table.places_of(pa.array(["", *sought], pa.large_string()).slice(1))
            found = [(row, model[key]) for row, key in enumerate(sought) if key in model]
            assert [*zip(rows.tolist(), places.tolist(), strict=True)] == found
