"""For all types and data: log blocks give back what was written, as a row-at-a-time codec does.

Damaged bytes give the named errors or valid columns, and nothing else.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.errors import FormatError, NullElementWarning, UnsupportedFeatureError
from bucketlake.format.avro.table_schema import avro_from_arrow
from bucketlake.format.log_block import BlockKind, HeaderKey, encode_block, read_log_blocks
from bucketlake.format.log_data import (
    decode_data_block,
    encode_avro_block,
    encode_parquet_block,
)
from bucketlake.format.log_deletes import Deletes, decode_delete_block, encode_delete_block
from bucketlake.model.schema import with_meta
from tests.property.arrow_values import schemas, tables, values
from tests.property.test_types import with_meta_columns
from tests.storages import memory_of
from tests.unit.format.log_rows import (
    INSTANT,
    PATH,
    avro_content,
    block_of,
    only_block,
    rows_of,
)

TABLES = tables(lambda: schemas(required=True))
NAMED_ERRORS = (FormatError, UnsupportedFeatureError)


@given(data=TABLES)
def test_avro_block_has_the_bytes_of_a_row_writer_and_gives_back_the_rows(data: pa.Table) -> None:
    schema = avro_from_arrow(data.schema, "t")
    block = only_block(encode_avro_block(data, schema, instant=INSTANT))
    assert bytes(block.content) == avro_content(schema, rows_of(data))
    decoded = decode_data_block(block)
    decoded.validate(full=True)
    assert decoded.schema.equals(data.schema)
    assert repr(decoded.to_pylist()) == repr(data.to_pylist())


@given(data=TABLES, more=st.data())
def test_any_columns_are_those_of_the_whole_block(data: pa.Table, more: st.DataObject) -> None:
    schema = avro_from_arrow(data.schema, "t")
    block = only_block(encode_avro_block(data, schema, instant=INSTANT))
    columns = more.draw(st.lists(st.sampled_from(data.column_names), min_size=1, unique=True))
    decoded = decode_data_block(block, columns)
    assert repr(decoded.to_pylist()) == repr(data.select(columns).to_pylist())


@given(data=TABLES)
def test_parquet_block_gives_back_the_rows(data: pa.Table) -> None:
    table = with_meta_columns(data)
    schema = avro_from_arrow(with_meta(data.schema), "t")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NullElementWarning)
        block = only_block(encode_parquet_block(table, schema, instant=INSTANT).block)
    assert repr(decode_data_block(block).to_pylist()) == repr(table.to_pylist())


ORDERINGS = [pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.date32(), pa.decimal128(30, 15)]


@st.composite
def deletes(draw: st.DrawFn) -> Deletes:
    """Deletes with up to three ordering fields, some of them commit-time deletes."""
    count = draw(st.integers(0, 6))
    kinds = draw(st.lists(st.sampled_from(ORDERINGS), max_size=3))
    many = {"min_size": count, "max_size": count}
    flags = draw(st.lists(st.booleans(), **many)) if kinds else [True] * count
    columns = []
    for kind in kinds:
        given_values = draw(st.lists(values(kind, nullable=False), **many))
        shown = [None if flag else one for flag, one in zip(flags, given_values, strict=True)]
        columns.append(pa.array(shown, kind))
    keys = pa.array(draw(st.lists(st.text(max_size=5), **many)), pa.string())
    paths = pa.array(draw(st.lists(st.none() | st.text(max_size=5), **many)), pa.string())
    return Deletes(keys, paths, pa.array(flags, pa.bool_()), tuple(columns))


@given(written=deletes())
def test_deletes_come_back_with_their_ordering_values(written: Deletes) -> None:
    read = decode_delete_block(only_block(encode_delete_block(written, instant=INSTANT)))
    assert read.record_keys.equals(written.record_keys)
    assert read.partition_paths.equals(written.partition_paths)
    is_none = written.is_commit_time.to_pylist()
    # A date is written as an int.
    orderings = [o.cast(pa.int32()) if o.type == pa.date32() else o for o in written.orderings]
    if len(orderings) == 1 and orderings[0].type == pa.int32():
        # The value 0 of an int field cannot be told from no value.
        shown = zip(is_none, orderings[0].to_pylist(), strict=True)
        is_none = [flag or value == 0 for flag, value in shown]
    assert read.is_commit_time.to_pylist() == is_none
    if not all(is_none):
        for one, other in zip(read.orderings, orderings, strict=True):
            assert one.type == other.type
            shown = zip(is_none, other.to_pylist(), strict=True)
            assert repr(one.to_pylist()) == repr([None if f else v for f, v in shown])


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """Cut a content off, or change a few of its bytes, or put others into it."""
    places = st.integers(0, max(len(content) - 1, 0))
    patches = st.lists(st.tuples(places, st.binary(max_size=5)), min_size=1, max_size=3)
    return st.builds(_patched, st.just(content), patches, st.just(0) | places)


def _patched(content: bytes, patches: list[tuple[int, bytes]], cut: int) -> bytes:
    for at, data in patches:
        content = content[:at] + data + content[at + len(data) :]
    return content[: len(content) - cut]


@given(data=TABLES, more=st.data())
def test_damaged_records_give_valid_columns_or_a_named_error(
    data: pa.Table, more: st.DataObject
) -> None:
    schema = avro_from_arrow(data.schema, "t")
    content = more.draw(damaged(avro_content(schema, rows_of(data))))
    try:
        decoded = decode_data_block(block_of(content, schema))
    except FormatError as error:
        where = (error.path, error.offset_bytes is None)
    else:
        decoded.validate(full=True)
        return
    assert where == (PATH, False)


@given(written=deletes(), more=st.data())
def test_damaged_deletes_give_valid_columns_or_a_named_error(
    written: Deletes, more: st.DataObject
) -> None:
    content = bytes(only_block(encode_delete_block(written, instant=INSTANT)).content)
    changed = more.draw(damaged(content))
    size = max(len(changed) - 8, 0).to_bytes(4, "big")
    changed = changed[:4] + more.draw(st.sampled_from([size, changed[4:8]])) + changed[8:]
    try:
        read = decode_delete_block(block_of(changed, kind=BlockKind.DELETE))
    except NAMED_ERRORS:
        return
    for column in (read.record_keys, read.partition_paths, read.is_commit_time, *read.orderings):
        column.validate(full=True)
        assert len(column) == len(read.record_keys)


@given(content=st.binary(max_size=60), kind=st.sampled_from([3, 5]), version=st.integers(0, 4))
def test_garbage_gives_a_named_error_or_nothing(content: bytes, kind: int, version: int) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "c", "type": "string"}]}
    garbage = version.to_bytes(4, "big") + content
    try:
        decode_data_block(block_of(garbage, schema, kind=BlockKind(kind)))
        decode_delete_block(block_of(garbage, kind=BlockKind.DELETE))
    except NAMED_ERRORS:
        pass


HEADERS = {HeaderKey.INSTANT_TIME: INSTANT, HeaderKey.SCHEMA: "{}"}
FILE = encode_block(BlockKind.AVRO_DATA, HEADERS, b"0123") * 2


@given(content=damaged(FILE) | st.binary())
def test_damaged_frames_give_blocks_of_the_file_or_a_named_error(content: bytes) -> None:
    try:
        blocks = list(read_log_blocks(memory_of({PATH: content}), PATH))
    except NAMED_ERRORS:
        return
    assert blocks[-1].offset_bytes < len(content)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 40) | st.sampled_from(["int", "x", "\ud800"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=4,
)


def changed_schemas(schema_json: str) -> st.SearchStrategy[str]:
    """Put any JSON into the place of some part of a schema."""
    places = list(_places(json.loads(schema_json)))

    def put(place: tuple[Any, ...], value: Any) -> str:
        schema = json.loads(schema_json)
        part = schema
        for step in place[:-1]:
            part = part[step]
        part[place[-1]] = value
        return json.dumps(schema)

    return st.builds(put, st.sampled_from(places), JSON)


def _places(part: Any, path: tuple[Any, ...] = ()) -> Any:
    steps = part.items() if isinstance(part, dict) else enumerate(part)
    for step, inner in steps:
        yield (*path, step)
        if isinstance(inner, dict | list):
            yield from _places(inner, (*path, step))


@given(data=TABLES, more=st.data())
def test_damaged_schema_gives_valid_columns_or_a_named_error(
    data: pa.Table, more: st.DataObject
) -> None:
    schema = avro_from_arrow(data.schema, "t")
    content = avro_content(schema, rows_of(data))
    try:
        decoded = decode_data_block(block_of(content, more.draw(changed_schemas(schema))))
    except NAMED_ERRORS:
        return
    decoded.validate(full=True)


@pytest.mark.parametrize("items", ["int", "string", ["null", "int"], "double", "boolean"])
def test_large_array_of_a_few_records_costs_by_its_items(items: Any) -> None:
    element = {"int": 1, "string": "", "double": 0.5, "boolean": True}.get(str(items))
    array = {"type": "array", "items": items}
    schema = {"type": "record", "name": "r", "fields": [{"name": "c", "type": array}]}
    rows = [{"c": [element] * 200_000}, {"c": []}]
    decoded = decode_data_block(block_of(avro_content(json.dumps(schema), rows), schema))
    assert decoded.to_pylist() == rows
