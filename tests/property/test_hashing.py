"""For all texts: the columnar hash equals the plain one, however Arrow holds the column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from bucketlake.hashing import index_key
from bucketlake.hashing.index_key import SplitFields, hash_index_keys, hash_strings, join_index_keys
from bucketlake.index.bucket_hash import assign_buckets
from tests.hash_oracle import bucket_of, java_list_hash, java_string_hash, split_index_key
from tests.hash_oracle import index_key as oracle_index_key

# Texts of all planes, with what lies around the surrogates (U+D800 to U+DFFF) and the last plane.
EDGES = "\x00\x7f\x80߿ࠀ퟿￿\U00010000\U0010ffff"
TEXTS = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from(EDGES)))
ASCII = st.text(st.characters(max_codepoint=127))
ASCII_LETTERS = "abcdefgh"
KEYS = st.lists(st.one_of(st.none(), TEXTS, ASCII))

# Keys as they come, and pieces that meet the odd corners of how Hudi takes keys apart.
PIECES = st.sampled_from(["a", "bb", "id", ":", ",", "__null__", "__empty__", "é", "😀", "1", ""])
ODD_KEYS = st.lists(PIECES, max_size=12).map("".join)
FIELDS = st.lists(st.sampled_from(["a", "id", "bb", "", "é", "none"]), max_size=3)


@st.composite
def composite_keys(draw: st.DrawFn) -> list[str]:
    names = draw(st.lists(st.sampled_from(["a", "id", "bb", "é"]), min_size=2, max_size=4))
    values = st.one_of(TEXTS, st.sampled_from(["__null__", "__empty__", "", "2024-01-01 10:00:00"]))
    rows = draw(st.lists(st.tuples(*[values] * len(names)), max_size=8))
    return [",".join(f"{n}:{v}" for n, v in zip(names, row, strict=True)) for row in rows]


@st.composite
def keys_of_a_table(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """The key fields of a table, and keys of it, whose values may look like other fields."""
    names = st.sampled_from(["a", "id", "bb", "é", "header.eid", "a_long_name"])
    fields = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    odd = st.sampled_from([",zz:q", "x,id:1", "b,", "10:30", ":", ",", "__null__", "__empty__"])
    values = st.one_of(st.text(ASCII_LETTERS), odd)
    rows = draw(st.lists(st.tuples(*[values] * len(fields)), max_size=8))
    if len(fields) == 1:
        return fields, [value for (value,) in rows]
    return fields, [",".join(map(":".join, zip(fields, row, strict=True))) for row in rows]


def _expected(keys: list[str | None]) -> list[int]:
    return [0 if key is None else java_string_hash(key) for key in keys]


@given(keys=KEYS)
@example(keys=[])
@example(keys=[None])
@example(keys=["", "", None, ""])
def test_the_hash_of_any_text_is_that_of_java(keys: list[str | None]) -> None:
    assert hash_strings(pa.array(keys, pa.string())).tolist() == _expected(keys)


@given(keys=KEYS, data=st.data())
def test_any_slice_in_any_layout_hashes_as_its_texts(
    keys: list[str | None], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(keys)))
    count = data.draw(st.integers(0, len(keys) - start))
    expected = _expected(keys[start : start + count])
    for layout in (pa.string(), pa.large_string(), pa.string_view()):
        column = pa.array(keys, pa.string()).cast(layout).slice(start, count)
        assert hash_strings(column).tolist() == expected, layout
    encoded = pa.array(keys, pa.string()).dictionary_encode().slice(start, count)
    assert hash_strings(encoded).tolist() == expected


@given(chunks=st.lists(KEYS, max_size=4))
def test_a_chunked_column_hashes_as_its_chunks_in_order(chunks: list[list[str | None]]) -> None:
    column = pa.chunked_array([pa.array(chunk, pa.string()) for chunk in chunks], pa.string())
    hashes = hash_strings(column)
    assert hashes.dtype == np.int32
    assert hashes.tolist() == _expected([key for chunk in chunks for key in chunk])


@given(keys=KEYS, block_units=st.integers(1, 40))
def test_hashes_do_not_depend_on_where_blocks_end(keys: list[str | None], block_units: int) -> None:
    usual = index_key._BLOCK_UNITS
    try:
        index_key._BLOCK_UNITS = block_units
        index_key._tables.cache_clear()
        assert hash_strings(pa.array(keys, pa.string())).tolist() == _expected(keys)
    finally:
        index_key._BLOCK_UNITS = usual
        index_key._tables.cache_clear()


@given(keys=st.lists(ODD_KEYS), hash_fields=FIELDS)
@example(keys=["f1:a,f2:2014-10-22 13:50:42"], hash_fields=["f1"])
@example(keys=["a:b,c"], hash_fields=["a"])
@example(keys=["x,y:z", "plain"], hash_fields=[])
@example(keys=["a:1,id:2", "a:1,bb"], hash_fields=["id"])
def test_any_key_is_taken_apart_as_the_plain_parser_does(
    keys: list[str], hash_fields: list[str]
) -> None:
    expected = [java_list_hash(oracle_index_key(key, hash_fields)) for key in keys]
    assert hash_index_keys(pa.array(keys, pa.string()), hash_fields).tolist() == expected


@given(keys=st.lists(st.one_of(ODD_KEYS, TEXTS)), more=composite_keys(), hash_fields=FIELDS)
@example(keys=["", "a:b", "a,b", ":", "a:b,,"], more=[], hash_fields=["id"])
def test_any_key_is_split_as_the_plain_rule_of_hudi_0_15_does(
    keys: list[str], more: list[str], hash_fields: list[str]
) -> None:
    keys += more
    values = [split_index_key(key, hash_fields) for key in keys]
    column, fields = pa.array(keys, pa.string()), SplitFields(hash_fields)
    assert hash_index_keys(column, fields).tolist() == [java_list_hash(found) for found in values]
    joined = "".join("null" if text is None else text for found in values for text in found)
    blocks = join_index_keys(column, fields)
    assert b"".join(data[at[0] : at[-1]].tobytes() for data, at in blocks).decode() == joined


@given(keys=composite_keys(), hash_fields=FIELDS)
def test_composite_keys_are_taken_apart_as_the_plain_parser_does(
    keys: list[str], hash_fields: list[str]
) -> None:
    expected = [java_list_hash(oracle_index_key(key, hash_fields)) for key in keys]
    column = pa.chunked_array([pa.array(keys, pa.string()), pa.array(keys[:1], pa.string())])
    assert hash_index_keys(column, hash_fields).tolist() == expected + expected[:1]


@given(table=keys_of_a_table())
@example(table=(["id"], ["a:b,", "plain", "a:b,"]))
@example(table=(["a", "b"], ["a:p,b:q", "a:p,zz:q,b:1", "a:x,b:1,b:2"]))
def test_keys_of_a_table_are_taken_apart_by_the_names_of_its_key_fields(
    table: tuple[list[str], list[str]],
) -> None:
    fields, keys = table
    values = [oracle_index_key(key, fields) for key in keys]
    column = pa.array(keys, pa.string())
    assert hash_index_keys(column, fields).tolist() == [java_list_hash(found) for found in values]
    joined = "".join("null" if text is None else text for found in values for text in found)
    blocks = join_index_keys(column, fields)
    assert b"".join(data[at[0] : at[-1]].tobytes() for data, at in blocks).decode() == joined


@given(keys=st.lists(st.one_of(ODD_KEYS, TEXTS)), rows=st.integers(1, 5))
def test_index_hashes_do_not_depend_on_how_many_rows_are_taken_at_once(
    keys: list[str], rows: int
) -> None:
    expected = [java_list_hash(oracle_index_key(key, ["a", "id"])) for key in keys]
    usual = index_key._ROWS_AT_ONCE
    try:
        index_key._ROWS_AT_ONCE = rows
        assert hash_index_keys(pa.array(keys, pa.string()), ["a", "id"]).tolist() == expected
    finally:
        index_key._ROWS_AT_ONCE = usual


@given(keys=st.lists(st.one_of(ODD_KEYS, TEXTS)), bucket_count=st.integers(1, 99_999_999))
def test_every_key_has_the_bucket_of_the_plain_rule(keys: list[str], bucket_count: int) -> None:
    buckets = assign_buckets(keys, bucket_count, ["id"])
    assert buckets.dtype == np.int32
    assert buckets.tolist() == [bucket_of(key, bucket_count, ["id"]) for key in keys]


@given(keys=st.lists(st.one_of(st.none(), ODD_KEYS)), hash_fields=FIELDS)
def test_a_dictionary_of_keys_hashes_as_the_keys(
    keys: list[str | None], hash_fields: list[str]
) -> None:
    plain = pa.array(keys, pa.string())
    hashes = hash_index_keys(plain, hash_fields).tolist()
    assert hash_index_keys(plain.dictionary_encode(), hash_fields).tolist() == hashes
